"""Batteries: correct verifiers pass every standard instance, faults bring a counterexample, false
alarms and time are shared.
"""

import dataclasses
import math
import re

import numpy as np
import pytest

import otm
from evidence.corpus.blocks import chain, hierarchy
from evidence.corpus.one_token import (
    accept_everything,
    draw,
    one_uniform_for_all_drafts as one_uniform,
    recursive_rejection as recursive,
)
from otm import audit
from otm.audit.batteries import BatteryAudit
from otm.audit.budget import Deadline, OutOfTime
from otm.audit.tracing.answers import CandidateFailure
from tests.audit.callables import as_floats, maximal

SECONDS = 120.0
"""Enough on a busy machine; a few are used."""


def test_a_correct_callable_passes_every_standard_instance():
    laws = [otm.IID(1), otm.IID(2)]
    result = audit.battery(recursive, only="exact", laws=laws, seconds=SECONDS)
    assert result.verdict == "lossless", result
    for single in result.audits.values():
        accepted = otm.acceptance(otm.RecursiveRejection(), single.problem)
        assert single.membership == pytest.approx(accepted, rel=0, abs=1e-13)


def test_a_correct_verifier_of_blocks_passes_every_standard_instance():
    assert (
        audit.battery(hierarchy, only="exact", num_drafts=[1, 2, 5], seconds=SECONDS).verdict
        == "lossless"
    )


def test_a_battery_brings_a_counterexample_that_is_small(failing):
    """A target that is drawn from after a rejection needs a draft that may be rejected, and two
    tokens that may follow.
    """
    text = str(failing)
    assert "not lossless" in text.splitlines()[0]
    assert "### Minimal counterexample" in text
    assert all(label in text for label in failing.failed)
    found = failing.counterexample
    assert (found.problem.draft.tolist(), found.problem.target.tolist()) == ([1, 0], [0.5, 0.5])


def test_a_clamp_shows_beyond_rounding_and_what_is_right_has_no_counterexample():
    """Draft probabilities clamped at 1e-8 leave a residual that is wrong in the ninth digit: of no
    small problem, but of a standard one, reduced.
    """
    found = audit.shrink(lambda p, q, d, u: maximal(np.maximum(p, 1e-8), q, d, u), budget=20)
    assert found is not None
    assert 1e-10 < found.total_variation < 1e-8
    second = audit.shrink(
        lambda p, q, d, u: d[1] if len(d) > 1 else maximal(p, q, d, u), law=otm.IID(2)
    )
    assert (second.problem.law, second.problem.num_tokens) == (otm.IID(2), 2)
    assert audit.shrink(maximal, budget=20) is None
    assert audit.shrink_sequence(chain, num_drafts=[1], budget=20) is None


def test_a_fault_that_no_small_problem_shows_is_reduced_from_a_standard_one():
    """The last token is taken as it is if it is rarely drafted: two tokens are left, the last with
    the largest 1/d below 1/5.
    """

    def rare(p, q, d, u):
        return (int(d[0]), True) if d[0] == len(p) - 1 and p[-1] < 0.2 else maximal(p, q, d, u)

    found = audit.shrink(rare, budget=5)
    assert found.verdict == "not lossless"
    assert found.problem.draft.tolist() == [5 / 6, 1 / 6]


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
def test_a_battery_of_nothing_is_refused(options, said):
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        audit.battery(recursive, **options)


def test_what_is_undecided_is_listed():
    """One law that is known to ± 1 % only, and one that is wrong."""
    problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    open_still = dataclasses.replace(audit.exact(maximal, problem), error=0.01)
    wrong = audit.exact(accept_everything, problem)
    result = BatteryAudit(name="halves", audits={"near": open_still, "far": wrong})
    assert (open_still.verdict, result.verdict) == ("undecided", "not lossless")
    assert (result.worst, result.failed) == ("far", {"far": wrong})
    assert "\n\nUndecided: near" in str(result)


def forgetful(p, q, drafts, uniforms):
    """Keep what is left after the third rejection."""
    rest = np.array(q)
    for i, x in enumerate(drafts):
        if uniforms[i] * p[x] < rest[x]:
            return int(x)
        if i < 3:
            rest = np.maximum(rest - p, 0.0) / np.maximum(rest - p, 0.0).sum()
    return draw(rest, uniforms[-1])


