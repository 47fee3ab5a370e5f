"""`python -m analysis finetune`: a draft fine-tuned by cross-entropy, by divergence and by the
acceptance of its drafts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from otm import tabular

from ..layout import SHIPPED_PAIR
from .options import use_threads, written


def finetune(
    work: Annotated[
        Path, written("Folder for checkpoints and finished runs; a killed run goes on from there.")
    ],
    out: Annotated[Path, written("Folder for the figure's data.")] = Path("figures/data"),
    draft: Annotated[
        Path, typer.Option(help="Folder of the draft model that every run starts from.")
    ] = SHIPPED_PAIR / "draft_small",
    text: Annotated[
        list[Path] | None, typer.Option(help="UTF-8 text to train on. Default: as `train`.")
    ] = None,
    constraints: Annotated[
        Path, typer.Option(help="Pinned packages whose docstrings are used.")
    ] = Path("constraints.txt"),
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 200,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each loss.")] = 3,
    loss: Annotated[
        list[str] | None, typer.Option(help="A loss to compare, repeatable. Default: all of them.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; figures depend on it in the last bits.")
    ] = None,
) -> None:
    """Fine-tune copies of a draft by different losses and compare their acceptance on held-out
    text.
    """
    from ..train import texts
    from ..train.fine_tuning import LOSSES, Plan, prepare_bench, write_fine_tuning

    use_threads(threads)
    plan = Plan(steps=steps, trial_steps=max(1, steps // 3), seeds=tuple(range(seeds)))
    bench, source = prepare_bench(
        lambda: texts.from_text_files(text) if text else texts.from_installed_packages(constraints),
        plan,
        work=work,
        draft=str(draft),
    )
    path, record = write_fine_tuning(
        bench, work=work, out=out, corpus=source, losses=loss or list(LOSSES)
    )
    for line in tabular.columns([_cells(row, record["baseline"]) for row in record["rows"]]):
        typer.echo(line)
    typer.echo(f"data     {path}")


def _cells(row: dict[str, Any], baseline: str) -> tuple[str, ...]:
    gain = f"{row['gain']['mean']:+.4f} over {baseline}" if "gain" in row else ""
    return (
        row["figure"],
        row["loss"],
        f"{row['mean']:.4f} [{row['low']:.4f}, {row['high']:.4f}]",
        gain,
    )
