"""Conversion of logits to probabilities: temperature, top-k, top-p and min-p in engines' orders."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, final

import array_api_compat

from otm._machine.arrays import Array, gather, namespace, quiet, total, untracked
from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import check_count, check_real, keyword_only, plain_array

ORDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "transformers": ("temperature", "top_k", "top_p", "min_p"),
        "vllm": ("temperature", "min_p", "top_k", "top_p"),
        "llama.cpp": ("top_k", "top_p", "min_p", "temperature"),
    }
)
"""Orders in which engines process logits by default; each step sees the renormalised rest of the
steps before.
"""

_STEPS = frozenset(ORDERS["transformers"])


@keyword_only(
    "otm.from_logits(logits, temperature=0.7, top_k=50)",
    reason="What follows the logits is keyword-only",
)
def from_logits(
    logits: object,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    order: str | Sequence[str] = "transformers",
) -> Array:
    """Convert logits to probabilities, with the filters and orders of serving engines.

    Temperature, top-k, top-p and min-p in an engine's order, then a softmax.

    p(x) ∝ exp(z(x)/T) on the kept tokens. Top-k keeps the k largest logits; top-p keeps the
    shortest prefix of the tokens in descending order whose mass reaches top_p, with the token that
    crosses it; min-p keeps tokens with at least min_p times the largest mass. Ties at a boundary of
    top-k or top-p: the lowest index wins. The order matters: in llama.cpp the filters see the
    masses at T = 1, elsewhere those at T, and vLLM's top-p counts the mass that min-p has left.

    Args:
        logits: `(..., V)`, float32 or float64, −∞ for forbidden tokens; NumPy or torch.
        temperature: T ≥ 0; 0 puts all mass on the largest logit.
        top_k: number of tokens to keep, ≥ 1; None keeps all.
        top_p: mass to keep, in (0, 1]; None keeps all.
        min_p: least mass to keep, as a part of the largest, in [0, 1]; None keeps all.
        order: "transformers", "vllm" or "llama.cpp" (`otm.logits.ORDERS`), or the names of the four
            steps.

    Returns:
        Probabilities `(..., V)` of the same namespace, device and dtype; a tensor's gradient is
        passed on.

    Raises:
        InvalidDistribution: on NaN or +∞, a row without a finite logit, half precision, or an empty
            vocabulary.
        InvalidParameter: if temperature, top_k, top_p or min_p is out of range, or the order is
            none.

    Cost: O(V), O(V log V) with top-k or top-p. Accuracy: relative, (2 |log p| + ν + 24) u in a mass
        p (docs/theory.md, "Plain sums"); the largest logit is subtracted first, so nothing
        overflows.

    >>> from_logits([0.0, 0.0, -1000.0], top_k=2)
    array([0.5, 0.5, 0. ])
    """
    return Processing(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, order=order)(
        logits
    )


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Processing:
    """An engine's processing of one model's logits; call the object with logits.

    See `otm.from_logits` for the arguments.

    Raises:
        InvalidParameter: if an argument is out of range.

    >>> Processing(temperature=0.5, top_k=2)([0.0, 0.0, -1000.0])
    array([0.5, 0.5, 0. ])
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    order: str | Sequence[str] = "transformers"

    def __post_init__(self) -> None:
        """Check the arguments."""
        check_real(self.temperature, name="temperature", low=0.0)
        if self.top_k is not None:
            check_count(self.top_k, name="top_k")
        if self.top_p is not None:
            check_real(self.top_p, name="top_p", low=0.0, high=1.0, open_low=True)
        if self.min_p is not None:
            check_real(self.min_p, name="min_p", low=0.0, high=1.0)
        steps = ORDERS.get(self.order) if isinstance(self.order, str) else self.order
        if (
            not isinstance(steps, Sequence)
            or not all(isinstance(step, str) for step in steps)
            or len(steps) != len(_STEPS)
            or set(steps) != _STEPS
        ):
            raise InvalidParameter(
                f"order must be one of {', '.join(map(repr, ORDERS))}, or "
                f"{', '.join(sorted(_STEPS))} in some order; "
                f"got {self.order!r}. Choose one."
            )
        object.__setattr__(
            self,
            "order",
            next((name for name, known in ORDERS.items() if known == tuple(steps)), tuple(steps)),
        )

    @property
    def steps(self) -> tuple[str, ...]:
        """The four steps in order."""
        return ORDERS[self.order] if isinstance(self.order, str) else tuple(self.order)

    def __call__(self, logits: object) -> Array:
        """Return the probabilities `(..., V)` of logits `(..., V)`."""
        array = _check_logits(logits)
        xp = namespace(array)
        heat = float(self.temperature)
        with quiet():
            cold = array - xp.max(untracked(array), axis=-1, keepdims=True)
            # zero, or a temperature that the dtype cannot divide by
            if heat < float(xp.finfo(array.dtype).smallest_normal):
                return _softmax(xp.where(_first_largest(array), cold, _minus_infinity(cold)))
            warm = cold / heat
            if heat == float("inf"):
                # uniform on what is allowed
                warm = xp.where(array == -xp.inf, array, xp.zeros_like(array))
            kept = self._kept(untracked(cold), untracked(warm))
            return _softmax(warm if kept is None else xp.where(kept, warm, _minus_infinity(warm)))

    def _kept(self, cold: Array, warm: Array) -> Array | None:
        """Return a mask of the tokens that the filters keep, None for all.

        Arguments are the logits minus their maximum, without and with temperature.
        """
        xp = namespace(cold)
        filters = [
            step
            for step in self.steps
            if step != "temperature" and getattr(self, step) not in (None, _KEEPS_ALL[step])
        ]
        if not filters:
            return None
        first = self.steps.index("temperature")
        seen = {step: warm if self.steps.index(step) > first else cold for step in filters}
        if filters == ["min_p"]:
            return seen["min_p"] >= self._floor
        ranked = seen[filters[0]]
        # descending; stable, so the lowest index wins ties
        order = xp.argsort(-ranked, axis=-1, stable=True)
        position = _positions(cold)
        keep = gather(ranked, order) > -xp.inf
        for step in filters:
            values = gather(seen[step], order)
            match step:
                case "top_k":
                    keep = keep & (position < self.top_k)
                case "min_p":
                    keep = keep & (values >= self._floor)
                case _:
                    mass = _softmax(xp.where(keep, values, _minus_infinity(values)))
                    before = xp.cumulative_sum(mass, axis=-1, dtype=xp.float64) - xp.astype(
                        mass, xp.float64
                    )
                    keep = keep & ((before < self.top_p) | (position == 0))
        return gather(xp.broadcast_to(keep, tuple(cold.shape)), xp.argsort(order, axis=-1))

    @property
    def _floor(self) -> float:
        """The logit, minus the largest, below which min-p drops a token."""
        return math.log(self.min_p) if self.min_p else -math.inf


