"""`python -m analysis compare`: every scheme on both models' laws of the token after a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otm._progress import say, told

from ..models.processing import Setting, setting_text
from ..models.source import PairSource
from .options import grouped, integers, output_option


@grouped
def compare(
    *,
    prompt: Annotated[str, typer.Option(help="The text whose next token is drafted and verified.")],
    models: PairSource,
    k: Annotated[str, typer.Option(help="Numbers of drafts, comma-separated.")] = "1,2,4,8,16",
    setting: Setting,
    samples: Annotated[
        int, typer.Option(min=0, help="Monte Carlo draws per row; 0 for none.")
    ] = 2_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the Monte Carlo draws.")] = 0,
    plot: Annotated[Path, output_option("Where to write the plot (.png, .pdf or .svg).")] = Path(
        "comparison.png"
    ),
) -> None:
    """Compare every scheme on both models' next-token distributions after a prompt."""
    import numpy as np

    from ..models.source import load_source
    from ..report.next_token import check_plot, compare_next, next_token, plot_comparison

    ks = integers(k)
    check_plot(plot)
    pair = load_source(models)
    found = next_token(pair, prompt, setting=setting)
    say(f"prompt   {prompt}")
    say("next     " + ", ".join(f"{token!r} q={q:.3f} p={p:.3f}" for token, p, q in found.likely))
    asked = [
        setting_text(name, value) for name, value in setting.recorded.items() if value is not None
    ]
    say(", ".join([f"V = {pair.num_tokens}", *asked, pair.device]))
    for note in pair.notes:
        say(f"note     {note}")
    told("schemes")
    result = compare_next(found, k=ks, samples=samples, rng=np.random.default_rng(seed))
    say(f"\n{result.table}\n\n{result.bounds}\n")
    plot_comparison(result, plot)
    say(f"plot     {plot}")
