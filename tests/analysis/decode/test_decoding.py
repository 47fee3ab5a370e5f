"""Decoding runs: results survive kills and torn lines, equal an uninterrupted run, and refuse what
does not fit.
"""

import json
import os

import numpy as np
import pytest

import otm
from analysis.decode.decode_run import run_tasks
from analysis.decode.decoder_text import decoder_from_text
from analysis.decode.efficiency import efficiency, measured_speedup
from analysis.decode.plain import PLAIN, decode_text
from analysis.decode.results import ResultsFile, Task, TextRecord, open_results, prompt_name
from analysis.errors import AnalysisError
from analysis.files import held
from otm.sequence import (
    DraftSelection,
    Ersd,
    Gsd,
    MarkovModel,
    PrefixTree,
    SpeculativeSampling,
    TreeVerification,
    markov_pair,
)
from otm.trees import TreeShape

DECODERS = {
    "SpeculativeSampling(3)": SpeculativeSampling(3),
    "Gsd(batch(2))": Gsd(TreeShape.batch(2)),
}
PROMPTS = {prompt_name(tokens): tokens for tokens in ([0], [1, 2], [2, 2])}
TASKS = [Task(name, prompt, seed) for prompt in PROMPTS for seed in (0, 1) for name in DECODERS]


def decode(path, tasks=TASKS, **changes):
    draft, target = markov_pair(4, similarity=0.5, rng=np.random.default_rng(3))
    results = ResultsFile(path, settings={"num_tokens": 12}, provenance={})
    options = {"draft": draft, "target": target, "num_tokens": 12, "eos": None} | changes
    run_tasks(tasks, decoders=DECODERS, prompts=PROMPTS, results=results, **options)
    return list(open_results(path)[1])


def values(records):
    """All that is determined by the task: everything but the time it took."""
    return [
        (r.task, r.tokens, r.lengths, r.accepted, r.vertices, r.drafted, r.ended) for r in records
    ]


def test_a_run_stopped_anywhere_goes_on_to_the_same_records(tmp_path):
    whole = decode(tmp_path / "whole.jsonl")
    assert len(whole) == len(TASKS)
    data = (tmp_path / "whole.jsonl").read_bytes()
    header = data.index(b"\n") + 1
    rng = np.random.default_rng(0)
    for cut in [header, len(data) - 1, *rng.integers(header, len(data), size=12).tolist()]:
        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(data[:cut])  # what a kill leaves: whole lines and part of one
        assert values(decode(torn)) == values(whole)


def test_a_failing_model_loses_nothing(tmp_path):
    path = tmp_path / "results.jsonl"
    _, target = markov_pair(4, similarity=0.5, rng=np.random.default_rng(3))

    class Failing:
        calls = 0
        num_tokens = 4

        def next_batch(self, contexts):
            self.calls += 1
            return target.next_batch(contexts) * (np.nan if self.calls > 25 else 1.0)

    with pytest.raises(AnalysisError, match="NaN or infinite") as caught:
        decode(path, target=Failing())
    kept = list(open_results(path)[1])
    assert 0 < len(kept) < len(TASKS)
    assert f"{len(kept)} records are safe" in str(caught.value)
    assert values(decode(path)) == values(decode(tmp_path / "whole.jsonl"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"format": "other"}\n', "not a results file"),
        (b"\x00\xff\xfe garbage without an end", "not a results file"),
        (
            b'{"format": "otm-decode", "version": 1, "settings": {"num_tokens": 13}, "provenance": '
            b"{}}\n",
            "num_tokens: 13 against 12",
        ),
        (
            b'{"format": "otm-decode", "version": 1, "settings": {"num_tokens": 12}}\n{"decoder": '
            b"3}\n",
            "not a results file",
        ),
    ],
)
def test_other_files_are_refused_and_kept(tmp_path, content, message):
    path = tmp_path / "results.jsonl"
    path.write_bytes(content)
    with pytest.raises(AnalysisError, match=message):
        decode(path)
    assert path.read_bytes() == content


def test_results_need_a_folder_and_do_not_wait_for_the_reader_of_a_pipe(tmp_path):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for place, message in (("file/results.jsonl", "can be written"), ("pipe", "regular file")):
        with pytest.raises(AnalysisError, match=message):
            decode(tmp_path / place)


def record(decoder, prompt, lengths, seconds=0.5):
    none = (0,) * len(lengths)
    task = Task(decoder, prompt_name([prompt]), 0)
    return TextRecord(task, none, lengths, none, none, 1, False, seconds)


