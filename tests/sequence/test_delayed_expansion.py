"""Delayed expansion: the list of shapes, exact tokens by hand, and when it pays to branch late."""

from __future__ import annotations

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockVerification,
    GreedyMultipath,
    MarkovModel,
    TreeVerification,
    delayed_expansions,
    expected_step,
)
from otm.trees import TreeShape
from tests.sequence.toys import smooth_models

DRAFT, TARGET = MarkovModel([[0.0, 1.0], [0.75, 0.25]]), MarkovModel([[0.0, 1.0], [0.25, 0.75]])
MODELS = {"draft": DRAFT, "target": TARGET, "context": [0]}


def multipath(stem: int, branches: int, length: int) -> GreedyMultipath:
    return GreedyMultipath(branches, length, stem)


def by_vertex(stem: int, branches: int, length: int) -> TreeVerification:
    return TreeVerification(TreeShape.delayed(stem, branches, length), otm.IID(1), otm.Optimal())


def test_every_shape_within_the_budget_once() -> None:
    found = delayed_expansions(by_vertex, **MODELS, num_nodes=5)
    shapes = [(one.stem, one.num_branches, one.length) for one in found]
    wanted = {
        (s, k, n) for s in range(5) for k in range(2, 6) for n in range(1, 3) if s + k * n <= 5
    }
    assert len(shapes) == len(set(shapes))
    assert set(shapes) == wanted | {(0, 1, n) for n in range(1, 6)}
    assert [one.speed for one in found] == sorted((one.speed for one in found), reverse=True)


@pytest.mark.parametrize("make", [multipath, by_vertex])
def test_where_the_models_agree_first_it_pays_to_branch_late(make: object) -> None:
    """The first token is certain; of three drafts after it one is a 1 with 1 − (3/4)³ = 37/64, of
    3/4 wanted, and 0 has its 1/4.
    """
    best = delayed_expansions(make, **MODELS, num_nodes=4, draft_cost=0.1)[0]  # type: ignore[arg-type]
    assert (best.stem, best.num_branches, best.length) == (1, 3, 1)
    assert best.tokens == pytest.approx(1 + 1 + 37 / 64 + 1 / 4, abs=1e-14)
    assert best.speed == pytest.approx(best.tokens / 1.2, abs=1e-14)


def test_free_drafts_make_long_chains() -> None:
    best = delayed_expansions(multipath, **MODELS, num_nodes=4)[0]
    assert (best.stem, best.num_branches, best.length) == (0, 1, 4)
    chain = expected_step(BlockVerification(4), **MODELS)
    assert best.tokens == pytest.approx(chain.block_efficiency, abs=1e-14)


def test_a_stem_and_one_branch_are_a_chain() -> None:
    draft, target = smooth_models(2, 3, 0)
    models = {"draft": draft, "target": target, "context": []}
    delayed = expected_step(multipath(2, 1, 1), **models).block_efficiency
    assert delayed == pytest.approx(
        expected_step(BlockVerification(3), **models).block_efficiency, abs=1e-14
    )


def test_wrong_arguments() -> None:
    for wrong in (
        {"num_nodes": 0},
        {"num_nodes": np.ones((50, 2))},
        {"num_nodes": 2, "draft_cost": -1.0},
    ):
        with pytest.raises(otm.errors.InvalidParameter, match=r"(?s)^.{,200}$"):
            delayed_expansions(multipath, **MODELS, **wrong)
