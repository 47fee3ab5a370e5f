"""Trees that grow while they are sampled: each draft goes where those before it point to.

Every drafted token is drawn from what its elder siblings leave of the draft model's distribution.
*Where* it is drawn, and whether at all, is decided on what was drafted before it: growth is
predictable. Then, whatever the rule of growth, every verification is lossless for which a fresh
youngest child changes nothing on average: sample and match, recursive rejection vertex by vertex,
traversal from the leaves. Dropping drafts after a look at their tokens is another matter, and
biases the output (docs/theory.md, "Trees that depend on the context").

*Stochastic beams* grow level by level. Stochastic beam search gives every sequence of ℓ tokens a
clock, exponential with the sequence's probability as rate, and keeps the first K of each level; a
prefix rings when the first of its continuations does. The beams of a level are K sequences without
replacement, and those of successive levels a tree, since the prefix of one of the first K is among
the first K.

What the tree needs of the clocks is their order. Let a level's beams be u₁, …, u_K in the order in
which they rang. On the next level the first continuation of u₁ rings first; then, again and again,
either a new beam rings for the first time, at the rate of all sequences not yet heard of, 1 − Σ
P(u) over the beams heard of, or a further continuation of one of these, at the rate of what is left
of it. Clocks have no memory: which of the two comes next depends on these rates alone, not on what
rang before, and the next new beam is the next in the order of its level. So one level is drawn
after the other, with one draft call each.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools

import numpy as np
from numpy.typing import NDArray

from otm.drafts.base import PAD
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import Unsupported
from otm.pmf import settle_counts
from otm.sequence.decoder import Conditionals, Decoder, DraftTree, SizedTree, Step
from otm.sequence.models import Context, LanguageModel, next_distribution, next_distributions
from otm.sequence.randomness import Randomness
from otm.sequence.traversal_verification import DISTINCT, traverse
from otm.sequence.vertex_decoder import descend_by_verifier
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier
from otm.verifiers.naive import Naive
from otm.verifiers.recursive_rejection import RecursiveRejection


class PredictableTree(Decoder):
    """A decoder that samples distinct children and decides on the past where to draft next.

    Attributes:
        verifier: judges the children of a vertex; None for traversal from the leaves.
    """

    lossless = True  # docs/theory.md, "Trees that depend on the context"

    verifier: Verifier | None

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Judge siblings in the order in which they were drawn."""
        if self.verifier is None:
            return traverse(tree, target, randomness, DISTINCT)
        return descend_by_verifier(tree, target, randomness, self.verifier, WithoutReplacement)


def require_successive(verifier: Verifier | None) -> None:
    """Raise `Unsupported` unless a verifier judges children without looking at later ones."""
    if not isinstance(verifier, RecursiveRejection | Naive | None):
        raise Unsupported(
            "The number of children tells of their tokens here, so they are judged one by one: by "
            "otm.RecursiveRejection() or otm.Naive(), or None for traversal from the leaves; got "
            f"{verifier!r}."
        )


@dataclasses.dataclass(frozen=True)
class SampledTree(SizedTree, PredictableTree):
    """Draft each next token where the drafter holds it worth most: beside or below the last ones.

    A slot for the next child of u has a value v, the first slot of all 1. Its token x is drawn from
    what is left of p(· | u), with probability ρ(x); then the slot below x is worth v·ρ(x), the next
    one beside it v·(1 − ρ(x)). The largest value goes next: v is the mass of the drafter's texts
    that begin with a slot's parent and with none of its elder siblings.

    Args:
        size: N ≥ 1 drafted tokens; fewer where the distributions have fewer.
        length: L ≥ 1 levels at most.
        verifier: None verifies from the leaves to the root, by traversal;
            `otm.RecursiveRejection()` vertex by vertex, and `otm.Naive()` samples the target and
            looks.

    Raises:
        InvalidParameter: if a count is no integer of at least 1.
        Unsupported: for other verifiers, which look at all children of a vertex at once: their
            number tells of their tokens.

    Cost: one draft call per vertex with children, one target call.
    Reference: DySpec [Xiong et al. 2024], Algorithm 1; proof: docs/theory.md, "Trees that depend on
        the context".

    >>> import otm
    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([0.75, 0.25]), ZerothOrder([0.5, 0.5])
    >>> pair = SampledTree(2, 2, otm.RecursiveRejection())  # below 0, worth 3/4, or beside 1
    >>> law = step_law(pair, draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 12)  # 1 + ¾·⅔·(1 + ¾) + ¼
    2.125
    """

    title = "sampled tree"

    verifier: Verifier | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_successive(self.verifier)

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        """Draw into the slot of the largest value, of equals the oldest."""
        growing, clock = GrowingTree(model, context), itertools.count()
        slots = [(-1.0, next(clock), 0)]
        while slots and len(growing.parents) < self.size:
            value, _, vertex = heapq.heappop(slots)
            child, share = growing.draw_child(vertex, randomness)
            if growing.level(child) < self.length:
                heapq.heappush(slots, (value * share, next(clock), child))
            if share < 1.0:
                heapq.heappush(slots, (value * (1.0 - share), next(clock), vertex))
        return growing.tree()


class GrowingTree:
    """A tree that is being drafted, with what is left to draw at each vertex."""

    def __init__(self, model: LanguageModel, context: Context) -> None:
        self.parents: list[int] = []
        self.contexts = [context]
        self.known: dict[Context, NDArray[np.float64]] = {}
        self._model = model
        self._left: dict[int, NDArray[np.float64]] = {}

    def level(self, vertex: int) -> int:
        """Return how many drafts lead to a vertex."""
        return len(self.contexts[vertex]) - len(self.contexts[0])

    def left(self, vertex: int) -> NDArray[np.float64]:
        """Return the draft masses `(V,)` of all tokens that are no child of a vertex yet."""
        if vertex not in self._left:
            here = self.contexts[vertex]
            if here not in self.known:
                self.known[here] = next_distribution(self._model, here, name="draft")
            self._left[vertex] = self.known[here].copy()
        return self._left[vertex]

    def draw_child(self, vertex: int, randomness: Randomness) -> tuple[int, float]:
        """Draw the next child; return it and the probability with which its token was drawn."""
        left = self.left(vertex)
        token = randomness.choose(left)
        share = float(left[token] / left.sum())
        left[token] = 0.0
        self.parents.append(vertex)
        self.contexts.append((*self.contexts[vertex], token))
        return len(self.parents), share

    def tree(self) -> DraftTree:
        """Return the tree as it stands."""
        tokens = np.array([PAD, *(context[-1] for context in self.contexts[1:])], dtype=np.int64)
        shape = TreeShape(np.array(self.parents, dtype=np.int64))
        return DraftTree(shape=shape, context=self.contexts[0], tokens=tokens, draft=self.known)


@dataclasses.dataclass(frozen=True)
class StochasticBeam(PredictableTree):
    """Draft K beams of L tokens by stochastic beam search and verify the tree that they make.

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
        """Return the next level's beams as they rang, their masses, and that of all others."""
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
