"""A toy language model that is called as real ones are: token ids, attention mask, key-value cache,
logits.

The law of the next token depends on every attended token and its place, and on nothing else:
whoever attends to padding, leaves a rejected row in the cache, or miscounts positions gets another
law; whoever does it right gets the same one, padded or not.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.errors import InvalidParameter
from otm.pmf import as_pmf
from otm.sequence.models import OneByOne


@dataclasses.dataclass(eq=False)
class ToyCache:
    """Keys and values of what was read: here, its tokens `(B, S)`.

    Attributes:
        tokens: by row, oldest first.
    """

    tokens: NDArray[np.int64]

    @property
    def length(self) -> int:
        """S, the number of positions in the cache."""
        return int(self.tokens.shape[1])

    def crop(self, length: int) -> None:
        """Keep the first positions only."""
        self.tokens = self.tokens[:, :length]


@dataclasses.dataclass(frozen=True, eq=False)
class ToyOutput:
    """What a call of the model returns.

    Attributes:
        logits: `(B, T, V)`, NumPy or torch as the tokens were.
        cache: of all tokens so far; None if `use_cache` was False.
    """

    logits: Any
    cache: ToyCache | None


@dataclasses.dataclass(frozen=True, eq=False)
class ToyLanguage(OneByOne):
    """A model whose next token after x₁ … x_n has the law in row (Σ i (x_i + 1)) mod R of a table.

    Args:
        table: probabilities `(R, V)`.

    Raises:
        InvalidDistribution: if a row is not a distribution.

    >>> model = ToyLanguage([[0.5, 0.5], [0.25, 0.75]])
    >>> np.exp(model([[9, 0]], attention_mask=[[0, 1]]).logits[0, -1]).tolist() == model.next(
    ...     [0]
    ... ).tolist()
    True
    """

    table: NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "table",
            np.atleast_2d(np.asarray(as_pmf(self.table, name="table"), dtype=np.float64)),
        )

    @property
    def num_tokens(self) -> int:
        """V."""
        return int(self.table.shape[1])

    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the distribution `(V,)` after these tokens."""
        law: NDArray[np.float64] = self.table[
            sum(i * (token + 1) for i, token in enumerate(context, start=1)) % len(self.table)
        ]
        return law.copy()

    def __call__(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        cache: ToyCache | None = None,
        use_cache: bool = True,
    ) -> ToyOutput:
        """Return raw logits after every given token.

        Args:
            input_ids: `(B, T)`, what follows the cache.
            attention_mask: `(B, S + T)`, 0 for what must not be seen (padding, on either side); all
                1 unless given.
            cache: of the S positions before; it is not changed.
            use_cache: whether to return one.

        Raises:
            InvalidParameter: if the shapes do not fit.
        """
        tokens = _whole(input_ids)
        seen = tokens if cache is None else np.concatenate([cache.tokens, tokens], axis=1)
        mask = np.ones_like(seen) if attention_mask is None else _whole(attention_mask)
        if mask.shape != seen.shape:
            raise InvalidParameter(
                f"attention_mask must be {seen.shape}, cache and tokens; it is {mask.shape}. "
                "Extend it."
            )
        first = seen.shape[1] - tokens.shape[1]
        laws = np.stack(
            [
                [self._after(row, keep, first + t) for t in range(tokens.shape[1])]
                for row, keep in zip(seen, mask, strict=True)
            ]
        )
        with np.errstate(divide="ignore"):
            logits: Any = np.log(laws)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(input_ids, torch.Tensor):
            logits = torch.from_numpy(logits)
        return ToyOutput(logits, ToyCache(seen) if use_cache else None)

    def _after(
        self, row: NDArray[np.int64], mask: NDArray[np.int64], last: int
    ) -> NDArray[np.float64]:
        return self.next(
            [
                int(token)
                for token, keep in zip(row[: last + 1], mask[: last + 1], strict=True)
                if keep
            ]
        )


def _whole(values: Any) -> NDArray[np.int64]:
    found = np.asarray(values)
    if found.ndim != 2 or found.dtype.kind not in "iub":
        raise InvalidParameter(
            f"Token ids and masks must be integers (B, T); got {found.dtype} of shape "
            f"{found.shape}."
        )
    return found.astype(np.int64)
