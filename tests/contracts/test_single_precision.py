"""float32 rows miss a unit sum by 1e-7. No acceptance passes 1 or the optimum by it, and no two
bounds change places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, settings, strategies as st

import otm
from tests import instances, strategies
from tests.contracts.accuracy import value_accuracy
from tests.tolerance import rounding


@st.composite
def problems(draw: st.DrawFn, law: otm.Law) -> otm.Problem:
    least = 1 if instances.fits(law, 1) else law.k
    first, target = draw(strategies.pairs(min_tokens=least, max_tokens=5))
    rows = [first] + [draw(strategies.distributions(len(first))) for _ in range(law.k - 1)]
    shape = law.draft_shape(len(target))
    draft = np.stack(rows[: shape[0]] if len(shape) > 1 else rows[:1]).reshape(shape)
    return otm.Problem(draft=draft.astype(np.float32), target=target.astype(np.float32), law=law)


@pytest.mark.parametrize(("verifier", "law"), instances.supported_pairs())
@settings(max_examples=25)  # many pairs of law and verifier
@given(data=st.data())
def test_acceptances(verifier: otm.Verifier, law: otm.Law, data: st.DataObject) -> None:
    problem = data.draw(problems(law))
    best = otm.optimal_acceptance(problem)
    values = [otm.acceptance(verifier, problem, by=by) for by in ("rule", "membership")]
    assert min(values) >= 0
    assert max(values) <= 1
    if verifier.lossless:
        assert max(values) <= best + value_accuracy(verifier, problem)


@pytest.mark.parametrize("law", instances.law_params())
@given(data=st.data())
def test_bounds(law: otm.Law, data: st.DataObject) -> None:
    problem = data.draw(problems(law))
    best, slack = otm.optimal_acceptance(problem), rounding(problem.num_tokens, law.k)
    assert 0 <= best <= otm.bounds.support_limit_upper(problem) + slack
    assert otm.bounds.support_limit_upper(problem) <= 1
    if isinstance(law, otm.IID):
        bracket = otm.bounds.optimal_bracket(problem, bins=8)
        assert bracket.lower <= bracket.upper <= 1
        assert bracket.lower - slack <= best <= bracket.upper + slack
        for lower in (otm.bounds.kseq_lower, otm.bounds.list_matching_lower):
            assert lower(problem) <= best + slack
        names = [
            column for column in otm.table.table_columns([1]) if column.optimum == "optimum_iid_k1"
        ]
        table = otm.acceptance_table(draft=problem.draft, target=problem.target, k=[1])
        single = otm.optimal_acceptance(problem.with_law(otm.IID(1)))
        assert all(float(table[column.name]) <= single + slack for column in names)


@pytest.mark.parametrize("kind", [np.asarray, torch.asarray])
def test_no_bound_changes_places_on_three_thousand_pairs(kind: Callable[[np.ndarray], Any]) -> None:
    """Float32 softmaxes of logits that are the same, hardly differ, or do: where both sides are one
    number, rounding decides.
    """
    rng = np.random.default_rng(0)
    for width in (2, 5, 40, 1500):
        logits = rng.standard_normal((750, width)) * rng.choice([0.5, 2.0, 5.0], (750, 1))
        moved = logits + rng.standard_normal((750, width)) * rng.choice(
            [0.0, 1e-7, 1e-3, 1.0], (750, 1)
        )
        p, q = (kind(scipy.special.softmax(x, axis=-1).astype(np.float32)) for x in (logits, moved))
        for k in (1, 2, 64):
            problem, slack = otm.Problem(draft=p, target=q, law=otm.IID(k)), rounding(width, k)
            best, bracket = (
                otm.optimal_acceptance(problem),
                otm.bounds.optimal_bracket(problem, bins=32),
            )
            assert ((best >= 0) & (best <= 1)).all()
            assert (
                (bracket.lower <= bracket.upper)
                & (bracket.lower <= best + slack)
                & (best <= bracket.upper + slack)
            ).all()
            for verifier in (otm.KSeq(), otm.RecursiveRejection()):
                value = otm.acceptance(verifier, problem)
                assert ((value >= 0) & (value <= 1) & (value <= best + slack)).all()


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("width", [2, 5, 300, 50_000])
def test_the_gate_leaves_what_has_passed_it(kind: Callable[[Any], Any], width: int) -> None:
    """Or a function that is given a problem's masses would answer for others, 1e-9 away."""
    rng = np.random.default_rng(width)
    rows = rng.dirichlet(np.full(width, 0.3), size=40).astype(np.float32)
    rows *= (1 + rng.uniform(-2e-5, 2e-5, size=(40, 1))).astype(np.float32)
    once = otm.pmf.as_pmf(kind(rows), name="draft")
    assert (np.asarray(once).astype(float).sum(axis=1) != 1).any()
    assert np.array_equal(np.asarray(once), np.asarray(otm.pmf.as_pmf(once, name="draft")))
    for row, alone in zip(once, rows, strict=True):  # whatever the rows beside it
        assert np.array_equal(
            np.asarray(row), np.asarray(otm.pmf.as_pmf(kind(alone), name="draft"))
        )


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("narrow", ["draft", "target", "both"])
def test_mixed_precision_is_as_good_as_double(kind: Callable[[Any], Any], narrow: str) -> None:
    """A float32 row beside a float64 one is divided by its sum in float64, or pieces that tile the
    one would miss the other.
    """
    rng = np.random.default_rng(0)
    for _ in range(30):
        rows = {side: rng.dirichlet(np.full(40, 0.5)) for side in ("draft", "target")}
        for side in rows:
            if narrow in (side, "both"):
                rows[side] = rows[side].astype(np.float32)
        problem = otm.Problem(**{side: kind(row) for side, row in rows.items()}, law=otm.IID(3))
        best = otm.optimal_acceptance(problem)
        assert otm.acceptance(otm.Optimal(), problem) == pytest.approx(best, abs=rounding(40, 3))
        otm.prepare(otm.Optimal(bins=64), problem)
