"""Draws from the standard library: every way by which code gets a random decision, and the ways
that cannot be followed.
"""

import itertools
import math
import random
from random import random as imported_before

import pytest

from otm.audit.tracing.branching import trace
from otm.audit.tracing.execution import TraceAborted
from tests.audit.tracing.intercept.laws import assert_law, even


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: random.random() < 0.3, {True: 0.3, False: 0.7}),
        (lambda: random.uniform(1.0, 3.0) < 1.5, {True: 0.25, False: 0.75}),
        (lambda: random.choice("abc"), even("a", "b", "c")),
        (lambda: random.choices([0, 1, 2], weights=[2, 1, 1])[0], {0: 0.5, 1: 0.25, 2: 0.25}),
        (lambda: random.choices([0, 1])[0], even(0, 1)),
        (lambda: tuple(random.sample(range(3), 2)), even(*itertools.permutations(range(3), 2))),
        (lambda: random.randrange(2, 8, 2), even(2, 4, 6)),
        (lambda: random.randint(1, 2), even(1, 2)),
        (lambda: random.getrandbits(2), even(*range(4))),
        (
            lambda: -math.log(1.0 - random.random()) < 1.0,
            {True: 1 - math.exp(-1), False: math.exp(-1)},
        ),
        (lambda: math.log(random.random(), 4.0) < -0.5, even(True, False)),
        (lambda: random.expovariate(2.0) < 1.0, {True: 1 - math.exp(-2), False: math.exp(-2)}),
        (lambda: random.Random(random.getrandbits(64)).random() < 0.3, {True: 0.3, False: 0.7}),
        (lambda: random.SystemRandom().choice("ab"), even("a", "b")),
        (lambda: int(random.random() * 4), even(*range(4))),
    ],
)
def test_laws(function, expected):
    assert_law(function, expected)


def test_a_generator_that_is_seeded_again_says_the_same_again():
    def function():
        first = random.Random(5).random() < 0.5
        return first, random.Random(5).random() < 0.75

    law = trace(lambda uniforms: function())
    assert law.mass == {(True, True): 0.5, (False, True): 0.25, (False, False): 0.25}


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (lambda: math.sin(random.random()) < 0.5, "plain float"),
        (lambda: imported_before() < 0.5, "imported before"),
        (lambda: (imported_before(), random.random())[0] < 0.5, "imported before"),
        (lambda: random.gauss() < 0.5, "plain float"),
        (lambda: f"{random.random():.1f}", "plain float"),
        (lambda: random.getrandbits(40) / 2**40 < 0.5, "very many outcomes"),
    ],
)
def test_what_cannot_be_followed_is_said(function, how):
    with pytest.raises(TraceAborted, match=how):
        trace(lambda uniforms: function())


def test_everything_is_as_before_afterwards():
    before = random.getstate(), random.random, math.log, random.Random.getrandbits
    trace(lambda uniforms: random.random() < 0.5)
    assert (random.getstate(), random.random, math.log, random.Random.getrandbits) == before
    assert "random" not in vars(random.Random)
    assert isinstance(random.random(), float)
