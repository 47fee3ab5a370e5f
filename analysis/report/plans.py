"""TreePlans of a run's schemes within a budget of tokens: chains, levels, optimal trees.

Levels are taken as independent, each accepting with the measured mean. The expected tokens of a
call are then 1 + Σ over terms:

* a *chain* of L drafts has the terms α, α², …, α^L, α the acceptance of one draft;
* drafts *by level*, k₁ for the root, k₂ for each of its children, …, have α_{k₁}, α_{k₁} α_{k₂}, …,
  whatever the verifier; K sequences of L tokens are k = K, 1, 1, …. Every non-increasing k₁ ≥ k₂ ≥
  … of measured numbers within the budget is tried;
* where accept events are nested in k (`otm.trees.acceptance_vector`), the child of rank i is
  accepted with probability α_i − α_{i−1}, and `otm.trees.optimal_tree` gives the best tree of every
  size and depth. Between measured numbers of drafts α is taken as linear, which is too little where
  it is concave.

The largest tree has `MOST_NODES` drafted tokens. A term is a product of powers of mean acceptances,
so the interval over prompts of the tokens of a call follows from the covariance of those means
(delta method), and so does that of a ratio to the best chain, whose tokens stand on the same
prompts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from otm._machine.arrays import Floats
from otm.trees import optimal_tree

from ..run.manifest import class_of
from ..run.ranks import (
    accepts_by_rank,
    drafting_widths,
    rank_matrix,
    rank_powers,
    tokens_with_gradient,
)
from .aggregate import Aggregates
from .reading import Run
from .summary import Scheme, schemes_of
from .text import printable

MOST_NODES = 64
"""Drafted tokens of a call at most; engines' trees have some sixty."""

CHAIN = -1
"""Stands for the scheme of the chain that engines use."""

_DEPTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
_SIZES = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64)


@dataclasses.dataclass(frozen=True)
class TreePlan:
    """A tree to draft in every call, with the expected tokens.

    Attributes:
        verifier: who checks it, in words.
        scheme: index of the run's scheme; `CHAIN` for the chain that engines use.
        kind: "chain", "levels" or "ranks", as the terms come about.
        name: the shape in words.
        nodes, depth: drafted tokens, and how many in a row.
        widths: by level, how many vertices draft.
        tokens, tokens_upper: expected tokens of a call; the same unless the run certifies ends
            only.
        variance: of the logarithm of the tokens, over prompts; None for a single one.
        covariance: of that logarithm with the mean acceptance of one draft.
        slope: derivative of that logarithm by the acceptance of one draft, for chains.
    """

    verifier: str
    scheme: int
    kind: str
    name: str
    nodes: int
    depth: int
    widths: tuple[int, ...]
    tokens: float
    tokens_upper: float
    variance: float | None
    covariance: float | None
    slope: float


@dataclasses.dataclass(frozen=True)
class TreePlans:
    """All plans of one setting.

    Attributes:
        all: chains first, then scheme by scheme, ascending in drafted tokens.
        variance: of the mean acceptance of one draft.
        quantile: half a 95 % interval, in standard errors.
        certified: whether `tokens` and `tokens_upper` are ends of what is certified.
    """

    all: tuple[TreePlan, ...]
    variance: float | None
    quantile: float
    certified: bool


CHAIN_VERIFIER = "standard speculative sampling"


def plans_of(run: Run, found: Aggregates, setting: int, quantile: float) -> TreePlans:
    """Return all plans at a setting that the run's numbers of drafts allow."""
    single = single_draft(run)
    mine = _Setting(run, found, setting, single)
    plans = list(mine.chains(single)) if single is not None else []
    for place, scheme in enumerate(schemes_of(run)):
        if scheme.usable:
            plans += mine.of_scheme(place, scheme)
    variance = None if single is None else mine.covariance[single, single]
    return TreePlans(
        tuple(plans),
        None if variance is None or np.isnan(variance) else float(variance),
        quantile,
        run.is_interval,
    )


def single_draft(run: Run) -> int | None:
    """Return the column of standard speculative sampling, None if not measured."""
    ones = [
        (scheme, i)
        for scheme in schemes_of(run)
        if scheme.usable
        for i in scheme.columns
        if run.schemes[i].k == 1
    ]
    wanted = [
        i
        for s, i in ones
        if s.law == "IID" and (s.kind == "optimum" or class_of(s.identity) == "Maximal")
    ]
    return wanted[0] if wanted else None


