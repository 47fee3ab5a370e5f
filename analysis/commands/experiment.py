"""`python -m analysis experiment` and `capture`: what the papers' figures and tables show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import say

from .options import AnyLoad, DraftName, TargetName, output_option


def experiment(
    name: Annotated[
        str, typer.Argument(help="table2, ersd, mentored, lossy_rules or known_noise.")
    ],
    work: Annotated[
        Path, output_option("Folder for the results files; a killed run goes on from them.")
    ],
    out: Annotated[Path, output_option("Folder for the figure's data.")] = Path("figures/data"),
    num_prompts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Prompts cut from the held-out text. Default: all; 60 where texts are decoded.",
        ),
    ] = None,
    target: TargetName = None,
    drafts: Annotated[
        Path | None,
        typer.Option(
            help="Folder with draft models for table2. Default: the target's, or the shipped ones."
        ),
    ] = None,
    any_load: AnyLoad = False,
) -> None:
    """Run an experiment of the papers on a pair, the shipped one by default, and write what its
    figure shows.
    """
    from ..papers.experiments import run_experiment

    path = run_experiment(
        name,
        work=work,
        out=out,
        num_prompts=num_prompts,
        drafts=drafts,
        target=target,
        any_load=any_load,
    )
    say(f"data     {path}")


def capture(
    draft: DraftName = None,
    target: TargetName = None,
    out: Annotated[
        Path,
        output_option(
            "Folder where figure5.json, and figure4.json of the shipped pair, are written."
        ),
    ] = Path("figures/data"),
) -> None:
    """Capture the distributions behind Figures 4 and 5 from a pair, on the CPU."""
    from ..papers.captures import write_captures

    for path in write_captures(out, draft=draft, target=target):
        say(str(path))
