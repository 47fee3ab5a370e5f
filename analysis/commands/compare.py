"""`otm compare`: every scheme on both models' laws of the token after a prompt."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import say
from otm.commands.options import Seed, numbers

from ..errors import AnalysisError
from .options import (
    Field,
    Limit,
    PairSource,
    Prompts,
    Setting,
    grouped,
    models_of,
    output_option,
    sampling_of,
)


@grouped(models=models_of, setting=sampling_of)
def compare(
    *,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The text before the token that is drafted."),
    ] = None,
    prompts: Prompts = None,
    field: Field = "text",
    limit: Limit = None,
    nodes: Annotated[
        Sequence[int] | None,
        numbers("With six --prompts or more: also compare draft trees of these sizes."),
    ] = None,
    drafts: Annotated[
        Sequence[int] | None, numbers("Numbers of drafts (default: 1,2,4,8,16).")
    ] = None,
    setting: Setting,
    samples: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Monte Carlo draws per row (default: 2,000 after one prompt, else 0).",
        ),
    ] = None,
    seed: Seed = 0,
    plot: Annotated[Path, output_option("File of the plot: .png, .pdf or .svg.")] = Path(
        "comparison.png"
    ),
    models: PairSource,
) -> None:
    """Compare every scheme on both models' next-token distributions."""
    import itertools

    import numpy as np

    from ..models import causal, processing, prompts as files, source as sources
    from ..report import next_token
    from ..steps import contexts as places, drafted_sequences, nodes as trees

    next_token.check_plot(plot)
    if (prompt is None) == (prompts is None) or (nodes and prompts is None):
        raise AnalysisError(
            "A comparison needs either --prompt TEXT or --prompts FILE, and for --nodes the file; "
            "pass one of them."
        )
    if prompts is None:
        texts = [str(prompt)]
    else:
        source = files.open_prompts(prompts, field=field)
        texts = [text for _, text in itertools.islice(source.texts(), limit)]
        if len(texts) < (least := places.LEAST_CONTEXTS if nodes else 1):
            raise AnalysisError(
                f"A comparison of this kind needs {least} prompts or more; {prompts} has "
                f"{len(texts)}. Add some."
            )
    pair = sources.load_source(models)
    found = [next_token.next_token(pair, text, setting=setting) for text in texts]
    for one in found:
        say(f"prompt   {one.prompt}")
        say("next     " + ", ".join(f"{token!r} q={q:.3f} p={p:.3f}" for token, p, q in one.likely))
    asked = [
        processing.setting_text(name, value)
        for name, value in setting.recorded.items()
        if value is not None
    ]
    say(", ".join([f"V = {pair.num_tokens}", *asked, pair.device]))
    for note in pair.notes:
        say(f"note     {note}")
    rng = np.random.default_rng(seed)
    draws = (2_000 if prompts is None else 0) if samples is None else samples
    result = next_token.compare_next(found, k=drafts or [1, 2, 4, 8, 16], samples=draws, rng=rng)
    say(f"\n{result.table}\n\n{result.bounds}\n")
    next_token.plot_comparison(result, plot)
    say(f"plot     {plot}")
    if nodes:
        draft, target = causal.pair_models(pair, setting)
        contexts = [tuple(pair.encode(text)) for text in texts]
        by_nodes = trees.compare_nodes(
            draft=draft,
            target=target,
            contexts=contexts,
            nodes=nodes,
            noises=4,
            only=(trees.LIKELIEST, drafted_sequences.REFINED),
            rng=rng,
        )
        say(f"tokens per call\n{by_nodes}")
