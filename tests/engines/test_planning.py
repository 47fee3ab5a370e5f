"""Plans: the best length by enumeration and its limits named."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import scipy
from hypothesis import given, settings, strategies as st

import otm
from otm.engines.chain import chain_speedup, optimal_chain_length
from otm.engines.planning import (
    MAX_BATCH,
    plan_lengths,
    plan_mean,
    vllm_lengths,
)
from otm.engines.records import Tally, estimates, parse_acceptance
from otm.engines.records.record import AcceptanceRecord
from otm.engines.surface import CostSurface


def record_of(*parts, length=None):
    return AcceptanceRecord(form="test", unit="request", parts=parts, convention="", length=length)


def geometric(rate, length, steps=10**9):
    """A record whose survival is rate^i to the counts' rounding."""
    survivors = np.round(steps * rate ** np.arange(1, length + 1))
    return record_of(
        Tally.of_survivors(survivors, steps=steps, name="a", drafted=float(steps * length))
    )


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("cost", [0.01, 0.1, 0.7])
def test_the_chain_of_the_literature(rate, cost):
    """I.i.d. acceptance at a constant cost: Leviathan's formulas."""
    costs = CostSurface.flat(draft=cost, target=1.0)
    (choice,) = plan_lengths(geometric(rate, 30), costs).choices
    length = optimal_chain_length(rate, cost_ratio=cost)
    assert (choice.length, choice.reach) == (length, "inside")
    assert choice.verdict == ("speculate" if length else "do not speculate")
    best, speedup = choice.best
    assert best == max(length, 1)
    for drafts, found in ((length, choice.over_plain), (best, speedup)):
        wanted = chain_speedup(rate, length=drafts, cost_ratio=cost)
        assert found.value == pytest.approx(wanted, rel=1e-7)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 20), min_size=2, max_size=6).filter(lambda counts: sum(counts) > 0),
    st.floats(0, 0.5),
    st.lists(st.floats(0, 0.2), min_size=6, max_size=6),
)
def test_no_length_is_faster(counts, draft, rises):
    record = record_of(Tally.of_histogram(counts, name="a"))
    length = len(counts) - 1
    calls = 1.0 + np.concatenate([[0], np.cumsum(rises)])
    costs = CostSurface.flat(draft=draft, target=dict(enumerate(calls.tolist())))
    (choice,) = plan_lengths(record, costs).choices
    total, speeds = sum(counts), []
    for n in range(length + 1):
        tokens = 1 + sum(min(j, n) * count for j, count in enumerate(counts)) / total
        speeds.append(tokens * calls[0] / (n * draft + calls[n]))
    np.testing.assert_allclose(choice.curve, speeds, rtol=1e-12)
    assert choice.over_plain.value == pytest.approx(max(speeds), rel=1e-12)
    assert speeds[choice.length] >= max(speeds) * (1 - 1e-12)


def test_what_limits_a_length_is_named():
    """What was measured, of acceptance or of costs, unless it is continued as one asks."""
    record, costs = geometric(0.9, 3), CostSurface.flat(draft=0.025, target=1.0)
    (choice,) = plan_lengths(record, costs).choices
    assert (choice.length, choice.reach) == (3, "at the limit")
    (longer,) = plan_lengths(record, costs, extend=40).choices
    assert (longer.length, longer.reach) == (optimal_chain_length(0.9, cost_ratio=0.025), "beyond")
    (short,) = plan_lengths(record, costs, extend=2).choices  # never fewer than were measured
    assert short.length == 3
    record, costs = geometric(0.9, 8), CostSurface.flat(draft=0.02, target={0: 1.0, 4: 1.1})
    for extrapolate, wanted in (
        (False, (4, "inside", True, False)),
        (True, (8, "at the limit", False, True)),
    ):
        (choice,) = plan_lengths(record, costs, extrapolate_costs=extrapolate).choices
        found = choice.length, choice.reach, choice.limited_by_costs, choice.costs_extrapolated
        assert found == wanted


