"""`python -m analysis decode`: run prompts through decoding algorithms with a pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import say
from otm.sequence import DECODERS

from ..models.processing import Setting
from ..models.source import PairSource
from .options import (
    Field,
    Limit,
    Prompts,
    PromptTokens,
    Threads,
    grouped,
    integers,
    output_option,
    use_threads,
)


@grouped
def decode(
    *,
    prompts: Prompts,
    out: Annotated[Path, output_option("Results file (JSON lines); a killed run goes on from it.")],
    decoder: Annotated[
        list[str],
        typer.Option(
            help="An algorithm, for example 'DraftSelection(4, 8)' or 'Gsd(chain(5))'; repeat for "
            "several. There are "
            f"{', '.join(cls.__name__ for cls in DECODERS)}; trees are chain(n), batch(n), "
            "sequences(k, n), specinfer(n), "
            "prefix_tree((2, 2)), parents([0, 0, 1]), tree('tree.json'). Plain decoding is always "
            "run beside them."
        ),
    ],
    models: PairSource,
    num_tokens: Annotated[int, typer.Option(min=1, help="Tokens to decode per prompt.")] = 64,
    prompt_tokens: PromptTokens = 128,
    limit: Limit = None,
    seeds: Annotated[str, typer.Option(help="Seeds, comma-separated; one text each.")] = "0",
    setting: Setting,
    field: Field = "text",
    threads: Threads = None,
) -> None:
    """Decode prompts with any algorithm and report tokens per serial call of the target, and the
    speed-up over plain decoding.
    """
    from ..decode.decode_run import run_decode, summary_table
    from ..decode.decoder_text import decoder_from_text
    from ..decode.plain import PLAIN
    from ..models.prompts import encoded_prompts
    from ..models.source import load_source

    use_threads(threads)
    decoders = {text.strip(): decoder_from_text(text) for text in decoder}
    chosen_seeds = integers(seeds, name="seeds", minimum=0)
    pair = load_source(models)
    tokens = encoded_prompts(prompts, pair.encode, field=field, limit=limit, most=prompt_tokens)
    records = run_decode(
        pair,
        decoders,
        tokens,
        num_tokens=num_tokens,
        seeds=chosen_seeds,
        out=out,
        processing=setting,
    )
    for note in pair.notes:
        say(f"note     {note}")
    say(summary_table(records, [PLAIN, *decoders]))
    say(f"results  {out}")
