"""Candidates of an audit: how each kind is called, and the checks that each should pass.

The arguments of all callables are positional, because every engine has its own names for them::

    verify(draft, target, drafts, uniforms) -> token  or  (token, accepted)

with `draft` the law that the drafts came from `(V,)` (`(k, V)` for different drafters), `target`
`(V,)`, `drafts` `(k,)` integers (−1 where a law could draft no further token) and `uniforms`
`(n,)`, independent and uniform on [0, 1), of which it may use any: a `TokenCandidate`. The same
with `draft` `(γ, V)`, `target` `(γ+1, V)` and `drafts` `(γ,)` verifies a block and returns 1 to
γ + 1 tokens: a `BlockCandidate`. Kernels that verify many rows at once, with a NumPy generator in
place of the uniforms, are a `BatchCandidate` or a `BlockBatchCandidate`; code that takes raw
logits, and a temperature as fifth argument, is a `LogitCandidate`. A `StepCandidate` drafts by
itself, a `TreeCandidate` reads drafted trees, a `GenerationCandidate` writes whole texts, and a
`VerifierCandidate` holds one of the library's verifiers. Of a plain function `otm.audit.classify`
finds out which of these it is.

A `Check` is one audit on one instance, ready to run. A `Scope` says what is to be checked, and
a `Deadline` how long the candidate's code may take.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from otm.audit.budget import USUAL, Deadline, Errors, check_errors
from otm.audit.callables import one_per_draft_and_one
from otm.audit.report import PASSED, Audit
from otm.audit.tracing.answers import (
    CandidateFailure,
    integer_of,
    naming_failures,
    read_token,
)
from otm.drafts import Law
from otm.drafts.base import MAX_SEQUENCES
from otm.errors import InvalidParameter, ShapeMismatch, TooLarge
from otm.pmf import check_choice, check_count, check_counts, check_instance, check_real, host_pmf
from otm.verifiers.base import Verifier

NOISE = ("position", "step", "fresh")
"""Keys of the noise that drafts are drawn with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scope:
    """A selection of checks, with settings.

    Args:
        only: which checks, all if empty: "exact" for those by integration, "sampled" for every
            standard instance by samples instead, or parts of the checks' names.
        laws: how several drafts of one position are drawn; None for the standard ones.
        num_drafts: of a block, the lengths γ; None for the standard ones.
        errors: of all checks by samples together.
        tolerance: the largest total variation that counts as rounding; None for the default.
        seed: of all samples; each check has a generator of its own.
        deadline: that candidates are limited by.
        own_randomness: whether it is known that the candidate cannot be integrated.
        pair: draft and target instead of the standard instances: `(1, V)`, the same at every
            position, or `(V, V)`, a row for each last token.
        noise: the key of the draft noise of a text of several steps that is audited with the rest,
            one of `NOISE`; None for no such text.
        vocabulary: the size of a further instance, which is sampled; None for none.

    Raises:
        InvalidParameter: if laws or lengths are none, a number is out of range, or `noise` is no
            key.
        InvalidDistribution, ShapeMismatch: if a row of `pair` is no distribution, or the shapes
            are others.
        TooLarge: if blocks of such a length are too many to enumerate.
    """

    only: str | Sequence[str] = ()
    laws: Iterable[Law] | None = None
    num_drafts: Sequence[int] | None = None
    errors: Errors = USUAL
    tolerance: float | None = None
    seed: int = 0
    deadline: Deadline = dataclasses.field(default_factory=Deadline)
    own_randomness: bool = False
    pair: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    noise: str | None = None
    vocabulary: int | None = None

    def __post_init__(self) -> None:
        check_errors(self.errors)
        if self.noise is not None:
            check_choice(self.noise, name="noise", choices=NOISE)
        check_count(self.seed, name="seed", minimum=0)
        check_count(1 if self.vocabulary is None else self.vocabulary, name="vocabulary")
        if self.tolerance is not None:
            check_real(self.tolerance, name="tolerance", low=0.0, high=1.0)
        object.__setattr__(self, "only", check_names(self.only, name="only"))
        if self.laws is not None:
            said = "laws must hold at least one draft law. Pass [otm.IID(1)], say."
            object.__setattr__(self, "laws", check_entries(self.laws, Law, least=1, said=said))
        if self.num_drafts is not None:
            lengths = tuple(check_counts(self.num_drafts, name="num_drafts"))
            if (most := max(lengths)) >= MAX_SEQUENCES.bit_length():
                raise TooLarge(
                    f"Blocks are enumerated up to {MAX_SEQUENCES:,}; two tokens and {most} drafts "
                    f"have 2^{most + 1}. Pass fewer."
                )
            object.__setattr__(self, "num_drafts", lengths)
        if self.pair is not None:
            object.__setattr__(self, "pair", _check_pair(*self.pair))

    @property
    def default(self) -> bool:
        """True if no laws or numbers of drafts were requested, so that unfit instances may be left
        out.
        """
        return self.laws is None and self.num_drafts is None

    @property
    def sampled(self) -> bool:
        """True if every instance is sampled and none integrated."""
        return "sampled" in self.only

    def rng(self, name: str) -> np.random.Generator:
        """Return the random generator of a check by name, the same in any order of the checks."""
        return np.random.default_rng((self.seed, zlib.crc32(name.encode())))

    def checks(self, candidate: Candidate) -> list[Check]:
        """Return the checks of a candidate that are in the scope.

        Raises:
            InvalidParameter: if there is none.
        """
        found = list(candidate.checks(self))
        chosen = [check for check in found if not self.only or check.is_named(self.only)]
        if not chosen:
            named = f" of kind or name {' or '.join(self.only)}" if self.only else ""
            raise InvalidParameter(
                f"There is no check{named} of {candidate.name!r}: either none of {len(found)} is "
                "named so, or the standard instances have too few tokens for these laws. Name "
                "another, or lower the number of drafts."
            )
        return chosen


