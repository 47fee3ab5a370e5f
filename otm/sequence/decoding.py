"""Decoding: one step, step after step, and a text of a given length."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from otm.errors import DecodingInterrupted, InvalidParameter, ShapeMismatch
from otm.pmf import RNGLike, check_count, check_instance
from otm.sequence.decoder import Decoder
from otm.sequence.drafted_tree import DraftTree, Step
from otm.sequence.models import (
    Absorbing,
    Context,
    LanguageModel,
    check_context,
    check_model,
    next_distributions,
)
from otm.sequence.randomness import Randomness, Sampled
from otm.sequence.shared_noise import SharedNoise


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


def _cut_at_eos(one: Step, eos: int | None) -> Step:
    """Cut a step after the first end-of-sequence token."""
    if eos is None or eos not in one.tokens:
        return one
    length = one.tokens.index(eos) + 1
    accepted = min(one.accepted, length)
    return Step(one.tokens[:length], accepted, "end_of_sequence", one.survivors[:accepted])
