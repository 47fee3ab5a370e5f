"""Candidates that verify given drafts, of one token or of a block: the common base.

Each kind names the instances to run on (`DraftedCandidate.instances`); the choice between
integration and samples, and the number of samples, is made here, for all kinds alike:

* functions of uniforms are integrated wherever the drafts are few enough to enumerate, and then
  sampled on what is larger; where they turn out to have randomness of their own, on a few
  instances;
* kernels of batches are sampled in small batches, whose rows are compared jointly, and on all
  instances in large ones, slow kernels on a few;
* if samples are asked for, on every standard instance.

Small instances come first, one of every law or length; samples share the time that is left.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otm._machine.patience import Stopwatch
from otm.audit import standard_problems as standard
from otm.audit.budget import ENOUGH, DetectionBudget, Errors, OutOfTime
from otm.audit.candidate import Candidate, Check, FunctionCandidate, Scope
from otm.audit.integration import IntegratedAudit
from otm.audit.report import STATE
from otm.audit.sampled_audit import (
    LARGEST_BATCH,
    Drawing,
    Drawn,
    SampledAudit,
    audit_of_draws,
    jointly,
)
from otm.audit.tracing.probing import OwnRandomness

Selection = Literal["standard", "few", "all", "large", "integrable"]
"""A selection of instances: all for samples alone; a few, for slow code; all that can be sampled;
those too large to integrate; those small enough.
"""

_ROWS = 128
"""Rows that tell how fast a kernel of batches is."""

_ENTRIES, _FEW_CELLS = 1 << 22, 64
"""Probabilities in a call, and cells of outputs, of a large vocabulary."""

_SAMPLES = 500_000
"""About as many as are planned of a kernel of batches."""

_FOR_OTHERS = 0.8
"""Share of the time that is kept for all checks but the small batches."""


class Instance(NamedTuple):
    """An instance on which a candidate is run.

    Attributes:
        name: of the problem or the models.
        setting: how the drafts are drawn, or how many positions they have.
        group: what is left out together if the candidate does not take it.
        needed: whether a verdict needs it.
        size: how many drafts there are.
        given: the problem, or the models and their length.
    """

    name: str
    setting: str
    group: str
    needed: bool
    size: int
    given: Any


class DraftedCandidate(Candidate):
    """A candidate that verifies given drafts.

    Attributes:
        rows: in how large batches its rows are sampled, in words; "" one by one.
    """

    rows: ClassVar[str] = ""

    @abc.abstractmethod
    def instances(self, selection: Selection, scope: Scope) -> list[list[Instance]]:
        """Return a selection of the standard instances, a list for each law or length."""

    @abc.abstractmethod
    def drawing(self, given: Any, rng: np.random.Generator) -> Drawing:
        """Return the sampler of outputs on an instance."""

    @abc.abstractmethod
    def plan(self, scope: Scope) -> Selection:
        """Return the selection of instances to sample."""

    @abc.abstractmethod
    def others(self, scope: Scope) -> Iterator[Check]:
        """Yield the checks before the samples of the instances."""

    def sampled(self, given: Any, rng: np.random.Generator, errors: Errors) -> SampledAudit:
        """Return the audit by samples on one instance."""
        drawing = self.drawing(given, rng)
        tested = dataclasses.replace(
            drawing.tested,
            subjects=(*drawing.tested.subjects, *filter(None, [self.rows])),
            untested=(*drawing.tested.untested, STATE),
        )
        return audit_of_draws(drawing._replace(tested=tested), name=self.name, errors=errors)

    def checks(self, scope: Scope) -> Iterator[Check]:
        """Yield integrations unless only samples are requested, and the planned samples."""
        selection: Selection = "standard" if scope.sampled else self.plan(scope)
        if not scope.sampled:
            yield from self.others(scope)
        sampled = first_of_each_group(self.instances(selection, scope))
        sampled.sort(key=lambda one: -standard.floor_of(one.name))
        size = scope.vocabulary
        shares = BudgetSplit(scope, len(sampled) + bool(size), fixed=scope.sampled)
        if size is not None:
            run = functools.partial(self._sampled_at, size, scope, shares)
            name = f"vocabulary of {size:,}"
            yield Check(name, "1 draft", name, "sampled", run, needed=True)
        for instance in sampled:
            run = functools.partial(self._sampled_in, scope, shares, instance)
            beside = selection == "large"
            needed, kept = instance.needed and not beside, standard.KEPT_BESIDE * beside
            yield Check(*instance[:3], "sampled", run, needed=needed, kept=kept)

    @abc.abstractmethod
    def drawing_at(
        self, draft: NDArray[np.float64], target: NDArray[np.float64], rng: np.random.Generator
    ) -> Drawing:
        """Return the sampler of the first token on two laws `(V,)`, of one draft."""

    def _sampled_at(self, size: int, scope: Scope, shares: BudgetSplit) -> SampledAudit:
        """Carry out the check on a large vocabulary, a few rows a call and in a few cells.

        Faults that are small for every token add up over cells of many.
        """
        draft, target = standard.heavy_tailed(size)
        drawing = self.drawing_at(draft, target, scope.rng(f"vocabulary of {size}"))
        rows = max(1, _ENTRIES // size)

        def draw(count: int) -> Drawn:
            sizes = (min(rows, count - start) for start in range(0, count, rows))
            return Drawn(np.concatenate([drawing.draw(size).outputs for size in sizes]))

        timed = DetectionBudget(standard.LEVELS, self.share * shares.seconds)
        errors = scope.errors.shared(shares.audits, None if shares.fixed else timed)
        coarse = drawing._replace(draw=draw, optimum=None, cells=_FEW_CELLS)
        return audit_of_draws(coarse, name=self.name, errors=errors)

    def _sampled_in(self, scope: Scope, shares: BudgetSplit, instance: Instance) -> SampledAudit:
        """Carry out a check by samples, with a generator for this check alone."""
        rng = scope.rng(f"{instance.name}, {instance.setting}")
        beside = isinstance(self, IntegrableCandidate) and not scope.own_randomness
        floor = standard.FLOOR_BESIDE if beside else standard.floor_of(instance.name)
        return self.sampled(instance.given, rng, shares.next(floor, early=beside))


_SHARE, _BRANCHING = 0.2, 0.3
"""Shares of the time: branching of one audit, and branching of all audits without a result."""

_LONGEST = 3600.0
"""Seconds that are shared where there is no limit."""


class BudgetSplit:
    """A division of the time that is left, and of the false alarms, among audits by samples.

    Args:
        scope: the errors, and the time.
        audits: how many there are.
        fixed: whether they find what `Errors` say, and not what there is time for.
        kept: the part of all the time that is kept for others.

    Attributes:
        branching: seconds for branching that may not end; the rest is for samples.
        reason: why the draws of the code cannot be followed; empty unless an audit said so.
        followed: whether a law was handed out.
    """

    def __init__(
        self, scope: Scope, audits: int, *, fixed: bool = False, kept: float = 0.0
    ) -> None:
        self.scope, self.audits, self.waiting = scope, audits, audits
        self.fixed, self.kept = fixed, kept
        self.seconds = min(scope.deadline.seconds, _LONGEST)
        self.branching, self.reason = _BRANCHING * self.seconds, ""
        self.followed = False
        if scope.own_randomness:
            self.distrust("another instance contradicted the law found")

    def distrust(self, reason: str) -> None:
        """Give no more time to branching, since the code contradicted a law found for it.

        Raises:
            OwnRandomness: if a law was handed out before.
        """
        if self.followed:
            raise OwnRandomness.because(reason)
        self.branching, self.reason = 0.0, reason

    @property
    def branching_of_one(self) -> float:
        """The number of seconds for branching in the next audit."""
        return max(0.0, min(_SHARE * self.seconds, self.branching))

    def next(
        self, floor: float, *, most: float = 1.0, without: float = 0.0, early: bool = False
    ) -> Errors:
        """Return the errors of the next audit.

        Args:
            floor, most: the smallest and the largest total variation that it may be to find.
            without: seconds that are used for something else before.
            early: as of `DetectionBudget`.
        """
        detect = None
        if not self.fixed:
            deadline = self.scope.deadline
            left = deadline.left - without - self.kept * deadline.seconds
            levels = tuple(level for level in standard.LEVELS if floor <= level <= most)
            detect = DetectionBudget(levels, standard.USED * left / self.waiting, early)
        self.waiting = max(1, self.waiting - 1)
        return self.scope.errors.shared(self.audits, detect)


class IntegrableCandidate(DraftedCandidate):
    """A candidate whose law can be integrated over the uniforms and every draft."""

    @abc.abstractmethod
    def integrated(self, given: Any, tolerance: float | None) -> IntegratedAudit:
        """Return the exact audit on one instance."""

    @abc.abstractmethod
    def smallest(self, given: Any, tolerance: float | None) -> IntegratedAudit | None:
        """Return the audit of the smallest failing instance found, up to this one."""

    def plan(self, scope: Scope) -> Selection:
        """Return "large", the instances too large to integrate, or "few" without any
        integration.
        """
        return "few" if scope.own_randomness else "large"

    def others(self, scope: Scope) -> Iterator[Check]:
        """Yield integrations of all instances that are small enough."""
        if scope.own_randomness:
            return
        for instance in first_of_each_group(self.instances("integrable", scope)):
            yield Check(
                *instance[:3],
                "exact",
                functools.partial(self._integrated_in, scope, instance),
                needed=instance.needed,
                kept=standard.KEPT,
                shrink=functools.partial(self.smallest, instance.given, scope.tolerance),
            )

    def _integrated_in(self, scope: Scope, instance: Instance) -> IntegratedAudit:
        """Carry out a check by integration; a law with too large an error is left to samples.

        Raises:
            OwnRandomness: where the law is not known well enough.
        """
        found = self.integrated(instance.given, scope.tolerance)
        if found.verdict == "undecided" and "exact" not in scope.only:
            known = max(found.error, found.unproved)
            raise OwnRandomness.because(f"the law is known to ± {known:.2g} only")
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class KernelCandidate(FunctionCandidate, DraftedCandidate):
    """A kernel that verifies rows in batches with internal randomness."""

    rows: ClassVar[str] = f"batches of up to {LARGEST_BATCH:,} rows, pooled"

    @abc.abstractmethod
    def in_batches(self, rows: int) -> KernelCandidate:
        """Return the kernel called on `rows` rows at a time."""

    @abc.abstractmethod
    def mixed_up(self, rng: np.random.Generator) -> str:
        """Name the rows of a batch that are answered for each other; "" if none are known to be."""

    def plan(self, scope: Scope) -> Selection:
        """Return "all" instances, or "few" if the kernel is too slow for samples of all."""
        few = first_of_each_group(self.instances("few", scope))
        slow = few and self._seconds_of_a_row(few[0]) * _SAMPLES > scope.deadline.seconds
        return "few" if slow else "all"

    def others(self, scope: Scope) -> Iterator[Check]:
        """Yield checks of small batches by samples: the kernel's draws cannot be integrated."""
        if not scope.default or scope.pair is not None:
            return
        shares = BudgetSplit(scope, len(standard.BATCHES), kept=_FOR_OTHERS)
        smallest = self.instances("standard", scope)[0][0]
        for rows in standard.BATCHES:
            name = f"batches of {rows}"
            run = functools.partial(self._in_small_batches, scope, shares, smallest, rows)
            yield Check(name, smallest.setting, "small batches", "sampled", run, needed=False)

    def _in_small_batches(
        self, scope: Scope, shares: BudgetSplit, instance: Instance, rows: int
    ) -> SampledAudit:
        """Carry out the check of small batches, with a generator for this check alone."""
        rng = scope.rng(f"batches of {rows}")
        mixed_up = self.mixed_up(rng)
        drawing = jointly(self.in_batches(rows).drawing(instance.given, rng), rows)
        errors = shares.next(standard.FLOOR_BATCHES, most=ENOUGH)
        found = audit_of_draws(drawing, name=self.name, errors=errors)
        return dataclasses.replace(found, detail=mixed_up if found.found_by else "")

    def _seconds_of_a_row(self, instance: Instance) -> float:
        """Return the seconds per row of an instance; 0 if the call fails."""
        draw, took = self.drawing(instance.given, np.random.default_rng(0)).draw, []
        for _ in range(3):  # the first call loads what it needs
            watch = Stopwatch()
            try:
                draw(_ROWS)
            except (Exception, SystemExit, OutOfTime):  # which is for the audit to say
                return 0.0
            took.append(watch.seconds)
        return min(took) / _ROWS


def first_of_each_group(groups: Iterable[Sequence[Instance]]) -> list[Instance]:
    """Return the first instance of every group, then the needed instances, small before large."""
    first = [group[0] for group in groups if group]
    rest = itertools.chain.from_iterable(group[1:] for group in groups)
    return [*first, *sorted(rest, key=lambda one: (not one.needed, one.size))]
