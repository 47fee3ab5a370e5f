"""Bins as array operations: of torch as of NumPy, with the edges of the compiled form, and what a
row's width of room is good for.
"""

import math

import numpy as np
import pytest
import torch

from otm._machine.arrays import true_places
from otm.overlap import arrays
from otm.overlap.curve import NUM_BINS
from tests.overlap.instances import SIZES, problems, slack


def test_tensors_have_the_values_of_numpy():
    width = 3001
    names, drafts, targets = zip(*problems(width, width), strict=True)
    p, q = np.stack(drafts), np.stack(targets)
    wanted, left = arrays.optimum(p, q, SIZES)
    found, also_left = arrays.optimum(torch.asarray(p), torch.asarray(q), SIZES)
    assert left.tolist() == also_left.tolist()
    hard = {name for name, is_left in zip(names, left, strict=True) if is_left}
    assert hard <= {"one bin, all different", "one ulp apart", "a minimum on every piece"}
    for i, size in enumerate(SIZES):
        assert abs(found.numpy()[i] - wanted[i])[~left].max() <= slack(width, size.k)


def test_bins_are_those_of_the_compiled_form():
    """Edges are where the leading bits change; what lies beyond 2^±64 joins the end bins."""
    from otm.overlap import compiled

    low, high = arrays._ends(np.empty(0))
    assert (low[-1], low[-2], high[0], high[1]) == (0.0, 2.0**-64 * (33 / 32), np.inf, low[0])
    assert low[0] * (33 / 32) > 2.0**64 > low[0]
    p, q = np.full(NUM_BINS, 1.0), low.copy()
    q[-1] = 2.0**-64
    for number, ratio in ((0, q), (1, np.nextafter(q, 0))):
        place = arrays._Bins.of(p[None], ratio[None]).place[0]
        assert place.tolist() == np.minimum(np.arange(NUM_BINS) + number, NUM_BINS - 1).tolist()
    _, _, highest, lowest = compiled.Lumps(p, q).steps
    assert (lowest.tolist(), highest.tolist()) == (low.tolist(), high.tolist())
    _, _, highest, lowest = compiled.Lumps(np.full(2, 1.0), np.asarray([1e300, 1e-300])).steps
    assert (highest[0], lowest[1]) == (np.inf, 0.0)


def test_strands_keep_sums_of_like_masses_accurate():
    """Masses from {1, 2, 3} round in one direction for long stretches: in one sum of V terms the
    error would be some 1e-12.
    """
    rng = np.random.default_rng(0)
    p, q = (x / x.sum() for x in rng.integers(1, 4, (2, 1 << 17)).astype(float))
    bins = arrays._Bins.of(p[None], q[None])
    for masses, sums in ((p, bins.draft), (q, bins.target)):
        for number in np.flatnonzero(sums[0]):
            exact = math.fsum(masses[bins.place[0] == number])
            assert abs(sums[0, number] - exact) <= (masses.size / 16 + 16) * 2.0**-53 * exact
    assert abs(bins.above_target[0, -1] - math.fsum(q)) < 2e-13


@pytest.mark.parametrize("kind", [np.asarray, torch.asarray])
def test_true_places(kind):
    flags = np.asarray([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool)
    places, more = true_places(kind(flags), 2)
    assert (places.tolist(), more.tolist()) == ([[1, 2], [4, 4], [0, 1]], [False, False, True])
