"""A plain function as a verifier: its law found by running it, as the exact audit finds it, its
steps the function itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array
from otm.audit.candidate import (
    NO_TOKEN,
    Candidate,
    CandidateFailure,
    Failed,
    as_candidate,
    naming_failures,
    outcome_of,
    read_token,
)
from otm.audit.instances import MOST_SEQUENCES
from otm.audit.integration import Answers, answers_of, require_rare, rounding_tolerance
from otm.drafts import IID, Law
from otm.drafts.base import readable
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_instance
from otm.problem import Problem
from otm.results import Definition, is_member
from otm.tracing.boxes import Escape
from otm.tracing.lockstep import follow
from otm.verifiers.base import Conditional, Verifier, enumerated_acceptance

_MOST_TOGETHER = 1 << 18
"""How many draft sequences are followed together; what was found of each is kept."""

_WORK = 400_000_000
_WORK_AT_ONCE = 100_000_000
"""How many draft sequences are looked at, over all questions of a function: some seconds, and one
or two.
"""


@dataclasses.dataclass(frozen=True, repr=False)
class CallableVerifier(Verifier):
    """A verifier made of a function by `otm.from_callable`; nothing is taken for granted of it,
    losslessness least of all.
    """

    title = "from a callable"
    lossless = False

    candidate: Candidate
    laws: tuple[type[Law] | Law, ...]  # type: ignore[misc]  # of each one its own: it is the user who says what the function takes

    def __repr__(self) -> str:
        laws = [law.__name__ if isinstance(law, type) else repr(law) for law in self.laws]
        shown = laws[0] if len(laws) == 1 else f"({', '.join(laws)})"
        return f"from_callable({self.candidate.name}, law={shown})"

    def __str__(self) -> str:
        return self.candidate.name

    def prepare(self, problem: Problem) -> CallableRule:
        """Return the rule, which runs the function where it is asked; the same one for the same
        problem.
        """
        return _prepared(self.candidate, problem)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Add up what the function answers, over its uniforms and over every draft sequence.

        Cost: a millisecond for each of up to 512 draft sequences, once for a problem; beyond, all
        go together (`otm.tracing.lockstep`), and `TooLarge` after a second or two.
        """
        single = problem.single(purpose=f"The acceptance of {self!r}")
        return np.float64(enumerated_acceptance(self.prepare(single), by))


@dataclasses.dataclass(frozen=True, eq=False)
class CallableRule(Conditional):
    """A function on one problem.

    Attributes:
        candidate: the function, with the number of uniforms that it may use.
        known: what `split` has answered, or raised, by drafts.
    """

    candidate: Candidate
    known: dict[bytes, tuple[NDArray[np.float64], NDArray[np.float64]] | TooLarge] = (
        dataclasses.field(default_factory=dict)
    )

    @property
    def num_uniforms(self) -> int:
        """As many as the function may use."""
        return self.candidate.count(self.problem.law.k, self.problem.num_tokens)

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Integrate the function over its uniforms on each of the drafts; answers are kept.

        Raises:
            CandidateFailure: if it raises or returns no token.
            TooLarge: where the function cannot be followed to the end.
        """
        key = drafts.tobytes()
        if key not in self.known:
            try:
                self.known[key] = self._split(drafts)
            except TooLarge as error:
                self.known[key] = error
        known = self.known[key]
        if isinstance(known, TooLarge):
            raise known
        return known

    def _split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        accepted, residual = np.zeros((2, len(drafts), self.problem.num_tokens))
        if not len(drafts):
            return accepted, residual
        allowed = rounding_tolerance(self.problem.num_tokens, self.problem.law.k)
        weights = np.full(len(drafts), 1.0 / len(drafts))
        answers = answers_on(
            self.candidate,
            self.problem,
            drafts,
            weights,
            tolerance=allowed,
            most_work=_WORK_AT_ONCE,
        )
        if answers.error > allowed:
            raise TooLarge(
                f"{self.candidate.name} compares its uniforms with each other, and its law is "
                f"known to {answers.error:.2g} only, "
                "not exactly; otm.estimate gives an interval, otm.audit.exact what is known."
            )
        for rows, (token, said), mass in answers.found:
            if token == NO_TOKEN:
                raise CandidateFailure(
                    f"{self.candidate.name} returned a token outside [0, "
                    f"{self.problem.num_tokens}) on drafts "
                    f"{drafts[rows[0]].tolist()}, with probability {mass[0] * len(drafts):.3g}."
                )
            kept = (drafts[rows] == token).any(axis=1) if said is None else said
            accepted[rows, token] += np.where(kept, mass, 0.0) * len(drafts)
            residual[rows, token] += np.where(kept, 0.0, mass) * len(drafts)
        return accepted, residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Call the function row by row; where it does not say whether it accepted, a drafted token
        counts as accepted.
        """
        output, said = run_rows(self.candidate, self.problem, drafts, uniforms)
        return output, is_member(output, drafts) if said is None else said


