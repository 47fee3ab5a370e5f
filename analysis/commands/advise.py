"""`otm advise`: whether to speculate with a pair here, how, and how much faster."""

from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import INTERRUPTED, say
from otm.commands.options import Seed
from otm.errors import InvalidParameter

from .options import (
    TEXTS,
    TREES,
    EngineName,
    Field,
    Limit,
    PairSource,
    Prompts,
    PromptTokens,
    Sequences,
    Setting,
    TextTokens,
    Threads,
    grouped,
    models_of,
    output_file,
    sampling_of,
    use_threads,
)


@grouped(models=models_of, setting=sampling_of)
def advise(
    *,
    prompts: Prompts,
    out: Annotated[
        Path | None, output_file("File for everything as JSON, which `otm report` reads.")
    ] = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="Run every way of the table: predicted beside measured time."),
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(
            metavar="X", min=0.0, help="Most seconds until the answer; fewer if it is sure."
        ),
    ] = 300.0,
    seed: Seed = 0,
    limit: Limit = None,
    field: Field = "text",
    prompt_tokens: PromptTokens = 512,
    num_tokens: TextTokens = 64,
    engine: EngineName = None,
    repeats: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Texts per prompt and way with --run.", rich_help_panel=TEXTS
        ),
    ] = 3,
    max_nodes: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=256,
            help="Most drafted tokens of a step.",
            rich_help_panel=TREES,
        ),
    ] = 64,
    max_depth: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=64, help="Most drafts in a row.", rich_help_panel=TREES
        ),
    ] = 8,
    sequences: Sequences = 4,
    setting: Setting,
    models: PairSource,
    threads: Threads = None,
) -> int:
    """Advise whether to speculate on this machine.

    Example: otm advise --draft NAME --target NAME --prompts prompts.txt --run
    """
    from ..advise import advice, clocked, end_to_end, families
    from ..models.engines import ENGINES

    assert prompts is not None
    compared, runs = [family.name for family in families.FAMILIES], None
    if engine is not None:
        runs = ENGINES[engine]
        if "rejection" not in runs.rules:
            raise InvalidParameter(
                "Advice is on rejection of drafts, or this library's own decoding; "
                f"{engine} does neither: {runs.words}. Ask otm rules --engine {engine}."
            )
        compared = compared[:1]
        if setting.draft == setting.target:
            setting = setting._replace(draft=runs.draft(setting.target))
    use_threads(threads)
    text = end_to_end.run_advise(
        models,
        prompts,
        field=field,
        limit=limit,
        prompt_tokens=prompt_tokens,
        processing=setting,
        asked=advice.AdviceSettings(
            num_tokens,
            families.Limits(max_nodes, max_depth, sequences),
            seconds,
            seed=seed,
            families=tuple(compared),
        ),
        engine=runs,
        repeats=repeats if run else 0,
        out=out,
    )
    say(text)
    return INTERRUPTED if clocked.was_stopped() else 0
