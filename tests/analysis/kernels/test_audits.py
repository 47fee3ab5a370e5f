"""Kernels of trees under the library's exact audit: their draws are followed through torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from analysis.kernels.block_kseq import block_kseq
from analysis.kernels.grid import ScoreGrid
from analysis.kernels.scores import refined_scores
from analysis.kernels.step import Verified
from analysis.kernels.traversal import traversal
from analysis.kernels.trees import recursive_rejection
from otm import audit
from otm.audit.end_to_end import JointAudit
from otm.audit.trees import DraftedTree
from otm.sequence import ZerothOrder
from tests.sequence.toys import smooth_models

CHILDREN, DEEPER = (-1, 0, 0), (-1, 0, 0, 1)
GRID = ScoreGrid.of(2, "cpu", cells=4, octaves=1, per_octave=1, groups=1)


def drawn(kernel: Callable[..., Verified]) -> Callable[[DraftedTree, Any], list[int]]:
    """A kernel of trees that draws its uniforms from torch."""

    def verify(tree: DraftedTree, _: Any) -> list[int]:
        arrays = tree.tokens, tree.first_child, tree.next_sibling, tree.target, tree.draft
        given = [torch.from_numpy(np.ascontiguousarray(one))[None] for one in arrays]
        uniforms = torch.rand((1, len(tree.tokens) + 1), dtype=torch.float64)
        step = kernel(*given, uniforms[:, :-1], uniforms[:, -1])
        return step.tokens[0, : step.count[0]].tolist()

    return verify


def of_two_drafts(kernel: Callable[..., Verified], *grid: ScoreGrid) -> Callable[..., Verified]:
    """A kernel of K sequences on two drafts of one token."""
    paths = torch.tensor([[[1], [2]]])
    return lambda candidates, child, sibling, *rest: kernel(candidates, paths, *rest, *grid)


BOTH = functools.partial(recursive_rejection, depth=2), functools.partial(traversal, depth=2)
INDEPENDENT = functools.partial(traversal, depth=2, distinct=False)
long = pytest.mark.long


@pytest.mark.parametrize(
    ("kernel", "parents", "replacement"),
    [
        (BOTH[0], CHILDREN, False),
        (BOTH[1], CHILDREN, False),
        pytest.param(BOTH[0], DEEPER, False, marks=long),
        pytest.param(BOTH[1], DEEPER, False, marks=long),
        pytest.param(INDEPENDENT, DEEPER, True, marks=long),
        pytest.param(of_two_drafts(block_kseq), CHILDREN, True, marks=long),
        pytest.param(of_two_drafts(refined_scores, GRID), CHILDREN, True, marks=long),
    ],
)
def test_lossless_by_the_exact_audit(
    kernel: Callable[..., Verified], parents: tuple[int, ...], replacement: bool
) -> None:
    draft, target = smooth_models(3, 4, 1)
    found = audit.tree_kernel(
        drawn(kernel), draft=draft, target=target, parents=parents, rng=0, replacement=replacement
    )
    assert (found.verdict, type(found)) == ("lossless", JointAudit)
    assert found.total_variation < 1e-14


def test_the_same_audit_finds_siblings_that_were_said_to_be_independent() -> None:
    found = audit.tree_kernel(
        drawn(INDEPENDENT),
        draft=ZerothOrder([0.5, 0.3, 0.2]),
        target=ZerothOrder([0.1, 0.45, 0.45]),
        parents=CHILDREN,
        rng=0,
        replacement=False,
    )
    assert found.verdict == "not lossless"
