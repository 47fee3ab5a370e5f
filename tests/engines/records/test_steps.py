"""One line a step, in JSON lines, CSV and Parquet."""

import json

import pytest

import otm
from otm.engines import parse_acceptance, read_acceptance

ROWS = [
    {"request": "a", "offered": 4, "accepted": 2, "seconds": 0.03},
    {"request": "a", "offered": 0, "accepted": 0, "seconds": 0.02},
    {"request": "b", "offered": 2, "accepted": 2, "seconds": None},
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
TABLE = "request,offered,accepted,seconds\na,4,2,0.03\na,0,0,0.02\nb,2,2,\n"


def counted(record):
    return [(one.name, one.steps, one.undrafted, one.accepted, one.drafted) for one in record.parts]


@pytest.mark.parametrize("text", [LINES, TABLE, json.dumps(ROWS)], ids=["lines", "CSV", "list"])
def test_steps_by_request(text):
    found = parse_acceptance(text)
    assert counted(found) == [("a", 1, 1, 2, 4), ("b", 1, 0, 2, 2)]
    assert found.mean == pytest.approx(1 + 4 / 3)
    assert found.times.token == {0: pytest.approx(0.05 / 4)}


def test_parquet_is_read_as_its_rows(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "steps.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    assert counted(read_acceptance(path)) == counted(parse_acceptance(LINES))


def test_a_long_table_is_no_log(tmp_path):
    """Lines without a word of drafts are dropped from a long log, and kept of a table."""
    path, number = tmp_path / "steps.csv", 1 << 16
    with path.open("w", encoding="utf-8") as file:
        file.write("request,offered,accepted\n")
        file.write(f"{'a' * 64},4,3\n" * number)
    assert read_acceptance(path).parts[0].steps == number


def test_without_offered_steps_are_told_by_what_they_accepted():
    text = LINES.replace('"offered": 4', '"offered": null').replace('0, "acc', 'null, "acc')
    first, second = parse_acceptance(text).parts
    assert (first.steps, first.accepted, first.drafted) == (2, 2, None) and second.drafted == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"offered": 2, "accepted": 3}, "accepts? (at most|more)"),
        ({"offered": 2, "accepted": "x"}, "accepted must be a number"),
        ({"offered": None, "accepted": 1, "request": "b"}, "in every step of a request, or in"),
    ],
)
def test_lines_that_are_no_steps_are_refused(row, message):
    with pytest.raises(otm.errors.InvalidParameter, match=message):
        parse_acceptance(LINES + json.dumps(row))
