"""Losses of four decoders against the best step of K i.i.d. sequences, on random toys.

The best step is certified by tree cuts, the decoders' tokens are exact: no sampling but the toys
themselves. Every second toy's target is half its draft, so that models agree as real pairs do.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import otm
from figures.work import Work
from otm._display import drawing
from otm.sequence import (
    BlockKSeq,
    Decoder,
    DraftSelection,
    RefinedScores,
    TableModel,
    best_step,
    expected_step,
)

NUM_TOKENS = 4
LENGTHS, NUMBERS = (1, 2, 3), (2, 3, 4)


def compute(work: Work) -> dict[str, Any]:
    """Return each length's and number's mean best step and each decoder's mean loss."""
    toys = 2 if work.fast else 12
    rows = []
    for length, k in itertools.product(
        LENGTHS[: 2 if work.fast else None], NUMBERS[: 2 if work.fast else None]
    ):
        decoders: list[Decoder] = [
            DraftSelection(k, length),
            BlockKSeq(k, length),
            DraftSelection(k, length, otm.Optimal()),
            RefinedScores(k, length),
        ]
        best, lost = [], []
        for toy in range(toys):
            draft, target = _models(length, 0.5 * (toy % 2), work.rng)
            most = best_step(decoders[0], draft=draft, target=target, context=[])
            tokens = [
                expected_step(d, draft=draft, target=target, context=[]).block_efficiency
                for d in decoders
            ]
            best.append(float(most.value))
            lost.append([float(most.value) - found for found in tokens])
        work.tick()
        rows.append(
            {
                "L": length,
                "K": k,
                "best": float(np.mean(best)),
                "lost": np.mean(lost, axis=0).tolist(),
            }
        )
    names = [
        "K-SEQ, vertex by vertex",
        "block K-SEQ",
        "optimal, vertex by vertex",
        "refined scores",
    ]
    return {"num_tokens": NUM_TOKENS, "toys": toys, "decoders": names, "rows": rows}


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    last = data["rows"][-1]
    lost = ", ".join(
        f"{name} {value:.2f}" for name, value in zip(data["decoders"], last["lost"], strict=True)
    )
    return (
        f"Tokens a call below the best step ({last['best']:.2f}) at K = {last['K']}, "
        f"L = {last['L']}: {lost}"
    )


def draw(data: dict[str, Any]) -> Figure:
    """Draw one panel per length, the loss of each decoder over the number of sequences."""
    canvas = Figure(figsize=(8.6, 3.4), layout="constrained")
    lengths = sorted({row["L"] for row in data["rows"]})
    panels = canvas.subplots(1, len(lengths), sharey=True)
    for axes, length in zip(panels, lengths, strict=True):
        rows = [row for row in data["rows"] if row["L"] == length]
        for i, name in enumerate(data["decoders"]):
            # The second of each two may agree with the first: its marker lies in the larger one.
            line, size, face = (drawing.DASHED, 4, None) if i % 2 else ("-", 8, "white")
            values = [row["lost"][i] for row in rows]
            colour = drawing.PALETTE[i]
            axes.plot(
                [row["K"] for row in rows],
                values,
                ls=line,
                marker=drawing.MARKERS[i],
                ms=size,
                mfc=face,
                color=colour,
                label=name,
            )
        axes.set_xticks(NUMBERS)
        axes.set_xlabel("K sequences")
        axes.set_title(f"L = {length}", fontsize=10)
        axes.axhline(0.0, color="#222222", lw=0.8)
    panels[0].set_ylabel(
        "tokens per call below the best step\n(lower is better; 0 = the best step)"
    )
    panels[0].legend(fontsize=7.5, handlelength=3.0)
    return canvas


def _models(
    length: int, agreement: float, rng: np.random.Generator
) -> tuple[TableModel, TableModel]:
    """Return a table for every context of up to `length` tokens; the target mixes in the draft."""
    draft, target = {}, {}
    for context in (
        c for n in range(length + 1) for c in itertools.product(range(NUM_TOKENS), repeat=n)
    ):
        p, q = rng.dirichlet(np.ones(NUM_TOKENS), size=2)
        draft[context], target[context] = p, agreement * p + (1 - agreement) * q
    return TableModel(draft), TableModel(target)
