"""A text to train on, and runs of training that are interrupted where a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from analysis.train import resumable


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of blocks."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(
        "\n\n".join(
            f"Paragraph {i}: return the {i % 7}th value of the list, or raise an error."
            for i in range(600)
        )
    )
    return path


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """Write a checkpoint after every step, and end the block at the checkpoint of a given step."""
    write = resumable.write_checkpoint
    monkeypatch.setattr(resumable, "SAVE_EVERY", 0.0)

    @contextmanager
    def inside(last: int) -> Iterator[None]:
        def interrupting(*arguments: Any, step: int, **options: Any) -> None:
            write(*arguments, step=step, **options)
            if step == last:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(resumable, "write_checkpoint", interrupting)
            yield

    return inside
