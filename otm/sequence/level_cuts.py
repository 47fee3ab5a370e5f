"""Sampled upper bounds on verification of K sequences at full vocabulary, by cuts of levels.

The paths of ℓ tokens are an antichain, so Σ_{|u|=ℓ} f(u) is at most the one-step optimum of the
laws of ℓ tokens. With φ(x) = 1 − (1 − x)^K and φ*(λ) = max_x [φ(x) − λx] every λ gives a bound,

    Σ_{|u|=ℓ} f(u) ≤ φ*(λ) + Σ_{|u|=ℓ} min(Q(u), λ P(u)),

and the sum is a mean over drafted paths of ℓ − 1 tokens of Σ_y min(r q(y), λ p(y)), r = Q/P along
them: a number in [0, λ]. The best λ are chosen on some paths and the mean is taken over others:
nothing is fitted to the sample that it is estimated on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm.errors import InvalidParameter
from otm.pmf import RNGLike, check_confidence, check_count, check_rng
from otm.results.statistics import Estimate, bernstein_deviation
from otm.sequence.decoding import check_pair
from otm.sequence.models import LanguageModel, check_context, next_distribution

_SLOPES = 64
_PILOT = 3
"""One path in `_PILOT` chooses the slopes."""


@dataclasses.dataclass(frozen=True)
class LevelCutBound:
    """An estimated upper bound on the tokens per call of any verification.

    Attributes:
        tokens: the estimate of the bound, with a one-sided interval: `low` is 1, and with
            probability `confidence` the bound, and so every decoder of these drafts, lies below
            `high`. Its samples are the paths that the mean was taken over.
        slopes: λ of each level.
    """

    tokens: Estimate
    slopes: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.tokens.value:.4f} [≤ {self.tokens.high:.4f}]"


def level_cut_upper(
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    num_drafts: int,
    length: int,
    samples: int,
    rng: RNGLike,
    confidence: float = 0.95,
) -> LevelCutBound:
    """Return an upper bound on the tokens of any lossless verification of K i.i.d. sequences.

    E[tokens] ≤ 1 + Σ_ℓ min_λ [φ*(λ) + E_{u∼P, |u|=ℓ−1} Σ_y min(r(u) q(y | u), λ p(y | u))].

    Args:
        draft, target: two models over one vocabulary of any size.
        context: tokens so far.
        num_drafts, length: K sequences of L tokens.
        samples: n ≥ 3 drafted paths; a third of them chooses λ.
        rng: a NumPy generator, or a seed of one.
        confidence: of the one-sided interval.

    Returns:
        LevelCutBound; `tokens.high` fails to bound every verification with probability at most 1 −
        confidence, for every n.

    Raises:
        InvalidParameter: on a count below 1, fewer than 3 samples, or a confidence outside (0, 1).

    Cost: L calls of each model and O(L·V) operations per path.
    Accuracy: an empirical Bernstein bound, of width 1/√n times the spread, and 1/n times Σ λ.
    Reference: docs/theory.md, "Tree cuts"; Maurer & Pontil 2009, Theorem 4.

    >>> import numpy as np
    >>> from otm.sequence import ZerothOrder
    >>> models = {"draft": ZerothOrder([0.75, 0.25]), "target": ZerothOrder([0.5, 0.5])}
    >>> rng = np.random.default_rng(0)
    >>> found = level_cut_upper(**models, context=[], num_drafts=2, length=1, samples=3000, rng=rng)
    >>> tokens = found.tokens
    >>> round(tokens.value, 3), tokens.high < 1.96  # one level, two drafts: 1 + 15/16
    (1.938, True)
    """
    check_pair(draft, target)
    start = check_context(context)
    k, depth = check_count(num_drafts, name="num_drafts"), check_count(length, name="length")
    level = check_confidence(confidence)
    total = check_count(samples, name="samples")
    if total < _PILOT:
        raise InvalidParameter(
            f"samples must be at least {_PILOT}, some to choose slopes and some to test; got "
            f"{samples}. Take 1000."
        )
    generator = check_rng(rng)
    slopes = k * np.linspace(0.0, 1.0, _SLOPES + 1)[1:]
    offsets = conjugate(slopes, k)
    # Some paths choose the slope of each level, the others estimate the bound with them.
    num_pilot = total // _PILOT
    pilot = np.zeros((depth, _SLOPES))
    for _ in range(num_pilot):
        pilot += _path(draft, target, start, depth, np.tile(slopes, (depth, 1)), generator)
    best = np.argmin(pilot / num_pilot + offsets, axis=1)
    chosen = slopes[best][:, None]
    values = np.array(
        [
            float(_path(draft, target, start, depth, chosen, generator).sum())
            for _ in range(total - num_pilot)
        ]
    )
    span = float(chosen.sum())
    width = bernstein_deviation(values, span=span, uncertainty=1.0 - level)
    fixed = 1.0 + float(offsets[best].sum())
    most = depth + 1.0  # no step yields more, whatever the cuts of a sample say
    mean = fixed + float(values.mean())
    high = min(mean + width, most)
    tokens = Estimate(min(mean, most), 1.0, high, len(values), level, "tokens per call")
    return LevelCutBound(tokens, tuple(float(slope) for slope in chosen[:, 0]))


def conjugate(slopes: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return φ*(λ) = max_x [1 − (1 − x)^K − λx] for 0 ≤ λ ≤ K: 1 − λ + (K − 1)(λ/K)^{K/(K−1)}.

    >>> import numpy as np
    >>> conjugate(np.array([0.0, 1.0, 2.0]), 2)
    array([1.  , 0.25, 0.  ])
    """
    if k == 1:
        return np.maximum(1.0 - slopes, 0.0)
    return np.asarray(1.0 - slopes + (k - 1) * (slopes / k) ** (k / (k - 1)))


def _path(
    draft: LanguageModel,
    target: LanguageModel,
    start: tuple[int, ...],
    depth: int,
    slopes: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return Σ_y min(r q, λ p) at each level of one drafted path, for slopes `(L, m)`."""
    context, ratio = start, 1.0
    found = np.zeros_like(slopes)
    for i in range(depth):
        p = next_distribution(draft, context, name="draft")
        q = next_distribution(target, context, name="target")
        for j, slope in enumerate(slopes[i]):
            found[i, j] = np.minimum(ratio * q, slope * p).sum()
        token = int(rng.choice(len(p), p=p / p.sum()))
        ratio *= float(q[token] / p[token])
        context = (*context, token)
    return found
