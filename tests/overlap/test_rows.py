"""Which way a batch is asked, and what every way answers: bins, compiled or as array operations,
against the sorted curve and exact fractions, on rows that are hard for bins.
"""

import contextlib

import numpy as np
import pytest
import torch

import otm
from otm._machine import arrays
from otm.drafts.curve_cut import curve_values, curve_values_and_levels, optimum_on_curve
from otm.overlap import OverlapCurve, rows
from otm.overlap.curve import Containment
from otm.verifiers import kseq
from tests.overlap.instances import KS, SIZES, problems, slack

# There γ* has a large condition number, as where nothing is rejected; the acceptance has not.
NEARLY_EQUAL = ("equal", "one ulp apart")


@contextlib.contextmanager
def by(way):
    with pytest.MonkeyPatch.context() as patch:
        if way != "compiled":
            patch.setattr(rows, "compiled", lambda _, seconds: None)
        if way == "arrays":
            patch.setattr(rows, "_SHORTEST_ON_HOST", rows.SHORTEST_BINNED)
        yield


def batch(width):
    _, drafts, targets = zip(*problems(width, 13), strict=True)
    return np.stack(drafts), np.stack(targets)


@pytest.mark.parametrize("way", ["compiled", "arrays", "sort"])
@pytest.mark.parametrize("width", [1025, 5000])
def test_every_way_has_the_values_of_the_sorted_curve(way, width):
    """The optimum, K-SEQ and its γ*; T = {q < λ p} of the level has the optimum again."""
    for name, p, q in problems(width, width):
        for array in (p, q):
            array.setflags(write=False)
        problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
        curve = OverlapCurve.of(p[None], q[None])
        best, accepted = optimum_on_curve(curve, SIZES)[:, 0], kseq.kseq_on_curve(curve, KS)[:, 0]
        gammas = kseq.roots_along(curve, KS)[0, :, 0]
        with by(way):
            values, levels = curve_values_and_levels(p, q, SIZES)
            found = otm.acceptance_curve(otm.KSeq(), problem, k=KS)
            roots = kseq.gamma_star_curve(problem, KS)
        for i, k in enumerate(KS):
            close = slack(width, k)
            assert abs(found[i] - accepted[i]) <= 2 * close, (name, k)
            assert 1.0 <= roots[i] <= k, (name, k)
            if name not in NEARLY_EQUAL and accepted[i] < 1.0 - 1e-6:
                assert roots[i] == pytest.approx(gammas[i], rel=1e-9), (name, k)
        for i, (c, k) in enumerate(SIZES):
            close = slack(width, k)
            assert abs(values[i] - best[i]) <= close, (name, c, k)
            inside = q < levels[i] * p
            outside = min(1.0, float(p[~inside].sum()))
            one = (1.0 - outside) / (1.0 + (c - 1.0) * outside)
            contained = np.exp(k * np.log(one)) if outside < 1 else 0.0
            # The level is rounded: tokens within a few units of it may change sides, which costs as
            # many units of Q.
            assert 0 <= levels[i] <= k * c
            assert abs(1.0 + q[inside].sum() - contained - values[i]) <= 3 * close, (name, c, k)


@pytest.mark.parametrize("way", ["compiled", "arrays"])
def test_rows_do_not_depend_on_their_neighbours_and_leading_axes_return(way):
    p, q = (side[:10].reshape(2, 5, -1) for side in batch(1500))
    with by(way):
        for function, size in ((curve_values, Containment(c=8.0)), (kseq.kseq_roots, 8)):
            together = function(p, q, [size])
            for i, j in np.ndindex(2, 5):
                alone = function(p[i, j], q[i, j], [size])
                np.testing.assert_array_equal(together[..., i, j], alone, f"{i} {j}")


def test_short_rows_are_sorted_and_of_long_ones_those_that_are_left_out():
    asked = []

    def by_sort(curve):
        asked.append(curve.ratio.shape)
        return np.full((1, *curve.ratio.shape[:-1]), 2.0)

    def by_bins(way, p, q):
        return np.ones((1, len(p))), np.arange(len(p)) % 3 == 1

    for width, shapes in ((1023, [(11, 1023)]), (1024, [(4, 1024)])):
        p, q = batch(width)
        answers = rows.dispatch_by_length(by_bins, by_sort, p, q)
        assert (asked, answers.shape) == (shapes, (1, 11))
        asked.clear()
    assert answers[0].tolist() == [1.0, 2.0, 1.0] * 3 + [1.0, 2.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_torch_on_the_host_have_the_values_of_numpy_whatever_the_threads(
    dtype,
):
    """To the bit, and in the memory that the tensors lie in."""
    p, q = (x.astype(dtype).reshape(11, 1, -1) for x in batch(20_000))
    tensors = torch.from_numpy(p), torch.from_numpy(q)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            for function, size in ((curve_values, Containment(c=8.0)), (kseq.kseq_roots, 8)):
                found = function(*tensors, [size])
                assert isinstance(found, torch.Tensor)
                np.testing.assert_array_equal(found, function(p, q, [size]))
    finally:
        torch.set_num_threads(before)


def test_views_of_the_host_are_no_copies():
    tensor = torch.ones(3)
    (view,) = arrays.host_views([tensor]) or [None]
    assert view is not None
    view[0] = 2.0
    assert tensor[0] == 2.0
    assert arrays.host_views([tensor, torch.empty(3, device="meta")]) is None
