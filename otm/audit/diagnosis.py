"""Diagnoses that the laws found by an audit give for nothing, a line each."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Iterable, Mapping

import numpy as np

from otm.audit.candidate import Candidate, FunctionCandidate
from otm.audit.end_to_end import EndToEndCandidate
from otm.audit.integration import IntegratedAudit
from otm.audit.report import Audit

_SAME = 1e-7
"""Difference up to which two laws count as the same, that of float32."""


def diagnose(
    candidate: Candidate, audits: Mapping[str, Audit], failed: Iterable[str]
) -> tuple[str, ...]:
    """Return sentences on the fault of a failing candidate, as its audits show it.

    Args:
        candidate: what was audited.
        audits: of the candidate, by instance.
        failed: the names of those that failed.
    """
    exact = {name: one for name, one in audits.items() if isinstance(one, IntegratedAudit)}
    wrong = [exact[name] for name in failed if name in exact]
    return tuple(filter(None, (_swapped(candidate), _unverified(wrong), _one_law(exact))))


def _swapped(candidate: Candidate) -> str:
    """Tell arguments that are named the other way round."""
    if not isinstance(candidate, FunctionCandidate) or isinstance(candidate, EndToEndCandidate):
        return ""
    names = [*inspect.signature(candidate.verify).parameters][:2]
    if len(names) < 2 or "target" not in names[0].lower() or "draft" not in names[1].lower():
        return ""
    return (
        f"Its first parameter is called {names[0]} and is given the draft: the order is "
        f"{candidate.called}. Swap the first two in a function of your own."
    )


def _unverified(wrong: Iterable[IntegratedAudit]) -> str:
    """Tell a first token that has the draft's law on every instance that fails."""
    pairs = [(one.law.sum(axis=tuple(range(1, one.law.ndim))), one.draft) for one in wrong]
    same = [p is not None and np.abs(law - p).max() <= _SAME for law, p in pairs]
    if not same or not all(same):
        return ""
    return "The first token has the draft's law wherever it fails: the draft passes unverified."


def _one_law(exact: Mapping[str, IntegratedAudit]) -> str:
    """Tell laws of an instance that are one law at all temperatures, where the target's differ."""
    groups: dict[tuple[str, tuple[int, ...]], list[IntegratedAudit]] = collections.defaultdict(list)
    for name, one in exact.items():
        before, heated, _ = name.partition("temperature")
        if heated:
            groups[before, one.law.shape].append(one)
    for group in groups.values():
        laws, targets = [one.law for one in group], [one.target_law for one in group]
        if np.ptp(targets, axis=0).max() > _SAME >= np.ptp(laws, axis=0).max():
            heats = ", ".join(
                map("{:g}".format, sorted(h for one in group for h in one.tested.temperatures))
            )
            greedy = ", and always the same text: it is greedy" * bool(laws[0].max() > 1.0 - _SAME)
            return f"It has the same law at temperatures {heats}{greedy}."
    return ""
