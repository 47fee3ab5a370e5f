"""`python -m analysis advise`: whether to speculate with a pair here, how, and how much faster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import INTERRUPTED, say

from ..models.processing import Setting
from ..models.source import PairSource
from .options import (
    TEXTS,
    ChatTemplate,
    Field,
    Limit,
    Prompts,
    PromptTokens,
    TextTokens,
    Threads,
    grouped,
    output_option,
    use_threads,
)

COMPARED = "What is compared"


@grouped
def advise(
    *,
    prompts: Prompts,
    models: PairSource,
    out: Annotated[
        Path | None, output_option("Where to write everything as JSON, for scripts and the report.")
    ] = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run", help="Run every way of the table for real: predicted beside measured."
        ),
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(min=0.0, help="Time until the answer, loading and all; less if it is sure."),
    ] = 300.0,
    limit: Limit = None,
    field: Field = "text",
    chat_template: ChatTemplate = False,
    prompt_tokens: PromptTokens = 512,
    num_tokens: TextTokens = 64,
    repeats: Annotated[
        int,
        typer.Option(min=1, help="Texts per prompt and way with --run.", rich_help_panel=TEXTS),
    ] = 3,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of texts and places.", rich_help_panel=TEXTS)
    ] = 0,
    max_nodes: Annotated[
        int,
        typer.Option(
            min=1, max=256, help="Drafted tokens of a step at most.", rich_help_panel=COMPARED
        ),
    ] = 64,
    max_depth: Annotated[
        int, typer.Option(min=1, max=64, help="Drafts in a row at most.", rich_help_panel=COMPARED)
    ] = 8,
    sequences: Annotated[
        int, typer.Option(min=1, max=16, help="I.i.d. sequences at most.", rich_help_panel=COMPARED)
    ] = 4,
    setting: Setting,
    threads: Threads = None,
) -> None:
    """Say whether to speculate, with which scheme, and how much faster it is on this machine.

    Example: advise --draft my-draft --target my-model --prompts prompts.txt --run
    """
    from ..advise.advice import AdviceSettings
    from ..advise.clocked import was_stopped
    from ..advise.end_to_end import run_advise
    from ..advise.families import Limits

    use_threads(threads)
    text = run_advise(
        models,
        prompts,
        field=field,
        limit=limit,
        prompt_tokens=prompt_tokens,
        chat=chat_template,
        processing=setting,
        asked=AdviceSettings(
            num_tokens, Limits(max_nodes, max_depth, sequences), seconds, seed=seed
        ),
        repeats=repeats if run else 0,
        out=out,
    )
    say(text)
    if was_stopped():
        raise typer.Exit(INTERRUPTED)
