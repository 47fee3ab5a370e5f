"""Callables as what they are, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from benchmarks.corpus import BROKEN, CONTROLS, ToyModels
from otm import audit
from otm.audit import (
    BatchCandidate,
    BlockBatchCandidate,
    BlockCandidate,
    GenerationCandidate,
    LogitCandidate,
    StepCandidate,
    TokenCandidate,
    TreeCandidate,
    VerifierCandidate,
    classify,
)
from tests.audit.callables import as_floats, block, chain, maximal, no_bonus, recursive, textbook


@pytest.mark.parametrize(
    "verify", [maximal, recursive, as_floats(recursive), lambda p, q, d, u: (np.int64(d[0]), True)]
)
def test_one_token(verify: Any) -> None:
    assert isinstance(classify(verify), TokenCandidate)


@pytest.mark.parametrize(
    "verify", [chain, block, no_bonus, as_floats(chain), lambda p, q, d, u: [int(x) for x in d]]
)
def test_a_block(verify: Any) -> None:
    assert isinstance(classify(verify), BlockCandidate)


def test_how_many_uniforms_is_found_out_too() -> None:
    """The listing reads one for the replacement and one for the bonus: γ + 2 are too many for the
    standard γ + 1.
    """
    found = classify(textbook)
    assert isinstance(found, BlockCandidate)
    assert found.count(2, 3) == 6


def test_rows_of_a_batch() -> None:
    found = classify(lambda p, q, drafts, rng: rng.choice(len(q), p=q, size=len(drafts)))
    assert isinstance(found, BatchCandidate)


def test_the_corpus_is_told_apart() -> None:
    for mutant in (*BROKEN, *CONTROLS):
        kind = BlockCandidate if isinstance(mutant.instance, ToyModels) else TokenCandidate
        assert isinstance(mutant.candidate, kind), mutant.name
        assert isinstance(classify(mutant.candidate.verify), kind), mutant.name


def test_what_says_itself_what_it_is_stays_so() -> None:
    for kind in (BatchCandidate, LogitCandidate, BlockBatchCandidate):
        thing = kind(lambda *a: 0)
        assert classify(thing) is thing
    assert not LogitCandidate(lambda *a: 0).takes_blocks
    assert isinstance(classify(otm.KSeq()), VerifierCandidate)


@pytest.mark.parametrize(
    ("verify", "said"),
    [
        (lambda p: 0, "TypeError"),
        (lambda p, q, d, u: p[5, 5, 5], "draft \\(γ, V\\), target \\(γ\\+1, V\\)"),
        (lambda p, q, d, u: "no token", "For one token: The callable must return a token"),
    ],
)
def test_what_fits_nothing_is_refused_with_every_attempt(verify: Any, said: str) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        classify(verify)


def test_two_three_and_five_arguments() -> None:
    from benchmarks.corpus import steps, trees
    from otm.audit.templates import generate, logits, tree

    assert isinstance(classify(trees.recursive), TreeCandidate)
    assert isinstance(classify(steps.step), StepCandidate)
    assert isinstance(classify(generate.candidate), GenerationCandidate)
    assert classify(tree.sequoia) is tree.sequoia
    found = classify(logits.verify)
    assert isinstance(found, LogitCandidate)
    assert not found.takes_blocks


def test_logits_of_a_block() -> None:
    def block(draft: Any, target: Any, drafts: Any, uniforms: Any, temperature: float) -> list[int]:
        row = target[0]
        if temperature == 0.0:
            return [int(np.argmax(row))]
        weights = np.exp((row - row.max()) / temperature)
        return [int(np.searchsorted(np.cumsum(weights / weights.sum()), uniforms[0], side="right"))]

    found = classify(block)
    assert isinstance(found, LogitCandidate)
    assert found.takes_blocks
    result = audit.battery(block, seconds=120.0)
    assert result.verdict == "lossless", str(result)
    assert any("temperature 0.6" in label for label in result.audits)
