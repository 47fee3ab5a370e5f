"""The best verification of given drafts, by linear programming.

A step decodes a path of the drafted tree D and one more token. Let f(u) be the probability that it
accepts path u, that is, decodes u and goes on; f = 1 at the empty path. Followed by target samples
the output has the target's law exactly if

    f(uy) ≤ q(y | u) f(u)   for every path u and token y,

because after u the next token must have the target's law q(· | u), and what f(uy) does not use of
q(y | u) f(u) is the mass of texts that end the step with y. So the only thing that ties the
verification to the drafts is that a step that ends after path u must have u in its tree: the
probability f(u) − Σ_y f(uy) of ending there is transported from trees that contain u,

    f(u) − Σ_y f(uy) = Σ_{D ∋ u} ρ(D, u),      Σ_{u ∈ D, u ≠ ∅} ρ(D, u) ≤ Pr(D),      ρ ≥ 0,

the empty path being in every tree. The best expected number of tokens is 1 + max Σ_u f(u). With one
level this is the optimal transport program with membership cost; drafts enter through the set of
their paths only.

Multipliers μ(u) of the equalities certify an upper bound, whatever they are: with ν(uy) = max(0, 1
− μ(uy) + μ(u) + Σ_z q(z | uy) ν(uyz)), μ(∅) = 0,

    E[tokens] ≤ 1 + Σ_D Pr(D) max(0, max_{u ∈ D} μ(u)) + Σ_y q(y) ν(y).

So neither side of the result relies on the solver (docs/theory.md, "The best step"). Trees need no
enumeration where the drafts are independent sequences: `otm.sequence.tree_cuts` has their program.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from otm.errors import SolverFailure, TooLarge
from otm.results.statistics import Certified
from otm.sequence.decoder import Decoder, independent_sequences, require_fresh
from otm.sequence.decoding import check_step_arguments
from otm.sequence.models import Context, LanguageModel, Memoised, next_distributions
from otm.sequence.randomness import outcomes
from otm.sequence.tree_cuts import (
    PathTree,
    TreeCut,
    best_of_paths,
    cuts_between,
    solve_program,
)

GAP_TOLERANCE = 1e-9
MOST_GAP = 1e-6  # HiGHS's tolerances are absolute: probabilities below 1e-8 are told less closely
MAX_VARIABLES = 1_000_000
_SCALE = 2.0**20  # solver tolerances are absolute, masses of trees are small
_SLACK = 1e-12  # balances of a plan are met up to this share of Pr(u): far above rounding


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class BestStep(Certified):
    """The largest expected number of tokens per target call, certified without the solver.

    Attributes:
        lower: attained by a verification that was repaired to be lossless and to respect the
            drafts, rounded down.
        upper: value of the multipliers, rounded up: no lossless verification of these drafts
            decodes more.
        accepted: the probability f(u) with which that verification accepts each path.
        cuts: antichains of paths that bind, heaviest first, nested one in the subtrees of the next.
            Alone they certify the upper bound: with π(u) the weights of the cuts that hold u, it is
            1 + Σ weight·hit + Σ_y q(y) ν(y), ν(uy) = (1 − π(uy) + Σ_z q(z | uy) ν(uyz))₊.
    """

    accepted: dict[Context, float]
    cuts: tuple[TreeCut, ...]

    def __repr__(self) -> str:
        return f"BestStep(value={self.value:.12g}, gap={self.gap:.2g}, cuts={len(self.cuts)})"


@dataclasses.dataclass(frozen=True, eq=False)
class _Instance:
    """The program's data: drafted paths, and drafted trees as sets of paths.

    Attributes:
        paths: every drafted path of positive target probability.
        tree, path: `(e,)` the pairs (drafted tree, path in it).
        mass: `(n,)` Pr(D).
    """

    paths: PathTree
    tree: NDArray[np.int64]
    path: NDArray[np.int64]
    mass: NDArray[np.float64]

    def highest(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest value of a path in each tree, 0 for the empty path."""
        found = np.zeros(len(self.mass))
        np.maximum.at(found, self.tree, values[self.path])
        return found


