"""The exact audit: a verifier integrated over its uniforms and over every draft, and its output law held against the target.

Three ways to the law of the output given the drafts, best first. A verifier of this library has it (*kernel*). Code that only
compares its uniforms is run on tracing numbers (*traced*, `otm.audit.tracing`): the result is exact, or comes with a bound on the
volume left undecided. Anything else that takes its uniforms as floats is probed as a black box (*probed*, `otm.audit.probing`):
exact under the assumption stated there.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from otm.audit.candidate import NO_TOKEN, Candidate, CandidateFailure, Failed, as_candidate, outcome_of, read_token
from otm.audit.probing import probe
from otm.audit.tracing import MOST_SLANTED, MOST_WORK, Integral, integrate
from otm.divergences import divergence_term
from otm.drafts.base import enumerate_drafts
from otm.pmf import check_count, check_real
from otm.problem import Problem, check_problem
from otm.results import Coupling
from otm.verbs import coupling, optimal_acceptance, prepare
from otm.verifiers.base import Conditional, Verifier, enumerated_acceptance

Verdict = Literal["lossless", "not lossless", "undecided"]
Method = Literal["kernel", "traced", "probed"]

_FALSE_ALARM = 1e-9
_LEAST_SLANTED = 32
_LEAST_WORK = 2_000
_QUADRATURE = 1e-10
"""Races integrate their joint law numerically, with errors below 2e-12 per entry."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ExactAudit:
    """What a verifier does on one problem, exactly; `str` gives the report in Markdown.

    Attributes:
        name: of the candidate.
        problem: what it was run on.
        coupling: the joint law of (drafts, output).
        rule: acceptance by the rule, Pr(it said that it accepted); None if it does not say.
        optimum: α*, the most that any lossless verifier accepts here.
        tolerance: the largest total variation that rounding explains.
        error: bound on the error of `total_variation` and of the acceptances beyond rounding; 0 where the trace is complete.
        method: how the law of the output was found.
        cells: how many boxes of uniforms were told apart, over all drafts.
    """

    name: str
    problem: Problem
    coupling: Coupling
    rule: float | None
    optimum: float
    tolerance: float
    error: float
    method: Method
    cells: int

    def __repr__(self) -> str:
        return f"ExactAudit({self.name!r}, {self.verdict}, total_variation={self.total_variation:.6g}, method={self.method!r})"

    def __str__(self) -> str:
        from otm.audit.report import exact_report  # noqa: PLC0415 - the report knows the results, not the reverse

        return exact_report(self)

    @functools.cached_property
    def output_law(self) -> NDArray[np.float64]:
        """π, the law of the output token `(V,)`."""
        return self.coupling.output_marginal

    @functools.cached_property
    def total_variation(self) -> float:
        """½ Σ |π − q|, what comes out beyond the vocabulary included."""
        missing = max(0.0, 1.0 - float(self.output_law.sum()))  # outputs outside the vocabulary
        return float(0.5 * (np.abs(self.output_law - self.problem.target).sum() + missing))

    @functools.cached_property
    def kl(self) -> float:
        """KL(q‖π) in nats; ∞ where a token of the target never comes out."""
        return float(divergence_term(self.problem.target, self.output_law).sum())

    @property
    def worst_token(self) -> int:
        """The token whose probability is furthest from the target's."""
        return int(np.abs(self.output_law - self.problem.target).argmax())

    @property
    def membership(self) -> float:
        """Pr(the output is among the drafts)."""
        return self.coupling.acceptance

    @property
    def gap(self) -> float:
        """The optimum minus the acceptance by membership; negative only where the output law is not the target."""
        return self.optimum - self.membership

    @property
    def verdict(self) -> Verdict:
        """Whether the output has the target's law, as far as rounding and `error` let it be said."""
        if self.total_variation - self.error > self.tolerance:
            return "not lossless"
        return "lossless" if self.total_variation + self.error <= self.tolerance else "undecided"


