"""Progress: a line a phase where nobody watches, a clock that ticks where somebody does."""

from __future__ import annotations

import sys
import time

import pytest

from analysis import progress
from analysis.progress import Progress


def test_a_phase_is_a_line_and_the_first_is_there_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress("starting", 90.0) as bar:
        first = capsys.readouterr().err
        for what in ("texts", "texts", "costs"):
            bar.told(what)
    assert first.startswith("   0 of at most 90 s  starting\n")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[-1] for line in lines] == ["texts", "costs"]
    assert bar.deadline <= time.monotonic() + 90.0


def test_on_a_terminal_the_clock_ticks_through_a_long_call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_TICK", 0.01)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = ""
    with Progress("reading"):
        began = time.monotonic()
        while shown.count("\r") < 4 and time.monotonic() - began < 30.0:
            time.sleep(0.01)
            shown += capsys.readouterr().err
    assert shown.count("reading") >= 4 and "\n" not in shown
    assert capsys.readouterr().err.endswith("\r\033[K")
