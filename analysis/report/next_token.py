"""Compare coupling schemes on the next-token distributions of a real pair after a prompt."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import otm
from otm._display import tabular
from otm._machine.arrays import to_numpy
from otm._machine.progress import with_progress
from otm.lossy.output import Distortion
from otm.results.statistics import Estimate, t_quantile

from ..models.pair import Pair
from ..models.processing import Setting
from ..run.bound_columns import bounds_table
from ..run.ranks import SIZES, acceptance_by_rank, best_tree, simulated_tokens, upper_with_gradient
from ..statistics import CONFIDENCE

_LIKELY = 5
"""Tokens that are listed."""
_MEANS = ("exact", "lower", "optimum")


@dataclasses.dataclass(frozen=True, eq=False)
class NextToken:
    """Both distributions after a prompt, and the target's likeliest tokens as (token, p, q)."""

    prompt: str
    draft: NDArray[np.float64]
    target: NDArray[np.float64]
    likely: tuple[tuple[str, float, float], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class PromptComparison:
    """The table of schemes after a prompt, with bounds in words."""

    prompt: str
    table: otm.comparison.Comparison
    bounds: str


def next_token(pair: Pair, prompt: str, tokens: Sequence[int], *, setting: Setting) -> NextToken:
    """Return both distributions after a prompt's tokens, in float64 on the pair's device."""
    logits = pair.next_logits(tokens)
    draft, target = (
        to_numpy(side(row.double())) for side, row in zip(setting, logits, strict=True)
    )
    return NextToken(prompt, draft, target, _likely(pair, draft, target))


def compare_next(
    found: Sequence[NextToken], *, k: Sequence[int], samples: int, rng: np.random.Generator
) -> PromptComparison:
    """Compare every scheme that is fast at this vocabulary.

    After several prompts the table holds the means over them, with half-widths in place of the
    bounds.
    """
    tables = [
        otm.compare(draft=one.draft, target=one.target, k=k, samples=samples, rng=rng)
        for one in with_progress(found, "schemes, prompt")
    ]
    if len(found) > 1:
        each = [{(repr(row.law), repr(row.verifier)): row for row in one.rows} for one in tables]
        everywhere = (key for key in each[0] if all(key in one for one in each))
        rows = tuple(_mean_row([one[key] for one in each]) for key in everywhere)
        means = dataclasses.replace(tables[0], rows=rows)
        return PromptComparison(f"the mean over {len(found)} prompts", means, _spread(tables))
    problem = otm.Problem(draft=found[0].draft, target=found[0].target, law=otm.IID(1))
    return PromptComparison(
        prompt=found[0].prompt,
        table=tables[0],
        bounds=bounds_table(problem, k, draws=samples, rng=rng)
        + "\n\n"
        + trees_table(problem, k, draws=samples, rng=rng),
    )


def _spread(tables: Sequence[otm.comparison.Comparison]) -> str:
    """Return the half-widths of the mean optima of i.i.d. drafts over prompts, in words."""
    optima: dict[int, list[float]] = {}
    for table in tables:
        here = {row.law.size: row.optimum for row in table.rows if isinstance(row.law, otm.IID)}
        for size, value in sorted(here.items()):
            if value is not None:
                optima.setdefault(size, []).append(value)
    half = float(t_quantile(len(tables))) / math.sqrt(len(tables))
    said = (f"{half * np.std(row, ddof=1):.3f} at k = {size}" for size, row in optima.items())
    return (
        f"means over {len(tables)} prompts; half-widths of the {CONFIDENCE:.0%} intervals of the "
        "optima, i.i.d. drafts:\n" + ", ".join(said)
    )


def _mean_row(rows: Sequence[otm.comparison.ComparisonRow]) -> otm.comparison.ComparisonRow:
    """Average one scheme's numbers over prompts; a number that some prompt lacks is None."""

    def mean(values: Sequence[float | None]) -> float | None:
        there = [value for value in values if value is not None]
        return float(np.mean(there)) if len(there) == len(values) else None

    numbers: dict[str, Any] = {name: mean([getattr(row, name) for row in rows]) for name in _MEANS}
    sampled = [row.monte_carlo for row in rows if row.monte_carlo is not None]
    if len(sampled) == len(rows):
        value = np.mean([one.value for one in sampled])
        half = np.linalg.norm([one.high - one.low for one in sampled]) / (2 * len(rows))
        together = Estimate(float(value), float(value - half), float(value + half))
    else:
        together = None
    distances = np.array([row.distances for row in rows], dtype=float).mean(axis=0)
    moved = None if rows[0].distortion is None else Distortion(*distances.tolist())
    return dataclasses.replace(rows[0], **numbers, monte_carlo=together, distortion=moved)


def trees_table(
    problem: otm.Problem, ks: Sequence[int], *, draws: int, rng: np.random.Generator
) -> str:
    """Tabulate optimal trees of recursive rejection and a bound, with every vertex as this pair.

    Args:
        problem: the pair.
        ks: numbers of drafts; ranks go to the largest.
        draws: calls to decode for each budget; 0 for none.
        rng: of the draws.
    """
    k = max(ks)
    here = problem.with_law(otm.IID(k))
    means = np.asarray(otm.acceptance_curve(otm.RecursiveRejection(), here, k=range(1, k + 1)))
    vector = acceptance_by_rank(range(1, k + 1), means)
    trees = [best_tree(vector, nodes) for nodes in SIZES]
    rows: list[tuple[str, list[float]]] = [
        ("optimal tree, tokens", [tree.expected_tokens for tree in trees]),
        (
            "no such tree passes (Tunstall)",
            [upper_with_gradient(vector, nodes)[0] for nodes in SIZES],
        ),
    ]
    if draws:
        rule = otm.verbs.prepare(otm.RecursiveRejection(), here)
        told = [simulated_tokens(rule, tree.shape, walks=draws, rng=rng) for tree in trees]
        rows.append((f"decoded {draws:,} times", [float(one.mean()) for one in told]))
        rows.append(
            (
                f"± ({CONFIDENCE:.0%})",
                [float(t_quantile(draws)) * float(one.std()) / math.sqrt(draws) for one in told],
            )
        )
    cells = [
        ("drafted tokens", *map(str, SIZES)),
        *((name, *(f"{value:.3f}" for value in values)) for name, values in rows),
    ]
    lines = [
        f"trees of at most {k} children a vertex, every vertex as here; recursive rejection of "
        "i.i.d. drafts",
        *tabular.columns(cells, right=range(1, 1 + len(SIZES))),
    ]
    return "\n".join(lines)


def _likely(
    pair: Pair, draft: NDArray[np.float64], target: NDArray[np.float64]
) -> tuple[tuple[str, float, float], ...]:
    best = np.argsort(-target, kind="stable")[:_LIKELY]
    return tuple((pair.tokenizer.decode([int(i)]), float(draft[i]), float(target[i])) for i in best)
