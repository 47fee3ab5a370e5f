"""Records: a reader that trusts nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from otm.audit.token_log import InvalidRecord, parse_record, read_log


def test_laws_in_part_are_brought_together() -> None:
    line = {
        "target": {"tokens": [3, 8, 1], "probabilities": [0.6, 0.3, 0.05], "tail": 0.05},
        "draft": {"tokens": [8, 3, 7], "probabilities": [0.5, 0.25, 0.125], "tail": 0.125},
        "output": 7,
        "drafts": [7],
    }
    record = parse_record(json.dumps(line), 1)
    assert (record.tokens.tolist(), record.cell) == ([3, 8], 2)
    laws = np.stack([record.target, record.draft])
    np.testing.assert_allclose(laws, [[0.6, 0.3, 0.1], [0.25, 0.5, 0.25]])
    # A complete law knows the other's tokens: their probability is 0, not unknown.
    full = parse_record(json.dumps({**line, "draft": [0.0, 0.5, 0.0, 0.25, 0, 0, 0, 0, 0.25]}), 1)
    assert full.tokens.tolist() == [3, 8, 1]
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
    '{"output": 0, "target": {"tokens": null, "probabilities": [1.0], "tail": 0.0}}',
    '{"output": 0, "target": {"tokens": [1, 1], "probabilities": [0.5, 0.5], "tail": 0.0}}',
    # a tail left out, and a key twice
    '{"output": 5, "target": {"tokens": [0, 1], "probabilities": [0.6, 0.39998]}}',
    '{"output": 0, "output": 1, "target": [0.5, 0.5]}',
    # outside a law that names every token
    '{"output": 2, "target": [0.5, 0.5]}',
    '{"output": 0, "drafts": [2], "target": {"tokens": [0], "probabilities": [0.5], "tail": 0.5}, '
    '"draft": [0.5, 0.5]}',
]


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_what_is_no_record_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(InvalidRecord, match="Line 41 is no record"):
        parse_record(line, 41)


def test_the_reader_streams_and_bounds_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "log.jsonl"
    monkeypatch.setattr("otm.audit.token_log.LONGEST_LINE", 200)
    file.write_text(json.dumps(GOOD) + "\n" + "x" * 500, encoding="utf-8")
    stream = read_log(file)
    assert next(stream).output == 0  # the first record is there before the second is read
    with pytest.raises(InvalidRecord, match="Line 2: lines must be at most 200 bytes"):
        next(stream)


def test_the_error_names_the_file_and_what_is_empty_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "outputs.jsonl"
    path.write_text('{"output": 0, "target": [1.0]}\n{}\n')
    with pytest.raises(InvalidRecord, match=r"outputs\.jsonl: Line 2 is no record"):
        list(read_log(path))
    assert list(read_log("/proc/self/status")) == []  # a regular file by its mode, of size 0
