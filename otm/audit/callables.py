"""Verifiers made from plain functions: the law is found by running the function.

The function is run on tracing numbers over its uniforms and over every draft sequence, or draws its
drafts as it looks at them where these are many, the likeliest ways first, until all are done or
time is up (`output_law_on`). What was found is exact; what there was no time for is the width of a
certified interval (`CallableVerifier.acceptance_interval`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array
from otm.audit.tracing.answers import (
    NO_TOKEN,
    CandidateFailure,
    Failed,
    naming_failures,
    outcome_of,
    read_token,
)
from otm.audit.tracing.branching import CHECKS, MOST_SECONDS
from otm.audit.tracing.drawn_row import DrawnRow, RowTable, Seen
from otm.audit.tracing.execution import TraceAborted
from otm.audit.tracing.output_law import (
    LEAST_CHECKS,
    OutputLaw,
    output_law_of,
    rounding_tolerance,
    traced_law_of,
)
from otm.drafts import IID, Law
from otm.drafts.base import live_drafts, readable
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_count, check_instance, check_real
from otm.problem import Problem
from otm.results import Definition, is_member
from otm.results.statistics import Certified
from otm.verifiers.base import Conditional, Verifier, check_definition

MOST_SEQUENCES = 512
"""Draft sequences that are run one by one, and that a black box is probed on."""

_MOST_DRAWN = 1 << 18
"""The likeliest draft sequences that are drawn from; all others count as not run."""


@dataclasses.dataclass(frozen=True, eq=False)
class TokenCode:
    """Code that verifies one token, for example a function wrapped by `from_callable`.

    Attributes:
        verify: the function, `verify(draft, target, drafts, uniforms)`.
        name: what it is called in reports.
        num_uniforms: how many uniforms it may use, from (number of drafts, V).
    """

    verify: Callable[[Any, Any, Any, Any], Any]
    name: str
    num_uniforms: Callable[[int, int], int]


def one_per_draft_and_one(num_drafts: int, num_tokens: int) -> int:
    """Return k + 1: a uniform for each accept step and one for the residual or bonus draw."""
    return num_drafts + 1


def count_uniforms(
    num_uniforms: Callable[[int, int], int], num_drafts: int, num_tokens: int
) -> int:
    """Return the checked number of uniforms for numbers of drafts and tokens."""
    return check_count(num_uniforms(num_drafts, num_tokens), name="num_uniforms", minimum=0)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class AcceptanceInterval(Certified):
    """A certified interval for a function's acceptance, as wide as the part that was not run."""


