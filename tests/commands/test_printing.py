"""What the commands print arrives, whatever letters the output has."""

import io
import sys

import pytest

from otm.__main__ import main


def test_help_is_shown_where_letters_are_few(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with pytest.raises(SystemExit, match="0"):
        main(["audit", "--help"])
    sys.stdout.flush()
    assert rb"\u20" in written.getvalue()
