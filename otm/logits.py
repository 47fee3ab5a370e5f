"""From logits to probabilities, with the temperature, top-k and top-p of serving engines."""

from __future__ import annotations

from typing import Any

import array_api_compat

from otm._arrays import Array, gather, namespace, quiet, total, untracked
from otm.errors import InvalidDistribution
from otm.pmf import check_count, check_real, plain_array


def from_logits(logits: object, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Array:
    """Turn logits into probabilities: temperature, then top-k, then top-p, then a softmax over what is left.

    p(x) ∝ exp(z(x)/T) on the kept tokens. Top-k keeps the k largest logits; top-p keeps the shortest prefix of the tokens in
    descending order whose mass reaches top_p, with the token that crosses it. Ties at either boundary: the lowest index wins.

    Args:
        logits: `(..., V)`, float32 or float64, −∞ for forbidden tokens; NumPy or torch.
        temperature: T ≥ 0; 0 puts all mass on the largest logit.
        top_k: number of tokens to keep, ≥ 1; None keeps all.
        top_p: mass to keep, in (0, 1]; None keeps all.

    Returns:
        Probabilities `(..., V)` of the same namespace, device and dtype; a tensor's gradient is passed on.

    Raises:
        InvalidDistribution: on NaN or +∞, a row without a finite logit, half precision, or an empty vocabulary.
        InvalidParameter: if temperature, top_k or top_p is out of range.

    Cost: O(V), O(V log V) with top-k or top-p. Accuracy: relative, (2 |log p| + ν + 24) u in a mass p
    (docs/theory.md, "Plain sums"); the largest logit is subtracted first, so nothing overflows.

    >>> from_logits([0.0, 0.0, -1000.0], top_k=2)
    array([0.5, 0.5, 0. ])
    """
    array = _check_logits(logits)
    heat = check_real(temperature, name="temperature", low=0.0)
    kept_mass = 1.0 if top_p is None else check_real(top_p, name="top_p", low=0.0, high=1.0, open_low=True)
    kept_count = None if top_k is None else check_count(top_k, name="top_k")
    xp = namespace(array)
    if heat < float(xp.finfo(array.dtype).smallest_normal):  # zero, or a temperature that the dtype cannot divide by
        kept_count, heat = 1, 1.0
    with quiet():
        shifted = (array - xp.max(untracked(array), axis=-1, keepdims=True)) / heat
        if heat == float("inf"):
            shifted = xp.where(array == -xp.inf, array, xp.zeros_like(array))  # uniform on what is allowed
        if kept_count is None and kept_mass == 1.0:
            return _softmax(shifted)
        plain = untracked(shifted)
        order = xp.argsort(-plain, axis=-1, stable=True)  # descending; stable, so the lowest index wins ties
        mass = _softmax(gather(plain, order)) if kept_count is None else None
        position = xp.reshape(xp.arange(int(array.shape[-1]), device=array.device), (1,) * (array.ndim - 1) + (-1,))
        keep = position < (int(array.shape[-1]) if kept_count is None else kept_count)
        if kept_mass < 1.0:
            if mass is None:
                mass = _softmax(xp.where(keep, gather(plain, order), -xp.inf))
            before = xp.cumulative_sum(mass, axis=-1, dtype=xp.float64) - xp.astype(mass, xp.float64)
            keep = keep & ((before < kept_mass) | (position == 0))
        rank = xp.argsort(order, axis=-1)
        kept = gather(xp.broadcast_to(keep, tuple(array.shape)), rank)
        return _softmax(xp.where(kept, shifted, xp.asarray(-xp.inf, dtype=array.dtype, device=array.device)))


def _softmax(shifted: Array) -> Array:
    xp = namespace(shifted)
    weights = xp.exp(shifted)
    return weights / xp.astype(total(weights), weights.dtype)[..., None]


def _check_logits(logits: object) -> Array:
    array: Any = logits
    given = array_api_compat.is_array_api_obj(logits)
    dtype = str(array.dtype).removeprefix("torch.") if given else "float64"
    if dtype not in ("float32", "float64"):
        raise InvalidDistribution(f"logits must be float32 or float64; they are {dtype}. Convert them to float32 first.")
    array = plain_array(logits, "logits", gradients=True)
    xp = namespace(array)
    array = array if given else xp.astype(array, xp.float64)
    if array.ndim == 0 or 0 in tuple(array.shape):
        raise InvalidDistribution(f"logits need a non-empty vocabulary axis; shape {tuple(array.shape)}. Pass (..., V).")
    largest = xp.max(untracked(array), axis=-1)
    if not bool(xp.any(xp.logical_not(xp.isfinite(largest)))):  # a NaN is the largest of its row
        return array
    if bool(xp.any(xp.isnan(largest) | (largest == xp.inf))):
        raise InvalidDistribution("logits must not be NaN or +inf; some are. Check the model for overflow.")
    raise InvalidDistribution("Each row of logits needs one finite entry; a row is all -inf. Loosen the mask.")
