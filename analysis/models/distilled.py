"""Drafts with a few own layers over the target's embeddings and likely tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from ..errors import AnalysisError

DISTILLED = "distilled.json"
"""The file that makes a folder a distilled draft."""

VOCABULARY = "vocabulary"
LENS = "lens.weight"
WEIGHTS = "model.safetensors"
_SCALE = ".scale"


class LikelyHead(torch.nn.Module):
    """Output layer that scores a subset S of the vocabulary; the rest has probability 0.

    Attributes:
        weight: rows of the target's output layer, `(|S|, width)`.
        vocabulary: S, ascending.
        num_tokens: V.
    """

    def __init__(self, weight: torch.Tensor, vocabulary: torch.Tensor, num_tokens: int) -> None:
        super().__init__()
        self.weight: torch.Tensor
        self.vocabulary: torch.Tensor
        self.register_buffer("weight", weight)
        self.register_buffer("vocabulary", vocabulary)
        self.num_tokens = num_tokens

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits `(..., V)`, −∞ outside S."""
        scores = torch.nn.functional.linear(hidden, self.weight)
        logits = scores.new_full((*scores.shape[:-1], self.num_tokens), -torch.inf)
        return logits.index_copy_(-1, self.vocabulary, scores)


def is_distilled(folder: Path) -> bool:
    """Return True if a folder holds a draft that borrows the target's embeddings."""
    return (folder / DISTILLED).is_file()


def packed_weights(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Pack weights for a draft's file: matrices in 8 bits with a scale for each row."""
    packed = {name: value.detach().float().contiguous() for name, value in weights.items()}
    for name, value in list(packed.items()):
        if value.ndim == 2:
            scale = value.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127
            packed |= {name: (value / scale).round().to(torch.int8), name + _SCALE: scale}
    return packed


def stored_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights and the vocabulary that a draft's file holds, by name."""
    stored = load_file(folder / WEIGHTS)
    scales = {name: stored.pop(name) for name in list(stored) if name.endswith(_SCALE)}
    return stored | {
        name.removesuffix(_SCALE): stored[name.removesuffix(_SCALE)] * scale
        for name, scale in scales.items()
    }


def load_distilled(folder: Path, target: Any) -> Any:
    """Load a distilled draft over the embeddings of the target, which are not copied.

    Raises:
        AnalysisError: if the target has another width or vocabulary than the draft was distilled
            for, or a file is damaged.
    """
    config = LlamaConfig.from_pretrained(folder)
    embeddings = target.get_input_embeddings().weight
    if embeddings.shape != (config.vocab_size, config.hidden_size):
        raise AnalysisError(
            f"The draft {folder} borrows embeddings of shape "
            f"{(config.vocab_size, config.hidden_size)}; the target's have shape "
            f"{tuple(embeddings.shape)}. Give the target that the draft was distilled for."
        )
    stored = stored_weights(folder)
    vocabulary = stored.pop(VOCABULARY).long()
    lens = stored.pop(LENS).to(embeddings.dtype)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    weights = {f"model.{name}": value.to(embeddings.dtype) for name, value in stored.items()}
    missing, unexpected = model.load_state_dict(weights, strict=False, assign=True)
    absent = set(missing) - {"model.embed_tokens.weight", "lm_head.weight"}
    if absent or unexpected:
        raise AnalysisError(
            f"{folder / WEIGHTS} must hold the layers of its config.json; "
            f"{sorted([*absent, *unexpected])} differ."
        )
    model.set_input_embeddings(target.get_input_embeddings())
    head = target.get_output_embeddings().weight.detach()
    model.lm_head = LikelyHead(head[vocabulary] @ lens, vocabulary, config.vocab_size)
    # its frequencies are computed, not stored
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
    model.config._name_or_path = str(folder)
    return model.eval()
