"""Distributions of many settings from logits, with one sort per model.

Temperature keeps the order of the logits, so the tokens that top-p keeps at any temperature are a
prefix of one descending order. The values are those of `otm.Processing`, up to the last bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from otm import Processing

# a nucleus rarely holds more than this part of the vocabulary; where it does, the row is sorted
# whole
_PART = 8

# Where the running sums of up to 10^6 probabilities are further than this from top_p, any
# exponential within some ulp and every way of summing agree on the nucleus. In float32 a sum as
# close as that stands in every row. There the probabilities are those of `otm.from_logits` to the
# last bit, and so are their running sums, unless the whole stands so close to the middle of two
# float32 numbers that the order of adding decides which one divides.
_CLEAR = 1e-10


class Setting(NamedTuple):
    """The processing of both models' logits."""

    draft: Processing = Processing()
    target: Processing = Processing()

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings for records: the target's temperature and top-p, and non-default values.

        Names begin with `draft_` where the draft differs.

        >>> Setting(Processing(temperature=0.5, order="vllm"), Processing(order="vllm")).recorded
        {'temperature': 1.0, 'top_p': None, 'order': 'vllm', 'draft_temperature': 0.5}
        """
        draft, target, plain = (dataclasses.asdict(one) for one in (*self, Processing()))
        own = {
            name: value
            for name, value in target.items()
            if name in ("temperature", "top_p") or value != plain[name]
        }
        return own | {
            f"draft_{name}": value for name, value in draft.items() if value != target[name]
        }

    @property
    def path(self) -> tuple[float, float, float]:
        """Temperature, top-p and draft temperature, by which a trace tells sampled paths apart."""
        return (
            self.target.temperature,
            1.0 if self.target.top_p is None else self.target.top_p,
            self.draft.temperature,
        )


def setting_text(name: str, value: object) -> str:
    """Format a recorded setting for readers.

    >>> setting_text("draft_top_p", 0.9), setting_text("temperature", 1.0)
    ('draft top-p 0.9', 'temperature 1')
    >>> setting_text("order", "vllm")
    'order vllm'
    """
    return f"{setting_name(name)} {f'{value:g}' if isinstance(value, float) else str(value)[:40]}"


def setting_name(setting: str) -> str:
    """Format the name of a recorded setting for readers."""
    return setting.replace("_", " ").replace("top ", "top-").replace("min ", "min-")


AS_THEY_ARE = Setting()
"""Both models' own distributions."""


def settings_of(
    temperatures: Sequence[float],
    top_ps: Sequence[float],
    draft_temperatures: Sequence[float] = (),
    *,
    otherwise: Setting = AS_THEY_ARE,
) -> list[Setting]:
    """Return every combination, temperatures in the outer loop.

    Args:
        temperatures, top_ps: of the target.
        draft_temperatures: of the draft; the target's without.
        otherwise: everything else, and the draft's top-p if it has one of its own.

    >>> [(one.draft.temperature, one.target.top_p) for one in settings_of([1.0], [1.0, 0.9], [0.5])]
    [(0.5, 1.0), (0.5, 0.9)]
    """
    draft, target = otherwise
    return [
        Setting(
            dataclasses.replace(
                draft, temperature=drafted, top_p=top_p if draft.top_p is None else draft.top_p
            ),
            dataclasses.replace(target, temperature=temperature, top_p=top_p),
        )
        for temperature in temperatures
        for top_p in top_ps
        for drafted in draft_temperatures or (temperature,)
    ]


