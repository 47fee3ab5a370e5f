"""`python -m analysis train` and `fetch`: where models come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otm._machine.progress import say

from ..files import held
from ..run.resources import MOST_THREADS
from .options import output_option

if TYPE_CHECKING:
    from ..train.corpus import Corpus


def train(
    out: Annotated[Path, output_option("Where the pair is written, in Hugging Face format.")],
    work: Annotated[
        Path, output_option("Where checkpoints are kept; a killed run resumes from here.")
    ],
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

    if target is not None:
        from ..train.distillation import Distillation
        from ..train.draft_training import distil, distillation_from_json
        from ..train.openings import with_openings

        plan = Distillation() if recipe is None else distillation_from_json(recipe)
        choose_device(device)
        _, tokenizer = load_tokenizer(target)  # before all texts are read
        corpus = _corpus(text, constraints)
        if not text:
            corpus = with_openings(corpus, tokenizer)
        with held(out, work):
            record = distil(
                target, corpus, plan, out=out, work=work, device=device, threads=threads
            )
        for kind, curves in record["acceptance"].items():
            for name in ("optimum", "K-SEQ"):
                cells = zip(record["k"], curves[name], strict=True)
                shown = "  ".join(f"k = {k} {cell['mean']:.3f}" for k, cell in cells)
                say(f"{kind:<13} {name:<8} {shown}   of Q(S) {curves['Q(S)'][0]['mean']:.3f}")
        return

    from ..train.pair_training import recipe_from_json, train_pair
    from ..train.training import Recipe

    chosen = Recipe() if recipe is None else recipe_from_json(recipe)
    corpus = _corpus(text, constraints)
    with held(out, work):
        figures = train_pair(
            corpus, chosen, out=out, work=work, device=choose_device(device), threads=threads
        )
    for name, score in figures.items():
        say(
            f"{name:<7} held-out {score.bits_per_byte:.4f} bits per byte, "
            f"{score.nats_per_token:.4f} nats per token"
        )


def _corpus(text: list[Path] | None, constraints: Path) -> Corpus:
    from ..train.corpus import from_installed_packages, from_text_files

    return from_text_files(text) if text else from_installed_packages(constraints)


def fetch(
    name: Annotated[
        str, typer.Argument(help="Which one; its short name is then good for --target.")
    ] = "smollm2",
) -> None:
    """Fetch a public target model (93 MB) and convert it to safetensors (540 MB) in the cache
    folder, once.
    """
    from ..models.public import PUBLIC, fetch as fetched

    folder = fetched(name)
    say(f"{name}  {PUBLIC[name].title}, {PUBLIC[name].licence}")
    say(f"folder  {folder}")
