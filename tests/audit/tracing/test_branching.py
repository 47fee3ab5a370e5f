"""Integration by tracing: exact volumes, bounds that hold, and attempts that are void."""

import bisect
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from otm.audit.evidence import log_evidence, log_interval_evidence, log_mean
from otm.audit.tracing.branching import contradicts_samples, trace
from otm.audit.tracing.execution import TraceAborted


def integrate(function, num_uniforms, **budget):
    """Return the law that is found, None where there is none or samples contradict it."""
    try:
        law = trace(function, num_uniforms, **budget)
    except TraceAborted:
        return None
    return None if contradicts_samples([law]) else law


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.floats(0.1, 2.0), st.floats(0.0, 1.0)
)
def test_cells_of_two_uniforms_have_their_exact_volume(weights, scale, threshold):
    ends = np.cumsum(weights) / np.sum(weights)

    def function(u):
        place = np.searchsorted(ends, u[1], side="right")
        return bool(scale * u[0] <= threshold), int(np.minimum(place, len(ends) - 1))

    law = integrate(function, 2)
    assert law is not None and law.error == 0.0
    first = min(threshold / scale, 1.0)
    for j, length in enumerate(np.diff(ends, prepend=0.0)):
        # Cell ends are floats in [0, 1], each off by 2^-53; the last sum may miss 1 by V times
        # that.
        for below, share in ((True, first), (False, 1 - first)):
            assert math.isclose(law.mass.get((below, j), 0.0), share * length, abs_tol=1e-14)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda u: int(u[0] * 5), dict.fromkeys(range(5), 0.2)),
        (lambda u: bisect.bisect([0.25, 0.5], u[0]), {0: 0.25, 1: 0.25, 2: 0.5}),
        (lambda u: bool(-np.log(u[0]) > 1.0), {True: math.exp(-1), False: 1 - math.exp(-1)}),
        (lambda u: bool(1.0 / (1.0 + u[0]) < 0.8), {True: 0.75, False: 0.25}),
        (lambda u: bool((np.array([0.3, 0.9]) > u[0]).all()), {True: 0.3, False: 0.7}),
        (lambda u: int(np.asarray([0.1, 0.6]).searchsorted(u[0])), {0: 0.1, 1: 0.5, 2: 0.4}),
        (
            lambda u: tuple(np.searchsorted([0.5], u).tolist()),
            {(i, j): 0.25 for i in (0, 1) for j in (0, 1)},
        ),
        (lambda u: bool(abs(u[0] - 0.5) < 0.125), {True: 0.25, False: 0.75}),
        (lambda u: int(u.reshape(1, 2).argmin(keepdims=True)[0, 0]), {0: 0.5, 1: 0.5}),
        (lambda u: bool(u[0] == 0.5), {False: 1.0, True: 0.0}),
        (lambda u: bool(u[0] / np.inf > -1.0), {True: 1.0}),
        (lambda u: bool(u[0] - np.inf < 0.0), {True: 1.0}),
        (lambda u: bool(u[0]), {True: 1.0}),
        (lambda u: int((u[0] + u[1]) / 4), {0: 1.0}),
        (lambda u: bool((u[0] - 0.5) ** 1 < 0.0), {True: 0.5, False: 0.5}),
        (lambda u: bool(0.0 * np.log(np.sqrt(u[0])) > 1.0), {False: 1.0}),  # 0·∞ at 0
        (lambda u: bool(-np.log(u).sum() < np.inf), {True: 1.0}),
        (lambda u: bool(-np.log(u).sum() > -np.inf), {True: 1.0}),
        (lambda u: bool(1 / -np.log(u).sum() > 0.0), {True: 1.0}),
        (lambda u: bool(u[0] ** -np.inf > 1e300), {True: 1.0}),
        (lambda u: int(np.append(u[:1], 0.25).argmax()), {0: 0.75, 1: 0.25}),
        (lambda u: int(np.append(u[:1], 0.25).argmin()), {0: 0.25, 1: 0.75}),
        (lambda u: bool(3.0 / (2.0 / u[0]) < 0.75), {True: 0.5, False: 0.5}),
    ],
)
def test_ways_to_compare(function, expected):
    law = integrate(function, 2)
    assert law is not None and law.error == 0.0
    assert law.mass == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("budget", [100, 1600])
