"""Code of other people, loaded from a folder of checkouts in isolation: nothing of it is installed,
and nothing is fetched.
"""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path
from typing import Any


class Missing:
    """In place of what an import did not find: a base class, a decorator or an attribute, and wrong
    if it is relied on.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __class_getitem__(cls, item: Any) -> type:
        return cls

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a decorated function as it is."""
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing()


def folder(checkouts: Path, repository: str) -> Path:
    """Return where a repository is checked out: `checkouts/OWNER+NAME`, or `…@LABEL`."""
    return checkouts / repository.replace("/", "+")


def load(
    root: Path,
    path: str,
    *,
    module: str = "audited",
    siblings: tuple[str, ...] = (),
    tabs: int = 8,
    **given: Any,
) -> types.SimpleNamespace:
    """Execute one file as it is, statement by statement, and return its names.

    Args:
        root: the checkout; its own imports are looked up there first.
        path: the file, relative to it.
        module: its name; one with a dot has relative imports.
        siblings: files of the same checkout, `NAME=PATH`, that it imports by that name, loaded
            likewise beforehand, with what is given.
        tabs: columns of a tab; 8 is Python's, another is for a file that mixes tabs and spaces and
            that Python therefore refuses.
        given: names that an import is to find here and not elsewhere.

    Returns:
        A namespace. Imports that are not installed are `Missing`, which is for what the audited
        functions do not use.
    """
    for search in (root, (root / path).parent):
        if str(search) not in sys.path:
            sys.path.insert(0, str(search))
    for sibling in siblings:
        name, file = sibling.split("=")
        beside = types.ModuleType(name)
        beside.__dict__.update(vars(load(root, file, module=name, **given)))
        sys.modules[name] = beside
        if "." in name:
            sys.modules.setdefault(
                name.split(".")[0], types.ModuleType(name.split(".")[0])
            ).__path__ = []  # type: ignore[attr-defined]
    file_path = root / path
    names: dict[str, Any] = {
        "__name__": module,
        "__file__": str(file_path),
        "__package__": module.rpartition(".")[0],
    }
    holder = types.ModuleType(module)
    holder.__dict__.update(names)
    sys.modules[module] = holder
    names = holder.__dict__
    text = file_path.read_text(encoding="utf-8")
    for statement in ast.parse(text if tabs == 8 else text.expandtabs(tabs)).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            _import(statement, names, given)
        elif not _is_main(statement):
            exec(compile(ast.Module([statement], []), str(file_path), "exec"), names)
    return types.SimpleNamespace(**names)


def _import(
    statement: ast.Import | ast.ImportFrom, names: dict[str, Any], given: dict[str, Any]
) -> None:
    """Import name by name, `Missing` where there is none."""
    for alias in statement.names:
        bound = alias.asname or alias.name.split(".")[0]
        one = type(statement)(**{**vars(statement), "names": [alias]})
        if bound in given:
            names[bound] = given[bound]
            continue
        try:
            exec(compile(ast.Module([one], []), "imports", "exec"), names)
        except (ImportError, AttributeError, OSError, RuntimeError):
            names[bound] = type(bound, (Missing,), {}) if bound[:1].isupper() else Missing()


def _is_main(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__main__" in ast.dump(statement.test)


def commands(pins: dict[str, str]) -> str:
    """Return the git commands that make the folder of checkouts."""
    lines = []
    for repository, pin in pins.items():
        place = f"CHECKOUTS/{repository.replace('/', '+')}"
        lines.append(
            f"git clone --filter=blob:none https://github.com/{repository.partition('@')[0]} "
            f"{place} && git -C {place} checkout {pin}"
        )
    return "\n".join(lines)
