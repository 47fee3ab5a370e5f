"""Rules that verify towards another law: the laws as written, mentored decoding against a cone
program.
"""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import Mentored
from tests import strategies
from tests.lossy.programs import program
from tests.verifiers.lossy_instances import ROUNDING, one_draft


@pytest.mark.parametrize("name", ["ensemble", "token_v3", "opt"])
@given(pair=strategies.pairs(max_tokens=6), weight=st.floats(0.0, 1.0))
def test_law_as_written(name, pair, weight):
    problem = one_draft(pair)
    p, q = problem.draft, problem.target
    if name == "ensemble":
        verifier, due = otm.Ensemble(weight), weight * q + (1 - weight) * p
    elif name == "token_v3":
        verifier, good = otm.Cascade(alpha=weight), q >= (1 - weight) * q.max() - 1e-12
        due = np.where(good, p, 0) + p[~good].sum() * q
    else:
        verifier = otm.Cascade(rule="opt", alpha=weight)
        # a tie is the draft's
        margin = p.max() - (q.max() - weight * np.maximum(p - q, 0).sum()) + 1e-12
        due = q if margin < 0 else p
        if abs(margin) <= ROUNDING:
            return
    np.testing.assert_allclose(otm.lossy.output_law(verifier, problem), due, rtol=0, atol=ROUNDING)
    for by in ("rule", "membership"):
        assert otm.acceptance(verifier, problem, by=by) == pytest.approx(
            np.minimum(p, due).sum(), abs=ROUNDING
        )


@pytest.mark.parametrize(
    "p", [[0.67003436, 0.24983097, 0.08013466], [0.2131, 0.0176, 5.8e-16, 0.7018, 0.0675]]
)
def test_a_tie_is_the_drafts_however_it_is_summed(p):
    """A greedy target on the draft's likeliest token: max q − TV is max p, exactly, and never in
    floats.
    """
    problem = one_draft((otm.normalise(p), np.eye(len(p))[int(np.argmax(p))]))
    assert otm.acceptance(otm.Cascade(rule="opt", alpha=1.0), problem) == pytest.approx(
        1.0, abs=ROUNDING
    )


@pytest.mark.parametrize("seed", range(12))
def test_mentored_decoding_against_the_cone_program(seed):
    """Every third target has a token without mass, every fourth one that cannot be drafted."""
    import torch

    rng = np.random.default_rng([3, seed])
    p, q = rng.dirichlet(np.ones(int(rng.integers(3, 12))), size=2)
    q[0], p[-1] = q[0] * (seed % 3 > 0), p[-1] * (seed % 4 > 0)
    budget = float(rng.choice([0.01, 0.1, 0.5, 1.5]) * (0.5 + rng.random()))
    problem = one_draft((p / p.sum(), q / q.sum()))
    # No structure used. 1e-8: the solver's accuracy; over these instances it is 1e-10 to 1e-9.
    live = problem.target > 0
    mass = problem.target[live]
    wanted = program(problem, lambda law: mass @ (np.log(mass) - cp.log(law[live])) <= budget)
    assert otm.acceptance(Mentored(budget), problem) == pytest.approx(wanted, abs=1e-8)
    law = Mentored(budget).aimed_law(*map(torch.asarray, (problem.draft, problem.target)))
    assert float(torch.minimum(law, torch.asarray(problem.draft)).sum()) == pytest.approx(
        wanted, abs=1e-8
    )
    if wanted < 1 - 1e-6:  # no token of the target is left out, and all is spent
        spent = otm.lossy.distortion(Mentored(budget), problem).kl
        assert spent == pytest.approx(budget, rel=1e-9)


@settings(max_examples=40)
@given(pair=strategies.pairs(max_tokens=6))
def test_the_ends_of_the_budget(pair):
    problem = one_draft(pair)
    for budget, law in ((0.0, problem.target), (float("inf"), problem.draft)):
        found = otm.lossy.output_law(Mentored(budget), problem)
        np.testing.assert_allclose(found, law, rtol=0, atol=ROUNDING)
        assert otm.acceptance(Mentored(budget), problem) == pytest.approx(
            np.minimum(problem.draft, law).sum(), abs=ROUNDING
        )
