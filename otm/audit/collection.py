"""What exact batteries share: audits by label, and one verdict over all of them."""

from __future__ import annotations

import abc
import dataclasses
from typing import Generic, Protocol, TypeVar

from otm.audit.exact import Verdict


class Judged(Protocol):
    """An exact audit, as far as a battery looks at it."""

    @property
    def verdict(self) -> Verdict:
        """Its verdict."""
        ...

    @property
    def total_variation(self) -> float:
        """How far the output's law is from the target's."""
        ...


Audit = TypeVar("Audit", bound=Judged)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Collection(abc.ABC, Generic[Audit]):
    """Audits of one candidate by label, and that of the smallest failing instance, None if it fails nowhere."""

    name: str
    audits: dict[str, Audit]
    counterexample: Audit | None

    @abc.abstractmethod
    def __str__(self) -> str:
        """The report."""

    @property
    def failed(self) -> dict[str, Audit]:
        """The audits whose output does not have the target's law."""
        return {label: audit for label, audit in self.audits.items() if audit.verdict == "not lossless"}

    @property
    def worst(self) -> Audit:
        """The audit with the largest total variation."""
        return max(self.audits.values(), key=lambda audit: audit.total_variation)

    @property
    def verdict(self) -> Verdict:
        """Not lossless if any audit is; lossless if all are."""
        verdicts = {audit.verdict for audit in self.audits.values()}
        if "not lossless" in verdicts:
            return "not lossless"
        return "undecided" if "undecided" in verdicts else "lossless"
