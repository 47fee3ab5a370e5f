"""`python -m analysis advise`: whether to speculate with a pair on this machine, with which scheme, and how much faster it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..run.resources import MOST_THREADS
from .options import Device, DeviceMap, DraftName, Dtype, Limit, TargetName, Temperature, TopP, TrustRemoteCode, written


def advise(
    prompts: Annotated[Path, typer.Option(help="Text with one prompt per line, JSON lines or Parquet.")],
    draft: DraftName = None,
    target: TargetName = None,
    out: Annotated[Path | None, written("Where to write everything as JSON, for scripts and the report.")] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run the best plan and the baselines as well: predicted beside measured.")
    ] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Texts per prompt and way with --run.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.0, help="Budget; it ends earlier where the interval decides.")] = 300.0,
    num_tokens: Annotated[int, typer.Option(min=1, help="Tokens that a text has.")] = 64,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Longer prompts are cut to their last tokens.")] = 512,
    limit: Limit = None,
    field: Annotated[str, typer.Option(help="Field of JSON lines or Parquet that holds the prompt.")] = "text",
    chat_template: Annotated[bool, typer.Option("--chat-template", help="Prompts are messages of a user.")] = False,
    max_nodes: Annotated[int, typer.Option(min=1, max=256, help="Drafted tokens of a step at most.")] = 64,
    max_depth: Annotated[int, typer.Option(min=1, max=64, help="Drafts in a row at most.")] = 8,
    sequences: Annotated[int, typer.Option(min=1, max=16, help="I.i.d. sequences at most.")] = 4,
    temperature: Temperature = 1.0,
    top_p: TopP = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Likeliest tokens that both models keep.")] = None,
    draft_temperature: Annotated[float | None, typer.Option(min=0.0, help="The draft's own. Default: the target's.")] = None,
    draft_top_p: Annotated[float | None, typer.Option(help="The draft's own. Default: the target's.")] = None,
    draft_top_k: Annotated[int | None, typer.Option(min=1, help="The draft's own. Default: the target's.")] = None,
    device: Device = "auto",
    device_map: DeviceMap = None,
    dtype: Dtype = "float32",
    threads: Annotated[int | None, typer.Option(min=1, max=MOST_THREADS, help="CPU threads. Default: torch's choice.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of texts and places.")] = 0,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Say whether to speculate, with which scheme, and how much faster it is on this machine."""
    import torch

    from ..advise.advice import Asked
    from ..advise.families import Limits
    from ..advise.whole import Processing, advised
    from ..models.source import PairSource

    if threads is not None:
        torch.set_num_threads(threads)
    own = Processing(temperature, top_p, top_k)
    drafts = Processing(
        temperature if draft_temperature is None else draft_temperature,
        top_p if draft_top_p is None else draft_top_p,
        top_k if draft_top_k is None else draft_top_k,
    )
    text = advised(
        PairSource(draft, target, device, device_map, dtype, trust_remote_code),
        prompts,
        field=field,
        limit=limit,
        prompt_tokens=prompt_tokens,
        chat=chat_template,
        processing=(drafts, own),
        asked=Asked(num_tokens, Limits(max_nodes, max_depth, sequences), seconds, min(50.0, seconds), seed),
        repeats=repeats if run else 0,
        out=out,
        show=typer.echo,
    )
    typer.echo(text)
