"""Unequal draft lengths: corrected exactly where they are independent, bounded where not; intervals
that cover.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import otm
from otm.engines.records import (
    AcceptanceRecord,
    Tally,
    check_lengths,
    estimate_tokens,
    kaplan_meier,
    mean_bounds,
    request_mean,
    survival_bounds,
)


def record_of(*parts: Tally, unit: str = "request", **known: Any) -> AcceptanceRecord:
    return AcceptanceRecord(form="test", unit=unit, parts=parts, convention="", **known)


def steps(accepted: Any, drafted: Any) -> Tally:
    return Tally.of_steps(np.asarray(accepted), np.asarray(drafted), name="")


pairs = st.integers(1, 4).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d)))


class TestKaplanMeier:
    @settings(max_examples=60)
    @given(st.lists(pairs, min_size=1, max_size=30))
    def test_is_the_product_of_what_was_tried(self, drawn: list[tuple[int, int]]) -> None:
        accepted, drafted = zip(*drawn, strict=True)
        survival, exact = Fraction(1), []
        for i in range(1, max(drafted) + 1):
            tried = sum(a >= i - 1 and d >= i for a, d in drawn)
            survival *= Fraction(sum(a >= i for a in accepted), tried) if tried else 0
            exact.append(float(survival))
            if not tried and sum(a >= i - 1 for a in accepted):
                # a position that some step reached and none drafted: nothing is known about it
                return
        record = record_of(steps(accepted, drafted), unit="server")
        if record.censoring == "observed":
            np.testing.assert_allclose(kaplan_meier(record).survival, exact, rtol=1e-14)
        np.testing.assert_allclose(
            np.diff(estimate_tokens(record).tokens), exact, rtol=1e-13, atol=1e-15
        )
        halves = record_of(
            *(steps(accepted[i::2], drafted[i::2]) for i in range(2) if accepted[i::2])
        )
        if halves.censoring == "observed":
            np.testing.assert_allclose(kaplan_meier(halves).survival, exact, rtol=1e-14)

    def test_is_exact_in_expectation_for_a_toy_process(self) -> None:
        """All outcomes of a step, their probabilities as counts: acceptances 3/4, 1/2, 1/4; lengths
        1, 2, 3 independent of them.
        """
        conditional, lengths = [Fraction(3, 4), Fraction(1, 2), Fraction(1, 4)], {1: 3, 2: 2, 3: 1}
        accepted, drafted = [], []
        for length, weight in lengths.items():
            for a in range(length + 1):
                mass = np.prod([conditional[i] for i in range(a)] or [Fraction(1)]) * (
                    1 - conditional[a] if a < length else 1
                )
                copies = mass * weight * 32
                assert copies.denominator == 1
                accepted += [a] * int(copies)
                drafted += [length] * int(copies)
        record = record_of(steps(accepted, drafted), unit="server")
        truth = [3 / 4, 3 / 8, 3 / 32]
        np.testing.assert_allclose(kaplan_meier(record).survival, truth, rtol=1e-14)
        # What the engine prints falls short: undrafted reads as rejected.
        np.testing.assert_allclose(
            record.survival.survival, [3 / 4, 3 / 8 * 3 / 6, 3 / 32 / 6], rtol=1e-14
        )
        # Only marginal counts: the quotient is right as well, for here lengths do not depend on
        # acceptance at all.
        exactly = [np.bincount(accepted, minlength=4), np.bincount(drafted, minlength=4)]
        marginal = record_of(
            Tally.of_histogram(exactly[0], name="", offered=exactly[1]), unit="server"
        )
        np.testing.assert_allclose(kaplan_meier(marginal).survival, truth, rtol=1e-14)

    def test_a_histogram_cannot_be_corrected_and_says_so(self) -> None:
        for tally in (
            Tally.of_histogram([2, 2, 6], name=""),
            Tally.of_histogram([2, 2, 6], name="", drafted=17),
        ):
            with pytest.raises(otm.errors.InvalidParameter, match="Record steps in detail"):
                kaplan_meier(record_of(tally))
        full = Tally.of_histogram([2, 2, 6], name="", drafted=20)
        assert kaplan_meier(record_of(full)).survival.tolist() == [0.8, 0.6]


class TestBounds:
    @settings(max_examples=60)
    @given(st.lists(pairs, min_size=1, max_size=12))
    def test_both_ends_are_attained(self, drawn: list[tuple[int, int]]) -> None:
        accepted, drafted = zip(*drawn, strict=True)
        record = record_of(steps(accepted, drafted), unit="server")
        bounds = survival_bounds(record)
        for i in range(1, max(drafted) + 1):
            # Complete the record: a step that accepted all it drafted goes on to none, or to all.
            best = sum(a >= i or a == d for a, d in drawn)
            assert bounds.lower[i - 1] == pytest.approx(sum(a >= i for a in accepted) / len(drawn))
            assert bounds.upper[i - 1] == pytest.approx(best / len(drawn))
        if record.censoring == "observed":
            estimate = np.diff(estimate_tokens(record).tokens)
            known = ~np.isnan(estimate)
            assert (bounds.lower[known] <= estimate[known] + 1e-12).all()
            assert (estimate[known] <= bounds.upper[known] + 1e-12).all()

    @settings(max_examples=25)
    @given(
        st.lists(
            st.integers(1, 3).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d))),
            min_size=1,
            max_size=6,
        )
    )
    def test_less_detail_gives_the_widest_of_what_it_allows(
        self, drawn: list[tuple[int, int]]
    ) -> None:
        """Marginal counts, and a sum of drafted tokens: against every assignment of lengths to
        steps, by enumeration.
        """
        accepted, drafted = zip(*drawn, strict=True)
        length = max(drafted)
        counts = [np.bincount(values, minlength=length + 1) for values in (accepted, drafted)]
        marginal = survival_bounds(
            record_of(Tally.of_histogram(counts[0], name="", offered=counts[1]), unit="server")
        )
        summed = survival_bounds(
            record_of(Tally.of_histogram(counts[0], name="", drafted=sum(drafted)), unit="server")
        )

        def most(assignments: Any, i: int) -> float:
            return max(
                sum(a >= i or a == d for a, d in zip(accepted, other, strict=True)) / len(drawn)
                for other in assignments
                if all(a <= d for a, d in zip(accepted, other, strict=True))
            )

        for i in range(1, length + 1):
            assert marginal.upper[i - 1] == pytest.approx(most(itertools.permutations(drafted), i))
            same_sum = (
                other
                for other in itertools.product(range(length + 1), repeat=len(drawn))
                if sum(other) == sum(drafted)
            )
            assert summed.upper[i - 1] >= most(same_sum, i) - 1e-12

    @pytest.mark.parametrize(("drafted", "upper"), [(None, [1, 1]), (20, [0.8, 0.6]), (50, [1, 1])])
    def test_a_histogram_bounds_what_the_sum_of_drafts_allows(
        self, drafted: int | None, upper: list[float]
    ) -> None:
        """Unknown, as many as were listed, and beyond the end of the list."""
        bounds = survival_bounds(record_of(Tally.of_histogram([2, 2, 6], name="", drafted=drafted)))
        assert (bounds.lower.tolist(), bounds.upper.tolist()) == ([0.8, 0.6], upper)
        np.testing.assert_allclose([tokens[-1] for tokens in bounds.tokens], [2.4, 1 + sum(upper)])

    @settings(max_examples=60)
    @given(
        st.lists(st.integers(0, 5), min_size=2, max_size=8).filter(lambda counts: counts[-1] > 0),
        st.integers(0, 100),
    )
    def test_missing_drafts_go_to_the_steps_that_miss_fewest(
        self, counts: list[int], percent: int
    ) -> None:
        """One step at a time, the cheapest first."""
        length, total = len(counts) - 1, sum(counts)
        accepted = sum(j * count for j, count in enumerate(counts))
        missing = percent * (total * length - accepted) // 100
        record = record_of(
            Tally.of_histogram(counts, name="", drafted=total * length - missing), unit="server"
        )
        upper = survival_bounds(record).upper
        for i in range(1, length + 1):
            left, stopped = missing, 0
            for price in (length - j for j in range(i - 1, -1, -1) for _ in range(counts[j])):
                stopped, left = (stopped + 1, left - price) if price <= left else (stopped, 0)
            assert upper[i - 1] == pytest.approx((sum(counts[i:]) + stopped) / total)

    def test_long_lists_are_bounded_in_one_pass(self) -> None:
        """One step for each number of accepted drafts; n drafts are missing, which the last ones
        cost 1, 2, … of.
        """
        length, missing = 100_000, 55
        drafted = length * (length + 1) - missing
        bounds = survival_bounds(
            record_of(Tally.of_histogram([1] * (length + 1), name="", drafted=drafted))
        )
        assert bounds.upper[-1] == (1 + 10) / (length + 1)  # 1 + 2 + … + 10 = 55
        assert bounds.upper[0] == bounds.lower[0] == length / (length + 1)


@pytest.mark.parametrize("tallies", ["kinds", "listed", "requests"])
def test_tables_beyond_the_limit_are_refused(tallies: str) -> None:
    length = 6_000
    several = {
        "kinds": [Tally.of_histogram([1] * (length + 1), name="")],
        "listed": [steps(np.arange(length), np.full(length, length) - (np.arange(length) < 9))],
        "requests": [Tally.of_histogram([1, 1], name="")] * length
        + [Tally.of_histogram([1] + [0] * (length - 1) + [1], name="")],
    }[tallies]
    with pytest.raises(otm.errors.TooLarge, match="Shorten the record's positions"):
        estimate_tokens(record_of(*several))


def simulate(rng: np.random.Generator, requests: int, *, adaptive: bool) -> AcceptanceRecord:
    """Requests of their own acceptance and length: the steps of one are alike, as in the world."""
    parts = []
    for rate in rng.beta(4, 2, size=requests):
        count = int(rng.integers(5, 60))
        whole = (
            np.minimum(rng.geometric(1 - rate, size=count) - 1, 3)
            if rate < 1
            else np.full(count, 3)
        )
        drafted = rng.integers(1, 4, size=count) if adaptive else np.full(count, 3)
        parts.append(steps(np.minimum(whole, drafted), drafted))
    return record_of(*parts)


def truth() -> tuple[np.ndarray, float]:
    """Pooled survival weighs a request by its steps, of equal law for all: the moments of the beta;
    and the mean over requests.
    """
    moments = np.array([4 / 6, 4 * 5 / (6 * 7), 4 * 5 * 6 / (6 * 7 * 8)])
    return 1 + np.concatenate([[0], np.cumsum(moments)]), 1 + moments.sum()


TRIALS = 150


@pytest.mark.parametrize("adaptive", [False, True])
def test_intervals_cover_and_steps_in_place_of_requests_do_not(adaptive: bool) -> None:
    """150 runs: 95 % intervals cover within five binomial deviations of their level, intervals over
    steps fall far short.
    """
    rng = np.random.default_rng(7)
    tokens, mean = truth()
    covered, naive, means = np.zeros(4), 0, 0
    for _ in range(TRIALS):
        record = simulate(rng, 40, adaptive=adaptive)
        found = estimate_tokens(record).token_interval()
        covered += (found.low - 1e-12 <= tokens) & (tokens <= found.high + 1e-12)
        mixed = record_of(*record.parts, unit="window")
        over_steps = estimate_tokens(mixed).token_interval()
        naive += over_steps.low[3] <= tokens[3] <= over_steps.high[3]
        if not adaptive:
            over_requests = request_mean(record)
            means += over_requests.low <= mean <= over_requests.high
    deviation = np.sqrt(0.95 * 0.05 / TRIALS)
    assert (covered[1:] / TRIALS >= 0.95 - 5 * deviation).all(), covered
    assert naive / TRIALS < 0.8
    if not adaptive:
        assert means / TRIALS >= 0.95 - 5 * deviation
    assert estimate_tokens(mixed).clusters == "step"


def test_simultaneous_intervals_are_wider_and_single_requests_have_none() -> None:
    rng = np.random.default_rng(3)
    estimate = estimate_tokens(simulate(rng, 30, adaptive=True))
    one = estimate.interval(estimate.tokens, estimate.replicates)
    all_ = estimate.interval(estimate.tokens, estimate.replicates, comparisons=10)
    assert (all_.low[1:] < one.low[1:]).all() and (one.high[1:] < all_.high[1:]).all()
    single = estimate_tokens(record_of(steps([0, 1, 2], [2, 2, 2])))
    assert single.clusters == "step"
    rates = record_of(
        Tally(name="", steps=1.0, accepted=1.4, survivors=np.array([0.8, 0.6]), counted=False),
        unit="run",
    )
    bare = estimate_tokens(rates)
    assert bare.clusters == "none" and np.isnan(bare.token_interval().low[1])
    with pytest.raises(otm.errors.InvalidParameter, match="two of them"):
        request_mean(rates)


def test_step_intervals_are_the_textbook_s() -> None:
    """Without requests the jackknife of a mean is its standard error exactly."""
    accepted = np.array([0] * 30 + [1] * 20 + [2] * 50)
    estimate = estimate_tokens(
        record_of(Tally.of_histogram(np.bincount(accepted), name="", drafted=200), unit="server")
    )
    found = estimate.token_interval()
    error = accepted.std(ddof=1) / np.sqrt(accepted.size)
    # t, 99 degrees of freedom
    assert found.high[2] - found.low[2] == pytest.approx(2 * 1.9842169515 * error, rel=1e-8)
    # Of three steps little is known, but that each gives one token or two.
    few = estimate_tokens(record_of(steps([0, 0, 1], [1, 1, 1]), unit="server")).token_interval()
    assert (few.low[1], few.high[1]) == (1.0, 2.0)


class TestCheckOfLengths:
    def test_false_alarms_are_as_rare_as_stated(self) -> None:
        """Lengths that are independent: 99 % intervals, 100 records of requests that differ."""
        rng = np.random.default_rng(11)
        alarms = sum(
            check_lengths(simulate(rng, 25, adaptive=True)).contradicted for _ in range(100)
        )
        assert alarms / 100 <= 0.01 + 5 * np.sqrt(0.01 * 0.99 / 100)

    def test_lengths_that_follow_acceptance_are_found(self) -> None:
        """A drafter that stops on low confidence, and an engine that lets easy requests draft
        longer.
        """
        rng = np.random.default_rng(12)
        whole = rng.geometric(0.4, size=4000) - 1
        stops = np.where(rng.random(4000) < 0.7, np.clip(whole, 1, 4), 4)
        confident = check_lengths(record_of(steps(np.minimum(whole, stops), stops), unit="server"))
        assert confident.contradicted and confident.longer > confident.shorter
        parts = []
        for rate in rng.uniform(0.3, 0.9, size=40):
            drafted = np.full(60, 4 if rate > 0.6 else 2)
            parts.append(steps(np.minimum(rng.geometric(1 - rate, size=60) - 1, drafted), drafted))
        assert check_lengths(record_of(*parts)).contradicted

    def test_the_interval_is_the_jackknife_s(self) -> None:
        accepted, drafted = np.array([2, 1, 4, 0, 1, 0, 0]), np.array([4, 4, 4, 4, 2, 2, 2])

        def difference(a: np.ndarray, d: np.ndarray) -> float:
            return float(np.mean(a[d == 4] > 0) - np.mean(a[d == 2] > 0))

        without = [difference(np.delete(accepted, i), np.delete(drafted, i)) for i in range(7)]
        found = check_lengths(record_of(steps(accepted, drafted), unit="server")).difference
        assert found.value == pytest.approx(3 / 4 - 1 / 3, abs=1e-15)
        # t, 6 degrees of freedom; √((n − 1)/n Σ (r − r̄)²) with n = 7
        half = 3.7074280213 * np.sqrt(6.0) * np.std(without)
        assert found.high - found.low == pytest.approx(2 * half, rel=1e-8)

    def test_where_there_is_nothing_to_check(self) -> None:
        for tally in (steps([0, 2], [2, 2]), Tally.of_histogram([2, 2, 6], name="")):
            with pytest.raises(otm.errors.InvalidParameter, match="Lengths are checked"):
                check_lengths(record_of(tally))
        with pytest.raises(otm.errors.InvalidParameter, match="one length"):
            check_lengths(record_of(steps([0, 1, 0], [2, 2, 0])))


def test_means_bound_every_completion_of_every_record_and_are_attained() -> None:
    """Four steps of up to two drafts, whatever each drafted, accepted and would have accepted."""
    kinds = [
        (drafted, accepted, met)
        for drafted in range(3)
        for accepted in range(drafted + 1)
        for met in (range(accepted, 3) if accepted == drafted else (accepted,))
    ]
    reached: dict[tuple[int, int], list[NDArray[np.float64]]] = {}
    for steps in itertools.combinations_with_replacement(kinds, 4):
        drafted, accepted, met = np.transpose(steps)
        tokens = 1 + np.minimum(met[:, None], [0, 1, 2]).mean(axis=0)
        reached.setdefault((int(drafted.sum()), int(accepted.sum())), []).append(tokens)
    attained = 0
    for (drafted, accepted), found in reached.items():
        if not drafted:
            continue
        part = Tally("", 4.0, float(accepted), float(drafted))
        record = AcceptanceRecord(form="", unit="server", parts=(part,), convention="")
        bounds = mean_bounds(record, drafts=2)
        low, high = np.min(found, axis=0), np.max(found, axis=0)
        assert (bounds.lower <= low + 1e-12).all() and (bounds.upper >= high - 1e-12).all()
        if accepted % 2 == 0 and drafted % 2 == 0:
            np.testing.assert_allclose([bounds.lower, bounds.upper], [low, high], rtol=1e-12)
            attained += 1
    assert attained == 14
