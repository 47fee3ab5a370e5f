"""Distances of induced laws from the target: computed, not believed."""

import tracemalloc

import numpy as np
import pytest

import otm
from otm import IID, Fuzzy, Problem
from tests.tolerance import rounding
from tests.verifiers.lossy_instances import one_draft


class TestDistances:
    def test_it_is_computed_not_believed(self):
        # Enumeration beyond its limit is refused even for a verifier that calls itself lossless.
        problem = Problem(
            draft=otm.examples.zipf(3000), target=otm.examples.uniform(3000), law=IID(3)
        )
        with pytest.raises(otm.errors.TooLarge):
            otm.lossy.output_law(otm.KSeq(), problem)

    def test_no_table_of_all_sequences_is_held(self):
        problem = Problem(
            draft=otm.examples.zipf(5000), target=otm.examples.uniform(5000), law=IID(1)
        )
        otm.lossy.output_law(otm.Maximal(), problem)  # what is imported and kept is not counted
        tracemalloc.start()
        try:
            law = otm.lossy.output_law(otm.Maximal(), problem)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        np.testing.assert_allclose(law, problem.target, rtol=0, atol=rounding(5000, 1))
        # a block of the rule's two parts and their sum; the table would be six of them
        assert most < 4 * 8 * 2**22

    def test_kl_is_infinite_where_a_token_of_the_target_never_comes_out(self):
        problem = one_draft((np.array([0.9, 0.1, 0.0]), np.array([0.5, 0.25, 0.25])))
        assert otm.lossy.distortion(Fuzzy(1.0), problem).kl == np.inf
