"""Distil a small draft from a large target: two of its layers, its own embeddings, and its head on the likely tokens only.

The draft keeps the target's embeddings, which it does not train, and scores only the tokens S to which the target gives most of its
mass on the training text (as FR-Spec does), so that its acceptance is at most Q(S) and a draft pass reads a tenth of a target
pass's weights. The target runs once over every window of text; its last hidden states and the logarithm of its normaliser are kept
(2 bytes a number), from which every later step has the exact target law q on S for the price of the draft's own head.

The work folder holds one file a shard of windows and a checkpoint; each appears whole, so that a run killed at any point goes on.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from tqdm import tqdm

from ..errors import AnalysisError
from ..files import make_folder, write_atomically, write_json
from ..models.distilled import DISTILLED, VOCABULARY, WEIGHTS
from .texts import Corpus
from .training import read_checkpoint, restore_training, training_state, write_checkpoint

WINDOWS_PER_SHARD = 32
_HEAD_ROWS = 1024  # positions scored at a time, so that a block of logits stays in the cache


@dataclasses.dataclass(frozen=True)
class Distillation:
    """Everything that determines a distilled draft besides target and text.

    Attributes:
        layers: the target's layers that the draft starts from, by number; the shape of the draft.
        head: |S|, the tokens that the draft can propose.
        context: tokens in a window.
        text_windows, sampled_windows: windows of training text, and of the target's own samples continuing text.
        batch: windows in a step.
        steps, learning_rate, seed: of AdamW, with warm-up and a fall to 0.
        forward_kl: the part of the steps, from the start, that lower D(q‖p); the rest lower −log Σ min(p, q).
    """

    layers: tuple[int, ...] = (0, -1)
    head: int = 8192
    context: int = 256
    text_windows: int = 8_000
    sampled_windows: int = 1_024
    batch: int = 8
    steps: int = 12_000
    learning_rate: float = 8e-4
    forward_kl: float = 0.5
    seed: int = 20261122


def windows(tokens: NDArray[np.int32], recipe: Distillation, number: int) -> NDArray[np.int32]:
    """Return `number` windows `(number, context)` of a token stream, in a random order that the seed fixes."""
    most = len(tokens) // recipe.context
    if most < 1:
        raise AnalysisError(
            f"Distillation needs a window of {recipe.context} tokens; the text has {len(tokens)}. Give more text."
        )
    order = np.random.default_rng(recipe.seed).permutation(most)[:number]
    return np.stack([tokens[i * recipe.context : (i + 1) * recipe.context] for i in order])


def encode_corpus(tokenizer: Any, corpus: Corpus, *, held_out: bool) -> NDArray[np.int32]:
    """Return one side of a corpus as one stream of tokens, an end-of-text token after each document."""
    end = tokenizer.eos_token_id
    pieces = []
    for text in corpus.texts(held_out=held_out):
        pieces.append(np.asarray([*tokenizer(text, add_special_tokens=False)["input_ids"], end], dtype=np.int32))
    return np.concatenate(pieces)


@torch.inference_mode()
def sample_windows(target: Any, prompts: NDArray[np.int32], context: int, seed: int) -> NDArray[np.int32]:
    """Return windows `(rows, context)`: each row of prompts, continued by the target's own samples at temperature 1."""
    from transformers import StaticCache

    given = prompts.shape[1]
    generator = torch.Generator().manual_seed(seed)
    cache = StaticCache(config=target.config, max_cache_len=context)
    tokens = torch.from_numpy(prompts.astype(np.int64))
    step, found = tokens, [tokens]
    for length in range(given, context):
        place = torch.arange(length - step.shape[1], length)
        hidden = target.model(step, past_key_values=cache, cache_position=place, use_cache=True).last_hidden_state[:, -1]
        law = torch.softmax(target.lm_head(hidden).float(), dim=-1)
        step = torch.multinomial(law, 1, generator=generator)
        found.append(step)
    return torch.cat(found, dim=1).numpy().astype(np.int32)


@torch.inference_mode()
def features(target: Any, rows: NDArray[np.int32]) -> dict[str, torch.Tensor]:
    """Return tokens, last hidden states (bfloat16) and log-normalisers (float32) of the target at every position of windows.

    The layers run in bfloat16, the head in float32: a bfloat16 head alone would move q by a hundredth in total variation.
    """
    tokens = torch.from_numpy(rows.astype(np.int64))
    hidden = target.model(tokens).last_hidden_state
    weight = target.get_output_embeddings().weight.float()
    flat = hidden.flatten(0, 1)
    normaliser = torch.cat([torch.logsumexp(part.float() @ weight.T, dim=-1) for part in flat.split(_HEAD_ROWS)])
    return {"tokens": tokens.int(), "hidden": hidden.bfloat16(), "log_normaliser": normaliser.view(tokens.shape)}


