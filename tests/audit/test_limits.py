"""Time limits: they end an audit from within the candidate's calls, through everything that catches its errors."""

from __future__ import annotations

import time

import pytest

import otm
from otm import audit
from otm.audit.batteries import battery
from otm.audit.limits import OutOfTime, limited
from tests.audit.callables import as_floats, maximal, one_uniform, recursive


def test_time_that_is_up_is_no_failure_of_the_candidate() -> None:
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))
    for verify in (maximal, as_floats(maximal)):
        with pytest.raises(OutOfTime):
            audit.exact(limited(audit.Candidate(verify), time.monotonic() - 1.0), problem)
        assert audit.exact(limited(audit.Candidate(verify), time.monotonic() + 1e6), problem).verdict == "lossless"


def test_a_battery_without_time_has_no_verdict_and_says_what_it_lacks() -> None:
    result = battery(recursive, seconds=0)
    assert (result.verdict, result.audits) == ("no verdict", {})
    assert "Nothing was tested" in str(result)
    assert "with 1 draft by IID (time was up)" in str(result.coverage)
    assert set(result.uncovered) == {"1 draft by IID", "2 drafts by IID", "3 drafts by IID"}


def test_shrinking_without_time_leaves_the_smallest_standard_instance() -> None:
    assert audit.shrink(limited(audit.Candidate(one_uniform), time.monotonic() - 1.0), law=otm.IID(2)) is None
    result = audit.exact_battery(one_uniform, laws=[otm.IID(2)], shrink_for=1e-9)
    assert result.counterexample in result.failed.values()
