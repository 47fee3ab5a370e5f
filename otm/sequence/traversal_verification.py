"""Traversal verification: a drafted tree, verified from the leaves to the root (Weng et al. 2025).

Verification vertex by vertex discards a subtree with its top. Here a vertex is given up only after
all that hangs below it: a vertex that alone would be rejected can be saved by a child that the
target overrates. Each vertex carries the probability w with which its subtree is to be accepted and
the distribution q by which the target goes on there; whatever its children do not use of w·q is
passed on, and what is left at the end accepts the vertex itself. On a chain this is block
verification.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from otm.drafts.base import PAD, Law
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import Unsupported
from otm.sequence.block_verification import after_rejection, next_weight
from otm.sequence.decoder import TreeDecoder
from otm.sequence.drafted_tree import Conditionals, DraftTree, Step, children_of
from otm.sequence.exact_laws import StepModels, StepTally
from otm.sequence.models import Context
from otm.sequence.randomness import Randomness
from otm.sequence.vertex_decoder import LawDecoder

DISTINCT = WithoutReplacement(1)
"""Siblings differ: the draft law of trees in practice."""


@dataclasses.dataclass(frozen=True, eq=False)
class PendingVertex:
    """The pending decision at a vertex on the acceptance of a path through the vertex.

    Attributes:
        weight: w, the probability that this vertex or something below it is to be accepted.
        target: q `(V,)`, the law of the next token where this vertex is.
        draft: p `(V,)`, the law of the next child's token given its elder siblings; all 0 where no
            token is left.
    """

    weight: float
    target: NDArray[np.float64]
    draft: NDArray[np.float64]

    def after(self, token: int, law: Law) -> PendingVertex:
        """Return the state of the vertex after the rejection of a child's whole subtree."""
        weight, target = after_rejection(self.weight, self.draft, self.target)
        return PendingVertex(weight, target, younger_sibling_law(self.draft, token, law))


@dataclasses.dataclass(eq=False)
class _Visit:
    """A vertex between the root and the current one, with the undecided children."""

    vertex: int
    context: Context
    state: PendingVertex
    children: Iterator[int]


