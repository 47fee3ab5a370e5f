"""Data of Figures 4 and 5, captured from a pair, so that drawing needs no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import otm
from otm._machine.arrays import to_numpy
from otm._machine.progress import with_progress
from otm.sequence import LanguageModel, Memoised
from otm.sequence.decoding import evaluate

from ..errors import AnalysisError
from ..files import write_json
from ..models.causal import pair_models
from ..models.names import model_places
from ..models.pair import Pair, load_pair
from ..models.processing import Setting
from ..provenance import environment, published_origin, weights_digest
from . import selection_run

PAPER_PROMPT = "He said he also has asked prosecutors to"
TOP = 10
_SEEDS = 4000
"""Number of seeds that are searched for the run of Figure 4."""

FIGURE4_PROMPTS = (
    "Returns the",
    "This function is used to",
    "The default value",
    "If True, the",
    "A list of",
)
FIGURE4_SURVIVORS = (6, 3, 2, 1)
FIGURE4_TOP_K = 12

MISREAD = ("None", "null", "nan")
"""Tokens that look like missing values in a drawing."""


def capture_figure5(pair: Pair, model: dict[str, Any]) -> dict[str, Any]:
    """Return p′ and q′: both laws after the paper's prompt, on the union of both top-`TOP` sets."""
    draft, target = next_pair(pair, pair.encode(PAPER_PROMPT))
    union = np.union1d(_largest(draft, TOP), _largest(target, TOP))
    order = union[np.argsort(-target[union], kind="stable")]
    return {
        "prompt": PAPER_PROMPT,
        "token_ids": order.tolist(),
        "tokens": [pair.tokenizer.decode([int(i)]) for i in order],
        "draft": otm.normalise(draft[order]).tolist(),
        "target": otm.normalise(target[order]).tolist(),
        "mass_kept": {"draft": float(draft[order].sum()), "target": float(target[order].sum())},
        "manifest": model,
    }


def capture_figure4(pair: Pair, model: dict[str, Any]) -> dict[str, Any]:
    """Capture the conditionals of a run with `FIGURE4_SURVIVORS` survivors by round.

    The run is SpecTr's Algorithm 3 with K-SEQ on both models' top-`FIGURE4_TOP_K` distributions.
    The first seed that shows the pattern of the paper's drawing (the last round picks none of the
    drafts) is taken.

    Raises:
        AnalysisError: if no seed shows it.
    """
    processing = otm.Processing(top_k=FIGURE4_TOP_K)
    models = [Memoised(model) for model in pair_models(pair, Setting(processing, processing))]
    for seed in with_progress(range(_SEEDS), "seeds of figure 4"):
        for prompt in FIGURE4_PROMPTS:
            found = _run(pair, models, prompt, seed)
            if found is not None:
                return found | {"manifest": model}
    raise AnalysisError(
        f"A run with {FIGURE4_SURVIVORS} survivors is needed; {_SEEDS} seeds gave none. Try "
        "another pair."
    )


def _run(
    pair: Pair, models: Sequence[LanguageModel], prompt: str, seed: int
) -> dict[str, Any] | None:
    context = tuple(pair.encode(prompt))
    draft_model, target_model = models
    rng = np.random.default_rng(seed)
    tree = selection_run.draft(draft_model, context, rng)
    drafts = selection_run.table_of(tree)
    # The drafts alone rule out most seeds, and the draft model is the cheap one: look at them
    # first.
    if not _can_show_pattern(drafts):
        return None
    selection = selection_run.select(target_model, tree, rng)
    if (
        tuple(map(len, selection_run.survivors(selection))) != FIGURE4_SURVIVORS
        or selection.accepted != selection_run.LENGTH - 1
    ):
        return None
    drafted = [token for row in drafts for token in row]
    texts = {t: pair.tokenizer.decode([t]) for t in sorted({*drafted, *selection.tokens, *context})}
    if (
        any(not texts[t].strip() for t in selection.tokens)
        or sum(not texts[t].strip() for t in drafted) > 2
    ):
        return None  # a drawing full of line breaks explains nothing
    if any(text.strip() in MISREAD for text in texts.values()):
        return None
    return {
        "prompt": prompt,
        "context": list(context),
        "seed": seed,
        "num_tokens": pair.num_tokens,
        "processing": f"temperature 1, top-k {FIGURE4_TOP_K}",
        "draft": _sparse(tree.draft),
        "target": _sparse(evaluate(target_model, tree)),
        "texts": {str(t): text for t, text in texts.items()},
    }


def _can_show_pattern(drafts: list[list[int]]) -> bool:
    """True if, for some draft, 3, 2 and 1 drafts share the first 1, 2 and 3 tokens."""
    rows = [tuple(row) for row in drafts]

    def sizes(length: int) -> dict[tuple[int, ...], int]:
        return {row[:length]: sum(other[:length] == row[:length] for other in rows) for row in rows}

    first, second, third = sizes(1), sizes(2), sizes(3)
    return any(
        (first[row[:1]], second[row[:2]], third[row[:3]]) == FIGURE4_SURVIVORS[1:] for row in rows
    )


def _sparse(laws: Mapping[tuple[int, ...], NDArray[np.float64]]) -> list[dict[str, Any]]:
    """Return each context with the non-zero entries of the conditional."""
    rows = []
    for context, mass in laws.items():
        live = np.flatnonzero(mass)
        rows.append(
            {"context": list(context), "tokens": live.tolist(), "mass": mass[live].tolist()}
        )
    return rows


def next_pair(
    pair: Pair, context: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both next-token distributions `(V,)` in float64, temperature 1."""
    draft, target = (to_numpy(otm.from_logits(z.double())) for z in pair.next_logits(context))
    return draft, target


def _largest(mass: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    return np.argsort(-mass, kind="stable")[:count]


def write_captures(out: Path, *, draft: str | None = None, target: str | None = None) -> list[Path]:
    """Write the data of Figure 5, and for the shipped pair of Figure 4, to `out`.

    Args:
        out: folder of the files, `figure5.json` or `figure5-TARGET.json`.
        draft, target: names as for the other commands.

    Raises:
        AnalysisError: if a model cannot be loaded, or no run has the survivors of Figure 4.
    """
    load = os.getloadavg()
    pair = load_pair(draft=draft, target=target, device="cpu")
    places = model_places(draft, target)
    weights = {side: weights_digest(place) for side, place in places.items()}
    manifest = (
        environment() | published_origin(load) | {"models": weights, "device": pair.device_name}
    )
    suffix = "" if target is None else f"-{Path(target).name}"
    records = {f"figure5{suffix}": capture_figure5(pair, manifest)}
    if target is None:
        records["figure4"] = capture_figure4(pair, manifest)
    return [
        write_json(out / f"{name}.json", record, indent=None) for name, record in records.items()
    ]
