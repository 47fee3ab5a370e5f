"""Tables 2 and 4 of SpecTr on each pair: tokens per serial call for K drafts of L tokens.

K = 1 is speculative decoding, K > 1 draft selection with K-SEQ, as in SpecTr, and with the optimal
verifier. The paper's own numbers (LM1B, 97M target, 6M draft) stand beside them in the data file:
another pair, for orientation only.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.captures import by_pair
from figures.work import Work
from otm._display import drawing

PAPER = {
    (1, 4): 2.2,
    (2, 4): 2.4,
    (4, 4): 2.7,
    (8, 4): 3.0,
    (1, 8): 2.3,
    (2, 8): 2.6,
    (4, 8): 3.0,
    (8, 8): 3.3,
}
"""SpecTr, Table 2, by (K, L)."""


def compute(work: Work) -> dict[str, Any]:
    """Return the committed results of `otm experiment table2` beside the paper's."""
    paper = [
        {"K": k, "L": length, "tokens_per_call": value} for (k, length), value in PAPER.items()
    ]
    work.tick()
    return by_pair(
        "table2", lambda record: {name: record[name] for name in ("rows", "target_parameters")}
    ) | {"paper": paper}


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    pair = data["pairs"][0]
    largest = max(row["parameters"] for row in pair["rows"])
    found = {
        (row["verifier"], row["K"]): row["mean"]
        for row in pair["rows"]
        if row["L"] == 8 and row["parameters"] == largest
    }
    return (
        f"Eight drafts of eight tokens on the {pair['pair']}: {found['K-SEQ', 8]:.2f} tokens a "
        f"call by K-SEQ, {found['Optimal', 8]:.2f} by the optimal verifier; one draft gives "
        f"{found['K-SEQ', 1]:.2f}"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw a panel per pair and length, lines per draft model and verifier, values written."""
    pairs = data["pairs"]
    lengths = sorted({row["L"] for pair in pairs for row in pair["rows"]})
    canvas = Figure(figsize=(6.4, 3.3 * len(pairs) + 0.5), layout="constrained")
    grid = canvas.subplots(len(pairs), len(lengths), sharey="row", squeeze=False)
    for panels, pair in zip(grid, pairs, strict=True):
        for axes, length in zip(panels, lengths, strict=True):
            _panel(axes, [row for row in pair["rows"] if row["L"] == length])
            axes.set_title(f"L = {length} drafted tokens each", fontsize=9)
        panels[0].set_ylabel(
            f"{pair['pair']} ({_size(pair['target_parameters'])})\ntokens per serial call",
            fontsize=9,
        )
        panels[0].legend(loc="upper left", fontsize=7)
    texts = sorted({row["num_texts"] for pair in pairs for row in pair["rows"]})
    drawing.note(
        canvas,
        f"temperature 1 · exact expectations along {texts[0]} to {texts[-1]} texts of the target, "
        "95 % intervals over prompts\n"
        "docs/steps.md has K-SEQ's tokens on a held-out text instead, which are others",
    )
    return canvas


def _panel(axes: Axes, rows: list[dict[str, Any]]) -> None:
    drafts = sorted({(row["parameters"], row["draft"]) for row in rows})
    for number, (parameters, draft) in enumerate(drafts):
        mine = [row for row in rows if row["draft"] == draft]
        start = [row for row in mine if row["K"] == 1]
        for verifier, style, above in (
            ("K-SEQ", "-", (4, -9)),
            ("Optimal", drawing.DASHED, (-20, 4)),
        ):
            line = sorted(
                (row for row in mine if row["verifier"] == verifier), key=lambda row: row["K"]
            )
            if not line:
                continue
            joined = line if line[0]["K"] == 1 else [*start, *line]
            colour, marker = drawing.PALETTE[number], "o" if verifier == "K-SEQ" else "D"
            label = f"draft of {_size(parameters)}, {verifier}"
            axes.plot(
                [row["K"] for row in joined],
                [row["mean"] for row in joined],
                color=colour,
                lw=1.2,
                ls=style,
                label=label,
            )
            drawing.points(axes, [row["K"] for row in line], line, colour=colour, marker=marker)
            for row in line:
                place = (row["K"], row["mean"])
                axes.annotate(
                    f"{row['mean']:.2f}",
                    place,
                    xytext=above,
                    textcoords="offset points",
                    fontsize=7,
                    color=colour,
                )
    counts = sorted({row["K"] for row in rows})
    axes.margins(y=0.1)  # room for the numbers
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(k) for k in counts])
    axes.set_xlim(counts[0] * 0.8, counts[-1] * 1.6)
    axes.set_xlabel("K drafts (1: speculative decoding)", fontsize=9)


def _size(parameters: int) -> str:
    return f"{parameters / 1e6:.1f} M"
