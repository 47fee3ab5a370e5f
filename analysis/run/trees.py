"""What trees of a run's drafts yield, and what no tree can: optimal trees by drafted tokens beside Tunstall's bound.

Where accept events are nested in k, the child of rank i is accepted with probability A(i) = α_i − α_{i−1}, α_k the mean acceptance
of k drafts. Vertices are taken as independent, each with this vector; ranks go as far as numbers of drafts were measured without
gap. Then the optimal tree of N drafted tokens and `otm.trees.tunstall_minimum_upper` for every tree of N, any mass beyond those
ranks spread as well as can be, are functions of the means, and their intervals over prompts follow from the covariance of these
(delta method, of the logarithm). There is no lower bound beside them: the optimal tree is exact.

`measure --bounds` writes them to `trees.json` in the run's folder, from all shards that are finished; `--check` decodes such
trees with the samplers at the positions that it looks at.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy
from numpy.typing import NDArray

import otm
from otm.trees import OptimalTree, TreeShape, entropy_bits, optimal_tree, rejected_mass, tree_program, tunstall_minimum_upper
from otm.trees.vector import NESTED
from otm.verbs import run as draw

from ..files import write_json
from ..layout import TREES
from ..statistics import CONFIDENCE, Floats, clustered_covariance, clustered_means
from .manifest import Manifest
from .shards import column_of_today, shard_files

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Drafted tokens of a call."""

SETTING_COLUMNS = ("temperature", "top_p", "draft_temperature", "draft_top_p")

_NESTED = {verifier.__name__ for verifier in NESTED}
_NESTED_LAWS = ("IID", "WithoutReplacement", "TopK")
_CLUSTERS = 512
_ROWS_AT_ONCE = 1 << 14
_DRAWS_AT_ONCE = 500


@dataclasses.dataclass(frozen=True)
class Column:
    """What `by_rank` asks of a column of schemes; `otm.table.TableColumn` and a report's have it, too."""

    name: str
    scheme: str
    label: str
    law: str
    k: int
    definition: str


@dataclasses.dataclass(frozen=True)
class Value:
    """A number with its interval over prompts; None where a single prompt is all there is, or the number is infinite."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        sure = "" if self.low is None or self.high is None else f" ({self.low:.3f} to {self.high:.3f})"
        return f"{self.value:.3f}{sure}"


@dataclasses.dataclass(frozen=True)
class TreeRow:
    """The best tree of a budget of drafted tokens, and what no tree of it passes.

    Attributes:
        nodes: the budget.
        depth: of the optimal tree.
        tokens: per target call, with the optimal tree.
        upper: Tunstall's bound.
    """

    nodes: int
    depth: int
    tokens: Value
    upper: Value


@dataclasses.dataclass(frozen=True)
class SchemeTrees:
    """The trees of one scheme under one setting.

    Attributes:
        scheme, law, label: as the columns of the run.
        acceptance: A, by rank.
        rows: by budget, ascending.
    """

    scheme: str
    law: str
    label: str
    acceptance: tuple[float, ...]
    rows: tuple[TreeRow, ...]


@dataclasses.dataclass(frozen=True)
class SettingTrees:
    """The trees under one setting of sampling, the schemes whose largest tree yields most first."""

    setting: Mapping[str, float]
    positions: int
    prompts: int
    schemes: tuple[SchemeTrees, ...]

    def __str__(self) -> str:
        best = self.schemes[0]
        at = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in self.setting.items())
        lines = [
            f"trees    {at}: {best.label}, ranks 1 to {len(best.acceptance)},",
            f"         every vertex as the mean of {self.positions:,} positions",
            f"{'drafted tokens':>16}{'optimal tree, tokens a call':>34}{'any tree, at most (Tunstall)':>34}",
            *(f"{row.nodes:16}{row.tokens!s:>34}{row.upper!s:>34}" for row in best.rows),
        ]
        return "\n".join(lines)


def accepts_by_rank(scheme: str, law: str, definition: str) -> bool:
    """Return whether a scheme's accept events are nested in k, so that differences of its acceptance are those of ranks."""
    return scheme.partition("(")[0] in _NESTED and law in _NESTED_LAWS and definition == "membership"


def by_rank(columns: Iterable[Any]) -> list[list[Any]]:
    """Return the columns of each scheme that accepts by rank, for k = 1, 2, … without gap; two of them at least."""
    families: dict[tuple[str, str], dict[int, Any]] = {}
    for column in columns:
        if accepts_by_rank(column.scheme, column.law, column.definition):
            families.setdefault((column.scheme, column.law), {})[column.k] = column
    gapless = (
        [each[k] for k in range(1, 1 + len(each)) if all(j in each for j in range(1, k + 1))] for each in families.values()
    )
    return [family for family in gapless if len(family) > 1]


