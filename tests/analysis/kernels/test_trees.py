"""Recursive rejection on trees: the library's path on the same uniforms, and the exact audit."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from otm import audit
from otm.audit.end_to_end import JointAudit
from otm.sequence import Gsd
from otm.trees import TreeShape
from tests.analysis.kernels.steps import Requests, check_nodes, texts
from tests.sequence.toys import smooth_models


@pytest.mark.parametrize("factors", [(3,), (3, 1, 2)])
def test_the_same_uniforms_accept_the_library_s_path(factors):
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
    check_nodes(found, requests.candidates)


BELOW, SURE = 0.5 - 2**-20, [0.25, 0.125, 0.5, 0.125]
NEARLY_SURE = [
    *((1 - 2**-24, rest, torch.float32) for rest in (1e-9, 3e-17, 1e-39, 1.4e-45)),
    *((1.0, rest, torch.float64) for rest in (1e-152, 1e-300)),
]
NEARLY = [([0, 1], (0.9, 0.249, 0.1), [1, 0]), ([0, 1], (0.9, 0.251, 0.1), [2])]


@pytest.mark.parametrize(
    ("kernel", "q", "p", "dtype", "cases"),
    [
        (
            recursive_rejection,
            SURE,
            None,
            torch.float32,
            [
                ([2, 0], (BELOW, 0.5, 0.9), [2, 3]),
                ([2, 0], (0.5, BELOW, 0.1), [0, 0]),
                ([2, 0], (0.5, 0.5, BELOW), [1]),
                ([2, 0], (0.5, 0.5, 0.5), [3]),
            ],
        ),
        *(
            (kernel, [0.2, 0.1, 0.7], [first, rest, rest], dtype, NEARLY)
            for kernel, (first, rest, dtype) in itertools.product(
                (recursive_rejection, traversal), NEARLY_SURE
            )
        ),
    ],
)
def test_two_children_by_hand(kernel, q, p, dtype, cases):
    """Of q = (.25, .125, .5, .125) the sure children 2 and 0: the first with u < 1/2, the second
    with u < (1/4)/(1/2), else a token of (0, 1/2, 0, 1/2).

    Of p = (1 − 2⁻²⁴, ε, ε), down to the least number, the first token is rejected: of r = (0, 1,
    7)/8 and p = (0, 1, 1)/2 the second child is accepted with 1/4, and the third is left. What a
    nearly sure draft leaves its second child is not rounding.
    """
    links = torch.tensor([[1, -1, -1]]), torch.tensor([[-1, 2, -1]])
    target = torch.tensor([[q]], dtype=dtype).expand(1, 3, -1)
    draft = None if p is None else torch.tensor([[p]], dtype=dtype)
    for tokens, (first, second, last), wanted in cases:
        uniforms = torch.tensor([[first, second, 0.0]], dtype=dtype)
        final = torch.tensor([last], dtype=dtype)
        found = kernel(
            torch.tensor([[-1, *tokens]]), *links, target, draft, uniforms, final, depth=1
        )
        assert texts(found.tokens, found.count) == [wanted]


def drawn(tree, _):
    """The step of a tree on uniforms that are drawn from torch."""
    arrays = tree.tokens, tree.first_child, tree.next_sibling, tree.target, tree.draft
    given = [torch.from_numpy(np.ascontiguousarray(one))[None] for one in arrays]
    uniforms = torch.rand((1, len(tree.tokens) + 1), dtype=torch.float64)
    step = recursive_rejection(*given, uniforms[:, :-1], uniforms[:, -1], depth=2)
    return step.tokens[0, : step.count[0]].tolist()


@pytest.mark.parametrize(
    "parents", [(-1, 0, 0), pytest.param((-1, 0, 0, 1), marks=pytest.mark.long)]
)
def test_lossless_by_the_exact_audit(parents):
    """Its draws are followed through torch, that of the token after the path among them."""
    draft, target = smooth_models(3, 4, 1)
    found = audit.tree_kernel(
        drawn, draft=draft, target=target, parents=parents, rng=0, replacement=False
    )
    assert (found.verdict, type(found)) == ("lossless", JointAudit)
    assert found.total_variation < 1e-14
