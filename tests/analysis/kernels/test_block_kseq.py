"""Block K-SEQ: the library's texts on the same uniforms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import otm
from analysis.kernels.block_kseq import block_kseq, division
from otm.sequence import BlockKSeq
from otm.verifiers.kseq import gamma_star
from tests.analysis.kernels.steps import Requests, check_nodes, texts
from tests.sequence.toys import random_pair_of_rows


@pytest.mark.parametrize(("k", "length"), [(1, 2), (3, 1), (2, 3)])
def test_the_same_uniforms_write_the_library_s_tokens(k: int, length: int) -> None:
    decoder, size = BlockKSeq(k, length), 80
    requests = Requests.random(decoder.shape, size, 4, k)
    paths = (1 + torch.arange(k * length)).view(length, k).T
    found = block_kseq(requests.candidates, paths.expand(size, -1, -1), *requests.arguments[1:])
    # each sequence from its longest prefix down
    order = [int(node) - 1 for path in paths for node in path.flip(0)]
    wanted = [requests.written(decoder, b, lambda u: u[order]) for b in range(size)]
    assert texts(found.tokens, found.count) == wanted
    assert {len(text) for text in wanted} == set(range(1, length + 2))
    check_nodes(found, requests.candidates)


def test_division_factors_are_the_library_s_from_above() -> None:
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
