"""Trees of the likeliest paths in the drafter's belief, for several contexts together.

A belief gives every next token a probability of being the text's; that of a path is the product
along it. The N paths with the largest products form a tree, because products do not increase along
a path, and the N − 1 largest are the tree without its last path: one tree holds all smaller ones.
What a drafter believes is another matter: its own distribution (`LikeliestTree`), or what is left
of it when the noise is known (`NoiseTree`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from otm._machine.arrays import Floats
from otm.sequence.drafted_tree import DraftTree
from otm.sequence.models import Context, LanguageModel, next_distributions
from otm.trees.shape import TreeShape

Belief = Callable[[int, Context, Floats], Floats]
"""(number of the growing tree, context, the draft model's distribution `(V,)`) → the drafter's
belief on the next token, `(V,)`.
"""


def as_drafted(place: int, context: Context, mass: Floats) -> Floats:
    """Return the draft model's distribution as the drafter's belief.

    >>> import numpy as np
    >>> as_drafted(0, (), np.array([0.5, 0.5]))
    array([0.5, 0.5])
    """
    return mass


@dataclasses.dataclass(frozen=True)
class WeightedPath:
    """A path with the probability in the drafter's belief."""

    probability: float
    context: Context

    def extended(self, belief: Floats, reach: int, above: float) -> list[WeightedPath]:
        """Return the `reach` likeliest continuations of more than a probability, in falling order.

        Of equal ones the one of the smaller token comes first.
        """
        found = self.probability * np.minimum(belief, 1.0)
        likely = np.flatnonzero(found > above)
        if len(likely) > reach:
            least = np.partition(found[likely], len(likely) - reach)[len(likely) - reach]
            likely = likely[found[likely] >= least]
        likely = likely[np.argsort(-belief[likely], kind="stable")][:reach]
        return [WeightedPath(float(found[x]), (*self.context, x)) for x in likely.tolist()]


def grow_best_first(
    model: LanguageModel,
    contexts: Sequence[Context],
    *,
    size: int,
    depth: int,
    width: int | None = None,
    belief: Belief = as_drafted,
) -> Iterator[tuple[list[list[WeightedPath]], dict[Context, Floats]]]:
    """Grow the trees of several contexts together, with one draft call per level for all contexts.

    Args:
        model: the draft model.
        contexts: where the trees begin; they may repeat.
        size: the largest number of drafts of a tree.
        depth: the largest number of levels.
        width: expand only this many paths of a level, each to this many children; None for all.
        belief: what the drafter makes of the model's answers.

    Yields:
        After each level the paths of every tree so far, the root first, then by falling
        probability, of equals the one found first; and what the model answered.
    """
    reach = min(size, model.num_tokens if width is None else width)
    best = [[WeightedPath(1.0, context)] for context in contexts]
    frontiers = [paths[:] for paths in best]
    for _ in range(depth):
        known = next_distributions(
            model, (path.context for frontier in frontiers for path in frontier), name="draft"
        )
        for place, frontier in enumerate(frontiers):
            root, *paths = best[place]
            # What ties with the last path of a full tree comes after it, so is not in it.
            above = paths[-1].probability if len(paths) == size else 0.0
            found = [
                child
                for path in frontier
                for child in path.extended(
                    belief(place, path.context, known[path.context]), reach, above
                )
            ]
            found.sort(key=lambda path: -path.probability)
            best[place] = [
                root,
                *sorted([*paths, *found], key=lambda path: -path.probability)[:size],
            ]
            kept = {path.context for path in best[place]}
            frontiers[place] = [path for path in found[:width] if path.context in kept]
        yield best, known
        if not any(frontiers):
            return


def grown_best_first(
    model: LanguageModel,
    contexts: Sequence[Context],
    *,
    size: int,
    depth: int,
    width: int | None = None,
    belief: Belief = as_drafted,
) -> tuple[list[list[WeightedPath]], dict[Context, Floats]]:
    """Return the paths of trees grown by `grow_best_first`, and all answers of the model.

    >>> from otm.sequence import ZerothOrder
    >>> (paths,), known = grown_best_first(ZerothOrder([0.75, 0.25]), [()], size=2, depth=2)
    >>> [path.context for path in paths], list(known)
    ([(), (0,), (0, 0)], [(), (0,), (1,)])
    """
    trees = [[WeightedPath(1.0, context)] for context in contexts]
    known: dict[Context, Floats] = {}
    growing = grow_best_first(model, contexts, size=size, depth=depth, width=width, belief=belief)
    for level in growing:
        trees = level[0]
        known |= level[1]
    return trees, known


def tree_of_paths(paths: Sequence[WeightedPath], draft: dict[Context, Floats]) -> DraftTree:
    """Convert paths, the root first and each after all prefixes, to a drafted tree.

    >>> paths = [WeightedPath(1.0, ()), WeightedPath(0.5, (4,)), WeightedPath(0.25, (4, 2))]
    >>> tree_of_paths(paths, {}).tokens.tolist()
    [-1, 4, 2]
    """
    number = {path.context: vertex for vertex, path in enumerate(paths)}
    parents = [number[path.context[:-1]] for path in paths[1:]]
    return DraftTree(
        shape=TreeShape(np.array(parents, dtype=np.int64)),
        context=paths[0].context,
        tokens=np.array([-1, *(path.context[-1] for path in paths[1:])], dtype=np.int64),
        draft=draft,
    )
