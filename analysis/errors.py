"""The one error type of requests that cannot be carried out."""

from __future__ import annotations

from otm.errors import OtmError


class AnalysisError(OtmError):
    """A request that cannot be carried out, with requirement, offending value and remedy."""
