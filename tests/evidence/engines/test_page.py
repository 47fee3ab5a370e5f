"""The page of engines that were run: it is what the committed records say, and they are judged
rightly, whoever wrote them.
"""

import dataclasses
import functools
import re
import sys

import numpy as np
import pytest

from evidence.engines import page
from evidence.engines.__main__ import RUNNERS, engines
from evidence.engines.recording import DEPTH
from evidence.engines.rules import law
from otm.audit.tiny_pair import UNIT
from tests.paths import says

BIASED = (
    "mistralrs draft",
    "openvino_genai draft",
    "oxillama draft",
    "transformers assistant model, another",
    "vllm draft",
    "vllm n-grams",
    "vllm suffixes",
)
"""Engines and configurations whose sampled text is known not to be the target's."""

RIGHT = ("oxillama", 1.0)
"""An engine that samples at this temperature whatever is asked."""

RECORDS = page.records()
FOUND = [(name, result) for name, record in RECORDS.items() for result in record["results"]]
SAMPLED = [(name, result) for name, result in FOUND if result.temperature > 0]
PAIR = RUNNERS.parents[2] / "otm" / "audit" / "tiny_pair.py"
WRITERS = {"gguf", "onnx"}
ENGINES = {"mlx", "openvino", "oxillama_py", "tokenizers", "torch", "xllamacpp"}
each = pytest.mark.parametrize("engine, result", SAMPLED, ids=lambda x: getattr(x, "options", x))


@functools.cache
def judged(engine):
    return [page.judge(RECORDS[engine], result) for result in RECORDS[engine]["results"]]


def test_page_shows_the_committed_results():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.page(text) == text, "run python -m evidence.engines --page"


def test_records_are_small_and_of_the_pinned_packages():
    packages = engines()
    for name, record in RECORDS.items():
        assert (page.RESULTS / f"{name}.json").stat().st_size < 120_000
        pinned = {item.replace("[cpu]", "") for item in packages[name] if "==" in item}
        told = {f"{key}=={full.split('+')[0]}" for key, full in record["packages"].items()}
        assert told == pinned


@each
def test_biased_engines_are_found_and_lossless_ones_are_not(engine, result):
    verdict = next(one for one in judged(engine) if one.result is result)
    biased = f"{engine} {result.name}".startswith(BIASED)
    biased &= (engine, result.temperature) != RIGHT
    assert verdict.lossless == (not biased)
    if biased:
        # temperature 1 for 0.7 is near to the target's law, and most texts begin without n-grams
        near = {"oxillama": 0.02, "n-grams": 0.05}
        least = near.get(engine, near.get(result.name, 0.1))
        assert verdict.variation.low > least
    elif verdict.agrees is not None:
        assert verdict.agrees


def test_a_head_takes_a_second_call_for_every_rejection():
    """With one draft a step these are the steps that accepted none."""
    found = [one for one in RECORDS["onnxruntime_genai"]["results"] if one.name == "MTP head"]
    assert {one.temperature for one in found} == {1.0, 0.7, 0.0}
    for told in (one.counters for one in found if one.drafts == 1):
        assert told["calls"] == 2 * told["steps"] - told["accepted"]
    for told in (one.counters for one in found if one.drafts > 1):
        assert told["steps"] < told["calls"] <= 2 * told["steps"]


def _rates(engine):
    """The share of accepted drafts by name, most drafts and temperature."""
    return {
        (one.name, one.drafts, one.temperature): one.counters["accepted"] / one.counters["drafted"]
        for one in RECORDS[engine]["results"]
        if one.name.startswith(("DFlash 2", "MTP head", "draft model"))
    }


def test_a_head_drafts_as_the_draft_model_where_no_model_looks_back():
    """Greedy texts are of the pair that does, and this head misses their prompts."""
    rates = _rates("onnxruntime_genai")
    keys = [key[1:] for key in rates if key[0] == "MTP head"]
    assert len(keys) == 6
    for key in keys:
        head, model = rates["MTP head", *key], rates["draft model", *key]
        assert abs(head - model) < 0.02 if key[1] else head < 0.7 * model
        assert rates["MTP head, requests", *key] < head / 3
    says("docs/engines_run.md", "less than a third of the drafts accepted that rejection accepts")


def test_a_head_that_has_seen_the_prompt_drafts_as_the_draft_model():
    """Its target is of another architecture, and so other greedy texts are written."""
    rates = _rates("llama_cpp")
    heads = [key for key in rates if key[0].startswith("MTP head")]
    assert len(heads) == 5
    for name, *key in heads:
        model = rates[name.replace("MTP head", "draft model"), *key]
        assert abs(rates[name, *key] - model) < (0.005 if key[1] else 0.1)


