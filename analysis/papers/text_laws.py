"""Laws of drafts along sampled texts of the target, stored text by text.

The output of a lossless decoder is a text of the target. So the texts are sampled once, from the
target alone, and the expected steps of each decoder on them follow exactly, whichever decoder it
is (`analysis.advise.laws`): decoders are compared on the same texts, and nothing is decoded. A
killed run goes on from the texts that are finished.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import otm
from otm._machine.arrays import inverse_cdf, to_numpy
from otm._machine.progress import report_phase

from ..advise.laws import (
    RankLaw,
    SurvivorLaw,
    kseq_survivors,
    optimal_survivors,
    race_ranks,
    rejection_ranks,
)
from ..decode.results import prompt_name
from ..errors import AnalysisError
from ..files import make_folder, write_atomically
from ..models.pair import Pair, end_of_text
from ..steps.texts import SampledText

MOST_SEQUENCES = 8
MOST_CHILDREN = 16
_AT_ONCE = 8
"""Texts that are sampled together."""

Law = SurvivorLaw | RankLaw


_READ: dict[str, tuple[Callable[..., Law], int]] = {
    "K-SEQ": (kseq_survivors, MOST_SEQUENCES),
    "Optimal": (optimal_survivors, MOST_SEQUENCES),
    "GSD": (rejection_ranks, MOST_CHILDREN),
    "ERSD": (race_ranks, MOST_CHILDREN),
}
KINDS = tuple(_READ)
"""Kinds of laws along a text: survivors of K i.i.d. sequences by verifier, ranks of children by
method.
"""


def law_of(kind: str, text: SampledText, eos: int | None, rng: np.random.Generator) -> Law:
    """Return the law of a kind in `KINDS` along a text; that of ranks is averaged over samples."""
    read, most = _READ[kind]
    sampled = {"rng": rng} if read is rejection_ranks else {}
    return read(text.draft, text.target, text.tokens, most=most, eos=eos, **sampled)


def laws_along(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    *,
    kinds: Sequence[str],
    seeds: Sequence[int],
    num_tokens: int,
    folder: Path,
    determining: Any,
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield prompt number, seed and laws of each text; prompts outside, seeds inside.

    Args:
        pair: the two models.
        prompts: tokens of the prompts, all of one length.
        kinds: names in `KINDS`.
        seeds: one text of every prompt for each.
        num_tokens: length of a text at most.
        folder: where finished texts are kept.
        determining: what the laws depend on besides, the models' weights: written as JSON, it names
            a folder of its own.
    """
    eos = end_of_text(pair)
    record = json.dumps([determining, num_tokens, MOST_SEQUENCES, MOST_CHILDREN], sort_keys=True)
    own = make_folder(folder / hashlib.sha256(record.encode()).hexdigest()[:12])
    tasks = [(number, seed) for number in range(len(prompts)) for seed in seeds]
    for start in range(0, len(tasks), _AT_ONCE):
        group = tasks[start : start + _AT_ONCE]
        files = [
            {kind: own / f"{prompt_name(prompts[number])}-{seed}-{kind}.npz" for kind in kinds}
            for number, seed in group
        ]
        missing = [
            i for i, paths in enumerate(files) if not all(path.is_file() for path in paths.values())
        ]
        report_phase("texts", f"{start} of {len(tasks)}")
        texts = _texts(
            pair,
            [(prompts[group[i][0]], group[i][1]) for i in missing],
            num_tokens,
            eos,
        )
        for i, text in zip(missing, texts, strict=True):
            for kind, path in files[i].items():
                if not path.is_file():
                    rng = np.random.default_rng([group[i][1], int(prompt_name(text.prefix), 16), 1])
                    write_atomically(path, _packed(law_of(kind, text, eos, rng)))
        for (number, seed), paths in zip(group, files, strict=True):
            yield number, seed, {kind: _unpacked(path) for kind, path in paths.items()}


@torch.inference_mode()
def _texts(
    pair: Pair, tasks: Sequence[tuple[Sequence[int], int]], num_tokens: int, eos: int | None
) -> Iterator[SampledText]:
    """Sample continuations of all prompts together, and read the draft along each."""
    if not tasks:
        return
    rows = torch.tensor([list(prompt) for prompt, _ in tasks], device=pair.device)
    uniforms = [
        np.random.default_rng([seed, int(prompt_name(prompt), 16)]).random(num_tokens)
        for prompt, seed in tasks
    ]
    fresh, cache = rows, None
    laws: list[NDArray[np.float64]] = []
    sampled: list[NDArray[np.int64]] = []
    for step in range(num_tokens):
        answer = pair.target(fresh, past_key_values=cache, use_cache=True)
        cache = answer.past_key_values
        laws.append(to_numpy(otm.from_logits(answer.logits[:, -1, : pair.num_tokens].double())))
        sampled.append(
            np.array(
                [int(inverse_cdf(law, u[step])) for law, u in zip(laws[-1], uniforms, strict=True)]
            )
        )
        fresh = torch.from_numpy(sampled[-1])[:, None].to(pair.device)
    tokens = np.stack(sampled, axis=1)
    whole = torch.cat([rows, torch.from_numpy(tokens[:, :-1]).to(pair.device)], dim=1)
    for i, (prompt, _) in enumerate(tasks):
        ends = np.flatnonzero(tokens[i] == (-1 if eos is None else eos))
        length = int(ends[0]) + 1 if len(ends) else num_tokens
        logits = pair.draft(whole[i : i + 1, : rows.shape[1] + length - 1], use_cache=False).logits
        draft = to_numpy(
            otm.from_logits(logits[0, rows.shape[1] - 1 :, : pair.num_tokens].double())
        )
        target = np.stack([law[i] for law in laws[:length]])
        yield SampledText(tuple(prompt), tokens[i, :length], draft, target)


def _packed(law: Law) -> bytes:
    arrays: dict[str, Any] = {
        field.name: getattr(law, field.name).astype(np.float32) for field in dataclasses.fields(law)
    }
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _unpacked(path: Path) -> Law:
    try:
        with np.load(path) as file:
            arrays = {name: file[name].astype(np.float64) for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise AnalysisError(
            f"{path} cannot be read ({error}). Delete it; the same command makes it again."
        ) from error
    return SurvivorLaw(**arrays) if "alive" in arrays else RankLaw(**arrays)
