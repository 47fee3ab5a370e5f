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
    to_hub, room = F(0), q[a]
    for kind in (
        [pair for pair in pairs if pair[0] == a],
        [pair for pair in pairs if pair[1] == a],
    ):
        left = sum((pairs[pair] - moved[pair] for pair in kind), F(0))
        taken = min(left, room)
        room -= taken
        to_hub += taken
    accepted = sum(moved.values(), F(0)) + to_hub
    output = [q[x] - wanted.get(x, room) if x == a else q[x] - wanted[x] for x in range(V)]
    unmet = {**wanted, a: room}
    total = sum(unmet.values(), F(0))
    if total:
        output = [o + (1 - accepted) * unmet[x] / total for x, o in enumerate(output)]
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
        assert otm.acceptance(otm.SpecHub(), problem) == pytest.approx(
            float(accepted), abs=tolerance
        )
        assert otm.acceptance(otm.GreedyOptimal(), problem) == pytest.approx(
            float(accepted), abs=tolerance
        )
