"""Traversal verification: the library's texts on the same uniforms."""

from __future__ import annotations

import numpy as np
import pytest

import otm
from analysis.kernels.traversal import traversal
from otm.sequence import TraversalVerification
from otm.trees import TreeShape
from tests.analysis.kernels.steps import Requests, texts

SHAPES = {
    "chain": TreeShape.chain(3),
    "children": TreeShape([0, 0, 0]),
    "sequences": TreeShape.sequences(2, 2),
    "uneven": TreeShape([0, 0, 1, 0, 3, 3, 3, 6, 4]),
}


def left_in_order(shape: TreeShape, tokens: np.ndarray) -> list[int]:
    """The drafted nodes but the root as they are left, children before their parent."""
    order: list[int] = []

    def visit(node: int) -> None:
        for child in shape.children(node):
            if tokens[child] < 0:
                break
            visit(child)
        order.append(node)

    visit(0)
    return order[:-1]


@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_the_same_uniforms_write_the_library_s_tokens(name: str, distinct: bool) -> None:
    shape, size = SHAPES[name], 60
    requests = Requests.random(shape, size, 4, 3, distinct=distinct)
    found = traversal(
        requests.candidates,
        *requests.links,
        *requests.arguments[1:],
        depth=shape.depth,
        distinct=distinct,
    )
    law = otm.WithoutReplacement(1) if distinct else otm.IID(1)
    decoder = TraversalVerification(shape, law)
    written = texts(found.tokens, found.count)
    for b in range(size):
        order = left_in_order(shape, requests.candidates[b].numpy())
        wanted = requests.written(decoder, b, lambda u, order=order: u[[i - 1 for i in order]])
        assert written[b] == wanted
    assert len({len(text) for text in written}) >= min(3, shape.depth + 1)
