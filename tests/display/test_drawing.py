"""Where labels stand: apart, in order, and as near to their lines as they can."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from scipy.optimize import lsq_linear

import otm
from otm._display import drawing


@pytest.mark.parametrize("reach", [15, 30, 60])
def test_labels_are_apart_and_as_near_as_least_squares(reach):
    wanted = np.sort(np.random.default_rng(reach).uniform(0, reach, size=6))
    steps = 4.0 * np.arange(6)
    free = np.tri(6)  # of a first height, and what each gap exceeds 4 by
    best = lsq_linear(free, wanted - steps, (np.r_[-np.inf, np.zeros(5)], np.inf)).x
    assert drawing.spread(wanted, 4.0) == pytest.approx(free @ best + steps, abs=1e-4)


def test_the_seventh_line_is_refused():
    lines = [drawing.Line(str(i), [1, 2], [0.1 * i, 0.2]) for i in range(7)]
    with pytest.raises(
        otm.errors.InvalidParameter, match="at most 6 lines, labelled where they end; got 7"
    ):
        drawing.draw_lines(Figure().subplots(), lines, xlabel="k")


def test_what_is_written_in_a_colour_is_legible_on_white_and_told_apart_without_it():
    """Contrast 3 : 1 at least (WCAG 2.2, 1.4.11), and every series with dashes and a marker of its
    own.
    """

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for colour in (drawing.INK, *drawing.SERIES):
        assert 1.05 / (luminance(colour) + 0.05) >= 3.0, colour
    ax = Figure().subplots()
    drawing.draw_lines(
        ax, [drawing.Line(str(i), [1, 2], [0.1 * i, 0.2]) for i in range(5)], xlabel="k"
    )
    looks = [(line.get_linestyle(), line._unscaled_dash_pattern) for line in ax.lines[::2]]
    assert len(set(map(str, looks))) == 5
    assert len({line.get_marker() for line in ax.lines[1::2]}) == 5


def test_a_new_figure_is_made_outside_the_style(monkeypatch):
    """The first one loads a notebook's backend, which turns on what shows pictures; the style would
    undo that at its end.
    """
    from matplotlib import pyplot

    found = []
    make = pyplot.figure

    def watched(**options):
        found.append(mpl.rcParams["font.size"])
        return make(**options)

    monkeypatch.setattr(pyplot, "figure", watched)
    with mpl.rc_context({"backend": "agg", "font.size": 7.25}):
        axes = drawing.axes_or_new(None)
        assert axes.xaxis.label.get_size() == drawing.STYLE["font.size"]
        pyplot.close("all")
    assert found == [7.25]


def test_a_png_keeps_what_is_drawn_in_a_palette(tmp_path):
    """Gradients of every hue: no pixel is far off, and none of most is off at all."""
    with drawing.style():
        canvas, axes = drawing.figure()
        axes.imshow(np.random.default_rng(0).random((4, 4)), cmap="viridis")
        canvas.savefig(tmp_path / "whole.png")
        drawing.save_single(canvas, tmp_path / "small.png")
    whole, small = (Image.open(tmp_path / f"{name}.png") for name in ("whole", "small"))
    off = np.abs(np.asarray(whole.convert("RGB"), int) - np.asarray(small.convert("RGB"), int))
    assert small.mode == "P" and off.max() <= 64 and off.mean() <= 0.5
    assert small.info["dpi"] == whole.info["dpi"]
