"""Recursive rejection of drafts without replacement: the residual depends on the drafts.

Stage i compares the residual r of the stages before with p renormalised over the tokens not drafted
yet. Let R be their mass. If r = (q − θp)₊/G(θ), with G(θ) = Σ_y (q − θp)₊, then after a rejection

    (r − p/R)₊ = (q − θ′p)₊/G(θ),     θ′ = θ + G(θ)/R,

on every token: a rejected token has q ≤ θ′p, so it stays at zero although p is no longer subtracted
there. Hence the residual on a path depends on the path only through θ, the whole stage only through
(θ, R), and the rejection probability is G(θ′)/G(θ). With the tokens in the order of q/p a stage is
a search in running sums: O(log V) per path.

The exact acceptance needs every ordered path of k − 1 drafts, V!/(V − k + 1)! of them: k = 2 at any
vocabulary, k = 8 at V = 12. Beyond, `otm.verifiers.rao_blackwell_acceptance` samples paths of
rejected drafts and integrates everything else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import (
    Array,
    Floats,
    inverse_cdf,
    namespace,
    quiet,
    running_sum,
    to_numpy,
    total,
    with_gradient,
)
from otm.drafts.base import PAD
from otm.drafts.without_replacement import Remaining, choose_gap, gaps_between
from otm.errors import TooLarge
from otm.overlap.curve import ROOM
from otm.problem import Problem
from otm.verifiers.base import Conditional
from otm.verifiers.rules import accepted_in_turn, first_accepted

MAX_PATHS = 10_000_000
MAX_DIFFERENTIATED_PATHS = 1_000_000
_ELEMENTS_AT_ONCE = 1 << 20
SCALE = 1.0 / ROOM
"""A factor on target masses: the ratios, and the sums of ratios θ, are then finite for every float
p > 0.
"""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RecursiveRejectionWithoutReplacementRule(Conditional):
    """Recursive rejection on running sums of residuals and of masses left."""

    residuals: Residuals
    remaining: Remaining
    position: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem) -> RecursiveRejectionWithoutReplacementRule:
        """Sort the tokens by q/p and by p."""
        remaining = Remaining.of(problem.draft)
        position = np.full(problem.num_tokens, PAD, dtype=np.int64)
        position[remaining.tokens] = np.arange(remaining.size)
        residuals = Residuals.of(problem.draft, problem.target)
        return cls(problem=problem, residuals=residuals, remaining=remaining, position=position)

    @property
    def num_uniforms(self) -> int:
        """One for each accept step, one for the residual draw."""
        return self.problem.num_drafts + 1

    def split(self, drafts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Follow the definition on whole vectors, path by path, without the running sums."""
        rows = np.arange(len(drafts))
        residual = np.tile(self.problem.target, (len(drafts), 1))
        left = np.tile(self.problem.draft, (len(drafts), 1))
        keep = np.zeros(drafts.shape)
        for stage, token in enumerate(drafts.T):
            drafted = token != PAD
            # Summed over what is left, never 1 − what was taken; where nothing is left there is no
            # draft to compare with.
            law = left / np.where(drafted, left.sum(axis=1), 1.0)[:, None]
            with quiet():
                keep[:, stage] = np.where(
                    drafted, np.minimum(1.0, residual[rows, token] / law[rows, token]), 0.0
                )
            excess = np.maximum(residual - law, 0.0)
            mass = excess.sum(axis=1, keepdims=True)
            normalised = np.divide(excess, mass, out=residual.copy(), where=mass > 0)
            residual = np.where(drafted[:, None], normalised, residual)
            left[rows[drafted], token[drafted]] = 0.0
        accepted, reaching = accepted_in_turn(drafts, keep, self.problem.num_tokens)
        return accepted, reaching[:, None] * residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the first draft with η_i < r_{i−1}(x)/p_i(x), else draw from the last residual."""
        keep, theta = self.stages(drafts)
        wins = np.zeros(drafts.shape, dtype=bool)
        wins[:, : keep.shape[1]] = uniforms[:, : keep.shape[1]] < keep
        return first_accepted(drafts, wins, self.residuals.draw(theta, uniforms[:, -1]))

    def stages(self, drafts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return acceptances `(n, j)` along each path, and the last θ `(n,)`."""
        positions = self.position[drafts[:, : min(self.problem.num_drafts, self.remaining.size)]]
        theta, mass = (
            np.zeros(len(drafts)),
            np.full(len(drafts), self.residuals.mass(np.zeros(1))[0]),
        )
        keep = np.empty(positions.shape)
        for stage in range(positions.shape[1]):
            left = self.remaining.mass(positions[:, :stage])
            keep[:, stage] = self.residuals.keep(drafts[:, stage], theta, mass / left)
            theta = self.residuals.next(theta, mass, left)
            mass = self.residuals.mass(theta)
        return keep, theta


