"""How to draft: the search finds what is known to be best, and stop rules count what they draft."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.models.processing import Setting
from analysis.rules.answer import RulesRead, read_rules
from analysis.rules.drafting import LONGEST, best_processing, best_stops
from analysis.rules.rules import Sizes
from analysis.rules.screen import drafting_words
from otm import Processing
from otm.sequence import MarkovModel

from .toys import Toy, toy_reader

SIZES = Sizes(length=2, nodes=2, sequences=2, num_tokens=24, texts=8)
COLD = Processing(temperature=0.5, top_k=5)


def read_toys(*, same: bool) -> RulesRead:
    """Read texts of two chains, of which the draft may be the target at another temperature."""
    reader = toy_reader(SIZES, setting=Setting(Processing(), COLD))
    if same:
        reader.draft = Toy(reader.target.model, Processing())  # type: ignore[assignment, attr-defined]
    return read_rules(reader, [[number] for number in range(8)])


def test_a_draft_that_is_the_target_is_best_processed_as_the_target() -> None:
    read = read_toys(same=True)
    best = best_processing(read)
    assert best.processing == COLD and best.tried > 20
    assert best.gain.value > 0.2 and best.gain.value > best.gain.low
    text = drafting_words(best, best_stops(read, cost=0.0), cost=0.0)
    assert "a draft at temperature 0.5, top k 5" in " ".join(text.split()).replace("-", " ")
    few = dataclasses.replace(read, passages=read.passages[:3])
    with pytest.raises(AnalysisError, match="got 3 texts"):
        best_processing(few)


def test_fewer_drafts_pay_where_they_cost_more() -> None:
    read = read_toys(same=False)
    free, dear = (best_stops(read, cost=cost) for cost in (0.0, 100.0))
    assert min(one.drafts for one in free[::3]) > LONGEST / 2  # the fixed lengths
    assert [one.drafts for one in dear[::3]] == [1.0, 1.0]
    assert dear[0].words == "never, 1 drafts, argmax"
    for one in free:
        assert one.speed.value == pytest.approx(one.tokens)


def test_a_stop_rule_drafts_where_the_drafter_is_sure() -> None:
    """From tokens 0 and 1 the next is 2 or 3 for sure, after which it is a coin."""
    coin, sure = [0.5, 0.5, 0.0, 0.0], np.eye(4)[2:]
    model = MarkovModel(np.array([sure[0], sure[1], coin, coin]))
    reader = toy_reader(SIZES, num_tokens=4)
    with np.errstate(divide="ignore"):
        reader.draft = reader.target = Toy(model, Processing())  # type: ignore[assignment]
        read = read_rules(reader, [[0], [1]])
        fixed, stop, *_ = best_stops(read, cost=0.6)
    # Every step drafts the sure token and adds a coin of the target: 2/(1 + .6); to draft the coin
    # as well costs .6 more and wins less.
    assert stop.words == "largest probability < 0.6, argmax"
    assert (stop.tokens, stop.drafts, stop.speed.value) == pytest.approx((2.0, 1.0, 1.25))
    assert (fixed.tokens, fixed.drafts) == pytest.approx((2.0, 1.0))
