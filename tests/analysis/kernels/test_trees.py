"""Recursive rejection on trees: the library's path on the same uniforms, and the target's law."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from otm.sequence import Gsd
from otm.trees import TreeShape
from tests.analysis.kernels.steps import Requests, texts, texts_differ
from tests.sequence.toys import smooth_models


@pytest.mark.parametrize("factors", [(3,), (2, 2), (3, 1, 2)])
def test_the_same_uniforms_accept_the_library_s_path(factors: tuple[int, ...]) -> None:
    """The token after it is drawn from one law by different sums: by token here, by q/p there. The
    nodes of one level share uniforms by their rank, so that the library asks for them in a
    known order whatever it accepts.
    """
    parents, ranks, level = [], [], [0]
    for depth, width in enumerate(factors):
        places = [(parent, rank) for parent in level for rank in range(width)]
        level = list(range(len(parents) + 1, len(parents) + 1 + len(places)))
        parents += [parent for parent, _ in places]
        ranks += [sum(factors[:depth]) + rank for _, rank in places]
    shape, size = TreeShape(parents), 150
    requests = Requests.random(shape, size, 4, len(factors), distinct=True)
    by_rank = torch.from_numpy(np.random.default_rng(0).random((size, sum(factors))))
    uniforms = torch.nn.functional.pad(by_rank[:, ranks], (0, 1))
    requests = dataclasses.replace(requests, uniforms=uniforms)
    found = recursive_rejection(
        requests.candidates, *requests.links, *requests.arguments[1:], depth=len(factors)
    )
    written = texts(found.tokens, found.count)
    for b in range(size):
        order = by_rank[b].tolist()
        other = requests.written(Gsd(shape), b, lambda _, order=order: order)
        assert (written[b][:-1], len(written[b])) == (other[:-1], len(other))
    assert {len(text) for text in written} == set(range(1, len(factors) + 2))
    drafted = requests.candidates.gather(1, found.nodes.clamp(min=0))[:, 1:]
    kept = found.nodes[:, 1:] > 0
    assert drafted[kept].equal(found.tokens[:, :-1][kept])


def test_sure_children_are_the_target_s_sample() -> None:
    """Children 2 and 0 of q = (.25, .125, .5, .125): the first with u < 1/2, the second with u <
    (1/4)/(1/2), else a token of (0, 1/2, 0, 1/2).
    """
    q = torch.tensor([[[0.25, 0.125, 0.5, 0.125]]]).expand(1, 3, -1)
    links = torch.tensor([[1, -1, -1]]), torch.tensor([[-1, 2, -1]])
    below, above = 0.5 - 2**-20, 0.5
    for first, second, final, wanted in (
        (below, above, 0.9, [2, 3]),
        (above, below, 0.1, [0, 0]),
        (above, above, below, [1]),
        (above, above, above, [3]),
    ):
        uniforms = torch.tensor([[first, second, 0.0]])
        found = recursive_rejection(
            torch.tensor([[-1, 2, 0]]), *links, q, None, uniforms, torch.tensor([final]), depth=1
        )
        assert texts(found.tokens, found.count) == [wanted]


@pytest.mark.parametrize("rest", [1e-9, 2e-16, 3e-17, 1e-20, 1e-39, 1.4e-45])
@pytest.mark.parametrize("kernel", [recursive_rejection, traversal])
def test_what_a_nearly_sure_draft_leaves_its_second_child_is_not_rounding(
    kernel: Any, rest: float
) -> None:
    """p = (1 − 2⁻²⁴, ε, ε) in float32, down to its least number, the first token rejected: of r =
    (0, 1, 7)/8 and p = (0, 1, 1)/2 the second child is accepted with 1/4, and the third is left.
    """
    p = torch.tensor([[[1 - 2**-24, rest, rest]]])
    q = torch.tensor([[[0.2, 0.1, 0.7]]]).expand(1, 3, -1)
    links = torch.tensor([[1, -1, -1]]), torch.tensor([[-1, 2, -1]])
    for second, wanted in ((0.249, [1]), (0.251, [2])):
        uniforms = torch.tensor([[0.9, second, 0.0]])
        found = kernel(
            torch.tensor([[-1, 0, 1]]), *links, q, p, uniforms, torch.tensor([0.1]), depth=1
        )
        assert texts(found.tokens, found.count)[0][:1] == wanted
        assert int(found.count) == (2 if second < 0.25 else 1)


def test_steps_have_the_target_s_law() -> None:
    """20,000 trees of two children, the first of them with two: texts completed by the target, χ²
    of 27 texts at 10⁻⁶.
    """
    draft, target = smooth_models(3, 2, 4)
    pairs = list(itertools.permutations(range(3), 2))
    trees = list(itertools.product(pairs, pairs))

    def chance(context: tuple[int, ...], pair: tuple[int, int]) -> float:
        p = draft.next(context)
        return float(p[pair[0]] * p[pair[1]] / (1.0 - p[pair[0]]))

    mass = np.array([chance((), first) * chance(first[:1], second) for first, second in trees])
    rng, size = np.random.default_rng(0), 20_000
    chosen = rng.choice(len(trees), size, p=mass / mass.sum())
    contexts = [[(), a[:1], a[1:], (a[0], b[0]), (a[0], b[1])] for a, b in trees]
    q, p = (
        torch.tensor(np.array([[model.next(c) for c in row] for row in contexts]))[chosen].float()
        for model in (target, draft)
    )
    candidates = torch.tensor([[-1, *a, *b] for a, b in trees])[chosen]
    links = [torch.tensor(row).expand(size, -1) for row in ([1, 3, -1, -1, -1], [-1, 2, -1, 4, -1])]
    uniforms = torch.rand((size, 6), generator=torch.Generator().manual_seed(1))
    found = recursive_rejection(candidates, *links, q, p, uniforms[:, :5], uniforms[:, 5], depth=2)
    assert texts_differ(found, target, rng) <= chi2.isf(1e-6, 26)
