"""Verifiers that share work between numbers of drafts: the library's, and one from outside."""

import dataclasses
from unittest import mock

import numpy as np
import pytest

import otm
from otm import IID, KSeq, Problem, RecursiveRejection
from otm.verifiers import kseq, recursive_rejection
from tests.tolerance import rounding

KS = [4, 1, 2, 7]
ROWS = otm.examples.dirichlet(9, rng=np.random.default_rng(0), rows=2)
PROBLEM = Problem(draft=ROWS[0], target=ROWS[1], law=IID(3))


@dataclasses.dataclass(frozen=True)
class Looking(otm.verifiers.CurvedVerifier):
    """`otm.Naive` from outside: a draw from the target, and Σ q (1 − (1 − p)^k) from one pass for
    every k.
    """

    asked: list[list[int]] = dataclasses.field(default_factory=list, hash=False, compare=False)

    lossless = True
    laws = (IID,)

    def prepare(self, problem):
        return otm.Naive().prepare(problem)

    def curve(self, problem, ks, by):
        self.asked.append(list(ks))
        misses = np.log1p(-problem.draft)
        return np.stack([(problem.target * -np.expm1(k * misses)).sum(axis=-1) for k in ks])


def test_a_curve_from_outside_is_asked_once_for_every_k():
    verifier = Looking()
    values = otm.acceptance_curve(verifier, PROBLEM, k=KS)
    assert verifier.asked == [KS]
    wanted = otm.acceptance_curve(otm.Naive(), PROBLEM, k=KS)
    np.testing.assert_allclose(values, wanted, rtol=0, atol=rounding(9, max(KS)))
    table = otm.compare(
        draft=ROWS[0], target=ROWS[1], verifiers=[verifier], laws=[IID], k=[2], samples=0
    )
    for found in (otm.acceptance(verifier, PROBLEM.with_law(IID(2))), table.rows[0].exact):
        assert found == pytest.approx(wanted[KS.index(2)], abs=rounding(9, 2))
    assert [2] in verifier.asked
    with pytest.raises(otm.errors.InvalidParameter, match="by must be"):
        otm.acceptance(verifier, PROBLEM, by="both")


@pytest.mark.parametrize(
    ("verifier", "module", "shared"),
    [(KSeq(), kseq, "kseq_roots"), (RecursiveRejection(), recursive_rejection, "rejection_levels")],
    ids=["KSeq", "RecursiveRejection"],
)
def test_one_sort_or_recursion_serves_every_k(monkeypatch, verifier, module, shared):
    one_by_one = [otm.acceptance(verifier, PROBLEM.with_law(IID(k))) for k in KS]
    function = mock.Mock(wraps=getattr(module, shared))
    monkeypatch.setattr(module, shared, function)
    values = otm.acceptance_curve(verifier, PROBLEM, k=KS)
    assert function.call_count == 1
    np.testing.assert_allclose(values, one_by_one, rtol=0, atol=rounding(9, max(KS)))
