"""Results for machines, and the counterexample as a test: each read back by what it is for."""

from __future__ import annotations

import dataclasses
import json
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import otm
from benchmarks.corpus import blocks, gaps, one_token, steps, trees
from otm import audit
from otm.audit import exports
from otm.audit.templates import generate
from tests.audit.callables import carry_out


def test_json(failing: Any) -> None:
    found = json.loads(exports.as_json(failing, "kernels:verify"))
    assert (found["name"], found["verdict"]) == ("resample_target", "not lossless")
    assert found["coverage"]["line"] == str(failing.coverage)
    assert found["total_variation"] == failing.severity
    rows = found["instances"]
    verdicts = {entry["instance"]: entry["verdict"] == "not lossless" for entry in rows}
    assert verdicts == {name: name in failing.failed for name in failing.audits}
    assert found["counterexample"]["total_variation"] == failing.counterexample.severity
    assert "from kernels import verify" in found["counterexample"]["test"]


def test_junit(failing: Any) -> None:
    suite = ElementTree.fromstring(exports.as_junit(failing))
    failures = {
        case.get("name"): case.find("failure") is not None for case in suite.iter("testcase")
    }
    assert failures == {name: name in failing.failed for name in failing.audits}
    counts = [suite.get(name) for name in ("tests", "failures", "errors")]
    assert counts == ["6", "3", "1"]  # with two hardly different laws, by an ε of the code
    assert "`resample_target`: not lossless" in (suite.findtext("system-out") or "")


def test_sarif(failing: Any) -> None:
    log = exports.as_sarif(failing, one_token.resample_target)
    (run,) = json.loads(log)["runs"]
    (result,) = run["results"]
    assert result["ruleId"] in {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("benchmarks/corpus/one_token.py")
    assert place["region"]["startLine"] > 1
    even = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))
    passed = audit.exact(one_token.speculative_sampling, even)
    assert json.loads(exports.as_sarif(passed))["runs"][0]["results"] == []


def test_the_counterexample_is_a_test_that_fails_until_it_is_mended(failing: Any) -> None:
    """One of a token, and one of blocks, which fails from its second position on."""
    shared = audit.shrink_sequence(blocks.one_uniform_for_all_positions, num_drafts=[2])
    assert shared is not None
    assert (shared.num_drafts, shared.law.shape[0], shared.first_position) == (2, 2, 2)
    for found, fault, right in (
        (failing.counterexample, one_token.resample_target, one_token.speculative_sampling),
        (shared, blocks.one_uniform_for_all_positions, blocks.chain),
    ):
        path = f"{fault.__module__}:{fault.__name__}"
        with pytest.raises(AssertionError, match="not lossless"):
            carry_out(found, path)
        carry_out(found, path, **{fault.__name__: right})


def at_temperature_one(draft: Any, target: Any, request: Any) -> list[list[int]]:
    return generate.candidate(draft, target, dataclasses.replace(request, temperature=1.0))


@pytest.mark.parametrize(
    ("candidate", "only"),
    [
        (audit.LogitCandidate(gaps.residual_before_temperature), "k=1), temperature 0.6"),
        (steps.stale_row, "after the token before"),
        (
            audit.TreeCandidate(trees.youngest_first, siblings="without"),
            "two siblings, after the token before",
        ),
        (audit.GenerationCandidate(at_temperature_one), "temperature 0.6"),
    ],
    ids=["logits", "step", "tree", "generation"],
)
def test_the_counterexample_of_every_kind_runs_as_it_stands(candidate: Any, only: str) -> None:
    found = audit.battery(candidate, only=only).counterexample
    function = getattr(candidate, "verify", candidate)
    path = f"{function.__module__}:{function.__name__}"
    assert found is not None
    assert "standard_problems" not in exports.as_test(found, path)  # laws in numbers
    with pytest.raises(AssertionError, match="not lossless"):
        carry_out(found, path)


def test_what_is_not_integrated_has_no_test() -> None:
    assert exports.as_test(audit.outputs(np.zeros(50, dtype=int), target=[0.5, 0.5]), "x") == ""
