"""Tiny models for transformers' `generate`, and a comparison of texts with a law."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import stats
from transformers import LlamaConfig, LlamaForCausalLM

V, PROMPT = 6, (1, 4)


def llama(seed: int, *, layers: int = 1, like: Any = None, change: float = 0.0) -> Any:
    """Return a random model, or a copy of another one with changed output weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=V,
        hidden_size=8,
        intermediate_size=8,
        num_attention_heads=2,
        num_hidden_layers=layers,
        initializer_range=0.6,
        eos_token_id=None,  # drafts would stop at it, whatever generate is told
    )
    model = LlamaForCausalLM(config).eval()
    if like is not None:
        model.load_state_dict(like.state_dict())
        model.lm_head.weight.data += change * torch.randn_like(model.lm_head.weight)
    model.generation_config.update(
        num_assistant_tokens=4,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    return model


def text(model: Any, prompt: tuple[int, ...] = PROMPT, **keywords: Any) -> list[int]:
    """Return what `generate` writes after a prompt, without an end of text unless one is given."""
    ids = torch.tensor([prompt])
    usual = {"attention_mask": torch.ones_like(ids), "eos_token_id": None, "pad_token_id": 0}
    found = model.generate(ids, **(usual | keywords))
    assert found[0, : len(prompt)].tolist() == list(prompt)
    return [int(token) for token in found[0, len(prompt) :]]


def p_value(count: Any, law: Any) -> float:
    """Return the p-value of Pearson's χ², cells of fewer than five expected counts in one."""
    expected = law * count.sum()
    small = expected < 5
    cells = [np.append(one[~small], one[small].sum()) for one in (count, expected)]
    kept = cells[1] > 0
    return float(stats.chisquare(cells[0][kept], cells[1][kept]).pvalue)
