"""The tree audit: kernels that take a drafted tree and return a path.

Siblings are tried one after the other, each rejection changes what the next is verified against,
and arrays say who is whose child: order, renormalisation and duplicates are where such kernels
fail. Trees of a given shape are drafted as the kernel is told they are, and the path, followed by
samples of the target, must have the target's law.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from otm.audit import standard_problems as standard
from otm.audit.budget import USUAL, Errors
from otm.audit.candidate import Check, Scope, as_kind
from otm.audit.end_to_end import (
    EndToEndCandidate,
    WrittenAudit,
    check_of,
    joint,
    seeded_rng,
)
from otm.audit.integration import Next
from otm.audit.tracing.answers import CandidateFailure
from otm.audit.tracing.branching import MOST_SECONDS
from otm.errors import InvalidParameter
from otm.pmf import RNGLike, check_choice, check_instance, plain_integers
from otm.sequence.models import LanguageModel, check_model, next_distribution
from otm.trees import TreeShape


@dataclasses.dataclass(frozen=True, eq=False)
class DraftedTree:
    """A drafted tree in engines' arrays; node 0 is the root, the last token of the text.

    Attributes:
        tokens: `(n,)`, that of the root 0, as the token before the text of a chain is.
        parents: `(n,)`, that of the root −1; parents come before children, siblings in the order in
            which they were drawn.
        draft, target: `(n, V)`, the next-token laws after each node.
        replacement: whether siblings were drawn with replacement; if not, each from what its elder
            siblings leave, renormalised.
        sampled: whether they were drawn at all; if not, they are the likeliest tokens of the draft,
            the likeliest first.
    """

    tokens: NDArray[np.int64]
    parents: NDArray[np.int64]
    draft: NDArray[np.float64]
    target: NDArray[np.float64]
    replacement: bool
    sampled: bool = True

    def children(self, node: int) -> list[int]:
        """Return the children of a node in the order of drafting."""
        return [int(child) for child in np.flatnonzero(self.parents == node)]

    @property
    def first_child(self) -> NDArray[np.int64]:
        """The first child of each node `(n,)`, −1 without one (SGLang's retrive_next_token)."""
        nodes = range(len(self.tokens))
        return np.asarray([min(self.children(node), default=-1) for node in nodes])

    @property
    def next_sibling(self) -> NDArray[np.int64]:
        """The sibling drawn after each node `(n,)`, or −1 (SGLang's retrive_next_sibling)."""
        later = [
            [other for other in self.children(parent) if other > node]
            for node, parent in enumerate(self.parents.tolist())
        ]
        return np.asarray([min(siblings, default=-1) for siblings in later])


SIBLINGS = ("with", "without", "likeliest")
"""Kinds of siblings: drawn with or without replacement, or the draft's likeliest tokens."""


@dataclasses.dataclass(frozen=True, eq=False)
class TreeCandidate(EndToEndCandidate):
    """A kernel that takes a drafted tree and returns a path.

    Args:
        verify: the function, `verify(tree, rng)`, as `otm.audit.tree_kernel` takes it.
        name: what to call it in reports; the function's own name if empty.
        siblings: how the trees are drafted that it is made for: siblings drawn "with" or "without"
            replacement, or the draft's "likeliest" tokens.

    Raises:
        InvalidParameter: if `verify` cannot be called, or `siblings` is none of these.

    >>> TreeCandidate(lambda tree, rng: [int(tree.tokens[1])], "first child").name
    'first child'
    """

    description: ClassVar[str] = "a kernel of trees"
    called: ClassVar[str] = "verify(tree, rng)"

    siblings: Literal["with", "without", "likeliest"] = "with"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.siblings, name="siblings", choices=SIBLINGS)

    def instances(self, scope: Scope) -> list[Check]:
        """Return a check for every shape and every pair of models that has enough live tokens."""
        drafted = {
            "replacement": self.siblings == "with",
            "sampled": self.siblings != "likeliest",
        }
        found = []
        # Siblings without replacement need as many live tokens as the widest vertex has children.
        for shape, parents in standard.SHAPES.items():
            most = max(collections.Counter(parents[1:]).values())
            options = {"parents": parents, **drafted}
            for name, pair in standard.chained_models(scope.pair).items():
                window = name in standard.WINDOW_MODELS
                if window and shape not in standard.WINDOW_SHAPES:
                    continue
                live = int((pair[0].table > 0.0).sum(axis=-1).min())
                few = pair[0].num_tokens ** (len(parents) - 1) <= standard.MOST_TREES
                if few and (self.siblings == "with" or live >= most):
                    names = shape, name, "windows" if window else shape
                    found.append(
                        check_of(tree_kernel, self, pair, options, names, needed=not window)
                    )
        return found


