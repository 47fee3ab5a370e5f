"""The best step for K independent sequences, by cuts of the tree of paths, without enumeration.

Write f(u) for the probability that path u is accepted, P(u) for the probability that one drafted
sequence begins with u. A lossless verification of K sequences that accepts with these f exists
exactly if f(uy) ≤ q(y | u) f(u) and

    Σ_{w∈W} f(w) ≤ φ(P(W)),   φ(x) = 1 − (1 − x)^K,   for every antichain W,

a set no path of which begins with another, because Pr(the draws meet W) = φ(P(W)) (docs/theory.md,
"Tree cuts"). There are exponentially many
antichains, but φ is concave: below a line c + λx the constraints say that the heaviest antichain
for the weights f − λP weighs at most c, and that weight obeys

    A_λ(u) = max(f(u) − λP(u), Σ_y A_λ(uy)),

a linear program in f and A of the size of the tree. With chords of φ between *knots* for lines it
is a restriction, so what it finds is attained; and it loses nothing as soon as the masses P(W) of
the binding antichains are knots. Its multipliers, prices π(u) ≥ 0 summed to Π along a path, certify
an upper bound whatever they are,

    E[tokens] ≤ 1 + ∫ φ(P(Π > t)) dt + Σ_y q(y) ν(y),   ν(uy) = (1 − π(uy) + Σ_z q(z | uy) ν(uyz))₊:

the integral is E[max_i Π(X_i)] over the K sequences, and the sets {Π > t} are finitely many nested
antichains, the binding ones.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.errors import SolverFailure, TooLarge
from otm.sequence.models import Context, LanguageModel, next_distributions

MAX_PATHS = 50_000
"""Largest number of paths of the tree."""

MAX_TABLE = 1 << 26
"""Largest number of (path of one level, next token) pairs that the models are asked for at once."""

MAX_ENTRIES = 4_000_000
"""Largest number of variables of one linear program."""

_NEGLIGIBLE = 1e-200
"""Paths less likely under either model are left out: the sum of all is far below rounding."""

_SCALE = 2.0**10  # solver tolerances are absolute, masses of paths are small
_FAR = 1e9
_LEAST_WEIGHT = 1e-9
"""Cuts of less weight are left out."""

_ROUNDS = 16
_NEW_KNOTS = (6, 8, 16, 40)
"""Number of new knots per round; later rounds take all binding knots."""

_SHRUNK = 1e-8
"""By f ≤ K(1 − 1e-8)P small antichains, of mass below 2e-8/(K − 1), need no check."""


@dataclasses.dataclass(frozen=True)
class TreeCut:
    """A binding antichain of paths: at most the drafted mass is accepted.

    Attributes:
        paths: the antichain W; no path begins with another.
        hit: Pr(a drafted path is in W), the bound on Σ_{w∈W} f(w).
        weight: its multiplier, tokens per unit of that bound.
    """

    paths: tuple[Context, ...]
    hit: float
    weight: float


@dataclasses.dataclass(frozen=True, eq=False)
class PathTree:
    """Drafted paths that both models can take, with all prefixes.

    Attributes:
        paths: the paths, shorter ones first, the children of one path next to each other.
        parents: `(n,)` each one's parent's number, −1 for the empty path.
        share: `(n,)` q(y | u).
        draft: `(n,)` P(u), how likely a path is drafted.
    """

    paths: list[Context]
    parents: NDArray[np.int64]
    share: Floats
    draft: Floats

    @classmethod
    def of(
        cls, draft: LanguageModel, target: LanguageModel, start: Context, length: int
    ) -> PathTree:
        """List the paths of up to L tokens of one sequence; one call of each model per level.

        Raises:
            TooLarge: beyond `MAX_PATHS`, or `MAX_TABLE`.
        """
        paths: list[Context] = []
        parents, shares, masses = [np.empty(0, dtype=np.int64)], [np.empty(0)], [np.empty(0)]
        level: list[Context] = [()]
        number, before_p, before_q = np.array([-1]), np.ones(1), np.ones(1)
        for depth in range(length):
            if len(level) * draft.num_tokens > MAX_TABLE:
                raise TooLarge(
                    f"The paths of one level times the vocabulary are limited to {MAX_TABLE:,}; "
                    f"after {depth} tokens there are {len(level):,} paths × {draft.num_tokens:,} "
                    "tokens. Take a smaller vocabulary or length, or bound the step from above "
                    "with otm.sequence.level_cut_upper."
                )
            contexts = [(*start, *path) for path in level]
            drafted = next_distributions(draft, contexts, name="draft")
            wanted = next_distributions(target, contexts, name="target")
            p, q = (np.stack([rows[context] for context in contexts]) for rows in (drafted, wanted))
            joint_p, joint_q = before_p[:, None] * p, before_q[:, None] * q
            above, token = np.nonzero((joint_p > _NEGLIGIBLE) & (joint_q > _NEGLIGIBLE))
            if len(paths) + len(token) > MAX_PATHS:
                raise TooLarge(
                    f"The tree of paths is limited to {MAX_PATHS:,}; this one has more within "
                    f"{length} tokens. Take a smaller vocabulary or length, or bound the step from "
                    "above with otm.sequence.level_cut_upper."
                )
            if not len(token):
                break
            before_p, before_q = joint_p[above, token], joint_q[above, token]
            parents.append(number[above])
            shares.append(q[above, token])
            masses.append(before_p)
            level = [(*level[i], y) for i, y in zip(above.tolist(), token.tolist(), strict=True)]
            number = np.arange(len(paths), len(paths) + len(token))
            paths += level
        return cls(paths, np.concatenate(parents), np.concatenate(shares), np.concatenate(masses))

    @functools.cached_property
    def levels(self) -> list[slice]:
        """The numbers of the paths of each length."""
        lengths = [len(path) for path in self.paths]
        ends = np.searchsorted(lengths, np.arange(1, lengths[-1] + 2)).tolist()
        return [slice(start, stop) for start, stop in itertools.pairwise(ends)]

    @functools.cached_property
    def target(self) -> Floats:
        """Q(u), `(n,)`."""
        return self.down(self.share, np.multiply, 1.0)

    @functools.cached_property
    def children(self) -> scipy.sparse.csr_array:
        """`(n + 1, n)` ones where a column's path extends the row's path; the empty path is
        last.
        """
        size = len(self.paths)
        place = np.where(self.parents >= 0, self.parents, size), np.arange(size)
        return scipy.sparse.csr_array((np.ones(size), place), shape=(size + 1, size))

    @functools.cached_property
    def sums(self) -> list[scipy.sparse.csr_array]:
        """For each level the matrix that sums the level's values by the path before."""
        above = [slice(len(self.paths), None), *self.levels]
        return [self.children[rows, level] for rows, level in zip(above, self.levels, strict=False)]

    def before(self, values: Floats, top: float) -> Floats:
        """Return each path's parent's value `(n,)`, `top` for the empty path's."""
        return np.where(self.parents >= 0, values[self.parents], top)

    def down(self, values: Floats, combine: np.ufunc, top: float) -> Floats:
        """Return v(uy) = combine(v(u), values(uy)) for every path, from `top` at the empty one."""
        found = np.empty_like(values)
        for i, level in enumerate(self.levels):
            above = found[self.parents[level]] if i else top
            found[level] = combine(above, values[level])
        return found

    def ending(self, passing: Floats) -> Floats:
        """Return the mass that ends at each path `(n + 1,)`, the empty path last, from passing
        mass.
        """
        return np.asarray(np.append(passing, 1.0) - self.children @ passing)

    def unpriced(self, prices: Floats) -> float:
        """Return Σ_y q(y) ν(y), ν(uy) = (1 − π(uy) + Σ_z q(z | uy) ν(uyz))₊, for prices π."""
        beyond = np.zeros(1)
        for level, add in zip(reversed(self.levels), reversed(self.sums), strict=True):
            worth = np.maximum(0.0, 1.0 - prices[level] + beyond)
            beyond = add @ (self.share[level] * worth)
        return float(beyond[0])

    def heaviest(self, accepted: Floats, slopes: Floats) -> tuple[Floats, Floats]:
        """Return Σ f and Σ P of the antichain heaviest for f − λP, by the slopes λ `(m,)`."""
        sums = [np.zeros((1, len(slopes)))] * 2
        for level, add in zip(reversed(self.levels), reversed(self.sums), strict=True):
            own = accepted[level, None], self.draft[level, None]
            itself = own[0] - own[1] * slopes > sums[0] - sums[1] * slopes
            chosen = [np.where(itself, *either) for either in zip(own, sums, strict=True)]
            sums = [add @ part for part in chosen]
        return sums[0][0], sums[1][0]


