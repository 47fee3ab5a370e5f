"""Races: probabilities against closed forms and integrals, also of noise that is used a second
time.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate as quadrature

from otm.audit.tracing.branching import trace

W, R = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
CLOSE = 1e-14  # races to some 1e-15 each


def law_of(function, num_uniforms):
    law = trace(function, num_uniforms)
    assert math.isclose(math.fsum(law.mass.values()) + law.error, 1.0, abs_tol=CLOSE)
    return law.mass if law.error == 0.0 else {}


WAYS = {
    "exponential race": lambda w, u: np.argmax(w / -np.log(u)),
    "least arrival": lambda w, u: np.argmin(-np.log(u) / w),
    "Gumbel": lambda w, u: np.argmax(np.log(w) - np.log(-np.log(u))),
    "temperature": lambda w, u: np.argmax((2 * np.log(w) - 2 * np.log(-np.log(u))) / 2 + 1),
    "powers": lambda w, u: np.argmax(u ** (1 / w)),
    "the other tail": lambda w, u: np.argmin(-np.log1p(-u) / w),
    "a loop": lambda w, u: max(range(len(w)), key=lambda i: u[i] ** (1 / w[i])),
    "descending": lambda w, u: np.argsort(np.log(-np.log(u)) - np.log(w))[0],
}


@pytest.mark.parametrize("way", WAYS)
@given(weights=st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=5))
@settings(max_examples=15)
def test_a_race_draws_by_weight(way, weights):
    mass = np.array(weights) / np.sum(weights)
    law = law_of(lambda u: int(WAYS[way](mass, u)), len(mass))
    assert law == pytest.approx(dict(enumerate(mass)), abs=CLOSE)


def twice(i, j):
    """Pr(argmax W/E = i, argmax R/E = j): with t = E_i, s = E_j the others exceed both t·W/W_i and
    s·R/R_j.
    """

    def density(s, t):
        others = sum(max(t * W[m] / W[i], s * R[m] / R[j]) for m in range(3) if m not in (i, j))
        return math.exp(-t - s - others)

    if i == j:
        return float(1.0 / np.maximum(W / W[i], R / R[i]).sum())
    if W[j] / W[i] >= R[j] / R[i]:
        return 0.0
    bounds = (lambda t: t * W[j] / W[i], lambda t: t * R[j] / R[i])
    return float(quadrature.dblquad(density, 0, 60, *bounds, epsabs=1e-11)[0])


def test_noise_that_is_used_twice_is_known_exactly():
    law = law_of(lambda u: tuple(int(np.argmax(weights / -np.log(u))) for weights in (W, R)), 3)
    for i, j in itertools.product(range(3), repeat=2):
        assert math.isclose(law.get((i, j), 0.0), twice(i, j), abs_tol=1e-10)  # of the quadrature


@pytest.mark.parametrize(
    "way",
    [
        lambda u: np.argmax(W / -np.log(u)),
        lambda u: np.argmax(np.exp(np.log(u) / W)),
        lambda u: np.argmax(np.exp(np.log(W) - np.log(-np.log(u)))),
        lambda u: np.argmin(np.exp(np.log(-np.log(u)) - np.log(W))),
    ],
    ids=["quotients", "powers by logarithms", "quotients by logarithms", "arrivals by logarithms"],
)
def test_a_race_is_one_question(way):
    """As many cells as there are outcomes; two by two there would be more."""
    law = trace(lambda u: int(way(u)), 3, most_slanted=50)
    assert law.mass == pytest.approx(dict(enumerate(W)), abs=CLOSE)
    assert (law.error, law.cells) == (0.0, 3)


def test_what_weighs_nothing_does_not_win():
    weights = np.append(W, 0.0)
    with np.errstate(divide="ignore"):
        exponents = 1 / weights
    law = trace(lambda u: int(np.argmax(u**exponents)), 4)
    assert law.mass == pytest.approx(dict(enumerate(W)), abs=CLOSE)
    assert (law.error, law.cells) == (0.0, 3)


def test_a_start_in_a_race_counts():
    """E₀ > E₁ + 1/2 with probability e^{−1/2}/2; and the first of two that are the same is it."""
    law = law_of(lambda u: int(np.argmin(np.array([0.0, 0.5]) - np.log(u))), 2)
    behind = 0.5 * math.exp(-0.5)
    assert law == pytest.approx({0: 1 - behind, 1: behind}, abs=CLOSE)
    assert law_of(lambda u: int(np.argmin(-np.log(u[[0, 0]]))), 1) == {0: 1.0}


@pytest.mark.parametrize(
    "small",
    [
        lambda u: u > 0.7,
        lambda u: -np.log(u) < -math.log(0.7),
        lambda u: 1 / -np.log(u) > -1 / math.log(0.7),
        lambda u: np.log(-np.log(u)) < math.log(-math.log(0.7)),
    ],
)
def test_the_winners_key_is_a_power_of_its_uniform(small):
    """E_i of the winner is exponential with rate 1/W_i: Pr(i, u_i > x) = W_i (1 − x^{1/W_i})."""

    def function(u):
        i = int(np.argmax(np.log(W) - np.log(-np.log(u))))
        return i, bool(small(u[i]))

    law = law_of(function, 3)
    for i, w in enumerate(W):
        assert math.isclose(law[i, True], w * (1 - 0.7 ** (1 / w)), abs_tol=CLOSE)


def test_the_lead_of_a_winner_is_exponential_again():
    def function(u):
        arrivals = -np.log(u)
        first = int(np.argmin(arrivals))
        return bool(arrivals[1 - first] - arrivals[first] < 0.5)

    assert math.isclose(law_of(function, 2)[True], 1 - math.exp(-0.5), abs_tol=CLOSE)


def test_an_order_of_arrivals_draws_without_replacement():
    law = law_of(lambda u: tuple(np.argsort(-np.log(u) / W).tolist()), 3)
    for i, j, k in itertools.permutations(range(3)):
        assert math.isclose(law[i, j, k], W[i] * W[j] / (1 - W[i]), abs_tol=CLOSE)


def test_a_uniform_known_to_be_small_races_on_without_memory():
    """Given u₀ < 1/4, −log u₀ = log 4 + F: ∫_{log 4}^∞ e^{−s} e^{−2s} ds = (1/3) 4^{−3}."""
    law = law_of(lambda u: bool(u[0] < 0.25) and bool(-np.log(u[0]) < -np.log(u[1]) / 2), 2)
    assert math.isclose(law[True], 4.0**-3 / 3, abs_tol=CLOSE)


def gumbel(u, tiny=0.0):
    return int(np.argmax(np.log(W) - np.log(-np.log(u + tiny) + tiny)))


@pytest.mark.parametrize("tiny", [1e-10, 1e-6])
@pytest.mark.parametrize(
    ("function", "least", "most"),
    [
        (gumbel, 2.0, 6.1),
        (lambda u, tiny: gumbel(u) if u[0] >= tiny else 0, 1.0, 1.01),
    ],
    ids=["guard", "bound"],
)
def test_what_is_tiny_is_neglected_and_its_price_stated(function, least, most, tiny):
    """A guard against zero, and a uniform that is known to be no less than that."""
    law = trace(lambda u: function(u, tiny), 3)
    assert least * tiny <= law.error * (1 + 1e-5) <= most * tiny
    assert law.mass == pytest.approx(dict(enumerate(W)), abs=law.error + tiny)


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        # A race of uniforms of which one is known to be large has a memory.
        (lambda u: bool(u[0] >= 0.5) and bool(u[0] ** 2 < u[1]), 0.5 - (1 - 0.125) / 3),
        # 1/E + 1 < 2/F where F < 2E/(E + 1): a quotient plus a number is no race.
        (
            lambda u: bool(1 / -np.log(u[0]) + 1 < 2 / -np.log(u[1])),
            1 - quadrature.quad(lambda x: math.exp(-x - 2 * x / (x + 1)), 0, np.inf)[0],
        ),
    ],
)
def test_what_is_no_race_is_bracketed(function, exact):
    law = trace(function, 2, most_slanted=200)
    assert 0.0 < law.error < 0.05
    assert law.mass[True] - 1e-9 <= exact <= law.mass[True] + law.error + 1e-9
