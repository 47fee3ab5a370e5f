"""Tokens of a call that drafts a tree or sequences, position by position: columns on request.

They are along texts of the target, as `advise` walks: trees on shared noise grow on noise drawn
given the text, likeliest trees on none, and both keep what they hold of it; their last token is
averaged over. Refined scores need the target beside the text, where nobody went: their sequences
are drafted, and the rest is integrated. Where less text follows than a tree is deep there is no
number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from otm._machine.arrays import Floats
from otm.sequence import LanguageModel, Sampled
from otm.sequence.models import next_distributions

from ..models.causal import CausalModel, pair_models
from ..models.pair import Pair
from ..steps.drafted_sequences import REFINED, DraftedSequences
from ..steps.likeliest_trees import match_law
from ..steps.nodes import DEPTH
from ..steps.noise_trees import noise_given, noise_law, noise_scale
from ..steps.texts import SampledText
from .columns import Arrays, Compared
from .positions import Window
from .tree_names import tree_statistics


def tree_columns(pair: Pair, parts: Sequence[Compared], nodes: Sequence[int], seed: int) -> Arrays:
    """Return the columns of windows with common settings, positions outside, settings inside.

    Args:
        pair: the models, which are asked beside the windows too.
        parts: the windows.
        nodes: drafted tokens of a call; a multiple of eight for sequences, or less.
        seed: of noise and drafts.

    Cost: eight draft calls with up to so many nodes, and a target call, for each position.
    """
    names = [name for name, _, _ in tree_statistics(nodes)]
    models = [pair_models(pair, setting) for setting in parts[0][0].settings]
    found = list[Floats]()
    for window, _, _ in parts:
        rows = [
            _of_window(window, *both, nodes, np.random.default_rng([seed, window.prompt, number]))
            for number, both in enumerate(models)
        ]
        found.append(np.stack(rows, axis=1).reshape(-1, len(names)))
    return dict(zip(names, np.concatenate(found).T, strict=True))


def _of_window(
    window: Window,
    draft: LanguageModel,
    target: CausalModel,
    nodes: Sequence[int],
    rng: np.random.Generator,
) -> Floats:
    """Return the columns of one window under one setting, `(contexts, columns)`."""
    target.forget()
    first, tokens = window.contexts[0], np.array(window.tokens)
    asked = [window.tokens[:end] for end in range(first, len(tokens))]
    count = len(tree_statistics(nodes))
    values = np.full((len(window.contexts), count), np.nan)
    starts = len(asked) - DEPTH + 1
    if starts < 1:
        return values
    masses = [next_distributions(model, asked, name="given") for model in (draft, target)]
    p, q = (np.array([known[one] for one in asked]) for known in masses)
    text = SampledText(window.tokens[:first], tokens[first:], p, q)
    scale = float(f"{noise_scale([text], [noise_given(text, rng)]):.2g}")
    given: dict[str, Any] = {"sizes": nodes, "depth": DEPTH, "starts": starts, "eos": None}
    noisy = noise_law(draft, text, noise=noise_given(text, rng), scale=scale, **given)
    laws = noisy, match_law(draft, text, **given)
    trees = [law.at(size=size, depth=DEPTH)[1].sum(axis=0) for law in laws for size in nodes]
    for row, end in enumerate(window.contexts):
        at = end - first
        if at < starts:
            sequences = _by_sequences(draft, target, window.tokens[:end], nodes, Sampled(rng))
            values[row] = [*(1.0 + tree[at] for tree in trees), *sequences, scale]
    return values


def _by_sequences(
    draft: LanguageModel,
    target: LanguageModel,
    context: tuple[int, ...],
    nodes: Sequence[int],
    randomness: Sampled,
) -> Iterator[float]:
    """Yield the tokens of a call with refined scores by drafted tokens."""
    numbers = [max(1, size // DEPTH) for size in nodes]
    drafted = DraftedSequences(draft, target, context, max(numbers), DEPTH, randomness)
    for number, size in zip(numbers, nodes, strict=True):
        yield float(drafted.tokens(number, [REFINED])[REFINED][min(size, DEPTH) - 1])
