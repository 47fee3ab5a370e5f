"""The tests of others, written down: they pass what is right and fail what is grossly wrong."""

import numpy as np
import pytest

from evidence.corpus import BROKEN
from evidence.corpus.usual_tests import (
    exceeds_noise_floor,
    fails_chi_square,
    fails_distance_ratio,
    fails_order,
    output_law,
)


class TestUsualTests:
    """The tests of others, written down: they must pass what is right and fail what is grossly
    wrong.
    """

    TARGET = (0.4, 0.3, 0.2, 0.1)

    def test_a_correct_verifier_fails_at_the_nominal_rate(self):
        """400 runs of a test of level .01: more than 18 failures have probability 2e-7, none at all
        1.8 %; the seed is fixed.
        """
        rng = np.random.default_rng(1)
        failures = sum(
            fails_chi_square(np.asarray(self.TARGET), self.TARGET, rng) for _ in range(400)
        )
        assert 1 <= failures <= 18
        assert (
            sum(exceeds_noise_floor(np.asarray(self.TARGET), self.TARGET, rng) for _ in range(400))
            < 40
        )
        assert not any(fails_order(np.asarray(self.TARGET), rng) for _ in range(100))

    def test_gross_errors_fail(self):
        rng = np.random.default_rng(2)
        wrong = np.asarray(self.TARGET)[::-1]
        assert fails_chi_square(wrong, self.TARGET, rng)
        assert fails_order(wrong, rng)
        assert exceeds_noise_floor(wrong, self.TARGET, rng)
        assert fails_distance_ratio(wrong, self.TARGET, rng)

    def test_they_see_the_first_token_of_a_block_only(self):
        mutant = next(m for m in BROKEN if m.name == "bonus token after a rejection")
        assert output_law(mutant, (0.5, 0.3, 0.2), (0.2, 0.3, 0.5)) == pytest.approx(
            [0.2, 0.3, 0.5], abs=1e-15
        )
