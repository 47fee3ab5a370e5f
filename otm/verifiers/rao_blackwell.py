"""The acceptance of recursive rejection without replacement from sampled paths.

By the Rao–Blackwell theorem an expectation given part of the randomness varies less than what it is
the expectation of. Here the part that is drawn are the rejected drafts; whether each is rejected,
and the last draft itself, are integrated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import inverse_cdf, quiet
from otm.drafts.without_replacement import WithoutReplacement
from otm.pmf import RNGLike, check_confidence, check_count, check_rng
from otm.problem import Problem, require_law
from otm.results.statistics import Estimate, bernstein_deviation
from otm.verifiers.rejection_without_replacement import (
    SCALE,
    RecursiveRejectionWithoutReplacementRule,
)

_ELEMENTS_AT_ONCE = 1 << 20
# running sums err by 1e-16: tokens of a rejected mass above this are told apart to eight digits
_RESOLVED = 1e-8


def rao_blackwell_acceptance(
    problem: Problem, *, samples: int, rng: RNGLike, confidence: float = 0.95
) -> Estimate:
    """Estimate the acceptance of recursive rejection without replacement from sampled paths.

    Paths are drawn as they are given that every draft on them is rejected, and each stage counts
    with its exact rejection probability: the sample is B = Π_i G(θ_i)/G(θ_{i−1}), whose mean is 1 −
    α. The first factor is TV(p, q) on every path, the last draft need not be drawn, and what varies
    is only how the later factors depend on the earlier drafts: a variance far below that of
    counting accepted outputs. The interval is an empirical Bernstein bound on B/TV in [0, 1], valid
    for every sample size: mean ± (√(2v·ln(4/δ)/n) + 7 ln(4/δ)/(3(n − 1))), v the sample variance, δ
    = 1 − confidence.

    Args:
        problem: one pair of distributions `(V,)` with a `WithoutReplacement` law.
        samples: number of sampled paths n ≥ 2.
        rng: a NumPy generator, or a seed of one.
        confidence: coverage of the interval, in (0, 1).

    Returns:
        Estimate(value, low, high, ...).

    Raises:
        Unsupported: for another law.
        InvalidParameter: if `samples` or `confidence` is out of range, or `rng` is no generator.
        ShapeMismatch: if the problem has leading axes.

    Cost: O(samples · k log V).
    Reference: Maurer & Pontil 2009, Theorem 4 (both sides at δ/2).

    >>> import numpy as np
    >>> import otm
    >>> p, q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]
    >>> problem = otm.Problem(draft=p, target=q, law=otm.WithoutReplacement(2))
    >>> found = rao_blackwell_acceptance(problem, samples=2000, rng=np.random.default_rng(0))
    >>> found.low < otm.acceptance(otm.RecursiveRejection(), problem) < found.high
    True
    """
    law = require_law(
        problem,
        WithoutReplacement,
        message="rao_blackwell_acceptance is about drafts without replacement; the problem has "
        "{law!r}. Choose law=otm.WithoutReplacement({k}), or otm.acceptance, which is exact "
        "for i.i.d. drafts.",
    )
    count = check_count(samples, name="samples", minimum=2)
    level = check_confidence(confidence)
    generator = check_rng(rng)
    rule = RecursiveRejectionWithoutReplacementRule.of(
        problem.single(purpose="otm.verifiers.rao_blackwell_acceptance")
    )
    step = max(1, _ELEMENTS_AT_ONCE // law.k)
    values = np.concatenate(
        [
            _rejected_on_paths(rule, min(step, count - start), generator)
            for start in range(0, count, step)
        ]
    )
    # Every sample lies in [0, TV]: the first stage rejects with probability TV = Σ (q − p)₊
    # whatever is drafted.
    widest = float(rule.residuals.mass(np.full(1, SCALE))[0] / SCALE)
    reach = bernstein_deviation(values, span=widest, uncertainty=(1.0 - level) / 2)
    mean = 1.0 - float(values.mean())
    return Estimate(
        value=mean,
        low=max(0.0, mean - reach),
        high=min(1.0, mean + reach),
        samples=count,
        confidence=level,
        quantity="acceptance by membership",
    )


def _rejected_on_paths(
    rule: RecursiveRejectionWithoutReplacementRule, size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return unbiased samples `(size,)` in [0, 1] of the probability that all are rejected."""
    # A stage multiplies by its exact rejection probability and draws the next draft as it is given
    # that it was rejected, the first from (p − q)₊. Where the mass left is too small for running
    # sums to tell its tokens apart, a later stage draws from what is left and multiplies by the
    # probability of rejecting that draft instead: the same mean.
    k = min(rule.problem.num_drafts, rule.remaining.size)
    drafts = np.empty((size, 0), dtype=np.int64)
    theta, mass = np.zeros(size), np.full(size, rule.residuals.mass(np.zeros(1))[0])
    product = np.ones(size)
    excess = np.maximum(rule.problem.draft - rule.problem.target, 0.0)
    for stage in range(k):
        taken = rule.position[drafts]
        left = rule.remaining.mass(taken)
        after = rule.residuals.next(theta, mass, left)
        mass_after = rule.residuals.mass(after)
        rejected = np.minimum(
            1.0, np.divide(mass_after, mass, out=np.zeros_like(mass), where=mass > 0)
        )
        if stage == k - 1:
            return np.asarray(product * rejected)
        if stage == 0 and excess.any():  # else every sample would be up to 1, not up to TV
            product, theta, mass = product * rejected, after, mass_after
            drafts = inverse_cdf(excess, rng.random(size))[:, None]
            continue
        resolved = left * rejected > _RESOLVED
        plain = rule.remaining.tokens[rule.remaining.draw(taken, rng.random(size))]
        token = np.where(
            resolved, rule.residuals.draw_rejected(theta, after, drafts, rng.random(size)), plain
        )
        with quiet():
            scale = np.where(left > 0, mass / left, 0.0)
        product = product * np.where(
            resolved, rejected, 1.0 - rule.residuals.keep(token, theta, scale)
        )
        drafts = np.column_stack([drafts, token])
        theta, mass = after, mass_after
    return product
