"""`python -m analysis steps`: tokens per call of several drafted sequences, decoder by decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from otm._machine.progress import say

from ..errors import AnalysisError
from ..files import SHIPPED_PAIR
from ..models.processing import Setting
from ..models.source import PairSource
from .options import Field, grouped, output_option


@grouped
def steps(
    *,
    text: Annotated[
        Path, typer.Option(help="UTF-8 text; contexts are stretches of it.")
    ] = SHIPPED_PAIR / "held_out.txt",
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="With --nodes: one prompt per line, JSON lines or Parquet; contexts are along a "
            "text that the target writes after each, instead of --text."
        ),
    ] = None,
    field: Field = "text",
    per_text: Annotated[
        int, typer.Option(min=1, help="With --prompts: contexts of each text.")
    ] = 3,
    apart: Annotated[
        int, typer.Option(min=1, help="With --prompts: tokens from one context to the next.")
    ] = 24,
    models: PairSource,
    sequences: Annotated[
        list[str] | None, typer.Option(help="K,L: sequences and their length, repeatable.")
    ] = None,
    nodes: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="Compare all schemes within this many verified nodes instead, repeatable."
        ),
    ] = None,
    noises: Annotated[
        int, typer.Option(min=2, help="With --nodes and --drafts: noises of each context.")
    ] = 4,
    blur: Annotated[
        list[float] | None,
        typer.Option(
            min=0.0,
            help="Beside the draft one that is the target, its log-probabilities with normal "
            "noise of this deviation, repeatable.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="With --nodes: only this scheme of the table, repeatable."),
    ] = None,
    numbers: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="With --nodes: numbers of independent sequences, 1 besides, repeatable.",
        ),
    ] = None,
    drafts: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Compare laws and verifiers of one token by this mean number of drafts instead, "
            "repeatable.",
        ),
    ] = None,
    choice: Annotated[
        Path | None,
        typer.Option(
            help="A record of advise or latency, what passes take: compare a plan for each context "
            "with one for all, along texts that the target writes, at these costs and others.",
        ),
    ] = None,
    third: Annotated[
        str | None,
        typer.Option(
            help="low, middle or high: only the third of the contexts after which the target's "
            "entropy is so."
        ),
    ] = None,
    contexts: Annotated[int, typer.Option(min=6, help="How many contexts.")] = 400,
    context_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a context.")] = 64,
    setting: Setting,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the contexts and drafts.")] = 0,
    out: Annotated[Path | None, output_option("Where to write the tables (JSON).")] = None,
) -> None:
    """Compare decoders of K drafted sequences on the same drafts, all schemes within a number of
    verified nodes, or laws and verifiers of one token: means with intervals, beside a bound.
    """
    import copy
    import dataclasses
    import itertools
    import os

    import numpy as np

    from otm.sequence import Memoised

    from ..advise.choice import ChoiceTable, compare_choice, costs_with
    from ..files import read_small, write_json
    from ..models.causal import pair_models
    from ..models.pair import end_of_text
    from ..models.prompts import encoded_prompts
    from ..models.source import load_source
    from ..provenance import environment, published_origin
    from ..steps.contexts import along_texts, third_by_entropy, windows
    from ..steps.drafters import BlurredModel
    from ..steps.lists import ListTable, compare_lists
    from ..steps.nodes import DEPTH, NUMBERS, compare_nodes
    from ..steps.rows import NodeTable
    from ..steps.shapes import StepTable, compare_steps

    asked = {"--sequences": sequences, "--nodes": nodes, "--drafts": drafts, "--choice": choice}
    kinds = [name for name, value in asked.items() if value]
    if len(kinds) > 1:
        raise AnalysisError(
            f"One comparison is made at a time; got {' and '.join(kinds)}. Pass one of them."
        )
    if prompts is not None and (kinds != ["--nodes"] or third):
        raise AnalysisError(
            "Texts after prompts are compared by verified nodes, all of their contexts. Pass "
            "--nodes, and no --third."
        )
    if choice is not None and blur:
        raise AnalysisError("A plan for each context is of the draft itself. Leave --blur out.")
    load = os.getloadavg()
    sizes = [_size(each) for each in sequences or ["4,4", "8,8"]]
    pair = load_source(models)
    drafter, target = pair_models(pair, setting)
    judge = Memoised(target)  # a draft that is made of it asks where it is asked itself
    drafters = [drafter, *(BlurredModel(judge, deviation) for deviation in blur or [])]
    for note in pair.notes:
        say(f"note     {note}")
    tables: list[StepTable | NodeTable | ListTable | ChoiceTable] = []
    start = np.random.default_rng(seed)
    texts = None
    if prompts is None:
        tokens = pair.encode(read_small(text, 1 << 28).decode())
        places = windows(tokens, context_tokens, contexts, start)
    else:
        written = encoded_prompts(
            prompts, pair.encode, field=field, limit=contexts, most=context_tokens
        )
        places, texts = along_texts(
            judge,
            [tuple(one) for one in written],
            count=per_text,
            apart=apart,
            eos=end_of_text(pair),
            rng=start,
        )
    if third is not None:
        places = third_by_entropy(judge, places, third, DEPTH, start)
    by_size = not (nodes or drafts or choice)
    for size, drafter in itertools.product(sizes if by_size else [None], drafters):
        rng = copy.deepcopy(start)
        given: dict[str, Any] = {"draft": drafter, "target": judge, "contexts": places, "rng": rng}
        if size is not None:
            tables.append(compare_steps(**given, num_drafts=size[0], length=size[1]))
        elif choice is not None:
            given |= {"target": target, "costs": costs_with(choice), "eos": end_of_text(pair)}
            tables.append(compare_choice(**given))
        elif drafts:
            tables.append(compare_lists(**given, numbers=drafts, noises=noises))
        else:
            given |= {"nodes": nodes or [], "noises": noises, "only": only, "texts": texts}
            tables.append(compare_nodes(**given, numbers=numbers or NUMBERS))
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


def _size(text: str) -> tuple[int, int]:
    try:
        k, length = (int(part) for part in text.split(","))
        if min(k, length) >= 1:
            return k, length
    except ValueError:
        pass
    raise AnalysisError(
        f"Sequences are written K,L with two integers of at least 1, such as 8,8; got {text!r}. "
        "Write them so."
    )