@dataclasses.dataclass(frozen=True, repr=False)
class CallableVerifier(Verifier):
    """A verifier made of a function by `otm.from_callable`, without a promise of losslessness.

    Attributes:
        code: the function, its name and the number of uniforms that it may use.
        laws: the draft laws that it verifies, for the user to say.
    """

    title = "from a callable"
    lossless = False

    code: TokenCode
    laws: tuple[type[Law] | Law, ...]  # type: ignore[misc]  # a constant of every other class

    def __repr__(self) -> str:
        laws = [law.__name__ if isinstance(law, type) else repr(law) for law in self.laws]
        shown = laws[0] if len(laws) == 1 else f"({', '.join(laws)})"
        return f"from_callable({self.code.name}, law={shown})"

    def __str__(self) -> str:
        return self.code.name

    def prepare(self, problem: Problem) -> CallableRule:
        """Return the rule, which runs the function."""
        return CallableRule(problem=problem, code=self.code)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Sum the function's answers over the uniforms and every draft sequence.

        Raises:
            TooLarge: where that takes more than 20 seconds, or its uniforms cannot be followed to
                the end; `acceptance_interval` and `otm.estimate` answer then.

        Cost: a millisecond or more for each draft sequence that differs in what the function looks
            at, once for a problem.
        """
        rule = self.prepare(problem.single(purpose=f"The acceptance of {self!r}"))
        law, accepted = rule.accepted(by, MOST_SECONDS)
        rule.require_known(law.error)
        return np.float64(accepted)

    def acceptance_interval(
        self, problem: Problem, *, by: Definition = "membership", seconds: float = MOST_SECONDS
    ) -> AcceptanceInterval:
        """Enclose the acceptance by results on the likeliest draft sequences within a time limit.

        Args:
            problem: one pair of distributions `(V,)`.
            by: "membership" or "rule", as of `otm.acceptance`.
            seconds: how long the function is run at most, > 0.

        Returns:
            AcceptanceInterval: certified; of a function that turns its uniforms into plain floats
            with error probability 1e-9, and as wide as what samples leave unproved.

        Raises:
            CandidateFailure: if the function raises or returns no token.
            TooLarge: beyond four million draft sequences, or 512 of a function that turns its
                uniforms into plain floats.

        Cost: `seconds`, or less where all is done before.

        >>> import otm
        >>> mine = from_callable(lambda draft, target, drafts, uniforms: drafts[0])
        >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
        >>> interval = mine.acceptance_interval(problem)
        >>> round(interval.value, 12), interval.gap < 1e-12
        (1.0, True)
        """
        rule = self.prepare(problem.single(purpose=f"The acceptance of {self!r}"))
        limit = check_real(seconds, name="seconds", low=0.0, open_low=True)
        law, accepted = rule.accepted(check_definition(by), limit)
        # What was not run adds to what is accepted; all else may be off either way.
        missing = max(0.0, 1.0 - math.fsum(mass for _, mass in law.totals))
        margin = max(law.error - missing, law.unproved, 0.0) + rule.rounding
        return AcceptanceInterval(
            lower=max(0.0, accepted - margin), upper=min(1.0, accepted + missing + margin)
        )


class KnownLaw(NamedTuple):
    """The law found for a function on drafts of given masses, and the seconds spent."""

    law: OutputLaw
    mass: NDArray[np.float64]
    seconds: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CallableRule(Conditional):
    """A function on one problem.

    Attributes:
        code: the function, with the number of uniforms that it may use.
    """

    code: TokenCode

    @property
    def num_uniforms(self) -> int:
        """The number of uniforms of the function."""
        allowed = self.code.num_uniforms
        return count_uniforms(allowed, self.problem.num_drafts, self.problem.num_tokens)

    @property
    def rounding(self) -> float:
        """The largest total variation that counts as rounding."""
        return rounding_tolerance(self.problem.num_tokens, self.problem.num_drafts)

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Integrate the function over the uniforms on each of the drafts; answers are cached.

        Raises:
            CandidateFailure: if it raises or returns no token.
            TooLarge: where that takes too long, or the function cannot be followed to the end.
        """
        accepted, residual = np.zeros((2, len(drafts), self.problem.num_tokens))
        if not len(drafts):
            return accepted, residual
        law, mass, _ = self._known_on(drafts, None, MOST_SECONDS)
        self.require_known(law.error)
        for rows, (token, said), masses in law.found:
            kept = _kept(drafts[rows], token, said)
            accepted[rows, token] += np.where(kept, masses / mass[rows], 0.0)
            residual[rows, token] += np.where(kept, 0.0, masses / mass[rows])
        return accepted, residual

    def accepted(self, by: Definition, seconds: float) -> tuple[OutputLaw, float]:
        """Return the law over all draft sequences within a time limit, and the accepted mass."""
        table = live_drafts(self.problem.law, self.problem.draft)
        law, weights, _ = self._known_on(table.tokens, table.mass, seconds)
        parts = []
        for rows, (token, said), masses in law.found:
            kept = _kept(table.tokens[rows], token, None if by == "membership" else said)
            parts += (kept * masses * (table.mass[rows] / weights[rows])).tolist()
        return law, math.fsum(parts)

    def require_known(self, error: float) -> None:
        """Raise TooLarge if a law with this error is not known up to rounding."""
        if error > self.rounding:
            size = self.problem.law.num_sequences(self.problem.num_tokens)
            raise TooLarge(
                f"The law of {self.code.name} on {readable(size)} draft sequences is known to "
                f"{error:.2g} only, not exactly; otm.estimate gives an interval by samples, "
                "acceptance_interval of the verifier a certified one, which more seconds= narrow."
            )

    def _known_on(
        self, drafts: NDArray[np.int64], mass: NDArray[np.float64] | None, seconds: float
    ) -> KnownLaw:
        """Return the cached law on drafts, after a run of at least `seconds` where not exact."""
        key, found = drafts.tobytes(), _found(self.code, self.problem)
        known = found.get(key)
        if known is not None and known.law.error > self.rounding:
            other = mass is not None and not np.array_equal(mass, known.mass)
            known = None if other or seconds > known.seconds else known
        if known is None:
            weights = np.full(len(drafts), 1.0 / len(drafts)) if mass is None else mass
            law = output_law_on(
                self.code,
                self.problem,
                drafts,
                weights,
                tolerance=self.rounding,
                most_seconds=seconds,
            )
            known = KnownLaw(law, weights, seconds)
            self._require_tokens(drafts, known)
            found[key] = known
        return known

    def _require_tokens(self, drafts: NDArray[np.int64], known: KnownLaw) -> None:
        """Raise CandidateFailure if the function returned a number outside the vocabulary."""
        for rows, (token, _), masses in known.law.found:
            if token == NO_TOKEN:
                raise CandidateFailure(
                    f"{self.code.name} returned a token outside [0, {self.problem.num_tokens}) on "
                    f"drafts {drafts[rows[0]].tolist()}, with probability "
                    f"{masses[0] / known.mass[rows[0]]:.3g}."
                )

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Call the function row by row; a drafted token without a flag counts as accepted."""
        output, said = run_rows(self.code, self.problem, drafts, uniforms)
        return output, is_member(output, drafts) if said is None else said


def _kept(drafts: NDArray[np.int64], token: int, said: bool | None) -> Any:
    """Return the code's own flag for a token, or a mask of the drafts that contain the token."""
    return (drafts == token).any(axis=1) if said is None else said


