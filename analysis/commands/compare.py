"""`python -m analysis compare`: every scheme on both models' next-token distributions after a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Device,
    DeviceMap,
    DraftMinP,
    DraftName,
    DraftOrder,
    DraftTemperature,
    DraftTopK,
    DraftTopP,
    Dtype,
    MinP,
    Order,
    TargetName,
    Temperature,
    TopK,
    TopP,
    TrustRemoteCode,
    integers,
    setting_of,
    written,
)


def compare(
    prompt: Annotated[str, typer.Option(help="The text whose next token is drafted and verified.")],
    draft: DraftName = None,
    target: TargetName = None,
    k: Annotated[str, typer.Option(help="Numbers of drafts, comma-separated.")] = "1,2,4,8,16",
    temperature: Temperature = 1.0,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    order: Order = "transformers",
    draft_temperature: DraftTemperature = None,
    draft_top_p: DraftTopP = None,
    draft_top_k: DraftTopK = None,
    draft_min_p: DraftMinP = None,
    draft_order: DraftOrder = None,
    device: Device = "auto",
    device_map: DeviceMap = None,
    dtype: Dtype = "float32",
    samples: Annotated[int, typer.Option(min=0, help="Monte Carlo draws per row; 0 for none.")] = 2_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the Monte Carlo draws.")] = 0,
    plot: Annotated[Path, written("Where to write the plot (.png, .pdf or .svg).")] = Path("comparison.png"),
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Compare every scheme on both models' next-token distributions after a prompt."""
    import numpy as np

    from ..models.source import PairSource, loaded
    from ..report.comparison import check_plot, compare_prompt, plot_comparison

    ks = integers(k)
    setting = setting_of(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        order=order,
        draft_temperature=draft_temperature,
        draft_top_p=draft_top_p,
        draft_top_k=draft_top_k,
        draft_min_p=draft_min_p,
        draft_order=draft_order,
    )
    check_plot(plot)
    pair = loaded(PairSource(draft, target, device, device_map, dtype, trust_remote_code))
    result = compare_prompt(pair, prompt, k=ks, setting=setting, samples=samples, rng=np.random.default_rng(seed))
    typer.echo(f"prompt   {prompt}")
    typer.echo("next     " + ", ".join(f"{token!r} q={q:.3f} p={p:.3f}" for token, p, q in result.likely))
    typer.echo(f"V = {pair.num_tokens}, temperature {temperature:g}, {pair.device}")
    for note in pair.notes:
        typer.echo(f"note     {note}")
    typer.echo(f"\n{result.table}\n\n{result.bounds}\n")
    plot_comparison(result, plot)
    typer.echo(f"plot     {plot}")
