"""`python -m analysis merge`: one run out of parts that several machines have measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import written


def merge(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Parts of one run, measured with the same settings and software."),
    ],
    out: Annotated[Path, written("Folder that will hold all their shards.")],
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Place where parts may differ, such as provenance.processor."),
    ] = None,
) -> None:
    """Merge the shards of one run that several machines have measured."""
    from ..run.identity import caution
    from ..run.merge import merge as merge_runs

    merged = merge_runs(runs, out, allow=tuple(allow or ()))
    missing = (
        f", {len(merged.missing)} missing (first: {merged.missing[0]})"
        if merged.missing
        else ", complete"
    )
    typer.echo(f"{out}: {merged.finished} shards{missing}")
    if merged.unchecked:
        typer.echo(f"note: {caution(merged.unchecked)}", err=True)
