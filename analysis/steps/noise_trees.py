"""Trees on shared noise along a text, where the noise is drawn given the text.

The text's token y wins the race of its position at a time T ~ Exp(1), and every other clock rings
later: E_y = q_y T and E_x = q_x T + Exp(1), independently, are the noise −log E given the text.
Given noise and text a tree is certain, and so is what it holds.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.sequence import LanguageModel
from otm.sequence.models import Context
from otm.sequence.shared_noise import perturbed

from .belief import DrafterRow, fitted_scale
from .likeliest_trees import MatchLaw, match_law
from .texts import SampledText

_MOST_ROWS = 512


def noise_given(text: SampledText, rng: np.random.Generator) -> Floats:
    """Return Gumbel noise `(n, V)` with which the target writes the text."""
    at = np.arange(len(text.tokens)), text.tokens
    first = rng.standard_exponential((len(text.tokens), 1)) * text.target
    clocks = first + rng.standard_exponential(first.shape)
    clocks[at] = first[at]
    return np.asarray(-np.log(clocks))


def noise_scale(texts: Sequence[SampledText], noises: Sequence[Floats]) -> float:
    """Fit the scale of noise trees to texts of the target on given noise; 1 without any token."""
    seen = (
        DrafterRow(level, perturbed(mass, noise[level]), token)
        for text, noise in zip(texts, noises, strict=True)
        for level, (mass, token) in enumerate(zip(text.draft, text.tokens.tolist(), strict=True))
        if mass[token] > 0.0
    )
    some = list(itertools.islice(seen, _MOST_ROWS))
    return fitted_scale(some) if some else 1.0


def noise_law(
    draft: LanguageModel,
    text: SampledText,
    *,
    noise: Floats,
    scale: float,
    sizes: Sequence[int],
    depth: int,
    starts: int,
    eos: int | None,
) -> MatchLaw:
    """Grow trees on the noise of a text at every position where a step may start.

    Args:
        draft, text, sizes, depth, starts, eos: as `match_law`.
        noise: of the text's positions, `(n, V)`.
        scale: how far the target's logits are from the draft's.
    """
    begin = len(text.prefix)

    def belief(place: int, context: Context, mass: Floats) -> Floats:
        at = min(len(context) - begin, len(noise) - 1)  # nothing is compared beyond the end
        return np.asarray(scipy.special.softmax(perturbed(mass, noise[at]) / scale))

    law = match_law(draft, text, sizes=sizes, depth=depth, starts=starts, eos=eos, belief=belief)
    wins: NDArray[np.bool_] = text.tokens != (-1 if eos is None else eos)
    last = np.arange(law.reached.shape[-1]) + np.arange(depth)[:, None]
    inside = np.append(wins, np.zeros(depth, dtype=bool))[last]
    return dataclasses.replace(law, gained=law.reached[:, :, 1:] * inside, scale=scale)
