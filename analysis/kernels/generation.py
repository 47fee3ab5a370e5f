"""`generate` of Hugging Face transformers with an assistant, verified by the kernels here.

Transformers takes a loop of one's own and hands it what it has prepared::

    generate = Speculative(draft)                       once for a pair of models
    model.generate(**inputs, do_sample=True, custom_generate=generate)

A step draws K sequences of L tokens from the assistant, evaluates the target at all of them in one
pass (`analysis.models.tree_pass`), and keeps what the decoder keeps of one. Both models have the
logits processors that `generate` makes of its configuration, temperature and filters among them,
or is given; each is called as for one text. Stopping criteria see every token. Where `generate`
does not sample, one sequence of the assistant's likeliest tokens is kept while it is the target's,
and the text is what it would be without. Randomness is torch's global generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from otm.errors import InvalidDistribution, InvalidParameter, Unsupported
from otm.pmf import check_count

from ..models.causal import CausalModel
from .block_kseq import block_kseq
from .chain import block
from .grid import ScoreGrid
from .scores import refined_scores
from .step import Tensor, Verified, probabilities

DECODERS = "refined scores", "block K-SEQ", "block verification"
_PREPARED = {"position_ids", "past_key_values", "use_cache", "logits_to_keep", "cache_position"}
"""What `generate` prepares for a pass, and passes here make themselves."""

_UNREAD = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    "guidance_scale": 1.0,
    "prompt_lookup_num_tokens": None,
    "assistant_early_exit": None,
    "assistant_ensemble_weight": None,
    "use_mtp": False,
    "penalty_alpha": 0.0,
    "cache_implementation": None,
}
"""Of a generation configuration, with the values by which nothing is asked for; None always is."""

Text = tuple[int, ...]
Processors = Callable[[Tensor, Tensor], Tensor]


@final
class Speculative:
    """A loop for `generate(custom_generate=...)` that drafts with an assistant, lossless.

    Args:
        draft: the assistant, a causal model over the target's tokens.
        decoder: "refined scores" or "block K-SEQ" of K i.i.d. sequences, or "block verification" of
            one.
        num_drafts: K; 1 for block verification, whatever is given.
        length: L.

    Raises:
        InvalidParameter: on another decoder, or a number that is no integer of at least 1.
        AnalysisError: from `analysis.models.causal.CausalModel`.

    Cost: L passes of the assistant and one of the target a step, over 1 + KL tokens, and the
        kernel. Each of the two models is tried on a small tree once.
    """

    def __init__(
        self, draft: Any, *, decoder: str = DECODERS[0], num_drafts: int = 8, length: int = 8
    ) -> None:
        if decoder not in DECODERS:
            raise InvalidParameter(
                f"decoder must be one of {', '.join(DECODERS)}; got {decoder!r}. Choose one."
            )
        self.decoder, self.length = decoder, check_count(length, name="length")
        several = check_count(num_drafts, name="num_drafts")
        self.num_drafts = 1 if decoder == DECODERS[-1] else several
        self.draft = _causal(draft)
        self.grid = ScoreGrid.of(self.num_drafts, draft.device)
        self._target: tuple[Any, CausalModel] | None = None

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Processors,
        stopping_criteria: Callable[[Tensor, Any], Tensor],
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Tensor:
        """Return the prompt and the text `(1, …)`, called by `generate` with what it prepares.

        Raises:
            Unsupported: on an argument that would go unread, or several texts at once.
            InvalidDistribution: if a model's answers are no numbers.
        """
        _check_request(input_ids, generation_config, model_kwargs)
        if self._target is None or self._target[0] is not model:
            self._target = model, _causal(model)
        target = self._target[1]
        target.forget()
        self.draft.forget()
        while True:
            # the step's own token needs no draft
            left = generation_config.max_length - input_ids.shape[1] - 1
            step = self._step(
                target,
                tuple(input_ids[0].tolist()),
                logits_processor,
                max(1, min(self.length, left)),
                sampled=bool(generation_config.do_sample),
            )
            for token in step.tokens[0, : step.count[0]]:
                input_ids = torch.cat([input_ids, token.view(1, 1)], dim=1)
                if stopping_criteria(input_ids, None).all():
                    return input_ids

    def _step(
        self, target: CausalModel, text: Text, processors: Processors, length: int, *, sampled: bool
    ) -> Verified:
        """Draft, evaluate and verify once; nodes go level by level."""
        number = self.num_drafts if sampled else 1
        nodes, level, drawn_by = [text], [text] * number, list[Tensor]()
        for place in range(length):
            by = _laws(self.draft, level, processors, target.num_tokens, sampled=sampled)
            # the sequences have the root in common
            drawn_by.append(by if place else by[:1])
            tokens = torch.multinomial(by, 1)[:, 0].tolist()
            level = [(*before, token) for before, token in zip(level, tokens, strict=True)]
            nodes += level
        laws = _laws(target, nodes, processors, target.num_tokens, sampled=sampled)
        draft = torch.cat(drawn_by)[None].to(laws.device)
        uniforms = torch.rand((1, len(nodes) + 1), dtype=torch.float64, device=laws.device)
        candidates = torch.tensor([[context[-1] for context in nodes]], device=laws.device)
        given = candidates, laws[None], draft, uniforms[:, :-1], uniforms[:, -1]
        return self._verify(given, number, length)

    def _verify(self, given: tuple[Tensor, ...], number: int, length: int) -> Verified:
        """Verify one sequence or several."""
        if number == 1:
            return block(*given)
        place = torch.arange(1, 1 + number * length, device=given[0].device)
        paths = place.view(1, length, number).mT
        candidates, target, draft, uniforms, final = given
        if self.decoder == DECODERS[1]:
            return block_kseq(candidates, paths, target, draft, uniforms, final)
        return refined_scores(candidates, paths, target, draft, uniforms, final, self.grid)


def _causal(model: Any) -> CausalModel:
    """Return a model as one that evaluates trees."""
    if model.config.is_encoder_decoder:
        raise Unsupported(
            f"Drafted trees need a decoder alone; {type(model).__name__} has an encoder. Use its "
            "own assisted generation."
        )
    config = model.config.get_text_config(decoder=True)
    return CausalModel(model, config.vocab_size, str(model.device))


def _laws(
    model: CausalModel, texts: Sequence[Text], processors: Processors, most: int, *, sampled: bool
) -> Tensor:
    """Return the processed next-token laws `(n, V)` after texts, some of them equal, over at most
    so many tokens.
    """
    place = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    logits = model.logits(list(place))[:, :most].float()
    processed = [
        # in a text's own call, as in a loop without drafts
        processors(torch.tensor([text], device=row.device), row[None].clone())
        for text, row in zip(place, logits, strict=True)
    ]
    heat = torch.full((1,), float(sampled), device=logits.device)
    laws = probabilities(torch.cat(processed)[None], heat)[0]
    if not laws.isfinite().all():
        raise InvalidDistribution(
            f"Both models must give numbers; {type(model.evaluator.model).__name__} gave NaN, or "
            f"masked every token, after {len(texts[0])} tokens. Check its weights' type and the "
            "logits processors."
        )
    return laws[[place[text] for text in texts]]


def _check_request(input_ids: Tensor, config: Any, model_kwargs: dict[str, Any]) -> None:
    """Refuse what would go unread."""
    asked = {
        name: value
        for name, usual in _UNREAD.items()
        if (value := getattr(config, name, None)) not in (None, usual)
    }
    asked |= {
        name: type(value).__name__
        for name, value in model_kwargs.items()
        if name not in _PREPARED and value is not None
    }
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length():
        asked["past_key_values"] = "a cache of tokens"
    if input_ids.shape[0] != 1 or not input_ids.shape[1]:
        asked["input_ids"] = f"shape {tuple(input_ids.shape)}"
    if asked:
        found = ", ".join(f"{name} ({value})" for name, value in asked.items())
        raise Unsupported(
            f"Speculative generates one text from its tokens; it reads no {found}. Leave it out, "
            "and call generate once for each text, without padding."
        )
