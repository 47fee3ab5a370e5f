"""One call that audits a verifier on all standard instances, and looks for the smallest that fails."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from otm.audit.exact_audit import ExactAudit, exact
from otm.audit.instances import standard_models, standard_problems
from otm.audit.integration import Integrated
from otm.audit.markdown import number, table
from otm.audit.sampled_audit import SampledAudit, sampled
from otm.audit.sequence_audit import SequenceAudit, sequence
from otm.audit.shrinking import shrink, shrink_sequence
from otm.audit.verdicts import Battery
from otm.drafts import IID, Law
from otm.drafts.base import MAX_SEQUENCES
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_counts
from otm.problem import Problem


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IntegratedBattery(Battery[Integrated]):
    """Audits by integration, and that of the smallest failing instance.

    Attributes:
        name: of the candidate.
        audits: one for each instance, by label.
        counterexample: the audit of the smallest instance found on which it fails; None if it fails nowhere.
    """

    counterexample: Integrated | None = None

    instances: ClassVar[str]
    failure: ClassVar[str]
    head: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def row(self, audit: Integrated) -> tuple[str, ...]:
        """Return what the report says of a failed instance, below `head` but for the label."""

    @property
    def worst(self) -> Integrated:
        """The audit with the largest total variation."""
        return max(self.audits.values(), key=lambda audit: audit.total_variation)

    def figures(self) -> str:
        """Return the report without its heading: the failing instances listed, and the counterexample."""
        parts = [
            f"{len(self.audits)} {self.instances}; {len(self.failed)} with {self.failure} that is not the target's; largest total "
            f"variation {number(self.worst.total_variation)}."
        ]
        if self.failed:
            parts.append(table(self.head, [(label, *self.row(audit)) for label, audit in self.failed.items()]))
        undecided = [label for label, audit in self.audits.items() if audit.verdict == "undecided"]
        if undecided:
            parts.append(f"Undecided: {'; '.join(undecided)}.")
        if self.counterexample is not None:
            parts.append("### Minimal counterexample")
        parts.append((self.counterexample or self.worst).figures())
        return "\n\n".join(parts)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExactBatteryAudit(IntegratedBattery[ExactAudit]):
    """The audits of one verifier on the standard instances, and the smallest failing problem; `str` gives the report."""

    instances = "standard instances"
    failure = "an output law"
    head = ("instance", "TV", "KL(q‖π), nats", "acceptance", "optimum")

    def row(self, audit: ExactAudit) -> tuple[str, ...]:
        """Return the figures of a failed instance."""
        figures = (audit.total_variation, audit.kl, audit.membership, audit.optimum)
        return tuple(number(figure) for figure in figures)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SequenceBatteryAudit(IntegratedBattery[SequenceAudit]):
    """The audits of a block verifier on the standard toy models, and the smallest failing ones; `str` gives the report."""

    instances = "pairs of toy models"
    failure = "a joint law"
    head = ("models", "TV", "KL(q‖π), nats", "first position", "tokens per call")

    def row(self, audit: SequenceAudit) -> tuple[str, ...]:
        """Return the figures of a failed pair of models."""
        first = str(audit.first_position)
        return number(audit.total_variation), number(audit.kl), first, number(audit.tokens_per_call)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SampledBatteryAudit(Battery[SampledAudit]):
    """The sampled audits of one verifier on the standard instances; `str` gives the report.

    Attributes:
        name: of the candidate.
        audits: one for each instance and law that fits it, by label.
        false_alarm: probability at most that any of them calls a lossless verifier lossy.
    """

    false_alarm: float

    def figures(self) -> str:
        """Return the report without its heading."""
        head = ("instance", "verdict", "samples", "TV (95 %)", "found if TV ≥", "acceptance (95 %)", "optimum")
        rows = [
            (
                label,
                audit.verdict,
                f"{audit.samples:,}",
                str(audit.total_variation),
                f"{audit.detect:.3g}",
                str(audit.membership),
                "" if audit.optimum is None else number(audit.optimum),
            )
            for label, audit in self.audits.items()
        ]
        return (
            f"{len(self.audits)} standard instances, {len(self.failed)} alarms; a lossless verifier raises any with probability "
            f"≤ {self.false_alarm:g}.\n\n{table(head, rows)}"
        )


def exact_battery(candidate: object, *, laws: Iterable[Law] = (IID(1),), tolerance: float | None = None) -> ExactBatteryAudit:
    """Audit a verifier exactly on the standard instances; the call for whoever has a function and no pair of distributions.

    Args:
        candidate: as for `exact`.
        laws: the draft laws that the verifier is made for; instances with too few tokens for a law are left out.
        tolerance: as for `exact`.

    Returns:
        ExactBatteryAudit: the verdict over all instances, each audit, and if one fails a minimal counterexample found by shrinking.

    Raises:
        As `exact`; InvalidParameter if `laws` is empty, or drafts more tokens than any instance has.

    Cost: 15 exact audits per law, and up to 300 small ones for the counterexample.

    >>> def verify(p, q, drafts, uniforms):
    ...     x = int(drafts[0])
    ...     if uniforms[0] * p[x] < q[x]:
    ...         return x, True
    ...     return int(np.argmax(q - p)), False  # takes the residual's mode where it should draw
    >>> battery = exact_battery(verify)
    >>> battery.verdict, battery.counterexample.problem.target
    ('not lossless', array([0. , 0.5, 0.5]))
    """
    audits = {label: exact(candidate, problem, tolerance=tolerance) for label, problem in _problems(laws).items()}
    battery = ExactBatteryAudit(name=next(iter(audits.values())).name, audits=audits)
    if battery.verdict != "not lossless":
        return battery
    smallest = min(
        battery.failed.values(), key=lambda audit: (audit.problem.law.k, audit.problem.num_tokens, -audit.total_variation)
    )
    found = shrink(candidate, law=smallest.problem.law, tolerance=tolerance)
    return dataclasses.replace(battery, counterexample=found or smallest)


def sequence_battery(
    candidate: object, *, num_drafts: Sequence[int] = (1, 2), tolerance: float | None = None
) -> SequenceBatteryAudit:
    """Audit a block verifier exactly on the standard toy models; the call for whoever has a function and no models.

    Args:
        candidate: as for `sequence`.
        num_drafts: the block lengths γ to audit.
        tolerance: as for `sequence`.

    Returns:
        SequenceBatteryAudit: the verdict over all, and if one fails a minimal counterexample.

    Raises:
        As `sequence`; InvalidParameter if `num_drafts` is empty.

    Cost: five exact audits per block length with V ≤ 3, and up to 300 small ones for the counterexample.

    >>> sequence_battery(lambda p, q, drafts, uniforms: [drafts[0]], num_drafts=[1]).verdict  # trusts the draft
    'not lossless'
    """
    lengths = check_counts(num_drafts, name="num_drafts")
    if not lengths:
        raise InvalidParameter("num_drafts must hold at least one length; it is empty. Pass [1, 2], say.")
    if (most := max(lengths)) >= MAX_SEQUENCES.bit_length():
        raise TooLarge(
            f"Blocks are enumerated up to {MAX_SEQUENCES:,}; two tokens and {most} drafts have 2^{most + 1}. Pass fewer."
        )
    audits = {
        f"{name}, γ = {gamma}": sequence(candidate, draft=p, target=q, num_drafts=gamma, tolerance=tolerance)
        for gamma in lengths
        for name, (p, q) in standard_models(gamma).items()
    }
    battery = SequenceBatteryAudit(name=next(iter(audits.values())).name, audits=audits)
    if battery.verdict != "not lossless":
        return battery
    smallest = min(battery.failed.values(), key=lambda audit: (audit.num_drafts, audit.law.size, -audit.total_variation))
    found = shrink_sequence(candidate, num_drafts=lengths, tolerance=tolerance)
    return dataclasses.replace(battery, counterexample=found or smallest)


def sampled_battery(
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
        candidate: as for `sampled`.
        laws: as for `exact_battery`.
        rng, detect, missed: as for `sampled`, on each instance.
        false_alarm: of the whole battery.

    Returns:
        SampledBatteryAudit.

    Raises:
        As `sampled`; InvalidParameter if `laws` is empty, or drafts more tokens than any instance has.

    Cost: about a million calls per law at the defaults for a lossless verifier.

    >>> trusting = otm.audit.BatchCandidate(lambda p, q, drafts, rng: drafts[:, 0])
    >>> sampled_battery(trusting, rng=np.random.default_rng(0)).verdict
    'not lossless'
    """
    problems = _problems(laws)
    audits = {
        label: sampled(candidate, problem, rng=rng, detect=detect, false_alarm=false_alarm / len(problems), missed=missed)
        for label, problem in problems.items()
    }
    return SampledBatteryAudit(name=next(iter(audits.values())).name, audits=audits, false_alarm=false_alarm)


def _problems(laws: Iterable[Law]) -> dict[str, Problem]:
    """Return the standard instances under each law, by label."""
    try:
        chosen = list(laws)
    except (TypeError, RuntimeError) as error:  # the latter from a tensor without data
        raise InvalidParameter(f"laws must hold draft laws; got {laws!r:.80}. Pass [otm.IID(1)], say.") from error
    if not chosen or not all(isinstance(law, Law) for law in chosen):
        raise InvalidParameter(f"laws must hold at least one draft law; got {chosen!r}. Pass [otm.IID(1)], say.")
    problems = {f"{name}, {law!r}": problem for law in chosen for name, problem in standard_problems(law)}
    if not problems:
        raise InvalidParameter(f"The standard instances have too few tokens for {chosen!r}. Lower the number of drafts.")
    return problems
