"""Unequal draft lengths: corrected exactly where they are independent, bounded where not; intervals
that cover.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy
from hypothesis import given, settings, strategies as st

import otm
from otm.engines.records import (
    AcceptanceRecord,
    Tally,
    check_lengths,
    estimate_tokens,
    estimates,
    kaplan_meier,
    mean_bounds,
    request_mean,
    survival_bounds,
)


def record_of(*parts, unit="request", **known):
    return AcceptanceRecord(form="test", unit=unit, parts=parts, convention="", **known)


def steps(accepted, drafted):
    return Tally.of_steps(np.asarray(accepted), np.asarray(drafted), name="")


pairs = st.integers(1, 4).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d)))


@settings(max_examples=60)
@given(st.lists(pairs, min_size=1, max_size=30))
def test_the_product_limit_is_of_what_was_tried(drawn):
    accepted, drafted = zip(*drawn, strict=True)
    survival, exact = Fraction(1), []
    for i in range(1, max(drafted) + 1):
        tried = sum(a >= i - 1 and d >= i for a, d in drawn)
        survival *= Fraction(sum(a >= i for a in accepted), tried) if tried else 0
        exact.append(float(survival))
        if not tried and sum(a >= i - 1 for a in accepted):
            # a position that some step reached and none drafted: nothing is known about it
            return
    whole = record_of(steps(accepted, drafted), unit="server")
    halves = [steps(accepted[i::2], drafted[i::2]) for i in range(2) if accepted[i::2]]
    for record in (whole, record_of(*halves)):
        if record.censoring == "observed":
            np.testing.assert_allclose(kaplan_meier(record).survival, exact, rtol=1e-14)
    found = np.diff(estimate_tokens(whole).tokens)
    np.testing.assert_allclose(found, exact, rtol=1e-13, atol=1e-15)


def test_the_product_limit_is_exact_in_expectation_for_a_toy_process():
    """All outcomes of a step, their probabilities as counts: acceptances 3/4, 1/2, 1/4; lengths
    1, 2, 3 independent of them.
    """
    conditional, accepted, drafted = [3 / 4, 1 / 2, 1 / 4], [], []
    for length, weight in {1: 3, 2: 2, 3: 1}.items():
        for a in range(length + 1):
            mass = np.prod(conditional[:a]) * (1 - conditional[a] if a < length else 1)
            accepted += [a] * int(mass * weight * 32)
            drafted += [length] * int(mass * weight * 32)
    assert len(accepted) == 6 * 32
    record = record_of(steps(accepted, drafted), unit="server")
    truth = [3 / 4, 3 / 8, 3 / 32]
    np.testing.assert_allclose(kaplan_meier(record).survival, truth, rtol=1e-14)
    # What the engine prints falls short: undrafted reads as rejected.
    short = [3 / 4, 3 / 8 * 3 / 6, 3 / 32 / 6]
    np.testing.assert_allclose(record.survival.survival, short, rtol=1e-14)
    # Only marginal counts: the quotient is right as well, for here lengths do not depend on
    # acceptance at all.
    counts, offered = (np.bincount(each, minlength=4) for each in (accepted, drafted))
    marginal = record_of(Tally.of_histogram(counts, name="", offered=offered), unit="server")
    np.testing.assert_allclose(kaplan_meier(marginal).survival, truth, rtol=1e-14)


def test_a_histogram_cannot_be_corrected_and_says_so():
    for sums in ({}, {"drafted": 17}):
        with pytest.raises(otm.errors.InvalidParameter, match="Record steps in detail"):
            kaplan_meier(record_of(Tally.of_histogram([2, 2, 6], name="", **sums)))
    full = record_of(Tally.of_histogram([2, 2, 6], name="", drafted=20))
    assert kaplan_meier(full).survival.tolist() == [0.8, 0.6]


@settings(max_examples=60)
@given(st.lists(pairs, min_size=1, max_size=12))
def test_both_ends_of_bounds_are_attained(drawn):
    accepted, drafted = np.transpose(drawn)
    record = record_of(steps(accepted, drafted), unit="server")
    bounds = survival_bounds(record)
    for i in range(1, max(drafted) + 1):
        # Complete the record: a step that accepted all it drafted goes on to none, or to all.
        assert bounds.lower[i - 1] == pytest.approx((accepted >= i).mean())
        best = (accepted >= i) | (accepted == drafted)
        assert bounds.upper[i - 1] == pytest.approx(best.mean())
    if record.censoring == "observed":
        estimate = np.diff(estimate_tokens(record).tokens)
        known = ~np.isnan(estimate)
        assert (bounds.lower[known] <= estimate[known] + 1e-12).all()
        assert (estimate[known] <= bounds.upper[known] + 1e-12).all()


few = st.integers(1, 3).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d)))


@settings(max_examples=25)
@given(st.lists(few, min_size=1, max_size=6))
def test_marginal_counts_give_the_widest_of_what_they_allow(drawn):
    """Against every assignment of lengths to steps, by enumeration."""
    accepted, drafted = np.transpose(drawn)
    counts, offered = (
        np.bincount(each, minlength=max(drafted) + 1) for each in (accepted, drafted)
    )
    tally = Tally.of_histogram(counts, name="", offered=offered)
    bounds = survival_bounds(record_of(tally, unit="server"))
    orders = [np.array(order) for order in itertools.permutations(drafted)]
    possible = [order for order in orders if (accepted <= order).all()]
    for i in range(1, max(drafted) + 1):
        most = max(((accepted >= i) | (accepted == order)).mean() for order in possible)
        assert bounds.upper[i - 1] == pytest.approx(most)


@pytest.mark.parametrize(("drafted", "upper"), [(None, [1, 1]), (20, [0.8, 0.6]), (50, [1, 1])])
def test_a_histogram_bounds_what_the_sum_of_drafts_allows(drafted, upper):
    """Unknown, as many as were listed, and beyond the end of the list."""
    bounds = survival_bounds(record_of(Tally.of_histogram([2, 2, 6], name="", drafted=drafted)))
    assert (bounds.lower.tolist(), bounds.upper.tolist()) == ([0.8, 0.6], upper)
    np.testing.assert_allclose([tokens[-1] for tokens in bounds.tokens], [2.4, 1 + sum(upper)])


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=8).filter(lambda counts: counts[-1] > 0),
    st.integers(0, 100),
)
def test_missing_drafts_go_to_the_steps_that_miss_fewest(counts, percent):
    """One step at a time, the cheapest first."""
    length, total = len(counts) - 1, sum(counts)
    accepted = sum(j * count for j, count in enumerate(counts))
    missing = percent * (total * length - accepted) // 100
    tally = Tally.of_histogram(counts, name="", drafted=total * length - missing)
    upper = survival_bounds(record_of(tally, unit="server")).upper
    for i in range(1, length + 1):
        left, stopped = missing, 0
        for price in (length - j for j in range(i - 1, -1, -1) for _ in range(counts[j])):
            stopped, left = (stopped + 1, left - price) if price <= left else (stopped, 0)
        assert upper[i - 1] == pytest.approx((sum(counts[i:]) + stopped) / total)


def test_long_lists_are_bounded_in_one_pass():
    """One step for each number of accepted drafts; n drafts are missing, which the last ones
    cost 1, 2, … of.
    """
    length = 100_000
    tally = Tally.of_histogram([1] * (length + 1), name="", drafted=length * (length + 1) - 55)
    bounds = survival_bounds(record_of(tally))
    assert bounds.upper[-1] == (1 + 10) / (length + 1)  # 1 + 2 + … + 10 = 55
    assert bounds.upper[0] == bounds.lower[0] == length / (length + 1)


@pytest.mark.parametrize(
    "tallies",
    [
        [Tally.of_histogram([1] * 61, name="")],
        [steps(np.arange(60), np.full(60, 60) - (np.arange(60) < 9))],
        [Tally.of_histogram([1, 1], name="")] * 60 + [Tally.of_histogram([0] * 60 + [1], name="")],
    ],
    ids=["kinds of steps", "listed steps", "requests"],
)
def test_tables_beyond_the_limit_are_refused(tallies, monkeypatch):
    monkeypatch.setattr(estimates, "MAX_TABLE", 3_000)
    with pytest.raises(otm.errors.TooLarge, match="Shorten the record's positions"):
        estimate_tokens(record_of(*tallies))


@pytest.mark.parametrize("unit", ["request", "window"])
def test_intervals_are_the_jackknife_s_over_requests_or_else_over_steps(unit):
    """Each cluster left out of a record of its own: requests of unequal steps and lengths."""
    rng = np.random.default_rng(7)
    drafted = [rng.integers(1, 4, size=n) for n in (5, 9, 14, 6)]
    parts = [np.stack([rng.integers(0, d + 1), d], axis=1) for d in drafted]
    clusters = parts if unit == "request" else list(np.concatenate(parts)[:, None])
    whole = estimate_tokens(record_of(*(steps(*part.T) for part in parts), unit=unit))
    assert whole.clusters == ("request" if unit == "request" else "step")
    without = []
    for i in range(len(clusters)):
        rest = np.concatenate(clusters[:i] + clusters[i + 1 :])
        without.append(estimate_tokens(record_of(steps(*rest.T), unit="server")).tokens)
    n = len(clusters)
    half = scipy.stats.t.isf(0.025 / 10, n - 1) * np.sqrt(n - 1) * np.std(without, axis=0)
    found = whole.interval(whole.tokens, whole.replicates, comparisons=10)
    np.testing.assert_allclose(found.high - found.value, half, rtol=1e-8)
    np.testing.assert_allclose(found.value - found.low, half, rtol=1e-8)


def test_the_mean_of_requests_has_the_textbook_s_interval():
    counts = np.array([[2, 2, 6], [5, 5, 0], [9, 20, 1], [1, 3, 6], [4, 4, 4]])
    means = 1 + counts @ [0, 1, 2] / counts.sum(axis=1)
    found = request_mean(record_of(*(Tally.of_histogram(one, name="") for one in counts)))
    half = scipy.stats.t.isf(0.025, 4) * means.std(ddof=1) / np.sqrt(5)
    assert (found.low, found.value, found.high) == pytest.approx(
        (means.mean() - half, means.mean(), means.mean() + half)
    )


def test_the_mean_of_requests_ends_where_the_longest_list_ends():
    """Requests of at most 2, 4 and 2 tokens a step; the interval alone would end at 5.8."""
    short, long_ = Tally.of_histogram([5, 5], name=""), Tally.of_histogram([0, 0, 0, 9], name="")
    found = request_mean(record_of(short, long_, short))
    assert (found.low, found.high) == (1.0, 4.0)
    # A list cut short does not say how many tokens a step yields at most.
    cut = Tally.of_survivors([9, 9], steps=9, name="", accepted=27)
    assert request_mean(record_of(short, cut, short)).high > 5
    assert request_mean(record_of(short, short)).samples == 2


def test_single_requests_and_rates_have_no_intervals_over_requests():
    single = estimate_tokens(record_of(steps([0, 1, 2], [2, 2, 2])))
    assert single.clusters == "step"
    rates = record_of(Tally.of_rates([0.8, 0.6], name=""), unit="run")
    bare = estimate_tokens(rates)
    np.testing.assert_allclose(bare.tokens, [1.0, 1.8, 2.4], rtol=1e-15)
    assert bare.clusters == "none" and np.isnan(bare.token_interval().low[1])
    with pytest.raises(otm.errors.InvalidParameter, match="two of them"):
        request_mean(rates)


def test_step_intervals_are_the_textbook_s():
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


@pytest.mark.parametrize("longer", [False, True])
def test_lengths_that_follow_acceptance_are_found(longer):
    """Where easy requests draft longer; independent lengths are not contradicted."""
    rng = np.random.default_rng(12)
    parts = []
    for rate in rng.uniform(0.3, 0.9, size=40):
        drafted = np.full(60, 4 if rate > 0.6 else 2) if longer else rng.integers(1, 5, size=60)
        parts.append(steps(np.minimum(rng.geometric(1 - rate, size=60) - 1, drafted), drafted))
    assert check_lengths(record_of(*parts)).contradicted == longer


@pytest.mark.parametrize("unit", ["server", "request"])
def test_the_interval_of_a_check_is_the_jackknife_s(unit):
    """Over steps, or over three requests, one of which has a step without drafts."""
    accepted, drafted = np.array([2, 1, 4, 0, 0, 1, 0, 0]), np.array([4, 4, 4, 0, 4, 2, 2, 2])
    requests = [[0, 1, 5], [2, 3, 6], [4, 7]]
    clusters = [[i] for i in range(8) if i != 3] if unit == "server" else requests

    def difference(a, d):
        return float(np.mean(a[d == 4] > 0) - np.mean(a[d == 2] > 0))

    without = [difference(*np.delete([accepted, drafted], out, axis=1)) for out in clusters]
    parts = [steps(accepted[one], drafted[one]) for one in requests]
    found = check_lengths(record_of(*parts, unit=unit)).difference
    assert found.value == pytest.approx(3 / 4 - 1 / 3, abs=1e-15)
    # t with n − 1 degrees of freedom; √((n − 1)/n Σ (r − r̄)²)
    n = len(clusters)
    half = scipy.stats.t.isf(0.005, n - 1) * np.sqrt(n - 1) * np.std(without)
    assert found.high - found.low == pytest.approx(2 * half, rel=1e-8)


def test_a_step_of_the_mean_length_is_short():
    """Of lengths 1, 2, 2 and 3 only 3 exceeds their mean."""
    found = check_lengths(record_of(steps([0, 2, 0, 3], [1, 2, 2, 3])))
    assert (found.longer, found.shorter) == (1.0, pytest.approx(1 / 3))


def test_where_there_is_nothing_to_check():
    for tally in (steps([0, 2], [2, 2]), Tally.of_histogram([2, 2, 6], name="")):
        with pytest.raises(otm.errors.InvalidParameter, match="Lengths are checked"):
            check_lengths(record_of(tally))
    with pytest.raises(otm.errors.InvalidParameter, match="one length"):
        check_lengths(record_of(steps([0, 1, 0], [2, 2, 0])))


def test_means_are_bounded_up_to_the_length_that_was_set():
    """Of 2.5 drafts a step, up to 4; of an unknown number, up to 3; up to an unknown length."""
    bounds = mean_bounds(record_of(Tally("", 4.0, 6.0, 10.0), length=4))
    assert bounds.lower.tolist() == [1 + n * 1.5 / 4 for n in range(5)]
    assert bounds.upper.tolist() == [1 + min(n, 1.5 + n * 1.5 / 4) for n in range(5)]
    assert bounds.drafts == 2.5
    bounds = mean_bounds(record_of(Tally.of_mean(2.5, name=""), length=3))
    assert bounds.lower.tolist() == [1, 1.5, 2, 2.5] and bounds.upper.tolist() == [1, 2, 2.5, 2.5]
    bounds = mean_bounds(record_of(Tally("", 4.0, 6.0, 10.0)))
    assert (bounds.lower.tolist(), bounds.upper.tolist(), bounds.drafts) == ([1.0], [1.0], 2.5)
    bounds = mean_bounds(record_of(Tally.of_mean(2.5, name="")))
    assert (bounds.lower.tolist(), bounds.upper.tolist()) == ([1.0], [1.0])
    assert np.isnan(bounds.drafts)


def test_means_bound_every_completion_of_every_record_and_are_attained():
    """Four steps of up to two drafts, whatever each drafted, accepted and would have accepted."""
    kinds = [
        (drafted, accepted, met)
        for drafted in range(3)
        for accepted in range(drafted + 1)
        for met in (range(accepted, 3) if accepted == drafted else (accepted,))
    ]
    reached = {}
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
