"""The namespace: what is public is there, and no function hides a module."""

from __future__ import annotations

import importlib
import pkgutil

from otm import audit


def test_a_name_is_a_module_or_a_function() -> None:
    modules = {found.name for found in pkgutil.iter_modules(audit.__path__)}
    assert not modules & set(audit.__all__)
    for name in modules:
        assert getattr(audit, name, None) in (None, importlib.import_module(f"otm.audit.{name}"))
    assert all(callable(getattr(audit, name)) for name in audit.__all__)