def best_tree(vector: Floats, nodes: int) -> OptimalTree:
    """Return the tree of a budget with the most expected tokens, whatever the order of the vector."""
    falling = bool((np.diff(vector) <= 0).all())
    return optimal_tree(vector, num_nodes=nodes) if falling else tree_program(vector, num_nodes=nodes)


def rank_powers(shape: TreeShape, width: int) -> Floats:
    """Return how often each rank stands on the path to each drafted vertex, `(n, width)`.

    >>> rank_powers(TreeShape([0, 0, 2]), 2).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    powers = np.zeros((shape.num_nodes + 1, width))
    children: NDArray[np.int64] = np.zeros(shape.num_nodes + 1, dtype=np.int64)
    for vertex, parent in enumerate(shape.parents.tolist(), start=1):
        powers[vertex] = powers[parent]
        powers[vertex, children[parent]] += 1.0
        children[parent] += 1
    return powers[1:]


def tree_rows(means: Floats, covariance: Floats, clusters: int) -> tuple[TreeRow, ...]:
    """Return the optimal tree and the bound of every budget.

    Args:
        means: α_1, …, α_K, `(K,)`.
        covariance: of these over prompts, `(K, K)`; NaN with one prompt.
        clusters: of how many prompts.
    """
    vector = np.maximum(np.diff(means, prepend=0.0), 0.0)
    differences = np.eye(len(means)) - np.eye(len(means), k=-1)
    spread = differences @ covariance @ differences.T  # of A
    quantile = float(scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, max(1, clusters - 1)))

    def value(number: float, gradient: Floats) -> Value:
        variance = float(gradient @ spread @ gradient)
        if not (math.isfinite(variance) and math.isfinite(number)):
            return Value(number, None, None)
        factor = math.exp(quantile * math.sqrt(max(0.0, variance)) / number)
        return Value(number, max(1.0, number / factor), number * factor)

    rows = []
    for nodes in SIZES:
        tree = best_tree(vector, nodes)
        upper, gradient = upper_with_gradient(vector, nodes)
        tokens = value(tree.expected_tokens, tokens_gradient(vector, tree))
        rows.append(TreeRow(nodes, tree.shape.depth, tokens, value(upper, gradient)))
    return tuple(rows)


def tokens_gradient(vector: Floats, tree: OptimalTree) -> Floats:
    """Return the derivative of a tree's expected tokens by A, `(K,)`; 0 by what is never accepted."""
    total = rank_powers(tree.shape, len(vector)).T @ tree.acceptance[1:]
    return np.divide(total, vector, out=np.zeros_like(vector), where=vector > 0)


def upper_with_gradient(vector: Floats, nodes: int) -> tuple[float, Floats]:
    """Return Tunstall's bound for trees of no more children than vertices, and its derivative by A, `(K,)`.

    The mass that these leave open is spread as well as can be; at the best spread the derivative by it vanishes.
    """
    explored = vector[:nodes]
    found = tunstall_minimum_upper(explored, num_nodes=nodes, num_explored=len(explored))
    rest, gradient = rejected_mass(explored), np.zeros_like(vector)
    if math.isinf(found.num_extra):  # the plateau 1/rest
        gradient[:nodes] = found.value / rest
    elif math.isfinite(found.value):
        # log₂ L/H at fixed L: −log₂ L/H² dH, and dH/dA = log₂ of what a symbol of the rest has over A.
        share = rest / found.num_extra if rest else 1.0
        used = explored > 0
        surprise = np.where(used, math.log2(share) - np.log2(np.where(used, explored, 1.0)), 0.0)
        gradient[:nodes] = -found.value / (entropy_bits(explored) - rest * math.log2(share)) * surprise
    return found.value, gradient


