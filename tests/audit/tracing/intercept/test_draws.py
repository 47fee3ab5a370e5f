"""Draws by name: what a generator that was set back may draw, and what is recorded."""

import itertools

import pytest

from otm.audit.tracing.execution import Execution, TraceAborted
from otm.audit.tracing.intercept.draws import DeferredDraw, ReplayedDraws, TracingDraws
from otm.audit.tracing.intercept.laws import MOST_OUTCOMES, SeedInteger, integers


def test_the_same_state_draws_the_same_or_nothing():
    draws = TracingDraws(Execution())
    (first,), (again,) = draws.uniforms("state", 1), draws.uniforms("state", 1)
    assert first.sources == again.sources
    with pytest.raises(TraceAborted, match="set back"):
        draws.uniforms("state", 2)


def test_what_was_drawn_is_drawn_again():
    draws = TracingDraws(Execution())
    u, v = draws.uniforms("the argument", 2)
    assert not draws.drew
    draws.choices("one", [(0.25, 0.75)])
    assert draws.drew
    assert not u < 0.25 and v.sources != u.sources
    (first, second), (choice,) = draws.recorded()
    assert (first, choice) == (
        0.625,
        1,
    )  # the middle of what is left; never looked at: the likelier
    assert 0.0 < second < 1.0
    again = ReplayedDraws([[first, second], [choice]])
    assert again.uniforms("any", 2) == [first, second]
    assert again.choices("any", [(0.25, 0.75)]) == [1]
    with pytest.raises(TraceAborted, match="other draws"):
        again.uniforms("any", 1)


def test_what_nobody_looked_at_may_be_anywhere():
    draws = TracingDraws(Execution())
    draws.uniforms("the argument", 8)
    (values,) = draws.recorded()
    assert min(values) < 0.2 and max(values) > 0.8


def test_an_open_answer_is_asked_for_once():
    answer = DeferredDraw(itertools.count().__next__)
    assert [answer.resolve(), answer.resolve()] == [0, 0]


@pytest.mark.parametrize("use", [lambda seed: seed / 2, lambda seed: seed < 5])
def test_a_seed_is_for_seeding(use):
    draws = TracingDraws(Execution())
    seed, again = (integers(draws, "state", 1, 7, MOST_OUTCOMES + 8)[0] for _ in range(2))
    assert isinstance(seed + 3, SeedInteger)
    assert 7 <= int(seed) == int(again) < MOST_OUTCOMES + 8
    with pytest.raises(TraceAborted, match="very many outcomes"):
        use(seed)


def test_no_integer_is_below_itself():
    with pytest.raises(ValueError, match="low >= high"):
        integers(TracingDraws(Execution()), "state", 1, 3, 3)


@pytest.mark.parametrize("row", [(0.5, -0.5), (1.5, -0.5), (0.0, 0.0)])
def test_weights_are_probabilities(row):
    with pytest.raises(ValueError, match="non-negative"):
        TracingDraws(Execution()).choices("state", [row])
