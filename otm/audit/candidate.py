"""What a callable under audit looks like, and how its answer is read.

The arguments are positional, because every engine has its own names for them::

    verify(draft, target, drafts, uniforms) -> token  or  (token, accepted)

with `draft` the law that the drafts came from `(V,)` (`(k, V)` for different drafters), `target`
`(V,)`, `drafts` `(k,)` integers (−1 where a law could draft no further token) and `uniforms`
`(n,)`, independent and uniform on [0, 1), of which it may use any. The same with `draft` `(γ, V)`,
`target` `(γ+1, V)` and `drafts` `(γ,)` verifies a block, and returns 1 to γ + 1 tokens. Kernels
that verify many rows at once with randomness of their own are a `BatchCandidate`::

    verify(draft, target, drafts, rng) -> tokens  or  (tokens, accepted)

with `drafts` `(m, k)` and a NumPy generator, which a kernel may use to seed its own; those of
blocks are a `BlockKernel`, and code that takes raw logits, and a temperature as fifth argument, is
a `LogitCandidate`. Code that drafts by itself, reads drafted trees or writes whole texts is a
`WholeCandidate`. Of a plain function `otm.audit.kinds` finds out which of these it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from otm.audit import instances
from otm.drafts import Law
from otm.errors import InvalidParameter
from otm.logits import Processing
from otm.pmf import check_count, check_instance, plain_reals
from otm.problem import Problem
from otm.sequence.models import TableModel
from otm.tracing.answers import CandidateFailure, integer_of
from otm.verifiers.base import Verifier
from otm.verifiers.callables import CallableVerifier, one_per_draft_and_one

SIBLINGS = ("with", "without", "likeliest")
"""How the siblings of a tree are drafted: drawn with or without replacement, or the likeliest
tokens of the draft.
"""


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A verifier under audit that takes its randomness as an argument.

    Args:
        verify: the callable, `verify(draft, target, drafts, uniforms)`.
        name: what to call it in reports; the function's own name if empty.
        num_uniforms: how many uniforms it may use, from (number of drafts, V); k + 1 unless given.

    Raises:
        InvalidParameter: if `verify` cannot be called.

    >>> Candidate(lambda draft, target, drafts, uniforms: int(drafts[0]), name="trusting").name
    'trusting'
    """

    verify: Callable[[Any, Any, Any, Any], Any]
    name: str = ""
    num_uniforms: Callable[[int, int], int] = one_per_draft_and_one

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _name_of(self.verify, self.name))

    def count(self, num_drafts: int, num_tokens: int) -> int:
        """Return the number of uniforms for this many drafts and tokens, checked."""
        return check_count(
            self.num_uniforms(num_drafts, num_tokens), name="num_uniforms", minimum=0
        )


@dataclasses.dataclass(frozen=True, eq=False)
class BatchCandidate:
    """A verifier under audit that verifies rows in batches with randomness of its own; for the
    sampled audit.

    Args:
        verify: the callable, `verify(draft, target, drafts, rng)` with `drafts` `(m, k)`.
        name: what to call it in reports; the function's own name if empty.

    Raises:
        InvalidParameter: if `verify` cannot be called.

    >>> BatchCandidate(lambda draft, target, drafts, rng: drafts[:, 0], name="trusting").name
    'trusting'
    """

    verify: Callable[[Any, Any, Any, np.random.Generator], Any]
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _name_of(self.verify, self.name))


@dataclasses.dataclass(frozen=True, eq=False)
class BlockKernel:
    """A kernel under audit that verifies a batch of drafted blocks with randomness of its own, as
    engines' kernels do.

    Args:
        verify: the callable, `verify(draft, target, drafts, rng)` with `draft` `(m, γ, V)`,
            `target` `(m, γ+1, V)`, `drafts` `(m, γ)` and a NumPy generator; it returns tokens `(m,
            γ+1)`, −1 after the end of a row's output.
        name: what to call it in reports; the function's own name if empty.

    Raises:
        InvalidParameter: if `verify` cannot be called.

    >>> BlockKernel(lambda draft, target, drafts, rng: drafts, name="trusting").name
    'trusting'
    """

    verify: Callable[[Any, Any, Any, np.random.Generator], Any]
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _name_of(self.verify, self.name))


