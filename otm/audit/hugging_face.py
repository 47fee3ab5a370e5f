"""Toy models with the face of Hugging Face transformers, for audits of unchanged code."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from otm.errors import InvalidParameter, MissingPackage
from otm.pmf import check_count, check_real
from otm.sequence.models import LanguageModel, check_model


def as_hf(model: LanguageModel, *, temperature: float = 1.0, prompt: int = 1) -> HfModel:
    """Wrap a model of an audit as a causal model of transformers, with logits and a cache.

    Code that takes `model(ids).logits` and `past_key_values` is then audited in three lines: a step
    or a whole loop is handed models that know a law for every text, and the wrapper calls the code
    with `as_hf` of both. The cache is part of what is audited: it keeps tokens and places in the
    place of keys and values, so that a row that was to be cropped, a place that is off by one and
    padding that is attended to give another law.

    Args:
        model: whose `next_batch(texts)` are the laws `(n, V)` after these texts.
        temperature: by which the code will divide the logits: they are log law · temperature, and
            −∞ where the law has no mass.
        prompt: the first so many tokens of a text are its prompt, which the law does not look at.

    Returns:
        A model that is called as `model(input_ids, attention_mask=…, position_ids=…,
        past_key_values=…, use_cache=…)`, tokens `(B, T)` torch integers, and returns `.logits`
        `(B, T, V)` in float64 and `.past_key_values`, an `HfCache`, or pairs of keys and values
        where pairs are given. Other keywords are ignored.

    Raises:
        InvalidParameter: unless temperature is positive, and the model has `next`.
        MissingPackage: without torch.

    Cost: a call of `model.next_batch` for all new tokens.
    Reference: transformers 5.23.0, `LlamaForCausalLM.forward` and `DynamicCache`.

    >>> import otm
    >>> model = as_hf(otm.sequence.ZerothOrder([0.25, 0.75]))
    >>> import torch
    >>> model(torch.tensor([[0, 1]])).logits[0, -1].exp().tolist()
    [0.25, 0.75]
    """
    heat = check_real(temperature, name="temperature", low=0.0, open_low=True)
    check_model(model, name="audited")
    return HfModel(model, heat, check_count(prompt, name="prompt", minimum=0))


@final
class HfCache:
    """A cache in the shape of transformers' `DynamicCache`, which a call of the model lengthens.

    Attributes:
        rows: `(B, S, 2)` integers: token and place.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return S, how many positions are kept."""
        return int(self.rows.shape[1])

    def crop(self, max_length: int) -> None:
        """Drop the last −max_length positions, none for 0; keep the first, for a positive number.

        The latter is how transformers before 5.23 has it, which refuses positive numbers.
        """
        self.rows = self.rows[:, : max_length or None]

    def batch_select_indices(self, indices: Any) -> None:
        """Keep some rows of the batch."""
        self.rows = self.rows[indices]

    def reorder_cache(self, beam_idx: Any) -> None:
        """Put the rows of the batch in another order."""
        self.rows = self.rows[beam_idx]

    def __len__(self) -> int:
        """Return 1, the number of layers."""
        return 1

    def __getitem__(self, layer: int) -> tuple[Any, Any]:
        return list(self)[layer]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values `(B, 1, S, 2)` of the one layer."""
        keys = self.rows[:, None]
        yield keys, keys.clone()


@final
class HfModel:
    """A model made by `as_hf`.

    Attributes:
        config: `vocab_size`, and what else code asks for.
        device, dtype: of the logits.
    """

    def __init__(self, model: LanguageModel, temperature: float, prompt: int) -> None:
        try:
            import torch  # noqa: PLC0415  # asked for by what is audited
        except ModuleNotFoundError as error:
            raise MissingPackage(
                "as_hf needs torch, which is not installed. Run `pip install torch`."
            ) from error
        self._torch, self._model = torch, model
        self._temperature, self._prompt = temperature, prompt
        self.device, self.dtype = torch.device("cpu"), torch.float64
        self.config = types.SimpleNamespace(
            vocab_size=model.num_tokens,
            eos_token_id=None,
            pad_token_id=None,
            is_encoder_decoder=False,
        )
        self.generation_config = self.config

    def eval(self) -> HfModel:
        """Return the model, which has no other mode."""
        return self

    def to(self, *_: Any, **__: Any) -> HfModel:
        """Return the model, on the same device."""
        return self

    def __call__(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        use_cache: bool = True,
        **_: Any,
    ) -> Any:
        """Return logits after every given token, and the cache."""
        torch, in_pairs = self._torch, isinstance(past_key_values, tuple | list)
        tokens = torch.as_tensor(input_ids).long()
        number, length = tokens.shape
        kept = tokens.new_zeros((number, 0, 2))
        if past_key_values is not None:
            kept = past_key_values[0][0][:, 0] if in_pairs else past_key_values.rows
            kept = kept.long().expand(number, -1, -1)
        old = kept.shape[1]
        if position_ids is None:
            position_ids = torch.arange(old, old + length)
        places = torch.as_tensor(position_ids).long().reshape(-1, length).expand(number, length)
        rows = torch.cat([kept, torch.stack([tokens, places], dim=-1)], dim=1)
        every = torch.ones_like(rows[..., 0])
        mask = every if attention_mask is None else torch.as_tensor(attention_mask).long()
        if mask.shape != rows.shape[:2]:
            raise InvalidParameter(
                f"attention_mask must be {tuple(rows.shape[:2])}, cache and tokens; it is "
                f"{tuple(mask.shape)}. Extend it."
            )
        ends = range(old + 1, old + length + 1)
        contexts = [
            self._context(row[:end], seen[:end])
            for row, seen in zip(rows.tolist(), mask.tolist(), strict=True)
            for end in ends
        ]
        with np.errstate(divide="ignore"):
            laws = np.log(self._model.next_batch(contexts)).reshape(number, length, -1)
        logits = torch.from_numpy(laws * self._temperature)
        cache: Any = None
        if use_cache or past_key_values is not None:
            cache = past_key_values if isinstance(past_key_values, HfCache) else HfCache(rows)
            cache.rows = rows
        if in_pairs:
            cache = tuple(cache)
        return types.SimpleNamespace(
            logits=logits, past_key_values=cache, hidden_states=None, attentions=None
        )

    def _context(self, row: Sequence[Sequence[int]], mask: Sequence[int]) -> list[int]:
        """Return the tokens of a row that are visible and in place, after the prompt."""
        seen = [token for token, is_seen in zip(row, mask, strict=True) if is_seen]
        known = [token for i, (token, place) in enumerate(seen) if place == seen[0][1] + i]
        return known[self._prompt :]
