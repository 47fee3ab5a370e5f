"""The house's docstrings as reStructuredText: prose with formulas and single backticks, where `*`,
`|` and `_` mean themselves.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reference import public_names
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]

_SECTION = re.compile(r"(Args|Returns|Raises|Yields|Attributes|Examples?):$")
_LABEL = re.compile(r"(?<!\S)(Cost|Accuracy|Reference|Guarantee|Gradients|Law|Laws):(?=\s)")
_PAGE = re.compile(r"docs/(\w+)\.md")
_SPECIAL = re.compile(r"([\\*|]|_(?=\W|$)|(?<=\S)`_)")


def convert(lines: list[str]) -> list[str]:
    """Return the lines of a docstring with inline marks escaped and its indented formulas as
    literal blocks.
    """
    converted: list[str] = []
    in_section, in_example, in_formula, in_table = False, False, False, False
    for line in lines:
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if not text:
            in_example = in_formula = in_table = False
        elif set(text) <= {"=", " "}:
            in_table = True  # its columns are counted in characters: nothing may grow
        elif text.startswith(">>>"):
            in_example = True
        elif indent == 0:
            in_section = _SECTION.match(text) is not None
        if text and not in_example and not in_formula and indent >= 4 and not in_section:
            if converted and converted[-1].strip():
                indent = 0  # the hanging lines of `Cost:` and its like
            else:
                in_formula = True
                converted += ["::", ""]
        if in_example or in_formula or in_table or not text:
            converted.append(line)
        else:
            bullet = "* " if text.startswith("* ") else ""
            converted.append(" " * indent + bullet + _prose(text[len(bullet) :]))
    return converted


def _prose(text: str) -> str:
    parts = re.split(r"(``[^`]+``|`[^`]+`)", text)
    for i, part in enumerate(parts):
        if part.startswith("``"):
            continue
        parts[i] = (
            _code(part[1:-1])
            if part.startswith("`")
            else _PAGE.sub(_link, _LABEL.sub(r"**\1:**", _SPECIAL.sub(r"\\\1", part)))
        )
    # Inline code needs a space, or an escaped one, on both sides.
    for i in range(1, len(parts), 2):
        if parts[i - 1] and not parts[i - 1][-1].isspace() and parts[i - 1][-1] not in "([{\"'":
            parts[i] = "\\ " + parts[i]
        if (
            parts[i + 1]
            and not parts[i + 1][0].isspace()
            and parts[i + 1][0] not in ".,;:!?)]}'\"-/"
        ):
            parts[i] += "\\ "
    return "".join(parts)


def _link(match: re.Match[str]) -> str:
    return f":doc:`{match[1]} </{match[1]}>`" if (DOCS / f"{match[1]}.md").is_file() else match[0]


def _code(text: str) -> str:
    known = public_names()
    path = text if text in known else text.removesuffix("()")
    full = known.get(path)
    return f":py:obj:`{text} <{full}>`" if full else f"``{text}``"


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if (
        what in ("property", "attribute", "data") and lines
    ):  # napoleon would take what stands before a colon for a type
        lines[0] = re.sub(r":(?=\s)", "\N{RATIO}", lines[0])
    lines[:] = convert(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Convert before napoleon reads the sections."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True}
