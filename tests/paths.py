"""The repository's root, the files in the repository, and sentences on pages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def tracked() -> list[Path]:
    """Return the files of the repository, also new files that git does not ignore.

    Skips where there is no git checkout.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def says(page: str, *sentences: str) -> None:
    """Assert that a page contains each sentence, however lines are broken."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for sentence in sentences:
        assert sentence in text, f"{page} does not say {sentence!r}"
