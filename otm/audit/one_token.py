"""Candidates that verify one token: functions of uniforms, kernels of batches, library verifiers.

Each is held against the target on standard problems: integrated over its uniforms and every draft
where the drafts are few enough to enumerate, by samples where they are not, or where it has
randomness of its own.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from otm.audit import shrinking, standard_problems as standard
from otm.audit.budget import USUAL, Deadline, Errors
from otm.audit.callables import CallableVerifier, TokenCode, count_uniforms, output_law_on, run_rows
from otm.audit.candidate import Scope, UniformsCandidate, as_kind, read_batch
from otm.audit.drafted import (
    DraftedCandidate,
    Instance,
    IntegrableCandidate,
    KernelCandidate,
    Selection,
)
from otm.audit.integration import ExactAudit, audit_of_answers, audit_of_kernel, check_tolerance
from otm.audit.report import coverage_of_problem
from otm.audit.sampled_audit import Drawing, Drawn, SampledAudit
from otm.audit.tracing.answers import naming_failures
from otm.audit.tracing.output_law import output_law_of
from otm.drafts import IID, LAWS, Law
from otm.drafts.base import live_drafts
from otm.errors import ShapeMismatch
from otm.pmf import RNGLike, check_count, check_instance, check_rng
from otm.problem import Problem, check_problem
from otm.verbs import optimal_acceptance, prepare, run
from otm.verifiers.base import Verifier


class OneTokenCandidate(DraftedCandidate):
    """A candidate that verifies the drafts of one position."""

    @abc.abstractmethod
    def draw(self, problem: Problem, rng: np.random.Generator, size: int) -> Drawn:
        """Draw drafts and verify them, `size` times."""

    @abc.abstractmethod
    def supports(self, law: Law) -> bool:
        """True if the candidate takes drafts of a law."""

    def laws(self) -> Sequence[Law]:
        """Return the laws of the first supported kind, for drafts of no given law."""
        ks = (*standard.DRAFTS, *standard.MANY_DRAFTS)
        kinds: list[type[Law]] = [IID, *LAWS]
        supported = (
            [kind.of_size(k) for k in ks if self.supports(kind.of_size(k))] for kind in kinds
        )
        return next(filter(None, supported), [IID(1)])

    def instances(self, selection: Selection, scope: Scope) -> list[list[Instance]]:
        """Return the problems of a selection under each law that can draft from them."""
        pair, every = scope.pair, scope.laws is not None
        if pair is not None and len(pair[0]) + len(pair[1]) > 2:
            raise ShapeMismatch(
                "A verifier of one token has one draft and one target (V,); got tables of "
                f"{len(pair[0])} and {len(pair[1])} rows. Give one row each."
            )
        alone = selection == "standard" or pair is not None
        return [
            [
                _instance(name, given, usual=every or law.size in standard.DRAFTS)
                for name, given in standard.problems_under(law, selection, every=every, pair=pair)
            ]
            for law in scope.laws or ([IID(1)] if alone else self.laws())
        ]

    def drawing_at(
        self, draft: NDArray[np.float64], target: NDArray[np.float64], rng: np.random.Generator
    ) -> Drawing:
        """Return the sampler of a token on two laws, of one draft."""
        return self.drawing(Problem(draft=draft, target=target, law=IID(1)), rng)

    def smallest(self, given: Problem, tolerance: float | None) -> ExactAudit | None:
        """Return the audit of the smallest failing problem found, of at most as many drafts."""
        return shrink(self, law=given.law, tolerance=tolerance)

    def drawing(self, given: Problem, rng: np.random.Generator) -> Drawing:
        """Return the sampler of outputs on a problem."""
        mean = given.draft if given.draft.ndim == 1 else given.draft.mean(axis=0)
        return Drawing(
            functools.partial(self.draw, given, rng),
            given.target,
            mean,
            float(optimal_acceptance(given)),
            coverage_of_problem(given),
        )


def _instance(name: str, given: Problem, *, usual: bool) -> Instance:
    law, size = given.law, given.law.num_sequences(given.num_tokens)
    needed = standard.is_needed(name, size, usual=usual)
    group = f"{law.size:g} draft{'s' if law.size > 1 else ''} by {type(law).__name__}"
    return Instance(name, repr(law), group, needed, size, given)


@dataclasses.dataclass(frozen=True, eq=False)
class TokenCandidate(UniformsCandidate, OneTokenCandidate, IntegrableCandidate):
    """A verifier of one token, given the uniforms as an argument.

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

    @functools.cached_property
    def code(self) -> TokenCode:
        """The function, its name and its number of uniforms."""
        return TokenCode(self.verify, self.name, self.num_uniforms)

    def draw(self, problem: Problem, rng: np.random.Generator, size: int) -> Drawn:
        """Call the function row by row."""
        drafts = _drafts(problem, rng, size)
        width = count_uniforms(self.num_uniforms, problem.num_drafts, problem.num_tokens)
        outputs, said = run_rows(self.code, problem, drafts, rng.random((size, width)))
        return Drawn(outputs, drafts, said)

    def supports(self, law: Law) -> bool:
        """Return True: no law is passed to a function."""
        return True

    def integrated(self, given: Problem, tolerance: float | None) -> ExactAudit:
        """Return the exact audit on one problem, by tracing or probing."""
        table = live_drafts(given.law, given.draft)
        allowed = check_tolerance(tolerance, given.num_tokens, given.num_drafts)
        answers = output_law_on(self.code, given, table.tokens, table.mass, tolerance=allowed)
        return audit_of_answers(answers, table.tokens, given, name=self.name, tolerance=tolerance)


