"""The minimum cut for different drafters, where no single order of the tokens is enough.

For independent drafts from p₁..p_k the containment function is b(T) = Π_d P_d(T), and T minimises Q
− b only if no single token wants to move. Since Π_d (P_d − x_d) ≥ Π_d P_d − Σ_d x_d Π_{e≠d} P_e and
Π_d (P_d + x_d) ≥ Π_d P_d + Σ_d x_d Π_{e≠d} P_e for masses x_d ≥ 0, a minimising T* satisfies

    q(y) ≤ Σ_d μ_d p_d(y) on T*,      q(y) ≥ Σ_d μ_d p_d(y) off T*,      μ_d = Π_{e≠d} P_e(T*):

a cut of the tokens, as points (p₁..p_k)/q, by a hyperplane. (With equal drafters that is the prefix
property.)

*Two drafters.* The lines μ₁ p₁(y) + μ₂ p₂(y) = q(y), one per token, divide the (μ₁, μ₂) plane into
cells, and T* belongs to a cell. Every cell has a piece of some line on its boundary. So walk along
each line in turn: the other tokens enter or leave T where their lines cross, the pivot itself may
be in or out, and all candidates along a line come from one sort and three running sums. Exact, O(V²
log V).

*More drafters.* Q − b is submodular (b is supermodular), so Wolfe's algorithm finds the point of
least norm in its base polytope; every point x of that polytope proves Q − b ≥ −b(∅) + Σ min(x, 0),
and every prefix of an order by x is a candidate for T. The two sides must meet, or an error is
raised. Up to ten tokens, every set is tried instead.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import (
    Array,
    Floats,
    namespace,
    quiet,
    to_numpy,
    total,
    tracks_gradient,
    unit_rows,
    untracked,
    with_gradient,
)
from otm.drafts.curve_cut import curve_values, curve_worst_set
from otm.errors import SolverFailure, TooLarge
from otm.overlap.curve import Containment

MAX_TOKENS_TWO_DRAFTERS = 4096
MAX_TOKENS_MORE_DRAFTERS = 128
CERTIFIED_GAP = 1e-11
_ELEMENTS_AT_ONCE = 1 << 18
_MAX_VERTICES = 2000
_SCREENINGS = 100  # each drops something or is the last; stopping early only leaves more to search
_NORM_TOLERANCE = 1e-28
_LEAST_WEIGHT = 1e-13
# Two lines that differ by less than the rounding of their coefficients are one line.
_SAME_LINE = 1e-12
# Up to here every token set is tried, which is certain where a search stalls at 1e-9.
_FEW_TOKENS = 10


def product_values(drafts: Array, target: Array) -> Array:
    """Return the optimal acceptance for drafts `(..., k, V)` and target `(..., V)`, `(...)`.

    α* = 1 + min_T [Q(T) − Π_d P_d(T)], in float64.

    Equal drafters give exactly the value of i.i.d. drafts, at any V.

    Raises:
        TooLarge: for different drafters beyond `MAX_TOKENS_TWO_DRAFTERS` tokens that both models
            give mass, with more than two drafters `MAX_TOKENS_MORE_DRAFTERS`.
        SolverFailure: if the two sides of the certificate (more than two drafters) do not meet
            within `CERTIFIED_GAP`.

    Cost: O(V² log V) per row for two drafters; some V least-squares problems of size V beyond.
    """
    xp = namespace(drafts, target)
    p, q = (unit_rows(to_numpy(array)) for array in (drafts, target))
    k, num_tokens = p.shape[-2:]
    if tracks_gradient(drafts, target):
        rows = zip(p.reshape(-1, k, num_tokens), q.reshape(-1, num_tokens), strict=True)
        cuts = np.asarray([product_worst_set(one, other) for one, other in rows]).reshape(
            target.shape
        )
        return with_gradient(
            product_values(untracked(drafts), untracked(target)), _value_at(drafts, target, cuts)
        )
    if (p == p[..., :1, :]).all():
        return curve_values(drafts[..., 0, :], target, [Containment(k=k)])[0]
    p, q = p.reshape(-1, k, num_tokens), q.reshape(-1, num_tokens)
    values = [
        _value(one, other, product_worst_set(one, other)) for one, other in zip(p, q, strict=True)
    ]
    return xp.asarray(np.asarray(values).reshape(target.shape[:-1]), device=target.device)


def _value_at(drafts: Array, target: Array, cuts: NDArray[np.bool_]) -> Array:
    """Return Q(T) − Π_d P_d(T) for fixed sets `(..., V)`.

    At a minimising T its gradient is the optimum's (Danskin).
    """
    xp = namespace(drafts, target)
    members = xp.asarray(cuts, device=target.device)
    inside = total(xp.where(members[..., None, :], drafts, xp.zeros_like(drafts)))
    return total(xp.where(members, target, xp.zeros_like(target))) - xp.prod(inside, axis=-1)


def product_worst_set(drafts: Floats, target: Floats) -> NDArray[np.bool_]:
    """Return a minimising T as a mask `(V,)` for drafts `(k, V)` and target `(V,)`."""
    k = len(drafts)
    if (drafts == drafts[0]).all():
        return curve_worst_set(drafts[0], target, Containment(k=k))
    # Tokens without target mass belong to T for nothing, tokens that nobody drafts cost and give
    # nothing.
    free = target == 0
    open_tokens = np.flatnonzero(_largest_candidate(drafts, target) & ~free)
    limit = MAX_TOKENS_TWO_DRAFTERS if k == 2 else MAX_TOKENS_MORE_DRAFTERS
    if len(open_tokens) > limit:
        raise TooLarge(
            f"The exact optimum for {k} different drafters is limited to {limit:,} tokens with "
            f"mass under both models; here are {len(open_tokens):,}. Restrict both models to a "
            "top-k, or call otm.estimate for a verifier's acceptance."
        )
    search = _sweep if k == 2 else _every_set if len(open_tokens) <= _FEW_TOKENS else _least_norm
    members = free.copy()
    if len(open_tokens):
        members[open_tokens] = search(
            drafts[:, open_tokens], target[open_tokens], drafts[:, free].sum(axis=1)
        )
    # T = ∅ is no worse where the best candidate gains nothing.
    return members if _value(drafts, target, members) < 1.0 else np.zeros_like(members)


def _largest_candidate(drafts: Floats, target: Floats) -> NDArray[np.bool_]:
    """Return a set that contains every minimising T, by dropping tokens that are too dear.

    A token with q > Σ_d μ_d p_d is dropped from Ω in turn. μ_d = Π_{e≠d} P_e grows with the set, so
    that one that is too dear for the larger set is too dear for T* inside it.
    """
    members = np.ones(len(target), dtype=bool)
    for _ in range(_SCREENINGS):
        sums = drafts[:, members].sum(axis=1)
        others = np.array([np.delete(sums, d).prod() for d in range(len(sums))])
        kept = members & (target <= (others @ drafts) * (1 + _SAME_LINE))
        if (kept == members).all():
            break
        members = kept
    return members


def product_containment(drafts: Floats, members: NDArray[np.bool_]) -> float:
    """Return Π_d P_d(T), each factor from the smaller side."""
    factors = []
    for p in drafts:
        outside = math.fsum(p[~members])
        factors.append(1.0 - outside if outside < 0.5 else math.fsum(p[members]))
    return math.prod(factors)


def _value(drafts: Floats, target: Floats, members: NDArray[np.bool_]) -> float:
    return min(
        1.0, max(0.0, 1.0 + math.fsum(target[members]) - product_containment(drafts, members))
    )


def _sweep(drafts: Floats, target: Floats, base: Floats) -> NDArray[np.bool_]:
    """Return the best cell of the arrangement of lines μ₁p₁ + μ₂p₂ = q as a mask `(V,)`.

    `base` holds P₁, P₂ of tokens that are always in T.

    Every token must have target mass and mass under one drafter, so that it has a line that misses
    the origin.
    """
    size = len(target)
    best, members = -float(base.prod()), np.zeros(size, dtype=bool)
    step = max(1, _ELEMENTS_AT_ONCE // max(1, size))
    for start in range(0, size, step):
        walk = _Walk.along(drafts, target, np.arange(start, min(size, start + step)))
        sums = [walk.masses(mass) for mass in (*drafts, target)]
        for included in (False, True):
            first, second, cost = (without + included * pivot for without, pivot in sums)
            loss = cost - (base[0] + first) * (base[1] + second)
            row, position = np.unravel_index(int(np.argmin(loss)), loss.shape)
            if loss[row, position] < best:
                best, members = (
                    float(loss[row, position]),
                    walk.members(int(row), int(position), included=included),
                )
    return members


@dataclasses.dataclass(frozen=True, eq=False)
class _Walk:
    """The walks along the lines of B pivot tokens: the initial members of T, and each crossing.

    All fields are `(B, V)`; tokens on the same line as the pivot move with it and are in neither
    `start` nor `turn`.
    """

    pivot: NDArray[np.bool_]
    start: NDArray[np.bool_]
    turn: Floats
    order: NDArray[np.intp]

    @classmethod
    def along(cls, drafts: Floats, target: Floats, pivots: NDArray[np.intp]) -> _Walk:
        """Walk the lines μ = n/|n|² q(i) + s·(n₂, −n₁), n = (p₁(i), p₂(i)), of pivots i.

        Token j is in T where e + s·h > 0.
        """
        with quiet():
            # Lines are scaled to q = 1 or to their largest coefficient: only where they cross
            # matters.
            scale = np.maximum(target, drafts.max(axis=0))
            (a, c), q = drafts / scale, target / scale
            norm = a[pivots] ** 2 + c[pivots] ** 2
            nearest = np.stack([a[pivots], c[pivots]]) * (q[pivots] / norm)
            ahead = np.outer(nearest[0], a) + np.outer(nearest[1], c)
            left, right = np.outer(c[pivots], a), np.outer(a[pivots], c)
            excess, turn = ahead - q, left - right
            parallel = np.abs(turn) <= _SAME_LINE * (left + right)
            pivot = parallel & (np.abs(excess) <= _SAME_LINE * (ahead + q))
            turn = np.where(parallel, 0.0, np.sign(turn))
            crossing = np.where(parallel, np.inf, -excess / (left - right))
        start = ((turn < 0) | (parallel & (excess > 0))) & ~pivot
        return cls(pivot=pivot, start=start, turn=turn, order=np.argsort(crossing, axis=1))

    def masses(self, mass: Floats) -> tuple[Floats, Floats]:
        """Return the mass of T without the pivot before and after each crossing, and the pivot's.

        Shapes `(B, V + 1)` and `(B, 1)`.
        """
        changes = np.take_along_axis(self.turn * mass, self.order, axis=1)
        first = (self.start @ mass)[:, None]
        return np.concatenate([first, first + np.cumsum(changes, axis=1)], axis=1), (
            self.pivot @ mass
        )[:, None]

    def members(self, row: int, position: int, *, included: bool) -> NDArray[np.bool_]:
        """Return T on one pivot's line after `position` crossings, with or without the pivot."""
        inside = self.start[row].copy()
        crossed = self.order[row, :position]
        inside[crossed] = np.where(
            self.turn[row, crossed] == 0, inside[crossed], self.turn[row, crossed] > 0
        )
        return np.asarray(inside | self.pivot[row] if included else inside & ~self.pivot[row])


