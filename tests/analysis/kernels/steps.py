"""Inputs for tests of verification kernels: one form for all, random rows, given uniforms.

The library's own step runs on the same inputs.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from analysis.kernels.block_kseq import block_kseq
from analysis.kernels.chain import block, token_by_token
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import refined_scores
from analysis.kernels.step import Verified
from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from analysis.kernels.vertices import optimal_by_vertex
from otm.audit.trees import DraftedTree
from otm.sequence import Decoder, Sampled, TableModel, sequence_law
from otm.sequence.drafted_tree import DraftTree
from otm.trees import TreeShape
from tests.sequence.toys import random_pair_of_rows

CHAIN, SEQUENCES = TreeShape.chain(3), TreeShape.sequences(2, 2)
TREE = TreeShape([0, 0, 0, 1, 1])
GRID = ScoreGrid.of(2, "cpu", octaves=2, per_octave=2)


def on_sequences(kernel: Any, grid: ScoreGrid | None = None) -> Any:
    """Wrap a kernel of sequences for two sequences of two tokens, with a grid on the device."""

    def verify(candidates: torch.Tensor, *rest: Any, **over: Any) -> Verified:
        device = candidates.device
        paths = torch.arange(1, 5, device=device).view(2, 2).T.expand(len(candidates), -1, -1)
        grids = () if grid is None else (grid if device.type == "cpu" else elsewhere(grid, device),)
        found: Verified = kernel(candidates, paths, *rest, *grids, **over)
        return found

    return verify


def elsewhere(grid: ScoreGrid, device: torch.device) -> ScoreGrid:
    """Return the grid as made on another device, without numbers."""
    tensors: dict[str, Any] = {
        name: torch.empty(value.shape, dtype=value.dtype, device=device)
        for name, value in vars(grid).items()
        if isinstance(value, torch.Tensor)
    }
    return dataclasses.replace(grid, **tensors)


def on_a_tree(kernel: Any) -> Any:
    """Wrap a kernel of trees for a tree of three children, of which the first has two."""

    def verify(candidates: torch.Tensor, *rest: Any, **over: Any) -> Verified:
        links = torch.full((2, 6), -1, dtype=torch.int64, device=candidates.device)
        links[0, :2] = torch.arange(1, 5, 3, device=candidates.device)
        links[1, 1:3] = torch.arange(2, 4, device=candidates.device)
        links[1, 4] = 5
        children, siblings = links[:, None].expand(-1, len(candidates), -1)
        found: Verified = kernel(candidates, children, siblings, *rest, depth=2, **over)
        return found

    return verify


KERNELS: dict[str, tuple[Any, TreeShape]] = {
    "token by token": (token_by_token, CHAIN),
    "block": (block, CHAIN),
    "refined scores": (on_sequences(refined_scores, GRID), SEQUENCES),
    "optimal by vertex": (on_sequences(optimal_by_vertex, GRID), SEQUENCES),
    "block K-SEQ": (on_sequences(block_kseq), SEQUENCES),
    "recursive rejection": (on_a_tree(recursive_rejection), TREE),
    "traversal": (on_a_tree(traversal), TREE),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


class Given(np.random.Generator):
    """A generator of known uniforms, in the order in which the library's decoders ask for numbers.

    Args:
        tests: for each accept step, in their order.
        final: for the last token.
    """

    def __init__(self, tests: Sequence[float], final: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.tests, self.final = list(tests), final

    def random(self, size: Any = None, *rest: Any) -> Any:  # type: ignore[override]
        if size is None:
            return self.tests.pop(0)
        if isinstance(size, tuple):  # a rule's: one for each draft, and one for the residual
            return np.array([[self.tests.pop(0) for _ in range(size[1] - 1)] + [self.final]])
        return np.array([self.final])


@dataclasses.dataclass(frozen=True)
class Requests:
    """A batch on drafted trees of one shape, in float64.

    Attributes:
        shape: of the trees.
        candidates, target, draft, uniforms, final: as the kernels take them.
    """

    shape: TreeShape
    candidates: torch.Tensor
    target: torch.Tensor
    draft: torch.Tensor
    uniforms: torch.Tensor
    final: torch.Tensor

    @classmethod
    def random(
        cls, shape: TreeShape, size: int, num_tokens: int, seed: int, *, distinct: bool = False
    ) -> Requests:
        """Draw requests with every irregularity of rows, siblings with or without replacement.

        A node is −1 where a row has no token left. Nodes of one text have equal rows.
        """
        rng = np.random.default_rng(seed)
        n = shape.num_nodes + 1
        pairs = [[random_pair_of_rows(num_tokens, rng) for _ in range(n)] for _ in range(size)]
        draft, target = (np.array([[pair[i] for pair in row] for row in pairs]) for i in (0, 1))
        tokens = np.full((size, n), -1)
        for b in range(size):
            left = draft[b].copy()
            known: dict[int, tuple[int, ...]] = {0: (0,)}
            for node in range(1, n):
                parent = int(shape.parents[node - 1])
                mass = left[parent]
                if mass.sum() > 0.0 and (parent == 0 or tokens[b, parent] >= 0):
                    tokens[b, node] = rng.choice(num_tokens, p=mass / mass.sum())
                    if distinct:
                        mass[tokens[b, node]] = 0.0
                    known[node] = (*known[parent], int(tokens[b, node]))
                    same = next(i for i, text in known.items() if text == known[node])
                    draft[b, node], target[b, node] = draft[b, same], target[b, same]
                    left[node] = draft[b, node]
        made = (tokens, target, draft, rng.random((size, n)), rng.random(size))
        return cls(shape, *map(torch.from_numpy, made))

    @property
    def links(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first child of each node and the next sibling, `(B, n)` twice."""
        parents = [-1, *self.shape.parents.tolist()]
        nodes, nothing = np.array(parents), np.empty(0)
        tree = DraftedTree(nodes, nodes, nothing, nothing, replacement=False)
        first, sibling = (torch.tensor(one) for one in (tree.first_child, tree.next_sibling))
        size = len(self.final)
        return first.expand(size, -1).contiguous(), sibling.expand(size, -1).contiguous()

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        """The arguments of a chain's kernel."""
        return self.candidates, self.target, self.draft, self.uniforms, self.final

    def written(
        self, decoder: Decoder, b: int, tests: Callable[[np.ndarray], Sequence[float]]
    ) -> list[int]:
        """Return the tokens that the library writes on the same rows and uniforms.

        Args:
            decoder: the library's.
            b: which request.
            tests: its accept steps' uniforms in the order in which it asks for them, from those
                of nodes 1, 2, ….
        """
        contexts: list[Any] = [()]
        # a context is the path of nodes, so that nodes of equal tokens have rows of their own
        tokens = self.candidates[b].numpy()
        for parent in self.shape.parents:
            contexts.append((*contexts[parent], int(tokens[len(contexts)])))
        rows = {context: i for i, context in enumerate(contexts)}
        tree = DraftTree(
            self.shape,
            (),
            np.concatenate([[-1], tokens[1:]]),
            {context: self.draft[b, i].numpy() for context, i in rows.items()},
        )
        given = Sampled(Given(tests(self.uniforms[b].numpy()), float(self.final[b])))
        return list(decoder.verify(tree, lambda c: self.target[b, rows[c]].numpy(), given).tokens)