def from_callable(
    function: object,
    law: type[Law] | Law | tuple[type[Law] | Law, ...] = IID,
    *,
    name: str = "",
    num_uniforms: Callable[[int, int], int] | None = None,
) -> CallableVerifier:
    """Return a verifier that runs a function, for use like any other verifier.

    The law of its output is not assumed but found, by running the function on tracing numbers over
    its uniforms and over every draft sequence, as `otm.audit.exact` does; `otm.estimate` and
    `otm.sample` just call it.

    Args:
        function: `function(draft, target, drafts, uniforms) -> token` or `(token, accepted)`, with
            `draft` and `target` `(V,)`, `drafts` `(k,)` integers and `uniforms` `(n,)`, independent
            and uniform on [0, 1), of which it may use any. Without `accepted` a token counts as
            accepted if it was drafted. Or an `otm.audit.TokenCandidate`.
        law: the draft laws that it verifies, a class or an instance, or a tuple of these.
        name: what to call it in tables; the function's own name if empty.
        num_uniforms: n from (k, V); k + 1 unless given.

    Returns:
        A verifier of the kind that `otm.acceptance`, `otm.kernel`, `otm.coupling`, `otm.compare`
        and `otm.audit.exact` take. It promises nothing: `lossless` is false, and `otm.compare`
        sorts it by the output law that it finds. Its `acceptance_interval` answers where the draft
        sequences are too many for an exact value.

    Raises:
        InvalidParameter: if the function cannot be called, or `law` is none.

    What is later asked of the verifier raises `CandidateFailure`, an `OtmError`, where the function
    raises or returns no token. Beyond 512 draft sequences the drafts are drawn while the function
    runs, each when it is looked at, the likeliest ways first: some thousands of ways within the 20
    seconds after which exact questions raise `TooLarge`. Then `acceptance_interval` of the verifier
    encloses the acceptance by what was run, in as many seconds as it is given, and `otm.estimate`
    gives an interval by samples. A function that turns its uniforms into plain floats is probed as
    a black box on up to 512 draft sequences: exact if it treats no interval of them narrower than
    1/64 by itself.

    What was found of a problem is kept while the process lasts: a function must not depend on what
    changes outside it.

    Cost: O(1). Accuracy: as `otm.audit.exact`.
    Reference: docs/theory.md, "Audits".

    >>> import otm
    >>> def first_or_target(draft, target, drafts, uniforms):
    ...     x = drafts[0]
    ...     return (x, True) if uniforms[0] * draft[x] < target[x] else (1, False)
    >>> mine = from_callable(first_or_target, law=otm.IID(1))
    >>> otm.acceptance(mine, otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1)))
    0.75
    """
    check_instance(name, str, name="name")
    code = _as_code(function, name, num_uniforms)
    laws = law if isinstance(law, tuple) else (law,)
    if not laws or not all(
        isinstance(each, Law) or (isinstance(each, type) and issubclass(each, Law)) for each in laws
    ):
        raise InvalidParameter(
            "law must be a draft law such as otm.IID or otm.IID(2), or a tuple of these; got "
            f"{law!r}. Choose of otm.drafts.LAWS."
        )
    return CallableVerifier(code=code, laws=laws)


