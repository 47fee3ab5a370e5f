"""What public loops call: toy models in the shape of transformers' and of engines', over any of
this library's toy models.

All of them keep what real ones keep (keys and values by position, masks, positions), with tokens as
keys, so that a stale or misplaced row gives another law. The first token is a prompt that the laws
do not look at; `offset` moves tokens up, for code to which 0 is special.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

PROMPT = 1
"""The token of the prompt."""


class Toy:
    """A next-token law as logits."""

    def __init__(
        self,
        model: Any,
        *,
        offset: int = 0,
        dtype: torch.dtype = torch.float64,
        temperature: float = 1.0,
    ) -> None:
        self.model, self.offset, self.dtype, self.temperature = model, offset, dtype, temperature
        self.num_tokens = model.num_tokens + offset
        self.device = torch.device("cpu")
        self.config = types.SimpleNamespace(vocab_size=self.num_tokens, is_encoder_decoder=False)

    def row(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return the logits `(V,)` after the prompt and these tokens."""
        law = np.zeros(self.num_tokens)
        law[self.offset :] = self.model.next([int(token) - self.offset for token in tokens])
        return (torch.from_numpy(law).log() * self.temperature).to(self.dtype)


class Causal(Toy):
    """A model as transformers': ids in, logits and past keys out; each key is its token."""

    def __call__(
        self,
        ids: Any = None,
        *args: Any,
        input_ids: Any = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return logits `(B, T, V)` after each of the ids, and the keys of all so far."""
        ids = input_ids if ids is None else ids
        old = ids[:, :0] if past_key_values is None else past_key_values[0][0][:, 0, :, 0].long()
        seen = torch.cat([old.expand(ids.shape[0], -1), ids], dim=1)
        first = seen.shape[1] - ids.shape[1]
        logits = torch.stack(
            [
                torch.stack([self.row(row[1 : t + 1]) for t in range(first, len(row))])
                for row in seen.tolist()
            ]
        )
        keys = seen[:, None, :, None].to(self.dtype)
        return types.SimpleNamespace(
            logits=logits, last_hidden_state=logits, past_key_values=((keys, keys.clone()),)
        )


class Halves:
    """The same cut in two, as transformers' models have it: `model` gives hidden states, `lm_head`
    the logits from them.
    """

    def __init__(self, model: Any) -> None:
        self.model = Causal(model)
        self.model.get_input_embeddings = lambda: types.SimpleNamespace(weight=torch.zeros(1))

    def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the hidden states, which are the logits."""
        return hidden


class Positioned(Toy):
    """A model with a static cache, as gpt-fast's: tokens are written at the given positions and
    seen up to each.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.cache: dict[int, int] = {}

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return logits `(1, T, V)` after each of the tokens."""
        for position, token in zip(
            positions.reshape(-1).tolist(), ids.reshape(-1).tolist(), strict=True
        ):
            self.cache[position] = token
        rows = [
            self.row([self.cache[i] for i in range(1, position + 1)])
            for position in positions.reshape(-1).tolist()
        ]
        return torch.stack(rows)[None]


class Softened(Positioned):
    """The same as litgpt calls it, its laws mixed with the even one: a law without zeros that has
    the same argmax.
    """

    def __init__(self, model: Any, share: float, temperature: float = 1.0) -> None:
        super().__init__(model)
        self.share, self.temperature, self.max_seq_length = share, temperature, 16

    def modules(self) -> tuple[()]:
        """Return that nothing of it is compiled."""
        return ()

    def row(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return the logits `(V,)` after the prompt and these tokens."""
        return (self.share * super().row(tokens).exp() + (1 - self.share) / self.num_tokens).log()

    def __call__(self, idx: Any, input_pos: Any, **kwargs: Any) -> torch.Tensor:
        """Return logits `(1, T, V)` after each of the tokens."""
        return super().__call__(idx, input_pos)


class Masked(Toy):
    """An engine as Sequoia's: tokens are kept at storage places, and a mask says which of them each
    query sees.
    """

    def __init__(self, model: Any, *, max_length: int, offset: int) -> None:
        super().__init__(model, offset=offset)
        self.tokens, self.places = [0] * max_length, [0] * max_length
        self.engine = types.SimpleNamespace(max_length=max_length, kv_cache=self)

    def inference(
        self, *, input_ids: Any, storage_ids: Any, position_ids: Any, attn_mask: Any
    ) -> torch.Tensor:
        """Return logits `(1, T, V)`."""
        for token, storage, place in zip(
            input_ids[0].tolist(), storage_ids.tolist(), position_ids[0].tolist(), strict=True
        ):
            self.tokens[storage], self.places[storage] = token, place
        rows = []
        for visible in (attn_mask[0, 0] == 0).tolist():
            seen = sorted(
                (self.places[i], self.tokens[i]) for i, open_ in enumerate(visible) if open_
            )
            rows.append(self.row([token for _, token in seen[1:]]))
        return torch.stack(rows)[None]

    graph_inference = inference

    def gather_kv_incremental(self, indices: Sequence[int], offset: int) -> None:
        """Move accepted rows behind the text and forget the rest."""
        kept = [(self.tokens[i], self.places[i]) for i in indices]
        for i in range(offset, len(self.tokens)):
            self.tokens[i], self.places[i] = kept[i - offset] if i - offset < len(kept) else (0, 0)


class Hierarchy:
    """TriForce's engine: a small model, the target with a retrieved cache, and the target, over one
    text with a prompt of two.
    """

    def __init__(self, small: Any, middle: Any, target: Any) -> None:
        self.small, self.middle, self.target = Toy(small), Toy(middle), Toy(target)
        self.text: list[int] = []
        self.seq_len = 0
        cache = types.SimpleNamespace(
            reset=_nothing,
            evict_for_spec=_nothing,
            print_status=_nothing,
            start_size=0,
            recent_size=0,
        )
        model = types.SimpleNamespace(device="cpu", config=types.SimpleNamespace(_name_or_path=""))
        self.engine = types.SimpleNamespace(
            kv_cache=self, draft_cache=cache, graph_cache=cache, model=model
        )
        self.reset = self.print_status = self.graph_draft_prefill = self.update_graph_cache = (
            _nothing
        )

    def begun(self) -> Hierarchy:
        """Return it with the first token of the prompt read."""
        self.inference(torch.tensor([[PROMPT]]))
        return self

    def inference(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the target's logits after each token, all of which enter the cache."""
        self.text = [*self.text[: self.seq_len], *input_ids[0].tolist()]
        self.seq_len, first = len(self.text), len(self.text) - input_ids.shape[1]
        return torch.stack(
            [self.target.row(self.text[2 : i + 1]) for i in range(first, len(self.text))]
        )[None]

    def graph_draft_inference(self, input_ids: torch.Tensor, gamma_offset: int) -> torch.Tensor:
        """Return the small model's law after the last of these tokens."""
        tokens = [*self.text[: self.seq_len], *input_ids[0].tolist()]
        return self.small.row(tokens[2 : self.seq_len + gamma_offset + 1]).exp()

    def graph_verify(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Return the middle model's law after each of these tokens."""
        tokens = [*self.text[: self.seq_len], *input_ids[0].tolist()]
        return torch.stack(
            [
                self.middle.row(tokens[2 : self.seq_len + i + 1]).exp()
                for i in range(input_ids.shape[1])
            ]
        )


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing, as there is nothing to keep."""


def two_siblings(utilities: Any, tree: Any) -> Any:
    """Return what makes a tree of Sequoia's with a root and two children, but the engines: anew for
    each text.
    """
    # in place of float16, whose rounding would show
    tree.__init__.__defaults__ = (
        "cpu",
        512,
        torch.float32,
    )

    def fittings() -> dict[str, Any]:
        grow: dict[str, Any] = {
            "roots": [[0], [1, 2]],
            "branches": [[2]],
            "Successors": [[1, 2], [], []],
            "size": 3,
        }
        grow |= {
            "depth": torch.tensor([0, 1, 1]),
            "mask": torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]),
        }
        sampled = {
            0: lambda logits, rand: utilities.sampling_without_replacement(logits, rand, 2, 1.0)
        }
        buffers = {
            "attn_mask": torch.zeros(16, 16),
            "position_ids": torch.zeros(16).long(),
            "max_length": 16,
        }
        kernels = {"residual_graph": utilities.get_residual, "sampling_callables": sampled}
        return {
            "grow_map": grow,
            "sample_gather_indices": {0: torch.tensor([0, 1])},
            **buffers,
            **kernels,
        }

    return fittings


class Unpinned:
    """torch without pinned memory, which needs an accelerator."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        if name not in ("tensor", "arange", "ones", "full"):
            return found

        def unpinned(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
            return found(*args, **kwargs)

        return unpinned


def from_vllm(*, block: bool = False, entropy: bool = False) -> dict[str, Any]:
    """Return what vllm-ascend's rejection sampler has from vLLM and from its configuration."""
    thresholds = {"posterior_threshold": 0.95, "posterior_alpha": 0.4}
    settings = types.SimpleNamespace(
        enable_block_verify=block, enable_entropy_verify=entropy, **thresholds
    )
    config = types.SimpleNamespace(rejection_sampler_config=settings, enable_reduce_sample=False)
    return {
        "torch": Unpinned(),
        "HAS_TRITON": False,
        "GREEDY_TEMPERATURE": 0,
        "PLACEHOLDER_TOKEN_ID": -1,
        "MAX_SPEC_LEN": 128,
        "get_ascend_config": lambda: config,
        "generate_uniform_probs": lambda n, counts, generators, device: torch.rand(
            n, dtype=torch.float64
        ),
    }


class NoBar:
    """No progress bar."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.n = 0

    def __enter__(self) -> NoBar:
        return self

    def __exit__(self, *args: Any) -> None:
        pass

    def update(self, n: int) -> None:
        """Show nothing."""


class NoTokenizer:
    """A tokenizer that is not downloaded."""

    @classmethod
    def from_pretrained(cls, name: str) -> NoTokenizer:
        """Return one that decodes nothing."""
        return cls()

    pad_token_id = 0

    def __call__(self, text: str, **kwargs: Any) -> dict[str, torch.Tensor]:
        """Return the prompt, whatever the text."""
        return {"input_ids": self.encode(text)}

    def encode(self, text: str, **kwargs: Any) -> torch.Tensor:
        """Return the prompt, whatever the text."""
        return torch.tensor([[PROMPT]])

    def decode(self, *args: Any, **kwargs: Any) -> str:
        """Return no text."""
        return ""


def rows(*arrays: Any) -> list[torch.Tensor]:
    """Return arrays as tensors with a batch of one in front."""
    return [torch.as_tensor(np.asarray(array))[None] for array in arrays]


def paths(tree: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the root-to-leaf paths of a tree as nodes `(paths, depth)`, −1 behind their end, and
    as tokens.
    """
    parents = tree.parents.tolist()
    lines = []
    for leaf in sorted(set(range(len(parents))) - set(parents)):
        line = [leaf]
        while parents[line[0]] >= 0:
            line.insert(0, parents[line[0]])
        lines.append(line)
    nodes = torch.tensor([line + [-1] * (max(map(len, lines)) - len(line)) for line in lines])
    return nodes, torch.where(nodes < 0, -1, torch.as_tensor(tree.tokens)[nodes])


def path_tokens(tree: Any, nodes: torch.Tensor, best: Any, accepted: Any, last: Any) -> list[int]:
    """Return the tokens of the first nodes of a path, and the one after them."""
    return [int(tree.tokens[node]) for node in nodes[int(best)][1 : int(accepted) + 1].tolist()] + [
        int(last)
    ]


def depths(tree: Any) -> torch.Tensor:
    """Return the depth of each node of a drafted tree."""
    found = [0]
    for parent in tree.parents[1:]:
        found.append(found[parent] + 1)
    return torch.tensor(found)


def with_cache(model: Any) -> Any:
    """Return a model as lucidrains' loops call it: without a cache of its own."""
    toy = Causal(model)

    def called(ids: torch.Tensor, **_: Any) -> Any:
        return toy(ids).logits.float(), (torch.zeros(1, ids.shape[1], 1), None)

    return called


def answering(logits: torch.Tensor) -> Any:
    """Return a model of transformers' that has these logits, whatever it is asked."""
    return lambda **_: types.SimpleNamespace(logits=logits)


def opt_tree(verify: Any, tree: Any, unused: int = 1) -> list[int]:
    """Call a verifier of OPT-Tree's, with a model whose next draft is not looked at and ends with
    so many things unused.
    """
    logits, text = torch.as_tensor(tree.target)[None].log(), torch.zeros(1, 0).long()
    parents = torch.tensor(
        [
            node if parent == 0 else parent - 1
            for node, parent in enumerate(tree.parents[1:].tolist())
        ]
    )
    next_draft = torch.zeros(1, 1).long(), torch.zeros(1).long(), torch.ones(1, 1)
    model = types.SimpleNamespace(draft=lambda *_: (*next_draft, *[None] * unused))
    caches = None, [torch.zeros(1, len(parents) + 1, 1)], torch.tensor([len(parents) + 1])
    rest = model, 0, 0, 0, lambda ids, scores: scores
    tokens = torch.as_tensor(tree.tokens)[None]
    found = verify(text, logits, tokens, depths(tree), *caches, parents, *rest)
    return [*found[1][1:], int(found[3][0, 0])]


def one_device() -> types.SimpleNamespace:
    """Return a sampler of TensorRT-LLM's as far as its handler of drafts looks at it."""
    return types.SimpleNamespace(
        get_generator=lambda device: torch.default_generator, max_seq_len=9
    )


def fixed(logits: torch.Tensor) -> Any:
    """Return a model that has these logits `(T, V)` after whatever tokens it is given, no cache."""
    return lambda *_, **__: types.SimpleNamespace(logits=logits[None], past_key_values=None)


def drafting(verify: Any, gamma: int) -> Any:
    """Return a step that draws a block from the draft model and has it verified."""

    def step(draft: Any, target: Any, rng: Any) -> Any:
        drafts: list[int] = []
        for _ in range(gamma):
            drafts.append(int(rng.choice(draft.num_tokens, p=draft.next(drafts))))
        laws = [
            np.stack([model.next(drafts[:i]) for i in range(gamma + more)])
            for more, model in ((0, draft), (1, target))
        ]
        return [
            token
            for token in np.asarray(verify(*laws, np.array(drafts), None)).reshape(-1).tolist()
            if token != -1
        ]

    return step


class KeyedNoise:
    """vLLM's random numbers: one for each seed and position, drawn so that they can be followed."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], torch.Tensor] = {}

    def given(self) -> dict[str, Any]:
        """Return what the file of kernels imports: this noise, and none of what is off."""
        off = dict.fromkeys(("compute_fly_entropy", "philox_gumbel_block_argmax"))
        return {"tl_rand32": self.uniform, "gumbel_block_argmax": self.drawn, **off}

    def uniform(self, seed: Any, position: Any, **kwargs: Any) -> torch.Tensor:
        """Return the uniform of a seed and a position."""
        place = int(seed), int(position)
        if place not in self.seen:
            self.seen[place] = torch.rand(())
        return self.seen[place]

    def drawn(
        self,
        logits: Any,
        block: Any,
        mask: Any,
        row: Any,
        requests: Any,
        heat: Any,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a token drawn by its logits, the likeliest where the request's heat is 0."""
        if heat.flat[int(requests.flat[int(row)])] == 0.0:
            return logits.max(), logits.argmax()
        token = torch.multinomial(logits.softmax(-1), 1)[0]
        return logits[token], token


def drafted(drafts: Any, **given: Any) -> types.SimpleNamespace:
    """Return a request of TensorRT-LLM's with these drafts, which keeps what is written."""
    request = types.SimpleNamespace(
        py_draft_tokens=drafts.tolist(), seq_slot=0, written=[], **given
    )
    request.add_new_token = lambda token, beam: request.written.append(token)
    return request


def of_tensorrt() -> dict[str, Any]:
    """Return what TensorRT-LLM's handler of drafts imports: no strategy, no stop, one beam."""

    def add_token(request: Any, tokens: Any, *, beam_idx: int, step: int) -> int:
        request.written.append(int(tokens))
        return int(tokens)

    return {
        "DEFAULT_BEAM_IDX": 0,
        "prefer_pinned": lambda: False,
        "get_draft_token_length": lambda request: len(request.py_draft_tokens),
        "handle_stop_criteria": lambda *_, **__: False,
        "_request_strategy": lambda *_, **__: None,
        "sample": lambda strategy, logits, **_: (None, logits, None),
        "add_token": add_token,
    }


def two_requests(drafts: Any, *, cut: bool) -> tuple[torch.Tensor, ...]:
    """Return what vLLM's kernels want to know of two requests with these drafts.

    The first has temperature 0, the second 1. With `cut` the second one's drafts are −1 from any
    place on.
    """
    size = len(drafts) + 1
    ids = torch.from_numpy(np.array([[PROMPT, *drafts]] * 2))
    if cut:
        ids[1, 1 + int(torch.randint(size, (1,))) :] = -1
    place = torch.arange(size).repeat(2)
    numbers = torch.arange(3) * size, place, torch.arange(2)
    each = torch.arange(2).repeat_interleave(size)
    return ids.view(-1), *numbers, each, place, torch.tensor([0.0, 1.0]), torch.tensor([3, 4])


def as_jax(
    draft: Any, logits: Any, drafts: Any, temperature: float, top_p: float
) -> tuple[Any, ...]:
    """Return a batch of blocks as tpu-inference flattens it, and its settings."""
    import jax.numpy as jnp

    size, gamma, vocabulary = draft.shape
    settings = types.SimpleNamespace(
        temperature=jnp.full(size, temperature),
        top_p=jnp.full(size, top_p),
        top_k=jnp.zeros(size, int),
    )
    laws = (jnp.asarray(np.reshape(law, (-1, vocabulary))) for law in (draft, logits))
    return *laws, jnp.asarray(drafts.reshape(-1)), jnp.full(size, gamma), settings


def jax_rest(last: Any, seed: int) -> tuple[Any, ...]:
    """Return the tokens of the caller, that there is sampling, and a key."""
    import jax

    return jax.numpy.asarray(last), True, jax.random.key(seed)
