"""Refused requests of every kernel of verification on rows of sharp models.

Models of order one: a node's rows are those of its token. Their logits are of deviation 3, or tails
of 20 to 80 below one token; the target's are independent of the draft's, near them, or a unit in
the last place off. Drafts are drawn from the draft's rows after temperature and filter, siblings of
the tree that recursive rejection verifies without replacement. Every such step is sound, so that
each count is to be 0.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from analysis.kernels.block_kseq import block_kseq
from analysis.kernels.chain import block, token_by_token
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import refined_scores
from analysis.kernels.step import Tensor, Verified, probabilities
from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from analysis.kernels.vertices import optimal_by_vertex
from otm import Processing

SAID = {"requests": "24 of each kind of model"}
TEMPERATURES = 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01
TYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
FILTERS: dict[str, dict[str, Any]] = {"none": {}, "top-k": {"top_k": 20}, "top-p": {"top_p": 0.9}}
SEQUENCES = 1, 2, 4, 8
"""K; each of `LENGTH` tokens."""
LENGTH = 3
VOCABULARIES = 50, 1000
REQUESTS = 24

TREE = (0, 0, 0, 1, 1, 2, 4, 4)
"""The parents of a tree's nodes, from the first on."""


@dataclasses.dataclass(frozen=True)
class Drafting:
    """How the nodes of a step are drafted, and the verification of such steps.

    Attributes:
        parents: of the nodes 1, 2, ….
        distinct: whether siblings are drawn without replacement.
        verify: of candidates, target, draft, uniforms and final.
    """

    parents: tuple[int, ...]
    distinct: bool
    verify: Callable[..., Verified]


def kernels(k: int) -> Iterator[tuple[str, Drafting]]:
    """Yield each kernel's name and what it verifies, those of sequences for K of them."""
    chain = tuple(range(2 * LENGTH))
    several = (*k * (0,), *range(1, k * (LENGTH - 1) + 1))
    paths = (1 + torch.arange(k * LENGTH)).view(1, LENGTH, k).mT

    def on_sequences(kernel: Callable[..., Verified], *grid: ScoreGrid) -> Callable[..., Verified]:
        return lambda x, *rest: kernel(x, paths.expand(len(x), -1, -1), *rest, *grid)

    grid = ScoreGrid.of(k, "cpu")
    yield "refined scores", Drafting(several, False, on_sequences(refined_scores, grid))
    yield "optimal by vertex", Drafting(several, False, on_sequences(optimal_by_vertex, grid))
    yield "block K-SEQ", Drafting(several, False, on_sequences(block_kseq))
    if k == SEQUENCES[0]:
        yield "token by token", Drafting(chain, False, token_by_token)
        yield "block", Drafting(chain, False, block)
        links = torch.full((2, 1, len(TREE) + 1), -1)
        for node, parent in reversed(list(enumerate(TREE, start=1))):
            links[1, 0, node], links[0, 0, parent] = links[0, 0, parent].item(), node
        for name, kernel, more in (
            ("recursive rejection", recursive_rejection, {}),
            ("traversal", traversal, {}),
            ("traversal, independent siblings", traversal, {"distinct": False}),
        ):
            verify = functools.partial(_on_a_tree, kernel, links, more)
            yield name, Drafting(TREE, name == "recursive rejection" or not more, verify)


def _on_a_tree(
    kernel: Callable[..., Verified], links: Tensor, more: dict[str, Any], x: Tensor, *rest: Any
) -> Verified:
    first, sibling = links.expand(-1, len(x), -1)
    return kernel(x, first, sibling, *rest, depth=4, **more)


def models(num_tokens: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits `(V, V)` of draft and target, the rows by the last token."""
    normal = functools.partial(
        torch.randn, (num_tokens, num_tokens), dtype=torch.float64, generator=generator
    )
    draft = 3.0 * normal()
    yield draft, 3.0 * normal()
    yield draft, draft + 0.5 * normal()
    yield draft, torch.nextafter(draft, draft + normal())
    tails = -20.0 - 60.0 * torch.rand((2, *draft.shape), dtype=torch.float64, generator=generator)
    tails[:, :, 0] = 0.0
    yield tails[0], tails[1]
    yield tails[0], tails[0] + 0.01 * normal()


def laws(logits: Tensor, temperature: float, kept: dict[str, Any], type_: torch.dtype) -> Tensor:
    """Return rows `(V, V)` of probabilities as a sampler makes them of logits of a type."""
    warm = (logits / temperature).to(type_)
    if type_ != torch.float64:
        warm = probabilities(warm[None], torch.ones(1))[0].log()
    return Processing(**kept)(warm) if kept else torch.softmax(warm, dim=-1)


def step(
    drafting: Drafting, draft: Tensor, target: Tensor, requests: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Return what a step's verification is given: candidates, rows, uniforms."""
    number = len(drafting.parents) + 1
    tokens = torch.full((requests, number), -1)
    tokens[:, 0] = torch.randint(len(draft), (requests,), generator=generator)
    left: dict[int, Tensor] = {}
    for node, parent in enumerate(drafting.parents, start=1):
        above = tokens[:, parent]
        # in float32 what siblings leave may be too little to draw from
        mass = left.setdefault(parent, draft[above.clamp(min=0)].double())
        sound = (mass.sum(dim=-1) > 0.0) & (above >= 0)
        drawn = torch.multinomial(torch.where(sound[:, None], mass, 1.0), 1, generator=generator)
        tokens[:, node] = torch.where(sound, drawn[:, 0], -1)
        if drafting.distinct:
            mass.scatter_(1, drawn, 0.0)
    rows = tokens.clamp(min=0)
    uniforms = torch.rand((requests, number + 1), dtype=torch.float64, generator=generator)
    return tokens, target[rows], draft[rows], uniforms[:, :-1], uniforms[:, -1]


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Return how many requests each kernel refuses, by type, temperature and filter."""
    del seconds
    found: dict[tuple[object, ...], list[int]] = {}
    for num_tokens, k in itertools.product(VOCABULARIES, SEQUENCES):
        generator = torch.Generator().manual_seed(k)
        for logits in models(num_tokens, generator):
            for (type_, number), heat, (filter_, kept) in itertools.product(
                TYPES.items(), TEMPERATURES, FILTERS.items()
            ):
                draft, target = (laws(one, heat, kept, number) for one in logits)
                for name, drafting in kernels(k):
                    given = step(drafting, draft, target, REQUESTS, generator)
                    count = drafting.verify(*given).count
                    row = found.setdefault((name, type_, heat, filter_), [0, 0])
                    row[0] += int((count == 0).sum())
                    row[1] += len(count)
    columns = "kernel", "type", "temperature", "filter"
    return [
        dict(zip(columns, key, strict=True)) | {"refused": refused, "requests": number}
        for key, (refused, number) in sorted(found.items(), key=str)
    ]
