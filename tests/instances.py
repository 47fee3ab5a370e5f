"""Laws, verifiers and named instances for the tests that walk the registries `otm.drafts.LAWS` and
`otm.verifiers.VERIFIERS`.

A new law or verifier is tested because it is registered. Only if `cls()` does not make a typical
verifier does it need a line in the table here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import otm

_MAKE_VERIFIERS: dict[str, Callable[[Any], list[otm.Verifier]]] = {
    # γ* ≤ k ≤ 8 on every instance with up to 8 drafts: 8 is a lossless division factor that is not
    # γ*.
    "KSeq": lambda cls: [cls(), cls(gamma=8.0)],
    "Optimal": lambda cls: [cls(), cls(bins=4)],
    "Tournament": lambda cls: [cls(), cls(tokens=2)],
    "Lenience": lambda cls: [cls(), cls(residual="scaled")],
    "Cascade": lambda cls: [cls(), cls(rule="opt", alpha=0.2)],
    "RelaxedAcceptance": lambda cls: [cls(), cls(top=1, fallback="greedy")],
    "BoundedRegret": lambda cls: [cls(), cls(regret=0.3, fallback="target")],
    "Mars": lambda cls: [cls(), cls(top_logit=2.0, fallback="target")],
    "ThresholdMatching": lambda cls: [cls(), cls(single=1.0, accumulated=0.3)],
    "Lantern": lambda cls: [cls(), cls(neighbours=1, delta=2.5)],
    "Grouped": lambda cls: [cls(), cls(neighbours=1, margin=1.0)],
    "ActionDistance": lambda cls: [cls(), cls(distance=1)],
    "Fuzzy": lambda cls: [cls(), cls(fallback="speculative")],
}


def _with_defaults(cls: type[otm.Verifier]) -> list[otm.Verifier]:
    return [cls()]


def verifiers() -> list[otm.Verifier]:
    """Return every registered verifier, with default and perhaps further parameters."""
    return [
        v
        for cls in otm.verifiers.VERIFIERS
        for v in _MAKE_VERIFIERS.get(cls.__name__, _with_defaults)(cls)
    ]


def laws(counts: Sequence[int] = (1, 2, 3)) -> list[otm.Law]:
    """Every registered law for each number of drafts."""
    return [cls.of_size(k) for cls in otm.drafts.LAWS for k in counts]


def label(thing: object) -> str:
    """A test id without spaces."""
    return repr(thing).replace("=None", "").replace(" ", "")


def law_params(counts: Sequence[int] = (1, 2, 3)) -> list[Any]:
    return [pytest.param(law, id=label(law)) for law in laws(counts)]


def supported(counts: Sequence[int] = (1, 3)) -> list[tuple[otm.Verifier, list[otm.Law]]]:
    """Return every verifier with the supported laws, with two drafts if no count will do."""
    return [
        (verifier, [law for law in taken if verifier.supports(law)])
        for verifier in verifiers()
        for taken in [
            [
                law
                for make in otm.drafts.LAWS
                for sizes in [[k for k in counts if verifier.supports(make.of_size(k))]]
                for law in map(make.of_size, sizes or (2,))
            ]
        ]
    ]


def supported_pairs(counts: Sequence[int] = (1, 3)) -> list[Any]:
    """Parameters (verifier, law) for every supported pair."""
    return [
        pytest.param(verifier, law, id=f"{label(verifier)}-{label(law)}")
        for verifier, laws in supported(counts)
        for law in laws
    ]


def fits(law: otm.Law, num_tokens: int) -> bool:
    """Return True if the law can draft from a vocabulary of this size."""
    try:
        law.align(np.ones(law.draft_shape(num_tokens)), np.ones(num_tokens))
    except otm.errors.InvalidParameter:
        return False
    return True


def make_problem(law: otm.Law, rows: Sequence[Any], target: Any) -> otm.Problem:
    """Return a problem whose draft is the first of `rows`, or several for different drafters."""
    shape = law.draft_shape(len(target))
    arrays = [np.asarray(row, dtype=np.float64) for row in rows[: math.prod(shape[:-1])]]
    return otm.Problem(draft=np.stack(arrays).reshape(shape), target=target, law=law)


ROWS: dict[str, tuple[list[list[float]], list[float]]] = {
    "plain": (
        [[0.41, 0.33, 0.17, 0.09], [0.2, 0.1, 0.4, 0.3], [0.05, 0.55, 0.15, 0.25]],
        [0.12, 0.29, 0.38, 0.21],
    ),
    "reversed": ([[0.07, 0.13, 0.8], [0.3, 0.45, 0.25], [0.6, 0.3, 0.1]], [0.55, 0.4, 0.05]),
    # After a rejection, recursive rejection accepts token 1 with probability 5/12, without
    # replacement 1/4, and what is left after that has two tokens: on tidier instances later stages
    # accept with probability 0 or 1, or leave one token, where a uniform used twice goes unnoticed.
    "partial": (
        [[0.4, 0.4, 0.1, 0.1], [0.4, 0.2, 0.1, 0.3], [0.1, 0.2, 0.3, 0.4]],
        [0.1, 0.45, 0.22, 0.23],
    ),
    "ties": (
        [[0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25]],
        [0.125, 0.125, 0.375, 0.375],
    ),
    "zeros": (
        [[0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.5, 0.0, 0.5, 0.0]],
        [0.0, 0.25, 0.25, 0.5],
    ),
    "equal": ([[0.5, 0.3, 0.2]] * 3, [0.5, 0.3, 0.2]),
    "disjoint": ([[0.75, 0.25, 0.0, 0.0]] * 3, [0.0, 0.0, 0.5, 0.5]),
    "one draft token": ([[0.0, 1.0, 0.0]] * 3, [0.3, 0.3, 0.4]),
    "one target token": ([[0.2, 0.3, 0.5]] * 3, [0.0, 1.0, 0.0]),
    "one token each": ([[1.0, 0.0, 0.0]] * 3, [0.0, 0.0, 1.0]),
    "tiny": ([[0.6, 0.4, 1e-300, 1e-30]] * 3, [0.3, 1e-300, 0.7, 1e-17]),
    "vocabulary of one": ([[1.0]] * 3, [1.0]),
}
NAMED = list(ROWS)


def named_problem(name: str, law: otm.Law) -> otm.Problem | None:
    """The named instance under this law, or None where the law cannot draft from so few tokens."""
    rows, target = ROWS[name]
    if not fits(law, len(target)):
        return None
    rows = [*rows, *rows, *rows]
    return make_problem(law, rows, target)


@functools.cache
def named_problems(law: otm.Law) -> list[tuple[str, otm.Problem]]:
    """Every named instance that the law can draft from."""
    found = [(name, named_problem(name, law)) for name in NAMED]
    return [(name, problem) for name, problem in found if problem is not None]
