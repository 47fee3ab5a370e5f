"""Results for machines: JSON, and a counterexample as a test to keep."""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from typing import Any

from otm.audit.batteries import BatteryAudit
from otm.audit.report import Audit


def as_json(audit: Audit, path: str = "", options: dict[str, Any] | None = None) -> str:
    """Return verdict, coverage and figures as JSON; numbers that JSON lacks are null.

    The path is what a test imports the callable by, where that is not the audit's name; the options
    are the command's, by name.

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
    found |= {} if options is None else {"options": options}
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


def as_test(audit: Audit, name: str) -> str:
    """Return a counterexample as a test of pytest, which fails until the callable is mended.

    Args:
        audit: of one problem or one pair of models, integrated, or of a step, tree or generation on
            an instance of `battery`.
        name: of the callable, "module:function" if it is known.

    Returns:
        Python; "" for an audit of another kind.

    >>> import otm
    >>> problem = otm.Problem(draft=[1.0, 0.0], target=[0.0, 1.0], law=otm.IID(1))
    >>> audit = otm.audit.exact(lambda p, q, drafts, uniforms: int(drafts[0]), problem)
    >>> print(as_test(audit, "kernels:trusting"))
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