def hit_probability(mass: Floats, k: int) -> Floats:
    """Return φ(x) = 1 − (1 − x)^K, the probability that one of K draws meets a set of mass x.

    >>> import numpy as np
    >>> hit_probability(np.array([0.0, 0.5, 1.0]), 2)
    array([0.  , 0.75, 1.  ])
    """
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(k * np.log1p(-np.minimum(mass, 1.0))))


def best_of_paths(
    tree: PathTree, k: int, *, tolerance: float
) -> tuple[Floats, float, float, list[TreeCut]]:
    """Return the best acceptances of K sequences, certified.

    Returns:
        Acceptances `(n,)` that are attained; their sum; an upper bound of every such sum; the cuts
        that certify the bound.

    Raises:
        SolverFailure: if HiGHS stops early.
        TooLarge: if certifying to the tolerance takes a program of more than `MAX_ENTRIES`
            variables.
    """
    around = np.outer(_level_sizes(tree, k), [0.25, 0.5, 1.0, 2.0, 4.0])
    knots = np.unique(np.append(around, [0.0, 1.0]))
    knots = knots[knots <= 1.0]
    lower, upper = -1.0, math.inf
    accepted = prices = np.zeros(len(tree.paths))
    settled = False
    for turn in range(_ROUNDS):
        proposed, priced = _solve(tree, k, knots, small=settled)
        attained = _repaired(tree, k, proposed)
        if float(attained.sum()) > lower:
            lower, accepted = math.fsum(attained), attained
        if (bound := priced_bound(tree, k, priced)) < upper:
            upper, prices = bound, priced
        if upper - lower <= 0.25 * tolerance:
            break
        sizes, weights = _sizes(tree, priced)
        few = _NEW_KNOTS[turn] if turn < len(_NEW_KNOTS) else len(sizes)
        fresh = _spread(sizes, weights, few)
        more = np.unique(np.concatenate([knots, fresh]))
        more = more[np.append(True, np.diff(more) > 1e-12)]
        if settled and len(more) == len(knots):
            break
        settled, knots = len(more) == len(knots), more
    return accepted, lower, upper, _nested_cuts(tree, k, prices)


