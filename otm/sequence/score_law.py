"""Laws of a score refined along a path: the exact split of scores among next tokens.

Every drafted sequence has one score, uniform on [0, 1], and the largest of K wins. A sequence with
score u wins with density g(u) = K u^{K−1} relative to its own law. So whoever passes vertex v with
score law κ_v is on the winner's path with probability P(v) a(v), a(v) = ∫ g dκ_v. At v the law κ_v
is split among the next tokens, Σ_y p(y | v) κ_{vy} = κ_v.

**Levels.** Which a(vy) can be had? Those below the law of g under κ_v in convex order (Strassen
1965). Let F = f(v)/P(v) be how much of v is accepted, N(z) = ∫ g over the lowest part of κ_v of
mass z. Then

    max Σ_y min(F q(y), p(y) a(y)) = min_T [F Q(T) + a(v) − N(P(T))],

attained by the flat clip a = clip(F q/p, c, d), T a prefix in the order of q/p (docs/theory.md,
"Refined scores").

**Coupling.** Among the splittings with these a the next levels want much spread left inside κ_{vy}.
Independence would leave all of it, and give every token the level a(v). So mix: with probability 1
− ω the score is independent of the token, with probability ω the levels are a(v) + (a(y) − a(v))/ω,
as far apart as convex order allows. There they meet the boundary at some mass z: the tokens below
share the scores below, the others the scores above, and both parts are treated in the same way,
until the tokens of a part share one level. One token's law is found by following its parts.

Tokens between the ends of a part follow one of two *atoms* at random, levels on either side of
their own with the right mean; there are as many atoms as convex order asks for.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats, unit_quadrature
from otm.overlap.curve import drafted_ascending

_ROUNDING = 1e-15
"""Moments that differ by no more than this do so by rounding."""

_NARROW = 1e-15
"""Parts of the scores no wider than this are points."""

_GROUPS = 2
"""Into how many groups of equal mass tokens between two ends are put at first."""


@functools.lru_cache(maxsize=64)
def _grid(k: int, cells: int) -> Floats:
    """Return edges of cells, dense where most scores lie and where the winning scores lie."""
    half = np.linspace(0.0, 1.0, cells // 2 + 1)
    return np.unique(np.concatenate([half, half ** (1.0 / max(k - 1, 1))]))


@dataclasses.dataclass(frozen=True, eq=False)
class ScoreLaw:
    """A law of the score that is uniform within each of a few cells.

    Attributes:
        mass: `(m,)` the probability of each cell, the lowest scores first, summing to 1.
        gain: `(m,)` the mean of g(u) = K u^{K−1} in each cell, ascending.
    """

    mass: Floats
    gain: Floats

    @classmethod
    def uniform(cls, k: int, edges: Floats) -> ScoreLaw:
        """Return the uniform law on [0, 1] for K sequences, in cells with edges from 0 to 1."""
        width = np.diff(edges)
        return cls(width, np.diff(edges**k) / width)

    @functools.cached_property
    def below(self) -> Floats:
        """`(m + 1,)` mass below each edge."""
        return np.cumulative_sum(self.mass, include_initial=True)

    @functools.cached_property
    def moment(self) -> Floats:
        """`(m + 1,)` ∫ g below each edge; the last is `level`."""
        return np.cumulative_sum(self.mass * self.gain, include_initial=True)

    def held(self, mass: float) -> float:
        """Return N(z), ∫ g over the lowest scores of mass z."""
        return float(np.interp(mass, self.below, self.moment))

    @property
    def level(self) -> float:
        """The mean a of g: the factor by which the score raises a sequence's chance to win."""
        return float(self.moment[-1])


