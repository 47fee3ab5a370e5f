"""Traces: every form gives the truth back inside its bounds; nothing malformed, oversized or
outside the folder is read.
"""

import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load, save_file

import otm
from analysis.errors import AnalysisError
from analysis.trace.traces import (
    TraceSide,
    open_trace,
    top_log_probabilities,
    write_manifest,
    write_trace,
)
from otm import partial
from otm.partial import TopTokens
from tests.paths import ROOT

NUM_TOKENS, POSITIONS = 40, 30


@pytest.fixture
def laws():
    rng = np.random.default_rng(0)
    sides = [0.98 * rng.dirichlet(np.full(NUM_TOKENS, 0.1), size=POSITIONS) for _ in range(2)]
    return tuple(side + 0.02 * rng.dirichlet(np.ones(NUM_TOKENS), size=POSITIONS) for side in sides)


def write(path, laws, **changes):
    draft, target = laws
    fields = {
        "draft": top_log_probabilities(np.log(draft), 6),
        "target": top_log_probabilities(np.log(target), 8),
        "prompt": np.arange(len(draft)) // 7,
        "position": np.arange(len(draft)) % 7,
        "num_tokens": draft.shape[1],
        "metadata": {"draft_model": "small", "target_model": "</script>"},
    }
    write_trace(path, **(fields | changes))
    return path


def largest(trace, *, rows, start=0):
    """The certified upper end of one draft's optimum at every position from the start on."""
    batches = trace.batches(rows=rows, start=start)
    ends = [partial.optimal_acceptance(batch.pair, k=[1]).upper[0] for batch in batches]
    return np.concatenate([*ends, []])


def assert_encloses(trace, laws, rows=8):
    """Check that every position's truth is inside; return the mean width."""
    ends = [partial.optimal_acceptance(one.pair, k=[1, 4]) for one in trace.batches(rows=rows)]
    low = np.concatenate([one.lower for one in ends], axis=1)
    high = np.concatenate([one.upper for one in ends], axis=1)
    problem = otm.Problem(draft=laws[0], target=laws[1], law=otm.IID(1))
    true = otm.optimal_acceptance_curve(problem, k=[1, 4])
    assert low.shape == true.shape and (low <= true).all() and (true <= high).all()
    return float((high - low).mean())


def constant(value, *, count=1):
    """Lists of token 0 alone, so many times."""
    tokens = np.zeros((POSITIONS, count), dtype=np.int64)
    return TraceSide(tokens, np.full((POSITIONS, count), value), np.zeros(POSITIONS))


