"""A plain function as a verifier: its law found by running it, as the exact audit finds it, its steps the function itself."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array
from otm.audit.candidate import NO_TOKEN, Candidate, CandidateFailure, as_candidate, naming_failures, outcome_of, read_token
from otm.audit.instances import MOST_SEQUENCES
from otm.audit.integration import Answers, answers_of, rounding_tolerance
from otm.drafts import IID, Law
from otm.drafts.base import readable
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_instance
from otm.problem import Problem
from otm.results import Definition, is_member
from otm.verifiers.base import Conditional, Verifier, enumerated_acceptance


@dataclasses.dataclass(frozen=True, repr=False)
class CallableVerifier(Verifier):
    """A verifier made of a function by `otm.from_callable`; nothing is taken for granted of it, losslessness least of all."""

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
        """Return the rule, which runs the function where it is asked; the same one for the same problem."""
        return _prepared(self.candidate, problem)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Add up what the function answers, over its uniforms and over every draft sequence.

        Cost: some milliseconds for each draft sequence, once for a problem; `TooLarge` beyond 512 of them.
        """
        single = problem.single(purpose=f"The acceptance of {self!r}")
        _require_few(single.law.num_sequences(_drafted_tokens(single)))
        return np.float64(enumerated_acceptance(self.prepare(single), by))


@dataclasses.dataclass(frozen=True, eq=False)
class CallableRule(Conditional):
    """A function on one problem.

    Attributes:
        candidate: the function, with the number of uniforms that it may use.
        known: what `split` has answered, by drafts.
    """

    candidate: Candidate
    known: dict[bytes, tuple[NDArray[np.float64], NDArray[np.float64]]] = dataclasses.field(default_factory=dict)

    @property
    def num_uniforms(self) -> int:
        """As many as the function may use."""
        return self.candidate.count(self.problem.law.k, self.problem.num_tokens)

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Integrate the function over its uniforms on each of the drafts; answers are kept.

        Raises:
            CandidateFailure: if it raises or returns no token.
            TooLarge: on too many drafts, or where the function cannot be followed to the end.
        """
        key = drafts.tobytes()
        if key not in self.known:
            self.known[key] = self._split(drafts)
        return self.known[key]

    def _split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        _require_few(len(drafts))
        accepted, residual = np.zeros((2, len(drafts), self.problem.num_tokens))
        if not len(drafts):
            return accepted, residual
        allowed = rounding_tolerance(self.problem.num_tokens, self.problem.law.k)
        weights = np.full(len(drafts), 1.0 / len(drafts))
        answers = answers_on(self.candidate, self.problem, drafts, weights, tolerance=allowed)
        if answers.error > allowed:
            raise TooLarge(
                f"{self.candidate.name} compares its uniforms with each other, and its law is known to {answers.error:.2g} only, "
                "not exactly; otm.estimate gives an interval, otm.audit.exact what is known."
            )
        for row, (token, said), mass in answers.found:
            if token == NO_TOKEN:
                raise CandidateFailure(
                    f"{self.candidate.name} returned a token outside [0, {self.problem.num_tokens}) on drafts "
                    f"{drafts[row].tolist()}, with probability {mass * len(drafts):.3g}."
                )
            part = accepted if (token in drafts[row] if said is None else said) else residual
            part[row, token] += mass * len(drafts)
        return accepted, residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Call the function row by row; where it does not say whether it accepted, a drafted token counts as accepted."""
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

    The law of its output is not assumed but found, by running the function on tracing numbers over its uniforms and over every
    draft sequence, as `otm.audit.exact` does; `otm.estimate` and `otm.sample` just call it.

    Args:
        function: `function(draft, target, drafts, uniforms) -> token` or `(token, accepted)`, with `draft` and `target` `(V,)`,
            `drafts` `(k,)` integers and `uniforms` `(n,)`, independent and uniform on [0, 1), of which it may use any. Without
            `accepted` a token counts as accepted if it was drafted. Or an `otm.audit.Candidate`.
        law: the draft laws that it verifies, a class or an instance, or a tuple of these.
        name: what to call it in tables; the function's own name if empty.
        num_uniforms: n from (k, V); k + 1 unless given.

    Returns:
        A verifier of the kind that `otm.acceptance`, `otm.kernel`, `otm.coupling`, `otm.compare` and `otm.audit.exact` take. It
        promises nothing: `lossless` is false, and `otm.compare` sorts it by the output law that it finds.

    Raises:
        InvalidParameter: if the function cannot be called, or `law` is none.

    What is later asked of the verifier raises `CandidateFailure`, an `OtmError`, where the function raises or returns no token,
    and `TooLarge` beyond 512 draft sequences, of which each takes some milliseconds; `otm.estimate` then gives an interval.

    What was found of a problem is kept while the process lasts: a function must not depend on what changes outside it.

    Cost: O(1). Accuracy: as `otm.audit.exact`. A function that turns its uniforms into plain floats is probed as a black box: exact
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
    if not laws or not all(isinstance(each, Law) or (isinstance(each, type) and issubclass(each, Law)) for each in laws):
        raise InvalidParameter(
            f"law must be a draft law such as otm.IID or otm.IID(2), or a tuple of these; got {law!r}. Choose of otm.drafts.LAWS."
        )
    return CallableVerifier(candidate=candidate, laws=laws)


