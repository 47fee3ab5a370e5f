"""``otm plan``: from an engine's record of acceptance to a number of drafts, on one screen.

Exit status: 0 answered, 2 the record or the costs cannot be read. The answer is made in
`plan_report`, which is imported when the command runs.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Annotated, Literal

import typer

from otm.commands.options import BatchSizes, Json, numbers
from otm.commands.printing import deliver, print_report

COSTS = "Costs"


def plan(
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Records of one form; - for standard input."),
    ],
    since: Annotated[
        str | None, typer.Option(metavar="FILE", help="An earlier scrape, which is taken off.")
    ] = None,
    max_drafts: Annotated[
        int | None,
        typer.Option(metavar="L", help="Most drafts a step, where a mean does not say it."),
    ] = None,
    extend: Annotated[
        int | None,
        typer.Option(
            metavar="L", help="Go on to L drafts at the rate of the last measured position."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(metavar="X", help="Confidence of the intervals.")
    ] = 0.95,
    json: Json = None,
    engine: Annotated[
        Literal["vllm"] | None,
        typer.Option(
            help="Print draft lengths by batch size for this engine instead of the answer."
        ),
    ] = None,
    draft_ms: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Milliseconds of one draft step.", rich_help_panel=COSTS),
    ] = None,
    target_ms: Annotated[
        str | None,
        typer.Option(
            metavar="MS",
            help="Milliseconds of one target call, or by number of drafts: 0:20,4:21,8:24.",
            rich_help_panel=COSTS,
        ),
    ] = None,
    times: Annotated[
        bool,
        typer.Option(
            "--times",
            help="Take a step's time from the record; needs --target-ms without speculation.",
            rich_help_panel=COSTS,
        ),
    ] = False,
    costs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Measured costs instead: a record of latency or advise, or JSON; may be repeated.",
            rich_help_panel=COSTS,
        ),
    ] = None,
    batch_sizes: BatchSizes = None,
    context_lengths: Annotated[
        Sequence[int] | None,
        numbers("Context lengths (default: the measured ones).", panel=COSTS),
    ] = None,
    extrapolate_costs: Annotated[
        bool,
        typer.Option(
            "--extrapolate-costs",
            help="Continue costs beyond the measured range.",
            rich_help_panel=COSTS,
        ),
    ] = False,
) -> int:
    """Plan draft lengths.

    Records: counters, logs, JSON or CSV of vLLM, SGLang, TensorRT-LLM, llama.cpp, AIPerf,
    SpecForge, speculators (docs/records.md). Exit status: 0 answered, 2 not carried out.
    """
    from otm.commands.plan_report import (  # noqa: PLC0415  # --help needs none of it
        answer,
        read_record,
    )

    options = SimpleNamespace(**context.params)
    record = read_record(options)
    arrived = json == "-" or print_report(answer(options, record), command="plan")
    if json is not None:
        arrived &= deliver(json, answer(options, record, as_json=True), command="plan")
    return 0 if arrived else 2
