"""Verifiers of Gaussian drafts: their output by its exact law along the shift, and by samples.

Tests by samples reject a right verifier with a probability below 1e-9 each (Dvoretzky, Kiefer &
Wolfowitz for distribution functions, Hoeffding for rates).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

import otm
from otm.continuous import (
    GaussianCurve,
    GaussianKSeq,
    GaussianOptimal,
    GaussianReflection,
    GaussianRejection,
    acceptance,
    optimal_acceptance,
)
from otm.continuous.gaussian_rule import GaussianRule, InTurnRule
from otm.errors import InvalidParameter, ShapeMismatch

COUNT = 20_000
ERROR = 1e-9
FARTHEST = np.sqrt(np.log(2 / ERROR) / (2 * COUNT))  # of a sample's distribution function

LINE = np.linspace(-9, 12, 20_001)
STEP = LINE[1] - LINE[0]

RULES = [
    (GaussianOptimal(4, 1.3), 1.3),
    (GaussianOptimal(4, 1.3), 0.8),  # a plan is lossless at other shifts too
    (GaussianOptimal(4, [2.0, 0.7]), 1.3),
    (GaussianOptimal(2, 3.0), 3.0),
    (GaussianOptimal(1, 1.0), 1.0),
    (GaussianKSeq(3), 1.3),
    (GaussianRejection(3), 1.3),
    (GaussianRejection(3), 0.0),
    (GaussianReflection(1), 1.3),
]


def distances(rule: GaussianRule, shift: float) -> tuple[np.ndarray, float]:
    """How far the output's distribution functions along the shift and across it are from the
    target's, and of products of both signs; and the rate of acceptance.
    """
    rng = np.random.default_rng(5)
    along = np.array([0.6, 0.0, -0.8])
    start, scale = np.array([3.0, -1.0, 2.0]), np.array([0.5, 2.0, 1.0])
    drafts = start + scale * rng.standard_normal((COUNT, rule.num_drafts, 3))
    end = start + scale * shift * along
    found = rule.verify(drafts, draft_mean=start, target_mean=end, scale=scale, rng=rng)
    z = (found.output - end) / scale
    x, across = z @ along, z @ np.array([0.8, 0.0, 0.6])
    kept = (found.output[:, None, :] == drafts).all(axis=-1).any(axis=-1)
    np.testing.assert_array_equal(kept, found.accepted)
    both = ((x > 0) == (across > 0)).mean() - 0.5
    far = [stats.kstest(values, "norm").statistic for values in (x, across, z[:, 1])]
    return np.array([*far, abs(both)]), float(found.accepted.mean())


@pytest.mark.parametrize(("rule", "shift"), RULES, ids=str)
def test_samples_have_the_targets_law_and_the_acceptance_of_the_closed_form(
    rule: GaussianRule, shift: float
) -> None:
    far, rate = distances(rule, shift)
    assert (far <= FARTHEST).all()
    curve, law = GaussianCurve(shift), otm.IID(rule.num_drafts)
    best = float(optimal_acceptance(curve, law))
    exact = {
        GaussianKSeq: lambda: acceptance(otm.KSeq(), curve, law),
        GaussianRejection: lambda: acceptance(otm.RecursiveRejection(), curve, law),
    }.get(type(rule), lambda: best)()
    if isinstance(rule, GaussianOptimal) and shift not in np.ravel(rule.shifts):
        # between what the change of the target can cost and the optimum
        ends = [
            float(optimal_acceptance(GaussianCurve(each), law))
            - (2 * ndtr(abs(each - shift) / 2) - 1)
            for each in np.ravel(rule.shifts)
        ]
        assert min(ends) - FARTHEST <= rate <= best + FARTHEST
        exact = rate
    assert rate == pytest.approx(float(exact), abs=FARTHEST)


def test_a_selected_draft_verified_by_the_wrong_law_is_found() -> None:
    """The mutant takes the selected draft for one from the draft's law."""
    rng, shift, rule = np.random.default_rng(0), np.full(COUNT, 1.3), GaussianOptimal(4, 1.3)
    x = rng.standard_normal((COUNT, 4))
    chosen = x[np.arange(COUNT), rule._choose(x, shift, rng)[0]]
    kept = rng.random(COUNT) < np.exp(1.3 * (chosen - 0.65))
    output = np.where(kept, chosen, GaussianRejection(1)._replace(chosen, shift, rng))
    assert stats.kstest(output - 1.3, "norm").statistic > 2 * FARTHEST


