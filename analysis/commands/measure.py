"""`otm measure`, `otm merge` and `otm report`: every scheme at every position, in a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from otm._machine.progress import say
from otm.commands.options import (
    SAMPLING,
    Seed,
    Settings,
    Temperatures,
    given_options,
    numbers,
    reals,
)

from ..errors import AnalysisError
from ..run import MOST_THREADS
from .options import (
    DRAFT_SAMPLING,
    TEXTS,
    Allow,
    Field,
    Limit,
    PairSource,
    Prompts,
    PromptTokens,
    Setting,
    TextTokens,
    Threads,
    grouped,
    models_of,
    output_option,
    sampling_of,
)

_OF_TRACES = frozenset(
    ["from-trace", "drafts", "shard-size", "shards", "workers", "threads", "scheduler", "allow"]
)
"""The options that mean something for a trace."""

SHARDS, FURTHER = "Shards and processes", "Further columns"


@grouped(
    models=models_of,
    otherwise=sampling_of,
    without=("temperature", "draft_temperature", "top_p"),
)
def measure(
    *,
    context: typer.Context,
    out: Annotated[Path, output_option("Folder of the run; an unfinished run there goes on.")],
    settings: Settings = None,
    from_trace: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Trace of top-m log-probabilities, instead of models and prompts."
        ),
    ] = None,
    positions: Annotated[
        Literal["text", "target", "draft", "on-policy"],
        typer.Option(
            help="Compare the models along the prompts, along sampled texts of one model, or where "
            "a decoder does."
        ),
    ] = "text",
    drafts: Annotated[Sequence[int] | None, numbers("Numbers of drafts (default: 1-8).")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Schemes and statistics, such as optimum_iid,kseq_iid,tv (default: all).",
        ),
    ] = None,
    seed: Seed = 0,
    precision: Annotated[
        Literal["float64", "float32"], typer.Option(help="Type of the softmax.")
    ] = "float64",
    allow: Allow = None,
    prompts: Prompts = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Data set of the datasets library, instead of --prompts: hub name or folder.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(metavar="NAME", help="Split of the data set.", rich_help_panel=TEXTS),
    ] = "train",
    field: Field = "text",
    limit: Limit = None,
    prompt_tokens: PromptTokens = 512,
    num_tokens: TextTokens = 64,
    block: Annotated[
        int,
        typer.Option(
            metavar="N", help="Drafts per block of the on-policy decoder.", rich_help_panel=TEXTS
        ),
    ] = 4,
    temperatures: Temperatures = None,
    draft_temperatures: Annotated[
        Sequence[float] | None,
        typer.Option(
            parser=reals,
            metavar="0,0.7,1",
            help="Temperatures of the draft, each with all of the target's.",
            rich_help_panel=DRAFT_SAMPLING,
        ),
    ] = None,
    top_ps: Annotated[
        Sequence[float] | None,
        typer.Option(
            parser=reals,
            metavar="0.9,1",
            help="Keep the likeliest tokens of these masses (default: 1, all tokens).",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    otherwise: Setting,
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds",
            help="The papers' bounds, γ*, index entropies and optimal trees.",
            rich_help_panel=FURTHER,
        ),
    ] = False,
    losses: Annotated[
        bool,
        typer.Option(
            "--losses",
            help="Loss of acceptance by cause; many times the work.",
            rich_help_panel=FURTHER,
        ),
    ] = False,
    nodes: Annotated[
        Sequence[int] | None,
        numbers(
            "With --positions target: tokens of a call by draft trees of these sizes; many times "
            "the work.",
            panel=FURTHER,
        ),
    ] = None,
    check: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Check columns and trees against samplers at N positions of a shard.",
            rich_help_panel=FURTHER,
        ),
    ] = 0,
    save_logits: Annotated[
        int,
        typer.Option(
            metavar="M",
            help="Keep the top M log-probabilities at temperature 1.",
            rich_help_panel=FURTHER,
        ),
    ] = 0,
    shard_size: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Prompts of a shard (default: 16), or positions of a trace (default: 4096).",
            rich_help_panel=SHARDS,
        ),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="START:STOP",
            help="Only these shards: one machine's share of a run.",
            rich_help_panel=SHARDS,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_THREADS,
            metavar="N",
            help="Local processes (default: by cores, memory and device).",
            rich_help_panel=SHARDS,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A Dask scheduler, instead of local processes.",
            rich_help_panel=SHARDS,
        ),
    ] = None,
    models: PairSource,
    threads: Threads = None,
) -> None:
    """Measure every batched scheme on real logits, position by position, into Parquet shards.

    A run can be repeated: otm measure --settings RUN/manifest.json --out AGAIN. The first
    --prompt-tokens tokens of a prompt are measured.
    """
    from ..run import resources, runs, scheduling, settings as of_run

    options = given_options(context)
    if from_trace is not None and (useless := sorted(options.keys() - _OF_TRACES)):
        raise AnalysisError(
            "A trace keeps the models, prompts, temperature, top-p and positions it was recorded "
            f"with; --from-trace goes without --{', --'.join(useless)}. Leave out what does not "
            "apply."
        )
    processes, per_process = resources.resources(
        out, models, workers=workers, threads=threads, scheduler=scheduler, trace=from_trace
    )
    asked: dict[str, Any] = {
        "settings": of_run.Settings(
            k=tuple(drafts or range(1, 9)),
            columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
            temperatures=tuple(temperatures or (1.0,)),
            draft_temperatures=tuple(draft_temperatures or ()),
            top_ps=tuple(top_ps or (1.0,)),
            otherwise=otherwise,
            positions="trace" if from_trace is not None else positions,
            seed=seed,
            max_tokens=prompt_tokens,
            new_tokens=num_tokens,
            block=block,
            shard_prompts=(4096 if from_trace else 16) if shard_size is None else shard_size,
            precision=precision,
            threads=per_process,
            save_logits=save_logits,
            bounds=bounds,
            check=check,
            losses=losses,
            trees=tuple(nodes or ()),
        ),
        "workers": scheduling.Workers(count=processes, scheduler=scheduler, apart=True),
        "share": None if shards is None else shard_range(shards),
        "allow": tuple(allow or ()),
        "options": options,
    }
    if from_trace is not None:
        summary = runs.measure_trace_file(out, trace=from_trace, **asked)
    else:
        source = _source(prompts, dataset, split=split, field=field, limit=limit)
        summary = runs.measure_prompts(out, source=source, models=models, **asked)
    _say(out, summary, checked=check > 0)


def _source(
    prompts: Path | None, dataset: str | None, *, split: str, field: str, limit: int | None
) -> Any:
    """Return the prompts of a file or of a data set."""
    from ..models.prompts import data_set, first_of, open_prompts

    if (prompts is None) == (dataset is None):
        raise AnalysisError(
            "A measurement needs either --prompts FILE or --dataset NAME; pass one of them."
        )
    if prompts is not None:
        return first_of(open_prompts(prompts, field=field), limit)
    return first_of(data_set(str(dataset), split=split, field=field), limit)


def _say(out: Path, summary: Any, *, checked: bool) -> None:
    """Print the result of a measurement."""
    rate = ""
    if summary.written:
        positions, rows = (count / summary.seconds for count in (summary.contexts, summary.rows))
        rate = f", {positions:,.0f} positions ({rows:,.0f} rows) per second"
    say(
        f"{out}: {summary.finished} of {summary.num_shards} shards, {summary.written} of them "
        f"now{rate}"
    )
    if checked and summary.written:
        say(f"checked  {summary.checked}", error=bool(summary.checked.failures))
    for found in summary.trees:
        say(str(found))


def shard_range(text: str) -> range:
    """Return the range written as START:STOP.

    >>> shard_range("2:5")
    range(2, 5)
    """
    start, _, stop = text.partition(":")
    if not (start.isdecimal() and stop.isdecimal() and int(start) < int(stop)):
        raise AnalysisError(f"shards must be START:STOP with 0 <= START < STOP; got {text!r}.")
    return range(int(start), int(stop))


def merge(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Parts of one run, with the same settings and software."
        ),
    ],
    out: Annotated[Path, output_option("Folder of the whole run.")],
    allow: Allow = None,
) -> None:
    """Merge the shards of one run that several machines have measured."""
    from ..run.merge import merge as merge_runs

    merged = merge_runs(runs, out, allow=tuple(allow or ()))
    missing = (
        f", {len(merged.missing)} missing (first: {merged.missing[0]})"
        if merged.missing
        else ", complete"
    )
    say(f"{out}: {merged.finished} shards{missing}")


def report(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder of a run, which may be unfinished."),
    ],
    out: Annotated[
        Path | None, output_option("Folder of report.html and report.md (default: the run's).")
    ] = None,
    latency: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Record of otm latency: the costs of passes here."),
    ] = None,
    advice: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Record of otm advise: an answer and measured costs."),
    ] = None,
) -> None:
    """Write a self-contained HTML page and a Markdown summary of a measured run."""
    from ..report.write import write_report

    files = write_report(run, out=out, latency=latency, advice=advice)
    for line in files.findings:
        say(line)
    say(f"page     {files.html}")
    say(f"summary  {files.markdown}")
