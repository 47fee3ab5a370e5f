"""Blocks of tokens: the joint law by enumeration, where it fails first, and the faults that only
position can show.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.standard_problems import table_model
from tests.audit.callables import block, chain, draw, textbook

DRAFT, TARGET = (
    table_model(lambda c, law=law: law, 2, 2) for law in ([2 / 3, 1 / 3], [1 / 3, 2 / 3])
)


def test_expected_tokens_of_the_gold_instance() -> None:
    """(1/3, 2/3) drafted by (2/3, 1/3), two drafts: 10/9 accepted by tokens, 11/9 by blocks."""
    for verify, accepted in ((chain, Fraction(10, 9)), (block, Fraction(11, 9))):
        result = audit.sequence(verify, draft=DRAFT, target=TARGET, num_drafts=2)
        assert math.isclose(result.accepted or 0.0, float(accepted), abs_tol=1e-14)
        assert math.isclose(result.tokens_per_call, 1 + float(accepted), abs_tol=1e-14)
        assert result.first_position is None


def test_the_textbook_fault_by_hand() -> None:
    """γ = 1: after a rejection of x the replacement y is right, and the bonus comes from q(·|x)
    instead of q(·|y).

    With p = (1, 0), q = (1/2, 1/2) first, and q(·|0) = (1, 0), q(·|1) = (0, 1) after: the output is
    00 or, rejected, 10; the target says 00 or 11. Total variation 1/2, from position 2 on.
    """
    draft = table_model(lambda c: [1.0, 0.0], 2, 1)
    target = table_model(lambda c: [0.5, 0.5] if not c else [1.0 - c[0], float(c[0])], 2, 1)
    result = audit.sequence(
        audit.BlockCandidate(textbook, num_uniforms=lambda g, v: g + 2),
        draft=draft,
        target=target,
        num_drafts=1,
    )
    assert math.isclose(result.total_variation, 0.5, abs_tol=1e-15)
    assert (result.first_position, result.kl, result.accepted) == (2, math.inf, 2.0)
    assert result.law[1, 0] == result.law[0, 0] == 0.5


def test_a_block_that_ends_early_is_completed_by_the_target() -> None:
    result = audit.sequence(
        lambda p, q, d, u: [draw(q[0], u[0])], draft=DRAFT, target=TARGET, num_drafts=2
    )
    assert result.verdict == "lossless"
    assert math.isclose(result.tokens_per_call, 1.0, abs_tol=1e-15)


def test_models_must_fit() -> None:
    two, three = (table_model(lambda c, n=n: np.full(n, 1 / n), n, 1) for n in (2, 3))
    with pytest.raises(otm.errors.ShapeMismatch, match="one vocabulary"):
        audit.sequence(chain, draft=two, target=three, num_drafts=1)
    wide = table_model(lambda c: np.full(50, 0.02), 50, 0)
    with pytest.raises(otm.errors.TooLarge, match="toy models"):
        audit.sequence(chain, draft=wide, target=wide, num_drafts=9)