@dataclasses.dataclass(frozen=True, eq=False)
class LogitCandidate:
    """A verifier under audit that takes raw logits and does temperature, top-k, top-p and min-p by
    itself.

    What it should do with them is `otm.Processing`, of both models alike.

    Args:
        verify: the callable, `verify(draft_logits, target_logits, drafts, uniforms, temperature)`,
            of one token `(V,)` or of a block `(γ, V)`, `(γ+1, V)`.
        name: what to call it in reports; the function's own name if empty.
        num_uniforms: as of `Candidate`.
        top_k, top_p, min_p: what it applies; None for nothing.
        order: in which order, as of `otm.Processing`.
        temperatures: which ones a battery audits it at.

    Raises:
        InvalidParameter: if `verify` cannot be called, or what it applies is out of range.

    >>> LogitCandidate(
    ...     lambda draft, target, drafts, uniforms, temperature: int(drafts[0]), name="trusting"
    ... ).name
    'trusting'
    """

    verify: Callable[[Any, Any, Any, Any, float], Any]
    name: str = ""
    num_uniforms: Callable[[int, int], int] = one_per_draft_and_one
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    order: str | Sequence[str] = "transformers"
    temperatures: Sequence[float] = instances.TEMPERATURES

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _name_of(self.verify, self.name))
        heats = plain_reals(self.temperatures, "temperatures")
        if heats.ndim != 1:
            raise InvalidParameter(
                f"temperatures must be a sequence; got {self.temperatures!r:.80}. Pass [1.0, 0.0], "
                "say."
            )
        if not heats.size:
            raise InvalidParameter(
                "temperatures must hold at least one; it is empty. Pass [1.0, 0.0], say."
            )
        object.__setattr__(self, "temperatures", tuple(heats.tolist()))
        for temperature in self.temperatures:
            self.processing(temperature)

    def processing(self, temperature: float) -> Processing:
        """Return what the verifier should do with either model's logits at a temperature."""
        return Processing(
            temperature=temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            order=self.order,
        )

    def on(
        self, *, draft: object, target: object, law: Law, temperature: float
    ) -> tuple[Candidate, Problem]:
        """Return the candidate on these raw logits, and the problem that it should solve on them:
        what `otm.audit.exact` takes.

        Args:
            draft, target: logits `(V,)`.
            law: how the drafts are drawn, from the draft's processed law.
            temperature: T ≥ 0.
        """
        logits = np.asarray(draft, dtype=np.float64), np.asarray(target, dtype=np.float64)
        p, q = map(self.processing(temperature), logits)

        def verify(_draft: Any, _target: Any, drafts: Any, uniforms: Any) -> Any:
            return self.verify(logits[0].copy(), logits[1].copy(), drafts, uniforms, temperature)

        return self._at(verify, temperature), Problem(draft=p, target=q, law=law)

    def on_models(
        self,
        *,
        draft: Mapping[tuple[int, ...], Any],
        target: Mapping[tuple[int, ...], Any],
        temperature: float,
    ) -> tuple[Candidate, TableModel, TableModel]:
        """Return the candidate on blocks with these raw logits, and draft and target: what
        `otm.audit.sequence` takes.

        Args:
            draft, target: logits `(V,)` by the tokens before.
            temperature: T ≥ 0.
        """
        processed = [
            TableModel({c: self.processing(temperature)(row) for c, row in table.items()})
            for table in (draft, target)
        ]

        def verify(_draft: Any, _target: Any, drafts: Any, uniforms: Any) -> Any:
            before = [tuple(int(token) for token in drafts[:i]) for i in range(len(drafts) + 1)]
            rows = np.stack([draft[c] for c in before[:-1]]), np.stack([target[c] for c in before])
            return self.verify(*rows, drafts, uniforms, temperature)

        return self._at(verify, temperature), processed[0], processed[1]

    def _at(self, verify: Callable[[Any, Any, Any, Any], Any], temperature: float) -> Candidate:
        return Candidate(
            verify,
            name=f"{self.name} at temperature {temperature:g}",
            num_uniforms=self.num_uniforms,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class WholeCandidate:
    """Code under audit that drafts, or reads a drafted tree, or writes a whole text by itself.

    Args:
        verify: the callable: `step(draft_model, target_model, rng)` as `otm.audit.step` takes it,
            `verify(tree, rng)` as `otm.audit.tree`, or `generate(draft_model, target_model,
            request)` as `otm.audit.generate`.
        kind: which of them it is.
        name: what to call it in reports; the function's own name if empty.
        siblings: how the trees are drafted that it is made for: siblings drawn "with" or "without"
            replacement, or the draft's "likeliest" tokens.

    Raises:
        InvalidParameter: if `verify` cannot be called, or a word is none of these.

    >>> WholeCandidate(lambda tree, rng: [int(tree.tokens[1])], kind="tree", name="trusting").name
    'trusting'
    """

    verify: Callable[..., Any]
    kind: Literal["step", "tree", "generate"]
    name: str = ""
    siblings: Literal["with", "without", "likeliest"] = "with"

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _name_of(self.verify, self.name))
        for word, known in ((self.kind, ("step", "tree", "generate")), (self.siblings, SIBLINGS)):
            if check_instance(word, str, name="kind or siblings") not in known:
                raise InvalidParameter(
                    f"A whole candidate says one of {', '.join(map(repr, known))}; got {word!r}. "
                    "Choose one."
                )