def best_step(
    decoder: Decoder, *, draft: LanguageModel, target: LanguageModel, context: Sequence[int]
) -> BestStep:
    """Return the most tokens that any lossless verification of a decoder's drafts attains.

    1 + max Σ_u f(u) subject to f(uy) ≤ q(y | u) f(u) and Σ_{w∈W} f(w) ≤ Pr(a path in W is drafted)
    for every antichain W of paths. For K independent sequences that is a program on the tree of
    paths, for other drafts one on enumerated trees.

    Args:
        decoder: only its drafts matter, shape and law. How it verifies does not.
        draft, target: two tiny models.
        context: tokens so far.

    Returns:
        BestStep with lower ≤ value ≤ upper; its `gap`, upper − lower, is at most 1e-9, and 1e-6
        where models have probabilities below 1e-8.

    Raises:
        TooLarge: beyond a million variables, or 60 seconds of drafted trees; for K sequences beyond
            `MAX_PATHS`, `MAX_TABLE` or `MAX_ENTRIES` of `otm.sequence.tree_cuts`.
        Unsupported: for a decoder that carries noise from step to step.
        SolverFailure: if HiGHS stops early, or its answer does not certify to 1e-6.

    Cost: for K sequences some ten linear programs of V^L paths × tens of chords, polynomial in V^L
        and K: seconds at V = 8, L = 3 and at V = 50, L = 2 with K = 8, minutes at V = 8, L = 4. For
        other drafts enumeration of the trees, and one program with a variable for each tree (as a
        set of paths) and path in it.
    Reference: docs/theory.md, "The best step" and "Tree cuts"; one level: SpecTr (4), Hu et al.
        2025; one sequence: Sun et al. 2024 (block verification).

    >>> from otm.sequence import SpeculativeSampling, ZerothOrder
    >>> draft, target = ZerothOrder([2 / 3, 1 / 3]), ZerothOrder([1 / 3, 2 / 3])
    >>> found = best_step(SpeculativeSampling(2), draft=draft, target=target, context=[])
    >>> round(found.value, 9)  # block verification's 1 + 11/9; token by token 1 + 10/9
    2.222222222
    """
    start = check_step_arguments(decoder, draft=draft, target=target, context=context)
    require_fresh(decoder)
    k = independent_sequences(decoder)
    if k is None:
        return _by_enumeration(decoder, draft, target, start)
    tree = PathTree.of(draft, target, start, decoder.depth)
    if not tree.paths:
        return BestStep(lower=1.0, upper=1.0, accepted={}, cuts=())
    accepted, lower, upper, cuts = best_of_paths(tree, k, tolerance=GAP_TOLERANCE)
    return _certified(tree.paths, accepted, 1.0 + lower, 1.0 + upper, tuple(cuts))


def _by_enumeration(
    decoder: Decoder, draft: LanguageModel, target: LanguageModel, start: Context
) -> BestStep:
    """Return the best step for any drafts, by enumeration of the drafted trees."""
    instance = _instance(decoder, draft, target, start)
    if not instance.paths.paths:
        return BestStep(lower=1.0, upper=1.0, accepted={}, cuts=())
    transport, prices = _solve(instance)
    accepted = _repaired(instance, transport)
    return _certified(
        instance.paths.paths,
        accepted,
        1.0 + math.fsum(accepted),
        _priced(instance, prices),
        _cuts(instance, prices),
    )


def _certified(
    paths: list[Context],
    accepted: NDArray[np.float64],
    lower: float,
    upper: float,
    cuts: tuple[TreeCut, ...],
) -> BestStep:
    # Capacity has a price of at most L + 1 tokens, so slack moves the value by L·(L + 1) times.
    outward = _SLACK * (len(paths[-1]) + 1) ** 2
    lower, upper = lower - outward, upper + outward
    if not upper - lower <= MOST_GAP:
        raise SolverFailure(
            f"Plan and multipliers must agree within {MOST_GAP:g}; HiGHS's answer gives "
            f"[{lower!r}, {upper!r}]. Take a smaller tree, or one with fewer tokens of tiny "
            "probability."
        )
    return BestStep(
        lower=lower,
        upper=upper,
        accepted=dict(zip(paths, accepted.tolist(), strict=True)),
        cuts=cuts,
    )


def _instance(
    decoder: Decoder, draft: LanguageModel, target: LanguageModel, start: Context
) -> _Instance:
    drafter = Memoised(draft)
    masses: dict[frozenset[Context], float] = {}
    for found, share in outcomes(lambda randomness: decoder.draft(drafter, start, randomness)):
        drafted = frozenset(path[len(start) :] for path in found.contexts() if path is not None)
        masses[drafted] = masses.get(drafted, 0.0) + share
    paths = sorted(
        {path for drafted in masses for path in drafted if path}, key=lambda path: (len(path), path)
    )
    conditional = next_distributions(
        target, {(*start, *path[:-1]) for path in paths}, name="target"
    )
    number: dict[Context, int] = {(): -1}
    shares = []
    # Parents first: a path that the target cannot take is never accepted, nor what is beyond it.
    for path in paths:
        share = float(conditional[(*start, *path[:-1])][path[-1]])
        if share > 0 and path[:-1] in number:
            number[path] = len(number) - 1
            shares.append(share)
    live = list(number)[1:]
    pairs = [
        (i, number[path])
        for i, drafted in enumerate(masses)
        for path in drafted
        if path and path in number
    ]
    if len(pairs) > MAX_VARIABLES:
        raise TooLarge(
            f"The program is limited to {MAX_VARIABLES:,} pairs of a drafted tree and a path in "
            f"it; this one has {len(pairs):,}. Take a smaller vocabulary or tree."
        )
    tree, drawn = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    mass = np.asarray(list(masses.values()))
    parents = np.asarray([number[path[:-1]] for path in live], dtype=np.int64)
    hit = np.bincount(drawn, mass[tree], len(live)).astype(np.float64)
    return _Instance(PathTree(live, parents, np.asarray(shares), hit), tree, drawn, mass)


