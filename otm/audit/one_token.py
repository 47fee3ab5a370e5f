"""Candidates that verify one token: functions of uniforms, kernels of batches, library verifiers.

Each is held against the target on standard problems: integrated over its uniforms and every draft
where the drafts are few enough to enumerate, by samples where they are not, or where it has
randomness of its own.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from otm.audit import shrinking, standard_problems as standard
from otm.audit.candidate import (
    Candidate,
    Check,
    FunctionCandidate,
    Scope,
    UniformsCandidate,
    as_kind,
    in_turn,
    is_slow,
    read_batch,
)
from otm.audit.deadline import Deadline
from otm.audit.error_budget import USUAL, Errors
from otm.audit.exact_audit import ExactAudit, audit_of_answers, audit_of_kernel
from otm.audit.integration import allowed_by, check_tolerance
from otm.audit.sampled_audit import Drawn, SampledAudit, audit_of_draws
from otm.drafts import IID, LAWS, Law
from otm.drafts.base import enumerate_drafts
from otm.pmf import check_count, check_instance, check_rng
from otm.problem import Problem, check_problem
from otm.tracing.answers import naming_failures
from otm.tracing.output_law import output_law_of, refine_until_decided
from otm.verbs import prepare, run
from otm.verifiers.base import Verifier
from otm.verifiers.callables import CallableVerifier, output_law_on, run_rows

_ROWS = 128
"""Rows that tell how fast a kernel of batches is."""


class OneTokenCandidate(Candidate):
    """A candidate that verifies the drafts of one position."""

    @abc.abstractmethod
    def drawing(self, problem: Problem, rng: np.random.Generator) -> Callable[[int], Drawn]:
        """Return what draws so many outputs on a problem."""


class IntegrableCandidate(OneTokenCandidate):
    """One whose law can be integrated over its uniforms and every draft."""

    @abc.abstractmethod
    def integrated(self, problem: Problem, tolerance: float | None) -> ExactAudit:
        """Return the exact audit on one problem."""


@dataclasses.dataclass(frozen=True, eq=False)
class TokenCandidate(UniformsCandidate, IntegrableCandidate):
    """A verifier of one token that takes its randomness as an argument.

    Args:
        verify: the function, `verify(draft, target, drafts, uniforms)`.
        name: what to call it in reports; the function's own name if empty.
        num_uniforms: how many uniforms it may use, from (number of drafts, V); k + 1 unless given.

    Raises:
        InvalidParameter: if `verify` cannot be called.

    >>> TokenCandidate(lambda draft, target, drafts, uniforms: int(drafts[0]), "trusting").name
    'trusting'
    """

    description: ClassVar[str] = "a verifier of one token"
    called: ClassVar[str] = "verify(draft, target, drafts, uniforms)"

    def drawing(self, problem: Problem, rng: np.random.Generator) -> Callable[[int], Drawn]:
        """Return what calls the function row by row."""
        draw_drafts = _drafter(problem, rng)
        width = self.count(problem.law.k, problem.num_tokens)

        def draw(size: int) -> Drawn:
            drafts = draw_drafts(size)
            outputs, said = run_rows(self, problem, drafts, rng.random((size, width)))
            return outputs, drafts, said

        return draw

    def integrated(self, problem: Problem, tolerance: float | None) -> ExactAudit:
        """Return the exact audit on one problem, by tracing or probing."""
        allowed = check_tolerance(tolerance, problem.num_tokens, problem.law.k)
        sequences = enumerate_drafts(problem.law, problem.draft)
        live = sequences.mass > 0
        drafts = sequences.tokens[live]
        answers = output_law_on(self, problem, drafts, sequences.mass[live], tolerance=allowed)
        allowed = allowed_by(answers, tolerance, allowed)
        return refine_until_decided(
            answers,
            lambda known: audit_of_answers(
                known, drafts, problem, name=self.name, tolerance=allowed
            ),
        )

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield samples of what is too large to integrate, and integrations of all else."""
        ks = (*standard.DRAFTS, standard.MANY_DRAFTS)
        return _checks_of_tokens(self, scope, [IID(k) for k in ks])


