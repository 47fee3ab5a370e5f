"""Drafting trees: values by explicit products, optima by a recursion over all shapes, bounds
against these optima.
"""

from __future__ import annotations

import decimal
import functools
import itertools
import math
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.calls import of_law
from evidence.torture.checks import Checks, exact, off
from evidence.torture.problems import DIGITS, context
from evidence.torture.promises import UNIT_ROUNDOFF
from otm import engines, trees

Vector = np.ndarray
checks = Checks("trees")


def vector(random: np.random.Generator, *, rising: bool = False) -> Vector:
    """Return an acceptance vector: smooth, steep, with ties, zeros or tiny entries, summing to 1 or
    less.
    """
    width = int(random.integers(1, 5))
    kind = random.integers(5)
    if kind == 0:
        weights = random.dirichlet(np.ones(width + 1))[:width]
    elif kind == 1:
        weights = np.full(width, 1.0 / width)
    elif kind == 2:
        weights = random.choice([0.0, 0.25, 0.125], width)
    elif kind == 3:
        weights = random.choice([1e-300, 1e-17, 0.2], width)
    else:
        weights = random.uniform(0, 1, width) ** 4
        weights /= max(weights.sum() * random.choice([1.0, 1.1]), 1e-3)
    weights = np.minimum(weights, 1.0)
    weights = weights / max(weights.sum(), 1.0)
    return random.permutation(weights) if rising else -np.sort(-weights)


def best_tokens(
    values: Vector, nodes: int, depth: int | None = None, width: int | None = None
) -> Decimal:
    """Return the most expected tokens of any tree of at most `nodes` drafted vertices, over every
    way to share them out.
    """
    steps = exact(values)[:width]

    @functools.cache
    def below(budget: int, levels: int) -> Decimal:
        return Decimal(1) + spread(budget, 0, levels) if levels else Decimal(1)

    @functools.cache
    def spread(budget: int, rank: int, levels: int) -> Decimal:
        if budget == 0 or rank == len(steps):
            return Decimal(0)
        return max(
            steps[rank] * below(size - 1, levels - 1) + spread(budget - size, rank + 1, levels)
            if size
            else Decimal(0)
            for size in range(budget + 1)
        )

    return below(nodes, nodes if depth is None else depth)


def shape_of(random: np.random.Generator, nodes: int) -> trees.TreeShape:
    """Return a random ordered tree."""
    return trees.TreeShape([int(random.integers(0, vertex + 1)) for vertex in range(nodes)])


def tokens_of(values: Vector, shape: trees.TreeShape) -> Decimal:
    """Return 1 + Σ Π A along the paths."""
    steps = exact(values)
    return sum(
        (
            math.prod((steps[r] if r < len(steps) else Decimal(0) for r in path), start=Decimal(1))
            for path in shape.paths()
        ),
        Decimal(0),
    )


DEPTH = "(depth + 1) u: a product along each path, positive terms"


@checks.add("otm.trees.tree_acceptance", DEPTH, "docstring", "products along the paths, exactly")
@checks.add(
    "otm.trees.tree_expected_tokens", DEPTH, "docstring", "reaching probabilities as exact products"
)
def _tree_expected_tokens(random: np.random.Generator) -> tuple[float, str]:
    values, shape = vector(random, rising=True), shape_of(random, int(random.integers(0, 9)))
    truth, units = tokens_of(values, shape), shape.depth + 1
    found = (
        trees.tree_acceptance(values, shape=shape).expected_tokens,
        trees.tree_expected_tokens(values, shape=shape),
    )
    told = f"{values.tolist()}, {shape.parents.tolist()}"
    return max(off(tokens, truth, units) for tokens in found), told


@checks.add(
    "otm.trees.optimal_tree", DEPTH, "docstring", "every way to share the vertices out, exactly"
)
def _optimal_tree(random: np.random.Generator) -> tuple[float, str]:
    values, nodes = vector(random), int(random.integers(0, 13))
    depth = int(random.integers(1, 5)) if random.random() < 0.5 else None
    width = int(random.integers(1, 5)) if random.random() < 0.5 else None
    found = trees.optimal_tree(values, num_nodes=nodes, max_depth=depth, max_width=width)
    truth = best_tokens(values, nodes, depth, width)
    told = f"{values.tolist()}, num_nodes={nodes}, max_depth={depth}, max_width={width}"
    if tokens_of(values, found.shape) < truth * (1 - Decimal(4 * nodes * UNIT_ROUNDOFF)):
        return math.inf, told
    return off(found.expected_tokens, truth, found.shape.depth + 2), told


