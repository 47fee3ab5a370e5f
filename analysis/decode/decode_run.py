"""A decoding run: a pair, decoders and prompts in, a results file and a table out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

import otm
from otm._display.tabular import columns
from otm._machine.progress import with_progress
from otm.sequence import Decoder, LanguageModel

from ..errors import AnalysisError
from ..files import held
from ..models.causal import pair_models
from ..models.pair import Pair, end_of_text
from ..models.processing import AS_THEY_ARE, Setting
from ..provenance import environment, model_identity, origin
from .efficiency import efficiency, measured_speedup
from .plain import PLAIN, decode_text
from .results import ResultsFile, Task, TextRecord, open_results, prompt_name

FEW_PROMPTS = 10
"""Below this many prompts an interval over prompts is rough: it rests on that few observations."""


def run_decode(
    pair: Pair,
    decoders: Mapping[str, Decoder],
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int,
    seeds: Sequence[int],
    out: Path,
    processing: Setting = AS_THEY_ARE,
) -> list[TextRecord]:
    """Decode every prompt with every decoder and seed, except texts that the results file holds.

    Tasks are ordered by prompt, so that a run stopped early has every decoder on the same prompts.
    Plain decoding is always included, as the baseline of speed-ups.

    Args:
        pair: the two models.
        decoders: by their texts.
        prompts: in tokens, at least one.
        num_tokens: tokens decoded per text.
        seeds: one text of a prompt and decoder each.
        out: the results file.
        processing: of each model's logits.

    Raises:
        AnalysisError: if another process writes to the results file, or as `run_tasks`.
    """
    draft, target = pair_models(pair, processing)
    models = {side: model_identity(place) for side, place in pair.places.items()}
    determining = {
        "num_tokens": num_tokens,
        "dtype": str(pair.target.dtype),
        **processing.recorded,
        # Not by name: the same weights elsewhere give the same results.
        "weights": {side: model["sha256"] for side, model in models.items()},
        "threads": torch.get_num_threads(),
        "device": pair.device,
    }
    names = {side: model["name"] for side, model in models.items()}
    provenance = environment() | origin() | {"models": names}
    named = {prompt_name(tokens): tokens for tokens in prompts}
    tasks = [
        Task(name, prompt, seed)
        for prompt in named
        for seed in seeds
        for name in (PLAIN, *decoders)
    ]

    def forget() -> None:
        draft.forget()
        target.forget()

    with held(out):
        results = ResultsFile(out, settings=determining, provenance=provenance)
        run_tasks(
            tasks,
            decoders=decoders,
            prompts=named,
            draft=draft,
            target=target,
            num_tokens=num_tokens,
            eos=end_of_text(pair),
            results=results,
            before_each=forget,
        )
        asked = set(tasks)
        return [record for record in open_results(out)[1] if record.task in asked]


def run_tasks(
    tasks: Sequence[Task],
    *,
    decoders: Mapping[str, Decoder],
    prompts: Mapping[str, Sequence[int]],
    draft: LanguageModel,
    target: LanguageModel,
    num_tokens: int,
    eos: int | None,
    results: ResultsFile,
    before_each: Callable[[], None] = lambda: None,
) -> None:
    """Decode the tasks that the results file does not hold yet, and append each record.

    `before_each` clears the models' caches: the last bits of a distribution may depend on them.

    Raises:
        AnalysisError: if a model fails; the file keeps all records before, and the message says
            which task it was.
    """
    done = sum(task in results.done for task in tasks)
    for task in with_progress(
        [task for task in tasks if task not in results.done], "texts", done=done
    ):
        before_each()
        rng = np.random.default_rng([task.seed, int(task.prompt, 16)])
        try:
            record = decode_text(
                None if task.decoder == PLAIN else decoders[task.decoder],
                prompts[task.prompt],
                draft=draft,
                target=target,
                num_tokens=num_tokens,
                rng=rng,
                eos=eos,
                task=task,
            )
        except otm.OtmError as error:
            raise AnalysisError(
                f"Decoding stopped at prompt {task.prompt}, seed {task.seed}, {task.decoder}: "
                f"{error} "
                f"{len(results.done)} records are safe in {results.path}; the same command goes on "
                "from there."
            ) from error
        results.append(record)


def summary_table(records: Iterable[TextRecord], decoders: Sequence[str]) -> str:
    """Return a table: tokens per serial call, accepted drafts, drafted tokens, speed."""
    found = list(records)
    head = (
        "decoder",
        "drafted",
        "tokens/call",
        "95 % interval",
        "accepted",
        "tokens/s",
        "x plain",
        "95 % interval",
        "texts",
    )
    cells: list[Sequence[str]] = [head]
    drafted = {record.task.decoder: record.drafted for record in found}
    rows = [efficiency(found, decoder=name) for name in decoders]
    for row in rows:
        tokens = row.tokens_per_call
        interval = tokens.ends(3) or "—"
        counts = [
            str(drafted[row.decoder]),
            f"{tokens.value:.3f}",
            interval,
            f"{row.accepted:.3f}",
        ]
        faster = measured_speedup(found, decoder=row.decoder)
        ratio = "—" if np.isnan(faster.value) else f"{faster.value:.2f}"
        sure = "—" if row.decoder == PLAIN else faster.ends(2) or "—"
        speed = [f"{row.tokens_per_second:.1f}", ratio, sure]
        cells.append([row.decoder, *counts, *speed, str(row.num_texts)])
    notes = [
        "tokens/call: decoded tokens per serial call of the target; interval: over prompts",
        "x plain: measured wall time against plain decoding of the same prompts, below 1 where "
        "drafting costs more than it wins",
    ]
    if min(row.num_prompts for row in rows) < FEW_PROMPTS:
        notes.append(f"fewer than {FEW_PROMPTS} prompts: the interval is rough")
    return "\n".join([*columns(cells, right=range(1, len(head))), *notes])
