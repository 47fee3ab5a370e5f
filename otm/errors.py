"""Typed errors: each message says the requirement, the offending value and the remedy."""

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
    """A scalar argument lies outside its range (k, gamma, temperature, ...)."""


class Unsupported(OtmError, TypeError):
    """A verifier does not apply to this draft law, or passes no gradient on.

    The message names both.
    """


class TooLarge(OtmError, ValueError):
    """An exact enumeration or program would be too large; the message says what to call instead."""


class SolverFailure(OtmError, RuntimeError):
    """A solver stopped without an optimal solution, or its answer failed the independent check."""


class MissingPackage(OtmError, ImportError):
    """An optional package is needed and not installed; the message says which."""


class DecodingInterrupted(OtmError, RuntimeError):
    """Decoding stopped half-way; nothing that was decoded before is lost.

    Attributes:
        generation: what was decoded until then, an `otm.sequence.Generation`.
    """

    def __init__(self, message: str, generation: Any) -> None:
        super().__init__(message)
        self.generation = generation

    def __reduce__(self) -> tuple[type[DecodingInterrupted], tuple[str, Any]]:
        """Return what rebuilds the error, in another process too: the message alone would not."""
        return type(self), (str(self), self.generation)
