"""Which way a batch is asked: short and long rows, threads, and rows that no bins answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from otm import _arrays
from otm.drafts.iid_cut import iid_values
from otm.overlap import OverlapCurve, rows
from otm.verifiers import kseq
from tests.overlap.instances import problems


def batch(width: int) -> tuple[np.ndarray, np.ndarray]:
    _, drafts, targets = zip(*problems(width, 13), strict=True)
    return np.stack(drafts), np.stack(targets)


def test_short_rows_are_sorted_and_of_long_ones_those_that_are_left_out() -> None:
    asked: list[tuple[int, ...]] = []

    def by_sort(curve: OverlapCurve) -> np.ndarray:
        asked.append(curve.ratio.shape)
        return np.full((1, *curve.ratio.shape[:-1]), 2.0)

    def by_bins(way: object, p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ones((1, len(p))), np.arange(len(p)) % 3 == 1

    for width, shapes in ((1023, [(11, 1023)]), (1024, [(4, 1024)])):
        p, q = batch(width)
        answers = rows.dispatch_by_length(by_bins, by_sort, p, q)
        assert (asked, answers.shape) == (shapes, (1, 11))
        asked.clear()
    assert answers[0].tolist() == [1.0, 2.0, 1.0] * 3 + [1.0, 2.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_torch_on_the_host_have_the_values_of_numpy_whatever_the_threads(
    dtype: type,
) -> None:
    """To the bit, and in the memory that the tensors lie in."""
    p, q = (x.astype(dtype).reshape(11, 1, -1) for x in batch(20_000))
    tensors = torch.from_numpy(p), torch.from_numpy(q)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            for function in (iid_values, kseq.kseq_roots):
                found = function(*tensors, [8])
                assert isinstance(found, torch.Tensor)
                np.testing.assert_array_equal(found, function(p, q, [8]))
    finally:
        torch.set_num_threads(before)


def test_views_of_the_host_are_no_copies() -> None:
    tensor = torch.ones(3)
    (view,) = _arrays.host_views([tensor]) or [None]
    assert view is not None
    view[0] = 2.0
    assert tensor[0] == 2.0
    assert _arrays.host_views([tensor, torch.empty(3, device="meta")]) is None
