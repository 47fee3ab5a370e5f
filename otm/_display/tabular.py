"""Tables in text, HTML and LaTeX, and the base of every result that is a table.

A result says what its table is (`data`) and how it is drawn (`_draw`); the rest is here. `columns`
and `markdown` write tables whose cells are text already, on a screen and on a page.
"""

from __future__ import annotations

import abc
import dataclasses
import html
import importlib
import math
import numbers
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from otm._display import drawing
from otm.errors import InvalidParameter, MissingPackage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "—": "---",
    "–": "--",
    "−": r"$-$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "∞": r"$\infty$",
    "α": r"$\alpha$",
    "γ": r"$\gamma$",
    "π": r"$\pi$",
    "‖": r"$\Vert$",
    "★": r"$\star$",
    "≈": r"$\approx$",
    "…": r"\dots{}",
}
_WIDTH = 100
_CSS = "border-collapse:collapse;margin:.4em 0 .8em"
_CELL = "padding:.15em .7em;white-space:nowrap"


@dataclasses.dataclass(frozen=True)
class Table:
    """A title, names of columns, rows of plain values, and remarks below.

    Attributes:
        columns: their names.
        rows: values: text, numbers, or None where there is none.
        title: what stands above; empty for nothing.
        notes: what stands below, a line each.
        best: cells (row, column) that are marked as the best.
        ruled: rows below which a rule is drawn.
        longest: how much of a cell's text is printed, the whole below the table; pages and papers
            show all of it in place.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    ruled: frozenset[int] = frozenset()
    longest: int = 10**6

    def text(self) -> str:
        """Return the table in aligned columns, the best marked by a star."""
        texts = [[format_cell(value) for value in row] for row in self.rows]
        heads = [name + self._mark(-1, j) for j, name in enumerate(self.columns)]
        rows: list[Sequence[str] | None] = [heads, None]
        for i, row in enumerate(texts):
            rows.append([shortened(t, self.longest) + self._mark(i, j) for j, t in enumerate(row)])
            rows += [None] * (i in self.ruled)
        lines = columns(rows, right=self._numeric())[0 if any(self.columns) else 1 :]
        cut = dict.fromkeys(text for row in texts for text in row if len(text) > self.longest)
        notes = (*self.notes, *(f"… {text}" for text in cut))
        below = [line for note in notes for line in wrapped(note)]
        return "\n".join([*[self.title] * bool(self.title), *lines, *below])

    def _mark(self, i: int, j: int) -> str:
        """Return the mark behind a cell: a star, or a blank in a column with a star."""
        return "★" if (i, j) in self.best else " " * (bool(self.best) and j > 0)

    def html(self) -> str:
        """Return the table as HTML without external resources; the best is bold."""
        numeric = self._numeric()

        def line(texts: Iterable[str], tag: str = "td", under: str = "") -> str:
            sides = ("right" if j in numeric else "left" for j in range(len(self.columns)))
            cells = (
                f'<{tag} style="{_CELL};text-align:{side}{under}">{text}</{tag}>'
                for text, side in zip(texts, sides, strict=True)
            )
            return f"<tr>{''.join(cells)}</tr>"

        body = [
            line(row, under=";border-bottom:1px solid #999" if i in self.ruled else "")
            for i, row in enumerate(self._cells(html.escape, "<b>{}</b>"))
        ]
        title = (
            f'<caption style="text-align:left;font-weight:600">{html.escape(self.title)}</caption>'
            if self.title
            else ""
        )
        notes = "".join(
            f'<div style="font-size:85%">{html.escape(note)}</div>' for note in self.notes
        )
        names = line(map(html.escape, self.columns), "th", ";border-bottom:1px solid")
        head = f"<thead>{names}</thead>" if any(self.columns) else ""
        return f'<table style="{_CSS}">{title}{head}<tbody>{"".join(body)}</tbody></table>{notes}'

    def latex(self) -> str:
        """Return a `tabular` for the package booktabs; the best is bold."""
        lines = [f"% {self.title}"] if self.title else []
        sides = ("r" if j in self._numeric() else "l" for j in range(len(self.columns)))
        lines += [rf"\begin{{tabular}}{{{''.join(sides)}}}", r"\toprule"]
        if any(self.columns):
            lines += [" & ".join(map(latex_escaped, self.columns)) + r" \\", r"\midrule"]
        for i, row in enumerate(self._cells(latex_escaped, r"\textbf{{{}}}")):
            lines.append(" & ".join(row) + r" \\")
            lines += [r"\midrule"] * (i in self.ruled and i + 1 < len(self.rows))
        notes = [rf"\par{{\footnotesize {latex_escaped(note)}\par}}" for note in self.notes]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes])

    def _cells(self, escaped: Callable[[str], str], best: str) -> list[list[str]]:
        """Return the formatted cells of the rows, with the best cells in the form `best`."""
        return [
            [
                (best if (i, j) in self.best else "{}").format(escaped(format_cell(value)))
                for j, value in enumerate(row)
            ]
            for i, row in enumerate(self.rows)
        ]

    def _numeric(self) -> list[int]:
        """Return the indices of the columns of numbers, which are aligned right."""
        filled = [
            [row[j] for row in self.rows if row[j] not in (None, "")]
            for j in range(len(self.columns))
        ]
        return [
            j
            for j, values in enumerate(filled)
            if values and all(isinstance(value, numbers.Real | Approximate) for value in values)
        ]


@dataclasses.dataclass(frozen=True)
class Approximate:
    """A number known from samples, shown with fewer digits and the sign ≈."""

    value: float

    def __float__(self) -> float:
        return self.value


class Tabular(abc.ABC):  # abstract by intent: a result that is a table
    """A result that is shown as one or several tables and drawn as a picture."""

    @abc.abstractmethod
    def data(self) -> Table:
        """Return the whole result as one table of plain values."""

    @abc.abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """Return the tables shown in a notebook and in a paper."""

    @abc.abstractmethod
    def _draw(self, ax: Axes) -> None:
        """Draw the result into axes."""

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self.tables())

    def to_latex(self) -> str:
        """Return the shown tables as LaTeX `tabular`s, which need the package booktabs."""
        return "\n\n".join(table.latex() for table in self.tables()) + "\n"

    def to_pandas(self) -> Any:
        """Return `data` as a data frame; numbers stay numbers.

        Raises:
            MissingPackage: without pandas.
        """
        try:
            frame = importlib.import_module("pandas").DataFrame
        except ModuleNotFoundError as error:
            raise MissingPackage(
                "A data frame needs pandas, which is not installed. Run `pip install pandas`."
            ) from error
        table = self.data()
        return frame(list(table.rows), columns=list(table.columns))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the result into `ax`, or new axes, and return the axes.

        Raises:
            MissingPackage: without matplotlib.
        """
        axes = drawing.axes_or_new(ax)
        self._draw(axes)
        return axes


