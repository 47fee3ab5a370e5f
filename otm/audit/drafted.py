"""Candidates that are handed their drafts, of one token or of a block: what they share.

Which instances they are run on they say themselves (`DraftedCandidate.instances`); what is
integrated and what is sampled, and how finely, is decided here, for all of them alike:

* functions of uniforms are integrated wherever the drafts are few enough to enumerate, and sampled
  on what is larger; where they turn out to have randomness of their own, on a few instances;
* kernels of batches are sampled on all instances, slow ones on a few;
* if samples are asked for, on every standard instance.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from otm.audit import standard_problems as standard
from otm.audit.budget import Errors, OutOfTime
from otm.audit.candidate import Candidate, Check, FunctionCandidate, Scope
from otm.audit.integration import IntegratedAudit
from otm.audit.sampled_audit import Drawing, SampledAudit, audit_of_draws

Selection = Literal["standard", "few", "all", "large", "integrable"]
"""Which instances: those for samples alone; a few of them, for what is slow; all that can be
sampled; what is too large to integrate; and what is not.
"""

_ROWS = 128
"""Rows that tell how fast a kernel of batches is."""

_SAMPLES = 500_000
"""About as many as are planned of a kernel of batches."""


class Instance(NamedTuple):
    """What a candidate is run on.

    Attributes:
        name: of the problem or the models.
        setting: how the drafts are drawn, or how many positions they have.
        group: what is left out together if the candidate does not take it.
        needed: whether a verdict needs it.
        given: the problem, or the models and their length.
    """

    name: str
    setting: str
    group: str
    needed: bool
    given: Any


class DraftedCandidate(Candidate):
    """A candidate that is handed its drafts."""

    @abc.abstractmethod
    def instances(self, selection: Selection, scope: Scope) -> list[list[Instance]]:
        """Return a selection of the standard instances, a list for each law or length."""

    @abc.abstractmethod
    def drawing(self, given: Any, rng: np.random.Generator) -> Drawing:
        """Return what draws so many outputs on an instance."""

    @abc.abstractmethod
    def plan(self, scope: Scope) -> tuple[Selection, float]:
        """Return what is sampled, and the total variation that samples are to find."""

    def sampled(self, given: Any, rng: np.random.Generator, errors: Errors) -> SampledAudit:
        """Return the audit by samples on one instance."""
        return audit_of_draws(self.drawing(given, rng), name=self.name, errors=errors)

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield samples as planned, and integrations unless only samples are asked for."""
        selection: Selection = "standard"
        detect = None
        if not scope.sampled:
            selection, detect = self.plan(scope)
        sampled = in_turn(self.instances(selection, scope))
        errors = scope.errors.shared(len(sampled), detect)
        for instance in sampled:
            run = functools.partial(self._sampled_in, scope, errors, instance)
            yield _check(instance, "sampled", run)
        if not scope.sampled and not scope.own_randomness:
            yield from self.integrations(scope)

    @abc.abstractmethod
    def integrations(self, scope: Scope) -> Iterator[Check]:
        """Yield the checks that need no samples."""

    def _sampled_in(self, scope: Scope, errors: Errors, instance: Instance) -> SampledAudit:
        """Carry out a check by samples with a generator of its own."""
        rng = scope.rng(f"{instance.name}, {instance.setting}")
        return self.sampled(instance.given, rng, errors)


class IntegrableCandidate(DraftedCandidate):
    """One whose law can be integrated over its uniforms and every draft."""

    @abc.abstractmethod
    def integrated(self, given: Any, tolerance: float | None) -> IntegratedAudit:
        """Return the exact audit on one instance."""

    @abc.abstractmethod
    def smallest(self, given: Any, tolerance: float | None) -> IntegratedAudit | None:
        """Return the audit of the smallest instance found on which it fails, up to this one."""

    def plan(self, scope: Scope) -> tuple[Selection, float]:
        """Return what is too large to integrate; a few where it turned out to be impossible."""
        if scope.own_randomness:
            return "few", standard.DETECT_ROWS
        return "large", standard.DETECT

    def integrations(self, scope: Scope) -> Iterator[Check]:
        """Yield integrations of all that is not too large for it."""
        for instance in in_turn(self.instances("integrable", scope)):
            asked = instance.given, scope.tolerance
            yield _check(
                instance,
                "exact",
                functools.partial(self.integrated, *asked),
                shrink=functools.partial(self.smallest, *asked),
            )


@dataclasses.dataclass(frozen=True, eq=False)
class KernelCandidate(FunctionCandidate, DraftedCandidate):
    """A kernel that verifies rows in batches with randomness of its own."""

    def plan(self, scope: Scope) -> tuple[Selection, float]:
        """Return all instances, or a few if it is so slow that samples do not fit the time."""
        few = in_turn(self.instances("few", scope))
        slow = few and self._seconds_of_a_row(few[0]) * _SAMPLES > scope.deadline.seconds
        return ("few", standard.DETECT_SLOW) if slow else ("all", standard.DETECT_ALONE)

    def integrations(self, scope: Scope) -> Iterator[Check]:
        """Yield none: its draws are its own."""
        yield from ()

    def _seconds_of_a_row(self, instance: Instance) -> float:
        """Return how long it takes for a row of an instance; 0 if it fails."""
        draw, took = self.drawing(instance.given, np.random.default_rng(0)).draw, []
        for _ in range(3):  # the first call loads what it needs, and a busy machine interrupts
            begun = time.monotonic()
            try:
                draw(_ROWS)
            except (Exception, SystemExit, OutOfTime):  # which is for the audit to say
                return 0.0
            took.append(time.monotonic() - begun)
        return min(took) / _ROWS


def _check(instance: Instance, kind: Any, run: Any, shrink: Any = None) -> Check:
    name, setting, group, needed, _ = instance
    return Check(name, setting, kind, group, run, needed=needed, shrink=shrink)


def in_turn(groups: Iterable[Sequence[Instance]]) -> list[Instance]:
    """Return the first instances of all groups, then the second; last what no verdict needs."""
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*groups))
    return sorted((one for one in rounds if one is not None), key=lambda one: not one.needed)
