"""The array operations against the sorted curve, on rows that are hard for bins; what a row's width
of room is good for.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import otm
from otm._arrays import true_places
from otm.drafts.iid_cut import iid_values_and_levels, optimum_on_curve
from otm.overlap import OverlapCurve, arrays, rows
from otm.overlap.curve import NUM_BINS
from otm.verifiers.kseq import kseq_on_curve
from tests.overlap.instances import KS, problems, slack


@pytest.mark.parametrize("width", [1024, 1025, 5000])
@pytest.mark.parametrize("kind", [np.asarray, torch.asarray])
def test_the_optimum_is_that_of_the_sorted_curve(width: int, kind: object) -> None:
    for name, p, q in problems(width, width):
        wanted = optimum_on_curve(OverlapCurve.of(p[None], q[None]), KS)[:, 0]
        found, left = arrays.optimum(kind(p)[None], kind(q)[None], KS)  # type: ignore[operator]
        if bool(left[0]):
            assert name in ("one bin, all different", "one ulp apart", "a minimum on every piece")
            continue
        for k, value, other in zip(KS, np.asarray(found)[: len(KS), 0], wanted, strict=True):
            assert abs(value - other) <= slack(width, k), (name, k)


@pytest.mark.parametrize("width", [1024, 5000])
def test_kseq_is_that_of_the_sorted_curve(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "compiled", lambda _: None)
    for name, p, q in problems(width, 3):
        problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
        wanted = kseq_on_curve(OverlapCurve.of(p[None], q[None]), KS)[:, 0]
        for k, one, other in zip(
            KS, otm.acceptance_curve(otm.KSeq(), problem, k=KS), wanted, strict=True
        ):
            assert abs(one - other) <= 2 * slack(width, k), (name, k)
            assert 1.0 <= float(otm.verifiers.gamma_star(problem.with_law(otm.IID(k)))) <= k, (
                name,
                k,
            )


def test_bins_are_those_of_the_compiled_form() -> None:
    from otm.overlap import compiled

    low, high = arrays._ends(np.empty(0))
    p, q = np.full(NUM_BINS, 1.0), low.copy()
    q[-1] = 2.0**-64
    assert arrays._Bins.of(p[None], q[None]).place[0].tolist() == list(range(NUM_BINS))
    _, _, highest, lowest = compiled.Lumps(p, q).steps
    assert (lowest.tolist(), highest.tolist()) == (low.tolist(), high.tolist())


def test_a_row_that_is_left_out_does_not_depend_on_its_neighbours() -> None:
    _, drafts, targets = zip(*problems(4096, 5), strict=True)
    p, q = np.stack(drafts), np.stack(targets)
    together, left = arrays.optimum(p, q, [8])
    assert 0 < left.sum() < len(left)
    for i in np.flatnonzero(~left):
        assert together[0, i] == arrays.optimum(p[i : i + 1], q[i : i + 1], [8])[0][0, 0]


def test_strands_keep_sums_of_like_masses_accurate() -> None:
    """Masses from {1, 2, 3} round in one direction for long stretches: in one sum of V terms the
    error would be some 1e-12.
    """
    import math

    rng = np.random.default_rng(0)
    p, q = (x / x.sum() for x in rng.integers(1, 4, (2, 1 << 17)).astype(float))
    bins = arrays._Bins.of(p[None], q[None])
    for masses, sums in ((p, bins.draft), (q, bins.target)):
        for number in np.flatnonzero(sums[0]):
            exact = math.fsum(masses[bins.place[0] == number])
            assert abs(sums[0, number] - exact) <= (masses.size / 16 + 16) * 2.0**-53 * exact
    assert abs(bins.above_target[0, -1] - math.fsum(q)) < 2e-13


def test_true_places() -> None:
    flags = np.asarray([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool)
    places, more = true_places(flags, 2)
    assert (places.tolist(), more.tolist()) == ([[1, 2], [4, 4], [0, 1]], [False, False, True])
    places, more = true_places(torch.asarray(flags), 2)
    assert (places.tolist(), more.tolist()) == ([[1, 2], [4, 4], [0, 1]], [False, False, True])


@pytest.mark.parametrize("way", ["compiled", "arrays", "sort"])
def test_the_level_gives_a_set_that_attains_the_optimum(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T = {q < λ p}: the optimum again, from the level alone."""
    if way != "compiled":
        monkeypatch.setattr(rows, "compiled", lambda _: None)
    if way == "sort":
        monkeypatch.setattr(rows, "SHORTEST_BINNED", 1 << 30)
    for name, p, q in problems(3000, 11):
        values, levels = iid_values_and_levels(p, q, KS)
        for k, value, level in zip(KS, values, levels, strict=True):
            assert 0 <= level <= k
            inside = q < level * p
            outside = min(1.0, float(p[~inside].sum()))
            attained = (
                1.0
                + float(q[inside].sum())
                - float(np.exp(k * np.log1p(-outside)) if outside < 1 else 0.0)
            )
            # The level is rounded: tokens within a few units of it may change sides, which costs as
            # many units of Q.
            assert abs(attained - value) <= 3 * slack(3000, k), (name, k)
