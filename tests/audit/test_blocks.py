"""Blocks by samples: joint laws, batches whose rows differ, bonus tokens."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from otm import audit
from otm.audit.blocks import Models
from otm.audit.sampled_audit import audit_of_draws, jointly
from otm.audit.standard_problems import standard_models
from otm.tracing.answers import CandidateFailure
from tests.audit.callables import chain, one_uniform_for_all_positions


def rows_of(verify: Any) -> audit.BlockBatchCandidate:
    """A batch verified row by row on the generator's uniforms, padded as kernels do."""

    def kernel(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> Any:
        found = np.full((len(drafts), drafts.shape[1] + 1), -1)
        for i, u in enumerate(rng.random((len(drafts), drafts.shape[1] + 1))):
            tokens = verify(p[i], q[i], drafts[i], u)[0]
            found[i, : len(tokens)] = tokens
        return found

    return audit.BlockBatchCandidate(kernel, name="rows")


def audited(candidate: Any, model: str, gamma: int = 2, **options: Any) -> Any:
    p, q = standard_models(gamma)[model]
    options = {"rng": np.random.default_rng(3), "errors": audit.Errors(detect=0.15)} | options
    return audit.sampled_blocks(candidate, draft=p, target=q, num_drafts=gamma, **options)


@pytest.mark.parametrize("candidate", [rows_of(chain), chain], ids=["kernel", "one block a call"])
def test_a_lossless_one_passes(candidate: Any) -> None:
    result = audited(candidate, "after the token before")
    assert result.verdict == "no difference found"
    assert result.coverage.tokens == (3,)
    assert result.membership is None
    assert "of whole blocks" in str(result)
    # Pr(both accepted): Σ over blocks of Π min(p, q).
    p, q = standard_models(2)["after the token before"]
    pairs = itertools.product(range(3), repeat=2)
    whole = sum(
        np.minimum(p.next([]), q.next([]))[a] * np.minimum(p.next([a]), q.next([a]))[b]
        for a, b in pairs
    )
    assert result.rule.low <= whole <= result.rule.high


def bonus_from_the_row_before(p: Any, q: Any, drafts: Any, u: Any) -> Any:
    return chain(p, np.concatenate([q[:-1], q[-2:-1]]), drafts, u)


@pytest.mark.parametrize(
    ("fault", "gamma"),
    [
        (bonus_from_the_row_before, 1),
        (bonus_from_the_row_before, 2),
        (one_uniform_for_all_positions, 2),
    ],
)
def test_a_fault_after_the_first_token_shows(fault: Any, gamma: int) -> None:
    """The first token is right in both: an audit of it alone finds nothing."""
    p, q = standard_models(gamma)["after the token before"]
    exact = audit.sequence(fault, draft=p, target=q, num_drafts=gamma)
    assert exact.first_position is not None
    assert exact.first_position > 1
    result = audited(
        rows_of(fault),
        "after the token before",
        gamma,
        errors=audit.Errors(detect=exact.total_variation),
    )
    assert result.verdict == "not lossless"


def test_rows_that_share_a_batch_must_not_share_a_context() -> None:
    """All rows verified with the laws of the first: right where laws are the same everywhere, wrong
    elsewhere.
    """

    def shared(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return rows_of(chain).verify(
            np.repeat(p[:1], len(p), 0), np.repeat(q[:1], len(q), 0), drafts, rng
        )

    said = [
        audited(audit.BlockBatchCandidate(shared), model).verdict
        for model in ("same at every position", "after the token before")
    ]
    assert said == ["no difference found", "not lossless"]


def test_rows_that_are_answered_for_each_other_show_in_small_batches() -> None:
    """Each row has the right answer to another: its law is right where all rows have one."""

    def turned(p: Any, q: Any, drafts: Any, rng: np.random.Generator) -> Any:
        return np.roll(rows_of(chain).verify(p, q, drafts, rng), 1, axis=0)

    kernel, rng = audit.BlockBatchCandidate(turned), np.random.default_rng(4)
    assert audited(kernel, "same at every position").verdict == "no difference found"
    models = Models(*standard_models(1)["same at every position"], 1)
    for candidate, verdict, said in (
        (kernel, "not lossless", "rows [0, 1, 2, 3, 4] of a batch have the answers to rows [4, 0,"),
        (rows_of(chain), "no difference found", ""),
    ):
        called, mixed_up = candidate.in_batches(2, rng)
        drawing = jointly(called.drawing(models, rng), 2)
        found = audit_of_draws(drawing, name="rows", errors=audit.Errors(detect=0.2))
        assert found.verdict == verdict
        assert said in mixed_up
        assert bool(said) == bool(mixed_up)


@pytest.mark.parametrize(
    "answer",
    [
        lambda p, q, drafts, rng: drafts[:, 0],
        lambda p, q, drafts, rng: drafts[1:],
        lambda p, q, drafts, rng: np.full_like(drafts, -1),
        lambda p, q, drafts, rng: drafts * 0 + 3,
        lambda p, q, drafts, rng: np.stack(
            [drafts[:, 0], drafts[:, 0] * 0 - 1, drafts[:, 1]], axis=1
        ),
        lambda p, q, drafts, rng: drafts * 1.0,
    ],
    ids=["one axis", "rows missing", "nothing", "outside", "a gap", "floats"],
)
def test_what_is_no_block_is_refused(answer: Any) -> None:
    with pytest.raises(CandidateFailure, match="must return"):
        audited(audit.BlockBatchCandidate(answer), "after the token before")
