"""Engines with the shipped pair: the page, the records, and the steps that a text needs."""

import itertools
import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evidence.engines import gains, page, predicted
from evidence.engines.__main__ import RUNNERS, engines
from evidence.engines.rules import calls, law
from evidence.engines.trained import DRAFTS
from figures.engines import NAMES, RESULTS, counted, exact, numbers, results
from otm._display.tabular import section

DRAFTING = [one for name in NAMES for one in results(name) if one["rule"] != "none"]


def test_page_shows_the_committed_results():
    text = page.PAGE.read_text(encoding="utf-8")
    assert section(text, "trained") == gains.table(), "run python -m evidence.engines --page"


def test_records_are_small_and_of_the_pinned_packages():
    paths = [RESULTS / f"{name}.json" for name in NAMES]
    assert sum(path.stat().st_size for path in paths) < 60_000
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        told = {f"{name}=={full.split('+')[0]}" for name, full in record["packages"].items()}
        pinned = engines()["transformers" if path.stem == "own_loop" else path.stem]
        assert told <= {item.replace("[cpu]", "") for item in pinned}


def test_engines_need_the_steps_that_their_rules_need():
    """A rule's steps are off by four standard deviations with probability 6e-5."""
    known = [one for one in DRAFTING if exact(one, "predicted") is not None]
    assert {one["rule"] for one in DRAFTING if one not in known} == {"refined-scores"}
    assert len(known) >= 27
    for one in known:
        assert abs(gains.deviations(one)) <= page.DEVIATIONS
        assert counted(one).low < exact(one, "predicted") < counted(one).high


def test_argmax_drafts_leave_no_luck():
    """Given the text every step is certain, but where two of a draft's logits agree to 1e-4."""
    certain = [one for one in DRAFTING if one["rule"] == "match-argmax"]
    assert len(certain) == 6
    for one in certain:
        assert (numbers(one, "steps") == numbers(one, "predicted")).mean() >= 0.99


def test_other_steps_than_a_rule_s_are_noticed():
    one = next(one for one in DRAFTING if one["rule"] == "match-argmax")
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


def test_runners_know_their_engine_alone():
    beside = {"numpy", "evidence", "__future__", "gguf", "torch", "mlx", "mlx_lm", "transformers"}
    for path in (RUNNERS / "trained").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        found = set(re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE))
        assert found <= beside | sys.stdlib_module_names
