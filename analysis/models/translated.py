"""A draft of another tokenizer: the tokens that both models know, by token-level intersection.

The draft is asked after the *text* of the context, in tokens of its own, and its masses on the
tokens that both know, over their sum, are a law on the target's. Verification is lossless whatever
the law is. A token that the target alone knows is never drafted: of acceptance at most 1 − its
mass is left.

Reference: TLI of Timor et al. 2025 (2502.05202), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from otm import Processing

from .from_logits import FromLogits

_SPACES = str.maketrans("Ġ▁", "  ")
"""Signs by which tokenizers write a space."""

_TAIL = 8
"""Tokens before a continuation, on which the tokens of its beginning depend."""


@final
class SharedTokens(FromLogits):
    """A draft model as a language model on the target's tokens.

    Args:
        draft: the model on its own tokens.
        own: its tokenizer.
        tokenizer: the target's.
        num_tokens: V, of the target.

    Attributes:
        processing: of the logits.
        max_length: the draft's positions, in tokens of its own.
        fallback: why it is not evaluated in tree passes, None if it is.
        pairs: `(2, n)`, the numbers of the n tokens that both know, the draft's and the target's.
    """

    def __init__(self, draft: Any, own: Any, tokenizer: Any, num_tokens: int) -> None:
        self.draft, self.own, self.tokenizer, self.num_tokens = draft, own, tokenizer, num_tokens
        self.processing, self.max_length = draft.processing, draft.max_length
        self.fallback: str | None = draft.fallback
        self.pairs = shared_tokens(own, tokenizer, limits=(draft.num_tokens, num_tokens))

    def processed(self, processing: Processing) -> SharedTokens:
        """Return the model with another processing of the logits."""
        return SharedTokens(
            self.draft.processed(processing), self.own, self.tokenizer, self.num_tokens
        )

    def forget(self) -> None:
        """Free the cache."""
        self.draft.forget()

    def logits(self, contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the logits `(n, V)` after contexts of the target, −∞ off the shared tokens."""
        asked = [self._own(context) for context in contexts]
        place = {context: number for number, context in enumerate(dict.fromkeys(asked))}
        rows = self.draft.logits(list(place))[[place[context] for context in asked]]
        found: torch.Tensor = rows.new_full((len(asked), self.num_tokens), -torch.inf)
        found[:, self.pairs[1]] = rows[:, self.pairs[0]]
        return found

    def continued(self, contexts: Sequence[Sequence[int]], length: int) -> list[list[int]]:
        """Return the target's tokens of the draft's likeliest continuation of each context.

        Nothing where the continuation changes the tokens of the context's end.

        Args:
            contexts: of the target.
            length: own tokens; fewer where the draft's positions or its text end.
        """
        begun = [self._own(context) for context in contexts]
        own = begun
        for _ in range(length):
            if max(map(len, own)) < (self.max_length or 1 << 30):
                best = self.draft.next_batch(own).argmax(axis=1).tolist()
                own = [(*one, token) for one, token in zip(own, best, strict=True)]
        found = []
        for context, before, after in zip(contexts, begun, own, strict=True):
            kept = [*after, self.own.eos_token_id]
            new = self.own.decode(kept[: kept.index(self.own.eos_token_id, len(before))])
            tail = self.tokenizer.decode(list(context[-_TAIL:]))
            base, whole = (
                self.tokenizer(tail + more)["input_ids"]
                for more in ("", new[len(self.own.decode(list(before))) :])
            )
            found.append(whole[len(base) :] if whole[: len(base)] == base else [])
        return found

    def _own(self, context: Sequence[int]) -> tuple[int, ...]:
        """Return a context's text in the draft's own tokens, which begin a text by themselves."""
        text = self.tokenizer.decode(list(context), clean_up_tokenization_spaces=False)
        return tuple(self.own(text.removeprefix(self.tokenizer.bos_token or ""))["input_ids"])


def shared_tokens(own: Any, tokenizer: Any, *, limits: tuple[int, int]) -> NDArray[np.int64]:
    """Return the numbers of the tokens that two tokenizers spell alike, and of the texts' ends.

    Args:
        own, tokenizer: the draft's and the target's.
        limits: how many tokens each model scores.
    """
    spelled = [
        {text.translate(_SPACES): number for text, number in one.get_vocab().items() if number < n}
        for one, n in zip((own, tokenizer), limits, strict=True)
    ]
    found = {spelled[0][text]: spelled[1][text] for text in spelled[0].keys() & spelled[1].keys()}
    ends = own.eos_token_id, tokenizer.eos_token_id
    if None not in ends and all(end < n for end, n in zip(ends, limits, strict=True)):
        found = {left: right for left, right in found.items() if right != ends[1]}
        found[ends[0]] = ends[1]
    return np.array(sorted(found.items()), dtype=np.int64).reshape(-1, 2).T
