"""A decoding run: a pair, decoders and prompts in, a results file and a table out."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from otm.sequence import Decoder

from ..errors import AnalysisError
from ..models.causal import pair_models
from ..models.pair import SHIPPED_PAIR, Pair
from ..provenance import environment, origin, weights_digest
from .decoding import Record, ResultsFile, Task, efficiency, prompt_name, read_results, run_tasks

FEW_PROMPTS = 10
"""Below this many prompts an interval over prompts is rough: it rests on that few observations."""


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """What a record depends on besides decoder, prompt and seed.

    Attributes:
        draft, target: names of the models; None for the shipped ones.
        num_tokens: tokens decoded per text.
        temperature, top_p: of both models.
        dtype: of the weights.
    """

    draft: str | None
    target: str | None
    num_tokens: int
    temperature: float
    top_p: float | None
    dtype: str


def run_decode(
    pair: Pair,
    decoders: dict[str, Decoder],
    prompts: Sequence[Sequence[int]],
    *,
    settings: RunSettings,
    seeds: Sequence[int],
    out: Path,
) -> list[Record]:
    """Decode every prompt with every decoder and seed, skipping what the results file holds, and return their records.

    Tasks are ordered by prompt, so that a run stopped early has every decoder on the same prompts.
    """
    if not prompts:
        raise AnalysisError("Decoding needs at least one prompt; the file has none. Give one per line.")
    draft, target = pair_models(pair, settings.temperature, settings.top_p)
    names = {side: getattr(settings, side) or str(SHIPPED_PAIR / side) for side in ("draft", "target")}
    determining = dataclasses.asdict(settings) | {
        "weights": {side: weights_digest(name) for side, name in names.items()},
        "threads": torch.get_num_threads(),
        "device": pair.device,
    }
    del determining["draft"], determining["target"]  # the same weights elsewhere give the same results
    provenance = environment() | origin() | {"models": {side: Path(name).name for side, name in names.items()}}
    results = ResultsFile(out, settings=determining, provenance=provenance)
    named = {prompt_name(tokens): tokens for tokens in prompts}
    tasks = [Task(name, prompt, seed) for prompt in named for seed in seeds for name in decoders]
    with tqdm(total=len(tasks), unit="text", disable=not sys.stderr.isatty()) as bar:
        bar.update(sum(task in results.done for task in tasks))

        def forget() -> None:
            draft.forget()
            target.forget()

        def advance(record: Record) -> None:
            bar.set_postfix_str(f"{sum(record.lengths) / max(1, record.num_calls):.2f} tokens/call")
            bar.update()

        run_tasks(
            tasks,
            decoders=decoders,
            prompts=named,
            draft=draft,
            target=target,
            num_tokens=settings.num_tokens,
            eos=_end_of_text(pair),
            results=results,
            before_each=forget,
            after_each=advance,
        )
    asked = set(tasks)
    return [record for record in read_results(out)[1] if record.task in asked]


def summary_table(records: Iterable[Record], decoders: Sequence[str]) -> str:
    """Return a table: tokens per serial call with its interval, accepted drafts, drafted tokens, speed."""
    from rich.console import Console
    from rich.table import Table

    found = list(records)
    table = Table(box=None, pad_edge=False)
    table.add_column("decoder")
    for title in ("drafted", "tokens/call", "95 % interval", "accepted", "tokens/s", "texts"):
        table.add_column(title, justify="right")
    drafted = {record.task.decoder: record.drafted for record in found}
    rows = [efficiency(found, decoder=name) for name in decoders]
    for row in rows:
        interval = f"{row.low:.3f} to {row.high:.3f}" if row.low is not None else "—"
        cells = [str(drafted[row.decoder]), f"{row.mean:.3f}", interval, f"{row.accepted:.3f}"]
        table.add_row(row.decoder, *cells, f"{row.tokens_per_second:.1f}", str(row.num_texts))
    notes = ["tokens/call: decoded tokens per serial call of the target; interval: over prompts, as in `report`"]
    if min(row.num_prompts for row in rows) < FEW_PROMPTS:
        notes.append(f"fewer than {FEW_PROMPTS} prompts: the interval is rough")
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(table)
        for note in notes:
            console.print(note, style="dim")
    return capture.get()


def _end_of_text(pair: Pair) -> int | None:
    """Return the tokenizer's end-of-sequence token if it has one that both models score."""
    token: Any = pair.tokenizer.eos_token_id
    return int(token) if token is not None and int(token) < pair.num_tokens else None