def _check_pair(draft: object, target: object) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two tables of next-token laws, by last token or of one row each."""
    p, q = (
        np.atleast_2d(host_pmf(rows, name=name))
        for rows, name in ((draft, "draft"), (target, "target"))
    )
    num_tokens = q.shape[-1]
    if {p.shape, q.shape} - {(1, num_tokens), (num_tokens, num_tokens)}:
        raise ShapeMismatch(
            "draft and target must have one row over the same tokens, or a row for each token that "
            f"may come before; their shapes are {p.shape} and {q.shape}. Give 1 or "
            f"{num_tokens} rows of {num_tokens}."
        )
    return p, q


Entry = TypeVar("Entry")


def check_entries(given: object, kind: type[Entry], *, least: int, said: str) -> tuple[Entry, ...]:
    """Return at least `least` entries of a kind as a tuple, or raise `InvalidParameter`."""
    entries: Any = given
    try:
        found = tuple(entries)
    except (TypeError, RuntimeError):  # the latter from a tensor without data
        found = None
    if found is None or len(found) < least or not all(isinstance(entry, kind) for entry in found):
        raise InvalidParameter(f"{said} Got {given!r:.80}.")
    return found


def check_names(given: object, *, name: str) -> tuple[str, ...]:
    """Return names of checks as a tuple; one name may stand alone."""
    if isinstance(given, str):
        return (given,)
    said = f"{name} must be a name of checks, or several. Pass 'exact', say."
    return check_entries(given, str, least=0, said=said)


@dataclasses.dataclass(frozen=True, eq=False)
class Check:
    """One audit of a candidate that can be named, selected, left out and carried out.

    Args:
        instance: the problem or the models that it is on, by name.
        setting: how the drafts are drawn, or how many positions they have; all in float64.
        group: what is left out together if the candidate does not take it.
        kind: "exact" where the output law is integrated (or, of code that draws by itself and
            cannot be followed, sampled with the reason said), "sampled" where it is sampled.
        run: carries it out.
        needed: whether a verdict needs it.
        kept: the part of all the time that it leaves to later checks, unless a verdict needs it.
        shrink: looks for the smallest problem on which the candidate fails; None if nothing does.
        again: Python that repeats it, with {} for the candidate's name, where the result does not
            say it.

    >>> import otm
    >>> Check("zeros", "IID(k=2)", "2 drafts by otm.IID", "sampled", lambda: None).name
    'zeros, IID(k=2), samples'
    """

    instance: str
    setting: str
    group: str
    kind: Literal["exact", "sampled"]
    run: Callable[..., Audit]
    needed: bool = True
    kept: float = 0.0
    shrink: Callable[[], Audit | None] | None = None
    again: str = ""

    @property
    def name(self) -> str:
        """Instance, setting, and "samples" for a sampled check; unique in a scope."""
        samples = "samples" if self.kind == "sampled" else ""
        return ", ".join(filter(None, (self.instance, self.setting, samples)))

    def is_named(self, words: Iterable[str]) -> bool:
        """True if one of the words is the kind of the check, or a part of the name."""
        return any(word == self.kind or word in self.name for word in words)

    def __call__(self) -> Audit:
        """Run the check, and fail unless the candidate passes.

        Raises:
            AssertionError: if the verdict is neither "lossless" nor "no difference found"; its
                message is the report.
            CandidateFailure: if the candidate raises, or returns something that is no answer.
        """
        __tracebackhide__ = True
        audit = self.run()
        if audit.verdict not in PASSED:
            raise AssertionError(str(audit))
        return audit


class Candidate(abc.ABC):
    """Something under audit: abstract, one final class for each way of being called.

    Attributes:
        description: what it is, in words.
        called: how it is called.
        share: of a battery's time, for one check.
    """

    description: ClassVar[str]
    called: ClassVar[str]
    share: ClassVar[float] = 0.25
    name: str

    @abc.abstractmethod
    def limited(self, deadline: Deadline) -> Candidate:
        """Return the candidate with calls that end when time is up."""

    @abc.abstractmethod
    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield the checks of the candidate, first the checks that every verdict needs."""


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionCandidate(Candidate):
    """A candidate that is a function.

    Args:
        verify: the function.
        name: what to call it in reports; the function's own name if empty.
        found_out: whether it was found out, and not said, what the function is.

    Raises:
        InvalidParameter: if `verify` cannot be called.
    """

    verify: Callable[..., Any]
    name: str = ""
    found_out: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.verify) or isinstance(self.verify, type):
            raise InvalidParameter(
                f"A candidate must be a function {self.called}; got {self.verify!r}. Pass the "
                "function itself."
            )
        check_instance(self.name, str, name="name")
        named = self.verify.func if isinstance(self.verify, functools.partial) else self.verify
        own_name = str(getattr(named, "__name__", type(named).__name__))
        object.__setattr__(self, "name", self.name or own_name)

    def limited(self: Function, deadline: Deadline) -> Function:
        """Return the candidate with calls that end when time is up."""
        return dataclasses.replace(self, verify=deadline.limit(self.verify))


