"""The building blocks of the library's pictures, in one look that is safe for colour-blind readers.

All data to draw are plain numbers: `otm.plot`, the results' own `plot()` and the figures all draw
with these parts. matplotlib is loaded when something is drawn, not before.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from otm.errors import InvalidParameter, MissingPackage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

# Okabe & Ito's palette, distinguishable under the common colour deficiencies; black is kept for
# optima.
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
LINES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1.5, 1.5)),
    (0, (4, 1.5, 1, 1.5)),
    (0, (8, 2)),
    (0, (4, 1.5, 1, 1.5, 1, 1.5)),
)
DASHED = (0, (4, 2))
"""Dashes of a line beside a solid line of the same colour."""
_WIDTH = 5.6
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
"""The common style of all pictures; in force inside `style`, so that an import changes nobody's
settings.
"""


def style() -> AbstractContextManager[None]:
    """Return a context in which pictures are drawn and saved in the library's look."""
    return matplotlib_module("matplotlib").rc_context(STYLE)  # type: ignore[no-any-return]


def figure(*, width: float = _WIDTH, height: float = 3.8) -> tuple[Figure, Axes]:
    """Return a figure and the axes inside, sizes in inches."""
    canvas = matplotlib_module("matplotlib.figure").Figure(
        figsize=(width, height), layout="constrained"
    )
    return canvas, canvas.subplots()


def note(canvas: Figure, text: str) -> None:
    """Explain the points of a figure in a line below; newlines are kept."""
    canvas.supxlabel(text, fontsize=7.5, color="#555555")


def save(canvas: Figure, folder: Path, name: str) -> list[Path]:
    """Write one figure in every format, without a date: equal data gives equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [save_single(canvas, folder / f"{name}.{suffix}") for suffix in FORMATS]


def save_single(canvas: Figure, path: Path) -> Path:
    """Write one figure in the format of the path's suffix."""
    dateless = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(path.suffix[1:], {})
    canvas.savefig(path, metadata=dateless)
    if path.suffix == ".png":  # a palette takes a third of the bytes
        image = importlib.import_module("PIL.Image").open(path)
        image.convert("RGB").quantize(256).save(path, optimize=True, dpi=image.info["dpi"])
    return path


def points(
    axes: Axes,
    x: Sequence[float],
    estimates: Sequence[dict[str, float]],
    *,
    colour: str,
    marker: str = "o",
) -> None:
    """Draw Monte Carlo means with confidence intervals as error bars."""
    mean, low, high = np.array([(e["mean"], e["low"], e["high"]) for e in estimates]).T
    axes.errorbar(
        x,
        mean,
        yerr=[mean - low, high - mean],
        fmt=marker,
        color=colour,
        ms=4,
        lw=0,
        elinewidth=1.1,
        capsize=2.2,
        mfc="white",
    )


def probability_axis(axes: Axes, *, low: float = 0.0) -> None:
    """Label the y axis as an acceptance probability in [low, 1]."""
    axes.set_ylim(low, 1.02)
    axes.set_ylabel("acceptance probability")


MOST_LINES: Final = 6
"""Lines in one panel, with the optimum's: more could not be labelled, nor told apart without
colour.
"""

INK, PALE, SHADE, QUIET = "#222222", "#E8E8E8", "#BBD7EA", "#6B6B6B"
SERIES: Final = ("#0072B2", "#D55E00", "#009E73", "#882255", "#6A3D9A")
"""The colours of the palette that are also legible as text on white."""

MOST_BARS: Final = 12
_NOTHING: Final = 1e-9
_LABEL: Final = 8.5
_LEADING: Final = 1.25
_NEAR: Final = 12.0
"""Points between a line's end and the edge of the axes that need no tie."""
_BESIDE: Final = 6.0


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a panel.

    Attributes:
        label: what stands at its end.
        x, y: its points, NaN where there is none.
        low, high: ends of intervals about the points that have one, NaN elsewhere; None if none
            has.
        best: whether it is the optimum, which is black and thick.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float] | NDArray[np.float64]
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    best: bool = False