def audit_exactly(candidate: object, problem: Problem, *, tolerance: float | None = None) -> ExactAudit:
    """Integrate a verifier over its uniforms and over every draft, and compare the law of its output with the target.

    Args:
        candidate: a function `verify(draft, target, drafts, uniforms)` (`otm.audit.candidate`), a `Candidate`, or one of the
            library's verifiers. It must be a function of its arguments.
        problem: one pair of distributions `(V,)`, small enough to enumerate the drafts.
        tolerance: the largest total variation that counts as rounding; `rounding_tolerance` unless given (float32 kernels need
            more: `rounding_tolerance(num_tokens, k, unit_roundoff=2**-24)`).

    Returns:
        ExactAudit: verdict, output law, TV, KL, worst token, both acceptances, the optimum and the gap to it.

    Raises:
        CandidateFailure: if the callable raises or returns no token; the message names the input.
        InvalidParameter: if it is no callable, or no function of its arguments.
        TooLarge: beyond four million draft sequences.

    Cost: traced, two calls for each draft sequence and each box (k + V boxes for recursive rejection); probed, some ten thousand.
    Accuracy: 2^-53 per box beside the candidate's own rounding; `error` otherwise.
    Reference: docs/theory.md, "Audits".

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> def lenient(p, q, drafts, uniforms):
    ...     x = int(drafts[0])
    ...     return x if uniforms[0] < q[x] / (0.8 * p[x]) else 1
    >>> audit = audit_exactly(lenient, problem)
    >>> audit.verdict, audit.output_law, round(audit.total_variation, 12)
    ('not lossless', array([0.625, 0.375]), 0.125)
    """
    single = check_problem(problem).single(purpose="An exact audit")
    allowed = _checked(tolerance, single)
    if isinstance(candidate, Verifier):
        return _from_kernel(candidate, single, allowed)
    function = as_candidate(candidate)
    table = enumerate_drafts(single.law, single.draft)
    live = table.mass > 0
    drafts, mass = table.tokens[live], table.mass[live]
    count = function.count(single.law.k, single.num_tokens)
    values = [_token_of(function, single, row) for row in drafts]
    laws, method, errors = laws_of(values, count)
    joint, accepted = _joint(laws, mass, single, allowed)
    return ExactAudit(
        name=function.name,
        problem=single,
        coupling=Coupling(drafts=drafts, joint=scipy.sparse.csr_array(joint)),
        rule=accepted,
        optimum=optimal_acceptance(single),
        tolerance=allowed,
        error=math.fsum(errors * mass),
        method=method,
        cells=sum(law.cells for law in laws),
    )


def audit_steps(verifier: Verifier, problem: Problem, *, tolerance: float | None = None) -> ExactAudit:
    """Integrate what one of the library's samplers executes, drawing of the drafts included, over all its uniforms.

    Nothing is taken from the law's enumeration or the rule's kernel: an independent account of the same scheme.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`, or your own subclass of `otm.Verifier`.
        problem, tolerance: as for `audit_exactly`.

    Returns:
        ExactAudit. Schemes that compare uniforms with each other (races, the scores of `otm.Optimal`) come with an `error`, a few
        percent with two or three uniforms and too much to say anything with more.

    Raises:
        Unsupported, ShapeMismatch: as `otm.prepare`.

    Cost: as a traced `audit_exactly`, over the uniforms of drafting and verification together.

    >>> audit_steps(otm.KSeq(), otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))).verdict
    'lossless'
    """
    single = check_problem(problem).single(purpose="An exact audit")
    rule = prepare(verifier, single)
    before = rule.num_draft_uniforms

    def value(uniforms: NDArray[Any]) -> tuple[tuple[int, ...], int, bool]:
        drafts, state = rule.draw(uniforms[None, :before])
        output, accepted = rule.verify(drafts, uniforms[None, before:], state)
        return tuple(drafts[0].tolist()), int(output[0]), bool(accepted[0])

    (law,), method, errors = laws_of([value], before + rule.num_uniforms)
    rows = {drafts: i for i, drafts in enumerate(dict.fromkeys(drafts for drafts, _, _ in law.mass))}
    joint = np.zeros((len(rows), single.num_tokens))
    for (drafts, token, _), volume in law.mass.items():
        joint[rows[drafts], token] += volume
    return ExactAudit(
        name=f"the steps of {verifier!r}",
        problem=single,
        coupling=Coupling(drafts=np.asarray(list(rows), dtype=np.int64), joint=scipy.sparse.csr_array(joint)),
        rule=math.fsum(volume for (_, _, accepted), volume in law.mass.items() if accepted),
        optimum=optimal_acceptance(single),
        tolerance=_checked(tolerance, single),
        error=float(errors[0]),
        method=method,
        cells=law.cells,
    )


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


@dataclasses.dataclass(frozen=True, eq=False)
class _Law:
    """The law of one function of uniforms, with a bound on its error."""

    mass: dict[Any, float]
    cells: int


