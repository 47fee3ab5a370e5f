"""The scale of noise trees: how much a drafter may believe in its own logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm.sequence import LanguageModel, SharedNoise, fit_scale
from otm.sequence.models import Context, next_distributions
from otm.sequence.noise_tree import noise_texts
from otm.sequence.shared_noise import perturbed
from otm.statistics import Estimate

from ..statistics import Floats
from .contexts import read_anew

_CANDIDATES = 64
"""Largest entries of a row that the scale is fitted on; the rest has no part in it."""


def fitted_scale(
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    noises: Sequence[SharedNoise],
    depth: int,
) -> Estimate:
    """Return the scale of noise trees by what the target writes after some contexts."""
    rows, chosen = [], []
    for context in read_anew(contexts, "contexts for the scale", draft, target):
        places = [context] * len(noises)
        texts = noise_texts(target, contexts=places, noises=noises, num_tokens=depth)
        asked = [(*context, *text[:level]) for text in texts for level in range(depth)]
        known = next_distributions(draft, asked, name="draft")
        for noise, text in zip(noises, texts, strict=True):
            for level, token in enumerate(text):
                mass = known[*context, *text[:level]]
                row = perturbed(mass, noise.row(len(context) + level, len(mass)))
                kept, place = likeliest_entries(row, token)
                rows.append(kept)
                chosen.append(place)
    return fit_scale(rows, chosen)


def likeliest_entries(row: Floats, token: int) -> tuple[Floats, int]:
    """Return the largest entries of a row with that of a token, and where it is among them."""
    most = min(_CANDIDATES, len(row) - 1)
    kept = np.union1d(np.argpartition(-row, most)[:most], token)
    padded = np.pad(row[kept], (0, most + 1 - len(kept)), constant_values=-np.inf)
    return padded, int(np.searchsorted(kept, token))
