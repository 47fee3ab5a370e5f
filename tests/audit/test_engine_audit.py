"""Engines that write texts with the tiny pair: in this process, and behind an address."""

import itertools
import json

import numpy as np
import pytest

from otm import audit
from otm.audit import tiny_pair
from otm.audit.engine_audit import LENGTH, target_rows
from otm.errors import InvalidParameter, OtmError
from otm.logits import Processing
from tests.paths import says
from tests.served import served

SERVED = json.dumps({"data": [{"id": "tiny"}]})


def drawn(rows, prompts, length, rng):
    """Return a text after each prompt, drawn from rows by the last token."""
    up_to, texts = np.cumsum(rows, axis=1), []
    for prompt in prompts:
        text = list(prompt)
        for u in rng.random(length) * (1.0 - 1e-12):
            text.append(int(np.searchsorted(up_to[text[-1]], u, side="right")))
        texts.append(text[-length:])
    return texts


class Engine:
    """An engine whose generator goes on from call to call."""

    def __init__(self, rows, seed=0):
        self.rows, self.rng, self.asked = rows, np.random.default_rng(seed), []

    def __call__(self, prompts, length, temperature):
        self.asked.append((len(prompts), length, temperature))
        return drawn(self.rows, prompts, length, self.rng)

    def post(self, request):
        """Answer a request as a server does."""
        self.asked.append(request)
        (text,) = drawn(self.rows, [request["prompt"]], request["max_tokens"], self.rng)
        return json.dumps({"choices": [{"text": "".join(tiny_pair.pieces()[x] for x in text)}]})


def pairs(rows):
    """Return the law of two neighbours at a random place of a text, by enumeration of texts."""
    law, first = np.zeros((16, 16)), {tiny_pair.PROMPT[-1]: 1.0}
    for _ in range(LENGTH - 1):
        second = dict.fromkeys(range(16), 0.0)
        after = dict.fromkeys(range(16), 0.0)
        for last, mass in first.items():
            for x in range(16):
                after[x] += mass * rows[last, x]
        for x, mass in after.items():
            for y in range(16):
                law[x, y] += mass * rows[x, y] / (LENGTH - 1)
                second[y] += mass * rows[x, y]
        first = after
    return law


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_target_passes_and_the_draft_is_found_with_a_distance(temperature):
    right = audit.engine(Engine(target_rows(temperature)), temperature=temperature)
    assert right.verdict == "no difference found"
    assert right.detect == pytest.approx(0.15, rel=1e-4)
    if temperature == 1.0:
        says("docs/audit_engines.md", f"asks for some {right.planned:,} texts of eight tokens")
    assert right.cells == right.outcomes == 256  # no two of them are counted as one
    assert right.coverage.temperatures == (temperature,)
    rows = Processing(temperature=temperature)(tiny_pair.logits(1))
    wrong = audit.engine(Engine(rows), temperature=temperature)
    assert wrong.verdict == "not lossless"
    truth = 0.5 * np.abs(pairs(target_rows(temperature)) - pairs(rows)).sum()
    assert 0.15 * truth < wrong.total_variation.low < truth < wrong.total_variation.high


@pytest.mark.parametrize("left_on", [{"top_k": 6}, {"top_p": 0.8}])
def test_a_filter_that_a_server_leaves_on_is_found(left_on):
    rows = Processing(temperature=1.0, **left_on)(tiny_pair.logits(0))
    truth = 0.5 * np.abs(pairs(target_rows(1.0)) - pairs(rows)).sum()
    found = audit.engine(Engine(rows))
    assert truth > found.asked == 0.15
    assert found.verdict == "not lossless"
    assert found.total_variation.low < truth < found.total_variation.high


def test_text_beyond_the_letters_is_impossible_and_no_error():
    """As of an engine that samples garbage now and then: the end, a tag, another word."""
    right = Engine(target_rows(1.0))

    def sometimes(prompts, length, temperature):
        texts = right(prompts, length, temperature)
        return [[2], [1] * 8, *texts[2:]]

    found = audit.engine(sometimes)
    assert found.verdict == "not lossless"
    assert found.samples < found.planned
    assert 0.0 < found.total_variation.low < 2 / 64 + 0.01

    def post(request):
        if len(right.asked) % 16 == 0:
            right.asked.append(request)
            return json.dumps({"choices": [{"text": "ab</s>"}]})
        return right.post(request)

    with served(SERVED, posted=post) as url:
        told = audit.engine(url.removesuffix("/metrics"))
    assert told.verdict == "not lossless"


