"""The kind of candidate that a function is, found from the signature and from trial calls.

The number of positional arguments without a default tells most kinds apart: two for a tree and a
generator, three for a step or a whole generation, four for a verifier that is handed its drafts,
five if it takes raw logits and a temperature. Names and annotations tell a tree, a request, a
generator, and the temperature of a step. The rest is found out by calling it on small inputs of
each kind.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from otm.audit import generations
from otm.audit.blocks import BlockBatchCandidate, BlockCandidate
from otm.audit.callables import one_per_draft_and_one
from otm.audit.candidate import (
    SMALL_DRAFT,
    SMALL_TARGET,
    Candidate,
    FunctionCandidate,
    answers_blocks,
)
from otm.audit.end_to_end import HEATS, StepCandidate
from otm.audit.generations import GenerationCandidate
from otm.audit.logits import LogitCandidate
from otm.audit.one_token import BatchCandidate, TokenCandidate, VerifierCandidate
from otm.audit.tracing.answers import CandidateFailure
from otm.audit.trees import DraftedTree, TreeCandidate
from otm.drafts import IID
from otm.errors import InvalidParameter
from otm.problem import Problem
from otm.verifiers.base import Verifier

COUNTS: tuple[Callable[[int, int], int], ...] = (
    one_per_draft_and_one,
    lambda num_drafts, num_tokens: 2 * num_drafts + 2,
    lambda num_drafts, num_tokens: num_drafts + num_tokens + 1,
)
"""Numbers of uniforms for trial calls of a function, unless the number is given."""

_GENERATORS = re.compile("rng|generator")
"""What names and annotations of random generators contain."""

_ROWS = 24
_SMALL = Problem(draft=SMALL_DRAFT[0], target=SMALL_TARGET[0], law=IID(1))
"""The problem on which a function is tried with batches of rows."""


def classify(
    thing: object,
    *,
    name: str = "",
    num_uniforms: Callable[[int, int], int] | None = None,
) -> Candidate:
    """Wrap a function in the kind of candidate that fits the arguments and trial calls.

    Args:
        thing: a function, one of the library's verifiers, or a candidate, which stays as it is.
        name: what to call a function in reports; its own name if empty.
        num_uniforms: how many uniforms it may use, from (number of drafts, V); found out unless
            given.

    Returns:
        Candidate: a `TokenCandidate` if a function answers one drafted token with one token, a
        `BlockCandidate` if it answers a block with tokens, a `BatchCandidate` or
        `BlockBatchCandidate` if it takes rows and a generator where the others take uniforms. One
        of two arguments is a `TreeCandidate`, one of three a `StepCandidate` (or a
        `GenerationCandidate`, if it reads a request; with a temperature as fourth a
        `StepCandidate` of several temperatures), one of five a `LogitCandidate`. Arguments with
        defaults are not counted.

    Raises:
        InvalidParameter: if it is no function, or fits none; the message says what each attempt
            came to.

    Cost: some dozens of calls.

    >>> def accept(draft, target, drafts, uniforms):
    ...     return int(drafts[0])
    >>> classify(accept).description
    'a verifier of one token'
    """
    if isinstance(thing, Candidate):
        return thing
    if isinstance(thing, Verifier):
        return VerifierCandidate(thing)
    function: Any = TokenCandidate(thing, name).verify  # type: ignore[arg-type]  # refuses what is none
    if num_uniforms is None:
        kind = _kind_by_arguments(function)
        if kind is not None:
            return kind(function, name, found_out=True)
    counts = COUNTS if num_uniforms is None else (num_uniforms,)
    if num_uniforms is None and _GENERATORS.search(_said_of(function, 3)):
        counts = ()
    attempts: dict[str, str] = {}
    for count in counts:
        blocks = answers_blocks(function, count, attempts)
        if blocks is not None:
            kind = BlockCandidate if blocks else TokenCandidate
            return kind(function, name, count, found_out=True)
    if num_uniforms is None:
        batch = BatchCandidate(function, name, found_out=True)
        of_blocks = BlockBatchCandidate(function, name, found_out=True)
        rng = np.random.default_rng(0)
        p, q = (np.stack([law] * _ROWS) for law in (SMALL_DRAFT, SMALL_TARGET))
        drafts = rng.integers(SMALL_DRAFT.shape[-1], size=(_ROWS, len(SMALL_DRAFT)))
        tries: list[tuple[str, Candidate, Callable[[], object]]] = [
            ("a batch of rows", batch, lambda: batch.draw(_SMALL, rng, _ROWS)),
            ("a batch of blocks", of_blocks, lambda: of_blocks.verify_rows(p, q, drafts, rng)),
        ]
        for described, candidate, call in tries:
            try:
                call()
            except CandidateFailure as error:
                attempts[described] = str(error)
            else:
                return candidate
    kinds: dict[str, list[str]] = {}
    for kind_tried, said in attempts.items():
        kinds.setdefault(said, []).append(kind_tried)
    tried = " ".join(f"For {' or '.join(named)}: {said}" for said, named in kinds.items())
    raise InvalidParameter(
        "The callable must answer verify(draft, target, drafts, uniforms), with draft (V,), target "
        "(V,) and drafts (k,) for one token, or draft (γ, V), target (γ+1, V) and drafts (γ,) for "
        f"a block. {tried} See otm.audit.candidate for the signatures; --uniforms or "
        "TokenCandidate(num_uniforms=…) say how many uniforms it takes."
    )


def arguments_of(function: object) -> range | None:
    """Return the possible numbers of positional arguments of a function; None where unknown.

    >>> arguments_of(lambda tree, rng: 0), arguments_of(lambda a, b=1, *, c=2: 0)
    (range(2, 3), range(1, 3))
    >>> arguments_of(lambda *rest: 0) is None
    True
    """
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]  # TypeError on what is none
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return range(sum(place.default is place.empty for place in places), len(places) + 1)


def _kind_by_arguments(function: Callable[..., Any]) -> Callable[..., FunctionCandidate] | None:
    """Return the kind of candidate for a number of arguments; None for four that do not say so, or
    an unknown number.
    """
    number = arguments_of(function) or range(0)
    if number.start in range(2, 6):  # a default that is never replaced
        number = range(number.start, number.start + 1)
    if 4 in number and "logit" in _said_of(function, 0) and "temper" in _said_of(function, 4):
        return LogitCandidate
    if 4 in number:
        heated = "temperature" in _said_of(function, 3)
        return functools.partial(StepCandidate, temperatures=HEATS) if heated else None
    if 5 in number:
        return LogitCandidate
    if 3 in number:
        return GenerationCandidate if _takes_a_request(function) else StepCandidate
    if 2 not in number:
        return None
    if not _takes_a_tree(function):
        raise InvalidParameter(
            "A function of two arguments is a kernel of trees, verify(tree, rng); this one reads "
            "nothing of its tree. Pass verify(draft, target, drafts, uniforms), or an "
            "otm.audit.TreeCandidate if it is one all the same."
        )
    return TreeCandidate


def _said_of(function: Callable[..., Any], place: int) -> str:
    """Return the name and the annotation of an argument; "" where there is none, or unknown."""
    if arguments_of(function) is None:
        return ""
    parameters = [*inspect.signature(function).parameters.values()][place:]
    return f"{parameters[0].name} {parameters[0].annotation}".lower() if parameters else ""


def _takes_a_tree(function: Callable[..., Any]) -> bool:
    """True if the first argument is called a tree, or read as one in a trial call."""
    if "tree" in _said_of(function, 0):
        return True
    laws = np.stack([SMALL_DRAFT[0]] * 3), np.stack([SMALL_TARGET[0]] * 3)
    rng = np.random.default_rng(0)
    tree = _Watched(DraftedTree(np.asarray([0, 0, 1]), np.asarray([-1, 0, 0]), *laws, True), rng)
    return tree.is_read(function, tree, rng)


def _takes_a_request(function: Callable[..., Any]) -> bool:
    """True if the third argument is called a request, or read as one in a trial call."""
    said = _said_of(function, 2)
    if "request" in said or _GENERATORS.search(said):
        return "request" in said
    ids, rng = np.asarray([[0, 1]]), np.random.default_rng(0)
    plain = generations.Request(ids, np.ones_like(ids), 1, 1.0, None, None, None, None, rng)
    request = _Watched(plain, rng)
    return request.is_read(function, generations.DRAFT, generations.TARGET, request)


class _Watched:
    """A stand-in for an argument of a trial call that notes a read of any attribute.

    Attributes that the argument lacks are those of the generator that it may be instead.
    """

    def __init__(self, thing: object, rng: np.random.Generator) -> None:
        self._thing, self._rng, self._read = thing, rng, False

    def __getattr__(self, name: str) -> Any:
        own = name in dir(self._thing)
        self._read = self._read or own
        return getattr(self._thing if own else self._rng, name)

    def is_read(self, function: Callable[..., Any], *arguments: Any) -> bool:
        """True if a function reads the argument, even where the call fails."""
        with np.errstate(all="ignore"), contextlib.suppress(Exception, SystemExit):
            function(*arguments)
        return self._read
