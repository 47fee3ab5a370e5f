"""What the commands print arrives, whatever letters the output has."""

import contextlib
import io
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "words"), [("otm.__main__", ["audit", "--help"]), ("figures.__main__", ["--help"])]
)
def test_help_is_shown_where_letters_are_few(module, words, monkeypatch):
    main = pytest.importorskip(module).main  # the wheel is tested without the figures
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with contextlib.suppress(SystemExit):
        assert main(words) == 0
    sys.stdout.flush()
    assert rb"\u20" in written.getvalue()
