"""Answers of code under audit: a token, an acceptance flag, or a failure."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import operator
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from otm.errors import OtmError

NO_TOKEN = -1
"""Stands for a returned number outside the vocabulary: mass that the target does not have."""


class CandidateFailure(OtmError, RuntimeError):
    """Raised where the code raised or gave no valid answer; the message names the input.

    Attributes:
        certain: whether it does so whatever its random numbers are.
    """

    certain = True

    @classmethod
    def likely(cls, message: str, probability: float, described: str) -> CandidateFailure:
        """Return a failure that has a probability on an input; `certain` is False below 1."""
        error = cls(f"{message} It does so with probability {probability:.6g} on {described}.")
        error.certain = probability > 1.0 - _ROUNDING
        return error


@dataclasses.dataclass(frozen=True)
class Failed:
    """A placeholder for an output: the code raised, or returned something that is no answer."""

    message: str


def read_token(answer: Any, num_tokens: int) -> tuple[int, bool | None]:
    """Parse the answer of a verifier of one token into (token, accepted).

    Args:
        answer: one integer (of Python, NumPy, or a tensor with one element), alone or with a flag.
        num_tokens: V.

    Returns:
        The token, `NO_TOKEN` for an integer outside [0, V), and the flag, None where it returned
        the token alone.

    Raises:
        CandidateFailure: if the answer is something else.

    >>> read_token((2, True), 3), read_token(7, 3)
    ((2, True), (-1, None))
    """
    token, accepted = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    number = integer_of(token)
    if number is None:
        raise CandidateFailure(
            f"The callable must return a token in [0, {num_tokens}), alone or as (token, "
            f"accepted); it returned {answer!r}."
        )
    if not (accepted is None or isinstance(accepted, bool)) and (  # most are
        isinstance(accepted, str)
        or (isinstance(accepted, (int, float, np.number)) and accepted not in (0, 1))
    ):
        raise CandidateFailure(
            f"The callable must say True or False of whether it accepted; it returned {answer!r}."
        )
    inside = 0 <= number < num_tokens
    return number if inside else NO_TOKEN, None if accepted is None else bool(accepted)


def integer_of(token: Any) -> int | None:
    """Return an integer of Python, NumPy or a tensor with one element as an `int`, else None.

    Whole floats and booleans are no integers.
    """
    if type(token) is int:  # most are
        return token
    if isinstance(token, bool | np.bool_ | float | np.floating) or token is None:
        return None
    try:
        array = np.asarray(token)
        if array.size != 1 or array.dtype.kind not in "iuO":
            return None
        return operator.index(array.reshape(-1)[0])
    except (TypeError, ValueError):
        return None


@contextlib.contextmanager
def naming_failures(place: Callable[[], str] = str) -> Iterator[None]:
    """Turn any exception of the code into a `CandidateFailure` that names the exception.

    Args:
        place: returns what the message ends with, such as the drafts; asked where it fails.
    """
    try:
        yield
    except CandidateFailure as error:
        raise CandidateFailure(f"{error}{place()}") from error
    except (Exception, SystemExit) as error:  # an exit must not end the audit with its own status
        raise CandidateFailure(_told(error, place())) from error


def _told(error: BaseException, place: str = "") -> str:
    return f"The callable raised {type(error).__name__}: {error}{frames_of(error)}.{place}"


def frames_of(error: BaseException) -> str:
    """Return the place where an error was raised, without frames of this library and of imports.

    >>> frames_of(ValueError("never raised"))
    ''
    """
    frames = [
        f"{_shown(Path(frame.filename))}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OTHERS)
    ]
    return f" ({' → '.join(frames[-_MOST_FRAMES:])})" if frames else ""


def _shown(file: Path) -> Path:
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


_OTHERS = ("<frozen", str(Path(__file__).parents[2]), importlib.__file__)
"""Files whose frames say nothing about somebody's code."""
_MOST_FRAMES = 4
_ROUNDING = 1e-9


def outcome_of(function: Callable[[], Any]) -> Any:
    """Run the code and return the output, or `Failed` with the exception.

    NumPy's warnings are silenced: a 0/0 that the output does not depend on is no fault, and one
    that it depends on shows.
    """
    try:
        with np.errstate(all="ignore"):
            return function()
    except CandidateFailure as error:
        return Failed(str(error))
    except (Exception, SystemExit) as error:
        return Failed(_told(error))
