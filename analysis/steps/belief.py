"""What a drafter that knows the noise believes: the scale of noise trees, and richer beliefs.

Rows are what the drafter saw where the target wrote by itself, with the token that it drew there: a
multinomial logit, whose likelihood is concave in the coefficients.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Floats
from otm.sequence import LanguageModel, SharedNoise, fit_scale
from otm.sequence.models import Context, next_distributions
from otm.sequence.noise_tree import noise_texts
from otm.sequence.shared_noise import perturbed

from .contexts import read_anew

_CANDIDATES = 64
"""Largest entries of a row that the scale is fitted on; the rest has no part in it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Seen:
    """What a drafter saw of one token that the target drew.

    Attributes:
        level: how many tokens after the context.
        mass: the draft's distribution `(V,)`.
        noise: g `(V,)`.
        token: the target's.
    """

    level: int
    mass: Floats
    noise: Floats
    token: int


def seen_along(
    draft: LanguageModel,
    target: LanguageModel,
    contexts: Sequence[Context],
    noises: Sequence[SharedNoise],
    depth: int,
) -> Iterator[Seen]:
    """Yield what is seen along the texts that the target writes after some contexts."""
    for context in read_anew(contexts, "contexts for the scale", draft, target):
        places = [context] * len(noises)
        texts = noise_texts(target, contexts=places, noises=noises, num_tokens=depth)
        asked = [(*context, *text[:level]) for text in texts for level in range(depth)]
        known = next_distributions(draft, asked, name="draft")
        for noise, text in zip(noises, texts, strict=True):
            for level, token in enumerate(text):
                mass = known[*context, *text[:level]]
                yield Seen(level, mass, noise.row(len(context) + level, len(mass)), token)


def fitted_scale(seen: Iterable[Seen]) -> float:
    """Return the scale of noise trees by what was seen."""
    rows = [likeliest_entries(perturbed(one.mass, one.noise), one.token) for one in seen]
    return float(fit_scale(*map(list, zip(*rows, strict=True))).value)


def likeliest_entries(row: Floats, token: int) -> tuple[Floats, int]:
    """Return the largest entries of a row with that of a token, and where it is among them."""
    kept = likeliest_places(row, token)
    padded = np.pad(row[kept], (0, _width(row) - len(kept)), constant_values=-np.inf)
    return padded, int(np.searchsorted(kept, token))


def likeliest_places(row: Floats, token: int) -> NDArray[np.intp]:
    """Return where the largest entries of a row and a token are, ascending."""
    most = _width(row) - 1
    return np.asarray(np.union1d(np.argpartition(-row, most)[:most], token))


def _width(row: Floats) -> int:
    return min(_CANDIDATES, len(row) - 1) + 1
