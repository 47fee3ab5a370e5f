"""`python -m analysis report`: a measured run as a page and a Markdown summary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import written


def report(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder that `measure` wrote; an unfinished run is reported as far as it is."
        ),
    ],
    out: Annotated[
        Path | None, written("Folder for report.html and report.md. Default: the run's.")
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

    written = write_report(run, out=out, decode=decode, latency=latency, advice=advice)
    for line in written.findings:
        typer.echo(line)
    typer.echo(f"page     {written.html}")
    typer.echo(f"summary  {written.markdown}")
