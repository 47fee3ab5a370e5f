"""Drafts made of a model: blurred to an overlap, or at a temperature of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from otm.pmf import check_real
from otm.sequence import LanguageModel
from otm.sequence.models import DerivedModel

from ..statistics import Floats


@dataclasses.dataclass(frozen=True, eq=False)
class BlurredModel(DerivedModel):
    """A draft made of a model: its log-probabilities with normal noise, by context and token.

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


@dataclasses.dataclass(frozen=True, eq=False)
class TemperedModel(DerivedModel):
    """A model at another temperature, p ∝ q^{1/τ} of what it says.

    Raises:
        InvalidParameter: unless 0 < τ ≤ 1000.

    >>> from otm.sequence import ZerothOrder
    >>> TemperedModel(ZerothOrder([0.75, 0.25]), 0.5).next([]).round(6).tolist()
    [0.9, 0.1]
    """

    model: LanguageModel
    temperature: float

    def __post_init__(self) -> None:
        check_real(self.temperature, name="temperature", low=0.0, high=1e3, open_low=True)

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> Floats:
        """Return the model's distributions, each raised to 1/τ."""
        rows = np.asarray(self.model.next_batch(contexts))
        powers = (rows / rows.max(axis=1, keepdims=True)) ** (1.0 / self.temperature)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