_KEEPS_ALL: Mapping[str, float | None] = {"top_k": None, "top_p": 1.0, "min_p": 0.0}


def _first_largest(array: Array) -> Array:
    """Return a mask of the largest token of each row, the first of equals."""
    xp = namespace(array)
    return _positions(array) == xp.argmax(untracked(array), axis=-1, keepdims=True)


def _positions(array: Array) -> Array:
    """Return 0..V−1 along the last axis, for comparisons with rows."""
    xp = namespace(array)
    return xp.reshape(
        xp.arange(int(array.shape[-1]), device=array.device), (1,) * (array.ndim - 1) + (-1,)
    )


def _minus_infinity(array: Array) -> Array:
    xp = namespace(array)
    return xp.asarray(-xp.inf, dtype=array.dtype, device=array.device)


def _softmax(shifted: Array) -> Array:
    xp = namespace(shifted)
    weights = xp.exp(shifted)
    return weights / xp.astype(total(weights), weights.dtype)[..., None]


def _check_logits(logits: object) -> Array:
    array: Any = logits
    given = array_api_compat.is_array_api_obj(logits)
    dtype = str(array.dtype).removeprefix("torch.") if given else "float64"
    if dtype not in ("float32", "float64"):
        raise InvalidDistribution(
            f"logits must be float32 or float64; they are {dtype}. Convert them to float32 first."
        )
    array = plain_array(logits, "logits", gradients=True)
    xp = namespace(array)
    array = array if given else xp.astype(array, xp.float64)
    if array.ndim == 0 or 0 in tuple(array.shape):
        raise InvalidDistribution(
            f"logits need a non-empty vocabulary axis; shape {tuple(array.shape)}. Pass (..., V)."
        )
    largest = xp.max(untracked(array), axis=-1)
    if not bool(xp.any(xp.logical_not(xp.isfinite(largest)))):  # a NaN is the largest of its row
        return array
    if bool(xp.any(xp.isnan(largest) | (largest == xp.inf))):
        raise InvalidDistribution(
            "logits must not be NaN or +inf; some are. Check the model for overflow."
        )
    raise InvalidDistribution(
        "Each row of logits needs one finite entry; a row is all -inf. Loosen the mask."
    )
