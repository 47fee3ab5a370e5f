"""Races and MinHash: couplings against simulation, and outputs that do not depend on
the drafter.
"""

import numpy as np
import pytest
from hypothesis import given, settings

import otm
from otm import IID, ListRace, MinHash, Problem, Race, WithoutReplacement
from tests import strategies
from tests.contracts.alarms import alarms, joint_law, tabulate
from tests.verifiers.race_references import INTEGRATED, P, Q, simulated_race

DARTS = 400
"""Both stop within so many darts but for (1 − 1/V)^400 < 1e-49 at V = 4."""


def simulated_darts(n, rng):
    """Throw darts one after the other; return (draft, output) and whether both stopped at the same
    dart.
    """
    token, height = rng.integers(len(P), size=(n, DARTS)), rng.random((n, DARTS))
    first, second = (height <= P[token]).argmax(axis=1), (height <= Q[token]).argmax(axis=1)
    rows = np.arange(n)
    return np.stack([token[rows, first], token[rows, second]], axis=1), first == second


def simulated_list(k, n, rng):
    """Return (drafts, output) of a race on a list of draws from p at the points of a Poisson
    process: the drafts are its first k entries, the output is the one with the least
    T_n p(X_n)/q(X_n).
    """
    # the winner stands at time t q/p of the list, t ~ Exp(1): not beyond 400 entries
    entries = rng.choice(len(P), p=P, size=(n, 400))
    times = np.cumsum(rng.exponential(size=(n, 400)), axis=1)
    winner = entries[np.arange(n), (times * (P / Q)[entries]).argmin(axis=1)]
    return np.column_stack([entries[:, :k], winner])


def test_couplings_against_simulation():
    rng = np.random.default_rng(10)
    darts, same = simulated_darts(50_000, rng)
    for verifier, law, found in (
        (Race(), WithoutReplacement(3), simulated_race(P, Q, 3, 1, 100_000, rng)),
        (ListRace(), IID(3), simulated_race(P, Q, 3, 3, 100_000, rng)),
        (Race(), IID(3), simulated_list(3, 40_000, rng)),
        (MinHash(), IID(1), darts),
    ):
        rows, mass = joint_law(verifier, Problem(draft=P, target=Q, law=law))
        drawn = np.asarray(found)
        samples = otm.results.Samples(
            drafts=drawn[:, :-1], output=drawn[:, -1], accepted=np.zeros(len(drawn), dtype=bool)
        )
        assert not alarms(tabulate(samples, rows, len(P)), mass, len(drawn)).any(), (verifier, law)
    rule = otm.acceptance(MinHash(), Problem(draft=P, target=Q, law=IID(1)), by="rule")
    assert not alarms(np.array([same.sum()]), np.array([rule]), len(same)).any()


@settings(max_examples=40)
@given(pair=strategies.pairs(max_tokens=5))
def test_the_closed_form_is_the_integral(pair):
    """One race and a list of one are the same scheme; the first coupling is a closed form, the
    second a quadrature.
    """
    problem = Problem(draft=pair[0], target=pair[1], law=IID(1))
    (rows, closed), (others, integrated) = (
        joint_law(verifier, problem) for verifier in (Race(), ListRace())
    )
    kept = np.isin(rows[:, 0], others[:, 0])
    np.testing.assert_allclose(integrated, closed[kept], rtol=0, atol=INTEGRATED)
    race, lists = (otm.acceptance(verifier, problem) for verifier in (Race(), ListRace()))
    assert race == pytest.approx(lists, abs=1e-14)


def test_the_output_does_not_depend_on_the_drafter():
    """The same state with another draft distribution gives the same output for races: they never
    look at p when they verify.
    """
    for verifier, law in (
        (Race(), WithoutReplacement(2)),
        (Race(), IID(2)),
        (ListRace(), IID(2)),
        (MinHash(), IID(1)),
    ):
        rule, other = (
            otm.prepare(verifier, Problem(draft=p, target=[0.1, 0.2, 0.3, 0.4], law=law))
            for p in ([0.4, 0.3, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1])
        )
        drafts, state = rule.draw(np.random.default_rng(0).random((500, rule.num_draft_uniforms)))
        with pytest.raises(TypeError, match=r"state is None\. Pass"):
            rule.verify(drafts, np.zeros((500, rule.num_uniforms)), None)
        if verifier != MinHash():
            again, mine = (
                one.verify(drafts, np.zeros((500, 0)), state)[0] for one in (other, rule)
            )
            np.testing.assert_array_equal(again, mine)


def test_supports():
    laws = (IID(1), IID(2), WithoutReplacement(1), WithoutReplacement(5))
    assert [Race().supports(law) for law in laws] == [True] * 4
    assert [ListRace().supports(law) for law in laws] == [True, True, False, False]
    assert [MinHash().supports(law) for law in laws] == [True, False, False, False]
