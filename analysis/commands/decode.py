"""`otm decode`: run prompts through decoding algorithms with a pair."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import say
from otm.commands.options import numbers

from .options import (
    Field,
    Limit,
    PairSource,
    Prompts,
    PromptTokens,
    Setting,
    TextTokens,
    Threads,
    grouped,
    models_of,
    output_option,
    sampling_of,
    use_threads,
)


@grouped(models=models_of, setting=sampling_of)
def decode(
    *,
    prompts: Prompts,
    out: Annotated[Path, output_option("Results file, JSON lines; a killed run goes on from it.")],
    decoder: Annotated[
        list[str],
        typer.Option(
            metavar="DECODER",
            help="A decoder of docs/schemes.md, such as 'Gsd(chain(5))'; may be repeated.",
        ),
    ],
    num_tokens: TextTokens = 64,
    prompt_tokens: PromptTokens = 512,
    limit: Limit = None,
    seeds: Annotated[Sequence[int], numbers("Seeds; a text for each.", minimum=0)] = (0,),
    setting: Setting,
    field: Field = "text",
    models: PairSource,
    threads: Threads = None,
) -> None:
    """Decode prompts with any algorithm.

    Plain decoding is always run beside the decoders. Trees are chain(n), batch(n), sequences(k, n),
    specinfer(n), prefix_tree((2, 2)), parents([0, 0, 1]), tree('tree.json').
    """
    from ..decode import decode_run, decoder_text, plain
    from ..models import prompts as files, source

    use_threads(threads)
    decoders = {text.strip(): decoder_text.decoder_from_text(text) for text in decoder}
    assert prompts is not None
    pair = source.load_source(models)
    tokens = files.encoded_prompts(
        prompts, pair.encode_prompt, field=field, limit=limit, most=prompt_tokens
    )
    records = decode_run.run_decode(
        pair,
        decoders,
        tokens,
        num_tokens=num_tokens,
        seeds=list(seeds),
        out=out,
        processing=setting,
    )
    for note in pair.notes:
        say(f"note     {note}")
    say(decode_run.summary_table(records, [plain.PLAIN, *decoders]))
    say(f"results  {out}")
