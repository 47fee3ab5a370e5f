"""Train the shipped draft/target pair reproducibly, without losing work when killed.

Two Llama models share one byte-level BPE tokenizer. Every batch is a function of (seed, step)
alone, so that a run goes on from its last checkpoint (`resumable`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import otm
from otm._machine.progress import with_progress

from ..errors import AnalysisError
from ..files import has_content, make_folder, open_atomically, read_json, shortened
from .corpus import Corpus
from .resumable import Learner, Training, learning_rate_at, make_optimiser

_LARGEST_RECIPE = 1 << 20
END_OF_TEXT = "<|endoftext|>"
PRECISIONS = ("bfloat16", "float32")
VERIFIERS = {"K-SEQ": otm.KSeq(), "recursive rejection": otm.RecursiveRejection()}
"""Verifiers that are compared with the optimum on held-out text."""
MOST_TOKENS = 1 << 16
"""Largest vocabulary: tokens are kept as uint16."""


@dataclass(frozen=True)
class Size:
    """The shape of one model of the pair, and the length of training."""

    width: int
    layers: int
    heads: int
    feed_forward: int
    steps: int
    learning_rate: float


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a trained pair besides the text: sizes, data order, optimiser."""

    vocabulary: int = 4096
    context: int = 256
    batch: int = 16
    seed: int = 20251121
    # autocast of the forward pass; twice the speed of float32 where the CPU has bfloat16
    precision: str = "bfloat16"
    draft: Size = Size(
        width=96, layers=2, heads=4, feed_forward=256, steps=3000, learning_rate=4e-3
    )
    target: Size = Size(
        width=256, layers=4, heads=4, feed_forward=688, steps=5000, learning_rate=2e-3
    )


@dataclass(frozen=True)
class HeldOut:
    """Held-out quality: nats per token, and bits per byte, whatever the tokenizer."""

    nats_per_token: float
    bits_per_byte: float
    tokens: int


def read_recipe(path: Path, what: str, kind: type, build: Callable[[Any], Any]) -> Any:
    """Read a recipe from a JSON object; missing fields keep the defaults.

    Args:
        path: the file.
        what: the recipe's name in messages.
        kind: its class.
        build: makes it from JSON values; raises ValueError at a value that no training can have.

    Raises:
        AnalysisError: if the file cannot be read, names a field that a recipe does not have, or
            gives one an impossible value.
    """
    try:
        return build(read_json(path, _LARGEST_RECIPE))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise AnalysisError(
            f"{what} is a JSON object with the fields {[f.name for f in fields(kind)]}; "
            f"{shortened(path)} is not: {error!s:.300}. Correct it."
        ) from error


def check_numbers(recipe: Any, *, from_zero: Collection[str]) -> None:
    """Raise `ValueError` at a field of a recipe whose number no training can have.

    Args:
        recipe: a dataclass; its integers are at least 1, its real numbers positive.
        from_zero: the integers that may be 0.
    """
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        if field.type == "float" and (
            type(value) not in (int, float) or not 0 < value < float("inf")
        ):
            raise ValueError(f"{field.name} must be a number > 0; got {value!r:.40}")
        least = 0 if field.name in from_zero else 1
        if field.type == "int" and (type(value) is not int or not least <= value < 1 << 31):
            raise ValueError(
                f"{field.name} must be an integer from {least} to 2³¹; got {value!r:.40}"
            )


