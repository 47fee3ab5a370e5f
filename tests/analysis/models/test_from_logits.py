"""Penalties and a grammar change logits as engines do; what it costs that drafts know of none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from analysis.models.from_logits import Limited
from analysis.models.processing import Setting
from analysis.rules.answer import place_of, read_rules
from analysis.rules.rules import Reader, Sizes
from analysis.rules.screen import screen
from otm import Processing
from otm.sequence import MarkovModel
from tests.analysis.rules.toys import Toy, toy_reader

PROMPT = (0, 3)
LIMITS: dict[str, Any] = {"repetition": 1.5, "presence": 0.25, "frequency": 0.5}


def odd(written: tuple[int, ...]) -> list[int]:
    """Allow odd tokens after an even number of tokens, and all after others."""
    return list(range(1, 5, 2)) if len(written) % 2 == 0 else list(range(5))


def by_hand(logits: np.ndarray, context: tuple[int, ...]) -> np.ndarray:
    """Return the changed logits, token by token."""
    found, written = logits.copy(), list(context[len(PROMPT) :])
    for token in range(len(found)):
        if token in context:
            found[token] *= 1.0 / 1.5 if found[token] > 0 else 1.5
        found[token] -= 0.25 * (token in written) + 0.5 * written.count(token)
        if token not in odd(tuple(written)):
            found[token] = -np.inf
    return found


def test_logits_change_by_hand() -> None:
    """Prompt tokens are penalised by repetition alone; what may follow depends on the text."""
    model = Toy(MarkovModel(np.random.default_rng(0).dirichlet(np.ones(5), size=5)), Processing())
    contexts = [PROMPT, (*PROMPT, 1), (*PROMPT, 1, 1, 2)]
    limited = Limited(model, len(PROMPT), **LIMITS, allowed=odd)
    before = model.logits(contexts).numpy()
    hand = np.array([by_hand(*one) for one in zip(before, contexts, strict=True)])
    np.testing.assert_allclose(limited.logits(contexts).numpy(), hand, rtol=1e-15)
    processing = Processing(temperature=0.7)
    again = limited.processed(processing).next_batch([contexts[2], contexts[0], contexts[2]])
    np.testing.assert_allclose(again, np.asarray(processing(hand))[[2, 0, 2]], atol=1e-15)
    free = Limited(model, len(PROMPT)).next_batch(contexts)
    np.testing.assert_allclose(free, model.next_batch(contexts), atol=1e-15)


def test_what_drafts_lose_that_know_no_limits() -> None:
    """First drafts against the library's acceptance on rows made by hand, both ways, paired."""
    sizes = Sizes(length=2, nodes=2, sequences=2, num_tokens=12, texts=4)
    setting = Setting(Processing(temperature=0.8), Processing(temperature=0.8))
    toys = toy_reader(sizes, setting=setting, num_tokens=5)
    limits = {**LIMITS, "allowed": odd}
    readers = [
        Reader(
            toys.draft,
            toys.target,
            setting=setting,
            sizes=sizes,
            eos=None,
            limits=limits,
            aware=aware,
        )
        for aware in (False, True)
    ]
    with np.errstate(divide="ignore"):
        read = read_rules(readers[0], [list(PROMPT)], beside=readers[1])
    text = read.passages[0].text
    contexts = [text.context(place) for place in range(sizes.num_tokens)]
    own, verified = (one.logits(contexts).numpy() for one in (toys.draft, toys.target))
    known, hand = (
        np.array([by_hand(*one) for one in zip(rows, contexts, strict=True)])
        for rows in (own, verified)
    )
    p, z, q = (np.asarray(setting.target(rows)) for rows in (own, known, hand))
    np.testing.assert_allclose(text.target[: len(q)], q, atol=1e-12)
    rule = place_of(read.rules, "rejection")
    for draft, walks in ((p, read.walks[0]), (z, readers[1].read(text, 0, 1, len(PROMPT))[1])):
        problem = otm.Problem(draft=draft, target=q, law=otm.IID(1))
        exact = np.asarray(otm.acceptance(otm.Maximal(), problem))
        np.testing.assert_allclose(walks[rule].gained[0], exact, atol=1e-12)
    gain = read.gain_beside(rule)
    assert gain is not None
    assert gain.value > 0.1
    said = " ".join(screen(read, None).split())
    assert "penalties repetition 1.5, presence 0.25, frequency 0.5, and a grammar; drafts" in said
    assert "drafts under the same limits yield more" in said


def test_another_target_writes_its_own_texts() -> None:
    """By the same random numbers: the same target again gains nothing, a colder one something."""
    sizes = Sizes(length=2, nodes=2, sequences=2, num_tokens=12, texts=4)
    first, same, other = (toy_reader(sizes, num_tokens=6) for _ in range(3))
    other.target = first.draft  # what drafts know for certain
    found = [read_rules(first, [[0], [1]], beside=one) for one in (same, other)]
    gains = [one.gain_beside(place_of(one.rules, "rejection")) for one in found]
    assert gains[0] is not None and gains[0].value == pytest.approx(0.0, abs=1e-12)
    assert gains[1] is not None and gains[1].value > 0.3
    assert "the other target yields more" in " ".join(screen(found[1], None).split())
