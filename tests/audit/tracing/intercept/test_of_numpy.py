"""Draws from NumPy, by generators and by the functions of before."""

import itertools

import numpy as np
import pytest
import scipy

from otm.audit.tracing.branching import contradicts_samples, trace
from otm.audit.tracing.execution import TraceAborted
from tests.audit.tracing.intercept.laws import assert_law, even

W = np.array([0.5, 0.3, 0.2])
BY_WEIGHT = {0: 0.5, 1: 0.3, 2: 0.2}
ABOVE_ONE = float(scipy.special.ndtr(-1.0))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda g: bool(g.random() < 0.3), {True: 0.3, False: 0.7}),
        (
            lambda g: tuple((g.random(2) < 0.5).tolist()),
            even(*itertools.product((True, False), repeat=2)),
        ),
        (lambda g: bool(g.uniform(1.0, 3.0) < 1.5), {True: 0.25, False: 0.75}),
        (lambda g: int(g.choice(3, p=W)), BY_WEIGHT),
        (lambda g: str(g.choice(["a", "b"])), even("a", "b")),
        (
            lambda g: tuple(g.choice(3, 2, replace=False, p=W).tolist()),
            {(i, j): W[i] * W[j] / (1 - W[i]) for i, j in itertools.permutations(range(3), 2)},
        ),
        (lambda g: int(np.argmax(g.multinomial(1, W))), BY_WEIGHT),
        (lambda g: int(np.argmax(W / g.exponential(size=3))), BY_WEIGHT),
        (lambda g: int((np.log(W) + g.gumbel(size=3)).argmax()), BY_WEIGHT),
        (lambda g: int(np.searchsorted(np.cumsum(W), g.random())), BY_WEIGHT),
        (  # numbers beside a plain 0, sought one by one
            lambda g: tuple(np.searchsorted([0.5], g.uniform([0, 0, 0], [1, 1, 0])).tolist()),
            even(*itertools.product((0, 1), (0, 1), (0,))),
        ),
        (lambda g: int(g.binomial(1, 0.25)), {1: 0.25, 0: 0.75}),
        (lambda g: tuple(g.permutation(3).tolist()), even(*itertools.permutations(range(3)))),
        (lambda g: bool(g.normal() > 1.0), {True: ABOVE_ONE, False: 1 - ABOVE_ONE}),
    ],
)
@pytest.mark.parametrize(
    "make", [lambda: np.random.default_rng(None), lambda: np.random], ids=["generator", "functions"]
)
def test_laws(make, function, expected):
    assert_law(lambda: function(make()), expected)


def test_the_functions_of_before_take_a_shape_as_numbers():
    pairs = even(*itertools.product((True, False), repeat=2))
    assert_law(lambda: tuple((np.random.rand(2) < 0.5).tolist()), pairs)
    assert_law(lambda: tuple((np.random.randn(1, 2) < 0.0)[0].tolist()), pairs)
    seeded = lambda: np.random.default_rng(int(np.random.randint(2**31)))  # noqa: E731
    assert_law(lambda: int(seeded().integers(3)), even(0, 1, 2))


def test_a_fixed_seed_repeats_itself_and_is_noticed():
    """As traced, the seed's numbers are any; the executions on real randomness are the same every
    time.
    """
    law = trace(lambda uniforms: tuple(np.random.default_rng(7).integers(4, size=2).tolist()))
    assert len(law.mass) == 16
    assert contradicts_samples([law])


def test_a_state_that_is_set_back_repeats_itself():
    def function(uniforms):
        state = np.random.get_state()
        first = bool(np.random.rand() < 0.5)
        np.random.set_state(state)
        return first, bool(np.random.rand() < 0.5)

    assert trace(function).mass == {(True, True): 0.5, (False, False): 0.5}


def test_what_is_drawn_twice_need_not_be_looked_at():
    def function():
        state = np.random.get_state()
        np.random.rand()
        np.random.set_state(state)
        np.random.rand()
        return 1

    assert_law(function, {1: 1.0})


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (lambda: np.random.default_rng().beta(1, 2) < 0.5, "no branches"),
        (lambda: np.random.beta(1, 2) < 0.5, "no branches"),
        (lambda: np.float64(np.random.default_rng().random()) < 0.5, "plain float"),
        (lambda: np.asarray(np.random.rand(2), dtype=np.float64)[0] < 0.5, "plain float"),
    ],
)
def test_what_cannot_be_followed_is_said(function, how):
    with pytest.raises(TraceAborted, match=how):
        trace(lambda uniforms: bool(function()))


def test_a_generator_made_before_cannot_pass_unseen():
    rng = np.random.default_rng(0)
    with pytest.raises(TraceAborted, match="another answer"):
        trace(lambda uniforms: [int(rng.integers(2)) for _ in range(64)].count(1))


def test_everything_is_as_before_afterwards():
    def found():
        return (str(np.random.get_state()), *map(vars(np.random).get, dir(np.random)))

    before = found()
    trace(lambda uniforms: bool(np.random.rand() < 0.5))
    assert found() == before
