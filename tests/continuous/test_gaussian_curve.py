"""The curve of two Gaussians and what is asked of it, against 60 digits and against a grid."""

import mpmath as mp
import numpy as np
import pytest

import otm
from otm.continuous import GaussianCurve, acceptance, optimal_acceptance
from otm.errors import OtmError


def height(t, shift):
    x = mp.log(t) / shift + mp.mpf(shift) / 2
    return mp.ncdf(x - shift) + t * mp.ncdf(-x)


def least_cut(shift, b, slope):
    """1 + min Φ(x − δ) − b(Φ(x)): from the best of a grid to where q/p = b′."""

    def gain(x):
        return mp.ncdf(x - shift) - b(mp.ncdf(x))

    grid = np.linspace(-4, 6 + np.log(30) / shift, 250)
    best = grid[int(np.argmin([float(gain(mp.mpf(x))) for x in grid]))]
    root = mp.findroot(
        lambda x: shift * x - mp.mpf(shift) ** 2 / 2 - mp.log(slope(mp.ncdf(x))),
        (best - (grid[1] - grid[0]), best + (grid[1] - grid[0])),
        solver="anderson",
        tol=1e-60,
    )
    return 1 + gain(root)


@pytest.mark.parametrize("shift", [0.25, 1.0, 5.0])
def test_functionals_of_the_curve_in_sixty_digits(shift):
    curve = GaussianCurve(shift)
    with mp.workdps(60):
        for t in (1e-3, 0.5, 1.0, 3.0, 40.0):
            assert curve.at(t) == pytest.approx(float(height(mp.mpf(t), shift)), abs=4e-16)
        for k in (2, 4, 30):
            law = otm.IID(k)
            exact = least_cut(shift, lambda v, k=k: v**k, lambda v, k=k: k * v ** (k - 1))
            assert optimal_acceptance(curve, law) == pytest.approx(float(exact), abs=1e-14)
            gamma = mp.findroot(
                lambda g, k=k: height(g, shift) - 1 + (1 - height(g, shift) / g) ** k,
                (1, k),
                solver="anderson",
                tol=1e-100,
            )
            found = acceptance(otm.KSeq(), curve, law)
            assert found == pytest.approx(float(height(gamma, shift)), abs=4e-15)
            level = mp.mpf(1)
            for _ in range(k - 1):
                level += 1 - height(level, shift)
            found = acceptance(otm.RecursiveRejection(), curve, law)
            assert found == pytest.approx(float(height(level, shift)), abs=4e-15)
        exact = least_cut(shift, lambda v: v / (3 - 2 * v), lambda v: 3 / (3 - 2 * v) ** 2)
        found = optimal_acceptance(curve, otm.ThresholdRace(3))
        assert found == pytest.approx(float(exact), abs=1e-14)


@pytest.mark.parametrize(("shift", "c"), [(0.25, 3.0), (12.0, 1.0)])
def test_a_race_by_another_quadrature(shift, c):
    def match(y):
        t = mp.exp(shift * y - mp.mpf(shift) ** 2 / 2) / c
        return mp.npdf(y - shift) / (1 + t - height(t, shift))

    with mp.workdps(20):
        exact = mp.quad(match, [shift + x for x in range(-15, 12, 2)], maxdegree=4)
    found = acceptance(otm.Race(), GaussianCurve(shift), otm.ThresholdRace(c))
    assert found == pytest.approx(float(exact), rel=1e-13)


def test_gold():
    """The values of docs/theory.md, for several shifts at once."""
    both = GaussianCurve(np.array([1.0, 2.0]))
    assert acceptance(otm.Maximal(), both, otm.IID(1)).shape == (2,)
    found = np.transpose([optimal_acceptance(both, otm.IID(k)) for k in (1, 2, 4, 8)])
    wanted = [[0.617, 0.792, 0.924, 0.982], [0.317, 0.426, 0.546, 0.667]]
    assert np.round(found, 3).tolist() == wanted


@pytest.mark.parametrize("shift", [0.0, 1e-300, 1e-9, 40.0, 1e100])
@pytest.mark.parametrize(
    ("verifier", "law"),
    [
        (otm.Optimal(), otm.IID(3)),
        (otm.KSeq(), otm.IID(3)),
        (otm.RecursiveRejection(), otm.IID(3)),
        (otm.Race(), otm.ThresholdRace(3)),
        (otm.Optimal(), otm.ThresholdRace(3)),
    ],
)
def test_far_and_near(verifier, law, shift):
    """Equal laws accept everything, far ones next to nothing, and nothing leaves [0, 1]."""
    found = acceptance(verifier, GaussianCurve(shift), law)
    assert found == pytest.approx(1.0 if shift < 1 else 0.0, abs=1e-8)
    assert 0.0 <= found <= 1.0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: acceptance(otm.Naive(), GaussianCurve(1.0), otm.IID(2)), "has no functional"),
        (
            lambda: optimal_acceptance(GaussianCurve(1.0), otm.WithoutReplacement(2)),
            "must depend on the overlap curve",
        ),
        *((lambda wrong=wrong: GaussianCurve(wrong), "shift") for wrong in (-1.0, np.nan, "1")),
    ],
)
def test_what_has_no_functional_is_refused(call, said):
    with pytest.raises(OtmError, match=said):
        call()