def from_callable(
    function: Callable[[Any, Any, Any, Any], Any] | Candidate,
    law: type[Law] | Law | tuple[type[Law] | Law, ...] = IID,
    *,
    name: str = "",
    num_uniforms: Callable[[int, int], int] | None = None,
) -> Verifier:
    """Return a verifier that does what a function does: it goes wherever a verifier goes.

    The law of its output is not assumed but found, by running the function on tracing numbers over
    its uniforms and over every draft sequence, as `otm.audit.exact` does; `otm.estimate` and
    `otm.sample` just call it.

    Args:
        function: `function(draft, target, drafts, uniforms) -> token` or `(token, accepted)`, with
            `draft` and `target` `(V,)`, `drafts` `(k,)` integers and `uniforms` `(n,)`, independent
            and uniform on [0, 1), of which it may use any. Without `accepted` a token counts as
            accepted if it was drafted. Or an `otm.audit.Candidate`.
        law: the draft laws that it verifies, a class or an instance, or a tuple of these.
        name: what to call it in tables; the function's own name if empty.
        num_uniforms: n from (k, V); k + 1 unless given.

    Returns:
        A verifier of the kind that `otm.acceptance`, `otm.kernel`, `otm.coupling`, `otm.compare`
        and `otm.audit.exact` take. It promises nothing: `lossless` is false, and `otm.compare`
        sorts it by the output law that it finds.

    Raises:
        InvalidParameter: if the function cannot be called, or `law` is none.

    What is later asked of the verifier raises `CandidateFailure`, an `OtmError`, where the function
    raises or returns no token.
    Beyond 512 draft sequences it is run on all at once, where rejections count alike whichever
        token was drafted: eight drafts
    of four tokens take about a tenth of a second as long as `draft[drafts[i]]` is compared with one
    uniform at a time. Code that asks for every drafted number (`int(drafts[i])`), combines uniforms
    or is a black box raises `TooLarge` then; `otm.estimate` gives an interval.

    What was found of a problem is kept while the process lasts: a function must not depend on what
        changes outside it.

    Cost: O(1). Accuracy: as `otm.audit.exact`. A function that turns its uniforms into plain floats
        is probed as a black box: exact
    if it treats no interval of them narrower than 1/64 by itself.
    Reference: docs/theory.md, "Audits".

    >>> def first_or_target(draft, target, drafts, uniforms):
    ...     x = drafts[0]
    ...     return (x, True) if uniforms[0] * draft[x] < target[x] else (1, False)
    >>> mine = from_callable(first_or_target, law=otm.IID(1))
    >>> otm.acceptance(mine, otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1)))
    0.75
    """
    candidate = as_candidate(function)
    check_instance(name, str, name="name")
    if name or num_uniforms is not None:
        count = candidate.num_uniforms if num_uniforms is None else num_uniforms
        candidate = Candidate(candidate.verify, name=name or candidate.name, num_uniforms=count)
    laws = law if isinstance(law, tuple) else (law,)
    if not laws or not all(
        isinstance(each, Law) or (isinstance(each, type) and issubclass(each, Law)) for each in laws
    ):
        raise InvalidParameter(
            "law must be a draft law such as otm.IID or otm.IID(2), or a tuple of these; got "
            f"{law!r}. Choose of otm.drafts.LAWS."
        )
    return CallableVerifier(candidate=candidate, laws=laws)


def unwrapped(thing: object) -> object:
    """Return the function behind a verifier that was made of one, which an audit asks itself;
    anything else as it is.
    """
    return thing.candidate if isinstance(thing, CallableVerifier) else thing


