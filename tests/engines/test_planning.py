"""Plans: the best length by enumeration, its limits named, a budget split against every split."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.engines.chain import chain_speedup, optimal_chain_length
from otm.engines.planning import (
    MAX_BATCH,
    plan_budget,
    plan_lengths,
    plan_mean,
    split_budget,
    vllm_lengths,
)
from otm.engines.records import Tally, parse_acceptance
from otm.engines.records.record import AcceptanceRecord
from otm.engines.surface import CostSurface


def record_of(*parts: Tally, length: int | None = None) -> AcceptanceRecord:
    return AcceptanceRecord(form="test", unit="request", parts=parts, convention="", length=length)


def geometric(rate: float, length: int, steps: int = 10**9) -> AcceptanceRecord:
    """A record whose survival is rate^i to the counts' rounding."""
    survivors = np.round(steps * rate ** np.arange(1, length + 1))
    return record_of(
        Tally.of_survivors(survivors, steps=steps, name="a", drafted=float(steps * length))
    )


def test_the_chain_of_the_literature() -> None:
    """I.i.d. acceptance at a constant cost: Leviathan's formulas."""
    for rate, cost in itertools.product((0.3, 0.6, 0.8), (0.01, 0.1, 0.3, 0.7)):
        (choice,) = plan_lengths(
            geometric(rate, 30), CostSurface.flat(draft=cost, target=1.0)
        ).choices
        length = optimal_chain_length(rate, cost_ratio=cost)
        assert choice.length == length
        assert choice.over_plain.value == pytest.approx(
            chain_speedup(rate, length=length, cost_ratio=cost), rel=1e-7
        )
        assert choice.verdict == ("speculate" if length else "do not speculate")
        assert choice.reach == "inside"
        best, speedup = choice.best
        assert speedup.value == pytest.approx(
            chain_speedup(rate, length=best, cost_ratio=cost), rel=1e-7
        )


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 20), min_size=2, max_size=6).filter(lambda counts: sum(counts) > 0),
    st.floats(0, 0.5),
    st.lists(st.floats(0, 0.2), min_size=6, max_size=6),
)
def test_no_length_is_faster(counts: list[int], draft: float, rises: list[float]) -> None:
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


def test_the_measured_limit_is_named_and_extrapolation_asked_for() -> None:
    record, costs = geometric(0.9, 3), CostSurface.flat(draft=0.025, target=1.0)
    (choice,) = plan_lengths(record, costs).choices
    assert (choice.length, choice.reach) == (3, "at the limit")
    assert choice.over_plain.value == pytest.approx((1 + 0.9 + 0.81 + 0.729) / 1.075, rel=1e-6)
    (longer,) = plan_lengths(record, costs, extend=40).choices
    assert (longer.length, longer.reach) == (optimal_chain_length(0.9, cost_ratio=0.025), "beyond")
    (short,) = plan_lengths(record, costs, extend=2).choices  # never fewer than were measured
    assert short.length == 3


def test_the_end_of_measured_costs_is_named() -> None:
    record = geometric(0.9, 8)
    costs = CostSurface.flat(draft=0.02, target={0: 1.0, 4: 1.1})
    (choice,) = plan_lengths(record, costs).choices
    assert (choice.length, choice.limited_by_costs, choice.reach, choice.costs_extrapolated) == (
        4,
        True,
        "inside",
        False,
    )
    (further,) = plan_lengths(record, costs, extrapolate_costs=True).choices
    assert (further.length, further.limited_by_costs, further.costs_extrapolated) == (
        8,
        False,
        True,
    )


def test_drafting_pays_for_small_batches_only() -> None:
    """A call on few tokens is bound by memory, 1; on many it is bound by arithmetic, as many as
    there are / 16.
    """
    grid = {
        (b, c, n): max(1.0, b * n / 16) + c / 1e4
        for b in (1, 8, 16, 64)
        for c in (0, 1000)
        for n in range(1, 6)
    }
    costs = CostSurface.of_points(
        {(b, c): 0.05 for b in (1, 8, 16, 64) for c in (0, 1000)}, grid, source="roofline"
    )
    plan = plan_lengths(geometric(0.7, 4), costs)
    chosen = {(choice.batch, choice.context): choice for choice in plan.choices}
    assert list(chosen) == [(b, c) for c in (0, 1000) for b in (1, 8, 16, 64)]
    assert [chosen[b, 0].length for b in (1, 8, 16, 64)] == [4, 1, 0, 0]
    # What the engine ran, 4 drafts everywhere, is what is lost there.
    tokens = 1 + sum(0.7**i for i in range(1, 5))
    lost = chosen[64, 0].over_engine
    assert lost is not None
    assert lost.value == pytest.approx((1 / 4) / (tokens / (4 * 0.05 + 20)), rel=1e-6)
    narrow = plan_lengths(geometric(0.7, 4), costs, batches=[2], contexts=[500])
    assert [(choice.batch, choice.context) for choice in narrow.choices] == [(2, 500)]


