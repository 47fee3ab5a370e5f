"""Accuracy of verifiers' laws and acceptances."""

from __future__ import annotations

import otm
from tests.tolerance import CERTIFIED_GAP, COLLECTED, rounding

_SHARED: dict[tuple[otm.Verifier, otm.Law], bool] = {}
"""Whether a verifier of a law's drafts shares randomness: known once one rule is prepared."""


def accuracy(verifier: otm.Verifier, problem: otm.Problem) -> float:
    """Return the accuracy of the law of a verifier's output."""
    pair = verifier, problem.law
    if pair not in _SHARED:
        _SHARED[pair] = isinstance(otm.prepare(verifier, problem), otm.verifiers.Shared)
    return COLLECTED if _SHARED[pair] else rounding(problem.num_tokens, problem.law.size)


def value_accuracy(verifier: otm.Verifier, problem: otm.Problem) -> float:
    """Return the accuracy of a verifier's acceptance."""
    return max(
        accuracy(verifier, problem),
        CERTIFIED_GAP if verifier.is_plan else 0.0,
    )
