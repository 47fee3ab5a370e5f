"""``otm plan``: from an engine's record of acceptance to a number of drafts, on one screen.

Exit status: 0 answered, 2 the record or the costs cannot be read, 130 interrupted before anything
was read. Sources, costs, answer and comparison have modules of their own, which are imported when
the command runs.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Annotated, Literal

import typer

from otm.commands.options import BatchSizes, Json, in_order, numbers
from otm.commands.printing import deliver, print_report

COSTS, TYPED = "Costs", "Numbers instead of a file"
COMPARED, LIVE = "Comparison instead of a plan", "Live view of an address"


def plan(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Records of one form: files, - for standard input, or http://HOST:PORT/metrics.",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="FILE", help="An earlier scrape, which is taken off.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plan for this model of several.")
    ] = None,
    drafts: Annotated[
        int | None,
        typer.Option(metavar="L", min=1, help="Most drafts a step, where a mean does not say it."),
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
    beside: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Compare with this record.", rich_help_panel=COMPARED),
    ] = None,
    against: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="Compare with this many tokens a call.", rich_help_panel=COMPARED
        ),
    ] = None,
    accepted: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Accepted drafts in all; needs --steps.", rich_help_panel=TYPED
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Verification steps in all; needs --accepted.", rich_help_panel=TYPED
        ),
    ] = None,
    mean: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Tokens a step, with the one that the target adds.",
            rich_help_panel=TYPED,
        ),
    ] = None,
    rates: Annotated[
        Sequence[float] | None,
        typer.Option(
            parser=in_order,
            metavar=".9,.8,.7",
            help="Shares of steps that accepted at least 1, 2, … drafts.",
            rich_help_panel=TYPED,
        ),
    ] = None,
    means: Annotated[
        str | None,
        typer.Option(
            metavar="3:2.6,7:2.9",
            help="Tokens a step by number of drafts.",
            rich_help_panel=TYPED,
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Fetch the page every 10s, say, until Ctrl-C, and print a line each time.",
            rich_help_panel=LIVE,
        ),
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="End after this many windows.", rich_help_panel=LIVE),
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
    token_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help="Milliseconds a token with speculation; needs --target-ms without.",
            rich_help_panel=COSTS,
        ),
    ] = None,
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
    SpecForge, speculators (docs/records.md). Exit status: 0 answered, 2 not carried out, 130
    interrupted.

    Example: otm plan vllm.log --draft-ms 2 --target-ms 20
    """
    # --help needs none of it
    from otm.commands.plan_compared import comparison  # noqa: PLC0415
    from otm.commands.plan_report import answer  # noqa: PLC0415
    from otm.commands.plan_sources import read_records  # noqa: PLC0415

    options = SimpleNamespace(**context.params)
    models = read_records(options)
    tell = answer if options.beside is None and options.against is None else comparison
    arrived = json == "-" or print_report(tell(options, models), command="plan")
    if json is not None:
        arrived &= deliver(json, tell(options, models, as_json=True), command="plan")
    return 0 if arrived else 2
