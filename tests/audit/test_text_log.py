"""Texts with log-probabilities: every form as its engine writes it, and what is damaged."""

import json

import pytest

from otm.audit.text_log import read_texts
from otm.audit.token_log import InvalidRecord


def entry(name, value, *top):
    """One token of a list, as vLLM writes it at 5e918640."""
    listed = [{"token": x, "logprob": y, "bytes": list(x.encode())} for x, y in top]
    return {"token": name, "logprob": value, "bytes": [32], "top_logprobs": listed}


VLLM_CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": " a b"},
            "logprobs": {
                "content": [
                    entry("token_id:5", -0.1, ("token_id:5", -0.1), ("token_id:7", -2.5)),
                    entry("token_id:9", -0.7, ("token_id:9", -0.7), ("token_id:3", -9999.0)),
                ]
            },
            "finish_reason": "length",
            "stop_reason": None,
            "token_ids": [5, 9],
        }
    ],
    "prompt_token_ids": [1, 4],
}
COMPLETION = {
    "object": "text_completion",
    "choices": [
        {
            "text": " a b",
            "logprobs": {
                "text_offset": [0, 2],
                "token_logprobs": [-0.1, -0.7],
                "tokens": ["token_id:5", "token_id:9"],
                "top_logprobs": [{"token_id:5": -0.1, "token_id:7": -2.5}, {"token_id:9": -0.7}],
            },
            "finish_reason": "length",
            "prompt_token_ids": [1, 4],
        }
    ],
}
SGLANG = {  # at 229224a3; a position without a list is null
    "text": " a b",
    "output_ids": [5, 9],
    "meta_info": {
        "id": "1",
        "finish_reason": {"type": "length", "length": 2},
        "output_token_logprobs": [[-0.1, 5, None], [-0.7, 9, None]],
        "output_top_logprobs": [[[-0.1, 5, None], [-2.5, 7, None]], None],
    },
}
LLAMA_CPP = {  # at 17f5f8a8; a token that was a draft has no list
    "content": " a b",
    "tokens": [5, 9],
    "prompt": "Say",
    "stop_type": "limit",
    "completion_probabilities": [
        {
            "id": 5,
            "token": " a",
            "bytes": [32, 97],
            "logprob": -0.1,
            "top_logprobs": [
                {"id": 5, "token": " a", "bytes": [32, 97], "logprob": -0.1},
                {"id": 7, "token": " c", "bytes": [32, 99], "logprob": -2.5},
                {"id": 8, "token": " d", "bytes": [32, 100], "logprob": -3.4028234663852886e38},
            ],
        },
        {"id": 9, "token": " b", "bytes": [32, 98], "logprob": 0.0, "top_logprobs": []},
    ],
}
OWN = {"tokens": [5, 9], "top": [[[5, -0.1], [7, -2.5]], []], "finish": "length"}


@pytest.mark.parametrize(
    ("response", "second"),
    [
        (VLLM_CHAT, {9: -0.7}),
        (COMPLETION, {9: -0.7}),
        (SGLANG, {}),
        (LLAMA_CPP, {}),
        (OWN, {}),
    ],
    ids=["vLLM chat", "completion", "SGLang", "llama.cpp", "own"],
)
def test_every_form_is_read(response, second, tmp_path):
    """As one object, as a list, as lines, each with the same two tokens."""
    file = tmp_path / "run.jsonl"
    once = json.dumps(response)
    for text, count in ((once, 1), (json.dumps([response] * 2), 2), (f"{once}\n{once}\n", 2)):
        file.write_text(text, encoding="utf-8")
        found = read_texts(file)
        assert [(one.tokens, one.finish) for one in found] == [((5, 9), "length")] * count
        assert [one.top for one in found] == [({5: -0.1, 7: -2.5}, second)] * count


AFTER_SAMPLERS = [{"id": 5, "prob": 1.0}, {"id": 7, "prob": 0.0}]
CHOICES = [
    {"token_ids": [5, 9], "logprobs": None, "finish_reason": "stop"},
    {"logprobs": {"content": [entry(" a", -0.1, (" a", -0.1))]}},
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # llama.cpp after its samplers writes probabilities
            json.dumps(
                {"completion_probabilities": [{**AFTER_SAMPLERS[0], "top_probs": AFTER_SAMPLERS}]}
            ),
            [((5,), ({5: 0.0},), "")],
        ),
        (  # without log-probabilities tokens are read, and texts stand for numbers
            json.dumps({"choices": CHOICES}),
            [((5, 9), ({}, {}), "stop"), ((" a",), ({" a": -0.1},), "")],
        ),
        (  # numbers that JSON does not know are left out
            '{"tokens": [5], "top": [[[5, -0.5], [7, -Infinity], [8, NaN]]], "finish": "limit"}',
            [((5,), ({5: -0.5},), "length")],
        ),
    ],
    ids=["llama.cpp's probabilities", "no log-probabilities", "no numbers"],
)
def test_what_is_left_out_is_read_too(text, expected, tmp_path):
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    found = read_texts(tmp_path / "run.json")
    assert [(one.tokens, one.top, one.finish) for one in found] == expected


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[3]",
        '{"choices": 3}',
        '{"choices": [{"message": {"content": " a"}}]}',
        '{"tokens": [5], "tops": []}',
        '{"tokens": [5, 6], "top": [[]]}',
        '{"tokens": [-5]}',
        '{"tokens": [true]}',
        '{"tokens": [5.0]}',
        '{"tokens": [5], "forced": 1}',
        '{"tokens": [5], "top": [[[5]]]}',
        '{"tokens": [5], "top": [[[5, "x"]]]}',
        '{"tokens": [5], "finish": {}}',
        '{"tokens": [' + "9" * 5_000 + "]}",
        '{"meta_info": {"output_token_logprobs": [5]}}',
        '{"completion_probabilities": [{"token": " a", "top_probs": [{"token": " a"}]}]}',
    ],
)
def test_what_is_damaged_is_refused_with_its_number(line, tmp_path):
    file = tmp_path / "run.jsonl"
    file.write_text(f"{json.dumps(OWN)}\n{line}\n", encoding="utf-8")
    with pytest.raises(InvalidRecord, match="Object 2 of "):
        read_texts(file)
