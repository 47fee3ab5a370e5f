"""Expected tokens of trees where accept events are nested in k, and Tunstall's bound, from means.

The child of rank i is then accepted with probability A(i) = α_i − α_{i−1}, α_k the mean acceptance
of k drafts. Vertices are taken as independent, each with this vector, and have at most K children,
K the largest number of drafts that was measured. The tokens of a tree and Tunstall's bound are
functions of the means; intervals over prompts follow from the covariance of these (delta method, of
the logarithm). There is no lower bound beside them: the optimal tree is exact.

Where numbers of drafts between the measured ones are missing, α is taken as linear there, which is
too little where it is concave. The bound does not rest on that. Ranks between two measured numbers
share the mass α_{k'} − α_k, and no tree yields more than one that has all of it at the best of
these children; so the bound is that of a vector with one entry for each measured number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import otm
from otm._machine.arrays import Floats
from otm.results.statistics import Estimate, t_quantile
from otm.trees import (
    OptimalTree,
    TreeShape,
    entropy_bits,
    optimal_tree,
    rejected_mass,
    tunstall_minimum_upper,
)
from otm.trees.program import tree_program
from otm.verbs import run as draw
from otm.verifiers import VERIFIERS

from .manifest import class_of

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Drafted tokens of a call."""

_NESTED = {verifier.__name__ for verifier in VERIFIERS if verifier.nested_in_k}
_NESTED_LAWS = ("IID", "WithoutReplacement", "TopK")
_DRAWS_AT_ONCE = 500


@dataclasses.dataclass(frozen=True)
class TreeRow:
    """The best tree of a budget, and an upper bound for all trees with at most K children a vertex.

    Attributes:
        nodes: the budget.
        depth: of the optimal tree.
        tokens: per target call, with the optimal tree.
        upper: Tunstall's bound.
    """

    nodes: int
    depth: int
    tokens: Estimate
    upper: Estimate


def accepts_by_rank(scheme: str, law: str, definition: str) -> bool:
    """Return True if a scheme's accept events are nested in k, so that differences are by rank."""
    return class_of(scheme) in _NESTED and law in _NESTED_LAWS and definition == "membership"


def by_rank(columns: Iterable[Any]) -> list[list[Any]]:
    """Return the columns of each scheme that accepts by rank, ascending in k, two at least."""
    families: dict[tuple[str, str], dict[int, Any]] = {}
    for column in columns:
        if accepts_by_rank(column.scheme, column.law, column.definition):
            families.setdefault((column.scheme, column.law), {})[column.k] = column
    return [[each[k] for k in sorted(each)] for each in families.values() if len(each) > 1]


def rank_matrix(ks: Sequence[int]) -> Floats:
    """Return the matrix `(K, n)` from α at given k to acceptance by rank, with α linear in between.

    >>> rank_matrix([1, 3]).tolist()
    [[1.0, 0.0], [-0.5, 0.5], [-0.5, 0.5]]
    """
    widths = np.diff(ks, prepend=0)
    return np.repeat(_differences(len(ks)) / widths[:, None], widths, axis=0)


def acceptance_by_rank(ks: Sequence[int], means: Floats) -> Floats:
    """Return A from α at these numbers of drafts, `(K,)`."""
    return np.maximum(rank_matrix(ks) @ means, 0.0)


def best_tree(vector: Floats, nodes: int) -> OptimalTree:
    """Return the tree of a budget with the most expected tokens; the vector may rise."""
    falling = bool((np.diff(vector) <= 0).all())
    return (
        optimal_tree(vector, num_nodes=nodes) if falling else tree_program(vector, num_nodes=nodes)
    )


