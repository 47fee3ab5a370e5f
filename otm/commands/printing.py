"""How the commands print."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import textwrap
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

from otm.errors import InvalidParameter

Place = TypeVar("Place", str | None, Path | None, Path)

WIDTH = 80
"""Columns of a screen."""


def discard_stdout() -> None:
    """Send the rest of the standard output nowhere."""
    # Python flushes it once more when it ends, and would complain again.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def escape_unencodable() -> None:
    """Write letters that the standard output cannot encode as escaped numbers."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_report(text: str, *, command: str) -> bool:
    """Print a report and return True on arrival; a reader that has left counts as served."""
    try:
        print(text, flush=True)
    except OSError as error:
        discard_stdout()
        if not isinstance(error, BrokenPipeError):
            print(
                f"otm {command}: the report cannot be written ({error.strerror}). Send it "
                "elsewhere.",
                file=sys.stderr,
            )
            return False
    return True


def deliver(path: str, text: str, *, command: str) -> bool:
    """Write a text to a file, - for the standard output, and return True on arrival."""
    if path == "-":
        return print_report(text, command=command)
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        print(
            f"otm {command}: {path} cannot be written ({error.strerror}). Name another file.",
            file=sys.stderr,
        )
        return False
    return True


def require_place(place: Place, endings: Collection[str] = ()) -> Place:
    """Return the place of an output, or raise unless a file of these endings can be written there.

    None, and - for the standard output, are places.

    Raises:
        InvalidParameter: if the ending is another, or the folder is missing or read-only.
    """
    if place in (None, "-"):
        return place
    path = Path(str(place))
    if endings and path.suffix not in endings:
        raise InvalidParameter(
            f"A file of this kind ends in {', '.join(endings)}; got {path.name!r}. Change the "
            "ending."
        )
    folder = path.absolute().parent
    fault = "is a folder" if path.is_dir() else "" if folder.is_dir() else f"{folder} is no folder"
    if fault or not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidParameter(
            f"An output needs an existing folder that may be written to; {path} cannot be written "
            f"({fault or 'no permission'}). Name another file."
        )
    return place


def paragraph(title: str, text: str, *, indent: int = 8) -> list[str]:
    """Return lines of at most `WIDTH` columns beside a title."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"{title:{indent}}",
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )
