"""Blocks of Gaussian steps: the joint law of their output, exactly on a line and by samples.

Tests by samples reject a right verifier with a probability below 1e-9 each (Dvoretzky, Kiefer &
Wolfowitz for distribution functions, Hoeffding for rates).
"""

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from otm.continuous import GaussianBlock, gaussian_block
from otm.errors import OtmError

COUNT = 25_000
ERROR = 1e-9

LENGTH, STEPS = 3, 4  # drafted at once, and of the whole process
SCALE = np.array([0.5, 2.0])


def farthest(count):
    """What a sample's distribution function, or its rate, is within of the truth."""
    return float(np.sqrt(np.log(2 / ERROR) / (2 * count)))


def draft_mean(x, step):
    return 0.6 * x + np.array([0.3, -1.0])


def target_mean(x, step):
    """A shift whose length and direction depend on both coordinates of the point before."""
    turn = 0.4 * step + np.tanh(x[:, 1]) + x[:, 0]
    length = 0.9 + 0.9 * (x[:, 0] > 0.3) + 0.5 * np.abs(np.sin(x[:, 1]))
    along = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return draft_mean(x, step) + SCALE * length[:, None] * along


def drafted(x, step, rng):
    """A chain of drafts, and both models' means along it."""
    points, starts, ends = [x], [], []
    for i in range(LENGTH):
        starts.append(draft_mean(points[-1], step + i))
        ends.append(target_mean(points[-1], step + i))
        points.append(starts[-1] + SCALE * rng.standard_normal(x.shape))
    ends.append(target_mean(points[-1], step + LENGTH))
    return tuple(np.stack(each, axis=1) for each in (points[1:], starts, ends))


def generated(rng):
    """Chains of points made by blocks, and what each point has above the target's mean, in units
    of its deviation.
    """
    done, points = np.zeros(COUNT, dtype=int), np.zeros((COUNT, STEPS + LENGTH + 1, 2))
    while (done < STEPS).any():
        step = done.min()  # the step enters the means: chains that are equally far go together
        rows = np.flatnonzero(done == step)
        drafts, starts, ends = drafted(points[rows, step], step, rng)
        found = GaussianBlock(LENGTH).verify(
            drafts, draft_mean=starts, target_mean=ends, scale=SCALE, rng=rng
        )
        done[rows] += found.accepted + 1
        points[rows, step + 1 : step + 1 + LENGTH] = drafts
        points[rows, done[rows]] = found.output  # what lies beyond is written again, or not read
    noise = [(points[:, i + 1] - target_mean(points[:, i], i)) / SCALE for i in range(STEPS)]
    return points, np.stack(noise, axis=1)


def excess(points, noise):
    """How far the noise is from independent standard Gaussians, in units of what chance allows.

    The distribution functions of every step along its shift and across it, also where the noise of
    the step before is low along its shift or high: there the weights differ.
    """
    turned = []
    for i in range(STEPS):
        along = (target_mean(points[:, i], i) - draft_mean(points[:, i], i)) / SCALE
        along /= np.linalg.norm(along, axis=1, keepdims=True)
        right = np.stack([along[:, 1], -along[:, 0]], axis=1)
        turned.append([(noise[:, i] * axis).sum(axis=1) for axis in (along, right)])
    found = []
    for i, now in enumerate(turned):
        before = turned[i - 1][0] if i else now[0]
        groups = [before < -0.6745, before > 0.6745] if i else []
        for group in (slice(None), *groups):
            found += [
                stats.kstest(values[group], "norm").statistic / farthest(len(values[group]))
                for values in now
            ]
    return max(found)


def test_the_joint_law_of_several_steps_is_the_targets():
    points, noise = generated(np.random.default_rng(5))
    assert excess(points, noise) <= 1.0


def test_a_chain_keeps_its_weights_and_never_less_than_its_steps_do():
    """Given the drafts, i steps are kept with w_i, and one by one with Π min(1, q/p)."""
    rng = np.random.default_rng(6)
    drafts, starts, ends = drafted(np.zeros((COUNT, 2)), 0, rng)
    kept = (
        GaussianBlock(LENGTH)
        .verify(drafts, draft_mean=starts, target_mean=ends, scale=SCALE, rng=rng)
        .accepted
    )
    densities = [
        stats.norm.logpdf(drafts, each, SCALE).sum(axis=2) for each in (starts, ends[:, :-1])
    ]
    single = np.minimum(np.exp(densities[1] - densities[0]), 1.0).cumprod(axis=1)
    weight, block = np.ones(COUNT), []
    for i in range(LENGTH):
        weight = np.minimum(1.0, weight * np.exp(densities[1][:, i] - densities[0][:, i]))
        block.append(weight)
        assert (weight >= single[:, i] * (1.0 - 1e-12)).all()
        assert (kept > i).mean() == pytest.approx(weight.mean(), abs=farthest(COUNT))
    assert np.mean(block) > single.mean() + 0.02
    given = np.split(np.argsort(block[-1]), 5)  # also among chains of like weight
    for rows in given:
        rate = (kept[rows] == LENGTH).mean()
        assert rate == pytest.approx(block[-1][rows].mean(), abs=farthest(len(rows)))