def test_what_the_engine_ran_is_its_own_mean_at_its_own_drafts() -> None:
    steps = Tally.of_steps([0, 1, 2, 2], [1, 1, 3, 3], name="a")  # 2.25 tokens of 2 drafts a step
    record = record_of(steps, Tally.of_steps([1, 2, 0, 2], [1, 3, 1, 3], name="b"))
    plan = plan_lengths(record, CostSurface.flat(draft=0.1, target={0: 1.0, 3: 1.3}))
    (choice,) = plan.choices
    assert plan.engine_length == 2
    theirs = 2.25 / (2 * 0.1 + 1.2)
    assert choice.over_engine is not None
    assert choice.over_engine.value == pytest.approx(choice.over_plain.value / theirs, rel=1e-12)
    # Drafted lengths of a mean between whole numbers cost what lies between.
    other = record_of(Tally.of_steps([0, 1, 2, 2], [1, 1, 3, 2], name="a"), steps)
    again = plan_lengths(
        other, CostSurface.flat(draft=0.1, target={0: 1.0, 1: 1.5, 2: 1.5, 3: 1.5})
    ).choices[0]
    assert again.over_engine is not None
    assert again.over_engine.value == pytest.approx(
        again.over_plain.value / (2.25 / (1.875 * 0.1 + 1.5)), rel=1e-12
    )


def test_undecided_where_the_interval_contains_one() -> None:
    few = record_of(
        *(Tally.of_histogram([5, 5], name="") for _ in range(2)),
        Tally.of_histogram([7, 1], name=""),
    )
    (choice,) = plan_lengths(few, CostSurface.flat(draft=0.3, target=1.0)).choices
    assert choice.verdict == "undecided" and choice.over_plain.low < 1 < choice.over_plain.value
    # Speed-ups stay within what is possible: at least none accepted, at most all.
    assert choice.over_plain.low >= 1 / 1.3 and choice.over_plain.high <= 2 / 1.3


def test_the_interval_of_the_chosen_length_covers() -> None:
    """The speed-up that is promised is that of the length chosen on the same record: its
    simultaneous interval still covers.
    """
    rng = np.random.default_rng(0)
    rate, costs, trials, covered = 0.6, CostSurface.flat(draft=0.12, target=1.0), 150, 0
    own_rates = np.clip(np.random.default_rng(99).normal(rate, 0.1, size=200_000), 0, 0.99)
    for _ in range(trials):
        parts = []
        for own in np.clip(rng.normal(rate, 0.1, size=12), 0, 0.99):
            accepted = np.minimum(rng.geometric(1 - own, size=15) - 1, 6)
            parts.append(Tally.of_steps(accepted, np.full(15, 6), name=""))
        (choice,) = plan_lengths(record_of(*parts), costs).choices
        tokens = 1 + sum((own_rates**i).mean() for i in range(1, choice.length + 1))
        covered += (
            choice.over_plain.low <= tokens / (1 + 0.12 * choice.length) <= choice.over_plain.high
        )
    assert covered / trials >= 0.95 - 5 * np.sqrt(0.95 * 0.05 / trials)


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(st.sampled_from([0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0]), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 8),
)
def test_no_split_of_a_budget_is_better(rows: list[list[float]], budget: int) -> None:
    survival = np.sort(np.array(rows), axis=1)[:, ::-1]
    split = split_budget(survival, budget=budget)
    values = [
        survival.shape[0] + sum(row[:n].sum() for row, n in zip(survival, lengths, strict=True))
        for lengths in itertools.product(range(4), repeat=survival.shape[0])
        if sum(lengths) <= budget
    ]
    assert split.tokens == max(values)  # eighths: exact
    assert split.lengths.sum() <= budget
    chosen = sum(row[:n].sum() for row, n in zip(survival, split.lengths, strict=True))
    assert split.tokens == survival.shape[0] + chosen
    assert split.even_tokens <= split.tokens


@pytest.mark.parametrize(
    "survival", [[0.5], [[0.5, 0.6]], [[1.5]], [[float("nan")]], [[]], [["a"]]]
)
def test_what_is_no_survival_is_not_split(survival: object) -> None:
    with pytest.raises(otm.errors.InvalidDistribution):
        split_budget(survival, budget=1)  # type: ignore[arg-type]


