"""Tests of an output law from samples, with proved levels at every sample size, and planning.

Two designs, complementary. *Distance*: T = ½ Σ |N/n − q| exceeds its mean by t with probability at
most e^{−2nt²} (McDiarmid: one sample moves T by at most 1/n), and under the null its mean is at
most ½ Σ √(q(1−q)/n). Under any law at total variation ε the mean is at least ε (Jensen). Level,
power and sample size follow for every alternative, in closed form. *Evidence*: a likelihood ratio
against q, averaged over alternatives by a prior chosen beforehand, is a martingale of mean 1 under
the null, so that it ever reaches 1/δ with probability at most δ (Ville): it may be looked at after
every sample, stops early on gross faults, and one token that the target cannot emit settles it. The
audits run both, each at half the level.

A third kind of evidence needs no vocabulary: a lossless verifier's output is among the drafts with
probability at most α*, the optimum. Acceptance beyond it proves that the output law is wrong by at
least the excess, over any number of tokens.

Where the sampler's noise is known, token by token, no statistics are left: the token is the argmax
of log q + g, and one that is not, by more than rounding, settles it. `tokens_to_mismatch` says when
it comes.

Proofs: docs/theory.md, "Audits".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm.errors import ShapeMismatch
from otm.overlap.curve import Containment
from otm.pmf import check_real, host_pmf
from otm.races import race_match
from otm.results.statistics import Estimate

_CONCENTRATIONS = (10.0, 100.0, 1000.0)
"""Priors centred at the target, for near alternatives; beside these Dirichlet(1/2), for any."""

_EXCESSES = tuple(2.0**-j for j in range(1, 11))
"""Alternatives to acceptance at the optimum, as shares of the distance to 1."""


_ROUNDING = 1e-9
_LEAST_PARAMETER = 1e-300

_MOST_TOLERANCE = 700.0
"""Largest tolerance, in nats, whose exponential is a number."""

_SAME = 1e-12
"""Probability of a mismatch that may be rounding of the sums."""

_TAIL = 32
"""Most excesses that the limit of a noise is made of."""


def spread(mass: NDArray[Any]) -> float:
    """Return ½ Σ √(q(1−q)): √n times the bound on the mean distance under the null.

    1 − q of the largest mass is the sum of the others: beside 1 a mass of 1e-17 still has the root
    3e-9.
    """
    others = 1.0 - mass
    largest = int(mass.argmax())
    others[largest] = np.delete(mass, largest).sum()
    return float(0.5 * np.sqrt(mass * others).sum())


def deviation(probability: float) -> float:
    """Return √(log(1/δ)/2): √n times the deviation that the distance exceeds with probability δ."""
    return math.sqrt(0.5 * math.log(1.0 / probability))


def samples_needed(mass: NDArray[Any], *, detect: float, false_alarm: float, missed: float) -> int:
    """Return the number of samples that the distance test needs to find every law `detect` away.

    n = ((½ Σ √(q(1−q)) + √(log(1/δ)/2) + √(log(1/β)/2)) / ε)².

    Args:
        mass: q, the target `(V,)`, a distribution.
        detect: ε in (0, 1], the total variation not to miss.
        false_alarm: δ in (0, 1], probability at most that a lossless verifier is called lossy.
        missed: β in (0, 1], probability at most that a law at ε or beyond is not.

    Returns:
        n, rounded up.

    Raises:
        InvalidDistribution: if `mass` is no distribution; ShapeMismatch: if it has leading axes.
        InvalidParameter: if a probability is out of its range.

    Cost: O(V). Reference: McDiarmid 1989; docs/theory.md, "Audits".

    >>> import numpy as np
    >>> samples_needed(np.array([0.5, 0.5]), detect=0.02, false_alarm=1e-9, missed=1e-3)
    77769
    """
    target = host_pmf(mass, name="mass")
    if target.ndim > 1:
        raise ShapeMismatch(
            f"samples_needed plans for one distribution (V,); mass has shape {target.shape}. Plan "
            "row by row."
        )
    smallest = check_real(detect, name="detect", low=0.0, high=1.0, open_low=True)
    alarm = check_real(false_alarm, name="false_alarm", low=0.0, high=1.0, open_low=True)
    miss = check_real(missed, name="missed", low=0.0, high=1.0, open_low=True)
    return math.ceil(((spread(target) + deviation(alarm) + deviation(miss)) / smallest) ** 2)


def samples_to_clear(mass: NDArray[Any], *, detect: float, missed: float) -> int:
    """Return a number of samples at which a law equal to q is usually `cleared`, rounded up.

    The distance's mean is √(2/π) of its bound for counts that are about normal, and its standard
    deviation is at most 1/(2√n) (Efron and Stein).
    """
    needed = math.sqrt(2.0 / math.pi) * spread(mass) + 0.5 + deviation(missed)
    return math.ceil((needed / detect) ** 2)


def cleared(counts: NDArray[np.int64], mass: NDArray[Any], *, detect: float, missed: float) -> bool:
    """True if samples are nearer to q than those of any law at a total variation of `detect` are,
    but with probability `missed`.
    """
    return distance(counts, mass) <= detect - deviation(missed) / math.sqrt(counts.sum())


def tokens_to_mismatch(
    *, target: NDArray[Any], served: NDArray[Any], missed: float = 1e-3, tolerance: float = 0.0
) -> float:
    """Return the number of tokens after which a seeded sampler of another law is found.

    Both tokens win one race: argmax(log q + g) should come out, argmax(log π + g) does, and differs
    detectably where its log q + g is behind the former's by more than τ. With c = e^τ that has the
    probability h = 1 − Σ_y 1/Σ_z max(π(z)/π(y), q(z)/(c q(y))), and n tokens all miss it with (1 −
    h)^n,

        n = log β / log(1 − h),     h the mean over the contexts.

    Args:
        target: q after each context, `(..., V)`, what the auditor computes.
        served: π after the same contexts, `(..., V)`, what the sampler drew from.
        missed: β in (0, 1], probability at most that all n tokens agree.
        tolerance: τ in [0, 700], nats by which log-odds may be off for rounding. If they are off by
            no more, no token is behind by more, and there is never a false alarm.

    Returns:
        n, rounded up, for contexts drawn independently and evenly from those given; infinite where
        the two never differ by more than τ.

    Raises:
        InvalidDistribution: if `target` or `served` is no distribution.
        ShapeMismatch: if they differ in shape.
        InvalidParameter: if β or τ is out of its range.

    Cost: O(V log V) for each context. Accuracy: h is off by 1e-12 at most, and 1 − h by as much of
        itself; h below 1e-12 counts as 0.
    Reference: docs/theory.md, "Known noise" and "Threshold races".

    >>> import numpy as np
    >>> q, served = np.array([0.5, 0.5]), np.array([0.6, 0.4])  # h = 1 − 1/(1 + 1) − 1/(1.5 + 1)
    >>> tokens_to_mismatch(target=q, served=served), tokens_to_mismatch(target=q, served=q)
    (66.0, inf)
    """
    tested, drawn = host_pmf(target, name="target"), host_pmf(served, name="served")
    if tested.shape != drawn.shape:
        raise ShapeMismatch(
            "target and served must be laws after the same contexts; their shapes are "
            f"{tested.shape} and {drawn.shape}. Pass both for every context."
        )
    miss = check_real(missed, name="missed", low=0.0, high=1.0, open_low=True)
    nats = check_real(tolerance, name="tolerance", low=0.0, high=_MOST_TOLERANCE)
    same = float(np.mean(race_match(tested, drawn, [Containment(c=math.exp(nats))])))
    if 1.0 - same <= _SAME:
        return math.inf
    # a small 1 − h is accurate where h is rounded to 1
    return float(math.ceil(math.log(miss) / math.log(same))) if same > 0.0 else 1.0


def detectable(mass: NDArray[Any], samples: int, *, false_alarm: float, missed: float) -> float:
    """Return the total variation, at most 1, from which on the distance test finds every law."""
    needed = spread(mass) + deviation(false_alarm) + deviation(missed)
    return min(1.0, needed / math.sqrt(samples))


def distance(counts: NDArray[np.int64], mass: NDArray[Any]) -> float:
    """Return T = ½ Σ |N/n − q|."""
    return float(0.5 * np.abs(counts / counts.sum() - mass).sum())


def distance_threshold(mass: NDArray[Any], samples: int, *, false_alarm: float) -> float:
    """Return the threshold that T exceeds under the null with probability at most `false_alarm`."""
    return (spread(mass) + deviation(false_alarm)) / math.sqrt(samples)


def variation_interval(
    counts: NDArray[np.int64], mass: NDArray[Any], *, uncertainty: float
) -> Estimate:
    """Estimate the total variation between the law of samples and q.

    The interval is wrong with probability at most `uncertainty`, whatever the law: TV ≤ E[T] and
    E[T] ≤ TV + ½√((C−1)/n) over C cells.
    """
    samples = int(counts.sum())
    observed, slack = distance(counts, mass), deviation(uncertainty / 2) / math.sqrt(samples)
    bias = 0.5 * math.sqrt((len(mass) - 1) / samples)
    low, high = max(0.0, observed - bias - slack), min(1.0, observed + slack)
    return Estimate(observed, low, high, samples, 1.0 - uncertainty, "total variation")


def variation_at_least(
    counts: NDArray[np.int64],
    mass: NDArray[Any],
    *,
    uncertainty: float,
    hits: int = 0,
    optimum: float = 1.0,
) -> float:
    """Return a lower bound on the total variation between the law of samples and q.

    The bound is wrong with probability at most `uncertainty`, whatever the law, whenever one looks:
    the largest t at which the evidence, that of `log_evidence` and of a Dirichlet prior on all
    cells, against the likeliest law within t of q is still 1/uncertainty (Ville); `hits` of the
    samples were among their drafts, of which at most `optimum` + t are.
    """
    samples, live = int(counts.sum()), mass > 0
    on_target = -math.inf
    if not counts[~live].any():
        on_target = float(log_evidence(counts, mass) + (counts[live] * np.log(mass[live])).sum())
    everywhere = float(_log_marginal(counts, np.full(len(mass), 0.5)))
    likelihood = log_mean(everywhere, on_target)

    def evidence(level: float) -> float:
        within = _largest_likelihood(counts, mass, level)
        beyond = log_excess_evidence(hits, samples, min(1.0, optimum + level))
        return log_mean(likelihood - within, beyond) + math.log(uncertainty)

    if evidence(0.0) <= 0.0:
        return 0.0
    return float(scipy.optimize.bisect(evidence, 0.0, 1.0, xtol=1e-6))


def _log_marginal(counts: NDArray[np.int64], prior: NDArray[Any]) -> Any:
    """Return the logarithm of ∫ Π π^N dDirichlet(π), for counts and parameters `(..., C)`.

    Γ(a + N)/Γ(a) where N = 0 is exactly 1: parameters whose Γ overflows stay out of it.
    """
    log_gamma, some = scipy.special.gammaln, np.maximum(prior, _LEAST_PARAMETER)
    gain = np.where(counts > 0, log_gamma(some + counts) - log_gamma(some), 0.0).sum(axis=-1)
    total = prior.sum(axis=-1)
    return gain + log_gamma(total) - log_gamma(total + counts.sum(axis=-1))


def _largest_likelihood(counts: NDArray[np.int64], mass: NDArray[Any], level: float) -> float:
    """Return the log-likelihood of the likeliest law within a total variation of q.

    That law raises cells to N/a and lowers others to N/b, a and b such that each moves the mass
    `level`; beyond the distance of the frequencies it is these.
    """
    beyond, seen = level >= distance(counts, mass), counts > 0
    law = counts / counts.sum() if beyond else _moved(counts, mass, level)
    with np.errstate(divide="ignore"):
        return float((counts[seen] * np.log(law[seen])).sum())


def _moved(counts: NDArray[np.int64], mass: NDArray[Any], level: float) -> NDArray[np.float64]:
    """Return q after moving a mass to the cells that raise the likelihood most, from the cells that
    lower the likelihood least.

    Mass of cells without counts costs nothing, so any of these may lose it.
    """

    def raised(log_rate: float) -> NDArray[np.float64]:
        return np.asarray(np.maximum(mass, counts * math.exp(-log_rate)))

    def lowered(log_rate: float) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            return np.asarray(np.minimum(mass, counts * math.exp(-log_rate)))

    most = math.log(counts.sum()) + 700.0
    least = math.log(counts.sum())
    law = raised(_crossing(lambda rate: (raised(rate) - mass).sum() - level, least, most))
    if mass[counts == 0].sum() < level:
        rate = _crossing(lambda rate: (mass - lowered(rate)).sum() - level, -700.0, least)
        law = law + lowered(rate) - mass
    return law


def _crossing(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return where a monotone function changes its sign, or the end that is nearest to a change
    that rounding hides.
    """
    at_low, at_high = excess(low), excess(high)
    if min(at_low, at_high) < 0.0 < max(at_low, at_high):
        return float(scipy.optimize.bisect(excess, low, high))
    return low if abs(at_low) < abs(at_high) else high


