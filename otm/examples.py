"""Example distributions, and optima known in closed form."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array
from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import RNGLike, check_count, check_real, check_rng, keyword_only, plain_reals

__all__ = [
    "bernoulli",
    "describe",
    "dirichlet",
    "two_token_optimum",
    "uniform",
    "uniform_optimum",
    "zipf",
]


def __dir__() -> list[str]:
    return __all__


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

    Cost: O(V).
    Reference: SpecTr, Figure 1.

    >>> uniform(2, vocabulary=4)
    array([0.5, 0.5, 0. , 0. ])
    """
    support = check_count(num_tokens, name="num_tokens")
    size = (
        support
        if vocabulary is None
        else check_count(vocabulary, name="vocabulary", minimum=support)
    )
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

    Cost: O(1).
    Reference: SpecTr, Figures 2 and 3.

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
    num_tokens: int,
    *,
    rng: RNGLike,
    concentration: float = 1.0,
    rows: int | None = None,
) -> NDArray[np.float64]:
    """Draw random distributions from a symmetric Dirichlet law.

    Args:
        num_tokens: V ≥ 1.
        rng: a NumPy generator, or a seed of one.
        concentration: > 0; 1 is uniform on the simplex, small values are peaked.
        rows: number of distributions, or None for a single one.

    Returns:
        Probabilities `(V,)`, or `(rows, V)`.

    Raises:
        InvalidParameter: on V < 1, rows < 1 or a concentration that is not positive.

    Cost: O(rows · V).
    Accuracy: drawn in the log domain, so that small concentrations do not underflow to rows of
        zeros.

    >>> import numpy as np
    >>> dirichlet(3, rng=np.random.default_rng(0), rows=2).shape
    (2, 3)
    """
    size = check_count(num_tokens, name="num_tokens")
    alpha = check_real(concentration, name="concentration", low=0.0, high=1e300, open_low=True)
    generator = check_rng(rng)
    shape = (size,) if rows is None else (check_count(rows, name="rows"), size)
    # In the log domain: with concentrations of 1e-3 plain gamma variates underflow to a row of
    # zeros. G(a) = G(a + 1)·U^{1/a} in law.
    logs = (
        np.log(generator.standard_gamma(alpha + 1.0, size=shape))
        + np.log1p(-generator.random(shape)) / alpha
    )
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    mass: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return mass


def describe(mass: Array) -> dict[str, float]:
    """Return the size, entropy (bits) and largest mass of one distribution `(V,)`.

    Args:
        mass: one distribution `(V,)`; not validated further.

    Returns:
        num_tokens (V), support (tokens with mass), entropy_bits, largest.

    Raises:
        InvalidParameter: unless there is one axis.
        InvalidDistribution: on anything but finite numbers ≥ 0.

    Cost: O(V).

    >>> describe(uniform(4))
    {'num_tokens': 4.0, 'support': 4.0, 'entropy_bits': 2.0, 'largest': 0.25}
    """
    p = plain_reals(mass, "mass").astype(np.float64)
    if p.ndim == 1 and (p.size == 0 or not np.isfinite(p).all() or p.min() < 0):
        raise InvalidDistribution(
            "mass must hold finite numbers ≥ 0, at least one; it does not. Check how it was "
            "computed."
        )
    if p.ndim != 1:
        raise InvalidParameter(
            f"describe takes one distribution (V,); got shape {p.shape}. Index a row."
        )
    live = p[p > 0]
    entropy = float(-(live * np.log2(live)).sum()) + 0.0
    return {
        "num_tokens": float(len(p)),
        "support": float(len(live)),
        "entropy_bits": entropy,
        "largest": float(p.max()),
    }


@keyword_only(
    "otm.examples.uniform_optimum(ratio=2, k=3)",
    reason="ratio and k are keyword-only",
)
def uniform_optimum(*, ratio: float, k: int) -> float:
    """Return the optimal acceptance of k i.i.d. drafts from U(d) for the target U(d/r).

    α*_k = 1 − (1 − 1/r)^k: some draft falls among the d/r tokens. K-SEQ attains it with γ* = r (1 −
    (1 − 1/r)^k).

    Args:
        ratio: r ≥ 1, with d/r an integer for the formula to describe two uniform laws.
        k: number of drafts ≥ 1.

    Returns:
        α*_k, in [0, 1].

    Raises:
        InvalidParameter: outside these ranges.

    Cost: O(1).
    Reference: SpecTr, appendix B.2 and D.1.

    >>> uniform_optimum(ratio=2, k=3)
    0.875
    """
    r = check_real(ratio, name="ratio", low=1.0)
    count = check_count(k, name="k")
    return -math.expm1(count * math.log1p(-1.0 / r)) if r > 1 else 1.0


def two_token_optimum(*, draft: float, target: float, k: int) -> float:
    """Return the optimal acceptance of k i.i.d. drafts on two tokens.

    α*_k = min(q, 1 − (1−p)^k) + min(1 − q, 1 − p^k).

    Args:
        draft: p, the draft's mass of token 1, in [0, 1].
        target: q, the target's mass of token 1, in [0, 1].
        k: number of drafts ≥ 1.

    Returns:
        α*_k, in [0, 1].

    Raises:
        InvalidParameter: outside these ranges.

    Cost: O(1).
    Reference: SpecTr, appendix B.2.

    >>> two_token_optimum(draft=0.25, target=0.5, k=2)
    0.9375
    """
    p = check_real(draft, name="draft", low=0.0, high=1.0)
    q = check_real(target, name="target", low=0.0, high=1.0)
    count = check_count(k, name="k")
    return min(q, 1.0 - (1.0 - p) ** count) + min(1.0 - q, 1.0 - p**count)
