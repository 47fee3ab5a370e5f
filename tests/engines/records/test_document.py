"""A text at the limits of what is read, and objects in lists of any length."""

import json

import pytest

import otm
from otm.engines.records import document, parse_acceptance
from otm.engines.records.document import Document, count, read_document


def test_what_is_just_small_enough_is_read(tmp_path, monkeypatch):
    """Ten characters of four bytes each, where ten characters are the most."""
    monkeypatch.setattr(document, "MAX_TEXT", 10)
    text, file = "\N{MUSICAL SYMBOL G CLEF}" * 10, tmp_path / "record.txt"
    assert Document(text).text == text
    file.write_text(text, encoding="utf-8")
    assert read_document(file).text == text
    file.write_text(text + "x", encoding="utf-8")
    with pytest.raises(otm.errors.TooLarge, match="may have 10 characters"):
        read_document(file)


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
