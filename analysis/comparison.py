"""Compare coupling schemes on the next-token distributions of a real pair after a prompt."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import otm
from analysis.models import Pair, probabilities, to_numpy


@dataclasses.dataclass(frozen=True, eq=False)
class PromptComparison:
    """The two distributions after a prompt and the table of schemes on them."""

    prompt: str
    draft: NDArray[np.float64]
    target: NDArray[np.float64]
    table: otm.Comparison
    likely: tuple[tuple[str, float, float], ...]


def compare_prompt(
    pair: Pair,
    prompt: str,
    *,
    k: Sequence[int],
    temperature: float,
    top_p: float | None,
    samples: int,
    rng: np.random.Generator,
) -> PromptComparison:
    """Take both next-token distributions at full vocabulary and compare every scheme that reaches it.

    The distributions are computed in float64 on the pair's device; the table is computed on the host, once per prompt.
    """
    logits = pair.next_logits(pair.encode(prompt))
    draft, target = (to_numpy(probabilities(row, temperature=temperature, top_p=top_p)) for row in logits)
    table = otm.compare(draft=draft, target=target, k=k, samples=samples, rng=rng)
    return PromptComparison(prompt=prompt, draft=draft, target=target, table=table, likely=_likely(pair, draft, target))


def _likely(
    pair: Pair, draft: NDArray[np.float64], target: NDArray[np.float64], count: int = 5
) -> tuple[tuple[str, float, float], ...]:
    best = np.argsort(-target, kind="stable")[:count]
    return tuple((pair.tokenizer.decode([int(i)]), float(draft[i]), float(target[i])) for i in best)


def plot_comparison(result: PromptComparison, path: Path) -> None:
    """Plot acceptance against k for every scheme of the table, the optimum of each law on top."""
    from figures.style import PALETTE, figure, save_single

    canvas, axes = figure(width=6.4, height=4.2)
    schemes: dict[str, list[tuple[int, float]]] = {}
    optima: dict[str, dict[int, float]] = {}
    for row in result.table.rows:
        if row.optimum is not None:
            optima.setdefault(type(row.law).__name__, {})[row.law.k] = row.optimum
        if row.exact is not None:
            name = f"{type(row.verifier).__name__} · {type(row.law).__name__}"
            schemes.setdefault(name, []).append((row.law.k, row.exact))
    for number, (law, curve) in enumerate(sorted(optima.items())):
        axes.plot(
            list(curve),
            list(curve.values()),
            color="black",
            lw=2,
            ls=("-", "--", ":", "-.")[number % 4],
            label=f"optimum · {law}",
        )
    for number, (name, points) in enumerate(schemes.items()):
        axes.plot(
            *zip(*points, strict=True),
            marker="os^Dv<>P*X"[number % 10],
            ms=5,
            lw=1.2,
            color=PALETTE[number % len(PALETTE)],
            label=name,
        )
    ks = sorted({row.law.k for row in result.table.rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.set_xlabel("number of drafts k")
    axes.set_ylabel("acceptance probability")
    axes.set_title(f"“{_shorten(result.prompt)}”", fontsize=9)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    save_single(canvas, path)


def _shorten(text: str, length: int = 70) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
