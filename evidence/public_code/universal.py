"""What transformers' `generate` needs for two tokenizers: models with one law each, and tokenizers
of letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast


class Unigram(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A model with the same next-token law everywhere, in its head's weights, one draft a step."""

    config_class = PretrainedConfig

    def __init__(self, law: Sequence[float]) -> None:
        super().__init__(PretrainedConfig(vocab_size=len(law), num_hidden_layers=1))
        self.embedding = torch.nn.Embedding(len(law), 1, dtype=torch.float64)
        self.head = torch.nn.Linear(1, len(law), bias=False, dtype=torch.float64)
        self.embedding.weight.data.fill_(1.0)
        self.head.weight.data[:, 0] = torch.tensor(law, dtype=torch.float64).log()
        self.generation_config = GenerationConfig(
            num_assistant_tokens=1,
            num_assistant_tokens_schedule="constant",
            assistant_confidence_threshold=0.0,
        )

    def get_input_embeddings(self) -> Any:
        """Return the embedding, which the translator of vocabularies wraps."""
        return self.embedding

    def set_input_embeddings(self, value: Any) -> None:
        """Take the wrapped embedding."""
        self.embedding = value

    def get_output_embeddings(self) -> Any:
        """Return the head, which the translator of vocabularies prunes."""
        return self.head

    def set_output_embeddings(self, value: Any) -> None:
        """Take the pruned head."""
        self.head = value

    def forward(
        self, input_ids: Any = None, past_key_values: Any = None, **kwargs: Any
    ) -> CausalLMOutputWithPast:
        """Return the law after each token, and a cache of as many rows."""
        cache = DynamicCache() if past_key_values is None else past_key_values
        keys = input_ids[:, None, :, None].double()
        cache.update(keys, keys, 0)
        return CausalLMOutputWithPast(
            logits=self.head(self.embedding(input_ids)), past_key_values=cache
        )


class Letters:
    """A tokenizer whose tokens are letters; `order` is that of its dictionary."""

    eos_token_id = bos_token_id = pad_token_id = None

    def __init__(self, letters: str, order: Sequence[int]) -> None:
        self.letters, self.order = letters, order

    def get_vocab(self) -> dict[str, int]:
        """Return the token ids by letter, in an order that means nothing."""
        return {self.letters[i]: i for i in self.order}

    def __call__(self, text: Any, return_tensors: str | None = None, **kwargs: Any) -> Any:
        """Return the ids of the letters of a text."""
        ids = [self.letters.index(one) for one in "".join(text) if one in self.letters]
        return {"input_ids": torch.tensor([ids]) if return_tensors else ids}

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the letters."""
        return [self.letters[i] for i in ids]

    def decode(self, ids: Any, **kwargs: Any) -> str:
        """Return the letters as a text."""
        return "".join(self.letters[i] for i in torch.as_tensor(ids).reshape(-1).tolist())


def generate(draft: Any, target: Any, *, descending: bool) -> list[int]:
    """Return two tokens of `target.generate` with an assistant that has a token more.

    Args:
        draft, target: laws `(V,)`; the assistant has another token first, with probability 1/4.
        descending: whether the assistant's dictionary begins with its last token.
    """
    letters = "abcdefgh"[: len(target)]
    order = range(len(target), -1, -1) if descending else range(len(target) + 1)
    own = Letters(letters, range(len(target)))
    model, assistant = Unigram(target), Unigram([0.25, *(0.75 * draft)])
    text = model.generate(
        torch.tensor([[0]]),
        assistant_model=assistant,
        tokenizer=own,
        assistant_tokenizer=Letters(f"~{letters}", order),
        do_sample=True,
        min_new_tokens=2,
        max_new_tokens=2,
        top_k=0,
        pad_token_id=0,
    )
    return text[0, 1:].tolist()  # type: ignore[no-any-return]
