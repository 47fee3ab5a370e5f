"""`python -m analysis measure`, `merge` and `report`: every scheme at every position, in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import say

from ..errors import AnalysisError
from ..models.processing import Setting
from ..models.source import PairSource
from .options import grouped, integers, output_option

_OF_TRACES = {
    "out",
    "from_trace",
    "k",
    "shard_size",
    "shards",
    "workers",
    "threads",
    "scheduler",
    "allow",
}
"""The options that mean something for a trace."""


@grouped
def measure(
    *,
    context: typer.Context,
    out: Annotated[Path, output_option("Folder of the run; an unfinished run there goes on.")],
    models: PairSource,
    prompts: Annotated[
        Path | None, typer.Option(help="Text (one prompt per line), .jsonl or .parquet.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set of the datasets library: hub name or folder.")
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the data set.")] = "train",
    field: Annotated[str, typer.Option(help="Field or column with the prompt.")] = "text",
    from_trace: Annotated[
        Path | None, typer.Option(help="Trace of top-m log-probabilities, instead of models.")
    ] = None,
    positions: Annotated[
        str, typer.Option(help="text, target, draft or on-policy: where the models are compared.")
    ] = "text",
    k: Annotated[str, typer.Option(help="Numbers of drafts, such as 1-8 or 1,2,4,8.")] = "1-8",
    columns: Annotated[
        str | None,
        typer.Option(
            help="Schemes and statistics by name, comma-separated, such as "
            "optimum_iid,kseq_iid,tv; half the time without "
            "the races. Default: all."
        ),
    ] = None,
    temperature: Annotated[
        str, typer.Option(help="Sampling temperatures of both models, comma-separated.")
    ] = "1.0",
    draft_temperature: Annotated[
        str | None,
        typer.Option(
            help="Temperatures of the draft alone, each with every --temperature and --top-p. "
            "Default: the target's."
        ),
    ] = None,
    top_p: Annotated[
        str, typer.Option(help="Nucleus masses of both models, comma-separated; 1.0 keeps all.")
    ] = "1.0",
    otherwise: Setting,
    seed: Annotated[int, typer.Option(help="Seed of sampled paths.")] = 0,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a prompt that are used.")] = 512,
    new_tokens: Annotated[
        int, typer.Option(help="Tokens sampled after each prompt, along sampled paths.")
    ] = 64,
    block: Annotated[int, typer.Option(help="Drafts per block of the on-policy decoder.")] = 4,
    precision: Annotated[
        str, typer.Option(help="Softmax of the analysis: float64 or float32.")
    ] = "float64",
    shard_size: Annotated[
        int | None,
        typer.Option(
            help="Prompts per shard (default 16), or positions of a trace (default 4096)."
        ),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            help="START:STOP: only these shards of --shard-size prompts, as far as there are any: "
            "one machine's share."
        ),
    ] = None,
    save_logits: Annotated[
        int, typer.Option(help="Keep the top M log-probabilities at temperature 1, without top-p.")
    ] = 0,
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds",
            help="The papers' bounds, γ* and index entropies at every position; optimal trees "
            "beside Tunstall's bound.",
        ),
    ] = False,
    check: Annotated[
        int,
        typer.Option(
            min=0, help="Check columns and trees against samplers at N positions of a shard."
        ),
    ] = 0,
    losses: Annotated[
        bool,
        typer.Option(
            "--losses",
            help="What acceptance is lost to as well: vocabulary, filters, ranking, temperature, "
            "rounding. Many times the work.",
        ),
    ] = False,
    trees: Annotated[
        str | None,
        typer.Option(
            help="With --positions target: drafted tokens, such as 24 or 8,64. Tokens of a call by "
            "trees on shared noise, likeliest trees and refined scores as well, wherever eight "
            "more tokens follow. Many times the work."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Local processes. Default: by cores, memory and device.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads per process; part of what a run is.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, instead of local processes.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="Place where an existing run may differ.")
    ] = None,
) -> None:
    """Measure every batched scheme on real logits, position by position, into Parquet shards."""
    if from_trace is not None:
        _check_trace_options(context)
    from ..models.prompts import data_set, open_prompts
    from ..run.resources import resources
    from ..run.runs import measure_prompts, measure_trace_file
    from ..run.scheduling import Workers
    from ..run.settings import Settings

    processes, per_process = resources(
        out, models, workers=workers, threads=threads, scheduler=scheduler, trace=from_trace
    )
    settings = Settings(
        k=tuple(integers(k)),
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        temperatures=reals(temperature, "temperature"),
        draft_temperatures=()
        if draft_temperature is None
        else reals(draft_temperature, "draft-temperature"),
        top_ps=reals(top_p, "top-p"),
        otherwise=otherwise,
        positions="trace" if from_trace is not None else positions,
        seed=seed,
        max_tokens=max_tokens,
        new_tokens=new_tokens,
        block=block,
        shard_prompts=shard_size
        if shard_size is not None
        else (4096 if from_trace is not None else 16),
        precision=precision,
        threads=per_process,
        save_logits=save_logits,
        bounds=bounds,
        check=check,
        losses=losses,
        trees=() if trees is None else tuple(integers(trees, name="trees")),
    )
    place = Workers(count=processes, scheduler=scheduler, apart=True)
    share = None if shards is None else shard_range(shards)
    differing = tuple(allow or ())
    if from_trace is not None:
        summary = measure_trace_file(
            out, trace=from_trace, settings=settings, workers=place, share=share, allow=differing
        )
    else:
        if (prompts is None) == (dataset is None):
            raise AnalysisError(
                "A measurement needs either --prompts FILE or --dataset NAME; pass one of them."
            )
        source = (
            open_prompts(prompts, field=field)
            if prompts is not None
            else data_set(str(dataset), split=split, field=field)
        )
        summary = measure_prompts(
            out,
            source=source,
            models=models,
            settings=settings,
            workers=place,
            share=share,
            allow=differing,
        )
    rate = ""
    if summary.written:
        positions_per_second, rows_per_second = (
            count / summary.seconds for count in (summary.contexts, summary.rows)
        )
        rate = f", {positions_per_second:,.0f} positions ({rows_per_second:,.0f} rows) per second"
    say(
        f"{out}: {summary.finished} of {summary.num_shards} shards, {summary.written} of them "
        f"now{rate}"
    )
    if check and summary.written:
        say(f"checked  {summary.checked}", error=bool(summary.checked.failures))
    for found in summary.trees:
        say(str(found))


def _check_trace_options(context: typer.Context) -> None:
    """Raise if an option was given that means nothing for a trace."""
    # By name: typer may bring a click of its own, whose enumeration is not the installed click's.
    given = [
        name
        for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    if useless := [f"--{name.replace('_', '-')}" for name in given if name not in _OF_TRACES]:
        raise AnalysisError(
            "A trace keeps the models, prompts, temperature, top-p and positions it was recorded "
            "with; --from-trace goes without "
            f"{', '.join(useless)}. Leave out what does not apply."
        )


def reals(text: str, name: str) -> tuple[float, ...]:
    """Read numbers separated by commas, ascending and without repetitions.

    >>> reals("1.0,0.7", "temperature")
    (0.7, 1.0)
    """
    try:
        return tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError as error:
        raise AnalysisError(
            f"{name} must be numbers separated by commas, such as 0.7,1.0; got {text!r}."
        ) from error


def shard_range(text: str) -> range:
    """Read START:STOP.

    >>> shard_range("2:5")
    range(2, 5)
    """
    try:
        start, stop = (int(part) for part in text.split(":"))
    except ValueError as error:
        raise AnalysisError(f"shards must be START:STOP, such as 0:100; got {text!r}.") from error
    if not 0 <= start < stop:
        raise AnalysisError(f"shards must be START:STOP with 0 <= START < STOP; got {text!r}.")
    return range(start, stop)


def merge(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Parts of one run, measured with the same settings and software."),
    ],
    out: Annotated[Path, output_option("Folder that will hold all their shards.")],
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Place where parts may differ, such as provenance.processor."),
    ] = None,
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
        typer.Argument(
            help="Folder that `measure` wrote; an unfinished run is reported as far as it is."
        ),
    ],
    out: Annotated[
        Path | None, output_option("Folder for report.html and report.md. Default: the run's.")
    ] = None,
    decode: Annotated[
        Path | None,
        typer.Option(help="Results file of `decode`: predicted against measured block efficiency."),
    ] = None,
    latency: Annotated[
        Path | None,
        typer.Option(help="Record of `latency`: what passes cost here, for the answer."),
    ] = None,
    advice: Annotated[
        Path | None,
        typer.Option(help="Record of `advise`: its answer, and the costs that it measured."),
    ] = None,
) -> None:
    """Write a self-contained HTML page and a Markdown summary of a measured run."""
    from ..report.write import write_report

    files = write_report(run, out=out, decode=decode, latency=latency, advice=advice)
    for line in files.findings:
        say(line)
    say(f"page     {files.html}")
    say(f"summary  {files.markdown}")
