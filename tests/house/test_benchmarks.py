"""What the benchmarks time can be asked at every size at which they ask it."""

import numpy as np
import pytest

pytest.importorskip("torch")

import otm
from benchmarks import core, optimal, rows
from benchmarks.core import language_like


@pytest.mark.parametrize("k", rows.COUNTS)
def test_rows_can_be_asked_every_question(k):
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


@pytest.mark.parametrize(
    "solve", [core.pot_value, core._linprog, core._linprog_sets, optimal._max_flow]
)
def test_alternatives_to_the_optimum_agree_with_it(solve):
    draft, target = otm.examples.dirichlet(4, rng=np.random.default_rng(0), rows=2)
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(2))
    # Integer flows round masses to 2^-30.
    assert solve(problem) == pytest.approx(otm.optimal_acceptance(problem), abs=1e-6)
