"""Texts of the target, sampled or given, with both models' distributions at each token."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats


@dataclasses.dataclass(frozen=True, eq=False)
class SampledText:
    """A prompt continued by the target.

    Attributes:
        prefix: the prompt's tokens.
        tokens: `(n,)`, the target's continuation, the end of the text included if it came.
        draft, target: `(n, V)`, both models' distributions of each of these tokens.
    """

    prefix: tuple[int, ...]
    tokens: NDArray[np.int64]
    draft: Floats
    target: Floats

    def context(self, position: int) -> tuple[int, ...]:
        """Return the prompt and the first `position` tokens of the continuation."""
        return (*self.prefix, *self.tokens[:position].tolist())
