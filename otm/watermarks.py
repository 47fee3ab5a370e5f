"""Watermarks with two keys under speculative decoding: what they cost, say, and how soon.

A Gumbel watermark draws a token by a race whose clocks are made of a secret key and the tokens
before: argmin E(x)/w(x), that is argmax u(x)^{1/w(x)} with u = e^{−E}. Who holds the key finds the
text's tokens to have large u. With one key for both models a draft is accepted if both races have
one winner, less often than by rejection (`python -m figures watermark`). With two keys it is not:
drafts are drawn from p by key A, accepted with min(1, q/p) as ever, and what replaces a rejected
one is drawn from the residual by key B (SynthID-Text, supplementary algorithm 6; `dual_key_gumbel`
of vLLM). The coin of acceptance may be a generator's own or come from the key as well.

All of this is known in closed form (docs/theory.md, "Two keys").
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable
from typing import Any, final

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._arrays import Floats, as_scalar_or_array, to_numpy, unit_rows
from otm.errors import ShapeMismatch, TooLarge
from otm.pmf import RNGLike, align_pair, as_pmfs, check_instance, check_real, check_rng
from otm.problem import keyword_only
from otm.scheme import Scheme, parameter

__all__ = ["DualKey", "evidence_laws", "mean_score", "strength", "tokens_to_flag"]

LEAST_TOKENS = 8
"""Fewest tokens that `tokens_to_flag` answers: sums of fewer are slow to invert."""

MOST_TOKENS = 10**6
"""Largest number of tokens that `tokens_to_flag` tries."""

_MOST_ENTRIES = 1 << 24
_MANY = 1e4  # Γ(a + 1)/Γ(a + 1 − s) is a power from here on, to |s|⁵ a⁻⁴
_MOST_NODES = 100_000
_ERROR = 1e-9  # of an inversion, as a part of the chance that is looked for
_QUIET = 8  # likely and rare tokens may cancel at a node, and do not at so many in a row


def __dir__() -> list[str]:
    return __all__


@final
@dataclasses.dataclass(frozen=True)
class DualKey(Scheme):
    """Draft by key A, accept by rejection, and replace by key B.

    In the mean over keys the output has law q and is the draft with probability Σ min(p, q), as in
    `otm.Maximal`: the watermark costs no acceptance. A detector that knows the key and not the
    models adds up scores −log(1 − u) of the tokens, of key A and of key B with weights 1 − w and w;
    with a keyed coin that of key A where the coin is at most 1 − w, else that of key B.

    Args:
        keyed_coin: whether the coin of acceptance comes from the key too, so that the detector
            knows it and the token is a function of the key.
        weight: w, key B's part in the detector; 0.1 is vLLM's default. Best for a weak watermark
            is b/(a + b), a and b the mean scores of keys A and B alone (w = 0 and w = 1).

    Raises:
        InvalidParameter: if `keyed_coin` is not a bool, or `weight` not in [0, 1].

    Cost: O(V) per token.
    Reference: SynthID-Text [Dathathri et al. 2024], supplementary algorithm 6; vllm-project/vllm at
        01c268b, vllm/v1/watermarking/gumbel.py and docs/features/watermarking.md; the keyed coin:
        He et al. 2026 (2602.01428).

    >>> import otm
    >>> pair = {"draft": [0.75, 0.25], "target": [0.5, 0.5]}
    >>> round(strength(DualKey(keyed_coin=True), **pair), 6)  # log 2: all of the target's entropy
    0.693147
    >>> round(strength(DualKey(), **pair), 6)  # less 3/4 of the entropy of a coin of 2/3
    0.215762
    """

    title = "dual-key watermark"
    keyed_coin: bool = parameter(
        lambda value, name: check_instance(value, bool, name=name), default=False
    )
    weight: float = parameter(check_real, default=0.1, low=0.0, high=1.0)

    def token(self, *, draft: object, target: object, rng: RNGLike) -> tuple[int, bool]:
        """Draw one token with a fresh key, and say whether it is the draft.

        Args:
            draft, target: probabilities `(V,)`.
            rng: what the key is drawn from: a NumPy generator, or a seed of one.

        Raises:
            InvalidDistribution: if a row is no distribution. ShapeMismatch: if there are several.

        Cost: O(V).

        >>> DualKey().token(draft=[0.75, 0.25], target=[0.0, 1.0], rng=0)
        (1, False)
        """
        p, q = _pair(self, draft, target)
        if p.ndim != 1:
            raise ShapeMismatch(
                f"A token is drawn from one pair of laws (V,); got shape {p.shape}. Call it for "
                "each row."
            )
        key = check_rng(rng)
        drafted = _winner(key.exponential(size=len(p)), p)
        if key.random() * p[drafted] < q[drafted]:
            return drafted, True
        return _winner(key.exponential(size=len(p)), np.maximum(q - p, 0.0)), False


def _winner(clocks: NDArray[np.float64], rates: Floats) -> int:
    """Return the first arrival of a race."""
    live = np.flatnonzero(rates > 0)
    return int(live[np.argmin(clocks[live] / rates[live])])


@keyword_only("otm.watermarks.strength(scheme, draft=p, target=q)")
def strength(scheme: DualKey, *, draft: object, target: object) -> Any:
    """Return what a token tells of the key, to a detector that knows both models, in nats.

    I(Y; key) = H(q) with a keyed coin; else H(q) − Σ_x p(x) h(min(1, q(x)/p(x))), h(a) the entropy
    of a coin: what the detector does not know is how the coin fell. It is the mean log-likelihood
    ratio per token, so that log(1/ε)/I tokens are needed, about, for false alarms of probability ε.

    Args:
        scheme: a `DualKey`.
        draft, target: probabilities `(..., V)`.

    Returns:
        A float, or `(...)` in float64; in [0, log V].

    Raises:
        InvalidDistribution, ShapeMismatch: see `otm.Problem`.

    Cost: O(V).
    Accuracy: 100 νu (1 + log V); the entropy of a coin that is nearly sure moves by −log u times
        what its chance does.
    Reference: docs/theory.md, "Two keys"; He et al. 2026, for the measure.

    >>> pair = {"draft": [0.5, 0.5], "target": [0.25, 0.75]}
    >>> round(strength(DualKey(), **pair), 6)  # H(1/4) − ½ log 2
    0.215762
    """
    p, q = _pair(scheme, draft, target)
    whole = scipy.special.entr(q).sum(axis=-1)
    if not scheme.keyed_coin:
        kept, over = (_divided(np.maximum(part, 0.0), p) for part in (np.minimum(p, q), p - q))
        whole = whole - (p * (scipy.special.entr(kept) + scipy.special.entr(over))).sum(axis=-1)
    return as_scalar_or_array(np.maximum(whole, 0.0))


@keyword_only("otm.watermarks.evidence_laws(scheme, draft=p, target=q)")
def evidence_laws(scheme: DualKey, *, draft: object, target: object) -> tuple[Floats, Floats]:
    """Return the two laws that the best detector tells apart at a token, for `otm.lossy.composed`.

    What it sees that matters is the winner X of the draft's race and Z of the residual's, and the
    token Y; the laws are of classes of equal likelihood ratio: Y = X, then (X, Z) with Y = Z ≠ X,
    then neither. With a keyed coin: each Y that the key decides for, then any other.

    Args:
        scheme: a `DualKey`.
        draft, target: probabilities `(..., V)`; leading axes are contexts.

    Returns:
        (target, output): probabilities `(..., n)` of the classes for a text without key, and for
        a marked one; arguments of `otm.lossy.composed` and `otm.lossy.tokens_to_detect`.

    Raises:
        As `strength`. TooLarge: beyond 2²⁴ classes, without a keyed coin.

    Cost: O(V), or without a keyed coin O(V²). Accuracy: rounding of products.
    Reference: docs/theory.md, "Two keys".

    >>> import otm
    >>> pair = {"draft": [0.75, 0.25], "target": [0.5, 0.5]}
    >>> for keyed in (False, True):  # tokens until 95 % are found at 1 % of false alarms
    ...     null, marked = evidence_laws(DualKey(keyed_coin=keyed), **pair)
    ...     print(otm.lossy.tokens_to_detect(target=null, output=marked))
    (26.0, 27.0)
    (7.0, 7.0)
    """
    p, q = _pair(scheme, draft, target)
    kept, over, more = np.minimum(p, q), np.maximum(p - q, 0.0), np.maximum(q - p, 0.0)
    if scheme.keyed_coin:
        marked, null = q, q * q
    else:
        away, new = (
            np.flatnonzero(part.any(axis=tuple(range(p.ndim - 1)))) for part in (over, more)
        )
        if p[..., 0].size * len(away) * len(new) > _MOST_ENTRIES:
            raise TooLarge(
                f"Evidence is limited to {_MOST_ENTRIES:,} classes; {len(away)} tokens may be "
                f"rejected and {len(new)} replace them. Ask for DualKey(keyed_coin=True), or take "
                "fewer tokens."
            )
        residual = _divided(more, more.sum(axis=-1, keepdims=True))
        pairs = [
            (left[..., away, None] * right[..., None, new]).reshape(*p.shape[:-1], -1)
            for left, right in ((over, residual), (p * (over > 0), residual * q))
        ]
        marked = np.concatenate([kept, pairs[0]], axis=-1)
        null = np.concatenate([p * q, pairs[1]], axis=-1)
    rest = np.maximum(1.0 - null.sum(axis=-1, keepdims=True), 0.0)
    return np.concatenate([null, rest], axis=-1), np.concatenate([marked, 0.0 * rest], axis=-1)


@keyword_only("otm.watermarks.mean_score(scheme, draft=p, target=q)")
def mean_score(scheme: DualKey, *, draft: object, target: object) -> Any:
    """Return what a token adds to the detector's score, in the mean over keys, above a text's 1.

    With g(p) = ψ(1 + 1/p) − ψ(2), what the winner of a race scores above any token, key A gives
    a = Σ g(p) (min(p, q) − p (q − p)₊/(1 − p)) and key B b = Σ (q − p)₊ g((q − p)₊/TV); the score
    is (1 − w) a + w b. With a keyed coin those masses are split by whether it is at most 1 − w.

    Args:
        scheme: a `DualKey`.
        draft, target: probabilities `(..., V)`.

    Returns:
        A float, or `(...)` in float64: nats, but of a detector that knows no model.

    Raises:
        As `strength`.

    Cost: O(V). Accuracy: 1e-12.
    Reference: docs/theory.md, "Two keys"; the score: Aaronson 2023.

    >>> mean_score(DualKey(weight=0.0), draft=[0.5, 0.5], target=[0.5, 0.5])  # 1 + 1/2, less 1
    0.5
    """
    p, q = _pair(scheme, draft, target)
    parts = _Parts.of(scheme, p, q)
    won = (parts.won * _gain(p)).sum(axis=-1)
    lost = (parts.lost * _divided(p, 1.0 - p) * _gain(p)).sum(axis=-1)
    new = (parts.new * _gain(parts.residual)).sum(axis=-1)
    return as_scalar_or_array(parts.weights[0] * (won - lost) + parts.weights[1] * new)


@keyword_only("otm.watermarks.tokens_to_flag(scheme, draft=p, target=q)")
def tokens_to_flag(
    scheme: DualKey,
    *,
    draft: object,
    target: object,
    power: float = 0.95,
    level: float = 0.01,
) -> float:
    """Return after how many tokens the sum of scores tells a marked text from any other.

    The least T ≥ 8, by bisection, at which the sum is above a threshold with probability `power`
    for a marked text, and `level` for one without key. How few a detector needs that knows both
    models is `otm.lossy.tokens_to_detect` of `evidence_laws`.

    Args:
        scheme: a `DualKey`.
        draft, target: probabilities `(..., V)`; leading axes are contexts, equally likely, of which
            every token is an independent draw.
        power, level: chances in (0, 1).

    Returns:
        T; infinite beyond a million.

    Raises:
        As `strength`. InvalidParameter: if a chance is out of range.

    Cost: some twenty inversions of a characteristic function, each of O(V) at a hundred points; 20
        s at V = 128,256.
    Accuracy: both chances, and what they lack to 1, to 1e-8 of themselves and 1e-15, so that T is
        off by one at most where they touch.
    Reference: docs/theory.md, "Two keys".

    >>> pair = {"draft": [0.75, 0.125, 0.125], "target": [0.25, 0.375, 0.375]}
    >>> a, b = (mean_score(DualKey(weight=w), **pair) for w in (0.0, 1.0))
    >>> [tokens_to_flag(DualKey(weight=w), **pair) for w in (0.1, b / (a + b))]
    [135.0, 96.0]
    """
    p, q = _pair(scheme, draft, target)
    chances = [
        check_real(value, name=name, low=1e-12, high=1.0 - 1e-12)
        for name, value in (("power", power), ("level", level))
    ]
    parts = _Parts.of(scheme, p, q)
    numbers = range(LEAST_TOKENS, MOST_TOKENS + 1)
    first = bisect.bisect_left(
        numbers, chances[0], key=lambda one: parts.power(one, chances[1], chances[0])
    )
    return float(numbers[first]) if first < len(numbers) else math.inf


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Where the token of a marked text comes from, and which scores the detector counts.

    Attributes:
        scheme: what is detected.
        weights: of the scores of key A and of key B.
        draft, residual: laws `(..., V)` of the races.
        won: masses `(..., V)` of drafts accepted whose score of key A counts.
        lost, new: masses `(..., V)` of replacements whose score of key A, of key B counts.
    """

    scheme: DualKey
    weights: tuple[float, float]
    draft: Floats
    residual: Floats
    won: Floats
    lost: Floats
    new: Floats

    @classmethod
    def of(cls, scheme: DualKey, p: Floats, q: Floats) -> _Parts:
        """Part the masses of a pair; those of a keyed coin by the side that it is on."""
        kept, more = np.minimum(p, q), np.maximum(q - p, 0.0)
        rejected = more.sum(axis=-1, keepdims=True)
        residual = _divided(more, rejected)
        if not scheme.keyed_coin:
            weights = (1.0 - scheme.weight, scheme.weight)
            return cls(scheme, weights, p, residual, kept, more, more)
        early = 1.0 - scheme.weight
        won = np.minimum(early * p, q)
        share = np.clip(_divided(early - won.sum(axis=-1, keepdims=True), rejected), 0.0, 1.0)
        return cls(scheme, (1.0, 1.0), p, residual, won, share * more, (1.0 - share) * more)

    def growth(self, at: complex) -> complex:
        """Return log E e^{at·score} of a marked token, in the mean over contexts and keys."""
        a, b = (weight * at for weight in self.weights)
        first, second = _winner_mean(self.draft, a), _winner_mean(self.residual, b)
        # any token is its race's winner with probability p, else a loser
        loser = _divided(1.0 / (1.0 - a) - self.draft * first, 1.0 - self.draft)
        any_other = 1.0 / (1.0 - b)  # of key B, which did not draw it
        if self.scheme.keyed_coin:
            counted = ((self.won, first), (self.lost, loser), (self.new, second))
            mean = any_other + sum(
                (mass * (each - any_other)).sum(axis=-1) for mass, each in counted
            )
        else:
            mean = (self.won * first * any_other + self.lost * loser * second).sum(axis=-1)
        return complex(np.log(np.mean(mean)))

    def power(self, tokens: int, level: float, near: float) -> float:
        """Return how often a marked text is flagged, exact near a chance, by a test of a level."""
        most = max(self.weights)
        scored = np.array([1.0, 0.0] if self.scheme.keyed_coin else self.weights)
        # above the larger of the two gammas, below one of twice as many tokens
        threshold = scipy.optimize.brentq(
            lambda at: (
                _tail(
                    lambda s: complex(-np.log(1.0 - s * scored).sum()),
                    tokens,
                    at,
                    limit=1.0 / most,
                    near=level,
                )
                - level
            ),
            0.99 * most * float(scipy.special.gammainccinv(tokens, level)),
            float(scipy.special.gammainccinv(2 * tokens, level)),
        )
        return _tail(self.growth, tokens, threshold, limit=1.0 / most, near=near)


