"""A mark for tests that need an optional library."""

from __future__ import annotations

import importlib.util

import pytest


def needs(library: str) -> pytest.MarkDecorator:
    """Skip a test, or a case of a test, where a library is not installed."""
    missing = importlib.util.find_spec(library) is None
    return pytest.mark.skipif(missing, reason=f"{library} is not installed")
