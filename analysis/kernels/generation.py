"""`generate` of Hugging Face transformers with an assistant, verified by the kernels here.

Transformers takes a loop of one's own and hands it what it has prepared::

    generate = Speculative(draft)                       once for a pair of models
    model.generate(**inputs, do_sample=True, custom_generate=generate)

A step draws K sequences of L tokens from the assistant after each text, evaluates the target at all
of them in one pass (`analysis.models.tree_pass`), and keeps what the decoder keeps of one. Both
models have the logits processors that `generate` makes of its configuration, temperature and
filters among them, or is given; each is called as for one text, with its padding. Stopping criteria
see every token of every text. Where `generate` does not sample, one sequence of the assistant's
likeliest tokens is kept while it is the target's, and the text is what it would be without.
Randomness is torch's global generator. `generate` keeps its own `streamer` to itself where a loop
is handed to it; `stream=` takes one, and gets tokens as they are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch.nn.utils.rnn import pad_sequence

from otm.errors import InvalidDistribution, Unsupported
from otm.pmf import check_choice, check_count

from ..models.causal import CausalModel
from .block_kseq import block_kseq
from .chain import block
from .grid import ScoreGrid
from .scores import refined_scores
from .step import Tensor, Verified, probabilities

DECODERS = "refined scores", "block K-SEQ", "block verification"
_PREPARED = {"position_ids", "past_key_values", "use_cache", "logits_to_keep", "cache_position"}
"""Inputs that `generate` prepares for a pass; passes here make them themselves."""

_UNREAD = {
    "num_beams": 1,
    "return_dict_in_generate": False,
    "guidance_scale": 1.0,
    "prompt_lookup_num_tokens": None,
    "assistant_early_exit": None,
    "assistant_ensemble_weight": None,
    "use_mtp": False,
    "penalty_alpha": 0.0,
    "cache_implementation": None,
}
"""Options of a generation configuration that are not read, with the values that ask for nothing."""

Text = tuple[int, ...]


class Place(NamedTuple):
    """A text of a batch as far as generated.

    Attributes:
        row: its number.
        pad: tokens of padding that it begins with.
        text: its tokens, those included.
    """

    row: int
    pad: int
    text: Text

    def and_then(self, token: int) -> Place:
        """Return the place a token further."""
        return self._replace(text=(*self.text, token))


Processors = Callable[[Place, Tensor], Tensor]
"""(a place, logits `(V,)` after it) → processed logits `(1, V)`."""


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

    Cost: L passes of the assistant and one of the target a step, over 1 + KL tokens for each text,
        and the kernel. Each of the two models is tried on a small tree once. Texts of a batch are
        in one pass, in which attention looks at all of them: a few at a time.
    """

    def __init__(
        self, draft: Any, *, decoder: str = DECODERS[0], num_drafts: int = 8, length: int = 8
    ) -> None:
        self.decoder = check_choice(decoder, name="decoder", choices=DECODERS)
        self.length = check_count(length, name="length")
        several = check_count(num_drafts, name="num_drafts")
        self.num_drafts = 1 if decoder == DECODERS[-1] else several
        self.draft = _causal(draft)
        self.grid = ScoreGrid.of(self.num_drafts, draft.device)
        self._target: tuple[Any, CausalModel] | None = None

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Callable[[Tensor, Tensor], Tensor],
        stopping_criteria: Callable[[Tensor, Any], Tensor],
        generation_config: Any,
        stream: Any = None,
        **model_kwargs: Any,
    ) -> Tensor:
        """Return prompts and texts `(B, …)`, called by `generate` with prepared arguments.

        Args:
            model, input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs:
                from `generate`.
            stream: a streamer of transformers, for one text.

        Raises:
            Unsupported: on an argument that would go unread, or padding elsewhere.
            InvalidDistribution: if a model's answers are no numbers, or a step is refused
                (`analysis.kernels.step`).
        """
        pads = _paddings(input_ids, model_kwargs.pop("attention_mask", None))
        _check_request(generation_config, model_kwargs)
        if self._target is None or self._target[0] is not model:
            self._target = model, _causal(model)
        target = self._target[1]
        target.forget()
        self.draft.forget()
        rows = list(input_ids.split(1))
        going = list(range(len(rows)))

        def processed(place: Place, logits: Tensor) -> Tensor:
            # a processor may keep something for each row: it is asked for all, and one is read
            ids = torch.tensor([place.text] * len(rows), device=logits.device)
            answers = logits_processor(ids, logits.repeat(len(rows), 1))
            return answers[place.row : place.row + 1]

        if stream is not None:
            stream.put(input_ids.cpu())
        while going:
            # the step's own token needs no draft
            left = generation_config.max_length - max(rows[at].shape[1] for at in going) - 1
            step = self._step(
                target,
                [Place(at, pads[at], tuple(rows[at][0].tolist())) for at in going],
                processed,
                max(1, min(self.length, left)),
                sampled=bool(generation_config.do_sample),
            )
            ended = set[int]()
            for at, tokens, count in zip(going, step.tokens, step.count, strict=True):
                for token in tokens[:count]:
                    rows[at] = torch.cat([rows[at], token.view(1, 1)], dim=1)
                    if stream is not None:
                        stream.put(token.view(1).cpu())
                    if stopping_criteria(rows[at], None).all():
                        ended.add(at)
                        break
            going = [at for at in going if at not in ended]
        if stream is not None:
            stream.end()
        # the end-of-text token where no other is set; without both, nothing ends a text early
        fill = getattr(generation_config, "_pad_token_tensor", None)
        fill = 0 if fill is None else int(fill)
        return pad_sequence([row[0] for row in rows], batch_first=True, padding_value=fill)

    def _step(
        self,
        target: CausalModel,
        texts: Sequence[Place],
        processors: Processors,
        length: int,
        *,
        sampled: bool,
    ) -> Verified:
        """Draft, evaluate and verify once; a text's nodes go level by level."""
        number, size = self.num_drafts if sampled else 1, target.num_tokens
        nodes, drawn_by = [[text] for text in texts], list[Tensor]()
        level = [[text] * number for text in texts]
        for place in range(length):
            by = _laws(self.draft, level, processors, size, sampled=sampled)
            # the sequences have the root in common
            drawn_by.append(by if place else by[:, :1])
            drawn = torch.multinomial(by.flatten(0, 1), 1).view(len(texts), number).tolist()
            level = [
                [before.and_then(token) for before, token in zip(row, tokens, strict=True)]
                for row, tokens in zip(level, drawn, strict=True)
            ]
            for above, row in zip(nodes, level, strict=True):
                above += row
        laws = _laws(target, nodes, processors, size, sampled=sampled)
        draft = torch.cat(drawn_by, dim=1).to(laws.device)
        shape = len(texts), len(nodes[0]) + 1
        uniforms = torch.rand(shape, dtype=torch.float64, device=laws.device)
        candidates = torch.tensor(
            [[place.text[-1] for place in row] for row in nodes], device=laws.device
        )
        given = candidates, laws, draft, uniforms[:, :-1], uniforms[:, -1]
        step = self._verify(given, number, length)
        if not step.count.all():
            # drafting anew would choose among drafts, and so change the text's law
            text = texts[int(step.count.argmin())].text
            raise InvalidDistribution(
                f"Every step must be answered; {self.decoder} refused one after {len(text)} tokens "
                "of finite laws, for a draft of which its own law is 0. Check what the logits "
                "processors keep from call to call."
            )
        return step

    def _verify(self, given: tuple[Tensor, ...], number: int, length: int) -> Verified:
        """Verify one sequence or several."""
        if number == 1:
            return block(*given)
        candidates, target, draft, uniforms, final = given
        place = torch.arange(1, 1 + number * length, device=candidates.device)
        paths = place.view(1, length, number).mT.expand(len(candidates), -1, -1)
        if self.decoder == DECODERS[1]:
            return block_kseq(candidates, paths, target, draft, uniforms, final)
        return refined_scores(candidates, paths, target, draft, uniforms, final, self.grid)


