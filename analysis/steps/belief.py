"""The scale of trees on shared noise, fitted to a drafter's rows where the target wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from otm._machine.arrays import Floats
from otm.sequence import LanguageModel, SharedNoise, fit_scale
from otm.sequence.models import Context, next_distributions
from otm.sequence.noise_tree import noise_texts
from otm.sequence.shared_noise import perturbed

from .contexts import with_cleared_caches

_CANDIDATES = 64
"""Largest entries of a row that the scale is fitted on; the rest is ignored."""


class DrafterRow(NamedTuple):
    """A drafter's row at a token that the target drew.

    Attributes:
        level: how many tokens after the context.
        row: log p + g `(V,)`.
        token: the target's.
    """

    level: int
    row: Floats
    token: int


def written_on(
    target: LanguageModel,
    contexts: Sequence[Context],
    noises: Sequence[SharedNoise],
    num_tokens: int,
) -> dict[Context, list[Context]]:
    """Return texts of the target after each context, one text on each noise."""
    return {
        context: noise_texts(
            target, contexts=[context] * len(noises), noises=noises, num_tokens=num_tokens
        )
        for context in with_cleared_caches(
            contexts, "contexts that the target goes on from", target
        )
    }


def rows_along(
    draft: LanguageModel, written: Mapping[Context, list[Context]], noises: Sequence[SharedNoise]
) -> Iterator[DrafterRow]:
    """Yield the drafter's rows along texts that the target wrote on given noises."""
    for context in with_cleared_caches(list(written), "contexts for the scale", draft):
        texts = written[context]
        asked = [(*context, *text[:level]) for text in texts for level in range(len(text))]
        known = next_distributions(draft, asked, name="draft")
        for noise, text in zip(noises, texts, strict=True):
            for level, token in enumerate(text):
                mass = known[*context, *text[:level]]
                row = perturbed(mass, noise.row(len(context) + level, len(mass)))
                yield DrafterRow(level, row, token)


def fitted_scale(seen: Iterable[DrafterRow]) -> float:
    """Fit the scale of noise trees to the drafter's rows."""
    rows = [_likeliest_entries(one.row, one.token) for one in seen]
    return float(fit_scale(*map(list, zip(*rows, strict=True))).value)


def _likeliest_entries(row: Floats, token: int) -> tuple[Floats, int]:
    """Return the largest entries of a row with a token's entry, and the place of that entry."""
    most = min(_CANDIDATES, len(row) - 1)
    kept = np.union1d(np.argpartition(-row, most)[:most], token)
    padded = np.pad(row[kept], (0, most + 1 - len(kept)), constant_values=-np.inf)
    return padded, int(np.searchsorted(kept, token))
