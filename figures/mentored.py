"""Speed against distortion: lossy verifiers at sequence level on each pair.

Speed is measured by decoding, as tokens per call and as tokens per second. Distortion is exact: the
KL divergence from the target that one verified token adds by the chain rule, averaged over held-out
contexts; bonus tokens add none. Quality is the target's own perplexity of the written texts: texts
that stray from the target's law surprise it more, or less. Where a rule never writes a token that
the target may, in one context at least, the average divergence is infinite: such rules stand on a
line of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import otm
from figures.captures import by_pair
from figures.work import Work
from otm._display import drawing

FAMILIES: tuple[type[otm.Verifier], ...] = (
    otm.Mentored,
    otm.Lenience,
    otm.Fuzzy,
    otm.TypicalAcceptance,
)


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `otm experiment mentored`."""
    work.tick()
    return by_pair(
        "mentored",
        lambda record: {name: record[name] for name in ("rows", "length", "num_prompts")},
    )


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    said = []
    for pair in data["pairs"]:
        rows = {row["label"]: row for row in pair["rows"]}
        exact, lossy = rows["speculative"], rows["Mentored(0.1)"]
        said.append(
            f"{exact['mean']:.2f} → {lossy['mean']:.2f} tokens a call at perplexity "
            f"{exact['perplexity']['mean']:.0f} → {lossy['perplexity']['mean']:.0f} "
            f"({pair['pair']})"
        )
    return "A tenth of a nat of divergence a token, mentored decoding: " + "; ".join(said)


def draw(data: dict[str, Any]) -> Figure:
    """Draw tokens per call and per second and perplexity over KL, a column for each pair.

    The lossless scheme is a line.
    """
    pairs = data["pairs"]
    canvas = Figure(figsize=(3.2 * len(pairs) + 2.4, 8.6), layout="constrained")
    grid = canvas.subplots(len(MEASURES), len(pairs), sharex="col", squeeze=False)
    for column, pair in enumerate(pairs):
        for (label, measure), axes in zip(MEASURES.items(), grid[:, column], strict=True):
            _panel(axes, pair["rows"], measure, named=measure is _tokens_per_call)
            axes.set_ylabel(label, fontsize=9)
        grid[0, column].set_title(pair["pair"], fontsize=9)
        grid[-1, column].set_xlabel(
            "KL from the target per verified token, nats:\nthe average over contexts", fontsize=9
        )
    grid[0, 0].legend(loc="upper left", fontsize=7.5)
    texts = " and ".join(str(pair["num_prompts"]) for pair in pairs)
    endless = any(row["kl"] is None for pair in pairs for row in pair["rows"])
    drawing.note(
        canvas,
        f"chains of {pairs[0]['length']} drafts, {texts} held-out prompts, 95 % intervals over "
        "prompts · numbers in the first row, for those below too:\n"
        "the budget that no token of mentored decoding exceeds, whatever the average; lenience; "
        "fuzzy's threshold ·\nblack: lossless · dotted: plain decoding"
        + " · ∞: some token of the target is never written"
        * endless,
    )
    return canvas


def _tokens_per_call(row: dict[str, Any], plain: dict[str, Any]) -> dict[str, float]:
    return {name: row[name] for name in ("mean", "low", "high")}


def _tokens_per_second(row: dict[str, Any], plain: dict[str, Any]) -> dict[str, float]:
    """Return plain decoding's speed times the speed-up, which is measured prompt by prompt."""
    return {name: value * plain["tokens_per_second"] for name, value in row["speedup"].items()}


def _perplexity(row: dict[str, Any], plain: dict[str, Any]) -> dict[str, float]:
    perplexity: dict[str, float] = row["perplexity"]
    return perplexity


MEASURES: dict[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, float]]] = {
    "tokens per target call": _tokens_per_call,
    "tokens per second, measured": _tokens_per_second,
    "target's perplexity of the text": _perplexity,
}
"""Drawn measures, by label."""


def _panel(
    axes: Axes,
    rows: list[dict[str, Any]],
    measure: Callable[[dict[str, Any], dict[str, Any]], dict[str, float]],
    *,
    named: bool,
) -> None:
    plain, lossless = rows[0], rows[1]
    exact = measure(lossless, plain)
    axes.axhline(exact["mean"], color="black", lw=1.2)
    axes.axhspan(exact["low"], exact["high"], color="#DDDDDD", lw=0)
    if measure is not _perplexity:  # the same law has the same perplexity
        speed = 1.0 if measure is _tokens_per_call else plain["tokens_per_second"]
        axes.axhline(speed, color="#8A8A8A", lw=1.2, ls=":")
    beyond = 4 * max(row["kl"] for row in rows if row["kl"] is not None)
    rows = [row | {"kl": beyond if row["kl"] is None else row["kl"]} for row in rows]
    if any(row["kl"] == beyond for row in rows):
        axes.axvline(beyond, color="#8A8A8A", lw=0.8, ls=(0, (1, 3)))
        axes.text(
            beyond,
            1.0,
            "∞ ",
            transform=axes.get_xaxis_transform(),
            ha="right",
            va="top",
            fontsize=9,
            color="#5A5A5A",
        )
    for number, family in enumerate(FAMILIES):
        mine = sorted(
            (row for row in rows if row["label"].startswith(family.__name__)),
            key=lambda row: row["kl"],
        )
        colour, marker = drawing.PALETTE[number], drawing.MARKERS[number]
        values = [measure(row, plain) for row in mine]
        kl = [row["kl"] for row in mine]
        axes.plot(kl, [value["mean"] for value in values], color=colour, lw=1.0)
        drawing.points(axes, kl, values, colour=colour, marker=marker)
        axes.plot([], [], color=colour, marker=marker, mfc="white", label=family.title)
        for row, value in zip(mine, values, strict=True) if named else ():
            argument = row["label"].partition("(")[2].rstrip(")")
            # its line rises, so that what is left of it and above is free
            above = family is otm.Mentored
            axes.annotate(
                argument,
                (row["kl"], value["high" if above else "low"]),
                xytext=(0, 2) if above else (2, -8),
                textcoords="offset points",
                ha="right" if above else "left",
                fontsize=7,
                color=colour,
            )
    axes.set_xscale("log")
    axes.margins(x=0.12, y=0.1)