def _as_code(thing: object, name: str, num_uniforms: Callable[[int, int], int] | None) -> TokenCode:
    """Return code of one token, with the given name and number of uniforms if any."""
    code = getattr(thing, "code", thing)
    if isinstance(code, TokenCode):
        if not name and num_uniforms is None:
            return code
        return TokenCode(code.verify, name or code.name, num_uniforms or code.num_uniforms)
    if not callable(thing) or isinstance(thing, type | Verifier):
        raise InvalidParameter(
            "from_callable needs a function verify(draft, target, drafts, uniforms); got "
            f"{thing!r:.80}. Pass the function itself."
        )
    own = getattr(thing, "__name__", type(thing).__name__)
    return TokenCode(thing, name or str(own), num_uniforms or one_per_draft_and_one)


def output_law_on(
    code: TokenCode,
    problem: Problem,
    drafts: NDArray[np.int64],
    mass: NDArray[np.float64],
    *,
    tolerance: float,
    most_seconds: float = MOST_SECONDS,
) -> OutputLaw:
    """Return the law of the code's answers (token, accepted) on drafts `(n, k)` with masses `(n,)`.

    Drafts are drawn while the code is traced, which divides by those that it looks at
    (`tracing.drawn_row`), the likeliest first. Up to 512 draft sequences are run one by one
    where the code cannot be followed to the end so.

    Args:
        code: what verifies one token.
        problem: one pair of distributions.
        drafts, mass: the draft sequences, and the probability of each.
        tolerance: probability up to which failures pass for rounding.
        most_seconds: how long more than 512 are run; what there is no time for counts in `error`.

    Raises:
        CandidateFailure: with the likeliest failure, if failures are likelier than the tolerance.
        TooLarge: beyond 512 draft sequences, of code that cannot be traced.
    """
    uniforms = count_uniforms(code.num_uniforms, problem.num_drafts, problem.num_tokens)
    described = f"draft={problem.draft.tolist()}, target={problem.target.tolist()}"
    few = len(drafts) <= MOST_SEQUENCES
    order = np.argsort(-mass, kind="stable")
    likeliest, others = order[:_MOST_DRAWN], order[_MOST_DRAWN:]
    table = RowTable(drafts[likeliest], mass[likeliest])

    read: Seen = ()

    def on_drawn(numbers: NDArray[Any]) -> Any:
        """Return the answer on drafts drawn by the last numbers, with the entries read."""
        nonlocal read
        row = DrawnRow(table, numbers[uniforms:])
        answer = _answer(code, problem, row, numbers[:uniforms])
        read = row.seen
        return answer if isinstance(answer, Failed) else (answer, read)

    def on_plain(numbers: NDArray[Any]) -> Any:
        """Return the same on a plain array, with the entries that were read last: it must make no
        difference.
        """
        row = DrawnRow(table, numbers[uniforms:])
        for place, _ in read:  # an entry's law is given those read before
            row[place]
        seen = row.seen
        answer = _answer(code, problem, row.drawn(), numbers[:uniforms])
        return answer if isinstance(answer, Failed) else (answer, seen)

    try:
        law = traced_law_of(
            [on_drawn],
            [float(table.mass.sum())],
            uniforms + problem.num_drafts,
            tolerance=tolerance,
            described=described,
            most_seconds=most_seconds,
            replay=on_plain,
            checks=max(CHECKS, LEAST_CHECKS * min(len(drafts), MOST_SEQUENCES)),
        )
    except TraceAborted as aborted:
        if not few:
            raise TooLarge(
                f"{code.name} cannot be followed on {len(drafts):,} draft sequences "
                f"({aborted}); otm.estimate gives its acceptance with an interval, "
                "otm.audit.sampled a verdict."
            ) from None
    else:
        if not few or law.error <= tolerance:
            return _by_sequence(law, table, likeliest, left_out=float(mass[others].sum()))
    functions = [functools.partial(_answer, code, problem, row) for row in drafts]
    return output_law_of(
        functions, mass.tolist(), uniforms, tolerance=tolerance, described=described
    )


