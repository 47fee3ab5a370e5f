"""Losses of acceptance by cause, position by position: columns that a run has on request.

They are for one draft: 1 − α₁ in parts that add up (`otm.losses.acceptance_losses`), what sampling
from rounded masses changes, and beside the optima of the draft, for every k, the mass of the
target's k likeliest tokens: the most that k drafts win which nobody draws. The best temperature
alone takes some 73 optimal acceptances a row, the ranking a search; so no run pays for them
unasked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.losses import acceptance_losses, draft_rounding, top_mass

from ..models.processing import Setting

PARTS = {
    "vocabulary": "tokens that the draft model does not know",
    "truncation": "tokens that the draft's filters drop",
    "ranking": "the draft's ranking: nothing that keeps it wins this",
    "shape": "the draft's shape: no temperature wins this",
    "temperature": "the draft's temperature",
    "excluded": "drafts that the target's filters exclude",
}
"""Parts of 1 − α₁, the largest sets of drafts first, in words."""

ROUNDING = {
    "rounding": "lost to drafts drawn from masses in bfloat16, at most 1/510 either way",
    "rounding_tv": "TV of the output to the target with such drafts, at most 1/510",
}

_NUMBERS_AT_ONCE = 1 << 20


def loss_statistics(ks: Sequence[int]) -> list[tuple[str, str, str]]:
    """Return (column, name, unit) of each loss column."""
    parts = [(f"lost_{name}", f"lost to {words}", "probability") for name, words in PARTS.items()]
    rounding = [
        (f"lost_{name}" if name == "rounding" else name, words, "probability")
        for name, words in ROUNDING.items()
    ]
    likeliest = [
        (f"likeliest_k{k}", f"target mass of its likeliest {k}", "probability") for k in ks
    ]
    return [*parts, *rounding, *likeliest]


def loss_columns(
    draft: Any, target: Any, settings: Sequence[Setting], ks: Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    """Return the columns of logits `(rows, V)`, positions outside, settings inside.

    Args:
        draft, target: float32 or float64 on the host; −∞ for tokens that a model does not know.
        settings: of the processing.
        ks: numbers of drafts.

    Cost: see the module.
    """
    names = [name for name, _, _ in loss_statistics(ks)]
    step = max(1, _NUMBERS_AT_ONCE // draft.shape[-1])
    found = np.empty((len(names), len(draft), len(settings)))
    for start in range(0, len(draft), step):
        rows = slice(start, start + step)
        p, q = (np.asarray(side[rows], dtype=np.float64) for side in (draft, target))
        for place, setting in enumerate(settings):
            found[:, rows, place] = _of_rows(p, q, setting, ks)
    return dict(zip(names, found.reshape(len(names), -1), strict=True))


def _of_rows(
    draft: NDArray[np.float64], target: NDArray[np.float64], setting: Setting, ks: Sequence[int]
) -> list[NDArray[np.float64]]:
    parts = acceptance_losses(draft, target, draft=setting.draft, target=setting.target)
    p, q = setting.draft(draft), setting.target(target)
    rounded = draft_rounding(draft=p, target=q)
    likeliest = [top_mass(q, k=k) for k in ks]
    return [*(getattr(parts, name) for name in PARTS), -rounded.gain, rounded.output_tv, *likeliest]