def _name_of(verify: object, name: str) -> str:
    if not callable(verify) or isinstance(verify, type):
        raise InvalidParameter(
            "A candidate must be a function verify(draft, target, drafts, uniforms); got "
            f"{verify!r}. Pass the function itself."
        )
    check_instance(name, str, name="name")
    return name or str(getattr(verify, "__name__", type(verify).__name__))


def unwrapped(thing: object) -> object:
    """Return the function behind a verifier that was made of one, which an audit asks itself;
    anything else as it is.
    """
    if not isinstance(thing, CallableVerifier):
        return thing
    code = thing.code
    return Candidate(code.verify, name=code.name, num_uniforms=code.num_uniforms)


def as_candidate(thing: object) -> Candidate:
    """Return a function as a `Candidate` with the default number of uniforms; a `Candidate` as it
    is.

    Raises:
        InvalidParameter: if it is neither.
    """
    if isinstance(thing, Candidate):
        return thing
    if isinstance(
        thing, BatchCandidate | BlockKernel | LogitCandidate | WholeCandidate | Verifier
    ) or not callable(thing):
        shown = (
            f"{thing!r:.80}"
            if isinstance(thing, Verifier)
            else f"{type(thing).__name__} {getattr(thing, 'name', thing)!r:.80}"
        )
        raise InvalidParameter(
            f"This audit needs a function verify(draft, target, drafts, uniforms); got {shown}. "
            "Batched kernels go to "
            "otm.audit.sampled, otm's own verifiers to otm.audit.exact, and anything to "
            "otm.audit.battery."
        )
    return Candidate(thing)


def read_block(answer: Any, num_tokens: int, longest: int) -> tuple[tuple[int, ...], int | None]:
    """Return (tokens, number accepted) from what a block candidate returned; trailing −1 is
    padding.

    Raises:
        CandidateFailure: unless it is 1 to `longest` tokens of the vocabulary, with or without a
            count.
    """
    tokens, count = (
        answer
        if isinstance(answer, tuple) and len(answer) == 2 and np.ndim(answer[0]) == 1
        else (answer, None)
    )
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
            "(tokens, num_accepted); it "
            f"returned {answer!r}."
        )
    return block, None if count is None else integer_of(count)


def read_batch(
    answer: Any, size: int, num_tokens: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Return (tokens `(m,)`, flags `(m,)` or None) from what a batched candidate returned.

    Raises:
        CandidateFailure: unless there is one token of the vocabulary for each row.
    """
    tokens, accepted = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    array = np.asarray(tokens)
    if (
        array.dtype.kind not in "iu"
        or array.size != size
        or (array.min() < 0 or array.max() >= num_tokens)
    ):
        raise CandidateFailure(
            f"The callable must return {size} integer tokens in [0, {num_tokens}), one per row; it "
            f"returned {array.dtype} of "
            "shape "
            f"{array.shape}{f' from {array.min()} to {array.max()}' if array.dtype.kind in 'iu' and array.size else ''}."
        )
    flags = None if accepted is None else np.asarray(accepted).reshape(-1).astype(bool)
    return array.reshape(-1).astype(np.int64), flags
