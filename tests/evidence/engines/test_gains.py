"""Engines with trained pairs: the page, the records, and the steps that a text needs."""

import functools
import itertools
import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from evidence.engines import gains, page, pairs, predicted
from evidence.engines.__main__ import RUNNERS, engines
from evidence.engines.rules import calls, law
from evidence.engines.trained import DRAFTS
from figures.engines import NAMES, PAIRS, RESULTS, counted, exact, numbers, results
from otm._display.tabular import section
from tests.paths import says

DRAFTING = {
    pair: [one for name in NAMES for one in results(name, pair) if one["rule"] != "none"]
    for pair in PAIRS
}
ALL = [one for found in DRAFTING.values() for one in found]


@pytest.mark.parametrize("pair", PAIRS)
def test_page_shows_the_committed_results(pair):
    text = page.PAGE.read_text(encoding="utf-8")
    assert section(text, pair) == gains.table(pair), "run python -m evidence.engines --page"


def test_the_public_pair_ran_as_the_shipped_one_did():
    """But for refined scores, whose count no rule is held against."""
    shipped, public = (
        {
            (one["name"], one["rule"], one["options"], one["temperature"])
            for one in found
            if one["rule"] != "refined-scores"
        }
        for found in DRAFTING.values()
    )
    assert public == shipped


@pytest.mark.parametrize("pair", PAIRS)
def test_records_are_small_and_of_the_pinned_packages(pair):
    paths = [RESULTS / pair / f"{name}.json" for name in NAMES]
    assert sum(path.stat().st_size for path in paths) < 60_000
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        told = {f"{name}=={full.split('+')[0]}" for name, full in record["packages"].items()}
        pinned = engines()["transformers" if path.stem == "own_loop" else path.stem]
        assert told <= {item.replace("[cpu]", "") for item in pinned}


def test_engines_need_the_steps_that_their_rules_need():
    """A rule's steps are off by four standard deviations with probability 6e-5."""
    known = [one for one in ALL if exact(one, "predicted") is not None]
    assert {one["rule"] for one in ALL if one not in known} == {"refined-scores"}
    assert len(known) == 54
    for one in known:
        assert abs(gains.deviations(one)) <= page.DEVIATIONS
        assert counted(one).low < exact(one, "predicted") < counted(one).high


def test_the_page_says_what_a_few_lines_win():
    def win(engine, *names, at, pair="public", exactly=False):
        told = {(one["name"], one["temperature"]): one for one in results(engine, pair)}
        found = [told[name, at] for name in names]
        return " to ".join(
            f"{exact(one, 'predicted') if exactly else float(counted(one).value):.2f}"
            for one in found
        )

    once = functools.partial(win, "transformers", "as it is", "temperature once", exactly=True)

    says(
        "docs/engines_run.md",
        f"MLX-LM from {win('mlx_lm', 'as it is', 'shared noise', at=1.0)} tokens a call",
        f"llama.cpp from {win('llama_cpp', 'as it is', 'probabilistic', at=1.0)}.",
        f"from {once(at=0.3)} at temperature 0.3",
        f"less sure than its target, from {once(at=0.3, pair='shipped')}.",
        f"of its thirty ([script](../evidence/engines/pairs.py)), in float32, texts of "
        f"{pairs.PAIRS['public'].length} tokens",
        f"layers {pairs.DROPPED[0]} to {pairs.DROPPED[-1]} of its thirty",
        f"texts of {pairs.PAIRS['shipped'].length} tokens",
    )


def test_argmax_drafts_leave_no_luck():
    """Given the text every step is certain, but where two of a draft's logits agree to 1e-4."""
    certain = [one for one in ALL if one["rule"] == "match-argmax"]
    assert len(certain) == 12
    for one in certain:
        assert (numbers(one, "steps") == numbers(one, "predicted")).mean() >= 0.99


def test_other_steps_than_a_rule_s_are_noticed():
    one = next(one for one in ALL if one["rule"] == "match-argmax")
    steps = numbers(one, "steps")
    slower = one | {"steps": " ".join(map(str, steps + np.arange(len(steps)) % 2))}
    assert gains.deviations(slower) > page.DEVIATIONS


