"""Typed errors: each message names the requirement, the offending value and the remedy."""

from __future__ import annotations

from typing import Any

__all__ = [
    "DecodingInterrupted",
    "InvalidDistribution",
    "InvalidParameter",
    "MissingPackage",
    "OtmError",
    "ShapeMismatch",
    "SolverFailure",
    "TooLarge",
    "Unsupported",
]


def __dir__() -> list[str]:
    return __all__


class OtmError(Exception):
    """Base of every error that the library raises on purpose."""


class InvalidDistribution(OtmError, ValueError):
    """An array is not a probability distribution.

    Negative mass, NaN, a wrong sum, a wrong dtype, or no entry at all.
    """


class ShapeMismatch(InvalidDistribution):
    """Two arrays that must share a vocabulary, or leading axes, do not."""


class InvalidParameter(OtmError, ValueError):
    """A scalar argument (k, gamma, temperature, ...) lies outside the allowed range."""


class Unsupported(OtmError, TypeError):
    """A verifier does not apply to a draft law, or an operation passes no gradient on.

    The message names both.
    """


class TooLarge(OtmError, ValueError):
    """An exact enumeration or program would be too large; the message names an alternative."""


class SolverFailure(OtmError, RuntimeError):
    """A solver stopped without an optimal solution, or the solution failed the check."""


class MissingPackage(OtmError, ImportError):
    """An optional package is needed and not installed; the message names the package."""


class DecodingInterrupted(OtmError, RuntimeError):
    """Decoding stopped half-way; the tokens decoded before are kept in the error.

    Attributes:
        generation: what was decoded until then, an `otm.sequence.Generation`.
    """

    def __init__(self, message: str, generation: Any) -> None:
        super().__init__(message)
        self.generation = generation

    def __reduce__(self) -> tuple[type[DecodingInterrupted], tuple[str, Any]]:
        """Return the constructor and arguments of the error, for pickling with `generation`."""
        return type(self), (str(self), self.generation)
