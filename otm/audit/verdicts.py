"""What every audit has: a name, a verdict, what the verdict covers, and a report in Markdown."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Literal

from otm.audit.coverage import Coverage
from otm.tabular import OneTable, Table

Verdict = Literal["not lossless", "undecided", "no verdict", "no difference found", "lossless"]
"""Worst first. Audits by integration say "lossless", or "undecided" within their error; those of
samples "no difference found", or "no verdict" where there are too few of them to find what was
asked for.
"""

PASSED = frozenset[Verdict]({"lossless", "no difference found"})
"""Verdicts that let a candidate pass."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Audit(OneTable):
    """What an audit says about a candidate; `str` gives the report in Markdown.

    Attributes:
        name: of the candidate.
        reason: what stood in the way of an exact law, "a random number was converted to a plain
            float" say; empty if nothing did.
    """

    name: str
    reason: str = ""

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

    @abc.abstractmethod
    def row(self) -> tuple[str, str, str]:
        """Return total variation, KL(q‖π) and a remark, as a battery's table shows them."""

    @abc.abstractmethod
    def figures(self) -> str:
        """Return the report without its head."""

    @property
    @abc.abstractmethod
    def parts(self) -> Mapping[str, Audit]:
        """The audits that it consists of, by instance: itself alone, but for a battery."""

    def data(self) -> Table:
        """Return the verdict and the figures of each part; `severity` is the total variation, or a
        lower bound on it.
        """
        rows = [
            (label, part.verdict, *part.row(), part.severity) for label, part in self.parts.items()
        ]
        head = ("instance", "verdict", "total variation", "KL(q‖π)", "remark", "severity")
        return Table(
            columns=head,
            rows=tuple(rows),
            title=f"{self.name}: {self.verdict}",
            notes=(str(self.coverage),),
        )

    def head(self) -> str:
        """Return the verdict, and below it what it covers, and why it is not exact where that was
        tried.
        """
        reason = f"\nNot exact, since {self.reason.rstrip('.')}." if self.reason else ""
        return f"## `{self.name}`: {self.verdict}\n{self.coverage}{reason}"

    def __str__(self) -> str:
        return f"{self.head()}\n\n{self.figures()}"


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SingleAudit(Audit):
    """An audit of one instance."""

    @property
    def parts(self) -> Mapping[str, Audit]:
        """Itself."""
        return {", ".join(self.coverage.instances): self}
