"""What the benchmarks time can be asked at every size at which they ask it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import rows
from benchmarks.core import language_like


@pytest.mark.parametrize("k", rows.COUNTS)
def test_rows_can_be_asked_every_question(k: int) -> None:
    rng = np.random.default_rng(0)
    draft, target = (
        np.stack(side) for side in zip(*(language_like(64, rng) for _ in range(2)), strict=True)
    )
    asked = rows.questions(draft, target, k)
    assert [name for name in asked if name.startswith("acceptance_table")] == [
        "acceptance_table, 1..k",
        *(f"acceptance_table, 1..k, {name}" for name in rows.FEWER),
    ]
    for question in asked.values():
        question()
