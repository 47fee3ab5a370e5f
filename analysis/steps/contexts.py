"""Contexts that steps begin after: stretches of a text, all of them or those of one entropy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from otm._arrays import Floats
from otm._progress import counted
from otm.sequence import LanguageModel, SharedNoise
from otm.sequence.models import Context, next_distributions
from otm.sequence.noise_tree import noise_texts
from otm.trees import entropy_bits

from ..errors import AnalysisError
from ..models.causal import CausalModel

LEAST_CONTEXTS = 6
THIRDS = ("low", "middle", "high")
"""Of contexts, by the entropy of what the target writes after them."""


def windows(
    tokens: Sequence[int], length: int, count: int, rng: np.random.Generator
) -> list[Context]:
    """Return up to `count` stretches of a text, none of which overlap, in random order.

    >>> import numpy as np
    >>> windows([5, 6, 7, 8], 2, 9, np.random.default_rng(0))
    [(7, 8), (5, 6)]
    """
    places = rng.permutation(len(tokens) // length)[:count] * length
    return [tuple(tokens[place : place + length]) for place in places.tolist()]


def check_contexts(contexts: Sequence[Context]) -> None:
    """Raise unless there are enough for intervals, and for what one part chooses for another."""
    if len(contexts) < LEAST_CONTEXTS:
        raise AnalysisError(
            f"Intervals, slopes and scales need at least {LEAST_CONTEXTS} contexts; got "
            f"{len(contexts)}. Take a longer text."
        )


def read_anew(contexts: Sequence[Context], what: str, *models: LanguageModel) -> Iterator[Context]:
    """Yield contexts; before each the models, or what they are made of, forget all others."""
    for context in counted(contexts, what):
        for model in itertools.chain(models, (getattr(one, "model", None) for one in models)):
            if isinstance(model, CausalModel):
                model.forget()
        yield context


def third_by_entropy(
    target: LanguageModel,
    contexts: Sequence[Context],
    third: str,
    num_tokens: int,
    rng: np.random.Generator,
) -> list[Context]:
    """Return the contexts whose continuations have the lowest, middle or highest entropy.

    The entropy of a context is the target's, in the mean over the next tokens of two texts that it
    writes on noise of their own, which nothing else sees.

    Raises:
        AnalysisError: on another third than one of `THIRDS`.
    """
    if third not in THIRDS:
        raise AnalysisError(
            f"A third of the contexts is {', '.join(THIRDS)}; got {third!r:.40}. Pass one of them."
        )
    noises = [SharedNoise(int(seed)) for seed in rng.integers(1 << 53, size=2)]
    found = [
        written_entropy(target, context, noises, num_tokens)
        for context in read_anew(contexts, "contexts by entropy", target)
    ]
    chosen = np.array_split(np.argsort(found), len(THIRDS))[THIRDS.index(third)]
    return [contexts[place] for place in sorted(chosen.tolist())]


def written_entropy(
    target: LanguageModel, context: Context, noises: Sequence[SharedNoise], num_tokens: int
) -> float:
    """Return the target's mean entropy along what it writes after a context, in nats."""
    places = [context] * len(noises)
    texts = noise_texts(target, contexts=places, noises=noises, num_tokens=num_tokens)
    along = [(*context, *text[:level]) for text in texts for level in range(num_tokens)]
    rows = next_distributions(target, along, name="target")
    return float(np.mean([entropy(rows[one]) for one in along]))


def entropy(mass: Floats) -> float:
    """Return the entropy of a distribution in nats.

    >>> import numpy as np
    >>> round(entropy(np.array([0.5, 0.5])), 6)
    0.693147
    """
    return entropy_bits(mass) * float(np.log(2))
