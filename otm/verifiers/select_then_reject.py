"""The canonical decomposition: select one draft, then reject against the law of the selection.

Whatever rule selects, the selected token has some law s, and accepting it with probability min(1,
q/s), else drawing from (q − s)₊, gives the target exactly and accepts Σ min(s, q). Some selection
loses nothing against the best coupling. A law s can be had by selecting one of the drafts if and
only if s(B) ≥ Pr(all drafts in B) for every token set B (docs/theory.md, "The optimal verifier at
full vocabulary").
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, inverse_cdf
from otm.drafts.base import PAD, Law, SetTable, live_drafts
from otm.errors import InvalidParameter, TooLarge
from otm.problem import Problem, check_problem
from otm.results import Definition, Optimum
from otm.transport.lp import optimum
from otm.verifiers.base import Conditional, Verifier, enumerated_acceptance
from otm.verifiers.rules import single_draft_rejection

Selection = Callable[[Problem, NDArray[np.int64]], NDArray[np.float64]]
"""A selection rule: the probability of selecting each draft `(n, k)`, given the problem and drafts
`(n, k)`.
"""

MAX_PLANNED_SEQUENCES = 250_000
"""Largest number of draft sequences for which a plan is solved: seconds, not minutes."""

_WEIGHT_TOLERANCE = 1e-9
_IN_CORE = 1e-8  # ten times the gap that otm.optimum certifies


@dataclasses.dataclass(frozen=True)
class SelectionVerifier(Verifier):
    """A verifier that selects one draft, with a law s, and accepts with min(1, q/s)."""

    lossless = True

    @abc.abstractmethod
    def prepare(self, problem: Problem) -> SelectThenRejectRule:
        """Compute the selection with the law s, the acceptance and the residual."""

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return Σ min(s, q); by membership sum over every draft sequence."""
        rule = self.prepare(problem.single(purpose=f"The exact acceptance of {self!r}"))
        if by == "rule":
            return np.asarray(np.minimum(rule.law, rule.problem.target).sum())
        return np.asarray(enumerated_acceptance(rule, by))


@dataclasses.dataclass(frozen=True)
class SelectThenReject(SelectionVerifier):
    """Select one draft by any rule, then accept with probability min(1, q/s).

    s is the true law of the selected token.

    Acceptance by the rule Σ min(s, q); by membership a residual draw may also hit another draft. s
    is summed over every draft sequence, so the scheme is lossless whatever the selection does.

    Args:
        selection: a function of (problem, drafts `(n, k)`) that returns weights `(n, k)`,
            non-negative, each row with sum 1, 0 on padding; None selects by the plan of the linear
            program, which makes the acceptance α*. `otm.verifiers.selection_with_law` makes one for
            a law s of your choice.

    Lossless. Law: any whose sequences can be enumerated.

    Raises:
        InvalidParameter: on use, if the weights are not of this kind.
        TooLarge: on use, beyond four million draft sequences (250,000 with None).

    Cost: one enumeration of the drafts, O(V^k k); with None one linear program more.
    Reference: Khisti et al. 2025, Theorem 1 (importance-weighted selection, then speculative
        sampling).

    >>> import numpy as np
    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> first = SelectThenReject(
    ...     lambda problem, drafts: np.eye(problem.num_drafts)[np.zeros(len(drafts), dtype=int)]
    ... )
    >>> best = otm.acceptance(SelectThenReject(), problem)
    >>> otm.acceptance(first, problem, by="rule"), round(best, 9)
    (0.75, 0.9375)
    """

    title = "select, then reject"
    laws = (Law,)
    is_plan = True

    selection: Selection | None = None

    def __post_init__(self) -> None:
        if self.selection is not None and not callable(self.selection):
            raise InvalidParameter(
                "selection must be a function of (problem, drafts), or None; got "
                f"{self.selection!r:.80}. Pass the function itself."
            )

    def prepare(self, problem: Problem) -> SelectThenRejectRule:
        """Enumerate the drafts for the law s of the selected token, and reject against s."""
        selection = _PlanSelection.of(_plan(problem)) if self.selection is None else self.selection
        table = live_drafts(problem.law, problem.draft)
        weights = table.mass[:, None] * _weights(selection, problem, table.tokens)
        law = np.zeros(problem.num_tokens)
        np.add.at(law, table.tokens, weights)  # where there is no draft the weight is 0
        keep, residual = single_draft_rejection(law, problem.target)
        return SelectThenRejectRule(
            problem=problem, selection=selection, law=law, keep=keep, residual=residual
        )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SelectThenRejectRule(Conditional):
    """A selection, the law s `(V,)` of the selected token, and acceptance and residual for s."""

    num_uniforms = 3  # one for the selection, one for the accept step, one for the residual draw

    selection: Selection = dataclasses.field(repr=False)
    law: NDArray[np.float64]
    keep: NDArray[np.float64]
    residual: NDArray[np.float64]

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mix single-draft rejection over the selected draft."""
        weights = _weights(self.selection, self.problem, drafts)
        rows = np.arange(len(drafts))
        accepted = np.zeros((len(drafts), self.problem.num_tokens))
        left = np.zeros(len(drafts))
        for column in range(drafts.shape[1]):
            keep = self.keep[drafts[:, column]]  # where there is no draft the weight is 0
            accepted[rows, drafts[:, column]] += weights[:, column] * keep
            left += weights[:, column] * (1.0 - keep)
        return accepted, left[:, None] * self.residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Select a draft, accept where η < q(x)/s(x), otherwise draw from the residual."""
        cumulative = np.cumsum(_weights(self.selection, self.problem, drafts), axis=1)
        reached = cumulative > (uniforms[:, 0] * cumulative[:, -1])[:, None]
        selected = np.take_along_axis(drafts, reached.argmax(axis=1)[:, None], axis=1)[:, 0]
        accepted = uniforms[:, 1] < self.keep[selected]
        return np.where(accepted, selected, inverse_cdf(self.residual, uniforms[:, 2])), accepted


