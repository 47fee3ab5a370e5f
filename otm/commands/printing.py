"""What the commands print, and what becomes of it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import textwrap

WIDTH = 80
"""Columns of a screen."""


def give_up_output() -> None:
    """Send what is left of the standard output nowhere: Python flushes it once more when it ends,
    and would complain again.
    """
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def take_every_letter() -> None:
    """Let an output of few letters show the others by their numbers, in help as in reports."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def shown(text: str, *, command: str) -> bool:
    """Print a report and return whether it arrived; a reader that has left, such as `head`, takes
    nothing from the verdict.
    """
    try:
        take_every_letter()
        print(text, flush=True)
    except OSError as error:
        give_up_output()
        if not isinstance(error, BrokenPipeError):
            print(
                f"otm {command}: the report cannot be written ({error.strerror}). Send it "
                "elsewhere.",
                file=sys.stderr,
            )
            return False
    return True


def paragraph(title: str, text: str, *, indent: int = 8) -> list[str]:
    """Return lines of at most `WIDTH` columns beside a title."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"{title:{indent}}",
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )
