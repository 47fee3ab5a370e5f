"""One look for every picture: legible at column width, safe for colour-blind readers, text as vectors. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from otm.drafts import LAWS

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

# Okabe & Ito's palette, distinguishable under the common colour deficiencies; black is kept for optima.
PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#6A3D9A",
    "#8C564B",
    "#555555",
    "#117733",
    "#882255",
    "#999933",
)
# Told apart without colour, which is for verifiers.
LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (4, 1.5, 1, 1.5)), (0, (8, 2)), (0, (4, 1.5, 1, 1.5, 1, 1.5)))
LAW_LINES = {law.__name__: LINES[number % len(LINES)] for number, law in enumerate(LAWS)}
"""The line style of each draft law, by its name, in every figure that shows several."""
MARKERS = "osD^vP<>X*"
FORMATS = ("pdf", "svg", "png")

STYLE: dict[RcKeyType, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,  # TrueType outlines: text stays selectable and scales
    "svg.fonttype": "path",
    "svg.hashsalt": "otm",  # the same data gives the same file
    "savefig.bbox": "tight",
    "savefig.dpi": 160,
}
"""What every picture shares; in force inside `style`, so that importing this changes nobody's settings."""


def style() -> AbstractContextManager[None]:
    """Return a context in which pictures are drawn and saved in one look."""
    return mpl.rc_context(STYLE)


def figure(*, width: float = 5.6, height: float = 3.8, columns: int = 1) -> tuple[Figure, Any]:
    """Return a figure and its axes (an array of axes for several columns), sizes in inches."""
    canvas = Figure(figsize=(width, height), layout="constrained")
    return canvas, canvas.subplots(1, columns)


def save(canvas: Figure, folder: Path, name: str) -> list[Path]:
    """Write one figure in every format; metadata carries no date, so that equal data gives equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [save_single(canvas, folder / f"{name}.{suffix}") for suffix in FORMATS]


def save_single(canvas: Figure, path: Path) -> Path:
    """Write one figure in the format that its suffix names."""
    dateless = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(path.suffix[1:], {})
    canvas.savefig(path, metadata=dateless)
    return path


def points(axes: Axes, x: Sequence[float], estimates: Sequence[dict[str, float]], *, colour: str, marker: str = "o") -> None:
    """Draw Monte Carlo means with their intervals as error bars."""
    mean = np.array([e["mean"] for e in estimates])
    low = np.array([e["low"] for e in estimates])
    high = np.array([e["high"] for e in estimates])
    axes.errorbar(
        x, mean, yerr=[mean - low, high - mean], fmt=marker, color=colour, ms=4, lw=0, elinewidth=1.1, capsize=2.2, mfc="white"
    )


def probability_axis(axes: Axes, *, low: float = 0.0) -> None:
    """Label the y axis as an acceptance probability in [low, 1]."""
    axes.set_ylim(low, 1.02)
    axes.set_ylabel("acceptance probability")
