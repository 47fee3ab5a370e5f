"""From a target and texts to its draft: features, training, held-out acceptance, card."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from otm.statistics import ratio_of_means
from otm.tabular import markdown

from ..errors import AnalysisError
from ..files import write_atomically, write_json
from ..models.distilled import WEIGHTS
from ..models.pair import Pair, load_pair, load_target
from ..models.public import PUBLIC
from ..provenance import file_digest
from ..statistics import limits
from .corpus import Corpus, sources_table
from .distillation import Distillation, prepare, train_draft, write_draft
from .training import acceptance_curves, check_numbers, read_recipe

CURVE_K = (1, 2, 4, 8)
_EVERY = 16
"""One of so many held-out positions is verified with several drafts: neighbours are too alike to
tell much more.
"""

_FROM_ZERO = ("sampled_windows", "text_steps", "steps", "fall", "seed")
_SIDES = {"held_text": "held-out text", "held_sampled": "the target's samples after it"}


def distillation_from_json(path: Path) -> Distillation:
    """Read a draft's recipe written as JSON; see `analysis.train.training.read_recipe`."""

    def built(values: Any) -> Distillation:
        if "layers" in values:
            values["layers"] = tuple(values["layers"])
        recipe = Distillation(**values)
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
    """Train a draft for a target, write it to `out` with its card, and return the record.

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
        "parameters": sum(value.numel() for value in draft.trained().values()),
        "sha256": file_digest(out / WEIGHTS),
        "k": list(CURVE_K),
        "acceptance": {kind: acceptance_on(pair, shards[kind]) for kind in _SIDES},
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


def acceptance_on(pair: Pair, shards: list[Path]) -> dict[str, list[dict[str, float | None]]]:
    """Return mean acceptances of k i.i.d. drafts at every sixteenth held-out position.

    Their 95 % intervals are over windows.

    Tokens that the draft never proposes are one token here: no acceptance tells them apart. Their
    mean mass is 1 − Q(S), and "Q(S)", which no acceptance exceeds, is part of the result.
    """
    rows: dict[str, list[NDArray[np.float64]]] = {"optimum": [], "K-SEQ": [], "Q(S)": []}
    for draft, target in _laws(pair, shards):
        curves = acceptance_curves(draft, target, CURVE_K, ["K-SEQ"])
        for name, curve in curves.items():
            rows[name].append(np.stack(list(curve), axis=-1))
        rows["Q(S)"].append(target[:, :-1].sum(axis=-1, keepdims=True))
    positions = load_file(shards[0])["tokens"].shape[1] // _EVERY
    return {name: _intervals(np.concatenate(parts), positions) for name, parts in rows.items()}


def _intervals(table: NDArray[np.float64], positions: int) -> list[dict[str, float | None]]:
    """Return the columns' means over windows of so many positions each, with their limits."""
    by_window = table.reshape(-1, positions, table.shape[1]).mean(axis=1)
    means = ratio_of_means(by_window, np.ones_like(by_window))
    return [limits(means.at(column)) for column in range(table.shape[1])]


@torch.inference_mode()
def _laws(
    pair: Pair, shards: list[Path]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield p and q on S and the rest `(rows, |S| + 1)` at every sixteenth position."""
    vocabulary = pair.draft.lm_head.vocabulary
    for path in shards:
        for tokens in load_file(path)["tokens"].long().split(2):
            both = (
                torch.softmax(logits[:, _EVERY - 1 :: _EVERY].flatten(0, 1).double(), dim=-1)
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
    tables = "\n\n".join(_table(record, kind, title) for kind, title in _SIDES.items())
    texts = f"{recipe['text_windows']:,} windows of {recipe['context']} tokens of text"
    mixed = ""
    if recipe["sampled_windows"]:
        texts += (
            f" and {recipe['sampled_windows']:,} that it goes on writing after "
            f"{recipe['context'] // 4} tokens of text"
        )
        mixed = (
            f", text alone in the first {recipe['text_steps']:,} steps and as much of both later"
        )
    weights = f" (weights SHA-256 `{target['weights']}`)" if target["weights"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"""---
language: en
license: apache-2.0
tags: [speculative-decoding, draft-model, distillation]
---

# A draft for {target["name"]}

{len(recipe["layers"])} Llama layers of {record["parameters"]:,} trained parameters in float16 (`model.safetensors`, SHA-256 `{record["sha256"]}`),
distilled from {target["name"]}{weights}. Embeddings and output rows are the target's and are not in the file: the draft loads
beside its target only, which `--target` does by itself. The layers are the target's layers {", ".join(map(str, recipe["layers"]))}, changed by training; a square
matrix (`lens.weight`) carries their output to where the target's output rows read.

The draft proposes {recipe["head"]:,} tokens only, those with the largest mean target probability on the training text. So its acceptance is at
most Q(S), the target's mass on them, given below; `otm` counts the rest as rejected and loses nothing else.

## Acceptance on held-out contexts

The written weights beside the target in float32, temperature 1, k i.i.d. drafts; every sixteenth position of {recipe["held_windows"]} windows of
{recipe["context"]} tokens, 95 % intervals over windows.

{tables}

## Training

`python -m analysis train --target NAME --out FOLDER --work FOLDER`, with the recipe in `training.json` as `--recipe`, redoes it on a CPU or on CUDA. A killed
run resumes, and a recipe with more `steps` goes on from where the learning rate began to fall. The target runs once over {texts}, in
bfloat16; its last hidden states are kept, which give its law on S. The square matrix starts from least squares to them. Then {steps:,} steps
of {batch} windows, {tokens:,} tokens with repetitions{mixed}: AdamW, learning rate {recipe["learning_rate"]:g}, constant and falling to 0 over the last
{fall:,}; the loss is D(q‖p), and −log Σ min(p, q) over the last {fall:,} steps. Seed {recipe["seed"]}. Versions: {versions}.

## Data and licences

{corpus["kind"].capitalize()}: {corpus["documents"]:,} documents, SHA-256 `{corpus["sha256"]}`, of which a random part was used. Two per cent
of the files are held out; near-copies between files of one package exist, so held-out text is not fully independent of training
text. The weights derive from those of {target["name"]}, Apache-2.0, and are under the same licence.

{sources_table(corpus)}
"""


def _table(record: dict[str, Any], kind: str, title: str) -> str:
    ks, curves = record["k"], record["acceptance"][kind]
    rows = [
        (
            name,
            *(
                f"{cell['mean']:.3f} ({cell['low']:.3f}–{cell['high']:.3f})"
                for cell in curves[name]
            ),
        )
        for name in ("optimum", "K-SEQ")
    ]
    head = f"On {title}, where Q(S) is {curves['Q(S)'][0]['mean']:.3f} on average:"
    return f"{head}\n\n{markdown(['', *(f'k = {k}' for k in ks)], rows)}"