def _every_set(drafts: Floats, target: Floats, base: Floats) -> NDArray[np.bool_]:
    """Return the best of all 2^V sets."""
    sets = (np.arange(1 << len(target))[:, None] >> np.arange(len(target)) & 1).astype(bool)
    loss = sets @ target - (base + sets @ drafts.T).prod(axis=1)
    return np.asarray(sets[int(np.argmin(loss))])


def _least_norm(drafts: Floats, target: Floats, base: Floats) -> NDArray[np.bool_]:
    """Minimise Q − Π_d (base_d + P_d) by Wolfe's algorithm; return the best set, certified."""
    search = _BasePolytope(drafts, target, base)
    points, weights = search.vertex(np.zeros(len(target)))[None], np.ones(1)
    for _ in range(_MAX_VERTICES):
        point = weights @ points
        vertex = search.vertex(point)
        if search.best - np.minimum(point, 0.0).sum() <= CERTIFIED_GAP:
            return search.members
        if point @ (point - vertex) <= _NORM_TOLERANCE * max(
            1.0, float((points**2).sum(axis=1).max())
        ):
            break
        points, weights = _nearest_point(np.vstack([points, vertex]), np.append(weights, 0.0))
    raise SolverFailure(
        f"The cut and its certificate must agree within {CERTIFIED_GAP:g}; after Wolfe's algorithm "
        f"they differ by {search.best - np.minimum(weights @ points, 0.0).sum():.3g}. Call "
        "otm.optimum, the linear program."
    )


