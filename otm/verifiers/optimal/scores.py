"""The optimal verifier at full vocabulary: independent scores, the largest one wins, and one rejection step.

For k i.i.d. drafts from p and a target q on V tokens, this module builds a verifier that is exactly lossless and exactly optimal in
O(V log V), and verifies in O(k log V). It is a selection scheme: pick one draft, then accept or replace it.

**1. Which law can a selected draft have?** If one of the drafts is selected by any rule and s is its law, then s(B) ≥ P(B)^k for
every token set B, since the selected token lies in B when all drafts do (the *core* condition). Sorting tokens by the level
a = s/p, it is enough to check the prefixes: with x = P(prefix) and G(x) = s(prefix), the condition is G(x) ≥ x^k. G is convex and
x ↦ x^k is convex, so a line of G that starts and ends above x^k stays above it: checking the ends of the lines is enough too.

**2. The best such law.** Single-draft rejection on a draft of law s accepts Σ min(s, q). Let T, a prefix of supp p in ascending
order of r = q/p, attain the minimum of Q(T) − P(T)^k, so that α* = 1 + Q(T) − P(T)^k (`otm.drafts.iid_cut`). Take

    s = p · a,   a = clip(r, c, d),   c with Σ_T p·max(r, c) = P(T)^k,   d with Σ_{off T} p·min(r, d) = 1 − P(T)^k.

Both solve: Q(T) ≤ P(T)^k because ∅ is no better than T, and Q(supp p ∖ T) ≥ 1 − P(T)^k because supp p is no better. The clip agrees
with the two equations if c is below every level off T and d above every level on T; then s ≥ q on T and s ≤ q on supp p ∖ T, so
Σ min(s, q) = Q(T) + 1 − P(T)^k = α*. And so it is: with x = P(T), c ≤ x^{k−1} ≤ k x^{k−1} ≤ (1 − x^k)/(1 − x) ≤ d; dropping T's
last token is no better, so r ≤ k x^{k−1} on T; adding the next one is no better, so r ≥ k x^{k−1} off T.

*Core*: where a = r, G(y) = x^k − Q(T) + Q(T') for the prefix T' of mass y, which is ≥ y^k because T' is no better than T; where
a = c or a = d, G is a line between two points where this holds, or from (0, 0), or to (1, 1). So the best law of a selected draft
is the target clipped to [c·p, d·p].

**3. A rule with that law.** Every draft gets an independent score U in [0, 1]; the largest is selected. If the score's law given
the token, κ(·|y), mixes to the uniform law, Σ_y p(y) κ(·|y) = Unif[0, 1], then the k drafts' scores are i.i.d. uniform and

    Pr(token y selected) = k ∫ p(y) κ(du|y) u^{k−1} = p(y) · E[g(U) | y],   g(u) = k u^{k−1},

so E[g(U) | y] = a(y) is all that is needed: a martingale coupling of a(Y) and g(U). By Strassen's theorem it exists exactly when
a(Y) precedes g(U) in convex order, and that is the core condition: with atoms of equal level in ascending order, ∫₀^x g = x^k is
the least mean that a set of measure x can have. `otm.verifiers.optimal.curtain` constructs it: one finite union of intervals
per atom, disjoint, on which the atom's score is uniform. Its blocks stay in [0, 1] because a run of consecutive atoms of mass M
and moment A has M^k ≤ A ≤ 1 − (1 − M)^k by the core condition, and disjoint blocks of total measure 1 tile [0, 1].

**4. Few atoms serve all tokens.** V tokens may have V levels, but a token of level a between two atoms' levels e < e' may draw its
score from the upper atom with probability θ = (a − e)/(e' − e) and from the lower one otherwise: its mean is a again. Splitting
tokens in this way is a mean-preserving spread: G sinks, but only locally. Between neighbours at tokens u < v, G's line of slope
e' and the one of slope e meet at one point (x', y'), and the split law is in the core if y' ≥ x'^k there. So: start with atoms at
tokens that lie geometrically around the cut, where G touches x^k, and halve every interval that fails. An interval without tokens
inside never fails, so this ends, at worst with every level an atom; on language models some hundred atoms do, and the pieces fit
into the first-level cache. s, and with it optimality, is untouched.

**5. The output.** Accept the selected token y with probability min(1, q(y)/s(y)), else draw from the residual ∝ (q − s)₊. Lossless
whatever s is, as long as s is the law of the selected token: it is evaluated from the pieces as they came out in floating point.

**Accuracy.** Everything is kept from the top: gaps 1 − u, masses P(Tᶜ), powers through log1p and expm1. `Scores` measures how far
the pieces miss the tiling, the masses, the moments, the core and the total; a residual beyond its rounding bound raises
`SolverFailure`.

Reference: selection followed by single-draft rejection: Khisti et al. 2025. Convex order: Strassen 1965. Left-curtain coupling:
Beiglböck & Juillet 2016. Core of a convex game and majorisation: Kleiner, Moldovanu & Strack 2021. docs/theory.md, "The optimal
verifier at full vocabulary".
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import integer_power, quiet, reserve
from otm.drafts.iid_cut import LARGEST_MULTIPLIED_POWER
from otm.errors import SolverFailure
from otm.overlap import OverlapCurve
from otm.verifiers.optimal.curtain import score_pieces

Vector = NDArray[np.float64]

_UNIT_ROUNDOFF = 2.0**-53
_GEOMETRIC = np.unique(np.round(1.25 ** np.arange(90)).astype(np.int64))
"""Distances from the cut, in tokens, of the first atoms: the ratio 1.25 is what smooth level curves need."""


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Score laws of the atoms, ready to draw from, with the checks that they passed.

    Index 0 is a sentinel below every level, for tokens that are never drafted: its score loses to all others.

    Attributes:
        k: number of drafts.
        num_tokens: how many tokens' masses were summed, which the rounding bounds count.
        level: E[g(U)] asked of each atom, strictly ascending, `(n + 1,)`; level[0] = −1.
        mass: probability that a draft uses the atom, `(n + 1,)`; mass[0] = 0.
        owner: the atom of each piece, `(pieces,)`, ascending.
        gap: 1 − upper end of each piece.
        length: length of each piece.
    """

    k: int
    num_tokens: int
    level: Vector
    mass: Vector
    owner: NDArray[np.int64]
    gap: Vector
    length: Vector

    @functools.cached_property
    def measure(self) -> Vector:
        """Total length of each atom's pieces, `(n + 1,)`: its mass, up to rounding."""
        return np.asarray(np.bincount(self.owner, weights=self.length, minlength=len(self.level)), dtype=np.float64)

    @functools.cached_property
    def achieved(self) -> Vector:
        """E[g(U)] of each atom as the pieces have it, `(n + 1,)`: the level up to rounding; 0 for the sentinel."""
        top = 1.0 - self.gap
        with quiet():
            share = np.where(top > self.length, self.length / top, 1.0)
            moments = np.exp(self.k * np.log1p(-self.gap)) * -np.expm1(self.k * np.log1p(-share))
        sums = np.bincount(self.owner, weights=np.where(top > 0, moments, 0.0), minlength=len(self.level))
        return np.divide(sums, self.measure, out=np.zeros_like(sums), where=self.measure > 0)

    @property
    def num_atoms(self) -> int:
        """n, without the sentinel."""
        return len(self.level) - 1

    @functools.cached_property
    def steps(self) -> Vector:
        """Distance to the next atom's level, ∞ at the top: the denominator of θ."""
        return np.append(np.diff(self.level), np.inf)

    @property
    def tiling_residual(self) -> float:
        """Largest |place of a piece − total length of the pieces above it|, and |total length − 1|."""
        real = self.owner > 0
        gap, length = self.gap[real], self.length[real]
        order = np.lexsort((length, gap))  # a piece too short to move the next one's place comes before it
        ends = np.cumsum(length[order])
        return float(max(abs(gap[order][1:] - ends[:-1]).max(initial=0.0), gap[order][0], abs(ends[-1] - 1.0)))

    @property
    def length_residual(self) -> float:
        """Σ |measure − mass| over the atoms: how far the mixture of the score laws is from uniform, in total variation × 2."""
        return float(np.abs(self.measure - self.mass).sum())

    @property
    def moment_residual(self) -> float:
        """Σ mass·|achieved − level|: twice the distance in total variation between the planned and the true selection law."""
        return float((self.mass * np.abs(self.achieved - np.maximum(self.level, 0.0))).sum())

    @property
    def core_residual(self) -> float:
        """Largest excess of P(B)^k over s(B) on sets of low levels; lines of G make the atoms' ends enough."""
        outside = np.cumsum(self.mass[::-1])
        selected = np.cumsum((self.mass * self.achieved)[::-1])
        with quiet():
            bound = -np.expm1(self.k * np.log1p(-np.minimum(outside, 1.0)))
        return float(np.maximum(selected - bound, 0.0).max())

    @property
    def mass_residual(self) -> float:
        """|Σ mass − 1| and |Σ mass·achieved − 1|, the larger."""
        return float(max(abs(self.mass.sum() - 1.0), abs((self.mass * self.achieved).sum() - 1.0)))

    @property
    def residuals(self) -> dict[str, float]:
        """All five residuals by name."""
        return {
            "tiling": self.tiling_residual,
            "length": self.length_residual,
            "moment": self.moment_residual,
            "core": self.core_residual,
            "mass": self.mass_residual,
        }

    @property
    def tolerance(self) -> float:
        """What rounding can add up to: (V + 64 n) units on sums of V masses and n solves of up to 16 operations, with factor 4.

        An error of the places moves moments by no more than the cumulative moment's own error, since both are monotone in the
        place; k enters through k·log1p(−h), whose error is one unit of itself and is weighed by e^{−k h}: at most e^{−1} units.
        """
        return 4 * (self.num_tokens + 64 * len(self.level)) * _UNIT_ROUNDOFF

    def check(self) -> None:
        """Raise `SolverFailure` if a residual exceeds the tolerance."""
        for name, value in self.residuals.items():
            if not value <= self.tolerance:
                raise SolverFailure(
                    f"The score pieces must meet their {name} condition to {self.tolerance:.3g}; they miss it by {value:.3g}. "
                    "Please report the two distributions; otm.KSeq() is lossless in the meantime."
                )

    @functools.cached_property
    def table(self) -> tuple[Any, Any, Any]:
        """Where each piece starts as a fraction of its atom; that plus the atom's index; each atom's last piece."""
        before = np.append(0.0, np.cumsum(self.length)[:-1])
        first = np.searchsorted(self.owner, np.arange(len(self.level)))
        # Running sums over an atom alone: a difference of global ones would lose the digits of small atoms.
        start = before - before[first][self.owner]
        short = self.measure[self.owner] < 1e-3
        for atom in np.unique(self.owner[short]).tolist():
            here = slice(int(first[atom]), int(first[atom + 1]) if atom + 1 < len(first) else None)
            start[here] = np.append(0.0, np.cumsum(self.length[here])[:-1])
        with quiet():
            low: Vector = np.where(start > 0, start / self.measure[self.owner], 0.0)
        last = np.append(first[1:], len(self.owner)) - 1
        return low, self.owner + low, last

    def gaps(self, levels: Vector, uniforms: Vector) -> Vector:
        """Draw a score for each level (of a drafted token) from a uniform, as the gap 1 − U: the smallest gap wins.

        One uniform serves twice: first it chooses between the two neighbouring atoms, then, rescaled, the point in the atom.
        """
        low, key, last = self.table
        atom = self.level.searchsorted(levels, side="right") - 1
        theta = (levels - self.level[atom]) / self.steps[atom]
        upper = uniforms < theta
        rest = (uniforms - np.where(upper, 0.0, theta)) / np.where(upper, theta, 1.0 - theta)
        atom = atom + upper
        piece = np.minimum(key.searchsorted(atom + rest, side="right") - 1, last[atom])
        gaps: Vector = self.gap[piece] + (rest - low[piece]) * self.measure[atom]
        return gaps

    def winning(self, levels: Vector) -> Vector:
        """Return Pr(draft i has the largest score) for drafts of these levels, `(n, k)`; drafts that never win get 0.

        ∫ Π_{j≠i} F_j dF_i: between the ends of pieces every F is linear, so the integrand is a polynomial of degree k − 1, which
        Gauss–Legendre quadrature with ⌈k/2⌉ nodes integrates exactly. Cost: O(n · k² · pieces).
        """
        k = levels.shape[-1]
        atom = self.level.searchsorted(levels, side="right") - 1
        theta = ((levels - self.level[atom]) / self.steps[atom])[..., None]
        atoms, at = np.unique(np.concatenate([atom, np.minimum(atom + 1, self.num_atoms)]), return_inverse=True)
        table = self.distributions(atoms)
        lower, upper = np.split(at.reshape(2 * len(levels), k), 2)
        ends = (1.0 - theta) * table[lower] + theta * table[upper]
        rise = np.diff(ends, axis=-1)
        nodes, weights = np.polynomial.legendre.leggauss((k + 1) // 2)
        inside = ends[..., :-1, None] + rise[..., None] * (0.5 + 0.5 * nodes)
        before, after = np.ones_like(inside), np.ones_like(inside)
        for i in range(1, k):
            before[:, i] = before[:, i - 1] * inside[:, i - 1]
            after[:, k - 1 - i] = after[:, k - i] * inside[:, k - i]
        wins: Vector = ((before * after) @ (0.5 * weights) * rise).sum(axis=-1)
        return wins

    def distributions(self, atoms: NDArray[np.int64]) -> Vector:
        """Return Pr(score ≤ u) of these atoms at the ends of all pieces from u = 0 up, `(len(atoms), pieces + 1)`.

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
    """The optimal law of the selected draft on tokens in descending order of q/p.

    Attributes:
        low: c, lower end of the clip.
        high: d, upper end of the clip, at most k: G ends at (1, 1) above x^k, whose slope there is k.
        cut: how many tokens of supp p lie outside T.
        gain: P(T)^k − Q(T) = 1 − α*.
    """

    low: float
    high: float
    cut: int
    gain: float


def optimal_selection(p: Vector, q: Vector, ratio: Vector, outside: Vector, undrafted: float, k: int) -> Selection:
    """Find the cut and the clip a = clip(q/p, c, d).

    Args:
        p, q: masses of supp p, in descending order of q/p, `(n,)`.
        ratio: q/p.
        outside: running sum of p.
        undrafted: target mass off supp p.
        k: number of drafts.

    Cost: one scan, then two binary searches. Accuracy: c and d solve their equations to a few units in the last place of sums.
    """
    if k == 1:
        return Selection(low=1.0, high=1.0, cut=len(p), gain=1.0 - float(np.minimum(p, q).sum()))
    above = np.cumsum(q)
    gains = _powers(outside, k)
    gains += above
    best = int(np.argmax(gains))
    gain = float(gains[best]) - 1.0 + undrafted
    cut = best + 1
    if gain <= undrafted:  # the empty complement: T = supp p
        cut, gain = 0, undrafted
    c_outside = float(p[:cut].sum())
    exponent = -math.inf if cut == len(p) or c_outside >= 1.0 else k * math.log1p(-c_outside)
    low = _lower_end(p, q, ratio, outside, above, cut, math.exp(exponent))
    high = min(_upper_end(p, q, ratio, outside, above, cut, -math.expm1(exponent)), float(k))
    return Selection(low=low, high=max(low, high), cut=cut, gain=gain)


def _powers(outside: Vector, k: int) -> Vector:
    """Return (1 − C)^k in a new array."""
    if k <= LARGEST_MULTIPLIED_POWER:
        return np.asarray(integer_power(1.0 - outside, k))
    with quiet():
        work = np.log1p(-np.minimum(outside, 1.0))
        work *= k
        return np.exp(work, out=work)


def _lower_end(p: Vector, q: Vector, ratio: Vector, outside: Vector, above: Vector, cut: int, contained: float) -> float:
    """Solve Σ_T p·max(r, c) = P(T)^k for c; 0 where T is empty."""
    n = len(p)
    if cut == n:
        return 0.0
    spare = contained - float(q[cut:].sum())
    # Σ_T (r_i p − q)₊ falls as i moves down the order: find the first i with at most `spare`; the tokens after it are lifted.
    lo, hi = cut, n - 1
    while lo < hi:
        i = (lo + hi) // 2
        lifted = ratio[i] * (outside[-1] - outside[i]) - (above[-1] - above[i])
        lo, hi = (lo, i) if lifted <= spare else (i + 1, hi)
    tail = slice(lo, n)
    return float(max(0.0, (contained - float(q[cut:lo].sum())) / float(p[tail].sum())))


def _upper_end(p: Vector, q: Vector, ratio: Vector, outside: Vector, above: Vector, cut: int, left: float) -> float:
    """Solve Σ_{off T} p·min(r, d) = 1 − P(T)^k for d; ∞ where no drafted token is off T."""
    if cut == 0:
        return math.inf
    spare = float(q[:cut].sum()) - left
    # Σ (q − r_i p)₊ over the tokens before i grows down the order: find the last i with at most `spare`; up to it all is cut.
    lo, hi = 0, cut - 1
    while lo < hi:
        i = (lo + hi + 1) // 2
        removed = above[i] - ratio[i] * outside[i]
        lo, hi = (i, hi) if removed <= spare else (lo, i - 1)
    head = slice(0, lo + 1)
    return float((left - float(q[lo + 1 : cut].sum())) / float(p[head].sum()))


def choose_atoms(level: Vector, outside: Vector, selected: Vector, cut: int, k: int) -> NDArray[np.int64]:
    """Return positions of tokens whose levels become atoms, ascending, with first and last; all others are split between two.

    Args:
        level: a in descending order `(n,)`.
        outside, selected: running sums of p and s.
        cut: number of tokens off T.
        k: number of drafts.

    Cost: at most log₂ n rounds on arrays of atoms.
    """
    n = len(level)
    around = np.concatenate([[0, n - 1, cut - 1, cut], cut - 1 - _GEOMETRIC, cut + _GEOMETRIC])
    at = np.unique(around[(around >= 0) & (around < n)])
    while True:
        u, v = at[:-1], at[1:]
        inner = v - u > 1
        u, v = u[inner], v[inner]
        fails = ~_split_in_core(level, outside, selected, u, v, k)
        if not fails.any():
            return at
        at = np.union1d(at, (u[fails] + v[fails]) // 2)


def _split_in_core(
    level: Vector, outside: Vector, selected: Vector, u: NDArray[np.int64], v: NDArray[np.int64], k: int
) -> NDArray[np.bool_]:
    """Whether splitting the tokens strictly between positions u and v keeps G above x^k, seen from the top: U ≤ 1 − (1 − C)^k."""
    mass, moment = outside[v - 1] - outside[u], selected[v - 1] - selected[u]
    step = level[u] - level[v]
    with quiet():
        upper = np.where(step > 0, np.clip((moment - level[v] * mass) / step, 0.0, mass), 0.0)
        at = np.minimum(outside[u] + upper, 1.0)
        bound = -np.expm1(k * np.log1p(-at))
    # Levels that are equal need no split. A violation within rounding moves the law by as much; halving would not mend it.
    return np.asarray((step <= 0) | (selected[u] + level[u] * upper <= bound + 4 * _UNIT_ROUNDOFF))


def build_scores(p: Vector, level: Vector, atoms: Vector, k: int, num_tokens: int) -> tuple[Scores, Vector]:
    """Build the pieces for tokens of mass p and descending level `(n,)`, given the atoms' ascending levels.

    Returns:
        Scores, and E[g(U)] of each token as the pieces have it, `(n,)`.

    Raises:
        SolverFailure: if a self-check fails.

    Cost: O(n), and about 5 µs per atom in plain Python.
    """
    n = len(level)
    # Tokens of bin i have levels in [atoms[i], atoms[i + 1]); in descending order the bins come last to first.
    ends = n - np.searchsorted(level[::-1], atoms, side="left")  # one past the last token of each bin
    starts = np.append(ends[1:], 0)
    steps = np.append(np.diff(atoms), np.inf)
    counts = (ends - starts)[::-1]
    theta = np.repeat(atoms[::-1], counts)
    np.subtract(level, theta, out=theta)
    theta /= np.repeat(steps[::-1], counts)
    moved = np.add.reduceat(theta * p, starts[::-1])[::-1]
    mass = np.add.reduceat(p, starts[::-1])[::-1] - moved
    mass[1:] += moved[:-1]
    scores = _from_pieces(np.maximum(mass, 0.0), atoms, k, num_tokens)
    scores.check()
    true = scores.achieved[1:]
    theta *= np.repeat(np.append(np.diff(true), 0.0)[::-1], counts)
    theta += np.repeat(true[::-1], counts)
    return scores, theta


def _from_pieces(mass: Vector, atoms: Vector, k: int, num_tokens: int) -> Scores:
    live = np.flatnonzero(mass)
    owners, lengths = score_pieces(mass[live].tolist(), atoms[live].tolist(), k)
    owner, length = live[np.asarray(owners, dtype=np.int64)] + 1, np.asarray(lengths, dtype=np.float64)
    gap = np.append(0.0, np.cumsum(length)[:-1])  # never cumsum − length, which loses the small gaps that large k looks at
    order = np.argsort(owner, kind="stable")
    return Scores(
        k=k,
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
        level: planned E[g(U) | y] `(V,)`, −1 off supp p.
        achieved: E[g(U) | y] as the pieces have it `(V,)`, 0 off supp p.
        gain: 1 − α*.
    """

    scores: Scores
    level: Vector
    achieved: Vector
    gain: float


def scores_of_tokens(draft: Vector, target: Vector, k: int, *, undrafted: float = 0.0) -> TokenScores:
    """Build the optimal scores for drafts from p and target q.

    Args:
        draft, target: masses `(V,)`; each sums to 1, the target together with `undrafted`.
        k: number of drafts.
        undrafted: target mass on tokens that are left out of both arrays because p = 0 there.

    Raises:
        SolverFailure: if the pieces fail a self-check.

    Cost: one argsort of the tokens with p > 0 and some twenty passes over them.
    """
    reserve(10 * len(draft))
    live = None if np.count_nonzero(draft) == len(draft) else np.flatnonzero(draft)
    if live is not None:
        undrafted += float(target[draft == 0].sum())
    curve = OverlapCurve.of(draft, target) if live is None else OverlapCurve.of(draft[live], target[live])
    where = curve.tokens if live is None else live[curve.tokens]
    p, outside = draft[where], curve.above_draft
    chosen = optimal_selection(p, target[where], curve.ratio, outside, undrafted, k)
    planned = np.clip(curve.ratio, chosen.low, chosen.high)
    selected = planned * p
    selected = np.cumsum(selected, out=selected)
    atoms = np.unique(planned[choose_atoms(planned, outside, selected, chosen.cut, k)])
    del outside, selected
    scores, true = build_scores(p, planned, atoms, k, len(draft))
    level, achieved = np.full(len(draft), -1.0), np.zeros(len(draft))
    level[where], achieved[where] = planned, true
    return TokenScores(scores=scores, level=level, achieved=achieved, gain=chosen.gain)