@dataclasses.dataclass(frozen=True, eq=False)
class VerifierCandidate(IntegrableCandidate):
    """One of the library's verifiers: its kernel is summed, its sampler run.

    Args:
        verifier: the verifier; one made by `otm.from_callable` is integrated as its function.
    """

    description: ClassVar[str] = "a verifier of this library"
    called: ClassVar[str] = "otm.Maximal(), say"

    verifier: Verifier

    def __post_init__(self) -> None:
        check_instance(self.verifier, Verifier, name="verifier")

    @property
    def name(self) -> str:  # type: ignore[override]  # never assigned
        """As the verifier is written."""
        return repr(self.verifier)

    def limited(self, deadline: Deadline) -> VerifierCandidate:
        """Return itself: it is fast."""
        return self

    def drawing(self, problem: Problem, rng: np.random.Generator) -> Callable[[int], Drawn]:
        """Return what runs the verifier's sampler."""
        if isinstance(self.verifier, CallableVerifier):
            return _function_of(self.verifier).drawing(problem, rng)
        rule = prepare(self.verifier, problem)

        def draw(size: int) -> Drawn:
            samples = run(rule, size=size, rng=rng)
            return samples.output, samples.drafts, samples.accepted

        return draw

    def integrated(self, problem: Problem, tolerance: float | None) -> ExactAudit:
        """Return the exact audit on one problem, from the verifier's kernel."""
        if isinstance(self.verifier, CallableVerifier):
            return _function_of(self.verifier).integrated(problem, tolerance)
        allowed = check_tolerance(tolerance, problem.num_tokens, problem.law.k)
        return audit_of_kernel(self.verifier, problem, allowed)

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield the checks of one token, under the first kind of law that the verifier supports."""
        ks = (*standard.DRAFTS, standard.MANY_DRAFTS)
        kinds: list[type[Law]] = [IID, *LAWS]
        supported = ([law(k) for k in ks if self.verifier.supports(law(k))] for law in kinds)
        laws: list[Law] = next((laws for laws in supported if laws), [IID(1)])
        return _checks_of_tokens(self, scope, laws)


@dataclasses.dataclass(frozen=True, eq=False)
class BatchCandidate(FunctionCandidate, OneTokenCandidate):
    """A kernel that verifies rows in batches with randomness of its own; it is sampled.

    Args:
        verify: the function, `verify(draft, target, drafts, rng)` with `drafts` `(m, k)`; it
            returns tokens `(m,)`, or (tokens, accepted).
        name: what to call it in reports; the function's own name if empty.

    Raises:
        InvalidParameter: if `verify` cannot be called.

    >>> BatchCandidate(lambda draft, target, drafts, rng: drafts[:, 0], "trusting").name
    'trusting'
    """

    description: ClassVar[str] = "a kernel of batches with randomness of its own"
    called: ClassVar[str] = "verify(draft, target, drafts (m, k), rng)"

    def drawing(self, problem: Problem, rng: np.random.Generator) -> Callable[[int], Drawn]:
        """Return what calls the kernel once for a batch."""
        draw_drafts = _drafter(problem, rng)

        def draw(size: int) -> Drawn:
            drafts = draw_drafts(size)
            with naming_failures():
                answer = self.verify(
                    problem.draft.copy(), problem.target.copy(), drafts.copy(), rng
                )
                outputs, flags = read_batch(answer, size, problem.num_tokens)
            return outputs, drafts, flags

        return draw

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield samples on all instances, of a slow kernel on a few."""
        laws = scope.laws or [IID(k) for k in (*standard.DRAFTS, standard.MANY_DRAFTS)]
        if scope.sampled:
            yield from _every_instance(self, scope)
        elif self._is_slow(scope.deadline.seconds):
            yield from _sampled(self, scope, _all(standard.FEW, laws), standard.DETECT_SLOW)
        else:
            names = (*standard.INSTANCES, *standard.TAILS)
            yield from _sampled(self, scope, _all(names, laws), standard.DETECT_ALONE)

    def _is_slow(self, seconds: float) -> bool:
        p, q = map(np.asarray, standard.instance("three tokens"))
        drafts = np.zeros((_ROWS, 1), dtype=np.int64)

        def call() -> Any:
            return self.verify(p.copy(), q.copy(), drafts.copy(), np.random.default_rng(0))

        return is_slow(call, _ROWS, seconds)