def distributions(
    logits: np.ndarray, settings: Sequence[Processing]
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield weights and logarithms of each setting for compiled rows, `(..., V)` each.

    Weights are in float64, and probabilities but where top-p keeps a part: there they are exp((z −
    max z)/T), since dropped tokens are left out before a row is divided by its sum. Logarithms are
    finite everywhere, meaningless where the probability is 0, and None where none are at hand.

    Args:
        logits: `(..., V)`, float32 or float64.
        settings: of the processing.
    """
    likeliest = None
    for processing in settings:
        temperature, top_p = processing.temperature, processing.top_p
        usual = np.finfo(logits.dtype).smallest_normal <= temperature < np.inf
        if not usual or not _nucleus_alone(processing):
            # the extremes, and other filters, are rare
            yield processing(logits).astype(np.float64, copy=False), None
        elif top_p in (None, 1.0):
            yield _softmax(_scaled(logits, logits.max(axis=-1, keepdims=True), temperature))
        else:
            if likeliest is None:
                likeliest = _largest(logits, max(1, logits.shape[-1] // _PART))
            yield _nucleus(logits, likeliest, temperature, top_p), None


def _nucleus_alone(processing: Processing) -> bool:
    """Return True if nothing filters but a top-p that follows the temperature."""
    others = processing.top_k is None and processing.min_p in (None, 0.0)
    return others and (
        processing.top_p in (None, 1.0)
        or processing.steps.index("temperature") < processing.steps.index("top_p")
    )


def _largest(logits: np.ndarray, count: int) -> np.ndarray:
    """Return the largest logits in descending order, `(..., count)`."""
    first = logits.shape[-1] - count
    top = np.partition(logits, first, axis=-1)[..., first:] if first else logits.copy()
    top.sort(axis=-1)
    return top[..., ::-1]


def _nucleus(
    logits: np.ndarray, likeliest: np.ndarray, temperature: float, top_p: float
) -> np.ndarray:
    """Return exp((z − max z)/T) of the tokens that `otm.from_logits` keeps, 0 of others."""
    import torch

    shape, width = logits.shape, logits.shape[-1]
    rows, top = logits.reshape(-1, width), likeliest.reshape(-1, likeliest.shape[-1])
    mass = torch.from_numpy(_exponentials(_scaled(rows, top[:, :1], temperature)))
    sums = mass.sum(-1, dtype=torch.float64).numpy()
    smallest, count = _last_kept(top, sums, temperature, top_p)
    short = np.flatnonzero(count > top.shape[-1])
    if len(short):
        smallest[short], count[short] = _last_kept(
            _largest(rows[short], width), sums[short], temperature, top_p
        )
    keep = rows >= smallest[:, None]
    # Where rounding decides, or where equal logits lie on both sides of the boundary, and the
    # lowest index wins: by ranks.
    for row in np.flatnonzero(keep.sum(axis=-1) != count):
        keep[row] = Processing(temperature=temperature, top_p=top_p)(rows[row]) > 0
    mass *= torch.from_numpy(keep)
    return mass.numpy().reshape(shape).astype(np.float64, copy=False)


def _last_kept(
    ordered: np.ndarray, whole: np.ndarray, temperature: float, top_p: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's smallest kept logit and how many are kept.

    The number is -1 where rounding may decide it, and one more than there are in `ordered` where it
    may be larger.
    """
    narrow = ordered.dtype == np.float32
    divisor = whole.astype(ordered.dtype)
    mass = (_exponentials(_scaled(ordered, ordered[:, :1], temperature)) / divisor[:, None]).astype(
        np.float64
    )
    before = np.cumsum(mass, axis=-1) - mass
    clear = 0.0 if narrow else _CLEAR
    kept = np.maximum((before < top_p).sum(axis=-1), 1)
    smallest = np.take_along_axis(ordered, kept[:, None] - 1, axis=-1)[:, 0]
    either = [(whole * (1.0 + side)).astype(ordered.dtype) != divisor for side in (-_CLEAR, _CLEAR)]
    unsure = either[0] | either[1] if narrow else (np.abs(before - top_p) < clear).any(axis=-1)
    kept[unsure] = -1
    beyond = before[:, -1] + mass[:, -1] < top_p + clear
    return smallest, np.where(beyond, ordered.shape[-1] + 1, kept)


def _exponentials(scaled: np.ndarray) -> np.ndarray:
    """Return exp(x), in float64 by torch, which takes a third of NumPy's time."""
    import torch

    return np.exp(scaled) if scaled.dtype == np.float32 else torch.from_numpy(scaled).exp().numpy()


def _scaled(logits: np.ndarray, largest: np.ndarray, temperature: float) -> np.ndarray:
    """Return (z − max z)/T in a new array, subtracted first so that nothing overflows."""
    with np.errstate(over="ignore"):
        scaled: np.ndarray = np.subtract(logits, largest, order="C")
        if temperature != 1.0:
            scaled /= temperature
    return scaled


def _softmax(scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return exp(x)/Σ exp(x) and the finite logarithm."""
    import torch

    mass = torch.from_numpy(scaled).exp().numpy()
    wide, logs = (a.astype(np.float64, copy=False) for a in (mass, scaled))
    # torch's sum depends, in the last bits, on its number of threads
    whole = wide.sum(axis=-1, keepdims=True)
    wide *= 1.0 / whole  # a division takes four times as long
    logs -= np.log(whole)
    if logs.min() == -np.inf:
        np.maximum(logs, np.finfo(np.float64).min, out=logs)
    return wide, logs
