"""Checks that a model can be evaluated in tree passes, by configuration and by a small tree."""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from ..errors import AnalysisError
from .tree_pass import Evaluator, SequenceEvaluator, TreeEvaluator
from .trie import CacheLayout, Context, make_plan

_CALLS = (
    # Letters stand for tokens. First a tree with siblings, cousins, inner nodes that are asked for
    # as well, and tokens that occur on several branches; then one that keeps scattered rows of it,
    # evaluates one again and grows new branches.
    ("abc", "abcd", "abcde", "abcf", "abcfg", "abcfdh", "abcdg"),
    ("abcfghe", "abcfghd", "abcdab", "abcfdhb", "abcdg"),
)
_FLAT_LENGTH = 12


def choose_evaluator(model: Any, device: str, num_tokens: int) -> tuple[str | None, Evaluator]:
    """Return the reason against tree passes of a model, or None, and the evaluator to use.

    Raises:
        AnalysisError: if the model scores fewer than `num_tokens` tokens.

    Cost: about a dozen passes over at most a dozen tokens each.
    """
    plain = SequenceEvaluator(model, device)
    rows = int(plain.logits([(0,)]).shape[-1])
    if num_tokens > rows or num_tokens < 1:
        raise AnalysisError(
            f"num_tokens must lie in 1..{rows}, the tokens that the model scores; got {num_tokens}."
        )
    obstacle = configuration_obstacle(model) or observed_obstacle(model, device, num_tokens)
    return (
        (None, TreeEvaluator(model, device))
        if obstacle is None
        else (obstacle, SequenceEvaluator(model, device))
    )


def longest_context(model: Any) -> int | None:
    """Return the number of positions of a model, or None if the configuration names no limit."""
    limit: int | None = getattr(
        model.config.get_text_config(decoder=True), "max_position_embeddings", None
    )
    return limit


def configuration_obstacle(model: Any) -> str | None:
    """Return the reason against tree passes in a model's configuration, or None.

    Checked are properties that a small tree would not show, and room for that tree.
    """
    kinds = sorted(
        {type(layer).__name__ for layer in DynamicCache(config=model.config).layers}
        - {DynamicLayer.__name__}
    )
    if kinds:
        return (
            "its cache has layers other than plain attention over the whole context "
            f"({', '.join(kinds)})"
        )
    config = model.config.get_text_config(decoder=True)
    if "local" in getattr(config, "attention_layers", ()):
        return "some of its layers attend to a local window of the input as it lies"
    parameters = getattr(config, "rope_parameters", None) or {}
    for scaling in (
        parameters,
        *(value for value in parameters.values() if isinstance(value, dict)),
    ):
        if scaling.get("rope_type") in ("dynamic", "longrope"):
            return (
                f"its rotary frequencies change with the length ({scaling['rope_type']}), and "
                "cached keys keep the old ones"
            )
    most = longest_context(model)
    if most is not None and most < _FLAT_LENGTH:
        return f"its {most} positions are too few to compare a tree pass with plain ones"
    return None


def observed_obstacle(model: Any, device: str, num_tokens: int) -> str | None:
    """Compare small tree passes with plain passes; return the fault that shows, or None.

    The comparison must be able to fail: the same tree read as one plain sequence, which is what a
    model computes that ignores the mask and the positions, has to miss by four times the tolerance.
    """
    tree, plain, allowed = (
        TreeEvaluator(model, device),
        SequenceEvaluator(model, device),
        tolerance(model),
    )
    for number, contexts in enumerate(_contexts(num_tokens)):
        reference = plain.logits(contexts)
        if number == 0:
            plan = make_plan(contexts, CacheLayout())
            flat = plain.logits([tuple(plan.tokens[: place + 1]) for place in plan.wanted])
            if not distance(flat, reference) >= 4 * allowed:
                return (
                    f"a small tree cannot show within {allowed:.2g}, the rounding of "
                    f"{model.dtype}, whether it sees one"
                )
        try:
            answer = tree.logits(contexts)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # models refuse a mask or a cache of this kind in their own ways
            reason = str(error).split("\n", maxsplit=1)[0]
            return f"it does not accept a tree mask with a cache ({type(error).__name__}: {reason})"
        if not distance(answer, reference) <= allowed:
            return (
                f"its tree passes miss plain passes by {distance(answer, reference):.2g}, more "
                "than the rounding of "
                f"{model.dtype} ({allowed:.2g}): it does not honour the mask or the positions"
            )
    return None


def distance(logits: torch.Tensor, reference: torch.Tensor) -> float:
    """Return ‖z − z′‖₂ / ‖z′‖₂ of logits, both centred over the tokens that are not masked.

    Logits that mask other tokens (−∞) than the reference are infinitely far.
    """
    seen = reference != -torch.inf
    if not torch.equal(seen, logits != -torch.inf):
        return math.inf
    z, reference = (torch.where(seen, x.double(), 0.0) for x in (logits, reference))
    z, reference = (
        torch.where(seen, x - x.sum(dim=-1, keepdim=True) / seen.sum(dim=-1, keepdim=True), 0.0)
        for x in (z, reference)
    )
    return float((z - reference).norm() / reference.norm())


def tolerance(model: Any) -> float:
    """Return the largest `distance` between logits of two right evaluations of one context.

    Each of the 2L sublayers stores a few activations, of relative rounding ε/2 each and of random
    sign, so the difference grows like ε·√(2L) with a constant below 1 where products are summed in
    a wider type (half precision, TF32). In float32 and float64 the sums round as well, with an
    error of about √h·ε over h terms, √h < 128; there is room for it, because a wrong mask misses by
    0.1 and more. Measured on models of 2 to 4 layers: 0.3 ε·√(2L) in bfloat16, 1.5 ε·√(2L) in
    float32.
    """
    spread = math.sqrt(2 * model.config.get_text_config(decoder=True).num_hidden_layers)
    if model.dtype in (torch.float16, torch.bfloat16):
        return torch.finfo(model.dtype).eps * spread
    reduced = {"high": 2.0**-10, "medium": 2.0**-7}.get(torch.get_float32_matmul_precision(), 0.0)
    return (
        max(128 * torch.finfo(model.dtype).eps, reduced if model.dtype == torch.float32 else 0.0)
        * spread
    )


def _contexts(num_tokens: int) -> list[list[Context]]:
    """The calls of the comparison, with letters replaced by tokens from all over the vocabulary."""
    token = {
        letter: (place * num_tokens // 8 + num_tokens // 16) % num_tokens
        for place, letter in enumerate("abcdefgh")
    }
    return [
        list(dict.fromkeys(tuple(token[letter] for letter in path) for path in call))
        for call in _CALLS
    ]
