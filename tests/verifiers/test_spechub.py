"""SpecHub: the published steps in fractions, its law of drafts, and where recursive rejection does
better or worse.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

import otm
from otm.drafts.base import PAD
from tests import exact, strategies
from tests.tolerance import rounding
from tests.verifiers.rational import F, problem_of


def spechub_by_hand(p: exact.Masses, q: exact.Masses) -> tuple[Fraction, exact.Masses]:
    """The published steps on the published law of ordered pairs: acceptance and output law, in
    rational arithmetic.
    """
    V = len(p)
    a = max(range(V), key=lambda x: (p[x], -x))
    others = [x for x in range(V) if x != a]
    pairs = {(x, a): p[x] for x in others}
    if p[a] < 1:
        pairs |= {(a, x): p[a] * p[x] / (1 - p[a]) for x in others}
    else:
        pairs[(a, PAD)] = F(1)
    moved = dict.fromkeys(pairs, F(0))  # mass of each pair that went to x
    wanted = {x: q[x] for x in others}
    for pair in [(x, a) for x in others] + [(a, x) for x in others]:
        x = pair[0] if pair[1] == a else pair[1]
        if pair in pairs:
            moved[pair] = min(pairs[pair], wanted[x])
            wanted[x] -= moved[pair]
    room = q[a]
    for kind in (0, 1):
        for pair in pairs:
            if pair[kind] == a:
                taken = min(pairs[pair] - moved[pair], room)
                moved[pair] += taken
                room -= taken
    accepted = sum(moved.values(), F(0))
    output = [q[x] - wanted.get(x, room) for x in range(V)]
    unmet = {**wanted, a: room}
    if accepted < 1:
        lost = (1 - accepted) / sum(unmet.values())
        output = [o + lost * unmet[x] for x, o in enumerate(output)]
    return accepted, output


class TestSpecHub:
    @given(pair=strategies.pairs(min_tokens=2))
    def test_exact_law_and_acceptance_of_the_published_steps(
        self, pair: tuple[np.ndarray, np.ndarray]
    ) -> None:
        problem = problem_of(pair, otm.Greedy(2))
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        accepted, output = spechub_by_hand(p, q)
        assert output == q  # lossless, exactly
        plan = otm.coupling(otm.SpecHub(), problem)
        tolerance = rounding(len(p), 2)
        np.testing.assert_allclose(plan.output_marginal, problem.target, atol=tolerance)
        assert plan.acceptance == pytest.approx(float(accepted), abs=tolerance)
        for verifier in (otm.SpecHub(), otm.GreedyOptimal()):
            found = otm.acceptance(verifier, problem)
            assert found == pytest.approx(float(accepted), abs=tolerance)

    def test_a_hub_alone(self) -> None:
        rule = otm.prepare(otm.SpecHub(), problem_of(([1.0, 0.0], [0.3, 0.7]), otm.Greedy(2)))
        output, accepted = rule.verify(np.array([[0, PAD]]), np.zeros((1, 4)), None)
        assert (output.tolist(), accepted.tolist()) == ([0], [True])
