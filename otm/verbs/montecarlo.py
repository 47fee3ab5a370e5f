"""Monte Carlo estimates with exact binomial intervals."""

from __future__ import annotations

import numpy as np

from otm.pmf import RNGLike, check_confidence, check_count, check_rng
from otm.problem import Problem, keyword_only
from otm.results import Definition
from otm.results.statistics import Estimate, binomial_interval
from otm.verbs.answers import prepare, runs
from otm.verifiers.base import Rule, Verifier, check_definition


@keyword_only(
    "otm.estimate(verifier, problem, samples=10_000, rng=0)",
    reason="samples and rng are keyword-only",
)
def estimate(
    verifier: Verifier,
    problem: Problem,
    *,
    samples: int,
    rng: RNGLike,
    confidence: float = 0.95,
    by: Definition = "membership",
) -> Estimate:
    """Estimate a verifier's acceptance from samples, with a Clopper–Pearson interval.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`.
        problem: one pair of distributions `(V,)`.
        samples: number of independent draws ≥ 1.
        rng: a NumPy generator, or a seed of one.
        confidence: coverage of the interval, in (0, 1); it holds for every sample size, not only
            asymptotically.
        by: which acceptance.

    Returns:
        Estimate(value, low, high, ...).

    Raises:
        InvalidParameter: if `samples`, `confidence` or `by` is out of range.

    Cost: O(samples · k log V).
    Reference: Clopper & Pearson 1934.

    >>> import numpy as np
    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(2))
    >>> print(estimate(otm.KSeq(), problem, samples=1000, rng=np.random.default_rng(0)))
    1.0000 [0.9963, 1.0000]
    """
    count = check_count(samples, name="samples")
    level = check_confidence(confidence)
    definition = check_definition(by)
    generator = check_rng(rng)
    hits = count_accepted(prepare(verifier, problem), count, generator, definition)
    return binomial_interval(hits, count, confidence=level, quantity=f"acceptance by {definition}")


def count_accepted(rule: Rule, samples: int, rng: np.random.Generator, by: Definition) -> int:
    """Run a rule `samples` times, in chunks, and count the accepted draws."""
    return sum(
        int(np.count_nonzero(draws.accepted if by == "rule" else draws.member))
        for draws in runs(rule, size=samples, rng=rng)
    )