def test_plans_lose_with_the_square_of_their_distance() -> None:
    """By quadrature of min(s, q) at a shift between two plans."""
    p, q = stats.norm.pdf(LINE), stats.norm.pdf(LINE - 0.6)
    best = float(optimal_acceptance(GaussianCurve(0.6), otm.IID(4)))
    lost = []
    for width in (0.2, 0.1):
        rule = GaussianOptimal(4, [0.6 - width, 0.6 + width])
        s = p * rule._taken(LINE, np.array([0.6]))
        lost.append(best - STEP * np.minimum(s, q).sum())
    assert 0 < lost[1] < lost[0] / 3
    assert lost[1] < 5e-3


@pytest.mark.parametrize("rule", [GaussianKSeq(3), GaussianRejection(3), GaussianRejection(1)])
def test_the_law_along_the_shift_of_drafts_in_turn(rule: InTurnRule) -> None:
    """Σ_i p keep_i Π_{j<i} (1 − A_j) + Π_j (1 − A_j)·residual is q, point by point."""
    for shift in (0.4, 1.3, 3.0):
        p, q = stats.norm.pdf(LINE), stats.norm.pdf(LINE - shift)
        level, left, last = (a[0] for a in rule._stages(np.array([shift])))
        law, reached = np.zeros_like(p), 1.0
        for t, m in zip(
            *np.broadcast_arrays(level, left, np.empty(rule.num_drafts))[:2], strict=True
        ):
            kept = p * np.clip((q / p - t) / m, 0.0, 1.0)
            law, reached = law + reached * kept, reached * (1.0 - STEP * kept.sum())
        residual = np.maximum(q - last * p, 0.0)
        law += reached * residual / (STEP * residual.sum())
        np.testing.assert_allclose(law, q, atol=2e-7)  # kinks, on a grid


@pytest.mark.parametrize(("count", "shift"), [(2, 0.5), (4, 1.3), (16, 3.0)])
def test_the_selected_draft_has_the_planned_law(count: int, shift: float) -> None:
    """p(x) E[k F(U)^{k−1} | x], F the law of one draft's score as drafts have it, integrated over
    the line and not taken from the plan's own sums.
    """
    ((scores, found),) = GaussianOptimal(count, shift).plans
    # between the points where a level passes an atom everything is smooth
    with np.errstate(invalid="ignore"):
        kinks = np.log(np.append(scores.level, found.high)) / shift + shift / 2
    ends = np.unique(np.append(np.linspace(-9, 12, 400), kinks[np.isfinite(kinks)]))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = 0.5 * np.diff(ends)[:, None]
    x = (0.5 * (ends[1:] + ends[:-1])[:, None] + half * nodes).ravel()
    weight = (half * weights).ravel() * stats.norm.pdf(x)
    ratio = np.exp(shift * (x - shift / 2))
    levels = np.clip(ratio, found.low, found.high)
    below = scores.below(np.maximum(levels, scores.level[1]))
    mixed = weight @ below
    rise = np.diff(mixed)
    won = np.divide(np.diff(mixed**count), rise, out=np.zeros_like(rise), where=rise > 0)
    assert (weight * abs(np.diff(below, axis=1) @ won - levels)).sum() <= 1e-12
    # and what is accepted of it is the optimum
    best = optimal_acceptance(GaussianCurve(shift), otm.IID(count))
    assert (weight * np.minimum(levels, ratio)).sum() == pytest.approx(float(best), abs=1e-12)


def test_what_does_not_fit_is_refused() -> None:
    rule = GaussianKSeq(2)
    fitting = {"draft_mean": np.zeros(3), "target_mean": np.ones(3), "rng": 0}
    with pytest.raises(ShapeMismatch, match="drafts must have the shape"):
        rule.verify(np.zeros((3, 3)), **fitting)
    with pytest.raises(ShapeMismatch, match="must fit the shape"):
        rule.verify(np.zeros((5, 2, 4)), **fitting)
    with pytest.raises(InvalidParameter, match="scale must be positive and finite"):
        rule.verify(np.zeros((2, 3)), scale=0.0, **fitting)
    for verifier, drafts in ((rule, 2), (GaussianReflection(1), 1)):
        with pytest.raises(InvalidParameter, match="drafts must be finite"):
            verifier.verify(np.full((drafts, 3), np.nan), **fitting)
        with pytest.raises(InvalidParameter, match="standard deviations of each other"):
            verifier.verify(np.zeros((drafts, 3)), **fitting | {"target_mean": np.inf})
    with pytest.raises(InvalidParameter, match="must be 1 for a reflection"):
        GaussianReflection(2)
    with pytest.raises(InvalidParameter, match="num_drafts"):
        GaussianOptimal(0, 1.0)
