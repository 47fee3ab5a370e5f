"""A draft for a target from texts: features, training, held-out acceptance, model card."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from otm._display.tabular import markdown
from otm.results.statistics import ratio_of_means

from ..errors import AnalysisError
from ..files import write_atomically, write_json
from ..models.distilled import WEIGHTS, is_distilled
from ..models.pair import Pair, load_pair, load_target
from ..models.public import PUBLIC
from ..provenance import file_digest
from ..statistics import limits
from .corpus import Corpus, sources_table
from .distillation import TRAIN, Distillation, prepare, train_draft, write_draft
from .training import acceptance_curves, check_numbers, read_recipe

CURVE_K = (1, 2, 4, 8)
_EVERY = 16
"""Distance between held-out positions that are verified with several drafts: neighbours are too
alike to tell much more.
"""

_FROM_ZERO = ("warm_up", "steps", "fall", "seed")


def distillation_from_json(path: Path) -> Distillation:
    """Read a draft's recipe written as JSON; see `analysis.train.training.read_recipe`."""

    def built(values: Any) -> Distillation:
        for name in {"layers", "temperatures"}.intersection(values):
            values[name] = tuple(values[name])
        recipe = Distillation(**values)
        if not all(type(heat) in (int, float) and 0 < heat < 1e3 for heat in recipe.temperatures):
            raise ValueError(f"temperatures must be numbers > 0; got {recipe.temperatures!r:.40}")
        if recipe.start is not None and not is_distilled(Path(str(recipe.start))):
            raise ValueError(f"start must be a distilled draft's folder; got {recipe.start!r:.80}")
        if not recipe.layers or any(type(number) is not int for number in recipe.layers):
            raise ValueError(
                f"layers must be one or more layers' numbers; got {recipe.layers!r:.40}"
            )
        check_numbers(recipe, from_zero=_FROM_ZERO)
        if recipe.context % 4 or recipe.fall > recipe.steps:
            raise ValueError("context must be a multiple of 4, and fall at most steps")
        return recipe

    return read_recipe(path, "A draft's recipe", Distillation, built)  # type: ignore[no-any-return]


def distil(
    target: str,
    corpus: Corpus,
    recipe: Distillation,
    *,
    out: Path,
    work: Path,
    device: str = "auto",
    threads: int | None = None,
) -> dict[str, Any]:
    """Train a draft for a target, write draft and card to `out`, and return the record.

    A run killed at any point continues from what is in `work`. Weights are written in float16, and
    the figures are those of the written weights.

    Raises:
        AnalysisError: if the target cannot be loaded or is no Llama, a layer does not exist, or
            `work` belongs to another run.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    model, tokenizer = load_target(target, device=device, dtype=torch.bfloat16)
    _check_target(model, recipe)
    shards = prepare(model, tokenizer, corpus, recipe, work)
    exact, _ = load_target(target, device=device)
    draft, vocabulary = train_draft(exact, shards, recipe, work, device=str(exact.device))
    write_draft(draft, vocabulary, out)
    pair = load_pair(draft=str(out), target=target, device=device)
    public = PUBLIC.get(target)
    record = {
        "target": {
            "name": public.title if public else Path(target).name,
            "weights": public.weights if public else None,
        },
        "recipe": dataclasses.asdict(recipe),
        "start": file_digest(Path(recipe.start) / WEIGHTS) if recipe.start else None,
        "parameters": sum(value.numel() for value in draft.trained().values()),
        "sha256": file_digest(out / WEIGHTS),
        "k": list(CURVE_K),
        "acceptance": acceptance_by_kind(
            pair, {kind: paths for kind, paths in shards.items() if kind != TRAIN}
        ),
        "corpus": dict(corpus.provenance)
        | {"sha256": corpus.digest, "documents": len(corpus.documents)},
        "versions": {
            name: metadata.version(name)
            for name in ("torch", "transformers", "safetensors", "numpy")
        }
        | {"python": sys.version.split()[0]},
    }
    write_json(out / "training.json", record)
    write_atomically(out / "README.md", card(record).encode())
    return record


def _check_target(model: Any, recipe: Distillation) -> None:
    if model.config.model_type != "llama":
        raise AnalysisError(
            "A draft is distilled from a Llama target; this is of type "
            f"{model.config.model_type!r}. Choose a Llama model."
        )
    most = model.config.num_hidden_layers
    if (
        not all(-most <= layer < most for layer in recipe.layers)
        or recipe.head > model.config.vocab_size
    ):
        raise AnalysisError(
            f"The recipe asks for the layers {recipe.layers} and a head over {recipe.head} tokens; "
            f"the target has {most} layers "
            f"and {model.config.vocab_size} tokens. Correct the recipe."
        )


def acceptance_by_kind(
    pair: Pair, shards: Mapping[str, list[Path]]
) -> dict[str, dict[str, list[dict[str, float | None]]]]:
    """Return mean acceptances of k i.i.d. drafts at every `_EVERY`-th position of windows by kind.

    Kinds are those of the shards, and "all" of them together. The 95 % intervals are over windows.

    Tokens that the draft never proposes are one token here: no acceptance tells them apart. Their
    mean mass is 1 − Q(S), and "Q(S)", which no acceptance exceeds, is part of the result.
    """
    rows: dict[str, dict[str, list[NDArray[np.float64]]]] = {}
    for kind, paths in shards.items():
        for draft, target in _laws(pair, paths):
            curves = acceptance_curves(draft, target, CURVE_K, ["K-SEQ"])
            found = {name: np.stack(list(curve), axis=-1) for name, curve in curves.items()}
            found["Q(S)"] = target[:, :-1].sum(axis=-1, keepdims=True)
            for group in (kind, "all"):
                for name, table in found.items():
                    rows.setdefault(group, {}).setdefault(name, []).append(table)
    positions = len(_positions(load_file(paths[0])["tokens"].shape[1]))
    return {
        kind: {
            name: _intervals(np.concatenate(parts), positions) for name, parts in rows[kind].items()
        }
        for kind in (*shards, "all")
    }


def _positions(length: int) -> range:
    """Return the positions of compared laws, from the last token of the longest prompts on."""
    return range(length // 4 - 1, length, _EVERY)


def _intervals(table: NDArray[np.float64], positions: int) -> list[dict[str, float | None]]:
    """Return the means of columns over windows of `positions` positions each, with limits."""
    by_window = table.reshape(-1, positions, table.shape[1]).mean(axis=1)
    means = ratio_of_means(by_window, np.ones_like(by_window))
    return [limits(means.at(column)) for column in range(table.shape[1])]


@torch.inference_mode()
def _laws(
    pair: Pair, shards: list[Path]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield p and q on S and the rest `(rows, |S| + 1)` at every `_EVERY`-th position."""
    vocabulary = pair.draft.lm_head.vocabulary
    for path in shards:
        for tokens in load_file(path)["tokens"].long().split(2):
            places = list(_positions(tokens.shape[1]))
            both = (
                torch.softmax(logits[:, places].flatten(0, 1).double(), dim=-1)
                for logits in pair.logits(tokens)
            )
            draft, target = (law[:, vocabulary].cpu().numpy() for law in both)
            rest = np.maximum(0.0, 1.0 - target.sum(axis=-1, keepdims=True))
            yield np.pad(draft, ((0, 0), (0, 1))), np.concatenate([target, rest], axis=-1)