def simulated_tokens(rule: otm.verifiers.Rule, shape: TreeShape, *, walks: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the tokens of calls whose every vertex is verified by draws of a rule, `(walks,)`.

    Args:
        rule: prepared for a law of at least as many drafts as a vertex has children.
        shape: the tree.
        walks: how many calls.
        rng: of the draws.
    """
    k = rule.problem.law.k
    children = np.full((shape.num_nodes + 1, k + 1), -1)
    for vertex in range(shape.num_nodes + 1):
        below = shape.children(vertex)
        children[vertex, : len(below)] = below
    at, tokens, live = np.zeros(walks, dtype=np.int64), np.zeros(walks, dtype=np.int64), np.arange(walks)
    while live.size:
        tokens[live] += 1
        for start in range(0, len(live), _DRAWS_AT_ONCE):
            some = live[start : start + _DRAWS_AT_ONCE]
            drawn = draw(rule, size=len(some), rng=rng)
            hit = np.column_stack([drawn.drafts == drawn.output[:, None], np.ones(len(some), dtype=bool)])
            at[some] = children[at[some], hit.argmax(axis=1)]
        live = live[at[live] >= 0]
    return tokens


def trees_of_run(out: Path, manifest: Manifest) -> tuple[SettingTrees, ...]:
    """Return the trees of every setting, from the finished shards of a run; nothing where no scheme accepts by rank.

    Cost: one pass over those columns, some rows in memory at a time.
    """
    others = [field.name for field in dataclasses.fields(Column) if field.name != "name"]
    families = by_rank([Column(entry["column"], *(entry[name] for name in others)) for entry in manifest["schemes"]])
    names = [column.name for family in families for column in family]
    sums: dict[tuple[tuple[str, float], ...], tuple[Floats, Floats]] = {}
    for path in shard_files(out).values() if names else ():
        with pq.ParquetFile(path, pre_buffer=False) as shard:
            stored = {column_of_today(name): name for name in shard.schema_arrow.names}
            keys = [name for name in SETTING_COLUMNS if name in stored]
            for batch in shard.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[stored[n] for n in ("prompt", *keys, *names)]):
                values = {name: np.asarray(batch.column(stored[name])) for name in ("prompt", *keys, *names)}
                _add(sums, values, keys, names)
    found = []
    for key, (total, counts) in sorted(sums.items()):
        means, covariance = clustered_means(total, counts).mean, clustered_covariance(total, counts)
        clusters, place, schemes = int((counts[:, 0] > 0).sum()), 0, []
        for family in families:
            part = slice(place, place := place + len(family))
            rows = tree_rows(means[part], covariance[part, part], clusters)
            vector = np.maximum(np.diff(means[part], prepend=0.0), 0.0).tolist()
            schemes.append(SchemeTrees(family[0].scheme, family[0].law, family[0].label, tuple(vector), rows))
        schemes.sort(key=lambda one: -one.rows[-1].tokens.value)
        found.append(SettingTrees(dict(key), int(counts[:, 0].sum()), clusters, tuple(schemes)))
    return tuple(found)


def _add(
    sums: dict[tuple[tuple[str, float], ...], tuple[Floats, Floats]],
    values: Mapping[str, NDArray[Any]],
    keys: Sequence[str],
    names: Sequence[str],
) -> None:
    settings, where = np.unique(np.stack([values[name] for name in keys], axis=1), axis=0, return_inverse=True)
    rows = np.stack([values[name] for name in names], axis=1)
    for number, setting in enumerate(settings.tolist()):
        mine = where.reshape(-1) == number
        key = tuple(zip(keys, setting, strict=True))
        total, counts = sums.setdefault(key, (np.zeros((_CLUSTERS, len(names))), np.zeros((_CLUSTERS, len(names)))))
        cluster = values["prompt"][mine] % _CLUSTERS
        np.add.at(total, cluster, rows[mine])
        np.add.at(counts, cluster, 1.0)


def write_trees(out: Path, manifest: Manifest) -> tuple[SettingTrees, ...]:
    """Write the trees of a run that asked for bounds to its folder, and return them."""
    found = trees_of_run(out, manifest) if manifest["settings"].get("bounds") else ()
    about = {"format": "otm.trees", "version": 1, "confidence": CONFIDENCE, "shards": len(shard_files(out))}
    if found:
        write_json(out / TREES, about | {"settings": [_finite(dataclasses.asdict(one)) for one in found]})
    return found


def _finite(value: Any) -> Any:
    """Return JSON values with None for what is infinite."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def trees_table(problem: otm.Problem, ks: Sequence[int], *, draws: int, rng: np.random.Generator) -> str:
    """Return the optimal trees of recursive rejection and the bound as text, were every vertex as this pair of distributions.

    Args:
        problem: the pair.
        ks: numbers of drafts; ranks go to the largest.
        draws: calls to decode for each budget; 0 for none.
        rng: of the draws.
    """
    k = max(ks)
    here = problem.with_law(otm.IID(k))
    means = np.asarray(otm.acceptance_curve(otm.RecursiveRejection(), here, k=range(1, k + 1)))
    vector = np.maximum(np.diff(means, prepend=0.0), 0.0)
    trees = [best_tree(vector, nodes) for nodes in SIZES]
    lines = [
        f"trees of at most {k} children a vertex, every vertex as here; recursive rejection of i.i.d. drafts",
        f"{'drafted tokens':25}" + "".join(f"{nodes:8}" for nodes in SIZES),
        f"{'optimal tree, tokens':25}" + "".join(f"{tree.expected_tokens:8.3f}" for tree in trees),
        f"{'any tree (Tunstall)':25}" + "".join(f"{upper_with_gradient(vector, nodes)[0]:8.3f}" for nodes in SIZES),
    ]
    if draws:
        rule = otm.verbs.prepare(otm.RecursiveRejection(), here)
        told = [simulated_tokens(rule, tree.shape, walks=draws, rng=rng) for tree in trees]
        half = [1.96 * float(one.std()) / math.sqrt(draws) for one in told]
        lines.append(f"{f'decoded {draws:,} times':25}" + "".join(f"{one.mean():8.3f}" for one in told))
        lines.append(f"{'± (95 %)':25}" + "".join(f"{one:8.3f}" for one in half))
    return "\n".join(lines)
