"""A shipped pair from texts: tokenizer, both models, held-out figures, model card."""

from __future__ import annotations

import dataclasses
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM

from otm._display.tabular import markdown

from ..errors import AnalysisError
from ..files import explain_write_error, make_folder, write_atomically, write_json
from ..models.names import SIDES
from ..models.pair import Pair
from .corpus import Corpus, sources_table
from .training import (
    MOST_TOKENS,
    PRECISIONS,
    HeldOut,
    Recipe,
    Size,
    acceptance_curves,
    check_numbers,
    evaluate,
    prepare_tokens,
    read_recipe,
    train_model,
)

CURVE_K = (1, 2, 4, 8, 16)
HELD_OUT_SAMPLE = 60_000
"""Characters of held-out text that are written beside the pair, so that anyone can check its
figures.
"""


def recipe_from_json(path: Path) -> Recipe:
    """Read a pair's recipe written as JSON; see `analysis.train.training.read_recipe`."""

    def built(values: Any) -> Recipe:
        sizes = {
            name: Size(**{**dataclasses.asdict(getattr(Recipe(), name)), **values.pop(name, {})})
            for name in SIDES
        }
        recipe = Recipe(**(values | sizes))
        for part in (recipe, recipe.draft, recipe.target):
            check_numbers(part, from_zero=("seed",))
        if recipe.precision not in PRECISIONS:
            raise ValueError(
                f"precision is one of {', '.join(PRECISIONS)}; got {recipe.precision!r:.40}"
            )
        for size in (recipe.draft, recipe.target):
            if size.width % (2 * size.heads):
                raise ValueError(
                    f"width must be an even multiple of heads; got {size.width} and {size.heads}"
                )
        if recipe.vocabulary > MOST_TOKENS:
            raise ValueError(
                f"vocabulary must be at most {MOST_TOKENS:,}; got {recipe.vocabulary:,}"
            )
        return recipe

    return read_recipe(path, "A recipe", Recipe, built)  # type: ignore[no-any-return]


def train_pair(
    corpus: Corpus,
    recipe: Recipe,
    *,
    out: Path,
    work: Path,
    device: str,
    threads: int | None = None,
) -> dict[str, HeldOut]:
    """Train tokenizer, draft and target and write all to `out` with a model card.

    A run killed at any point continues from the checkpoints in `work`. Weights are written in
    float16 and the held-out figures are those of the written weights.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    tokenizer, train, held_out, num_bytes = prepare_tokens(corpus, recipe, work)
    models: dict[str, LlamaForCausalLM] = {}
    figures: dict[str, HeldOut] = {}
    for name in ("draft", "target"):
        size = getattr(recipe, name)
        model = train_model(
            size, recipe, train, len(tokenizer), folder=work / name, device=device, name=name
        ).half()
        _save(model, tokenizer, make_folder(out / name))
        models[name] = model.float()  # what a reader of the float16 file will get
        figures[name] = evaluate(models[name], held_out, num_bytes, recipe.context)
    write_held_out_sample(corpus, out / "held_out.txt")
    pair = Pair(
        draft=models["draft"],
        target=models["target"],
        tokenizer=tokenizer,
        device=device,
        num_tokens=len(tokenizer),
    )
    curves = acceptance_on_windows(pair, held_out, recipe.context, rows=64)
    write_records(out, corpus, recipe, figures, curves, num_train=len(train))
    return figures


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model and a tokenizer, or raise `AnalysisError` if the folder cannot be written."""
    try:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except Exception as error:  # the libraries have types of their own besides `OSError`
        cause = error if isinstance(error, OSError) else OSError(f"{error!s:.300}")
        raise AnalysisError(explain_write_error(cause, folder)) from error


def acceptance_on_windows(
    pair: Pair, tokens: np.ndarray, context: int, *, rows: int
) -> dict[str, list[float]]:
    """Return mean acceptances over all positions of `rows` windows, at temperature 1."""
    starts = np.unique(np.linspace(0, max(0, len(tokens) - context - 1), rows).astype(int))
    found: dict[str, list[np.ndarray]] = {}
    for start in starts:
        window = torch.from_numpy(tokens[start : start + context].astype(np.int64))[None]
        draft, target = (torch.softmax(z[0].double(), dim=-1) for z in pair.logits(window))
        for name, curve in acceptance_curves(draft, target, CURVE_K).items():
            found.setdefault(name, []).append(curve.cpu().numpy())
    return {name: np.hstack(parts).mean(axis=-1).tolist() for name, parts in found.items()}