@checks.add(
    "otm.engines.chain_expected_tokens", "16 u, relative", "docstring", "the sum in 60 digits"
)
def _chain(random: np.random.Generator) -> tuple[float, str]:
    a = float(
        random.choice(
            [
                random.random(),
                1 - 10.0 ** random.uniform(-17, 0),
                10.0 ** random.uniform(-300, 0),
                0.0,
                1.0,
            ]
        )
    )
    length = int(10 ** random.uniform(0, 4)) - 1
    return off(
        engines.chain_expected_tokens(a, length=length), _chain_truth(a, length), 16
    ), f"{a!r}, length={length}"


def _chain_truth(a: float, length: int) -> Decimal:
    with decimal.localcontext(context(DIGITS + 20)):
        x = Decimal(a)
        return Decimal(length + 1) if x == 1 else (1 - oracles.power(x, length + 1)) / (1 - x)


@checks.add("otm.engines.chain_speedup", "20 u, relative", "docstring", "the formula in 60 digits")
def _speedup(random: np.random.Generator) -> tuple[float, str]:
    a, length, cost = (
        float(random.random()),
        int(random.integers(0, 50)),
        float(random.choice([0.0, random.random(), 3.0])),
    )
    with decimal.localcontext(context(DIGITS)):
        truth = _chain_truth(a, length) / (length * Decimal(cost) + 1)
    return off(
        engines.chain_speedup(a, length=length, cost_ratio=cost), truth, 20
    ), f"{a!r}, length={length}, cost_ratio={cost!r}"


@checks.add(
    "otm.engines.optimal_chain_length",
    "40 u of the best speed-up",
    "docstring",
    "every length up to the limit, in 60 digits",
)
def _chain_length(random: np.random.Generator) -> tuple[float, str]:
    a, cost, most = (
        float(random.random()),
        float(random.choice([0.01, 0.1, 0.5, random.random()])),
        int(random.integers(1, 60)),
    )
    found = engines.optimal_chain_length(a, cost_ratio=cost, max_length=most)
    with decimal.localcontext(context(DIGITS)):
        speeds = [
            _chain_truth(a, length) / (length * Decimal(cost) + 1) for length in range(most + 1)
        ]
    return off(
        float(speeds[found]), max(speeds), 40
    ), f"{a!r}, cost_ratio={cost!r}, max_length={most}: {found}"


def _entropy(masses: list[Decimal]) -> Decimal:
    return -sum((m * oracles.log(m) for m in masses if m), Decimal(0)) / oracles.LOG_2


def _rest(values: Vector) -> Decimal:
    """Return what the library takes for the mass of no acceptance: 1 − Σ, nothing where that is
    rounding.
    """
    return Decimal(trees.rejected_mass(values))


@checks.add(
    "otm.trees.rejected_mass",
    "2 u, absolute; at most 64 u is taken for rounding of a sum of 1",
    "docstring",
    "exact sums",
)
def _rejected(random: np.random.Generator) -> tuple[float, str]:
    values = vector(random, rising=True)
    truth, found = max(1 - sum(exact(values)), Decimal(0)), trees.rejected_mass(values)
    error = (
        0 if found == 0.0 and truth <= Decimal(65 * UNIT_ROUNDOFF) else abs(Decimal(found) - truth)
    )
    return float(error / Decimal(2 * UNIT_ROUNDOFF)), f"{values.tolist()}"


@checks.add("otm.trees.entropy_bits", "(8 + k) u (1 + H)", "docstring", "the formula in 60 digits")
def _entropy_bits(random: np.random.Generator) -> tuple[float, str]:
    values = vector(random, rising=True)
    truth = _entropy(exact(values))
    error = abs(Decimal(trees.entropy_bits(values)) - truth)
    return float(
        error / (Decimal((8 + len(values)) * UNIT_ROUNDOFF) * (1 + truth))
    ), f"{values.tolist()}"


