"""Toy models with the interface of loaded models."""

from collections.abc import Sequence

import numpy as np
import torch

from analysis.models.processing import AS_THEY_ARE, Setting
from analysis.rules.rules import Reader, Sizes
from analysis.steps.texts import SampledText
from otm import Processing
from otm.engines import AcceptanceRecord
from otm.engines.records import Tally
from otm.sequence import MarkovModel, markov_pair

AS_IT_IS = Processing()


class Toy:
    """A Markov chain with logits, processed."""

    max_length = fallback = None

    def __init__(self, model: MarkovModel, processing: Processing = AS_IT_IS) -> None:
        self.model, self.processing, self.num_tokens = model, processing, model.num_tokens

    def processed(self, processing: Processing) -> "Toy":
        return Toy(self.model, processing)

    def logits(self, contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        return torch.from_numpy(np.log(self.model.next_batch(contexts)))

    def next(self, context: Sequence[int]) -> np.ndarray:
        return self.next_batch([context])[0]

    def next_batch(self, contexts: Sequence[Sequence[int]]) -> np.ndarray:
        return np.asarray(self.processing(np.log(self.model.next_batch(contexts))))

    def forget(self) -> None:
        pass


def toy_reader(
    sizes: Sizes,
    *,
    setting: Setting = AS_THEY_ARE,
    num_tokens: int = 12,
    seed: int = 1,
    eos: int | None = None,
) -> Reader:
    """Return a reader of texts of two Markov chains."""
    pair = markov_pair(
        num_tokens, similarity=0.6, concentration=0.3, rng=np.random.default_rng(seed)
    )
    draft, target = (Toy(model, one) for model, one in zip(pair, setting, strict=True))
    return Reader(draft, target, setting=setting, sizes=sizes, eos=eos)  # type: ignore[arg-type]


def text_of(tokens: Sequence[int], draft: MarkovModel, target: MarkovModel) -> SampledText:
    """Return the text of some tokens after token 0, with both models' laws along it."""
    contexts = [(0, *tokens[:i]) for i in range(len(tokens))]
    p, q = (model.next_batch(contexts) for model in (draft, target))
    return SampledText((0,), np.array(tokens), p, q)


def sampled_text(
    draft: MarkovModel, target: MarkovModel, rng: np.random.Generator, length: int
) -> SampledText:
    """Return a text that the target writes after token 0."""
    tokens = [0]
    while len(tokens) <= length:
        tokens.append(int(rng.choice(target.num_tokens, p=target.next(tokens))))
    return text_of(tokens[1:], draft, target)


def record_of(*parts: Tally, unit: str = "server", length: int | None = None) -> AcceptanceRecord:
    """Return the record that an engine would have written of some tallies."""
    return AcceptanceRecord(form="drawn", unit=unit, parts=parts, convention="", length=length)