def write_held_out_sample(corpus: Corpus, path: Path) -> None:
    """Write the start of some held-out documents, spread over the corpus, as UTF-8 text."""
    texts = corpus.texts(held_out=True)
    step = max(1, len(texts) * 1500 // HELD_OUT_SAMPLE)
    sample = "\n\n".join(text[:1500] for text in texts[::step])[:HELD_OUT_SAMPLE]
    write_atomically(make_folder(path.parent) / path.name, sample.encode(errors="replace"))


def write_records(
    out: Path,
    corpus: Corpus,
    recipe: Recipe,
    figures: dict[str, HeldOut],
    curves: dict[str, list[float]],
    *,
    num_train: int,
) -> None:
    """Write `training.json` (everything measured, with versions) and the model card."""
    record = {
        "recipe": dataclasses.asdict(recipe),
        "held_out": {name: dataclasses.asdict(value) for name, value in figures.items()},
        "acceptance": {"k": list(CURVE_K), **curves},
        "training_tokens": num_train,
        "corpus": dict(corpus.provenance)
        | {"sha256": corpus.digest, "documents": len(corpus.documents)},
        "versions": {
            name: metadata.version(name)
            for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy")
        }
        | {"python": sys.version.split()[0]},
    }
    write_json(out / "training.json", record)
    write_atomically(out / "README.md", _card(record).encode())


def _card(record: dict) -> str:  # type: ignore[type-arg]
    held_out, recipe, corpus = record["held_out"], record["recipe"], record["corpus"]
    ks = record["acceptance"]["k"]
    sizes = markdown(
        (
            "",
            "width",
            "layers",
            "heads",
            "steps",
            "held-out nats per token",
            "held-out bits per byte",
        ),
        [_size_row(name, recipe, held_out) for name in SIDES],
    )
    curves = [
        (name, *(f"{value:.3f}" for value in record["acceptance"][name]))
        for name in ("optimum", "K-SEQ", "recursive rejection")
    ]
    acceptance = markdown(["", *(f"k = {k}" for k in ks)], curves)
    return f"""---
language: en
license: apache-2.0
library_name: transformers
tags: [speculative-decoding, draft-model, tiny]
---

# A small draft/target pair for measuring speculative decoding

Two Llama models over one byte-level BPE tokenizer of {recipe["vocabulary"]:,} tokens, trained on docstrings. They exist so that real
language-model logits are at hand without a download: the draft is small and clearly worse, the target is larger and clearly better,
and they disagree the way real pairs do. They are not good for anything else.

{sizes}

Weights are float16 safetensors; the figures are those of the float16 weights. `AutoModelForCausalLM.from_pretrained("…/pair/target")`
loads them like any other model.

## Acceptance on held-out text

Mean over all positions of 64 held-out windows, full vocabulary, temperature 1, k i.i.d. drafts:

{acceptance}

## Training

`otm train` reproduces the pair from installed packages: {recipe["batch"]} windows of {recipe["context"]} tokens per step, AdamW with
cosine decay, {recipe["precision"]} forward passes, seed {recipe["seed"]}; {record["training_tokens"]:,} training tokens. Bitwise equality needs the same package
versions, thread count and processor. Versions: {", ".join(f"{k} {v}" for k, v in record["versions"].items())}.

## Data and licences

{corpus["kind"].capitalize()}: {corpus["documents"]:,} documents, SHA-256 `{corpus["sha256"]}`. Two per cent of the files, chosen by the hash of their names, are
held out; near-copies between files of one package exist, so held-out text is not fully independent of training text.

{sources_table(corpus)}
"""


def _size_row(name: str, recipe: dict, held_out: dict) -> list[str]:  # type: ignore[type-arg]
    size, score = recipe[name], held_out[name]
    shape = [str(size[what]) for what in ("width", "layers", "heads")]
    return [
        name,
        *shape,
        f"{size['steps']:,}",
        f"{score['nats_per_token']:.3f}",
        f"{score['bits_per_byte']:.3f}",
    ]
