"""Engines by name: their rules are rules, their drafts have the law that was seen, and only what
they can run is a candidate.
"""

from typing import get_args

import numpy as np
import pytest

from analysis.commands.options import EngineName
from analysis.models.engines import ENGINES
from analysis.models.processing import Setting
from analysis.rules.answer import attribute, place_of, read_rules, screen_json
from analysis.rules.rules import Sizes
from analysis.rules.screen import rules_screen
from otm import Processing
from otm.engines.records import Tally
from tests.analysis.toys import record_of, toy_reader

SIZES = Sizes(length=2, nodes=2, sequences=2, num_tokens=16, texts=12)


@pytest.fixture
def read():
    hot = Processing(temperature=0.7)
    reader = toy_reader(SIZES, setting=Setting(ENGINES["transformers"].draft(hot), hot))
    return read_rules(reader, [[number] for number in range(12)])


def test_drafts_of_transformers_are_warped_twice():
    """Run with transformers 5.23.0: a twin at temperature .7 drafts at .49."""
    logits = np.random.default_rng(0).normal(size=(3, 8))
    twice = np.exp(logits / 0.7 / 0.7)
    drafted = np.asarray(ENGINES["transformers"].draft(Processing(temperature=0.7))(logits))
    np.testing.assert_allclose(drafted, twice / twice.sum(axis=1, keepdims=True), rtol=1e-12)


def test_drafts_of_llama_cpp_are_of_the_ten_likeliest():
    """Run with xllamacpp 2026.10.11549, --spec-draft-sampling probabilistic."""
    logits = np.arange(20.0)
    kept = np.exp(np.where(logits >= 10, logits, -np.inf) / 0.5)
    of_target = Processing(temperature=0.5, top_p=0.9)
    drafted = np.asarray(ENGINES["llama.cpp"].draft(of_target)(logits[None]))[0]
    np.testing.assert_allclose(drafted, kept / kept.sum(), rtol=1e-12)


def test_only_what_an_engine_can_run_is_a_candidate(read):
    names = {rule.name for rule in read.rules} | {"string-match"}
    assert all(set(engine.rules) <= names for engine in ENGINES.values())
    assert set(get_args(get_args(get_args(EngineName)[0])[0])) == set(ENGINES)
    all_of_them = read.candidates
    read.reader.engine = ENGINES["mlx-lm"]
    own = place_of(read.rules, "match-independent")
    assert read.candidates == [own] and all_of_them == read.order
    text = rules_screen(read, None)
    assert text.startswith("MOST TOKENS in mlx-lm: match, sampled draft: ")
    assert "of all rules, elsewhere: " in text and "engine  sampled drafts matched" in text
    assert screen_json(read, None)["engine"] == "mlx-lm"
    for name, found in (("match-independent", (own,)), ("rejection", ())):
        survivors = read.survivals.mean[place_of(read.rules, name)] * 20_000
        part = Tally.of_survivors(survivors, steps=20_000, name="")
        assert attribute(read, record_of(part, length=2)).consistent == found
