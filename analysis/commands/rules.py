"""`python -m analysis rules`: which rule an engine runs, what others would give, what they need."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Annotated

import typer

from otm._machine.progress import say, told

from ..errors import AnalysisError
from ..files import SHIPPED_PAIR, json_values
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
    use_threads,
)

DRAFTED = "What is drafted"
LIMITS = "Penalties and grammar, of the target alone; beside: of the draft too"


@grouped
def rules(
    *,
    prompts: Prompts = SHIPPED_PAIR / "prompts.txt",
    models: PairSource,
    record: Annotated[
        Path | None,
        typer.Option(help="What the engine counted, as `otm plan` reads it: which rule is it?"),
    ] = None,
    written: Annotated[
        Path | None,
        typer.Option(
            help="The texts that were written while --record was counted, in a form of "
            "otm.audit.text_log: rules are held against these very texts, and told apart by far "
            "fewer steps."
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            help="Another draft model, or the same in --beside-dtype: the difference on the same "
            "texts."
        ),
    ] = None,
    beside_dtype: Annotated[
        str | None, typer.Option(help="The other draft's weights; those of --dtype without.")
    ] = None,
    beside_target_dtype: Annotated[
        str | None,
        typer.Option(
            help="The target in another precision, beside: on its own texts, by the same random "
            "numbers."
        ),
    ] = None,
    repetition_penalty: Annotated[
        float, typer.Option(min=1e-3, help="Of the target's logits.", rich_help_panel=LIMITS)
    ] = 1.0,
    presence_penalty: Annotated[
        float, typer.Option(help="Of the target's logits.", rich_help_panel=LIMITS)
    ] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option(help="Of the target's logits.", rich_help_panel=LIMITS)
    ] = 0.0,
    grammar: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help=(
                "Function from the tokens written to those that may follow. The file is executed."
            ),
            rich_help_panel=LIMITS,
        ),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="The rule that --fail-below looks at, by name.")
    ] = None,
    fail_below: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="Exit status 1 if the lower end of its tokens a call is below."
        ),
    ] = None,
    drafting: Annotated[
        bool,
        typer.Option(
            "--drafting", help="Search how to draft too: the draft's processing, when to stop."
        ),
    ] = False,
    draft_cost: Annotated[
        float,
        typer.Option(
            min=0.0, help="With --drafting: time of a draft, as a part of a target call's."
        ),
    ] = 0.1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON instead of words.")
    ] = False,
    limit: Limit = None,
    field: Field = "text",
    chat_template: ChatTemplate = False,
    prompt_tokens: PromptTokens = 512,
    texts: Annotated[
        int, typer.Option(min=1, help="Texts, of the prompts in turns.", rich_help_panel=TEXTS)
    ] = 10,
    num_tokens: TextTokens = 64,
    seed: Annotated[int, typer.Option(min=0, help="Seed of texts.", rich_help_panel=TEXTS)] = 0,
    length: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Drafts in a row. Default: the record's, or 4.",
            rich_help_panel=DRAFTED,
        ),
    ] = None,
    nodes: Annotated[
        int, typer.Option(min=1, max=256, help="Drafts of a tree.", rich_help_panel=DRAFTED)
    ] = 16,
    sequences: Annotated[
        int,
        typer.Option(min=1, max=16, help="Sequences of refined scores.", rich_help_panel=DRAFTED),
    ] = 4,
    setting: Setting,
    threads: Threads = None,
) -> None:
    """Say what every verification rule gives on one's texts, and which one a record comes from.

    Example: rules --draft my-draft --target my-model --prompts prompts.txt --record counters.txt
    """
    from otm.audit.text_log import read_texts
    from otm.commands.audit_run import find
    from otm.engines import read_acceptance

    from ..models.causal import pair_models
    from ..models.forced import numbers_of
    from ..models.pair import end_of_text
    from ..models.prompts import encoded_prompts
    from ..models.source import load_source
    from ..rules import answer
    from ..rules.attribution import FEWEST_TEXTS, observed
    from ..rules.drafting import best_processing, best_stops
    from ..rules.rules import Reader, Sizes
    from ..rules.screen import drafting_words, screen

    if (rule is None) != (fail_below is None):
        raise AnalysisError("--rule and --fail-below go together; got one of them. Pass both.")
    use_threads(threads)
    known = None if record is None else read_acceptance(record)
    if length is None:
        length = 4 if known is None else known.length or known.measured or 4
    if known is not None:
        if texts < FEWEST_TEXTS and written is None:
            raise AnalysisError(
                f"A record is compared with {FEWEST_TEXTS} texts or more, whose spread says how "
                f"sure the prediction is; got {texts}. Pass --texts {FEWEST_TEXTS}."
            )
        observed(known, length)  # refused before models are loaded
    if written is not None and beside_target_dtype:
        raise AnalysisError(
            f"Another target, in {beside_target_dtype}, writes other texts; got --written. Pass "
            "one of them."
        )
    logged = [] if written is None else read_texts(written)
    if written is not None and not logged:
        raise AnalysisError(f"The texts must be one at least; {written} holds none. Log some.")
    pair = load_source(models, two_tokenizers=True)
    if logged:
        numbered = [numbers_of(pair, text) for text in logged]
        tokens, own = ([list(one) for one in side] for side in zip(*numbered, strict=True))
        num_tokens = max(map(len, own))
    else:
        own = []
        tokens = encoded_prompts(
            prompts,
            pair.encode_chat if chat_template else pair.encode,
            field=field,
            limit=limit,
            most=prompt_tokens,
        )
    sizes = Sizes(length, nodes, sequences, num_tokens, len(own) or texts, seed)
    draft, target = pair_models(pair, setting)
    asked = {
        "repetition": repetition_penalty,
        "presence": presence_penalty,
        "frequency": frequency_penalty,
        "allowed": None if grammar is None else find(grammar)[0],
    }
    limits = {} if tuple(asked.values()) == (1.0, 0.0, 0.0, None) else asked
    reading = functools.partial(
        Reader, setting=setting, sizes=sizes, eos=end_of_text(pair), limits=limits
    )
    reader = reading(draft, target)
    if rule is not None:
        answer.place_of(reader.rules, rule)  # refused before the texts are read
    other = reading(draft, target, aware=True) if limits else None
    if beside or beside_dtype or beside_target_dtype:
        source = dataclasses.replace(
            models, draft=beside or models.draft, dtype=beside_dtype or models.dtype
        )
        if beside or beside_dtype:
            draft, _ = pair_models(load_source(source, two_tokenizers=True), setting)
        if beside_target_dtype:
            source = dataclasses.replace(models, dtype=beside_target_dtype)
            _, target = pair_models(load_source(source, two_tokenizers=True), setting)
        if draft.num_tokens != target.num_tokens:
            raise AnalysisError(
                "A draft and a target of one column must have as many tokens; those beside have "
                f"{draft.num_tokens} and {target.num_tokens}. Pass them by --draft and --target "
                "in a run of their own."
            )
        other = reading(draft, target)
    read = answer.read_rules(reader, tokens, written=own, beside=other)
    named = None
    if known is not None:
        told(f"record: {known.form}")
        named = answer.attribute(read, known)
    shown, found = [screen(read, named)], answer.as_json(read, named)
    if drafting:
        told("drafting: processing and stop rules")
        best, stops = best_processing(read), best_stops(read, cost=draft_cost)
        shown.append(drafting_words(best, stops, cost=draft_cost))
        found["drafting"] = {"processing": best, "stops": stops, "draft_cost": draft_cost}
    shown += [f"note    {note}" for note in pair.notes]
    say(json.dumps(json_values(found), allow_nan=False) if as_json else "\n".join(shown))
    if rule is not None and fail_below is not None:
        yields = read.survivals.tokens(answer.place_of(read.rules, rule))
        if not yields.low >= fail_below:
            words = f"{yields.words()} tokens a call, {fail_below:g} are asked for"
            say(f"below: {rule} has {words}", error=True)
            raise typer.Exit(1)