def matplotlib_module(name: str) -> Any:
    """Import a module of matplotlib, or raise `MissingPackage`."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "Pictures need matplotlib, which is not installed. Run `pip install matplotlib`."
        ) from error


def axes_or_new(ax: object, *, height: float = 3.6) -> Axes:
    """Return the given axes, or the axes of a new figure in the library's look.

    Raises:
        InvalidParameter: if `ax` is neither axes nor None. MissingPackage: without matplotlib.
    """
    kind = matplotlib_module("matplotlib.axes").Axes
    if ax is None:
        # Outside the style: the first figure loads a notebook's backend, which sets what later ones
        # are shown by.
        canvas = matplotlib_module("matplotlib.pyplot").figure(
            figsize=(_WIDTH, height), layout="constrained"
        )
        with style():
            return canvas.subplots()  # type: ignore[no-any-return]
    if not isinstance(ax, kind):
        raise InvalidParameter(
            f"ax must be matplotlib axes, as plt.subplots() gives them; got {ax!r:.80}. Leave it "
            "out for new ones."
        )
    return ax  # type: ignore[no-any-return]


def draw_lines(
    ax: Axes,
    lines: Sequence[Line],
    *,
    xlabel: str,
    ylabel: str = "acceptance",
    ticks: Sequence[float] = (),
) -> None:
    """Draw up to `MOST_LINES` lines, labelled at the right; hollow markers with bars are
    estimates.
    """
    if len(lines) > MOST_LINES:
        raise InvalidParameter(
            f"A panel holds at most {MOST_LINES} lines, labelled where they end; got {len(lines)}. "
            "Name fewer."
        )
    ends, number = [], 0
    for line in lines:
        colour = INK if line.best else SERIES[number % len(SERIES)]
        look = LINES[0] if line.best else LINES[(number + 1) % len(LINES)]
        marker = MARKERS[number % len(MARKERS)]
        number += not line.best
        x, y, low, high = (  # None becomes NaN
            np.asarray(part, dtype=float) for part in (line.x, line.y, line.low, line.high)
        )
        known = np.isfinite(y)
        ax.plot(
            x[known],
            y[known],
            color=colour,
            ls=look,
            lw=2.4 if line.best else 1.5,
            zorder=3 if line.best else 2,
        )
        estimated = known & np.isfinite(low)
        if not line.best:
            ax.plot(
                x[known & ~estimated],
                y[known & ~estimated],
                color=colour,
                marker=marker,
                ls="none",
                ms=4.5,
            )
        if estimated.any():
            bars = np.stack([y - low, high - y])[:, estimated]
            ax.errorbar(
                x[estimated],
                y[estimated],
                yerr=bars,
                fmt=marker,
                color=colour,
                mfc="white",
                ms=5,
                capsize=2.5,
                lw=0,
                elinewidth=1.2,
            )
        if known.any():
            last = np.flatnonzero(known)[-1]
            ends.append((float(x[last]), float(y[last]), line.label, colour))
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if ticks:
        ax.set_xticks(list(ticks))
    ax.margins(x=0.03)
    label_points(ax, ends)


def label_points(ax: Axes, points_: Sequence[tuple[float, float, str, str]]) -> None:
    """Label each point (x, y, text, colour) beside the axes, so that no label covers another.

    A label that stands away from its point is tied to it by a thin line.
    """
    if not points_:
        return
    ax.autoscale_view()
    figure_ = ax.get_figure(root=True)
    assert figure_ is not None
    in_points = 72.0 / figure_.dpi
    frame = ax.get_window_extent()
    heights = (
        np.array([float(ax.transData.transform((x, y))[1]) - frame.y0 for x, y, _, _ in points_])
        * in_points
    )
    order = np.argsort(heights, kind="stable")
    placed = np.empty(len(heights))
    placed[order] = spread(heights[order], _LABEL * _LEADING)
    for (x, y, text, colour), at, wanted in zip(points_, placed, heights, strict=True):
        away = (frame.x1 - float(ax.transData.transform((x, y))[0])) * in_points > _NEAR or abs(
            at - wanted
        ) > 0.5 * _LABEL
        ax.annotate(
            plain(text),
            (x, y),
            xytext=(1.0 + _BESIDE / (frame.width * in_points), at / (frame.height * in_points)),
            textcoords="axes fraction",
            va="center",
            fontsize=_LABEL,
            color=colour,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkA": 0, "shrinkB": 2}
            if away
            else None,
        )


def plain(text: str) -> str:
    """Escape dollar signs in a name, so that matplotlib starts no formula."""
    return text.replace("$", r"\$")


def spread(wanted: NDArray[np.float64], apart: float) -> NDArray[np.float64]:
    """Return heights at least `apart` from each other, as near to the wanted heights as possible.

    After subtraction of the steps this is an isotonic regression.

    >>> import numpy as np
    >>> spread(np.array([0.0, 1.0, 10.0]), 4.0).tolist()
    [-1.5, 2.5, 10.0]
    """
    steps = apart * np.arange(len(wanted))
    return np.asarray(scipy.optimize.isotonic_regression(wanted - steps).x + steps)


def draw_bars(
    ax: Axes, names: Sequence[str], values: Sequence[float], *, xlabel: str, digits: int = 4
) -> None:
    """Draw horizontal bars from the top down, each with name and number."""
    place = np.arange(len(names))[::-1]
    ax.barh(place, values, height=0.62, color=SERIES[0])
    ax.set_yticks(place, list(names))
    ax.grid(axis="y", visible=False)
    widest = max((abs(value) for value in values), default=0.0)
    for at, value in zip(place, values, strict=True):
        inside = value > 0.3 * widest
        ax.annotate(
            f"{max(value, 0.0) if value > -_NOTHING else value:.{digits}f}",
            (value, at),
            xytext=(-3 if inside else 3, 0),
            textcoords="offset points",
            va="center",
            ha="right" if inside else "left",
            fontsize=_LABEL,
            color="white" if inside else INK,
        )
    ax.margins(x=0.1)
    ax.set_xlabel(xlabel)


def draw_pair(
    ax: Axes,
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    *,
    names: Sequence[str],
    labels: tuple[str, str],
) -> None:
    """Draw two distributions as bars side by side, with the common part in front of both.

    Beyond `MOST_BARS` tokens only the tokens with the most mass are drawn, and the rest as one bar.
    """
    common = np.minimum(first, second)
    total = float(common.sum())
    if len(first) > MOST_BARS:
        shown = np.sort(np.argsort(-np.maximum(first, second), kind="stable")[: MOST_BARS - 1])
        names = [*(names[i] for i in shown), "rest"]
        first, second, common = (
            np.append(x[shown], max(0.0, x.sum() - x[shown].sum())) for x in (first, second, common)
        )
    place = np.arange(len(first))
    for offset, values, label, colour in (
        (-0.21, first, labels[0], "#E69F00"),
        (0.21, second, labels[1], "#0072B2"),
    ):
        ax.bar(place + offset, values, 0.4, color=colour, alpha=0.55, label=label)
        ax.bar(place + offset, common, 0.4, color="none", edgecolor=INK, hatch="////", lw=0.0)
    ax.bar(
        place, common, 0.82, color="none", edgecolor=INK, lw=0.8, label=f"in common: {total:.4f}"
    )
    ax.set_xticks(place, list(names))
    ax.set_ylabel("probability")
    ax.grid(axis="x", visible=False)
    ax.legend(frameon=False, fontsize=_LABEL)


def draw_matrix(
    ax: Axes,
    joint: NDArray[np.float64],
    member: NDArray[np.bool_],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
) -> None:
    """Draw a joint law as a heat map between the marginals, blue where drafted, else orange."""
    most = max(float(joint.max()), 1e-300)
    shade = np.sqrt(joint / most)[..., None]  # by the root, so that small masses are seen
    inside, outside = np.array([0.0, 0.27, 0.5]), np.array([0.78, 0.32, 0.0])
    ends = np.where(member[..., None], inside, outside)
    ax.imshow(1.0 - shade * (1.0 - ends), aspect="auto", interpolation="nearest", origin="upper")
    ax.set_xticks(range(joint.shape[1]), list(columns))
    step = max(1, -(-joint.shape[0] // 16))
    ax.set_yticks(range(0, joint.shape[0], step), list(rows)[::step])
    ax.grid(visible=False)
    ax.set_xlabel("output token")
    ax.set_ylabel("drafts")
    if joint.size <= 60:
        for (i, j), value in np.ndenumerate(joint):
            if value > 0:
                dark = shade[i, j, 0] > 0.6
                ax.text(
                    j,
                    i,
                    f"{value:.3f}".lstrip("0"),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if dark else INK,
                )
    top, side = (
        ax.inset_axes((0.0, 1.02, 1.0, 0.16), sharex=ax),
        ax.inset_axes((1.02, 0.0, 0.16, 1.0), sharey=ax),
    )
    top.bar(range(joint.shape[1]), joint.sum(axis=0), 0.7, color=QUIET)
    side.barh(range(joint.shape[0]), joint.sum(axis=1), 0.7, color=QUIET)
    for strip in (top, side):
        strip.grid(visible=False)
        strip.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
        for spine in strip.spines.values():
            spine.set_visible(False)


def draw_tree(
    ax: Axes, parents: Sequence[int], texts: Sequence[str], weights: NDArray[np.float64]
) -> None:
    """Draw a tree with the root on the left, vertices shaded by weights in [0, 1], root first."""
    paths: list[tuple[int, ...]] = [()]
    for vertex, parent in enumerate(parents, start=1):
        paths.append((*paths[parent], vertex))
    depth = [len(path) for path in paths]
    leaves = sorted(set(range(len(paths))) - set(parents), key=paths.__getitem__)
    height = {leaf: -float(line) for line, leaf in enumerate(leaves)}
    for vertex in sorted(set(parents), reverse=True):  # children before parents
        below = [height[child] for child, parent in enumerate(parents, start=1) if parent == vertex]
        height[vertex] = 0.5 * (below[0] + below[-1])
    for vertex, parent in enumerate(parents, start=1):
        ax.plot(
            [depth[parent], depth[vertex]],
            [height[parent], height[vertex]],
            color="#9A9A9A",
            lw=0.6 + 1.8 * float(weights[vertex]),
            zorder=1,
        )
    small = len(leaves) > 24
    for vertex, text in enumerate(texts):
        share = float(np.clip(weights[vertex], 0.0, 1.0))
        dark = share > 0.55
        if not text:
            ax.plot([depth[vertex]], [height[vertex]], marker="o", color=INK, ms=7, zorder=2)
            continue
        face = tuple(1.0 - share * (1.0 - part) for part in (0.0, 0.33, 0.6))
        ax.text(
            depth[vertex],
            height[vertex],
            text,
            ha="center",
            va="center",
            fontsize=5.5 if small else 8,
            color="white" if dark else INK,
            bbox={"boxstyle": "round,pad=0.25", "fc": face, "ec": "#555555", "lw": 0.6},
            zorder=2,
        )
    ax.set_xticks(range(max(depth) + 1))
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.set_xlim(-0.4, max(depth) + 0.5)
    ax.set_ylim(-max(1, len(leaves) - 1) - 0.6, 0.6)
    ax.set_xlabel("token after the context")
    ax.spines["left"].set_visible(False)


def draw_intervals(
    ax: Axes, names: Sequence[str], found: Sequence[tuple[float, float, float]], *, xlabel: str
) -> None:
    """Draw (mean, low, high) as points with bars from the top down, with names and numbers."""
    place = np.arange(len(names))[::-1]
    mean, low, high = np.asarray(found, dtype=float).T
    bars = np.maximum(np.stack([mean - low, high - mean]), 0.0)
    ax.errorbar(
        mean,
        place,
        xerr=bars,
        fmt="o",
        color=SERIES[0],
        mfc="white",
        ms=6,
        capsize=3,
        lw=0,
        elinewidth=1.4,
    )
    for at, (value, least, most) in zip(place, found, strict=True):
        text = f"{value:.4f} [{least:.4f}, {most:.4f}]"
        ax.annotate(
            text,
            (value, at),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center",
            fontsize=_LABEL,
            color=INK,
        )
    ax.set_yticks(place, list(names))
    ax.set_ylim(-0.7, len(names) - 0.3)
    ax.margins(x=0.3)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(xlabel)
