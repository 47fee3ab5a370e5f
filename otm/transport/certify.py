"""Certificates of an optimum evaluated without a solver, from a proposed flow and cut.

A flow from drafted sets to tokens that respects the masses on both sides *is* a coupling's accepted
part, so its sum is a lower bound of α*; any set T gives the upper bound 1 + Q(T) − b(T). A solver's
flow respects the masses only to its tolerance, so it is repaired first (negative entries clipped,
over-full rows and columns scaled down), and only then summed.

The same lines run in floating point, with the rounding error bounded a priori and the bounds moved
outward by it, and in `fractions.Fraction`, where both certificates are exact rational numbers of
the exactly normalised masses.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import UNIT_ROUNDOFF
from otm.drafts.base import SetTable, collapse, enumerate_drafts
from otm.errors import InvalidParameter
from otm.pmf import check_instance
from otm.problem import Problem, check_problem
from otm.results import Optimum


@dataclasses.dataclass(frozen=True, eq=False)
class Certificate:
    """Bounds lower ≤ α* ≤ upper and the repaired flow along the given edges."""

    lower: Any
    upper: Any
    flow: NDArray[Any]


def certify(
    sets: SetTable,
    target: NDArray[Any],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    flow: NDArray[Any],
    cut: NDArray[np.bool_],
) -> Certificate:
    """Repair and sum a proposed flow, and evaluate a proposed cut.

    Args:
        sets: drafted sets with masses `(m,)`, float64 or `Fraction`.
        target: q `(V,)`, of the same number type.
        rows, columns, flow: the proposal: `flow[e]` moves from set `rows[e]` to token `columns[e]`,
            which must lie in it.
        cut: mask `(V,)` of the set T.

    Returns:
        Certificate with lower ≤ α* ≤ upper; exact for `Fraction`, moved outward by a bound on the
        rounding error for floats.

    Cost: O(edges + m k).
    """
    member = np.zeros(len(rows), dtype=bool)
    for column in range(sets.tokens.shape[1]):
        member |= sets.tokens[rows, column] == columns
    moved = np.where(member, np.maximum(flow, 0), 0)
    moved = moved * _shrink(_sums(moved, rows, sets.mass), sets.mass)[rows]
    moved = moved * _shrink(_sums(moved, columns, target), target)[columns]
    inside = sets.look_up(cut, absent=True).all(axis=1)  # S ⊆ T
    lower, upper = _add(moved), 1 + _add(target[cut]) - _add(sets.mass[inside])
    if sets.mass.dtype != object:
        # docs/theory.md, "Accuracy": with e edges and at most N sequences merged into one set, both
        # sides are within (e + N + 2(k + 1)(V + 1) + k + 8) units in the last place of exact.
        k, merged = sets.tokens.shape[1], int(np.bincount(sets.of_sequence).max())
        slack = (len(rows) + merged + 2 * (k + 1) * (len(target) + 1) + k + 8) * UNIT_ROUNDOFF
        lower, upper = max(0.0, lower * (1 - slack)), min(1.0, upper + slack)
    return Certificate(lower=lower, upper=upper, flow=moved)


def certify_exactly(problem: Problem, solved: Optimum) -> tuple[Fraction, Fraction]:
    """Re-evaluate an optimum's two certificates in rational arithmetic.

    The problem is the one whose masses are the given floats divided by their exact sum; the flow is
    clipped and scaled into it.

    Args:
        problem: the problem that `solved` belongs to, one row.
        solved: the result of `otm.optimum(problem)`.

    Returns:
        Rational numbers (lower, upper) with lower ≤ α* ≤ upper, without any rounding.

    Raises:
        InvalidParameter: where `solved` has another vocabulary.
        TooLarge: beyond four million draft sequences (a few ten thousand are comfortable).

    Cost: O(sequences) fraction operations.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> certify_exactly(problem, otm.optimum(problem))
    (Fraction(15, 16), Fraction(15, 16))
    """
    single = check_problem(problem).single(purpose="An exact certificate")
    draft, target = exact_masses(single.draft), exact_masses(single.target)
    sets = collapse(enumerate_drafts(single.law, draft))
    entries = check_instance(solved, Optimum, name="solved").flow.tocoo()
    flow = np.asarray([Fraction(float(x)) for x in entries.data], dtype=object)
    if solved.cut.shape != target.shape:
        raise InvalidParameter(
            f"solved must be the optimum of the problem, of {len(target)} tokens; "
            f"got one of {len(solved.cut)}. Pass otm.optimum(problem)."
        )
    rows, columns = entries.row.astype(np.int64), entries.col.astype(np.int64)
    checked = certify(sets, target, rows, columns, flow, solved.cut)
    return Fraction(checked.lower), Fraction(checked.upper)


def exact_masses(mass: NDArray[np.float64]) -> NDArray[Any]:
    """Return float masses `(V,)` or `(k, V)` as `Fraction`s divided by each row's exact sum."""
    if mass.ndim > 1:
        return np.stack([exact_masses(row) for row in mass])
    exact = [Fraction(float(x)) for x in mass]
    total = sum(exact)
    return np.asarray([x / total for x in exact], dtype=object)


def _sums(values: NDArray[Any], groups: NDArray[np.int64], like: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of values by group, of the number type and length of `like`."""
    sums = np.zeros_like(like)
    np.add.at(sums, groups, values)
    return sums


def _shrink(sums: NDArray[Any], limits: NDArray[Any]) -> NDArray[Any]:
    """Return the factor ≤ 1 that scales each sum down to the limit."""
    factors = np.ones_like(limits)
    over = np.flatnonzero(sums > limits)
    factors[over] = limits[over] / sums[over]
    return factors


def _add(values: NDArray[Any]) -> Any:
    """Return the sum, exactly rounded or exact."""
    return math.fsum(values) if values.dtype != object else sum(values, Fraction(0))
