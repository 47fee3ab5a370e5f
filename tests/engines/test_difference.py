"""Two records compared: coverage and power by simulation, pairs, and what cannot be told."""

import numpy as np
import pytest
import scipy.stats

from otm.engines import compare_records, record_of_mean
from otm.engines.difference import drifted_positions
from otm.engines.records import AcceptanceRecord, Tally
from otm.engines.records.record import Times
from otm.errors import InvalidParameter

PAIRS, REQUESTS, STEPS = 400, 30, 40


def of_requests(accepted, names=None, times=None):
    """A record of requests that accepted so many drafts in STEPS steps each."""
    names = names or [f"request {i + 1}" for i in range(len(accepted))]
    parts = tuple(Tally(name, STEPS, a) for name, a in zip(names, accepted, strict=True))
    return AcceptanceRecord("", "request", parts, "", times=times)


def accepted(rng, rate, *size):
    """Accepted drafts of requests whose rates differ, of three drafts a step."""
    rates = rng.beta(10 * rate, 10 * (1 - rate), size=size)
    return rng.binomial(3 * STEPS, rates).astype(float)


def verdicts(rate):
    """Which pairs differ, of records with .6 accepted drafts and with another share."""
    rng = np.random.default_rng(0)
    tables = [accepted(rng, one, PAIRS, REQUESTS) for one in (0.6, rate)]
    return [
        compare_records(of_requests(a), of_requests(b)).verdict == "differ"
        for a, b in zip(*tables, strict=True)
    ]


def test_equal_laws_differ_as_often_as_promised_and_three_errors_are_found():
    law = scipy.stats.binom(PAIRS, 0.05)
    assert law.ppf(1e-4) <= sum(verdicts(0.6)) <= law.isf(1e-4)
    spread = accepted(np.random.default_rng(1), 0.6, 100_000).std() / STEPS
    error = spread * np.sqrt(2 / REQUESTS)
    assert sum(verdicts(0.6 + 3 * error / 3)) >= 0.8 * PAIRS


def test_prompts_are_paired_by_name_and_numbers_are_no_names():
    """Each prompt gains one draft in a step, which pairs tell and independent records do not."""
    base = np.arange(12.0) * 10
    names = [f"prompt {chr(97 + i)}" for i in range(12)]
    slow, fast = of_requests(base, names), of_requests(base[::-1] + STEPS, names[::-1])
    found = compare_records(fast, slow)
    assert found.paired and found.verdict == "differ" and found.needed == 2
    assert found.difference.low == pytest.approx(1.0)
    apart = compare_records(of_requests(base + 1), of_requests(base))
    assert not apart.paired and apart.verdict == "not shown to differ"
    # with so many requests half the width is the difference
    grown = np.tile(base, apart.needed // 12 + 1)
    assert compare_records(of_requests(grown + 1), of_requests(grown)).verdict == "differ"


def test_steps_stand_in_for_requests_and_means_have_no_interval():
    counts = AcceptanceRecord("", "server", (Tally.of_histogram([20, 30, 50], name=""),), "")
    found = compare_records(counts, 2.0)
    error = np.sqrt(0.61 / 99)  # the variance of the number of accepted drafts is .61
    assert found.clusters == "step" and found.verdict == "differ"
    assert found.difference.high == pytest.approx(0.3 + scipy.stats.t(99).isf(0.025) * error)
    assert found.ratio.value == pytest.approx(1.15)
    none = compare_records(counts, record_of_mean(2.0))
    assert none.clusters == "none" and none.needed is None and not none.difference.has_interval
    assert none.verdict == "not shown to differ"
    assert compare_records(counts, counts).needed is None
    with pytest.raises(InvalidParameter):
        compare_records(counts, 0.5)


def test_times_are_compared_with_the_same_number_running():
    one, two = (of_requests([1.0, 2.0], times=Times({8: t, 1: 9.0}, 8)) for t in (0.01, 0.02))
    assert compare_records(one, two).seconds == (0.01, 0.02)
    other = of_requests([1.0, 2.0], times=Times({4: 0.02}, 4))
    assert compare_records(one, other).seconds is None


def test_drift_is_found_at_the_99_per_cent_it_names():
    rng = np.random.default_rng(0)
    law = [0.2, 0.3, 0.5]
    records = [
        AcceptanceRecord("", "server", (Tally.of_histogram(row, name=""),), "")
        for row in rng.multinomial(1000, law, size=800)
    ]
    false = sum(
        bool(drifted_positions(*pair)) for pair in zip(records[::2], records[1::2], strict=True)
    )
    assert false <= scipy.stats.binom(400, 0.01).isf(1e-4)