def texts(tokens: torch.Tensor, count: torch.Tensor) -> list[list[int]]:
    """Return the tokens of each request, after checking that only −1 follows."""
    for row, number in zip(tokens, count, strict=True):
        assert row[number:].eq(-1).all() and row[:number].ge(0).all()
    return [row[:number].tolist() for row, number in zip(tokens, count, strict=True)]


def check_nodes(found: Verified, candidates: torch.Tensor) -> None:
    """Check that the kept drafts stand at the told nodes."""
    kept = found.nodes[:, 1:] > 0
    drafted = candidates.gather(1, found.nodes.clamp(min=0))[:, 1:]
    assert drafted[kept].equal(found.tokens[:, :-1][kept])


def completion(target: TableModel, text: tuple[int, ...], length: int) -> np.ndarray:
    """Return the target's law of the tokens after a text, up to `length` tokens in all."""
    if len(text) == length:
        return np.array(1.0)
    return np.array(
        [
            q * completion(target, (*text, token), length)
            for token, q in enumerate(target.next(text))
        ]
    )


def texts_differ(found: Verified, target: TableModel, rng: np.random.Generator) -> float:
    """Return χ² of texts that steps begin and the target completes, against the target's law."""
    length = found.tokens.shape[1]
    law = np.zeros((target.num_tokens,) * length)
    for text, count in collections.Counter(map(tuple, texts(found.tokens, found.count))).items():
        rest = completion(target, text, length)
        law[text] += rng.multinomial(count, rest.reshape(-1)).reshape(rest.shape)
    wanted = law.sum() * sequence_law(target, context=[], length=length)
    return float(((law - wanted) ** 2 / wanted).sum())
