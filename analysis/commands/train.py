"""`python -m analysis train`: train a small pair, or a draft for a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..run.resources import MOST_THREADS
from .options import written


def train(
    out: Annotated[Path, written("Where the pair is written, in Hugging Face format.")],
    work: Annotated[Path, written("Where checkpoints are kept; a killed run resumes from here.")],
    text: Annotated[
        list[Path] | None,
        typer.Option(help="UTF-8 text to train on. Default: installed packages' docstrings."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help=(
                "Distil a draft for this target: smollm2, a hub name or a folder. Default: train a "
                "pair."
            )
        ),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="JSON with fields of the recipe to change.")
    ] = None,
    constraints: Annotated[
        Path, typer.Option(help="Pinned packages whose docstrings are used.")
    ] = Path("constraints.txt"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_THREADS,
            help="CPU threads; the trajectory depends on it in the last bits.",
        ),
    ] = None,
) -> None:
    """Train tokenizer, draft and target, or a draft for a target that is given; resumes where a
    killed run stopped.
    """
    from ..models.pair import choose_device, load_tokenizer
    from ..train import texts

    if target is not None:
        from ..train.distillation import Distillation
        from ..train.draft_training import distil, distillation_from_json

        plan = Distillation() if recipe is None else distillation_from_json(recipe)
        choose_device(device)
        load_tokenizer(target)  # before all texts are read
        corpus = texts.from_text_files(text) if text else texts.from_installed_packages(constraints)
        record = distil(target, corpus, plan, out=out, work=work, device=device, threads=threads)
        for kind, curves in record["acceptance"].items():
            for name in ("optimum", "K-SEQ"):
                cells = zip(record["k"], curves[name], strict=True)
                shown = "  ".join(f"k = {k} {cell['mean']:.3f}" for k, cell in cells)
                typer.echo(
                    f"{kind:<13} {name:<8} {shown}   of Q(S) {curves['Q(S)'][0]['mean']:.3f}"
                )
        return

    from ..train.pair_training import recipe_from_json, train_pair
    from ..train.training import Recipe

    chosen = Recipe() if recipe is None else recipe_from_json(recipe)
    corpus = texts.from_text_files(text) if text else texts.from_installed_packages(constraints)
    figures = train_pair(
        corpus, chosen, out=out, work=work, device=choose_device(device), threads=threads
    )
    for name, score in figures.items():
        typer.echo(
            f"{name:<7} held-out {score.bits_per_byte:.4f} bits per byte, "
            f"{score.nats_per_token:.4f} nats per token"
        )
