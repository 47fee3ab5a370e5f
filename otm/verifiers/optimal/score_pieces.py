"""Score pieces: a martingale coupling of levels and scores, by pool-adjacent-violators on moments.

Given atoms with masses m₁..m_n summing to 1 and ascending levels a₁ ≤ ... ≤ a_n, give each atom a
set of Lebesgue measure m_j in [0, 1], disjoint from the others, whose mean of g = b′ is a_j, where
b(u) is how likely all drafts' scores are below u: u^k for k of them, u/(c − (c − 1) u) in a
threshold race. Such sets exist if and only if Σ m a = 1 and every prefix has Σ m a ≥ b(Σ m)
(`otm.verifiers.optimal.scores` proves it through the construction below).

**The construction.** Keep a stack of disjoint blocks [l, R], each with its mass M = R − l and
moment A = ∫ g = b(R) − b(l). A new atom starts as its own block, at the place where a block of mass
m has the moment m·a. If that place overlaps the block below, the two are pooled: masses and moments
add, and the pooled block is placed where its moment says; and so on down the stack. The pooled
block covers the absorbed ones, because pooling two blocks that overlap spreads them out, so the
atom is left with the pooled block minus what it absorbed: measure m, moment m·a. This is
pool-adjacent-violators with "the level of a block" replaced by "the place of a block", a
generalised isotonic regression, and in the language of optimal transport the left-curtain coupling
[Beiglböck & Juillet 2016].

**Rounding.** A place is stored as the gap h = 1 − R above the block, never as l: with k in the
millions everything happens within 1/k of 1. The moment of a block is R^k − l^k = −e^{k log1p(−h)}
expm1(k log1p(−M/(1−h))), in a threshold race c M/((1 + (c − 1) h)(1 + (c − 1)(h + M))), which is
solved for h by a root. As a function of z = log R at fixed M its logarithm is concave with slope
between k − 1 and k, so Newton's method in (z, log moment) converges from anywhere, monotonically
after one step, in three or four steps in practice; k = 2 has the closed form l = (A/M − M)/2. The
pieces' *lengths* are the primary result; their places are running sums of lengths from the top, so
that they tile [0, 1] whatever was rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from otm.overlap.curve import Containment

_ENOUGH = 2e-8
"""A Newton step dz with k·|dz| below this leaves k·error ≤ (k·dz)² ≈ 4e-16 behind: the curvature in
z is at most k².
"""

_MOST_STEPS = 100

_ROUNDING_OF_WIDTHS = 2.0**-50


def moment(gap: float, width: float, size: Containment) -> float:
    """Return b(R) − b(l) for R = 1 − gap and l = R − width, to a few units in the last place of the
    result (`Containment.gained` of floats).

    >>> moment(0.0, 0.5, Containment(k=2))
    0.75
    """
    (c, k), top = size, 1.0 - gap
    if top <= 0.0:
        return 0.0
    power = math.exp(k * (math.log1p(-gap) - math.log1p((c - 1.0) * gap)))
    share, late = width / top, (c - 1.0) * width / (1.0 + (c - 1.0) * gap)
    if share >= 1.0:
        return power
    return -power * math.expm1(k * (math.log1p(-share) - math.log1p(late)))


def upper_gap(width: float, value: float, size: Containment) -> float:
    """Return the gap h above the block of this width whose moment is `value`, within [0, 1 − width]
    up to rounding.

    >>> round(1 - upper_gap(0.5, 0.5, Containment(k=2)), 12)  # the block [1/4, 3/4]
    0.75
    """
    c, k = size
    if width < 1.0 and value >= moment(0.0, width, size):
        return 0.0
    inside = math.log(width) - math.log1p((c - 1.0) * (1.0 - width)) if width < 1.0 else 0.0
    if value <= math.exp(k * inside):
        # A block that reaches the bottom. Its width is rounded to a unit of 1, far more than k =
        # 10⁶ forgives above it, so the moment says where it starts, as long as the two differ by
        # rounding only.
        root = math.log(value) / k if value > 0.0 else -math.inf
        start = -math.expm1(root) / (1.0 + (c - 1.0) * math.exp(root))
        return max(0.0, min(start, 1.0 - width + _ROUNDING_OF_WIDTHS))
    if width >= 1.0:
        return 0.0
    if k == 1:
        both, late = 2.0 + (c - 1.0) * width, c * width / value - (1.0 + (c - 1.0) * width)
        late = 2.0 * late / (both + math.sqrt(both * both + 4.0 * late))
        return min(max(late / (c - 1.0), 0.0), 1.0 - width)
    if k == 2:
        return min(max(1.0 - 0.5 * (value / width + width), 0.0), 1.0 - width)
    # The mean of g over the block is g(ξ) near its middle.
    goal = math.log(value)
    middle = math.exp((goal - math.log(width) - math.log(k)) / (k - 1))
    z = math.log(min(1.0, max(width, middle + 0.5 * width)))
    for _ in range(_MOST_STEPS):
        share = width * math.exp(-z)
        if share >= 1.0:
            step = (goal - k * z) / k
        else:
            below = math.log1p(-share)
            loss = -math.expm1(k * below)
            step = (goal - k * z - math.log(loss)) * loss / (-k * math.expm1((k - 1) * below))
        z = min(z + step, 0.0)
        if k * abs(step) <= _ENOUGH:
            break
    return -math.expm1(z)


_Parts = list["tuple[int, float] | _Parts"]
"""The tiles of a block, from the bottom up: pieces (atom, length) and the parts of absorbed
blocks.
"""

_Block = tuple[float, float, float, _Parts]
"""A block: gap above, width, moment and parts."""


def score_pieces(
    mass: Sequence[float], level: Sequence[float], size: Containment
) -> tuple[list[int], list[float]]:
    """Return the pieces of atoms with positive masses and ascending levels: (owner, length), in
    order from the top of [0, 1].

    At most 2n − 1 pieces. Cost: O(n) stack operations and n Newton solves, about 5 µs per atom in
    plain Python.

    >>> # [1/8, 5/8] is atom 0's block; atom 1 gets the rest
    >>> score_pieces([0.5, 0.5], [0.75, 1.25], Containment(k=2))
    ([1, 0, 1], [0.375, 0.5, 0.125])
    """
    blocks: list[_Block] = []
    for atom, (own, a) in enumerate(zip(mass, level, strict=True)):
        pooled, goal, absorbed = own, own * a, []
        while blocks:
            above, width, value, _ = blocks[-1]
            # The new block overlaps the one below when, put right on top of it, its moment would be
            # too large.
            if above >= pooled and moment(above - pooled, pooled, size) <= goal:
                break
            absorbed.append(blocks.pop())
            pooled, goal = pooled + width, goal + value
        gap = upper_gap(pooled, goal, size)
        blocks.append((gap, pooled, goal, _parts(atom, own, gap, absorbed)))
    return _pieces(blocks)


def _parts(atom: int, mass: float, gap: float, absorbed: list[_Block]) -> _Parts:
    """Tile a block: pieces of the atom above, between and below the absorbed blocks.

    The last piece takes the rest of the atom's mass, so that the lengths sum to the mass whatever
    the rounding of places.
    """
    parts: _Parts = []
    for above, width, _, inside in absorbed:
        length = min(mass, max(0.0, above - gap))
        parts += (atom, length), inside
        mass, gap = mass - length, above + width
    parts.append((atom, mass))
    return parts[::-1]


def _pieces(blocks: list[_Block]) -> tuple[list[int], list[float]]:
    """Unpack the blocks' parts from the top down, without pieces of length 0."""
    waiting: _Parts = [parts for *_, parts in blocks]
    owner, length = [], []
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif part[1] > 0.0:
            owner.append(part[0])
            length.append(part[1])
    return owner, length