def test_efficiency_weights_calls_and_clusters_by_prompt():
    found = efficiency(
        [record("a", 0, (1, 3)), record("a", 1, (2,)), record("b", 0, (9,))], decoder="a"
    )
    assert (found.tokens_per_call.value, found.num_calls, found.num_texts) == (2.0, 3, 2)
    # both prompts have the same ratio
    assert found.tokens_per_call.low == found.tokens_per_call.high == 2.0
    assert found.tokens_per_second == 6.0
    spread = efficiency([record("a", i, (1 + i % 2,)) for i in range(40)], decoder="a")
    # 40 prompts, half at 1 and half at 2: the one-sample t interval, 1.5 ± 2.0227 · 0.5/√39; t
    # quantile at 39 degrees of freedom.
    assert spread.tokens_per_call.low == pytest.approx(1.5 - 2.0227 * 0.5 / 39**0.5, abs=1e-4)
    assert spread.tokens_per_call.high == pytest.approx(1.5 + 2.0227 * 0.5 / 39**0.5, abs=1e-4)
    alone = efficiency([record("a", 0, (1, 3))], decoder="a").tokens_per_call
    assert alone.value == 2.0 and np.isnan([alone.low, alone.high]).all()
    with pytest.raises(AnalysisError, match="no record of c"):
        efficiency([], decoder="c")
    # two prompts, one at the least and one at the most: the t interval alone would be 2 ± 12.7
    label = "SpeculativeSampling(1)"
    found = efficiency([record(label, i, (1 + i,)) for i in range(2)], decoder=label)
    assert (found.tokens_per_call.low, found.tokens_per_call.high) == (1.0, 2.0)


def test_speed_is_measured_against_plain_decoding_of_the_same_prompts():
    """Plain decoding takes 1 s a token, the decoder ¾ s on average: 8 tokens in 6 s; a prompt
    without both counts nothing.
    """
    records = [record(PLAIN, n, (1, 1, 1, 1), 4.0) for n in (1, 2, 3)]
    records += [
        record("a", 1, (2, 2), 2.0),
        record("a", 2, (1, 3), 4.0),
        record("a", 9, (1,), 99.0),
    ]
    found = measured_speedup(records, decoder="a")
    value, low, high = found.value, found.low, found.high
    assert value == pytest.approx(4 / 3) and found.has_interval
    # Leaving one out gives log 1 and log 2: the jackknife's error is log(2)/2, t with one degree of
    # freedom 12.7062.
    assert high / value == pytest.approx(
        np.exp(12.7062047 * np.log(2) / 2)
    ) and value / low == pytest.approx(high / value)
    assert measured_speedup(records, decoder=PLAIN).value == pytest.approx(1.0)
    assert np.isnan(measured_speedup(records[2:4], decoder="a").value)
    alone = measured_speedup(records[:1] + records[3:4], decoder="a")
    assert alone.value == pytest.approx(2.0) and np.isnan([alone.low, alone.high]).all()


@pytest.mark.parametrize(
    ("decoder", "eos", "wanted"),
    [
        (None, 2, ((1, 2), True, 0)),
        (None, None, ((1, 2, 0, 1, 2), False, 0)),
        (SpeculativeSampling(2), 2, ((1, 2), True, 2)),
    ],
)
def test_decoding_ends_with_the_text(decoder, eos, wanted):
    """The tokens 1, 2, 0, 1, … are certain."""
    model, task = MarkovModel(np.eye(3)[[1, 2, 0]]), Task(PLAIN, prompt_name([0]), 0)
    how = {"draft": model, "target": model, "rng": np.random.default_rng(0)}
    text = decode_text(decoder, [0], **how, num_tokens=5, eos=eos, task=task)
    assert (text.tokens, text.ended, text.drafted) == wanted