def train_tokenizer(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with `vocabulary` entries, which encodes every byte string."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _with_ends(tokenizer)


def _with_ends(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose texts begin and end with the end-of-text token."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT
    )


def encode(tokenizer: Any, texts: list[str], kind: type = np.uint16) -> np.ndarray:
    """Concatenate the encoded texts, an end-of-text token after each, as integers of a kind."""
    end = tokenizer.eos_token_id
    pieces: list[np.ndarray] = []
    for start in with_progress(range(0, len(texts), 256), "batches to encode"):
        for ids in tokenizer(texts[start : start + 256], add_special_tokens=False)["input_ids"]:
            pieces.append(np.asarray([*ids, end], dtype=kind))
    return np.concatenate(pieces)


def build_model(size: Size, recipe: Recipe, vocabulary: int, seed: int) -> LlamaForCausalLM:
    """Return a freshly initialised Llama model with tied embeddings."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=size.width,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=2 * recipe.context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.02,
    )
    return LlamaForCausalLM(config)


def batch(tokens: np.ndarray, recipe: Recipe, seed: int, step: int) -> torch.Tensor:
    """Return a step's windows `(batch, context + 1)`: a function of (seed, step) alone."""
    generator = np.random.default_rng([seed, step])
    starts = generator.integers(0, len(tokens) - recipe.context - 1, size=recipe.batch)
    rows = np.stack([tokens[start : start + recipe.context + 1] for start in starts])
    return torch.from_numpy(rows.astype(np.int64))


def acceptance_curves(
    draft: Any, target: Any, ks: Sequence[int], schemes: Sequence[str] = tuple(VERIFIERS)
) -> dict[str, Any]:
    """Return the acceptance of k i.i.d. drafts at every position, `(ks, positions)` by scheme."""
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    curves = {name: otm.acceptance_curve(VERIFIERS[name], problem, k=ks) for name in schemes}
    return {"optimum": otm.optimal_acceptance_curve(problem, k=ks)} | curves


def train_model(
    size: Size,
    recipe: Recipe,
    tokens: np.ndarray,
    vocabulary: int,
    *,
    folder: Path,
    device: str = "cpu",
    name: str = "model",
) -> LlamaForCausalLM:
    """Train one model, resuming from a checkpoint of the same recipe in `folder`.

    Raises:
        AnalysisError: if the checkpoint belongs to another recipe, or the text is shorter than one
            window.
    """
    if len(tokens) <= recipe.context + 1:
        raise AnalysisError(
            f"Training needs more than {recipe.context + 1} tokens, one window; the text has "
            f"{len(tokens)}. Give more text."
        )
    model = torch.nn.Module.to(build_model(size, recipe, vocabulary, recipe.seed), device)
    model.train()
    learner = Learner(
        model,
        make_optimiser(model, size.learning_rate),
        lambda step: learning_rate_at(size.learning_rate, step, size.steps),
    )

    def gradients(step: int) -> float:
        rows = batch(tokens, recipe, recipe.seed, step).to(device)
        with torch.autocast(
            model.device.type, dtype=torch.bfloat16, enabled=recipe.precision == "bfloat16"
        ):
            logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), rows[:, 1:].flatten()
        )
        loss.backward()
        return loss.item()

    training = Training(learner, size.steps, _identity(size, recipe, tokens), name)
    training.run(gradients, first=training.resume(folder), folder=lambda step: folder)
    model.eval()
    return model


@torch.no_grad()
def evaluate(model: LlamaForCausalLM, tokens: np.ndarray, num_bytes: int, context: int) -> HeldOut:
    """Score held-out tokens in disjoint windows, over a text of `num_bytes` UTF-8 bytes."""
    device = model.device
    total, scored = 0.0, len(tokens) - 1  # all but the first, each in one window
    for start in with_progress(range(0, scored, context), "held-out windows"):
        window = tokens[start : start + context + 1].astype(np.int64)
        row = torch.from_numpy(window)[None].to(device)
        logits = model(row[:, :-1]).logits.float()
        total += torch.nn.functional.cross_entropy(logits[0], row[0, 1:], reduction="sum").item()
    bits = total / math.log(2) * (len(tokens) / scored)
    return HeldOut(nats_per_token=total / scored, bits_per_byte=bits / num_bytes, tokens=scored)


def _identity(size: Size, recipe: Recipe, tokens: np.ndarray) -> str:
    """Return the recipe and data that a checkpoint and a resuming run must share."""
    common = {
        key: getattr(recipe, key) for key in ("vocabulary", "context", "batch", "seed", "precision")
    }
    text = hashlib.sha256(np.ascontiguousarray(tokens).tobytes()).hexdigest()
    return json.dumps({"size": asdict(size), **common, "tokens": text}, sort_keys=True)


def prepare_tokens(
    corpus: Corpus, recipe: Recipe, folder: Path
) -> tuple[PreTrainedTokenizerFast, np.ndarray, np.ndarray, int]:
    """Return tokenizer, training and held-out tokens and held-out bytes, cached in `folder`.

    The cache is named by the corpus' digest.
    """
    held_out_texts = corpus.texts(held_out=True)
    num_bytes = sum(len(text.encode("utf-8", "replace")) for text in held_out_texts)
    cache = make_folder(folder) / f"tokens-{corpus.digest[:16]}-{recipe.vocabulary}.npz"
    if (found := _cached(cache)) is not None:
        return *found, num_bytes
    texts = corpus.texts(held_out=False)
    tokenizer = train_tokenizer(texts, recipe.vocabulary)
    train, held_out = encode(tokenizer, texts), encode(tokenizer, held_out_texts)
    with open_atomically(cache) as file:
        spelled = tokenizer.backend_tokenizer.to_str()
        np.savez(file, train=train, held_out=held_out, tokenizer=spelled)
    return tokenizer, train, held_out, num_bytes


def _cached(cache: Path) -> tuple[PreTrainedTokenizerFast, np.ndarray, np.ndarray] | None:
    """Return tokenizer and tokens from a cache file, or None if missing or damaged."""
    if not has_content(cache):
        return None
    try:
        with cache.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            tokenizer = _with_ends(Tokenizer.from_str(str(stored["tokenizer"])))
            return tokenizer, stored["train"], stored["held_out"]
    # an archive carries checksums; what its readers raise where they do not fit is theirs
    except Exception:
        return None