def test_a_block_drafter_accepts_as_its_proposals_are_made():
    """Its walks are the draft model's; the likeliest ones are what a head in this engine drafts."""
    rates = _rates("onnxruntime_genai")
    keys = [key[1:] for key in rates if key[0] == "DFlash 2" and key[2]]
    assert {heat for _, heat in keys} == {1.0, 0.7}
    for key in keys:
        lattice, head = rates["DFlash 2", *key], rates["MTP head, requests", *key]
        assert abs(lattice - rates["draft model", *key]) < 0.02
        assert abs(rates["DFlash 2, greedy path", *key] - head) < 0.005
        assert 5 < lattice / head < 7.1
    says("docs/engines_run.md", "five to seven times as many drafts")


def test_every_step_is_a_value_of_the_latency_s_histogram():
    """Without drafts a step writes a token, so vLLM's own counter leaves out most steps."""
    found = [one for one in RECORDS["vllm"]["results"] if one.name in ("n-grams", "suffixes")]
    assert len(found) == 6
    for one in found:
        told = one.counters
        assert told["steps"] < told["rounds"] <= one.tokens - one.texts
        assert one.tokens - one.texts <= told["rounds"] + told["accepted"]
        assert one.temperature == 0 or 1 / 9 < one.strange / one.texts < 0.51
    says("docs/engines_run.md", "An eighth to a half of the latter two's texts")


def test_requests_that_share_calls_accept_as_many_drafts():
    rates, beside = _rates("llama_cpp"), ", four requests at once"
    shared = [key for key in rates if key[0].endswith(beside)]
    assert {heat for *_, heat in shared} == {1.0, 0.7, 0.0}
    for name, *key in shared:
        assert abs(rates[name, *key] - rates[name.removesuffix(beside), *key]) < 0.01


def test_every_flag_is_said_to_be_what_its_run_found():
    text = (page.ROOT / "docs" / "howto" / "flags.md").read_text(encoding="utf-8")
    found = re.findall(r"\| (target's|\*\*biased\*\*)[^|]* \| run: (\w+), ([^|]+) \|", text)
    assert len(found) == text.count("| run: ") >= 13
    for law_of_text, engine, name in found:
        verdicts = {one.lossless for one in judged(engine) if one.result.name == name}
        assert verdicts - {None} == {law_of_text == "target's"}, (engine, name)


def _record(texts, result):
    """A record with these texts in the place of a result's."""
    size = len(RECORDS["llama_cpp"]["target"])
    counts = np.bincount(np.ravel_multi_index(texts.T, (size,) * DEPTH), minlength=size**DEPTH)
    return dataclasses.replace(result, sequences=" ".join(map(str, counts)), texts=len(texts))


@pytest.mark.parametrize("share, lossless", [(0.0, True), (0.5, False), (1.0, False)])
def test_verdict_on_texts_that_are_drawn_here(share, lossless):
    """A share of every row is the draft's; the interval holds the exact distance."""
    record, rng, texts = RECORDS["llama_cpp"], np.random.default_rng(8), 3_000
    result = next(found for found in record["results"] if found.temperature == 1)
    rows, other = (law(np.array(record[role]) / UNIT, 1.0) for role in ("target", "draft"))
    mixed = (1 - share) * rows + share * other
    found = np.empty((texts, DEPTH), dtype=int)
    last = np.full(texts, record["last"])
    for column in found.T:
        column[:] = last = (rng.random((texts, 1)) > mixed[last].cumsum(axis=1)).sum(axis=1)
    verdict = page.judge(record, _record(found, result))
    assert verdict.lossless == lossless
    pairs = [first[record["last"]][:, None] * first for first in (rows, mixed)]
    assert verdict.variation.high >= abs(pairs[0] - pairs[1]).sum() / 2
    triples = [pair[:, :, None] * first for pair, first in zip(pairs, (rows, mixed), strict=True)]
    assert verdict.variation.low <= abs(triples[0] - triples[1]).sum() / 2


def test_one_count_changed_by_hand_is_noticed():
    record = RECORDS["llama_cpp"]
    result = next(found for found in record["results"] if found.temperature > 0 and found.drafts)
    counts = result.sequences.split()
    counts[5] = str(int(counts[5]) + 1)
    with pytest.raises(ValueError, match="add up"):
        page.judge(record, dataclasses.replace(result, sequences=" ".join(counts)))
    for name in ("tokens", "accepted", "rounds"):
        shift = 1 if name == "tokens" else 5_000
        counters = result.counters | {name: result.counters[name] + shift}
        changed = page.judge(record, dataclasses.replace(result, counters=counters))
        assert changed.notes != page.judge(record, result).notes
    assert changed.agrees is False


def test_runners_know_their_engine_alone():
    """They run where nothing else is installed; what judges them runs where no engine is."""
    beside = {"numpy", "evidence", "__future__"} | sys.stdlib_module_names
    runners = sorted(RUNNERS.glob("[!_]*.py"))
    assert {path.stem for path in runners} == set(engines()) >= set(RECORDS)
    for path in (*runners, RUNNERS.parent / "recording.py", PAIR):
        text = path.read_text(encoding="utf-8")
        found = set(re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE)) - beside
        assert found <= WRITERS | ({path.stem, *ENGINES} if path in runners else set())
