"""Trees that grow while sampled: the place of each draft depends on the earlier drafts.

Every drafted token is drawn from what its elder siblings leave of the draft model's distribution.
*Where* it is drawn, and whether at all, is decided on what was drafted before it: growth is
predictable. Then, whatever the rule of growth, every verification is lossless for which a fresh
youngest child changes nothing on average: sample and match, recursive rejection vertex by vertex,
traversal from the leaves. Dropping drafts after a look at their tokens is another matter, and
biases the output (docs/theory.md, "Trees that depend on the context").
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
from otm.sequence.decoder import Decoder, SizedTree
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step
from otm.sequence.models import Context, LanguageModel, next_distribution
from otm.sequence.randomness import Randomness
from otm.sequence.traversal_verification import DISTINCT, traverse
from otm.sequence.vertex_decoder import descend_by_verifier
from otm.trees.shape import TreeShape
from otm.verifiers.base import Verifier
from otm.verifiers.naive import Naive
from otm.verifiers.recursive_rejection import RecursiveRejection


class PredictableTree(Decoder):
    """A decoder that samples distinct children and chooses the next place from the earlier drafts.

    Attributes:
        verifier: judges the children of a vertex; None for traversal from the leaves.
    """

    lossless = True  # docs/theory.md, "Trees that depend on the context"

    verifier: Verifier | None

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Judge siblings in the order of drafting."""
        if self.verifier is None:
            return traverse(tree, target, randomness, DISTINCT)
        return descend_by_verifier(tree, target, randomness, self.verifier, WithoutReplacement)


def require_successive(verifier: Verifier | None) -> None:
    """Raise `Unsupported` unless a verifier judges children without looking at later children."""
    if not isinstance(verifier, RecursiveRejection | Naive | None):
        raise Unsupported(
            "The number of children tells of their tokens here, so they are judged one by one: by "
            "otm.RecursiveRejection() or otm.Naive(), or None for traversal from the leaves; got "
            f"{verifier!r}."
        )


@dataclasses.dataclass(frozen=True)
class SampledTree(SizedTree, PredictableTree):
    """Draft each next token at the place of the largest value, beside or below earlier drafts.

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
        """Draw into the slot of the largest value, the oldest on ties."""
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
    """A tree during drafting, with the masses still to draw from at each vertex."""

    def __init__(self, model: LanguageModel, context: Context) -> None:
        self.parents: list[int] = []
        self.contexts = [context]
        self.known: dict[Context, NDArray[np.float64]] = {}
        self._model = model
        self._left: dict[int, NDArray[np.float64]] = {}

    def level(self, vertex: int) -> int:
        """Return the number of drafts on the way to a vertex."""
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
        """Draw the next child; return the vertex and the probability of the drawn token."""
        left = self.left(vertex)
        token = randomness.choose(left)
        share = float(left[token] / left.sum())
        left[token] = 0.0
        self.parents.append(vertex)
        self.contexts.append((*self.contexts[vertex], token))
        return len(self.parents), share

    def tree(self) -> DraftTree:
        """Return the tree drafted so far."""
        tokens = np.array([PAD, *(context[-1] for context in self.contexts[1:])], dtype=np.int64)
        shape = TreeShape(np.array(self.parents, dtype=np.int64))
        return DraftTree(shape=shape, context=self.contexts[0], tokens=tokens, draft=self.known)
