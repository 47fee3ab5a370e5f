"""What the audits by integration share: every answer of a candidate with its probability, and a
verdict up to rounding.

Two ways to the law of a function of uniforms, better first. Code that only compares its uniforms is
run on tracing numbers (*traced*, `otm.tracing.exploration`), and what it draws itself divides it by
outcomes (*branched*): the result is exact, or comes with a bound on the volume left undecided.
Where that escapes, code that takes its uniforms as floats is probed as a black box (*probed*,
`otm.tracing.probing`): exact under the assumption stated there, and what is unproved without it is
bounded by samples. A black box is called "not lossless" beyond that bound only.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from otm.audit.candidate import CandidateFailure, Failed
from otm.audit.verdicts import SingleAudit, Verdict
from otm.pmf import check_count, check_real
from otm.tracing.boxes import Escape
from otm.tracing.exploration import (
    CHECKS,
    MOST_SLANTED,
    MOST_WORK,
    Function,
    Integral,
    explore_each,
    surprising,
)
from otm.tracing.probing import GRID, Check, probe, require_function

Method = Literal["kernel", "traced", "branched", "probed"]

CONTRADICTED = "executions on real randomness contradict the law found (a fixed seed, hidden state, randomness from elsewhere)"
"""Why a law that was found is void after all."""

BRANCHING = "branching on draws"
"""The means of an audit of code that draws by itself."""

_LEAST_SLANTED = 32
_LEAST_WORK = 2_000
_LEAST_CHECKS = 4
_MEANS: dict[Method, str] = {
    "kernel": "summing the kernel",
    "traced": "exact integration",
    "branched": BRANCHING,
    "probed": "probing",
}
_HOW = {
    "kernel": "the verifier's own kernel, summed over every {drafts}",
    "traced": "run on tracing numbers over every {drafts}: exact integration over the uniforms, {cells} boxes",
    "branched": "run on tracing numbers over every {drafts}, divided by the outcomes of what it draws itself: exact, {cells} parts",
    "probed": "probed as a black box over every {drafts}: exact if no cell of the uniforms is narrower than 1/64 along an"
    " axis; without that assumption at most {unproved:.2g} is unproved, {cells} cells",
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IntegratedAudit(SingleAudit):
    """An audit that knows the law of the output.

    Attributes:
        name: of the candidate.
        tolerance: the largest total variation that rounding explains.
        error: bound on the error of `total_variation` and of the acceptances beyond rounding; 0
            where the trace is complete.
        unproved: bound on the probability of what a black box may do otherwise than probing found,
            exceeded with a probability of at most 1e-9; 0 where it was no black box.
        method: how the law of the output was found.
        cells: how many boxes of uniforms were told apart, over all drafts.
    """

    tolerance: float
    error: float
    unproved: float = 0.0
    method: Method
    cells: int

    def __repr__(self) -> str:
        figures = f"total_variation={self.total_variation:.6g}, method={self.method!r}"
        return f"{type(self).__name__}({self.name!r}, {self.verdict}, {figures})"

    @property
    def severity(self) -> float:
        """The total variation."""
        return self.total_variation

    @property
    def means(self) -> tuple[tuple[str, int], ...]:
        """How the law was found, as a coverage counts it."""
        return ((_MEANS[self.method], 1),)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Where a fault may hide from the method."""
        state = () if self.method == "kernel" else ("state kept between calls",)
        return (
            state
            if self.method != "probed"
            else (*state, f"cells of the uniforms narrower than 1/{GRID}")
        )

    @property
    @abc.abstractmethod
    def total_variation(self) -> float:
        """How far the law of the output is from the target's."""

    @property
    def verdict(self) -> Verdict:
        """Whether the output has the target's law, as far as rounding, `error` and `unproved` let
        it be said.
        """
        if self.total_variation - max(self.error, self.unproved) > self.tolerance:
            return "not lossless"
        return "lossless" if self.total_variation + self.error <= self.tolerance else "undecided"

    def allowance(self) -> str:
        """Return what is said beside the total variation."""
        error = f", known to ± {self.error:.2g}" if self.error else ""
        unproved = f", unproved at most {self.unproved:.2g}" if self.unproved else ""
        return f"(rounding explains {self.tolerance:.1g}{error}{unproved})"

    def how(self, drafts: str) -> str:
        """Return how the law was found, over every one of `drafts`."""
        return _HOW[self.method].format(drafts=drafts, cells=self.cells, unproved=self.unproved)


Integrated = TypeVar("Integrated", bound=IntegratedAudit)


