"""What every audit has: a name, a verdict, and a report in Markdown; and batteries, many audits under one verdict."""

from __future__ import annotations

import abc
import dataclasses
from typing import Generic, Literal, TypeVar, get_args

Verdict = Literal["not lossless", "undecided", "no verdict", "no difference found", "lossless"]
"""Worst first. Audits by integration say "lossless", or "undecided" within their error; those of samples "no difference found", or
"no verdict" where there are too few of them to find what was asked for."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Audit(abc.ABC):
    """What an audit says about a candidate; `str` gives the report in Markdown.

    Attributes:
        name: of the candidate.
    """

    name: str

    @property
    @abc.abstractmethod
    def verdict(self) -> Verdict:
        """Whether the output has the target's law."""

    @abc.abstractmethod
    def figures(self) -> str:
        """Return the report without its heading."""

    def __str__(self) -> str:
        return f"## `{self.name}`: {self.verdict}\n\n{self.figures()}"


Single = TypeVar("Single", bound=Audit)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Battery(Audit, Generic[Single]):
    """Audits of one candidate on several instances.

    Attributes:
        audits: one for each instance, by label.
    """

    audits: dict[str, Single]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.verdict}, {len(self.audits)} instances)"

    @property
    def failed(self) -> dict[str, Single]:
        """The audits whose output does not have the target's law."""
        return {label: audit for label, audit in self.audits.items() if audit.verdict == "not lossless"}

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any audit."""
        found = {audit.verdict for audit in self.audits.values()}
        verdict: Verdict = next(verdict for verdict in get_args(Verdict) if verdict in found)
        return verdict
