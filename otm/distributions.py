"""Distributions to play with, and the way from logits to probabilities that serving engines use."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, gather, namespace, quiet, total
from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import check_count, check_real, check_rng, from_sequence


def uniform(num_tokens: int, *, vocabulary: int | None = None) -> NDArray[np.float64]:
    """Return the uniform distribution on the first `num_tokens` tokens of a vocabulary.

    U(d): p(x) = 1/d for x < d, 0 beyond.

    Args:
        num_tokens: d ≥ 1.
        vocabulary: V ≥ d, default d.

    Returns:
        Probabilities `(V,)`.

    Raises:
        InvalidParameter: unless 1 ≤ d ≤ V are integers.

    Cost: O(V). Reference: SpecTr, Figure 1.

    >>> uniform(2, vocabulary=4)
    array([0.5, 0.5, 0. , 0. ])
    """
    support = check_count(num_tokens, name="num_tokens")
    size = support if vocabulary is None else check_count(vocabulary, name="vocabulary", minimum=support)
    mass = np.zeros(size)
    mass[:support] = 1.0 / support
    return mass


def bernoulli(q: float) -> NDArray[np.float64]:
    """Return Ber(q) as a distribution on the tokens (0, 1): `(1 − q, q)`.

    Args:
        q: probability of token 1, in [0, 1].

    Returns:
        Probabilities `(2,)`.

    Raises:
        InvalidParameter: outside [0, 1].

    Cost: O(1). Reference: SpecTr, Figures 2 and 3.

    >>> bernoulli(0.25)
    array([0.75, 0.25])
    """
    heads = check_real(q, name="q", low=0.0, high=1.0)
    return np.array([1.0 - heads, heads])


def zipf(num_tokens: int, *, exponent: float = 1.0) -> NDArray[np.float64]:
    """Return Zipf's law on `num_tokens` ranks: p(i) ∝ (i + 1)^(−exponent).

    Args:
        num_tokens: V ≥ 1.
        exponent: ≥ 0; 0 is uniform.

    Returns:
        Probabilities `(V,)`, descending.

    Raises:
        InvalidParameter: on V < 1 or a negative exponent.

    Cost: O(V).

    >>> zipf(2)
    array([0.66666667, 0.33333333])
    """
    ranks = np.arange(1, check_count(num_tokens, name="num_tokens") + 1, dtype=np.float64)
    weights = ranks ** -check_real(exponent, name="exponent", low=0.0)
    mass: NDArray[np.float64] = weights / weights.sum()
    return mass


def dirichlet(
    num_tokens: int, *, rng: np.random.Generator, concentration: float = 1.0, rows: int | None = None
) -> NDArray[np.float64]:
    """Draw random distributions from a symmetric Dirichlet law.

    Args:
        num_tokens: V ≥ 1.
        rng: the source of randomness.
        concentration: > 0; 1 is uniform on the simplex, small values are peaked.
        rows: number of distributions, or None for a single one.

    Returns:
        Probabilities `(V,)`, or `(rows, V)`.

    Raises:
        InvalidParameter: on V < 1, rows < 1 or a concentration that is not positive.

    Cost: O(rows · V). Accuracy: drawn in the log domain, so that small concentrations do not underflow to rows of zeros.

    >>> dirichlet(3, rng=np.random.default_rng(0), rows=2).shape
    (2, 3)
    """
    size = check_count(num_tokens, name="num_tokens")
    alpha = check_real(concentration, name="concentration", low=0.0, high=1e300, open_low=True)
    check_rng(rng)
    shape = (size,) if rows is None else (check_count(rows, name="rows"), size)
    # In the log domain: with concentrations of 1e-3 plain gamma variates underflow to a row of zeros.
    # G(a) = G(a + 1)·U^{1/a} in law.
    logs = np.log(rng.standard_gamma(alpha + 1.0, size=shape)) + np.log1p(-rng.random(shape)) / alpha
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    mass: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return mass


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
        Probabilities `(..., V)` of the same namespace, device and dtype.

    Raises:
        InvalidDistribution: on NaN or +∞, a row without a finite logit, half precision, or an empty vocabulary.
        InvalidParameter: if temperature, top_k or top_p is out of range.

    Cost: O(V), O(V log V) with top-k or top-p. Accuracy: the largest logit is subtracted first, so nothing overflows.

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
        shifted = (array - xp.max(array, axis=-1, keepdims=True)) / heat
        if heat == float("inf"):
            shifted = xp.where(array == -xp.inf, array, xp.zeros_like(array))  # uniform on what is allowed
        if kept_count is None and kept_mass == 1.0:
            return _softmax(shifted)
        order = xp.argsort(-shifted, axis=-1, stable=True)  # descending; stable, so the lowest index wins ties
        mass = _softmax(gather(shifted, order)) if kept_count is None else None
        position = xp.reshape(xp.arange(int(array.shape[-1]), device=array.device), (1,) * (array.ndim - 1) + (-1,))
        keep = position < (int(array.shape[-1]) if kept_count is None else kept_count)
        if kept_mass < 1.0:
            if mass is None:
                mass = _softmax(xp.where(keep, gather(shifted, order), -xp.inf))
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
    if not array_api_compat.is_array_api_obj(logits):
        array = from_sequence(logits, "logits")
        array = array.astype(np.float64) if array.dtype.kind in "iu" else array
    xp = namespace(array)
    dtype = str(array.dtype).removeprefix("torch.")
    if dtype not in ("float32", "float64"):
        raise InvalidDistribution(f"logits must be float32 or float64; they are {dtype}. Convert them to float32 first.")
    if array.ndim == 0 or 0 in tuple(array.shape):
        raise InvalidDistribution(f"logits need a non-empty vocabulary axis; shape {tuple(array.shape)}. Pass (..., V).")
    if bool(xp.any(xp.isnan(array))) or bool(xp.any(array == xp.inf)):
        raise InvalidDistribution("logits must not be NaN or +inf; some are. Check the model for overflow.")
    if bool(xp.any(xp.max(array, axis=-1) == -xp.inf)):
        raise InvalidDistribution("Each row of logits needs one finite entry; a row is all -inf. Loosen the mask.")
    return array


def describe(mass: Array) -> dict[str, float]:
    """Return the size, entropy (bits) and largest mass of one distribution `(V,)`, for tables and plots.

    Args:
        mass: one distribution `(V,)`; not validated further.

    Returns:
        num_tokens (V), support (tokens with mass), entropy_bits, largest.

    Raises:
        InvalidParameter: unless there is one axis.

    Cost: O(V).

    >>> describe(uniform(4))
    {'num_tokens': 4.0, 'support': 4.0, 'entropy_bits': 2.0, 'largest': 0.25}
    """
    p = np.asarray(mass, dtype=np.float64)
    if p.ndim != 1:
        raise InvalidParameter(f"describe takes one distribution (V,); got shape {p.shape}. Index a row.")
    live = p[p > 0]
    entropy = float(-(live * np.log2(live)).sum()) + 0.0
    return {"num_tokens": float(len(p)), "support": float(len(live)), "entropy_bits": entropy, "largest": float(p.max())}