def tree_kernel(
    candidate: object,
    *,
    draft: LanguageModel,
    target: LanguageModel,
    parents: Sequence[int],
    rng: RNGLike,
    replacement: bool = True,
    sampled: bool = True,
    tolerance: float | None = None,
    errors: Errors = USUAL,
    seconds: float = MOST_SECONDS,
) -> WrittenAudit:
    """Audit a kernel on drafted trees of one shape: the path's joint law against the target's.

    The path is followed by samples of the target.

    Args:
        candidate: a `TreeCandidate`, or `verify(tree, rng)` → the accepted tokens and the one after
            them, 1 to depth + 1; see `DraftedTree`.
        draft, target: toy models.
        parents: the tree's shape, by node; −1 for the root, which is node 0: (−1, 0, 0, 1) is a
            root with two children, the first of which has one.
        rng: of samples, if there are any: a NumPy generator, or a seed of one.
        replacement: how siblings are drawn: with replacement, or without, which needs as many live
            tokens.
        sampled: whether they are drawn; False for trees of the draft's likeliest tokens (top-k),
            which know no replacement.
        tolerance, errors, seconds: as for `step`.

    Returns:
        WrittenAudit: exact on small trees where the kernel's draws can be followed, else sampled,
        with the reason.

    Raises:
        CandidateFailure: if the kernel raises or returns no path. InvalidParameter: if `parents` is
            no tree, or has more siblings, drawn without replacement, than the draft has tokens.
        TooLarge: beyond four million paths.

    Cost: two runs of the kernel for each drafted tree and each outcome of its draws.

    >>> import numpy as np
    >>> import otm
    >>> p = otm.sequence.ZerothOrder([0.5, 0.5])
    >>> first = lambda tree, rng: [int(tree.tokens[1])]  # always takes the first child
    >>> rng = np.random.default_rng(0)
    >>> tree_kernel(first, draft=p, target=p, parents=(-1, 0, 0), rng=rng).verdict
    'lossless'
    """
    check_model(draft, name="draft")
    check_model(target, name="target")
    check_instance(replacement, bool, name="replacement")
    check_instance(sampled, bool, name="sampled")
    thing = as_kind(candidate, TreeCandidate)
    shape = check_parents(parents)
    most = TreeShape(shape[1:]).depth + 1

    laws: tuple[Next, Next] = (
        functools.cache(lambda row: next_distribution(draft, row, name="draft")),
        functools.cache(lambda row: next_distribution(target, row, name="target")),
    )

    short: list[_TooFewTokens] = []

    def write() -> list[tuple[int, ...]]:
        generator = seeded_rng()
        try:
            drafted = drafted_tree(
                laws,
                shape,
                lambda node, law: generator.choice(len(law), p=law),
                replacement=replacement and sampled,
                sampled=sampled,
            )
        except _TooFewTokens as error:
            short.append(error)
            raise
        return [path_of(thing.verify(drafted, generator))]

    drawn = f"{'with' if replacement else 'without'} replacement"
    siblings = f"siblings {drawn if sampled else 'the likeliest tokens'}"
    audit = functools.partial(
        joint,
        write,
        [laws[1]],
        most,
        name=thing.name,
        instance=f"toy models on {target.num_tokens} tokens, tree {tuple(shape)}, {siblings}",
        covered=(f"a tree of {len(shape) - 1} drafts by parents {tuple(shape)}",),
        not_covered=("other shapes", "how the engine drafts its trees"),
        draft=laws[0](()),
        rng=rng,
        tolerance=tolerance,
        errors=errors,
        seconds=seconds,
    )
    try:
        return audit()
    except CandidateFailure:
        if short:  # of the arguments, not of the kernel, which was not called
            raise short[0] from None
        raise


class _TooFewTokens(InvalidParameter):
    """Raised where siblings outnumber the tokens, drawn without replacement."""


def check_parents(parents: object) -> list[int]:
    """Return the parents of a tree's nodes, or raise `InvalidParameter` if the list is no tree."""
    shape: list[int] = plain_integers(parents, "parents").reshape(-1).tolist()
    if (
        not shape
        or shape[0] != -1
        or not all(0 <= parent < node for node, parent in enumerate(shape) if node)
    ):
        raise InvalidParameter(
            f"parents must be −1 for node 0 and an earlier node for every other; got {parents!r}."
        )
    return shape


def path_of(answer: Any) -> tuple[int, ...]:
    """Return the tokens of a kernel's answer without padding.

    >>> path_of(np.array([[3, 1, -1]]))
    (3, 1)
    """
    return tuple(int(token) for token in np.asarray(answer).reshape(-1) if token != -1)


def drafted_tree(
    laws: tuple[Next, Next],
    parents: Sequence[int],
    draw: Callable[[int, NDArray[np.float64]], int],
    *,
    replacement: bool,
    sampled: bool,
) -> DraftedTree:
    """Draw, or choose, the tokens of a tree, node by node.

    Args:
        laws: of the draft and of the target, after a path.
        parents: of the nodes.
        draw: returns the token of a node, by its number and the law `(V,)` of its token.
        replacement, sampled: as `DraftedTree` has them.
    """
    shape = np.asarray(parents, dtype=np.int64)
    tokens = np.zeros(len(shape), dtype=np.int64)
    paths: list[tuple[int, ...]] = [()]
    for node, parent in enumerate(parents[1:], start=1):
        law = laws[0](paths[parent]).copy()
        elder = tokens[:node][shape[:node] == parent]
        if not replacement:
            law[elder] = 0.0
        if not law.any():
            raise _TooFewTokens(
                f"A node of this shape has {parents.count(parent)} children, all different; after "
                f"{paths[parent]} the draft has {len(elder)} tokens. Pass parents with fewer "
                "siblings, a draft with more tokens, or replacement=True."
            )
        tokens[node] = draw(node, law / law.sum()) if sampled else np.argmax(law)
        paths.append((*paths[parent], int(tokens[node])))
    p, q = (np.stack([law(path) for path in paths]) for law in laws)
    return DraftedTree(tokens, shape, p, q, replacement, sampled)
