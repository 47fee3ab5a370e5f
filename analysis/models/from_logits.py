"""Language models whose distributions are processed logits, also under penalties and a grammar."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray

from otm import Processing
from otm._machine.arrays import to_numpy
from otm.errors import InvalidDistribution

from .trie import Context

Allowed = Callable[[tuple[int, ...]], Any]
"""The tokens after the prompt → the numbers of the tokens that may follow."""


UNLIMITED = 1 << 30
"""Positions of models without a limit."""


def shared_positions(*models: Any) -> int:
    """Return the number of positions that all models have, `UNLIMITED` without any limit."""
    limits = (model.max_length for model in models if model.max_length is not None)
    return min(limits, default=UNLIMITED)


class FromLogits(abc.ABC):
    """A language model whose distributions are processed logits.

    Attributes:
        num_tokens: V.
        max_length: the positions of the model behind it; None if there is no limit.
        processing: of the logits.
    """

    num_tokens: int
    max_length: int | None
    processing: Processing

    @abc.abstractmethod
    def logits(self, contexts: Sequence[Context]) -> torch.Tensor:
        """Return the logits `(n, V)` after n distinct contexts."""

    @abc.abstractmethod
    def processed(self, processing: Processing) -> Self:
        """Return the model with another processing of the logits."""

    @abc.abstractmethod
    def forget(self) -> None:
        """Free the cache."""

    @final
    def next(self, context: Sequence[int]) -> NDArray[np.float64]:
        """Return the next-token distribution `(V,)` after a context; see `next_batch`."""
        mass: NDArray[np.float64] = self.next_batch([context])[0]
        return mass

    @final
    @torch.inference_mode()
    def next_batch(self, contexts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the next-token distributions `(n, V)` after n contexts, in the given order.

        Args:
            contexts: token sequences, each non-empty; they may repeat and be prefixes of one
                another.

        Returns:
            float64 probabilities; `(0, V)` without a pass if there are no contexts.

        Raises:
            AnalysisError: on an empty context, a token outside 0..V−1, or a context longer than the
                model's positions.
            otm.errors.InvalidDistribution: if the model returns NaN or +∞, or masks every token.

        Cost: one pass over the tokens that the last call did not have, and O(nV) for the softmax.
        """
        asked = [_as_tuple(context) for context in contexts]
        if not asked:
            return np.empty((0, self.num_tokens))
        place = {context: number for number, context in enumerate(dict.fromkeys(asked))}
        logits = self.logits(list(place))
        try:
            mass = to_numpy(self.processing(logits.double()))
        except InvalidDistribution as error:
            self.forget()  # keys and values may be NaN as well
            raise InvalidDistribution(
                f"{self!r} after {_describe(next(iter(place)), len(place))}: {error}"
            ) from error
        return mass if len(place) == len(asked) else mass[[place[context] for context in asked]]


@final
class Limited(FromLogits):
    """A model under penalties and a grammar, as engines change logits before the temperature.

    The logit of a token that stands in prompt or text is divided by the repetition penalty if it is
    positive, else multiplied with it [Keskar et al. 2019]; for each time that it was written its
    logit falls by the frequency penalty, and once by the presence penalty. What a grammar does not
    allow has logit −∞.

    Args:
        model: without limits.
        begin: where the prompt ends.
        repetition, presence, frequency: penalties; 1, 0, 0 change nothing.
        allowed: the grammar; None for none.
    """

    def __init__(
        self,
        model: Any,
        begin: int,
        *,
        repetition: float = 1.0,
        presence: float = 0.0,
        frequency: float = 0.0,
        allowed: Allowed | None = None,
    ) -> None:
        self.model, self.begin = model, begin
        self.limits: dict[str, Any] = {
            "repetition": repetition,
            "presence": presence,
            "frequency": frequency,
            "allowed": allowed,
        }
        self.num_tokens, self.max_length = model.num_tokens, model.max_length
        self.processing = model.processing

    def processed(self, processing: Processing) -> Limited:
        """Return the model with another processing of the logits."""
        return Limited(self.model.processed(processing), self.begin, **self.limits)

    def forget(self) -> None:
        """Free the cache."""
        self.model.forget()

    def logits(self, contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the changed logits `(n, V)` after n distinct contexts."""
        rows: torch.Tensor = self.model.logits(contexts).clone()
        repetition, presence, frequency, allowed = self.limits.values()
        for row, context in zip(rows, contexts, strict=True):
            seen = torch.tensor(sorted(set(context)), device=row.device)
            row[seen] = torch.where(row[seen] > 0, row[seen] / repetition, row[seen] * repetition)
            written = torch.tensor(context[self.begin :], dtype=torch.int64, device=row.device)
            counts = torch.bincount(written, minlength=self.num_tokens)
            row -= presence * (counts > 0) + frequency * counts
            if allowed is not None:
                kept = torch.tensor(list(allowed(tuple(context[self.begin :]))), device=row.device)
                forbidden = torch.ones_like(row, dtype=torch.bool)
                forbidden[kept.long()] = False
                row[forbidden] = -torch.inf
        return rows


def _as_tuple(context: Any) -> Context:
    return tuple(context.tolist() if isinstance(context, np.ndarray | torch.Tensor) else context)


def _describe(context: Context, count: int) -> str:
    shown = ", ".join(str(token) for token in context[-4:])
    head = "…, " if len(context) > 4 else ""
    return f"({head}{shown})" + (f" and {count - 1} more contexts" if count > 1 else "")
