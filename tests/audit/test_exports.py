"""Results for machines, and the counterexample as a test: each read back by what it is for."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import otm
from benchmarks.corpus import gaps, steps
from otm import audit
from otm.audit import exports
from tests.audit import callables


def test_json(failing: Any) -> None:
    found = json.loads(exports.as_json(failing))
    assert (found["name"], found["verdict"]) == ("one_uniform", "not lossless")
    assert found["coverage"]["line"] == str(failing.coverage)
    assert found["total_variation"] == failing.severity
    assert {
        entry["instance"] for entry in found["instances"] if entry["verdict"] == "not lossless"
    } == set(failing.failed)
    assert "def test_one_uniform" in found["counterexample"]["test"]


def test_junit(failing: Any) -> None:
    suite = ElementTree.fromstring(exports.as_junit(failing))
    cases = suite.findall("testcase")
    assert int(suite.get("tests") or 0) == len(cases) == len(failing.audits)
    assert {case.get("name") for case in cases if case.find("failure") is not None} == set(
        failing.failed
    )
    assert int(suite.get("failures") or 0) == len(failing.failed)
    assert (suite.findtext("system-out") or "").startswith("## `one_uniform`: not lossless")


def test_sarif(failing: Any) -> None:
    run = json.loads(exports.as_sarif(failing, callables.one_uniform))["runs"][0]
    (result,) = run["results"]
    assert result["ruleId"] in {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("tests/audit/callables.py")
    assert place["region"]["startLine"] > 1
    passed = audit.exact(
        callables.maximal, otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))
    )
    assert json.loads(exports.as_sarif(passed))["runs"][0]["results"] == []


@pytest.mark.parametrize("name", ["one_uniform", "one_uniform_for_all_positions"])
def test_the_counterexample_is_a_test_that_fails_until_it_is_mended(name: str) -> None:
    fault = getattr(callables, name)
    if name == "one_uniform":
        found: Any = audit.shrink(fault, law=otm.IID(2))
    else:
        found = audit.shrink_sequence(fault, num_drafts=[2])
    code = exports.as_test(found, f"tests.audit.callables:{name}")
    names: dict[str, Any] = {}
    exec(code, names)
    test = next(value for key, value in names.items() if key.startswith("test_"))
    with pytest.raises(AssertionError, match="not lossless"):
        test()
    names[name] = callables.recursive if name == "one_uniform" else callables.chain
    test()


def writes_at_temperature_one(draft: Any, target: Any, request: Any) -> list[list[int]]:
    text = request.input_ids[0].tolist()
    for _ in range(request.length):
        mass = otm.from_logits(target([text]).logits[0, -1])
        text.append(int(request.rng.choice(len(mass), p=mass)))
    return [text[-request.length :]]


def first_child(tree: Any, rng: Any) -> list[int]:
    return [int(tree.tokens[1])]


@pytest.mark.parametrize(
    ("candidate", "only"),
    [
        (audit.LogitCandidate(gaps.residual_before_temperature), "k=1), temperature 0.6"),
        (steps.shared_noise, "after the token before"),
        (first_child, "two siblings, far apart"),
        (audit.GenerationCandidate(writes_at_temperature_one), "temperature 0.6"),
    ],
    ids=["logits", "step", "tree", "generation"],
)
def test_the_counterexample_of_every_kind_runs_as_it_stands(candidate: Any, only: str) -> None:
    found = audit.battery(candidate, only=only).counterexample
    function = getattr(candidate, "verify", candidate)
    code = exports.as_test(found, f"{function.__module__}:{function.__name__}")
    names: dict[str, Any] = {}
    exec(code, names)
    test = next(value for key, value in names.items() if key.startswith("test_"))
    with pytest.raises(AssertionError, match="not lossless"):
        test()
    assert "standard_problems" not in code  # laws in numbers


def test_what_is_not_integrated_has_no_test() -> None:
    assert exports.as_test(audit.outputs(np.zeros(50, dtype=int), target=[0.5, 0.5]), "x") == ""
