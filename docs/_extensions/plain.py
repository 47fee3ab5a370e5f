"""What a page shows where nobody builds the site: the text of its map and tables, which the site replaces by what it draws.

`python docs/_extensions/plain.py` writes it anew.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(DOCS.parent)]

from sphinx.application import Sphinx  # noqa: E402
from tables import TABLES, timings  # noqa: E402
from which import as_list  # noqa: E402

_MARKED = re.compile(r"<!-- (map|registry|timings)(?: ([^>]+))?: begin -->\n.*?<!-- end -->", re.DOTALL)


def written(source: str) -> str:
    """Return a page with what stands between its marks made anew."""

    def between(match: re.Match[str]) -> str:
        kind, argument = match[1], match[2] or ""
        if kind == "map":
            lines = as_list()
        elif kind == "registry":
            head, rows = TABLES[argument]
            lines = [_row(head), f"|{'---|' * len(head)}", *map(_row, rows())]
        else:
            name, _, pattern = argument.partition(" ")
            table, machine = timings(name, pattern)
            lines = [*table, "", f"*{machine}*"]
        text = re.sub(r"\{py:obj\}`([^`<]+?)(?: <[^>]*>)?`", r"`\1`", "\n".join(lines))
        text = re.sub(r"\{doc\}`(\w+) </(\w+)>`", r"[\1](../\2.md)", text)
        return f"<!-- {f'{kind} {argument}'.strip()}: begin -->\n\n{text.strip()}\n\n<!-- end -->"

    return _MARKED.sub(between, source)


def _row(cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"  # type: ignore[call-overload]


def _drawn(app: Sphinx, docname: str, content: list[str]) -> None:
    """Put the directives in place of the text."""
    content[0] = _MARKED.sub(lambda match: f"```{{{match[1]}}} {match[2] or ''}\n```", content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace as sources are read."""
    app.connect("source-read", _drawn)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    for page in sorted(DOCS.rglob("*.md")):
        before = page.read_text(encoding="utf-8")
        if written(before) != before:
            page.write_text(written(before), encoding="utf-8")
            print(page.relative_to(DOCS.parent))