@dataclasses.dataclass(frozen=True, eq=False)
class Answers:
    """All that came out of a candidate, over every draft.

    Attributes:
        found: each answer as (numbers of the drafts `(m,)`, the answer, its probability together
            with each of them `(m,)`).
        method, error, unproved, cells: as of `IntegratedAudit`.
        check: of a black box, to look at more points.
        reason: why it is one; empty if it is not.
        rounding: how much coarser than float64 the numbers were that random numbers met, float32 at
            most; 1 of a black box.
    """

    found: list[tuple[NDArray[np.int64], Any, NDArray[np.float64]]]
    method: Method
    error: float
    unproved: float
    cells: int
    check: Check | None
    reason: str
    rounding: float

    @property
    def totals(self) -> list[tuple[Any, float]]:
        """Each answer with its probability over all drafts."""
        return [(answer, math.fsum(masses)) for _, answer, masses in self.found]


def concluded(answers: Answers, conclude: Callable[[Answers], Integrated]) -> Integrated:
    """Return the audit of these answers; a black box is asked at more points while a finding is
    below what is unproved.
    """
    audit, check = conclude(answers), answers.check
    while check is not None and not check.finished and audit.verdict == "undecided":
        error, unproved = _bounds(check)
        answers = dataclasses.replace(answers, error=error, unproved=unproved)
        audit = conclude(answers)
    return audit


def _bounds(check: Check) -> tuple[float, float]:
    """Take one more look and return (error, unproved): where a prediction failed, what is unproved
    is known to be there.
    """
    unproved = check.look()
    return unproved if check.missed else 0.0, unproved


def answers_of(
    functions: Sequence[Function],
    weights: Sequence[float],
    num_uniforms: int,
    *,
    tolerance: float,
    described: str,
) -> Answers:
    """Return what a candidate answers on each draft, as a function of its uniforms, with
    probabilities.

    Args:
        functions: one for each draft.
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
    check, reason = None, ""
    try:
        laws = _traced(functions, num_uniforms)
    except Escape as escape:
        reason = str(escape)
    if reason:
        require_function(functions, weights, num_uniforms, reason)
        predictions = [probe(function, num_uniforms) for function in functions]
        check = Check(functions, predictions, weights, num_uniforms)
        laws = [prediction.law() for prediction in predictions]
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
    require_rare(failures, tolerance, described)
    open_volume = math.fsum(weight * law.error for law, weight in zip(laws, weights, strict=True))
    error, unproved = (open_volume, 0.0) if check is None else _bounds(check)
    method: Method = (
        "probed" if check else "branched" if any(law.drew for law in laws) else "traced"
    )
    return Answers(
        found=[
            (np.asarray(drafts), answer, np.asarray(masses))
            for answer, (drafts, masses) in found.items()
        ],
        method=method,
        error=error,
        unproved=unproved,
        cells=sum(law.cells for law in laws),
        check=check,
        reason=reason,
        rounding=max(law.coarsest for law in laws) * 2.0**53,
    )


def require_rare(failures: Mapping[str, Sequence[float]], tolerance: float, described: str) -> None:
    """Raise `CandidateFailure` with the likeliest of failures, probabilities by message, that are
    likelier than the tolerance.
    """
    if math.fsum(itertools.chain.from_iterable(failures.values())) > tolerance:
        message, parts = max(failures.items(), key=lambda item: math.fsum(item[1]))
        raise CandidateFailure(
            f"{message} It does so with probability {math.fsum(parts):.6g} on {described}."
        )


def _traced(functions: Sequence[Function], num_uniforms: int) -> list[Integral]:
    """Return the law of each function by tracing it, within a time for all.

    Raises:
        Escape: if a trace is void; the message says why.
    """
    slanted = max(_LEAST_SLANTED, MOST_SLANTED // len(functions))
    work = max(_LEAST_WORK, MOST_WORK // len(functions))
    checks = max(_LEAST_CHECKS, CHECKS // len(functions))
    traced = explore_each(
        functions, num_uniforms, most_slanted=slanted, most_work=work, checks=checks
    )
    if surprising(traced):
        raise Escape(CONTRADICTED)
    return traced


def check_tolerance(tolerance: float | None, num_tokens: int, k: int) -> float:
    """Return the tolerance given, or what rounding explains."""
    if tolerance is None:
        return rounding_tolerance(num_tokens, k)
    return check_real(tolerance, name="tolerance", low=0.0, high=1.0)


def allowed_by(answers: Answers, given: float | None, allowed: float) -> float:
    """Return the tolerance, which is for the arithmetic that the random numbers met unless one was
    given.
    """
    return allowed * answers.rounding if given is None else allowed


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