Function = TypeVar("Function", bound=FunctionCandidate)


@dataclasses.dataclass(frozen=True, eq=False)
class UniformsCandidate(FunctionCandidate):
    """A candidate that takes uniforms as an argument.

    Args:
        num_uniforms: how many uniforms it may use, from (number of drafts, V); k + 1 unless given.
    """

    num_uniforms: Callable[[int, int], int] = one_per_draft_and_one


def as_kind(thing: object, kind: type[Function]) -> Function:
    """Wrap a function in a kind of candidate; a candidate of this kind is returned unchanged.

    Raises:
        InvalidParameter: if it is a candidate of another kind, or no function.
    """
    if isinstance(thing, kind):
        return thing
    if isinstance(thing, Candidate | Verifier) or not callable(thing) or isinstance(thing, type):
        shown = (
            f"{thing.name!r:.80}, {thing.description}"
            if isinstance(thing, Candidate)
            else f"{thing!r:.80}"
        )
        raise InvalidParameter(
            f"This audit needs a function {kind.called}; got {shown}. Pass one, or call "
            "otm.audit.battery, which finds out what a callable is."
        )
    return kind(thing)


def read_block(answer: Any, num_tokens: int, longest: int) -> tuple[tuple[int, ...], int | None]:
    """Parse the answer of a block candidate into (tokens, number accepted).

    Args:
        answer: 1 to `longest` tokens, alone or with a count; trailing −1 is padding.
        num_tokens: V.
        longest: γ + 1.

    Raises:
        CandidateFailure: if the answer is something else.
    """
    tokens, count = answer, None
    if isinstance(answer, tuple) and len(answer) == 2 and np.ndim(answer[0]) == 1:
        tokens, count = answer
    try:
        numbers = [integer_of(token) for token in np.asarray(tokens).reshape(-1).tolist()]
    except (TypeError, ValueError):
        numbers = [None]
    while numbers and numbers[-1] == -1:
        numbers.pop()
    block = tuple(number for number in numbers if number is not None and 0 <= number < num_tokens)
    if not block or len(block) < len(numbers) or len(block) > longest:
        raise CandidateFailure(
            f"The callable must return 1 to {longest} tokens in [0, {num_tokens}), alone or as "
            f"(tokens, num_accepted); it returned {answer!r}."
        )
    return block, None if count is None else integer_of(count)


