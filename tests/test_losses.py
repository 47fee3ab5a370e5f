"""What acceptance is lost to: each part against a program or by hand, and that the parts make a
whole.
"""

import warnings
from fractions import Fraction

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


CASES = [{}, {"k": 4}, {"k": 3.5, "law": otm.ThresholdRace}, {"matched": True}]


def accepted(logits, q, temperature, *, k=1, law=otm.IID, matched=False, **filters):
    p = otm.from_logits(logits, temperature=temperature, **filters)
    if matched:
        return (p * q).sum(-1)
    return otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=law(k)))


@pytest.mark.parametrize("case", CASES)
def test_no_temperature_is_better_than_the_certificate(case):
    rng = np.random.default_rng(1)
    logits, q = rng.normal(size=(5, 40)) * 2, otm.from_logits(rng.normal(size=(5, 40)))
    found = losses.best_temperature(
        logits, q, draft=otm.Processing(top_k=20), tolerance=1e-8, **case
    )

    def at(temperature):
        return np.mean(accepted(logits, q, temperature, top_k=20, **case))

    assert 0 <= found.gap <= 1e-8
    assert at(found.temperature) == pytest.approx(found.lower, abs=2e-12)  # moved by 1e-12
    assert max(map(at, np.geomspace(0.05, 20, 500))) <= found.upper


@given(st.integers(0, 10_000), st.floats(-3, 3), st.sampled_from(CASES))
def test_what_is_known_at_one_temperature_bounds_an_interval(seed, middle, case):
    # The lemma itself, from wide to narrow intervals. Sums of 12 masses round by less than 1e-14.
    rng = np.random.default_rng(seed)
    logits, q = rng.normal(size=(3, 12)) * 4, otm.from_logits(rng.normal(size=(3, 12)) * 2)
    logits[0, :4] = -np.inf
    law = None if "matched" in case else case.get("law", otm.IID)(case.get("k", 1))
    middle = np.exp(middle)
    reach = middle * np.array([-1.0, 1.0]) * rng.random(2) ** 3
    value, *bounds = losses._around(logits, q, middle, tuple(reach), law)
    assert value == pytest.approx(np.mean(accepted(logits, q, 1 / middle, **case)), abs=1e-14)
    for step, bound in zip(reach, bounds, strict=True):
        for coldness in middle + step * np.linspace(0, 1, 9):
            assert np.mean(accepted(logits, q, 1 / coldness, **case)) <= bound + 1e-14


def test_the_acceptance_falls_and_rises_along_the_temperature():
    # docs/theory.md, "The draft's temperature", in fractions
    q = [Fraction(3, 10), Fraction(0), Fraction(7, 10)]

    def at(coldness):
        masses = [Fraction(m) ** coldness for m in (1, 3, 4)]
        return sum(min(m / sum(masses), y) for m, y in zip(masses, q, strict=True))

    assert [at(0), at(1), at(3)] == [Fraction(19, 30), Fraction(5, 8), Fraction(65, 92)]
    found = losses.best_temperature(np.log([1, 3, 4]), [0.3, 0.0, 0.7])
    assert max(at(3), Fraction(7, 10)) <= found.upper
    assert max(at(b) for b in range(21)) <= found.upper
    assert found.lower > 65 / 92 - 1e-6
    assert 0.2 < found.temperature < 0.5


def test_a_temperature_applied_twice_costs_what_is_said():
    # odds of 2 at temperature 1: 4 at 1/2, 16 at its square
    logits = np.log([2.0, 1.0])
    target, draft = (otm.from_logits(logits, temperature=heat) for heat in (0.5, 0.25))
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    assert otm.optimal_acceptance(problem) == pytest.approx(73 / 85, abs=1e-15)
    found = losses.best_temperature(logits, target)
    # near the best one TV is odds' slope 4/25 log 2 times the distance in 1/T, at most 1e-6
    assert found.temperature == pytest.approx(0.5, abs=1e-5)


def test_a_draft_that_ranks_as_the_target_is_best_matched_cold():
    q = np.array([0.5, 0.3, 0.2])
    found = losses.best_temperature([0.3, 0.1, 0.0], q, matched=True)
    assert found.temperature == pytest.approx(0.05, rel=1e-3)
    assert found.upper < q.max() == losses.top_mass(q, k=1)


def test_a_sampler_at_the_best_temperature_accepts_as_often_as_is_said():
    rng, size = np.random.default_rng(3), 200_000
    logits, q = rng.normal(size=30) * 2, rng.dirichlet(np.ones(30))
    found = losses.best_temperature(logits, q)
    p = otm.from_logits(logits, temperature=found.temperature)
    drafts = rng.choice(30, size=size, p=p)
    kept = np.count_nonzero(rng.random(size) * p[drafts] < q[drafts])
    # 5 standard deviations: outside with probability 6e-7
    deviation = np.sqrt(found.lower * (1 - found.lower) / size)
    assert kept / size == pytest.approx(found.value, abs=5 * deviation)


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
        (lambda: losses.best_temperature([0.0, 1.0], [0.5, 0.5], k=2, matched=True), "k must be 1"),
        (
            lambda: losses.best_temperature(
                [0.0, 1.0], [0.5, 0.5], draft=otm.Processing(top_p=0.9)
            ),
            "Take the order 'llama.cpp'",
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
        heated = losses.best_temperature(logits, [0.2, 0.3, 0.5], k=k)
    assert found == pytest.approx(
        otm.losses.acceptance_losses(near, [0.0, 1.0, 2.0], k=k).mean(), abs=1e-12
    )
    assert heated == losses.best_temperature(near, [0.2, 0.3, 0.5], k=k)


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
    assert losses.best_temperature(logits[0], [0.5, 0.25, 0.25]).lower <= 1.0
