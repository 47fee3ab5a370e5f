"""A text at the limits of what is read, and objects in lists of any length."""

import json
import sys
import tracemalloc

import pytest

import otm
from otm.engines.records import document, parse_acceptance, read_acceptance
from otm.engines.records.document import Document, count, read_document


def test_what_is_just_small_enough_is_read(tmp_path, monkeypatch):
    """Ten characters of four bytes each, where ten characters are the most."""
    monkeypatch.setattr(document, "MAX_TEXT", 10)
    text, file = "\N{MUSICAL SYMBOL G CLEF}" * 10, tmp_path / "record.txt"
    assert Document(text).text == text
    file.write_text(text, encoding="utf-8")
    assert read_document(file).text == text
    file.write_text(text + "x", encoding="utf-8")
    for read, given in ((read_document, file), (parse_acceptance, text + "x")):
        with pytest.raises(otm.errors.TooLarge, match="may have 10 characters"):
            read(given)
    with pytest.raises(otm.errors.InvalidParameter, match="the text itself"):
        parse_acceptance(b"x")


@pytest.mark.skipif(sys.gettrace() is not None, reason="traced code copies what it extends")
def test_a_long_log_is_held_once_and_one_wide_character_widens_no_other(tmp_path, monkeypatch):
    """A second copy would take as much again, two bytes a character as well."""
    for name, size in {"_WHOLE": 2**14, "_LONGEST_LINE": 2**14, "_OWN": 2**15}.items():
        monkeypatch.setattr(document, name, size)
    line = "[2026-05-27 20:14:38] \x1b[32mDecode\x1b[0m. #running-req: {}, accept len: {}.40\n"
    lines = [line.format(i % 4, 1 + i % 3) for i in range(6000)]
    lines[3000] = "accepted \N{MUSICAL SYMBOL G CLEF}\N{HORIZONTAL ELLIPSIS}\n"
    file = tmp_path / "server.log"
    file.write_text("".join(lines), encoding="utf-8")
    whole = parse_acceptance("".join(lines))
    tracemalloc.start()
    record = read_acceptance(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (record.mean, record.notes) == (whole.mean, whole.notes)
    assert peak < 1.5 * sum(map(len, lines))


def test_whole_numbers_end_where_floats_skip_some():
    assert count(2**53, "n") == 2**53
    with pytest.raises(otm.errors.InvalidParameter, match="whole number"):
        count(2**53 + 2, "n")


@pytest.mark.parametrize("number", range(1, 6))
def test_every_object_of_a_list_is_found(number):
    values = [{"a": i, "inner": [{"a": -1}, {"b": [{"a": -2}]}]} for i in range(number)]
    for text in (json.dumps(values), json.dumps([values]), json.dumps({"all": values})):
        assert [one["a"] for one in Document(text).objects("a")] == list(range(number))
        assert len(list(Document(text).objects("b"))) == number
    requests = [{"spec_verify_ct": 10, "spec_accept_histogram": [2, 2, 6]}] * number
    assert parse_acceptance(json.dumps(requests)).requests == number
