"""Toy models with the face of mlx-lm, for audits of unchanged code."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from otm.pmf import check_count, check_real
from otm.sequence.models import LanguageModel, check_model


def as_mlx(model: LanguageModel, *, temperature: float = 1.0, prompt: int = 1) -> MlxModel:
    """Wrap a model of an audit as a model of mlx-lm, with logits and a list of caches.

    What MLX draws is not followed, so that such audits are sampled; the cache is part of what is
    audited, as that of `as_hf` is.

    Args:
        model: whose `next_batch(texts)` are the laws `(n, V)` after these texts.
        temperature: by which the code will divide the logits: they are log law · temperature, and
            −∞ where the law has no mass.
        prompt: the first so many tokens of a text are its prompt, which the law does not look at.

    Returns:
        A model that is called as `model(inputs, cache=…)`, tokens `(B, T)`, and returns logits
        `(B, T, V)`; `mlx_lm.models.cache.make_prompt_cache` makes its cache.

    Raises:
        InvalidParameter: unless temperature is positive, and the model has `next`.

    Cost: a call of `model.next_batch` for all new tokens.
    Reference: mlx-lm 0.32.2, `generate.speculative_generate_step` and `models.cache.KVCache`.

    >>> import otm
    >>> model = as_mlx(otm.sequence.ZerothOrder([0.25, 0.75]))
    >>> [cache.offset for cache in model.make_cache()]
    [0]
    """
    heat = check_real(temperature, name="temperature", low=0.0, open_low=True)
    check_model(model, name="audited")
    return MlxModel(model, heat, check_count(prompt, name="prompt", minimum=0))


@final
class MlxCache:
    """A cache in the shape of mlx-lm's `KVCache`: the tokens read so far.

    Attributes:
        tokens: `(B, S)`; None before the first call.
    """

    def __init__(self) -> None:
        self.tokens: NDArray[np.int64] | None = None

    @property
    def offset(self) -> int:
        """S, how many positions are kept."""
        return 0 if self.tokens is None else int(self.tokens.shape[1])

    @property
    def state(self) -> tuple[()]:
        """Nothing that MLX has to compute."""
        return ()

    def is_trimmable(self) -> bool:
        """Return True: positions can be dropped."""
        return True

    def trim(self, n: int) -> int:
        """Drop the last n positions, and return how many were there to drop."""
        dropped = min(n, self.offset)
        if self.tokens is not None:
            self.tokens = self.tokens[:, : self.offset - dropped]
        return dropped


@final
class MlxModel:
    """A model made by `as_mlx`.

    Attributes:
        layers: one, of which mlx-lm asks the number.
    """

    def __init__(self, model: LanguageModel, temperature: float, prompt: int) -> None:
        self._model, self._temperature, self._prompt = model, temperature, prompt
        self.layers = (self,)

    def make_cache(self) -> list[MlxCache]:
        """Return a new cache, in a list of one."""
        return [MlxCache()]

    def __call__(self, inputs: Any, cache: Sequence[MlxCache] | None = None, **_: Any) -> Any:
        """Return logits after every given token, and lengthen the cache."""
        mx = importlib.import_module("mlx.core")
        new = np.asarray(inputs, dtype=np.int64)
        kept = cache[0].tokens if cache else None
        tokens = new if kept is None else np.concatenate([kept, new], axis=1)
        if cache:
            cache[0].tokens = tokens
        ends = range(tokens.shape[1] - new.shape[1] + 1, tokens.shape[1] + 1)
        contexts = [row[self._prompt : end].tolist() for row in tokens for end in ends]
        with np.errstate(divide="ignore"):
            logits = np.log(self._model.next_batch(contexts)) * self._temperature
        return mx.array(logits.reshape(*new.shape, -1).astype(np.float32))