def unwrapped(thing: object) -> object:
    """Return the function behind a verifier that was made of one, which an audit asks itself; anything else as it is."""
    return thing.candidate if isinstance(thing, CallableVerifier) else thing


def answers_on(
    candidate: Candidate, problem: Problem, drafts: NDArray[np.int64], mass: NDArray[np.float64], *, tolerance: float
) -> Answers:
    """Return what a candidate answers on drafts `(n, k)` of these masses: (token, accepted) with probabilities."""
    return answers_of(
        [_token_of(candidate, problem, row) for row in drafts],
        mass.tolist(),
        candidate.count(problem.law.k, problem.num_tokens),
        tolerance=tolerance,
        described=f"draft={problem.draft.tolist()}, target={problem.target.tolist()}",
    )


def run_rows(
    candidate: Candidate, problem: Problem, drafts: NDArray[np.int64], uniforms: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Return tokens `(n,)`, and flags unless the candidate gave none, by calling it on each row of drafts and uniforms.

    Where it gave some, a token without one counts as accepted if it was drafted.

    Raises:
        CandidateFailure: if it raises or returns no token of the vocabulary; the message names the drafts.
    """
    found = []
    for row, numbers in zip(drafts, uniforms, strict=True):
        with naming_failures(f" Drafts: {row.tolist()}."):
            answer = candidate.verify(problem.draft.copy(), problem.target.copy(), row.copy(), numbers)
            token, flag = read_token(answer, problem.num_tokens)
            if token == NO_TOKEN:
                raise CandidateFailure(
                    f"The callable must return a token in [0, {problem.num_tokens}); it returned {answer!r}."
                )
        found.append((token, flag))
    outputs, flags = zip(*found, strict=True)
    output = np.asarray(outputs, dtype=np.int64)
    if all(flag is None for flag in flags):
        return output, None
    drafted = is_member(output, drafts)
    said = [member if flag is None else flag for flag, member in zip(flags, drafted, strict=True)]
    return output, np.asarray(said, dtype=bool)


def _token_of(candidate: Candidate, problem: Problem, drafts: NDArray[np.int64]) -> Callable[[NDArray[Any]], Any]:
    """Return the candidate on these drafts as a function of its uniforms; it gets copies, so that it may write into them."""

    def value(uniforms: NDArray[Any]) -> Any:
        def run() -> tuple[int, bool | None]:
            answer = candidate.verify(problem.draft.copy(), problem.target.copy(), drafts.copy(), uniforms)
            return read_token(answer, problem.num_tokens)

        return outcome_of(run)

    return value


@functools.lru_cache(maxsize=16)
def _prepared(candidate: Candidate, problem: Problem) -> CallableRule:
    """Return one rule for one problem: acceptance, output law and coupling ask the same, which is found once."""
    return CallableRule(problem=problem, candidate=candidate)


def _drafted_tokens(problem: Problem) -> int:
    return int((np.atleast_2d(problem.draft) > 0).any(axis=0).sum())


def _require_few(sequences: int) -> None:
    if sequences > MOST_SEQUENCES:
        raise TooLarge(
            f"A function is followed on at most {MOST_SEQUENCES} draft sequences, and here are {readable(sequences)}; "
            "otm.estimate gives an interval, otm.audit.exact takes the time."
        )
