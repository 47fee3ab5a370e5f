"""The battery as an assertion."""

from __future__ import annotations

import pytest

import otm
from otm import audit
from tests.audit.callables import maximal, one_uniform


def test_what_passes_is_returned() -> None:
    result = audit.assert_lossless(maximal, laws=[otm.IID(1)])
    assert result.verdict == "lossless"
    assert 0.0 < result.false_alarm <= 1e-9


def test_what_fails_brings_the_report_and_a_test_to_copy() -> None:
    with pytest.raises(AssertionError) as failed:
        audit.assert_lossless(one_uniform, laws=[otm.IID(2)])
    text = str(failed.value)
    assert text.startswith("## `one_uniform`: not lossless\nTested: ")
    assert "```python\nimport otm\nfrom tests.audit.callables import one_uniform\n" in text


def test_nothing_said_is_no_pass() -> None:
    with pytest.raises(AssertionError, match="no verdict"):
        audit.assert_lossless(maximal, seconds=0, shrink_for=0)
