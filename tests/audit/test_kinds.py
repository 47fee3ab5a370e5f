"""Callables as what they are, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import otm
from benchmarks.corpus import BROKEN, CONTROLS, ToyModels
from otm import audit
from otm.audit import BatchCandidate, BlockKernel, Candidate, LogitCandidate
from otm.audit.kinds import fitting
from tests.audit.callables import as_floats, block, chain, maximal, no_bonus, recursive, textbook


@pytest.mark.parametrize(
    "verify", [maximal, recursive, as_floats(recursive), lambda p, q, d, u: (np.int64(d[0]), True)]
)
def test_one_token(verify: Any) -> None:
    assert not fitting(verify).block


@pytest.mark.parametrize(
    "verify", [chain, block, no_bonus, as_floats(chain), lambda p, q, d, u: [int(x) for x in d]]
)
def test_a_block(verify: Any) -> None:
    assert fitting(verify).block


def test_how_many_uniforms_is_found_out_too() -> None:
    """The listing reads one for the replacement and one for the bonus: γ + 2 are too many for the
    standard γ + 1.
    """
    found = fitting(textbook)
    assert found.block
    assert isinstance(found.candidate, Candidate)
    assert found.candidate.count(2, 3) == 6


def test_rows_of_a_batch() -> None:
    found = fitting(lambda p, q, drafts, rng: rng.choice(len(q), p=q, size=len(drafts)))
    assert isinstance(found.candidate, BatchCandidate)


def test_the_corpus_is_told_apart() -> None:
    for mutant in (*BROKEN, *CONTROLS):
        assert fitting(mutant.candidate).block == isinstance(mutant.instance, ToyModels), (
            mutant.name
        )


def test_what_says_itself_what_it_is_stays_so() -> None:
    for thing in (otm.KSeq(), BatchCandidate(lambda *a: 0), LogitCandidate(lambda *a: 0)):
        assert fitting(thing).candidate is thing
        assert not fitting(thing).block
    assert fitting(BlockKernel(lambda *a: 0)).block


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
        fitting(verify)


def test_two_three_and_five_arguments() -> None:
    from benchmarks.corpus import steps, trees
    from otm.audit.templates import generate, logits, tree

    assert [
        fitting(f).candidate.kind for f in (trees.recursive, steps.step, generate.candidate)
    ] == [
        "tree",
        "step",
        "generate",
    ]  # type: ignore[union-attr]
    assert fitting(tree.sequoia).candidate is tree.sequoia
    found = fitting(logits.verify)
    assert isinstance(found.candidate, audit.LogitCandidate)
    assert not found.block


def test_logits_of_a_block() -> None:
    def block(draft: Any, target: Any, drafts: Any, uniforms: Any, temperature: float) -> list[int]:
        row = target[0]
        if temperature == 0.0:
            return [int(np.argmax(row))]
        weights = np.exp((row - row.max()) / temperature)
        return [int(np.searchsorted(np.cumsum(weights / weights.sum()), uniforms[0], side="right"))]

    assert fitting(block).block
    found = audit.battery(block, seconds=120.0)
    assert found.verdict == "lossless", str(found)
    assert any("temperature 0.6" in label for label in found.audits)
