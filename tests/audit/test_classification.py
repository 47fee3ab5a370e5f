"""Callables as what they are, what they may answer, and what is said of those that are none."""

import math

import numpy as np
import pytest

import otm
from evidence.corpus import BROKEN, CONTROLS, ToyModels, blocks, gaps, one_token, steps, trees
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
from otm.audit.tracing.answers import CandidateFailure
from tests.audit.callables import as_floats


@pytest.mark.parametrize(
    ("verify", "kind"),
    [
        (as_floats(one_token.recursive_rejection), TokenCandidate),
        (lambda p, q, d, u: (np.int64(d[0]), True), TokenCandidate),
        (as_floats(blocks.chain), BlockCandidate),
        (lambda p, q, d, u: [int(x) for x in d], BlockCandidate),
        (lambda p, q, d, u: (np.array([d[0], -1]), len(p[0]) - 4), BlockCandidate),
        (lambda p, q, drafts, rng: rng.choice(len(q), p=q, size=len(drafts)), BatchCandidate),
        (lambda p, q, drafts, rng: q[:, :, :].cumsum(-1).argmax(-1) * 0, BlockBatchCandidate),
        (trees.recursive, TreeCandidate),
        (steps.step, StepCandidate),
        (lambda draft, target, rng, gamma=3: [0], StepCandidate),
        (lambda draft, target, rng, temperature: [0], StepCandidate),
        (lambda tree, rng=None: [0], TreeCandidate),
        (lambda p, q, d, u, temperature=1.0: int(d[0]), TokenCandidate),
        (lambda draft_logits, q, d, u, temperature=1.0: int(d[0]), LogitCandidate),
        (generate.candidate, GenerationCandidate),
        (logits.verify, LogitCandidate),
        (otm.KSeq(), VerifierCandidate),
    ],
)
def test_what_it_is_is_found_out(verify, kind):
    assert isinstance(classify(verify), kind)


def test_the_corpus_is_told_apart_and_how_many_uniforms_are_found_out_too():
    """One that reads one for the replacement and one for the bonus needs more than the standard
    γ + 1.
    """
    for mutant in (*BROKEN, *CONTROLS):
        kind = BlockCandidate if isinstance(mutant.instance, ToyModels) else TokenCandidate
        assert isinstance(mutant.candidate, kind), mutant.name
        assert isinstance(classify(mutant.candidate.verify), kind), mutant.name

    def textbook(p, q, drafts, uniforms):
        read = [uniforms[i] for i in range(len(drafts) + 2)]
        return blocks.bonus_after_rejection(p, q, drafts, read)

    found = classify(textbook)
    assert isinstance(found, BlockCandidate)
    assert found.num_uniforms(2, 3) == 6


def test_what_says_itself_what_it_is_stays_so():
    thing = LogitCandidate(lambda *a: 0)
    assert classify(thing) is thing
    assert not thing.takes_blocks


@pytest.mark.parametrize(
    ("verify", "said"),
    [
        (lambda p: 0, "TypeError"),
        (lambda p, q: 1, "reads nothing of its tree"),
        (lambda p, q, d, u: p[5, 5, 5], "draft \\(γ, V\\), target \\(γ\\+1, V\\)"),
        (lambda p, q, d, u: "no token", "For one token: The callable must return a token"),
    ],
)
def test_what_fits_nothing_is_refused_with_every_attempt(verify, said):
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        classify(verify)


def test_logits_of_a_block():
    found = classify(gaps.on_laws(blocks.chain, lambda heat: heat).verify)
    assert isinstance(found, LogitCandidate)
    assert found.takes_blocks
    result = audit.battery(found, seconds=120.0)
    assert result.verdict == "lossless", str(result)
    assert any("temperature 0.6" in label for label in result.audits)


PAIR = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))


class TestAnswers:
    @pytest.mark.parametrize(
        "answer", [None, 0.5, "a", True, (0, True, 1), np.array([0, 1])], ids=repr
    )
    def test_what_is_no_token_is_refused(self, answer):
        with pytest.raises(
            CandidateFailure, match=r"(?s)must return a token.*probability 1 on draft=\[0.5, 0.5\]"
        ):
            audit.exact(lambda p, q, d, u: answer, PAIR)

    @pytest.mark.parametrize(
        "answer",
        [np.int32(0), np.array([0]), np.array(0), (0, True), (np.array([0]), np.bool_(False))],
        ids=repr,
    )
    def test_tokens_of_every_make_are_read(self, answer):
        assert audit.exact(lambda p, q, d, u: answer, PAIR).law.tolist() == [1.0, 0.0]

    def test_a_token_outside_the_vocabulary_is_mass_that_is_missing(self):
        result = audit.exact(lambda p, q, d, u: int(d[0]) if u[0] < 0.875 else 2, PAIR)
        assert math.isclose(result.total_variation, 0.125, abs_tol=1e-15)

    def test_the_number_of_uniforms_is_the_callers(self):
        seen = []
        audit.exact(
            audit.TokenCandidate(
                lambda p, q, d, u: seen.append(len(u)) or 0, num_uniforms=lambda k, v: 3 * k + v
            ),
            PAIR,
        )
        assert set(seen) == {5}

    @pytest.mark.parametrize("thing", [7, None, otm.Maximal, otm.Maximal()], ids=repr)
    def test_a_candidate_is_a_function(self, thing):
        with pytest.raises(otm.errors.InvalidParameter, match="must be a function"):
            audit.TokenCandidate(thing)

    @pytest.mark.parametrize("answer", [[], [2], [0, 0, 0], None, [0.5], [-1], "ab"], ids=repr)
    def test_what_is_no_block_is_refused(self, answer):
        model = otm.sequence.ZerothOrder([0.5, 0.5])
        with pytest.raises(CandidateFailure, match="1 to 2 tokens"):
            audit.sequence(lambda p, q, d, u: answer, draft=model, target=model, num_drafts=1)

    @pytest.mark.parametrize(
        ("candidate", "said"),
        [
            (lambda p, q, d, u: 1 // 0, r"ZeroDivisionError.*Drafts: \["),
            (BatchCandidate(lambda p, q, d, rng: np.zeros(len(d) + 1, dtype=int)), "must return"),
            (BatchCandidate(lambda p, q, d, rng: np.full(len(d), 2)), "tokens in .* from 2 to 2"),
            (BatchCandidate(lambda p, q, d, rng: np.full(len(d), 0.5)), "must return"),
            (BatchCandidate(lambda p, q, d, rng: None), "must return"),
        ],
    )
    def test_what_fails_in_samples_is_named(self, candidate, said):
        with pytest.raises(CandidateFailure, match=said):
            audit.sampled(candidate, PAIR, rng=np.random.default_rng(0))
