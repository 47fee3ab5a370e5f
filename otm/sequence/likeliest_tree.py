"""The tree of the likeliest paths: what EAGLE-2, OPT-Tree and DDTree draft, a tree that depends on
the context.

A drafter that believes its own distributions reaches path u with probability P(u), the product of
its probabilities along u. The N paths with the largest products form a tree, because products do
not increase along a path, and no other N paths hold more of the drafter's mass. Nothing about this
tree is random. Sampling the target and looking whether the token is there is therefore not a
makeshift: it reaches u with probability Q(u), and no lossless verification of a fixed tree can
reach it more often.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from otm.pmf import check_count, check_instance
from otm.sequence.decoder import Conditionals, DraftTree, SizedTree, Step, check_asked, evaluate
from otm.sequence.models import Context, LanguageModel, next_distributions
from otm.sequence.source import Outcomes, Source
from otm.sequence.vertex_decoder import descend
from otm.trees.shape import TreeShape


@dataclasses.dataclass(frozen=True)
class LikeliestTree(SizedTree):
    """Draft the N paths with the largest products of draft probabilities; sample the target and
    descend while its token is drafted.

    E[tokens] = 1 + Σ_u Q(u) over the drafted paths u, the best that any lossless verification of
    this tree attains. Of all trees of N vertices and at most L levels it is the best for a target
    equal to the draft.

    Args:
        size: N ≥ 1 drafted tokens; fewer where fewer have mass.
        length: L ≥ 1 levels at most.
        width: expand only this many paths of a level, each to this many children, as EAGLE-2 does;
            None for the exact N best.

    Raises:
        InvalidParameter: if a count is no integer of at least 1.

    Cost: one draft call per level on the contexts that may have descendants, one target call; O(V +
        N log N) per expanded vertex.
    Reference: EAGLE-2 [Li et al. 2024]; OPT-Tree [Wang et al. 2024]; DDTree 2026 (2604.12989);
        docs/theory.md, "Trees that depend
    on the context".

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> tree = LikeliestTree(3, 4)  # paths 0, 00 and 000, of 27/64, before 1, of 1/4
    >>> step_law(
    ...     tree, draft=draft, target=target, context=[]
    ... ).block_efficiency  # 1 + 1/2 + 1/4 + 1/8
    1.875
    """

    title = "likeliest tree"

    width: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is not None:
            object.__setattr__(self, "width", check_count(self.width, name="width"))

    @property
    def lossless(self) -> bool:
        """Always: every token is the target's own sample."""
        return True

    def draft(self, model: LanguageModel, context: Context, source: Source) -> DraftTree:
        """Extend the best N paths level by level; vertices are numbered by falling probability, so
        n < N are the first n.
        """
        known = dict[Context, NDArray[np.float64]]()
        best: list[Path] = []
        for grown, asked in levels(self, model, [context]):
            best = grown[0]
            known |= asked
        number = {path.context: vertex for vertex, path in enumerate(best)}
        parents = [number[path.context[:-1]] for path in best[1:]]
        tokens = np.array([-1, *(path.context[-1] for path in best[1:])], dtype=np.int64)
        return DraftTree(
            shape=TreeShape(np.array(parents, dtype=np.int64)),
            context=context,
            tokens=tokens,
            draft=known,
        )

    def verify(self, tree: DraftTree, target: Conditionals, source: Source) -> Step:
        """Sample the target, and descend to the child that has the token."""
        return descend(
            tree,
            target,
            source,
            lambda vertices, context, proposals: source.choose(target(context)),
        )


def matched_tokens(
    decoder: LikeliestTree, *, draft: LanguageModel, target: LanguageModel, context: Sequence[int]
) -> NDArray[np.float64]:
    """Return the exact expected tokens per target call of a likeliest tree in one context, for
    every number of drafts up to N.

    Entry n is 1 + Σ Q(u) over the n likeliest paths: one drafted tree answers for all smaller ones.

    Args:
        decoder: the largest tree.
        draft, target: two models, of any vocabulary.
        context: tokens so far.

    Returns:
        `(n + 1,)` for the n ≤ N drafted paths, from 1 without drafts.

    Raises:
        As `otm.sequence.step`.

    Cost: one drafted tree and one call of the target on its vertices. Accuracy: rounding of a sum
        of products.
    Reference: docs/theory.md, "Trees that depend on the context".

    >>> from otm.sequence import ZerothOrder
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> matched_tokens(
    ...     LikeliestTree(4, 4), draft=draft, target=target, context=[]
    ... )  # paths 0, 00, 000 and 0000
    array([1.    , 1.5   , 1.75  , 1.875 , 1.9375])
    """
    start = check_asked(decoder, draft=draft, target=target, context=context)
    check_instance(decoder, LikeliestTree, name="decoder")
    tree = decoder.draft(draft, start, Outcomes({}))
    rows = evaluate(target, tree)
    contexts = tree.contexts()
    reached = np.ones(tree.shape.num_nodes + 1)
    for vertex, parent in enumerate(tree.shape.parents.tolist(), start=1):
        before = contexts[parent]
        assert before is not None  # every vertex of this tree has a draft
        reached[vertex] = reached[parent] * rows[before][tree.tokens[vertex]]
    return np.cumsum(reached)


@dataclasses.dataclass(frozen=True)
class Path:
    """A path with its probability under the draft model."""

    probability: float
    context: Context

    def extended(self, mass: NDArray[np.float64], reach: int, above: float) -> list[Path]:
        """Return the likeliest continuations of more than a probability, at most `reach`, in
        falling order.

        Equal ones come in the order of their numbers.
        """
        found = self.probability * np.minimum(mass, 1.0)
        likely = np.flatnonzero(found > above)
        if len(likely) > reach:
            least = np.partition(found[likely], len(likely) - reach)[len(likely) - reach]
            likely = likely[found[likely] >= least]
        likely = likely[np.argsort(-mass[likely], kind="stable")][:reach]
        return [Path(float(found[x]), (*self.context, x)) for x in likely.tolist()]


def levels(
    decoder: LikeliestTree, model: LanguageModel, contexts: Sequence[Context]
) -> Iterator[tuple[list[list[Path]], dict[Context, NDArray[np.float64]]]]:
    """Grow the trees of several contexts together: a draft call per level for all of them.

    Args:
        decoder: what is grown.
        model: the draft model.
        contexts: where.

    Yields:
        After level l, the root and the paths of the tree of l levels for each context, by falling
        probability, of equals the one found first; and what the model answered.
    """
    reach = min(decoder.size, model.num_tokens if decoder.width is None else decoder.width)
    best = [[Path(1.0, context)] for context in contexts]
    frontiers = [paths[:] for paths in best]
    for _ in range(decoder.depth):
        known = next_distributions(
            model, (path.context for frontier in frontiers for path in frontier), name="draft"
        )
        for place, frontier in enumerate(frontiers):
            root, *paths = best[place]
            above = (
                paths[-1].probability if len(paths) == decoder.size else 0.0
            )  # what ties with the last comes after it
            found = [
                child
                for path in frontier
                for child in path.extended(known[path.context], reach, above)
            ]
            found.sort(key=lambda path: -path.probability)
            best[place] = [
                root,
                *sorted([*paths, *found], key=lambda path: -path.probability)[: decoder.size],
            ]
            kept = {path.context for path in best[place]}
            frontiers[place] = [path for path in found[: decoder.width] if path.context in kept]
        yield best, known
        if not any(frontiers):
            return
