"""The law of a candidate's answers over the uniforms and every draft.

Two ways lead to it, the better one first. Code that only compares its uniforms is run on tracing
numbers (*traced*, `tracing.branching`), and what it draws itself divides the run by outcomes
(*branched*): the law is exact, or comes with a bound on the probability left undecided. Where a
trace is void, code that takes its uniforms as floats is probed as a black box (*probed*,
`tracing.probing`): exact under the assumption stated there, and what is unproved without it is
bounded by samples.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from otm.audit.tracing.answers import CandidateFailure, Failed
from otm.audit.tracing.branching import (
    CHECKS,
    MOST_SECONDS,
    MOST_SLANTED,
    MOST_WORK,
    OTHERWISE,
    TracedLaw,
    UniformFunction,
    contradicts_samples,
    trace_each,
)
from otm.audit.tracing.execution import AGAIN, TraceAborted
from otm.audit.tracing.precision import MOST_ROUNDED, explained, type_in_sight
from otm.audit.tracing.probing import PredictionCheck, probe, require_deterministic
from otm.pmf import check_count, check_real

Method = Literal["kernel", "traced", "branched", "probed"]
"""The source of a law; "kernel" is a verifier's own law, which nothing here returns."""

CONTRADICTED = (
    "executions on real randomness contradict the law found (a fixed seed, hidden state, "
    "randomness from elsewhere)"
)
"""Why a law that was found is void after all."""


def contradicts(reason: str) -> bool:
    """True if a reason is that the code contradicted a law found for it: none is to be trusted."""
    return reason.startswith((CONTRADICTED, OTHERWISE)) or AGAIN in reason


_LEAST_SLANTED = 32
_LEAST_WORK = 2_000

LEAST_CHECKS = 4
"""Executions on real randomness of each function, or on each sequence of drafts that are drawn."""


@dataclasses.dataclass(frozen=True, eq=False)
class OutputLaw:
    """The law of a candidate's answers, over every draft.

    Attributes:
        found: each answer as (numbers of the drafts `(m,)`, the answer, its probability together
            with each of them `(m,)`).
        method: how the law was found.
        error: bound on the error of each probability, and of the law in total variation, beyond
            rounding: what was left undecided, and drafts that there was no time for.
        unproved: bound on the probability of what a black box may do otherwise than probing found,
            exceeded with a probability of at most 1e-9; 0 where it was no black box.
        cells: how many boxes of uniforms were told apart, over all drafts.
        check: of a black box, to look at more points.
        reason: why it is one; empty if it is not.
        rounding: how much coarser than float64 the numbers were that random numbers met, float32 at
            most; 1 of a black box.
        coarsest_type: finds the coarsest type of arrays in sight of the code, "" for float64.
    """

    found: list[tuple[NDArray[np.int64], Any, NDArray[np.float64]]]
    method: Method
    error: float
    unproved: float
    cells: int
    check: PredictionCheck | None
    reason: str
    rounding: float
    coarsest_type: Callable[[], str]

    def looks(self) -> Iterator[OutputLaw]:
        """Yield the law, then, for a black box, the law after comparisons at more points."""
        yield self
        while self.check is not None and not self.check.finished:
            error, unproved = _bounds(self.check)
            yield dataclasses.replace(self, error=error, unproved=unproved)

    @property
    def totals(self) -> list[tuple[Any, float]]:
        """Each answer with the probability over all drafts."""
        return [(answer, math.fsum(masses)) for _, answer, masses in self.found]


def output_law_of(
    functions: Sequence[UniformFunction],
    weights: Sequence[float],
    num_uniforms: int,
    *,
    tolerance: float,
    described: str,
) -> OutputLaw:
    """Return the law of a candidate's answers over uniforms and drafts, traced or else probed.

    Args:
        functions: the candidate as a function of its uniforms, one for each draft; each returns a
            hashable answer, or `Failed`.
        weights: the drafts' probabilities.
        num_uniforms: n.
        tolerance: probability up to which failures pass for rounding. (Code that overruns a
            cumulative sum by its last bit fails with probability 1e-16: mass missing from the
            output law, which the total variation counts.)
        described: the input, for the message.

    Raises:
        CandidateFailure: with the likeliest failure, if failures are likelier than the tolerance.
        OwnRandomness: if it draws what cannot be followed; with the reason.
    """
    given = functions, weights, num_uniforms
    try:
        return traced_law_of(*given, tolerance=tolerance, described=described)
    except TraceAborted as aborted:
        reason = str(aborted)
    require_deterministic(*given, reason)
    predictions = [probe(function, num_uniforms) for function in functions]
    check = PredictionCheck(functions, predictions, weights, num_uniforms)
    laws = [prediction.law() for prediction in predictions]
    coarsest = functools.partial(type_in_sight, functions, num_uniforms)
    found = _collected(laws, weights, tolerance, described, coarsest)
    error, unproved = _bounds(check)
    return OutputLaw(
        found=found,
        method="probed",
        error=error,
        unproved=unproved,
        cells=sum(law.cells for law in laws),
        check=check,
        reason=reason,
        rounding=1.0,
        coarsest_type=coarsest,
    )