def _function_of(verifier: CallableVerifier) -> TokenCandidate:
    """Return the function that a verifier was made of, which an audit asks itself."""
    code = verifier.code
    return TokenCandidate(code.verify, code.name, code.num_uniforms)


def as_one_token(thing: object) -> OneTokenCandidate:
    """Return a candidate of one token: as it is, of a library's verifier, or of a function."""
    if isinstance(thing, OneTokenCandidate):
        return thing
    return (
        VerifierCandidate(thing) if isinstance(thing, Verifier) else as_kind(thing, TokenCandidate)
    )


def _drafter(problem: Problem, rng: np.random.Generator) -> Callable[[int], NDArray[np.int64]]:
    """Return what draws the drafts of so many rows."""
    width = problem.law.num_uniforms(problem.num_tokens)
    return lambda size: problem.law.draw(problem.draft, rng.random((size, width)))


def _checks_of_tokens(
    candidate: IntegrableCandidate, scope: Scope, default: list[Law]
) -> Iterator[Check]:
    """Yield the samples of what is too large to integrate, and integrations of all else."""
    laws = scope.laws or default
    if scope.sampled:
        yield from _every_instance(candidate, scope)
    elif scope.own_randomness:
        yield from _sampled(candidate, scope, _all(standard.FEW, laws), standard.DETECT_ROWS)
    else:
        beside = [
            (name, law)
            for name, ks in standard.SAMPLED.items()
            for law in laws
            if scope.laws or law.k in ks
        ]
        yield from _sampled(candidate, scope, beside, standard.DETECT)
        yield from in_turn([list(_integrated(candidate, law, scope)) for law in laws])


def _integrated(candidate: IntegrableCandidate, law: Law, scope: Scope) -> Iterator[Check]:
    """Yield the exact audits under a law, instance by instance."""
    for name, problem in standard.problems_under(law):
        yield Check(
            name,
            repr(law),
            "exact",
            group_of(law),
            functools.partial(candidate.integrated, problem, scope.tolerance),
            needed=law.k != standard.MANY_DRAFTS,
            shrink=functools.partial(shrink, candidate, law=law, tolerance=scope.tolerance),
        )


def _every_instance(candidate: OneTokenCandidate, scope: Scope) -> Iterator[Check]:
    """Yield samples of every standard instance, of one draft unless laws are given."""
    return _sampled(candidate, scope, _all(standard.INSTANCES, scope.laws or [IID(1)]), None)


def _all(names: Iterable[str], laws: Iterable[Law]) -> list[tuple[str, Law]]:
    chosen = list(laws)
    return [(name, law) for name in names for law in chosen]


def _sampled(
    candidate: OneTokenCandidate,
    scope: Scope,
    plan: list[tuple[str, Law]],
    detect: float | None,
) -> Iterator[Check]:
    """Yield the sampled audits of (instance, law), which share the false alarms."""
    problems = [(name, law, standard.problem_of(name, law)) for name, law in plan]
    drawable = [(name, law, problem) for name, law, problem in problems if problem is not None]
    errors = scope.errors.shared(len(drawable), detect)
    for name, law, problem in drawable:
        yield Check(
            name,
            repr(law),
            "sampled",
            group_of(law),
            functools.partial(_by_samples, candidate, problem, scope, f"{name}, {law!r}", errors),
            needed=law.k != standard.MANY_DRAFTS,
        )


def _by_samples(
    candidate: OneTokenCandidate, problem: Problem, scope: Scope, label: str, errors: Errors
) -> SampledAudit:
    """Carry out a sampled audit with the generator of its label."""
    draw = candidate.drawing(problem, scope.rng(label))
    return audit_of_draws(draw, problem, name=candidate.name, errors=errors)


