"""Estimates: the truth lies inside under both definitions, and chunking changes nothing."""

import numpy as np
import pytest

import otm
from otm import IID, KSeq, Problem, RecursiveRejection
from otm.verbs import answers

PROBLEM = Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=IID(2))
WIDE = KSeq(gamma=6.0)  # leaves a residual that often hits a draft


@pytest.mark.parametrize("by", ["membership", "rule"])
@pytest.mark.parametrize("verifier", [KSeq(), WIDE, RecursiveRejection()], ids=repr)
def test_the_exact_value_lies_inside(verifier, by):
    """A Clopper–Pearson interval at confidence 1 − 1e-9 misses with probability at most 1e-9; the
    two acceptances of the wide scheme are further apart than their intervals are wide.
    """
    how = {"samples": 50_000, "confidence": 1 - 1e-9, "by": by}
    found = otm.estimate(verifier, PROBLEM, rng=np.random.default_rng(1), **how)
    assert found.low <= otm.acceptance(verifier, PROBLEM, by=by) <= found.high
    assert found.high - found.low < 0.03
    said = (found.samples, found.confidence, found.quantity)
    assert said == (50_000, 1 - 1e-9, f"acceptance by {by}")
    assert found == otm.estimate(verifier, PROBLEM, rng=np.random.default_rng(1), **how)


def test_chunks_use_every_sample_once(monkeypatch):
    sizes = []
    original = answers.run

    def spy(rule, *, size, rng):
        sizes.append(size)
        return original(rule, size=size, rng=rng)

    monkeypatch.setattr(answers, "run", spy)
    monkeypatch.setattr(answers, "_UNIFORMS_AT_ONCE", 500)  # 5 uniforms a draw: 100 draws at once
    otm.estimate(KSeq(), PROBLEM, samples=1050, rng=np.random.default_rng(4))
    draws = otm.sample(WIDE, PROBLEM, size=250, rng=np.random.default_rng(4))
    assert sizes == [*[100] * 10, 50, 100, 100, 50]
    assert draws.drafts.shape == (250, 2)
    member = [y in x for x, y in zip(draws.drafts.tolist(), draws.output.tolist(), strict=True)]
    assert draws.member.tolist() == member
    assert draws.accepted.sum() < draws.member.sum() < 250
    assert (draws.accepted <= draws.member).all()
