"""Estimates: the interval is Clopper–Pearson's, chunking changes nothing, and the truth lies
inside.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

import otm
from otm import IID, KSeq, Problem, RecursiveRejection, verbs

PROBLEM = Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=IID(2))


def test_the_interval_is_clopper_pearsons() -> None:
    found = otm.estimate(
        RecursiveRejection(), PROBLEM, samples=500, rng=np.random.default_rng(0), confidence=0.9
    )
    hits = round(found.value * 500)
    assert found.low == pytest.approx(beta.ppf(0.05, hits, 500 - hits + 1), rel=1e-9)
    assert found.high == pytest.approx(beta.ppf(0.95, hits + 1, 500 - hits), rel=1e-9)
    assert (found.samples, found.confidence, found.quantity) == (
        500,
        0.9,
        "acceptance by membership",
    )
    assert str(found) == f"{found.value:.4f} [{found.low:.4f}, {found.high:.4f}]"


def test_all_and_none() -> None:
    sure = otm.estimate(
        KSeq(),
        Problem(draft=[1.0], target=[1.0], law=IID(1)),
        samples=100,
        rng=np.random.default_rng(0),
    )
    assert (sure.value, sure.high) == (1.0, 1.0)
    assert sure.low == pytest.approx(0.025 ** (1 / 100), rel=1e-9)
    apart = Problem(draft=[1.0, 0.0], target=[0.0, 1.0], law=IID(3))
    never = otm.estimate(KSeq(), apart, samples=100, rng=np.random.default_rng(0))
    assert (never.value, never.low) == (0.0, 0.0)
    assert never.high == pytest.approx(1 - 0.025 ** (1 / 100), rel=1e-9)


@pytest.mark.parametrize("by", ["membership", "rule"])
def test_the_exact_value_lies_inside(by: str) -> None:
    # A Clopper–Pearson interval at confidence 1 − 1e-9 misses with probability at most 1e-9.
    for verifier in (KSeq(), KSeq(gamma=6.0), RecursiveRejection()):
        found = otm.estimate(
            verifier,
            PROBLEM,
            samples=50_000,
            rng=np.random.default_rng(1),
            confidence=1 - 1e-9,
            by=by,  # type: ignore[arg-type]
        )
        assert found.low <= otm.acceptance(verifier, PROBLEM, by=by) <= found.high  # type: ignore[arg-type]
        assert found.high - found.low < 0.03


def test_the_two_definitions_differ_where_they_should() -> None:
    # γ = 6 leaves a residual that often hits a draft: the two exact values are further apart than
    # both intervals are wide.
    rng = np.random.default_rng(2)
    member = otm.estimate(KSeq(gamma=6.0), PROBLEM, samples=50_000, rng=rng, confidence=1 - 1e-9)
    rule = otm.estimate(
        KSeq(gamma=6.0), PROBLEM, samples=50_000, rng=rng, confidence=1 - 1e-9, by="rule"
    )
    assert rule.high < member.low


def test_the_same_seed_gives_the_same_estimate() -> None:
    left, right = (
        otm.estimate(KSeq(), PROBLEM, samples=1000, rng=np.random.default_rng(3)) for _ in range(2)
    )
    assert left == right


def test_chunks_use_every_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    original = verbs.run

    def spy(rule, *, size, rng):
        sizes.append(size)
        return original(rule, size=size, rng=rng)

    monkeypatch.setattr(verbs, "run", spy)
    monkeypatch.setattr(verbs, "_UNIFORMS_AT_ONCE", 500)  # 5 uniforms a draw: 100 draws at once
    found = otm.estimate(KSeq(), PROBLEM, samples=1050, rng=np.random.default_rng(4))
    assert sizes == [100] * 10 + [50]
    assert found.samples == 1050
    sizes.clear()
    draws = otm.sample(KSeq(), PROBLEM, size=250, rng=np.random.default_rng(4))
    assert sizes == [100, 100, 50]
    assert draws.drafts.shape == (250, 2)
    assert draws.output.shape == draws.accepted.shape == (250,)


def test_samples_say_what_the_rule_and_what_membership_saw() -> None:
    draws = otm.sample(KSeq(gamma=6.0), PROBLEM, size=5000, rng=np.random.default_rng(5))
    assert draws.drafts.shape == (5000, 2)
    assert draws.output.shape == draws.accepted.shape == draws.member.shape == (5000,)
    np.testing.assert_array_equal(
        draws.member, [y in x for x, y in zip(draws.drafts.tolist(), draws.output, strict=True)]
    )
    assert draws.accepted.sum() < draws.member.sum() < 5000
