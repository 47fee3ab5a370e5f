"""Two finite problems around a pair of densities: closed forms lie between, and the gap closes."""

import itertools

import numpy as np
import pytest
from scipy import integrate

import otm
from otm.continuous import GaussianCurve, GaussianMixture, acceptance, enclosure
from otm.errors import OtmError

DRAFT = GaussianMixture([0.3, 0.7], [-2.0, 1.0], [0.5, 2.0])
TARGET = GaussianMixture([0.5, 0.5], [-1.0, 3.0], [1.0, 0.7])
ONE = GaussianMixture([1.0], [0.0], [1.0])


def density(law, x):
    z = (np.asarray(x)[..., None] - law.means) / law.scales
    return np.asarray(np.exp(-0.5 * z**2) @ (law.weights / law.scales) / np.sqrt(2 * np.pi))


@pytest.mark.parametrize("shift", [0.5, 2.0])
def test_gaussians_lie_between(shift):
    curve, other = GaussianCurve(shift), GaussianMixture([1.0], [shift], [1.0])
    for verifier, law in (
        (otm.Optimal(), otm.IID(1)),
        (otm.Optimal(), otm.ThresholdRace(3)),
        (otm.Optimal(), otm.IID(4)),
        (otm.KSeq(), otm.IID(4)),
    ):
        found = enclosure(ONE, other, law=law, cells=400)
        high, low = (float(otm.acceptance(verifier, each)) for each in found)
        assert low - 1e-13 <= acceptance(verifier, curve, law) <= high + 1e-13
        assert high - low < 2e-3
    # Σ (q − 2p)₊ = 1 − H(2) falls with H
    fell, rose = (
        otm.divergences.hockey_stick(draft=each.draft, target=each.target, level=2.0)
        for each in found
    )
    assert fell <= 1 - curve.at(2.0) <= rose


def test_recursive_rejection_does_not_grow_with_the_curve():
    """The instance of docs/theory.md, "The curve of other laws"."""
    other, law = GaussianMixture([1.0], [1.0], [1.0]), otm.IID(4)
    melted = enclosure(ONE, other, law=law, cells=256).melted
    found = float(otm.acceptance(otm.RecursiveRejection(), melted))
    exact = float(acceptance(otm.RecursiveRejection(), GaussianCurve(1.0), law))
    assert (round(found, 6), round(exact, 6)) == (0.797789, 0.797811)


def test_the_gap_of_mixtures_closes_with_the_square_of_the_width():
    gaps = []
    for cells in (60, 470):
        found = enclosure(DRAFT, TARGET, law=otm.IID(1), cells=cells)
        high, low = (float(otm.optimal_acceptance(each)) for each in found)
        gaps.append(high - low)
    assert gaps[1] < gaps[0] / 32
    line = np.linspace(-14, 14, 400_001)
    exact = (line[1] - line[0]) * np.minimum(density(DRAFT, line), density(TARGET, line)).sum()
    assert low - 1e-8 <= exact <= high + 1e-8  # three kinks


def test_masses_and_bounds_of_cells():
    edges = np.array([-3.0, -2.0, -1.9, 0.5, 4.0, 30.0])
    masses, (low, high) = TARGET.masses(edges), TARGET.bounds(edges)
    assert masses.sum() == pytest.approx(1.0, abs=1e-15)
    for cell, (start, end) in enumerate(itertools.pairwise(edges), start=1):
        inside = density(TARGET, np.linspace(start, end, 300))
        whole, _ = integrate.quad(lambda x: float(density(TARGET, x)), start, end)
        assert masses[cell] == pytest.approx(whole)
        assert (low[cell] <= inside * (1 + 1e-15)).all()
        assert (inside <= high[cell] * (1 + 1e-15)).all()
    assert low[0] == low[-1] == 0.0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: GaussianMixture([0.5, 0.6], [0, 1], [1, 1]), "sum to 1"),
        (lambda: GaussianMixture([0.5, 0.5], [0], [1, 1]), "as many"),
        (lambda: GaussianMixture([0.5, 0.5], [0, 1], [1, 0]), "positive"),
        (lambda: enclosure(DRAFT, TARGET, law=otm.IID(2), cells=1), "cells"),
    ],
)
def test_what_is_no_mixture_is_refused(call, said):
    with pytest.raises(OtmError, match=said):
        call()