def test_an_interruption_keeps_the_texts_so_far():
    """Some are too few for a verdict, unless they are impossible; none say nothing."""
    for rows, batches, verdict in ((1.0, 3, "no verdict"), (0.1, 9, "not lossless"), (1.0, 0, "")):
        right, asked = Engine(target_rows(rows)), itertools.count()

        def broken_off(prompts, length, temperature, right=right, asked=asked, batches=batches):
            if next(asked) == batches:
                raise KeyboardInterrupt
            return right(prompts, length, temperature)

        with pytest.raises(KeyboardInterrupt) as interruption:
            audit.engine(broken_off)
        found = getattr(interruption.value, "found", None)
        assert (found.verdict if found else "") == verdict
        if found:
            assert found.samples == 64 * batches
            assert found.head().startswith(f"## `broken_off`: {verdict}: an interruption after ")


def test_greedy_text_has_one_law():
    likeliest = np.eye(16)[tiny_pair.logits(0).argmax(axis=1)]
    found = audit.engine(Engine(likeliest), temperature=0.0)
    assert found.verdict == "no difference found"
    assert audit.engine(Engine(target_rows(1.0)), temperature=0.0).verdict == "not lossless"


def test_a_server_is_asked_without_filters_for_the_model_that_it_names():
    engine = Engine(target_rows(0.7))
    with served(SERVED, posted=engine.post) as url:
        address = url.removesuffix("/metrics")
        found = audit.engine(address, temperature=0.7, errors=audit.Errors(detect=0.3))
        assert found.verdict == "no difference found"
        assert found.name == address
        for ending in ("/v1", "/v1/completions", "/v1/chat/completions", "/"):
            audit.engine(address + ending, temperature=0.7, errors=audit.Errors(detect=0.9))
    wanted = {"model": "tiny", "prompt": [*tiny_pair.PROMPT], "max_tokens": LENGTH}
    wanted |= {"temperature": 0.7, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    assert all(request == wanted for request in engine.asked)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda prompts, length, temperature: [[4]] * len(prompts), "must write 8 letters"),
        (lambda prompts, length, temperature: [[3] * 8] * len(prompts), "must write 8 letters"),
        (lambda prompts, length, temperature: [[4] * 8], "each of 64 prompts"),
        (lambda prompts, length, temperature: 7, "must write 8 letters"),
        (lambda prompts, length, temperature: [[4.5] * 8] * len(prompts), "must write 8 letters"),
        (
            lambda prompts, length, temperature: [[4] * 8] * len(prompts),
            "the engine repeats itself",
        ),
        (lambda prompts: [], "raised TypeError"),
        (3, "must be a server's address or a function"),
        ("nonsense", "has an address of http or https"),
    ],
)
def test_what_is_no_engine_of_the_pair_is_refused(write, said):
    with pytest.raises(OtmError, match=said):
        audit.engine(write)


def test_one_lost_request_is_asked_again():
    engine, lost = Engine(target_rows(1.0)), []

    def post(request):
        if len(engine.asked) == 40 and not lost:
            lost.append(request)
            return 500, {}, "busy"
        return engine.post(request)

    with served(SERVED, posted=post) as url:
        found = audit.engine(url.removesuffix("/metrics"), errors=audit.Errors(detect=0.4))
    assert lost
    assert found.verdict == "no difference found"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((400, {}, '{"error": "top_k must be positive"}'), "top_k must be positive"),
        ((404, {}, ""), "the server's own address"),
        (json.dumps({"choices": [{"text": " Hello"}]}), "letters of the tiny pair"),
        (json.dumps({"choices": []}), "letters of the tiny pair"),
        ("no json", "letters of the tiny pair"),
    ],
)
def test_what_a_server_answers_otherwise_is_told(answer, said):
    with (
        served(SERVED, posted=lambda request: answer) as url,
        pytest.raises(InvalidParameter, match=said),
    ):
        audit.engine(url.removesuffix("/metrics"))


def test_the_pair_is_what_transformers_loads(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    paths = audit.write_pair(tmp_path)
    assert [path.name for path in paths][:2] == ["target", "draft"]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 1e6
    for seed, path in enumerate(paths[:2]):
        model = transformers.AutoModelForCausalLM.from_pretrained(path)
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        ids = tokenizer("afc", add_special_tokens=False, return_tensors="pt").input_ids
        assert ids[0].tolist() == [*tiny_pair.PROMPT]
        with torch.no_grad():
            law = torch.softmax(model(ids).logits[0].double(), -1).numpy()
        rows = Processing(temperature=1.0)(tiny_pair.logits(seed))
        np.testing.assert_allclose(law, rows[list(tiny_pair.PROMPT)], atol=1e-6)
