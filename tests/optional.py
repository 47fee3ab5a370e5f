"""What tests of an optional library say of themselves."""

from __future__ import annotations

import importlib.util

import pytest


def needs(library: str) -> pytest.MarkDecorator:
    """Skip a test, or one of its cases, where a library is not installed."""
    missing = importlib.util.find_spec(library) is None
    return pytest.mark.skipif(missing, reason=f"{library} is not installed")