def test_round_trip(tmp_path, laws):
    trace = open_trace(write(tmp_path / "a.safetensors", laws))
    assert (trace.num_tokens, trace.num_positions) == (NUM_TOKENS, POSITIONS)
    assert trace.metadata["target_model"] == "</script>"
    assert_encloses(trace, laws)
    batches = list(trace.batches(rows=8))
    assert [len(batch.prompt) for batch in batches] == [8, 8, 8, 6]
    prompts = np.concatenate([batch.prompt for batch in batches])
    np.testing.assert_array_equal(prompts, np.arange(POSITIONS) // 7)
    wanted, found = TopTokens.of(laws[1][:8], m=8), batches[0].pair.target
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    # float32 keeps log-probabilities down to −32 to 2e-6; the stored bound is the largest error
    # made.
    np.testing.assert_allclose(found.probabilities, wanted.probabilities, rtol=2e-6)
    assert 0 < found.rounding < 2e-6


def test_the_same_content_is_the_same_bytes(tmp_path, laws):
    """And the library's own reader finds what was given, aligned, whatever the order of the
    metadata.
    """
    about = {f"key {i}": 'ü"\n' for i in range(9)}
    odd = tuple(side[:7] for side in laws)
    one = write(tmp_path / "one.safetensors", odd, metadata=about)
    two = write(tmp_path / "two.safetensors", odd, metadata=dict(reversed(about.items())))
    assert one.read_bytes() == two.read_bytes()
    side = top_log_probabilities(np.log(odd[0]), 6)
    with safe_open(one, framework="np") as stored:
        assert stored.metadata()["key 3"] == 'ü"\n'
        for name, values in (
            ("position", np.arange(7)),
            ("draft.log_tail", side.log_tail.astype(np.float32)),
            ("draft.tokens", side.tokens),
        ):
            np.testing.assert_array_equal(stored.get_tensor(name), values)


def test_reading_on_from_the_middle(tmp_path, laws):
    names = ["s-0.safetensors", "s-1.safetensors"]
    for name, part in zip(names, (slice(0, 13), slice(13, POSITIONS)), strict=True):
        # The second shard lists fewer tokens: a batch that spans both is padded.
        listed = top_log_probabilities(np.log(laws[0][part]), 3 if part.start else 6)
        write(tmp_path / name, (laws[0][part], laws[1][part]), draft=listed)
    write_manifest(tmp_path, names)
    trace = open_trace(tmp_path)
    assert trace.num_positions == POSITIONS
    assert_encloses(trace, laws)
    assert [len(batch.prompt) for batch in trace.batches(rows=8)] == [8, 8, 8, 6]
    whole = largest(trace, rows=5)
    for start in (0, 4, 13, 20, 29, 30, 99):
        # Padding changes the slack, by units of roundoff.
        np.testing.assert_allclose(largest(trace, rows=5, start=start), whole[start:], atol=1e-12)


def test_paths_are_kept_or_refused(tmp_path, laws):
    paths = np.linspace([0.0, 0.9, 1.0], [2.0, 0.9, 1.0], POSITIONS)
    trace = open_trace(write(tmp_path / "a.safetensors", laws, paths=paths))
    found = np.concatenate([batch.path for batch in trace.batches(rows=8)])
    np.testing.assert_array_equal(found, paths)
    for number, wrong in enumerate((paths[:, :2], paths[:-1], -paths, paths * np.nan)):
        with pytest.raises(AnalysisError, match="path"):
            write(tmp_path / f"{number}.safetensors", laws, paths=wrong)
    write(tmp_path / "b.safetensors", laws)
    write_manifest(tmp_path, ["a.safetensors", "b.safetensors"])
    with pytest.raises(AnalysisError, match="which path"):
        open_trace(tmp_path)


def test_tails_keep_their_digits():
    logs = np.log(np.array([[0.5, 0.5 - 3e-12, 1e-12, 2e-12]]))
    side = top_log_probabilities(logs, 2)
    assert math.exp(side.log_tail[0]) == pytest.approx(3e-12, rel=1e-9)
    full = top_log_probabilities(np.array([[0.0, -np.inf]]), 2)
    assert full.tokens.tolist() == [[0, -1]]
    assert full.log_tail.tolist() == [-np.inf]


def test_nothing_is_overwritten_or_left_behind(tmp_path, laws):
    path = write(tmp_path / "a.safetensors", laws)
    before = path.read_bytes()
    with pytest.raises(AnalysisError, match="must be new"):
        write(path, laws)
    assert path.read_bytes() == before
    with pytest.raises(AnalysisError, match="could not be written"):
        write(tmp_path / "missing" / "a.safetensors", laws)
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": np.zeros(3, dtype=np.int64)}, "one row per position"),
        ({"num_tokens": 5}, "no distributions"),
        ({"metadata": {"rounding": "0"}}, "format's keys"),
        ({"rounding": 2.0}, "0 to 0.1"),
        ({"draft": constant(-1.0, count=2)}, "twice"),
        ({"draft": constant(np.nan)}, "finite"),
        ({"draft": constant(0.5)}, "≤ 0"),
        ({"draft": constant(-1.0)}, "sum to 1"),
    ],
    ids=["length", "V", "metadata", "rounding", "duplicate", "nan", "positive", "sum"],
)
def test_what_is_no_trace_is_not_written(
    tmp_path,
    laws,
    change,
    message,
):
    with pytest.raises(AnalysisError, match=message):
        write(tmp_path / "a.safetensors", laws, **change)
    assert list(tmp_path.iterdir()) == []


def test_hostile_headers(tmp_path, laws):
    good = write(tmp_path / "good.safetensors", laws).read_bytes()
    bad = tmp_path / "bad.safetensors"
    # A header that claims a terabyte of positions over a file of a few bytes.
    claim = {"prompt": {"dtype": "I64", "shape": [2**37], "data_offsets": [0, 2**40]}}
    header = json.dumps(claim).encode()
    for blob in (
        b"",
        b"\x00" * 4,
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 2**24) + b" " * 100,
        good[:-5],
        good + b"x",
        struct.pack("<Q", len(header)) + header,
    ):
        bad.write_bytes(blob)
        with pytest.raises(AnalysisError, match="safetensors file"):
            open_trace(bad)


