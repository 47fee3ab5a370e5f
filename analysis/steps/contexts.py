"""Contexts at which steps begin: stretches of a text, all or a third by entropy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy

from otm._machine.progress import with_progress
from otm.sequence import LanguageModel, SharedNoise
from otm.sequence.models import Context, next_distributions
from otm.sequence.noise_tree import noise_texts

from ..errors import AnalysisError

LEAST_CONTEXTS = 6
THIRDS = ("low", "middle", "high")
"""Thirds of contexts, by the entropy of the target's continuations."""


def stretches(
    tokens: Sequence[int], length: int, count: int, rng: np.random.Generator
) -> list[Context]:
    """Return up to `count` disjoint stretches of a text in random order.

    >>> import numpy as np
    >>> stretches([5, 6, 7, 8], 2, 9, np.random.default_rng(0))
    [(5, 6), (7, 8)]
    """
    places = rng.permutation(len(tokens) // length)[:count] * length
    return [tuple(tokens[place : place + length]) for place in places.tolist()]


def along_texts(
    target: LanguageModel,
    prompts: Sequence[Context],
    *,
    count: int,
    apart: int,
    eos: int | None,
    rng: np.random.Generator,
) -> tuple[list[Context], list[int]]:
    """Return contexts along the target's text after each prompt, and each context's prompt number.

    Args:
        target: the model.
        prompts: their tokens.
        count: contexts of a text; fewer where the text ends before.
        apart: tokens from one context to the next; the first is the prompt.
        eos: the token that ends a text.
        rng: the generator.
    """
    noises = [SharedNoise(int(seed)) for seed in rng.integers(1 << 53, size=len(prompts))]
    last = (count - 1) * apart
    written = noise_texts(target, contexts=prompts, noises=noises, num_tokens=last)
    found = [
        ((*prompt, *text[:at]), number)
        for number, (prompt, text) in enumerate(zip(prompts, written, strict=True))
        for at in range(0, last + 1, apart)
        if eos not in text[:at]
    ]
    return [context for context, _ in found], [number for _, number in found]


def check_contexts(contexts: Sequence[Context], texts: Sequence[int] | None = None) -> list[int]:
    """Return the text number of each context; without `texts` each context is another text.

    Raises:
        AnalysisError: for fewer than `LEAST_CONTEXTS` texts, as intervals and fits on one part for
            another need.
    """
    whose = list(range(len(contexts)) if texts is None else texts)
    if (number := len({*whose})) < LEAST_CONTEXTS:
        raise AnalysisError(
            f"Intervals, slopes and scales need at least {LEAST_CONTEXTS} contexts of texts of "
            f"their own; got {number}. Take a longer text, or more prompts."
        )
    return whose


def with_cleared_caches(
    contexts: Sequence[Context], what: str, *models: LanguageModel
) -> Iterator[Context]:
    """Yield contexts, with the models' caches cleared before each."""
    for context in with_progress(contexts, what):
        for model in models:
            _clear_caches(model)
        yield context


def _clear_caches(model: LanguageModel) -> None:
    """Clear the caches of a model and of all wrapped models."""
    # Asked of the model: to name its class would load torch wherever a run's settings are read.
    if (forget := getattr(model, "forget", None)) is not None:
        forget()
    if (inner := getattr(model, "model", None)) is not None:
        _clear_caches(inner)


def third_by_entropy(
    target: LanguageModel,
    contexts: Sequence[Context],
    third: str,
    num_tokens: int,
    rng: np.random.Generator,
) -> list[Context]:
    """Return the contexts whose continuations have the lowest, middle or highest entropy.

    The entropy of a context is the target's, averaged over the next tokens of two texts on noise
    that is used nowhere else.

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
        for context in with_cleared_caches(contexts, "contexts by entropy", target)
    ]
    chosen = np.array_split(np.argsort(found), len(THIRDS))[THIRDS.index(third)]
    return [contexts[place] for place in sorted(chosen.tolist())]


def written_entropy(
    target: LanguageModel, context: Context, noises: Sequence[SharedNoise], num_tokens: int
) -> float:
    """Return the target's mean entropy along texts written after a context, in nats."""
    places = [context] * len(noises)
    texts = noise_texts(target, contexts=places, noises=noises, num_tokens=num_tokens)
    along = [(*context, *text[:level]) for text in texts for level in range(num_tokens)]
    rows = next_distributions(target, along, name="target")
    return float(np.mean([scipy.special.entr(rows[one]).sum() for one in along]))
