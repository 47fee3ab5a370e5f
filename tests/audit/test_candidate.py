"""What callables are and answer: tokens and blocks of every make, and what is none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.standard_problems import table_model
from otm.tracing.answers import CandidateFailure

PAIR = otm.Problem(draft=[0.5, 0.3, 0.15, 0.05], target=[0.2, 0.35, 0.2, 0.25], law=otm.IID(1))


class TestAnswers:
    PROBLEM = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))

    @pytest.mark.parametrize(
        "answer", [None, 0.5, "a", True, (0, True, 1), np.array([0, 1])], ids=repr
    )
    def test_what_is_no_token_is_refused(self, answer: Any) -> None:
        with pytest.raises(
            CandidateFailure, match=r"(?s)must return a token.*probability 1 on draft=\[0.5, 0.5\]"
        ):
            audit.exact(lambda p, q, d, u: answer, self.PROBLEM)

    @pytest.mark.parametrize(
        "answer",
        [0, np.int32(0), np.array([0]), np.array(0), (0, True), (np.array([0]), np.bool_(False))],
        ids=repr,
    )
    def test_tokens_of_every_make_are_read(self, answer: Any) -> None:
        assert audit.exact(lambda p, q, d, u: answer, self.PROBLEM).law.tolist() == [
            1.0,
            0.0,
        ]

    @pytest.mark.parametrize("raised", [ValueError("no residual"), SystemExit("no residual")])
    def test_an_exception_says_how_often(self, raised: BaseException) -> None:
        def fragile(p: Any, q: Any, drafts: Any, uniforms: Any) -> int:
            if uniforms[0] < 0.25:
                raise raised
            return int(drafts[0])

        with pytest.raises(CandidateFailure, match=r"(ValueError|SystemExit): no residual.*0.25"):
            audit.exact(fragile, self.PROBLEM)

    def test_a_token_outside_the_vocabulary_is_mass_that_is_missing(self) -> None:
        result = audit.exact(lambda p, q, d, u: int(d[0]) if u[0] < 0.875 else 2, self.PROBLEM)
        assert math.isclose(result.total_variation, 0.125, abs_tol=1e-15)

    def test_the_number_of_uniforms_is_the_callers(self) -> None:
        seen = []
        audit.exact(
            audit.TokenCandidate(
                lambda p, q, d, u: seen.append(len(u)) or 0, num_uniforms=lambda k, v: 3 * k + v
            ),
            self.PROBLEM,
        )
        assert set(seen) == {5}

    @pytest.mark.parametrize("thing", [7, None, otm.Maximal, otm.Maximal()], ids=repr)
    def test_a_candidate_is_a_function(self, thing: Any) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="must be a function"):
            audit.TokenCandidate(thing)


@pytest.mark.parametrize("answer", [[], [2], [0, 0, 0], None, [0.5], [-1], "ab"], ids=repr)
def test_what_is_no_block_is_refused(answer: Any) -> None:
    model = table_model(lambda c: [0.5, 0.5], 2, 1)
    with pytest.raises(CandidateFailure, match="1 to 2 tokens"):
        audit.sequence(lambda p, q, d, u: answer, draft=model, target=model, num_drafts=1)


@pytest.mark.parametrize(
    "answer",
    [
        lambda p, q, d, rng: np.zeros(len(d) + 1, dtype=int),
        lambda p, q, d, rng: np.full(len(d), 4),
        lambda p, q, d, rng: np.full(len(d), 0.5),
        lambda p, q, d, rng: None,
    ],
)
def test_what_is_no_batch_is_refused(answer: Any) -> None:
    with pytest.raises(CandidateFailure, match="must return"):
        audit.sampled(audit.BatchCandidate(answer), PAIR, rng=np.random.default_rng(0))


def test_an_exception_names_the_drafts() -> None:
    with pytest.raises(CandidateFailure, match=r"ZeroDivisionError.*Drafts: \["):
        audit.sampled(lambda p, q, d, u: 1 // 0, PAIR, rng=np.random.default_rng(0))
