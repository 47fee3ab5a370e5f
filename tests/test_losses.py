"""What acceptance is lost to: each part against a program or by hand, and that the parts make a
whole.
"""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

import otm
from otm import losses
from tests import strategies

# HiGHS accepts points that break a constraint by this much.
PROGRAM = 1e-7


def program(p, q):
    """The best acceptance over drafts g with p's ranking, all of g and of what is accepted as
    variables.
    """
    n, unit = len(p), np.eye(len(p))
    rows = [np.r_[-unit[i], unit[i]] for i in range(n)]  # accepted(i) ≤ g(i)
    rows += [np.r_[unit[j] - unit[i], np.zeros(n)] for i, j in np.argwhere(p[:, None] > p)]
    solution = linprog(
        np.r_[np.zeros(n), -np.ones(n)],
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=[np.r_[np.ones(n), np.zeros(n)]],
        b_eq=[1.0],
        bounds=[(0.0, float(mass > 0)) for mass in p] + [(0.0, mass) for mass in q],
    )
    return -float(solution.fun)


@given(strategies.pairs(max_tokens=8))
def test_the_best_of_a_ranking_is_a_linear_program(pair):
    p, q = pair
    best = losses.best_ranked_acceptance(draft=p, target=q)
    assert best == pytest.approx(program(p, q), abs=PROGRAM)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 4), st.booleans())
def test_the_parts_make_one_and_none_is_negative(seed, k, blind):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, 3, 12)) * 2
    if blind:
        logits[0, ..., :3] = -np.inf
    draft = otm.Processing(
        top_k=int(rng.integers(1, 13)), temperature=float(rng.choice([0.0, 0.5, 1.0, 3.0]))
    )
    target = otm.Processing(top_p=0.8, temperature=0.7, order="vllm")
    found = losses.acceptance_losses(*logits, k=k, draft=draft, target=target, verifier=otm.KSeq())
    parts = found.mean()
    assert sum(parts.values()) == pytest.approx(1.0, abs=1e-12)
    # Differences of sums that agree to rounding; in the temperature, of a maximum that holds the
    # value it is compared with.
    assert min(np.min(getattr(found, name)) for name in parts) > -1e-12
    assert found.drafts == k
    assert (found.ranking is None) == (k > 1)
    problem = otm.Problem(draft=draft(logits[0]), target=target(logits[1]), law=otm.IID(k))
    np.testing.assert_allclose(found.acceptance, otm.acceptance(otm.KSeq(), problem), atol=1e-12)
    np.testing.assert_allclose(
        found.verifier, otm.optimal_acceptance(problem) - found.acceptance, atol=1e-12
    )


Q = np.array([0.4, 0.3, 0.2, 0.1])
COLD = round(float(np.minimum(otm.from_logits(np.log(Q), temperature=0.5), Q).sum()), 9)


@pytest.mark.parametrize(
    ("draft", "sides", "wanted"),
    [
        (Q, {}, {"acceptance": 1.0}),
        ([4 / 9, 3 / 9, 2 / 9, 0.0], {}, {"acceptance": 0.9, "vocabulary": 0.1}),
        (Q, {"draft": otm.Processing(top_k=2)}, {"acceptance": 0.7, "truncation": 0.3}),
        (Q, {"draft": otm.Processing(temperature=0.0)}, {"acceptance": 0.4, "truncation": 0.6}),
        (
            Q,
            {"draft": otm.Processing(temperature=0.5)},
            {"acceptance": COLD, "temperature": round(1 - COLD, 9)},
        ),
        # The target keeps .4 + .3; a draft that keeps all loses what it puts elsewhere: .3 of it.
        (Q, {"target": otm.Processing(top_k=2)}, {"acceptance": 0.7, "excluded": 0.3}),
        # The best g with g(1) ≥ g(0) gives both .35: .05 of .4 is lost to the ranking. Temperature
        # 1 is not the best for the rest.
        ([0.3, 0.4, 0.2, 0.1], {}, {"acceptance": 0.9, "ranking": 0.05, "shape": 0.05}),
    ],
)
def test_each_part_has_its_cause(draft, sides, wanted):
    with np.errstate(divide="ignore"):
        parts = losses.acceptance_losses(np.log(draft), np.log(Q), **sides).mean()
    found = {name: round(value, 9) for name, value in parts.items() if value > 1e-9}
    assert found == wanted


