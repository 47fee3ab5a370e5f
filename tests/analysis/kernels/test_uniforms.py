"""Chains, sequences and trees on the library's uniforms, by hand, and what rounding may not do."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

import otm
from analysis.kernels.block_kseq import block_kseq, division
from analysis.kernels.chain import block, token_by_token
from analysis.kernels.step import Verified
from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from otm import audit
from otm.audit.end_to_end import JointAudit
from otm.sequence import (
    BlockKSeq,
    BlockVerification,
    Gsd,
    SpeculativeSampling,
    TraversalVerification,
)
from otm.trees import TreeShape
from otm.verifiers.kseq import gamma_star
from tests.analysis.kernels.steps import Requests, check_nodes, texts
from tests.sequence.toys import random_pair_of_rows, smooth_models


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel and the library's decoder, which asks for uniforms of nodes 1, 2, … in an order."""

    shape: TreeShape
    kernel: Callable[[Requests], Verified]
    decoder: otm.sequence.Decoder
    order: Callable[[np.ndarray], Sequence[int]]
    distinct: bool = False


def chains(n):
    """Token by token, and as a block from the longest prefix down."""
    shape, down = TreeShape.chain(n), list(reversed(range(n)))
    plain, whole = SpeculativeSampling(n), BlockVerification(n)
    return {
        f"token by token, {n}": Case(
            shape, lambda r: token_by_token(*r.arguments), plain, lambda _: range(n)
        ),
        f"block, {n}": Case(shape, lambda r: block(*r.arguments), whole, lambda _: down),
    }


def sequences(k, length):
    """Block K-SEQ: each sequence from its longest prefix down."""
    paths = (1 + torch.arange(k * length)).view(length, k).T
    order = (paths.flip(1).flatten() - 1).tolist()
    decoder = BlockKSeq(k, length)

    def kernel(r):
        return block_kseq(r.candidates, paths.expand(len(r.final), -1, -1), *r.arguments[1:])

    return Case(decoder.shape, kernel, decoder, lambda _: order)


def tree(shape, *, distinct):
    """Traversal: the drafted nodes as they are left, children before their parent."""

    def kernel(r):
        depth = shape.depth
        return traversal(r.candidates, *r.links, *r.arguments[1:], depth=depth, distinct=distinct)

    def left(tokens, node=0):
        live = itertools.takewhile(lambda child: tokens[child] >= 0, shape.children(node))
        order = [one for child in live for one in left(tokens, child)]
        return [*order, node - 1] if node else order

    law = otm.WithoutReplacement(1) if distinct else otm.IID(1)
    return Case(shape, kernel, TraversalVerification(shape, law), left, distinct)


SHAPES = {
    "chain": TreeShape.chain(3),
    "children": TreeShape([0, 0, 0]),
    "sequences": TreeShape.sequences(2, 2),
    "uneven": TreeShape([0, 0, 1, 0, 3, 3, 3, 6, 4]),
}
CASES = (
    {name: case for n in (1, 2, 4) for name, case in chains(n).items()}
    | {f"block K-SEQ, {k} of {n}": sequences(k, n) for k, n in ((1, 2), (3, 1), (2, 3))}
    | {
        f"traversal, {name}, {distinct}": tree(shape, distinct=distinct)
        for name, shape in SHAPES.items()
        for distinct in (True, False)
    }
)


@pytest.mark.parametrize("name", CASES)
def test_the_same_uniforms_write_the_library_s_tokens(name):
    """And the nodes that are told are a path from the root with these tokens."""
    case, size = CASES[name], 80
    requests = Requests.random(case.shape, size, 4, 3, distinct=case.distinct)
    found = case.kernel(requests)
    written = texts(found.tokens, found.count)
    for b in range(size):
        order = list(case.order(requests.candidates[b].numpy()))
        assert written[b] == requests.written(case.decoder, b, lambda u, o=order: u[o])
    assert {1, 2, min(3, case.shape.depth + 1)} <= {len(text) for text in written}
    check_nodes(found, requests.candidates)
    parents, below = torch.tensor([-1, *case.shape.parents]), found.nodes[:, 1:]
    assert parents[below.clamp(min=0)][below > 0].equal(found.nodes[:, :-1][below > 0])


@pytest.mark.parametrize("kernel", [token_by_token, block])
def test_impossible_tokens_never_come_out(kernel):
    """Uniforms at both ends of their range, where `≤` and rounded sums would let them."""
    draft = torch.tensor([[[0.5, 0.5, 0.0]]])
    target = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    for first, last in itertools.product([0.0, 1.0 - 2**-24], repeat=2):
        found = kernel(
            torch.tensor([[7, 1]]),
            target,
            draft,
            torch.tensor([[first, 0.0]]),
            torch.tensor([last]),
        )
        assert (found.tokens.tolist(), found.count.tolist()) == ([[0, -1]], [1])


def test_equal_laws_up_to_rounding_leave_a_token():
    """q is p less its last bit everywhere and the uniform is next to 1: rejected by rounding,
    nothing in the residual.
    """
    draft = torch.full((1, 1, 2), 0.5, dtype=torch.float64)
    target = torch.cat([torch.nextafter(draft, torch.zeros_like(draft)), draft], dim=1)
    uniforms = torch.tensor([[1.0 - 2**-53, 0.5]], dtype=torch.float64)
    found = token_by_token(torch.tensor([[0, 0]]), target, draft, uniforms, uniforms[:, 1] / 2)
    assert found.tokens.tolist() == [[0, -1]]


def test_division_factors_are_the_library_s_from_above():
    """Rows of every kind, point masses and disjoint supports among them."""
    rng = np.random.default_rng(0)
    pairs = [random_pair_of_rows(5, rng) for _ in range(60)]
    p, q = (torch.from_numpy(np.array(rows)) for rows in zip(*pairs, strict=True))
    for k in (1, 3):
        found, share = division(p, q, k)
        wanted = gamma_star(otm.Problem(draft=p.numpy(), target=q.numpy(), law=otm.IID(k)))
        # 26 halvings of [1, K]; sums round by 1e-15, and where p = q the curve that is followed
        # is as flat as (γ − 1)^K
        np.testing.assert_allclose(
            found.numpy(), wanted, rtol=0, atol=k * 2.0**-26 + 1e-15 ** (1 / k)
        )
        assert (share <= 1.0).all() and (share >= 1.0 - 1e-5).all()


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
