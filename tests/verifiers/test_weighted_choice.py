"""The law of a draft chosen by weights: against every draft sequence in exact arithmetic, at the
ends of range, and its nodes.
"""

from fractions import Fraction

import numpy as np
import pytest

import otm
from otm.verifiers import weighted_choice
from otm.verifiers.weighted_choice import chosen_beside, chosen_law


def enumerated(p, w, k, outside):
    """Return what `chosen_law` does, and Pr(y is chosen, z drafted) beside it, from rational masses
    of every draft sequence.
    """
    masses = [Fraction(x) for x in (*p, outside)]
    total, size = sum(masses), len(p)
    table = otm.WithoutReplacement(k).enumerate(np.array([x / total for x in masses], dtype=object))
    law, own = [Fraction(0)] * size, [Fraction(0)] * size
    beside = [[Fraction(0)] * size for _ in p]
    for drafts, mass in zip(table.tokens.tolist(), table.mass, strict=True):
        weight = sum(Fraction(w[x]) for x in drafts if x < size)
        if max(drafts) < size and weight > 0:
            for y in drafts:
                share = Fraction(w[y]) / weight
                law[y] += mass * share
                own[y] += mass * share**2
                for z in drafts:
                    beside[y][z] += mass * share
    return law, own, beside


@pytest.mark.parametrize(
    ("size", "k", "outside"),
    [(3, 1, 0.0), (4, 2, 0.0), (6, 3, 0.0), (5, 3, 0.125), (3, 3, 0.25), (6, 5, 0.0)],
)
@pytest.mark.parametrize("spread", [0.5, 4.0])
def test_against_every_sequence(size, k, outside, spread):
    rng = np.random.default_rng([size, k, int(spread)])
    p, w = (
        otm.normalise(np.exp(spread * rng.normal(size=size))) * (1.0 - outside),
        np.exp(2.0 * rng.normal(size=size)),
    )
    w[0] = 0.0
    law, own, beside = enumerated(p.tolist(), w.tolist(), k, outside)
    # Proven for the quadratures: 3e-15 over all tokens. Sums over about 100 × 50 nodes of rounded
    # products add some 1e-14.
    for found, truth in zip(chosen_law(p, w, k, outside=outside), (law, own), strict=True):
        np.testing.assert_allclose(found, np.array(truth, dtype=float), rtol=0, atol=2e-14)
    chosen, others = (
        np.where(np.arange(size) % 2, rng.random(size), 0.0),
        np.where(np.arange(size) % 2, 0.0, rng.random(size)),
    )
    truth = sum(
        chosen[y] * others[z] * float(beside[y][z]) for y in range(size) for z in range(size)
    )
    assert chosen_beside(p, w, k, chosen=chosen, beside=others, outside=outside) == pytest.approx(
        truth, abs=2e-14
    )


def test_masses_and_weights_at_the_ends_of_the_range():
    p, w = [1.0, 1e-10, 1e-200, 1e-300], [1e-30, 1.0, 1e30, 1.0]
    for k in (1, 2, 3):
        truth = np.array(enumerated(p, w, k, 0.0)[0], dtype=float)
        np.testing.assert_allclose(
            chosen_law(np.array(p), np.array(w), k)[0], truth, rtol=1e-12, atol=1e-14
        )


@pytest.mark.parametrize("error", [1e-6, 1e-12])
def test_a_coarse_law_errs_by_no_more_than_it_may(error):
    """Three errors: of the time of arrival, of the time of choice, of the few first choices."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        p, w = otm.normalise(np.exp(3.0 * rng.normal(size=7))), np.exp(3.0 * rng.normal(size=7))
        fine, coarse = (chosen_law(p, w, 3, error=e)[0] for e in (1e-15, error))
        assert np.abs(coarse - fine).sum() <= 3 * error + 1e-13


def test_tokens_beyond_the_heads(monkeypatch):
    """Many equal tokens have equal laws, each weight its share; the whole vocabulary
    adds up to 1.
    """
    p, w = np.full(3_000, 1 / 3_000), np.where(np.arange(3_000) < 1_500, 1.0, 3.0)
    monkeypatch.setattr(weighted_choice, "_times", None)  # no token is multiplied in by itself
    law, _ = chosen_law(p, w, 2)
    # Two drafts: the pair is of equal kinds, or the heavy one wins with probability 3/4.
    pairs = 3_000 * 2_999 / 2
    heavy = (1_500 * 1_499 / 2 + 0.75 * 1_500 * 1_500) / pairs
    np.testing.assert_allclose(law, np.where(w > 1, heavy, 1.0 - heavy) / 1_500, rtol=1e-12)
