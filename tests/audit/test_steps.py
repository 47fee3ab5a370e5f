"""Steps that draft by themselves: exact distances, lossless features, and what falls back to
samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import steps
from otm import audit
from otm.audit.end_to_end import JointAudit
from otm.audit.standard_problems import table_model
from otm.errors import InvalidParameter
from otm.sequence import ZerothOrder
from otm.tracing.answers import CandidateFailure

P, Q = (0.5, 0.3, 0.2), (0.2, 0.35, 0.45)
LATER_P, LATER_Q = (
    ((0.5, 0.25, 0.25), (0.2, 0.6, 0.2), (0.4, 0.4, 0.2)),
    ((0.2, 0.3, 0.5), (0.5, 0.25, 0.25), (0.1, 0.1, 0.8)),
)
DRAFT = table_model(lambda context: LATER_P[context[-1]] if context else P, 3, 2)
TARGET = table_model(lambda context: LATER_Q[context[-1]] if context else Q, 3, 2)


def audited(candidate: Any, **options: Any) -> Any:
    return audit.step(
        candidate, draft=DRAFT, target=TARGET, length=2, rng=np.random.default_rng(0), **options
    )


def test_a_correct_step_is_lossless() -> None:
    found = audited(steps.step)
    assert (found.verdict, type(found)) == ("lossless", JointAudit)
    assert found.total_variation < found.tolerance


def adaptive(draft: Any, target: Any, rng: Any) -> list[int]:
    """Draft only where the draft model is sure: a look at laws, not at drafts, is no fault; torch
    draws.
    """
    import torch

    p, q = (torch.as_tensor(model.next([])) for model in (draft, target))
    if max(p) < 0.45:
        return [int(torch.multinomial(q, 1))]
    x = int(torch.multinomial(p, 1))
    if not torch.rand((), dtype=torch.float64) * p[x] < q[x]:
        return [int(torch.multinomial((q - p).clamp(min=0), 1))]
    return [x, int(torch.multinomial(torch.as_tensor(target.next([x])), 1))]


def test_adaptive_lengths_in_torch_are_lossless() -> None:
    assert audited(adaptive).verdict == "lossless"


def choosing(peeks: str) -> Any:
    """A step that drafts one token or none: by the draft's law and a coin, or by what it must not
    know.
    """

    def chosen(draft: Any, target: Any, rng: Any) -> list[int]:
        p, q = draft.next([]), target.next([])
        coin, sample, uniform = rng.random(), int(rng.choice(3, p=q)), rng.random()
        if peeks == "sample":
            drafting = sample != 0
        elif peeks == "uniform":
            drafting = uniform < 0.5
        else:
            drafting = coin < p.max()
        if not drafting:
            return [sample]
        x = int(rng.choice(3, p=p))
        if uniform * p[x] < q[x]:
            return [x]
        return [int(rng.choice(3, p=np.maximum(q - p, 0.0) / np.maximum(q - p, 0.0).sum()))]

    return chosen


@pytest.mark.parametrize(
    ("peeks", "variation"),
    [
        ("nothing", 0.0),
        ("sample", Q[0] * (1.0 - Q[0])),  # what is written if it is token 0, else drawn anew
        ("uniform", 0.5 * Q[0]),  # token 0 is kept by uniforms below .4, all of which draft
    ],
)
def test_a_choice_of_plan_is_lossless_unless_it_peeks(peeks: str, variation: float) -> None:
    found = audited(choosing(peeks))
    assert found.verdict == ("not lossless" if variation else "lossless")
    assert found.total_variation == pytest.approx(variation, abs=1e-12)


@pytest.mark.parametrize(("over", "verdict"), [(False, "lossless"), (True, "not lossless")])
def test_nothing_follows_the_end_of_sequence(over: bool, verdict: str) -> None:
    def plain(draft: Any, target: Any, rng: Any) -> list[int]:
        x = int(rng.choice(3, p=target.next([])))
        if x == 2 and not over:
            return [x]
        return [x, int(rng.choice(3, p=TARGET.next([x])))]

    assert audited(plain, end=2).verdict == verdict


@pytest.mark.parametrize(
    ("wrong", "verdict"), [(False, "no difference found"), (True, "not lossless")]
)
def test_what_has_no_branches_is_sampled_and_says_why(wrong: bool, verdict: str) -> None:
    def floating(draft: Any, target: Any, rng: Any) -> list[int]:
        u = float(rng.random())
        return [
            int(np.searchsorted(np.cumsum((draft if wrong else target).next([])), u, side="right"))
        ]

    found = audited(floating, errors=audit.Errors(detect=0.2))
    assert found.verdict == verdict
    assert "plain float" in found.reason
    assert str(found).splitlines()[3] == f"Not traced, since {found.reason}."


def test_a_fixed_seed_is_no_randomness() -> None:
    found = audited(
        lambda draft, target, rng: [int(np.random.default_rng(3).choice(3, p=target.next([])))],
        errors=audit.Errors(detect=0.2),
    )
    assert found.verdict == "not lossless"
    assert "fixed seed" in found.reason


def test_errors_have_types() -> None:
    with pytest.raises(CandidateFailure, match="1 to 2 tokens"):
        audited(lambda draft, target, rng: [0, 0, 0])
    with pytest.raises(InvalidParameter, match="needs a function"):
        audited(7)
    with pytest.raises(InvalidParameter, match=r"end must be a token in \[0, 3\)"):
        audited(lambda draft, target, rng: [0], end=3)


def by_rejection(draft: Any, target: Any, rng: Any) -> list[int]:
    mass = np.asarray(target.next(()))
    while True:
        token = int(rng.integers(len(mass)))
        if rng.random() * mass.max() < mass[token]:
            return [token]


def after_a_wait(draft: Any, target: Any, rng: Any) -> list[int]:
    while rng.random() < 0.7:
        pass
    return [int(rng.random() < 0.5)]


@pytest.mark.parametrize(
    ("step", "verdict"), [(by_rejection, "lossless"), (after_a_wait, "not lossless")]
)
def test_a_loop_that_is_left_by_luck_comes_to_an_end(step: Any, verdict: str) -> None:
    """It goes on with probability ½ or more: the likelier part alone would be followed for ever."""
    found = audit.step(
        step,
        draft=ZerothOrder([0.5, 0.5]),
        target=ZerothOrder([0.9, 0.1]),
        length=1,
        rng=np.random.default_rng(0),
        seconds=30.0,
    )
    assert (found.verdict, type(found)) == (verdict, JointAudit)
