"""Trees on shared noise: the best paths against a search of all, the step's law by enumeration
against its sampler, one draft against the race, and scales against simulated mismatches.
"""

import dataclasses

import numpy as np
import pytest
import scipy

from otm.errors import OtmError
from otm.overlap.curve import Containment
from otm.races import race_match
from otm.sequence import (
    MarkovModel,
    NoiseTree,
    Sampled,
    SharedNoise,
    Staged,
    ZerothOrder,
    belief_rows,
    best_step,
    completed_law,
    fit_scale,
    generated_law,
    noise_tokens,
    step,
    step_law,
)
from otm.sequence.noise_tree import LEAST_SCALE, MOST_SCALE
from tests.contracts.alarms import alarms
from tests.sequence.toys import asked, contexts, outcomes_of, random_models, smooth_models


@dataclasses.dataclass(frozen=True)
class Redrawn(NoiseTree):
    """Where the target's token is not drafted, draws another one instead of keeping it."""

    def verify(self, tree, target, randomness):
        found = super().verify(tree, target, randomness)
        kept = found.tokens[: found.accepted]
        return dataclasses.replace(
            found, tokens=(*kept, randomness.choose(target((*tree.context, *kept))))
        )


BROKEN = [Redrawn(1, 1, cells=2)]


def seeded(seed):
    return Sampled(np.random.default_rng(0), SharedNoise(seed))


@pytest.mark.parametrize("seed", range(6))
def test_no_other_paths_are_believed_in_more(seed):
    """All paths of three tokens, their beliefs from logits and noise, written anew. A draft without
    mass is never made.
    """
    draft, _ = random_models(3, 4, np.random.default_rng([41, seed]))
    scales = (0.5, 2.0)
    belief = {(): 1.0}
    for path in contexts(3, 3)[1:]:
        noise, scale = SharedNoise(seed).row(len(path), 3), scales[min(len(path) - 1, 1)]
        weights = (draft.next((1, *path[:-1])) * np.exp(noise)) ** (1 / scale)
        belief[path] = belief[path[:-1]] * float(weights[path[-1]] / weights.sum())
    live = sorted((mass for path, mass in belief.items() if path and mass > 0), reverse=True)
    for size in (3, 4, 9, 39):
        tree = NoiseTree(size, 3, scales).draft(draft, (1,), seeded(seed))
        drafted = [belief[found[1:]] for found in tree.contexts()[1:] if found is not None]
        np.testing.assert_allclose(drafted, live[:size], rtol=1e-12)


def test_steps_have_the_enumerated_law():
    """Sampled on whole noise, enumerated by cells: 1,500 steps against every outcome's mass."""
    models, samples = asked(smooth_models(3, 3, seed=4)), 1_500
    decoder, rng = NoiseTree(3, 2, 0.7, cells=2), np.random.default_rng(8)
    law = outcomes_of(step_law(decoder, **models))
    counts = dict.fromkeys(law, 0)
    for _ in range(samples):
        once = step(decoder, **models, randomness=Sampled(rng))
        counts[once.tokens, once.accepted] += 1
    assert not alarms(np.array([*counts.values()]), np.array([*law.values()]), samples).any()


def test_one_draft_matches_as_a_race():
    """The likeliest path of one token is the draft race's winner, whatever the scale; with finer
    cells of noise its acceptance tends to the race's.
    """
    pair = ZerothOrder([0.7, 0.3]), ZerothOrder([0.4, 0.6])
    wanted = 1.0 + float(race_match(pair[0].mass, pair[1].mass, [Containment()])[0])
    coarse, fine = (
        wanted - step_law(NoiseTree(1, 1, cells=cells), **asked(pair)).block_efficiency
        for cells in (2, 18)
    )
    assert coarse == pytest.approx(0.05, abs=1e-12)
    assert abs(fine) < 1 / 18**2
    wide = np.array([[0.1, 0.4, 0.2, 0.3], [0.3, 0.1, 0.4, 0.2]])
    found = noise_tokens(
        NoiseTree(1, 1, 3.0),
        **asked((ZerothOrder(wide[0]), ZerothOrder(wide[1]))),
        noises=[SharedNoise(seed) for seed in range(2_000)],
        confidence=1 - 1e-6,
    )
    assert found.low[1] <= 1 + float(race_match(*wide, [Containment()])[0]) <= found.high[1]


def test_expected_tokens_are_those_of_steps():
    """One tree answers for all sizes: on the same noises the means of real steps, to the digit."""
    models = asked(smooth_models(4, 5, seed=2), [2])
    noises = [SharedNoise(seed) for seed in range(40)]
    found = noise_tokens(NoiseTree(7, 4, 0.6), **models, noises=noises)
    for size in (4, 7):
        decoder = NoiseTree(size, 4, 0.6)
        taken = [
            len(step(decoder, **models, randomness=seeded(noise.seed)).tokens) for noise in noises
        ]
        assert found.value[size] == pytest.approx(np.mean(taken), abs=1e-12)
    assert found.samples == 40
    assert np.all(np.diff(found.value) >= 0)