def log_evidence(counts: NDArray[np.int64], mass: NDArray[Any]) -> Any:
    """Return the logarithm of a mixture likelihood ratio against q.

    The ratio is a martingale of mean 1 under the null. E = mean over priors of ∫ Π (π/q)^N
    dPrior(π), the priors Dirichlet: with all parameters 1/2, and κq for κ = 10, 100, 1000. It
    depends on the counts `(..., C)` alone; the result is `(...)`, ∞ as soon as a token with q = 0
    has come out.
    """
    live = mass > 0
    seen, q = counts[..., live], mass[live]
    likelihood = (seen * np.log(q)).sum(axis=-1, keepdims=True)
    priors = np.stack([np.full(len(q), 0.5), *(kappa * q for kappa in _CONCENTRATIONS)])
    ratios = _log_marginal(seen[..., None, :], priors) - likelihood
    mixed = np.logaddexp.reduce(ratios, axis=-1) - math.log(len(priors))
    return np.where(counts[..., ~live].any(axis=-1), math.inf, mixed)[()]


def log_interval_evidence(
    counts: NDArray[np.int64], least: NDArray[Any], most: NDArray[Any]
) -> float:
    """Return the log-evidence that some outcome's probability is outside its interval.

    Mean over the outcomes of ∫ a^N (1−a)^{n−N} dBeta(1/2, 1/2) over the largest likelihood inside.
    """
    others = counts.sum() - counts
    inside = np.clip(counts / counts.sum(), least, most)
    likelihood = scipy.special.xlogy(counts, inside) + scipy.special.xlog1py(others, -inside)
    mixed = scipy.special.betaln(counts + 0.5, others + 0.5) - math.log(math.pi * len(counts))
    return float(np.logaddexp.reduce(mixed - likelihood))


