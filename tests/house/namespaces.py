"""Every public namespace of the library."""

from __future__ import annotations

import importlib
import pkgutil

import otm

NAMESPACES = [
    name
    for name in sorted(found.name for found in pkgutil.walk_packages(otm.__path__, "otm."))
    if not name.endswith("__main__") and "__all__" in vars(importlib.import_module(name))
]
