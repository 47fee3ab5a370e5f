"""What several commands' options share."""

from __future__ import annotations

from typing import Annotated

import typer

from analysis.errors import AnalysisError

DraftName = Annotated[str | None, typer.Option(help="Draft model: hub name or folder. Default: the shipped one.")]
TargetName = Annotated[str | None, typer.Option(help="Target model: hub name or folder. Default: the shipped one.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="Sampling temperature of both models.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus mass of both models.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
TrustRemoteCode = Annotated[bool, typer.Option(help="Run Python files that come with a model.")]


def integers(text: str, *, name: str = "k", minimum: int = 1) -> list[int]:
    """Return integers written as 1,2,4.

    Raises:
        AnalysisError: if they are not, or one is below the minimum.
    """
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise AnalysisError(
            f"{name} must be integers separated by commas, such as 1,2,4; got {text!r}. Write them so."
        ) from error
    if min(numbers) < minimum:
        raise AnalysisError(f"{name} must be at least {minimum}; got {text!r}. Drop the others.")
    return numbers
