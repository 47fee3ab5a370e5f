"""Trees grown by what was drafted: where drafts go, that any rule of growth on the past is
lossless; every level of stochastic beams is a sample of sequences without
replacement, exactly, and their clocks by simulation.
"""

import dataclasses
import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm.sequence import (
    PredictableTree,
    SampledTree,
    StochasticBeam,
    ZerothOrder,
    outcomes,
    sequence_law,
    step_law,
)
from otm.sequence.sampled_tree import GrowingTree
from tests.contracts.alarms import alarms
from tests.sequence.toys import SUCCESSIVE, asked, bias, random_models, smooth_models


def trees(decoder, model):
    """The law of the drafted paths, in the order in which they were drafted."""
    found = Counter()
    for tree, mass in outcomes(lambda randomness: decoder.draft(model, (), randomness)):
        found[tuple(tree.contexts()[1:])] += mass
    return found


@pytest.mark.parametrize(
    ("decoder", "mass", "exact"),
    [
        # After 0 the slot below is worth 3/4, then 9/16 below 00; after 01, of 3/16, the sibling of
        # 0 is worth 1/4.
        (
            SampledTree(3, 3),
            [0.75, 0.25],
            {
                ((0,), (0, 0), (0, 0, 0)): Fraction(27, 64),
                ((0,), (0, 0), (0, 0, 1)): Fraction(9, 64),
                ((0,), (0, 1), (0, 0)): Fraction(3, 16),  # beside 01: worth 9/16
                ((1,), (0,), (0, 0)): Fraction(3, 16),
                ((1,), (0,), (0, 1)): Fraction(1, 16),
            },
        ),
        # After 0 what is below is worth .6, what is beside it 1 − .6, not 1 − .6².
        (
            SampledTree(2, 2),
            [0.6, 0.4],
            {((0,), (0, 0)): 0.36, ((0,), (0, 1)): 0.24, ((1,), (0,)): 0.4},
        ),
        # one token ends the siblings
        (SampledTree(5, 2), [0.0, 1.0], {((1,), (1, 1)): 1.0}),
    ],
)
def test_the_most_valuable_slot_goes_next(decoder, mass, exact):
    wanted = {paths: pytest.approx(float(mass), abs=1e-15) for paths, mass in exact.items()}
    assert trees(decoder, ZerothOrder(mass)) == wanted


def test_as_many_drafts_as_tokens_lose_nothing():
    decoder = SampledTree(3, 1, otm.RecursiveRejection())
    law = step_law(decoder, **asked(smooth_models(3, 1, 0)))
    assert law.block_efficiency == pytest.approx(2.0, abs=1e-14)


@dataclasses.dataclass(frozen=True)
class Whimsical(PredictableTree):
    """Grows by the parity of all tokens drafted so far: anything that is about the past."""

    num_nodes, depth = 4, 2
    verifier: otm.Verifier | None

    def draft(self, model, context, randomness):
        growing, sum_so_far = GrowingTree(model, context), 0
        while len(growing.parents) < 4 and sum_so_far % 5 != 4:
            every = range(len(growing.contexts))
            slots = [v for v in every if growing.level(v) < 2 and growing.left(v).any()]
            if not slots:
                break
            child, _ = growing.draw_child(slots[sum_so_far % len(slots)], randomness)
            sum_so_far += 1 + growing.contexts[child][-1]
        return growing.tree()


@pytest.mark.parametrize("rule", SUCCESSIVE, ids=repr)
def test_any_growth_that_looks_at_the_past_is_lossless(rule):
    shapes = set()
    for seed in range(6):
        draft, target = random_models(3, 2, np.random.default_rng([25, seed]))
        assert bias(Whimsical(rule), draft, target, step=step_law) <= 1e-12
        shapes |= {len(contexts) for contexts in trees(Whimsical(rule), draft)}
    assert len(shapes) > 1


# --- stochastic beams


@pytest.mark.parametrize(
    ("size", "decoder"),
    [(3, StochasticBeam(2, 2)), (2, StochasticBeam(3, 3)), (3, StochasticBeam(1, 2))],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_level_is_a_sample_of_sequences(size, decoder, seed):
    draft, _ = random_models(size, decoder.length, np.random.default_rng([26, seed]))
    joint = trees(decoder, draft)
    for level in range(1, decoder.length + 1):
        sequences = list(itertools.product(range(size), repeat=level))
        table = otm.WithoutReplacement(decoder.num_drafts).enumerate(
            sequence_law(draft, [], level).reshape(-1)
        )
        wanted = {
            tuple(sequences[x] for x in row if x >= 0): pytest.approx(mass, abs=1e-14)
            for row, mass in zip(table.tokens.tolist(), table.mass.tolist(), strict=True)
        }
        found = Counter(dict.fromkeys(wanted, 0.0))
        for paths, mass in joint.items():
            found[tuple(path for path in paths if path and len(path) == level)] += mass
        assert found == wanted


def test_the_order_is_that_of_the_clocks():
    """Clocks for all sequences of two tokens, a prefix rings with its first continuation: the joint
    law of both levels' beams.
    """
    draft, _ = smooth_models(2, 2, 1)
    joint, samples = trees(StochasticBeam(2, 2), draft), 40_000
    rng = np.random.default_rng(0)
    clocks = rng.exponential(size=(samples, 4)) / sequence_law(draft, [], 2).reshape(-1)
    ends = np.argsort(clocks, axis=1)[:, :2]
    starts = np.argsort(clocks.reshape(samples, 2, 2).min(axis=2), axis=1)
    seen = Counter(zip(*starts.T.tolist(), *ends.T.tolist(), strict=True))
    counts = {((a,), (b,), divmod(c, 2), divmod(d, 2)): n for (a, b, c, d), n in seen.items()}
    assert set(counts) == set(joint)
    found = np.array([[counts[paths], joint[paths]] for paths in joint])
    assert not alarms(found[:, 0], found[:, 1], samples).any()


def test_beside_a_sequence_of_nearly_all_mass():
    """What is left is summed, never 1 − what was taken: the second beam is one of the two tokens of
    1e−20, with 1/3 and 2/3.
    """
    joint = trees(StochasticBeam(2, 1), ZerothOrder([1.0 - 2.0**-53, 1e-20, 2e-20]))
    assert joint[(0,), (1,)] == pytest.approx(1 / 3, rel=1e-12)
    assert joint[(0,), (2,)] == pytest.approx(2 / 3, rel=1e-12)
