"""The reference: every public name with the examples that use it, a page for each namespace,
written from `__all__`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from collections import defaultdict
from pathlib import Path

from sphinx.application import Sphinx

import otm

FOLDER = "api"


@functools.cache
def public_objects() -> dict[str, object]:
    """Return every public object by its full name in the first namespace that has it; the top level
    comes first.
    """
    found: dict[str, object] = {}
    seen: set[int] = set()
    inner = sorted(
        each.name
        for each in pkgutil.walk_packages(otm.__path__, "otm.")
        if not each.name.endswith("__main__")
    )
    for space in ["otm", *inner]:
        module = importlib.import_module(space)
        for name in vars(module).get("__all__", ()):
            thing = getattr(module, name)
            if not inspect.ismodule(thing) and id(thing) not in seen and not name.startswith("__"):
                seen.add(id(thing))
                found[f"{space}.{name}"] = thing
    return found


@functools.cache
def public_names() -> dict[str, str]:
    """Return what a text may write for an object: its full name, the name from its namespace on, or
    its own if only one has it.
    """
    written: dict[str, set[str]] = defaultdict(set)
    for full in public_objects():
        words = full.split(".")
        for start in range(len(words)):
            written[".".join(words[start:])].add(full)
    names = {text: next(iter(full)) for text, full in written.items() if len(full) == 1}
    # At the top level stand the plain verbs; `otm.partial.acceptance` is written with its
    # namespace.
    names |= {name: f"otm.{name}" for name in otm.__all__ if f"otm.{name}" in public_objects()}
    return names


def first_sentence(thing: object) -> str:
    """Return the first sentence of a docstring, or of what defines a constant."""
    text = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[^.][.:])\s(?=[A-Z`])", text)[0] if text else ""


def page_of(full: str) -> str:
    """Return the document, without its ending, that shows a public name."""
    return f"{FOLDER}/{full.rpartition('.')[0]}"


def _entry(full: str, thing: object) -> str:
    if inspect.isclass(thing):
        kind = "autoexception" if issubclass(thing, BaseException) else "autoclass"
        options = "   :members:\n   :show-inheritance:\n"
    else:
        kind = "autofunction" if inspect.isroutine(thing) else "autodata"
        options = "   :no-value:\n" if kind == "autodata" else ""
    name = full.rpartition(".")[2]
    return "\n".join(
        [
            f"{name}\n{'-' * len(name)}\n",
            f".. {kind}:: {full}\n{options}",
            f".. minigallery:: {full}\n",
        ]
    )


def _page(space: str, members: list[str]) -> str:
    from docstrings import convert  # noqa: PLC0415 (it asks this module for the names)

    module = importlib.import_module(space)
    lines = [space, "=" * len(space), "", f".. module:: {space}", "   :no-index-entry:", ""]
    if space != "otm":
        lines += [*convert((inspect.getdoc(module) or "").splitlines()), ""]
    lines += [".. list-table::", "   :widths: 35 65", "   :class: reference", ""]
    for full in members:
        sentence = " ".join(convert([first_sentence(public_objects()[full])]))
        lines += [f"   * - :py:obj:`{full.rpartition('.')[2]} <{full}>`", f"     - {sentence}"]
    return "\n".join([*lines, "", *(_entry(full, public_objects()[full]) for full in members)])


def _index(spaces: list[str]) -> str:
    """Return the first page: a line for each namespace, with what it holds."""
    from docstrings import convert  # noqa: PLC0415 (as above)

    lines = [
        "Reference\n=========\n",
        "Every public name, by namespace. Verbs, laws and verifiers stand at the top level.\n",
        ".. list-table::\n   :widths: 30 70\n",
    ]
    for space in spaces:
        sentence = " ".join(convert([first_sentence(importlib.import_module(space))]))
        lines += [f"   * - :doc:`{space}`", f"     - {sentence}"]
    toctree = "\n".join(f"   {space}" for space in spaces)
    return "\n".join([*lines, f"\n.. toctree::\n   :hidden:\n\n{toctree}\n"])


def write(folder: Path) -> None:
    """Write the pages that have changed, and remove those of names that are gone."""
    spaces: dict[str, list[str]] = defaultdict(list)
    pages: dict[str, str] = {}
    for full in public_objects():
        spaces[full.rpartition(".")[0]].append(full)
    for space, members in spaces.items():
        pages[space] = _page(space, sorted(members, key=str.lower))
    pages["index"] = _index(list(spaces))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.rst"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before the sources are listed."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / FOLDER), priority=100)
    return {"parallel_read_safe": True}
