"""`otm latency`: seconds of the forward passes of both models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import say
from otm.commands.options import BatchSizes, numbers

from .options import (
    AnyLoad,
    PairSource,
    Threads,
    grouped,
    models_of,
    output_file,
    use_threads,
)


@grouped(models=models_of, without=("chat_template",))
def latency(
    *,
    out: Annotated[Path, output_file("File of the record, JSON.")] = Path("latency.json"),
    lengths: Annotated[Sequence[int], numbers("New tokens per sequence, 4 among them.")] = tuple(
        range(1, 9)
    ),
    batch_sizes: BatchSizes = None,
    cached_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="Tokens that are cached before each pass.")
    ] = 128,
    nodes: Annotated[
        Sequence[int] | None,
        numbers("Sizes of draft trees, 0 among them (default: powers of 2 to 64).", minimum=0),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="Seconds of the measurement.")
    ] = 60.0,
    models: PairSource,
    threads: Threads = None,
    any_load: AnyLoad = False,
) -> None:
    """Time passes over length x batch (SpecTr Tables 1 and 3) and over draft trees.

    Batch size 1 is among those measured, or the tables have nothing to be relative to.
    """
    from ..models import latency as timed, names, source

    grid = timed.Grid(
        lengths=tuple(lengths),
        batches=tuple(batch_sizes or timed.Grid.batches),
        nodes=tuple(nodes or timed.Grid.nodes),
        context=cached_tokens,
    )
    use_threads(threads)
    pair = source.load_source(models)
    record = timed.write_latency(pair, out, grid=grid, seconds=seconds, any_load=any_load)
    say(timed.latency_table(record))
    for side in names.SIDES:
        shown = ", ".join(
            f"{count}: {1e3 * cell['median']:.1f}"
            for count, cell in zip(record["nodes"], record["tree"][side], strict=True)
        )
        say(f"{side:<7} milliseconds by tree nodes  {shown}")
    say(f"record  {out}")
