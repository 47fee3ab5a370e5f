"""Chains of models: a small one drafts for a middle one, whose text drafts for the target.

A step of a lossless decoder with the middle model as its target decodes tokens, each of which has
the middle model's law given those before it, whatever it is that ends the step (docs/theory.md,
"Chains of models"). So its output is a draft of the middle model, made with fewer calls of that
model than tokens, and the target verifies it as such. What comes out is what the middle model alone
would have given; what changes is the time, and that is counted here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm.errors import Unsupported
from otm.pmf import check_instance, settle_counts
from otm.sequence.block_verification import BlockVerification
from otm.sequence.decoder import Decoder, StaticDecoder
from otm.sequence.decoding import check_pair, check_step_arguments, evaluate
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step
from otm.sequence.models import Context, DerivedModel, LanguageModel, check_model
from otm.sequence.randomness import Randomness, outcomes
from otm.trees.shape import TreeShape


@dataclasses.dataclass(frozen=True)
class Staged(StaticDecoder):
    """Draft L tokens of a middle model by steps of another decoder, and verify the text as a block.

    The steps draft from the draft model and are judged by the middle model; they go on until L
    tokens stand, and what the last one has too much is cut. The target then sees a chain drafted
    from the middle model. A `Staged` inner decoder makes the chain of models longer.

    Args:
        inner: the decoder that makes the middle model's text; lossless, or the whole is not.
        middle: the middle model.
        length: L ≥ 1 tokens for the target to verify.

    Raises:
        InvalidParameter: if these are something else.
        Unsupported: for an inner decoder that carries noise from step to step.

    Cost: one target call per step; `expected_calls` counts those of the other models.
    Reference: staged speculative decoding [Spector & Ré 2023]; polybasic decoding 2025;
        docs/theory.md, "Chains of models".

    >>> from otm.sequence import SpeculativeSampling, ZerothOrder, step_law
    >>> small, middle = ZerothOrder([0.9, 0.1]), ZerothOrder([0.75, 0.25])
    >>> staged = Staged(SpeculativeSampling(1), middle, 1)
    >>> law = step_law(staged, draft=small, target=ZerothOrder([0.5, 0.5]), context=[])
    >>> round(law.block_efficiency, 12)  # 1 + Σ min(middle, target)
    1.75
    """

    title = "staged"

    inner: Decoder
    middle: LanguageModel
    length: int

    def __post_init__(self) -> None:
        if check_instance(self.inner, Decoder, name="inner").carries_noise:
            raise Unsupported(
                "The middle model's text is cut and begun again, with fresh noise; "
                f"{self.inner!r} needs that of its last steps. Choose otm.sequence.LikeliestTree."
            )
        check_model(self.middle, name="middle")
        settle_counts(self, length=1)

    @property
    def lossless(self) -> bool:
        """True if the inner decoder is lossless, so that drafts have the law for verification."""
        return self.inner.lossless

    @property
    def shape(self) -> TreeShape:
        """A chain."""
        return TreeShape.chain(self.length)

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Decode by the inner decoder, whose steps evaluate the middle model along the text."""
        check_pair(model, self.middle)
        text, known = context, dict[Context, NDArray[np.float64]]()
        # On the noise of the target's text a draft would tell of those that were rejected there.
        randomness = randomness.without_noise()
        while len(text) < len(context) + self.length:
            tree = self.inner.draft(model, text, randomness)
            rows = evaluate(self.middle, tree)
            decoded = self.inner.verify(tree, rows.__getitem__, randomness).tokens
            for token in decoded[: len(context) + self.length - len(text)]:
                known[text] = rows[text]
                text = (*text, token)
        tokens = np.array([-1, *text[len(context) :]], dtype=np.int64)
        return DraftTree(shape=self.shape, context=context, tokens=tokens, draft=known)

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Block verification against the middle model."""
        return BlockVerification(self.length).verify(tree, target, randomness)


def expected_calls(
    decoder: Staged, *, draft: LanguageModel, context: Sequence[int]
) -> NDArray[np.float64]:
    """Return the exact expected calls of each drafting model per call of the target.

    A step takes 1 + Σ_i c_i·n_i target calls of time if a call of model i costs c_i and there are
    n_i of them.

    Args:
        decoder: the chain of models.
        draft: the smallest model; a small vocabulary.
        context: tokens so far.

    Returns:
        `(m,)`: the smallest model first, the middle model next to the target last.

    Raises:
        TooLarge: beyond the limit of `otm.sequence.outcomes`.

    Cost: one run of the drafting stage per outcome.
    Reference: docs/theory.md, "Chains of models".

    >>> from otm.sequence import SpeculativeSampling, ZerothOrder
    >>> half = ZerothOrder([0.5, 0.5])
    >>> staged = Staged(SpeculativeSampling(2), half, 6)  # three tokens of the middle model a call
    >>> expected_calls(staged, draft=half, context=[])
    array([4., 2.])
    """
    start = check_step_arguments(
        check_instance(decoder, Staged, name="decoder"),
        draft=draft,
        target=decoder.middle,
        context=context,
    )
    counted, models = _counted(decoder)
    models = [_Counted(draft), *models]
    total = np.zeros(len(models))

    def run(randomness: Randomness) -> list[int]:
        for model in models:
            model.calls.clear()
        counted.draft(models[0], start, randomness)
        return [len(model.calls) for model in models]

    for calls, mass in outcomes(run):
        total += mass * np.array(calls)
    return total


def _counted(decoder: Staged) -> tuple[Staged, list[_Counted]]:
    """Return the decoder with counting models, and these models, innermost first."""
    middle, inner, models = _Counted(decoder.middle), decoder.inner, list[_Counted]()
    if isinstance(inner, Staged):
        inner, models = _counted(inner)
    return dataclasses.replace(decoder, inner=inner, middle=middle), [*models, middle]


@dataclasses.dataclass(frozen=True, eq=False)
class _Counted(DerivedModel):
    """A model that records the size of each batch of calls."""

    model: LanguageModel
    calls: list[int] = dataclasses.field(default_factory=list)

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        self.calls.append(len(contexts))
        return self.model.next_batch(contexts)
