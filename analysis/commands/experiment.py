"""`python -m analysis experiment`: the papers' decoding experiments on the shipped pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..layout import SHIPPED_PAIR
from .options import written


def experiment(
    name: Annotated[str, typer.Argument(help="table2, ersd or mentored.")],
    work: Annotated[Path, written("Folder for the results files; a killed run goes on from them.")],
    out: Annotated[Path, written("Folder for the figure's data.")] = Path("figures/data"),
    num_prompts: Annotated[int, typer.Option(min=1, help="Prompts cut from the held-out text.")] = 40,
    drafts: Annotated[Path, typer.Option(help="Folder with further draft models for table2.")] = SHIPPED_PAIR,
) -> None:
    """Run an experiment of the papers on the shipped pair and write what its figure shows."""
    from ..papers.experiments import run_experiment

    path = run_experiment(name, work=work, out=out, num_prompts=num_prompts, drafts=drafts)
    typer.echo(f"data     {path}")
