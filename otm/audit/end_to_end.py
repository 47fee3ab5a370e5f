"""Candidates that draft by themselves, read drafted trees, or write whole texts.

Each check is one pair of toy models, shape of a tree or request, by branching on draws where it can
be and by samples where not. What a callable does not take (a batch, an end of sequence) is left
out, and said so.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from otm.audit import standard_problems as standard
from otm.audit.candidate import Check, FunctionCandidate, Scope
from otm.audit.error_budget import DetectionBudget
from otm.audit.joint_audit import JointAudit
from otm.errors import InvalidParameter

DRAWS = "rng=np.random.default_rng(0)"
"""The generator in the Python that repeats an audit."""

_SHARE, _BRANCHING = 0.2, 0.3
"""Of the time: branching of one audit, and of all that it comes to nothing in."""

_LONGEST = 3600.0
"""Seconds that are shared where there is no limit."""

_USED = 0.8
"""Of the time for samples, what is planned: their pace varies."""


class Instance(NamedTuple):
    """What a candidate is run on.

    Attributes:
        name: of the instance.
        group: what is left out together if the code does not take it.
        given: the arguments of the audit.
        again: Python that repeats it, with {} for the code's name.
    """

    name: str
    group: str
    given: dict[str, Any]
    again: str


@dataclasses.dataclass(frozen=True, eq=False)
class EndToEndCandidate(FunctionCandidate):
    """A candidate that draws its drafts by itself, or has them drawn with the rest."""

    share: ClassVar[float] = 1.0

    @abc.abstractmethod
    def instances(self) -> list[Instance]:
        """Return the standard instances for it."""

    @abc.abstractmethod
    def audited(self, **options: Any) -> JointAudit:
        """Return the audit on one instance."""

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield one check for each instance.

        Raises:
            InvalidParameter: if laws or lengths are given, or samples only are asked for.
        """
        if not scope.default:
            raise InvalidParameter(
                "laws and num_drafts are of verifiers that are handed their drafts; "
                f"{self.name!r} drafts by itself, or reads trees. Drop them."
            )
        if scope.sampled:
            raise InvalidParameter(
                f"{self.name!r} is {self.description}: its draws are branched on, and sampled "
                "where that is impossible. Drop only='sampled'."
            )
        found = self.instances()
        time_left = _TimeLeft(scope, len(found))
        for instance in found:
            run = functools.partial(time_left.spend, self, instance)
            yield Check(instance.name, "", "exact", instance.group, run)


class _TimeLeft:
    """Shares the time: half of it branches where that may come to no end, the rest samples."""

    def __init__(self, scope: Scope, audits: int) -> None:
        self.scope, self.audits, self.waiting = scope, audits, audits
        self.seconds = min(scope.deadline.seconds, _LONGEST)
        self.branching = _BRANCHING * self.seconds

    def spend(self, candidate: EndToEndCandidate, instance: Instance) -> JointAudit:
        """Carry out one audit within its part of the time."""
        scope, begun = self.scope, time.monotonic()
        branching = max(0.0, min(_SHARE * self.seconds, self.branching))
        left = scope.deadline.until - begun - branching
        detect = DetectionBudget(
            (standard.DETECT_ROWS, *standard.COARSER), _USED * left / self.waiting
        )
        self.waiting = max(1, self.waiting - 1)
        result = candidate.audited(
            **instance.given,
            rng=scope.rng(instance.name),
            tolerance=scope.tolerance,
            errors=scope.errors.shared(self.audits, detect),
            seconds=branching,
        )
        if result.samples is not None:
            self.branching -= min(branching, time.monotonic() - begun)
        return dataclasses.replace(result, again=instance.again)