def test_drafting_pays_for_small_batches_only():
    """A call on few tokens is bound by memory, 1; on many it is bound by arithmetic, as many as
    there are / 16.
    """
    cells = [(b, c) for c in (0, 1000) for b in (1, 8, 16, 64)]
    grid = {(b, c, n): max(1.0, b * n / 16) + c / 1e4 for b, c in cells for n in range(1, 6)}
    costs = CostSurface.of_points(dict.fromkeys(cells, 0.05), grid, source="roofline")
    plan = plan_lengths(geometric(0.7, 4), costs)
    assert [(choice.batch, choice.context) for choice in plan.choices] == cells
    assert [choice.length for choice in plan.choices[:4]] == [4, 1, 0, 0]
    # What the engine ran, 4 drafts everywhere, is what is lost there.
    tokens = 1 + sum(0.7**i for i in range(1, 5))
    lost = plan.choices[3].over_engine
    assert lost is not None
    assert lost.value == pytest.approx((1 / 4) / (tokens / (4 * 0.05 + 20)), rel=1e-6)
    narrow = plan_lengths(geometric(0.7, 4), costs, batches=[2], contexts=[500])
    assert [(choice.batch, choice.context) for choice in narrow.choices] == [(2, 500)]


@pytest.mark.parametrize(
    ("drafted", "drafts", "calls"),
    [([1, 1, 3, 3], 2, {0: 1.0, 3: 1.3}), ([1, 1, 3, 2], 1.875, {0: 1.0, 1: 1.5, 3: 1.5})],
)
def test_what_the_engine_ran_is_its_own_mean_at_its_own_drafts(drafted, drafts, calls):
    """2.25 tokens a step; a mean between whole numbers costs what lies between."""
    steps = [([0, 1, 2, 2], drafted), ([1, 2, 0, 2], [1, 3, 1, 3])]
    record = record_of(*(Tally.of_steps(*one, name="a") for one in steps))
    plan = plan_lengths(record, CostSurface.flat(draft=0.1, target=calls))
    (choice,) = plan.choices
    assert plan.engine_length == drafts
    theirs = 2.25 / (drafts * 0.1 + (1.2 if drafts == 2 else 1.5))
    assert choice.over_engine is not None
    assert choice.over_engine.value == pytest.approx(choice.over_plain.value / theirs, rel=1e-12)


@pytest.mark.parametrize("length", [1, 2])
def test_the_gain_over_the_engine_has_the_jackknife_s_interval(length):
    """Of a ratio of tokens, at Bonferroni's level for the lengths that draft at all."""
    requests = np.array([[0, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 2]])
    requests = np.minimum(requests, length)
    record = record_of(*(Tally.of_steps(one, [length] * 4, name="") for one in requests))
    (choice,) = plan_lengths(record, CostSurface.flat(draft=3.0, target=1.0)).choices
    assert choice.length == 0 and choice.over_engine is not None
    theirs = [1 + np.delete(requests, i, axis=0).mean() for i in range(5)]
    gains = (3.0 * length + 1) / np.array(theirs)
    half = scipy.stats.t.isf(0.025 / length, 4) * np.sqrt(4) * np.std(gains)
    value = (3.0 * length + 1) / (1 + requests.mean())
    found = choice.over_engine
    assert (found.low, found.value, found.high) == pytest.approx(
        (value - half, value, value + half)
    )


def test_undecided_where_the_interval_contains_one():
    counts = [5, 5], [5, 5], [7, 1]
    few = record_of(*(Tally.of_histogram(one, name="") for one in counts))
    (choice,) = plan_lengths(few, CostSurface.flat(draft=0.3, target=1.0)).choices
    assert choice.verdict == "undecided" and choice.over_plain.low < 1 < choice.over_plain.value
    # Speed-ups stay within what is possible: at least none accepted, at most all.
    assert choice.over_plain.low >= 1 / 1.3 and choice.over_plain.high <= 2 / 1.3


def test_the_interval_of_the_chosen_length_holds_for_all_lengths_at_once():
    """Of requests with as many steps each the jackknife is the textbook's interval of a mean, at
    Bonferroni's level for the three lengths that were compared.
    """
    requests = [[0, 1, 2, 3], [1, 1, 3, 3], [0, 0, 1, 2], [3, 2, 3, 3], [2, 2, 0, 3]] * 2
    record = record_of(*(Tally.of_steps(one, [3] * 4, name="") for one in requests))
    (choice,) = plan_lengths(record, CostSurface.flat(draft=0.2, target=1.0)).choices
    assert choice.length == 3
    speeds = (1 + np.mean(requests, axis=1)) / 1.6
    half = scipy.stats.t.isf(0.025 / 3, 9) * speeds.std(ddof=1) / np.sqrt(10)
    found = choice.over_plain
    assert (found.value, found.high) == pytest.approx((speeds.mean(), speeds.mean() + half))


