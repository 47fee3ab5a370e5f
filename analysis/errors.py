"""The one error type that the command line turns into a message instead of a traceback."""

from __future__ import annotations


class AnalysisError(Exception):
    """A request that cannot be carried out, with requirement, offending value and remedy."""
