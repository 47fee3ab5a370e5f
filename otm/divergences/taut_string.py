"""The Kullback–Leibler frontier as a taut string: one sort, one hull, one scalar search.

Which output law π with KL(q‖π) ≤ D has the largest optimal acceptance? In the order of ascending
q/p let F_j = π(T_j) be its distribution function over the prefixes T_j and b_j = b(T_j). An
acceptance of 1 − e needs F_j ≥ b_j − e on every prefix. Given e,

    minimise KL(q‖π) = Σ_j q_j log(q_j/(F_j − F_{j−1}))   subject to   F_j ≥ b_j − e, F from 0 to 1.

This is a length ∫ −log(dF/dQ) dQ, convex in the slope, under an obstacle from below: whatever the
convex function, the shortest path is the *taut string*, here the least concave majorant of the
points (0, 0), (Q_j, b_j − e), (1, 1). Only its ends depend on e: it follows the concave hull of the
points (Q_j, b_j), shifted by e, between two tangents from (0, 0) and (1, 1). The tangents are
flats, π ∝ q; on the hull π(T_j) follows the increments of b. Where q = 0 < p the path may rise
vertically: those tokens carry mass (b(Z) − e)₊ at the price of taking it from others.

Prefixes suffice because π/p is non-decreasing in the order: on contacts it is Δb/p, on flats a
multiple of q/p, and it can only jump up between (a flat lies above the obstacle). Δb_j/p_j itself
is non-decreasing when b has rising slopes: b = P^k does, being convex in P, and so do drafts
without replacement. So the prefix cuts of π *are* the decisive cuts and the result is exact
(docs/theory.md, "The prefix property" and "Lossy frontiers").

For one draft Δb = p, the hull is the whole path, and π = clip(p, q/β, q/α): mentored decoding,
including the targets with zeros.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import quiet
from otm.divergences.distances import divergence_term

_HALVINGS = 100  # ten geometric ones from 1e-300, then one per bit
_LEAST = 1e-300
_SMALLEST = 5e-324
_FAR = 1 << 20  # beyond every exponent of a quotient
_ROOM = 2.0**64  # b/(2⁶⁴ q) is finite for every float q > 0


@dataclasses.dataclass(frozen=True, eq=False)
class Hull:
    """The concave hull of (Q, b) as blocks of descending slope Δb/ΔQ, with running sums.

    Attributes:
        q, b: increments of the blocks `(m,)`; the slope b/q is at least 1 on the first c blocks.
        vertical: b of the tokens with q = 0, the hull's rise at Q = 0.
        near: sums from Q = 0 over the first a blocks, a = 0..c: ΣQ, vertical + Σb, and the
            supporting line's intercept.
        far: the same from Q = 1 inwards over the last a blocks.
        near_inner, far_inner: Σ of the divergence terms q log(q/b) − q + b of the blocks between
            the a-th and the c-th.
    """

    q: NDArray[np.float64]
    b: NDArray[np.float64]
    vertical: float
    near: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
    far: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
    near_inner: NDArray[np.float64]
    far_inner: NDArray[np.float64]

    @classmethod
    def of(cls, q: NDArray[np.float64], b: NDArray[np.float64], vertical: float) -> Hull:
        """Sum up blocks with q > 0 in descending order of b/q; Σq = 1 = vertical + Σb."""
        crossing = int(np.searchsorted(-(b >= q).astype(np.int8), 0))
        near = _tangent_data(q[:crossing], b[:crossing], vertical, 1.0)
        far = _tangent_data(q[crossing:][::-1], b[crossing:][::-1], 0.0, -1.0)
        terms = divergence_term(q, b)
        return cls(
            q=q,
            b=b,
            vertical=vertical,
            near=near,
            far=far,
            near_inner=np.concatenate([[0.0], np.cumsum(terms[:crossing][::-1])])[::-1],
            far_inner=np.concatenate([[0.0], np.cumsum(terms[crossing:])])[::-1],
        )

    @property
    def most_rejected(self) -> float:
        """1 − α*, where the string is straight: b − Q at the crossing, which is the minimum cut."""
        # From both sides: target mass of 1e-16 that is never drafted is lost beside 1.
        near, far = self.near[1][-1] - self.near[0][-1], self.far[0][-1] - self.far[1][-1]
        return max(0.0, float(near), float(far))

    def flats(self, rejected: float) -> tuple[int, float, float, int, float, float]:
        """Return, for both flats, the number of blocks below and the masses below under q and π."""
        first, last = (int(np.searchsorted(end[2], rejected)) for end in (self.near, self.far))
        q_first, mass_first = float(self.near[0][first]), float(self.near[1][first]) - rejected
        q_last, mass_last = float(self.far[0][last]), float(self.far[1][last]) + rejected
        # The first slope is at least 1, the last at most 1: this keeps a target mass of 1e-300 from
        # rounding to none at all.
        mass_first = max(mass_first, q_first)
        mass_last = min(mass_last, q_last) if last else mass_last
        return first, q_first, mass_first, last, q_last, mass_last

    def divergence(self, rejected: float) -> float:
        """Return KL(q‖π) of the string, the sum of the non-negative terms."""
        first, q_first, mass_first, last, q_last, mass_last = self.flats(rejected)
        ends = divergence_term(np.asarray([q_first, q_last]), np.asarray([mass_first, mass_last]))
        return float(ends.sum() + self.near_inner[first] + self.far_inner[last])

    def solve(self, kl: float) -> float:
        """Return the smallest rejection probability e for which the string has KL(q‖π) ≤ kl.

        KL falls from its value on the full hull (e = 0) to 0 at 1 − α*, with slope −(1/s_last −
        1/s_first) of the flats' slopes s. The search halves the interval, geometrically where its
        ends differ by orders of magnitude, down to neighbouring floats; a token that cannot be
        drafted may leave e at the smallest value tried, 1e-300.
        """
        low, high = _LEAST, self.most_rejected
        if high <= low or self.divergence(0.0) <= kl:
            return 0.0
        if self.divergence(low) <= kl:
            return low
        for _ in range(_HALVINGS):
            middle = math.sqrt(low) * math.sqrt(high) if high > 4 * low else 0.5 * (low + high)
            if not low < middle < high:
                break
            low, high = (middle, high) if self.divergence(middle) > kl else (low, middle)
        return high


def _tangent_data(
    q: NDArray[np.float64], b: NDArray[np.float64], start: float, sign: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return running sums of Q and b from one end, and the crossing of each block's line with that
    end.

    From Q = 0 the line through the block's left vertex (Q_a, b_a) with the block's slope s meets Q
    = 0 at b_a − s Q_a; from Q = 1 the mirror image meets Q = 1 at s Q' − b' above 1. A block lies
    under the flat iff that height is below e. Heights increase along the blocks; rounding is
    levelled.
    """
    sum_q = np.concatenate([[0.0], np.cumsum(q)])
    sum_b = np.concatenate([[start], start + np.cumsum(b)])
    with quiet():
        slope, before = b / q, sum_q[:-1]
        # A slope beyond the largest float has only steeper ones, of next to no width, before it.
        rise = np.where(np.isfinite(slope), before * slope, before / q * b)
        height = sign * (sum_b[:-1] - np.where(before > 0, rise, 0.0))
    return sum_q, sum_b, np.maximum.accumulate(np.maximum(height, 0.0))


