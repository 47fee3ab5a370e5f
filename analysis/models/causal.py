"""Hugging Face causal models as language models that evaluate a draft tree in one pass."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any, final

import torch

import otm

from ..errors import AnalysisError
from .from_logits import FromLogits
from .pair import Pair
from .processing import AS_THEY_ARE, Setting
from .translated import SharedTokens
from .tree_check import choose_evaluator, longest_context
from .trie import Context

_PLAIN = otm.Processing()


@final
class CausalModel(FromLogits):
    """A causal language model that evaluates all the contexts of a call in one forward pass.

    The contexts form a trie; its tokens are flattened into one sequence under an attention mask
    that shows each token its ancestors, with positions equal to depths. Keys and values of tokens
    that the last call's trie shares are reused.

    A model is used like this only if it can be: its cache must be plain attention in every layer
    (no sliding window, no recurrent state), and on construction a small tree is evaluated and
    compared with plain passes. Otherwise `fallback` says why not, and contexts are evaluated as
    batches of sequences, one pass per distinct length, without a cache: slower, same answers.

    Args:
        model: a `transformers` causal language model in evaluation mode; float16 and bfloat16 are
            fine.
        num_tokens: V; logits beyond it (padding rows) are cut off before the softmax.
        device: where the model is.
        processing: of the logits.

    Raises:
        AnalysisError: if the model is in training mode, on another device, or scores fewer than
            `num_tokens` tokens.

    Accuracy: that of the model's dtype. The softmax runs in float64. Two ways to the same context
        may differ by a rounding of the logits, as they do in every cached implementation; `forget`
        at the start of a text makes the text repeatable.

    Reference: the tree mask is SpecInfer's (Miao et al. 2024, section 4).
    """

    def __init__(
        self, model: Any, num_tokens: int, device: str, processing: otm.Processing = _PLAIN
    ) -> None:
        _check_model(model, device)
        self.num_tokens, self.processing = num_tokens, processing
        self.max_length = longest_context(model)
        self.fallback, self.evaluator = choose_evaluator(model, device, num_tokens)

    def __repr__(self) -> str:
        way = "tree passes" if self.fallback is None else "batches of sequences"
        return (
            f"CausalModel({type(self.evaluator.model).__name__}, V={self.num_tokens}, "
            f"{self.evaluator.device}, {way})"
        )

    def processed(self, processing: otm.Processing) -> CausalModel:
        """Return the model with another processing of the logits, sharing the cache."""
        other = copy.copy(self)
        other.processing = processing
        return other

    def forget(self) -> None:
        """Free the cache, so that later answers repeat bit for bit on the same machine."""
        self.evaluator.forget()

    @torch.inference_mode()
    def logits(self, contexts: Sequence[Context]) -> torch.Tensor:
        """Return the next-token logits `(n, V)` after n ≥ 1 distinct contexts, in one pass."""
        for context in contexts:
            _check_context(context, self.num_tokens, self.max_length)
        logits: torch.Tensor = self.evaluator.logits(list(contexts))[:, : self.num_tokens]
        return logits


def pair_models(pair: Pair, setting: Setting = AS_THEY_ARE) -> tuple[Any, CausalModel]:
    """Return a pair's draft and target as language models on the target's tokens."""
    target = CausalModel(pair.target, pair.num_tokens, pair.device, setting.target)
    if pair.draft_tokenizer is None:
        return CausalModel(pair.draft, pair.num_tokens, pair.device, setting.draft), target
    size = pair.draft.get_output_embeddings().weight.shape[0]
    own = CausalModel(pair.draft, size, pair.device, setting.draft)
    return SharedTokens(own, pair.draft_tokenizer, pair.tokenizer, pair.num_tokens), target


def _check_model(model: Any, device: str) -> None:
    if model.training:
        raise AnalysisError(
            "The model must be in evaluation mode: dropout makes its answers random. Call "
            "model.eval() first."
        )
    wanted, actual = torch.device(device), model.device
    if wanted.type != actual.type or wanted.index not in (None, actual.index):
        raise AnalysisError(
            f"The model must be on device {device!r}; it is on {str(actual)!r}. Call "
            f"model.to({device!r})."
        )


def _check_context(context: Context, num_tokens: int, max_length: int | None) -> None:
    if not context:
        raise AnalysisError(
            "A context needs at least one token; got an empty one. Start with the "
            "begin-of-sequence token."
        )
    if max_length is not None and len(context) > max_length:
        raise AnalysisError(
            f"A context must fit the model's {max_length} positions; this one has {len(context)} "
            "tokens. Shorten the prompt or "
            "decode fewer tokens."
        )
    if set(map(type, context)) != {int}:
        try:
            [operator.index(token) for token in context]
        except TypeError as error:
            raise AnalysisError(
                f"Tokens must be integers; {error}. Pass token ids, not text or probabilities."
            ) from error
    if min(context) < 0 or max(context) >= num_tokens:
        bad = next(token for token in context if not 0 <= token < num_tokens)
        raise AnalysisError(
            f"Tokens must lie in 0..{num_tokens - 1}; got {bad} among {len(context)}. Encode with "
            "the model's own tokenizer."
        )
