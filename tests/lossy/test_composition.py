"""What tokens add up to, against all texts in exact fractions, binomials, and another library."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

import otm
from otm.lossy import composed, tokens_to_detect

Masses = list[Fraction]

PAIRS = {
    "overlapping": ([4, 3, 2], [2, 2, 5]),
    "a token the target never writes": ([2, 2, 0], [1, 2, 1]),
    "a token the output never has": ([2, 1, 1], [2, 2, 0]),
    "ratios of all sizes": ([1, 10**7, 10**5], [10**4, 10**7, 1]),
}


def texts(target, output, tokens):
    """Both masses of every class of texts with the same counts, the output's first."""
    found = []
    for counts in itertools.product(range(tokens + 1), repeat=len(target) - 1):
        last = tokens - sum(counts)
        if last >= 0:
            ways = Fraction(math.factorial(tokens))
            for count in (*counts, last):
                ways /= math.factorial(count)
            both = [
                math.prod(map(pow, law, (*counts, last)), start=ways) for law in (output, target)
            ]
            found.append((both[0], both[1]))
    return found


def best_power(classes, level):
    """Neyman and Pearson's test: the largest ratios first, the last class in part."""
    ordered = sorted(classes, key=lambda both: -both[0] / both[1] if both[1] else -(10**99))
    power = Fraction(0)
    for pi, q in ordered:
        part = min(Fraction(1), level / q) if q else Fraction(1)
        power, level = power + part * pi, level - part * q
    return power


@pytest.mark.parametrize(
    ("name", "tokens"), [*itertools.product(PAIRS, (1, 2, 7)), ("overlapping", 60)]
)
def test_contains_the_truth_of_all_texts(name, tokens):
    target, output = ([Fraction(w, sum(ws)) for w in ws] for ws in PAIRS[name])
    classes = texts(target, output, tokens)
    found = composed(
        target=[float(q) for q in target], output=[float(pi) for pi in output], tokens=tokens
    )
    variation = sum(max(pi - q, Fraction(0)) for pi, q in classes)
    assert found.lower <= variation <= found.upper <= found.lower + 0.02
    for level in (Fraction(1, 1000), Fraction(1, 20), Fraction(1, 3)):
        least, most = found.power(float(level))
        assert least <= best_power(classes, level) <= most <= least + 0.03


def test_a_hundred_thousand_tokens_against_the_binomial():
    """Of two tokens the number of the first tells all."""
    tokens = 100_000
    ones = np.arange(tokens + 1)
    gain = binom.pmf(ones, tokens, 0.505) - binom.pmf(ones, tokens, 0.5)
    found = composed(target=[0.5, 0.5], output=[0.505, 0.495], tokens=tokens)
    assert found.lower <= gain[gain > 0].sum() <= found.upper <= found.lower + 0.02


def test_against_another_accountant():
    """dp_accounting 0.6.0, `from_two_probability_mass_functions` at an interval of 1e-5, composed:
    its optimistic and pessimistic δ at ε = 0.
    """
    for tokens, low, high in (
        (10, 0.13829824275056687, 0.13833955527885083),
        (100, 0.4187353717093276, 0.41902315246874067),
        (1000, 0.91861999385807, 0.9190239033997885),
    ):
        found = composed(target=[1 / 2, 1 / 3, 1 / 6], output=[0.45, 0.35, 0.2], tokens=tokens)
        assert low <= found.upper and found.lower <= high
        assert found.gap < 0.02


def test_contexts_are_drawn_and_known():
    """A context of two tells nothing: proof comes with half of a half, each time."""
    target, output = [[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]
    found = composed(target=target, output=output, tokens=10)
    assert found.lower <= 1 - 0.75**10 <= found.upper <= found.lower + 1e-5
    joint = composed(target=[0.5, 0, 0.25, 0.25], output=[0.25] * 4, tokens=10)
    assert (joint.lower, joint.upper) == (found.lower, found.upper)


def test_the_tokens_that_a_detector_needs():
    def power(tokens):
        ones = np.arange(tokens, -1, -1)
        alarms = np.cumsum(binom.pmf(ones, tokens, 0.5))
        found = np.cumsum(binom.pmf(ones, tokens, 0.75))
        return float(np.interp(0.01, np.append(0, alarms), np.append(0, found)))

    needed = next(tokens for tokens in itertools.count(1) if power(tokens) >= 0.95)
    least, most = tokens_to_detect(target=[0.5, 0.5], output=[0.75, 0.25])
    assert least <= needed <= most <= least + 1


def test_what_the_target_hardly_ever_writes_costs_it_a_level():
    """Masses of 1e-20 are no zeros: at level 0 nothing accuses by them, at 1e-21 a tenth does."""
    found = otm.lossy.composed(target=[1.0, 1e-20], output=[0.9, 0.1], tokens=1)
    for level, exact in ((0.0, 0.0), (1e-21, 0.01), (1e-20, 0.1), (0.5, 0.55)):
        least, most = found.power(level)
        assert least - 1e-12 <= exact <= most + 1e-12
    never = otm.lossy.composed(target=[1.0, 0.0], output=[0.9, 0.1], tokens=2)
    least, most = never.power(0.0)
    assert least <= 0.19 <= most and least > 0.19 - 1e-9  # 1 − .9²
    few, many = tokens_to_detect(target=[1.0, 1e-20], output=[0.9, 0.1], level=1e-300)
    assert few <= 215 < many