@pytest.mark.parametrize(
    ("text", "decoder"),
    [
        ("SpeculativeSampling(4)", SpeculativeSampling(4)),
        (
            " SpeculativeSampling(length=4, verifier=Mentored(0.1)) ",
            SpeculativeSampling(4, otm.Mentored(0.1)),
        ),
        (
            "DraftSelection(2, 3, RecursiveRejection())",
            DraftSelection(2, 3, otm.RecursiveRejection()),
        ),
        ("PrefixTree((2, 1))", PrefixTree((2, 1))),
        ("Gsd(specinfer(5))", Gsd(TreeShape.specinfer(5))),
        ("Gsd(TreeShape.chain(4))", Gsd(TreeShape.chain(4))),
        ("Ersd(parents([0, 0, 1]))", Ersd(TreeShape([0, 0, 1]))),
        (
            "TreeVerification(batch(3), IID(1), Optimal())",
            TreeVerification(TreeShape.batch(3), otm.IID(1), otm.Optimal()),
        ),
    ],
)
def test_decoders_as_text(text, decoder):
    assert decoder_from_text(text) == decoder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no decoder"),
        ("SpeculativeSampling", "neither a literal nor a call"),
        ("KSeq()", "is a KSeq, not a decoder"),
        ("SpeculativeSampling(0)", "at least 1"),
        ("DraftSelection(0, 4)", "at least 1"),
        ("Gsd(parents([]))", "at least one drafted token"),
        ("Gsd(chain(2), **{})", r"\*\* is not allowed"),
        ("__import__('os').system('true')", "neither a literal nor a call"),
        ("eval('1')", "'eval' is unknown"),
        ("DraftSelction(4, 8)", "did you mean DraftSelection"),
        ("DraftSelection(4)", "missing a required argument: 'length'"),
        ("Gsd(8)", r"Write TreeShape.chain\(8\)"),
        ("Gsd(chain(8)", "never closed"),
        ("Gsd.__init__(1)", "neither a literal nor a call"),
        ("Gsd(tree('/etc/passwd'))", "'tree' is unknown"),
        ("Gsd(" * 3000 + ")" * 3000, "names no decoder"),
        ("SpeculativeSampling(2, Race(), 3)", "names no decoder"),
        ("Gsd([chain(2) for x in (1,)])", "neither a literal nor a call"),
    ],
)
def test_texts_that_name_no_decoder(text, message):
    with pytest.raises(AnalysisError, match=message):
        decoder_from_text(text)


def test_the_command_adds_plain_decoding_and_says_what_was_decoded_with(printed, tmp_path):
    prompts, out = tmp_path / "prompts.txt", tmp_path / "out.jsonl"
    prompts.write_text("Returns the value of\nThe default\n", encoding="utf-8")
    words = ("--decoder", "DraftSelection(2, 3)", "--num-tokens", "6", "--device", "cpu")
    shown = printed("decode", "--prompts", prompts, "--out", out, *words)
    assert "tokens/call" in shown and "x plain" in shown
    header, rows = open_results(out)
    records = list(rows)
    assert len(records) == 4
    for record in records:
        if record.task.decoder == PLAIN:
            assert record.num_calls == len(record.tokens)
            assert (record.drafted, sum(record.accepted)) == (0, 0)
    assert header["settings"]["weights"]["draft"] != header["settings"]["weights"]["target"]


def test_two_runs_do_not_write_to_one_place(refused, tmp_path):
    """One is told to wait, and what the other writes stays: of `decode` a file, of `train` both its
    folders.
    """
    out, prompts = tmp_path / "new" / "out.jsonl", tmp_path / "prompts.txt"
    prompts.write_text("\n\n".join("A text of some length. " * 40 for _ in range(60)))
    words = ("--decoder", "SpeculativeSampling(2)", "--num-tokens", "2", "--limit", "1")
    for _ in range(2):
        with held(out):
            told = refused("decode", "--prompts", prompts, "--out", out, *words)
        assert "another one does now. Wait for it." in told
        assert not out.exists()
    work, pair = tmp_path / "work", tmp_path / "pair"
    for place in (work, pair):
        with held(place):
            told = refused("train", "--corpus", prompts, "--work", work, "--out", pair)
        assert "another one does now. Wait for it." in told
        assert not work.exists() and not pair.exists()
    with held(pair, pair):
        pass


RECORD = {
    "decoder": "Gsd(chain(2))",
    "prompt": prompt_name([1]),
    "seed": 0,
    "tokens": [1, 2, 3],
    "lengths": [2, 1],
    "accepted": [1, 0],
    "vertices": [1, 0],
    "drafted": 2,
    "ended": False,
    "seconds": 0.5,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 0}, "there twice"),
        ({"tokens": "123"}, "no integer"),
        ({"lengths": [2, 1.5]}, "no integer"),
        ({"seed": -1}, "no integer"),
        ({"ended": "false"}, "ended"),
        ({"seconds": None}, "seconds"),
        ({"lengths": [1, 1]}, "add up"),
        ({"accepted": [1]}, "add up"),
        ({"prompt": "first"}, "hexadecimal"),
        ({"more": 1}, "fields"),
    ],
)
def test_records_that_no_run_wrote_are_refused(tmp_path, change, message):
    path = tmp_path / "results.jsonl"
    header = {"format": "otm-decode", "version": 1, "settings": {}, "provenance": {}}
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in (header, RECORD, RECORD | {"seed": 1} | change))
    )
    with pytest.raises(AnalysisError, match=message):
        list(open_results(path)[1])