@pytest.mark.parametrize("rule", ["rejection-squared", "match-sampled", "match-argmax"])
@pytest.mark.parametrize("first", ["step", "prompt"])
def test_the_mean_over_all_texts_is_the_mean_number_of_steps(rule, first):
    """Of rows that depend on the last token alone, from `evidence.engines.rules.calls`."""
    logits = np.random.default_rng(4).normal(size=(2, 3, 3)) * 2
    table = torch.tensor(logits).float()
    pair = SimpleNamespace(device="cpu", logits=lambda rows: (table[0][rows], table[1][rows]))
    logits = table.double().numpy()
    target, length = law(logits[1], 0.6), 4
    texts = [list(text) for text in itertools.product(range(3), repeat=length)]
    told = {"rule": rule, "first": first, "temperature": 0.6, "texts": texts, "steps": []}
    found = predicted.predicted(pair, told, [[2]] * len(texts))
    weights = [np.prod([target[a, b] for a, b in itertools.pairwise([2, *text])]) for text in texts]
    accepted = predicted.AGREEMENTS[rule](target, logits[0], 0.6)
    short = length - (first == "prompt")
    due = [calls(target, accepted, drafts=DRAFTS, last=x, length=short)[0] for x in range(3)]
    mean = due[2] if first == "step" else target[2] @ due
    steps = np.array(found["predicted"].split(), float)
    assert steps @ weights == pytest.approx(mean, abs=5e-4)  # three digits are kept
    # the best rule needs no more
    assert np.array(found["best"].split(), float) @ weights <= mean + 1e-3 or rule.endswith("d")


def test_texts_that_ended_early_are_refused():
    told = {"rule": "block", "name": "a", "first": "step", "temperature": 1.0, "steps": []}
    with pytest.raises(ValueError, match=r"one length; there are \[1, 2\]"):
        predicted.predicted(None, told | {"texts": [[1, 2], [1]]}, [[2], [2]])


def test_a_task_is_windows_of_the_text_and_a_token_that_comes_nowhere(tmp_path):
    (tmp_path / "text").write_text("ab" * 500, encoding="utf-8")
    table = torch.full((128, 128), 2.0)
    table[:, 7], table[:, 8] = 0.0, -3.0
    table[ord("a"), 8] = 5.0  # rare after one token, likely after the other
    pair = SimpleNamespace(
        device="cpu",
        tokenizer=SimpleNamespace(encode=lambda text: [ord(letter) for letter in text]),
        logits=lambda rows: (-table[rows], table[rows]),
    )
    task = predicted.task(pair, tmp_path / "text", 9)
    assert (task.never, task.length, len(task.prompts)) == (7, 9, predicted.PROMPTS)
    assert {bytes(prompt) for prompt in task.prompts} == {b"ab" * 8, b"ba" * 8}


def test_a_draft_is_its_target_without_some_layers(tmp_path):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=2,
        num_hidden_layers=4,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
    )
    model = LlamaForCausalLM(config).eval()
    inputs = torch.arange(8)[None]
    for layer in model.model.layers[1:3]:  # what adds nothing can go
        layer.self_attn.o_proj.weight.data.zero_()
        layer.mlp.down_proj.weight.data.zero_()
    due = model(inputs).logits
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    pairs.drop_layers(model, range(1, 3))
    pairs.save(model, tmp_path, tmp_path / "draft")
    draft = LlamaForCausalLM.from_pretrained(tmp_path / "draft")
    assert len(draft.model.layers) == draft.config.num_hidden_layers == 2
    torch.testing.assert_close(draft(inputs).logits, due)
    told = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert told["rope_theta"] == told["rope_parameters"]["rope_theta"] == 1e5
    assert (tmp_path / "draft" / "tokenizer.json").exists()


def test_runners_know_their_engine_alone():
    beside = {"numpy", "evidence", "__future__", "gguf", "torch", "mlx", "mlx_lm", "transformers"}
    for path in (RUNNERS / "trained").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        found = set(re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE))
        assert found <= beside | sys.stdlib_module_names
