"""Turn logits into the distributions of many (temperature, top-p) settings, with one sort per model for all of them.

Temperature keeps the order of the logits, so the tokens that top-p keeps at any temperature are a prefix of one descending order.
The values are those of `otm.from_logits`, up to the last bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import otm

Processing = tuple[float, float]
"""(temperature, top_p) of one model; top_p = 1 keeps every token."""


class Setting(NamedTuple):
    """How both models' logits become probabilities: as one, but for the draft's temperature."""

    temperature: float
    top_p: float
    draft_temperature: float

    @property
    def draft(self) -> Processing:
        """The draft's processing."""
        return self.draft_temperature, self.top_p

    @property
    def target(self) -> Processing:
        """The target's processing."""
        return self.temperature, self.top_p


def settings_of(
    temperatures: Sequence[float], top_ps: Sequence[float], draft_temperatures: Sequence[float] = ()
) -> list[Setting]:
    """Return every combination, temperatures in the outer loop; without draft temperatures the draft has the target's.

    >>> settings_of([1.0], [1.0, 0.9])
    [Setting(temperature=1.0, top_p=1.0, draft_temperature=1.0), Setting(temperature=1.0, top_p=0.9, draft_temperature=1.0)]
    """
    return [
        Setting(temperature, top_p, drafted)
        for temperature in temperatures
        for top_p in top_ps
        for drafted in draft_temperatures or (temperature,)
    ]


def distributions(logits: Any, settings: Sequence[Processing]) -> Iterator[tuple[Any, Any]]:
    """Yield the probabilities of each setting and their logarithms, `(..., V)` each, of the logits' array kind and dtype.

    Args:
        logits: `(..., V)`, float32 or float64, NumPy or torch.
        settings: (temperature, top_p) pairs.

    Logarithms are finite everywhere, meaningless where the probability is 0, and None where none are at hand.
    """
    ordered = None
    for temperature, top_p in settings:
        if not isinstance(logits, np.ndarray) or temperature == 0.0:
            # A device sorts as fast as it divides.
            yield otm.from_logits(logits, temperature=temperature, top_p=None if top_p == 1.0 else top_p), None
        elif top_p == 1.0:
            yield _softmax(logits / temperature)
        else:
            if ordered is None:
                ordered = -np.sort(-logits, axis=-1)
            yield _nucleus(logits, ordered, temperature, top_p)


def _nucleus(logits: np.ndarray, ordered: np.ndarray, temperature: float, top_p: float) -> tuple[np.ndarray, np.ndarray]:
    largest = ordered[..., :1]
    # As `otm.from_logits` rounds it, so that the same tokens are kept.
    mass = np.exp((ordered - largest) / temperature)
    mass /= mass.sum(axis=-1, keepdims=True, dtype=np.float64).astype(mass.dtype)
    before = np.cumsum(mass, axis=-1, dtype=np.float64) - mass
    kept = np.maximum((before < top_p).sum(axis=-1, keepdims=True), 1)
    smallest = np.take_along_axis(ordered, kept - 1, axis=-1)
    keep = logits >= smallest
    # Equal logits on both sides of the boundary: the lowest index wins, which takes ranks to say.
    for row in np.argwhere(keep.sum(axis=-1) != kept[..., 0]):
        index = tuple(row)
        keep[index] = otm.from_logits(logits[index], temperature=temperature, top_p=top_p) > 0
    return _softmax(np.where(keep, (logits - largest) / temperature, -np.inf))


def _softmax(scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return exp(x)/Σ exp(x) and its finite logarithm; torch's exponential is three times as fast as NumPy's."""
    import torch

    logs = torch.log_softmax(torch.from_numpy(scaled), dim=-1)
    mass = logs.exp()
    return mass.numpy(), torch.clamp_(logs, min=torch.finfo(logs.dtype).min).numpy()