def _causal(model: Any) -> CausalModel:
    """Wrap a model for the evaluation of trees."""
    if model.config.is_encoder_decoder:
        raise Unsupported(
            f"Drafted trees need a decoder alone; {type(model).__name__} has an encoder. Use its "
            "own assisted generation."
        )
    config = model.config.get_text_config(decoder=True)
    return CausalModel(model, config.vocab_size, str(model.device))


def _laws(
    model: CausalModel,
    places: Sequence[Sequence[Place]],
    processors: Processors,
    most: int,
    *,
    sampled: bool,
) -> Tensor:
    """Return the processed next-token laws `(B, n, V)` after places, some of which may be equal.

    V is at most `most`.
    """
    every = [place for row in places for place in row]
    contexts = list(dict.fromkeys(place.text[place.pad :] for place in every))
    logits = dict(zip(contexts, model.logits(contexts)[:, :most].float(), strict=True))
    # in a text's own call, as in a loop without drafts
    processed = {
        place: processors(place, logits[place.text[place.pad :]]) for place in dict.fromkeys(every)
    }
    rows = torch.cat(list(processed.values()))
    laws = probabilities(rows[None], rows.new_full((1,), float(sampled)))[0]
    if not laws.isfinite().all():
        raise InvalidDistribution(
            f"Both models must give numbers; {type(model.evaluator.model).__name__} gave NaN, or "
            f"masked every token, after {len(every[0].text)} tokens. Check its weights' type and "
            "the logits processors."
        )
    number = {place: at for at, place in enumerate(processed)}
    return laws[[number[place] for place in every]].view(len(places), -1, laws.shape[-1])


def _paddings(input_ids: Tensor, attention_mask: Tensor | None) -> list[int]:
    """Return the number of padding tokens on the left of each prompt."""
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    if mask.shape != input_ids.shape or not mask[:, -1:].all() or (mask.diff(dim=1) < 0).any():
        raise Unsupported(
            "Speculative generates from tokens with padding on their left only; the attention_mask "
            f"{tuple(mask.shape)} of input_ids {tuple(input_ids.shape)} says otherwise. Set "
            "tokenizer.padding_side to 'left'."
        )
    return [int(row.numel() - row.count_nonzero()) for row in mask]


def _check_request(config: Any, model_kwargs: dict[str, Any]) -> None:
    """Refuse options and inputs that would go unread."""
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
    if asked:
        found = ", ".join(f"{name} ({value})" for name, value in asked.items())
        raise Unsupported(
            f"Speculative generates texts from their tokens; it reads no {found}. Leave it out."
        )
