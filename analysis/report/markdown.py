"""The Markdown summary: the answer and tables, for a pull request or a chat."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from otm._display.tabular import markdown

_MOST_TABLES = 12


def render_markdown(view: dict[str, Any]) -> str:
    """Render a report's view as Markdown."""
    card = view["card"]
    blocks = [f"# {escaped(view['title'])}", f"## {escaped(card.title)}: {escaped(card.what)}"]
    blocks += ["\n".join(f"* {escaped(line)}" for line in [view["setting_words"], *card.lines[1:]])]
    if card.rows:
        blocks.append(_table(card.head, card.rows))
    blocks += [f"> **Note:** {escaped(line)}" for line in view["warnings"]]
    if len(view["cards"]) > 1:
        rows = [
            (name, one.title, one.what, one.boxes[0].value if one.who else "")
            for name, one in view["cards"]
        ]
        blocks += [
            "## The answer at every setting",
            _table(["sampling", "answer", "what is drafted", "× plain"], rows),
        ]
    blocks += [
        "## Acceptance",
        "\n".join(f"* {escaped(line)}" for line in view["short"][view["first"]]),
    ]
    for setting, lost in zip(view["settings"], view["lost"], strict=True):
        if lost["parts"]:
            blocks += [
                f"## What acceptance is lost to, {escaped(setting)}",
                escaped(view["lost_words"]),
            ]
            blocks.append(_table(["first drafts", "share", "95 % interval"], lost["parts"]))
        if lost["likeliest"]:
            blocks += [escaped(view["likeliest_words"]) + ":"]
            blocks.append(
                _table(["k", "drawn from this draft", "the target's likeliest"], lost["likeliest"])
            )
    if any(view["trees"]):
        blocks += ["## What trees win, and what none passes", escaped(view["trees_words"])]
    for setting, trees in zip(view["settings"], view["trees"], strict=True):
        for scheme, rows in trees:
            blocks += [f"{escaped(setting)}: {escaped(scheme)}", _table(view["trees_head"], rows)]
    tables = list(zip(view["settings"], view["tables"], strict=True))
    tables.insert(0, tables.pop(view["first"]))
    for setting, table in tables[:_MOST_TABLES]:
        blocks.append(f"## Mean acceptance, {escaped(setting)} ({table['rows']} positions)")
        header = ["scheme", *(f"k = {k}" for k in view["ks"])]
        blocks.append(
            _table(header, [[row[0], *(_cell(cell) for cell in row[1:])] for row in table["cells"]])
        )
        if table["statistics"]:
            blocks.append(
                _table(["quantity", "mean", "95 % interval", "remarks"], table["statistics"])
            )
    if len(view["tables"]) > _MOST_TABLES:
        blocks.append(
            f"{len(view['tables']) - _MOST_TABLES} more sampling settings are in the HTML page."
        )
    if view["best_draft_temperature"]:
        blocks.append(escaped(view["best_draft_temperature"]))
    blocks += [
        "## Terms",
        "\n".join(f"* **{escaped(term)}**: {escaped(text)}" for term, text in view["terms"]),
    ]
    blocks += [
        "## How the numbers were made",
        escaped(view["intro"]),
        *(escaped(line) for line in view["method"]),
    ]
    blocks.append(_table(["provenance", ""], view["provenance"]))
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    r"""Escape text for Markdown: one line, no markup, no HTML.

    >>> escaped("a|b <i> [x](y)")
    'a\\|b &lt;i&gt; \\[x\\](y)'
    """
    text = re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", " ".join(text.split()))
    return re.sub(r"&(?=[#\w]+;)", "&amp;", text).replace("<", "&lt;").replace(">", "&gt;")


def _cell(cell: tuple[str, str]) -> str:
    value, interval = cell
    return f"{value} ({interval})" if interval else value


def _table(header: Sequence[str], rows: Any) -> str:
    return markdown(header, [[escaped(str(cell)) for cell in row] for row in rows])
