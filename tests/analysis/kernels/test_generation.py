"""`generate` with a loop of ours: the target's greedy text, the target's law, its configuration."""

import types
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from analysis.kernels.generation import DECODERS, Speculative
from otm.errors import InvalidDistribution, InvalidParameter, Unsupported
from tests.analysis.kernels.tiny_llamas import PROMPT, V, llama, p_value, text

# transformers warns about pads and masks of tiny models
pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.tensor([PROMPT])


@pytest.fixture(scope="module")
def target():
    return llama(0)


@pytest.fixture(scope="module")
def near(target):
    return llama(0, like=target, change=0.3)


def looped(model, loop=None, **keywords):
    usual = {"max_new_tokens": 12, "do_sample": False}
    return text(model, custom_generate=loop, **(usual | keywords))


def test_greedy_text_is_plain_generate_s(target, near):
    """With an assistant like the target and one unlike it, with processors that see the text, to
    the end-of-text token and to the last token that is asked for.
    """
    settings = [
        {},
        {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "min_new_tokens": 3},
        {"eos_token_id": 0, "max_new_tokens": 30, "repetition_penalty": 1.3},
        {"max_new_tokens": 1},
    ]
    for assistant in (near, llama(5)):
        loop = Speculative(assistant, num_drafts=2, length=3)
        for setting in settings:
            assert looped(target, loop, **setting) == looped(target, **setting)


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_draft_of_the_target_s_twin_is_kept(target, decoder):
    """One pass of the target writes L + 1 tokens, whatever is drawn."""
    loop = Speculative(llama(0, like=target), decoder=decoder, num_drafts=3, length=4)
    looped(target, loop, do_sample=True, max_new_tokens=1)
    calls = list[int]()
    hook = target.register_forward_pre_hook(lambda *_: calls.append(1))
    for seed in range(4):
        torch.manual_seed(seed)
        assert len(looped(target, loop, do_sample=True, max_new_tokens=5)) == 5
    hook.remove()
    assert len(calls) == 4


def test_a_batch_s_texts_are_those_of_each_prompt_alone(target, near):
    """With padding on the left, greedily, to the end-of-text token, which ends one text early."""
    batch = torch.tensor([[0, *PROMPT], [1, 3, 2], [*PROMPT, 4]])
    setting = {
        "attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1], [1, 1, 1]]),
        "max_new_tokens": 8,
        "eos_token_id": 5,
        "pad_token_id": 0,
        "do_sample": False,
    }
    loop = Speculative(near, num_drafts=2, length=3)
    # without a token to fill up with, the end-of-text token does
    for more in (
        {"repetition_penalty": 1.3},
        {"pad_token_id": None},
        {"pad_token_id": None, "eos_token_id": None},
    ):
        given = setting | more
        plain = target.generate(batch, **given)
        assert target.generate(batch, custom_generate=loop, **given).tolist() == plain.tolist()


def test_each_text_of_a_batch_has_the_target_s_law(target, near):
    """Refined scores under temperature and top-p after two prompts, one of them padded: χ² of two
    tokens, an error of 10⁻⁶ allowed; the other prompt's law and that without either would be found.
    """
    warpers = LogitsProcessorList([TemperatureLogitsWarper(0.5), TopPLogitsWarper(0.8)])
    prompts, number = ((0, *PROMPT), (1, 3, 2)), 150

    def law(text, *, plain=False):
        def after(text):
            ids = torch.tensor([text])
            with torch.inference_mode():
                logits = target(ids).logits[:, -1]
            return (logits if plain else warpers(ids, logits)).double().softmax(-1)[0].numpy()

        first = after(text)
        return np.concatenate([first[token] * after((*text, token)) for token in range(V)])

    torch.manual_seed(0)
    found = target.generate(
        torch.tensor(prompts),
        attention_mask=torch.tensor([[0, 1, 1], [1, 1, 1]]),
        num_return_sequences=number,
        custom_generate=Speculative(near, num_drafts=2, length=2),
        do_sample=True,
        temperature=0.5,
        top_p=0.8,
        top_k=0,
        max_new_tokens=2,
        eos_token_id=None,
        pad_token_id=0,
    )
    one, two = law(PROMPT), law(prompts[1])
    for rows, own, others in (
        (found[:number], one, (two, law(PROMPT, plain=True))),
        (found[number:], two, (one, law(prompts[1], plain=True))),
    ):
        count = np.bincount((V * rows[:, -2] + rows[:, -1]).numpy(), minlength=V * V)
        assert not count[own == 0].any()
        assert p_value(count, own) > 1e-6
        for other in others:
            assert count[other == 0].any() or p_value(count, other) < 1e-6


def test_a_streamer_gets_the_prompt_and_each_token(target, near):
    parts = list[Any]()
    kept = types.SimpleNamespace(
        put=lambda tokens: parts.append(tokens.tolist()), end=lambda: parts.append("end")
    )
    found = looped(target, Speculative(near, num_drafts=2, length=3), stream=kept)
    assert parts == [[list(PROMPT)], *([token] for token in found), "end"]


def test_stopping_criteria_see_every_token(target):
    """The text ends with the first token that a criterion stops at, drafted or not."""
    seen = list[int]()

    def third(ids, scores, **_):
        seen.append(ids.shape[1])
        return torch.tensor([ids.shape[1] == len(PROMPT) + 3])

    loop = Speculative(llama(0, like=target), num_drafts=2, length=4)
    found = looped(target, loop, do_sample=True, stopping_criteria=[third])
    assert len(found) == 3 and seen == [3, 4, 5]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"attention_mask": torch.tensor([[1, 0]])}, Unsupported, "padding on their left only"),
        ({"num_beams": 2}, Unsupported, "num_beams"),
        ({"return_dict_in_generate": True}, Unsupported, "return_dict_in_generate"),
        ({"prompt_lookup_num_tokens": 3}, Unsupported, "prompt_lookup_num_tokens"),
        (
            {"logits_processor": [lambda _, scores: scores * torch.nan]},
            InvalidDistribution,
            "LlamaForCausalLM gave NaN",
        ),
    ],
    ids=["padding", "beams", "record", "lookup", "NaN"],
)
def test_what_would_go_unread_and_nan_are_refused_by_name(target, near, given, error, message):
    loop = Speculative(near, decoder="block verification", length=2)
    with pytest.raises(error, match=message):
        looped(target, loop, **given)


def test_a_filled_cache_and_a_decoder_that_is_none_are_refused(target, near):
    with torch.inference_mode():
        cache = target(IDS[:, :1]).past_key_values
    with pytest.raises(Unsupported, match="past_key_values"):
        looped(target, Speculative(near, length=2), past_key_values=cache)
    with pytest.raises(InvalidParameter, match="block K-SEQ"):
        Speculative(near, decoder="best")
