"""What the families of promises share: bounds with their sources, inputs, and ways to call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture.problems import Case, Row, cases
from evidence.torture.promises import UNIT_ROUNDOFF, Bound, Rows
from otm._machine.arrays import to_numpy

# --------------------------------------------------------------------------------------------------
# bounds

BLOCK = 256


def gate(width: int) -> float:
    """Return ν: how many units a pairwise sum of so many masses is off, at most."""
    return min(width + 1.0, 64.0)


def _scan(row: Row, truth: Decimal) -> float:
    width = len(row.q)
    power = 2 * row.k if row.k <= 64 else 0
    return (2 * (min(BLOCK, width) + width / BLOCK + gate(width)) + power + 12) * UNIT_ROUNDOFF


def _sum(row: Row, truth: Decimal) -> float:
    return (3 * gate(len(row.q)) + 16) * UNIT_ROUNDOFF


def _powers(row: Row, truth: Decimal) -> float:
    return (3 * gate(len(row.q)) + 2 * min(row.k, 64) + 16) * UNIT_ROUNDOFF


def _stages(row: Row, truth: Decimal) -> float:
    return (3 * gate(len(row.q)) + 8) * (row.k + 2) * UNIT_ROUNDOFF


def _none(row: Row, truth: Decimal) -> float:
    return 0.0


SCAN = Bound(
    _scan,
    "(2 (256 + V/256 + ν) + 2k·[k ≤ 64] + 12) u, at most 2e-13 at V = 128,256",
    'docs/theory.md, "The cut scan"',
)
SUM = Bound(
    _sum,
    "(3ν + 16) u: one sum over the vocabulary of terms of a few roundings",
    'docs/theory.md, "Plain sums"',
)
POWERS = Bound(
    _powers, "(3ν + 2 min(k, 64) + 16) u: a sum with k-th powers", 'docs/theory.md, "Plain sums"'
)
STAGES = Bound(
    _stages, "(3ν + 8)(k + 2) u: k sums, each on the one before", 'docs/theory.md, "Plain sums"'
)
OUTWARD = Bound(_none, "0: rounded to its own side", "docstring")


def relative(units: float, source: str = "docstring") -> Bound:
    """Return some units in the last place of the answer."""
    return Bound(
        lambda row, truth: units * UNIT_ROUNDOFF * abs(float(truth)),
        f"{units:g} u, relative",
        source,
    )


def absolute(size: float, said: str, source: str = "docstring") -> Bound:
    """Return one number for all."""
    return Bound(lambda row, truth: size, said, source)


# --------------------------------------------------------------------------------------------------
# inputs

FEW = (1, 2, 3, 4, 5, 6)
iid = functools.partial(cases, law="IID")
one_draft = functools.partial(cases, law="IID", counts=(1,))
iid_single = functools.partial(cases, law="IID", rows=(1,))
iid_short = functools.partial(cases, law="IID", rows=(1,), tokens=(1, 2, 3, 4), counts=(1, 2, 3))
middling = functools.partial(cases, law="IID", tokens=(7, 20, 64, 255, 300))


def of_law(law: str, **limits: Any) -> Callable[[np.random.Generator], Case]:
    """Return a drawer of small cases under a law that is enumerated."""
    limits = {"tokens": (2, 3, 4, 5), "counts": (1, 2, 3)} | limits
    return functools.partial(cases, law=law, **limits)


def any_law(random: np.random.Generator) -> Case:
    """Return a small case, one row, under any law."""
    laws = ("IID", "WithoutReplacement", "Greedy", "Product", "TopK", "ThresholdRace")
    law = laws[random.integers(len(laws))]
    return cases(random, law=law, tokens=(2, 3, 4), counts=(1, 2, 3), rows=(1,))


def accepted(verifier: Any, **by: Any) -> Callable[[Case], Any]:
    """Return the call of `otm.acceptance`."""
    return lambda case: per_row(case, otm.acceptance(verifier, case.problem, **by))


def of_problem(function: Callable[[otm.Problem], Any]) -> Callable[[Case], Rows]:
    """Return the call of a function of a problem, batched."""
    return lambda case: per_row(case, function(case.problem))


def of_arrays(function: Callable[..., Any], **named: Any) -> Callable[[Case], Rows]:
    """Return the call of a function of a draft and a target, batched."""
    return lambda case: per_row(case, function(**case.arrays, **named))


def per_row(case: Case, values: Any) -> Rows:
    """Return an answer `(rows, ...)` or `(...)` as one answer a row."""
    array = to_numpy(values) if hasattr(values, "shape") else np.asarray(values)
    return Rows([array] if case.single else list(array))


def by_k(case: Case, values: Any) -> Rows:
    """Return an answer `(k, rows)` as one list a row."""
    array = to_numpy(values)
    return Rows([array] if case.single else list(array.T))


def ours(oracle: Callable[..., Any], **named: Any) -> Callable[[Row, Case], Any]:
    """Return an oracle that looks at the row only."""
    return lambda row, case: oracle(row, **named)


def at_counts(
    oracle: Callable[[Row], Decimal], counts: Sequence[int]
) -> Callable[[Row, Case], list[Decimal]]:
    """Return an oracle's values for several numbers of drafts."""
    return lambda row, case: [oracle(with_count(row, k)) for k in counts]


def with_count(row: Row, k: int) -> Row:
    """Return the row with another number of drafts."""
    return Row(row.drafts, row.q, row.law, k, row.digits)


ALL_SETS = "every token set, exactly"
SIXTY = "the published formula in 60 digits"
ENUMERATED = "every draft sequence and every token set, exactly"


def mask(case: Case) -> int:
    """Return that set as bits."""
    return sum(1 << y for y, is_in in enumerate(some_set(case)) if is_in)


def ends(case: Case, bracket: Any) -> list[tuple[Any, Any]]:
    """Return lower and upper end of every row."""
    return list(zip(per_row(case, bracket.lower), per_row(case, bracket.upper), strict=True))


def some_set(case: Case) -> list[bool]:
    """Return a token set that the case's extra number chooses."""
    return [bool(int(case.extra * 1000) >> y & 1) for y in range(case.num_tokens)]
