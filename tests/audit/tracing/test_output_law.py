"""The law of answers over drafts: traced, branched or probed, and what rounding explains."""

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.tracing import output_law
from otm.audit.tracing.answers import CandidateFailure, Failed
from otm.audit.tracing.execution import TraceAborted
from otm.audit.tracing.output_law import output_law_of, traced_law_of
from otm.audit.tracing.probing import CHECKS, FALSE_ALARM
from tests.audit.callables import maximal

WAYS = {
    "traced": lambda u: bool(u[0] < 0.25),
    "branched": lambda u: bool(np.random.default_rng().random() < 0.25),
    "probed": lambda u: np.float64(u[0]) < 0.25,
}


@pytest.mark.parametrize("method", WAYS)
def test_the_law_of_two_drafts(method):
    functions = [WAYS[method], lambda u: bool(u[0] < 0.5)]
    law = output_law_of(functions, [0.75, 0.25], 1, tolerance=0.0, described="this")
    masses = {answer: mass.tolist() for _, answer, mass in law.found}
    assert masses[True] == pytest.approx([0.1875, 0.125], abs=1e-15)
    assert dict(law.totals) == pytest.approx({True: 0.3125, False: 0.6875}, abs=1e-15)
    assert (law.method, law.error) == (method, 0.0)
    black_box = method == "probed"
    assert (law.unproved > 0.0) == bool(law.reason) == (law.check is not None) == black_box


def test_what_cannot_be_traced_is_said():
    with pytest.raises(TraceAborted, match="plain float"):
        traced_law_of([WAYS["probed"]], [1.0], 1, tolerance=0.0, described="this")


def test_drafts_share_the_budgets(monkeypatch):
    for name, value in {"MOST_SLANTED": 60, "MOST_WORK": 120}.items():
        monkeypatch.setattr(output_law, name, value)
        monkeypatch.setattr(output_law, name.replace("MOST", "_LEAST"), 1)
    for function, most in (
        (lambda u: bool(u[0] + u[1] < 0.5), 60),
        (lambda u: int(u[0] * 100), 120),
    ):
        law = traced_law_of([function] * 6, [1 / 6] * 6, 2, tolerance=0.0, described="this")
        assert 6 < law.cells <= most


def test_failures_beyond_the_tolerance_are_raised():
    def fails(u):
        return Failed("no token.") if u[0] < 0.25 else 1

    with pytest.raises(
        CandidateFailure, match=r"no token\. It does so with probability 0\.25 on it"
    ):
        output_law_of([fails], [1.0], 1, tolerance=0.2, described="it")
    law = output_law_of([fails], [1.0], 1, tolerance=0.3, described="it")
    assert law.totals == [(1, 0.75)]


@pytest.mark.parametrize("probability", [0.5, 1.0])
def test_what_fails_always_is_told_from_what_fails_at_times(probability):
    failure = CandidateFailure.likely("no token.", probability, "it")
    assert failure.certain == (probability == 1.0)


def test_a_black_box_is_looked_at_until_it_is_decided():
    law = output_law_of([WAYS["probed"]], [1.0], 1, tolerance=0.0, described="this")
    seen = [known.unproved for known in law.looks()]
    # Clopper–Pearson, none missed.
    bounds = [1.0 - (FALSE_ALARM / 3) ** (1 / n) for n in CHECKS]
    assert seen == pytest.approx(bounds, rel=1e-9)


def test_tolerance_is_what_rounding_explains():
    def in_float32(p, q, d, u):
        return maximal(p.astype(np.float32).astype(np.float64), q, d, u)

    problem = otm.Problem(draft=[0.7, 0.3], target=[0.4, 0.6], law=otm.IID(1))
    found = audit.exact(in_float32, problem)
    assert (found.verdict, found.rounded) == ("rounding", 4 * 2.0**-24)
    assert "of which float32 in its arrays explains 2.4e-07" in found.headline
    assert audit.exact(in_float32, problem, tolerance=0.0).verdict == "not exact"
    allowed = audit.rounding_tolerance(2, 1, unit_roundoff=2.0**-24)
    assert audit.exact(in_float32, problem, tolerance=allowed).verdict == "lossless"
