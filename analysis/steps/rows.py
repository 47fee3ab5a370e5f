"""Rows and tables of schemes within budgets of verified nodes, and the best plan of each scheme."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from otm._display.tabular import columns, wrapped
from otm._machine.arrays import Floats

from ..statistics import means_by_group

NOISE_TREE = "tree on shared noise"
BOUND = "at most, by level cuts"
_ENGINES = ("recursive rejection", "chain of argmaxes")
"""What engines run: the first words of the names."""

_NUMBERS = ("mean", "low", "high", "less", "less_low", "less_high")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SchemeRow:
    """A scheme's mean and shortfall against a reference, with 95 % t intervals over contexts.

    Attributes:
        name: the scheme.
        mean, low, high: its mean and interval.
        less, less_low, less_high: the reference's mean minus this one, and its interval.
    """

    name: str
    mean: float
    low: float
    high: float
    less: float
    less_low: float
    less_high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeRow(SchemeRow):
    """Tokens per call of a scheme within a number of nodes.

    Attributes:
        nodes: the budget.
        used: mean number of different nodes.
        plan: what is drafted.
    """

    nodes: int
    used: float
    plan: str


@dataclasses.dataclass(frozen=True)
class NodeTable:
    """Schemes by verified nodes.

    Attributes:
        contexts, texts: their numbers.
        noises: noises of each context.
        overlap: mean Σ min(p, q) after the contexts.
        entropy: mean entropy of the target there, in nats.
        scales: the two scales, each fitted on one half of the contexts and used on the other.
        rows: by budget, then by falling tokens.
    """

    contexts: int
    texts: int
    noises: int
    overlap: float
    entropy: float
    scales: tuple[float, ...]
    rows: tuple[NodeRow, ...]

    def __str__(self) -> str:
        scales = ", ".join(f"{scale:.2f}" for scale in self.scales)
        title = (
            f"{self.contexts} contexts of {self.texts} texts, overlap {self.overlap:.3f}, "
            f"entropy {self.entropy:.2f}" + (f", scales {scales}" if scales else "")
        )
        head = ("tokens per call, nodes:", "", "mean", f"more than {NOISE_TREE}", "plan")
        lines = [
            (
                row.name,
                str(row.nodes),
                f"{row.mean:.3f} [{row.low:.3f}, {row.high:.3f}]",
                ""
                if row.name == NOISE_TREE
                else f"{-row.less:+.3f} [{-row.less_high:+.3f}, {-row.less_low:+.3f}]",
                f"{row.plan}, {row.used:.1f} nodes",
            )
            for row in self.rows
        ]
        most = [row for row in self.rows if row.nodes == self.rows[-1].nodes]
        found = conclusion([(row.name, row.mean, row.high - row.mean) for row in most])
        return "\n".join([title, *columns([head, *lines], right=(1, 2, 3)), "", found])


def conclusion(rows: Sequence[tuple[str, float, float]], unit: str = "tokens per call") -> str:
    """Return the best of rows (name, mean, half-width), and its gain over what engines run."""
    best = max((row for row in rows if row[0] != BOUND), key=lambda row: row[1])
    runs = next((row for row in rows if row[0].startswith(_ENGINES)), best)
    said = f"BEST: {best[0]}, {best[1]:.3f} {unit}"
    if runs == best:
        return f"{said}."
    gain, sure = best[1] - runs[1], np.hypot(best[2], runs[2])
    worth = "worth a trial" if gain > sure else "not sure; measure more contexts (--num-contexts)"
    over = f"{gain:+.3f} ({100 * gain / runs[1]:+.1f} %) over {runs[0]}, which engines run"
    return "\n".join(wrapped(f"{said}, {over}: {worth}."))


@dataclasses.dataclass(frozen=True, eq=False)
class ChosenPlan:
    """The plan of a scheme within a budget.

    Attributes:
        used: mean number of different nodes.
        plan: in words.
        tokens: per call, by context.
    """

    used: float
    plan: str
    tokens: Floats


def rows_within(
    budget: int, chosen: dict[str, ChosenPlan], reference: str, texts: Sequence[int]
) -> list[NodeRow]:
    """Return the rows of a budget by falling tokens, each compared with the reference scheme.

    Contexts of one text count as one group.
    """
    rows = [
        NodeRow(
            name=name,
            nodes=budget,
            used=one.used,
            plan=one.plan,
            **against(one.tokens, chosen[reference].tokens, texts),
        )
        for name, one in chosen.items()
    ]
    return sorted(rows, key=lambda row: -row.mean)


def against(
    tokens: Floats, reference: Floats, texts: Sequence[int] | None = None
) -> dict[str, float]:
    """Return the numbers of a `SchemeRow` from tokens and reference tokens by context.

    Intervals are over texts; with None each context is a text of its own.

    >>> import numpy as np
    >>> found = against(np.array([1.0, 2.0]), np.array([2.0, 2.0]))
    >>> found["mean"], found["less"]
    (1.5, 0.5)
    """
    both = np.stack([tokens, reference - tokens], axis=1)
    whose = range(len(both)) if texts is None else texts
    means = means_by_group(both, np.ones_like(both), whose)
    ends = np.stack([means.value, means.low, means.high], axis=1)
    return dict(zip(_NUMBERS, ends.ravel().tolist(), strict=True))


def best_within(numbers: Sequence[int], nodes: Floats, tokens: Floats, budget: int) -> ChosenPlan:
    """Return the best K sequences of L tokens within a budget of mean different nodes.

    For each length the number of sequences is the largest within the budget, and the next larger
    one for as many steps as the budget allows.

    Args:
        numbers: K, ascending from 1.
        nodes: `(contexts, K, L)` different nodes.
        tokens: `(contexts, K, L)` per call, NaN where there is no such plan.
        budget: at least 1, so that one draft fits.
    """
    return max(
        _plans(numbers, nodes.mean(axis=0), tokens, budget), key=lambda one: one.tokens.mean()
    )


def _plans(
    numbers: Sequence[int], used: Floats, tokens: Floats, budget: int
) -> Iterable[ChosenPlan]:
    """Yield the plan that fills the budget for each length."""
    for level in range(used.shape[1]):
        there = [i for i in range(len(numbers)) if not np.isnan(tokens[0, i, level])]
        fitting = [i for i in there if used[i, level] <= budget]
        if not fitting:
            continue
        low = fitting[-1]
        high = next((i for i in there if i > low), low)
        first, second = float(used[low, level]), float(used[high, level])
        part = 0.0 if high == low else (budget - first) / (second - first)
        more = f" to {numbers[high]}" if part > 0 else ""
        yield ChosenPlan(
            first + part * (second - first),
            f"K = {numbers[low]}{more}, L = {level + 1}",
            (1.0 - part) * tokens[:, low, level] + part * tokens[:, high, level],
        )
