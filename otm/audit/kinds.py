"""Which kind of callable a function is, by its signature and by calling it: one token, a block, a
batch of rows, or a whole step.

The number of positional arguments tells most kinds apart: two for a tree and a generator, three for
a step or a whole generation, four for a verifier that is handed its drafts, five if it takes raw
logits and a temperature. The rest is found out by calling.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from otm.audit import generation_audit
from otm.audit.candidate import (
    BatchCandidate,
    BlockKernel,
    Candidate,
    LogitCandidate,
    WholeCandidate,
    read_batch,
    read_block,
)
from otm.errors import InvalidParameter
from otm.tracing.answers import CandidateFailure, naming_failures, read_token
from otm.verifiers.base import Verifier
from otm.verifiers.callables import one_per_draft_and_one

Kind = Candidate | BatchCandidate | BlockKernel | LogitCandidate | WholeCandidate | Verifier
"""What a battery audits."""

COUNTS: tuple[Callable[[int, int], int], ...] = (
    one_per_draft_and_one,
    lambda num_drafts, num_tokens: 2 * num_drafts + 2,
    lambda num_drafts, num_tokens: num_drafts + num_tokens + 1,
)
"""Numbers of uniforms that a function is tried with, where it was not said how many it takes."""

_TRIES = 24
_DRAFT = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
_TARGET = np.array([[0.3, 0.2, 0.4, 0.1], [0.1, 0.5, 0.3, 0.1], [0.3, 0.3, 0.2, 0.2]])
_TOKENS = _DRAFT.shape[-1]


@dataclasses.dataclass(frozen=True)
class Fitting:
    """A callable as what it is.

    Attributes:
        candidate: as a battery audits it.
        block: whether it verifies a block of positions, not one.
    """

    candidate: Kind
    block: bool = False


def fitting(thing: object) -> Fitting:
    """Return a callable as what it is; a plain function is called on small inputs of each kind.

    Args:
        thing: a function, a `Candidate`, `BatchCandidate`, `BlockKernel`, `LogitCandidate` or
            `WholeCandidate`, or one of the library's verifiers.

    Returns:
        Fitting: a function that answers one drafted token with one token audits single positions;
        one that answers a block with tokens audits blocks; one that takes a generator where the
        others take uniforms is a batch. One of two arguments is a kernel of trees, one of three a
        step (or a generation, if it reads a request), one of five takes logits.

    Raises:
        InvalidParameter: if it is no callable, or fits none; the message says what each attempt
            came to.

    Cost: some dozens of calls.

    >>> fitting(
    ...     lambda p, q, drafts, uniforms: [
    ...         int(drafts[0]) if uniforms[0] * p[0, drafts[0]] < q[0, drafts[0]] else 0
    ...     ]
    ... ).block
    True
    """
    if isinstance(thing, LogitCandidate):
        return Fitting(thing, block=_takes_blocks(thing))
    if isinstance(thing, BatchCandidate | BlockKernel | WholeCandidate | Verifier):
        return Fitting(thing, block=isinstance(thing, BlockKernel))
    given = thing if isinstance(thing, Candidate) else Candidate(thing)  # type: ignore[arg-type]  # refuses what is none
    by_arguments = _by_arguments(given) if given.num_uniforms is one_per_draft_and_one else None
    if by_arguments is not None:
        return by_arguments
    counts = COUNTS if given.num_uniforms is one_per_draft_and_one else (given.num_uniforms,)
    why: dict[str, str] = {}
    for count in counts:
        candidate = dataclasses.replace(given, num_uniforms=count)
        found: list[bool] = []
        for block, num_drafts in ((False, 1), (False, 2), (False, 3), (True, 2)):
            try:
                shapes = [
                    _shape(candidate, *inputs) for inputs in _inputs(candidate, block, num_drafts)
                ]
            except CandidateFailure as error:
                why.setdefault("a block" if block else "one token", str(error))
                continue
            if not block and 0 in shapes:  # a single token, as no block is returned
                return Fitting(candidate)
            found.append(block)
        if found:
            return Fitting(candidate, block=found[-1])
    if given.num_uniforms is not one_per_draft_and_one:
        raise InvalidParameter(_unfit(why))
    try:
        batch = BatchCandidate(given.verify, name=given.name)
        with naming_failures():
            rng = np.random.default_rng(0)
            drafts = rng.integers(_TOKENS, size=(_TRIES, 1))
            read_batch(
                batch.verify(_DRAFT[0].copy(), _TARGET[0].copy(), drafts, rng), len(drafts), _TOKENS
            )
    except CandidateFailure as error:
        raise InvalidParameter(_unfit({**why, "a batch of rows": str(error)})) from error
    return Fitting(batch)


def arguments_of(function: object) -> range | None:
    """Return how many positional arguments a function can be called with; None where that cannot be
    known.

    >>> (
    ...     arguments_of(lambda tree, rng: 0),
    ...     arguments_of(lambda a, b=1, *, c=2: 0),
    ...     arguments_of(lambda *rest: 0),
    ... )
    (range(2, 3), range(1, 3), None)
    """
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]  # TypeError on what is none
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return range(sum(place.default is place.empty for place in places), len(places) + 1)


def described(candidate: Kind, block: bool = False) -> str:
    """Return what a callable is, in words.

    >>> (
    ...     described(WholeCandidate(lambda tree, rng: [0], kind="tree")),
    ...     described(Candidate(max), block=True),
    ... )
    ('a kernel of trees', 'a verifier of blocks')
    """
    wholes = {
        "step": "a step that drafts by itself",
        "tree": "a kernel of trees",
        "generate": "a generation",
    }
    if isinstance(candidate, WholeCandidate):
        return wholes[candidate.kind]
    if isinstance(candidate, BatchCandidate):
        return "a kernel of batches with randomness of its own"
    if isinstance(candidate, BlockKernel):
        return "a kernel of batches of blocks with randomness of its own"
    what = f"a verifier of {'blocks' if block else 'one token'}"
    return f"{what} that takes raw logits" if isinstance(candidate, LogitCandidate) else what


def _by_arguments(given: Candidate) -> Fitting | None:
    """Return what the number of arguments says, None for what is handed its drafts or does not say."""
    number = arguments_of(given.verify)
    if number is None or 4 in number:
        return None
    if 5 in number:
        function: Any = given.verify
        logits = LogitCandidate(function, name=given.name)
        return Fitting(logits, block=_takes_blocks(logits))
    if 3 in number:
        kind: Literal["step", "generate"] = "generate" if reads_a_request(given.verify) else "step"
        return Fitting(WholeCandidate(given.verify, kind=kind, name=given.name))
    return (
        Fitting(WholeCandidate(given.verify, kind="tree", name=given.name)) if 2 in number else None
    )


def _takes_blocks(candidate: LogitCandidate) -> bool:
    """Whether a candidate of logits fails on one token and answers a block."""
    for block in (False, True):
        handed = Candidate(
            lambda p, q, drafts, uniforms: candidate.verify(
                np.log(p), np.log(q), drafts, uniforms, 1.0
            ),
            num_uniforms=candidate.num_uniforms,
        )
        try:
            shapes = [
                _shape(handed, *inputs) for inputs in _inputs(handed, block, 2 if block else 1)
            ]
        except CandidateFailure:
            continue
        if block or 0 in shapes:  # a single token, as no block is returned
            return block
    return False


def reads_a_request(function: Callable[..., Any]) -> bool:
    """Whether a function of three arguments asks its third for what only a request has."""
    ids = np.asarray([[0, 1]])
    rng = np.random.default_rng(0)
    request = _Request(
        ids,
        np.ones_like(ids),
        1,
        temperature=1.0,
        top_k=None,
        top_p=None,
        min_p=None,
        end=None,
        rng=rng,
    )
    _Request.read = False
    try:
        with np.errstate(all="ignore"):
            function(generation_audit.DRAFT, generation_audit.TARGET, request)
    except (Exception, SystemExit):  # what a look is worth, whatever comes of it
        return _Request.read
    return _Request.read


class _Request(generation_audit.Request):
    """A request that notes whether it is read as one, and a generator in all else."""

    read: ClassVar[bool] = False

    def __getattribute__(self, name: str) -> Any:
        _Request.read = _Request.read or name in _FIELDS
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(super().__getattribute__("rng"), name)


_FIELDS = {"__dict__", *(field.name for field in dataclasses.fields(generation_audit.Request))}


def _inputs(candidate: Candidate, block: bool, num_drafts: int) -> Iterator[tuple[bool, int, Any]]:
    for seed in range(_TRIES):
        rng = np.random.default_rng(seed)
        drafts = rng.integers(_TOKENS, size=num_drafts)
        yield block, candidate.count(len(drafts), _TOKENS), (drafts, rng)


def _shape(candidate: Candidate, block: bool, num_uniforms: int, drawn: Any) -> int:
    """Call once, check the answer, and return the number of axes of what was returned as output."""
    drafts, rng = drawn
    uniforms = rng.random(num_uniforms)
    with naming_failures(), np.errstate(all="ignore"):
        if block:
            answer = candidate.verify(_DRAFT.copy(), _TARGET.copy(), drafts, uniforms)
            read_block(answer, _TOKENS, 3)
        else:
            answer = candidate.verify(_DRAFT[0].copy(), _TARGET[0].copy(), drafts, uniforms)
            read_token(answer, _TOKENS)
        return int(np.ndim(answer[0] if isinstance(answer, tuple) else answer))


def _unfit(why: dict[str, str]) -> str:
    tried = " ".join(f"For {kind}: {said}" for kind, said in why.items())
    return (
        "The callable must answer verify(draft, target, drafts, uniforms), with draft (V,), target "
        "(V,) and drafts (k,) for one "
        f"token, or draft (γ, V), target (γ+1, V) and drafts (γ,) for a block. {tried} See "
        "otm.audit.candidate for the signatures; "
        "--uniforms or Candidate(num_uniforms=…) say how many uniforms it takes."
    )
