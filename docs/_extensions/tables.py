"""Tables that the library writes about itself: verifiers, laws, decoders and options from their
registries and docstrings.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from reference import public_names
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import otm
from otm import sequence
from otm._display.tabular import markdown
from otm.commands import COMMANDS
from otm.commands.app import further, load

ROOT = Path(__file__).resolve().parents[2]

_PARTS = (
    "Cost",
    "Accuracy",
    "Reference",
    "Guarantee",
    "Gradients",
    "Law",
    "Laws",
    "Lossless",
    "Not lossless",
)


def part(thing: object, name: str) -> str:
    """Return one part of a docstring (`Cost: …`), up to the next part, as one line."""
    text = " ".join((inspect.getdoc(thing) or "").partition(">>>")[0].split())
    found = re.search(rf"(?<!\S){name}: (.*?)(?=\s(?:{'|'.join(_PARTS)})(?::|\.)|$)", text)
    return found[1].rstrip(".") if found else ""


def _sentence(thing: object) -> str:
    """Return the summary of a docstring as one line."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def _cell(text: str) -> str:
    text = re.sub(r"docs/theory\.md, \"([^\"]+)\"", _theory, text)
    names = public_names()
    text = re.sub(
        r"`([^`]+)`",
        lambda m: f"{{py:obj}}`{m[1]} <{names[m[1]]}>`" if m[1] in names else m[0],
        text,
    )
    return text.replace("*", "\\*").replace("$", "\\$")


def _theory(match: re.Match[str]) -> str:
    return f"{{doc}}`theory </theory>`, “{match[1]}”"


def _laws(verifier: type[otm.Verifier]) -> str:
    shown = [
        "any" if law is otm.Law else law.__name__ + "(k)" if isinstance(law, type) else repr(law)
        for law in verifier.laws
    ]
    return ", ".join(f"`{name.replace('k=', '')}`" for name in shown)


def _signature(cls: type) -> str:
    return f"{{py:obj}}`{cls.__name__} <{public_names()[cls.__name__]}>`"


def verifier_rows() -> list[list[str]]:
    """Return name and title, laws, lossless, gradients and reference of every registered
    verifier.
    """
    rows = []
    for verifier in otm.verifiers.VERIFIERS:
        rows.append(
            [
                f"{_signature(verifier)} {verifier.title}",
                _laws(verifier),
                "yes" if verifier.lossless else "no",
                "yes" if verifier.differentiable else "–",
                _cell(part(verifier, "Reference")),
            ]
        )
    return rows


def law_rows() -> list[list[str]]:
    """Return name, title, and how it drafts, of every registered draft law."""
    return [[_signature(law), law.title, _cell(_sentence(law))] for law in otm.drafts.LAWS]


def decoder_rows() -> list[list[str]]:
    """Return name, title, whether it is lossless, what it does, and reference of every registered
    decoder.
    """
    decoders = [
        *((cls, "yes") for cls in sequence.DECODERS),
        *((cls, "no") for cls in sequence.LOSSY_DECODERS),
    ]
    return [
        [
            _signature(cls),
            cls.title,
            kept,
            _cell(_sentence(cls)),
            _cell(part(cls, "Reference")),
        ]
        for cls, kept in decoders
    ]


def option_rows() -> list[list[str]]:
    """Return every option of the command line, what it means, and the commands that have it."""
    found: dict[str, dict[str, Any]] = {}
    for one in (*COMMANDS, *further()):
        for option in load(one).params:
            if option.param_type_name == "option":
                found.setdefault(option.opts[0], {})[one.name] = option
    return [
        [
            f"`{' '.join(filter(None, (name, next(iter(options.values())).metavar)))}`",
            "; ".join(dict.fromkeys(option.help for option in options.values())),
            ", ".join(f"`{command}`" for command in options),
        ]
        for name, options in sorted(found.items())
    ]


TABLES = {
    "options": (("option", "what it means", "commands"), option_rows),
    "verifiers": (
        ("verifier", "draft laws", "lossless", "gradients", "reference"),
        verifier_rows,
    ),
    "laws": (("call", "name", "how drafts are drawn"), law_rows),
    "decoders": (("call", "name", "lossless", "what it does", "reference"), decoder_rows),
}


class RegistryTable(SphinxDirective):
    """`{registry} verifiers`: a table of everything that is registered, with a box above that
    filters its rows.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        head, rows = TABLES[self.arguments[0]]
        box = nodes.container(classes=["filtered", self.arguments[0]])
        box += self.parse_text_to_nodes(markdown(head, rows()))
        return [box]


def timings(name: str, pattern: str) -> tuple[list[str], str]:
    """Return the lines of a benchmark's table whose task matches, below its head, and the machine
    that it was taken on.
    """
    text = _result(name).read_text(encoding="utf-8").splitlines()
    table = [line for line in text if line.startswith("|")]
    rows = [row for row in table[2:] if re.search(pattern, row)]
    return [*table[:2], *rows], next(line for line in text if line.startswith("Medians"))


def _result(name: str) -> Path:
    return ROOT / "benchmarks" / "results" / f"{name}.md"


class Timings(SphinxDirective):
    """`{timings} FILE PATTERN`: the committed rows of one benchmark whose task matches."""

    required_arguments = 2
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the table, and the machine below it."""
        name, pattern = self.arguments
        self.env.note_dependency(str(_result(name)))
        table, machine = timings(name, pattern)
        if len(table) == 2:
            raise self.error(f"no row of {name}.md matches {pattern}")
        return self.parse_text_to_nodes("\n".join([*table, "", f"*{machine}*"]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("registry", RegistryTable)
    app.add_directive("timings", Timings)
    return {"parallel_read_safe": True}
