"""The base of decoding algorithms: draft a tree of tokens, then verify the tree.

Drafting sees the draft model only. Between drafting and verification the target is evaluated at
every vertex of the drafted tree together, in one batch: the one serial call of the target that a
step costs. Verification then reads those distributions. Both stages take their random steps from a
`Randomness`, so that the same lines of a decoder are sampled and enumerated exactly.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.errors import DecodingInterrupted, InvalidParameter, ShapeMismatch, Unsupported
from otm.pmf import RNGLike, check_count, check_instance, settle_counts
from otm.scheme import Scheme
from otm.sequence.models import (
    Absorbing,
    Context,
    LanguageModel,
    check_context,
    check_model,
    next_distributions,
)
from otm.sequence.randomness import RaceState, Randomness, Sampled
from otm.sequence.shared_noise import NoiseRow, SharedNoise
from otm.trees.shape import TreeShape

Stop = Literal["rejected", "end_of_draft", "end_of_sequence"]
"""Why a step ended: no draft agreed with the output, no draft was left, or the text ended."""

Conditionals = Callable[[Context], NDArray[np.float64]]
"""A model's next-token distribution `(V,)` after a context."""


@dataclasses.dataclass(frozen=True, eq=False)
class DraftTree:
    """A drafted tree of tokens, with the distributions from which the tokens were drawn.

    Attributes:
        shape: the tree's shape.
        context: tokens before the root.
        tokens: `(n + 1,)` int64, the token of each vertex; −1 at the root and where there is no
            draft.
        draft: the draft model's distribution `(V,)` after every context that drafted.
        shared: by context, what the drafter has seen of the noise that the target samples the next
            token with; empty where it has seen none.
    """

    shape: TreeShape
    context: Context
    tokens: NDArray[np.int64]
    draft: dict[Context, NDArray[np.float64]]
    shared: Mapping[Context, RaceState | NoiseRow] = dataclasses.field(default_factory=dict)

    def contexts(self) -> list[Context | None]:
        """Return the context that ends with each vertex, root first; None where no draft is."""
        found: list[Context | None] = [self.context]
        for vertex in range(1, self.shape.num_nodes + 1):
            before, token = found[int(self.shape.parents[vertex - 1])], int(self.tokens[vertex])
            found.append(None if before is None or token < 0 else (*before, token))
        return found

    def contexts_along(self, vertices: Sequence[int]) -> list[Context]:
        """Return the contexts before and after each token of a path of vertices from the root.

        >>> import numpy as np
        >>> import otm
        >>> tree = DraftTree(otm.trees.TreeShape.chain(2), (4,), np.array([-1, 5, 7]), draft={})
        >>> tree.contexts_along([1, 2])
        [(4,), (4, 5), (4, 5, 7)]
        """
        tokens = self.tokens[list(vertices)].tolist()
        return [(*self.context, *tokens[:count]) for count in range(len(tokens) + 1)]

    def step_along(self, vertices: Sequence[int], token: int) -> Step:
        """Return the step that accepts a path of vertices from the root and adds a token.

        >>> import numpy as np
        >>> import otm
        >>> tree = DraftTree(otm.trees.TreeShape.chain(2), (), np.array([-1, 5, 7]), draft={})
        >>> tree.step_along([1], 3)
        Step(tokens=(5, 3), accepted=1, stopped='rejected', survivors=((1,),))
        """
        path = list(vertices)
        last = path[-1] if path else 0
        return Step(
            tokens=(*self.tokens[path].tolist(), token),
            accepted=len(path),
            stopped="rejected" if children_of(self.shape)[last] else "end_of_draft",
            survivors=tuple((vertex,) for vertex in path),
        )


@functools.lru_cache(maxsize=64)
def children_of(shape: TreeShape) -> list[tuple[int, ...]]:
    """Return the children of every vertex, listed once per shape.

    >>> import otm
    >>> children_of(otm.trees.TreeShape.sequences(2, 2))
    [(1, 2), (3,), (4,), (), ()]
    """
    return [shape.children(vertex) for vertex in range(shape.num_nodes + 1)]


@functools.lru_cache(maxsize=64)
def longest_paths(shape: TreeShape) -> list[tuple[int, ...]]:
    """Return the vertices below the root on the way to each vertex of the last level.

    >>> import otm
    >>> longest_paths(otm.trees.TreeShape.delayed(1, 2, 2))
    [(1, 2, 4), (1, 3, 5)]
    """
    below = children_of(shape)
    found: list[tuple[int, ...]] = [(0,)]
    while longer := [(*path, child) for path in found for child in below[path[-1]]]:
        found = longer
    return [path[1:] for path in found]


