"""Sample and match: the output is the target's own sample, and matching drafts save target calls.

Whatever the drafted tree is, and whatever of the noise its drafter has seen, the output is the
target's own sample: at each vertex a token is drawn from the target, on the noise that the drafter
saw there if it saw any, and the step goes on while it is a child. So nothing is asked of the
drafts, neither probabilities nor a law. Three trees are verified so. `LikeliestTree` sees no noise;
`Ersd` has a shape of its own and takes the first arrivals of a race as children; `NoiseTree` lets
the noise decide where the tree goes as well.

With noise by position (`Sampled(rng, noise=SharedNoise(seed))`) the text is a function of seed and
target: the same for each of these decoders, and without one.
"""

from __future__ import annotations

import dataclasses

from otm.sequence.decoder import Decoder
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step, children_of
from otm.sequence.randomness import Randomness


@dataclasses.dataclass(frozen=True)
class MatchingDecoder(Decoder):
    """A decoder that drafts in any way and verifies by matching samples of the target.

    Subclass it, with a `draft` of your own, to verify any tree on shared noise.
    """

    lossless = True  # every token is the target's own sample

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Follow the target's own samples while each is drafted, and add the next one."""
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