class _Setting:
    def __init__(self, run: Run, found: Aggregates, setting: int, single: int | None) -> None:
        self.run, self.single = run, single
        self.lower, self.upper = found.lower[setting].value, found.upper[setting].value
        self.covariance, self.covariance_upper = (
            found.covariance[setting],
            found.covariance_upper[setting],
        )

    def chains(self, single: int) -> Iterator[TreePlan]:
        """Yield chains of every length."""
        for length in range(1, MOST_NODES + 1):
            powers = np.arange(1.0, length + 1)[:, None]
            yield self.plan(
                CHAIN_VERIFIER, CHAIN, "chain", [single], np.eye(1), powers, length, (1,) * length
            )

    def of_scheme(self, place: int, scheme: Scheme) -> list[TreePlan]:
        """Return the undominated plans of a scheme."""
        columns = [i for i in scheme.columns if np.isfinite(self.lower[i]) and self.lower[i] > 0]
        if not columns:
            return []
        numbers = [self.run.schemes[i].k for i in columns]
        label = printable(scheme.short)
        ranked = accepts_by_rank(scheme.identity, scheme.law, scheme.definition)
        vector = _by_rank(numbers, self.lower[columns]) if ranked else None
        if vector is None:
            plans = [
                self.plan(label, place, "levels", columns, np.eye(len(columns)), *one)
                for one in _by_level(numbers)
            ]
        else:
            spread = rank_matrix(numbers)
            plans = [
                self.plan(label, place, "ranks", columns, spread, *one) for one in _optimal(vector)
            ]
        return _best(plans)

    def plan(
        self,
        verifier: str,
        place: int,
        kind: str,
        columns: list[int],
        spread: Floats,
        powers: Floats,
        nodes: int,
        widths: tuple[int, ...],
    ) -> TreePlan:
        """Return a plan whose terms are products of powers of `spread` times the columns' means."""
        ends = []
        # Both certified ends have errors of their own; the larger one serves the interval.
        for means, covariance in (
            (self.lower, self.covariance),
            (self.upper, self.covariance_upper),
        ):
            factors = np.maximum(spread @ means[columns], 0.0)
            tokens, slope = tokens_with_gradient(factors, powers)
            gradient = slope / tokens @ spread
            ends.append(
                (
                    tokens,
                    gradient,
                    float(gradient @ covariance[np.ix_(columns, columns)] @ gradient),
                )
            )
        (tokens, gradient, variance), (upper, _, variance_upper) = ends
        with_single = (
            np.nan
            if self.single is None
            else float(gradient @ self.covariance[columns, self.single])
        )
        variance = max(variance, variance_upper)
        return TreePlan(
            verifier=verifier,
            scheme=place,
            kind=kind,
            name=_named(widths, nodes),
            nodes=nodes,
            depth=len(widths),
            widths=widths,
            tokens=round(tokens, 9),
            tokens_upper=round(max(tokens, upper), 9),
            variance=None if np.isnan(variance) else variance,
            covariance=None if np.isnan(with_single) else with_single,
            slope=float(gradient[0]) if kind == "chain" else 0.0,
        )


def _by_rank(numbers: list[int], means: Floats) -> Floats | None:
    """Return the acceptance by rank, or None unless the ranks decrease, as greedy trees need."""
    vector = rank_matrix(numbers) @ means
    return (
        vector
        if (np.diff(vector) <= 0).all() and (vector >= 0).all() and vector.sum() <= 1.0 + 1e-12
        else None
    )


def _by_level(numbers: list[int]) -> Iterator[tuple[Floats, int, tuple[int, ...]]]:
    """Yield powers, drafted tokens and widths of every non-increasing sequence of these numbers."""

    def grow(
        width: int, nodes: int, widths: tuple[int, ...], rows: list[Floats], last: int
    ) -> Iterator[tuple[Floats, int, tuple[int, ...]]]:
        for place, number in enumerate(numbers):
            if number > last or nodes + width * number > MOST_NODES:
                continue
            row = rows[-1].copy() if rows else np.zeros(len(numbers))
            row[place] += 1.0
            found = (np.array([*rows, row]), nodes + width * number, (*widths, width))
            yield found
            yield from grow(width * number, found[1], found[2], [*rows, row], number)

    return grow(1, 0, (), [], max(numbers))


def _optimal(vector: Floats) -> Iterator[tuple[Floats, int, tuple[int, ...]]]:
    """Yield powers, drafted tokens and widths of the optimal trees of every size at every depth."""
    seen = set()
    for depth in _DEPTHS:
        whole = optimal_tree(vector, num_nodes=MOST_NODES, max_depth=depth)
        powers = rank_powers(whole.shape, len(vector))
        for nodes in (size for size in _SIZES if size <= whole.num_nodes):
            shape = whole.first(nodes).shape
            if shape not in seen:
                seen.add(shape)
                yield powers[:nodes], nodes, drafting_widths(shape)


def _named(widths: tuple[int, ...], nodes: int) -> str:
    """Return a shape in words, by the vertices that draft at each level and all drafted tokens."""
    depth = len(widths)
    if nodes == depth:
        return f"chain of {depth}"
    if depth == 1:
        return f"{nodes} drafts, 1 deep"
    if len(set(widths[1:])) == 1 and nodes == widths[1] * depth:
        return f"{widths[1]} sequences of {depth}"
    return f"tree of {nodes} tokens, {depth} deep"


def _best(plans: list[TreePlan]) -> list[TreePlan]:
    """Return the undominated plans by drafted tokens, levels, drafting vertices and tokens."""
    kept: list[TreePlan] = []
    for plan in sorted(
        plans, key=lambda plan: (plan.nodes, plan.depth, sum(plan.widths), -plan.tokens)
    ):
        if not any(
            one.depth <= plan.depth
            and sum(one.widths) <= sum(plan.widths)
            and one.tokens >= plan.tokens
            for one in kept
        ):
            kept.append(plan)
    return kept
