"""A result for machines: JSON, JUnit and SARIF for what reads tests and findings, and a
counterexample as a test to keep.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import textwrap
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from otm.audit.batteries import BatteryAudit
from otm.audit.report import PASSED, Audit, SingleAudit

_LEVELS = {"not lossless": "error", "fault": "error", "raised": "error"}
_FAILURES = ("not lossless", "fault")
_RULES = {
    "not lossless": "The output of this verifier does not have the target's law.",
    "fault": "This text differs from that without speculation by more than rounding.",
    "raised": "This verifier raised on inputs that are valid.",
    "not exact": "The output deviates from the target's law by the size of an ε of the code.",
    "little power": "Nothing was found, and only a large deviation would have been.",
    "undecided": "The law of the output could not be told from the target's, nor shown to be it.",
    "no verdict": "There was too little to find what was asked for.",
}


def as_json(audit: Audit, path: str = "") -> str:
    """Return verdict, coverage and figures as JSON; numbers that JSON lacks are null.

    The path is what a test imports the callable by, where that is not the audit's name.

    >>> import otm
    >>> json.loads(as_json(otm.audit.outputs([0, 1] * 50, target=[0.5, 0.5])))["verdict"]
    'no verdict'
    """
    coverage = dataclasses.asdict(audit.coverage) | {"line": str(audit.coverage)}
    found: dict[str, Any] = {
        "name": audit.name,
        "verdict": audit.verdict,
        "coverage": coverage,
        "total_variation": _plain(audit.severity),
        "instances": [
            {
                "instance": label,
                "verdict": single.verdict,
                "total_variation": _plain(single.severity),
                "shown": single.row(),
            }
            for label, single in audit.parts.items()
        ],
    }
    if isinstance(audit, BatteryAudit):
        found["false_alarm"] = audit.false_alarm
        found["left_out"] = audit.left_out
        found["several_steps"] = {
            noise: {"verdict": single.verdict, "total_variation": _plain(single.severity)}
            for noise, single in audit.steps.items()
        }
        if audit.counterexample is not None:
            found["counterexample"] = {
                "total_variation": _plain(audit.counterexample.severity),
                "report": audit.counterexample.figures(),
                "test": as_test(audit.counterexample, path or audit.name),
            }
    return json.dumps(found, ensure_ascii=False, indent=2)


def as_junit(audit: Audit) -> str:
    """Return a JUnit report: a test case for each instance, failed if not lossless, an error if
    nothing can be said.

    >>> import otm
    >>> ElementTree.fromstring(
    ...     as_junit(otm.audit.outputs([0] * 50, target=[0.5, 0.5], name="coin"))
    ... ).get("failures")
    '1'
    """
    parts = audit.parts
    verdicts = [single.verdict for single in parts.values()]
    failures = sum(verdict in _FAILURES for verdict in verdicts)
    errors = sum(verdict not in PASSED for verdict in verdicts) - failures
    counts = {"tests": str(len(parts)), "failures": str(failures), "errors": str(errors)}
    suite = ElementTree.Element("testsuite", {"name": f"otm audit {audit.name}", **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("verdict", audit.verdict), ("coverage", str(audit.coverage))):
        ElementTree.SubElement(properties, "property", name=name, value=value)
    for label, single in parts.items():
        case = ElementTree.SubElement(suite, "testcase", classname=audit.name, name=label)
        if single.verdict not in PASSED:
            tag = "failure" if single.verdict in _FAILURES else "error"
            outcome = ElementTree.SubElement(
                case, tag, message=f"{single.verdict}: total variation {single.row()[0]}"
            )
            outcome.text = single.figures()
    ElementTree.SubElement(suite, "system-out").text = str(audit)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def as_sarif(audit: Audit, function: object = None) -> str:
    """Return a SARIF 2.1.0 log: one finding at the callable unless it passed.

    >>> import otm
    >>> json.loads(as_sarif(otm.audit.outputs([0] * 50, target=[0.5, 0.5])))["runs"][0]["results"][
    ...     0
    ... ]["level"]
    'error'
    """
    result: dict[str, Any] = {
        "ruleId": audit.verdict.replace(" ", "-"),
        "level": "none" if audit.verdict in PASSED else _LEVELS.get(audit.verdict, "warning"),
        "message": {
            "text": f"{audit.name}: {audit.verdict}. Total variation {audit.severity:.6g}. "
            f"{audit.coverage}",
            "markdown": str(audit),
        },
    }
    place = _place(function)
    if place is not None:
        file, line = place
        result["locations"] = [
            {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": line}}}
        ]
    rules = [
        {"id": name.replace(" ", "-"), "shortDescription": {"text": text}}
        for name, text in _RULES.items()
    ]
    run = {
        "tool": {"driver": {"name": "otm audit", "rules": rules}},
        "results": [] if audit.verdict in PASSED else [result],
    }
    return json.dumps({"version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=2)


def as_test(audit: SingleAudit, name: str) -> str:
    """Return a counterexample as a test of pytest, which fails until the callable is mended.

    Args:
        audit: of one problem or one pair of models, integrated, or of a step, tree or generation on
            an instance of `battery`.
        name: of the callable, "module:function" if it is known.

    Returns:
        Python; "" for an audit of another kind.

    >>> import otm
    >>> problem = otm.Problem(draft=[1.0, 0.0], target=[0.0, 1.0], law=otm.IID(1))
    >>> print(
    ...     as_test(
    ...         otm.audit.exact(lambda p, q, drafts, uniforms: int(drafts[0]), problem),
    ...         "kernels:trusting",
    ...     )
    ... )
    import otm
    from kernels import trusting
    <BLANKLINE>
    <BLANKLINE>
    def test_trusting_on_the_smallest_problem_found() -> None:
        # where this passes by itself, the code keeps state between calls
        problem = otm.Problem(draft=[1.0, 0.0], target=[0.0, 1.0], law=otm.IID(k=1))
        result = otm.audit.exact(trusting, problem)
        assert result.verdict == "lossless", str(result)
    """
    module, _, function = name.rpartition(":")
    short = function.rpartition(".")[2]
    called = function if short.isidentifier() else "verify"
    imported = (
        f"from {module} import {called.partition('.')[0]}" if module else f"# import {called} here"
    )
    if not audit.again:
        return ""
    used = {
        "np.": "import numpy as np\n",
        "otm.": "import otm\n",
        "standard_problems.": "from otm.audit import standard_problems\n",
    }
    head = "".join(line for name, line in used.items() if name in audit.again) + imported
    alone = "# where this passes by itself, the code keeps state between calls\n"
    body = alone + audit.again.format(called) + '\nassert result.verdict == "lossless", str(result)'
    test = f"def test_{called.rpartition('.')[2]}_on_the_smallest_problem_found() -> None:"
    return "\n".join([head, "", "", test, textwrap.indent(body, "    ")])


def test_to_keep(audit: BatteryAudit, name: str) -> str:
    """Return the counterexample of a battery as a section with a test, "" without one."""
    if audit.counterexample is None:
        return ""
    return f"\n\n```python\n{as_test(audit.counterexample, name)}\n```"


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _place(function: object) -> tuple[str, int] | None:
    """Return file, relative to the working directory where it lies below it, and line of a
    callable.
    """
    source: Any = getattr(function, "verify", function)
    try:
        path, line = Path(inspect.getsourcefile(source) or ""), inspect.getsourcelines(source)[1]
    except (TypeError, OSError):
        return None
    here = Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix(), max(1, line)