def priced_bound(tree: PathTree, k: int, prices: Floats) -> float:
    """Return ∫ φ(P(Π > t)) dt + Σ_y q(y) ν(y), an upper bound for any prices `(n,)` ≥ 0."""
    sizes, weights = _sizes(tree, prices, least=0.0)
    return float(weights @ hit_probability(sizes, k)) + tree.unpriced(prices)


def _level_sizes(tree: PathTree, k: int) -> list[float]:
    """Return the mass of the antichain that binds on each level by itself."""
    sizes = []
    for level in tree.levels:
        order = np.argsort(-tree.target[level] / tree.draft[level])
        mass = np.cumsum(tree.draft[level][order])
        values = hit_probability(mass, k) - np.cumsum(tree.target[level][order])
        best = int(np.argmin(values))
        sizes.append(float(mass[best]) if values[best] < 0 else 1e-3)
    return sizes


def _solve(tree: PathTree, k: int, knots: Floats, *, small: bool) -> tuple[Floats, Floats]:
    """Return acceptances and prices `(n,)` for antichains below the chords between the knots.

    Variables R(u) = f(u)/Q(u), then A_λ(u)/Q(u) for each chord and each path that can weigh
    something. The solver's tolerances are absolute: antichains of a mass of 1e-6 are then kept to
    four digits, and what repairs the smallest shrinks f everywhere. With `small` R is divided by
    the most it can be and A by φ at the chord's right end: all are kept to the same digits, and now
    the prices of the small ones are uncertain. One way gives a good f, the other good prices.
    """
    size = len(tree.paths)
    heights = hit_probability(knots, k)
    slopes = np.diff(heights) / np.diff(knots)
    offsets = heights[:-1] - slopes * knots[:-1]
    most = np.minimum(1.0, hit_probability(tree.draft, k) / tree.target)
    unit = most if small else np.ones(size)
    scales = heights[1:] if small else np.ones(len(slopes))
    every = scipy.sparse.eye_array(size, format="csr")
    units = scipy.sparse.diags_array(unit, format="csr")
    # R(uy) ≤ R(u), divided by the unit of R(uy)
    inner = np.flatnonzero(tree.parents >= 0)
    ratio = np.minimum(tree.before(unit, 1.0) / unit, _FAR)
    scaled = tree.children[:size] @ scipy.sparse.diags_array(ratio)
    left = [(every - scaled.T).tocsr()[inner]]
    weighing = [scipy.sparse.csr_array((len(inner), 0))]
    right: list[Floats] = [np.zeros(len(inner))]
    owners: list[NDArray[np.int64]] = []
    onward = tree.children @ scipy.sparse.diags_array(tree.share)
    flow = (onward - scipy.sparse.eye_array(size + 1, size)).tocsr()
    for slope, offset, scale in zip(
        slopes.tolist(), offsets.tolist(), scales.tolist(), strict=True
    ):
        own = most * tree.target > slope * tree.draft * (1 + 1e-12)
        live = own.copy()
        for level in reversed(tree.levels[1:]):
            live[tree.parents[level][live[level]]] = True
        mine, used = np.flatnonzero(own), np.flatnonzero(live)
        above = np.unique(tree.parents[used])  # −1, the empty path's, is the last row
        if size + len(used) + sum(block.shape[1] for block in weighing) > MAX_ENTRIES:
            raise TooLarge(
                f"The program is limited to {MAX_ENTRIES:,} variables; {len(knots)} knots on "
                f"{size:,} paths take more. Take a smaller vocabulary or length."
            )
        # R(u) − A(u)/Q(u) ≤ λ P(u)/Q(u), then Σ_y q(y | u) A(uy)/Q(uy) ≤ A(u)/Q(u)
        left += [units[mine] / scale, scipy.sparse.csr_array((len(above), size))]
        weighing.append(scipy.sparse.vstack([-every[mine], flow[above]], format="csr")[:, used])
        right.append(slope * tree.draft[mine] / (tree.target[mine] * scale))
        right.append(np.where(above < 0, max(offset, 0.0) / scale, 0.0))
        owners.append(mine)
    matrix = scipy.sparse.hstack(
        [scipy.sparse.vstack(left), scipy.sparse.block_diag(weighing)], format="csr"
    )
    cost, high = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], np.inf)
    cost[:size], high[:size] = -tree.target * unit * _SCALE, most / unit
    # The simplex method gives up on a few of those with coefficients far apart.
    solution = solve_program(
        cost,
        methods=("highs-ds", "highs-ipm"),
        tolerance=1e-10,
        A_ub=matrix,
        b_ub=np.concatenate(right),
        bounds=np.stack([np.zeros_like(high), high], axis=1),
    )
    prices = np.zeros(size)
    parts = np.split(solution.ineqlin.marginals, np.cumsum([len(part) for part in right]))
    for mine, part, scale in zip(owners, parts[1::2], scales.tolist(), strict=False):
        prices[mine] += np.maximum(-part, 0.0) / (_SCALE * tree.target[mine] * scale)
    # f(u) ≤ φ(P(u)): the antichain {u}
    upper = np.where(most < 1.0, np.maximum(-solution.upper.marginals[:size], 0.0), 0.0)
    prices += upper / (_SCALE * tree.target * unit)
    return np.clip(solution.x[:size] * unit, 0.0, 1.0) * tree.target, prices