def read_batch(
    answer: Any, size: int, num_tokens: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Parse the answer of a kernel of batches into tokens `(m,)` and flags `(m,)` or None.

    Raises:
        CandidateFailure: unless there is one token of the vocabulary for each row.
    """
    tokens, accepted = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    array = np.asarray(tokens)
    whole = array.dtype.kind in "iu"
    if not whole or array.size != size or array.min() < 0 or array.max() >= num_tokens:
        ends = f" from {array.min()} to {array.max()}" if whole and array.size else ""
        raise CandidateFailure(
            f"The callable must return {size} integer tokens in [0, {num_tokens}), one per row; it "
            f"returned {array.dtype} of shape {array.shape}{ends}."
        )
    flags = None if accepted is None else np.asarray(accepted).reshape(-1).astype(bool)
    return array.reshape(-1).astype(np.int64), flags


_TRIES = 24
SMALL_DRAFT = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
SMALL_TARGET = np.array([[0.3, 0.2, 0.4, 0.1], [0.1, 0.5, 0.3, 0.1], [0.3, 0.3, 0.2, 0.2]])
"""Laws for trial calls of a function."""


def answers_blocks(
    verify: Callable[[Any, Any, Any, Any], Any],
    num_uniforms: Callable[[int, int], int],
    attempts: dict[str, str],
) -> bool | None:
    """Return True if a function answers a block with tokens, False if it answers one token.

    Small inputs of each kind are tried. None if both fail; `attempts` notes why.
    """
    found = None
    for block, num_drafts in ((False, 1), (False, 2), (False, 3), (True, 2)):
        try:
            axes = _answered_axes(verify, num_uniforms, block=block, num_drafts=num_drafts)
        except CandidateFailure as error:
            attempts.setdefault("a block" if block else "one token", str(error))
            continue
        if not block and 0 in axes:  # a single token, as no block is returned
            return False
        found = block
    return found


def _answered_axes(
    verify: Callable[[Any, Any, Any, Any], Any],
    num_uniforms: Callable[[int, int], int],
    *,
    block: bool,
    num_drafts: int,
) -> set[int]:
    """Return the numbers of axes of a function's outputs on small inputs.

    Raises:
        CandidateFailure: if one of its answers is no token, or no block.
    """
    num_tokens = SMALL_DRAFT.shape[-1]
    laws = (SMALL_DRAFT, SMALL_TARGET) if block else (SMALL_DRAFT[0], SMALL_TARGET[0])
    found = set()
    for seed in range(_TRIES):
        rng = np.random.default_rng(seed)
        drafts = rng.integers(num_tokens, size=num_drafts)
        uniforms = rng.random(num_uniforms(num_drafts, num_tokens))
        with naming_failures(), np.errstate(all="ignore"):
            answer = verify(laws[0].copy(), laws[1].copy(), drafts, uniforms)
            if block:
                read_block(answer, num_tokens, len(SMALL_TARGET))
            else:
                read_token(answer, num_tokens)
            found.add(np.ndim(answer[0] if isinstance(answer, tuple) else answer))
    return found
