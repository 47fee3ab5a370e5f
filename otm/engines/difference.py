"""Two records compared: the difference of their tokens a call, with an interval.

Calls of one request resemble each other, requests do not know of each other. A record's mean is
Σ tokens/Σ calls; leaving out one request at a time gives the standard error. Two records are
independent, unless they answer the same prompts: then prompts are left out of both at a time.

    m₁ − m₂ ± t_ν √(s₁² + s₂²),        ν = (s₁² + s₂²)²/(s₁⁴/(n₁ − 1) + s₂⁴/(n₂ − 1))

[Welch 1947]; with prompts in pairs ± t_{n−1} s, s the jackknife's error of the difference.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import re
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from otm._machine.arrays import Floats
from otm.engines.records.estimates import Clusters, estimate_tokens
from otm.engines.records.record import REQUEST, AcceptanceRecord
from otm.engines.records.tally import padded
from otm.pmf import check_confidence, check_instance, check_real
from otm.results.statistics import Estimate, jackknife_error, t_quantile

_MOST = 10**15  # largest number of requests that is named
_NUMBERED = re.compile(r"(\w+ )?\d*")  # names that tell a place in a list, such as "request 1"


@dataclasses.dataclass(frozen=True)
class RecordDifference:
    """The difference of two records in tokens a call.

    Attributes:
        tokens: tokens a call of both.
        difference, ratio: first less second, first over second; NaN ends without an interval.
        clusters: what is taken as independent.
        paired: whether requests are paired by prompt.
        needed: requests (steps, where these are independent) of the first record that would tell
            the observed difference apart, the second one growing alike; None if no number would.
        running: running requests at which both say what a token takes; None if there is none.
        seconds: seconds a token of both with so many running.
    """

    tokens: tuple[float, float]
    difference: Estimate
    ratio: Estimate
    clusters: Clusters
    paired: bool
    needed: int | None
    running: int | None = None
    seconds: tuple[float, float] | None = None

    @property
    def verdict(self) -> Literal["differ", "not shown to differ"]:
        """The verdict: the interval excludes 0, or it does not."""
        apart = self.difference.low > 0 or self.difference.high < 0
        return "differ" if apart else "not shown to differ"


def compare_records(
    record: AcceptanceRecord, other: AcceptanceRecord | float, *, confidence: float = 0.95
) -> RecordDifference:
    """Compare the tokens a call of two records.

    Args:
        record: any; with requests or positions for an interval.
        other: another one, or a number of tokens a call that is known exactly.
        confidence: of each interval, in (0, 1).

    Returns:
        RecordDifference.

    Raises:
        InvalidParameter: if an argument is out of its range.

    Cost: O(steps). Reference: Efron & Stein 1981; Welch 1947.

    >>> from otm.engines.records import Tally
    >>> fast, slow = (
    ...     AcceptanceRecord("", "request", tuple(Tally(a, 9.0, n) for a, n in parts), "")
    ...     for parts in ((("a", 18), ("b", 12), ("c", 9)), (("a", 9), ("b", 4), ("c", 0)))
    ... )
    >>> found = compare_records(fast, slow)
    >>> found.verdict, found.paired, found.difference.words(unit=" tokens a call")
    ('differ', True, '0.96 tokens a call (0.80 to 1.12)')
    """
    level = check_confidence(confidence)
    first = _Mean.of(check_instance(record, AcceptanceRecord, name="record"))
    if isinstance(other, AcceptanceRecord):
        second, two = _Mean.of(other), other.times
    else:
        number = check_real(other, name="tokens a call", low=1.0, high=1e9)
        second, two = _Mean(number, "request", np.full(2, number), np.ones(2)), None
    paired = bool(first.names) and first.names == second.names
    error, freedom = _error(first, second, paired)
    count = first.multiplicity.sum()

    def half(clusters: float) -> Floats:
        """Return half the widths, had the first record so many clusters."""
        growth = clusters / count
        return t_quantile(freedom * growth + 1, level) * error / math.sqrt(growth)

    value = _compared(first.value, second.value)
    ends = Estimate(value, value - half(count), value + half(count), int(count), level)
    apart, needed = -abs(value[0]), None
    if apart < 0 and np.isfinite(error[0]):
        needed = bisect.bisect_left(range(_MOST), apart, 2, key=lambda n: -half(n)[0])
    one, kinds = record.times, (first.clusters, second.clusters)
    running = one.usual if one and two and one.usual in two.token else None
    return RecordDifference(
        tokens=(float(first.value), float(second.value)),
        difference=ends.at(0),
        ratio=ends.at(1),
        clusters=max(kinds, key=("request", "step", "none").index),
        paired=paired,
        needed=needed,
        running=running,
        seconds=(one.token[running], two.token[running])
        if one and two and running is not None
        else None,
    )


def drifted_positions(
    record: AcceptanceRecord, window: AcceptanceRecord, *, confidence: float = 0.99
) -> list[int]:
    """Return the positions at which a window's survival is outside the interval of a record.

    |w_i − s_i| > z √(p_i (1 − p_i)(1/n_w + 1/n_s)), p the pooled survival, for all positions at
    once (Bonferroni). Steps count as independent: where requests differ, drift is found too often.

    Args:
        record, window: counters of one server, with positions.
        confidence: of all positions at once, in (0, 1).

    Returns:
        Positions from 1, ascending.

    Raises:
        InvalidParameter: if a record holds means only.

    >>> from otm.engines.records import Tally
    >>> long, short = (
    ...     AcceptanceRecord("", "server", (Tally.of_survivors(a, steps=n, name=""),), "")
    ...     for a, n in (([800, 600], 1000), ([80, 30], 100))
    ... )
    >>> drifted_positions(long, short)
    [2]
    """
    length = max(record.measured, window.measured)
    a, b = (padded(one.survivors, length) for one in (record, window))
    n, m = record.weight, window.weight
    pooled = np.clip((a + b) / (n + m), 0.0, 1.0)
    error = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    quantile = scipy.special.ndtri(1 - (1 - check_confidence(confidence)) / (2 * length))
    return (1 + np.flatnonzero(np.abs(b / m - a / n) > quantile * error)).tolist()


@dataclasses.dataclass(frozen=True, eq=False)
class _Mean:
    """Tokens a call of a record, with replicates.

    Attributes:
        value: tokens a call.
        clusters: what is left out at a time.
        replicates, multiplicity: `(R,)`, tokens a call without one cluster, and how often.
        names: of the clusters, ascending, if they are different prompts.
    """

    value: float
    clusters: Clusters
    replicates: Floats
    multiplicity: Floats
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: AcceptanceRecord) -> _Mean:
        """Return a record's mean, by request or else by step."""
        if record.unit == REQUEST and len(record.parts) > 1:
            accepted, calls = np.array([(one.accepted, one.calls) for one in record.parts]).T
            rest = 1.0 + (accepted.sum() - accepted) / (calls.sum() - calls)
            names = [part.name for part in record.parts]
            if len(set(names)) < len(names) or all(map(_NUMBERED.fullmatch, names)):
                return cls(record.mean, "request", rest, np.ones(len(rest)))
            rest = rest[np.argsort(names)]
            return cls(record.mean, "request", rest, np.ones(len(rest)), tuple(sorted(names)))
        if record.measured and record.counted:
            found = estimate_tokens(record)
            if found.clusters == "step":
                return cls(record.mean, "step", found.engine_replicates, found.multiplicity)
        return cls(record.mean, "none", np.full(1, np.nan), np.ones(1))


def _compared(first: ArrayLike, second: ArrayLike) -> Floats:
    """Return difference and quotient of tokens a call, `(..., 2)`."""
    return np.stack([np.subtract(first, second), np.divide(first, second)], axis=-1)


def _error(first: _Mean, second: _Mean, paired: bool) -> tuple[Floats, Floats]:
    """Return standard errors and degrees of freedom of difference and quotient, `(2,)` each."""
    less = [one.multiplicity.sum() - 1 for one in (first, second)]
    if paired:
        error = jackknife_error(_compared(first.replicates, second.replicates))
        return error, np.full(2, less[0])
    squares = [
        jackknife_error(_compared(first.replicates, second.value), first.multiplicity) ** 2,
        jackknife_error(_compared(first.value, second.replicates), second.multiplicity) ** 2,
    ]
    total = squares[0] + squares[1]
    parts = sum(one**2 / max(n, 1) for one, n in zip(squares, less, strict=True))
    return np.sqrt(total), total**2 / np.maximum(parts, 1e-300)
