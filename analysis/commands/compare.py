"""`otm compare`: every scheme on the rows of two files, or on both models' laws after prompts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from otm._machine.progress import clock, with_progress
from otm.commands.app import require_extra
from otm.commands.options import Json, Seed, given_options, numbers
from otm.commands.printing import deliver, print_report, require_place

from ..errors import AnalysisError
from .options import (
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

FILES, PROMPTS = "Two files", "Two models after prompts"


@grouped(models=models_of, setting=sampling_of)
def compare(
    *,
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DRAFT TARGET",
            help="Two files of probabilities (.npy, .npz, JSON, CSV), or one with both names.",
        ),
    ] = None,
    logits: Annotated[
        bool,
        typer.Option("--logits", help="The files hold logits.", rich_help_panel=FILES),
    ] = False,
    row: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Only this row of a batch, from 0 (default: a table for each).",
            rich_help_panel=FILES,
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="The text before the token that is drafted.",
            rich_help_panel=PROMPTS,
        ),
    ] = None,
    prompts: Prompts = None,
    field: Field = "text",
    limit: Limit = None,
    nodes: Annotated[
        Sequence[int] | None,
        numbers(
            "With six --prompts or more: also compare draft trees of these sizes.", panel=PROMPTS
        ),
    ] = None,
    drafts: Annotated[
        Sequence[int] | None, numbers("Numbers of drafts (default: 1,2,4,8).")
    ] = None,
    setting: Setting,
    samples: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Monte Carlo draws per row (default: of files, where no exact value is known; "
            "2,000 after one prompt, else 0).",
        ),
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        output_file("File of the tables: .csv, .tex or .json; of a plot: .png, .pdf or .svg."),
    ] = None,
    as_json: Json = None,
    models: PairSource,
) -> int:
    """Compare every scheme on pairs of distributions.

    Either two files, DRAFT and TARGET, of one row, one column, or rows of a batch; or the laws of
    two models after prompts.

    Examples: otm compare p.npy q.npy --drafts 1-4;
    otm compare --draft NAME --target NAME --prompt "Once upon a"
    """
    from otm.commands.compare_files import ENDINGS, as_json as record_of, write_tables

    require_place(out, ENDINGS)
    if bool(files) + (prompt is not None) + (prompts is not None) != 1 or (nodes and not prompts):
        raise AnalysisError(
            "A comparison needs two files, --prompt TEXT or --prompts FILE, and for --nodes the "
            "last; pass one of them."
        )
    context.with_resource(clock("comparison"))
    asked: dict[str, Any] = {"ks": list(drafts or [1, 2, 4, 8]), "samples": samples, "seed": seed}
    if files:
        how: dict[str, Any] = {"logits": logits, "processing": setting, "row": row, "limit": limit}
        words, tables = _of_files(files, out, **how, **asked)
    else:
        require_extra("analysis")
        texts = [str(prompt)] if prompts is None else _texts(prompts, nodes, field, limit)
        words, tables = _after_prompts(texts, models, setting, nodes, **asked)
    arrived = as_json == "-" or print_report("\n".join(words), command="compare")
    if as_json is not None:
        arrived &= deliver(
            as_json, record_of(tables, options=given_options(context)), command="compare"
        )
    if out is not None:
        arrived &= write_tables(out, tables)
    return 0 if arrived else 2


def _of_files(
    files: list[str], out: Path | None, *, ks: list[int], samples: int | None, seed: int, **how: Any
) -> tuple[list[str], dict[str, Any]]:
    """Return the words on each row of two files, and the tables by row."""
    import otm
    from otm.commands.compare_files import PICTURES, read_rows, table_and_advice

    pairs = read_rows(files, **how)
    if out is not None and out.suffix in PICTURES and len(pairs) > 1:
        raise AnalysisError(f"A plot shows one row; there are {len(pairs)}. Choose one: --row 0.")
    tables = {
        name: otm.compare(draft=one.draft, target=one.target, k=ks, samples=samples, rng=seed)
        for name, one in with_progress(pairs.items(), "rows")
    }
    heads = [f"{name}\n\n" if len(pairs) > 1 else "" for name in tables]
    said = map(table_and_advice, tables.values())
    return [f"{head}{one}\n" for head, one in zip(heads, said, strict=True)], tables


def _texts(prompts: Path, nodes: Sequence[int] | None, field: str, limit: int | None) -> list[str]:
    """Return the prompts of a file, or raise if there are too few."""
    from ..models import prompts as files
    from ..steps.contexts import LEAST_CONTEXTS

    source = files.first_of(files.open_prompts(prompts, field=field), limit)
    texts = [text for _, text in source.texts()]
    if len(texts) < (least := LEAST_CONTEXTS if nodes else 1):
        raise AnalysisError(
            f"A comparison of this kind needs {least} prompts or more; {prompts} has "
            f"{len(texts)}. Add some."
        )
    return texts


def _after_prompts(
    texts: Sequence[str],
    models: PairSource,
    setting: Setting,
    nodes: Sequence[int] | None,
    *,
    ks: list[int],
    samples: int | None,
    seed: int,
) -> tuple[list[str], dict[str, Any]]:
    """Return the words on two models' laws after prompts, and the table by name."""
    import numpy as np

    from otm.commands.compare_files import table_and_advice

    from ..models import causal, processing, source as sources
    from ..report import next_token
    from ..steps import drafted_sequences, nodes as trees

    pair = sources.load_source(models)
    tokens = [pair.encode_prompt(text) for text in texts]
    found = [
        next_token.next_token(pair, *one, setting=setting)
        for one in zip(texts, tokens, strict=True)
    ]
    words = []
    for one in found:
        likely = (f"{token!r} q={q:.3f} p={p:.3f}" for token, p, q in one.likely)
        words += [f"prompt   {one.prompt}", "next     " + ", ".join(likely)]
    asked = [
        processing.setting_text(name, value)
        for name, value in setting.recorded.items()
        if value is not None
    ]
    words += [", ".join([f"V = {pair.num_tokens}", *asked, pair.device])]
    words += [f"note     {note}" for note in pair.notes]
    rng, usual = np.random.default_rng(seed), 2_000 if len(texts) == 1 else 0
    draws = usual if samples is None else samples
    result = next_token.compare_next(found, k=ks, samples=draws, rng=rng)
    words += [f"\n{result.bounds}"]
    if nodes:
        draft, target = causal.pair_models(pair, setting)
        by_nodes = trees.compare_nodes(
            draft=draft,
            target=target,
            contexts=[tuple(one) for one in tokens],
            nodes=nodes,
            noises=4,
            only=(trees.LIKELIEST, drafted_sequences.REFINED),
            rng=rng,
        )
        words += [f"\n{by_nodes}"]
    return [*words, "", table_and_advice(result.table)], {result.prompt: result.table}
