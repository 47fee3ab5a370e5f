"""Scores at real size: exact deviations at full vocabulary, and Monte Carlo."""

import numpy as np
import pytest

import otm
from otm import IID, Optimal, Problem
from otm.overlap.curve import Containment
from otm.overlap.lumped_row import RowSteps
from otm.verbs import run
from otm.verifiers.optimal import scores
from tests.verifiers.optimal.large import language_rows

GROUPS = 16
SAMPLES = 400_000
# Hoeffding over the groups and the acceptance: all frequencies are within RADIUS of their
# probabilities but with probability 1e-9.
RADIUS = float(np.sqrt(np.log(2 * (GROUPS + 1) / 1e-9) / (2 * SAMPLES)))


def group_masses(problem, tokens, masses):
    """Masses of sixteen groups of equal draft mass in the order of q/p, where every error of the
    scores would show.
    """
    order = np.argsort(problem.target / problem.draft)
    group = np.empty(problem.num_tokens, dtype=np.int64)
    group[order] = np.minimum(np.cumsum(problem.draft[order]) * GROUPS, GROUPS - 1)
    return np.bincount(group[tokens], weights=masses, minlength=GROUPS)


@pytest.mark.parametrize("k", [2, 8])
def test_monte_carlo_at_32000_tokens(k):
    p, q = language_rows(32_000, k)
    problem = Problem(draft=p, target=q, law=IID(k))
    draws = run(otm.prepare(Optimal(), problem), size=SAMPLES, rng=np.random.default_rng(100 + k))
    seen = group_masses(problem, draws.output, np.full(SAMPLES, 1 / SAMPLES))
    assert abs(seen - group_masses(problem, np.arange(32_000), q)).max() <= RADIUS
    assert abs(draws.accepted.mean() - otm.optimal_acceptance(problem)) <= RADIUS


@pytest.mark.parametrize("k", [1, 2, 8, 10**6])
def test_exact_at_full_vocabulary(k):
    p, q = language_rows(128_256, seed=7)
    problem = Problem(draft=p, target=q, law=IID(k))
    rule = otm.prepare(Optimal(), problem)
    best = pytest.approx(otm.optimal_acceptance(problem), abs=1e-12)
    assert (rule.lower, rule.upper) == (best, best)
    # Running sums of 128,256 masses err by √V·u ≈ 4e-14 in practice: planned and true law agree to
    # 1e-12 in total variation.
    assert rule.scores.residuals["moment"] <= 1e-12
    # "below a hundred on language models": a few times that would still fit the cache
    assert rule.scores.num_atoms <= 300


def test_top_k_truncation_and_float32():
    rng = np.random.default_rng(4)
    logits = 3 * rng.standard_normal(32_000)
    p = otm.from_logits(logits, top_k=100)
    q = otm.from_logits(logits + rng.standard_normal(32_000), top_p=0.9)
    best = otm.optimal_acceptance(Problem(draft=p, target=q, law=IID(4)))
    for dtype, error in ((np.float64, 1e-12), (np.float32, 2e-5)):
        problem = Problem(draft=p.astype(dtype), target=q.astype(dtype), law=IID(4))
        assert otm.prepare(Optimal(), problem).lower == pytest.approx(best, abs=error)


@pytest.mark.parametrize(
    ("heavy", "ratios", "light"),
    [
        ([0.506], [0.5], (1.004, 1.02)),
        # P(T)² − Q(T) is .03 after the first token too, and 1e-9 less at both ends of the bin.
        (
            [0.3, 0.07, 0.06, 0.07, 0.148],
            [0.2, 0.88, 0.9, 0.92, (0.149904 + 1e-9) / 0.148],
            (1.286, 1.306),
        ),
    ],
    ids=["the best end is beside it", "the best end is elsewhere"],
)
def test_a_cut_inside_a_bin_of_little_mass_is_found(heavy, ratios, light):
    """Two thousand tokens of 1e-6 together, whose ratios differ by a hundredth around the cut: by
    whole bins of the ratio 2e-9 of the optimum would be missed.
    """
    p = np.append(heavy, np.full(2_000, 5e-10))
    q = p * np.append(ratios, np.linspace(*light, 2_000))
    p, q = np.append(p, 1 - p.sum()), np.append(q, 1 - q.sum())
    order = np.argsort(q / p)
    P, Q = (np.append(0.0, np.cumsum(x[order].astype(np.longdouble))) for x in (p, q))
    best = float(1 + (Q - P**2).min())
    problem = Problem(draft=p, target=q, law=IID(2))
    assert otm.optimal_acceptance(problem) == pytest.approx(best, abs=1e-13)
    assert otm.prepare(Optimal(), problem).lower == pytest.approx(best, abs=1e-13)
    # The scores would be put right by a wrong cut's neighbours; the cut itself is right already.
    selection = scores.optimal_selection(RowSteps.of(p, q), 0.0, Containment(k=2))[1]
    assert 1 - selection.gain == pytest.approx(best, abs=1e-13)
