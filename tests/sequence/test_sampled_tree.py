"""Trees grown by what was drafted: where drafts go, that any rule of growth on the past is
lossless, and one that is not.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm.sequence import (
    DraftTree,
    PredictableTree,
    SampledTree,
    SpeculativeSampling,
    TraversalVerification,
    ZerothOrder,
    outcomes,
    step_law,
)
from otm.sequence.models import Context, LanguageModel
from otm.sequence.randomness import Randomness
from otm.sequence.sampled_tree import GrowingTree
from otm.trees import TreeShape
from tests.sequence.toys import SUCCESSIVE, bias, distance, random_models, smooth_models


def trees(
    decoder: PredictableTree, model: LanguageModel
) -> dict[tuple[Context | None, ...], float]:
    found: dict[tuple[Context | None, ...], float] = {}
    for tree, mass in outcomes(lambda randomness: decoder.draft(model, (), randomness)):
        key = tuple(tree.contexts())
        found[key] = found.get(key, 0.0) + mass
    return found


def test_the_most_valuable_slot_goes_next() -> None:
    """(3/4, 1/4): after 0 the slot below is worth 3/4, then 9/16 below 00; after 01, of 3/16, the
    sibling of 0 is worth 1/4.
    """
    found = trees(SampledTree(3, 3), ZerothOrder([0.75, 0.25]))
    exact = {
        ((), (0,), (0, 0), (0, 0, 0)): Fraction(27, 64),
        ((), (0,), (0, 0), (0, 0, 1)): Fraction(9, 64),
        ((), (0,), (0, 1), (0, 0)): Fraction(3, 16),  # beside 01: worth 9/16
        ((), (1,), (0,), (0, 0)): Fraction(3, 16),
        ((), (1,), (0,), (0, 1)): Fraction(1, 16),
    }
    assert found == {path: pytest.approx(float(mass), abs=1e-15) for path, mass in exact.items()}
    # After 0 what is below is worth .6, what is beside it 1 − .6, not 1 − .6².
    assert trees(SampledTree(2, 2), ZerothOrder([0.6, 0.4])) == {
        ((), (0,), (0, 0)): pytest.approx(0.36),
        ((), (0,), (0, 1)): pytest.approx(0.24),
        ((), (1,), (0,)): pytest.approx(0.4),
    }


def test_one_token_ends_the_siblings() -> None:
    assert trees(SampledTree(5, 2), ZerothOrder([0.0, 1.0])) == {((), (1,), (1, 1)): 1.0}


@pytest.mark.parametrize("seed", range(4))
def test_a_chain_of_a_certain_drafter_is_speculative_sampling(seed: int) -> None:
    """One level, one draft; and as many drafts as tokens lose nothing."""
    draft, target = smooth_models(3, 1, seed)
    models = {"draft": draft, "target": target, "context": []}
    one = step_law(SampledTree(1, 1, otm.RecursiveRejection()), **models)
    assert distance(one, step_law(SpeculativeSampling(1), **models)) <= 1e-15
    assert step_law(
        SampledTree(3, 1, otm.RecursiveRejection()), **models
    ).block_efficiency == pytest.approx(2.0, abs=1e-14)


@dataclasses.dataclass(frozen=True)
class Whimsical(PredictableTree):
    """Grows by the parity of all tokens drafted so far: anything that is about the past."""

    rule: otm.Verifier | None

    @property
    def verifier(self) -> otm.Verifier | None:
        return self.rule

    @property
    def num_nodes(self) -> int:
        return 4

    @property
    def depth(self) -> int:
        return 2

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        growing, sum_so_far = GrowingTree(model, context), 0
        for _ in range(4):
            open_slots = [
                v
                for v in range(len(growing.contexts))
                if growing.level(v) < 2 and growing.left(v).any()
            ]
            if sum_so_far % 5 == 4 or not open_slots:
                break
            child, _ = growing.draw_child(open_slots[sum_so_far % len(open_slots)], randomness)
            sum_so_far += 1 + growing.contexts[child][-1]
        return growing.tree()


@pytest.mark.parametrize("rule", SUCCESSIVE, ids=repr)
def test_any_growth_that_looks_at_the_past_is_lossless(rule: otm.Verifier | None) -> None:
    shapes = set()
    for seed in range(6):
        draft, target = random_models(3, 2, np.random.default_rng([25, seed]))
        assert bias(Whimsical(rule), draft, target, step=step_law) <= 1e-12
        shapes |= {len(contexts) for contexts in trees(Whimsical(rule), draft)}
    assert len(shapes) > 1


@dataclasses.dataclass(frozen=True)
class SkippedByToken(SampledTree):
    """Does without verification where the draft is token 0."""

    def draft(self, model: LanguageModel, context: Context, randomness: Randomness) -> DraftTree:
        tree = SampledTree(1, 1).draft(model, context, randomness)
        if tree.tokens[1] != 0:
            return tree
        return dataclasses.replace(tree, shape=TreeShape([]), tokens=np.array([-1]))


@pytest.mark.parametrize("rule", SUCCESSIVE[:2], ids=repr)
def test_a_look_at_the_token_is_not(rule: otm.Verifier | None) -> None:
    """Equal models (1/2, 1/2): draft 1 stands, draft 0 becomes a sample: (1/4, 3/4), a total
    variation of 1/4.
    """
    model = ZerothOrder([0.5, 0.5])
    assert bias(SkippedByToken(1, 1, rule), model, model, step=step_law) == pytest.approx(
        0.25, abs=1e-15
    )


def test_traversal_of_a_chain_that_grows_is_block_verification() -> None:
    """p(0) = 1: the tree is a chain in every outcome."""
    draft, target = ZerothOrder([1.0, 0.0]), ZerothOrder([0.25, 0.75])
    models = {"draft": draft, "target": target, "context": []}
    found = step_law(SampledTree(3, 3), **models)
    assert distance(found, step_law(TraversalVerification(TreeShape.chain(3)), **models)) <= 1e-15
