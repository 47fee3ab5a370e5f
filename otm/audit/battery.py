"""One call that runs a verifier on all standard instances and shrinks what fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from otm.audit.collection import Collection
from otm.audit.exact import ExactAudit, audit_exactly
from otm.audit.instances import standard_problems
from otm.audit.sampled import SampledAudit, SampledVerdict, audit_sampled
from otm.audit.shrinking import shrink
from otm.drafts import IID, Law
from otm.errors import InvalidParameter


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class BatteryAudit(Collection[ExactAudit]):
    """The audits of one verifier on the standard instances, and the smallest failing problem; `str` gives the report.

    Attributes:
        name: of the candidate.
        audits: one for each instance and law that fits it, by label.
        counterexample: the audit of the smallest problem found on which it fails; None if it fails nowhere.
    """

    def __repr__(self) -> str:
        return f"BatteryAudit({self.name!r}, {self.verdict}, {len(self.audits)} instances)"

    def __str__(self) -> str:
        from otm.audit.report import battery_report  # noqa: PLC0415 - the report knows the results, not the reverse

        return battery_report(self)


def audit_battery(candidate: object, *, laws: Iterable[Law] = (IID(1),), tolerance: float | None = None) -> BatteryAudit:
    """Audit a verifier exactly on the standard instances; the call for whoever has a function and no pair of distributions.

    Args:
        candidate: as for `audit_exactly`.
        laws: the draft laws that the verifier is made for; instances with too few tokens for a law are left out.
        tolerance: as for `audit_exactly`.

    Returns:
        BatteryAudit: the verdict over all instances, each audit, and if one fails a minimal counterexample found by shrinking.

    Raises:
        As `audit_exactly`; InvalidParameter if `laws` is empty.

    Cost: 15 exact audits per law, and up to 300 small ones for the counterexample.

    >>> def verify(p, q, drafts, uniforms):
    ...     x = int(drafts[0])
    ...     if uniforms[0] * p[x] < q[x]:
    ...         return x, True
    ...     return int(np.argmax(q - p)), False  # takes the residual's mode where it should draw
    >>> audit = audit_battery(verify)
    >>> audit.verdict, audit.counterexample.problem.target
    ('not lossless', array([0. , 0.5, 0.5]))
    """
    audits = {
        f"{name}, {law!r}": audit_exactly(candidate, problem, tolerance=tolerance)
        for law in _checked_laws(laws)
        for name, problem in standard_problems(law)
    }
    battery = BatteryAudit(name=next(iter(audits.values())).name, audits=audits, counterexample=None)
    if battery.verdict != "not lossless":
        return battery
    failed = battery.failed.values()
    smallest = min(failed, key=lambda audit: (audit.problem.law.k, audit.problem.num_tokens, -audit.total_variation))
    found = shrink(candidate, law=smallest.problem.law, tolerance=tolerance)
    return dataclasses.replace(battery, counterexample=smallest if found is None else found)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SampledBatteryAudit:
    """The sampled audits of one verifier on the standard instances; `str` gives the report.

    Attributes:
        name: of the candidate.
        audits: one for each instance and law that fits it, by label.
        false_alarm: probability at most that any of them calls a lossless verifier lossy.
    """

    name: str
    audits: dict[str, SampledAudit]
    false_alarm: float

    def __repr__(self) -> str:
        return f"SampledBatteryAudit({self.name!r}, {self.verdict}, {len(self.audits)} instances)"

    def __str__(self) -> str:
        from otm.audit.report import sampled_battery_report  # noqa: PLC0415 - the report knows the results, not the reverse

        return sampled_battery_report(self)

    @property
    def failed(self) -> dict[str, SampledAudit]:
        """The instances with an alarm."""
        return {label: audit for label, audit in self.audits.items() if audit.verdict == "not lossless"}

    @property
    def verdict(self) -> SampledVerdict:
        """Not lossless if there was an alarm on any instance."""
        return "not lossless" if self.failed else "no difference found"


def audit_sampled_battery(
    candidate: object,
    *,
    rng: np.random.Generator,
    laws: Iterable[Law] = (IID(1),),
    detect: float = 0.02,
    false_alarm: float = 1e-9,
    missed: float = 1e-3,
) -> SampledBatteryAudit:
    """Run the sampled audit on every standard instance, the false-alarm probability shared among them.

    Args:
        candidate: as for `audit_sampled`.
        laws: as for `audit_battery`.
        rng, detect, missed: as for `audit_sampled`, on each instance.
        false_alarm: of the whole battery.

    Returns:
        SampledBatteryAudit.

    Raises:
        As `audit_sampled`; InvalidParameter if `laws` is empty.

    Cost: about a million calls per law at the defaults for a lossless verifier.

    >>> trusting = otm.audit.BatchCandidate(lambda p, q, drafts, rng: drafts[:, 0])
    >>> audit_sampled_battery(trusting, rng=np.random.default_rng(0)).verdict
    'not lossless'
    """
    problems = [(f"{name}, {law!r}", problem) for law in _checked_laws(laws) for name, problem in standard_problems(law)]
    audits = {
        label: audit_sampled(candidate, problem, rng=rng, detect=detect, false_alarm=false_alarm / len(problems), missed=missed)
        for label, problem in problems
    }
    return SampledBatteryAudit(name=next(iter(audits.values())).name, audits=audits, false_alarm=false_alarm)


def _checked_laws(laws: Iterable[Law]) -> list[Law]:
    chosen = list(laws)
    if not chosen or not all(isinstance(law, Law) for law in chosen):
        raise InvalidParameter(f"laws must hold at least one draft law; got {chosen!r}. Pass [otm.IID(1)], say.")
    return chosen
