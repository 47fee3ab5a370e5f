"""Executions: splits at the exact float, halves where a comparison is likely settled, and nothing
lost on the way.
"""

import math

import pytest

from otm.audit.tracing.execution import Execution, TraceAborted


def execution(*ends):
    run = Execution()
    for low, high in ends:
        axis = run.axis()
        run.low[axis], run.high[axis] = low, high
    return run


def followed(decisions, axes):
    """Go where an execution that was set aside begins."""
    run = Execution(prescribed=decisions)
    for _ in range(axes):
        run.axis()
    while len(run.made) < len(decisions):
        if decisions[len(run.made)][0] == "split":
            run.follow_split()
        else:
            run.choose([0.5, 0.25, 0.25])
    return run


@pytest.mark.parametrize("threshold", [0.3, 5e-324, 1e-300, math.nextafter(1.0, 0.0)])
def test_a_split_is_at_the_first_float_that_changes_the_answer(threshold):
    run = execution((0.0, 1.0), (0.0, 1.0))
    assert run.split_at_change(0, lambda point: point[0] >= threshold)
    ((mass, decisions),) = run.pending
    other = followed(decisions, 2)
    assert {run.low[0], run.high[0], other.low[0], other.high[0]} == {0.0, threshold, 1.0}
    assert math.isclose(run.volume + mass, 1.0, abs_tol=1e-15)
    assert other.volume == mass
    assert run.volume >= 0.5  # on in the larger part


@pytest.mark.parametrize(
    ("slope", "level", "kept"),
    [(1, 0.5, [0.5, 0.0]), (1, 1.5, [0.0, 0.0]), (1, 0.9, [0.0, 0.0]), (-1, -0.25, [0.5, 0.0])],
)
def test_the_half_that_is_settled_comes_first(slope, level, kept):
    """x ± y < level on [0, 1) × [0, 1/2): false all over the upper half, true all over the lower,
    open in both, and false all over the upper half again, where the lower one's ends agree.
    """
    run = execution((0.0, 1.0), (0.0, 0.5))
    assert run.halve([0, 1], lambda point: point[0] + slope * point[1] < level)
    assert (run.low, run.slanted, run.volume) == (kept, True, 0.25)
    assert run.pending[0][0] == 0.25


def test_an_axis_is_cut_into_all_parts_by_one_decision():
    """Lengths 1/4, 0, 1/2 and 1/4: on in the largest, nothing of an empty one."""
    run = execution((0.0, 1.0))
    assert (run.cut(0, [0.25, 0.25, 0.75]), run.low, run.high) == (2, [0.25], [0.75])
    found = []
    for mass, decisions in run.pending:
        other = Execution(prescribed=decisions)
        found.append((mass, other.cut(other.axis(), [0.25, 0.25, 0.75]), other.low, other.volume))
    assert found == [(0.25, 0, [0.0], 0.25), (0.25, 3, [0.75], 0.25)]
    assert (run.volume, len(run.made)) == (0.5, 1)


def test_what_cannot_be_divided_is_left():
    run = execution((0.5, math.nextafter(0.5, 1.0)))
    assert not run.halve([0], lambda point: True)
    assert not run.split_at_change(0, lambda point: point[0] < 0.75)
    assert (run.pending, run.middle) == ([], [0.5])


def test_the_middle_is_in_the_box():
    """The mean of an odd float and the next one rounds to the next one."""
    odd = math.nextafter(0.5, 1.0)
    assert execution((odd, math.nextafter(odd, 1.0))).middle == [odd]


def test_every_outcome_of_a_choice_has_its_turn_with_its_probability():
    run = Execution()
    assert run.choose([0.5, 0.25, 0.25]) == 0
    assert run.choose([0.0, 3.0, 1.0]) == 1
    assert run.volume == 0.375
    assert [(mass, [decision[1] for decision in decisions]) for mass, decisions in run.pending] == [
        (0.25, [1]),
        (0.25, [2]),
        (0.125, [0, 2]),
    ]
    assert followed(run.pending[0][1], 0).volume == 0.25


def test_a_second_execution_that_decides_otherwise_is_stopped():
    run = Execution(prescribed=(("choice", 1),))
    run.axis()
    with pytest.raises(TraceAborted, match="other decisions"):
        run.split_at_change(0, lambda point: point[0] < 0.5) if run.follow_split() else None
    assert run.aborted
    for index in (1, 2):
        with pytest.raises(TraceAborted, match="other outcomes"):
            Execution(prescribed=(("choice", index),)).choose([1.0, 0.0])
