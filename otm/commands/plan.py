"""``otm plan``: from an engine's record of acceptance to a number of drafts, on one screen.

Exit status: 0 answered, 2 the record or the costs cannot be read. What is printed stands in
`plan_report`, which is imported when the command runs.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from otm.commands.printing import print_report
from otm.errors import OtmError


def register(commands: Any) -> None:
    """Add the command to a parser's commands."""
    plan: argparse.ArgumentParser = commands.add_parser(
        "plan",
        help="how many drafts pay, from an engine's record of acceptance?",
        epilog=(
            "Records: counters, logs, JSON or CSV of vLLM, SGLang, TensorRT-LLM, llama.cpp, "
            "AIPerf, SpecForge, speculators (docs/records.md). Exit status: 0 answered, 2 not "
            "carried out."
        ),
    )
    plan.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="what the engine wrote, of one form, which is recognised; - for standard input",
    )
    plan.add_argument("--since", metavar="FILE", help="an earlier scrape, which is taken off")
    plan.add_argument(
        "--drafts", type=int, metavar="L", help="most drafts a step, where a mean does not say it"
    )
    plan.add_argument("--draft-ms", type=float, metavar="MS", help="one draft step")
    plan.add_argument(
        "--target-ms",
        metavar="MS",
        help="one target call, or by number of drafts checked, 0 among them: 0:20,4:21,8:24",
    )
    plan.add_argument(
        "--times",
        action="store_true",
        help="take a step's time from the record, beside --target-ms without speculation",
    )
    plan.add_argument(
        "--costs",
        nargs="+",
        metavar="COSTS",
        help="measured costs instead: records of `latency` or `advise`, or JSON",
    )
    plan.add_argument(
        "--batch", type=int, nargs="+", metavar="N", help="batch sizes (default: the measured ones)"
    )
    plan.add_argument(
        "--context",
        type=int,
        nargs="+",
        metavar="N",
        help="context lengths (default: the measured ones)",
    )
    plan.add_argument(
        "--extend",
        type=int,
        metavar="L",
        help="go on to L drafts at the last measured position's rate",
    )
    plan.add_argument(
        "--extrapolate-costs", action="store_true", help="continue costs beyond what was measured"
    )
    plan.add_argument(
        "--confidence", type=float, default=0.95, help="of the intervals (default: %(default)s)"
    )
    plan.add_argument(
        "--json", action="store_true", help="print the answer's numbers as JSON instead of words"
    )
    plan.add_argument(
        "--settings",
        choices=("vllm",),
        help="print draft lengths by batch size for this engine, as JSON, instead of the answer",
    )


def run(options: argparse.Namespace) -> int:
    """Print the answer that the options ask for and return the exit status."""
    from otm.commands import plan_report  # noqa: PLC0415  # --help needs none of it

    try:
        return 0 if print_report(plan_report.answer(options), command="plan") else 2
    except OtmError as error:
        print(f"otm plan: {error}", file=sys.stderr)
        return 2