class OneTable(Tabular):  # abstract by intent: what is shown is all there is
    """A result that consists of one table."""

    def tables(self) -> tuple[Table, ...]:
        """Return the one table."""
        return (self.data(),)


def shortened(text: str, longest: int) -> str:
    """Cut a text that is longer.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def wrapped(note: str) -> list[str]:
    """Return the lines of a remark, wrapped to the width of a page."""
    return textwrap.wrap(note, _WIDTH, subsequent_indent="  ")


def columns(rows: Iterable[Sequence[str] | None], *, right: Collection[int] = ()) -> list[str]:
    """Pad texts into columns, two blanks apart; `right` are aligned right, None is a rule.

    >>> columns([("", "k = 1"), ("optimum", "0.75")], right=[1])
    ['         k = 1', 'optimum   0.75']
    """
    found = list(rows)
    widths = [
        max(map(len, column))
        for column in zip(*(row for row in found if row is not None), strict=True)
    ]
    filled = [["─" * width for width in widths] if row is None else row for row in found]
    places = ["rjust" if j in right else "ljust" for j in range(len(widths))]
    return [
        "  ".join(getattr(c, p)(w) for c, p, w in zip(row, places, widths, strict=True)).rstrip()
        for row in filled
    ]


def markdown(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()
) -> str:
    """Lay out cells, which are Markdown, under a head of column names.

    >>> print(markdown(["", ""], [("optimum", "3/4")]))
    | | |
    |---|---|
    | optimum | 3/4 |
    """
    rule = "".join("---:|" if j in right else "---|" for j in range(len(head)))
    return "\n".join([_markdown_line(head), f"|{rule}", *map(_markdown_line, rows)])


def with_section(text: str, name: str, body: str) -> str:
    """Return a document with the text between the markers of one section replaced.

    Raises:
        InvalidParameter: if the markers are missing.

    >>> with_section("a <!-- t: begin --> old <!-- t: end --> b", "t", "new").split()
    ['a', '<!--', 't:', 'begin', '-->', 'new', '<!--', 't:', 'end', '-->', 'b']
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in text or end not in text:
        raise InvalidParameter(
            f"The document must hold the markers {begin} and {end}; one is missing. Add both."
        )
    return f"{text.split(begin)[0]}{begin}\n\n{body}\n\n{end}{text.split(end)[1]}"


def section(text: str, name: str) -> str:
    """Return the text between the markers of one section."""
    return text.split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0].strip()


def _markdown_line(cells: Sequence[str]) -> str:
    lines = (re.sub(r"(?<!\\)\|", r"\|", " ".join(cell.splitlines())) for cell in cells)
    return f"|{'|'.join(f' {line} ' if line else ' ' for line in lines)}|"


def format_cell(value: Any) -> str:
    """Format a cell: six decimals, integers with separators, a dash for a missing value.

    >>> values = 0.25, 1200, None, "text", 1e-9, Approximate(0.25), float("inf")
    >>> [format_cell(value) for value in values]
    ['0.250000', '1,200', '—', 'text', '1.0e-09', '≈0.2500', '∞']
    """
    if value is None:
        return "—"
    if isinstance(value, Approximate):
        return f"≈{value.value:.4f}"
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}"
    if isinstance(value, numbers.Real):
        number = float(value)
        if not math.isfinite(number):
            return "—" if math.isnan(number) else "∞" if number > 0 else "−∞"
        return (
            f"{number:.1e}"
            if 1e-15 < abs(number) < 5e-7
            else f"{abs(number) if abs(number) < 1e-15 else number:.6f}"
        )
    return " ".join(str(value).split())  # a name is one line


def latex_escaped(text: str) -> str:
    """Escape text for LaTeX."""
    return "".join(_LATEX.get(sign, sign) for sign in text)