def rank_powers(shape: TreeShape, width: int) -> Floats:
    """Count the occurrences of each rank on the path to each drafted vertex, `(n, width)`.

    >>> import otm
    >>> rank_powers(otm.trees.TreeShape([0, 0, 2]), 2).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    powers = np.zeros((shape.num_nodes + 1, width))
    for vertex, parent in enumerate(shape.parents.tolist(), start=1):
        powers[vertex] = powers[parent]
        powers[vertex, shape.ranks[vertex]] += 1.0
    return powers[1:]


def drafting_widths(shape: TreeShape) -> tuple[int, ...]:
    """Count the vertices of each level that draft, the root first.

    >>> import otm
    >>> drafting_widths(otm.trees.TreeShape.sequences(2, 3))
    (1, 2, 2)
    """
    drafting = shape.num_children > 0
    return tuple(int((drafting & (shape.levels == level)).sum()) for level in range(shape.depth))


def tokens_with_gradient(factors: Floats, powers: Floats) -> tuple[float, Floats]:
    """Return 1 + Σ over products of powers of the factors, and the derivative by the factors.

    The derivative by a factor of 0 is 0.

    Args:
        factors: A by rank, or acceptance by level, `(m,)`.
        powers: of each drafted vertex or level, `(n, m)`.

    >>> import numpy as np
    >>> tokens_with_gradient(np.array([0.5]), np.array([[1.0], [2.0]]))  # 1 + a + a²
    (1.75, array([2.]))
    """
    terms = np.prod(factors**powers, axis=1)
    slope = np.divide(terms @ powers, factors, out=np.zeros_like(factors), where=factors > 0)
    return 1.0 + float(terms.sum()), slope


def upper_with_gradient(vector: Floats, nodes: int) -> tuple[float, Floats]:
    """Return Tunstall's bound for trees no wider than the budget, and the derivative by A, `(K,)`.

    The mass that the first ranks leave open is spread as well as can be; at the best spread the
    derivative by it vanishes.
    """
    explored = vector[:nodes]
    found = tunstall_minimum_upper(explored, num_nodes=nodes, num_explored=len(explored))
    rest, gradient = rejected_mass(explored), np.zeros_like(vector)
    if math.isinf(found.num_extra):  # the plateau 1/rest
        gradient[:nodes] = found.value / rest
    elif math.isfinite(found.value):
        # log₂ L/H at fixed L: −log₂ L/H² dH, and dH/dA = log₂ of what a symbol of the rest has over
        # A.
        share = rest / found.num_extra if rest else 1.0
        used = explored > 0
        surprise = np.where(used, math.log2(share) - np.log2(np.where(used, explored, 1.0)), 0.0)
        gradient[:nodes] = (
            -found.value / (entropy_bits(explored) - rest * math.log2(share)) * surprise
        )
    return found.value, gradient


def tree_rows(
    ks: Sequence[int], means: Floats, covariance: Floats, clusters: int
) -> tuple[TreeRow, ...]:
    """Return the optimal tree and the bound of every budget.

    Args:
        ks: measured numbers of drafts, ascending.
        means: α at these, `(n,)`.
        covariance: of the means over prompts, `(n, n)`; NaN with one prompt.
        clusters: of how many prompts.
    """
    vector, ranks = acceptance_by_rank(ks, means), rank_matrix(ks)
    gathered, differences = np.maximum(np.diff(means, prepend=0.0), 0.0), _differences(len(ks))
    quantile = float(t_quantile(clusters))

    def value(number: float, gradient: Floats) -> Estimate:
        variance = float(gradient @ covariance @ gradient)
        if not (math.isfinite(variance) and math.isfinite(number)):
            return Estimate(number, math.nan, math.nan)
        factor = math.exp(quantile * math.sqrt(max(0.0, variance)) / number)
        return Estimate(number, max(1.0, number / factor), number * factor)

    rows = []
    for nodes in SIZES:
        shape = best_tree(vector, nodes).shape
        tokens, slope = tokens_with_gradient(vector, rank_powers(shape, len(vector)))
        upper, upper_slope = upper_with_gradient(gathered, nodes)
        rows.append(
            TreeRow(
                nodes,
                shape.depth,
                value(tokens, slope @ ranks),
                value(upper, upper_slope @ differences),
            )
        )
    return tuple(rows)


def simulated_tokens(
    rule: otm.verifiers.Rule, shape: TreeShape, *, walks: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the tokens of calls whose every vertex is verified by draws of a rule, `(walks,)`.

    Args:
        rule: prepared for a law of at least as many drafts as a vertex has children.
        shape: the tree.
        walks: how many calls.
        rng: of the draws.
    """
    k = rule.problem.num_drafts
    children = np.full((shape.num_nodes + 1, k + 1), -1)
    for vertex in range(shape.num_nodes + 1):
        below = shape.children(vertex)
        children[vertex, : len(below)] = below
    at, tokens, live = (
        np.zeros(walks, dtype=np.int64),
        np.zeros(walks, dtype=np.int64),
        np.arange(walks),
    )
    while live.size:
        tokens[live] += 1
        for start in range(0, len(live), _DRAWS_AT_ONCE):
            some = live[start : start + _DRAWS_AT_ONCE]
            drawn = draw(rule, size=len(some), rng=rng)
            hit = np.column_stack(
                [drawn.drafts == drawn.output[:, None], np.ones(len(some), dtype=bool)]
            )
            at[some] = children[at[some], hit.argmax(axis=1)]
        live = live[at[live] >= 0]
    return tokens


def _differences(count: int) -> Floats:
    return np.eye(count) - np.eye(count, k=-1)