def test_other_tensors_types_and_schemas(tmp_path, laws):
    tensors = load(write(tmp_path / "good.safetensors", laws).read_bytes())
    own = {"format": "otm-trace", "schema": "1", "num_tokens": "40", "rounding": "1e-6"}
    wide = tensors | {"draft.log_tail": tensors["draft.log_tail"].astype(np.float64)}
    short = {name: value for name, value in tensors.items() if name != "target.log_tail"}
    cases = [
        (tensors, own | {"schema": "2"}, "schema 1"),
        (tensors, {}, "format"),
        (tensors, own | {"num_tokens": "9" * 5000}, "num_tokens"),
        (tensors, own | {"num_tokens": "-4"}, "num_tokens"),
        (tensors, own | {"rounding": "nan"}, "rounding"),
        (wide, own, "float32"),
        (short, own, "must hold the tensors"),
        (tensors | {"extra": tensors["prompt"]}, own, "must hold the tensors"),
    ]
    for i, (content, metadata, message) in enumerate(cases):
        save_file(content, tmp_path / f"{i}.safetensors", metadata=metadata)
        with pytest.raises(AnalysisError, match=message):
            open_trace(tmp_path / f"{i}.safetensors")
    tensors["draft.log_probabilities"][17, 2] = np.nan
    save_file(tensors, tmp_path / "nan.safetensors", metadata=own)
    # values count when they are read, and the position is named
    trace = open_trace(tmp_path / "nan.safetensors")
    with pytest.raises(AnalysisError, match=r"draft at position 17 of the trace"):
        list(trace.batches(rows=8))


def test_paths_never_lead_outside(tmp_path, laws):
    outside = write(tmp_path / "outside.safetensors", laws)
    folder = tmp_path / "trace"
    folder.mkdir()
    (folder / "link.safetensors").symlink_to(outside)
    (folder / "sub").mkdir()
    for name in (
        "../outside.safetensors",
        str(outside),
        "link.safetensors",
        "sub",
        "none.safetensors",
        "",
        7,
        None,
        "a" * 5_000,
        "a\0b",
        ".",
    ):
        manifest = {"format": "otm-trace", "schema": 1, "form": "safetensors", "files": [name]}
        (folder / "trace.json").write_text(json.dumps(manifest), encoding="utf-8")
        with pytest.raises(AnalysisError, match="folder"):
            open_trace(folder)
    with pytest.raises(AnalysisError, match="outside"):
        write_manifest(folder, ["../outside.safetensors"])


GOOD = {"format": "otm-trace", "schema": 1, "form": "jsonl", "draft": "d", "target": "d"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "readable"),
        ("[" * 100_000, "readable"),
        ("[]", "manifest"),
        (json.dumps(GOOD | {"schema": 2}), "schema"),
        (json.dumps(GOOD | {"form": "pickle"}), "form 'safetensors' or 'jsonl'; got 'pickle'"),
        (json.dumps(GOOD | {"form": ["jsonl"]}), "form"),
        (json.dumps({key: value for key, value in GOOD.items() if key != "form"}), "form"),
        (json.dumps(GOOD | {"num_tokens": True}), "num_tokens"),
        (json.dumps(GOOD | {"rounding": "much"}), "rounding"),
        (json.dumps(GOOD | {"metadata": {"a": 1}}), "metadata"),
        (json.dumps(GOOD | {"form": "safetensors"}), "files"),
        (json.dumps(GOOD | {"rounding": 10**400}), "rounding"),
        (json.dumps(GOOD | {"draft": "d" * 5_000}), "regular file"),
        (json.dumps(GOOD | {"metadata": {"model": "\ud800"}}), "surrogate"),
        (json.dumps(GOOD)[:-1] + ', "draft": "e"}', "'draft' is there twice"),
        (" " * (1 << 21), "larger"),
    ],
    ids=range(16),
)
def test_manifests_that_are_none(tmp_path, text, message):
    (tmp_path / "d").write_text("", encoding="utf-8")
    (tmp_path / "trace.json").write_text(text, encoding="utf-8")
    with pytest.raises(AnalysisError, match=message):
        open_trace(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "n" * 5_000], ids=["nowhere", "long"])