def traced_law_of(
    functions: Sequence[UniformFunction],
    weights: Sequence[float],
    num_uniforms: int,
    *,
    tolerance: float,
    described: str,
    most_seconds: float = MOST_SECONDS,
    seeds: int = 0,
    replay: UniformFunction | None = None,
    checks: int = CHECKS,
) -> OutputLaw:
    """Return the law of a candidate's answers by tracing alone.

    Args:
        functions, weights, num_uniforms, tolerance, described: as of `output_law_of`.
        most_seconds: after which what is left undecided counts as error.
        seeds, replay: as of `tracing.branching.trace_each`.
        checks: executions on real randomness, of all functions together.

    Raises:
        CandidateFailure: with the likeliest failure, if failures are likelier than the tolerance.
        TraceAborted: if the trace is void; the message says why.
    """
    laws = trace_each(
        functions,
        num_uniforms,
        most_slanted=max(_LEAST_SLANTED, MOST_SLANTED // len(functions)),
        most_work=max(_LEAST_WORK, MOST_WORK // len(functions)),
        most_seconds=most_seconds,
        checks=max(LEAST_CHECKS, checks // len(functions)),
        seeds=seeds,
        replay=replay,
    )
    if contradicts_samples(laws):
        raise TraceAborted(CONTRADICTED)
    rounding = max(law.coarsest for law in laws) * 2.0**53
    coarsest = functools.partial(type_in_sight, functions, num_uniforms)
    return OutputLaw(
        found=_collected(laws, weights, tolerance * rounding, described, coarsest),
        method="branched" if any(law.drew for law in laws) else "traced",
        error=math.fsum(weight * law.error for law, weight in zip(laws, weights, strict=True)),
        unproved=0.0,
        cells=sum(law.cells for law in laws),
        check=None,
        reason="",
        rounding=rounding,
        coarsest_type=coarsest,
    )


def _collected(
    laws: Sequence[TracedLaw],
    weights: Sequence[float],
    tolerance: float,
    described: str,
    coarsest_type: Callable[[], str],
) -> list[tuple[NDArray[np.int64], Any, NDArray[np.float64]]]:
    """Return each answer with the drafts that lead there and the masses, or raise likely
    failures.
    """
    found: dict[Any, tuple[list[int], list[float]]] = {}
    failures: dict[str, list[float]] = {}
    for draft, (law, weight) in enumerate(zip(laws, weights, strict=True)):
        for answer, volume in law.mass.items():
            if isinstance(answer, Failed):
                failures.setdefault(answer.message, []).append(weight * volume)
            else:
                drafts, masses = found.setdefault(answer, ([], []))
                drafts.append(draft)
                masses.append(weight * volume)
    failing = math.fsum(itertools.chain.from_iterable(failures.values()))
    likely = failing > MOST_ROUNDED  # whose explanation need not be looked for
    if failing > tolerance and (likely or failing > explained(coarsest_type())):
        message, parts = max(failures.items(), key=lambda item: math.fsum(item[1]))
        raise CandidateFailure.likely(message, math.fsum(parts), described)
    return [
        (np.asarray(drafts), answer, np.asarray(masses))
        for answer, (drafts, masses) in found.items()
    ]


def _bounds(check: PredictionCheck) -> tuple[float, float]:
    """Compare at further points and return (error, unproved).

    Where a prediction failed, what is unproved is known to be there.
    """
    unproved = check.look()
    return unproved if check.missed else 0.0, unproved


def rounding_tolerance(num_tokens: int, k: int, *, unit_roundoff: float = 2.0**-53) -> float:
    """Return the total variation that rounding can cause on V tokens and k drafts.

    A probability is a sum of products of at most k + 3 factors, each a running sum of at most V
    masses with relative error (V + 2)u; k stages multiply what reaches them. Masses add up to 1, so
    the total variation is a small multiple of (V + k)u; 32 leaves room for steps like softmax and
    renormalisation inside the candidate.

    Args:
        num_tokens: V ≥ 1.
        k: number of drafts ≥ 1.
        unit_roundoff: u of the candidate's arithmetic, in (0, 1]; 2⁻²⁴ for float32.

    Returns:
        32 (V + min(k, 64) + 8) u.

    Raises:
        InvalidParameter: if a number is out of its range.

    Cost: O(1).

    >>> rounding_tolerance(4, 2) < 1e-13
    True
    """
    tokens, drafts = check_count(num_tokens, name="num_tokens"), check_count(k, name="k")
    u = check_real(unit_roundoff, name="unit_roundoff", low=0.0, high=1.0, open_low=True)
    return 32.0 * (tokens + min(drafts, 64) + 8) * u
