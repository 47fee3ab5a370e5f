"""Distillation of a small draft from a large target: some layers, and a head on likely tokens.

The draft keeps the target's embeddings, which it does not train, and scores only the tokens S to
which the target gives most of its mass along what it writes (as FR-Spec does), so that its
acceptance is at most Q(S) and a draft pass reads a tenth of a target pass's weights. It is trained
where it will be used: along the target's own samples after prompts. They are drawn once; the
target's last hidden states and the logarithm of its normaliser are kept (2 bytes a number), from
which every later step has the exact target law q on S for the price of the draft's own head.

The work folder holds one file a shard of windows and a checkpoint; each appears whole, so that a
run killed at any point goes on.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save

from otm._machine.progress import with_progress

from ..errors import AnalysisError
from ..files import make_folder, write_atomically, write_json
from ..models.distilled import DISTILLED, VOCABULARY, WEIGHTS, packed_weights, stored_weights
from .corpus import Corpus
from .resumable import Learner, Training

_WINDOWS = 128
"""Windows of a shard, which advance together: the more the cheaper."""

TRAIN = "train"
"""The shards that are trained on; those of "held_" and a kind of prompts are measured on."""

_HEAD_ROWS = 512
"""Positions scored at a time, so that a block of logits stays in the cache."""

_LENS_SHARDS = 10
"""Shards that the lens is fitted to before training."""

_EVERY = 16
"""Distance between the positions that count towards the likely tokens."""


@dataclasses.dataclass(frozen=True)
class Distillation:
    """Everything that determines a distilled draft besides target and prompts.

    The learning rate is constant but for a warm-up at the start and a fall to 0 over the last
    steps. What a run did before the fall is the beginning of a longer run, and is kept.

    Attributes:
        layers: the target's layers that the draft starts from, by number; the shape of the draft.
        start: folder of a distilled draft with as many layers whose weights are gone on with; None
            begins with the target's layers.
        head: |S|, the tokens that the draft can propose.
        context: tokens in a window, the prompt included.
        windows: windows of training samples, as many for each kind of prompts.
        temperatures: of the drawn windows, in turn; held-out ones are at 1, as all laws are.
        held_windows: windows for each kind of held-out prompts, on which nothing is trained.
        batch: windows in a step.
        learning_rate, seed: of AdamW.
        warm_up: steps over which the learning rate rises.
        steps: steps in all. Alone of all fields it may differ where a run goes on.
        fall: the last steps, over which the learning rate falls and the loss is −log Σ min(p, q).
            It is D(q‖p) before.
    """

    layers: tuple[int, ...] = (0, 1)
    start: str | None = None
    head: int = 8192
    context: int = 256
    windows: int = 4_096
    temperatures: tuple[float, ...] = (1.0, 0.6)
    held_windows: int = 64
    batch: int = 4
    learning_rate: float = 8e-4
    warm_up: int = 100
    steps: int = 6_000
    fall: int = 1_500
    seed: int = 20261122


@dataclasses.dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts in tokens, which the target continues.

    Attributes:
        train: one prompt a window of training.
        held: prompts on which nothing is trained, by kind.
    """

    train: list[NDArray[np.int32]]
    held: Mapping[str, list[NDArray[np.int32]]]


def choose_prompts(tokenizer: Any, corpus: Corpus, recipe: Distillation) -> Prompts:
    """Return prompts from the documents of a corpus, as many for each kind, in a seeded order.

    A prompt is the first quarter of a window: a document of several windows gives several, a
    shorter one is a prompt as it is. Where there are too few they return, and are gone on with in
    other ways.
    """
    kinds = sorted({document.kind for document in corpus.documents})
    found = {
        (kind, side): _prompts(tokenizer, corpus, recipe, kind=kind, held_out=side)
        for kind in kinds
        for side in (False, True)
    }
    each = itertools.cycle(itertools.cycle(found[kind, False]) for kind in kinds)
    return Prompts(
        train=[next(prompts) for prompts in itertools.islice(each, recipe.windows)],
        held={kind: found[kind, True] for kind in kinds},
    )