@dataclasses.dataclass(frozen=True, eq=False)
class Refinement:
    """A score law split among the next tokens.

    Attributes:
        law: the law that is split, κ_v.
        weight: F.
        draft, target: p and q, `(V,)`.
        order: `(n,)` the tokens that can be drafted, in ascending order of q/p.
        below: `(n + 1,)` draft mass of the first i of them.
        wanted: `(n + 1,)` F times their target mass.
        held: `(n + 1,)` ∫ g of the lowest scores of their draft mass.
        cut: how many tokens T has.
        lifted: how many of them share the level `low`.
        capped: the first token of those that share the level `high`.
        low, high: c and d.
    """

    law: ScoreLaw
    weight: float
    draft: Floats
    target: Floats
    order: NDArray[np.int64]
    below: Floats
    wanted: Floats
    held: Floats
    cut: int
    lifted: int
    capped: int
    low: float
    high: float

    @functools.cached_property
    def lower(self) -> Atoms:
        """The atoms of T, which has the scores below to itself."""
        return _atoms(self, 0, self.lifted, self.cut, self.low, math.inf)

    @functools.cached_property
    def upper(self) -> Atoms:
        """The atoms of the other tokens, which have the scores above."""
        return _atoms(self, self.cut, self.cut, self.capped, -math.inf, self.high)

    def child(self, token: int) -> ScoreLaw:
        """Return κ_{vy}, the law of the score given that the next token is y."""
        place = int((self.order == token).argmax())
        atoms = self.lower if place < self.cut else self.upper
        lower, share = atoms.place(place, self)
        mass = atoms.law(lower)
        if share > 0.0:
            mass = (1.0 - share) * mass + share * atoms.law(lower + 1)
        return ScoreLaw(mass, self.law.gain)

    @functools.cached_property
    def selected(self) -> Floats:
        """The winner's next tokens p·a `(V,)` up to a factor, a = clip(F q/p, c, d)."""
        found = np.maximum(self.weight * self.target, self.low * self.draft)
        if self.high < math.inf:
            np.minimum(found, self.high * self.draft, out=found)
        if len(self.order) < len(found):
            found[self.draft <= 0.0] = 0.0
        return found

    def ratio(self, place: int) -> float:
        """Return F q/p of the token at a place in the order."""
        token = self.order[place]
        return self.weight * float(self.target[token]) / float(self.draft[token])


@dataclasses.dataclass(frozen=True, eq=False)
class Unrefined:
    """A score law split so that score and next token are independent.

    Attributes:
        law: κ_v, of every next token as well.
        weight: F.
        draft, target: p and q, `(V,)`.
    """

    law: ScoreLaw
    weight: float
    draft: Floats
    target: Floats

    def child(self, token: int) -> ScoreLaw:
        """Return κ_v, for any next token."""
        return self.law

    @functools.cached_property
    def selected(self) -> Floats:
        """p·a(v) `(V,)`."""
        return np.asarray(self.draft * self.law.level)


@dataclasses.dataclass(eq=False)
class Atoms:
    """A few levels that share an interval of scores.

    A token between two levels draws which of them it follows.

    Attributes:
        scores: κ_v.
        bounds: places in the order of tokens; those from bounds[g] to bounds[g + 1] lie between
            levels g and g + 1.
        levels: ascending, one more than there are groups of tokens.
        mass: `(n + 1,)` where the atoms lie on the line of scores, as mass below.
        moment: `(n + 1,)` ∫ of levels below, from 0.
        held: `(n + 1,)` ∫ g of the scores below.
        laws: the laws of atoms found already.
    """

    scores: ScoreLaw
    bounds: list[int]
    levels: list[float]
    mass: list[float]
    moment: list[float]
    held: list[float]
    laws: dict[int, Floats] = dataclasses.field(default_factory=dict)

    def place(self, place: int, refinement: Refinement) -> tuple[int, float]:
        """Return the lower atom that a token may follow, and the probability of the next atom."""
        group = bisect.bisect_right(self.bounds, place) - 1
        if group < 0:
            return 0, 0.0
        if group >= len(self.bounds) - 1:
            return len(self.levels) - 1, 0.0
        low, high = self.levels[group], self.levels[group + 1]
        share = (refinement.ratio(place) - low) / (high - low) if high > low else 0.0
        return group, min(max(share, 0.0), 1.0)

    def law(self, atom: int) -> Floats:
        """Return the law of one atom's score, a mixture over ever narrower parts."""
        if atom not in self.laws:
            self.laws[atom] = self._law(atom)
        return self.laws[atom]

    def _law(self, atom: int) -> Floats:
        left, right = 0, len(self.levels)
        weight, factor = 1.0, 1.0
        mass, moment, held = self.mass, self.moment, self.held
        # Parts, each within the one before, and the share of the law that is spread evenly there.
        ends: list[tuple[float, float, float]] = []
        while True:
            low, high, share, at = mass[left], mass[right], 0.0, 0
            if right - left > 1 and high > low:
                slope = factor * (moment[right] - moment[left]) / (high - low)
                line = (held[right] - held[left]) / (high - low)
                for i in range(left + 1, right):
                    run = mass[i] - low
                    lack = slope * run - factor * (moment[i] - moment[left])
                    room = line * run - (held[i] - held[left])
                    if lack > _ROUNDING and room > _ROUNDING and lack > share * room:
                        share, at = lack / room, i
                share = min(share, 1.0)
            ends.append((low, high, weight * (1.0 - share)))
            if share <= 0.0:
                return _spread_over(self.scores, ends)
            weight *= share
            factor /= share
            left, right = (left, at) if atom < at else (at, right)


