"""The optimal verifier: select a draft by independent scores, then one rejection step.

Why it is lossless and optimal is the chapter at the head of `otm.verifiers.optimal.scores`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, Floats, inverse_cdf, quiet
from otm._machine.compiled import compiled
from otm.drafts.base import MAX_SEQUENCES, members, readable, rows_of_members
from otm.drafts.iid import IID
from otm.drafts.threshold_race import ThresholdRace
from otm.errors import TooLarge
from otm.overlap.curve import ratios
from otm.overlap.rows import SHORTEST_BINNED, SUM_SECONDS
from otm.problem import Problem
from otm.results import Coupling, Definition
from otm.verifiers.base import (
    Conditional,
    Shared,
    Verifier,
    coupling_of_sets,
    enumerated_acceptance,
    require_state,
)
from otm.verifiers.optimal.bins import bin_tokens, bracket_ends, check_bins, require_curve
from otm.verifiers.optimal.scores import Scores, TokenScores, scores_of_tokens
from otm.verifiers.rules import single_draft_rejection

_LARGEST_EXACT_KERNEL = 512
_ENTRIES_AT_ONCE = 1 << 20
_FEW = 8  # so many passes over p and q cost less than the residual law and its running sum


@dataclasses.dataclass(frozen=True)
class Optimal(Verifier):
    """Score every draft independently, select the largest score, and accept with probability min(1,
    q/s), else draw from (q − s)₊.

    α = α* = 1 + min_T [Q(T) − b(T)], b(T) = P(T)^k, which no verifier of k i.i.d. drafts exceeds. s
    = p·clip(q/p, c, d) is the law of the selected draft (`otm.verifiers.optimal.scores`). Of a
    threshold race the drafts are taken as i.i.d. draws until a coin of probability 1/c stops them,
    each draw scored, repetitions too; how many come is not asked. With
    `bins`, tokens of similar q/p share their scores: the output law is still exactly the target's,
    and the acceptance is the lower end of `otm.bounds.optimal_bracket`.

    Args:
        bins: None for the exact optimum; an integer ≥ 1 for that many bins of log(q/p), which needs
            no sort.

    Raises:
        InvalidParameter: unless bins is None or an integer from 1 to 2²⁰.
        SolverFailure: on `prepare`, if the score pieces fail a self-check.
        TooLarge: for the acceptance by membership with `bins`, beyond four million draft sequences
            (by="rule" is always exact), and for the kernel given more than 512 drafts, or the sets
            of more than 14 draftable tokens (threshold races).

    Lossless. Laws: IID(k), any k; ThresholdRace(c). By rule and by membership agree without bins.
    Cost: `prepare` a scan of bins where numba is installed and V is large, less than an argsort of
        the vocabulary; else one sort, about three argsorts; and 5 µs per atom in plain Python:
        below a hundred atoms on language models, at worst V (ratios that follow the curve r = k
        P^{k−1}). With bins O(V). Verification: O(k log V), and one pass over V after a rejection.
    Accuracy: acceptance and output law to rounding; measured by the rule's `scores.residuals`.
    Reference: docs/theory.md, "The optimal verifier at full vocabulary"; Khisti et al. 2025 for
        select-then-reject.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> rule = otm.prepare(Optimal(), problem)  # SpecTr's Bernoulli example
    >>> otm.acceptance(Optimal(), problem), rule.selection_law
    (0.9375, array([0.5625, 0.4375]))
    """

    title = "optimal"
    summary = (
        "selects a draft by independent scores, then one rejection step; no verifier of "
        "i.i.d. drafts accepts more"
    )
    lossless = True
    laws = (IID, ThresholdRace)

    bins: int | None = None

    def __post_init__(self) -> None:
        if self.bins is not None:
            object.__setattr__(self, "bins", check_bins(self.bins))

    def prepare(self, problem: Problem) -> OptimalRule | OptimalRaceRule:
        """Find the law of the selected draft, and build and check the score pieces."""
        rule = optimal_rule(problem, self.bins)
        is_race = isinstance(problem.law, ThresholdRace)
        return OptimalRaceRule(problem=problem, of_list=rule) if is_race else rule

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return α*; with bins the rule's acceptance in closed form, membership by enumeration."""
        if self.bins is None:
            return problem.law.optimal_value(problem.draft, problem.target)
        if by == "rule":
            return bracket_ends(problem, self.bins)[0]
        single = problem.single(purpose="Acceptance by membership of the binned verifier")
        sequences = single.law.num_sequences(single.num_tokens)
        if sequences > MAX_SEQUENCES:
            raise TooLarge(
                f"Acceptance by membership of {self!r} is enumerated up to {MAX_SEQUENCES:,} draft "
                f"sequences; this problem has {readable(sequences)}. It lies between by='rule', "
                "which is exact at any size, and otm.optimal_acceptance; otm.estimate gives an "
                "interval."
            )
        rule = self.prepare(single)
        if isinstance(rule, Shared):
            return np.asarray(rule.joint().acceptance)
        return np.asarray(enumerated_acceptance(rule, by))