class DraftModule(torch.nn.Module):
    """The trained part of a draft: its layers and norm, between embeddings and head rows that stay the target's."""

    def __init__(self, target: Any, recipe: Distillation, vocabulary: torch.Tensor) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaModel

        config = LlamaConfig.from_dict(target.config.to_dict() | {"num_hidden_layers": len(recipe.layers)})
        self.body = LlamaModel(config)
        with torch.no_grad():
            for mine, theirs in zip(self.body.layers, recipe.layers, strict=True):
                mine.load_state_dict(target.model.layers[theirs].state_dict())
            self.body.norm.load_state_dict(target.model.norm.state_dict())
            self.body.embed_tokens.load_state_dict(target.model.embed_tokens.state_dict())
        self.body.float()
        self.body.embed_tokens.requires_grad_(False)
        self.head: torch.Tensor
        self.register_buffer("head", target.get_output_embeddings().weight[vocabulary].detach().float().clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities `(rows, length, |S|)` on the draft's vocabulary."""
        hidden = self.body(tokens).last_hidden_state
        logits = torch.nn.functional.linear(hidden, self.head.to(hidden.dtype))
        return torch.log_softmax(logits.float(), dim=-1)

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters that training moves, by name."""
        return {name: value for name, value in self.body.named_parameters() if value.requires_grad}


def loss_of(log_draft: torch.Tensor, log_target: torch.Tensor, *, forward_kl: bool) -> torch.Tensor:
    """Return the mean over positions of −Σ_S q log p, or of −log Σ_S min(p, q)."""
    target = log_target.exp()
    if forward_kl:
        return -(target * log_draft).sum(dim=-1).mean()
    overlap = torch.minimum(log_draft.exp(), target).sum(dim=-1)
    return -overlap.clamp_min(1e-6).log().mean()


def learning_rate(recipe: Distillation, step: int) -> float:
    """Warm up over the first 2 % of the steps, then fall along a cosine to 0."""
    warm_up = max(1, recipe.steps // 50)
    if step < warm_up:
        return recipe.learning_rate * (step + 1) / warm_up
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, recipe.steps - warm_up)))


def prepare(target: Any, tokenizer: Any, corpus: Corpus, recipe: Distillation, work: Path) -> list[Path]:
    """Run the target over all training windows and return the shards of features, making those that are missing.

    Windows of text come first, then windows that begin with a quarter of text and go on with the target's samples.
    """
    make_folder(work)
    _same_recipe(work, target, corpus, recipe)
    text = windows(encode_corpus(tokenizer, corpus, held_out=False), recipe, recipe.text_windows)
    prompts = text[::-1][: recipe.sampled_windows, : recipe.context // 4]
    shards = []
    kinds = (("text", text), ("sampled", prompts))
    total = sum(-(-len(rows) // WINDOWS_PER_SHARD) for _, rows in kinds)
    with tqdm(total=total, desc="target", unit="shard", mininterval=5, disable=not sys.stderr.isatty()) as progress:
        for kind, rows in kinds:
            for number, start in enumerate(range(0, len(rows), WINDOWS_PER_SHARD)):
                path = work / f"{kind}-{number:05d}.safetensors"
                shards.append(path)
                if not path.exists():
                    part = rows[start : start + WINDOWS_PER_SHARD]
                    if kind == "sampled":
                        part = sample_windows(target, part, recipe.context, seed=recipe.seed + number)
                    write_atomically(path, save(features(target, part)))
                progress.update()
    return shards


@torch.inference_mode()
def likely_tokens(target: Any, shards: list[Path], number: int) -> torch.Tensor:
    """Return, ascending, the tokens with the largest mean target probability over (at most 64 of) the shards."""
    weight = target.get_output_embeddings().weight.float()
    mass = torch.zeros(weight.shape[0], dtype=torch.float64)
    for path in shards[:: max(1, len(shards) // 64)]:
        stored = load_file(path)
        for hidden, normaliser in zip(
            stored["hidden"].flatten(0, 1).split(_HEAD_ROWS), stored["log_normaliser"].flatten().split(_HEAD_ROWS), strict=True
        ):
            mass += torch.exp(hidden.float() @ weight.T - normaliser[:, None]).sum(dim=0)
    return mass.topk(number).indices.sort().values


def train_draft(
    target: Any,
    shards: list[Path],
    recipe: Distillation,
    work: Path,
    *,
    save_every: float = 60.0,
    after_step: Callable[[int], None] = lambda step: None,
) -> tuple[DraftModule, torch.Tensor]:
    """Train the draft on the shards, resuming from the checkpoint in `work`; return it and its vocabulary S."""
    make_folder(work)
    vocabulary = _vocabulary(target, shards, recipe, work)
    torch.manual_seed(recipe.seed)
    model = DraftModule(target, recipe, vocabulary)
    parameters = model.trained()
    optimiser = torch.optim.AdamW(parameters.values(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    identity = _identity(target, shards, recipe)
    tensors, first = read_checkpoint(work, identity=identity)
    if first:
        restore_training(model, optimiser, tensors, first)
    saved, recent = time.monotonic(), []
    progress = tqdm(range(first, recipe.steps), initial=first, total=recipe.steps, desc="draft", unit="step", mininterval=10)
    for step in progress:
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, step)
        chooser = np.random.default_rng([recipe.seed, step])
        stored = load_file(shards[chooser.integers(len(shards))])
        rows = torch.from_numpy(chooser.permutation(len(stored["tokens"]))[: recipe.batch])
        with torch.no_grad():
            logits = stored["hidden"][rows].float() @ model.head.T
            log_target = logits - stored["log_normaliser"][rows][..., None]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            log_draft = model(stored["tokens"][rows].long())
        loss = loss_of(log_draft, log_target, forward_kl=step < recipe.forward_kl * recipe.steps)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        optimiser.step()
        with torch.no_grad():
            recent.append(torch.minimum(log_draft.exp(), log_target.exp()).sum(dim=-1).mean().item())
        progress.set_postfix_str(f"acceptance {np.mean(recent[-100:]):.4f}", refresh=False)
        if step + 1 == recipe.steps or time.monotonic() - saved > save_every:
            write_checkpoint(work, training_state(model, optimiser), step=step + 1, identity=identity)
            saved = time.monotonic()
        after_step(step)
    return model.eval(), vocabulary


def _identity(target: Any, shards: list[Path], recipe: Distillation) -> str:
    """What must agree between a checkpoint and the run that resumes from it."""
    about = {
        "recipe": dataclasses.asdict(recipe),
        "target": str(target.config._name_or_path),
        "shards": [p.name for p in shards],
    }
    return json.dumps(about, sort_keys=True)


def _vocabulary(target: Any, shards: list[Path], recipe: Distillation, work: Path) -> torch.Tensor:
    path = work / "vocabulary.safetensors"
    if not path.exists():
        write_atomically(path, save({"tokens": likely_tokens(target, shards, recipe.head)}))
    return load_file(path)["tokens"]


def _same_recipe(work: Path, target: Any, corpus: Corpus, recipe: Distillation) -> None:
    """Write what determines the features and the trajectory, or refuse a folder of another run."""
    identity = json.dumps(
        {"recipe": dataclasses.asdict(recipe), "corpus": corpus.digest, "target": str(target.config._name_or_path)},
        sort_keys=True,
    )
    path = work / "recipe.json"
    if path.exists() and path.read_text(encoding="utf-8") != identity:
        raise AnalysisError(
            f"A run resumes only in a folder of the same recipe, text and target; {path} differs. Choose another work folder."
        )
    write_atomically(path, identity.encode())


def write_draft(model: DraftModule, vocabulary: torch.Tensor, folder: Path) -> None:
    """Write a draft's own weights in float16, its vocabulary and its configuration; embeddings and head stay the target's."""
    make_folder(folder)
    tensors = {name: value.detach().half().contiguous() for name, value in model.trained().items()}
    write_atomically(folder / WEIGHTS, save(tensors | {VOCABULARY: vocabulary.int()}))
    model.body.config.architectures = ["LlamaForCausalLM"]
    model.body.config.tie_word_embeddings = False
    model.body.config.dtype = "float32"
    model.body.config.save_pretrained(folder)
    write_json(folder / DISTILLED, {"borrows": ["embed_tokens", "lm_head"], "head": len(vocabulary)})
