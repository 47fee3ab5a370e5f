"""The papers' quantities at a position, and their order among each other."""

from __future__ import annotations

import numpy as np
import pytest

import otm
from analysis.models.processing import settings_of
from analysis.run.bound_columns import (
    bound_columns,
    bound_statistics,
    bounds_table,
    greedy_index_entropy,
    index_entropy,
    rank_entropy,
    theorem1_all,
)
from otm.table import acceptance_table
from tests.analysis.run.instances import KS, logits


def problem_of(draft: np.ndarray, target: np.ndarray, k: int = 1) -> otm.Problem:
    return otm.Problem(draft=otm.from_logits(draft), target=otm.from_logits(target), law=otm.IID(k))


def index_law(problem: otm.Problem, most: int) -> np.ndarray:
    """Pr(K = n) of the Poisson representation: the winner at time t precedes g t others on average,
    n − 1 of them.
    """
    p, q = problem.draft, problem.target
    rates = np.array([np.maximum(q[i] / p[i] * p - q, 0.0).sum() for i in range(len(p))])
    n = np.arange(most)[:, None]
    return np.asarray(((rates / (1 + rates)) ** n / (1 + rates)) @ q)


@pytest.mark.parametrize("number", range(4))
def test_quantities_stand_in_the_order_that_the_theorems_say(number: int) -> None:
    draft, target = logits(number)
    columns = bound_columns(
        np.stack([draft] * 2), np.stack([target] * 2), settings_of([1.0, 0.7], [1.0]), KS
    )
    assert list(columns) == [name for name, _, _ in bound_statistics(KS)]
    assert all(len(values) == 4 for values in columns.values())
    table = acceptance_table(draft=otm.from_logits(draft), target=otm.from_logits(target), k=KS)
    at = {name: float(values[0]) for name, values in columns.items()}
    for k in KS:
        problem = problem_of(draft, target, k)
        assert 1.0 <= at[f"gamma_star_k{k}"] <= k
        assert at[f"kseq_guarantee_k{k}"] <= table[f"kseq_iid_k{k}"] + 1e-12
        # Every set bounds the optimum, and the relaxed sum over sequences stands above the sum
        # itself.
        assert table[f"optimum_iid_k{k}"] <= at[f"theorem1_all_k{k}"] + 1e-12
        if k <= 2:
            assert at[f"theorem1_all_k{k}"] == pytest.approx(
                otm.bounds.spectr_upper(problem, subset=np.ones(60, dtype=bool)), abs=1e-12
            )
            empty = otm.bounds.spectr_upper(problem, subset=[])
            assert empty <= at[f"theorem1_none_k{k}"] + 1e-12
            assert k > 1 or empty == pytest.approx(at["theorem1_none_k1"], abs=1e-12)
    assert at["race_lemma"] <= table["race_iid_k1"]
    assert at["index_least"] <= at["index_entropy"] <= at["index_most_race"]
    assert (
        at["index_least"]
        <= greedy_index_entropy(problem_of(draft, target))[0]
        <= at["index_most_greedy"]
    )


@pytest.mark.parametrize("number", range(3))
def test_the_index_has_the_entropy_of_its_law(number: int) -> None:
    problem = problem_of(*logits(number, 8))
    law = index_law(problem, 100_000)
    assert law.sum() == pytest.approx(1.0, abs=1e-9)
    exact = -float((law[law > 0] * np.log2(law[law > 0])).sum())
    assert index_entropy(problem) == pytest.approx(exact, abs=2e-3)  # as documented
    # a rank is at most the index
    assert rank_entropy(problem, draws=2_000, rng=np.random.default_rng(0)) <= exact + 0.2


def test_what_is_never_drafted_takes_for_ever_to_name() -> None:
    problem = otm.Problem(draft=[1.0, 0.0], target=[0.5, 0.5], law=otm.IID(1))
    assert index_entropy(problem) == np.inf
    assert theorem1_all(problem) == 0.5
    shown = bounds_table(problem, [1, 2], draws=50, rng=np.random.default_rng(1))
    assert (
        "Poisson representation inf inf, ERSD (6) inf, ERSD (8)" in " ".join(shown.split())
        and "inf, ERSD (7)" in shown
    )
    assert "nan" not in shown
