"""Checks of a run's columns and trees against the samplers on the same logits.

`measure --check N` compares, at N positions of each shard, every scheme's column with draws of its
sampler, by Clopper–Pearson intervals; and where a scheme accepts by rank, decodes its optimal tree
at that position and compares the tokens with what is expected and with Tunstall's bound, by
empirical Bernstein intervals (Maurer & Pontil 2009). Each misses the truth with probability
`FALSE_ALARM` at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

import otm
from otm.drafts import LAWS
from otm.results.statistics import bernstein_deviation
from otm.table import acceptance_table
from otm.verifiers import VERIFIERS

from ..models.processing import Setting
from .bound_columns import problems
from .ranks import best_tree, by_rank, simulated_tokens, upper_with_gradient

FALSE_ALARM = 1e-9
"""Probability that a check of a right value fails."""

DRAWS = 500
"""Draws of a sampler at each checked position."""

WALKS = 500
"""Calls that are decoded with each tree at each checked position."""

NODES = 8
"""Drafted tokens of these trees."""


@dataclasses.dataclass(frozen=True)
class Checked:
    """Numbers of columns and trees that were compared with samplers, and the failures."""

    positions: int = 0
    comparisons: int = 0
    failures: tuple[str, ...] = ()
    trees: int = 0

    def __add__(self, other: Checked) -> Checked:
        return Checked(
            self.positions + other.positions,
            self.comparisons + other.comparisons,
            self.failures + other.failures,
            self.trees + other.trees,
        )

    def __str__(self) -> str:
        if not self.comparisons:
            return "nothing checked"
        trees = (
            f", {self.trees} trees and their bounds against {WALKS} calls," if self.trees else ","
        )
        said = (
            f"{self.comparisons} closed forms against {DRAWS} draws of their samplers{trees} at "
            f"{self.positions} positions: "
        )
        chance = (
            f"false alarm in {(self.comparisons + self.trees) * FALSE_ALARM:.0e} of such runs at "
            "most"
        )
        return said + (
            f"all agree ({chance})"
            if not self.failures
            else f"{'; '.join(self.failures)} ({chance})"
        )


NOTHING_CHECKED = Checked()


def check_position(
    draft: Any, target: Any, setting: Setting, ks: Sequence[int], *, place: str, seed: Sequence[int]
) -> Checked:
    """Compare every scheme's column and trees at one position with draws of the sampler.

    Args:
        draft, target: logits `(V,)`.
        setting: of the processing.
        ks: numbers of drafts.
        place: the position's name.
        seed: of the draws.
    """
    (problem,) = problems(draft, target, [setting])
    table = acceptance_table(draft=problem.draft, target=problem.target, k=ks)
    rng = np.random.default_rng(seed)
    verifiers = {repr(make()): make() for make in VERIFIERS}
    laws = {law.__name__: law for law in LAWS}
    compared, failures = 0, []
    for column, value in zip(table.columns, table.values, strict=True):
        if (verifier := verifiers.get(column.scheme)) is None or column.definition != "membership":
            continue
        here = problem.with_law(laws[column.law].of_size(column.k))
        found = otm.estimate(verifier, here, samples=DRAWS, rng=rng, confidence=1.0 - FALSE_ALARM)
        compared += 1
        if not found.low - 1e-9 <= float(value) <= found.high + 1e-9:
            failures.append(
                f"{column.name} at {place} is {float(value):.4f}, drawn {found.value:.4f}"
            )
    # Ranks that follow each other: between measured numbers nothing exact is known of one position.
    gapless = [
        [column for rank, column in enumerate(family, start=1) if column.k == rank]
        for family in by_rank(table.columns)
    ]
    families = [family for family in gapless if len(family) > 1]
    for family in families:
        means = np.array([float(table[column.name]) for column in family])
        last = family[-1]
        here = problem.with_law(laws[last.law].of_size(last.k))
        if failure := _check_tree(verifiers[last.scheme], here, means, rng):
            failures.append(f"the tree of {last.label} at {place} {failure}")
    return Checked(1, compared, tuple(failures), len(families))


def _check_tree(
    verifier: otm.Verifier, problem: otm.Problem, means: Any, rng: np.random.Generator
) -> str:
    """Describe the fault in an optimal tree's tokens or bound; empty if both agree with draws."""
    vector = np.maximum(np.diff(means, prepend=0.0), 0.0)
    tree = best_tree(vector, NODES)
    tokens = simulated_tokens(
        otm.verbs.prepare(verifier, problem), tree.shape, walks=WALKS, rng=rng
    )
    mean = float(tokens.mean())
    # half an interval for the mean, missed with `FALSE_ALARM` at most
    half = bernstein_deviation(
        tokens.astype(np.float64), span=tree.shape.depth, uncertainty=FALSE_ALARM / 2.0
    )
    if abs(mean - tree.expected_tokens) > half:
        return f"yields {tree.expected_tokens:.3f} tokens, decoded {mean:.3f} ± {half:.3f}"
    upper, _ = upper_with_gradient(vector, NODES)
    return (
        f"yields at most {upper:.3f} tokens, decoded {mean:.3f} ± {half:.3f}"
        if mean - half > upper
        else ""
    )
