"""Logs: the level over many contexts, what is found, and a reader that trusts nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import otm
from otm.audit import InvalidRecord, Record, audit_log, audit_records, parse_record, read_log


def served(verifier: otm.Verifier, count: int, *, num_tokens: int = 12, seed: int = 0) -> Iterator[dict[str, Any]]:
    """A log in which every context is new."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        p = rng.dirichlet(np.full(num_tokens, 0.4))
        q = 0.5 * p + 0.5 * rng.dirichlet(np.full(num_tokens, 0.4))
        samples = otm.sample(verifier, otm.Problem(draft=p, target=q, law=otm.IID(1)), size=1, rng=rng)
        drafts, output = samples.drafts[0].tolist(), int(samples.output[0])
        yield {"context": f"r{i}", "drafts": drafts, "draft": p.tolist(), "target": q.tolist(), "output": output}


def records(lines: Iterator[dict[str, Any]]) -> Iterator[Record]:
    return (parse_record(json.dumps(line), i) for i, line in enumerate(lines, start=1))


def test_a_lossless_server_raises_no_alarm_and_a_lenient_one_does(tmp_path: Path) -> None:
    for verifier, verdict in [(otm.Maximal(), "no difference found"), (otm.Lenience(0.5), "not lossless")]:
        file = tmp_path / "log.jsonl"
        file.write_text("\n".join(json.dumps(line) for line in served(verifier, 500)) + "\n\n", encoding="utf-8")
        audit = audit_log(file, law=otm.IID(1))
        assert audit.verdict == verdict
        assert (audit.records, audit.name) == (500, "log.jsonl")
        assert audit.membership is not None
        assert audit.optimum is not None
        assert (audit.membership.low <= audit.optimum <= audit.membership.high) == (verdict == "no difference found")
        assert str(audit).startswith(f"## `log.jsonl`: {verdict}")


def test_found_without_the_draft_law_too() -> None:
    """Only targets and outputs are logged; the output is the target's favourite too often."""
    rng = np.random.default_rng(1)

    def greedy(count: int, sharpness: float) -> Iterator[dict[str, Any]]:
        for _ in range(count):
            q = rng.dirichlet(np.full(8, 0.5))
            sharp = q**sharpness / (q**sharpness).sum()
            yield {"target": q.tolist(), "output": int(rng.choice(8, p=sharp))}

    assert audit_records(records(greedy(800, 1.0))).verdict == "no difference found"
    found = audit_records(records(greedy(800, 2.0)))
    assert found.verdict == "not lossless"
    assert found.membership is None


def test_the_level_is_what_it_says() -> None:
    """Outputs drawn from the logged target over changing contexts; a correct test breaks a bound with probability 1e-9."""
    rng, runs, length, highest = np.random.default_rng(2), 150, 40, []
    for _ in range(runs):
        run = []
        for p, q, u in zip(
            rng.dirichlet(np.ones(4), length), rng.dirichlet(np.ones(4), length), rng.random(length), strict=True
        ):
            output = int(np.searchsorted(np.cumsum(q), u * q.sum(), side="right"))
            run.append(Record("", np.array([0]), np.append(q, 0.0), np.append(p, 0.0), np.arange(4), output))
        highest.append(audit_records(run).log_e_value)
    for level in (0.1, 1e-2, 1e-3):
        assert sum(value >= math.log(1 / level) for value in highest) <= binom.isf(1e-9, runs, level)
    assert max(highest) > 0.5  # the evidence moves at all


def test_the_bound_on_the_variation_holds() -> None:
    """The outputs come from the draft: the mean variation is known exactly from the contexts."""
    rng = np.random.default_rng(3)
    pairs = [(rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5))) for _ in range(800)]
    lines = ({"draft": p.tolist(), "target": q.tolist(), "output": int(rng.choice(5, p=p))} for p, q in pairs)
    audit = audit_records(records(lines))
    truth = float(np.mean([0.5 * np.abs(p - q).sum() for p, q in pairs]))
    assert 0.5 * truth < audit.variation_above <= truth


def test_an_impossible_token_is_an_alarm_by_itself() -> None:
    audit = audit_records([parse_record('{"output": 1, "target": [1.0, 0.0]}', 1)])
    assert (audit.verdict, audit.alarm_at, audit.log_e_value) == ("not lossless", 1, math.inf)