def test_a_split_is_counted_on_steps_it_has_not_seen() -> None:
    """All requests are alike: whatever the split finds in one half is noise, and the other half
    says so.
    """
    rng = np.random.default_rng(5)
    alike = [
        Tally.of_steps(np.minimum(rng.geometric(0.4, size=20) - 1, 3), np.full(20, 3), name="")
        for _ in range(60)
    ]
    plan = plan_budget(record_of(*alike), budget=90)
    in_sample = split_budget(np.array([part.survivors / part.steps for part in alike]), budget=90)
    assert plan.held_out and plan.lengths.tolist() == in_sample.lengths.tolist()
    # what the split promises on the counts that chose it
    assert in_sample.tokens > in_sample.even_tokens + 2
    assert plan.tokens < plan.even_tokens + 0.5  # and does not keep
    # Requests that differ: a split helps, and the half that has not seen it agrees.
    mixed = [
        Tally.of_steps(np.minimum(rng.geometric(1 - p, size=200) - 1, 3), np.full(200, 3), name="")
        for p in (0.95, 0.2) * 10
    ]
    assert (
        plan_budget(record_of(*mixed), budget=30).tokens
        > plan_budget(record_of(*mixed), budget=30).even_tokens + 3
    )


def test_records_that_cannot_be_planned_say_why() -> None:
    costs = CostSurface.flat(draft=0.1, target=1.0)
    means = parse_acceptance(json.dumps({"spec_verify_ct": 10, "completion_tokens": 25}))
    for call in (lambda: plan_lengths(means, costs), lambda: plan_budget(means, budget=3)):
        with pytest.raises(otm.errors.InvalidParameter, match="means only"):
            call()
    one = geometric(0.5, 2)
    with pytest.raises(otm.errors.InvalidParameter, match="over requests"):
        plan_budget(one, budget=3)
    with pytest.raises(otm.errors.InvalidParameter, match="at most 10,000"):
        plan_lengths(one, costs, extend=10_001)


def test_records_too_wide_to_plan_are_refused_before_memory_is_taken() -> None:
    costs = CostSurface.flat(draft=0.1, target=1.0)
    wide = record_of(Tally.of_histogram([1] + [0] * 10_000 + [1], name="a"))
    assert wide.measured == 10_001
    for extend in (None, 3):
        with pytest.raises(otm.errors.TooLarge, match="this test has 10,001 positions"):
            plan_lengths(wide, costs, extend=extend)
    short, long = (
        Tally.of_histogram([1, 1], name="a"),
        Tally.of_histogram([1] + [0] * 9_999 + [1], name="b"),
    )
    many = record_of(*[short] * 4_000, long)
    for call in (lambda: plan_lengths(many, costs), lambda: plan_budget(many, budget=3)):
        with pytest.raises(otm.errors.TooLarge, match="4,001 clusters at 10,000 positions"):
            call()
    with pytest.raises(otm.errors.TooLarge, match="4,000 clusters at 10,000 positions"):
        plan_lengths(record_of(*[short] * 4_000), costs, extend=10_000)


@pytest.mark.parametrize(
    "asked", [{}, {"max_batch": 4}, {"max_batch": 40, "extend": 6, "extrapolate_costs": True}]
)
def test_vllm_s_table_is_the_plan_of_every_batch_size(asked: dict[str, Any]) -> None:
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


def test_a_mean_bounds_the_plan_of_every_law_that_has_it() -> None:
    """What ran is as fast as the law's own plan says, and its curve lies within the bounds."""
    costs = CostSurface.flat(draft=0.003, target={0: 0.020, 3: 0.024})
    for counts in ([4, 0, 0, 6], [1, 3, 5, 1], [0, 10, 0, 0]):
        tally = Tally.of_histogram(counts, name="", drafted=30)
        law = AcceptanceRecord(form="", unit="server", parts=(tally,), convention="")
        summed = dataclasses.replace(tally, survivors=None)
        mean = dataclasses.replace(law, parts=(summed,))
        (choice,) = plan_lengths(law, costs).choices
        plan = plan_mean(mean, costs, batch=1, context=0)
        assert plan.over_plain == pytest.approx(choice.curve[3], rel=1e-12)
        assert (plan.lower <= choice.curve + 1e-12).all()
        assert (plan.upper >= choice.curve - 1e-12).all()
    assert plan_mean(mean, costs, batch=1, context=0, drafts=3).pays == plan.pays
    with pytest.raises(otm.errors.InvalidParameter, match="at most 1"):
        plan_mean(law, costs, batch=1, context=0, drafts=1)
