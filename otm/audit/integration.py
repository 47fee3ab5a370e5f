"""What the audits by integration share: every answer of a candidate with its probability, and a verdict up to rounding.

Two ways to the law of a function of uniforms, better first. Code that only compares its uniforms is run on tracing numbers
(*traced*, `otm.audit.tracing`): the result is exact, or comes with a bound on the volume left undecided. Anything else that takes
its uniforms as floats is probed as a black box (*probed*, `otm.audit.probing`): exact under the assumption stated there.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import math
import time
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from otm.audit.boxes import Escape
from otm.audit.candidate import CandidateFailure, Failed
from otm.audit.probing import probe
from otm.audit.tracing import CHECKS, MOST_SECONDS, MOST_SLANTED, MOST_WORK, Function, Integral, explore, surprising
from otm.audit.verdicts import Audit, Verdict
from otm.pmf import check_count, check_real

Method = Literal["kernel", "traced", "probed"]

_LEAST_SLANTED = 32
_LEAST_WORK = 2_000
_LEAST_CHECKS = 4
_HOW = {
    "kernel": "the verifier's own kernel, summed over every {drafts}",
    "traced": "run on tracing numbers over every {drafts}: exact integration over the uniforms, {cells} boxes",
    "probed": "probed as a black box over every {drafts}: exact if no cell of the uniforms is narrower than 1/64 along an"
    " axis, {cells} cells",
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IntegratedAudit(Audit):
    """An audit that knows the law of the output.

    Attributes:
        name: of the candidate.
        tolerance: the largest total variation that rounding explains.
        error: bound on the error of `total_variation` and of the acceptances beyond rounding; 0 where the trace is complete.
        method: how the law of the output was found.
        cells: how many boxes of uniforms were told apart, over all drafts.
    """

    tolerance: float
    error: float
    method: Method
    cells: int

    def __repr__(self) -> str:
        figures = f"total_variation={self.total_variation:.6g}, method={self.method!r}"
        return f"{type(self).__name__}({self.name!r}, {self.verdict}, {figures})"

    @property
    @abc.abstractmethod
    def total_variation(self) -> float:
        """How far the law of the output is from the target's."""

    @property
    def verdict(self) -> Verdict:
        """Whether the output has the target's law, as far as rounding and `error` let it be said."""
        if self.total_variation - self.error > self.tolerance:
            return "not lossless"
        return "lossless" if self.total_variation + self.error <= self.tolerance else "undecided"

    def allowance(self) -> str:
        """Return what is said beside the total variation."""
        error = f", known to ± {self.error:.2g}" if self.error else ""
        return f"(rounding explains {self.tolerance:.1g}{error})"

    def how(self, drafts: str) -> str:
        """Return how the law was found, over every one of `drafts`."""
        return _HOW[self.method].format(drafts=drafts, cells=self.cells)


Integrated = TypeVar("Integrated", bound=IntegratedAudit)


@dataclasses.dataclass(frozen=True, eq=False)
class Answers:
    """All that came out of a candidate, over every draft.

    Attributes:
        found: (number of the draft, answer, probability).
        method, error, cells: as of `IntegratedAudit`.
        rounding: how much coarser than float64 the numbers were that random numbers met, float32 at most.
    """

    found: list[tuple[int, Any, float]]
    method: Method
    error: float
    cells: int
    rounding: float = 1.0


def answers_of(
    functions: Sequence[Function], weights: Sequence[float], num_uniforms: int, *, tolerance: float, described: str
) -> Answers:
    """Return what a candidate answers on each draft, as a function of its uniforms, with probabilities.

    Args:
        functions: one for each draft.
        weights: the drafts' probabilities.
        num_uniforms: n.
        tolerance: probability up to which failures pass for rounding. (Code that overruns a cumulative sum by its last bit fails
            with probability 1e-16: mass missing from the output law, which the total variation counts.)
        described: the input, for the message.

    Raises:
        CandidateFailure: with the likeliest failure, if failures are likelier than the tolerance.
    """
    laws, method = _laws_of(functions, num_uniforms)
    found: list[tuple[int, Any, float]] = []
    failures: dict[str, list[float]] = {}
    for draft, (law, weight) in enumerate(zip(laws, weights, strict=True)):
        for answer, volume in law.mass.items():
            if isinstance(answer, Failed):
                failures.setdefault(answer.message, []).append(weight * volume)
            else:
                found.append((draft, answer, weight * volume))
    if math.fsum(itertools.chain.from_iterable(failures.values())) > tolerance:
        message, parts = max(failures.items(), key=lambda item: math.fsum(item[1]))
        raise CandidateFailure(f"{message} It does so with probability {math.fsum(parts):.6g} on {described}.")
    error = math.fsum(weight * law.error for law, weight in zip(laws, weights, strict=True))
    rounding = max(law.coarsest for law in laws) * 2.0**53
    return Answers(found=found, method=method, error=error, cells=sum(law.cells for law in laws), rounding=rounding)


def _laws_of(functions: Sequence[Function], num_uniforms: int) -> tuple[list[Integral], Method]:
    """Return the law of each function: traced if all traces are complete, else probed."""
    slanted = max(_LEAST_SLANTED, MOST_SLANTED // len(functions))
    work = max(_LEAST_WORK, MOST_WORK // len(functions))
    checks = max(_LEAST_CHECKS, CHECKS // len(functions))
    traced: list[Integral] = []
    until = time.monotonic() + MOST_SECONDS
    for function in functions:
        left = max(0.0, until - time.monotonic())
        try:
            law = explore(function, num_uniforms, most_slanted=slanted, most_work=work, most_seconds=left, checks=checks)
        except Escape:
            return [probe(function, num_uniforms) for function in functions], "probed"
        traced.append(law)
    if surprising(traced):
        return [probe(function, num_uniforms) for function in functions], "probed"
    return traced, "traced"


def check_tolerance(tolerance: float | None, num_tokens: int, k: int) -> float:
    """Return the tolerance given, or what rounding explains."""
    if tolerance is None:
        return rounding_tolerance(num_tokens, k)
    return check_real(tolerance, name="tolerance", low=0.0, high=1.0)


def allowed_by(answers: Answers, given: float | None, allowed: float) -> float:
    """Return the tolerance, which is for the arithmetic that the random numbers met unless one was given."""
    return allowed * answers.rounding if given is None else allowed


def rounding_tolerance(num_tokens: int, k: int, *, unit_roundoff: float = 2.0**-53) -> float:
    """Return the total variation that rounding can cause on V tokens and k drafts.

    A probability is a sum of products of at most k + 3 factors, each a running sum of at most V masses with relative error
    (V + 2)u; k stages multiply what reaches them. Masses add up to 1, so the total variation is a small multiple of (V + k)u; 32
    leaves room for steps like softmax and renormalisation inside the candidate.

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