def _repaired(tree: PathTree, k: int, proposed: Floats) -> Floats:
    """Return f `(n,)` close to a proposal that respects the target and every antichain."""
    cap = tree.draft * (k * (1.0 - _SHRUNK) if k > 1 else 1.0)
    found = tree.down(np.minimum(proposed, cap) / tree.target, np.minimum, 1.0) * tree.target
    return np.asarray(found / largest_excess(tree, k, found))


def largest_excess(tree: PathTree, k: int, accepted: Floats) -> float:
    """Return the largest Σ_W f / φ(P(W)) of any antichain W, or 1, for f ≤ K(1 − 1e-8) P.

    Heaviest antichains W for growing slopes have falling P(W). Between two neighbours, of slopes λ
    < λ', every antichain lies below both lines f(W) ≤ h(λ) + λ P(W), so below their crossing, and
    as φ is concave the largest excess of a corner is at an end or at the crossing. Where the
    crossing exceeds φ the slope of the chord between the neighbours tells whether a corner is
    there.
    """
    if k == 1:
        return 1.0  # f ≤ P, path by path
    slopes = np.unique(np.concatenate([[0.0, float(k)], k * np.linspace(0.0, 1.0, 18)[1:-1] ** 2]))
    sums = tree.heaviest(accepted, slopes)
    points = list(zip(slopes.tolist(), sums[0].tolist(), sums[1].tolist(), strict=True))
    worst, open_pairs = 1.0, list(itertools.pairwise(points))
    worst = max(
        [worst, *(f / float(hit_probability(np.array(p), k)) for _, f, p in points if p > 0)]
    )
    for turn in range(64):
        unsettled = []
        for left, right in open_pairs:
            at = left[1] - left[0] * left[2], right[1] - right[0] * right[2]
            crossing = min(max((at[1] - at[0]) / (left[0] - right[0]), right[2]), left[2])
            height, allowed = (
                at[0] + left[0] * crossing,
                float(hit_probability(np.array(crossing), k)),
            )
            if crossing <= 0.0 or left[2] <= right[2] or height <= allowed * (1 + 1e-14):
                continue
            chord = (left[1] - right[1]) / (left[2] - right[2])
            if turn == 63 or not left[0] < chord < right[0]:
                worst = max(worst, height / allowed)
            else:
                unsettled.append((left, right, chord))
        if not unsettled:
            break
        sums = tree.heaviest(accepted, np.array([chord for _, _, chord in unsettled]))
        open_pairs = []
        for (left, right, chord), f, p in zip(
            unsettled, sums[0].tolist(), sums[1].tolist(), strict=True
        ):
            line = left[1] - chord * left[2]
            if p > 0:
                worst = max(worst, f / float(hit_probability(np.array(p), k)))
            if f - chord * p > line + 1e-16 * abs(line) and p < left[2] and p > right[2]:
                open_pairs += [(left, (chord, f, p)), ((chord, f, p), right)]
    return float(worst)


