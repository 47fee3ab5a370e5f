"""Links out of `docs/` into the repository: a source file becomes a page of its own, a page of
results the page of results.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[2]
PAGES = "repository"
_FROM_ROOT = {
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "conduct": "CODE_OF_CONDUCT.md",
}
_LINK = re.compile(r"\[([^\[\]]*)\]\(((?:(?:\.\./)+|examples/)[^)#\s]+)(?:#[^)\s]*)?\)")


def _rewrite(app: Sphinx, docname: str, content: list[str]) -> None:
    """Point a link to a folder to the file that says what is in it, and one to committed results to
    their page.
    """
    folder = (Path(app.srcdir) / docname).parent
    if docname in _FROM_ROOT:  # a page of its own for what a repository keeps at its top
        text = (ROOT / _FROM_ROOT[docname]).read_text(encoding="utf-8").replace("](docs/", "](")
        for page, file in _FROM_ROOT.items():
            text = text.replace(f"]({file})", f"]({page}.md)")
        content[0] = text

    def target(match: re.Match[str]) -> str:
        path = (folder / match[2]).resolve()
        if path.parent == Path(app.srcdir) / "examples":  # its page in the gallery
            name = "index" if path.stem == "GALLERY_HEADER" else path.stem
            return (
                f"[{match[1]}]({os.path.relpath(Path(app.srcdir) / 'gallery' / name, folder)}.rst)"
            )
        if Path(app.srcdir) in path.parents or ROOT not in path.parents:
            return match[0]
        if path.is_dir():
            path = next(
                (path / name for name in ("README.md", "__init__.py") if (path / name).is_file()),
                path,
            )
        if path.is_dir():  # no file says what is in it
            return match[1]
        if path.parent == ROOT / "benchmarks" / "results" and path.suffix == ".md":
            return f"[{match[1]}](#results-{path.stem})"
        return f"[{match[1]}](path:{os.path.relpath(path, folder)})"  # shown as it is, a README too

    content[0] = _LINK.sub(target, content[0])


class LinkedSources(SphinxTransform):
    """Replace downloads of the repository's text files by links to pages that show them."""

    default_priority = 10

    def apply(self, **kwargs: Any) -> None:
        """Replace the references of one document."""
        shown: dict[str, set[str]] = self.app.env.otm_sources  # type: ignore[attr-defined]
        shown.pop(self.env.docname, None)
        for node in list(self.document.findall(addnodes.download_reference)):
            path = (
                Path(self.app.srcdir) / Path(self.env.docname).parent / node["reftarget"]
            ).resolve()
            if not path.is_file():
                path = (Path(self.app.srcdir) / str(node["reftarget"]).lstrip("/")).resolve()
            if ROOT not in path.parents or not path.is_file():
                continue
            name = str(path.relative_to(ROOT))
            shown.setdefault(self.env.docname, set()).add(name)
            up = "../" * self.env.docname.count("/")
            node.replace_self(
                nodes.reference(
                    "", "", *node.children, refuri=f"{up}{PAGES}/{name}.html", internal=True
                )
            )


def _collect(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    shown: dict[str, set[str]] = app.env.otm_sources  # type: ignore[attr-defined]
    for name in sorted(set().union(*shown.values())):
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
        try:
            lexer = get_lexer_for_filename(name)
        except ClassNotFound:
            lexer = TextLexer()
        body = highlight(text, lexer, HtmlFormatter(nowrap=False))
        yield (
            f"{PAGES}/{name}",
            {"title": name, "body": f"<h1>{name}</h1>{body}", "parents": []},
            "page.html",
        )


def _begin(app: Sphinx, env: Any, *_: Any) -> None:
    if "otm_sources" not in vars(env):
        env.otm_sources = {}


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite as sources are read, show what was linked when pages are written."""
    app.connect("env-before-read-docs", _begin)
    app.connect("source-read", _rewrite)
    app.add_transform(LinkedSources)
    app.connect("html-collect-pages", _collect)
    return {"parallel_read_safe": False}
