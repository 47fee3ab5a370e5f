"""Figure 5 of SpecTr: OTM-k against K-SEQ on real pairs of next-token distributions.

The paper's prompt, «He said he also has asked prosecutors to», through each draft and target; the
union of the two top-10 sets, renormalised. The captured distributions are committed, so the figure
needs no torch; a test checks that the shipped pair still gives them. The paper shows k = 1..4, what
a linear program reaches; beside it stands k = 1..40.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import otm
from figures import curves
from figures.captures import by_pair, captures
from figures.paths import ROOT
from figures.work import Work
from otm._display import drawing

KS = tuple(range(1, 41))
PAPER_KS = (1, 2, 3, 4)
"""The paper's axis."""


def capture() -> dict[str, Any]:
    """Read the committed distributions p′ and q′ of the shipped pair, with the manifest."""
    return captures("figure5")["shipped pair"]


def compute(work: Work) -> dict[str, Any]:
    """Return exact curves and Monte Carlo points on each captured pair."""
    sampled = (1, 4, 16) if work.fast else (1, 2, 3, 4, 6, 8, 12, 16, 20, 25, 30, 35, 40)

    def of_pair(record: dict[str, Any]) -> dict[str, Any]:
        draft, target = np.array(record["draft"]), np.array(record["target"])
        problem = otm.Problem(
            draft=otm.normalise(draft), target=otm.normalise(target), law=otm.IID(1)
        )
        return {
            **curves.exact(problem, KS),
            "limit": float(otm.bounds.support_limit_upper(problem)),
            "points": curves.monte_carlo(otm.Optimal(), problem, sampled, work),
            "kseq_points": curves.monte_carlo(otm.KSeq(), problem, sampled, work),
            "prompt": record["prompt"],
            "tokens": record["tokens"],
            "draft": draft.tolist(),
            "target": target.tolist(),
        }

    return by_pair("figure5", of_pair) | {"samples": work.samples, "head": head()}


def head() -> int:
    """Return the number of tokens that the draft of SmolLM2 can draft."""
    text = (ROOT.parent / "analysis/drafts/smollm2/distilled.json").read_text(encoding="utf-8")
    return int(json.loads(text)["head"])


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    at = PAPER_KS[-1] - 1
    said = [
        f"{100 * pair['optimum'][at]:.1f} % of the time, K-SEQ {100 * pair['kseq'][at]:.1f} % "
        f"({pair['pair']})"
        for pair in data["pairs"]
    ]
    return f"{PAPER_KS[-1]} drafts: the optimum accepts one " + "; ".join(said)


def draw(data: dict[str, Any]) -> Figure:
    """Draw a row for each pair: acceptance over the paper's k and over more, and both laws."""
    pairs = data["pairs"]
    canvas = Figure(figsize=(7.0, 3.2 * len(pairs) + 0.5), layout="constrained")
    rows = canvas.subplots(len(pairs), 3, width_ratios=(1.0, 1.5, 1.0), squeeze=False)
    for (near, far, side), pair in zip(rows, pairs, strict=True):
        for axes, most, ticks in (
            (near, PAPER_KS[-1], PAPER_KS),
            (far, KS[-1], (1, 10, 20, 30, 40)),
        ):
            _schemes(axes, pair, most)
            axes.set_xticks(ticks)
            axes.set_xlabel("number of drafts k", fontsize=9)
        low = max(0.0, min(pair["kseq"]) - 0.06)
        drawing.probability_axis(near, low=low)
        far.set_ylim(low, 1.02)
        far.tick_params(labelleft=False)
        near.set_ylabel(f"{pair['pair']}\nacceptance probability", fontsize=9)
        far.legend(loc="lower right", fontsize=8)
        _distributions(side, pair)
    rows[0][0].set_title("as in the paper", fontsize=9)
    rows[0][1].set_title("and for more drafts", fontsize=9)
    rows[0][2].set_title("p′ and q′", fontsize=9)
    rows[0][2].legend(loc="lower right", fontsize=8)
    drawing.note(
        canvas,
        f"after “{pairs[0]['prompt']}”, on the union of both top-10 sets, "
        f"renormalised\n{curves.caption(data)}"
        + "".join(_undrafted(pair, data["head"]) for pair in pairs),
    )
    return canvas


def _undrafted(pair: dict[str, Any], head: int) -> str:
    """Explain a pair's flat curve by tokens that the draft never or hardly proposes."""
    draft, target = (otm.normalise(np.array(pair[side])) for side in ("draft", "target"))
    never = float(target[draft == 0].sum())
    hardly = float(target[draft < 0.01].sum()) - never
    if never == 0:
        return ""
    return (
        f"\n{pair['pair']} is flat because its draft knows {head:,} tokens: {100 * never:.0f} % of "
        "q′ is never drafted\n(dotted: what no number of drafts exceeds), "
        f"{100 * hardly:.0f} % less than once in a hundred"
    )


def _schemes(axes: Any, pair: dict[str, Any], most: int) -> None:
    axes.axhline(pair["limit"], color="#8A8A8A", lw=1.0, ls=":")
    axes.plot(
        pair["k"][:most], pair["optimum"][:most], color=drawing.PALETTE[0], label="OTM-k (optimum)"
    )
    axes.plot(
        pair["k"][:most],
        pair["kseq"][:most],
        color=drawing.PALETTE[1],
        ls=drawing.DASHED,
        label=otm.KSeq.title,
    )
    for name, colour, marker in (
        ("points", drawing.PALETTE[0], "o"),
        ("kseq_points", drawing.PALETTE[1], "s"),
    ):
        points = [point for point in pair[name] if point["k"] <= most]
        drawing.points(axes, curves.counts_of(points), points, colour=colour, marker=marker)


def _distributions(axes: Any, pair: dict[str, Any]) -> None:
    order = np.argsort(pair["target"])
    height = np.arange(len(order))
    axes.barh(
        height + 0.2, np.array(pair["target"])[order], 0.4, color="#222222", label="target q′"
    )
    axes.barh(
        height - 0.2,
        np.array(pair["draft"])[order],
        0.4,
        color=drawing.PALETTE[4],
        label="draft p′",
    )
    axes.set_yticks(
        height, [_visible(pair["tokens"][i]) for i in order], fontsize=7, family="DejaVu Sans Mono"
    )
    axes.set_xlabel("probability", fontsize=9)
    axes.grid(axis="y", visible=False)


def _visible(token: str) -> str:
    """Make the spaces and control characters of a token visible."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥").replace("$", r"\$")
