"""Batteries: correct verifiers pass every standard instance, faults bring a counterexample, false alarms are shared."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import otm
from otm import audit
from tests.audit.callables import block, chain, no_bonus, off_by_one, one_uniform, one_uniform_for_all_positions, recursive


@pytest.mark.parametrize("law", [otm.IID(1), otm.IID(2), otm.IID(3)], ids=repr)
def test_a_correct_callable_passes_every_standard_instance(law: otm.Law) -> None:
    result = audit.exact_battery(recursive, laws=[law])
    assert result.verdict == "lossless", result
    for single in result.audits.values():
        assert math.isclose(single.membership, otm.acceptance(otm.RecursiveRejection(), single.problem), abs_tol=1e-13)


def test_a_battery_brings_a_counterexample() -> None:
    result = audit.exact_battery(one_uniform, laws=[otm.IID(2)])
    assert result.verdict == "not lossless"
    assert result.counterexample is not None
    text = str(result)
    assert "### Minimal counterexample" in text
    assert "not lossless" in text.splitlines()[0]
    for label in result.failed:
        assert label in text


@pytest.mark.parametrize("verify", [chain, block, no_bonus])
def test_correct_verifiers_pass(verify: Any) -> None:
    assert audit.sequence_battery(verify).verdict == "lossless"


@pytest.mark.parametrize(
    ("verify", "position"),
    [(one_uniform_for_all_positions, 2), (off_by_one, 1)],
    ids=["one uniform for all positions", "target one position late"],
)
def test_faults_of_position_are_found_and_shrunk(verify: Any, position: int) -> None:
    result = audit.sequence_battery(verify)
    assert result.verdict == "not lossless"
    found = result.counterexample
    assert found is not None
    assert found.verdict == "not lossless"
    assert found.first_position == position
    assert found.law.shape[0] == 2
    assert "### Minimal counterexample" in str(result)
    variations = found.prefix_variations
    assert all(b >= a - 1e-15 for a, b in itertools.pairwise(variations))


def test_the_battery_shares_its_false_alarms() -> None:
    result = audit.sampled_battery(otm.Maximal(), rng=np.random.default_rng(12), detect=0.2)
    assert result.verdict == "no difference found"
    assert math.isclose(sum(single.false_alarm for single in result.audits.values()), 1e-9)
    worse = audit.sampled_battery(otm.Lenience(0.5), rng=np.random.default_rng(13), detect=0.2)
    assert worse.verdict == "not lossless"
    assert "not lossless" in str(worse)


def test_a_battery_of_nothing_is_refused() -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="at least one draft law"):
        audit.exact_battery(recursive, laws=[])
    with pytest.raises(otm.errors.InvalidParameter, match="too few tokens"):
        audit.exact_battery(recursive, laws=[otm.WithoutReplacement(50)])
    with pytest.raises(otm.errors.InvalidParameter, match="at least one length"):
        audit.sequence_battery(chain, num_drafts=[])


def test_what_is_undecided_is_listed() -> None:
    """Two equally likely tokens by the sum of two uniforms: lossless where the target is even, and the halving cannot say so."""
    result = audit.exact_battery(lambda p, q, drafts, uniforms: int(len(q) > 1 and uniforms[0] + uniforms[1] < 1))
    assert result.audits["two tokens, IID(k=1)"].verdict == "undecided"
    assert result.verdict == "not lossless"  # elsewhere
    assert "\n\nUndecided: two tokens, IID(k=1)" in str(result)