def optimal_rule(problem: Problem, bins: int | None = None) -> OptimalRule:
    """Return the rule of `Optimal(bins=bins)` for a list of i.i.d. drafts of a problem of one row,
    whose number may be random.
    """
    p, q, size = problem.draft, problem.target, require_curve(problem).contained
    if bins is None:
        return OptimalRule(problem=problem, built=scores_of_tokens(p, q, size), cells=None)
    # A bin is a token of the collapsed problem; its own tokens share its level, so s = p·a holds
    # for each of them.
    binned = bin_tokens(p, q, bins, size.steepest)
    built = scores_of_tokens(
        binned.draft, binned.target, size, undrafted=binned.undrafted, num_tokens=len(p)
    )
    return OptimalRule(problem=problem, built=built, cells=binned.index)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OptimalRule(Conditional):
    """The prepared optimal verifier.

    Attributes:
        built: the scores, c, d and α* of the problem, or of its bins.
        cells: the bin of each token `(V,)`, None without bins.
        forgiven: the part of its rejections that is accepted all the same, 0 for the lossless
            verifier (`otm.TvOptimal`).
    """

    built: TokenScores = dataclasses.field(repr=False)
    cells: NDArray[np.int64] | None = dataclasses.field(repr=False)
    forgiven: float = 0.0

    @property
    def scores(self) -> Scores:
        """Atoms and pieces, with measured residuals (`scores.residuals`)."""
        return self.built.scores

    @property
    def upper(self) -> float:
        """α* of the problem, or of the binned problem; no verifier accepts more."""
        return 1.0 - self.built.gain

    @property
    def lower(self) -> float:
        """Σ min(s, q), the acceptance without forgiveness, equal to `upper` without bins."""
        return float(np.minimum(self.selection_law, self.problem.target).sum())

    @functools.cached_property
    def level(self) -> Floats:
        """Planned a(y) = E[g(U) | y] of each token, `(V,)`; −1 for tokens never drafted."""
        return self._levels(np.arange(self.problem.num_tokens))

    @functools.cached_property
    def selection_law(self) -> Floats:
        """Law s `(V,)` of the selected draft: p·clip(q/p, c, d), which the pieces have to half of
        the moment in `scores.residuals`.
        """
        return self._selected(np.arange(self.problem.num_tokens))

    @functools.cached_property
    def residual(self) -> Floats:
        """The law ∝ (q − s)₊ of the output after a rejection `(V,)`."""
        return single_draft_rejection(self.selection_law, self.problem.target)[1]

    def keep(self, tokens: NDArray[np.int64]) -> Floats:
        """Return min(1, q/s) plus the forgiven part of the rest; 0 where s = 0 or for −1."""
        law = self._selected(tokens)
        with quiet():
            kept = np.minimum(1.0, self.problem.target[tokens] / law)
        return np.where((tokens >= 0) & (law > 0), kept + self.forgiven * (1.0 - kept), 0.0)

    def _levels(self, tokens: NDArray[np.int64]) -> Floats:
        p = self.problem.draft[tokens]
        if self.cells is not None:
            return np.where((tokens >= 0) & (p > 0), self.built.level[self.cells[tokens]], -1.0)
        level = np.clip(ratios(p, self.problem.target[tokens]), self.built.low, self.built.high)
        return np.where((tokens >= 0) & (p > 0), level, -1.0)

    def _selected(self, tokens: NDArray[np.int64]) -> Floats:
        """Return s of tokens."""
        p = self.problem.draft[tokens]
        if self.cells is not None:
            return np.asarray(p * self.built.achieved[self.cells[tokens]])
        law = np.clip(self.problem.target[tokens], self.built.low * p, self.built.high * p)
        return np.where(p > 0, law, 0.0)

    @property
    def num_uniforms(self) -> int:
        """One for each score, one for the accept step, one for the residual draw."""
        return self.problem.num_drafts + 2

    def select(self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64]) -> Any:
        """Return the draft with the largest score, for drafts `(k,)` or `(n, k)` and as many
        uniforms.
        """
        gaps = self.scores.table.gaps(self._levels(drafts), uniforms)
        if drafts.ndim == 1:
            return drafts[gaps.argmin()]
        return drafts[np.arange(len(drafts)), gaps.argmin(axis=1)]

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Integrate over the independent scores, exactly: Pr(draft i has the largest) = ∫ Π_{j≠i}
        F_j dF_i, piece by piece.
        """
        n, k = drafts.shape
        if k > _LARGEST_EXACT_KERNEL:
            raise TooLarge(
                "The kernel of the optimal verifier integrates polynomials of degree k, up to k = "
                f"{_LARGEST_EXACT_KERNEL}; "
                f"this problem has k = {k}. Call otm.sample, or the rule's select."
            )
        accepted = np.zeros((n, self.problem.num_tokens + 1))
        step = max(1, _ENTRIES_AT_ONCE // (k * (k // 2 + 1) * (len(self.scores.owner) + 1)))
        for start in range(0, n, step):
            rows = drafts[start : start + step]
            index = np.arange(start, start + len(rows))[:, None]
            np.add.at(
                accepted, (index, rows), self.scores.winning(self._levels(rows)) * self.keep(rows)
            )
        accepted = accepted[:, :-1]
        left = np.maximum(1.0 - accepted.sum(axis=1), 0.0)
        return accepted, left[:, None] * self.residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Select by scores; accept where η < q/s, otherwise draw from the residual."""
        selected = self.select(drafts, uniforms[:, :-2])
        accepted = uniforms[:, -2] < self.keep(selected)
        output = selected.copy()
        rejected = np.flatnonzero(~accepted)
        if len(rejected):
            output[rejected] = self._residual_draws(uniforms[rejected, -1])
        return output, accepted

    def _residual_draws(self, uniforms: Floats) -> NDArray[np.int64]:
        """Draw from the residual: few draws by one pass each, many from one running sum."""
        few = (
            self.cells is None
            and len(uniforms) <= _FEW
            and self.problem.num_tokens >= SHORTEST_BINNED
        )
        seconds = SUM_SECONDS * self.problem.num_tokens
        draws = compiled("otm.verifiers.optimal.draws", seconds=seconds) if few else None
        if draws is None:
            return inverse_cdf(self.residual, uniforms)
        p, q = (np.ascontiguousarray(a)[None] for a in (self.problem.draft, self.problem.target))
        one, level = np.ones(1), np.full((1, 1), self.built.high)  # all tokens in one bin
        index, row = np.zeros(p.shape, dtype=np.int16), np.zeros(1, dtype=np.int64)
        return np.asarray(draws.binned(p, q, one, one, index, level, row, uniforms[None])[0])


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OptimalRaceRule(Shared):
    """The prepared optimal verifier of a threshold race, with drafts drawn i.i.d. in turn.

    The state is these draws with their repetitions, `(n, most_in_turn)`, −1 behind the last.

    Attributes:
        of_list: what it does with such a list.
    """

    of_list: OptimalRule

    @property
    def _law(self) -> ThresholdRace:
        assert isinstance(self.problem.law, ThresholdRace), self.problem.law
        return self.problem.law

    @property
    def num_draft_uniforms(self) -> int:
        """One for the number of draws, and one for each possible draw."""
        return self._law.most_in_turn + 1

    @property
    def num_uniforms(self) -> int:
        """One for each score, one for the accept step, one for the residual draw."""
        return self._law.most_in_turn + 2

    def draw(self, uniforms: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Draw in turn; the drafts are the different tokens drawn."""
        state = self._law.draw_in_turn(self.problem.draft, uniforms)
        return rows_of_members(members(state, self.problem.num_tokens)), state

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Select from the list by scores; accept where η < q/s, else draw from the residual."""
        return self.of_list.verify(require_state(state), uniforms, None)

    def joint(self) -> Coupling:
        """Integrate over the largest score, of y and below u with all draws in T: density p(y)
        dF_y(u) b′(Σ_T p F(u)), piece by piece.
        """
        rule, p = self.of_list, self.problem.draft
        below = p[:, None] * rule.scores.below(rule.level)
        keep = rule.keep(np.arange(len(p)))

        def inside(held: NDArray[np.bool_]) -> NDArray[np.float64]:
            """Return Pr(all draws lie in T, output = y), `(V,)`."""
            mass = below[held].sum(axis=0)
            gains = -np.diff(self._law.contained.of(1.0 - np.minimum(mass, 1.0)))
            with quiet():
                rates = np.where(np.diff(mass) > 0, -gains / np.diff(mass), 0.0)
            selected = np.where(held, np.diff(below) @ rates, 0.0)
            rejected = (selected * (1.0 - keep)).sum()
            return np.asarray(selected * keep + rejected * rule.residual)

        return coupling_of_sets(self.problem, inside)