def _sizes(tree: PathTree, prices: Floats, *, least: float = 1e-9) -> tuple[Floats, Floats]:
    """Return the values of P(Π > t) by falling t, and the lengths of the intervals of t."""
    along = tree.down(prices, np.add, 0.0)
    ending = tree.ending(tree.draft)[:-1]
    order = np.argsort(-along, kind="stable")
    above = np.minimum(np.cumsum(np.maximum(ending[order], 0.0)), 1.0)
    lengths = along[order] - np.append(along[order][1:], 0.0)
    kept = lengths > least
    return above[kept], lengths[kept]


def _spread(sizes: Floats, weights: Floats, most: int) -> Floats:
    """Return at most `most` sizes, heavy before light, far apart before close together."""
    kept: list[float] = []
    for apart in (1.6, 1.3, 1.1, 1.03, 1.003, 1.0 + 1e-11):
        for i in np.argsort(-weights, kind="stable").tolist():
            size = float(sizes[i])
            if (
                len(kept) < most
                and size > 0
                and all(max(size, other) > apart * min(size, other) for other in kept)
            ):
                kept.append(size)
    return np.asarray(kept)


def _nested_cuts(tree: PathTree, k: int, prices: Floats) -> list[TreeCut]:
    """Return the antichains {Π > t}, each with a weight, heaviest first."""
    along = tree.down(prices, np.add, 0.0)

    def hit(chosen: NDArray[np.int64], level: float) -> float:
        return float(hit_probability(np.array(tree.draft[chosen].sum()), k))

    return cuts_between(tree, along, along[prices > _LEAST_WEIGHT], hit)


def cuts_between(
    tree: PathTree,
    along: Floats,
    levels: Floats,
    hit: Callable[[NDArray[np.int64], float], float],
) -> list[TreeCut]:
    """Return the antichains {v ≥ t} between neighbouring levels t, heaviest first.

    Args:
        tree: what the models can write.
        along: `(n,)` values v ≥ 0 that do not fall along a path.
        levels: the values at which the antichain changes.
        hit: (paths in the antichain, level) → the probability that a draft is among them.
    """
    before = tree.before(along, 0.0)
    steps = np.unique(np.append(np.maximum(levels, 0.0), 0.0)).tolist()
    found = []
    for low, high in itertools.pairwise(steps):
        if high - low > _LEAST_WEIGHT:
            chosen = np.flatnonzero((along >= high) & (before < high))
            cut = tuple(tree.paths[i] for i in chosen.tolist())
            found.append(TreeCut(cut, hit(chosen, high), high - low))
    return sorted(found, key=lambda cut: -cut.weight)


def solve_program(
    cost: Floats, *, methods: tuple[str, ...], tolerance: float, **program: Any
) -> Any:
    """Return HiGHS's solution of a linear program, by the first successful method."""
    for method in methods:
        solution = scipy.optimize.linprog(
            cost,
            method=method,
            options={
                "primal_feasibility_tolerance": tolerance,
                "dual_feasibility_tolerance": tolerance,
            },
            **program,
        )
        if solution.status == 0:
            return solution
    raise SolverFailure(
        f"HiGHS must reach an optimal vertex; it stopped with {solution.message!r} on {len(cost)} "
        "variables. Take a smaller tree."
    )