@pytest.mark.parametrize("k", [1, 4])
def test_the_best_temperature_is_better_than_its_neighbours(k):
    rng = np.random.default_rng(k)
    logits, target = rng.normal(size=(5, 40)) * 2, otm.from_logits(rng.normal(size=(5, 40)))
    best, value = losses.best_temperature(logits, target, k=k, draft=otm.Processing(top_k=20))

    def at(temperature):
        p = otm.from_logits(logits, temperature=temperature, top_k=20)
        return float(
            np.mean(otm.optimal_acceptance(otm.Problem(draft=p, target=target, law=otm.IID(k))))
        )

    assert at(best) == value
    assert all(value >= at(other) - 1e-9 for other in np.geomspace(0.05, 20, 80))


def test_top_mass_is_the_acceptance_of_top_k_drafts():
    q = np.random.default_rng(0).dirichlet(np.ones(9), size=5)
    for k in (1, 3, 9, 12):
        np.testing.assert_allclose(
            losses.top_mass(q, k=k), np.sort(q)[:, ::-1][:, :k].sum(-1), atol=1e-15
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_is_torchs_and_the_output_law_is_within_what_the_draft_moved(dtype):
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.full(500, 0.1), size=20), rng.dirichlet(np.full(500, 0.1), size=20)
    found = losses.draft_rounding(draft=p, target=q, dtype=dtype)
    due = torch.tensor(p).float().to(getattr(torch, dtype)).double()
    due = due / due.sum(-1, keepdim=True)
    np.testing.assert_allclose(found.draft_tv, 0.5 * np.abs(due.numpy() - p).sum(-1), atol=1e-15)
    assert (found.output_tv > 0).all()
    assert (found.output_tv <= found.draft_tv + 1e-15).all()
    assert (np.abs(found.gain) <= found.draft_tv + 1e-15).all()
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    subnormal = 500 * 2.0**-25 if dtype == "float16" else 0.0
    assert (found.draft_tv <= unit / 2 / (1 - unit) + subnormal).all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: losses.acceptance_losses([0.0, 1.0], [0.0, 1.0], verifier=otm.Lenience()),
            "lossy verifier wins",
        ),
        (lambda: losses.acceptance_losses([0.0, 1.0], [0.0, 1.0, 2.0]), "one shape"),
        (
            lambda: losses.best_ranked_acceptance(draft=[[0.5, 0.5]], target=[[0.5, 0.5]]),
            "single rows",
        ),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(otm.errors.OtmError, match=said):
        call()


def test_a_draft_that_rounds_to_nothing(monkeypatch):
    """It takes 2^25 tokens of equal mass in float16, so the rounding is replaced."""
    monkeypatch.setattr(losses, "_rounded", lambda masses, dtype: np.zeros_like(masses))
    with pytest.raises(otm.errors.InvalidParameter, match="Take bfloat16"):
        losses.draft_rounding(draft=[1.0], target=[1.0], dtype="float16")


@pytest.mark.parametrize(
    "logits", [[1e308, 0.0, -1e308], [-1.7e308, 1.7e308, 3.0], [1e308, 1e308, -np.inf]]
)
@pytest.mark.parametrize("k", [1, 2])
def test_logits_near_the_largest_number_are_those_that_they_stand_for(logits, k):
    """No temperature that is tried gives the tokens far below mass, so 1e5 apart is as good;
    nothing overflows on the way.
    """
    near = np.asarray(logits) / 1e303
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = otm.losses.acceptance_losses(logits, [0.0, 1.0, 2.0], k=k).mean()
    assert found == pytest.approx(
        otm.losses.acceptance_losses(near, [0.0, 1.0, 2.0], k=k).mean(), abs=1e-12
    )


def test_float32_is_taken_as_a_problem_takes_it():
    draft, target = np.float32([0.1, 0.2, 0.7]), np.float32([0.3, 0.3, 0.4])
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    rounding = losses.draft_rounding(draft=draft, target=target)
    attained = float(rounding.acceptance - rounding.gain)
    assert attained == pytest.approx(otm.acceptance(otm.Maximal(), problem), abs=1e-15)
    best = otm.optimal_acceptance(problem.with_law(otm.TopK(2)))
    assert losses.top_mass(target, k=2) == pytest.approx(best, abs=1e-15)
    logits = np.float32([1, 2, 3.3]), np.float32([2, 1, 0.5])
    found, exact = (
        float(losses.acceptance_losses(*(each.astype(kind) for each in logits)).acceptance)
        for kind in (np.float32, np.float64)
    )
    assert found == pytest.approx(exact, abs=1e-7)
    assert losses.best_temperature(logits[0], [0.5, 0.25, 0.25])[1] <= 1.0
