"""`otm train` and `otm fetch`: the origin of models."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from otm._machine.progress import say

from .options import Device, TargetName, Threads, Work, output_option


def train(
    out: Annotated[Path, output_option("Folder of the models, in the format of Hugging Face.")],
    work: Work,
    corpus: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="UTF-8 text to train on (default: docstrings of installed packages); may be "
            "repeated.",
        ),
    ] = None,
    target: TargetName = None,
    recipe: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON with fields of the recipe to change."),
    ] = None,
    constraints: Annotated[
        Path, typer.Option(metavar="FILE", help="Pinned packages whose docstrings are used.")
    ] = Path("constraints.txt"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train tokenizer, draft and target, or a draft.

    With --target, a draft is distilled for that target; else a pair is trained. The number of
    threads changes the last bits.
    """
    from ..files import held
    from ..models.pair import choose_device, load_tokenizer

    if target is not None:
        from ..train import distillation, draft_training, openings

        plan = (
            distillation.Distillation()
            if recipe is None
            else draft_training.distillation_from_json(recipe)
        )
        choose_device(device)
        _, tokenizer = load_tokenizer(target)  # before all texts are read
        texts = _corpus(corpus, constraints)
        if not corpus:
            texts = openings.with_openings(texts, tokenizer)
        with held(out, work):
            record = draft_training.distil(
                target, texts, plan, out=out, work=work, device=device, threads=threads
            )
        for kind, curves in record["acceptance"].items():
            for name in ("optimum", "K-SEQ"):
                cells = zip(record["k"], curves[name], strict=True)
                shown = "  ".join(f"k = {k} {cell['mean']:.3f}" for k, cell in cells)
                say(f"{kind:<13} {name:<8} {shown}   of Q(S) {curves['Q(S)'][0]['mean']:.3f}")
        return

    from ..train import pair_training, training

    chosen = training.Recipe() if recipe is None else pair_training.recipe_from_json(recipe)
    texts = _corpus(corpus, constraints)
    with held(out, work):
        figures = pair_training.train_pair(
            texts, chosen, out=out, work=work, device=choose_device(device), threads=threads
        )
    for name, score in figures.items():
        say(
            f"{name:<7} held-out {score.bits_per_byte:.4f} bits per byte, "
            f"{score.nats_per_token:.4f} nats per token"
        )


def _corpus(files: list[Path] | None, constraints: Path) -> Any:
    from ..train.corpus import from_installed_packages, from_text_files

    return from_text_files(files) if files else from_installed_packages(constraints)


def fetch(
    name: Annotated[
        Literal["smollm2"],
        typer.Argument(help="The model; --target takes its short name afterwards."),
    ] = "smollm2",
) -> None:
    """Fetch a public target model and write safetensors to the cache folder."""
    from ..models.public import PUBLIC, fetch as fetched

    folder = fetched(name)
    say(f"{name}  {PUBLIC[name].title}, {PUBLIC[name].licence}")
    say(f"folder  {folder}")
