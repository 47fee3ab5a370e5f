"""Chains against the library's decoders on the same uniforms."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from analysis.kernels.chain import block, token_by_token
from otm.sequence import BlockVerification, SpeculativeSampling
from otm.trees import TreeShape
from tests.analysis.kernels.steps import Requests, texts

KERNELS: dict[str, Any] = {
    "token by token": (token_by_token, SpeculativeSampling, lambda u: u[:-1]),
    # from the longest prefix down
    "block": (block, BlockVerification, lambda u: u[-2::-1]),
}
both = pytest.mark.parametrize("name", KERNELS)


@both
@pytest.mark.parametrize("length", [1, 2, 4])
def test_the_same_uniforms_write_the_library_s_tokens(name: str, length: int) -> None:
    kernel, decoder, tests = KERNELS[name]
    requests = Requests.random(TreeShape.chain(length), 150, 4, length)
    found = kernel(*requests.arguments)
    written = texts(found.tokens, found.count)
    assert written == [requests.written(decoder(length), b, tests) for b in range(150)]
    assert {len(text) for text in written} == set(range(1, length + 2))
    place = torch.arange(length + 1)
    assert found.nodes.equal(torch.where(place < found.count[:, None], place, -1))


@both
def test_impossible_tokens_never_come_out(name: str) -> None:
    """Uniforms at both ends of their range, where `≤` and rounded sums would let them."""
    draft = torch.tensor([[[0.5, 0.5, 0.0]]])
    target = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    for first, last in itertools.product([0.0, 1.0 - 2**-24], repeat=2):
        found = KERNELS[name][0](
            torch.tensor([[7, 1]]),
            target,
            draft,
            torch.tensor([[first, 0.0]]),
            torch.tensor([last]),
        )
        assert (found.tokens.tolist(), found.count.tolist()) == ([[0, -1]], [1])


def test_equal_laws_up_to_rounding_leave_a_token() -> None:
    """q is p less its last bit everywhere and the uniform is next to 1: rejected by rounding,
    nothing in the residual.
    """
    draft = torch.full((1, 1, 2), 0.5, dtype=torch.float64)
    target = torch.cat([torch.nextafter(draft, torch.zeros_like(draft)), draft], dim=1)
    uniforms = torch.tensor([[1.0 - 2**-53, 0.5]], dtype=torch.float64)
    found = token_by_token(torch.tensor([[0, 0]]), target, draft, uniforms, uniforms[:, 1] / 2)
    assert found.tokens.tolist() == [[0, -1]]
