"""Draws by name: what a generator that was set back may draw, and what is recorded."""

from __future__ import annotations

import pytest

from otm.tracing.execution import Execution, TraceAborted
from otm.tracing.intercept.draws import DeferredDraw, DrawnOutcome, ReplayedDraws, TracingDraws
from otm.tracing.intercept.laws import MOST_OUTCOMES, SeedInteger, integers


def test_the_same_state_draws_the_same_or_nothing() -> None:
    draws = TracingDraws(Execution())
    (first,), (again,) = draws.uniforms("state", 1), draws.uniforms("state", 1)
    assert first.sources == again.sources
    with pytest.raises(TraceAborted, match="set back"):
        draws.uniforms("state", 2)


def test_what_was_drawn_is_drawn_again() -> None:
    draws = TracingDraws(Execution())
    u, v = draws.uniforms("one", 2)
    (choice,) = draws.choices("two", [(0.25, 0.75)])
    assert not u < 0.25
    assert isinstance(choice, DrawnOutcome)
    values = draws.recorded()
    again = ReplayedDraws(values)
    assert again.uniforms("any", 2)[0] == values[0][0]
    assert again.choices("any", [(0.25, 0.75)]) == [1]  # never looked at: the likelier
    assert 0.0 < values[0][1] < 1.0
    assert v.sources != u.sources
    with pytest.raises(TraceAborted, match="other draws"):
        again.uniforms("any", 1)


def test_an_open_answer_is_asked_for_once() -> None:
    asked = []
    answer = DeferredDraw(lambda: asked.append(1) or len(asked))
    assert [answer.resolve(), answer.resolve()] == [1, 1]


def test_a_seed_is_for_seeding() -> None:
    draws = TracingDraws(Execution())
    (seed,) = integers(draws, "state", 1, 7, MOST_OUTCOMES + 8)
    assert isinstance(seed + 3, SeedInteger)
    assert 7 <= int(seed) < MOST_OUTCOMES + 8
    assert int(integers(draws, "state", 1, 7, MOST_OUTCOMES + 8)[0]) == int(seed)
    with pytest.raises(TraceAborted, match="very many outcomes"):
        seed / 2
    with pytest.raises(TraceAborted, match="very many outcomes"):
        assert seed < 5


def test_weights_are_probabilities() -> None:
    for row in ((0.5, -0.5), (1.5, -0.5), (0.0, 0.0)):
        with pytest.raises(ValueError, match="non-negative"):
            TracingDraws(Execution()).choices("state", [row])