@dataclasses.dataclass(frozen=True, eq=False)
class VerifierCandidate(OneTokenCandidate, IntegrableCandidate):
    """A verifier of the library: the exact kernel is summed, the sampler run.

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
        """The verifier's `repr`."""
        return repr(self.verifier)

    def limited(self, deadline: Deadline) -> VerifierCandidate:
        """Return the candidate unchanged: library verifiers are fast."""
        return self

    def supports(self, law: Law) -> bool:
        """True if the verifier supports the law."""
        return self.verifier.supports(law)

    def draw(self, problem: Problem, rng: np.random.Generator, size: int) -> Drawn:
        """Run the verifier's sampler."""
        samples = run(_prepared(self.verifier, problem), size=size, rng=rng)
        return Drawn(samples.output, samples.drafts, samples.accepted)

    def integrated(self, given: Problem, tolerance: float | None) -> ExactAudit:
        """Return the exact audit on one problem, from the verifier's kernel."""
        if isinstance(self.verifier, CallableVerifier):
            code = self.verifier.code
            function = TokenCandidate(code.verify, code.name, code.num_uniforms)
            return function.integrated(given, tolerance)
        return audit_of_kernel(self.verifier, given, tolerance)


@dataclasses.dataclass(frozen=True, eq=False)
class BatchCandidate(KernelCandidate, OneTokenCandidate):
    """A kernel that verifies rows in batches with internal randomness, audited by samples.

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

    def supports(self, law: Law) -> bool:
        """Return True: no law is passed to a kernel."""
        return True

    def mixed_up(self, rng: np.random.Generator) -> str:
        """Return no names, since all rows have one pair of laws."""
        return ""

    def in_batches(self, rows: int) -> BatchCandidate:
        """Return the kernel called on `rows` rows at a time.

        The answer to one row is right for another, since all rows have one pair of laws.
        """

        def called(draft: Any, target: Any, drafts: Any, rng: Any) -> NDArray[np.int64]:
            parts = [drafts[start : start + rows] for start in range(0, len(drafts), rows)]
            answers = [self.verify(draft.copy(), target.copy(), part, rng) for part in parts]
            return np.concatenate([read_batch(answer, rows, len(target))[0] for answer in answers])

        return dataclasses.replace(self, verify=called)

    def draw(self, problem: Problem, rng: np.random.Generator, size: int) -> Drawn:
        """Call the kernel once for all rows."""
        drafts = _drafts(problem, rng, size)
        with naming_failures():
            answer = self.verify(problem.draft.copy(), problem.target.copy(), drafts.copy(), rng)
            outputs, flags = read_batch(answer, size, problem.num_tokens)
        return Drawn(outputs, drafts, flags)


_prepared = functools.lru_cache(maxsize=1)(prepare)  # samples of a problem come in many batches


def _drafts(problem: Problem, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    width = problem.law.num_uniforms(problem.num_tokens)
    return problem.law.draw(problem.draft, rng.random((size, width)))


def as_one_token(thing: object) -> OneTokenCandidate:
    """Return a candidate of one token, made from a verifier or a function where necessary."""
    if isinstance(thing, OneTokenCandidate):
        return thing
    if isinstance(thing, Verifier):
        return VerifierCandidate(thing)
    return as_kind(thing, TokenCandidate)


def _as_integrable(thing: object) -> TokenCandidate | VerifierCandidate:
    """Return an integrable candidate, or raise an error that names the missing part."""
    found = as_one_token(thing)
    return found if isinstance(found, VerifierCandidate) else as_kind(found, TokenCandidate)


def exact(candidate: object, problem: Problem, *, tolerance: float | None = None) -> ExactAudit:
    """Integrate a verifier over the uniforms and every draft, and compare the law with the target.

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
        rejection); probed, some ten thousand. At most some 20 seconds: the draft sequences that
        there is no time for, the least likely, count as `error`.
    Accuracy: 2^-53 per box beside the candidate's own rounding; `error` otherwise.
    Reference: docs/theory.md, "Audits".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> def lenient(p, q, drafts, uniforms):
    ...     x = int(drafts[0])
    ...     return x if uniforms[0] < q[x] / (0.8 * p[x]) else 1
    >>> audit = exact(lenient, problem)
    >>> audit.verdict, audit.law, round(audit.total_variation, 12)
    ('not lossless', array([0.625, 0.375]), 0.125)
    """
    single = check_problem(problem).single(purpose="An exact audit")
    return _as_integrable(candidate).integrated(single, tolerance)


def library_sampler(
    verifier: Verifier, problem: Problem, *, tolerance: float | None = None
) -> ExactAudit:
    """Integrate the execution of a library sampler, with the drawing of drafts, over all uniforms.

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

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> library_sampler(otm.KSeq(), problem).verdict
    'lossless'
    """
    single = check_problem(problem).single(purpose="An exact audit")
    rule = prepare(verifier, single)
    before = rule.num_draft_uniforms

    def value(uniforms: NDArray[Any]) -> tuple[tuple[int, ...], tuple[int, bool]]:
        drafts, state = rule.draw(uniforms[None, :before])
        output, accepted = rule.verify(drafts, uniforms[None, before:], state)
        return tuple(drafts[0].tolist()), (int(output[0]), bool(accepted[0]))

    answers = output_law_of(
        [value],
        [1.0],
        before + rule.num_uniforms,
        tolerance=check_tolerance(tolerance, single.num_tokens, single.num_drafts),
        described="this problem",
    )
    rows: dict[tuple[int, ...], int] = {}
    found = [
        (np.asarray([rows.setdefault(drafts, len(rows))]), answer, mass)
        for _, (drafts, answer), mass in answers.found
    ]
    return audit_of_answers(
        dataclasses.replace(answers, found=found),
        np.asarray(list(rows), dtype=np.int64),
        single,
        name=f"the steps of {verifier!r}",
        tolerance=tolerance,
    )


def sampled(
    candidate: object,
    problem: Problem,
    *,
    rng: RNGLike,
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

    >>> import numpy as np
    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> trusting = BatchCandidate(lambda p, q, drafts, rng: drafts[:, 0], name="trusting")
    >>> audit = sampled(trusting, problem, rng=np.random.default_rng(0))
    >>> audit.verdict, audit.samples < audit.planned
    ('not lossless', True)
    """
    single = check_problem(problem).single(purpose="A sampled audit")
    generator = check_rng(rng)
    return as_one_token(candidate).sampled(single, generator, errors)


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
        law: the kind of drafts; up to `law.size` of them are tried. `otm.IID(1)` unless given.
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
    thing = _as_integrable(candidate)
    kind = IID(1) if law is None else check_instance(law, Law, name="law")
    return shrinking.smallest_problem(
        lambda problem: thing.integrated(problem, tolerance),
        kind,
        check_count(budget, name="budget"),
    )
