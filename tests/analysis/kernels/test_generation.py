"""`generate` with a loop of ours: the target's greedy text, the target's law, its configuration."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

from analysis.kernels.generation import DECODERS, Speculative
from otm.errors import InvalidDistribution, InvalidParameter, Unsupported
from tests.analysis.kernels.tiny_llamas import PROMPT, V, llama, p_value

IDS = torch.tensor([PROMPT])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Transformers warns about pads and masks of tiny models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def target() -> Any:
    return llama(0)


@pytest.fixture(scope="module")
def near(target: Any) -> Any:
    return llama(0, like=target, change=0.3)


def text(model: Any, loop: Speculative | None = None, **keywords: Any) -> list[int]:
    usual = {"max_new_tokens": 12, "eos_token_id": None, "do_sample": False}
    found = model.generate(IDS, pad_token_id=0, custom_generate=loop, **(usual | keywords))
    assert found[0, :2].tolist() == list(PROMPT)
    return [int(token) for token in found[0, 2:]]


def test_greedy_text_is_plain_generate_s(target: Any, near: Any) -> None:
    """With an assistant like the target and one unlike it, with processors that see the text, to
    the end-of-text token and to the last token that is asked for.
    """
    settings: list[dict[str, Any]] = [
        {},
        {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "min_new_tokens": 3},
        {"eos_token_id": 0, "max_new_tokens": 30, "repetition_penalty": 1.3},
        {"max_new_tokens": 1},
    ]
    for assistant in (near, llama(5)):
        loop = Speculative(assistant, num_drafts=2, length=3)
        for setting in settings:
            assert text(target, loop, **setting) == text(target, **setting)


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_draft_of_the_target_s_twin_is_kept(target: Any, decoder: str) -> None:
    """One pass of the target writes L + 1 tokens, whatever is drawn."""
    loop = Speculative(llama(0, like=target), decoder=decoder, num_drafts=3, length=4)
    text(target, loop, do_sample=True, max_new_tokens=1)
    calls = list[int]()
    hook = target.register_forward_pre_hook(lambda *_: calls.append(1))
    for seed in range(4):
        torch.manual_seed(seed)
        assert len(text(target, loop, do_sample=True, max_new_tokens=5)) == 5
    hook.remove()
    assert len(calls) == 4


def test_texts_have_the_target_s_law(target: Any, near: Any) -> None:
    """Refined scores under temperature and top-p: χ² of two tokens, an error of 10⁻⁶ allowed; texts
    at another temperature would be found.
    """
    warpers = LogitsProcessorList([TemperatureLogitsWarper(0.5), TopPLogitsWarper(0.8)])

    def law(after: list[int], *, plain: bool = False) -> Any:
        ids = torch.tensor([after])
        with torch.inference_mode():
            logits = target(ids).logits[:, -1]
        return (logits if plain else warpers(ids, logits)).double().softmax(-1)[0].numpy()

    first, plain = (law([*PROMPT], plain=one) for one in (False, True))
    wanted = np.concatenate([first[a] * law([*PROMPT, a]) for a in range(V)])
    hot = np.concatenate([plain[a] * law([*PROMPT, a], plain=True) for a in range(V)])
    loop = Speculative(near, num_drafts=2, length=2)
    torch.manual_seed(0)
    count = np.zeros(V * V)
    for _ in range(150):
        a, b = text(
            target, loop, do_sample=True, temperature=0.5, top_p=0.8, top_k=0, max_new_tokens=2
        )
        count[V * a + b] += 1
    assert not count[wanted == 0].any()
    assert p_value(count, wanted) > 1e-6
    assert p_value(count, hot) < 1e-6


def test_a_batch_s_texts_are_those_of_each_prompt_alone(target: Any, near: Any) -> None:
    """With padding on the left, greedily, to the end-of-text token, which ends one text early."""
    batch = torch.tensor([[0, *PROMPT], [1, 3, 2], [*PROMPT, 4]])
    setting: dict[str, Any] = {
        "attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1], [1, 1, 1]]),
        "max_new_tokens": 8,
        "eos_token_id": 5,
        "pad_token_id": 0,
        "do_sample": False,
    }
    plain = target.generate(batch, repetition_penalty=1.3, **setting)
    loop = Speculative(near, num_drafts=2, length=3)
    found = target.generate(batch, custom_generate=loop, repetition_penalty=1.3, **setting)
    assert found.tolist() == plain.tolist()
    del setting["pad_token_id"]  # then the end-of-text token fills up
    plain = target.generate(batch, **setting)
    assert target.generate(batch, custom_generate=loop, **setting).tolist() == plain.tolist()
    setting["eos_token_id"] = None
    plain = target.generate(batch, **setting)
    assert target.generate(batch, custom_generate=loop, **setting).tolist() == plain.tolist()


def test_each_text_of_a_batch_has_the_target_s_law(target: Any, near: Any) -> None:
    """χ² of the token after each of two prompts, an error of 10⁻⁶ allowed; each other's law would
    be found.
    """
    prompts, number = torch.tensor([[0, *PROMPT], [1, 3, 2]]), 150
    with torch.inference_mode():
        one, two = (
            target(torch.tensor([ids])).logits[0, -1].double().softmax(-1).numpy()
            for ids in (PROMPT, prompts[1].tolist())
        )
    torch.manual_seed(0)
    found = target.generate(
        prompts,
        attention_mask=torch.tensor([[0, 1, 1], [1, 1, 1]]),
        num_return_sequences=number,
        custom_generate=Speculative(near, num_drafts=2, length=1),
        do_sample=True,
        top_k=0,
        max_new_tokens=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    for rows, own, other in ((found[:number], one, two), (found[number:], two, one)):
        count = np.bincount(rows[:, -1].numpy(), minlength=V)
        assert p_value(count, own) > 1e-6
        assert p_value(count, other) < 1e-6


def test_a_streamer_gets_the_prompt_and_each_token(target: Any, near: Any) -> None:
    class Kept:
        def __init__(self) -> None:
            self.parts = list[Any]()

        def put(self, tokens: torch.Tensor) -> None:
            self.parts.append(tokens.tolist())

        def end(self) -> None:
            self.parts.append("end")

    kept, loop = Kept(), Speculative(near, num_drafts=2, length=3)
    found = text(target, loop, stream=kept)
    assert kept.parts == [[list(PROMPT)], *([token] for token in found), "end"]


def test_stopping_criteria_see_every_token(target: Any) -> None:
    """The text ends with the first token that a criterion stops at, drafted or not."""
    seen = list[int]()

    def third(ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        seen.append(ids.shape[1])
        return torch.tensor([ids.shape[1] == len(PROMPT) + 3])

    loop = Speculative(llama(0, like=target), num_drafts=2, length=4)
    found = text(target, loop, do_sample=True, stopping_criteria=[third])
    assert len(found) == 3 and seen == [3, 4, 5]


def test_what_would_go_unread_is_refused_by_name(target: Any, near: Any) -> None:
    loop = Speculative(near, decoder="block verification", length=2)
    with pytest.raises(Unsupported, match="padding on their left only"):
        text(target, loop, attention_mask=torch.tensor([[1, 0]]))
    for name, value in (
        ("num_beams", 2),
        ("return_dict_in_generate", True),
        ("prompt_lookup_num_tokens", 3),
    ):
        with pytest.raises(Unsupported, match=name):
            text(target, loop, **{name: value})
    with torch.inference_mode():
        cache = target(IDS[:, :1]).past_key_values
    with pytest.raises(Unsupported, match="past_key_values"):
        text(target, loop, past_key_values=cache)
    with pytest.raises(InvalidParameter, match="block K-SEQ"):
        Speculative(near, decoder="best")


def test_a_model_that_answers_nan_is_refused(target: Any, near: Any) -> None:
    loop = Speculative(near, num_drafts=2, length=2)

    def broken(_: Any, scores: torch.Tensor) -> torch.Tensor:
        return scores * torch.nan

    with pytest.raises(InvalidDistribution, match="LlamaForCausalLM gave NaN"):
        text(target, loop, logits_processor=[broken])
