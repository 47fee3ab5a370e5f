"""The drafted tree of one step, and the step that a verification makes of the tree."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from otm.sequence.models import Context
from otm.sequence.randomness import RaceState
from otm.sequence.shared_noise import NoiseRow
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