def log_excess_evidence(hits: int, samples: int, optimum: float) -> float:
    """Return the log-evidence for outputs among the drafts more often than the optimum allows.

    Mean over c = 1/2, 1/4, …, 2^-10 of Π (a/α*) over hits and Π (1−a)/(1−α*) over misses, a = α* +
    c(1−α*): each factor is 1 + λ(hit − α*) with λ ≥ 0, of mean at most 1 whenever Pr(hit) ≤ α*. 0
    where α* = 1 (nothing can be seen).
    """
    level = optimum + _ROUNDING  # the optimum is known to rounding
    if level >= 1.0:
        return 0.0
    parts = np.asarray(_EXCESSES)
    terms = hits * np.log1p(parts * (1.0 - level) / level) + (samples - hits) * np.log1p(-parts)
    return float(np.logaddexp.reduce(terms) - math.log(len(parts)))


def log_mean(*logarithms: float) -> float:
    """Return the logarithm of the mean of e-values, an e-value again.

    >>> log_mean(0.0, 0.0)
    0.0
    """
    largest = max(logarithms)
    if math.isinf(largest):
        return largest
    return largest + math.log(
        math.fsum(math.exp(logarithm - largest) for logarithm in logarithms) / len(logarithms)
    )


def pool(draft: NDArray[np.float64], target: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Return a cell for every token `(V,)`, tokens of similar q/p together, at most `most` cells.

    Faults of verification depend on a token through p and q, and mostly through their ratio. Cells
    hold about equal target mass; tokens that the target cannot emit have a cell of their own, and
    so has any token heavier than a cell.
    """
    num_tokens = len(target)
    if num_tokens <= most:
        return np.arange(num_tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(target > 0, target / draft, -1.0)
    order = np.argsort(ratio, kind="stable")
    before = np.cumsum(target[order]) - target[order]
    cells = np.empty(num_tokens, dtype=np.int64)
    cells[order] = np.minimum((before * (most - 1)).astype(np.int64), most - 2) + 1
    cells[target == 0] = 0
    _, compact = np.unique(cells, return_inverse=True)
    return np.asarray(compact.reshape(-1), dtype=np.int64)


def noise_limit(values: NDArray[Any], *, level: float, resolution: float) -> float | None:
    """Return the limit that further noise exceeds with probability at most `level`.

    U + c Σ_{i ≤ k} (X_(i) − U), U = X_(k+1) the (k+1)-th largest of n values, k = min(32, n/4) and
    c = max(1, ((k+1)/((n+1) level))^{1/k} − 1): for every noise whose hazard does not fall beyond
    U. Values on a grid, as low precision makes them, count as half a step larger; the step is the
    mean one between distinct values of the largest quarter.

    Args:
        values: `(n,)`, non-negative, n ≥ 4.
        level: in (0, 1).
        resolution: what lies up to here is 0.

    Returns:
        The limit; None where fewer than k + 1 values differ from 0.

    Cost: O(n log n). Reference: docs/theory.md, "Audits".

    >>> import numpy as np
    >>> noise = np.abs(np.random.default_rng(0).standard_normal(10_000))
    >>> round(noise_limit(noise, level=1e-10, resolution=0.0), 1)  # 6.5 if it were known as normal
    10.8
    """
    count = len(values)
    kept = min(_TAIL, count // 4)
    upper = np.sort(values)[::-1][: max(kept + 1, count // 4)]
    top, base = upper[: kept + 1], float(upper[kept])
    if base <= resolution:
        return None
    levels = len(np.unique(np.round(upper / base, 3)))
    step = float(upper[0] - upper[-1]) / (levels - 1) if levels > 1 else base
    step *= levels <= len(upper) / 2  # on a grid most values are there several times
    excess = float((top - base).sum()) + 0.5 * kept * step
    rarity = (kept + 1) / ((count + 1) * level)
    return float(base + step + max(1.0, rarity ** (1.0 / kept) - 1.0) * excess)
