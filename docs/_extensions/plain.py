"""What a page shows where nobody builds the site: the text of its map and tables, which the site
replaces by what it draws.

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
from which import as_tables  # noqa: E402

from otm._display.tabular import markdown, with_section  # noqa: E402

_MARKED = re.compile(
    r"<!-- ((map|registry|timings)(?: ([^>]+?))?): begin -->.*?<!-- \1: end -->", re.DOTALL
)


def written(source: str) -> str:
    """Return a page with what stands between its marks made anew."""
    for match in _MARKED.finditer(source):
        text = re.sub(
            r"\{py:obj\}`([^`<]+?)(?: <[^>]*>)?`", r"`\1`", _body(match[2], match[3] or "")
        )
        text = re.sub(r"\{doc\}`(\w+) </(\w+)>`", r"[\1](../\2.md)", text)
        source = with_section(source, match[1], text.strip())
    return source


def _body(kind: str, argument: str) -> str:
    if kind == "map":
        return "\n".join(as_tables())
    if kind == "registry":
        head, rows = TABLES[argument]
        return markdown(head, rows())
    name, _, pattern = argument.partition(" ")
    table, machine = timings(name, pattern)
    return "\n".join([*table, "", f"*{machine}*"])


def _drawn(app: Sphinx, docname: str, content: list[str]) -> None:
    """Put the directives in place of the text."""
    content[0] = _MARKED.sub(lambda match: f"```{{{match[2]}}} {match[3] or ''}\n```", content[0])


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
