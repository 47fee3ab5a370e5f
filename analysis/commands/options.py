"""What several commands' options share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import AnalysisError

MOST_NUMBERS = 256
"""Largest number of values that an option may list."""

DraftName = Annotated[
    str | None, typer.Option(help="Draft model: hub name or folder. Default: the one that belongs to the target.")
]
TargetName = Annotated[str | None, typer.Option(help="Target model: hub name, folder, or smollm2. Default: the shipped one.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Sampling temperature of both models.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus mass of both models.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
DeviceMap = Annotated[str | None, typer.Option(help="Spread each model over devices: auto, balanced, …")]
Dtype = Annotated[str, typer.Option(help="Weights: float32, float16 or bfloat16.")]
Limit = Annotated[int | None, typer.Option(min=1, max=1 << 40, help="Use the first prompts only.")]
# Named alone: the form with --no- would widen the help's first column until it cuts the other names.
AnyLoad = Annotated[bool, typer.Option("--any-load", help="Time on a busy machine too.")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run Python files that come with a model.")]


def written(help: str) -> Any:
    """Return the option that names a file or folder to write: not "", which `pathlib` reads as the current folder.

    A shell makes "" of a variable that is not set, and what is written would lie where nobody named it.
    """
    return typer.Option(parser=_place, metavar="PATH", help=help)


def _place(text: str | Path) -> Path:
    if not str(text):
        raise AnalysisError("What is written must have a name; got ''. Write . for the current folder.")
    return Path(text)


def integers(text: str, *, name: str = "k", minimum: int = 1) -> list[int]:
    """Return integers written as 8,1-3, ascending and without repetitions.

    Raises:
        AnalysisError: if they are not integers or ranges, one is below the minimum, or there are more than 256.

    >>> integers("8,1-3")
    [1, 2, 3, 8]
    """
    found: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            low, high = int(first), int(last or first)
            if high < low:
                raise AnalysisError(f"{low}-{high} runs backwards; write {high}-{low}.")
            if high - low < MOST_NUMBERS:
                found |= set(range(low, high + 1))
            else:
                found |= set(range(MOST_NUMBERS + 1))  # refused below, without making them all
    except ValueError as error:
        raise AnalysisError(
            f"{name} must be integers or ranges separated by commas, such as 1,2,4 or 1-8; got {text!r}. Write them so."
        ) from error
    if min(found) < minimum:
        raise AnalysisError(f"{name} starts at {minimum}; got {min(found)}. Leave it out.")
    if len(found) > MOST_NUMBERS:
        raise AnalysisError(f"{name} must be at most {MOST_NUMBERS} numbers; got {text!r}. Drop some.")
    return sorted(found)
