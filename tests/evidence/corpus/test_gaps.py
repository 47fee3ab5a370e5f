"""Faults between what is usually tried are found by defaults, and odd shapes are not accused."""

import pytest

from evidence.corpus.gaps import GAPS, ODD
from otm import audit


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.long] if number % 2 else [])
        for number, case in enumerate(GAPS)
    ],
)
def test_a_fault_between_what_is_usually_tried_is_found(case):
    # a counterexample is for the reader: the verdict stands without it
    found = audit.battery(case.candidate, shrink_for=0)
    assert found.verdict == case.verdict


@pytest.mark.long
@pytest.mark.parametrize("case", ODD, ids=lambda case: case.name)
def test_lossless_code_of_an_odd_shape_is_not_accused(case):
    found = audit.battery(case.candidate)
    assert found.verdict == case.verdict
