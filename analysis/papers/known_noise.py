"""The number of tokens of a sampler with known noise that expose another target.

The target is served otherwise: with rounded weights, at another temperature, or by a rule that lets
the drafter's likeliest token pass where it comes within a margin of the winner of log q + g, which
is the race of q raised there, q e^m/Z. The margin is such that the total variation is that of the
logs whose records docs/audit_engines.md plans.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy
import torch

from otm import audit
from otm._machine.arrays import Floats
from otm.audit.budget import DETECT, USUAL

from ..models.pair import Pair

TOLERANCES = (0.0, 0.05, 0.2)
"""Nats that rounding may move log-odds by."""

TEMPERATURES = (0.7, 0.72)
_DRIFT = USUAL.level(DETECT)
_LEAST = 1e-3


def to_int8(weight: torch.Tensor) -> torch.Tensor:
    """Round a matrix to 255 levels, each row by the row's largest entry.

    >>> import torch
    >>> to_int8(torch.tensor([[1.27, 0.014]])).tolist()
    [[1.2699999809265137, 0.009999999776482582]]
    """
    step = weight.abs().amax(dim=-1, keepdim=True) / 127
    return torch.where(step > 0, (weight / step).round() * step, weight)


ROUNDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "weights in float16": lambda weight: weight.half().float(),
    "weights in bfloat16": lambda weight: weight.bfloat16().float(),
    "matrices in int8": lambda weight: to_int8(weight) if weight.ndim > 1 else weight,
}


def measure_known_noise(pair: Pair, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return by case the tokens until a mismatch, and the records of a log without the noise."""
    rows = torch.tensor([list(prompt) for prompt in prompts])
    draft, target = (each.double().flatten(0, 1).numpy() for each in pair.logits(rows))
    q, likeliest = scipy.special.softmax(target, axis=1), draft.argmax(axis=1)
    warm, warmer = (scipy.special.softmax(target / value, axis=1) for value in TEMPERATURES)

    def raised(margin: float) -> Floats:
        higher = target.copy()
        higher[np.arange(len(target)), likeliest] += margin
        return np.asarray(scipy.special.softmax(higher, axis=1))

    margin = scipy.optimize.brentq(lambda nats: _distance(q, raised(nats)) - _DRIFT, 0.0, 9.0)
    cases = {name: (q, _rounded(pair, rows, rounded)) for name, rounded in ROUNDED.items()}
    cases["temperature {1:g} for {0:g}".format(*TEMPERATURES)] = (warm, warmer)
    cases[f"drafts pass within {margin:.2f} nats"] = (q, raised(margin))
    return {
        "contexts": len(q),
        "tolerances": TOLERANCES,
        "missed": USUAL.missed,
        "rows": [{"case": name} | _row(*laws) for name, laws in cases.items()],
    }


def _distance(q: Floats, served: Floats) -> float:
    """Return the mean total variation."""
    return float(0.5 * np.abs(q - served).sum(axis=1).mean())


def _rounded(pair: Pair, rows: torch.Tensor, rounded: Callable[..., Any]) -> Floats:
    """Return the target's distributions with rounded weights."""
    other = copy.deepcopy(pair.target)
    other.load_state_dict({name: rounded(one) for name, one in other.state_dict().items()})
    with torch.inference_mode():
        logits = other(rows, use_cache=False).logits[..., : pair.num_tokens]
    return np.asarray(scipy.special.softmax(logits.double().flatten(0, 1).numpy(), axis=1))


def _row(q: Floats, served: Floats) -> dict[str, Any]:
    """Return a case's distance, tokens by tolerance, and records; None where there is no number."""
    distance = _distance(q, served)
    tokens = [
        audit.tokens_to_mismatch(target=q, served=served, tolerance=nats) for nats in TOLERANCES
    ]
    # No direction of a log drifts by more than the total variation, and none is planned for below
    # a thousandth; the distance that is asked for was found to nine digits.
    found = distance >= _LEAST
    return {
        "tv": distance,
        "tokens": [n if np.isfinite(n) else None for n in tokens],
        "records": audit.records_needed(audit.Errors(detect=round(distance, 9))) if found else None,
    }