def _by_sequence(
    law: OutputLaw, table: RowTable, numbers: NDArray[np.int64], *, left_out: float
) -> OutputLaw:
    """Replace read entries of drafts in a law of answers by the numbers of the sequences."""
    found = []
    for _, (answer, seen), volume in law.found:
        agree = table.agreeing(seen)
        share = table.mass[agree] / table.mass[agree].sum()
        found.append((numbers[agree], answer, volume[0] * share))
    return dataclasses.replace(law, found=found, error=law.error + left_out)


def _answer(code: TokenCode, problem: Problem, drafts: Any, uniforms: NDArray[Any]) -> Any:
    """Run code on drafts and uniforms, with arrays that may be overwritten."""
    own = drafts.copy() if isinstance(drafts, np.ndarray) else drafts
    arguments = problem.draft.copy(), problem.target.copy(), own, uniforms
    return outcome_of(lambda: read_token(code.verify(*arguments), problem.num_tokens))


def run_rows(
    code: TokenCode, problem: Problem, drafts: NDArray[np.int64], uniforms: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Call code on each row of drafts `(n, k)` and uniforms.

    Returns:
        Tokens `(n,)`, and flags `(n,)` unless the code gave none. Where it gave some, a token
        without one counts as accepted if it was drafted.

    Raises:
        CandidateFailure: if it raises or returns no token of the vocabulary; the message names the
            drafts.
    """
    found, num_tokens = [], problem.num_tokens
    with naming_failures(lambda: f" Drafts: {row.tolist()}."):
        for row, numbers in zip(drafts, uniforms, strict=True):
            answer = code.verify(problem.draft.copy(), problem.target.copy(), row.copy(), numbers)
            token, flag = read_token(answer, num_tokens)
            if token == NO_TOKEN:
                raise CandidateFailure(
                    f"The callable must return a token in [0, {num_tokens}); it returned "
                    f"{answer!r}."
                )
            found.append((token, flag))
    outputs, flags = zip(*found, strict=True)
    output = np.asarray(outputs, dtype=np.int64)
    if all(flag is None for flag in flags):
        return output, None
    either = zip(flags, is_member(output, drafts), strict=True)
    return output, np.array([member if flag is None else flag for flag, member in either], bool)


@functools.lru_cache(maxsize=16)
def _found(code: TokenCode, problem: Problem) -> dict[bytes, KnownLaw]:
    """Return the record of the laws found on one problem, by drafts: all quantities share a run."""
    return {}
