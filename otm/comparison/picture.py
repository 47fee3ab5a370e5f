"""The picture of a comparison: acceptance against k."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from otm import drawing
from otm.comparison.rows import SAME, ComparisonRow, distinct
from otm.comparison.tables import nan_for_none, short_name, sorted_out, value_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_LABEL = 28


def draw(ax: Axes, rows: Sequence[ComparisonRow], *, folded: bool) -> None:
    """Draw acceptance against k under the first law: the optimum and the best five, equal curves as
    one.

    Args:
        ax: where.
        rows: of one law at least.
        folded: whether schemes that run along the optimum, or have one value only, are left out.
    """
    (law, exact, lossy), *others = sorted_out(rows)
    optimum = {row.law.k: row.optimum for row in rows if type(row.law) is law}
    ks = list(optimum)
    best = [nan_for_none(optimum[k]) for k in ks]
    lines = [drawing.Line("optimum", ks, best, best=True)]
    curves = _curves(exact, ks) + ([] if folded else _curves(lossy, ks, ", lossy"))
    curves.sort(key=lambda line: -float(np.nanmean(line.y)))
    if folded:  # nobody asked for a scheme of one k, or for one that runs along the optimum
        attaining = [line for line in curves if np.allclose(line.y, best, rtol=0, atol=SAME)]
        lines[0] = dataclasses.replace(
            lines[0], label="optimum, attained" if attaining else "optimum"
        )
        curves = [
            line
            for line in curves
            if line not in attaining and np.isfinite(line.y).sum() > (len(ks) > 1)
        ]
    lines += curves[: drawing.MOST_LINES - 1]
    drawing.draw_lines(ax, lines, xlabel="number of drafts k", ticks=ks)
    beside = f" (the first of {1 + len(others)} laws)" if others else ""
    ax.set_title(f"{law.title} drafts{beside}", fontsize=10)


def _curves(
    rows: Sequence[ComparisonRow], ks: Sequence[int], remark: str = ""
) -> list[drawing.Line]:
    """Return a line for each verifier; verifiers that agree everywhere share one."""
    lines: list[drawing.Line] = []
    for verifier in distinct(row.verifier for row in rows):
        mine = {row.law.k: row for row in rows if row.verifier == verifier}
        found = [mine.get(k) for k in ks]
        sampled = [
            row.monte_carlo if row is not None and row.exact is None else None for row in found
        ]
        y = [
            float("nan") if row is None or value_of(row) is None else float(value_of(row))
            for row in found
        ]  # type: ignore[arg-type]
        low = [float("nan") if e is None else e.low for e in sampled]
        high = [float("nan") if e is None else e.high for e in sampled]
        if np.isfinite(y).any():
            lines.append(drawing.Line(short_name(verifier) + remark, list(ks), y, low, high))
    lines.sort(key=lambda line: -int(np.isfinite(line.y).sum()))  # those known everywhere first
    kept: list[drawing.Line] = []
    for line in lines:
        same = next((i for i, other in enumerate(kept) if _covers(other, line)), None)
        if same is None:
            kept.append(line)
        elif len(kept[same].label) + len(line.label) < _LONGEST_LABEL:
            kept[same] = dataclasses.replace(kept[same], label=f"{kept[same].label}, {line.label}")
    return kept


def _covers(line: drawing.Line, other: drawing.Line) -> bool:
    """Whether a line runs through all the points of another."""
    known = np.isfinite(other.y)
    return bool(
        np.allclose(np.asarray(line.y)[known], np.asarray(other.y)[known], rtol=0, atol=SAME)
    )