@checks.add(
    "otm.trees.tunstall_upper",
    "0 against the best tree",
    'docs/theory.md, "Bounds"',
    "the best tree of N vertices, exactly",
    direction="upper",
)
def _tunstall(random: np.random.Generator) -> tuple[float, str]:
    values, nodes = vector(random), int(random.integers(0, 11))
    found = trees.tunstall_upper(values, num_nodes=nodes)
    # The same vector as a function, after any rank and after none, bounds the same tree.
    order, steps = int(random.integers(0, 3)), [*values.tolist(), 0.0]
    by_state = trees.tunstall_upper(
        lambda path: steps[min(path[-1], len(values))], num_nodes=nodes, order=order
    )
    short = Decimal(min(found, by_state)) < best_tokens(values, nodes)
    return (
        math.inf if short else 0.0,
        f"{values.tolist()}, num_nodes={nodes}, order={order}: {found!r}, {by_state!r}",
    )


@checks.add(
    "otm.trees.tunstall_explored_upper",
    "0 against the best tree",
    'docs/theory.md, "Bounds"',
    "the best tree of that width, exactly",
    direction="upper",
)
def _explored(random: np.random.Generator) -> tuple[float, str]:
    values, nodes = vector(random), int(random.integers(0, 11))
    explored = int(random.integers(1, len(values) + 1))
    rest = math.fsum([*values[explored:], trees.rejected_mass(values)])
    extra = 0 if rest == 0 else int(10 ** random.uniform(0, 5))
    found = trees.tunstall_explored_upper(
        values, num_nodes=nodes, num_explored=explored, num_extra=extra
    )
    truth = best_tokens(values, nodes, width=explored)
    return math.inf if Decimal(
        found
    ) < truth else 0.0, f"{values.tolist()}, {nodes}, {explored}, {extra}: {found!r}"


@checks.add(
    "otm.trees.tunstall_minimum_upper",
    "0 against the best tree, and against every m up to 1,000",
    'docs/theory.md, "Bounds"',
    "the best tree of that width, exactly",
    direction="upper",
)
def _minimum(random: np.random.Generator) -> tuple[float, str]:
    values, nodes = vector(random), int(random.integers(0, 11))
    explored = int(random.integers(1, len(values) + 1))
    found = trees.tunstall_minimum_upper(values, num_nodes=nodes, num_explored=explored)
    truth = best_tokens(values, nodes, width=explored)
    rest = math.fsum([*values[explored:], trees.rejected_mass(values)])
    told = f"{values.tolist()}, {nodes}, {explored}: {found!r}"
    if Decimal(found.value) < truth:
        return math.inf, told
    if rest == 0:
        return 0.0, told
    others = [
        trees.tunstall_explored_upper(values, num_nodes=nodes, num_explored=explored, num_extra=m)
        for m in (1, 2, 3, 10, 100, 1000)
    ]
    return math.inf if found.value > min(others) * (1 + 1e-12) else 0.0, told


@checks.add(
    "otm.trees.leaf_entropy",
    "(8 N + 40) u (1 + value)",
    'docs/theory.md, "Bounds"',
    "E[tokens] · H(A) in 60 digits",
)
def _leaf_entropy(random: np.random.Generator) -> tuple[float, str]:
    values, shape = vector(random), shape_of(random, int(random.integers(0, 9)))
    with decimal.localcontext(context(DIGITS)):
        truth = tokens_of(values, shape) * _entropy([*exact(values), _rest(values)])
    error = abs(Decimal(trees.leaf_entropy(values, shape=shape)) - truth)
    bound = Decimal((8 * shape.num_nodes + 40) * UNIT_ROUNDOFF) * (1 + truth)
    return float(error / bound), f"{values.tolist()}, {shape.parents.tolist()}"


@checks.add(
    "otm.trees.even_spread",
    "0, but for quotients within 1e-12 of an integer",
    "docstring",
    "the quotient, exactly",
)
def _even(random: np.random.Generator) -> tuple[float, str]:
    values = np.maximum(vector(random), 1e-6)
    values = values / max(values.sum(), 1.0)
    explored = int(random.integers(1, len(values) + 1))
    rest = sum(exact(values[explored:]), Decimal(0)) + _rest(values)
    quotient = rest / Decimal(float(values[explored - 1]))
    found = trees.even_spread(values, num_explored=explored)
    near = abs(quotient - round(quotient)) <= quotient * Decimal("2e-12") + Decimal("1e-15")
    return 0.0 if found == math.ceil(
        quotient
    ) or near else math.inf, f"{values.tolist()}, {explored}: {found}"


