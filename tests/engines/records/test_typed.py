"""Numbers typed in, by hand: each says no more than it holds."""

import numpy as np
import pytest

from otm.engines import (
    mean_bounds,
    record_of_counts,
    record_of_mean,
    record_of_means,
    record_of_rates,
)
from otm.errors import InvalidParameter


def test_counts_and_means_are_means():
    counts, mean = record_of_counts(1750, 1000, drafts=3), record_of_mean(2.75, drafts=3)
    assert counts.steps == 1000 and mean.steps is None and counts.mean == mean.mean == 2.75
    for record in (counts, mean):
        assert record.measured == 0 and record.drafts_per_step == 3
        assert mean_bounds(record).lower.tolist() == [1, 1 + 1.75 / 3, 1 + 3.5 / 3, 2.75]
    assert record_of_mean(2.75).drafts_per_step is None


def test_differences_of_means_are_the_curve():
    """E_3 = 2.5 and E_5 = 3: half a draft at each of the first three, a quarter at the next two."""
    record = record_of_means({5: 3.0, 3: 2.5})
    assert record.survival.survival.tolist() == [0.5, 0.5, 0.5, 0.25, 0.25]
    assert "upper bound" in record.notes[1] and len(record.notes) == 2
    assert len(record_of_means({1: 1.5}).notes) == 1


def test_noise_is_levelled_by_the_width_of_the_gaps():
    """Slopes .2 over two and .5 over one are .3 over all; a fall below 0 is 0."""
    record = record_of_means({2: 1.4, 3: 1.9})
    np.testing.assert_allclose(record.survival.survival, 0.3)
    assert "levelled by up to 0.20" in record.notes[-1]
    assert record_of_means({1: 1.5, 2: 1.4}).survival.survival.tolist() == [0.5, 0.0]


@pytest.mark.parametrize(
    ("build", "given"),
    [
        (record_of_counts, {"accepted": 3001, "steps": 1000, "drafts": 3}),
        (record_of_counts, {"accepted": -1, "steps": 10}),
        (record_of_counts, {"accepted": 1, "steps": 0}),
        (record_of_counts, {"accepted": 1, "steps": 1, "drafts": 0}),
        (record_of_mean, {"mean": 0.9}),
        (record_of_mean, {"mean": 4.1, "drafts": 3}),
        (record_of_mean, {"mean": 2.0, "drafts": 10**9}),
        (record_of_rates, {"rates": [0.8, 0.9]}),
        (record_of_means, {"means": {}}),
        (record_of_means, {"means": {2: 3.1}}),
        (record_of_means, {"means": {0: 1.0}}),
        (record_of_means, {"means": {10**9: 1.5}}),
    ],
)
def test_what_no_engine_does_is_refused(build, given):
    with pytest.raises(InvalidParameter):
        build(**given)
