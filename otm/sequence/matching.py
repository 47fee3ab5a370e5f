"""Sample and match: the target draws its own tokens, and drafts are what it need not wait for.

Whatever the drafted tree is, and whatever of the noise its drafter has seen, the output is the
target's own sample: at each vertex a token is drawn from the target, on the noise that the drafter
saw there if it saw any, and the step goes on while it is a child. So nothing is asked of the
drafts, neither probabilities nor a law. Three trees are verified so. `LikeliestTree` sees no noise;
`Ersd` has a shape of its own and takes the first arrivals of a race as children; `NoiseTree` lets
the noise decide where the tree goes as well.

With noise by position (`Sampled(rng, noise=SharedNoise(seed))`) the text is a function of seed and
target: the same for each of these decoders, and without one.

*The likeliest tree* depends on the context: EAGLE-2, OPT-Tree, DDTree. A drafter that believes its
own distributions reaches path u with probability P(u), the product of its probabilities along u.
The N paths with the largest products form a tree, because products do not increase along a path,
and no other N paths hold more of the drafter's mass. Nothing about this tree is random. So sample
and match, which reaches u with probability Q(u), is its best verification: no lossless one of a
fixed tree reaches u more often.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm.drafts.without_replacement import WithoutReplacement
from otm.pmf import check_count, check_instance
from otm.problem import Problem
from otm.scheme import parameter
from otm.sequence.best_first import grown_best_first, tree_of_paths
from otm.sequence.decoder import (
    Conditionals,
    Decoder,
    DraftTree,
    SizedTree,
    Step,
    TreeDecoder,
    check_step_arguments,
    children_of,
    evaluate,
)
from otm.sequence.exact_laws import (
    DeferredDecoder,
    StepModels,
    StepTally,
    Transition,
    require_table,
    sum_by_agreement,
    walk_levels,
)
from otm.sequence.models import Context, LanguageModel
from otm.sequence.randomness import Enumerated, RaceState, Randomness
from otm.sequence.vertex_decoder import grow
from otm.verifiers.race import Race

MAX_RACE_ENTRIES = 1 << 27
"""Largest number of (draft, output) pairs of a race, whose table is held."""


@dataclasses.dataclass(frozen=True)
class MatchingDecoder(Decoder):
    """A decoder that drafts in any way and verifies by sampling the target and looking.

    Subclass it, with a `draft` of your own, to verify any tree on shared noise.
    """

    lossless = True  # every token is the target's own sample

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Follow the target's own samples while they are drafted, and add the next one."""
        below = children_of(tree.shape)
        vertex, context, path = 0, tree.context, list[int]()
        while True:
            known, mass = tree.shared.get(context), target(context)
            token = (
                randomness.sample(mass, len(context))
                if known is None
                else randomness.winner(mass, known)
            )
            drafted = {int(tree.tokens[child]): child for child in reversed(below[vertex])}
            if token not in drafted:
                return tree.step_along(path, token)
            vertex, context = drafted[token], (*context, token)
            path.append(vertex)


@dataclasses.dataclass(frozen=True)
class Ersd(TreeDecoder, MatchingDecoder, DeferredDecoder):
    """Run a race per vertex: the first arrivals under p are children, the winner under q is output.

    The clocks travel with the drafts, or both sides make them of a seed and the position
    (`SharedNoise`): the races of one level may share clocks, for the output reaches one of them.
    It descends while the winner is a child; at a vertex without children a race is run all the
    same, on clocks that nobody has seen: the bonus token. `NoiseTree` chooses the shape by the
    clocks as well.

    Args:
        tree: the shape, at least one drafted token.

    Raises:
        InvalidParameter: on an empty tree; when drafting, if a vertex has more children than there
            are tokens.

    Cost: one draft call per level, one target call; O(V) clocks per drafting vertex.
    Reference: ERSD [Kobus & Gündüz 2025], Section 3, Algorithms 2 and 5.

    >>> import otm
    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft = ZerothOrder([0.5, 0.2, 0.15, 0.1, 0.05])
    >>> target = ZerothOrder([0.1, 0.3, 0.05, 0.25, 0.3])
    >>> law = step_law(Ersd(otm.trees.TreeShape.batch(2)), draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 6)  # 1 + the race's .724113
    1.724113
    """

    title = "ERSD"

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Race level by level, one call of the draft model per level."""
        races: dict[Context, RaceState] = {}

        def children(here: Context, mass: NDArray[np.float64], count: int) -> NDArray[np.int64]:
            WithoutReplacement(count).align(mass, mass)  # refuses more children than tokens
            races[here] = randomness.race(mass, count, len(here))
            return races[here].drafts

        return dataclasses.replace(grow(self.tree, model, context, children), shared=races)

    def tally(self, models: StepModels) -> StepTally:
        """Couple first arrivals and winner at one vertex at a time."""

        def transitions(context: Context, count: int) -> list[Transition]:
            law = WithoutReplacement(count)
            problem = Problem(draft=models.draft(context), target=models.target(context), law=law)
            num_live = int(np.count_nonzero(problem.draft))
            require_table(num_live, problem.num_tokens, MAX_RACE_ENTRIES)
            joint = Race().prepare(problem).joint()
            return sum_by_agreement(
                joint.drafts, problem.num_tokens, lambda block: joint.joint[block].toarray()
            )

        return walk_levels(self.tree, models, transitions)


@dataclasses.dataclass(frozen=True)
class LikeliestTree(SizedTree, MatchingDecoder, DeferredDecoder):
    """Draft the N likeliest paths; sample the target and descend while its token is drafted.

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
    decoder: LikeliestTree, *, draft: LanguageModel, target: LanguageModel, context: Sequence[int]
) -> NDArray[np.float64]:
    """Return the exact expected tokens per target call for every number of drafts up to N.

    Entry n is 1 + Σ Q(u) over the n likeliest paths: one drafted tree answers for all smaller ones.

    Args:
        decoder: the largest tree.
        draft, target: two models, of any vocabulary.
        context: tokens so far.

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
        reached[vertex] = reached[parent] * rows[before][tree.tokens[vertex]]
    return np.cumsum(reached)
