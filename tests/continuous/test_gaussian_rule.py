"""Verifiers of Gaussian drafts: their output by its exact law along the shift, and by samples.

Tests by samples reject a right verifier with a probability below 1e-9 each (Dvoretzky, Kiefer &
Wolfowitz for distribution functions, Hoeffding for rates).
"""

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
from otm.errors import OtmError

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


def distances(rule, shift):
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
def test_samples_have_the_targets_law_and_the_acceptance_of_the_closed_form(rule, shift):
    far, rate = distances(rule, shift)
    assert (far <= FARTHEST).all()
    curve, law = GaussianCurve(shift), otm.IID(rule.num_drafts)
    verifiers = {GaussianKSeq: otm.KSeq(), GaussianRejection: otm.RecursiveRejection()}
    exact = lost = float(acceptance(verifiers.get(type(rule), otm.Optimal()), curve, law))
    if isinstance(rule, GaussianOptimal):
        # no less than what the change of the target can cost
        lost = min(
            float(optimal_acceptance(GaussianCurve(each), law))
            - (2 * ndtr(abs(each - shift) / 2) - 1)
            for each in np.ravel(rule.shifts)
        )
    assert min(lost, exact) - FARTHEST <= rate <= exact + FARTHEST


def test_plans_lose_with_the_square_of_their_distance():
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
@pytest.mark.parametrize("shift", [0.4, 1.3, 3.0])
def test_the_law_along_the_shift_of_drafts_in_turn(rule, shift):
    """Σ_i p keep_i Π_{j<i} (1 − A_j) + Π_j (1 − A_j)·residual is q, point by point."""
    p, q = stats.norm.pdf(LINE), stats.norm.pdf(LINE - shift)
    level, left, last = (a[0] for a in rule._stages(np.array([shift])))
    law, reached = np.zeros_like(p), 1.0
    for t, m in zip(*np.broadcast_arrays(level, left, np.empty(rule.num_drafts))[:2], strict=True):
        kept = p * np.clip((q / p - t) / m, 0.0, 1.0)
        law, reached = law + reached * kept, reached * (1.0 - STEP * kept.sum())
    residual = np.maximum(q - last * p, 0.0)
    law += reached * residual / (STEP * residual.sum())
    np.testing.assert_allclose(law, q, atol=2e-7)  # kinks, on a grid


@pytest.mark.parametrize(("count", "shift"), [(2, 0.5), (4, 1.3), (16, 3.0)])
def test_the_selected_draft_has_the_planned_law(count, shift):
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


TWO, ONE = GaussianKSeq(2), GaussianReflection(1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        *(
            (
                lambda rule=rule, shape=shape, changed=changed: rule.verify(
                    np.zeros(shape),
                    **{"draft_mean": np.zeros(3), "target_mean": np.ones(3), "rng": 0} | changed,
                ),
                said,
            )
            for rule, shape, changed, said in (
                (TWO, (3, 3), {}, "drafts must have the shape"),
                (TWO, (5, 2, 4), {}, "must fit the shape"),
                (TWO, (2, 3), {"scale": 0.0}, "scale must be positive and finite"),
                (TWO, (2, 3), {"target_mean": np.inf}, "standard deviations of each other"),
                (ONE, (1, 3), {"target_mean": np.inf}, "standard deviations of each other"),
            )
        ),
        *(
            (
                lambda rule=rule: rule.verify(
                    np.full((rule.num_drafts, 3), np.nan), draft_mean=0.0, target_mean=1.0, rng=0
                ),
                "drafts must be finite",
            )
            for rule in (TWO, ONE)
        ),
        (lambda: GaussianReflection(2), "must be 1 for a reflection"),
        (lambda: GaussianOptimal(0, 1.0), "num_drafts"),
    ],
)
def test_what_does_not_fit_is_refused(call, said):
    with pytest.raises(OtmError, match=said):
        call()