def _prompts(
    tokenizer: Any, corpus: Corpus, recipe: Distillation, *, kind: str, held_out: bool
) -> list[NDArray[np.int32]]:
    most = recipe.held_windows if held_out else recipe.windows
    texts = corpus.texts(held_out=held_out, kind=kind)
    order, found = np.random.default_rng(recipe.seed).permutation(len(texts)), []
    for number in order:
        ids = np.asarray(tokenizer(texts[number], add_special_tokens=False)["input_ids"], np.int32)
        starts = range(0, max(1, len(ids) - recipe.context // 4), recipe.context)
        found += [ids[start : start + recipe.context // 4] for start in starts if len(ids)]
        if len(found) >= most:
            return found[:most]
    if not found:
        side = "held out" if held_out else "trained on"
        raise AnalysisError(
            f"Distillation needs prompts of each kind on both sides; of {kind} none is {side}. "
            "Give more text."
        )
    return found * (most // len(found)) + found[: most % len(found)]


@torch.inference_mode()
def sampled_features(
    target: Any,
    prompts: Sequence[NDArray[np.int32]],
    context: int,
    seed: int,
    temperatures: Sequence[float] = (1.0,),
) -> dict[str, torch.Tensor]:
    """Return the target's features along sampled continuations of prompts, `(rows, context)`.

    Features are tokens, last hidden states in bfloat16 and log-normalisers in float32, at
    temperature 1 whatever temperature a row is drawn at; those are dealt out in turn.

    All rows advance together, a token a step. The query heads that share a key are rows of one
    small product with it, so that no key is copied; a library's own cache copies every key three
    times a step, which costs more than the layers do.
    """
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model, config = target.model, target.config
    rows, given = len(prompts), torch.tensor([len(prompt) for prompt in prompts])
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    width = model.layers[0].self_attn.head_dim
    weight = target.get_output_embeddings().weight
    place = weight.device
    generator = torch.Generator(device=place).manual_seed(seed)
    heat = torch.tensor(temperatures, device=place)[torch.arange(rows) % len(temperatures), None]
    cache = torch.empty(
        (2, len(model.layers), rows, shared, context, width), dtype=weight.dtype, device=place
    )
    tokens = torch.zeros((rows, context), dtype=torch.int64, device=place)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = torch.from_numpy(prompt.astype(np.int64)).to(place)
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
        if at + 1 == context or not bool((own := at + 1 >= given).any()):
            continue
        # float32 moves a token's probability by some 1e-7, nothing to a draft's training
        heights = logits.sub_(normaliser[:, at, None]).div_(heat).exp_().cumsum(dim=-1)
        drawn = torch.rand((rows, 1), generator=generator, device=place) * heights[:, -1:]
        chosen = torch.searchsorted(heights, drawn, right=True)[:, 0]
        tokens[own, at + 1] = chosen.clamp_max(logits.shape[-1] - 1)[own]
    found = {"tokens": tokens.int(), "hidden": hidden, "log_normaliser": normaliser}
    return {name: value.cpu().contiguous() for name, value in found.items()}


class DraftModule(torch.nn.Module):
    """The trained part of a draft, between the target's embeddings and head rows.

    The parts are layers, a norm and a square matrix, which carries the early layers' last hidden
    states to where the target's head reads (a lens). A written draft is used with the product of
    head and matrix, so that it costs nothing there.
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
        if recipe.start is not None:
            own, trained = stored_weights(Path(recipe.start)), self.trained()
            if own.keys() - {VOCABULARY} != {name.removeprefix("body.") for name in trained}:
                raise AnalysisError(
                    f"start must be a draft with {len(recipe.layers)} layers; {recipe.start} has "
                    "others. Name another draft, or other layers."
                )
            for name, value in trained.items():
                value.data.copy_(own[name.removeprefix("body.")])
        self.head: torch.Tensor
        self.register_buffer(
            "head", target.get_output_embeddings().weight[vocabulary].detach().float().clone()
        )

    def last_hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the vectors that the target's head rows multiply, `(rows, length, width)`.

        Computed in bfloat16 but for the weights.
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
    """Return the learning rate of a step: a rise, a constant, and a linear fall to 0."""
    rising = (step + 1) / max(1, recipe.warm_up)
    return recipe.learning_rate * min(1.0, rising, (recipe.steps - step) / max(1, recipe.fall))


def prepare(
    target: Any, tokenizer: Any, corpus: Corpus, recipe: Distillation, work: Path
) -> dict[str, list[Path]]:
    """Sample the target's continuations of all prompts and return the shards of features, by kind.

    Shards that exist are not made again.
    """
    make_folder(work)
    _same_recipe(work, target, corpus, recipe)
    prompts = choose_prompts(tokenizer, corpus, recipe)
    source = {TRAIN: prompts.train} | {f"held_{kind}": own for kind, own in prompts.held.items()}
    shards = {}
    for side, (kind, rows) in enumerate(source.items()):
        parts = [rows[start : start + _WINDOWS] for start in range(0, len(rows), _WINDOWS)]
        shards[kind] = [work / f"{kind}-{number:05d}.safetensors" for number in range(len(parts))]
        jobs = with_progress(
            list(zip(shards[kind], parts, strict=True)), f"shards of the target: {kind}"
        )
        for number, (path, part) in enumerate(jobs):
            if not path.exists():
                seed = recipe.seed + number + side * (1 << 20)
                heat = recipe.temperatures if kind == TRAIN else (1.0,)
                found = sampled_features(target, part, recipe.context, seed, heat)
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
    """Train the draft, resuming from the checkpoint in `work`; return draft and vocabulary S.

    The checkpoint at which the learning rate begins to fall stays, and a recipe with more steps
    goes on from it.
    """
    make_folder(work)
    vocabulary = _vocabulary(target, shards[TRAIN], recipe, work)
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
    training = Training(learner, recipe.steps, _identity(target, recipe), "draft")
    fell = training.resume(falling)
    first = fell or training.resume(work)
    if first > recipe.steps or (first > constant and not fell):
        raise AnalysisError(
            f"The run in {work} has {first} steps at a constant learning rate behind it; a recipe "
            f"of {recipe.steps} steps lets it "
            f"fall after {constant}. Ask for at least {first + recipe.fall} steps."
        )
    if not first and recipe.start is None:
        fit_lens(model, shards[TRAIN])

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
    paths = shards[TRAIN]
    with safe_open(paths[chooser.integers(len(paths))], framework="pt") as file:
        slices = {name: file.get_slice(name) for name in ("tokens", "hidden", "log_normaliser")}
        most = slices["tokens"].get_shape()[0]
        start = int(chooser.integers(max(1, most - recipe.batch + 1)))
        return {
            name: part[start : start + recipe.batch].to(device) for name, part in slices.items()
        }


def _identity(target: Any, recipe: Distillation) -> str:
    """Return the recipe and the target that a checkpoint and a resuming run share.

    The number of steps is left out.
    """
    fields = {name: value for name, value in dataclasses.asdict(recipe).items() if name != "steps"}
    name = Path(str(target.config._name_or_path)).name
    return json.dumps({"recipe": fields, "target": name}, sort_keys=True)


def _vocabulary(target: Any, shards: list[Path], recipe: Distillation, work: Path) -> torch.Tensor:
    path = work / "vocabulary.safetensors"
    if not path.exists():
        write_atomically(path, save({"tokens": likely_tokens(target, shards, recipe.head)}))
    return load_file(path)["tokens"]


def _same_recipe(work: Path, target: Any, corpus: Corpus, recipe: Distillation) -> None:
    """Write the recipe of features and training, or refuse a folder of another run."""
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
    """Write the trained weights of a draft in 8 bits, the vocabulary and the configuration.

    Embeddings and head stay the target's.
    """
    make_folder(folder)
    own = {name.removeprefix("body."): value for name, value in model.trained().items()}
    write_atomically(folder / WEIGHTS, save(packed_weights(own) | {VOCABULARY: vocabulary.int()}))
    model.body.config.architectures = ["LlamaForCausalLM"]
    model.body.config.tie_word_embeddings = False
    model.body.config.dtype = "float32"
    model.body.config.save_pretrained(folder)
    write_json(
        folder / DISTILLED, {"borrows": ["embed_tokens", "lm_head"], "head": len(vocabulary)}
    )
