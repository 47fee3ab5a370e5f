"""The overlap curve without a sort against the sorted one and exact fractions, on rows that are
hard for bins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm.drafts.iid_cut import iid_values, optimum_on_curve
from otm.overlap import OverlapCurve, compiled, rows
from otm.overlap.curve import LOWEST_BIN, NUM_BINS, RATIO_SHIFT
from otm.verifiers import kseq
from otm.verifiers.kseq import kseq_on_curve
from tests.overlap.instances import KS, problems, slack


@contextlib.contextmanager
def by_sort() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "SHORTEST_BINNED", 1 << 30)
        yield


@pytest.mark.parametrize("width", [1024, 1025, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_that_of_the_sorted_curve(width: int, seed: int) -> None:
    for name, p, q in problems(width, seed):
        wanted = optimum_on_curve(OverlapCurve.of(p[None], q[None]), KS)[:, 0]
        found = otm.optimal_acceptance_curve(otm.Problem(draft=p, target=q, law=otm.IID(1)), k=KS)
        for k, one, other in zip(KS, found, wanted, strict=True):
            assert abs(one - other) <= slack(width, k), (name, k)


@pytest.mark.parametrize("width", [1024, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_kseq_is_that_of_the_sorted_curve(width: int, seed: int) -> None:
    for name, p, q in problems(width, seed):
        problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
        wanted = kseq_on_curve(OverlapCurve.of(p[None], q[None]), KS)[:, 0]
        found = otm.acceptance_curve(otm.KSeq(), problem, k=KS)
        for k, one, other in zip(KS, found, wanted, strict=True):
            assert abs(one - other) <= 2 * slack(width, k), (name, k)
            gamma = float(otm.verifiers.gamma_star(problem.with_law(otm.IID(k))))
            assert 1.0 <= gamma <= k, (name, k)
            with by_sort():
                sorted_gamma = float(otm.verifiers.gamma_star(problem.with_law(otm.IID(k))))
            # there γ* has a large condition number; the acceptance has not
            if name not in (
                "equal",
                "one ulp apart",
            ):
                assert gamma == pytest.approx(sorted_gamma, rel=1e-9), (name, k)


def test_the_optimum_of_a_long_row_is_that_of_fractions() -> None:
    """Integer weights: every prefix of the exact order in exact arithmetic."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 10**6, (2, 1200)).tolist()
    p, q = [Fraction(x, sum(a)) for x in a], [Fraction(x, sum(b)) for x in b]
    order = sorted(range(1200), key=lambda i: q[i] / p[i])
    for k in (1, 2, 8):
        best, mass, target = Fraction(0), Fraction(0), Fraction(0)
        for i in order:
            mass, target = mass + p[i], target + q[i]
            best = min(best, target - mass**k)
        problem = otm.Problem(
            draft=otm.normalise(np.asarray(a, float)),
            target=otm.normalise(np.asarray(b, float)),
            law=otm.IID(k),
        )
        assert otm.optimal_acceptance(problem) == pytest.approx(float(1 + best), abs=1e-14)


def test_rows_do_not_depend_on_their_neighbours_and_leading_axes_return() -> None:
    names, drafts, targets = zip(*problems(1500, 4), strict=True)
    p, q = (np.stack(rows[:10]).reshape(2, 5, -1) for rows in (drafts, targets))
    together, pieces = iid_values(p, q, [8]), kseq.kseq_roots(p, q, [8])
    for i in range(2):
        for j in range(5):
            assert together[0, i, j] == iid_values(p[i, j], q[i, j], [8])[0], names[5 * i + j]
            np.testing.assert_array_equal(
                pieces[:, 0, i, j], kseq.kseq_roots(p[i, j], q[i, j], [8])[:, 0], names[5 * i + j]
            )


def test_some_rows_are_left_to_the_sort_and_most_are_not() -> None:
    left = {}
    for name, p, q in problems(20_000, 5):
        left[name] = (
            bool(compiled.optimum(p[None], q[None], [2, 8])[1][0]),
            bool(compiled.kseq_roots(p[None], q[None], [8])[1][0]),
        )
    assert left["a minimum on every piece"][0]
    assert left["one bin, all different"][1]
    assert not any(left["language model"] + left["flat"] + left["zeros"])
    assert not left["equal"][0]
    assert not left["few ratios"][0]


def test_a_bin_is_its_ratios() -> None:
    """Edges are where the leading bits change; what lies beyond 2^±64 joins the end bins."""
    for number in (0, 1, 31, 32, 2047, 4095):
        edge = float(np.int64((LOWEST_BIN + number) << RATIO_SHIFT).view(np.float64))
        p, q = np.full(1024, 1.0), np.full(1024, edge)
        q[::2] = np.nextafter(edge, 0)
        lumps = compiled.Lumps(p, q)
        _, _, high, low = lumps.steps
        assert low[0] == (edge if number > 0 else 0.0)
        assert (high[-1] == edge) == (number > 0)
        assert len(low) == (2 if number > 0 else 1)
    outermost = compiled.Lumps(np.full(2, 1.0), np.asarray([1e300, 1e-300])).steps
    assert (outermost[2, 0], outermost[3, 1]) == (np.inf, 0.0)
    top = np.int64((LOWEST_BIN + NUM_BINS) << RATIO_SHIFT).view(np.float64)
    assert (np.int64(LOWEST_BIN << RATIO_SHIFT).view(np.float64), top) == (2.0**-64, 2.0**64)


def test_read_only_rows_and_single_precision() -> None:
    (_, p, q), *_ = problems(2000, 6)
    problem = otm.Problem(draft=p, target=q, law=otm.IID(4))
    for array in (p, q):
        array.setflags(write=False)
    assert otm.optimal_acceptance(
        otm.Problem(draft=p, target=q, law=otm.IID(4))
    ) == otm.optimal_acceptance(problem)
    single = otm.Problem(draft=p.astype(np.float32), target=q.astype(np.float32), law=otm.IID(4))
    assert otm.optimal_acceptance(single) == pytest.approx(
        otm.optimal_acceptance(problem), abs=1e-5
    )


def test_a_row_decided_inside_one_bin_needs_its_order() -> None:
    """The mutant that looks at edges only: all ratios lie within one bin, so that its best prefix
    is none or all.
    """
    for name, p, q in problems(3000, 7):
        if name == "one bin, all different":
            exact = float(np.minimum(p, q).sum())
            assert otm.optimal_acceptance(
                otm.Problem(draft=p, target=q, law=otm.IID(1))
            ) == pytest.approx(exact, abs=slack(3000, 1))
            assert exact < 1 - 1e-6


@pytest.mark.parametrize("width", [32_000, 128_256])
@pytest.mark.parametrize("k", [1, 1000])
def test_many_tokens_of_one_ratio_lose_nothing_to_their_sum(width: int, k: int) -> None:
    """All are in one bin, and added up one by one they were off by a hundredth of V u."""
    p = np.full((1, width), 1.0 / width)
    values, left = compiled.optimum(p, p.copy(), [k])
    assert not left.any()
    # docs/theory.md, "The optimum from bins": 2 (22 + ν) u + 2k u·[k ≤ 64] + 12 u with ν ≤ 64.
    assert abs(values[0, 0] - 1.0) <= (2 * (22 + 64) + 2 * k * (k <= 64) + 12) * 2.0**-53
