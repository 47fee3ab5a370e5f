"""What every audit gives: a verdict, what the verdict covers, and a report made of its figures.

A result keeps its data and says its verdict (`Audit.verdict`), what was tested (`Audit.coverage`),
one row for a table of many (`Audit.row`), the sections of its report (`Audit.sections`) and its
picture (`Audit.picture`). All that is printed, put in tables or drawn is made of these, here.
`facts` and `listing` render the sections, `format_probability` the numbers in them.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from otm.audit.coverage import PROBING, Coverage
from otm.tabular import OneTable, Table, markdown

Verdict = Literal[
    "not lossless",
    "fault",
    "raised",
    "not exact",
    "undecided",
    "no verdict",
    "little power",
    "no difference found",
    "rounding",
    "identical",
    "lossless",
]
"""Worst first. Audits by integration say "lossless", "not exact" where rounding does not explain a
deviation of the size of a code's own ε, or "undecided" within their error; those of samples "no
difference found", "little power" where only a large one would have been, or "no verdict" where
there are too few of them to find what was asked for. "raised": the candidate raised on inputs that
are valid, and answered others. Of two runs that should write the same text: "identical", "rounding"
or "fault".
"""

PASSED = frozenset[Verdict]({"lossless", "no difference found", "identical", "rounding"})
"""Verdicts that let a candidate pass."""

FAILED: tuple[Verdict, ...] = ("not lossless", "not exact")
"""Verdicts on an output that does not have the target's law, worst first."""

MOST_ENTRIES = 12
"""Entries of a distribution that are written out."""

MOST_ROWS = 12
"""Instances that a table of a report lists, worst first."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Audit(OneTable):
    """What an audit says about a candidate; `str` gives the report in Markdown.

    Attributes:
        name: of the candidate.
        reason: what stood in the way of an exact law, "a random number was converted to a plain
            float" say; empty if nothing did.
        detail: what the headline says beside the verdict, where a number does not.
    """

    name: str
    reason: str = ""
    detail: str = ""

    @property
    @abc.abstractmethod
    def verdict(self) -> Verdict:
        """Whether the output has the target's law."""

    @property
    @abc.abstractmethod
    def coverage(self) -> Coverage:
        """What the verdict covers."""

    @property
    @abc.abstractmethod
    def severity(self) -> float:
        """The total variation to the target: as found, or the lower end of its 95 % interval."""

    @property
    @abc.abstractmethod
    def parts(self) -> Mapping[str, Audit]:
        """The audits that it consists of, by instance: itself alone, but for a battery."""

    @abc.abstractmethod
    def row(self) -> tuple[str, str, str]:
        """Return total variation, KL(q‖π) and a remark, as a table of many audits shows them."""

    @abc.abstractmethod
    def sections(self) -> list[str]:
        """Return the parts of the report below its head, in Markdown."""

    @abc.abstractmethod
    def picture(self, ax: Any) -> None:
        """Draw the figures into matplotlib's axes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.verdict}, {self.row()[0]})"

    def __str__(self) -> str:
        return f"{self.head()}\n\n{self.figures()}"

    @property
    def headline(self) -> str:
        """The verdict with its number."""
        covered = self.coverage
        tried = len(covered.instances) + covered.raised
        unfollowed = f" but for {covered.unfollowed:.1g} of the draws, which were not followed"
        numbers = {
            "lossless": " (probed)" * (PROBING in dict(covered.by))
            + unfollowed * (covered.unfollowed > 0.0),
            "raised": f" on {covered.raised} of {tried} instances",
            "not exact": f" by {self.severity:.2g}",
            "little power": f": no difference found above {covered.detect:g}",
        }
        found = f": {self.detail}" if self.detail else ""
        return self.verdict + numbers.get(self.verdict, found)

    def head(self) -> str:
        """Return the verdict, what it covers, and why it is not exact where that was tried."""
        reason = f"\nNot traced, since {self.reason.rstrip('.')}." if self.reason else ""
        guess = f" ({covered.taken_for})" if (covered := self.coverage).taken_for else ""
        return f"## `{self.name}`: {self.headline}{guess}\n{covered}{reason}"

    def figures(self) -> str:
        """Return the report without its head."""
        return "\n\n".join(self.sections())

    def data(self) -> Table:
        """Return verdict and figures of each part; `severity` is a total variation, or below it."""
        rows = [
            (label, part.verdict, *part.row(), part.severity) for label, part in self.parts.items()
        ]
        return Table(
            columns=("instance", "verdict", "total variation", "KL(q‖π)", "remark", "severity"),
            rows=tuple(rows),
            title=f"{self.name}: {self.verdict}",
            notes=(str(self.coverage),),
        )

    def _draw(self, ax: Any) -> None:
        self.picture(ax)
        ax.set_title(f"{self.name}: {self.verdict}", fontsize=10)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SingleAudit(Audit):
    """An audit of one instance.

    Attributes:
        again: Python that repeats it, with {} for the candidate's name; "" where none can.
    """

    again: str = ""

    @property
    def parts(self) -> Mapping[str, Audit]:
        """Itself."""
        return {", ".join(self.coverage.instances): self}


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Render pairs (what, figure) as a section.

    >>> print(facts([("optimum", "3/4")]))
    | | |
    |---|---|
    | optimum | 3/4 |
    """
    return markdown(("", ""), rows)


def listing(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render the first `MOST_ROWS` rows as a section, and say how many there are beside them."""
    shown = list(rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        shown.append(("…", f"{len(rows) - MOST_ROWS} more", *[""] * (len(head) - 2)))
    return markdown(head, shown)


def format_probability(value: float) -> str:
    """Write a probability as a fraction where a small one is meant, else to six digits.

    >>> format_probability(0.625), format_probability(1 / 3), format_probability(0.1234567)
    ('5/8', '1/3', '0.123457')
    """
    if not np.isfinite(value):
        return "∞"
    fraction = Fraction(value).limit_denominator(128)
    if abs(float(fraction) - value) < 1e-14:
        return str(fraction)
    return f"{value:.6g}"


def format_probabilities(values: Any) -> str:
    """Write a distribution, or one for each row, shortened beyond twelve entries.

    >>> format_probabilities([[0.5, 0.5], [0.25, 0.75]])
    '(1/2, 1/2); (1/4, 3/4)'
    """
    array = np.asarray(values)
    if array.ndim > 1:
        return "; ".join(format_probabilities(row) for row in array)
    shown = ", ".join(format_probability(float(x)) for x in array[:MOST_ENTRIES])
    return f"({shown}{', …' if len(array) > MOST_ENTRIES else ''})"
