"""Counts of accepted drafts: an alarm where more is accepted than can be, its error rate, and no
all-clear ever.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import otm
from otm import audit
from otm.engines import AcceptanceRecord
from otm.engines.records.tally import Tally


def record_of(histogram: Any, unit: str = "request") -> AcceptanceRecord:
    return AcceptanceRecord(
        form="counts", unit=unit, parts=(Tally.of_histogram(histogram, name="a"),), convention=""
    )


def test_more_than_possible_is_an_alarm_and_bounds_the_total_variation() -> None:
    """10,000 steps accept .9 and .7 of two drafts; .8 and .7 are possible; √(log(40)/20,000) =
    .0136 at 95 %.
    """
    found = audit.acceptance_counts(record_of([1_000, 2_000, 7_000]), expected=(0.8, 0.7))
    assert found.verdict == "not lossless"
    assert found.excess == pytest.approx(0.1)
    assert found.severity == pytest.approx(0.1 - math.sqrt(math.log(2 / 0.05) / 2 / 10_000))
    assert "at most 4/5 is possible" in str(found)


@pytest.mark.parametrize(
    ("histogram", "expected", "said"),
    [
        ([1_000, 9_000], (0.9,), "no higher than a lossless scheme can have it"),
        ([1_000, 9_000], (), "say how much is possible"),
        (
            [1, 9],
            (0.1,),
            "0.8 higher than expected; these are too few steps",
        ),  # ten steps show nothing
    ],
)
def test_otherwise_there_is_no_verdict_and_it_says_what_is_missing(
    histogram: Any, expected: Any, said: str
) -> None:
    found = audit.acceptance_counts(record_of(histogram), expected=expected)
    assert found.verdict == "no verdict"
    assert said in str(found)


@pytest.mark.parametrize(
    ("part", "excess", "severity", "said"),
    [
        (Tally(name="a", steps=100.0, accepted=150.0), -1.0, 0.0, "means only"),
        # rounded rates are taken at their lower end
        (
            Tally.of_survivors([8_003.5], steps=10_000, name="a"),
            0.80035 * 0.995 - 0.1,
            0.80035 * 0.995 - 0.1 - math.sqrt(math.log(1 / 0.05) / 2 / 10_000),
            "at most 1/10 is possible",
        ),
    ],
)
def test_means_have_no_position_and_rates_are_rounded(
    part: Tally, excess: float, severity: float, said: str
) -> None:
    record = AcceptanceRecord(form="means", unit="run", parts=(part,), convention="")
    found = audit.acceptance_counts(record, expected=(0.1,))
    assert [found.excess, found.severity] == pytest.approx([excess, severity], abs=1e-12)
    assert found.verdict == ("not lossless" if severity else "no verdict")
    assert said in str(found)


def test_false_alarms_and_power() -> None:
    """At level .05 over two positions, in 2,000 records of a lossless engine: 145 alarms or more
    have probability 1e-5.

    An excess of `found` is missed with at most .1: 260 misses of 2,000 have probability 1e-5.
    """
    rng = np.random.default_rng(0)
    steps, most = 400, np.array([0.7, 0.5])
    errors = audit.Errors(false_alarm=0.05, missed=0.1)

    def alarms(rates: Any) -> int:
        exactly = [1.0 - rates[0], rates[0] - rates[1], rates[1]]
        drawn = rng.multinomial(steps, exactly, size=2_000)
        seen = [
            audit.acceptance_counts(record_of(row.tolist()), expected=most.tolist(), errors=errors)
            for row in drawn
        ]
        return sum(one.verdict == "not lossless" for one in seen)

    assert alarms(most) < 145
    found = audit.acceptance_counts(
        record_of([120, 80, 200]), expected=most.tolist(), errors=errors
    ).found
    assert alarms(most + np.array([found, 0.0])) > 2_000 - 260


@pytest.mark.parametrize("expected", [(0.5, 0.8), (1.2,), ("x",)])
def test_what_is_refused(expected: Any) -> None:
    with pytest.raises(otm.errors.OtmError):
        audit.acceptance_counts(record_of([1, 1]), expected=expected)
