"""Broken verifiers: stated errors in fractions, and both modes of audit."""

import numpy as np
import pytest

import otm
from evidence.corpus import BROKEN, CONTROLS
from evidence.corpus.report import exact_of
from evidence.corpus.usual_tests import sampled_of
from otm import audit
from otm.audit.integration import ExactAudit
from otm.audit.report import FAILED


@pytest.mark.parametrize("mutant", BROKEN, ids=lambda m: m.name)
def test_exact_audit_finds_it_and_gives_the_stated_figure(mutant):
    """A dozen sums of at most eight products near 1: 1e-14 is forty roundings."""
    result = exact_of(mutant)
    assert result.verdict in FAILED
    assert (result.method, result.error) == ("traced", 0.0)
    assert result.total_variation == pytest.approx(float(mutant.total_variation), abs=1e-14)


@pytest.mark.parametrize("mutant", BROKEN, ids=lambda m: m.name)
def test_sampled_audit_finds_it(mutant):
    """TopK by the seed, and no luck: the plan finds a total variation of 0.02 with probability 1 −
    1e-3.

    Blocks have their own plan: 12,000 samples of 8 cells find (½·8·√(1/8·7/8) + 3.3 + 1.9)/√12000 <
    1/16. The clamp is met at V = 2^17, where an impossible token comes out with probability 1.3e-3
    and is an alarm at once.
    """
    found = sampled_of(mutant, rng=np.random.default_rng(7))
    if mutant.beyond_samples:
        assert found.verdict == "no difference found"
        assert mutant.total_variation < found.detect
    else:
        assert found.verdict == "not lossless"


@pytest.mark.parametrize("control", CONTROLS, ids=lambda m: m.name)
def test_controls_are_not_accused(control):
    """By the exact audit with certainty, by the sampled one but for a probability of 1e-9 (this
    seed is one draw of it).
    """
    assert exact_of(control).verdict == "lossless"
    assert sampled_of(control, rng=np.random.default_rng(8)).verdict == "no difference found"


def test_one_hot_draft_is_lossless_on_every_standard_instance_and_costs_acceptance():
    """Given x: x with probability q(x), else y ≠ x with (1 − q(x))·q(y)/(1 − q(x)): the law q
    whatever x is.
    """
    control = next(c for c in CONTROLS if c.name == "one-hot draft throughout")
    assert audit.battery(
        control.candidate, only="exact", laws=[otm.IID(1)], seconds=120.0
    ).verdict == ("lossless")
    result = exact_of(control)
    assert isinstance(result, ExactAudit)
    assert result.rule == pytest.approx(0.2475, abs=1e-15)  # Σ p q
    assert result.gap > 0.4


OUTSIDE = [
    m
    for m in BROKEN
    if isinstance(m.instance, otm.Problem)
    and (m.in_tests is not m.candidate or m.law_in_tests != m.instance.law)
]


def test_faults_outside_the_kernel_leave_a_correct_kernel():
    """Where a test of the kernel meets another function than the mutant, that function is lossless:
    nothing for it to find.
    """
    pair = {"draft": (0.2, 0.5, 0.3), "target": (0.55, 0.4, 0.05)}
    for mutant in OUTSIDE:
        result = audit.exact(mutant.in_tests, otm.Problem(**pair, law=mutant.law_in_tests))
        assert result.verdict == "lossless", mutant.name
    assert len(OUTSIDE) == 11


def test_sources_are_citations():
    assert len({mutant.name for mutant in BROKEN}) == len(BROKEN)
    assert all(mutant.sources for mutant in (*BROKEN, *CONTROLS))
