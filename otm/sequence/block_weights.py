"""How much of a drafted prefix may be accepted: the weights of block verification."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from otm.sequence.decoder import Conditionals
from otm.sequence.models import Context
from otm.sequence.randomness import Randomness


def next_weight(
    weight: float, draft: NDArray[np.float64], target: NDArray[np.float64], token: int
) -> float:
    """Return min(1, w·q(x)/p(x)), 0 where p(x) = 0.

    >>> next_weight(0.5, np.array([0.75, 0.25, 0.0]), np.array([0.25, 0.25, 0.5]), 1)
    0.5
    >>> next_weight(1.0, *np.eye(2), 1)
    0.0
    """
    drawn, wanted = float(draft[token]), weight * float(target[token])
    if drawn <= 0.0:
        return 0.0
    return 1.0 if wanted >= drawn else wanted / drawn


def pass_probability(excess: float, weight: float) -> float:
    """Return Z/(Z + 1 − w), and 1 for 0/0, where nothing is ever rejected further down.

    >>> pass_probability(0.25, 0.75), pass_probability(0.0, 1.0), pass_probability(0.0, 0.5)
    (0.5, 1.0, 0.0)
    """
    return 1.0 if weight >= 1.0 else excess / (excess + 1.0 - weight)


def prefix_weights(
    draft: Conditionals, target: Conditionals, contexts: list[Context]
) -> list[float]:
    """Return w₀ = 1, …, w_γ along a chain; a token that the draft model cannot draw weighs 0."""
    weights = [1.0]
    for before, after in itertools.pairwise(contexts):
        weights.append(next_weight(weights[-1], draft(before), target(before), after[-1]))
    return weights


def verify_block(
    contexts: list[Context], draft: Conditionals, target: Conditionals, randomness: Randomness
) -> tuple[int, int]:
    """Return how many tokens of a drafted sequence are kept, and the token after them.

    Args:
        contexts: what stands before each drafted token, and after the last.
        draft: the law by which the next token was drafted after each of them but the last.
        target: the target's distributions after them.
        randomness: decides.
    """
    weights = prefix_weights(draft, target, contexts)
    kept, after = len(contexts) - 1, target(contexts[-1])
    if not randomness.accept(weights[-1]):
        # The first prefix to pass, from the longest down, is the longest that does.
        excess = after
        for kept in reversed(range(len(contexts) - 1)):
            excess = np.maximum(weights[kept] * target(contexts[kept]) - draft(contexts[kept]), 0.0)
            if randomness.accept(pass_probability(float(excess.sum()), weights[kept])):
                break
        # Nothing in excess of the draft: the models agree here, and only rounding rejected what
        # follows.
        after = excess if excess.sum() > 0 else target(contexts[kept])
    return kept, randomness.choose(after)
