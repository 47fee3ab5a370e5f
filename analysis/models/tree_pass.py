"""Next-token logits of many contexts in one forward pass over a tree, or in plain batches.

Contexts that start alike form a trie. A transformer can evaluate all of it in a single pass,
because a token's hidden state depends on its own ancestors only: the attention mask shows every
token its path to the root, and its position is its depth, not its place in the flattened input
(SpecInfer, Miao et al. 2024, section 4). Keys and values of earlier tokens stay in a cache in the
order in which they were computed. Any order will do: the mask says who is whose ancestor, and the
position was already worked into the keys. So the cache keeps not only a common prefix but every
token of the last trie that the next one shares: a tree drafted level by level evaluates each token
once, and after a verification the accepted path is there already.
"""

from __future__ import annotations

import abc
import inspect
import itertools
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from transformers import DynamicCache

from .trie import CacheLayout, Context, common_length, common_prefix, make_plan, tree_mask

LARGEST_MASK = 2**24
"""Entries of one attention mask (64 MB in float32); a larger tree is evaluated in parts: its trunk,
then halves.
"""

LARGEST_BATCH = 2**15
"""Tokens in one plain batch of sequences."""


class Evaluator(abc.ABC):
    """An evaluator of a model at contexts; counts `passes` forward passes over `tokens` tokens."""

    def __init__(self, model: Any, device: str) -> None:
        self.model, self.device = model, device
        self.passes = 0
        self.tokens = 0
        # Scoring the vocabulary at every token of a prompt would cost more than all the rest; few
        # models cannot leave it out.
        self._can_select = "logits_to_keep" in inspect.signature(model.forward).parameters

    @abc.abstractmethod
    def logits(self, contexts: Sequence[Context]) -> torch.Tensor:
        """Return the logits `(n, rows)` after n ≥ 1 distinct, non-empty contexts."""

    @abc.abstractmethod
    def forget(self) -> None:
        """Clear the cache, if there is one."""

    @final
    @torch.inference_mode()
    def _forward(self, tokens: torch.Tensor, places: Sequence[int], **options: Any) -> torch.Tensor:
        """Run the model and return the logits `(batch, len(places), rows)` at some places."""
        self.passes += 1
        self.tokens += tokens.numel()
        index = torch.tensor(places, device=self.device)
        if self._can_select:
            return self.model(input_ids=tokens, logits_to_keep=index, **options).logits  # type: ignore[no-any-return]
        return self.model(input_ids=tokens, **options).logits[:, index]  # type: ignore[no-any-return]


@final
class SequenceEvaluator(Evaluator):
    """An evaluator of contexts as plain sequences, without a cache, for models that take no tree.

    Contexts of one length share a pass, so nothing is padded and nothing masked, and recurrent
    states and local windows come out right as well. Cost: every token of every context, each time.
    """

    def logits(self, contexts: Sequence[Context]) -> torch.Tensor:
        """Return the logits `(n, rows)` after each context."""
        order = sorted(range(len(contexts)), key=lambda index: len(contexts[index]))
        rows: list[torch.Tensor] = []
        for length, group in itertools.groupby(order, key=lambda index: len(contexts[index])):
            members = list(group)
            size = max(1, LARGEST_BATCH // length)
            for start in range(0, len(members), size):
                tokens = torch.tensor(
                    [contexts[index] for index in members[start : start + size]], device=self.device
                )
                rows.append(self._forward(tokens, [length - 1], use_cache=False)[:, 0])
        places = np.argsort(np.asarray(order))
        return torch.cat(rows)[torch.from_numpy(places).to(self.device)]

    def forget(self) -> None:
        """Do nothing, as nothing is cached."""


@final
class TreeEvaluator(Evaluator):
    """An evaluator of a trie of contexts in one pass, on top of cached keys and values."""

    def __init__(self, model: Any, device: str) -> None:
        super().__init__(model, device)
        self._cache: Any = None
        self._layout = CacheLayout()

    def forget(self) -> None:
        """Clear the cache."""
        self._cache, self._layout = None, CacheLayout()

    def logits(self, contexts: Sequence[Context]) -> torch.Tensor:
        """Return the logits `(n, rows)` after each context, in one pass unless too large."""
        plan = make_plan(contexts, self._layout)
        if plan.parents and len(plan.tokens) * plan.num_rows > LARGEST_MASK:
            return self._in_parts(contexts)
        # a pass that fails half-way leaves no cache behind
        cache, self._cache, self._layout = (
            self._cache,
            None,
            CacheLayout(),
        )
        cache = self._select(cache, plan.kept)
        options: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
        options["position_ids"] = torch.tensor([plan.depths], device=self.device)
        # otherwise the rows are one sequence, and the model's own causal mask is right
        if plan.parents:
            hidden = torch.from_numpy(~tree_mask(plan)).to(self.device)
            mask = torch.zeros(hidden.shape, dtype=self.model.dtype, device=self.device)
            options["attention_mask"] = mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)[
                None, None
            ]
        logits = self._forward(
            torch.tensor([plan.tokens], device=self.device), plan.wanted, **options
        )[0]
        self._cache, self._layout = cache, plan.layout
        return logits

    def _in_parts(self, contexts: Sequence[Context]) -> torch.Tensor:
        trunk = common_prefix(contexts)
        if common_length(trunk, self._layout.trunk) < len(trunk) - 1:
            self.logits([trunk])  # a single sequence needs no mask
            return self.logits(contexts)
        # neighbours share the longest prefixes
        order = sorted(range(len(contexts)), key=contexts.__getitem__)
        middle = len(order) // 2
        rows = torch.cat(
            [
                self.logits([contexts[index] for index in half])
                for half in (order[:middle], order[middle:])
            ]
        )
        return rows[torch.from_numpy(np.argsort(np.asarray(order))).to(self.device)]

    def _select(self, cache: Any, kept: list[int]) -> Any:
        if not kept:
            config = self.model.config
            return DynamicCache(config=config)
        rows = torch.tensor(kept, device=self.device)
        for layer in cache.layers:
            if kept[-1] == len(kept) - 1:
                layer.crop(len(kept) - layer.get_seq_length())
            else:
                layer.keys, layer.values = (
                    layer.keys.index_select(-2, rows),
                    layer.values.index_select(-2, rows),
                )
        return cache