def _tail(
    growth: Callable[[complex], complex],
    tokens: int,
    threshold: float,
    *,
    limit: float,
    near: float,
) -> float:
    """Return the chance that the sum of so many scores exceeds a threshold.

    The integral of e^{T·growth(s) − s·threshold}/s along Re s = θ, one less left of the pole at 0,
    by the trapezoid rule: it errs by copies of the tail 2π/step apart, together by 1e-8 of `near`,
    the chance that the result is compared with, or of what that lacks to 1.
    """

    def exponent(s: complex) -> complex:
        return tokens * growth(s) - s * threshold

    least = 0.5 * limit / math.sqrt(tokens)
    saddle = scipy.optimize.minimize_scalar(
        lambda s: exponent(s).real, bounds=(-limit, limit), method="bounded"
    ).x
    tilt = float(saddle) if abs(saddle) > least else least
    error = _ERROR * min(near, 1.0 - near)
    # copies on one side are small by the step alone; θ lifts the others, which Chernoff bounds
    beyond = min(2.0 * tilt, 0.5 * (tilt + limit))
    doubt = -math.log(error)
    step = (2.0 * math.pi * abs(tilt)) / max(
        doubt, (doubt + exponent(beyond).real) / (beyond / tilt - 1.0)
    )
    total, quiet = 0.0, 0
    for place in range(_MOST_NODES):
        s = complex(tilt, step * place)
        term = complex(np.exp(exponent(s))) / s
        total += term.real * (0.5 if place == 0 else 1.0)
        quiet = quiet + 1 if abs(term) < 0.01 * error else 0
        if quiet == _QUIET:
            break
    return step / math.pi * total + (tilt < 0)


