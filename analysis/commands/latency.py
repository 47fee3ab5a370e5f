"""`python -m analysis latency`: how long forward passes of both models take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import say

from ..models.source import PairSource
from .options import AnyLoad, Threads, grouped, integers, output_option, use_threads


@grouped
def latency(
    *,
    out: Annotated[Path, output_option("The JSON file to write.")] = Path("latency.json"),
    models: PairSource,
    lengths: Annotated[
        str, typer.Option(help="New tokens per sequence, comma-separated, 4 among them.")
    ] = "1,2,3,4,5,6,7,8",
    batches: Annotated[
        str, typer.Option(help="Sequences in a pass, comma-separated, 1 among them.")
    ] = "1,2,4,8",
    context: Annotated[
        int, typer.Option(min=1, help="Tokens that are cached before each pass.")
    ] = 128,
    nodes: Annotated[
        str, typer.Option(help="Sizes of draft trees, comma-separated, 0 among them.")
    ] = "0,1,2,4,8,16,32,64",
    seconds: Annotated[float, typer.Option(min=0.0, help="How long to measure.")] = 60.0,
    threads: Threads = None,
    any_load: AnyLoad = False,
) -> None:
    """Time passes over length x batch (SpecTr Tables 1 and 3) and over draft trees."""
    from ..models.latency import Grid, latency_table, write_latency
    from ..models.names import SIDES
    from ..models.source import load_source

    grid = Grid(
        lengths=tuple(integers(lengths, name="lengths")),
        batches=tuple(integers(batches, name="batches")),
        nodes=tuple(integers(nodes, name="nodes", minimum=0)),
        context=context,
    )
    use_threads(threads)
    pair = load_source(models)
    record = write_latency(pair, out, grid=grid, seconds=seconds, any_load=any_load)
    say(latency_table(record))
    for side in SIDES:
        shown = ", ".join(
            f"{count}: {1e3 * cell['median']:.1f}"
            for count, cell in zip(record["nodes"], record["tree"][side], strict=True)
        )
        say(f"{side:<7} milliseconds by tree nodes  {shown}")
    say(f"record  {out}")