@checks.add("otm.trees.level_order", "0: the same paths", "docstring", "the set of paths")
def _levels(random: np.random.Generator) -> tuple[float, str]:
    shape = shape_of(random, int(random.integers(0, 12)))
    found = trees.level_order(shape)
    levels = found.levels.tolist()
    same = sorted(found.paths()) == sorted(shape.paths()) and levels == sorted(levels)
    return 0.0 if same else math.inf, f"{shape.parents.tolist()}"


@checks.add(
    "otm.trees.acceptance_vector",
    "4e-14 of α_k − α_{k−1}",
    "docstring",
    "differences of exact acceptances",
)
def _acceptance_vector(random: np.random.Generator) -> tuple[float, str]:
    case = of_law("WithoutReplacement", rows=(1,), tokens=(2, 3, 4))(random)
    found = trees.acceptance_vector(otm.RecursiveRejection(), case.problem)
    row = case.rows[0]

    def exactly() -> list[Decimal]:
        reached = [
            Decimal(0),
            *(oracles.recursive_rejection(_with(row, k)) for k in range(1, case.k + 1)),
        ]
        return [b - a for a, b in itertools.pairwise(reached)]

    truth = row.exactly(exactly)
    return max(
        float(abs(Decimal(float(a)) - b)) for a, b in zip(found, truth, strict=True)
    ) / 4e-14, f"{case!r}"


def _with(row: Any, k: int) -> Any:
    return type(row)(row.drafts, row.q, row.law, k, row.digits)


@checks.add(
    "otm.trees.choose_tree",
    "(depth + 8) u against every budget and depth",
    "docstring",
    "every tree up to the limits, exactly",
)
def _choose(random: np.random.Generator) -> tuple[float, str]:
    values, most = vector(random), int(random.integers(1, 8))
    step, base, slope = (
        float(random.random()),
        float(random.uniform(0.5, 2)),
        float(random.uniform(0, 0.5)),
    )
    found = trees.choose_tree(
        values, draft_seconds=step, target_seconds=lambda n: base + slope * n, max_nodes=most
    )
    with decimal.localcontext(context(DIGITS)):
        speeds = [Decimal(1) / Decimal(base)]
        for nodes in range(1, most + 1):
            cost = Decimal(base + slope * nodes)
            speeds += [
                best_tokens(values, nodes, depth) / (depth * Decimal(step) + cost)
                for depth in range(1, nodes + 1)
            ]
        told = (
            f"{values.tolist()}, {step!r}, {base!r}, {slope!r}, {most}: {found.tokens_per_second!r}"
        )
        return off(found.tokens_per_second, max(speeds), most + 8), told


@checks.add(
    "otm.trees.target_seconds_at",
    "8 u of the larger neighbour",
    "docstring",
    "linear interpolation, exactly",
)
def _seconds(random: np.random.Generator) -> tuple[float, str]:
    points = {
        0: float(random.random()) + 0.01,
        16: float(random.random()) + 0.01,
        64: float(random.random()) + 0.01,
    }
    at = int(random.integers(0, 65))
    low, high = (0, 16) if at <= 16 else (16, 64)
    a, b = Decimal(points[low]), Decimal(points[high])
    truth = a + (b - a) * Decimal(at - low) / Decimal(high - low)
    error = abs(Decimal(float(trees.target_seconds_at(points, num_nodes=[at])[0])) - truth)
    return float(error / (Decimal(8 * UNIT_ROUNDOFF) * max(a, b))), f"{points}, {at}"


@checks.add(
    "otm.trees.empirical_acceptance",
    "8 (k + 1) u",
    "docstring",
    "the product-limit estimate, exactly",
)
def _empirical(random: np.random.Generator) -> tuple[float, str]:
    tried = -np.sort(-random.integers(1, 50, int(random.integers(1, 5))))
    accepted = np.array([int(random.integers(0, n + 1)) for n in tried])
    left, truth = Decimal(1), []
    for a, n in zip(accepted.tolist(), tried.tolist(), strict=True):
        truth.append(left * a / n)
        left *= 1 - Decimal(a) / n
    found = trees.empirical_acceptance(accepted, tried)
    worst = max(float(abs(Decimal(float(f)) - t)) for f, t in zip(found, truth, strict=True))
    return worst / (
        8 * (len(truth) + 1) * UNIT_ROUNDOFF
    ), f"{accepted.tolist()}, {tried.tolist()}: {found.tolist()}"