class _BasePolytope:
    """The greedy algorithm on f(T) = Q(T) − Π_d (base_d + P_d(T)) + Π_d base_d.

    The best prefix so far is kept in `members`, and its value in `best`.
    """

    def __init__(self, drafts: Floats, target: Floats, base: Floats) -> None:
        self._drafts, self._target, self._base = drafts, target, base
        self.best = 0.0
        self.members = np.zeros(len(target), dtype=bool)

    def vertex(self, direction: Floats) -> Floats:
        """Return the vertex x that minimises direction·x, by marginal values of f in that order."""
        order = np.argsort(direction, kind="stable")
        inside = self._base[:, None] + np.cumsum(self._drafts[:, order], axis=1)
        values = np.cumsum(self._target[order]) - inside.prod(axis=0) + self._base.prod()
        lowest = int(np.argmin(values))
        if values[lowest] < self.best:
            self.best = float(values[lowest])
            self.members = np.zeros(len(order), dtype=bool)
            self.members[order[: lowest + 1]] = True
        point = np.empty(len(order))
        point[order] = np.diff(values, prepend=0.0)
        return point


def _nearest_point(points: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return vertices and weights of the hull's point of least norm, by Wolfe's minor cycle."""
    while True:
        shares = np.linalg.lstsq((points[1:] - points[0]).T, -points[0], rcond=None)[0]
        affine = np.concatenate([[1.0 - shares.sum()], shares])
        if (affine > _LEAST_WEIGHT).all():
            return points, affine
        # Walk from the old weights towards the affine ones until the first weight vanishes, and
        # drop that vertex.
        falling = affine <= _LEAST_WEIGHT
        reach = float(
            np.min(weights[falling] / np.maximum(weights[falling] - affine[falling], _LEAST_WEIGHT))
        )
        weights = np.maximum(weights + min(1.0, reach) * (affine - weights), 0.0)
        kept = weights > _LEAST_WEIGHT
        points, weights = points[kept], weights[kept] / weights[kept].sum()
        if len(points) == 1:
            return points, weights
