"""Batteries: correct verifiers pass every standard instance, faults bring a counterexample, false
alarms are shared.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit import standard_problems
from otm.audit.batteries import BatteryAudit
from otm.tracing.answers import CandidateFailure
from tests.audit.callables import (
    block,
    chain,
    no_bonus,
    off_by_one,
    one_uniform_for_all_positions,
    recursive,
)

SECONDS = 120.0
"""Enough on a busy machine; a few are used."""

PROBLEM = otm.Problem(draft=[0.5, 0.5], target=[0.25, 0.75], law=otm.IID(1))


@pytest.mark.parametrize("law", [otm.IID(1), otm.IID(2), otm.IID(3)], ids=repr)
def test_a_correct_callable_passes_every_standard_instance(law: otm.Law) -> None:
    result = audit.battery(recursive, only="exact", laws=[law], seconds=SECONDS)
    assert result.verdict == "lossless", result
    for single in result.audits.values():
        assert math.isclose(
            single.membership,
            otm.acceptance(otm.RecursiveRejection(), single.problem),
            abs_tol=1e-13,
        )


def test_a_battery_brings_a_counterexample(failing: BatteryAudit) -> None:
    text = str(failing)
    assert "not lossless" in text.splitlines()[0]
    assert "### Minimal counterexample" in text
    assert all(label in text for label in failing.failed)


@pytest.mark.parametrize("verify", [chain, block, no_bonus])
def test_correct_verifiers_pass(verify: Any) -> None:
    assert audit.battery(verify, only="exact", seconds=SECONDS).verdict == "lossless"


@pytest.mark.parametrize(
    ("verify", "position"),
    [(one_uniform_for_all_positions, 2), (off_by_one, 1)],
    ids=["one uniform for all positions", "target one position late"],
)
def test_faults_of_position_are_found_and_shrunk(verify: Any, position: int) -> None:
    result = audit.battery(verify, only="exact", seconds=SECONDS)
    assert result.verdict == "not lossless"
    found = result.counterexample
    assert (found.verdict, found.first_position) == ("not lossless", position)
    assert found.law.shape[0] == 2
    assert all(b >= a - 1e-15 for a, b in itertools.pairwise(found.prefix_variations))


def test_the_battery_shares_its_false_alarms() -> None:
    result = audit.battery(
        otm.Maximal(), only="sampled", seconds=SECONDS, seed=12, errors=audit.Errors(detect=0.2)
    )
    assert result.verdict == "no difference found"
    assert math.isclose(sum(single.errors.false_alarm for single in result.audits.values()), 1e-9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"laws": []}, "at least one draft law"),
        ({"laws": 3}, "at least one draft law"),
        ({"only": [3]}, "a name of checks"),
        ({"only": "exact", "laws": [otm.WithoutReplacement(50)]}, "too few tokens"),
        ({"num_drafts": []}, "num_drafts must name at least one"),
    ],
)
def test_a_battery_of_nothing_is_refused(options: Any, said: str) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        audit.battery(recursive, **options)


def test_what_is_undecided_is_listed() -> None:
    """Two equally likely tokens by the sum of two uniforms: lossless where the target is even, and
    the halving cannot say so.
    """
    problems = dict(standard_problems.problems_under(otm.IID(1)))
    audits: dict[str, Any] = {
        name: audit.exact(lambda p, q, drafts, u: int(u[0] + u[1] < 1), problems[name])
        for name in ("two tokens", "three tokens")
    }
    result = BatteryAudit(name="halves", audits=audits)
    assert result.audits["two tokens"].verdict == "undecided"
    assert result.verdict == "not lossless"  # elsewhere
    assert "\n\nUndecided: two tokens" in str(result)


class TestDefaults:
    """What a battery finds unless it is asked for something else."""

    def test_a_correct_one_is_lossless_and_the_samples_beside_take_nothing_from_it(self) -> None:
        errors = audit.Errors(detect=0.15)
        result = audit.battery(recursive, seconds=SECONDS, errors=errors)
        assert result.verdict == "lossless"
        assert {single.verdict for single in result.audits.values()} == {
            "lossless",
            "no difference found",
        }
        assert 0.0 < result.false_alarm <= 1e-9
        assert (result.uncovered, result.counterexample) == ((), None)
        assert result.coverage.drafts == tuple(range(1, 9))
        assert max(result.coverage.vocabulary) == 2_000

    @pytest.mark.parametrize(
        ("verify", "options", "where"),
        [
            (  # any second draft is accepted
                lambda p, q, d, u: recursive(p, q, d, u) if len(d) < 2 else (int(d[1]), True),
                {},
                r"IID\(k=[2-8]\)",
            ),
            (  # nothing of what is integrated has more than 64 tokens
                lambda p, q, d, u: recursive(p, q, d, u) if len(p) <= 64 else int(d[0]),
                {"laws": [otm.IID(1)]},
                "long tail of 2,000",
            ),
            (  # a draft of probability above .999 is taken at once
                lambda p, q, d, u: int(d[0]) if p[d[0]] > 0.999 else recursive(p, q, d, u),
                {"laws": [otm.IID(1)]},
                "nearly certain|one draft token|one token each|9",
            ),
            (  # the bonus token comes from the row before its own
                lambda p, q, d, u: chain(p, np.concatenate([q[:-1], q[-2:-1]]), d, u),
                {"num_drafts": [1, 2]},
                "γ = [12]",
            ),
        ],
        ids=["second draft", "large vocabulary", "near certainty", "bonus token"],
    )
    def test_a_fault_is_found_where_it_is(self, verify: Any, options: Any, where: str) -> None:
        result = audit.battery(verify, shrink_for=0, **options)
        assert result.verdict == "not lossless"
        assert result.failed
        assert all(re.search(where, label) for label in result.failed)
        assert f"### {result.worst}" in str(result)

    @pytest.mark.parametrize("ignored", [1.0, 0.6])
    def test_logits_at_temperatures(self, ignored: float) -> None:
        """Lossless with the temperature asked for; with one of its own only there."""

        def verify(p: Any, q: Any, d: Any, u: Any, temperature: float) -> Any:
            return recursive(
                *(otm.from_logits(row, temperature=temperature) for row in (p, q)), d, u
            )

        assert audit.battery(audit.LogitCandidate(verify)).verdict == "lossless"
        fixed = audit.battery(
            audit.LogitCandidate(lambda p, q, d, u, temperature: verify(p, q, d, u, ignored)),
            shrink_for=0,
        )
        assert fixed.verdict == "not lossless"
        assert not any(label.endswith(f"temperature {ignored:g}") for label in fixed.failed)

    def test_randomness_of_its_own_is_sampled(self) -> None:
        own = np.random.default_rng(15)
        result = audit.battery(
            lambda p, q, d, u: int(
                np.searchsorted(np.cumsum(q), own.random() * q.sum(), side="right")
            ),
            laws=[otm.IID(1)],
            errors=audit.Errors(detect=0.2),
        )
        assert (result.verdict, result.coverage.detect) == ("no difference found", 0.2)
        assert result.summary().count(", samples | [0, ") == len(result.audits) > 1
        assert {means for means, _ in result.coverage.by} == {"samples"}

    def test_numbers_of_drafts_that_a_callable_does_not_take_are_left_out(self) -> None:
        def single(p: Any, q: Any, d: Any, u: Any) -> Any:
            (x,) = d
            return recursive(p, q, np.array([x]), u)

        result = audit.battery(single)
        assert result.verdict == "lossless"
        assert result.coverage.drafts == (1,)
        (refused,) = (why for why in result.left_out if "too many values to unpack" in why)
        assert refused.startswith("2 drafts by IID, 3 drafts by IID, 4 drafts")
        with pytest.raises(CandidateFailure):
            audit.battery(single, laws=[otm.IID(2)])

    def test_what_is_raised_by_chance_is_no_refusal(self) -> None:
        """By every second draft after a rejection, or where two drafts coincide."""

        def rarely(p: Any, q: Any, d: Any, u: Any) -> Any:
            if len(d) > 1 and d[0] == d[1] and u[0] > 0.99:
                raise FloatingPointError("rare")
            return recursive(p, q, d, u)

        result = audit.battery(rarely, only=["IID(k=1)", "IID(k=2)"], shrink_for=0)
        assert result.verdict == "raised"
        assert result.headline.startswith("raised on ")
        assert "FloatingPointError: rare (" in str(result)

    def test_a_residual_that_is_not_updated_after_the_third_rejection_is_found(self) -> None:
        def three(p: Any, q: Any, d: Any, u: Any) -> Any:
            rest = np.array(q)
            for i, x in enumerate(d):
                if u[i] * p[x] < rest[x]:
                    return int(x)
                if i < 3:
                    rest = np.maximum(rest - p, 0.0) / np.maximum(rest - p, 0.0).sum()
            return int(np.searchsorted(np.cumsum(rest), u[-1], side="right"))

        result = audit.battery(three, only="later residuals, IID(k=4)", shrink_for=0)
        assert result.verdict == "not lossless"

    def test_the_wrong_kind_is_named(self) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="a verifier of blocks"):
            audit.exact(audit.BlockCandidate(chain), PROBLEM)