def answers_on(
    candidate: Candidate,
    problem: Problem,
    drafts: NDArray[np.int64],
    mass: NDArray[np.float64],
    *,
    tolerance: float,
    most_work: int = _WORK,
) -> Answers:
    """Return what a candidate answers on drafts `(n, k)` of these masses: (token, accepted) with
    probabilities.

    Raises:
        CandidateFailure: with the likeliest failure, if failures are likelier than the tolerance.
        TooLarge: on many drafts, where a candidate cannot be followed on all of them at once.
    """
    uniforms = candidate.count(problem.law.k, problem.num_tokens)
    described = f"draft={problem.draft.tolist()}, target={problem.target.tolist()}"
    if len(drafts) <= MOST_SEQUENCES:
        functions = [_on(candidate, problem, row) for row in drafts]
        return answers_of(
            functions, mass.tolist(), uniforms, tolerance=tolerance, described=described
        )
    try:
        if len(drafts) > _MOST_TOGETHER:
            raise Escape(f"more than {_MOST_TOGETHER:,}")
        ways = follow(
            functools.partial(_answer, candidate, problem.num_tokens),
            draft=problem.draft,
            target=problem.target,
            drafts=drafts,
            mass=mass,
            num_uniforms=uniforms,
            most_work=most_work,
        )
        reason = (
            ""
            if ways.error <= tolerance
            else "it goes too many ways: index with drafts[i] itself where it is int(drafts[i])"
        )
    except Escape as escape:
        reason = str(escape)
    if reason:
        raise TooLarge(
            f"{candidate.name} cannot be followed on {readable(len(drafts))} draft sequences "
            f"({reason}); otm.estimate gives its "
            "acceptance with an interval, otm.audit.sampled a verdict."
        )
    failures: dict[str, list[float]] = {}
    for _, answer, masses in ways.found:
        if isinstance(answer, Failed):
            failures.setdefault(answer.message, []).append(float(masses.sum()))
    require_rare(failures, tolerance, described)
    found = [each for each in ways.found if not isinstance(each[1], Failed)]
    return Answers(
        found,
        method="traced",
        error=ways.error,
        unproved=0.0,
        cells=ways.ways,
        check=None,
        reason="",
        rounding=1.0,
    )


def run_rows(
    candidate: Candidate, problem: Problem, drafts: NDArray[np.int64], uniforms: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Return tokens `(n,)`, and flags unless the candidate gave none, by calling it on each row of
    drafts and uniforms.

    Where it gave some, a token without one counts as accepted if it was drafted.

    Raises:
        CandidateFailure: if it raises or returns no token of the vocabulary; the message names the
            drafts.
    """
    found = []
    for row, numbers in zip(drafts, uniforms, strict=True):
        with naming_failures(f" Drafts: {row.tolist()}."):
            answer = candidate.verify(
                problem.draft.copy(), problem.target.copy(), row.copy(), numbers
            )
            token, flag = read_token(answer, problem.num_tokens)
            if token == NO_TOKEN:
                raise CandidateFailure(
                    f"The callable must return a token in [0, {problem.num_tokens}); it returned "
                    f"{answer!r}."
                )
        found.append((token, flag))
    outputs, flags = zip(*found, strict=True)
    output = np.asarray(outputs, dtype=np.int64)
    if all(flag is None for flag in flags):
        return output, None
    drafted = is_member(output, drafts)
    said = [member if flag is None else flag for flag, member in zip(flags, drafted, strict=True)]
    return output, np.asarray(said, dtype=bool)


def _answer(candidate: Candidate, num_tokens: int, *arguments: Any) -> Any:
    """Run the candidate on arguments that it may write into."""
    return outcome_of(lambda: read_token(candidate.verify(*arguments), num_tokens))


def _on(
    candidate: Candidate, problem: Problem, drafts: NDArray[np.int64]
) -> Callable[[NDArray[Any]], Any]:
    """Return the candidate on these drafts as a function of its uniforms."""

    def value(uniforms: NDArray[Any]) -> Any:
        return _answer(
            candidate,
            problem.num_tokens,
            problem.draft.copy(),
            problem.target.copy(),
            drafts.copy(),
            uniforms,
        )

    return value


@functools.lru_cache(maxsize=16)
def _prepared(candidate: Candidate, problem: Problem) -> CallableRule:
    """Return one rule for one problem: acceptance, output law and coupling ask the same, which is
    found once.
    """
    return CallableRule(problem=problem, candidate=candidate)