class TestDefaults:
    """What a battery finds unless it is asked for something else."""

    def test_a_correct_one_is_lossless_and_the_samples_beside_take_nothing_from_it(self):
        errors = audit.Errors(detect=0.3)
        result = audit.battery(recursive, seconds=SECONDS, errors=errors)
        verdicts = {single.verdict for single in result.audits.values()}
        assert (result.verdict, verdicts) == ("lossless", {"lossless", "no difference found"})
        assert math.isclose(result.false_alarm, 1e-9)  # shared by all samples
        assert (result.uncovered, result.counterexample) == ((), None)
        assert result.coverage.drafts == tuple(range(1, 9))
        assert max(result.coverage.vocabulary) == 2_000

    @pytest.mark.parametrize(
        ("verify", "options", "where"),
        [
            (  # any second draft is accepted
                lambda p, q, d, u: recursive(p, q, d, u) if len(d) < 2 else (int(d[1]), True),
                {"laws": [otm.IID(1), otm.IID(2)]},
                r"IID\(k=2\)",
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
            (forgetful, {"only": "later residuals, IID(k=4)"}, "later residuals"),
        ],
        ids=["second draft", "large vocabulary", "near certainty", "bonus token", "residual"],
    )
    def test_a_fault_is_found_where_it_is(self, verify, options, where):
        result = audit.battery(verify, shrink_for=0, **options)
        assert result.verdict == "not lossless"
        assert result.failed
        assert all(re.search(where, label) for label in result.failed)
        assert f"### {result.worst}" in str(result)

    def test_randomness_of_its_own_is_sampled(self):
        own, options = np.random.default_rng(15), {"errors": audit.Errors(detect=0.2)}
        result = audit.battery(
            lambda p, q, d, u: draw(q, own.random()), laws=[otm.IID(1)], **options
        )
        assert (result.verdict, result.coverage.detect) == ("no difference found", 0.2)
        assert result.summary().count(", samples | [0, ") == len(result.audits) > 1
        assert {means for means, _ in result.coverage.by} == {"samples"}

    def test_numbers_of_drafts_that_a_callable_does_not_take_are_left_out(self):
        def single(p, q, d, u):
            (x,) = d
            return maximal(p, q, [x], u)

        result = audit.battery(single, errors=audit.Errors(detect=0.3))
        assert (result.verdict, result.coverage.drafts) == ("lossless", (1,))
        (refused,) = (why for why in result.left_out if "too many values to unpack" in why)
        assert refused.startswith("2 drafts by IID, 3 drafts by IID, 4 drafts")
        with pytest.raises(CandidateFailure):
            audit.battery(single, laws=[otm.IID(2)])

    def test_what_is_raised_by_chance_is_no_refusal(self):
        """By every second draft after a rejection, or where two drafts coincide."""

        def rarely(p, q, d, u):
            if len(d) > 1 and d[0] == d[1] and u[0] > 0.99:
                raise FloatingPointError("rare")
            return recursive(p, q, d, u)

        result = audit.battery(rarely, only=["IID(k=1)", "IID(k=2)"], shrink_for=0)
        assert result.verdict == "raised"
        assert result.headline.startswith("raised on ")
        assert "FloatingPointError: rare (" in str(result)


class TestTime:
    """Time limits end an audit from within the candidate's calls, through everything that catches
    its errors.
    """

    @pytest.mark.parametrize("verify", [maximal, as_floats(maximal)])
    def test_time_that_is_up_is_no_failure_of_the_candidate(self, verify):
        problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))
        candidate = audit.TokenCandidate(verify).limited(Deadline(-1.0))
        with pytest.raises(OutOfTime):
            audit.exact(candidate, problem)
        assert audit.shrink(candidate) is None

    @pytest.mark.parametrize(
        ("candidate", "groups"),
        [
            (recursive, {"1 draft by IID", "2 drafts by IID", "3 drafts by IID"}),
            (audit.BatchCandidate(lambda p, q, d, rng: d[:, 0]), None),
        ],
        ids=["integrated", "in batches"],
    )
    def test_without_any_there_is_no_verdict_and_it_says_what_it_lacks(self, candidate, groups):
        result = audit.battery(candidate, seconds=0, shrink_for=0)
        assert (result.verdict, result.audits) == ("no verdict", {})
        assert "Nothing was tested" in str(result)
        assert str(result.coverage).startswith("Tested: nothing.\nNot tested: ")
        assert "with 1 draft by IID (time was up)" in str(result.coverage) or groups is None
        assert groups in (None, set(result.uncovered))

    def test_shrinking_without_time_leaves_the_smallest_standard_instance(self):
        result = audit.battery(
            one_uniform, only="exact", laws=[otm.IID(2)], seconds=SECONDS, shrink_for=1e-9
        )
        assert result.counterexample in result.failed.values()

    def test_what_nothing_contradicts_has_the_time_of_the_counterexample_too(self):
        """No time but that: what a verdict needs is tested, what it does not is left out."""
        errors = audit.Errors(detect=0.5)
        result = audit.battery(recursive, seconds=0, shrink_for=SECONDS, errors=errors)
        assert (result.verdict, result.coverage.drafts) == ("lossless", (1, 2, 3))
        assert any("with 8 drafts by IID (time was up)" in note for note in result.left_out)

    def test_a_call_that_does_not_come_back_is_ended(self):
        def endless(p, q, drafts, uniforms):
            while len(p) == 3:
                pass
            return recursive(p, q, drafts, uniforms)[0]

        result = audit.battery(endless, laws=[otm.IID(1)], only="token", seconds=1.0, shrink_for=0)
        assert result.verdict == "no verdict"
        assert "time was up" in str(result)
