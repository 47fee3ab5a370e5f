"""`otm experiment` and `otm capture`: the data of the papers' figures and tables."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from otm._machine.progress import say

from .options import AnyLoad, DraftName, Limit, TargetName, Work, output_option


def experiment(
    name: Annotated[
        Literal["table2", "ersd", "mentored", "lossy_rules", "known_noise"],
        typer.Argument(help="The experiment."),
    ],
    work: Work,
    out: Annotated[Path, output_option("Folder for the figure's data.")] = Path("figures/data"),
    limit: Limit = None,
    target: TargetName = None,
    draft_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Folder of draft models for table2 (default: the target's, or the shipped ones).",
        ),
    ] = None,
    any_load: AnyLoad = False,
) -> None:
    """Run an experiment of the papers.

    Prompts are cut from the held-out text: all, or 60 where texts are decoded, unless --limit says
    how many.
    """
    from ..papers.experiments import run_experiment

    path = run_experiment(
        name,
        work=work,
        out=out,
        num_prompts=limit,
        drafts=draft_folder,
        target=target,
        any_load=any_load,
    )
    say(f"data     {path}")


def capture(
    draft: DraftName = None,
    target: TargetName = None,
    out: Annotated[
        Path,
        output_option("Folder of figure5.json, and of figure4.json for the shipped pair."),
    ] = Path("figures/data"),
) -> None:
    """Capture the distributions behind Figures 4 and 5 on the CPU."""
    from ..papers.captures import write_captures

    for path in write_captures(out, draft=draft, target=target):
        say(str(path))