@dataclasses.dataclass(frozen=True, eq=False)
class Residuals:
    """Running sums of p and q in descending order of q/p, from which (q − θp)₊ follows for any θ.

    θ adds up to q/p of the last token left, so q is counted in parts of `SCALE`: neither then
    overflows, whatever p is.

    Attributes:
        tokens: tokens with p + q > 0, those never drafted first `(S,)`.
        ratio: q/p of every token `(V,)`, ∞ where p = 0 < q.
        falling: −q/p in that order, ascending `(S,)`.
        drafted, wanted: running sums of p and q with a leading 0 `(S + 1,)`.
        target: q `(V,)`.
        place: position in `tokens` of every token `(V,)`.
    """

    tokens: NDArray[np.int64]
    ratio: Floats
    falling: Floats
    drafted: Floats
    wanted: Floats
    target: Floats
    place: NDArray[np.int64]

    @classmethod
    def of(cls, draft: Floats, target: Floats) -> Residuals:
        """Sort by q/p."""
        target = SCALE * target
        with quiet():
            ratio = np.where(draft > 0, target / draft, np.where(target > 0, np.inf, -np.inf))
        order = np.argsort(-ratio, kind="stable")
        order = order[ratio[order] > -np.inf]
        drafted, wanted = (
            np.concatenate([[0.0], running_sum(mass[order])]) for mass in (draft, target)
        )
        place = np.full(len(draft), len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return cls(order.astype(np.int64), ratio, -ratio[order], drafted, wanted, target, place)

    def mass(self, theta: Floats) -> Floats:
        """Return G(θ) = Σ (q − θp)₊ ≥ 0 for each θ `(n,)`."""
        return np.maximum(self._sum(self._count_above(theta), theta), 0.0)

    def next(self, theta: Floats, mass: Floats, left: Floats) -> Floats:
        """Return θ′ = θ + G/R; where nothing is left to draft there is no next stage."""
        return theta + np.divide(mass, left, out=np.zeros_like(mass), where=left > 0)

    def keep(self, tokens: NDArray[np.int64], theta: Floats, scale: Floats) -> Floats:
        """Return min(1, (q/p − θ)₊/(G/R)) of drafted tokens, `scale` = G/R; 1 where G = 0."""
        above = np.maximum(self.ratio[tokens] - theta, 0.0)
        return np.where(
            above < scale, np.divide(above, scale, out=np.ones_like(above), where=scale > 0), 1.0
        )

    def draw(self, theta: Floats, uniforms: Floats) -> NDArray[np.int64]:
        """Draw a token ∝ (q − θp)₊ for each θ and uniform `(n,)`; from q where nothing is left."""
        end = self._count_above(theta)
        mass = self._sum(end, theta)
        found = _first_beyond(
            lambda count: self._sum(count, theta), uniforms * mass, np.zeros_like(end), end - 1
        )
        return np.where(
            (mass > 0) & (end > 0), self.tokens[found], inverse_cdf(self.target, uniforms)
        )

    def draw_rejected(
        self, theta: Floats, after: Floats, taken: NDArray[np.int64], uniforms: Floats
    ) -> NDArray[np.int64]:
        """Draw a draft from the draft law given the rejection at this stage.

        The law is ∝ (θ′p − max(q, θp))₊ off the tokens `taken` `(n, j)`. First the gap between
        taken tokens is drawn, then the token in it.
        """
        old, new = theta[:, None], after[:, None]
        start, bend = self._count_above(new), self._count_above(old)

        def reach(count: NDArray[np.int64]) -> Floats:
            """Sum the first `count` tokens: from q ≤ θ′p on, and without q from q ≤ θp on."""
            between, beyond = np.clip(count, start, bend), np.maximum(count, bend)
            with quiet():
                rising = new * (self.drafted[between] - self.drafted[start]) - (
                    self.wanted[between] - self.wanted[start]
                )
                return np.asarray(
                    rising + (new - old) * (self.drafted[beyond] - self.drafted[bend])
                )

        low, high = gaps_between(self.place[taken], len(self.tokens))
        gap, inside = choose_gap(reach(high) - reach(low), uniforms)
        low, high = (np.take_along_axis(ends, gap, axis=1) for ends in (low, high))
        found = _first_beyond(reach, inside + reach(low), low, high - 1)
        return np.asarray(self.tokens[np.minimum(found, len(self.tokens) - 1)[:, 0]])

    def _count_above(self, theta: Floats) -> NDArray[np.int64]:
        """Return the number of tokens with q/p > θ, a prefix of the order."""
        return np.asarray(np.searchsorted(self.falling, -theta, side="left"))

    def _sum(self, count: NDArray[np.intp], theta: Floats) -> Floats:
        """Return Σ (q − θp) over the first `count` tokens."""
        drafted = self.drafted[count]
        with quiet():
            return np.asarray(self.wanted[count] - np.where(drafted > 0, theta * drafted, 0.0))


def _first_beyond(
    reach: Callable[[NDArray[np.int64]], Floats],
    point: Floats,
    low: NDArray[np.int64],
    high: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Bisect in each row for the first i in [low, high) with reach(i + 1) > point, else `high`."""
    while (low < high).any():
        middle = (low + high) // 2
        beyond = (reach(middle + 1) > point) | (low >= high)
        low, high = np.where(beyond, low, middle + 1), np.where(beyond, middle, high)
    return low


def exact_acceptance(problem: Problem) -> float:
    """Sum the acceptance of recursive rejection without replacement over paths of rejected drafts.

    Raises:
        TooLarge: beyond ten million paths of k − 1 drafts.

    Cost: S!/(S − k + 1)! paths, S = |supp p|, each O(k log k + log V).
    Accuracy: rounding, about 1e-14 at V = 128,256, k = 2.
    """
    rule = RecursiveRejectionWithoutReplacementRule.of(problem)
    k = min(problem.num_drafts, rule.remaining.size)
    paths = math.perm(rule.remaining.size, k - 1)
    if paths > MAX_PATHS:
        raise TooLarge(
            f"The exact acceptance is limited to {MAX_PATHS:,} paths of rejected drafts; "
            f"{problem.law!r} over "
            f"{rule.remaining.size:,} tokens has {paths:,}. Call "
            "otm.verifiers.rao_blackwell_acceptance or otm.estimate for "
            f"an interval."
        )
    rejected = [float(paths.last_stage(rule).sum()) for paths in _rejected_paths(rule, k - 1)]
    return min(1.0, max(0.0, 1.0 - math.fsum(rejected)))


def with_path_gradient(value: float, draft: Array, target: Array, problem: Problem) -> Array:
    """Attach the gradient to an exact acceptance, from the same sum over paths.

    On a path every stage is a quotient of numbers θ, G(θ), R, and G(θ) is linear in p and q over
    the tokens with q > θp: once these are found nothing is left but arithmetic.

    Args:
        value: what `exact_acceptance` returns for `problem`.
        draft, target: the problem's masses `(V,)`, tensors that require a gradient.
        problem: one row in float64, on NumPy.

    Raises:
        TooLarge: beyond `MAX_DIFFERENTIATED_PATHS`, which are all kept.

    Cost: that of `exact_acceptance`, and its memory for each path.
    """
    rule = RecursiveRejectionWithoutReplacementRule.of(problem)
    k = min(problem.num_drafts, rule.remaining.size)
    number = math.perm(rule.remaining.size, k - 1)
    if number > MAX_DIFFERENTIATED_PATHS:
        raise TooLarge(
            f"The gradient is limited to {MAX_DIFFERENTIATED_PATHS:,} paths of rejected drafts; "
            f"{k} drafts over {rule.remaining.size:,} tokens have {number:,}. Take i.i.d. drafts, "
            "fewer tokens, or call .detach() for the value alone."
        )
    xp = namespace(draft, target)
    p, q = xp.astype(draft, xp.float64), xp.astype(target, xp.float64)
    nothing = 0.0 * q[:1]

    def place(index: NDArray[Any]) -> Array:
        return xp.asarray(index, device=draft.device)

    def picked(array: Array, index: NDArray[Any]) -> Array:
        return xp.take(array, place(index), axis=0)

    drafted, wanted = (
        xp.concat([nothing, xp.cumulative_sum(picked(mass, rule.residuals.tokens), axis=-1)])
        for mass in (p, q)
    )
    found = [paths.taken for paths in _rejected_paths(rule, k - 1)]
    taken = np.concatenate([np.empty((0, k - 1), dtype=np.int64), *found])
    theta, mass, left, weight = nothing, total(q[None, :]), total(p[None, :]), 1.0 + nothing
    for stage in range(k):
        before, after = mass, theta + mass / left
        count = np.searchsorted(rule.residuals.falling, -SCALE * to_numpy(after), side="left")
        mass = picked(wanted, count) - after * picked(drafted, count)
        if stage < k - 1:
            token = rule.remaining.tokens[taken[:, stage]]
            kept = xp.clip(picked(q, token) - theta * picked(p, token), 0.0, None) / before
            weight = weight * xp.clip(picked(p, token) / left - kept, 0.0, None)
            theta = after
            # What is left is summed, never 1 − what was taken; how it changes is minus how that
            # does.
            left = with_gradient(
                place(rule.remaining.mass(taken[:, : stage + 1])), left - picked(p, token)
            )
    return with_gradient(place(np.asarray(value)), -total(weight * mass / before))


@dataclasses.dataclass(frozen=True, eq=False)
class _Paths:
    """Paths of rejected drafts: positions taken `(n, j)`; θ, G(θ) and probability `(n,)` each."""

    taken: NDArray[np.int64]
    theta: Floats
    mass: Floats
    weight: Floats

    def last_stage(self, rule: RecursiveRejectionWithoutReplacementRule) -> Floats:
        """Return the probability of each path and of rejecting one more draft."""
        theta = rule.residuals.next(self.theta, self.mass, rule.remaining.mass(self.taken))
        return self.weight * np.minimum(1.0, rule.residuals.mass(theta) / self.mass)

    def extend(self, rule: RecursiveRejectionWithoutReplacementRule) -> list[_Paths]:
        """Return the paths with one more rejected draft, in pieces that keep memory bounded."""
        size = rule.remaining.size
        p = rule.problem.draft[rule.remaining.tokens]
        ratio = rule.residuals.ratio[rule.remaining.tokens]
        left = rule.remaining.mass(self.taken)
        theta = rule.residuals.next(self.theta, self.mass, left)
        mass = rule.residuals.mass(theta)
        step = max(1, _ELEMENTS_AT_ONCE // size)
        pieces = []
        for start in range(0, len(theta), step):
            here = slice(start, start + step)
            # (p/R − (q − θp)₊/G)₊, without a difference of numbers that agree: p/R·(1 − (q/p − θ)₊
            # R/G)₊.
            above = np.maximum(ratio - self.theta[here, None], 0.0)
            with quiet():  # next to no draft mass, or next to nothing wanted: kept by far
                np.divide(
                    above, (self.mass[here] / left[here])[:, None], out=above, where=above > 0
                )
                weight = (
                    self.weight[here, None] * (p / left[here, None]) * np.maximum(1.0 - above, 0.0)
                )
            np.put_along_axis(weight, self.taken[here], 0.0, axis=1)
            weight[mass[here] <= 0] = 0.0  # everything after this stage is accepted
            row, column = np.nonzero(weight)
            parent = row + start
            pieces.append(
                _Paths(
                    np.column_stack([self.taken[parent], column]),
                    theta[parent],
                    mass[parent],
                    weight[row, column],
                )
            )
        return [piece for piece in pieces if len(piece.weight)]


def _rejected_paths(
    rule: RecursiveRejectionWithoutReplacementRule, length: int
) -> Iterator[_Paths]:
    """Yield the paths of `length` rejected drafts, in pieces that keep memory bounded."""
    whole = rule.residuals.mass(np.zeros(1))
    waiting = [_Paths(np.empty((1, 0), dtype=np.int64), np.zeros(1), whole, np.ones(1))]
    while waiting:
        paths = waiting.pop()
        if paths.taken.shape[1] == length:
            yield paths
        else:
            waiting.extend(paths.extend(rule))
