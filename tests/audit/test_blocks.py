"""Blocks of tokens: the joint law by enumeration and by samples, the faults that only position can
show, batches whose rows differ, and what is no block.
"""

import itertools

import numpy as np
import pytest

import otm
from evidence.corpus.blocks import chain, one_uniform_for_all_positions
from evidence.corpus.one_token import draw
from otm import audit
from otm.audit.blocks import Models
from otm.audit.sampled_audit import audit_of_draws, jointly
from otm.audit.standard_problems import standard_models
from otm.audit.tracing.answers import CandidateFailure

UNEQUAL = "after the token before"


def integrated(verify, model=UNEQUAL, gamma=2):
    p, q = standard_models(gamma)[model]
    return audit.sequence(verify, draft=p, target=q, num_drafts=gamma)


def test_a_block_that_ends_early_is_completed_by_the_target():
    """One token of two, padded with −1, of which none was accepted; by integration and samples."""
    early = lambda p, q, d, u: (np.array([draw(q[0], u[0]), -1]), 0)  # noqa: E731
    result = integrated(early)
    assert (result.verdict, audited(early).verdict) == ("lossless", "no difference found")
    assert (result.first_position, result.accepted) == (None, 0.0)
    assert result.tokens_per_call == pytest.approx(1.0, abs=1e-15)


def test_models_must_fit():
    two, three, wide = (otm.sequence.ZerothOrder(np.full(n, 1 / n)) for n in (2, 3, 50))
    with pytest.raises(otm.errors.ShapeMismatch, match="one vocabulary"):
        audit.sequence(chain, draft=two, target=three, num_drafts=1)
    with pytest.raises(otm.errors.TooLarge, match="toy models"):
        audit.sequence(chain, draft=wide, target=wide, num_drafts=9)


def rows_of(verify):
    """A batch verified row by row on the generator's uniforms, padded as kernels do."""

    def kernel(p, q, drafts, rng):
        found = np.full((len(drafts), drafts.shape[1] + 1), -1)
        for i, u in enumerate(rng.random(found.shape)):
            tokens = verify(p[i], q[i], drafts[i], u)[0]
            found[i, : len(tokens)] = tokens
        return found

    return audit.BlockBatchCandidate(kernel, name="rows")


def audited(candidate, model=UNEQUAL, gamma=2, detect=0.15):
    p, q = standard_models(gamma)[model]
    options = {"rng": np.random.default_rng(3), "errors": audit.Errors(detect=detect)}
    return audit.sampled_blocks(candidate, draft=p, target=q, num_drafts=gamma, **options)


@pytest.mark.parametrize("candidate", [rows_of(chain), chain], ids=["kernel", "one block a call"])
def test_a_lossless_one_passes(candidate):
    """Its whole blocks, Σ over blocks of Π min(p, q), and its mean number of accepted tokens."""
    p, q = standard_models(2)[UNEQUAL]
    kept = {
        (a, b): np.minimum(p.next([]), q.next([]))[a] * np.minimum(p.next([a]), q.next([a]))[b]
        for a, b in itertools.product(range(3), repeat=2)
    }
    result = audited(candidate)
    assert (result.verdict, result.coverage.tokens) == ("no difference found", (3,))
    assert result.membership is None
    assert "of whole blocks" in str(result)
    assert result.rule.low <= sum(kept.values()) <= result.rule.high
    if candidate is chain:
        mean = np.minimum(p.next([]), q.next([])).sum() + sum(kept.values())
        exact = integrated(chain)
        assert [exact.accepted, exact.tokens_per_call] == pytest.approx([mean, 1 + mean], abs=1e-14)


def bonus_from_the_row_before(p, q, drafts, u):
    return chain(p, np.concatenate([q[:-1], q[-2:-1]]), drafts, u)


@pytest.mark.parametrize(
    ("fault", "gamma"), [(bonus_from_the_row_before, 1), (one_uniform_for_all_positions, 2)]
)
def test_a_fault_after_the_first_token_shows(fault, gamma):
    """The first token is right in both: an audit of it alone finds nothing."""
    exact = integrated(fault, gamma=gamma)
    assert exact.first_position > 1
    result = audited(rows_of(fault), gamma=gamma, detect=exact.total_variation)
    assert result.verdict == "not lossless"


def test_rows_that_share_a_batch_must_not_share_a_context():
    """All rows verified with the laws of the first: right where laws are the same everywhere, wrong
    elsewhere.
    """

    def shared(p, q, drafts, rng):
        first = (np.repeat(laws[:1], len(laws), 0) for laws in (p, q))
        return rows_of(chain).verify(*first, drafts, rng)

    kernel = audit.BlockBatchCandidate(shared)
    said = [audited(kernel, model).verdict for model in ("same at every position", UNEQUAL)]
    assert said == ["no difference found", "not lossless"]


def test_rows_that_are_answered_for_each_other_show_in_small_batches():
    """Each row has the right answer to another: its law is right where all rows have one."""

    def turned(p, q, drafts, rng):
        return np.roll(rows_of(chain).verify(p, q, drafts, rng), 1, axis=0)

    kernel, rng = audit.BlockBatchCandidate(turned), np.random.default_rng(4)
    models = Models(*standard_models(1)["same at every position"], 1)
    for candidate, verdict, said in (
        (
            kernel,
            "not lossless",
            "rows mixed up, rows [0, 1, 2, 3, 4] of a batch have the answers to rows [4, 0,",
        ),
        (rows_of(chain), "no difference found", ""),
    ):
        mixed_up = candidate.mixed_up(rng)
        drawing = jointly(candidate.in_batches(2).drawing(models, rng), 2)
        found = audit_of_draws(drawing, name="rows", errors=audit.Errors(detect=0.2))
        assert found.verdict == verdict
        assert mixed_up.startswith(said) and bool(said) == bool(mixed_up)


@pytest.mark.parametrize(
    "answer",
    [
        lambda p, q, drafts, rng: drafts[:, 0],
        lambda p, q, drafts, rng: drafts[1:],
        lambda p, q, drafts, rng: np.full_like(drafts, -1),
        lambda p, q, drafts, rng: drafts * 0 + 3,
        lambda p, q, drafts, rng: drafts * 0 - 2,
        lambda p, q, drafts, rng: np.pad(drafts, ((0, 0), (1, 0)), constant_values=-1),
        lambda p, q, drafts, rng: drafts * 1.0,
    ],
    ids=["one axis", "rows missing", "nothing", "outside", "below", "a gap", "floats"],
)
def test_what_is_no_block_is_refused(answer):
    with pytest.raises(CandidateFailure, match="must return"):
        audited(audit.BlockBatchCandidate(answer))
