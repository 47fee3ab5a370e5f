"""Masses count as they are, down to the smallest positive float: scaling the tiny masses of a
problem changes no acceptance.

An acceptance depends on the ratios of the tiny masses to each other, and on their size only as far
as they weigh: not at all here. So a problem whose tiny masses are a few units of 2⁻¹⁰⁷⁴, where q/p
overflows and products underflow, must have the values of the same problem with units of 2⁻¹⁰⁰. All
masses are dyadic and sum to exactly 1: the gate divides by nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.errors import OtmError
from otm.table import table as table_module
from tests import instances

_ORDINARY = 2.0**-100
_UNITS = (2.0**-1074, 2.0**-1060, 2.0**-1030)
_TOLERANCE = 1e-9

Masses = tuple[np.ndarray, np.ndarray]


@st.composite
def masses(draw: st.DrawFn, num_tokens: int) -> Masses:
    """(heavy masses, which sum to 1; small integers for the tokens that have none)."""
    heavy = np.asarray(
        draw(st.lists(st.integers(0, 3), min_size=num_tokens, max_size=num_tokens).filter(any)),
        dtype=np.float64,
    )
    first = np.flatnonzero(heavy)[0]
    heavy /= 16.0
    heavy[first] += 1.0 - heavy.sum()
    tiny = np.asarray(
        draw(st.lists(st.integers(0, 5), min_size=num_tokens, max_size=num_tokens)),
        dtype=np.float64,
    )
    return heavy, np.where(heavy > 0, 0.0, tiny)


@st.composite
def pairs(draw: st.DrawFn, least: int = 2) -> tuple[Masses, Masses]:
    num_tokens = draw(st.integers(least, 4))
    return draw(masses(num_tokens)), draw(masses(num_tokens))


def at(unit: float, pair: tuple[Masses, Masses]) -> tuple[np.ndarray, np.ndarray]:
    (p, p_tiny), (q, q_tiny) = pair
    return p + unit * p_tiny, q + unit * q_tiny


def answer(ask: Callable[[], object]) -> np.ndarray | type:
    try:
        return np.asarray(ask(), dtype=np.float64)
    except OtmError as error:
        return type(error)


def assert_same(
    ask: Callable[[otm.Problem], object], pair: tuple[Masses, Masses], law: otm.Law, unit: float
) -> None:
    def value(unit: float) -> np.ndarray | type:
        p, q = at(unit, pair)
        return answer(lambda: ask(instances.make_problem(law, [p] * law.k, q)))

    found, wanted = value(unit), value(_ORDINARY)
    if isinstance(found, type) or isinstance(wanted, type):
        assert found is wanted
    else:
        np.testing.assert_allclose(found, wanted, atol=_TOLERANCE, rtol=0)


@pytest.mark.parametrize(("verifier", "law"), instances.supported_pairs())
@settings(max_examples=20)  # many pairs of law and verifier
@given(data=st.data(), unit=st.sampled_from(_UNITS))
def test_verifiers(verifier: otm.Verifier, law: otm.Law, data: st.DataObject, unit: float) -> None:
    pair = data.draw(pairs(2 if instances.fits(law, 2) else 3))
    for by in ("membership", "rule"):
        assert_same(lambda problem: otm.acceptance(verifier, problem, by=by), pair, law, unit)  # type: ignore[arg-type] # noqa: B023

    def coupled(problem: otm.Problem) -> np.ndarray:
        joint = otm.coupling(verifier, problem)
        return np.append(joint.output_marginal, joint.acceptance)

    assert_same(coupled, pair, law, unit)
    problem = instances.make_problem(law, [at(unit, pair)[0]] * law.k, at(unit, pair)[1])
    samples = otm.sample(verifier, problem, size=20, rng=np.random.default_rng(0))
    assert (problem.target[samples.output] > 0).all() or not verifier.lossless


@pytest.mark.parametrize("law", instances.law_params())
@settings(max_examples=20)  # many pairs of law and verifier
@given(data=st.data(), unit=st.sampled_from(_UNITS))
def test_laws_and_bounds(law: otm.Law, data: st.DataObject, unit: float) -> None:
    pair = data.draw(pairs(2 if instances.fits(law, 2) else 3))
    asked: list[Callable[[otm.Problem], object]] = [
        otm.optimal_acceptance,
        lambda problem: otm.optimum(problem).value,
        lambda problem: law.inclusion(problem.draft),
        lambda problem: otm.lossy.tv_frontier(problem, tv=0.125),
    ]
    asked += [
        getattr(otm.bounds, name)
        for name in otm.bounds.__all__
        if name.endswith(("_lower", "_upper")) and "entropy" not in name and name != "spectr_upper"
    ]
    if isinstance(law, otm.IID):
        asked += [
            lambda problem: otm.lossy.kl_frontier(problem, kl=0.1).value,
            lambda problem: otm.bounds.optimal_bracket(problem, bins=16).lower,
            lambda problem: otm.bounds.optimal_bracket(problem, bins=16).upper,
        ]
    for ask in asked:
        assert_same(ask, pair, law, unit)


@pytest.mark.parametrize("way", ["compiled", "groups"])
@given(pair=pairs(), unit=st.sampled_from(_UNITS))
def test_the_table_and_the_divergences(way: str, pair: tuple[Masses, Masses], unit: float) -> None:
    (p, q), (ordinary_p, ordinary_q) = at(unit, pair), at(_ORDINARY, pair)
    with pytest.MonkeyPatch.context() as patched:
        if way == "groups":
            patched.setattr(table_module, "compiled", lambda _: None)
        found = otm.acceptance_table(draft=p, target=q, k=[1, 2])
        wanted = otm.acceptance_table(draft=ordinary_p, target=ordinary_q, k=[1, 2])
    np.testing.assert_allclose(found.values, wanted.values, atol=_TOLERANCE, rtol=0)
    for name, one, other in (("kl_target_draft", p, q), ("kl_draft_target", q, p)):
        exact = _relative_entropy(other, one)
        assert float(otm.divergences.kl_divergence(draft=one, target=other)) == pytest.approx(
            exact, rel=1e-14, abs=1e-300
        )
        assert float(found.description[name]) == pytest.approx(exact, rel=1e-13, abs=1e-13)


def _relative_entropy(q: np.ndarray, p: np.ndarray) -> float:
    if ((p == 0) & (q > 0)).any():
        return float("inf")
    with mpmath.workdps(400):
        return float(
            mpmath.fsum(
                mpmath.mpf(b) * mpmath.log(mpmath.mpf(b) / mpmath.mpf(a))
                for a, b in zip(p, q, strict=True)
                if b
            )
        )