@dataclasses.dataclass(frozen=True)
class TraversalVerification(TreeDecoder, LawDecoder):
    """Draft a tree; accept the first vertex in post-order that passes, with all ancestors.

    A vertex with weight w, target q and drafts p (w = 1 at the root) hands the child with token x
    the weight min(1, w·q(x)/p(x)); if nothing in the child's subtree is accepted, with Z = Σ (w·q −
    p)₊, q becomes (w·q − p)₊/Z, w becomes Z/(Z + 1 − w), and p the law of the next child. After its
    last child a vertex is accepted with probability w, the root always; the next token is drawn
    from its q. Two siblings with the same token are two vertices; `Step.survivors` names the
    accepted path.

    Args:
        tree: the shape, at least one drafted token.
        drafts: `otm.WithoutReplacement(1)` or `otm.IID(1)`; its k is replaced by each vertex's
            number of children.

    Raises:
        InvalidParameter: on an empty tree; when drafting, if a vertex has more children than the
            law can give.
        Unsupported: for other draft laws.

    Cost: one draft call per level, one target call; O(V) per drafted vertex.
    Reference: Weng et al. 2025 (2505.12398); proof: docs/theory.md, "Traversal verification".

    >>> import otm
    >>> from otm.sequence import ZerothOrder, step_law
    >>> draft, target = ZerothOrder([2 / 3, 1 / 3]), ZerothOrder([1 / 3, 2 / 3])
    >>> chain = TraversalVerification(otm.trees.TreeShape.chain(2))
    >>> law = step_law(chain, draft=draft, target=target, context=[])
    >>> round(law.block_efficiency, 12)  # block verification: 1 + 11/9
    2.222222222222
    """

    title = "traversal verification"
    lossless = True  # docs/theory.md, "Traversal verification"

    drafts: Law = DISTINCT

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.drafts, IID | WithoutReplacement):
            raise Unsupported(
                "Traversal verification needs the law of each draft given its elder siblings, and "
                "knows it for independent drafts and drafts without replacement; got "
                f"{self.drafts!r}. Choose otm.IID(1) or otm.WithoutReplacement(1)."
            )

    def verify(self, tree: DraftTree, target: Conditionals, randomness: Randomness) -> Step:
        """Walk the tree in post-order until a vertex is accepted, at last the root."""
        return traverse(tree, target, randomness, self.drafts)

    def tally(self, models: StepModels) -> StepTally:
        """Follow the walk, with the subtree of a rejected child summed to the child's 1 − w."""
        below, tally = children_of(self.tree), StepTally(self.tree, models.start)
        independent = isinstance(self.drafts, IID)

        def arrive(context: Context, weight: float, children: tuple[int, ...]) -> PendingVertex:
            target = models.target(context)
            return PendingVertex(weight, target, models.draft(context) if children else target)

        def visit(
            vertex: int, context: Context, state: PendingVertex, rest: tuple[int, ...], mass: float
        ) -> None:
            tokens = np.flatnonzero(state.draft > 0).tolist() if rest else []
            if not tokens:
                tally.end_by(context, mass * state.weight * state.target)
                return
            child, younger = rest[0], rest[1:]
            rejected = {}
            for token in tokens:
                drawn = mass * float(state.draft[token])
                weight = next_weight(state.weight, state.draft, state.target, token)
                tally.reached[child] += drawn * weight
                rejected[token] = drawn * (1.0 - weight)
                if weight > 0:
                    after = (*context, token)
                    visit(child, after, arrive(after, weight, below[child]), below[child], drawn)
            if independent:  # what is left does not depend on the token
                rejected = {tokens[0]: sum(rejected.values())}
            for token, lost in rejected.items():
                if lost > 0:
                    visit(vertex, context, state.after(token, self.drafts), younger, lost)

        self.law(self.tree.width).align(models.draft(models.start), models.target(models.start))
        visit(0, models.start, arrive(models.start, 1.0, below[0]), below[0], 1.0)
        return tally


def traverse(tree: DraftTree, target: Conditionals, randomness: Randomness, drafts: Law) -> Step:
    """Verify a tree from the leaves to the root, with siblings drawn by one law."""
    below = children_of(tree.shape)

    def arrive(vertex: int, context: Context, weight: float) -> _Visit:
        here = target(context)
        return _Visit(
            vertex,
            context,
            PendingVertex(weight, here, tree.draft.get(context, here)),
            iter(below[vertex]),
        )

    way = [arrive(0, tree.context, 1.0)]
    while True:
        here = way[-1]
        child = next(here.children, None)
        token = PAD if child is None else int(tree.tokens[child])
        # Where no token was left to draft, none was for the younger children either.
        if child is not None and token != PAD:
            weight = next_weight(here.state.weight, here.state.draft, here.state.target, token)
            way.append(arrive(child, (*here.context, token), weight))
        elif len(way) == 1 or randomness.accept(here.state.weight):
            break
        else:
            way.pop()
            way[-1].state = way[-1].state.after(here.context[-1], drafts)
    token = randomness.choose(here.state.target)
    return tree.step_along([visit.vertex for visit in way[1:]], token)


def younger_sibling_law(draft: NDArray[np.float64], token: int, law: Law) -> NDArray[np.float64]:
    """Return the law of the next child: unchanged if independent, else without the last token.

    >>> import numpy as np
    >>> import otm
    >>> younger_sibling_law(np.array([0.5, 0.25, 0.25]), 0, otm.WithoutReplacement(2))
    array([0. , 0.5, 0.5])
    """
    if isinstance(law, IID):
        return draft
    left = np.where(np.arange(len(draft)) == token, 0.0, draft)
    total = left.sum()
    return left / total if total > 0 else left