@pytest.mark.parametrize("shifts", [(1.3, 0.6), (0.2, 2.5)])
def test_two_steps_on_a_line_add_up_to_the_targets_density(shifts):
    """p(x) [p(x') w₂ + R (w₁ q − p)₊/Z₁] = p(x) w₁ q(x'), with R the chance that the first point is
    kept and the second is not; and R₀ (q − p)₊/Z₀ is what the first point lacks."""
    p = stats.norm.pdf
    width = 1e-3
    line = np.arange(-10, 13, width)
    lost = 0.0
    for x in np.linspace(-4, 5, 19):
        both = np.stack([np.full(len(line), x), line], axis=1)
        weight, chance = gaussian_block._chances(both, np.broadcast_to(shifts, both.shape))
        w1, w2, passes = weight[0, 1], weight[:, 2], chance[0, 1]
        np.testing.assert_array_equal(chance[:, 2], w2)
        fails = width * (p(line) * (1 - w2)).sum()
        excess = np.maximum(w1 * p(line - shifts[1]) - p(line), 0.0)
        total = width * excess.sum()
        second = fails * passes * (excess / total if total > 0 else excess)
        # the trapezoid rule across one kink
        np.testing.assert_allclose(p(line) * w2 + second, w1 * p(line - shifts[1]), atol=1e-6)
        # so the first point is kept with w₁
        assert width * (p(line) * w2).sum() + fails * passes == pytest.approx(w1, abs=1e-6)
        lost += 0.5 * p(x) * (1 - w1)
    assert lost == pytest.approx(2 * ndtr(shifts[0] / 2) - 1, abs=2e-2)


@pytest.mark.parametrize("shift", [1e-300, 1e-5, 0.3, 1.0, 4.0, 1e100])
def test_equal_shifts_reach_what_spitzers_identity_says(shift):
    length = 7
    reached = [1.0]
    for i in range(1, length + 1):
        terms = [2 * ndtr(-shift * np.sqrt(j) / 2) * reached[i - j] for j in range(1, i + 1)]
        reached.append(sum(terms) / i)
    found = GaussianBlock(length).survival([shift] * length)
    np.testing.assert_allclose(found, reached[1:], rtol=0, atol=2e-13)
    assert (found >= np.cumprod([2 * ndtr(-shift / 2)] * length) - 2e-13).all()


@pytest.mark.parametrize(("one", "two"), [(0.7, 1.9), (2.2, 0.2)])
def test_two_unequal_shifts_by_thirty_digits(one, two):
    """E min(1, min(1, r₁) r₂) = Pr(r₁ ≥ 1) H₂(1) + ∫ over r₁ < 1 of E min(1, r₁ r₂)."""
    with mpmath.workdps(30):
        a, b = mpmath.mpf(one), mpmath.mpf(two)

        def kept(log_weight):
            below, above = log_weight / b - b / 2, -log_weight / b - b / 2
            return mpmath.ncdf(below) + mpmath.exp(log_weight) * mpmath.ncdf(above)

        truth = mpmath.ncdf(-a / 2) * kept(mpmath.mpf(0)) + mpmath.quad(
            lambda x: mpmath.npdf(x) * kept(a * x - a * a / 2), [-14, -8, -4, -1, 0, a / 2]
        )
    assert GaussianBlock(2).survival([one, two])[1] == pytest.approx(float(truth), abs=2e-13)


def test_steps_without_a_shift_are_kept():
    one = 2 * ndtr(-0.85)
    np.testing.assert_allclose(
        GaussianBlock(3).survival([0.0, 1.7, 0.0]), [1.0, one, one], atol=2e-13
    )
    chain = np.random.default_rng(0).standard_normal((100, 2, 3))
    found = GaussianBlock(2).verify(chain, draft_mean=0.0, target_mean=0.0, rng=0)
    assert (found.accepted == 2).all() and found.output.shape == (100, 3)


def verified(drafts, **changed):
    given = {"draft_mean": 0.0, "target_mean": 1.0, "rng": 0} | changed
    return GaussianBlock(2).verify(drafts, **given)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: verified(np.zeros((3, 3))), "drafts must have the shape"),
        (lambda: verified(np.zeros((2, 3)), target_mean=np.ones((2, 3))), "one step more"),
        (lambda: verified(np.zeros((2, 3)), scale=-1.0), "scale must be positive"),
        *(
            (lambda far=far: verified(np.zeros((2, 3)), **far), "standard deviations of each other")
            for far in ({"target_mean": 1e200}, {"scale": 1e-300}, {"target_mean": np.inf})
        ),
        (lambda: verified(np.full((2, 3), np.nan)), "drafts must be finite"),
        (lambda: GaussianBlock(0), "length"),
        (lambda: GaussianBlock(2).survival([1.0]), "shifts must have the shape"),
        (lambda: GaussianBlock(1).survival([-1.0]), "shift must be a distance"),
    ],
)
def test_what_does_not_fit_is_refused(call, said):
    with pytest.raises(OtmError, match=said):
        call()