def laws_of(
    functions: Sequence[Callable[[NDArray[Any]], Hashable]], num_uniforms: int
) -> tuple[list[_Law], Method, NDArray[np.float64]]:
    """Return the law of each function of `num_uniforms` uniforms and its error: traced if all traces are complete, else probed."""
    traced: list[Integral] = []
    slanted = max(_LEAST_SLANTED, MOST_SLANTED // len(functions))
    work = max(_LEAST_WORK, MOST_WORK // len(functions))
    for function in functions:
        integral = integrate(function, num_uniforms, most_slanted=slanted, most_work=work)
        if integral is None:
            break
        traced.append(integral)
    else:
        laws = [_Law(mass=law.mass, cells=law.cells) for law in traced]
        return laws, "traced", np.asarray([law.undecided for law in traced])
    probed = [probe(function, num_uniforms) for function in functions]
    # Clopper–Pearson: the volume on which the cells predict wrongly, where they were seen to.
    errors = [
        float(scipy.stats.beta.isf(_FALSE_ALARM, law.missed + 1, law.checked - law.missed)) if law.missed else 0.0
        for law in probed
    ]
    return [_Law(mass=law.mass, cells=law.cells) for law in probed], "probed", np.asarray(errors)


def _token_of(candidate: Candidate, problem: Problem, drafts: NDArray[np.int64]) -> Callable[[NDArray[Any]], Any]:
    """Return the candidate on these drafts as a function of its uniforms; it gets copies, so that it may write into them."""

    def value(uniforms: NDArray[Any]) -> Any:
        def run() -> tuple[int, bool | None]:
            answer = candidate.verify(problem.draft.copy(), problem.target.copy(), drafts.copy(), uniforms)
            return read_token(answer, problem.num_tokens)

        return outcome_of(run)

    return value


def _joint(
    laws: Sequence[_Law], mass: NDArray[np.float64], problem: Problem, tolerance: float
) -> tuple[NDArray[np.float64], float | None]:
    """Return the joint law of (drafts, output) `(n, V)` and the acceptance by the rule, None without flags.

    Raises:
        CandidateFailure: if the callable fails with a probability that is not rounding. (One that overruns a cumulative sum by its
            last bit fails with probability 1e-16: mass missing from the output law, which the total variation counts.)
    """
    joint = np.zeros((len(laws), problem.num_tokens))
    accepted: list[float] = []
    failures: dict[str, list[float]] = {}
    flags = True
    for row, law in enumerate(laws):
        for outcome, volume in law.mass.items():
            if isinstance(outcome, Failed):
                failures.setdefault(outcome.message, []).append(mass[row] * volume)
                continue
            token, flag = outcome
            flags = flags and flag is not None
            if flag:
                accepted.append(mass[row] * volume)
            if token != NO_TOKEN:
                joint[row, token] += mass[row] * volume
    raise_on_failures(failures, tolerance, f"draft={problem.draft.tolist()}, target={problem.target.tolist()}")
    return joint, math.fsum(accepted) if flags else None


def raise_on_failures(failures: dict[str, list[float]], tolerance: float, described: str) -> None:
    """Raise `CandidateFailure` with the likeliest failure if failures are likelier than the tolerance."""
    if math.fsum(itertools.chain.from_iterable(failures.values())) > tolerance:
        message, parts = max(failures.items(), key=lambda item: math.fsum(item[1]))
        raise CandidateFailure(f"{message} It does so with probability {math.fsum(parts):.6g} on {described}.")


def _from_kernel(verifier: Verifier, problem: Problem, tolerance: float) -> ExactAudit:
    joint = coupling(verifier, problem)
    rule = prepare(verifier, problem)
    if isinstance(rule, Conditional):
        accepted = enumerated_acceptance(rule, "rule")
    else:
        accepted = float(verifier.acceptance(problem, "rule"))
    return ExactAudit(
        name=repr(verifier),
        problem=problem,
        coupling=joint,
        rule=accepted,
        optimum=optimal_acceptance(problem),
        tolerance=tolerance if isinstance(rule, Conditional) else max(tolerance, _QUADRATURE),
        error=0.0,
        method="kernel",
        cells=len(joint.drafts),
    )


def _checked(tolerance: float | None, problem: Problem) -> float:
    if tolerance is None:
        return rounding_tolerance(problem.num_tokens, problem.law.k)
    return check_real(tolerance, name="tolerance", low=0.0, high=1.0)
