"""`otm rules`: the rule that an engine runs, and the yields and needs of other rules."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from otm._machine.progress import report_phase, say
from otm.commands.options import Json, Seed, Settings, given_options
from otm.commands.printing import deliver

from ..errors import AnalysisError
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
    Texts,
    TextTokens,
    Threads,
    Weights,
    grouped,
    models_of,
    sampling_of,
    use_threads,
)

LIMITS = "Penalties and grammar, of the target alone"
BESIDE = "A second column beside"


@grouped(models=models_of, setting=sampling_of)
def rules(
    *,
    context: typer.Context,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Acceptance that an engine recorded: which rule ran there?"
        ),
    ] = None,
    engine: EngineName = None,
    rule: Annotated[
        str | None, typer.Option(metavar="NAME", help="The rule that --fail-below looks at.")
    ] = None,
    fail_below: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="Exit status 1 if the rule surely yields fewer tokens a call."
        ),
    ] = None,
    drafting: Annotated[
        bool,
        typer.Option(
            "--drafting", help="Search also for the draft's best processing and rules to stop."
        ),
    ] = False,
    draft_cost: Annotated[
        float,
        typer.Option(
            metavar="X", min=0.0, help="With --drafting: time of a draft in calls of the target."
        ),
    ] = 0.1,
    costs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Rank by speed with these costs: a record of latency or advise, or JSON.",
        ),
    ] = None,
    as_json: Json = None,
    settings: Settings = None,
    prompts: Prompts = None,
    limit: Limit = None,
    field: Field = "text",
    prompt_tokens: PromptTokens = 512,
    num_texts: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Texts, of the prompts in turns.", rich_help_panel=TEXTS
        ),
    ] = 10,
    num_tokens: TextTokens = 64,
    texts: Texts = None,
    seed: Seed = 0,
    length: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=64,
            help="Drafts in a row (default: the record's, or 4).",
            rich_help_panel=TREES,
        ),
    ] = None,
    tree_size: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=256, help="Drafts of a tree.", rich_help_panel=TREES),
    ] = 16,
    sequences: Sequences = 4,
    setting: Setting,
    repetition_penalty: Annotated[
        float,
        typer.Option(
            metavar="X",
            min=1e-3,
            help="Repetition penalty of the target's logits.",
            rich_help_panel=LIMITS,
        ),
    ] = 1.0,
    presence_penalty: Annotated[
        float,
        typer.Option(
            metavar="X", help="Presence penalty of the target's logits.", rich_help_panel=LIMITS
        ),
    ] = 0.0,
    frequency_penalty: Annotated[
        float,
        typer.Option(
            metavar="X", help="Frequency penalty of the target's logits.", rich_help_panel=LIMITS
        ),
    ] = 0.0,
    grammar: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Function from written tokens to allowed next tokens; the file is executed.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside-draft",
            metavar="NAME",
            help="Another draft model on the same texts.",
            rich_help_panel=BESIDE,
        ),
    ] = None,
    beside_dtype: Annotated[
        Weights | None,
        typer.Option(help="Weights of the draft beside.", rich_help_panel=BESIDE),
    ] = None,
    beside_target_dtype: Annotated[
        Weights | None,
        typer.Option(
            help="Weights of a target beside, which writes texts of its own.",
            rich_help_panel=BESIDE,
        ),
    ] = None,
    models: PairSource,
    threads: Threads = None,
) -> int:
    """Compare verification rules on texts.

    Prompts are the shipped ones unless others are given. With --texts, the texts that were written
    while --record was counted, rules are told apart by far fewer steps. With penalties or a grammar
    the column beside is a draft that knows them.

    Example: otm rules --draft NAME --target NAME --prompts prompts.txt --record counters.txt
    """
    from otm.commands.audit_run import find
    from otm.engines import read_acceptance, read_costs

    from ..files import SHIPPED_PAIR
    from ..models import causal, forced, pair as pairs, prompts as files, source
    from ..models.engines import ENGINES
    from ..rules import answer
    from ..rules.rules import Reader, Sizes

    if (rule is None) != (fail_below is None):
        raise AnalysisError("--rule and --fail-below go together; got one of them. Pass both.")
    use_threads(threads)
    known = None if record is None else read_acceptance(record)
    surface = None if costs is None else read_costs(*costs)
    own_engine = None if engine is None else ENGINES[engine]
    if length is None:
        usual = 4 if own_engine is None else own_engine.length
        length = usual if known is None else known.length or known.measured or usual
    if own_engine is not None and setting.draft == setting.target:
        setting = setting._replace(draft=own_engine.draft(setting.target))
    logged = _logged(texts, beside_target_dtype, known, length, num_texts)
    pair = source.load_source(models, two_tokenizers=True)
    numbered = [forced.token_numbers(pair, text) for text in logged]
    own = [list(one) for _, one in numbered]
    tokens = [list(one) for one, _ in numbered] or files.encoded_prompts(
        prompts or SHIPPED_PAIR / "prompts.txt",
        pair.encode_prompt,
        field=field,
        limit=limit,
        most=prompt_tokens,
    )
    most = max(map(len, own), default=num_tokens)
    sizes = Sizes(length, tree_size, sequences, most, len(own) or num_texts, seed)
    asked = {
        "repetition": repetition_penalty,
        "presence": presence_penalty,
        "frequency": frequency_penalty,
        "allowed": None if grammar is None else find(grammar)[0],
    }
    limits = {} if tuple(asked.values()) == (1.0, 0.0, 0.0, None) else asked
    draft, target = causal.pair_models(pair, setting)
    eos = pairs.end_of_text(pair)
    reading = functools.partial(Reader, setting=setting, sizes=sizes, eos=eos, limits=limits)
    reader = reading(draft, target, engine=own_engine)
    if rule is not None:
        answer.place_of(reader.rules, rule)  # refused before the texts are read
    other = reading(draft, target, aware=True) if limits else None
    if beside or beside_dtype or beside_target_dtype:
        names = {"draft": beside or models.draft, "dtype": beside_dtype or models.dtype}
        if beside or beside_dtype:
            draft, _ = _pair_of(models, setting, **names)
        if beside_target_dtype:
            _, target = _pair_of(models, setting, dtype=beside_target_dtype)
        _check_sizes(draft, target)
        other = reading(draft, target)
    read = answer.read_rules(reader, tokens, written=own, beside=other)
    shown, found = _screen(read, known, draft_cost if drafting else None, surface)
    shown += [f"note    {note}" for note in pair.notes]
    text = json.dumps(found | {"options": given_options(context)}, allow_nan=False)
    say(text if as_json == "-" else "\n".join(shown))
    if as_json not in (None, "-") and not deliver(str(as_json), text, command="rules"):
        return 2
    return int(rule is not None and _is_below(read, rule, fail_below or 0.0))


def _logged(
    texts: Path | None, other_target: str | None, known: Any, length: int, num_texts: int
) -> list[Any]:
    """Return the texts of a file, none without a file, or raise if a record needs others."""
    from otm.audit.text_log import read_texts

    from ..rules.attribution import FEWEST_TEXTS, statistics_of

    if known is not None:
        if num_texts < FEWEST_TEXTS and texts is None:
            raise AnalysisError(
                f"A record is compared with {FEWEST_TEXTS} texts or more, whose spread says how "
                f"sure the prediction is; got {num_texts}. Pass --num-texts {FEWEST_TEXTS}."
            )
        statistics_of(known, length)
    if texts is None:
        return []
    if other_target is not None:
        raise AnalysisError(
            f"Another target, in {other_target}, writes other texts; got --texts. Pass one of them."
        )
    if not (logged := read_texts(texts)):
        raise AnalysisError(f"The texts must be one at least; {texts} holds none. Log some.")
    return logged


def _pair_of(models: PairSource, setting: Setting, **changed: Any) -> Any:
    """Return the models of a pair with other names or weights."""
    from ..models import causal, source

    other = dataclasses.replace(models, **changed)
    return causal.pair_models(source.load_source(other, two_tokenizers=True), setting)


def _check_sizes(draft: Any, target: Any) -> None:
    """Raise unless two models have as many tokens."""
    if draft.num_tokens != target.num_tokens:
        raise AnalysisError(
            "A draft and a target of one column must have as many tokens; those beside have "
            f"{draft.num_tokens} and {target.num_tokens}. Pass them by --draft and --target "
            "in a run of their own."
        )


def _screen(
    read: Any, known: Any, draft_cost: float | None, costs: Any
) -> tuple[list[str], dict[str, Any]]:
    """Return the answer in words and as values of JSON; with the search for drafting if asked."""
    from ..files import json_values
    from ..rules import answer, drafting, screen

    named = None
    if known is not None:
        report_phase(f"record: {known.form}")
        named = answer.attribute(read, known)
    shown, found = [screen.rules_screen(read, named, costs)], answer.screen_json(read, named)
    if costs is not None:
        names = [rule.name for rule in read.rules]
        found["speeds"] = dict(zip(names, read.speeds(costs), strict=True))
    if draft_cost is not None:
        report_phase("drafting: processing and stop rules")
        best = drafting.best_processing(read)
        stops = drafting.best_stops(read, cost=draft_cost)
        shown.append(screen.drafting_words(best, stops, cost=draft_cost))
        found["drafting"] = {"processing": best, "stops": stops, "draft_cost": draft_cost}
    return shown, json_values(found)


def _is_below(read: Any, rule: str, least: float) -> bool:
    """Return True, with a message, if a rule may yield less than a limit."""
    from ..rules import answer

    yields = read.survivals.tokens(answer.place_of(read.rules, rule))
    if yields.low >= least:
        return False
    say(f"below: {rule} has {yields.words()} tokens a call, {least:g} are asked for", error=True)
    return True
