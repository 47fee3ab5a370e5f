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

_SPACES = str.maketrans("Ġ▁", "  ")
"""How tokenizers write a space."""


@final
class SharedTokens:
    """A draft model as a language model on the target's tokens.

    Args:
        draft: the model on its own tokens.
        own: its tokenizer.
        tokenizer: the target's.
        num_tokens: V, of the target.

    Attributes:
        processing: of the logits.
        max_length: the draft's positions, in tokens of its own.
        pairs: `(2, n)`, the numbers of the n tokens that both know, the draft's and the target's.
    """

    def __init__(self, draft: Any, own: Any, tokenizer: Any, num_tokens: int) -> None:
        self.draft, self.own, self.tokenizer, self.num_tokens = draft, own, tokenizer, num_tokens
        self.processing: Processing = draft.processing
        self.max_length: int | None = draft.max_length
        self.pairs = shared_tokens(own, tokenizer, limits=(draft.num_tokens, num_tokens))

    def processed(self, processing: Processing) -> SharedTokens:
        """Return the same model with another processing of its logits."""
        return SharedTokens(
            self.draft.processed(processing), self.own, self.tokenizer, self.num_tokens
        )

    def forget(self) -> None:
        """Free the cache."""
        self.draft.forget()

    def logits(self, contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the logits `(n, V)` after contexts of the target, −∞ off the shared tokens."""
        texts = [
            self.tokenizer.decode(list(one), clean_up_tokenization_spaces=False) for one in contexts
        ]
        start = self.tokenizer.bos_token or ""  # the draft's tokenizer writes its own
        asked = [tuple(self.own(text.removeprefix(start))["input_ids"]) for text in texts]
        place = {context: number for number, context in enumerate(dict.fromkeys(asked))}
        rows = self.draft.logits(list(place))[[place[context] for context in asked]]
        found: torch.Tensor = rows.new_full((len(asked), self.num_tokens), -torch.inf)
        found[:, self.pairs[1]] = rows[:, self.pairs[0]]
        return found

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the next-token distribution `(V,)` after a context."""
        mass: NDArray[np.float64] = self.next_batch([context])[0]
        return mass

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the next-token distributions `(n, V)` after n contexts."""
        if not contexts:
            return np.empty((0, self.num_tokens))
        logits = self.logits(contexts).double().cpu().numpy()
        return np.asarray(self.processing(logits))


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
