"""Boxes: splits at the exact float, halves where a comparison is likely settled, and nothing lost on the way."""

from __future__ import annotations

import math

import pytest

from otm.audit.boxes import Execution, volume


@pytest.mark.parametrize("threshold", [0.3, 5e-324, 1e-300, math.nextafter(1.0, 0.0)])
def test_a_split_is_at_the_first_float_that_changes_the_answer(threshold: float) -> None:
    run = Execution([0.0, 0.0], [1.0, 1.0])
    assert run.split_at_change(0, lambda point: point[0] >= threshold)
    ((low, high),) = run.pending
    ends = {run.low[0], run.high[0], low[0], high[0]}
    assert ends == {0.0, threshold, 1.0}
    assert math.isclose(run.volume + volume((low, high)), 1.0, abs_tol=1e-15)
    assert run.volume >= 0.5  # on in the larger part


def test_nothing_is_split_where_the_answer_stays() -> None:
    run = Execution([0.25], [0.5])
    assert not run.split_at_change(0, lambda point: point[0] < 0.5)
    assert run.pending == []


@pytest.mark.parametrize(("level", "kept"), [(0.5, [0.5, 0.0]), (1.5, [0.0, 0.0]), (0.9, [0.0, 0.0])])
def test_the_half_that_is_settled_comes_first(level: float, kept: list[float]) -> None:
    """x + y < level on [0, 1) × [0, 1/2): false all over the upper half, true all over the lower, open in both."""
    run = Execution([0.0, 0.0], [1.0, 0.5])
    assert run.halve([0, 1], lambda point: sum(point) < level)
    assert (run.low, run.slanted, run.volume) == (kept, True, 0.25)
    assert volume(run.pending[0]) == 0.25


def test_a_box_too_small_to_halve_is_left() -> None:
    run = Execution([0.5], [math.nextafter(0.5, 1.0)])
    assert not run.halve([0], lambda point: True)
    assert run.middle == [0.5]
