"""The optimal verifier at full vocabulary: independent scores, a winner, and one rejection step.

For k i.i.d. drafts from p and a target q on V tokens, this module builds a verifier that is exactly
lossless and exactly optimal in O(V log V) at most, and verifies in O(k log V). It is a selection
scheme: pick one draft, then accept or replace it. All that it asks of the drafts is that they are
independent given their number, and b(x) = E x^number, convex from (0, 0) to (1, 1): x^k below is
b(x), k x^{k−1} is b′(x), for the geometric number of a threshold race as well.

**1. Which law can a selected draft have?** If one of the drafts is selected by any rule and s is
its law, then s(B) ≥ P(B)^k for every token set B, since the selected token lies in B when all
drafts do (the *core* condition). Sorting tokens by the level a = s/p, it is enough to check the
prefixes: with x = P(prefix) and G(x) = s(prefix), the condition is G(x) ≥ x^k. G is convex and x ↦
x^k is convex, so a line of G that starts and ends above x^k stays above it: checking the ends of
the lines is enough too.

**2. The best such law.** Single-draft rejection on a draft of law s accepts Σ min(s, q). Let T, a
prefix of supp p in ascending order of r = q/p, attain the minimum of Q(T) − P(T)^k, so that α* = 1
+ Q(T) − P(T)^k (`otm.drafts.curve_cut`). Take

    s = p · a,   a = clip(r, c, d),
    c with Σ_T p·max(r, c) = P(T)^k,   d with Σ_{off T} p·min(r, d) = 1 − P(T)^k.

Both solve: Q(T) ≤ P(T)^k because ∅ is no better than T, and Q(supp p ∖ T) ≥ 1 − P(T)^k because supp
p is no better. The clip agrees with the two equations if c is below every level off T and d above
every level on T; then s ≥ q on T and s ≤ q on supp p ∖ T, so Σ min(s, q) = Q(T) + 1 − P(T)^k = α*.
And so it is: with x = P(T), c ≤ x^{k−1} ≤ k x^{k−1} ≤ (1 − x^k)/(1 − x) ≤ d; dropping T's last
token is no better, so r ≤ k x^{k−1} on T; adding the next one is no better, so r ≥ k x^{k−1} off T.

*Core*: where a = r, G(y) = x^k − Q(T) + Q(T') for the prefix T' of mass y, which is ≥ y^k because
        T' is no better than T; where
a = c or a = d, G is a line between two points where this holds, or from (0, 0), or to (1, 1). So
the best law of a selected draft is the target clipped to [c·p, d·p].

**3. A rule with that law.** Every draft gets an independent score U in [0, 1]; the largest is
selected. If the score's law given the token, κ(·|y), mixes to the uniform law, Σ_y p(y) κ(·|y) =
Unif[0, 1], then the k drafts' scores are i.i.d. uniform and

    Pr(token y selected) = k ∫ p(y) κ(du|y) u^{k−1} = p(y) · E[g(U) | y],   g(u) = k u^{k−1},

so E[g(U) | y] = a(y) is all that is needed: a martingale coupling of a(Y) and g(U). By Strassen's
theorem it exists exactly when a(Y) precedes g(U) in convex order, and that is the core condition:
with atoms of equal level in ascending order, ∫₀^x g = x^k is the least mean that a set of measure x
can have. `otm.verifiers.optimal.score_pieces` constructs it: one finite union of intervals per
atom, disjoint, on which the atom's score is uniform. Its blocks stay in [0, 1] because a run of
consecutive atoms of mass M and moment A has M^k ≤ A ≤ 1 − (1 − M)^k by the core condition, and
disjoint blocks of total measure 1 tile [0, 1].

**4. Few atoms serve all tokens.** V tokens may have V levels, but a token of level a between two
atoms' levels e < e' may draw its score from the upper atom with probability θ = (a − e)/(e' − e)
and from the lower one otherwise: its mean is a again. Splitting tokens in this way is a
mean-preserving spread: G sinks, but only locally. Between neighbours at tokens u < v, G's line of
slope e' and the one of slope e meet at one point (x', y'), and the split law is in the core if y' ≥
x'^k there. So: start with atoms at tokens that lie geometrically around the cut, where G touches
x^k, and halve every interval that fails. An interval without tokens inside never fails, so this
ends, at worst with every level an atom; on language models some hundred atoms do, and the pieces
fit into the first-level cache. s, and with it optimality, is untouched.

**5. The order is needed in few places.** The cut, c and d are roots and a maximum along the overlap
curve, and atoms need not be tokens: any levels will do. So all of this runs over steps
(`otm.overlap.lumped_row`): single tokens around the cut, c and d, whole bins of the ratio
elsewhere, whose edges serve as atoms, and a bin is resolved into its tokens where the answer may
lie inside, or where splitting it between its edges fails the test of part 4.

**6. The output.** Accept the selected token y with probability min(1, q(y)/s(y)), else draw from
the residual ∝ (q − s)₊. Lossless whatever s is, as long as s is the law of the selected token;
what the pieces have in floating point misses the planned s by half of the moment residual
(`Scores.residuals`).

**Accuracy.** Everything is kept from the top: gaps 1 − u, masses P(Tᶜ), powers through log1p and
expm1. `Scores` measures how far the pieces miss the tiling, the masses, the moments, the core and
the total; a residual beyond its rounding bound raises `SolverFailure`.

Reference: selection followed by single-draft rejection: Khisti et al. 2025. Convex order: Strassen
1965. Left-curtain coupling: Beiglböck & Juillet 2016. Core of a convex game and majorisation:
Kleiner, Moldovanu & Strack 2021. docs/theory.md, "The optimal verifier at full vocabulary".
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import (
    UNIT_ROUNDOFF,
    Array,
    Floats,
    gather,
    namespace,
    quiet,
    running_sum,
    search_rows,
    unit_quadrature,
)
from otm.errors import SolverFailure
from otm.overlap.curve import NEGLIGIBLE, Containment, containments, ratios
from otm.overlap.lumped_row import RowSteps, Steps
from otm.verifiers.optimal.score_pieces import score_pieces

_SMALLEST = np.finfo(np.float64).smallest_normal
"""The least mass of an atom: below this products lose digits. Tokens of a smaller atom, which
nobody will ever draw, use the next atom.
"""

_GEOMETRIC = np.unique(np.round(1.25 ** np.arange(90)).astype(np.int64))
"""Distances from the cut, in tokens, of the first atoms: smooth level curves need the ratio
1.25.
"""


class ScoreTable(NamedTuple):
    """The arrays for drawing scores: of one row, or of several padded to one length `(rows, ...)`.

    Attributes:
        level, step, measure: of each atom its level, the distance to the next one's and its length.
        last: each atom's last piece.
        key: of each piece its atom's index plus `low`, ascending.
        low: where the piece starts as a fraction of its atom.
        gap: 1 − upper end of the piece.
    """

    level: Array
    step: Array
    measure: Array
    last: Array
    key: Array
    low: Array
    gap: Array

    def gaps(self, levels: Array, uniforms: Array) -> Array:
        """Draw a score for each level (of a drafted token) from a uniform, as the gap 1 − U.

        The smallest gap wins. One uniform serves twice: first it chooses between the two
        neighbouring atoms, then, rescaled, the point in the atom.
        """
        xp = namespace(levels)
        atom = search_rows(self.level, levels) - 1
        theta = (levels - gather(self.level, atom)) / gather(self.step, atom)
        upper = uniforms < theta
        rest = (uniforms - xp.where(upper, 0.0, theta)) / xp.where(upper, theta, 1.0 - theta)
        atom = atom + xp.astype(upper, xp.int64)
        found = search_rows(self.key, xp.astype(atom, xp.float64) + rest) - 1
        piece = xp.minimum(found, gather(self.last, atom))
        point = (rest - gather(self.low, piece)) * gather(self.measure, atom)
        return gather(self.gap, piece) + point


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Score laws of the atoms, ready for draws, with checked residuals.

    Index 0 is a sentinel below every level, for tokens that are never drafted: its score loses to
    all others.

    Attributes:
        size: number of drafts.
        num_tokens: how many tokens' masses were summed, which the rounding bounds count.
        level: E[g(U)] asked of each atom, strictly ascending, `(n + 1,)`; level[0] = −1.
        mass: probability that a draft uses the atom, `(n + 1,)`; mass[0] = 0.
        owner: the atom of each piece, `(pieces,)`, ascending.
        gap: 1 − upper end of each piece.
        length: length of each piece.
    """

    size: Containment
    num_tokens: int
    level: Floats
    mass: Floats
    owner: NDArray[np.int64]
    gap: Floats
    length: Floats

    @functools.cached_property
    def measure(self) -> Floats:
        """Total length of each atom's pieces, `(n + 1,)`: the atom's mass, up to rounding."""
        return np.asarray(
            np.bincount(self.owner, weights=self.length, minlength=len(self.level)),
            dtype=np.float64,
        )

    @functools.cached_property
    def achieved(self) -> Floats:
        """Actual E[g(U)] of each atom's pieces, `(n + 1,)`, 0 for the sentinel."""
        with quiet():
            moments = self.size.gained(self.gap, self.length)
        sums = np.bincount(self.owner, weights=moments, minlength=len(self.level))
        return np.divide(sums, self.measure, out=np.zeros_like(sums), where=self.measure > 0)

    @property
    def num_atoms(self) -> int:
        """n, without the sentinel."""
        return len(self.level) - 1

    @functools.cached_property
    def steps(self) -> Floats:
        """Distance to the next atom's level, ∞ at the top: the denominator of θ."""
        return np.append(np.diff(self.level), np.inf)

    @functools.cached_property
    def residuals(self) -> dict[str, float]:
        """The errors of the pieces in each condition.

        * tiling: largest |place of a piece − length of the pieces above it|, and |total length − 1|
        * length: Σ |measure − mass|, twice the distance in total variation between the mixture of
          the score laws and the uniform one
        * moment: Σ mass·|achieved − level|, twice the distance in total variation between the
          planned and the true selection law
        * core: largest excess of b(B) over s(B) on sets of low levels; lines of G make the atoms'
          ends enough
        * mass: |Σ mass − 1| and |Σ mass·achieved − 1|, the larger
        """
        gap, length = self.gap[self.owner > 0], self.length[self.owner > 0]
        # a piece too short to move the next one's place comes before it
        order = np.lexsort((length, gap))
        ends = np.append(0.0, np.cumsum(length[order]))
        tiling = np.abs(np.append(gap[order], 1.0) - ends)
        selected = self.mass * self.achieved
        outside = np.minimum(np.cumsum(self.mass[::-1]), 1.0)
        with quiet():
            bound = -np.expm1(self.size.logarithm(outside))
        return {
            "tiling": float(tiling.max()),
            "length": float(np.abs(self.measure - self.mass).sum()),
            "moment": float(
                (self.mass * np.abs(self.achieved - np.maximum(self.level, 0.0))).sum()
            ),
            "core": float(np.maximum(np.cumsum(selected[::-1]) - bound, 0.0).max()),
            "mass": float(max(abs(self.mass.sum() - 1.0), abs(selected.sum() - 1.0))),
        }

    @property
    def tolerance(self) -> float:
        """A bound on accumulated rounding: (V + 64 n) units on sums of V masses and n solves of up
        to 16 operations, with factor 4.

        An error of the places moves moments by no more than the cumulative moment's own error,
        since both are monotone in the place; k enters through k·log1p(−h), whose error is one unit
        of itself and is weighed by e^{−k h}: at most e^{−1} units.
        """
        return 4 * (self.num_tokens + 64 * len(self.level)) * UNIT_ROUNDOFF

    def check(self) -> None:
        """Raise `SolverFailure` if a residual exceeds the tolerance."""
        for name, value in self.residuals.items():
            if not value <= self.tolerance:
                raise SolverFailure(
                    f"The score pieces must meet their {name} condition to {self.tolerance:.3g}; "
                    f"they miss it by {value:.3g}. "
                    "Please report the two distributions; otm.KSeq() is lossless in the meantime."
                )

    @functools.cached_property
    def table(self) -> ScoreTable:
        """The arrays for drawing scores."""
        before = np.append(0.0, np.cumsum(self.length)[:-1])
        first = np.searchsorted(self.owner, np.arange(len(self.level)))
        # Running sums over an atom alone: a difference of global ones would lose the digits of
        # small atoms.
        start = before - before[first][self.owner]
        short = self.measure[self.owner] < 1e-3
        for atom in np.unique(self.owner[short]).tolist():
            here = slice(int(first[atom]), int(first[atom + 1]) if atom + 1 < len(first) else None)
            start[here] = np.append(0.0, np.cumsum(self.length[here])[:-1])
        with quiet():
            low: Floats = np.where(start > 0, start / self.measure[self.owner], 0.0)
        last = np.append(first[1:], len(self.owner)) - 1
        return ScoreTable(
            self.level, self.steps, self.measure, last, self.owner + low, low, self.gap
        )

    def between(self, levels: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return, for levels of drafted tokens, the atom at or below each and the chance θ of the
        next one above.
        """
        atom = self.level.searchsorted(levels, side="right") - 1
        return atom, (levels - self.level[atom]) / self.steps[atom]

    def mean(self, levels: Floats) -> Floats:
        """Return E[g(U)] of tokens planned at given levels, from the actual pieces."""
        atom, theta = self.between(levels)
        found: Floats = (1.0 - theta) * self.achieved[atom] + theta * np.append(self.achieved, 0.0)[
            atom + 1
        ]
        return found

    def below(self, levels: Floats) -> Floats:
        """Return Pr(score ≤ u) of tokens by level at the ends of all pieces,
        `(..., pieces + 1)`.
        """
        atom, theta = self.between(levels)
        theta = theta[..., None]
        atoms, at = np.unique(
            np.concatenate([atom, np.minimum(atom + 1, self.num_atoms)]), return_inverse=True
        )
        table = self.distributions(atoms)
        lower, upper = np.split(at.reshape(2 * len(levels), *levels.shape[1:]), 2)
        ends: Floats = (1.0 - theta) * table[lower] + theta * table[upper]
        return ends

    def winning(self, levels: Floats) -> Floats:
        """Return Pr(draft i has the largest score) for drafts of these levels, `(n, k)`; drafts
        that never win get 0.

        ∫ Π_{j≠i} F_j dF_i: between the ends of pieces every F is linear, so the integrand is a
        polynomial of degree k − 1, which Gauss–Legendre quadrature with ⌈k/2⌉ nodes integrates
        exactly. Cost: O(n · k² · pieces).
        """
        k = levels.shape[-1]
        ends = self.below(levels)
        rise = np.diff(ends, axis=-1)
        places, weights = unit_quadrature((k + 1) // 2)
        inside = ends[..., :-1, None] + rise[..., None] * places
        before, after = np.ones_like(inside), np.ones_like(inside)
        for i in range(1, k):
            before[:, i] = before[:, i - 1] * inside[:, i - 1]
            after[:, k - 1 - i] = after[:, k - i] * inside[:, k - i]
        wins: Floats = ((before * after) @ weights * rise).sum(axis=-1)
        return wins

    def distributions(self, atoms: NDArray[np.int64]) -> Floats:
        """Return Pr(score ≤ u) of given atoms at the ends of all pieces from u = 0 up,
        `(len(atoms), pieces + 1)`.

        The sentinel's score is below all others: 1 throughout.
        """
        order = np.argsort(-self.gap, kind="stable")
        row = np.full(len(self.level), -1)
        row[atoms] = np.arange(len(atoms))
        owner = row[self.owner[order]]
        here = np.flatnonzero(owner >= 0)
        table = np.zeros((len(atoms), len(order) + 1))
        table[owner[here], here + 1] = self.length[order][here]
        table = np.cumsum(table, axis=1, out=table)
        last = table[:, -1:]
        return np.divide(table, last, out=np.ones_like(table), where=last > 0)


@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """The optimal law of the selected draft on steps in descending order of q/p.

    Attributes:
        low: c, lower end of the clip.
        high: d, upper end of the clip, at most b′(1): G ends at (1, 1) above b.
        cut: how many steps of supp p lie outside T.
        gain: b(T) − Q(T) = 1 − α*.
    """

    low: float
    high: float
    cut: int
    gain: float


def optimal_selection(steps: Steps, undrafted: float, size: Containment) -> tuple[Steps, Selection]:
    """Find the cut and the clip a = clip(q/p, c, d), and resolve the steps around cut, c and d.

    Args:
        steps: of supp p.
        undrafted: target mass off supp p.
        size: number of drafts, more than 1.

    Cost: one scan, twice or three times where steps are lumped. Accuracy: c and d solve their
        equations to a few units in the last place of sums.
    """
    while True:
        found, hiding = _select(steps, undrafted, size)
        if not len(hiding):
            return steps, found
        steps = steps.resolve(hiding)


def _select(
    steps: Steps, undrafted: float, size: Containment
) -> tuple[Selection, NDArray[np.int64]]:
    """Take the best cut between steps, and list the lumped steps to resolve around the cut, c and
    d.
    """
    n, outside, above = len(steps.draft), steps.above_draft, steps.above_target
    with quiet():
        ((_, gains),) = containments(outside, [size])
    hiding = np.zeros(n, dtype=bool)
    if steps.lumped.any():
        hiding |= _may_hide_the_cut(steps, gains)
    gains += above
    cut = int(np.argmax(gains)) + 1
    gain = float(gains[cut - 1]) - 1.0 + undrafted
    if gain <= undrafted:  # the empty complement: T = supp p
        cut, gain = 0, undrafted
    c_outside = float(steps.draft[:cut].sum())
    is_empty = cut == n or c_outside >= 1.0
    exponent = -math.inf if is_empty else float(size.logarithm(np.float64(c_outside)))
    low, high = 0.0, size.steepest
    if cut < n:  # Σ_T p·max(r, c) = b(T), by ascending ratios
        p, q, lowest, highest = (
            each[cut:][::-1] for each in (steps.draft, steps.target, steps.low, steps.high)
        )
        level, around = _lift(p, q, highest, math.exp(exponent))
        low = max(low, level)
        hiding[cut:][::-1][around] |= low > lowest[around]
    if cut > 0:  # Σ p·min(r, d) = 1 − b(T) off T: the mirror image, min(r, d) = −max(−r, −d)
        p, q, lowest, highest = (
            each[:cut] for each in (steps.draft, steps.target, steps.low, steps.high)
        )
        level, around = _lift(p, -q, -lowest, math.expm1(exponent))
        high = min(high, -level)
        hiding[:cut][around] |= high < highest[around]
    hiding[max(cut - 2, 0) : cut + 2] = True
    return Selection(low=low, high=max(low, high), cut=cut, gain=gain), np.flatnonzero(
        hiding & steps.lumped
    )


def _may_hide_the_cut(steps: Steps, contained: Floats) -> NDArray[np.bool_]:
    """True where a step may hide a better cut (docs/theory.md, "Without a sort")."""
    p, above = steps.draft, steps.above_target
    highest = np.append(1.0, contained[:-1]) + above - steps.low * p
    highest = np.minimum(highest, contained + np.append(0.0, above[:-1]) + steps.high * p)
    best = max(1.0, float((contained + above).max()))
    return np.asarray(highest > best + NEGLIGIBLE)


def _lift(p: Floats, q: Floats, largest: Floats, mass: float) -> tuple[float, slice]:
    """Solve Σ p·max(r, level) = mass over steps by ascending ratio r, `largest` in each.

    Returns the level and the steps in which the answer may lie.
    """
    lifted_p, lifted_q = (np.asarray(running_sum(sums.copy())) for sums in (p, q))
    # A level at a step's largest ratio lifts that step and all before it: find the first that the
    # spare mass does not pay for.
    with quiet():
        dear = largest * lifted_p - lifted_q > mass - lifted_q[-1]
    paid = int(dear.argmax()) if dear.any() else len(p)
    count = max(paid, 1)
    level = (mass - float(q[count:].sum())) / float(lifted_p[count - 1])
    if count < len(p):
        # It is below the ratios of the step after; what rounding adds to a quotient of small
        # masses must not lift that, too.
        level = min(level, float(largest[count]))
    return level, slice(paid, count + 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Nodes:
    """Possible places of atoms: levels in descending order, with mass on and between these.

    Attributes:
        level: a, `(n,)`.
        mass, moment: p and s of the tokens at each node, `(n,)`.
        mass_after, moment_after: of the tokens between each node and the next, `(n,)`.
        step: the lumped step between each node and the next, −1 where there is none.
    """

    level: Floats
    mass: Floats
    moment: Floats
    mass_after: Floats
    moment_after: Floats
    step: NDArray[np.int64]

    @classmethod
    def of(cls, steps: Steps, chosen: Selection) -> tuple[Nodes, int]:
        """Return the nodes of steps, tokens and the edges of lumps, and the number outside T."""
        high, low = (np.clip(ratio, chosen.low, chosen.high) for ratio in (steps.high, steps.low))
        wide = low < high
        if not wide.any():
            nothing = np.zeros(1)
            return cls(
                high, steps.draft, high * steps.draft, nothing, nothing, np.full(1, -1)
            ), chosen.cut
        count = 1 + wide.astype(np.int64)
        of = np.repeat(np.arange(len(high)), count)
        second = np.append(False, of[1:] == of[:-1])
        first = wide[of] & ~second
        return cls(
            level=np.where(second, low[of], high[of]),
            mass=np.where(wide[of], 0.0, steps.draft[of]),
            moment=np.where(wide[of], 0.0, high[of] * steps.draft[of]),
            mass_after=np.where(first, steps.draft[of], 0.0),
            moment_after=np.where(first, steps.target[of], 0.0),
            step=np.where(first, of, -1),
        ), int(count[: chosen.cut].sum())

    @functools.cached_property
    def above(self) -> tuple[Floats, Floats]:
        """Mass and moment above each node and on the node, `(n,)`."""
        return _running(self.mass, self.mass_after), _running(self.moment, self.moment_after)

    def split_in_core(
        self, u: NDArray[np.int64], v: NDArray[np.int64], size: Containment
    ) -> NDArray[np.bool_]:
        """True if splitting all mass strictly between nodes u and v keeps G above b, seen from the
        top: U ≤ 1 − b(1 − C).
        """
        outside, selected = self.above
        mass, moment = (
            outside[v] - self.mass[v] - outside[u],
            selected[v] - self.moment[v] - selected[u],
        )
        step = self.level[u] - self.level[v]
        with quiet():
            upper = np.where(
                step > 0,
                np.clip((moment - self.level[v] * mass) / step, 0.0, np.maximum(mass, 0.0)),
                0.0,
            )
            at = np.minimum(outside[u] + upper, 1.0)
            bound = -np.expm1(size.logarithm(at))
        # Levels that are equal need no split. A violation within rounding moves the law by as much;
        # halving would not mend it.
        return np.asarray(
            (step <= 0) | (selected[u] + self.level[u] * upper <= bound + 4 * UNIT_ROUNDOFF)
        )


def _running(own: Floats, after: Floats) -> Floats:
    """Return the running sums of node masses and the masses between nodes."""
    if len(after) < len(own):
        return np.asarray(running_sum(own.copy()))
    return np.asarray(running_sum(own + np.append(0.0, after[:-1])))


def choose_atoms(
    nodes: Nodes, cut: int, size: Containment
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the nodes whose levels become atoms, ascending, with first and last; all other mass is
    split between two.

    Args:
        nodes: what there is to choose from.
        cut: number of nodes off T.
        size: number of drafts.

    Returns:
        The nodes, and the lumped steps that cannot be split between their own ends and must be
        resolved first.

    Cost: at most log₂ n rounds on arrays of atoms.
    """
    n = len(nodes.level)
    around = np.concatenate([[0, n - 1, cut - 1, cut], cut - 1 - _GEOMETRIC, cut + _GEOMETRIC])
    at = np.unique(around[(around >= 0) & (around < n)])
    while True:
        u, v = at[:-1], at[1:]
        fails = ~nodes.split_in_core(u, v, size)
        halved = fails & (v - u > 1)
        if not halved.any():
            steps = nodes.step[u[fails]] if len(nodes.step) == n else nodes.step[:0]
            return at, steps[steps >= 0]  # two tokens that are neighbours can only fail by rounding
        at = np.union1d(at, (u[halved] + v[halved]) // 2)


def build_scores(nodes: Nodes, at: NDArray[np.int64], size: Containment, num_tokens: int) -> Scores:
    """Build the pieces for atoms at given nodes, ascending, with first and last.

    Raises:
        SolverFailure: if a self-check fails.

    Cost: O(n), and about 5 µs per atom in plain Python.
    """
    level = nodes.level[at]
    mass = nodes.mass[at]
    if len(at) > 1:
        below, step = level[1:], -np.diff(level)
        step[step == 0] = np.inf  # equal levels: all to the lower, which is the same
        # Sums of θ p, each θ from its own level: a difference of sums would lose the digits of
        # atoms that lie close.
        inner = nodes.mass.copy()
        inner[at] = 0.0
        count = np.diff(np.append(at[:-1], len(inner)))
        share = nodes.level - np.repeat(below, count)
        share /= np.repeat(step, count)
        share *= inner
        inner += nodes.mass_after
        if len(nodes.mass_after) == len(inner):
            share += (nodes.moment_after - np.repeat(below, count) * nodes.mass_after) / np.repeat(
                step, count
            )
        upper, whole = np.add.reduceat(share, at[:-1]), np.add.reduceat(inner, at[:-1])
        mass[:-1] += upper
        mass[1:] += whole - upper
    atoms, which = np.unique(level, return_inverse=True)
    mass = np.maximum(np.bincount(which, weights=mass), 0.0)
    scores = _from_pieces(mass, atoms, size, num_tokens)
    scores.check()
    return scores


def _from_pieces(mass: Floats, atoms: Floats, size: Containment, num_tokens: int) -> Scores:
    heavy = mass >= _SMALLEST
    mass, atoms = mass[heavy], atoms[heavy]
    owners, lengths = score_pieces(mass.tolist(), atoms.tolist(), size)
    owner, length = np.asarray(owners, dtype=np.int64) + 1, np.asarray(lengths, dtype=np.float64)
    # never cumsum − length, which loses the small gaps that large k looks at
    gap = np.append(0.0, np.cumsum(length)[:-1])
    order = np.argsort(owner, kind="stable")
    return Scores(
        size=size,
        num_tokens=num_tokens,
        level=np.append(-1.0, atoms),
        mass=np.append(0.0, mass),
        owner=np.append(0, owner[order]),
        gap=np.append(1.0, gap[order]),
        length=np.append(0.0, length[order]),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class TokenScores:
    """Scores for the tokens of a problem.

    Attributes:
        scores: atoms and pieces.
        low, high: c and d.
        gain: 1 − α*.
        draft, target: the tokens' masses `(V,)`.
    """

    scores: Scores
    low: float
    high: float
    gain: float
    draft: Floats
    target: Floats

    @functools.cached_property
    def level(self) -> Floats:
        """Planned E[g(U) | y] = clip(q/p, c, d) `(V,)`, −1 off supp p."""
        # of the tokens below the lowest atom that has any mass
        least = max(self.low, float(self.scores.level[1]))
        return np.where(
            self.draft > 0,
            np.clip(ratios(self.draft, self.target), least, max(least, self.high)),
            -1.0,
        )

    @functools.cached_property
    def achieved(self) -> Floats:
        """E[g(U) | y] from the actual pieces `(V,)`, 0 off supp p."""
        return np.where(self.draft > 0, self.scores.mean(self.level), 0.0)


def scores_of_tokens(
    draft: Floats,
    target: Floats,
    size: Containment,
    *,
    undrafted: float = 0.0,
    num_tokens: int | None = None,
) -> TokenScores:
    """Build the optimal scores for drafts from p and target q.

    Args:
        draft, target: masses `(V,)`; each sums to 1, the target together with `undrafted`.
        size: number of drafts.
        undrafted: target mass on tokens that are left out of both arrays because p = 0 there.
        num_tokens: how many masses were summed for these two arrays, if they are those of bins.

    Raises:
        SolverFailure: if the pieces fail a self-check.

    Cost: with numba, on long rows, two or three passes and the order of the tokens around the cut,
        c and d; else one sort of the tokens with p > 0 and some twenty passes over them.
    """
    summed = len(draft) if num_tokens is None else num_tokens
    if size.steepest == 1.0:
        gain = 1.0 - float(np.minimum(draft, target).sum())
        return TokenScores(
            _from_pieces(np.ones(1), np.ones(1), size, summed), 1.0, 1.0, gain, draft, target
        )
    p, q = draft, target
    if draft.min() == 0:
        live = np.flatnonzero(draft)
        undrafted += float(target[draft == 0].sum())
        p, q = draft[live], target[live]
    scores, chosen = scores_of_steps(RowSteps.of(p, q), undrafted, size, summed)
    return TokenScores(scores, chosen.low, chosen.high, chosen.gain, draft, target)


def scores_of_steps(
    steps: Steps, undrafted: float, size: Containment, summed: int
) -> tuple[Scores, Selection]:
    """Build the optimal scores of steps, resolved where necessary; size is more than 1.

    Args:
        steps: of supp p.
        undrafted: target mass off supp p.
        size: number of drafts.
        summed: how many masses were summed for the steps.
    """
    while True:
        steps, chosen = optimal_selection(steps, undrafted, size)
        nodes, cut = Nodes.of(steps, chosen)
        at, hiding = choose_atoms(nodes, cut, size)
        if not len(hiding):
            return build_scores(nodes, at, size, summed), chosen
        steps = steps.resolve(hiding)