def _solve(instance: _Instance) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the transport ρ `(e,)`, and the multipliers of the equalities `(m,)`.

    Variables f(u), then ρ(D, u).
    """
    paths, edges = instance.paths, len(instance.path)
    size = len(paths.paths)
    every, onward = scipy.sparse.eye_array(size), paths.children[:size]
    each = np.ones(edges), np.arange(edges)
    stops = scipy.sparse.coo_array((each[0], (instance.path, each[1])), shape=(size, edges))
    supply = scipy.sparse.coo_array(
        (each[0], (instance.tree, each[1])), shape=(len(instance.mass), edges)
    )
    balance = scipy.sparse.hstack([onward - every, stops], format="csr")
    follow = every - (onward @ scipy.sparse.diags_array(paths.share)).T
    limits = scipy.sparse.block_array([[follow, None], [None, supply]], format="csr")
    first = np.where(paths.parents >= 0, 0.0, paths.share)
    right = np.concatenate([first, instance.mass]) * _SCALE
    solution = solve_program(
        np.concatenate([-np.ones(size), np.zeros(edges)]),
        methods=("highs-ipm" if edges > 20_000 else "highs-ds",),
        tolerance=1e-9,
        A_ub=limits,
        b_ub=right,
        A_eq=balance,
        b_eq=np.zeros(size),
    )
    return np.asarray(solution.x[size:]) / _SCALE, np.asarray(solution.eqlin.marginals)


def _repaired(instance: _Instance, transport: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a feasible f `(m,)` close to the f of a proposed transport.

    Clip ρ and scale it under Pr(D); c(u) = Σ_D ρ(D, u) is then what may end after u. With R(u) =
    f(u)/Q(u), feasibility reads R(uy) ≤ R(u) and R(u) ≤ c(u)/Q(u) + Σ_y q(y | u) R(uy). From the
    leaves up, R(u) is the largest θ with θ ≤ c(u)/Q(u) + Σ_y q(y | u) min(R(uy), θ): capping
    everything beyond u at θ keeps it feasible, since θ − Σ q min(R, θ) does not decrease in θ.
    """
    plan = np.maximum(transport, 0.0)
    used = np.bincount(instance.tree, weights=plan, minlength=len(instance.mass))
    scale = np.where(used > instance.mass, instance.mass / np.maximum(used, 1e-300), 1.0)
    plan = plan * scale[instance.tree]
    paths = instance.paths
    ends = np.bincount(instance.path, plan, len(paths.paths)).astype(np.float64)
    # A product of masses may underflow.
    extra = np.divide(ends, paths.target, out=np.zeros_like(ends), where=paths.target > 0)
    level = np.zeros_like(ends)
    for path in reversed(range(len(ends))):
        below = slice(*np.searchsorted(paths.parents, [path, path + 1]))
        level[path] = min(1.0, _capped(float(extra[path]), paths.share[below], level[below]))
    return np.asarray(paths.target * paths.down(level, np.minimum, 1.0))


def _capped(extra: float, share: NDArray[np.float64], levels: NDArray[np.float64]) -> float:
    """Return the largest θ ≤ extra + Σ share·min(levels, θ), by Newton's method from the right.

    >>> import numpy as np
    >>> _capped(0.25, np.array([0.5]), np.array([1.0]))  # 1/4 + 1/2·min(1, 1/2)
    0.5
    """
    theta = extra + float(share @ levels)
    while True:
        above = levels > theta
        # If they are all that can follow, θ − Σ share·θ is 0 and its slope only rounding.
        slope = 1.0 - float(share[above].sum())
        rest = extra + float(share[~above] @ levels[~above])
        following = rest / slope if slope > _SLACK else theta
        if not following < theta:
            return theta
        theta = following


def _priced(instance: _Instance, prices: NDArray[np.float64]) -> float:
    """Return the upper bound that the multipliers μ `(m,)` certify."""
    steps = prices - instance.paths.before(prices, 0.0)
    reached = math.fsum(instance.mass * instance.highest(prices))
    return 1.0 + reached + instance.paths.unpriced(steps)


def _cuts(instance: _Instance, prices: NDArray[np.float64]) -> tuple[TreeCut, ...]:
    """Return multipliers μ `(m,)` as weighted antichains, the summands of E[max_{u∈D} μ(u)₊].

    Only the running maximum M of μ along a path counts, since D holds all that a path begins with;
    the sets {M > t} are antichains with all that lies below them.
    """
    highest = instance.paths.down(prices, np.maximum, 0.0)
    of_tree = instance.highest(highest)

    def hit(chosen: NDArray[np.int64], level: float) -> float:
        return float(instance.mass[of_tree >= level].sum())

    return tuple(cuts_between(instance.paths, highest, highest, hit))
