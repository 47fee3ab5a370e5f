"""Fixtures of tests of commands: a run of the command line, copies of the shipped draft."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from analysis.commands import COMMANDS
from analysis.files import SHIPPED_PAIR
from otm.__main__ import main


class Ended(NamedTuple):
    """The exit code and the printed output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run the command line with the given words as text."""

    def run(*words: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["otm", *map(str, words)])
        # of the checkout, which an installation knows under another name
        monkeypatch.setattr("otm.commands.app.further", lambda: COMMANDS)
        return Ended(main(), *capsys.readouterr())

    return run


@pytest.fixture
def printed(command: Callable[..., Ended]) -> Callable[..., str]:
    """Run a command that ends well, and return the printed output."""

    def run(*words: object) -> str:
        ended = command(*words)
        assert ended.code == 0, ended.err
        return ended.out

    return run


@pytest.fixture
def refused(command: Callable[..., Ended]) -> Callable[..., str]:
    """Run a command that is refused in a short message, and return the message."""

    def run(*words: object) -> str:
        ended = command(*words)
        assert ended.code == 2, ended.out
        assert f"\notm {words[0]}: " in f"\n{ended.err}" and "Traceback" not in ended.err
        assert len(ended.err) < 1_000
        return ended.err

    return run


@pytest.fixture(scope="session")
def pair() -> Any:
    """The shipped pair, loaded once."""
    from analysis.models.pair import load_pair

    return load_pair(device="cpu")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Give torch one thread: of a small model a second one waits most of the time."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def copied_draft(tmp_path: Path) -> Path:
    """A copy of the shipped draft that may be damaged."""
    return Path(shutil.copytree(SHIPPED_PAIR / "draft", tmp_path / "draft"))
