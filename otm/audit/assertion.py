"""A verifier under test: the default battery as an assertion, for pytest and whatever else runs
tests.
"""

from __future__ import annotations

from typing import Any

from otm.audit import exports
from otm.audit.batteries import BatteryAudit, battery
from otm.audit.verdicts import PASSED


def assert_lossless(candidate: object, **options: Any) -> BatteryAudit:
    """Fail unless the default battery finds nothing: `otm.audit.battery` as an assertion.

    Args:
        candidate, options: as for `otm.audit.battery`; the seed is fixed unless given, so that the
            same code has the same verdict.

    Returns:
        BatteryAudit of a candidate that passed.

    Raises:
        AssertionError: if the verdict is "not lossless", "undecided" or "no verdict"; its message
            is the report for a pull request, and below it the minimal counterexample as a test to
            keep.
        CandidateFailure, InvalidParameter: as `otm.audit.battery`.

    Cost: as `otm.audit.battery`, under 30 seconds. A lossless candidate fails with probability at
        most `false_alarm` of the result.

    >>> otm.audit.assert_lossless(otm.KSeq()).verdict
    'lossless'
    """
    __tracebackhide__ = True
    result = battery(candidate, **options)
    if result.verdict not in PASSED:
        raise AssertionError(report(result, candidate))
    return result


def report(result: BatteryAudit, candidate: object) -> str:
    """Return the report of a battery with its counterexample as a test to keep."""
    if result.counterexample is None:
        return str(result)
    test = exports.as_test(result.counterexample, named(candidate, result.name))
    return f"{result}\n\n```python\n{test}\n```"


def named(candidate: object, name: str) -> str:
    """Return "module:function" of a callable that can be imported so, else its name."""
    function: Any = getattr(candidate, "verify", candidate)
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    return name if ":" in name or not module or "<" in path else f"{module}:{path}"