def test_a_trace_that_is_not_there_is_told(tmp_path, name):
    with pytest.raises(AnalysisError, match="neither"):
        open_trace(tmp_path / name)


def test_a_manifest_that_is_a_link_out_or_a_device_is_not_opened(tmp_path):
    """/dev/zero would never end."""
    folder = tmp_path / "trace"
    folder.mkdir()
    outside = jsonl_trace(tmp_path, [], [])
    for place in (Path("/dev/zero"), outside / "trace.json", folder / "trace.json"):
        (folder / "trace.json").unlink(missing_ok=True)
        (folder / "trace.json").symlink_to(place)
        with pytest.raises(AnalysisError, match=r"outside its folder|regular file"):
            open_trace(folder)


# One line of each shape for one prompt; `order` ranks the tokens of a position, `sampled` is listed
# besides.


def vllm_line(laws, m, sampled, *, ranks=True):
    entries = [None]
    for law, token in zip(laws, sampled, strict=True):
        order = np.argsort(-law).tolist()
        listed = dict.fromkeys([token, *order[:m]])  # vLLM puts the prompt's own token first
        entries.append(
            {
                str(t): {
                    "logprob": math.log(law[t]),
                    "rank": order.index(t) + 1 if ranks else None,
                    "decoded_token": "x",
                }
                for t in listed
            }
        )
    return {"choices": [{"text": "", "prompt_logprobs": entries}]}


def chat_line(laws, m, sampled, *, first=False):
    def item(law, token):
        return {"token": f"t{token}", "bytes": [token, 255], "logprob": math.log(law[token])}

    content = []
    for law, token in zip(laws, sampled, strict=True):
        order = np.argsort(-law).tolist()
        listed = list(dict.fromkeys([token, *order]))[:m] if first else order[:m]
        content.append(item(law, token) | {"top_logprobs": [item(law, t) for t in listed]})
    return {"choices": [{"index": 0, "logprobs": {"content": content, "refusal": None}}]}


def completion_line(laws, m, sampled, *, prefix="token_id:"):
    tops = []
    for law, token in zip(laws, sampled, strict=True):
        listed = dict.fromkeys([*np.argsort(-law).tolist()[:m], token])
        tops.append({f"{prefix}{t}": math.log(law[t]) for t in listed})
    tokens = [f"{prefix}{t}" for t in sampled]
    own = [math.log(law[t]) for law, t in zip(laws, sampled, strict=True)]
    return {
        "choices": [
            {
                "logprobs": {
                    "tokens": tokens,
                    "token_logprobs": own,
                    "top_logprobs": tops,
                    "text_offset": [0] * len(tops),
                }
            }
        ]
    }


SHAPES = {
    "vllm": vllm_line,
    "vllm without ranks": lambda laws, m, sampled: vllm_line(laws, m, sampled, ranks=False),
    "chat": chat_line,
    "chat, sampled first": lambda laws, m, sampled: chat_line(laws, m, sampled, first=True),
    "batch answer": lambda laws, m, sampled: {
        "custom_id": "1",
        "response": {"status_code": 200, "body": chat_line(laws, m, sampled)},
    },
    "completions": completion_line,
    "completions by text": lambda laws, m, sampled: completion_line(laws, m, sampled, prefix="w"),
}