def _spread_over(scores: ScoreLaw, parts: list[tuple[float, float, float]]) -> Floats:
    """Return the law that spreads each share evenly over a part of the scores."""
    edges = scores.below
    found = np.zeros_like(scores.mass)
    for low, high, share in parts:
        if high - low > _NARROW:
            found += share / (high - low) * np.diff(np.clip(edges, low, high))
        else:  # too unlikely to have a width: all in one cell
            cell = int(np.searchsorted(edges, 0.5 * (low + high), side="right"))
            found[min(max(cell, 1), len(found)) - 1] += share
    return np.asarray(found / found.sum())


def _vertex(
    found: Refinement, start: int, offset: float, begin: int, end: int, base: float, top: float
) -> tuple[float, float]:
    """Return mass and moment below the first tokens of a group that follow the level above."""
    size = float(found.below[end] - found.below[begin])
    worth = float(found.wanted[end] - found.wanted[begin])
    lower = (top * size - worth) / (top - base) if top > base else size
    lower = min(max(lower, 0.0), size)
    moment = offset + float(found.wanted[begin] - found.wanted[start]) + base * lower
    return float(found.below[begin]) + lower, moment


def _atoms(found: Refinement, start: int, first: int, last: int, low: float, high: float) -> Atoms:
    """Choose the atoms of one part: the ends, and as many between as the convex order requires.

    Tokens before place `first` share the level `low`, those from `last` on share `high`; in between
    levels are ratios. A group may be split to its ends if the vertex that this puts below the curve
    of levels stays above that of the scores.
    """
    below, wanted = found.below, found.wanted
    stop = found.cut if start < found.cut else len(found.order)
    offset = float(low * below[first] if first > start else wanted[first] - wanted[start]) - float(
        wanted[first] - wanted[start]
    )
    ground = float(found.held[start])
    bounds, levels = [first], [low if first > start else found.ratio(first)]
    mass, moment = [float(below[start])], [0.0]
    if first < last:
        begin_mass, size = float(below[first]), float(below[last] - below[first]) / _GROUPS
        marks = np.searchsorted(below, [begin_mass + i * size for i in range(1, _GROUPS)]).tolist()
        pending = [mark for mark in sorted({*marks, last}, reverse=True) if first < mark <= last]
        begin = first
        while pending:
            end = pending[-1]
            base, capped = levels[-1], end == last and last < stop
            tops = [high, found.ratio(end - 1)] if capped else [found.ratio(end - 1)]
            for top in tops:
                at, height = _vertex(found, start, offset, begin, end, base, top)
                if height >= found.law.held(at) - ground - _ROUNDING:
                    break
                if end - begin > 1:
                    pending.append((begin + end) // 2)
                    break
            if pending[-1] != end:
                continue
            pending.pop()
            mass.append(at)
            moment.append(height)
            bounds.append(end)
            levels.append(top)
            begin = end
            if capped and top != high:  # the last token below the cap has a level of its own
                mass.append(float(below[end]))
                moment.append(offset + float(wanted[end] - wanted[start]))
                bounds.append(end)
                levels.append(high)
    mass.append(float(below[stop]))
    moment.append(float(found.held[stop]) - ground)
    held = [found.law.held(place) - ground for place in mass]
    return Atoms(found.law, bounds, levels, mass, moment, held)


def refine(law: ScoreLaw, weight: float, draft: Floats, target: Floats) -> Refinement:
    """Choose the levels of the next tokens: the flat clip that maximises Σ min(F q, p a).

    Args:
        law: κ_v.
        weight: F = f(v)/P(v), at most a(v).
        draft, target: p and q after v, `(V,)`.
    """
    order = drafted_ascending(draft, target)
    p = draft[order]
    below = np.cumulative_sum(p, include_initial=True)
    np.minimum(below, 1.0, out=below)
    below[-1] = 1.0
    q = target[order]
    q *= weight
    wanted = np.cumulative_sum(q, include_initial=True)
    held = np.interp(below, law.below, law.moment)
    held[-1] = law.level
    gains = wanted - held
    cut = int(np.argmin(gains))
    n = len(order)
    # The floor: lift the tokens of the lowest ratios to c until T holds all of the scores below.
    lifted, low = 0, 0.0
    if cut > 0:
        spare = float(held[cut] - wanted[cut])

        def lift_moment(count: int) -> float:
            """Return the moment that lifts the first `count` tokens to the ratio of the last."""
            return float(q[count - 1] / p[count - 1] * below[count] - wanted[count])

        lifted = 1 + bisect.bisect_right(range(2, cut + 1), spare, key=lift_moment)
        low = (float(wanted[lifted]) + spare) / float(below[lifted])
        # It is below the next ratio; what rounding adds to a quotient of small masses must not lift
        # that, too.
        if lifted < n:
            low = min(low, float(q[lifted] / p[lifted]))
    # The cap: lower the tokens of the highest ratios to d until the others hold no more than the
    # scores above.
    capped, high = n, float("inf")
    if cut < n:
        spare = max(0.0, float((wanted[n] - wanted[cut]) - (held[n] - held[cut])))

        def kept(first: int) -> float:
            """Return minus the moment of lowering the tokens from `first` on."""
            return float(
                q[first] / p[first] * (below[n] - below[first]) - (wanted[n] - wanted[first])
            )

        capped = cut + bisect.bisect_left(range(cut, n - 1), -spare, key=kept)
        rest = float(below[n] - below[capped])
        high = (
            (float(wanted[n] - wanted[capped]) - spare) / rest
            if rest > 0.0
            else float(q[capped] / p[capped])
        )
        if capped > 0:
            high = max(high, float(q[capped - 1] / p[capped - 1]))
    return Refinement(
        law, weight, draft, target, order, below, wanted, held, cut, lifted, capped, low, high
    )


def refine_first(k: int, cells: int, draft: Floats, target: Floats) -> Refinement:
    """Split the uniform law in cells without loss against the one-step optimum."""
    edges = _grid(k, cells)
    while True:
        found = refine(ScoreLaw.uniform(k, edges), 1.0, draft, target)
        cut = float(found.below[found.cut])
        place = int(np.searchsorted(edges, cut))
        beside = edges[max(place - 1, 0) : place + 1]
        if np.min(np.abs(beside - cut)) <= 1e-15:
            return found
        # An edge where the cut falls.
        edges = np.insert(edges, place, cut)


def win_probabilities(laws: list[ScoreLaw]) -> Floats:
    """Return the probability that each of K sequences has the largest score, `(K,)`.

    With laws on the same cells it is Σ_c κ_i(c) ∫₀¹ Π_{j≠i} (κ_j(below c) + v κ_j(c)) dv: the
    integral of a polynomial of degree K − 1, which Gauss-Legendre with K/2 nodes gives exactly.
    """
    nodes, weights = unit_quadrature((len(laws) + 1) // 2)
    mass = np.stack([law.mass for law in laws])
    below = np.stack([law.below[:-1] for law in laws])
    lower = below[:, :, None] + mass[:, :, None] * nodes
    before = np.ones_like(lower)
    after = np.ones_like(lower)
    for i in range(1, len(laws)):
        before[i] = before[i - 1] * lower[i - 1]
        after[-1 - i] = after[-i] * lower[-i]
    found = ((before * after) @ weights * mass).sum(axis=1)
    return np.asarray(found / found.sum())