def group_of(law: Law) -> str:
    """Return how many drafts there are, and by which law: what is left out together."""
    return f"{law.k} draft{'s' if law.k > 1 else ''} by {type(law).__name__}"


def exact(candidate: object, problem: Problem, *, tolerance: float | None = None) -> ExactAudit:
    """Integrate a verifier over its uniforms and every draft, and compare its law with the target.

    Args:
        candidate: a function `verify(draft, target, drafts, uniforms)` (`otm.audit.candidate`), a
            `Candidate`, or one of the library's verifiers. It must be a function of its arguments.
        problem: one pair of distributions `(V,)`, small enough to enumerate the drafts.
        tolerance: the largest total variation that counts as rounding; `rounding_tolerance` unless
            given (float32 kernels need more: `rounding_tolerance(num_tokens, k,
            unit_roundoff=2**-24)`).

    Returns:
        ExactAudit: verdict, output law, TV, KL, worst token, both acceptances, the optimum and the
        gap to it.

    Raises:
        CandidateFailure: if the callable raises or returns no token; the message names the input.
        InvalidParameter: if it is no callable, or no function of its arguments.
        TooLarge: beyond four million draft sequences; of code that cannot be traced beyond 512.

    Cost: traced, two calls for each draft sequence and each box (k + V boxes for recursive
        rejection); probed, some ten thousand.
    At most some 20 seconds: the draft sequences that there is no time for, the least likely, count
    as `error`.
    Accuracy: 2^-53 per box beside the candidate's own rounding; `error` otherwise.
    Reference: docs/theory.md, "Audits".

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> def lenient(p, q, drafts, uniforms):
    ...     x = int(drafts[0])
    ...     return x if uniforms[0] < q[x] / (0.8 * p[x]) else 1
    >>> audit = exact(lenient, problem)
    >>> audit.verdict, audit.output_law, round(audit.total_variation, 12)
    ('not lossless', array([0.625, 0.375]), 0.125)
    """
    single = check_problem(problem).single(purpose="An exact audit")
    thing = as_one_token(candidate)
    if not isinstance(thing, IntegrableCandidate):
        thing = as_kind(candidate, TokenCandidate)  # which says what is needed
    return thing.integrated(single, tolerance)


def library_sampler(
    verifier: Verifier, problem: Problem, *, tolerance: float | None = None
) -> ExactAudit:
    """Integrate what one of the library's samplers executes, drawing of the drafts included, over
    all its uniforms.

    Nothing is taken from the law's enumeration or the rule's kernel: an independent account of the
    same scheme.

    Args:
        verifier: any of `otm.verifiers.VERIFIERS`, or your own subclass of `otm.Verifier`.
        problem, tolerance: as for `exact`.

    Returns:
        ExactAudit. Races are exact. Schemes that compare uniforms with each other otherwise (the
        scores of `otm.Optimal`) come with an `error`, a few percent with two or three uniforms and
        too much to say anything with more.

    Raises:
        Unsupported, ShapeMismatch: as `otm.prepare`.

    Cost: as a traced `exact`, over the uniforms of drafting and verification together.

    >>> library_sampler(
    ...     otm.KSeq(), otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    ... ).verdict
    'lossless'
    """
    single = check_problem(problem).single(purpose="An exact audit")
    rule = prepare(verifier, single)
    before = rule.num_draft_uniforms

    def value(uniforms: NDArray[Any]) -> tuple[tuple[int, ...], tuple[int, bool]]:
        drafts, state = rule.draw(uniforms[None, :before])
        output, accepted = rule.verify(drafts, uniforms[None, before:], state)
        return tuple(drafts[0].tolist()), (int(output[0]), bool(accepted[0]))

    allowed = check_tolerance(tolerance, single.num_tokens, single.law.k)
    answers = output_law_of(
        [value], [1.0], before + rule.num_uniforms, tolerance=allowed, described="this problem"
    )
    rows = {
        drafts: row
        for row, drafts in enumerate(dict.fromkeys(drafts for _, (drafts, _), _ in answers.found))
    }
    by_drafts = dataclasses.replace(
        answers,
        found=[
            (np.asarray([rows[drafts]]), answer, mass)
            for _, (drafts, answer), mass in answers.found
        ],
    )
    drawn = np.asarray(list(rows), dtype=np.int64)
    return refine_until_decided(
        by_drafts,
        lambda known: audit_of_answers(
            known, drawn, single, name=f"the steps of {verifier!r}", tolerance=allowed
        ),
    )


