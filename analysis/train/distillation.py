"""Distil a small draft from a large target: some of its layers, a head on its likely tokens.

The draft keeps the target's embeddings, which it does not train, and scores only the tokens S to
which the target gives most of its mass on the training text (as FR-Spec does), so that its
acceptance is at most Q(S) and a draft pass reads a tenth of a target pass's weights. The target
runs once over every window of text; its last hidden states and the logarithm of its normaliser are
kept (2 bytes a number), from which every later step has the exact target law q on S for the price
of the draft's own head.

The work folder holds one file a shard of windows and a checkpoint; each appears whole, so that a
run killed at any point goes on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save

from otm._progress import counted

from ..errors import AnalysisError
from ..files import make_folder, write_atomically, write_json
from ..models.distilled import DISTILLED, VOCABULARY, WEIGHTS
from .corpus import Corpus
from .resumable import Learner, Training
from .training import encode

_WINDOWS = {"text": 32, "sampled": 128, "held_text": 32, "held_sampled": 128}
"""Windows of a shard by kind; those that are sampled advance together, the more the cheaper."""

_HEAD_ROWS = 512
"""Positions scored at a time, so that a block of logits stays in the cache."""

_LENS_SHARDS = 10
"""Shards that the lens is fitted to before training."""

_EVERY = 16
"""One of so many positions counts towards the likely tokens."""


@dataclasses.dataclass(frozen=True)
class Distillation:
    """Everything that determines a distilled draft besides target and text.

    The learning rate is constant but for a warm-up at the start and a fall to 0 over the last
    steps. What a run did before the fall is the beginning of a longer run, and is kept.

    Attributes:
        layers: the target's layers that the draft starts from, by number; the shape of the draft.
        head: |S|, the tokens that the draft can propose.
        context: tokens in a window.
        text_windows, sampled_windows: windows of training text, and of the target's own samples
            continuing text.
        held_windows: windows of held-out text, and as many of samples continuing it, on which
            nothing is trained.
        batch: windows in a step.
        learning_rate, seed: of AdamW.
        text_steps: steps on text alone; later ones take text or the target's samples with the same
            probability.
        steps: steps in all. Alone of all fields it may differ where a run goes on.
        fall: the last steps, over which the learning rate falls and the loss is −log Σ min(p, q).
            It is D(q‖p) before.
    """

    layers: tuple[int, ...] = (0, 1)
    head: int = 8192
    context: int = 256
    text_windows: int = 3_904
    sampled_windows: int = 1_024
    held_windows: int = 64
    batch: int = 4
    learning_rate: float = 8e-4
    text_steps: int = 2_000
    steps: int = 6_000
    fall: int = 1_500
    seed: int = 20261122


def windows(tokens: NDArray[np.int32], recipe: Distillation, number: int) -> NDArray[np.int32]:
    """Return `number` windows `(number, context)` of a token stream, in a seeded random order."""
    most = len(tokens) // recipe.context
    if most < 1:
        raise AnalysisError(
            f"Distillation needs a window of {recipe.context} tokens; the text has {len(tokens)}. "
            "Give more text."
        )
    order = np.random.default_rng(recipe.seed).permutation(most)[:number]
    return np.stack([tokens[i * recipe.context : (i + 1) * recipe.context] for i in order])


@torch.inference_mode()
def sampled_features(
    target: Any, prompts: NDArray[np.int32], context: int, seed: int
) -> dict[str, torch.Tensor]:
    """Return the target's features along its own continuations of prompts, `(rows, context)`.

    All rows advance together, a token a step. The query heads that share a key are rows of one
    small product with it, so that no key is copied; a library's own cache copies every key three
    times a step, which costs more than the layers do.
    """
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model, config = target.model, target.config
    rows, given = prompts.shape
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    width = model.layers[0].self_attn.head_dim
    weight = target.get_output_embeddings().weight
    place = weight.device
    generator = torch.Generator(device=place).manual_seed(seed)
    cache = torch.empty(
        (2, len(model.layers), rows, shared, context, width), dtype=weight.dtype, device=place
    )
    tokens = torch.empty((rows, context), dtype=torch.int64, device=place)
    tokens[:, :given] = torch.from_numpy(prompts.astype(np.int64)).to(place)
    hidden = torch.empty((rows, context, config.hidden_size), dtype=torch.bfloat16, device=place)
    normaliser = torch.empty((rows, context), device=place)
    for at in range(context):
        state = model.embed_tokens(tokens[:, at])
        cos, sin = model.rotary_emb(state, position_ids=torch.tensor([[at]], device=place))
        for layer, keys, values in zip(model.layers, *cache, strict=True):
            attention = layer.self_attn
            put = layer.input_layernorm(state)
            query, key = apply_rotary_pos_emb(
                attention.q_proj(put).view(rows, heads, 1, width),
                attention.k_proj(put).view(rows, shared, 1, width),
                cos,
                sin,
            )
            keys[:, :, at] = key[:, :, 0]
            values[:, :, at] = attention.v_proj(put).view(rows, shared, width)
            grouped = query.reshape(rows, shared, heads // shared, width)
            seen = torch.nn.functional.scaled_dot_product_attention(
                grouped, keys[:, :, : at + 1], values[:, :, : at + 1], scale=attention.scaling
            )
            state = state + attention.o_proj(seen.reshape(rows, heads * width))
            state = state + layer.mlp(layer.post_attention_layernorm(state))
        state = model.norm(state)
        logits = torch.nn.functional.linear(state, weight).float()
        hidden[:, at], normaliser[:, at] = state, torch.logsumexp(logits, dim=-1)
        if given <= at + 1 < context:
            heights = torch.softmax(logits, dim=-1, dtype=torch.float64).cumsum(dim=-1)
            drawn = (
                torch.rand((rows, 1), dtype=torch.float64, generator=generator, device=place)
                * heights[:, -1:]
            )
            tokens[:, at + 1] = torch.searchsorted(heights, drawn, right=True)[:, 0].clamp_max(
                logits.shape[-1] - 1
            )
    return _kept(tokens, hidden, normaliser)


@torch.inference_mode()
def features(target: Any, rows: NDArray[np.int32]) -> dict[str, torch.Tensor]:
    """Return tokens, last hidden states and log-normalisers of the target along windows.

    Hidden states are bfloat16, normalisers float32.
    """
    weight = target.get_output_embeddings().weight
    tokens = torch.from_numpy(rows.astype(np.int64)).to(weight.device)
    hidden = target.model(tokens, use_cache=False).last_hidden_state
    parts = [
        torch.logsumexp((part @ weight.T).float(), dim=-1)
        for part in hidden.flatten(0, 1).split(_HEAD_ROWS)
    ]
    return _kept(tokens, hidden, torch.cat(parts).view(tokens.shape))


def _kept(
    tokens: torch.Tensor, hidden: torch.Tensor, normaliser: torch.Tensor
) -> dict[str, torch.Tensor]:
    found = {
        "tokens": tokens.int(),
        "hidden": hidden.bfloat16(),
        "log_normaliser": normaliser.float(),
    }
    return {name: value.cpu().contiguous() for name, value in found.items()}


class DraftModule(torch.nn.Module):
    """The trained part of a draft, between the target's embeddings and head rows.

    It is layers, a norm and a square matrix.

    The matrix carries the early layers' last hidden states to where the target's head reads (a
    lens). A written draft is used with the product of head and matrix, so that it costs nothing
    there.
    """

    def __init__(self, target: Any, recipe: Distillation, vocabulary: torch.Tensor) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaModel

        config = LlamaConfig.from_dict(
            target.config.to_dict() | {"num_hidden_layers": len(recipe.layers)}
        )
        self.body = LlamaModel(config)
        with torch.no_grad():
            for mine, theirs in zip(self.body.layers, recipe.layers, strict=True):
                mine.load_state_dict(target.model.layers[theirs].state_dict())
            self.body.norm.load_state_dict(target.model.norm.state_dict())
            self.body.embed_tokens.load_state_dict(target.model.embed_tokens.state_dict())
        self.body.float()
        self.body.embed_tokens.requires_grad_(False)
        width = target.config.hidden_size
        self.lens = torch.nn.Linear(width, width, bias=False)
        torch.nn.init.eye_(self.lens.weight)
        self.head: torch.Tensor
        self.register_buffer(
            "head", target.get_output_embeddings().weight[vocabulary].detach().float().clone()
        )

    def last_hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return what the target's head rows are multiplied by, `(rows, length, width)`.

        It is computed in bfloat16 but for the weights.
        """
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            return self.lens(self.body(tokens.long(), use_cache=False).last_hidden_state)  # type: ignore[no-any-return]

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters that training moves, by name."""
        return {name: value for name, value in self.named_parameters() if value.requires_grad}


@torch.no_grad()
def fit_lens(model: DraftModule, shards: list[Path]) -> None:
    """Set the lens to the least-squares map from the model's hidden states to the target's.

    With the target's first two layers this alone is worth some hundred steps of training, for a few
    seconds.
    """
    squares = torch.zeros_like(model.lens.weight)
    products = torch.zeros_like(model.lens.weight)
    for path in shards[:: max(1, len(shards) // _LENS_SHARDS)]:
        stored = {name: value.to(squares.device) for name, value in load_file(path).items()}
        for tokens, wanted in zip(
            stored["tokens"].split(8), stored["hidden"].split(8), strict=True
        ):
            with torch.autocast(squares.device.type, dtype=torch.bfloat16):
                found = model.body(tokens.long(), use_cache=False).last_hidden_state
            flat = found.flatten(0, 1).float()
            squares += flat.T @ flat
            products += flat.T @ wanted.flatten(0, 1).float()
    ridge = 1e-3 * squares.diagonal().mean() * torch.eye(len(squares), device=squares.device)
    model.lens.weight.copy_(torch.linalg.solve(squares + ridge, products).T)


@torch.no_grad()
def score(
    hidden: torch.Tensor,
    head: torch.Tensor,
    stored: Mapping[str, torch.Tensor],
    *,
    forward_kl: bool,
) -> tuple[torch.Tensor, float]:
    """Return the mean loss's gradient in the last hidden states, and the mean acceptance.

    Hidden states are `(rows, length, width)`.

    With p = softmax(h Wᵀ) on S and the target's q there, the loss is −Σ_S q log p or −log Σ_S
    min(p, q). Their gradients in the logits are p q(S) − q and −(p 1{p < q} − p p{p < q})/Σ min.
    Few positions are scored at a time, and of their logits only the gradient's product with W is
    kept: a step's logits would be 100 MB, written and read a dozen times.
    """
    flat, kept = hidden.flatten(0, 1).bfloat16(), stored["hidden"].flatten(0, 1)
    gradient, accepted = torch.empty_like(flat), 0.0
    normaliser = stored["log_normaliser"].flatten()[:, None]
    for place in torch.arange(len(flat)).split(_HEAD_ROWS):
        rows = slice(int(place[0]), int(place[-1]) + 1)
        draft = torch.softmax((flat[rows] @ head.T).float(), dim=-1)
        target = (kept[rows] @ head.T).float().sub_(normaliser[rows]).exp_()
        overlap = torch.minimum(draft, target).sum(dim=-1, keepdim=True)
        accepted += overlap.sum().item()
        if forward_kl:
            moved = (draft * target.sum(dim=-1, keepdim=True)).sub_(target)
        else:
            below = draft * (draft < target)
            moved = (
                (draft * below.sum(dim=-1, keepdim=True)).sub_(below).div_(overlap.clamp_min_(1e-6))
            )
        gradient[rows] = moved.bfloat16() @ head
    return gradient.float().div_(len(flat)).view(hidden.shape), accepted / len(flat)


def learning_rate(recipe: Distillation, step: int) -> float:
    """Warm up over the first hundredth of the steps on text, stay, and fall linearly to 0."""
    rising = (step + 1) / max(1, recipe.text_steps // 20)
    return recipe.learning_rate * min(1.0, rising, (recipe.steps - step) / max(1, recipe.fall))


def shard_paths(work: Path, recipe: Distillation) -> dict[str, list[Path]]:
    """Return a recipe's files of features by kind: text, sampled, held_text, held_sampled."""
    numbers = {
        "text": recipe.text_windows,
        "sampled": recipe.sampled_windows,
        "held_text": recipe.held_windows,
        "held_sampled": recipe.held_windows,
    }
    return {
        kind: [
            work / f"{kind}-{number:05d}.safetensors"
            for number in range(-(-windows // _WINDOWS[kind]))
        ]
        for kind, windows in numbers.items()
    }


def prepare(
    target: Any, tokenizer: Any, corpus: Corpus, recipe: Distillation, work: Path
) -> dict[str, list[Path]]:
    """Run the target over all windows and return the shards of features.

    Those that are there are not made again.

    Windows of samples begin with a quarter of text. Of training texts they begin with the windows
    that come last.
    """
    make_folder(work)
    _same_recipe(work, target, corpus, recipe)
    tokens, held_out = (
        encode(tokenizer, corpus.texts(held_out=side), np.int32) for side in (False, True)
    )
    text = windows(tokens, recipe, recipe.text_windows)
    held = windows(held_out, recipe, recipe.held_windows)
    given = recipe.context // 4
    source = {
        "text": text,
        "held_text": held,
        "held_sampled": held[:, :given],
        "sampled": text[::-1][: recipe.sampled_windows, :given],
    }
    shards = shard_paths(work, recipe)
    for kind, rows in source.items():
        for number, path in enumerate(counted(shards[kind], f"shards of the target: {kind}")):
            if not path.exists():
                part = rows[number * _WINDOWS[kind] : (number + 1) * _WINDOWS[kind]]
                if part.shape[1] < recipe.context:
                    seed = recipe.seed + number + (1 << 20) * (kind == "held_sampled")
                    found = sampled_features(target, part, recipe.context, seed)
                else:
                    found = features(target, part)
                write_atomically(path, save(found))
    return shards


@torch.inference_mode()
def likely_tokens(target: Any, shards: list[Path], number: int) -> torch.Tensor:
    """Return, ascending, the tokens of the largest mean target probability over the shards.

    At most 64 shards are read.
    """
    weight = target.get_output_embeddings().weight.cpu().bfloat16()
    mass = torch.zeros(weight.shape[0], dtype=torch.float64)
    for path in shards[:: max(1, len(shards) // 64)]:
        stored = load_file(path)
        hidden, normaliser = (
            stored["hidden"].flatten(0, 1)[::_EVERY],
            stored["log_normaliser"].flatten()[::_EVERY],
        )
        for part, logs in zip(hidden.split(_HEAD_ROWS), normaliser.split(_HEAD_ROWS), strict=True):
            mass += torch.exp((part @ weight.T).float() - logs[:, None]).sum(dim=0)
    return mass.topk(number).indices.sort().values


def train_draft(
    target: Any,
    shards: Mapping[str, list[Path]],
    recipe: Distillation,
    work: Path,
    *,
    device: str = "cpu",
) -> tuple[DraftModule, torch.Tensor]:
    """Train the draft, resuming from the checkpoint in `work`; return it and its vocabulary S.

    The checkpoint at which the learning rate begins to fall stays, and a recipe with more steps
    goes on from it.
    """
    make_folder(work)
    vocabulary = _vocabulary(target, shards["text"], recipe, work)
    torch.manual_seed(recipe.seed)
    model = DraftModule(target, recipe, vocabulary).to(device)
    head = model.head.bfloat16()
    optimiser = torch.optim.AdamW(
        model.trained().values(),
        lr=recipe.learning_rate,
        betas=(0.9, 0.95),
        weight_decay=0.01,
        fused=True,
    )
    constant = recipe.steps - recipe.fall
    falling = work / f"fall-{recipe.steps}"
    learner = Learner(model, optimiser, lambda step: learning_rate(recipe, step))
    training = Training({"": learner}, recipe.steps, _identity(target, recipe), "draft")
    fell = training.resume(falling)
    first = fell or training.resume(work)
    if first > recipe.steps or (first > constant and not fell):
        raise AnalysisError(
            f"The run in {work} has {first} steps at a constant learning rate behind it; a recipe "
            f"of {recipe.steps} steps lets it "
            f"fall after {constant}. Ask for at least {first + recipe.fall} steps."
        )
    if not first:
        fit_lens(model, shards["text"])

    def gradients(step: int) -> float:
        stored = _batch(shards, recipe, step, device)
        hidden = model.last_hidden(stored["tokens"])
        gradient, accepted = score(hidden, head, stored, forward_kl=step < constant)
        hidden.backward(gradient.to(hidden.dtype))
        return accepted

    training.run(
        gradients,
        first=first,
        folder=lambda step: falling if step > constant else work,
        figure="acceptance",
        kept=(constant,),
    )
    return model.eval(), vocabulary


def _batch(
    shards: Mapping[str, list[Path]], recipe: Distillation, step: int, device: str
) -> dict[str, torch.Tensor]:
    """Return a step's windows, neighbours in one shard: a function of (seed, step) alone."""
    chooser = np.random.default_rng([recipe.seed, step])
    sampled = step >= recipe.text_steps and bool(shards["sampled"]) and chooser.random() < 0.5
    paths = shards["sampled" if sampled else "text"]
    with safe_open(paths[chooser.integers(len(paths))], framework="pt") as file:
        slices = {name: file.get_slice(name) for name in ("tokens", "hidden", "log_normaliser")}
        most = slices["tokens"].get_shape()[0]
        start = int(chooser.integers(max(1, most - recipe.batch + 1)))
        return {
            name: part[start : start + recipe.batch].to(device) for name, part in slices.items()
        }


def _identity(target: Any, recipe: Distillation) -> str:
    """Return what a checkpoint and a run that resumes from it must agree in: all but steps."""
    fields = {name: value for name, value in dataclasses.asdict(recipe).items() if name != "steps"}
    name = Path(str(target.config._name_or_path)).name
    return json.dumps({"recipe": fields, "target": name}, sort_keys=True)


def _vocabulary(target: Any, shards: list[Path], recipe: Distillation, work: Path) -> torch.Tensor:
    path = work / "vocabulary.safetensors"
    if not path.exists():
        write_atomically(path, save({"tokens": likely_tokens(target, shards, recipe.head)}))
    return load_file(path)["tokens"]


def _same_recipe(work: Path, target: Any, corpus: Corpus, recipe: Distillation) -> None:
    """Write what determines the features and the trajectory, or refuse a folder of another run."""
    identity = json.dumps(
        {"run": json.loads(_identity(target, recipe)), "corpus": corpus.digest}, sort_keys=True
    )
    path = work / "recipe.json"
    if path.exists() and path.read_text(encoding="utf-8") != identity:
        raise AnalysisError(
            f"A run resumes only in a folder of the same recipe, text and target; {path} differs. "
            "Choose another work folder."
        )
    write_atomically(path, identity.encode())


def write_draft(model: DraftModule, vocabulary: torch.Tensor, folder: Path) -> None:
    """Write a draft's own weights in float16, its vocabulary and its configuration.

    Embeddings and head stay the target's.
    """
    make_folder(folder)
    tensors = {
        name.removeprefix("body."): value.detach().half().contiguous()
        for name, value in model.trained().items()
    }
    write_atomically(folder / WEIGHTS, save(tensors | {VOCABULARY: vocabulary.int()}))
    model.body.config.architectures = ["LlamaForCausalLM"]
    model.body.config.tie_word_embeddings = False
    model.body.config.dtype = "float32"
    model.body.config.save_pretrained(folder)
    write_json(
        folder / DISTILLED, {"borrows": ["embed_tokens", "lm_head"], "head": len(vocabulary)}
    )
