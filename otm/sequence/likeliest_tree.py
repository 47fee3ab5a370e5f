"""The tree of the likeliest paths, which depends on the context: EAGLE-2, OPT-Tree, DDTree.

A drafter that believes its own distributions reaches path u with probability P(u), the product of
its probabilities along u. The N paths with the largest products form a tree, because products do
not increase along a path, and no other N paths hold more of the drafter's mass. Nothing about this
tree is random. So the best verification samples the target and looks whether the token is there: it
reaches u with probability Q(u), and no lossless verification of a fixed tree reaches it more often.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm.pmf import check_count, check_instance
from otm.scheme import parameter
from otm.sequence.best_first import grown_best_first, tree_of_paths
from otm.sequence.decoder import SizedTree
from otm.sequence.decoding import check_step_arguments, evaluate
from otm.sequence.drafted_tree import DraftTree, children_of
from otm.sequence.exact_laws import (
    DeferredDecoder,
    StepModels,
    StepTally,
    Transition,
    walk_levels,
)
from otm.sequence.matching import MatchingDecoder
from otm.sequence.models import Context, LanguageModel
from otm.sequence.randomness import Enumerated, Randomness


@dataclasses.dataclass(frozen=True)
class LikeliestTree(SizedTree, MatchingDecoder, DeferredDecoder):
    """Draft the N likeliest paths; sample the target and descend while the sample is drafted.

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
        docs/theory.md, "Trees that depend on the context".

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> tree = LikeliestTree(3, 4)  # paths 0, 00 and 000, of 27/64, before 1, of 1/4
    >>> law = step_law(tree, draft=draft, target=target, context=[])
    >>> law.block_efficiency  # 1 + 1/2 + 1/4 + 1/8
    1.875
    """

    title = "likeliest tree"
    width: int | None = parameter(check_count, default=None)

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Extend the best N paths level by level, with vertices numbered by falling probability."""
        (paths,), known = grown_best_first(
            model, [context], size=self.size, depth=self.depth, width=self.width
        )
        return tree_of_paths(paths, known)

    def tally(self, models: StepModels) -> StepTally:
        """Follow the target's own tokens down the one tree that is drafted."""
        tree = self.draft(models.drafter, models.start, Enumerated({}))
        below = children_of(tree.shape)
        drafted = {
            context: tree.tokens[list(below[vertex])].tolist()
            for vertex, context in enumerate(tree.contexts())
            if context is not None
        }

        def transitions(context: Context, count: int) -> list[Transition]:
            places = {token: (position,) for position, token in enumerate(drafted[context])}
            mass = models.target(context)
            return [
                (token, places.get(token, ()), float(mass[token]))
                for token in np.flatnonzero(mass > 0).tolist()
            ]

        return walk_levels(tree.shape, models, transitions)


def matched_tokens(
    decoder: LikeliestTree,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    context: Sequence[int],
    eos: int | None = None,
) -> NDArray[np.float64]:
    """Return the exact expected tokens per target call for every number of drafts up to N.

    Entry n is 1 + Σ Q(u) over the n likeliest paths: one drafted tree answers for all smaller ones.

    Args:
        decoder: the largest tree.
        draft, target: two models, of any vocabulary.
        context: tokens so far.
        eos: a token that ends the text, which does not count, nor what is drafted after it.

    Returns:
        `(n + 1,)` for the n ≤ N drafted paths, from 1 without drafts.

    Cost: one drafted tree and one call of the target on its vertices.
    Accuracy: rounding of a sum of products.
    Reference: docs/theory.md, "Trees that depend on the context".

    >>> from otm.sequence import ZerothOrder
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> tree = LikeliestTree(4, 4)  # paths 0, 00, 000 and 0000
    >>> matched_tokens(tree, draft=draft, target=target, context=[])
    array([1.    , 1.5   , 1.75  , 1.875 , 1.9375])
    """
    start = check_step_arguments(decoder, draft=draft, target=target, context=context)
    check_instance(decoder, LikeliestTree, name="decoder")
    tree = decoder.draft(draft, start, Enumerated({}))
    rows = evaluate(target, tree)
    contexts = tree.contexts()
    reached = np.ones(tree.shape.num_nodes + 1)
    for vertex, parent in enumerate(tree.shape.parents.tolist(), start=1):
        before = contexts[parent]
        assert before is not None  # every vertex of this tree has a draft
        token = tree.tokens[vertex]
        reached[vertex] = 0.0 if token == eos else reached[parent] * rows[before][token]
    return np.cumsum(reached)