def test_the_scale_is_found_and_its_interval_covers():
    """400 fits of 90 % intervals to logits that differ by Gumbel noise of a scale, what the belief
    presumes, cover as often as a binomial variable does, at 1e-6; scores vanish at the estimates.
    """
    rng, trials, held = np.random.default_rng(3), 400, 0
    for _ in range(trials):
        rows = np.log(rng.dirichlet(np.ones(6), size=60)) + rng.gumbel(size=(60, 6))
        tokens = (rows + 0.8 * rng.gumbel(size=rows.shape)).argmax(axis=1)
        found = fit_scale(rows, tokens, confidence=0.9)
        held += bool(found.low <= 0.8 <= found.high)
        belief = scipy.special.softmax(rows / found.value, axis=1)
        score = rows[np.arange(60), tokens] - (belief * rows).sum(axis=1)
        assert abs(score.sum()) < 1e-8
    # The likelihood ratio's law is χ² up to 1/n: some per cent at n = 60.
    assert scipy.stats.binom.cdf(held, trials, 0.87) > 1e-6
    assert scipy.stats.binom.sf(held, trials, 0.93) > 1e-6


def test_scales_at_the_ends():
    rows = np.array([[0.0, 1.0], [2.0, -np.inf], [1.0, 0.0]] * 9)
    sure = fit_scale(rows, [1, 0, 0] * 9)
    assert sure.value == sure.low == pytest.approx(LEAST_SCALE)
    assert sure.value < sure.high < 2.0
    assert fit_scale(rows, [0, 0, 1] * 9).value == pytest.approx(MOST_SCALE)
    with_lost = fit_scale(np.tile([[0.0, 1.0, -np.inf]], (5, 1)), [1, 1, 1, 0, 2])
    assert with_lost.value == pytest.approx(1 / np.log(3), rel=1e-9)
    assert with_lost.samples == 4


def test_steps_tell_the_scale():
    """A row for each level that a step reached, as its noise and draft say."""
    draft, target = smooth_models(4, 4, seed=1)
    tree = NoiseTree(8, 3).draft(draft, (3,), seeded(5))
    once = NoiseTree(8, 3).verify(tree, target.next, seeded(5))
    rows, tokens = belief_rows(tree, once)
    assert tokens.tolist() == list(once.tokens[:3]) and len(rows) > 1
    for level, row in enumerate(rows):
        wanted = np.log(draft.next((3, *once.tokens[:level]))) + SharedNoise(5).row(1 + level, 4)
        np.testing.assert_allclose(row, wanted, rtol=1e-14)


def test_noise_that_is_drawn_anew_after_a_step_is_lossy():
    """Whether a path is drafted tells of the noise below it, with which the target must go on.

    The drafter knows whether each number is above the median. Texts after 0, uniform in truth, are
    off by 1/32; on kept noise by nothing (the walk of all decoders).
    """
    half = ZerothOrder([0.5, 0.5])
    law = step_law(
        NoiseTree(2, 2, 2.0, cells=2), **asked((MarkovModel([[0.75, 0.25], [0.5, 0.5]]), half), [0])
    )
    found = completed_law(law, target=half, context=[0], length=3)
    assert 0.5 * np.abs(found - 1 / 8).sum() == pytest.approx(1 / 32, abs=1e-14)


PAIR = asked((ZerothOrder([0.5, 0.5]), ZerothOrder([0.5, 0.5])))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        *(
            (lambda scale=scale: NoiseTree(2, 2, scale), "scale")
            for scale in (0.0, -1.0, np.inf, np.nan, "1", (), (1.0, 0.0))
        ),
        (lambda: NoiseTree(2, 2, cells=1), "cells"),
        (lambda: step_law(NoiseTree(2, 2), **PAIR), "cells=2"),
        (lambda: noise_tokens(NoiseTree(2, 2), **PAIR, noises=[SharedNoise(0)]), "two noises"),
        (lambda: fit_scale([0.5, 0.5], [0]), "got shapes"),
        (lambda: fit_scale([[0.5, 0.5]], [2]), "tokens"),
        (lambda: fit_scale([[0.5, -np.inf]], [1]), "mass at its token"),
        (lambda: generated_law(NoiseTree(3, 2), **PAIR, length=2), "carries noise"),
        (lambda: best_step(NoiseTree(3, 2), **PAIR), "carries noise"),
        (lambda: Staged(NoiseTree(3, 2), PAIR["draft"], 2), "fresh noise"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(OtmError, match=said):
        call()
