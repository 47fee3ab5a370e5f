"""Positions at which draft and target are compared: on text, samples, or a decoder's path.

A position is a context, named by its number of tokens; compared are both models' laws of the token
after it. Acceptance depends on the contexts it is averaged over, so a measurement says which ones
it took:

* `text`: every context of the given text;
* `target`: contexts along a continuation of the prompt sampled from the target, at the setting that
  is measured;
* `draft`: the same, sampled from the draft, where a drafter stands in the middle of its own block;
* `on-policy`: the contexts at which a verifier compares the two models while single-draft
  speculative decoding (Leviathan et al. 2023, Algorithm 1) with blocks of `block` drafts extends
  the prompt, at the setting that is measured. A block that is accepted whole is followed by one
  token of the target that was never drafted: nothing is compared there, so contexts after easy
  stretches are rarer than along target samples.

Sampled paths are functions of (seed, prompt, setting), whatever else is measured beside them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import otm
from otm._machine.arrays import inverse_cdf

from ..errors import AnalysisError
from ..models.pair import Pair
from ..models.processing import Setting
from ..models.tree_check import longest_context
from .settings import Settings


@dataclasses.dataclass(frozen=True)
class Window:
    """Tokens to run through both models, context lengths to compare at, and settings."""

    prompt: int
    tokens: tuple[int, ...]
    contexts: tuple[int, ...]
    settings: tuple[Setting, ...]


def windows(pair: Pair, prompt: int, text: str, asked: Settings) -> Iterator[Window]:
    """Yield one prompt's windows: one for the given text, or one per setting's sampled path."""
    limit = min(asked.max_tokens, _context_limit(pair))
    tokens = tuple(pair.encode_prompt(text)[:limit])
    if asked.positions == "text":
        yield Window(prompt, tokens, tuple(range(1, len(tokens) + 1)), asked.pairs)
        return
    room = min(asked.new_tokens, _context_limit(pair) - len(tokens))
    if room < 1:
        raise AnalysisError(
            f"Sampled paths need room after the prompt; prompt {prompt} fills all "
            f"{_context_limit(pair)} tokens of the context. "
            "Lower --prompt-tokens."
        )
    for number, setting in enumerate(asked.pairs):
        uniforms = np.random.default_rng([asked.seed, prompt, number]).random((room, 3))
        if asked.positions == "on-policy":
            sampled, contexts = decode(pair, tokens, setting, uniforms, block=asked.block)
        else:
            side = ("draft", "target").index(asked.positions)
            sampled, contexts = continuation(pair, tokens, setting, uniforms[:, 0], side=side), None
        # The last sampled token is the answer at the last context, not a context itself.
        whole = tokens + sampled[:-1]
        yield Window(
            prompt, whole, contexts or tuple(range(len(tokens), len(whole) + 1)), (setting,)
        )


def continuation(
    pair: Pair,
    tokens: tuple[int, ...],
    setting: Setting,
    uniforms: NDArray[np.float64],
    *,
    side: int,
) -> tuple[int, ...]:
    """Sample one token per uniform from the draft (side 0) or the target (side 1)."""
    reader = _Reader((pair.draft, pair.target)[side], pair)
    processing = (setting.draft, setting.target)[side]
    law = reader.read(tokens, processing)
    sampled = []
    for uniform in uniforms:
        sampled.append(int(inverse_cdf(law, uniform)))
        if len(sampled) < len(uniforms):
            law = reader.read((sampled[-1],), processing)
    return tuple(sampled)


def decode(
    pair: Pair,
    tokens: tuple[int, ...],
    setting: Setting,
    uniforms: NDArray[np.float64],
    *,
    block: int,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Run single-draft speculative decoding, one row of three uniforms per output token.

    Tokens are drafted and verified one at a time, which visits the same contexts with the same law
    as a block at once.

    Returns:
        The output tokens, and the lengths of the contexts at which the models were compared.
    """
    readers = [_Reader(model, pair) for model in (pair.draft, pair.target)]
    output: list[int] = []
    contexts: list[int] = []
    accepted = 0
    fresh = tokens
    for drafting, accepting, replacing in uniforms:
        p, q = readers[0].read(fresh, setting.draft), readers[1].read(fresh, setting.target)
        if accepted == block:
            token, accepted = int(inverse_cdf(q, drafting)), 0
        else:
            contexts.append(len(tokens) + len(output))
            token = int(inverse_cdf(p, drafting))
            if accepting * p[token] < q[token]:
                accepted += 1
            else:
                token, accepted = int(inverse_cdf(np.maximum(q - p, 0.0), replacing)), 0
        output.append(token)
        fresh = (token,)
    return tuple(output), tuple(contexts)


class _Reader:
    """A model that reads a growing context, with a key-value cache."""

    def __init__(self, model: Any, pair: Pair) -> None:
        self._model, self._pair, self._cache = model, pair, None

    @torch.inference_mode()
    def read(self, tokens: Sequence[int], processing: otm.Processing) -> NDArray[np.float64]:
        """Append tokens and return the law of the next one `(V,)`."""
        row = torch.tensor([list(tokens)], device=self._pair.device)
        answer = self._model(row, past_key_values=self._cache, use_cache=True)
        self._cache = answer.past_key_values
        logits = answer.logits[0, -1, : self._pair.num_tokens].double().cpu().numpy()
        check_logits(
            logits[None], "a model", [f"context of a sampled path, {len(tokens)} new tokens"]
        )
        return processing(logits)  # type: ignore[no-any-return]


def batches(stream: Iterator[Window], *, num_tokens: int, elements: int) -> Iterator[list[Window]]:
    """Group windows in order into batches of at most `elements` padded logits, or one window."""
    group: list[Window] = []
    for window in stream:
        longest = max(len(w.tokens) for w in [*group, window])
        if group and (len(group) + 1) * longest * num_tokens > elements:
            yield group
            group = []
        group.append(window)
    if group:
        yield group


def compared_logits(
    pair: Pair, group: Sequence[Window]
) -> Iterator[tuple[Window, torch.Tensor, torch.Tensor]]:
    """Run a batch through both models and yield each window with both logits `(contexts, V)`.

    They are float32.

    Shorter windows are padded on the right, where a causal model does not see it.
    """
    longest = max(len(window.tokens) for window in group)
    rows = torch.tensor(
        [list(window.tokens) + [0] * (longest - len(window.tokens)) for window in group]
    )
    draft, target = pair.logits(rows)
    for i, window in enumerate(group):
        last = torch.tensor(window.contexts, device=draft.device) - 1
        sides = draft[i, last], target[i, last]
        for name, logits in zip(("draft", "target"), sides, strict=True):
            check_logits(
                logits,
                f"the {name} model",
                [f"prompt {window.prompt}, position {n}" for n in window.contexts],
            )
        yield window, *sides


def check_logits(logits: Any, model: str, places: Sequence[str]) -> None:
    """Raise `AnalysisError` on NaN or +∞, naming the first place."""
    bad = (logits != logits) | (logits == float("inf"))
    if bool(bad.any()):
        row = int(bad.any(-1).nonzero()[0][0])
        raise AnalysisError(
            f"Logits must not be NaN or +inf; {model} gives some at {places[row]}. Half-precision "
            "weights may overflow: try "
            "--dtype bfloat16 or float32."
        )


def _context_limit(pair: Pair) -> int:
    limits = [longest_context(model) for model in (pair.draft, pair.target)]
    return min([limit for limit in limits if limit is not None], default=1 << 20)