def test_laws_in_part_are_brought_together() -> None:
    line = {
        "target": {"tokens": [3, 8, 1], "probabilities": [0.6, 0.3, 0.05], "tail": 0.05},
        "draft": {"tokens": [8, 3, 7], "probabilities": [0.5, 0.25, 0.125], "tail": 0.125},
        "output": 7,
        "drafts": [7],
    }
    record = parse_record(json.dumps(line), 1)
    assert record.tokens.tolist() == [3, 8]
    np.testing.assert_allclose(record.target, [0.6, 0.3, 0.1])
    assert record.draft is not None
    np.testing.assert_allclose(record.draft, [0.25, 0.5, 0.25])
    assert record.cell == 2
    # A complete law knows the other's tokens: their probability is 0, not unknown.
    full = parse_record(json.dumps({**line, "draft": [0.0, 0.5, 0.0, 0.25, 0, 0, 0, 0, 0.25]}), 1)
    assert full.tokens.tolist() == [3, 8, 1]
    assert full.draft is not None
    np.testing.assert_allclose(full.draft, [0.25, 0.25, 0.5, 0.0], atol=1e-15)


GOOD = {"output": 0, "target": [0.5, 0.5]}
BAD = [
    "",
    "{",
    "[]",
    "7",
    '{"output": 0}',
    '{"target": [1.0]}',
    '{"output": 0, "target": [NaN, 1.0]}',
    '{"output": 0, "target": [Infinity, 1.0]}',
    '{"output": 0, "target": [1e999, 1.0]}',
    '{"output": 0, "target": [0.5, 0.4]}',
    '{"output": 0, "target": [1.5, -0.5]}',
    '{"output": 0, "target": []}',
    '{"output": 0, "target": "/etc/passwd"}',
    '{"output": 0, "target": [[1.0]]}',
    '{"output": 0, "target": [true, 0.0]}',
    '{"output": 0.5, "target": [1.0]}',
    '{"output": -1, "target": [1.0]}',
    '{"output": true, "target": [0.5, 0.5]}',
    '{"output": 99999999999, "target": [1.0]}',
    '{"output": 0, "target": [1.0], "drafts": [-1]}',
    '{"output": 0, "target": [1.0], "drafts": 3}',
    '{"output": 0, "target": [1.0], "file": "x"}',
    '{"output": 0, "target": {"tokens": [1, 1], "probabilities": [0.5, 0.5]}}',
    '{"output": 0, "target": {"tokens": [1], "probabilities": [0.5, 0.5]}}',
    '{"output": 0, "target": {"probabilities": [1.0]}}',
    '{"output": 0, "target": ' + "[" * 5_000 + "]" * 5_000 + "}",
    '{"output": 0, "target": [' + "1" * 5_000 + "]}",
    "\xff\xfe",
]


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_what_is_no_record_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(InvalidRecord, match="Line 41 is no record"):
        parse_record(line, 41)


def test_the_reader_streams_and_bounds_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "log.jsonl"
    monkeypatch.setattr("otm.audit.records.LONGEST_LINE", 200)
    file.write_text(json.dumps(GOOD) + "\n" + "x" * 500, encoding="utf-8")
    stream = read_log(file)
    assert next(stream).output == 0  # the first record is there before the second is read
    with pytest.raises(InvalidRecord, match="Line 2: lines must be at most 200 bytes"):
        next(stream)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for path in (tmp_path / "absent", tmp_path, Path("/dev/zero"), empty):
        with pytest.raises(otm.errors.InvalidParameter):
            audit_log(path)


class TestUnlistedTokens:
    """The tail is many tokens: it must neither be taken for 0 nor for one likely token."""

    @pytest.mark.parametrize("law", [otm.TopK(1), otm.TopK(2), otm.Greedy(2)])
    def test_a_heavy_tail_is_not_the_likeliest_token(self, law: otm.Law) -> None:
        # p = (.2, .15, 13 tokens of .05): token 0 is always drafted, and q = (1, 0, …) always accepts it.
        part = {"tokens": [0, 1], "tail": 0.65, "probabilities": [0.2, 0.15]}
        target = {"tokens": [0, 1], "tail": 0.0, "probabilities": [1.0, 0.0]}
        line = json.dumps({"drafts": [0, 7][: law.k], "draft": part, "target": target, "output": 0})
        audit = audit_records((parse_record(line, i) for i in range(1, 301)), law=law)
        assert audit.verdict == "no difference found"

    def test_more_drafts_than_listed_tokens(self) -> None:
        part = {"tokens": [0], "probabilities": [0.2], "tail": 0.8}
        line = json.dumps({"drafts": [0, 7, 3], "draft": part, "target": part, "output": 7})
        assert audit_records([parse_record(line, 1)], law=otm.WithoutReplacement(3)).optimum == 1.0

    def test_different_drafters_have_no_place_in_a_record(self) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="one draft distribution"):
            audit_records([parse_record('{"output": 0, "target": [0.5, 0.5]}', 1)], law=otm.Product(2))

    @pytest.mark.parametrize(
        "line",
        [
            '{"output": 5, "target": {"tokens": [0, 1], "probabilities": [0.6, 0.39998]}}',  # a tail left out
            '{"output": 0, "output": 1, "target": [0.5, 0.5]}',
        ],
    )
    def test_ambiguous_records_are_refused(self, line: str) -> None:
        with pytest.raises(InvalidRecord):
            parse_record(line, 1)
