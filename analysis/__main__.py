"""`python -m analysis`: compare schemes on real language models, and train the shipped pair."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from analysis.errors import AnalysisError

app = typer.Typer(
    help="Measure coupling schemes for speculative decoding on real language-model logits.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _main() -> None:
    """Measure coupling schemes for speculative decoding on real language-model logits."""


@app.command()
def compare(
    prompt: Annotated[str, typer.Option(help="The text whose next token is drafted and verified.")],
    draft: Annotated[str | None, typer.Option(help="Draft model: hub name or folder. Default: the shipped one.")] = None,
    target: Annotated[str | None, typer.Option(help="Target model: hub name or folder. Default: the shipped one.")] = None,
    k: Annotated[str, typer.Option(help="Numbers of drafts, comma-separated.")] = "1,2,4,8,16",
    temperature: Annotated[float, typer.Option(min=0.0, help="Sampling temperature of both models.")] = 1.0,
    top_p: Annotated[float | None, typer.Option(help="Nucleus mass of both models.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    samples: Annotated[int, typer.Option(min=0, help="Monte Carlo draws per row; 0 for none.")] = 2_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the Monte Carlo draws.")] = 0,
    plot: Annotated[Path, typer.Option(help="Where to write the plot (.png, .pdf or .svg).")] = Path("comparison.png"),
    trust_remote_code: Annotated[bool, typer.Option(help="Run Python files that come with a model.")] = False,
) -> None:
    """Compare every scheme on both models' next-token distributions after a prompt."""
    import numpy as np

    from analysis.comparison import check_plot, compare_prompt, plot_comparison
    from analysis.models import load_pair

    ks = _integers(k)
    check_plot(plot)
    pair = load_pair(draft=draft, target=target, device=device, trust_remote_code=trust_remote_code)
    result = compare_prompt(
        pair, prompt, k=ks, temperature=temperature, top_p=top_p, samples=samples, rng=np.random.default_rng(seed)
    )
    typer.echo(f"prompt   {prompt}")
    typer.echo("next     " + ", ".join(f"{token!r} q={q:.3f} p={p:.3f}" for token, p, q in result.likely))
    typer.echo(f"V = {pair.num_tokens}, temperature {temperature:g}, {pair.device}")
    for note in pair.notes:
        typer.echo(f"note     {note}")
    typer.echo(f"\n{result.table}\n")
    plot_comparison(result, plot)
    typer.echo(f"plot     {plot}")


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Where the pair is written, in Hugging Face format.")],
    work: Annotated[Path, typer.Option(help="Where checkpoints are kept; a killed run resumes from here.")],
    text: Annotated[
        list[Path] | None, typer.Option(help="UTF-8 text to train on. Default: installed packages' docstrings.")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="JSON with fields of the recipe to change.")] = None,
    constraints: Annotated[Path, typer.Option(help="Pinned packages whose docstrings are used.")] = Path("constraints.txt"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads; the trajectory depends on it in the last bits.")] = None,
) -> None:
    """Train tokenizer, draft and target; resumes where a killed run stopped."""
    from analysis import corpus as texts
    from analysis.models import choose_device
    from analysis.pair_training import recipe_from_json, train_pair
    from analysis.training import Recipe

    chosen = Recipe() if recipe is None else recipe_from_json(recipe)
    corpus = texts.from_text_files(text) if text else texts.from_installed_packages(constraints)
    figures = train_pair(corpus, chosen, out=out, work=work, device=choose_device(device), threads=threads)
    for name, score in figures.items():
        typer.echo(f"{name:<7} held-out {score.bits_per_byte:.4f} bits per byte, {score.nats_per_token:.4f} nats per token")


@app.command()
def capture(
    pair: Annotated[Path, typer.Option(help="Folder with draft/ and target/.")] = Path(__file__).parent / "pair",
    out: Annotated[Path, typer.Option(help="Where figure4.json and figure5.json are written.")] = Path("figures/data"),
) -> None:
    """Capture the distributions behind Figures 4 and 5 from a pair, on the CPU."""
    from analysis.captures import write_captures
    from analysis.models import load_pair

    models = load_pair(draft=str(pair / "draft"), target=str(pair / "target"), device="cpu")
    for path in write_captures(models, pair, out):
        typer.echo(str(path))


def _integers(text: str) -> list[int]:
    try:
        ks = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise AnalysisError(f"k must be integers separated by commas, such as 1,2,4; got {text!r}. Write them so.") from error
    if min(ks) < 1:
        raise AnalysisError(f"k must be at least 1; got {text!r}. Drop the others.")
    return ks


def main() -> int:
    """Run the command line; expected errors become one line and exit status 2."""
    from otm import OtmError

    try:
        app()
    except (AnalysisError, OtmError) as error:
        typer.echo(f"error: {error}", err=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