def jsonl_trace(folder, draft, target, **manifest):
    for name, lines in (("draft.jsonl", draft), ("target.jsonl", target)):
        text = "".join(
            (line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines
        )
        (folder / name).write_text(text, encoding="utf-8")
    head = {
        "format": "otm-trace",
        "schema": 1,
        "form": "jsonl",
        "draft": "draft.jsonl",
        "target": "target.jsonl",
    }
    (folder / "trace.json").write_text(json.dumps(head | manifest), encoding="utf-8")
    return folder


def chat_bytes(spelled):
    """One position of a chat completion whose token is spelled so."""
    item = {"token": "a", "bytes": spelled, "logprob": -1.0}
    return {"choices": [{"logprobs": {"content": [item | {"top_logprobs": [item]}]}}]}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_truth_is_inside(tmp_path, laws, shape):
    # The sampled token is the least likely of all at every third position: a reader that takes
    # the least listed value for the cap would then exclude the truth. Three prompts of ten
    # positions.
    rng = np.random.default_rng(1)
    sampled = [
        int(np.argmin(law)) if i % 3 == 0 else int(rng.integers(NUM_TOKENS))
        for i, law in enumerate(laws[0])
    ]
    sides = [
        [SHAPES[shape](law[i : i + 10], 6, sampled[i : i + 10]) for i in range(0, POSITIONS, 10)]
        for law in laws
    ]
    trace = open_trace(jsonl_trace(tmp_path, *sides, num_tokens=256, rounding=1e-9))
    assert trace.num_positions is None
    width = assert_encloses(trace, laws)
    batches = list(trace.batches(rows=1000))
    assert batches[0].prompt.tolist() == [i // 10 for i in range(POSITIONS)]
    assert batches[0].position.tolist() == [
        i % 10 + shape.startswith("vllm") for i in range(POSITIONS)
    ]
    # The lists do narrow the answer, although two vocabularies of 40 and four drafts leave much
    # open.
    assert width < 0.6
    whole = largest(trace, rows=1000)
    np.testing.assert_allclose(largest(trace, rows=4, start=11), whole[11:], atol=1e-13)


def test_only_positions_of_one_context_are_compared(tmp_path, laws):
    same, other = [0, 1, 2, 3, 4], [0, 1, 9, 3, 4]
    lines = [chat_line(law[:5], 6, tokens) for law, tokens in zip(laws, (same, other), strict=True)]
    (batch,) = open_trace(jsonl_trace(tmp_path, lines[:1], lines[1:])).batches()
    assert batch.position.tolist() == [0, 1, 2]


def test_unlikely_and_ambiguous_entries_are_not_listed(tmp_path):
    listed = {"a": math.log(0.5), "�": math.log(0.2), "b": -9999.0}
    tops = [{"token": t, "bytes": None, "logprob": value} for t, value in listed.items()]
    tops.insert(2, tops[1] | {"logprob": math.log(0.1)})
    line = {"choices": [{"logprobs": {"content": [tops[0] | {"top_logprobs": tops}]}}]}
    (batch,) = open_trace(jsonl_trace(tmp_path, [line], [line])).batches()
    assert batch.pair.draft.tokens.tolist() == [[0]]
    assert batch.pair.draft.cap[0] == pytest.approx(0.2, rel=1e-5)
    assert batch.pair.draft.tail[0] == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("draft", "target", "message"),
    [
        (["{"], ["{"], "JSON in UTF-8"),
        (["[" * 200_000], ["[]"], "JSON in UTF-8"),
        (
            [{"prompt_logprobs": [{"1": -1.0}]}] * 7,
            [{"prompt_logprobs": [{"1": -1.0}]}] * 8,
            r"draft\.jsonl ends after 7 lines, target\.jsonl goes on\. Give a line per prompt "
            r"in both\.",
        ),
        (
            [{"prompt_logprobs": []}] * 2,
            [{"prompt_logprobs": []}],
            r"target\.jsonl ends after 1 line, draft\.jsonl goes on",
        ),
        ([{"choices": [{}, {}]}], [{}], "n = 1"),
        (
            [{"prompt_logprobs": [{"1": {"logprob": "x"}}]}],
            [{"prompt_logprobs": [{"1": -1.0}]}],
            "numbers ≤ 0",
        ),
        (
            [{"prompt_logprobs": [{"1": {"logprob": 0.7}}]}],
            [{"prompt_logprobs": [{"1": -1.0}]}],
            "numbers ≤ 0",
        ),
        (
            ['{"prompt_logprobs": [{"1": NaN}]}'],
            [{"prompt_logprobs": [{"1": -1.0}]}],
            "NaN is no number",
        ),
        (
            ['{"prompt_logprobs": [{"1": -Infinity}], "created": Infinity}'],
            [{}],
            "Infinity is no number",
        ),
        (
            [{"prompt_logprobs": [{"-1": -1.0}]}],
            [{"prompt_logprobs": [{"1": -1.0}]}],
            "by number",
        ),
        (
            [{"prompt_logprobs": [{"1": -1.0}]}],
            [{"prompt_logprobs": [{"1": -1.0}, None]}],
            "same positions",
        ),
        ([{"prompt_logprobs": [{"1": -1.0}]}], [{"prompt_logprobs": [None]}], "in one of"),
        (
            [{"prompt_logprobs": [{"1": -0.1, "2": -0.2}]}],
            [{"prompt_logprobs": [{"1": -1.0}]}],
            "no distributions",
        ),
        (
            [{"prompt_logprobs": [{"99": -0.1}]}],
            [{"prompt_logprobs": [{"1": -1.0}]}],
            "no distributions",
        ),
        (
            [{"logprobs": {"content": [{"token": "a"}]}}],
            [{"logprobs": {"content": []}}],
            "top_logprobs",
        ),
        (
            [{"logprobs": {"top_logprobs": [{"a": -1.0, "token_id:3": -2.0}]}}],
            [{"logprobs": {"top_logprobs": [{"a": -1.0}]}}],
            "all by",
        ),
        (
            [{"prompt_logprobs": [{"1": -1.0}]}],
            [{"logprobs": {"top_logprobs": [{"a": -1.0}]}}],
            "both by text",
        ),
        (['{"prompt_logprobs": [{"1": -1.0, "1": -2.0}]}'], [{}], "'1' is there twice"),
        (
            [{"prompt_logprobs": [{"1": {"logprob": -1.0, "rank": -3}}]}],
            [{}],
            "rank tokens from 1 on.*got -3",
        ),
        (
            [{"prompt_logprobs": [{"1": {"logprob": -1.0, "rank": True}}]}],
            [{}],
            "rank tokens from 1 on",
        ),
        ([{"prompt_logprobs": [{"1": 10**400}]}], [{}], "numbers ≤ 0"),
        ([chat_bytes([300])], [{}], r"bytes from 0 to 255, or null; got \[300\]"),
        ([chat_bytes([True])], [{}], "bytes from 0 to 255"),
        ([chat_bytes("a")], [{}], "bytes from 0 to 255"),
    ],
)
def test_lines_that_are_no_lists(tmp_path, draft, target, message):
    trace = open_trace(jsonl_trace(tmp_path, draft, target, num_tokens=50))
    with pytest.raises(AnalysisError, match=message):
        list(trace.batches())


def test_a_number_below_all_floats_is_very_unlikely(tmp_path):
    line = {"prompt_logprobs": [{"1": -0.1, "2": -(10**400)}]}
    (batch,) = open_trace(jsonl_trace(tmp_path, [line], [line])).batches()
    assert batch.pair.draft.tokens.tolist() == [[1]]


def test_batches_too_large_to_hold_are_refused(tmp_path, laws, monkeypatch):
    monkeypatch.setattr("analysis.trace.base._MOST_ENTRIES", 100)
    stored = open_trace(write(tmp_path / "a.safetensors", laws))
    lines = [chat_line(law, 6, [0] * POSITIONS) for law in laws]
    for trace in (stored, open_trace(jsonl_trace(tmp_path, lines[:1], lines[1:]))):
        with pytest.raises(AnalysisError, match="Ask for fewer rows"):
            list(trace.batches(rows=POSITIONS))
        assert sum(len(batch.prompt) for batch in trace.batches(rows=4)) == POSITIONS


def test_not_utf8_and_too_long(tmp_path, monkeypatch):
    folder = jsonl_trace(tmp_path, [{}], [{}])
    (folder / "draft.jsonl").write_bytes(b"\xff\xfe{}\n")
    with pytest.raises(AnalysisError, match=r"Line 1 of draft\.jsonl must be JSON in UTF-8"):
        list(open_trace(folder).batches())
    monkeypatch.setattr("analysis.trace.lines._LONGEST_LINE", 10)
    (folder / "draft.jsonl").write_bytes(b" " * 50)
    with pytest.raises(AnalysisError, match="longer than 10 bytes"):
        list(open_trace(folder).batches())


def test_the_documented_example_runs(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    example = text.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/traces.md", "exec"), {})
    assert capsys.readouterr().out.count("PartialPair(shape=(32,), num_tokens=1000)") == 2
    blocks = [json.loads(block.split("```")[0]) for block in text.split("```json\n")[1:]]
    lines = [block for block in blocks if "choices" in block]
    assert len(lines) == 3
    for line in lines:
        trace = open_trace(jsonl_trace(tmp_path, [line], [line], num_tokens=128_256))
        assert largest(trace, rows=9) == pytest.approx(1.0, abs=1e-4)
        (batch,) = trace.batches()
        assert batch.pair.draft.probabilities[0, 0] == pytest.approx(math.exp(-0.51), rel=1e-9)