def sampled(
    candidate: object,
    problem: Problem,
    *,
    rng: np.random.Generator,
    errors: Errors = USUAL,
) -> SampledAudit:
    """Test whether a verifier's output has the target's law, sample by sample, with proved error
    probabilities.

    Drafts come from the problem's law. The evidence is looked at after 500, 1,000, 2,000, … samples
    and the audit stops when it suffices; otherwise the distance is tested at the planned number, n
    = ((½Σ√(q(1−q)) + √(log(2/δ)/2) + √(log(1/β)/2))/ε)².

    Args:
        candidate: a `TokenCandidate`, a `BatchCandidate`, a function `verify(draft, target, drafts,
            uniforms)`, which may ignore the uniforms for randomness of its own, or one of the
            library's verifiers (its sampler is run).
        problem: one pair of distributions `(V,)`.
        rng: the source of the drafts and uniforms.
        errors: the total variation ε that must not go unnoticed (beyond 256 tokens, of the laws
            pooled into cells of similar q/p), the probability δ at most of calling a lossless
            verifier lossy, and β at most of not noticing a law at ε or more.

    Returns:
        SampledAudit.

    Raises:
        CandidateFailure: if the callable raises or returns no tokens of the vocabulary.
        InvalidParameter: if a probability is out of range or `rng` is no generator.
        TooLarge: if n exceeds ten billion.
        Unsupported, ShapeMismatch: as `otm.prepare`.

    Cost: n calls at most, 90,000 at four tokens and the defaults; a batched candidate gets up to
        20,000 rows a call.
    Accuracy: error probabilities hold for every sample size. Reference: docs/theory.md, "Audits";
        McDiarmid 1989; Ville 1939.

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> trusting = BatchCandidate(lambda p, q, drafts, rng: drafts[:, 0], name="trusting")
    >>> audit = sampled(trusting, problem, rng=np.random.default_rng(0))
    >>> audit.verdict, audit.samples < audit.planned
    ('not lossless', True)
    """
    single = check_problem(problem).single(purpose="A sampled audit")
    check_rng(rng)
    thing = as_one_token(candidate)
    draw = thing.drawing(single, rng)
    return audit_of_draws(draw, single, name=thing.name, errors=errors)


def shrink(
    candidate: object,
    *,
    law: Law | None = None,
    tolerance: float | None = None,
    budget: int = shrinking.BUDGET,
) -> ExactAudit | None:
    """Return the audit of the smallest problem on which a verifier is not lossless, or None if none
    is found.

    Args:
        candidate: as for `exact`.
        law: the kind of drafts; up to `law.k` of them are tried. `otm.IID(1)` unless given.
        tolerance: as for `exact`.
        budget: how many problems are tried at most.

    Returns:
        ExactAudit on the first failing problem in order of k + V + denominator, then k + V; or on a
        reduced standard instance; or None.

    Raises:
        InvalidParameter: if the candidate is no callable, or budget < 1.

    Cost: at most `budget` exact audits with V ≤ 5, and some dozens for a reduction.

    >>> found = shrink(lambda p, q, drafts, uniforms: int(drafts[0]))  # trusts the draft
    >>> found.problem.draft, found.problem.target, found.total_variation
    (array([1., 0.]), array([0., 1.]), 1.0)
    """
    thing = as_one_token(candidate)
    if not isinstance(thing, IntegrableCandidate):
        thing = as_kind(candidate, TokenCandidate)
    kind = IID(1) if law is None else check_instance(law, Law, name="law")
    return shrinking.smallest_problem(
        lambda problem: thing.integrated(problem, tolerance),
        kind,
        check_count(budget, name="budget"),
    )
