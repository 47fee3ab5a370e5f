"""What a rule accepts on a pair whose rows depend on the last token alone, exactly.

Of every rule here the text has the target's law, so of the mass P(x, y) a part M(x, y) is an
accepted draft and the rest is the target's own token. A step from x that accepts j < γ drafts and
ends in y has the probability (M^j (P − M))(x, y), and M^γ P ends the step that accepts all. So M is
the whole rule. The number of calls for a text of n tokens follows by recursion on the tokens that
are left; tokens beyond the text's end are cut off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import otm

Matrix = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Rule:
    """A verification rule.

    Attributes:
        words: what it does, for the table.
        accepted: M of the target's rows and the draft's logits at a temperature; None where drafts
            depend on more than the last token.
    """

    words: str
    accepted: Callable[[Matrix, Matrix, float], Matrix] | None = None


def law(logits: Matrix, temperature: float, top_k: int | None = None) -> Matrix:
    """Return the rows that an engine samples from."""
    return np.asarray(otm.Processing(temperature=temperature, top_k=top_k)(logits))


def favourite(logits: Matrix) -> Matrix:
    """Return the rows of a draft that takes the likeliest token."""
    likeliest = logits.argmax(axis=-1, keepdims=True)
    return (np.arange(logits.shape[-1]) == likeliest).astype(float)


RULES = {
    "none": Rule("plain sampling"),
    "rejection": Rule("rejection, min(p, q)", lambda p, z, t: np.minimum(p, law(z, t))),
    "rejection-top-10": Rule(
        "rejection, q of the draft's 10 likeliest", lambda p, z, t: np.minimum(p, law(z, t, 10))
    ),
    "rejection-squared": Rule("rejection, q at T²", lambda p, z, t: np.minimum(p, law(z, t * t))),
    "rejection-adaptive": Rule("rejection, min(p, q), lengths adapt"),
    "match-argmax": Rule(
        "match with the target's sample, argmax drafts", lambda p, z, t: p * favourite(z)
    ),
    "match-sampled": Rule(
        "match with the target's sample, sampled drafts", lambda p, z, t: p * law(z, t)
    ),
    "match-text": Rule("drafts from the text, kept with the target's probability"),
    "greedy": Rule("the target's likeliest token at any temperature"),
    "rejection-untempered": Rule("rejection at temperature 1 always"),
}
"""Rules by the names that results use."""


def calls(
    target: Matrix, accepted: Matrix, *, drafts: int, last: int, length: int
) -> tuple[float, float]:
    """Compute mean and variance of the number of steps that write a text.

    Args:
        target: P, `(V, V)`.
        accepted: M, `(V, V)`, at most P.
        drafts: γ, drafted tokens of a step.
        last: the token before the text.
        length: its tokens, all from steps.

    Returns:
        Mean and variance, for one text.

    Cost: O(n γ V²).

    >>> half = np.full((2, 2), 0.5)
    >>> calls(half, half, drafts=1, last=0, length=4)  # everything is accepted
    (2.0, 0.0)
    >>> calls(half, 0 * half, drafts=1, last=0, length=4)
    (4.0, 0.0)
    >>> calls(half, half / 2, drafts=1, last=0, length=2)  # one step or two
    (1.5, 0.25)
    """
    first, second = [np.zeros(len(target))], [np.zeros(len(target))]
    ends = [np.linalg.matrix_power(accepted, j) @ (target - accepted) for j in range(drafts)]
    ends.append(np.linalg.matrix_power(accepted, drafts) @ target)
    for left in range(1, length + 1):
        rest = [max(0, left - j - 1) for j in range(drafts + 1)]
        mean = sum(end @ first[n] for end, n in zip(ends, rest, strict=True))
        square = sum(end @ second[n] for end, n in zip(ends, rest, strict=True))
        first.append(1 + mean)
        second.append(1 + 2 * mean + square)
    return float(first[length][last]), float(second[length][last] - first[length][last] ** 2)