COSTS = CostSurface.flat(draft=0.1, target=1.0)
MEANS = parse_acceptance(json.dumps({"spec_verify_ct": 10, "completion_tokens": 25}))
SHORT, LONG = (Tally.of_histogram([1] + [0] * n + [1], name="a") for n in (0, 99))
TOO_LONG = Tally.of_histogram([1] + [0] * 10_000 + [1], name="a")


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: plan_lengths(MEANS, COSTS), "InvalidParameter", "means only"),
        (
            lambda: plan_lengths(geometric(0.5, 2), COSTS, extend=10_001),
            "InvalidParameter",
            "at most 10,000",
        ),
        (
            lambda: plan_lengths(record_of(TOO_LONG), COSTS, extend=3),
            "TooLarge",
            "this test has 10,001 positions",
        ),
        (
            lambda: plan_lengths(record_of(*[SHORT] * 40, LONG), COSTS),
            "TooLarge",
            "41 clusters at 100 positions",
        ),
        (
            lambda: plan_lengths(record_of(*[SHORT] * 40), COSTS, extend=100),
            "TooLarge",
            "40 clusters at 100 positions",
        ),
    ],
)
def test_records_that_cannot_be_planned_say_why(call, error, said, monkeypatch):
    monkeypatch.setattr(estimates, "MAX_TABLE", 3_999)
    with pytest.raises(getattr(otm.errors, error), match=said):
        call()


@pytest.mark.parametrize(
    "asked", [{}, {"max_batch": 4}, {"max_batch": 40, "extend": 6, "extrapolate_costs": True}]
)
def test_vllm_s_table_is_the_plan_of_every_batch_size(asked):
    record = parse_acceptance('{"spec_verify_ct": 100, "spec_accept_histogram": [20, 20, 20, 40]}')
    cells = list(itertools.product((1, 8, 32), (0, 50)))
    points = {(b, c, n): max(1.0, b * n / 24) + c / 1e3 for b, c in cells for n in (1, 2, 3, 4)}
    costs = CostSurface.of_points(dict.fromkeys(cells, 0.04), points, source="")
    settings = vllm_lengths(record, costs, context=50, **asked)
    table = settings["num_speculative_tokens_per_batch_size"]
    of_plan = {key: value for key, value in asked.items() if key != "max_batch"}
    most = asked.get("max_batch", 32)
    plan = plan_lengths(record, costs, batches=range(1, most + 1), contexts=[50], **of_plan)
    wanted = [choice.length for choice in plan.choices]
    assert [length for first, last, length in table for _ in range(first, last + 1)] == wanted
    assert [row[0] for row in table] == [1, *(row[1] + 1 for row in table[:-1])]
    assert settings["num_speculative_tokens"] == max(wanted) == of_plan.get("extend", 3)
    assert most == 4 or wanted[-1] == 0
    for wrong in (33, MAX_BATCH + 1):
        with pytest.raises(otm.errors.InvalidParameter):
            vllm_lengths(record, costs, context=50, max_batch=wrong)


@pytest.mark.parametrize("counts", [[4, 0, 0, 6], [1, 3, 5, 1], [0, 10, 0, 0]])
def test_a_mean_bounds_the_plan_of_every_law_that_has_it(counts):
    """What ran is as fast as the law's own plan says, and its curve lies within the bounds."""
    costs = CostSurface.flat(draft=0.003, target={0: 0.020, 3: 0.024})
    tally = Tally.of_histogram(counts, name="", drafted=30)
    law, mean = (record_of(one) for one in (tally, dataclasses.replace(tally, survivors=None)))
    (choice,) = plan_lengths(law, costs).choices
    plan = plan_mean(mean, costs, batch=1, context=0)
    assert plan.over_plain == pytest.approx(choice.curve[3], rel=1e-12)
    assert (plan.lower <= choice.curve + 1e-12).all()
    assert (plan.upper >= choice.curve - 1e-12).all()
    assert plan_mean(mean, costs, batch=1, context=0, drafts=3).pays == plan.pays
    with pytest.raises(otm.errors.InvalidParameter, match="at most 1"):
        plan_mean(law, costs, batch=1, context=0, drafts=1)
