"""Trees of the likeliest paths along a text, and the number of next tokens that each holds.

Nothing about such a tree is random, and it is verified by sampling the target: a step that starts
after t tokens accepts as many drafts as the tree that is drafted there holds of the text. Given the
text this is certain; averaged over the last token,

    S_i(t) = [the text's next i − 1 tokens are drafted] · Σ q(x) over the children x of the vertex
    that they lead to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats
from otm.sequence import Absorbing, LanguageModel
from otm.sequence.best_first import Belief, WeightedPath, as_drafted, grow_best_first

from .texts import SampledText

_MOST_NUMBERS = 1 << 25
"""Most numbers in the distributions of one draft call."""


@dataclasses.dataclass(frozen=True, eq=False)
class MatchLaw:
    """Matches of a text by the trees of every depth 1, …, L and some sizes, at each position.

    Attributes:
        sizes: the numbers of drafted tokens.
        reached: `(L, sizes, L + 1, n)`, 1 where the tree drafted at a position holds the text's
            next i tokens.
        gained: `(L, sizes, L, n)`, S_i, not counting the end of the text.
        calls, drafting: `(L, sizes)`, draft calls of a step and vertices that draft in them,
            averages over the positions.
        scale: of the noise that they are grown on; None for none.
    """

    sizes: tuple[int, ...]
    reached: Floats
    gained: Floats
    calls: Floats
    drafting: Floats
    scale: float | None = None

    def at(self, *, size: int, depth: int) -> tuple[Floats, Floats]:
        """Return `reached` and `gained` of trees with this many drafts and levels."""
        place = depth - 1, self.sizes.index(size)
        return self.reached[place], self.gained[place]


def match_law(
    draft: LanguageModel,
    text: SampledText,
    *,
    sizes: Sequence[int],
    depth: int,
    starts: int,
    eos: int | None,
    belief: Belief = as_drafted,
) -> MatchLaw:
    """Grow the trees at every position of a text where a step may start.

    Args:
        draft: the draft model.
        text: what was sampled.
        sizes: numbers of drafts, ascending.
        depth: L.
        starts: steps start before this position.
        eos: the token that ends a text.
        belief: turns the draft model's answers into the drafter's weights.

    Cost: the positions take their draft calls together, as many as fit into memory. What is drafted
        for the largest size holds all.
    """
    number = min(starts, len(text.tokens))
    many = np.asarray(sizes)
    reached = np.zeros((depth, len(many), depth + 1, number))
    gained = np.zeros((depth, len(many), depth, number))
    calls, drafting = (np.zeros((depth, len(many), number)) for _ in range(2))
    model = draft if eos is None else Absorbing(draft, eos, start=len(text.prefix))
    size = int(many[-1])
    group = max(1, _MOST_NUMBERS // (draft.num_tokens * size))
    for first in range(0, number, group):
        places = range(first, min(first + group, number))
        asked = [text.context(t) for t in places]
        drafting[0, :, places] = calls[0, :, places] = 1.0
        level = -1
        growing = grow_best_first(model, asked, size=size, depth=min(depth, size), belief=belief)
        for level, (trees, _) in enumerate(growing):
            for t, tree in zip(places, trees, strict=True):
                _enter(reached[level, :, :, t], gained[level, :, :, t], text, t, tree, many, eos)
                if level + 1 < depth:
                    ends = len(text.prefix) + t + level + 1
                    deep = [place for place, path in enumerate(tree) if len(path.context) == ends]
                    more = np.searchsorted(deep, many, side="right")
                    drafting[level + 1, :, t] = drafting[level, :, t] + more
                    calls[level + 1, :, t] = calls[level, :, t] + (more > 0)
        for one in (reached, gained, calls, drafting):  # trees that are whole before the last level
            one[level + 1 :, ..., first : places.stop] = one[level, ..., first : places.stop]
    return MatchLaw(tuple(sizes), reached, gained, calls.mean(axis=-1), drafting.mean(axis=-1))


def _enter(
    reached: Floats,
    gained: Floats,
    text: SampledText,
    start: int,
    tree: Sequence[WeightedPath],
    sizes: NDArray[np.int64],
    eos: int | None,
) -> None:
    """Note how much of the text the trees of each size hold from one start."""
    whole = text.context(len(text.tokens))
    base = len(text.prefix) + start
    reached[:, 0] = 1.0
    for place, path in enumerate(tree[1:], start=1):
        parent, token = path.context[:-1], path.context[-1]
        depth = len(path.context) - base
        if base + depth > len(whole) or parent != whole[: len(parent)]:
            continue
        held = sizes >= place  # with its vertex a tree holds the parents, whose places are lower
        if token != eos:
            gained[held, depth - 1] += text.target[start + depth - 1, token]
        if token == whole[len(parent)]:
            reached[held, depth] = 1.0