def by_ratio(draft: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the tokens `(n,)` in ascending order of q/p, exactly, tokens with p = 0 last.

    Significands and exponents are divided apart: a token of q = 5e-324 can be nearly all that is
    drafted, and any scale at which q/p is finite for every p lets it underflow to the ratio of
    tokens with q = 0.
    """
    (p, p_exponent), (q, q_exponent) = np.frexp(draft), np.frexp(target)
    with quiet():
        ratio, exponent = np.frexp(np.where(p > 0, q / p, 1.0))
    order = np.where(target > 0, exponent + q_exponent - p_exponent, -_FAR)
    return np.lexsort((ratio, np.where(draft > 0, order, _FAR)))


def upper_hull(
    q: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Pool steps (q, b), q > 0, into the blocks of the least concave majorant.

    Returns the blocks' sums of q and of b, and each step's block number.

    Pool adjacent violators: a block is merged into its predecessor while its slope is larger. O(n).
    """
    ends: list[tuple[float, float, int, float]] = []
    for width, rise in zip(q.tolist(), b.tolist(), strict=True):
        # Finite for every width; products of tiny masses would underflow.
        count, slope = 1, rise / (_ROOM * width)
        while ends and slope >= ends[-1][3]:
            before_width, before_rise, before_count, _ = ends.pop()
            width, rise, count = width + before_width, rise + before_rise, count + before_count
            slope = rise / (_ROOM * width)
        ends.append((width, rise, count, slope))
    table = np.asarray(ends, dtype=np.float64).reshape(-1, 4)
    return table[:, 0], table[:, 1], np.repeat(np.arange(len(ends)), table[:, 2].astype(np.int64))


def string_law(
    hull: Hull,
    block_of: NDArray[np.int64],
    q: NDArray[np.float64],
    contact: NDArray[np.float64],
    rejected: float,
) -> tuple[NDArray[np.float64], float]:
    """Return π on the steps with q > 0 `(n,)`, and the mass of π on the tokens with q = 0.

    Args:
        hull: the hull of all steps.
        block_of: each step's block `(n,)`.
        q: masses of the steps `(n,)`.
        contact: π where the step's block is in contact `(n,)`: its own b for a block of one step,
            else a share ∝ q of the block's.
        rejected: e, the string's depth.
    """
    first, q_first, mass_first, last, q_last, mass_last = hull.flats(rejected)
    law = contact.copy()
    with quiet():  # beyond the flat q may be too large beside it
        if first:
            law = np.where(block_of < first, q / q_first * mass_first, law)
        if last:
            law = np.where(block_of >= len(hull.q) - last, q / q_last * mass_last, law)
    # Every step has target mass: where its share underflows, the smallest float keeps the
    # divergence finite.
    return np.maximum(law, _SMALLEST), 0.0 if first else mass_first
