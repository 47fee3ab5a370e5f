"""−0.0 is 0: `numpy.round` and `0 * -1` give it, and q/(−0) would put a token last that cannot be
drafted.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from otm.drafts import LAWS
from otm.verifiers import VERIFIERS
from tests.conftest import Backend

DRAFT, TARGET = np.array([-0.0, 0.5, 0.25, 0.25, -0.0]), np.array([0.5, -0.0, 0.25, 0.25, -0.0])


def problem(law: otm.Law, draft: np.ndarray, target: np.ndarray) -> otm.Problem:
    return otm.Problem(
        draft=draft if law.one_drafter else np.stack([draft] * law.k), target=target, law=law
    )


@pytest.mark.parametrize("make", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("k", [1, 2])
def test_every_answer_is_that_of_zero(make: type[otm.Law], k: int) -> None:
    signed, plain = (
        problem(make(k), p, q) for p, q in ((DRAFT, TARGET), (abs(DRAFT), abs(TARGET)))
    )
    assert not np.signbit(signed.draft).any()
    assert not np.signbit(signed.target).any()
    assert otm.optimal_acceptance(signed) == otm.optimal_acceptance(plain)
    for verifier in (make_verifier() for make_verifier in VERIFIERS):
        if verifier.supports(make(k)):
            assert otm.acceptance(verifier, signed) == otm.acceptance(verifier, plain), verifier


def test_a_value_that_was_wrong() -> None:
    pair = otm.Problem(draft=[-0.0, 0.5, 0.5], target=[0.5, 0.25, 0.25], law=otm.IID(2))
    assert otm.optimal_acceptance(pair) == 0.5
    assert otm.optimal_cut(pair).tolist() == [False, True, True]


def test_the_gates_of_arrays(backend: Backend) -> None:
    signed, plain = backend.array([-0.0, 1.0, 1.0]), backend.array([0.0, 1.0, 1.0])
    for array in (
        otm.normalise(signed),
        otm.Problem(draft=signed / 2, target=signed / 2, law=otm.IID(1)).draft,
    ):
        assert not np.signbit(backend.numpy(array)).any()
    np.testing.assert_array_equal(
        backend.numpy(otm.normalise(signed)), backend.numpy(otm.normalise(plain))
    )
    table = otm.acceptance_table(
        draft=signed / 2, target=backend.array([0.5, 0.25, 0.25]), k=[1, 2]
    )
    wanted = otm.acceptance_table(
        draft=plain / 2, target=backend.array([0.5, 0.25, 0.25]), k=[1, 2]
    )
    np.testing.assert_array_equal(backend.numpy(table.values), backend.numpy(wanted.values))


def test_lists_of_top_tokens() -> None:
    ends = []
    for zero in (-0.0, 0.0):
        draft = otm.partial.TopTokens(tokens=[0, 1, 2], probabilities=[zero, 0.5, 0.5], tail=0.0)
        target = otm.partial.TopTokens(tokens=[0, 1, 2], probabilities=[0.5, 0.25, 0.25], tail=0.0)
        found = otm.partial.optimal_acceptance(
            otm.partial.PartialPair(draft=draft, target=target), k=[1, 2]
        )
        ends.append((found.lower.tolist(), found.upper.tolist()))
    assert ends[0] == ends[1]
    assert ends[0][1][1] == pytest.approx(0.5, abs=1e-12)