@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (lambda u: bool(u[0] < u[1]), 0.5),
        (lambda u: bool(u[0] + u[1] < 0.5), 0.125),
        (lambda u: bool(u[0] * u[1] < 0.25), 0.25 * (1 + math.log(4))),
        (lambda u: bool((u[0] - 0.5) + (u[1] - 0.5) < -0.5), 0.125),
        (lambda u: bool(u[1] - np.log(u[0]) < 0.5), math.exp(-0.5) - 0.5),
    ],
)
def test_a_slanted_boundary_comes_with_a_bound_that_holds(function, exact, budget):
    law = integrate(function, 2, most_slanted=budget)
    assert law is not None
    assert law.mass[True] <= exact + 1e-12
    assert law.mass[True] + law.error >= exact - 1e-12
    assert math.isclose(sum(law.mass.values()) + law.error, 1.0, abs_tol=1e-12)
    # A boundary of length at most 2 crosses at most 4/h squares of side h: halving gains what the
    # budget allows.
    assert law.error < 8 / budget


@pytest.mark.parametrize(
    "function",
    [
        lambda u: np.float64(u[0]) < 0.5,
        lambda u: bool((np.asarray(u, dtype=np.float64) < 0.5)[0]),
        lambda u: isinstance(u[0], float),
        lambda u: [0, 1][u[0] < 0.5] if isinstance(u[0], np.floating) else 7,
        lambda u: bool(u[0] < 2.0**-30) and isinstance(u[0], float),
    ],
)
def test_leaving_the_trace_is_noticed(function):
    assert integrate(function, 2) is None


@pytest.mark.parametrize(
    ("function", "budget", "cells"),
    [
        (lambda u: int(u[0] * 4), {"most_work": 2}, 1),
        (lambda u: int(u[0] * 4), {"most_work": 5}, 2),
        (lambda u: bool(u[0] + u[1] < 0.5), {"most_slanted": 1}, 1),
        (lambda u: bool(u[0] + u[1] < 0.5), {"most_slanted": 8}, 8),
    ],
)
def test_a_budget_is_spent_and_no_more(function, budget, cells):
    law = trace(function, 2, **budget)
    assert law.cells == cells
    assert law.error > 0.0


@pytest.mark.parametrize(("fails_from", "counts"), [(67, [64, 0]), (3, [0, 64])])
def test_executions_on_real_randomness_count_once_each(fails_from, counts):
    """One execution to begin with, two of a part, 64 on real randomness; the rest is not known."""
    calls = itertools.count()

    def function(u):
        if next(calls) >= fails_from:
            raise ArithmeticError
        return bool(u[0] < 0.25 <= u[0])

    law = trace(function, 1, most_work=2)
    assert (law.mass, law.error) == ({False: 0.75}, 0.25)
    seen, most = np.asarray(counts), np.asarray([1.0, 0.25])
    parts = log_evidence(seen, most), log_interval_evidence(seen, np.asarray([0.75, 0.0]), most)
    assert law.surprise == log_mean(*parts)


def test_nan_is_not_equal_to_itself():
    """1/4 of NaN: undecided or given up, never "always equal"."""
    law = integrate(
        lambda u: bool(np.sqrt(u[0] - 0.25) == np.sqrt(u[0] - 0.25)), 1, most_slanted=50
    )
    assert law is None or law.mass.get(True, 0.0) <= 0.75 + 1e-12


def test_integers_without_end_are_undecided_within_the_budget():
    law = integrate(lambda u: int(u[0] * 2.0**32) % 2, 1, most_work=500)
    assert law is not None
    assert law.error > 0.9 and law.cells <= 500
