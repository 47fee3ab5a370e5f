"""Time limits: they end an audit from within the candidate's calls, through everything that catches
its errors.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

import otm
from otm import audit
from otm.audit.batteries import battery
from otm.audit.budget import Deadline, OutOfTime
from tests.audit.callables import as_floats, maximal, one_uniform, recursive


@pytest.mark.parametrize("verify", [maximal, as_floats(maximal)])
def test_time_that_is_up_is_no_failure_of_the_candidate(verify: Any) -> None:
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))
    candidate = audit.TokenCandidate(verify)
    with pytest.raises(OutOfTime):
        audit.exact(candidate.limited(Deadline(-1.0)), problem)
    assert audit.exact(candidate.limited(Deadline(1e6)), problem).verdict == "lossless"


def test_a_kernel_of_batches_without_time_is_not_even_timed() -> None:
    result = battery(audit.BatchCandidate(lambda p, q, d, rng: d[:, 0]), seconds=0, shrink_for=0)
    assert (result.verdict, result.audits) == ("no verdict", {})


def test_a_battery_without_time_has_no_verdict_and_says_what_it_lacks() -> None:
    result = battery(recursive, seconds=0, shrink_for=0)
    assert (result.verdict, result.audits) == ("no verdict", {})
    assert "Nothing was tested" in str(result)
    assert str(result.coverage).startswith("Tested: nothing.\nNot tested: ")
    assert "with 1 draft by IID (time was up)" in str(result.coverage)
    assert set(result.uncovered) == {"1 draft by IID", "2 drafts by IID", "3 drafts by IID"}


def test_shrinking_without_time_leaves_the_smallest_standard_instance() -> None:
    assert (
        audit.shrink(audit.TokenCandidate(one_uniform).limited(Deadline(-1.0)), law=otm.IID(2))
        is None
    )
    result = audit.battery(
        one_uniform, only="exact", laws=[otm.IID(2)], seconds=120.0, shrink_for=1e-9
    )
    assert result.counterexample in result.failed.values()


def test_what_was_not_reached_is_no_green() -> None:
    """A fault of .027 with two drafts: where the instance that shows it is not reached, samples
    planned for .1 say nothing.
    """

    def slow(p: object, q: object, drafts: object, uniforms: object) -> object:
        time.sleep(1e-4)
        return as_floats(one_uniform)(p, q, drafts, uniforms)

    result = battery(slow, laws=[otm.IID(2)], seconds=0.3, shrink_for=0.3)
    assert result.verdict in ("no verdict", "not lossless")
    assert result.verdict == "not lossless" or "time was up" in str(result).lower()


def test_what_nothing_contradicts_has_the_time_of_the_counterexample_too() -> None:
    """No time but that: what a verdict needs is tested, what it does not is left out."""

    result = battery(recursive, seconds=0, shrink_for=120.0, errors=audit.Errors(detect=0.5))
    assert (result.verdict, result.coverage.drafts) == ("lossless", (1, 2, 3))
    assert any("with 8 drafts by IID (time was up)" in note for note in result.left_out)


def test_a_call_that_does_not_come_back_is_ended() -> None:
    def endless(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
        while len(p) == 3:
            pass
        return int(recursive(p, q, drafts, uniforms)[0])

    result = battery(endless, laws=[otm.IID(1)], only="token", seconds=1.0, shrink_for=0)
    assert result.verdict == "no verdict"
    assert "time was up" in str(result)
