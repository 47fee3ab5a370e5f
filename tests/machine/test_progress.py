"""Progress: a line a phase where nobody watches, a clock that ticks where somebody does, Ctrl-C."""

import subprocess
import sys
import time

import pytest

from otm._machine import progress
from otm._machine.progress import (
    INTERRUPTED,
    announce_limit,
    clock,
    report_phase,
    say,
    with_progress,
)

Captured = pytest.CaptureFixture[str]


def test_a_phase_is_a_line_at_once_and_its_parts_come_with_the_clock(capsys, monkeypatch):
    monkeypatch.setattr(progress, "TICK", 60.0)
    with clock("loading"):
        assert announce_limit(90.0) <= time.monotonic() + 90.0
        report_phase("texts", "1")
        first = capsys.readouterr().err
        assert list(with_progress("ab", "texts")) == ["a", "b"]
        report_phase("costs")
        say("the answer")
        say("a remark", error=True)
    assert first == "   0 of at most 90 s  texts: 1\n"
    shown = capsys.readouterr()
    assert [line.split()[-1] for line in shown.err.splitlines()] == ["costs", "remark"]
    assert shown.out == "the answer\n"
    report_phase("nobody is told")
    assert (
        list(with_progress(iter("ab"), "texts")) == ["a", "b"]
        and announce_limit(0.0) <= time.monotonic()
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_the_clock_goes_on_through_a_long_call(capsys, monkeypatch, terminal):
    for name in ("TICK", "REMINDER"):
        monkeypatch.setattr(progress, name, 0.01)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    shown = ""
    with clock("reading"):
        began = time.monotonic()
        while shown.count("reading") < 4 and time.monotonic() - began < 30.0:
            time.sleep(0.01)
            shown += capsys.readouterr().err
    assert shown.count("reading") >= 4 and ("\n" in shown) != terminal == ("\r" in shown)
    assert capsys.readouterr().err.endswith("\r\033[K") == terminal


@pytest.mark.parametrize(
    ("handler", "importing", "status"),
    [
        ("default_int_handler", True, INTERRUPTED),
        ("default_int_handler", False, 7),
        ("SIG_IGN", False, 0),
    ],
)
def test_an_interrupt_raises_but_for_the_moment_when_torch_is_imported(handler, importing, status):
    """In C++ an exception of Python's would end the process with words of its own; a job in the
    background is not interrupted at all.
    """
    code = f"""
import os, signal, sys, types
signal.signal(signal.SIGINT, signal.{handler})
from otm._machine.progress import clock
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].__spec__ = types.SimpleNamespace(_initializing={importing})
try:
    with clock("loading"):
        os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    sys.exit(7)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (status, b"")
