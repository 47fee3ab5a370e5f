"""What several commands' options share."""

from __future__ import annotations

from analysis.errors import AnalysisError


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
