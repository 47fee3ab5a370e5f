"""Speculative Jacobi decoding: exact laws of several passes, steps of its couplings, samples."""

import numpy as np
import pytest

import otm
from otm.sequence import (
    Jacobi,
    MarkovModel,
    Sampled,
    ZerothOrder,
    jacobi_generate,
    jacobi_law,
    sequence_law,
)
from tests.contracts.alarms import alarms

CHAIN = MarkovModel([[0.0, 1.0], [0.5, 0.5]])


@pytest.mark.parametrize("coupling", ["independent", "maximal", "inversion"])
@pytest.mark.parametrize(
    ("model", "window", "length"),
    [
        (CHAIN, 3, 4),
        (MarkovModel([[0.0, 0.6, 0.4], [0.2, 0.2, 0.6], [0.5, 0.1, 0.4]]), 2, 2),
    ],
)
def test_the_text_has_the_targets_law(coupling, model, window, length):
    scheme = Jacobi(window, coupling)
    found = jacobi_law(scheme, model=model, context=[1], length=length)
    assert found.distribution == pytest.approx(sequence_law(model, [1], length), abs=1e-14)


@pytest.mark.parametrize("coupling", ["maximal", "inversion"])
def test_on_independent_tokens_a_draft_stays_once_it_has_been_coupled(coupling):
    """No law changes between passes: rejection of uniform drafts."""
    scheme = Jacobi(1, coupling)
    found = jacobi_law(scheme, model=ZerothOrder([0.75, 0.25]), context=[], length=2)
    assert found.steps == pytest.approx(1 + 0.25, abs=1e-15)


def test_races_are_inversions_for_two_tokens():
    """A race counts steps as the enumeration of one uniform per position expects, and writes the
    target's text.
    """
    model, runs = MarkovModel([[0.25, 0.75], [0.75, 0.25]]), 400
    expected = jacobi_law(Jacobi(2, "inversion"), model=model, context=[0], length=3).steps
    race = Jacobi(2, "race")
    found = [
        jacobi_generate(race, model=model, context=[0], num_tokens=3, rng=seed)
        for seed in range(runs)
    ]
    # 1 to 3 steps: Hoeffding's bound of an error of probability 1e-9
    steps = np.mean([len(text.steps) for text in found])
    assert abs(steps - expected) < 2 * np.sqrt(np.log(2e9) / (2 * runs))
    law, counts = sequence_law(model, [0], 3), np.zeros((2,) * 3)
    for text in found:
        counts[text.tokens] += 1
    assert not alarms(counts, law, runs).any()


def test_steps_say_what_stood():
    scheme, randomness = Jacobi(2), Sampled(3)
    state = scheme.start(model=CHAIN, context=[0], randomness=randomness)
    for _ in range(20):
        one, after = scheme.step(state, model=CHAIN, randomness=randomness)
        drafted = tuple(draft.token for draft in state.window)
        assert one.tokens[: one.accepted] == drafted[: one.accepted]
        assert len(one.tokens) == one.accepted + 1
        assert (one.stopped == "end_of_draft") == (one.accepted == 2)
        assert after.context == (*state.context, *one.tokens)
        assert len(after.window) == 2
        state = after
    with pytest.raises(otm.errors.Unsupported, match="inversion"):
        jacobi_law(Jacobi(1, "race"), model=CHAIN, context=[0], length=1)