def selection_with_law(problem: Problem, *, law: object) -> Selection:
    """Return a selection rule whose selected token has a given law s, if possible for the drafts.

    s can be had exactly when s(B) ≥ b(B) = Pr(all drafts in B) for every token set B, that is, when
    α* of the target s is 1: the plan that couples the drafts with s then always selects a draft.

    Args:
        problem: one pair of distributions `(V,)`; its draft and law count, its target does not.
        law: s, probabilities `(V,)`.

    Returns:
        A rule for `SelectThenReject`. It meets s to 1e-9, and the verifier works with the law it
        truly has.

    Raises:
        InvalidParameter: if s lies outside the core; the message names a set B with s(B) < b(B).
        TooLarge, SolverFailure: as `otm.optimum`.

    Cost: one linear program.
    Reference: docs/theory.md, "The optimal verifier at full vocabulary"; Strassen 1965.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> # P({0})² = .5625 ≤ .6, P({1})² = .0625 ≤ .4
    >>> rule = selection_with_law(problem, law=[0.6, 0.4])
    >>> otm.prepare(SelectThenReject(rule), problem).law.round(9)
    array([0.6, 0.4])
    """
    given = check_problem(problem)
    wanted = Problem(draft=given.draft, target=law, law=given.law)
    solved = _plan(wanted)
    if solved.upper < 1.0 - _IN_CORE:
        outside = np.flatnonzero(solved.cut).tolist()
        raise InvalidParameter(
            "A selected draft has a law with s(B) ≥ Pr(all drafts in B) for every B; the law "
            "given falls short by "
            f"{1.0 - solved.upper:.3g} on B = {outside[:12]}{'…' if len(outside) > 12 else ''}. "
            "Put more mass there."
        )
    return _PlanSelection.of(solved)


def _plan(problem: Problem) -> Optimum:
    """Solve the linear program, or refuse a program that would take minutes."""
    single = problem.single(purpose="A selection by the linear program's plan")
    size = single.law.num_sequences(single.num_tokens)
    if size > MAX_PLANNED_SEQUENCES:
        raise TooLarge(
            f"A selection by plan is limited to {MAX_PLANNED_SEQUENCES:,} draft sequences; "
            f"{single.law!r} over V = "
            f"{single.num_tokens} has {size:,}. Pass a selection rule of your own, or call "
            "otm.optimum for the value."
        )
    return optimum(single)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _PlanSelection:
    """The selection by an optimal plan: each set's flow as weights.

    Mass that no token takes is spread evenly over the set.

    A draft is selected all the same, and Σ min(s, q) ≥ Σ_y flow(y) = α*, because s ≥ flow and q ≥
    flow.
    """

    sets: SetTable
    share: NDArray[np.float64]

    @classmethod
    def of(cls, solved: Optimum) -> _PlanSelection:
        """Look up the share of each set's tokens, `(m, k)` in the order of the sets."""
        tokens, plan = solved.sets.tokens, solved.plan.tocoo()
        share = np.zeros(tokens.shape)
        share[plan.row, (tokens[plan.row] == plan.col[:, None]).argmax(axis=1)] = plan.data
        spare = np.maximum(1.0 - share.sum(axis=1), 0.0) / np.maximum(
            (tokens != PAD).sum(axis=1), 1
        )
        return cls(sets=solved.sets, share=np.where(tokens == PAD, 0.0, share + spare[:, None]))

    def __call__(self, problem: Problem, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        # A token drafted twice is selected, if at all, at its first place.
        first_place = (drafts[:, :, None] == drafts[:, None, :]).argmax(axis=2)
        eligible = (drafts != PAD) & (first_place == np.arange(drafts.shape[1]))
        row = self.sets.find(drafts)
        here = drafts[:, :, None] == self.sets.tokens[row][:, None, :]
        planned = (here @ self.share[row][:, :, None])[:, :, 0]
        # Drafts that the law never draws have no row in the plan: any selection will do.
        even = 1.0 / eligible.sum(axis=1)
        return np.where(eligible, np.where(row >= 0, planned.T, even).T, 0.0)


def _weights(
    selection: Selection, problem: Problem, drafts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Call a selection rule and check the weights."""
    weights = np.asarray(selection(problem, drafts), dtype=np.float64)
    if weights.shape != drafts.shape:
        raise InvalidParameter(
            f"A selection must return one weight per draft, shape {drafts.shape}; got "
            f"{weights.shape}. Return an array (n, k)."
        )
    off = np.abs(weights.sum(axis=1) - 1.0).max(initial=0.0)
    if (
        not (weights >= 0).all()
        or not off <= _WEIGHT_TOLERANCE
        or (weights[drafts == PAD] > 0).any()
    ):
        raise InvalidParameter(
            "Selection weights must be non-negative, 0 on padding, and sum to 1 in each row "
            f"within {_WEIGHT_TOLERANCE:g}; the "
            f"smallest is {weights.min(initial=0.0):.3g} and a row misses 1 by {off:.3g}. "
            "Normalise them."
        )
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