def _winner_mean(law: Floats, at: complex) -> NDArray[np.complex128]:
    """Return E e^{s·score} of a token that wins, Γ(1 − s) Γ(a + 1)/Γ(a + 1 − s), a = 1/p."""
    many = 1.0 / np.maximum(law, 1e-300)
    near = np.minimum(many, _MANY)
    quotient = scipy.special.loggamma(near + 1.0) - scipy.special.loggamma(near + 1.0 - at)
    middle = np.maximum(many, _MANY) + 0.5 * (1.0 - at)
    far = at * np.log(middle) - at * (at**2 - 1.0) / 24.0 / middle / middle
    power = np.where(many < _MANY, quotient, far) + scipy.special.loggamma(complex(1.0 - at))
    return np.asarray(np.exp(power))


def _gain(law: Floats) -> Floats:
    """Return what the winner of a race scores above 1, ψ(1 + 1/p) − ψ(2); 0 where p = 0."""
    return np.where(
        law > 0,
        scipy.special.digamma(1.0 + 1.0 / np.maximum(law, 1e-300)) - scipy.special.digamma(2.0),
        0.0,
    )


def _divided(part: Any, whole: Any) -> Any:
    """Return quotients, 0 where nothing is divided by nothing."""
    return np.divide(
        part,
        whole,
        out=np.zeros(np.broadcast(part, whole).shape, np.result_type(part)),
        where=whole > 0,
    )


def _pair(scheme: DualKey, draft: object, target: object) -> tuple[Floats, Floats]:
    """Check what every function takes."""
    check_instance(scheme, DualKey, name="scheme")
    pair = align_pair(*as_pmfs({"draft": draft, "target": target}))
    return to_numpy(unit_rows(pair[0])), to_numpy(unit_rows(pair[1]))
