"""Speculative Jacobi decoding: exact laws of several passes, steps of its couplings, samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import otm
from otm.sequence import (
    Jacobi,
    JacobiDraft,
    JacobiState,
    MarkovModel,
    Sampled,
    ZerothOrder,
    jacobi_generate,
    jacobi_law,
    outcomes,
    sequence_law,
)
from otm.sequence.randomness import Randomness

EXACT = ("independent", "maximal", "inversion")
CHAIN = MarkovModel([[0.0, 1.0], [0.5, 0.5]])


@pytest.mark.parametrize("coupling", EXACT)
@pytest.mark.parametrize("seed", range(2))
def test_the_text_has_the_targets_law(coupling: str, seed: int) -> None:
    rows = np.random.default_rng(seed).dirichlet(np.ones(3), size=3)
    rows[0] = [0.0, rows[0, 1] + rows[0, 0], rows[0, 2]]
    model = MarkovModel(rows)
    found = jacobi_law(Jacobi(2, coupling), model=model, context=[1], length=2)
    assert found.distribution == pytest.approx(sequence_law(model, [1], 2), abs=1e-14)
    found = jacobi_law(Jacobi(3, coupling), model=CHAIN, context=[0], length=4)
    assert found.distribution == pytest.approx(sequence_law(CHAIN, [0], 4), abs=1e-14)


def test_a_draft_verified_against_the_law_of_the_last_pass_is_biased() -> None:
    """Kept as it was drawn, with the law that it was not drawn with: the enumeration finds it."""
    scheme = Jacobi(2)

    def run(randomness: Randomness) -> tuple[int, ...]:
        state = scheme.start(model=CHAIN, context=[0], randomness=randomness)
        while len(state.context) < 3:
            _, new = scheme.step(state, model=CHAIN, randomness=randomness)
            old = state.window[len(new.context) - len(state.context) :]
            kept = [
                JacobiDraft(was.token, now.law) for was, now in zip(old, new.window, strict=False)
            ]
            state = JacobiState(new.context, (*kept, *new.window[len(kept) :]))
        return state.context[1:3]

    law = np.zeros((2, 2))
    for text, mass in outcomes(run):
        law[text] += mass
    assert np.abs(law - sequence_law(CHAIN, [0], 2)).sum() / 2 == pytest.approx(1 / 8, abs=1e-15)


def test_on_independent_tokens_every_coupling_is_rejection_of_uniform_drafts() -> None:
    """No law changes between passes: a draft stays once it has been coupled."""
    model = ZerothOrder([0.75, 0.25])
    for coupling in ("maximal", "inversion"):
        found = jacobi_law(Jacobi(1, coupling), model=model, context=[], length=2)
        assert found.steps == pytest.approx(1 + 0.25, abs=1e-15)


def test_races_are_inversions_for_two_tokens() -> None:
    """A race counts steps as the enumeration of one uniform per position expects."""
    model = MarkovModel([[0.25, 0.75], [0.75, 0.25]])
    expected = jacobi_law(Jacobi(2, "inversion"), model=model, context=[0], length=3).steps
    runs = 300
    taken = [
        len(
            jacobi_generate(
                Jacobi(2, "race"), model=model, context=[0], num_tokens=3, rng=seed
            ).steps
        )
        for seed in range(runs)
    ]
    # 1 to 3 steps: Hoeffding's bound of an error of probability 1e-9
    assert abs(np.mean(taken) - expected) < 2 * np.sqrt(np.log(2e9) / (2 * runs))


def test_races_write_the_targets_text() -> None:
    model, runs = MarkovModel([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]]), 400
    texts = [
        jacobi_generate(Jacobi(3, "race"), model=model, context=[0], num_tokens=2, rng=seed).tokens
        for seed in range(runs)
    ]
    law = sequence_law(model, [0], 2)
    for text in np.ndindex(3, 3):
        hits = texts.count(text)
        assert min(binom.cdf(hits, runs, law[text]), binom.sf(hits - 1, runs, law[text])) > 1e-10


def test_steps_say_what_stood() -> None:
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


def test_an_enumeration_of_races_says_what_to_take() -> None:
    with pytest.raises(otm.errors.Unsupported, match="inversion"):
        jacobi_law(Jacobi(1, "race"), model=CHAIN, context=[0], length=1)
