"""Block K-SEQ: K-SEQ on one level, block verification for one sequence, and its law is what
enumeration finds.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockKSeq,
    BlockVerification,
    expected_step,
)
from tests.sequence.toys import distance, random_models


@pytest.mark.parametrize("seed", range(8))
def test_special_cases(seed: int) -> None:
    draft, target = random_models(3, 2, np.random.default_rng([1, seed]))
    k = 2 + seed % 3
    one = expected_step(BlockKSeq(k, 1), draft=draft, target=target, context=[]).block_efficiency
    by_rule = otm.acceptance(
        otm.KSeq(),
        otm.Problem(draft=draft.next([]), target=target.next([]), law=otm.IID(k)),
        by="rule",
    )
    assert one == pytest.approx(1 + by_rule, abs=1e-12)
    alone, block = (
        expected_step(decoder, draft=draft, target=target, context=[])
        for decoder in (BlockKSeq(1, 2), BlockVerification(2))
    )
    assert distance(alone.law, block.law) <= 1e-12
