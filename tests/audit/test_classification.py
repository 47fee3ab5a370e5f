"""Callables as what they are, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from benchmarks.corpus import BROKEN, CONTROLS, ToyModels, steps, trees
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
from otm.audit.templates import generate, logits
from tests.audit.callables import as_floats, block, chain, maximal, no_bonus, recursive, textbook


@pytest.mark.parametrize(
    ("verify", "kind"),
    [
        (maximal, TokenCandidate),
        (recursive, TokenCandidate),
        (as_floats(recursive), TokenCandidate),
        (lambda p, q, d, u: (np.int64(d[0]), True), TokenCandidate),
        (chain, BlockCandidate),
        (block, BlockCandidate),
        (no_bonus, BlockCandidate),
        (as_floats(chain), BlockCandidate),
        (lambda p, q, d, u: [int(x) for x in d], BlockCandidate),
        (lambda p, q, drafts, rng: rng.choice(len(q), p=q, size=len(drafts)), BatchCandidate),
        (lambda p, q, drafts, rng: q[:, :, :].cumsum(-1).argmax(-1) * 0, BlockBatchCandidate),
        (trees.recursive, TreeCandidate),
        (steps.step, StepCandidate),
        (generate.candidate, GenerationCandidate),
        (logits.verify, LogitCandidate),
        (otm.KSeq(), VerifierCandidate),
    ],
)
def test_what_it_is_is_found_out(verify: Any, kind: type[audit.Candidate]) -> None:
    assert isinstance(classify(verify), kind)


def test_how_many_uniforms_is_found_out_too() -> None:
    """The listing reads one for the replacement and one for the bonus: γ + 2 are too many for the
    standard γ + 1.
    """
    found = classify(textbook)
    assert isinstance(found, BlockCandidate)
    assert found.num_uniforms(2, 3) == 6


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