@dataclasses.dataclass(frozen=True)
class Step:
    """The tokens decoded by one step, with one serial call of the target.

    Attributes:
        tokens: the decoded tokens, `accepted + 1` unless the text ended with an accepted draft.
        accepted: how many of them agree with a draft.
        stopped: why the step ended.
        survivors: for each accepted token, the drafted vertices that agree with the output so far.
    """

    tokens: tuple[int, ...]
    accepted: int
    stopped: Stop
    survivors: tuple[tuple[int, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class Decoder(Scheme):
    """A decoding algorithm with the parameters as fields.

    Attributes:
        carries_noise: whether a step looks at noise of positions that it may not reach. Then the
            steps after it, and a target that goes on alone, must sample on the same noise: texts
            have the target's law, the tokens of one step and fresh samples after them have not.
    """

    carries_noise: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def lossless(self) -> bool:
        """True if a step followed by target samples has the target's law, for all models."""

    @property
    @abc.abstractmethod
    def num_nodes(self) -> int:
        """The largest number of vertices that a step drafts."""

    @property
    @abc.abstractmethod
    def depth(self) -> int:
        """The largest number of drafts that a step can accept."""

    @abc.abstractmethod
    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Draft a tree after `context`, from the draft model alone."""

    @abc.abstractmethod
    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Decode tokens from a drafted tree and the target's distributions at the vertices."""


class StaticDecoder(Decoder):
    """A decoder whose drafted tree has one shape in every context.

    Attributes:
        drafts: the law of siblings, for any number of them; None where it is no draft law.
    """

    drafts: Law | None = None

    @property
    @abc.abstractmethod
    def shape(self) -> TreeShape:
        """The shape of the drafted tree."""

    @property
    def num_nodes(self) -> int:
        """The drafted vertices of the shape."""
        return self.shape.num_nodes

    @property
    def depth(self) -> int:
        """The levels of the shape."""
        return self.shape.depth


@dataclasses.dataclass(frozen=True)
class ChainDecoder(StaticDecoder):
    """A decoder that drafts one sequence of L tokens."""

    length: int

    def __post_init__(self) -> None:
        settle_counts(self, length=1)
        super().__post_init__()

    @functools.cached_property
    def shape(self) -> TreeShape:
        """A chain."""
        return TreeShape.chain(self.length)


@dataclasses.dataclass(frozen=True)
class SequencesDecoder(StaticDecoder):
    """A decoder that drafts K sequences of L tokens after a common stem of `stem` tokens."""

    stem = 0
    num_drafts: int
    length: int

    def __post_init__(self) -> None:
        settle_counts(self, num_drafts=1, length=1)
        super().__post_init__()

    @functools.cached_property
    def shape(self) -> TreeShape:
        """K chains at the end of the stem."""
        return TreeShape.delayed(self.stem, self.num_drafts, self.length)


@dataclasses.dataclass(frozen=True)
class TreeDecoder(StaticDecoder):
    """A decoder that drafts a tree of any shape, of at least one token."""

    tree: TreeShape

    def __post_init__(self) -> None:
        require_drafts(self.tree)
        super().__post_init__()

    @property
    def shape(self) -> TreeShape:
        """The tree."""
        return self.tree


@dataclasses.dataclass(frozen=True)
class SizedTree(Decoder):
    """A decoder that drafts up to N tokens on at most L levels, in a free shape."""

    size: int
    length: int

    def __post_init__(self) -> None:
        settle_counts(self, size=1, length=1)
        super().__post_init__()

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.size

    @property
    def depth(self) -> int:
        """The smaller of L and N."""
        return min(self.length, self.size)


@dataclasses.dataclass(frozen=True)
class Generation:
    """A text decoded in steps.

    Attributes:
        tokens: the decoded tokens, without the context.
        steps: the steps; the last one may have decoded more tokens than were asked for.
        ended: whether the end-of-sequence token was reached.
    """

    tokens: tuple[int, ...]
    steps: tuple[Step, ...]
    ended: bool

    @property
    def num_calls(self) -> int:
        """Serial calls of the target, one per step."""
        return len(self.steps)

    @property
    def tokens_per_call(self) -> float:
        """Mean number of tokens that a step decoded; NaN before the first."""
        decoded = sum(len(step.tokens) for step in self.steps)
        return decoded / len(self.steps) if self.steps else float("nan")


def step(
    decoder: Decoder,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    randomness: Randomness,
    eos: int | None = None,
) -> Step:
    """Decode one step: draft a tree, evaluate the target on the whole tree in one batch, verify.

    Args:
        decoder: any of `otm.sequence.DECODERS`, or your own.
        draft, target: the two models, over one vocabulary.
        context: tokens so far.
        randomness: `Sampled(rng)` to sample.
        eos: the end-of-sequence token; the step's tokens end with the first one.

    Returns:
        Step.

    Raises:
        InvalidParameter: if the context already ends with `eos`.
        ShapeMismatch: if the vocabularies differ.
        InvalidDistribution: if a model returns something else than a distribution.
        Unsupported: if the decoder's verifier does not verify its drafts.

    Cost: one draft call per level, one target call.

    >>> import numpy as np
    >>> from otm.sequence import SpeculativeSampling, Sampled, ZerothOrder
    >>> model = ZerothOrder([0.0, 1.0])
    >>> decoder, rng = SpeculativeSampling(2), Sampled(np.random.default_rng(0))
    >>> once = step(decoder, draft=model, target=model, context=[], randomness=rng)
    >>> once.tokens, once.accepted, once.stopped
    ((1, 1, 1), 2, 'end_of_draft')
    """
    prefix = check_step_arguments(decoder, draft=draft, target=target, context=context)
    check_instance(randomness, Randomness, name="randomness")
    if eos is not None:
        draft, target = (Absorbing(model, eos, start=len(prefix)) for model in (draft, target))
        if prefix and prefix[-1] == eos:
            raise InvalidParameter(
                f"The context already ends with the end-of-sequence token {eos}: nothing follows "
                "it. Stop, or pass eos=None."
            )
    tree = decoder.draft(draft, prefix, randomness)
    known = evaluate(target, tree)
    return _cut_at_eos(decoder.verify(tree, known.__getitem__, randomness), eos)


def evaluate(target: LanguageModel, tree: DraftTree) -> dict[Context, NDArray[np.float64]]:
    """Return the target's distribution after every vertex of a drafted tree, by one call.

    >>> import numpy as np
    >>> import otm
    >>> from otm.sequence import ZerothOrder
    >>> tree = DraftTree(otm.trees.TreeShape.chain(1), (), np.array([-1, 0]), draft={})
    >>> evaluate(ZerothOrder([0.5, 0.5]), tree)
    {(): array([0.5, 0.5]), (0,): array([0.5, 0.5])}
    """
    return next_distributions(target, (c for c in tree.contexts() if c is not None), name="target")


def steps(
    decoder: Decoder,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    rng: RNGLike,
    noise: SharedNoise | None = None,
    eos: int | None = None,
) -> Iterator[Step]:
    """Decode step after step until the text ends; without `eos` there is no end.

    Args:
        decoder, draft, target, context, eos: as for `step`.
        rng: a NumPy generator, or a seed of one.
        noise: as for `Sampled`.

    Yields:
        Step: the next one; its context is continued by the tokens of those before.

    Cost: one target call per step.

    >>> import numpy as np
    >>> import itertools
    >>> from otm.sequence import SpeculativeSampling, ZerothOrder
    >>> model = ZerothOrder([0.0, 1.0])
    >>> decoder, rng = SpeculativeSampling(2), np.random.default_rng(0)
    >>> run = steps(decoder, draft=model, target=model, context=[], rng=rng)
    >>> [one.tokens for one in itertools.islice(run, 2)]
    [(1, 1, 1), (1, 1, 1)]
    """
    prefix = check_context(context)
    randomness = Sampled(rng, noise)
    while True:
        one = step(
            decoder, draft=draft, target=target, context=prefix, randomness=randomness, eos=eos
        )
        yield one
        if one.stopped == "end_of_sequence":
            return
        prefix += one.tokens


def generate(
    decoder: Decoder,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    num_tokens: int,
    rng: RNGLike,
    noise: SharedNoise | None = None,
    eos: int | None = None,
) -> Generation:
    """Decode a text of `num_tokens` tokens, or up to the end-of-sequence token.

    Args:
        decoder, draft, target, context, eos: as for `step`.
        num_tokens: tokens wanted, at least 1; the last step is cut there.
        rng: a NumPy generator, or a seed of one.
        noise: by position, as for `Sampled`: a `MatchingDecoder` then writes the text that the
            target writes by itself on this noise.

    Returns:
        Generation; with a lossless decoder its tokens have the target's law.

    Raises:
        DecodingInterrupted: if a model or the verifier fails on the way; its `generation` holds
            everything decoded before, and its cause is the failure.
        InvalidParameter: on a wrong argument.

    Cost: one target call per step.

    >>> import numpy as np
    >>> from otm.sequence import SpeculativeSampling, ZerothOrder
    >>> model = ZerothOrder([0.0, 1.0])
    >>> decoder, rng = SpeculativeSampling(2), np.random.default_rng(0)
    >>> models = {"draft": model, "target": model}
    >>> text = generate(decoder, **models, context=[], num_tokens=5, rng=rng)
    >>> text.tokens, text.num_calls
    ((1, 1, 1, 1, 1), 2)
    """
    wanted = check_count(num_tokens, name="num_tokens")
    done: list[Step] = []
    tokens: list[int] = []
    models = {"draft": draft, "target": target}
    run = steps(decoder, **models, context=context, rng=rng, noise=noise, eos=eos)
    try:
        while len(tokens) < wanted and (not done or done[-1].stopped != "end_of_sequence"):
            one = next(run)
            done.append(one)
            tokens += one.tokens
    except Exception as error:
        if not done:
            raise  # nothing was decoded: the error says it all
        partial = Generation(tokens=tuple(tokens), steps=tuple(done), ended=False)
        raise DecodingInterrupted(
            f"Decoding stopped after {len(tokens)} of {wanted} tokens: {error} The tokens so far "
            "are in this error's .generation.",
            partial,
        ) from error
    ended = done[-1].stopped == "end_of_sequence" and len(tokens) <= wanted
    return Generation(tokens=tuple(tokens[:wanted]), steps=tuple(done), ended=ended)


def check_step_arguments(
    decoder: Decoder, *, draft: LanguageModel, target: LanguageModel, context: Sequence[int]
) -> Context:
    """Return the context, or raise `InvalidParameter` on anything that is no argument of a step."""
    check_instance(decoder, Decoder, name="decoder")
    check_pair(draft, target)
    return check_context(context)


def check_pair(draft: LanguageModel, target: LanguageModel) -> None:
    """Raise `ShapeMismatch` unless two models share one vocabulary."""
    check_model(draft, name="draft")
    check_model(target, name="target")
    if draft.num_tokens != target.num_tokens:
        raise ShapeMismatch(
            f"Draft and target must share one vocabulary; they have {draft.num_tokens} and "
            f"{target.num_tokens} tokens. Cut padding rows off, or "
            "choose two models of one family."
        )


def independent_sequences(decoder: Decoder) -> int | None:
    """Return K if a decoder drafts K independent sequences of equal length, None if not."""
    if not isinstance(decoder, StaticDecoder) or not isinstance(decoder.drafts, IID):
        return None
    per_level = np.bincount(decoder.shape.levels)[1:]
    straight = np.all(decoder.shape.num_children[1:] <= 1)
    return int(per_level[0]) if straight and np.all(per_level == per_level[0]) else None


def require_fresh(decoder: Decoder) -> None:
    """Raise `Unsupported` if a decoder carries noise, since then no step stands alone."""
    if decoder.carries_noise:
        raise Unsupported(
            "Steps that begin afresh are asked for; "
            f"{decoder!r} carries noise from one to the next. Estimate with "
            "otm.sequence.noise_tokens."
        )


def require_drafts(shape: TreeShape) -> None:
    """Raise `InvalidParameter` if a shape drafts nothing."""
    if not isinstance(shape, TreeShape):
        raise InvalidParameter(
            f"A tree is an otm.trees.TreeShape; got {shape!r}. Write TreeShape.chain(8), say."
        )
    if shape.num_nodes == 0:
        raise InvalidParameter(
            f"A decoder needs a tree of at least one drafted token; got {shape!r}. For plain "
            "sampling from the target draw from target.next."
        )


def _cut_at_eos(one: Step, eos: int | None) -> Step:
    """Cut a step after the first end-of-sequence token."""
    if eos is None or eos not in one.tokens:
        return one
    length = one.tokens.index(eos) + 1
    accepted = min(one.accepted, length)
    return Step(one.tokens[:length], accepted, "end_of_sequence", one.survivors[:accepted])
