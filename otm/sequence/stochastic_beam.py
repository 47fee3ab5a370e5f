"""Recursive speculative decoding with stochastic beams: K sequences without replacement, as a tree.

Stochastic beam search gives every sequence of ℓ tokens a clock, exponential with the sequence's
probability as rate, and keeps the first K of each level; a prefix rings when the first of its
continuations does. The beams of a level are K sequences without replacement, and those of
successive levels a tree, since the prefix of one of the first K is among the first K.

Of the clocks the tree needs only the order. Let a level's beams be u₁, …, u_K in the order in which
they rang. On the next level the first continuation of u₁ rings first; then, again and again, either
a new beam rings for the first time, at the rate of all sequences not yet heard of, 1 − Σ P(u) over
the beams heard of, or a further continuation of one of these, at the rate of what is left of it.
Clocks have no memory: which of the two comes next depends on these rates alone, not on what rang
before, and the next new beam is the next in the order of its level. So one level is drawn after the
other, with one draft call each.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from otm.pmf import settle_counts
from otm.sequence.drafted_tree import DraftTree
from otm.sequence.models import Context, LanguageModel, next_distributions
from otm.sequence.randomness import Randomness
from otm.sequence.sampled_tree import GrowingTree, PredictableTree, require_successive
from otm.verifiers.base import Verifier
from otm.verifiers.recursive_rejection import RecursiveRejection


@dataclasses.dataclass(frozen=True)
class StochasticBeam(PredictableTree):
    """Draft K beams of L tokens by stochastic beam search and verify the tree of all beams.

    Siblings are judged in the order in which they rang. Level ℓ holds K different sequences of ℓ
    tokens, drawn without replacement from the draft model's law of sequences (fewer where there are
    fewer).

    Args:
        num_drafts: K ≥ 1 beams.
        length: L ≥ 1 tokens.
        verifier: `otm.RecursiveRejection()` or `otm.Naive()`, vertex by vertex; None for traversal
            from the leaves.

    Raises:
        InvalidParameter: if a count is no integer of at least 1.
        Unsupported: for other verifiers.

    Cost: L draft calls, one target call on K·L vertices.
    Reference: RSD-S [Jeon et al. 2024], Algorithm 5; stochastic beam search [Kool et al. 2019];
        proof: docs/theory.md, "Stochastic beams".

    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.937, 0.063]), ZerothOrder([0.777, 0.223])
    >>> law = step_law(StochasticBeam(2, 1), draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 12)  # both tokens drafted
    2.0
    """

    title = "RSD-S"

    num_drafts: int
    length: int
    verifier: Verifier | None = RecursiveRejection()

    def __post_init__(self) -> None:
        settle_counts(self, num_drafts=1, length=1)
        require_successive(self.verifier)

    @property
    def num_nodes(self) -> int:
        """K·L."""
        return self.num_drafts * self.length

    @property
    def depth(self) -> int:
        """L."""
        return self.length

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Draw level by level in the order of the clocks."""
        growing = GrowingTree(model, context)
        beams, masses, beyond = [0], [1.0], 0.0
        for _ in range(self.length):
            growing.known |= next_distributions(
                model, (growing.contexts[beam] for beam in beams), name="draft"
            )
            beams, masses, beyond = self._next_level(growing, beams, masses, beyond, randomness)
        return growing.tree()

    def _next_level(
        self,
        growing: GrowingTree,
        beams: list[int],
        masses: list[float],
        beyond: float,
        randomness: Randomness,
    ) -> tuple[list[int], list[float], float]:
        """Return the next level's beams in order of arrival, the masses, and the mass of all
        others.
        """
        rung: list[int] = []
        weights: list[float] = []
        heard, new, again = 0, beyond + sum(masses), 0.0
        left: list[float] = []  # by beam heard of: what is left of it
        while len(rung) < self.num_drafts and new + again > 0.0:
            if heard < len(beams) and randomness.accept(new / (new + again)):
                place, heard = heard, heard + 1
                left.append(masses[place])
            else:
                place = randomness.choose(np.array(left))
            child, share = growing.draw_child(beams[place], randomness)
            rung.append(child)
            weights.append(left[place] * share)
            left[place] = masses[place] * float(growing.left(beams[place]).sum())
            # Sums of what is left, never differences: beside a sequence of mass 1 − 1e−20 these
            # would be rounding.
            new, again = beyond + sum(masses[heard:]), sum(left)
        return rung, weights, new + again