def card(record: dict[str, Any]) -> str:
    """Return the model card of a record."""
    recipe, corpus, target = record["recipe"], record["corpus"], record["target"]
    steps, fall, batch = recipe["steps"], recipe["fall"], recipe["batch"]
    tokens = steps * batch * recipe["context"]
    heat = " and ".join(f"{value:g}" for value in recipe["temperatures"])
    first = (
        "The square matrix starts from least squares to them."
        if record["start"] is None
        else f"The weights start from those of another draft (SHA-256 `{record['start']}`)."
    )
    prompts, openings, words = "Prompts are cut from documents.", "", ""
    if "openings" in corpus:
        prompts = (
            'Prompts of the kind "text" are cut from documents; those of other kinds are frames '
            "around words of the target's vocabulary\n(`analysis/train/openings.py`)."
        )
        openings, words = " and openings", " and words"
    weights = f" (weights SHA-256 `{target['weights']}`)" if target["weights"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"""---
language: en
license: apache-2.0
tags: [speculative-decoding, draft-model, distillation]
---

# A draft for {target["name"]}

{len(recipe["layers"])} Llama layers of {record["parameters"]:,} trained parameters, 8 bits each with a scale for each row (`model.safetensors`, SHA-256
`{record["sha256"]}`), distilled from {target["name"]}{weights}. Embeddings and output rows are the target's and are
not in the file: the draft loads beside its target only, which `--target` does by itself. The layers are the target's layers {", ".join(map(str, recipe["layers"]))},
changed by training; a square matrix (`lens.weight`) carries their output to where the target's output rows read.

The draft proposes {recipe["head"]:,} tokens only, those with the largest mean target probability along training windows. So its acceptance is at
most Q(S), the target's mass on them, given below; `otm` counts the rest as rejected and loses nothing else.

## Acceptance along the target's own samples

The written weights beside the target in float32, temperature 1, k i.i.d. drafts. The target writes on after held-out prompts, {recipe["held_windows"]} of
each kind, to {recipe["context"]} tokens; every sixteenth position from the quarter of a window on counts, 95 % intervals over windows.

{_table(record)}

## Training

`otm train --target NAME --out FOLDER --work FOLDER`, with the recipe in `training.json` as `--recipe`, redoes it on a CPU or on CUDA. A killed
run resumes, and a recipe with more `steps` goes on from where the learning rate began to fall. The target, in bfloat16, writes {recipe["windows"]:,} windows of
{recipe["context"]} tokens after prompts of all kinds, at temperatures {heat} in turn; its last hidden states are kept, which give its law on S at
temperature 1. {first} Then {steps:,} steps of {batch} windows, {tokens:,} tokens with
repetitions: AdamW, learning rate {recipe["learning_rate"]:g}, constant and falling to 0 over the last {fall:,}; the loss is D(q‖p), and
−log Σ min(p, q) over the last {fall:,} steps. Seed {recipe["seed"]}. Versions: {versions}.

## Data and licences

{prompts} {corpus["kind"].capitalize()}: {corpus["documents"]:,} documents{openings}, SHA-256 `{corpus["sha256"]}`, of which a
random part was used. Two per cent of files{words} are held out; near-copies between files of one package exist, so held-out prompts are
not fully independent. The weights derive from those of {target["name"]}, Apache-2.0, and are under the same licence.

{sources_table(corpus)}
"""


def _table(record: dict[str, Any]) -> str:
    """Return a row for each kind of prompts and scheme."""
    rows = [
        (
            kind.removeprefix("held_"),
            name,
            f"{curves['Q(S)'][0]['mean']:.3f}",
            *(
                f"{cell['mean']:.3f} ({cell['low']:.3f}–{cell['high']:.3f})"
                for cell in curves[name]
            ),
        )
        for kind, curves in record["acceptance"].items()
        for name in ("optimum", "K-SEQ")
    ]
    return markdown(["prompts", "scheme", "Q(S)", *(f"k = {k}" for k in record["k"])], rows)
