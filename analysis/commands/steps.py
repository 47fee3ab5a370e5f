"""`otm steps`: tokens per call of several drafted sequences, decoder by decoder."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from otm._machine.progress import say
from otm.commands.options import Seed, numbers, reals

from ..errors import AnalysisError
from .options import (
    TEXTS,
    Field,
    Limit,
    PairSource,
    Prompts,
    Setting,
    grouped,
    models_of,
    output_file,
    sampling_of,
)

COMPARED, CONTEXTS = "The comparison, one of these", "Contexts"


@grouped(models=models_of, setting=sampling_of)
def steps(
    *,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K,L",
            help="Decoders of K drafted sequences of L tokens (default: 4,4 and 8,8); may be "
            "repeated.",
            rich_help_panel=COMPARED,
        ),
    ] = None,
    nodes: Annotated[
        Sequence[int] | None,
        numbers("All schemes within these numbers of verified tokens.", panel=COMPARED),
    ] = None,
    drafts: Annotated[
        Sequence[int] | None,
        numbers(
            "Laws and verifiers of one token, by these mean numbers of drafts.", panel=COMPARED
        ),
    ] = None,
    blur: Annotated[
        Sequence[float] | None,
        typer.Option(
            parser=reals,
            metavar="0.4,0.8",
            help="Also draft with the target itself, blurred by noise of these deviations.",
        ),
    ] = None,
    noises: Annotated[
        int,
        typer.Option(metavar="N", min=2, help="With --nodes and --drafts: noises of each context."),
    ] = 4,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="With --nodes: this scheme of the table; may be repeated."
        ),
    ] = None,
    num_sequences: Annotated[
        Sequence[int] | None,
        numbers("With --nodes: numbers of independent sequences beside 1."),
    ] = None,
    out: Annotated[Path | None, output_file("File of the tables, JSON.")] = None,
    seed: Seed = 0,
    text: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="UTF-8 text with the contexts (default: the shipped held-out text).",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    prompts: Prompts = None,
    field: Field = "text",
    limit: Limit = None,
    per_text: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="With --prompts: contexts of each text.",
            rich_help_panel=CONTEXTS,
        ),
    ] = 3,
    apart: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="With --prompts: tokens from one context to the next.",
            rich_help_panel=CONTEXTS,
        ),
    ] = 24,
    third: Annotated[
        Literal["low", "middle", "high"] | None,
        typer.Option(
            help="Only the third of the contexts with such an entropy of the target.",
            rich_help_panel=CONTEXTS,
        ),
    ] = None,
    num_contexts: Annotated[
        int, typer.Option(metavar="N", min=6, help="Number of contexts.", rich_help_panel=CONTEXTS)
    ] = 400,
    context_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="Tokens of a context.", rich_help_panel=CONTEXTS)
    ] = 64,
    setting: Setting,
    models: PairSource,
) -> None:
    """Compare decoders on the same drafts: means with intervals, beside a bound.

    With --prompts and --nodes, contexts are along texts that the target writes after each prompt.
    """
    import copy
    import dataclasses
    import itertools
    import os

    import numpy as np

    from otm.sequence import Memoised

    from ..files import write_json
    from ..models import causal, pair as pairs, source
    from ..provenance import environment, published_origin
    from ..steps import contexts, drafters as further, nodes as trees

    asked = {"--shapes": shapes, "--nodes": nodes, "--drafts": drafts}
    kinds = [name for name, value in asked.items() if value]
    _check(kinds, after_prompts=prompts is not None, third=third)
    load = os.getloadavg()
    sizes = [_size(each) for each in shapes or ["4,4", "8,8"]]
    pair = source.load_source(models)
    drafter, target = causal.pair_models(pair, setting)
    judge = Memoised(target)  # a draft that is made of it asks where it is asked itself
    drafters = [drafter, *(further.BlurredModel(judge, deviation) for deviation in blur or [])]
    for note in pair.notes:
        say(f"note     {note}")
    start, texts = np.random.default_rng(seed), None
    size, eos = (min(limit or num_contexts, num_contexts), context_tokens), pairs.end_of_text(pair)
    places = _places(pair, text, prompts, field=field, size=size, rng=start)
    if prompts is not None:
        places, texts = contexts.along_texts(
            judge, places, count=per_text, apart=apart, eos=eos, rng=start
        )
    if third is not None:
        places = contexts.third_by_entropy(judge, places, third, trees.DEPTH, start)
    made = _comparisons(sizes, nodes, drafts, num_sequences, noises=noises, only=only, texts=texts)
    tables: list[Any] = []
    for compare, drafter in itertools.product(made, drafters):
        rng = copy.deepcopy(start)
        tables.append(compare(draft=drafter, target=judge, contexts=places, rng=rng))
        say(f"{tables[-1]}\n")
        if out is not None:
            record = {
                "manifest": environment() | published_origin(load),
                "seed": seed,
                "sampling": setting.recorded,
            }
            write_json(out, record | {"tables": [dataclasses.asdict(one) for one in tables]})
    if out is not None:
        say(f"tables   {out}")


def _places(
    pair: Any,
    text: Path | None,
    prompts: Path | None,
    *,
    field: str,
    size: tuple[int, int],
    rng: Any,
) -> Any:
    """Return the contexts in a text, or the ends of prompts."""
    from ..files import SHIPPED_PAIR, read_small
    from ..models.prompts import encoded_prompts
    from ..steps.contexts import stretches

    if prompts is None:
        tokens = pair.encode(read_small(text or SHIPPED_PAIR / "held_out.txt", 1 << 28).decode())
        return stretches(tokens, size[1], size[0], rng)
    found = encoded_prompts(prompts, pair.encode_prompt, field=field, limit=size[0], most=size[1])
    return [tuple(one) for one in found]


def _comparisons(
    sizes: list[tuple[int, int]],
    nodes: Sequence[int] | None,
    drafts: Sequence[int] | None,
    num_sequences: Sequence[int] | None,
    *,
    noises: int,
    only: list[str] | None,
    texts: Any,
) -> list[Callable[..., Any]]:
    """Return the comparisons that are asked for, as functions of models, contexts and rng."""
    from ..steps import lists, nodes as trees, shapes

    if drafts:
        return [partial(lists.compare_lists, numbers=list(drafts), noises=noises)]
    if nodes:
        within: dict[str, Any] = {
            "nodes": list(nodes),
            "noises": noises,
            "only": only,
            "texts": texts,
        }
        return [partial(trees.compare_nodes, **within, numbers=num_sequences or trees.NUMBERS)]
    return [partial(shapes.compare_steps, num_drafts=k, length=length) for k, length in sizes]


def _check(kinds: list[str], *, after_prompts: bool, third: str | None) -> None:
    """Raise if two comparisons are asked for, or one that the contexts do not suit."""
    if len(kinds) > 1:
        raise AnalysisError(
            f"One comparison is made at a time; got {' and '.join(kinds)}. Pass one of them."
        )
    if after_prompts and (kinds != ["--nodes"] or third):
        raise AnalysisError(
            "Texts after prompts are compared by verified nodes, all of their contexts. Pass "
            "--nodes, and no --third."
        )


def _size(text: str) -> tuple[int, int]:
    k, _, length = text.partition(",")
    if k.strip().isdecimal() and length.strip().isdecimal() and int(k) * int(length):
        return int(k), int(length)
    raise AnalysisError(
        f"Shapes are written K,L with two integers of at least 1, such as 8,8; got {text!r}. "
        "Write them so."
    )
