"""What the commands print arrives, whatever letters the output has."""

import io
import sys
from collections.abc import Callable

import pytest

from figures.__main__ import main as figures
from otm.__main__ import main as otm


@pytest.mark.parametrize(("main", "words"), [(otm, ["audit", "--help"]), (figures, ["--help"])])
def test_help_is_shown_where_letters_are_few(
    main: Callable[[list[str]], int], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with pytest.raises(SystemExit, match="0"):
        main(words)
    sys.stdout.flush()
    assert rb"\u20" in written.getvalue()
