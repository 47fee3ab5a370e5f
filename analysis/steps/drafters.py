"""Drafts derived from a target by blurring, at any distance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from otm._machine.arrays import Floats
from otm.pmf import check_real
from otm.sequence import LanguageModel
from otm.sequence.models import DerivedModel


@dataclasses.dataclass(frozen=True, eq=False)
class BlurredModel(DerivedModel):
    """A draft derived from a model: normal noise on log-probabilities, by context and token.

    p ∝ q·e^{σ z}, z standard normal, the same whenever a context is asked for.

    Raises:
        InvalidParameter: unless 0 ≤ σ ≤ 100.

    >>> from otm.sequence import ZerothOrder
    >>> BlurredModel(ZerothOrder([0.5, 0.5]), 0.0).next([1]).tolist()
    [0.5, 0.5]
    """

    model: LanguageModel
    deviation: float

    def __post_init__(self) -> None:
        check_real(self.deviation, name="deviation", low=0.0, high=100.0)

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> Floats:
        """Return the model's distributions, blurred."""
        rows = np.asarray(self.model.next_batch(contexts))
        noise = [
            np.random.default_rng([*context]).normal(size=rows.shape[1]) for context in contexts
        ]
        blurred = rows * np.exp(self.deviation * np.array(noise))
        return np.asarray(blurred / blurred.sum(axis=1, keepdims=True))
