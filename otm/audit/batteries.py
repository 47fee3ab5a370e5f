"""Many audits of one candidate under one verdict: what is tested unless one asks for something
else, and in which order.

The instances, numbers of drafts and tokens, and the time are data: `otm.audit.instances`. A battery
begins with the same small instance under every law, so that none is without an audit where time is
short, and what was not reached is said in its coverage.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from otm import drawing
from otm.audit import instances
from otm.audit.block_samples import sampled_blocks
from otm.audit.candidate import (
    BatchCandidate,
    BlockKernel,
    LogitCandidate,
    WholeCandidate,
    as_candidate,
)
from otm.audit.coverage import Coverage, merged
from otm.audit.exact_audit import ExactAudit, exact
from otm.audit.integration import IntegratedAudit
from otm.audit.joint_audit import JointAudit
from otm.audit.kinds import Fitting, Kind, fitting
from otm.audit.limits import OutOfTime, limited
from otm.audit.sampled_audit import SampledAudit, sampled
from otm.audit.sequence_audit import SequenceAudit, sequence
from otm.audit.shrinking import shrink, shrink_sequence
from otm.audit.verdicts import PASSED, Audit, Verdict
from otm.audit.whole_batteries import whole_jobs
from otm.drafts import IID, LAWS, Law
from otm.drafts.base import MAX_SEQUENCES
from otm.errors import InvalidParameter, OtmError, TooLarge, Unsupported
from otm.pmf import check_count, check_counts, check_real, check_rng
from otm.problem import Problem
from otm.sequence.models import LanguageModel, TableModel
from otm.tabular import markdown
from otm.tracing.answers import CandidateFailure
from otm.tracing.intercept.interception import preserved
from otm.tracing.probing import FALSE_ALARM, OwnRandomness
from otm.verifiers.base import Verifier

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 12
"""Instances that a table of a report lists, worst first."""

_SHARE = 0.25
"""Of a battery's time for one audit; a law or length whose audit takes longer is not followed
further.
"""

_ROWS, _SAMPLES = 128, 500_000
"""Rows that tell how fast a kernel of batches is, and about as many as are planned of it."""

_SHIFT = 2.0
"""Added to logarithms of probabilities, so that raw logits are not normalised."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatteryAudit(Audit):
    """The audits of one candidate on many instances, and that of the smallest failing one; `str`
    gives the report.

    Attributes:
        name: of the candidate.
        audits: one for each instance, by label.
        counterexample: the audit of the smallest problem found on which it fails; None if none was
            looked for or found.
        left_out: what was asked for and not tested, and why.
        uncovered: laws or lengths of which something was not tested for want of time, so that to
            find nothing is no verdict.
    """

    audits: dict[str, Audit]
    counterexample: IntegratedAudit | JointAudit | None = None
    left_out: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.verdict}, {len(self.audits)} instances)"

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any audit; samples beside an integration that finds all lossless
        take nothing from it.
        """
        found = {audit.verdict for audit in self.audits.values()}
        if (self.uncovered and found <= PASSED) or not found:
            return "no verdict"
        if "lossless" in found and found <= PASSED:
            return "lossless"
        verdict: Verdict = next(verdict for verdict in get_args(Verdict) if verdict in found)
        return verdict

    @property
    def failed(self) -> dict[str, Audit]:
        """The audits whose output does not have the target's law."""
        return {label: audit for label, audit in self.audits.items() if _failed(audit)}

    @property
    def worst(self) -> str:
        """The label of the audit with the largest total variation, of those that failed if any did."""
        return max(self.failed or self.audits, key=lambda label: _extent(self.audits[label]))

    @property
    def severity(self) -> float:
        """The largest total variation."""
        return self.audits[self.worst].severity if self.audits else 0.0

    @property
    def coverage(self) -> Coverage:
        """What all audits cover together, and what was left out."""
        return merged(
            ((label, audit.coverage) for label, audit in self.audits.items()), self.left_out
        )

    @property
    def false_alarm(self) -> float:
        """Probability at most that a lossless candidate is called "not lossless"."""
        drawn = [
            samples.false_alarm
            for samples in map(_samples_of, self.audits.values())
            if samples is not None
        ]
        probed = [
            FALSE_ALARM
            for audit in self.audits.values()
            if isinstance(audit, IntegratedAudit) and audit.unproved
        ]
        return sum(drawn) + sum(probed)

    @property
    def parts(self) -> Mapping[str, Audit]:
        """The audit of each instance."""
        return self.audits

    def _draw(self, ax: Axes) -> None:
        worst = sorted(self.audits, key=lambda label: -self.audits[label].severity)[
            : drawing.MOST_BARS
        ]
        severities = [self.audits[label].severity for label in worst]
        drawing.draw_bars(ax, worst, severities, xlabel="total variation to the target, at least")
        beside = f", the worst {len(worst)} of {len(self.audits)} instances" * (
            len(worst) < len(self.audits)
        )
        ax.set_title(f"{self.name}: {self.verdict}{beside}", fontsize=10)

    def row(self) -> tuple[str, str, str]:
        """Return the figures of the worst."""
        return self.audits[self.worst].row()

    def figures(self) -> str:
        """Return the report without its head: the failing instances listed, the samples, and the
        counterexample.
        """
        return (
            self.summary()
            if self.verdict in PASSED or not self.audits
            else f"{self.summary()}\n\n{self.example()}"
        )

    def summary(self) -> str:
        """Return how many instances fail, how badly and which; what is undecided; and what samples
        say.
        """
        if not self.audits:
            return "Nothing was tested before time was up."
        severity = f"largest total variation {self.audits[self.worst].row()[0]}, on {self.worst!r}"
        alarm = (
            f" A lossless candidate is called otherwise with probability ≤ {self.false_alarm:.2g}."
            if self.false_alarm
            else ""
        )
        late = (
            " Time was up before all was tested, as named above; --seconds (seconds=) gives more."
            if self.verdict == "no verdict"
            else ""
        )
        failures = (
            f"{len(self.failed)} of {len(self.audits)} instances fail; {severity}.{alarm}{late}"
        )
        parts = [failures]
        if self.failed:
            head = ("instance", "TV", "KL(q‖π), nats", "")
            shown = sorted(self.failed.items(), key=lambda entry: -entry[1].severity)[:MOST_ROWS]
            rest = (
                [("…", f"{len(self.failed) - MOST_ROWS} more", "", "")]
                if len(self.failed) > MOST_ROWS
                else []
            )
            parts.append(
                markdown(head, [*((label, *audit.row()) for label, audit in shown), *rest])
            )
        for verdict, said in (("undecided", "Undecided"), ("no verdict", "No verdict")):
            labels = [label for label, audit in self.audits.items() if audit.verdict == verdict]
            parts += [f"{said}: {'; '.join(labels)}."] if labels else []
        by_samples = ((label, _samples_of(audit)) for label, audit in self.audits.items())
        unfound = {
            label: seen
            for label, seen in by_samples
            if seen is not None and seen.verdict == "no difference found"
        }
        if unfound:
            head = ("samples", "TV (95 %)", "found if TV ≥", "acceptance (95 %)")
            rows = [
                (
                    label,
                    audit.total_variation.interval_text,
                    f"{audit.detect:.3g}",
                    accepted.interval_text if (accepted := audit.membership or audit.rule) else "",
                )
                for label, audit in sorted(
                    unfound.items(), key=lambda entry: _extent(entry[1]), reverse=True
                )[:MOST_ROWS]
            ]
            if len(unfound) > MOST_ROWS:
                rows.append(("…", f"{len(unfound) - MOST_ROWS} more", "", ""))
            parts.append(markdown(head, rows))
        return "\n\n".join(parts)

    def example(self) -> str:
        """Return the figures of the counterexample, or of the worst instance."""
        if self.counterexample is None:
            return f"### {self.worst}\n\n{self.audits[self.worst].figures()}"
        return f"### Minimal counterexample\n\n{self.counterexample.figures()}"


def _failed(audit: Audit) -> bool:
    return audit.verdict == "not lossless"


def _extent(audit: Audit) -> tuple[float, float]:
    """Return the total variation, of samples the lower and the upper end of its interval: what
    reports are ordered by.
    """
    samples = _samples_of(audit)
    return audit.severity, audit.severity if samples is None else samples.total_variation.high


def _samples_of(audit: Audit) -> SampledAudit | None:
    """Return the samples that an audit rests on, None if it integrates."""
    if isinstance(audit, JointAudit):
        return audit.samples
    return audit if isinstance(audit, SampledAudit) else None


@dataclasses.dataclass(frozen=True)
class _Job:
    """One audit to carry out: its label, the law or length it belongs to, and the call on a
    candidate of limited time.
    """

    label: str
    group: str
    run: Callable[[Kind], Audit]


def battery(
    candidate: object,
    *,
    laws: Iterable[Law] | None = None,
    num_drafts: Sequence[int] | None = None,
    seed: int = 0,
    detect: float | None = None,
    false_alarm: float = 1e-9,
    missed: float = 1e-3,
    tolerance: float | None = None,
    seconds: float = instances.SECONDS,
    shrink_for: float = instances.SHRINKING,
) -> BatteryAudit:
    """Audit a callable of any kind: by integration where it can be, by samples beside that or
    alone.

    Args:
        candidate: a function of one token or of a block, a step, a kernel of trees or a generation
            (`otm.audit.candidate`; which one is found out), a `Candidate`, `BatchCandidate`,
            `BlockKernel`, `LogitCandidate` or `WholeCandidate`, or one of the library's verifiers.
        laws: how several drafts of one position are drawn; i.i.d. drafts, 1, 2, 3 and 8 of them,
            unless given.
        num_drafts: of a block verifier, the lengths γ; 1, 2 and 3 unless given.
        seed: of all samples.
        detect: the total variation that samples are planned to find; unless given, what the time
            allows (`otm.audit.instances`).
        false_alarm, missed: as for `sampled`, of all samples together and of each.
        tolerance: as for `exact`.
        seconds: time for the audits; what is not reached is named in the coverage.
        shrink_for: time for a minimal counterexample, in seconds; 0 looks for none. Where nothing
            fails it goes to what a verdict needs and `seconds` did not reach.

    Returns:
        BatteryAudit: the verdict, what it covers, each audit, and if one fails a minimal
        counterexample.

    Raises:
        CandidateFailure, InvalidParameter: as `exact`, `fitting`. Defaults that do not fit a
            callable are left out instead.

    Cost: about two seconds for a callable in NumPy; at most `seconds` and `shrink_for`, and one
        call.

    >>> def second_passes(p, q, drafts, uniforms):
    ...     x = int(drafts[0])
    ...     if len(drafts) > 1:
    ...         return int(drafts[1])  # any second draft is accepted
    ...     r = np.maximum(q - p, 0.0)
    ...     return (
    ...         x
    ...         if uniforms[0] * p[x] < q[x]
    ...         else int(np.searchsorted(np.cumsum(r) / r.sum(), uniforms[1], side="right"))
    ...     )
    >>> battery(second_passes, shrink_for=0).verdict
    'not lossless'
    """
    shrink_for = check_real(shrink_for, name="shrink_for", low=0.0)
    fit, found = unshrunk(
        candidate,
        laws=laws,
        num_drafts=num_drafts,
        seed=seed,
        detect=detect,
        false_alarm=false_alarm,
        missed=missed,
        tolerance=tolerance,
        seconds=seconds,
        spare=shrink_for,
    )
    return with_counterexample(fit, found, seconds=shrink_for, tolerance=tolerance)


def unshrunk(
    candidate: object,
    *,
    laws: Iterable[Law] | None,
    num_drafts: Sequence[int] | None,
    seed: int,
    detect: float | None,
    false_alarm: float,
    missed: float,
    tolerance: float | None,
    seconds: float,
    spare: float,
) -> tuple[Fitting, BatteryAudit]:
    """Return a callable as what it is, and its battery before a counterexample is looked for.

    Args:
        spare: what comes on top of `seconds` for what a verdict needs, as long as nothing has
            failed: no counterexample will be looked for then. The rest is as for `battery`.
    """
    rng = np.random.default_rng(check_count(seed, name="seed", minimum=0))
    asked = None if laws is None else _check_laws(laws)
    fit = _fit(candidate, asked)
    lengths = None if num_drafts is None else _check_lengths(num_drafts)
    errors = {
        "false_alarm": check_real(false_alarm, name="false_alarm", low=1e-100, high=0.5),
        "missed": missed,
    }
    asked_of_samples = (
        None if detect is None else check_real(detect, name="detect", low=1e-6, high=1.0)
    )
    until = time.monotonic() + check_real(seconds, name="seconds", low=0.0)
    default = asked is None and lengths is None
    if isinstance(fit.candidate, WholeCandidate):
        if not default:
            raise InvalidParameter(
                "laws and num_drafts are of verifiers that are handed their drafts; "
                f"{fit.candidate.name!r} drafts by itself, or "
                "reads trees. Drop them."
            )
        with preserved(seed=seed % 2**32):
            plan = whole_jobs(
                fit.candidate,
                rng=rng,
                tolerance=tolerance,
                detect=asked_of_samples,
                until=until,
                **errors,
            )
            jobs = [_Job(job.label, job.group, job.run) for job in plan]
            found = _carry_out(fit, jobs, until=until, spare=spare, default=True, share=1.0)
        return fit, found
    told: dict[str, Any] = {
        "rng": rng,
        "tolerance": tolerance,
        "detect": asked_of_samples,
        **errors,
    }
    with preserved(seed=seed % 2**32):  # what the callable draws by itself follows the seed as well
        try:
            slow = _is_slow(fit.candidate, seconds)
            jobs = _jobs(fit, asked, lengths, **told, alone=slow)
            found = _carry_out(fit, jobs, until=until, spare=spare, default=default)
        except OwnRandomness as error:
            jobs = _jobs(fit, asked, lengths, **told, alone=True)
            found = dataclasses.replace(
                _carry_out(fit, jobs, until=until, spare=spare, default=default),
                reason=error.reason,
            )
    return fit, found


def exact_battery(
    candidate: object,
    *,
    laws: Iterable[Law] | None = None,
    tolerance: float | None = None,
    shrink_for: float = instances.SHRINKING,
) -> BatteryAudit:
    """Audit a verifier of one token exactly on the standard instances.

    Args:
        candidate: as for `exact`.
        laws: the draft laws that the verifier is made for, i.i.d. drafts, 1, 2, 3 and 8 of them,
            unless given; instances with too few tokens for a law, or too many to enumerate, are
            left out.
        tolerance: as for `exact`.
        shrink_for: as for `battery`.

    Returns:
        BatteryAudit: the verdict over all instances, each audit, and if one fails a minimal
        counterexample found by shrinking.

    Raises:
        As `exact`; InvalidParameter if `laws` is empty, or drafts more tokens than any instance
        has.

    Cost: some twenty exact audits per law, and up to 300 small ones for the counterexample.

    >>> def verify(p, q, drafts, uniforms):
    ...     x = int(drafts[0])
    ...     if uniforms[0] * p[x] < q[x]:
    ...         return x, True
    ...     return int(np.argmax(q - p)), False  # takes the residual's mode where it should draw
    >>> found = exact_battery(verify)
    >>> found.verdict, found.counterexample.problem.target
    ('not lossless', array([0. , 0.5, 0.5]))
    """
    shrink_for = check_real(shrink_for, name="shrink_for", low=0.0)
    asked = None if laws is None else _check_laws(laws)
    fit = _fit(candidate, asked)
    if fit.block:
        raise InvalidParameter(
            f"exact_battery audits one token; {_name(fit)!r} verifies blocks. Call "
            "sequence_battery or battery."
        )
    if not isinstance(fit.candidate, Verifier):
        as_candidate(fit.candidate)
    jobs = _integrated(asked or _default_laws(fit.candidate), tolerance)
    return with_counterexample(
        fit, _carry_out(fit, jobs, default=asked is None), seconds=shrink_for, tolerance=tolerance
    )


def sequence_battery(
    candidate: object,
    *,
    num_drafts: Sequence[int] | None = None,
    tolerance: float | None = None,
    shrink_for: float = instances.SHRINKING,
) -> BatteryAudit:
    """Audit a block verifier exactly on the standard toy models.

    Args:
        candidate: as for `sequence`.
        num_drafts: the block lengths γ; 1, 2, 3 and 6 unless given.
        tolerance: as for `sequence`.
        shrink_for: as for `battery`.

    Returns:
        BatteryAudit: the verdict over all, and if one fails a minimal counterexample.

    Raises:
        As `sequence`; InvalidParameter if `num_drafts` is empty.

    Cost: up to seven exact audits per block length, and up to 300 small ones for the
        counterexample.

    >>> sequence_battery(
    ...     lambda p, q, drafts, uniforms: [drafts[0]], num_drafts=[1]
    ... ).verdict  # trusts the draft
    'not lossless'
    """
    shrink_for = check_real(shrink_for, name="shrink_for", low=0.0)
    lengths = None if num_drafts is None else _check_lengths(num_drafts)
    fit = fitting(candidate)
    if not fit.block:
        raise InvalidParameter(
            f"sequence_battery audits blocks; {_name(fit)!r} verifies one token. Call "
            "exact_battery or battery."
        )
    as_candidate(fit.candidate)
    jobs = _sequences(lengths or (*instances.BLOCKS, instances.MANY_POSITIONS), tolerance)
    return with_counterexample(
        fit, _carry_out(fit, jobs, default=lengths is None), seconds=shrink_for, tolerance=tolerance
    )


def sampled_battery(
    candidate: object,
    *,
    rng: np.random.Generator,
    laws: Iterable[Law] | None = None,
    num_drafts: Sequence[int] | None = None,
    detect: float = 0.02,
    false_alarm: float = 1e-9,
    missed: float = 1e-3,
) -> BatteryAudit:
    """Run the sampled audit on every standard instance, the false-alarm probability shared among
    them.

    Args:
        candidate: any that `battery` takes, but no `LogitCandidate`.
        laws, num_drafts: as for `battery`; one draft and γ = 1, 2, 3 unless given.
        rng, detect, missed: as for `sampled`, on each instance.
        false_alarm: of the whole battery.

    Returns:
        BatteryAudit.

    Raises:
        As `sampled`, `fitting`; InvalidParameter if `laws` is empty, or drafts more tokens than any
        instance has.

    Cost: about a million calls per law at the defaults for a lossless verifier.

    >>> trusting = otm.audit.BatchCandidate(lambda p, q, drafts, rng: drafts[:, 0])
    >>> sampled_battery(trusting, rng=np.random.default_rng(0)).verdict
    'not lossless'
    """
    fit = fitting(candidate)
    if isinstance(fit.candidate, LogitCandidate):
        raise InvalidParameter(
            "Code that takes logits is audited by otm.audit.battery; got a LogitCandidate. Pass it "
            "there."
        )
    if isinstance(fit.candidate, WholeCandidate):
        raise InvalidParameter(
            "Code that drafts by itself or reads trees is audited by otm.audit.battery; "
            f"{fit.candidate.name!r} is a "
            f"{fit.candidate.kind}. Pass it there."
        )
    check_rng(rng)
    errors = {"detect": detect, "false_alarm": false_alarm, "missed": missed}
    if fit.block:
        lengths = instances.BLOCKS if num_drafts is None else _check_lengths(num_drafts)
        jobs = _sampled_blocks(lengths, instances.standard_models, rng, **errors)
    else:
        asked = [IID(1)] if laws is None else _check_laws(laws)
        jobs = _sampled(
            [(name, law) for name in instances.INSTANCES for law in asked], rng, **errors
        )
    return _carry_out(fit, jobs, default=False)


def _fit(candidate: object, laws: Sequence[Law] | None) -> Fitting:
    """Find out what a callable is; where each draft has a drafter of its own it is one of one
    token, which cannot be tried.
    """
    if (
        laws
        and not all(law.one_drafter for law in laws)
        and not isinstance(candidate, Verifier | BatchCandidate)
    ):
        return Fitting(as_candidate(candidate))
    return fitting(candidate)


def _name(fit: Fitting) -> str:
    return repr(fit.candidate) if isinstance(fit.candidate, Verifier) else fit.candidate.name


def with_counterexample(
    fit: Fitting, found: BatteryAudit, *, seconds: float, tolerance: float | None
) -> BatteryAudit:
    """Return a battery that failed with the smallest problem on which the candidate fails, if it
    was integrated.

    Args:
        fit: the candidate.
        found: the battery.
        seconds: time to look for it; where it is up, the smallest standard instance that fails is
            taken. 0 looks for none.
        tolerance: as for `exact`.
    """
    wholes = [audit for audit in found.failed.values() if isinstance(audit, JointAudit)]
    failed = [
        audit for audit in found.failed.values() if isinstance(audit, ExactAudit | SequenceAudit)
    ]
    if (
        wholes and seconds > 0.0
    ):  # the standard instances of wholes are small, and are not shrunk further
        return dataclasses.replace(
            found,
            counterexample=min(wholes, key=lambda audit: (audit.target_law.size, -audit.severity)),
        )
    if not failed or seconds == 0.0:
        return found
    smallest = min(failed, key=_size)
    candidate = _in_time(fit.candidate, time.monotonic() + seconds)
    if isinstance(candidate, LogitCandidate):  # its problems are made from logits
        return dataclasses.replace(found, counterexample=smallest)
    shrunk: IntegratedAudit | None
    if isinstance(smallest, ExactAudit):
        shrunk = shrink(candidate, law=smallest.problem.law, tolerance=tolerance)
    else:
        shrunk = shrink_sequence(
            candidate, num_drafts=range(1, smallest.num_drafts + 1), tolerance=tolerance
        )
    return dataclasses.replace(found, counterexample=shrunk or smallest)


def _size(audit: ExactAudit | SequenceAudit) -> tuple[float, ...]:
    if isinstance(audit, ExactAudit):
        return audit.problem.law.k, audit.problem.num_tokens, -audit.total_variation
    return audit.num_drafts, audit.law.size, -audit.total_variation


def _in_time(candidate: Kind, until: float | None, seconds: float | None = None) -> Kind:
    """Return a candidate whose calls end when time is up; the library's own verifiers are fast."""
    if until is None or isinstance(candidate, Verifier):
        return candidate
    end = until if seconds is None else min(until, time.monotonic() + seconds)
    return limited(candidate, end)  # type: ignore[type-var]  # one of its kinds, whichever


def _carry_out(
    fit: Fitting,
    jobs: Sequence[_Job],
    *,
    until: float | None = None,
    spare: float = 0.0,
    default: bool,
    share: float = _SHARE,
) -> BatteryAudit:
    """Carry out audits one by one; by default the laws and lengths that a callable does not take
    are left out, and said so.

    Where nothing fails, what a verdict needs has the time that a counterexample would take
    (`spare`) as well.
    """
    if not jobs:
        raise InvalidParameter(
            "The standard instances have too few tokens for these laws. Lower the number of drafts."
        )
    each = None if until is None else share * (until + spare - time.monotonic())
    audits: dict[str, Audit] = {}
    begun: set[str] = set()
    unfit: dict[str, OtmError] = {}
    late: collections.Counter[str] = collections.Counter()
    for job in jobs:
        if job.group in unfit:
            continue
        if job.group in late:
            late[job.group] += 1
            continue
        beyond = spare if job.group not in _MANY and not any(map(_failed, audits.values())) else 0.0
        try:
            audits[job.label] = job.run(
                _in_time(fit.candidate, None if until is None else until + beyond, each)
            )
            begun.add(job.group)
        except OutOfTime:
            late[job.group] += 1
        except (CandidateFailure, Unsupported, TooLarge) as error:
            if not default or job.group in begun:
                raise
            unfit[job.group] = error
    if unfit and not audits and not late:
        raise next(iter(unfit.values()))
    left_out = [f"{group} ({str(error).splitlines()[0]})" for group, error in unfit.items()]
    left_out += [
        f"{count} instance{'s' * (count > 1)} with {group} (time was up)"
        for group, count in late.items()
    ]
    return BatteryAudit(
        name=_name(fit),
        audits=audits,
        reason=next((audit.reason for audit in audits.values() if audit.reason), ""),
        left_out=tuple(left_out),
        uncovered=tuple(group for group in late if not (default and group in _MANY)),
    )


def _jobs(
    fit: Fitting,
    laws: list[Law] | None,
    lengths: tuple[int, ...] | None,
    *,
    rng: np.random.Generator,
    tolerance: float | None,
    alone: bool,
    detect: float | None,
    false_alarm: float,
    missed: float,
) -> list[_Job]:
    """Return what a battery tests, the quick look at every law first; `alone` for what can only be
    sampled, and row by row.
    """
    candidate = fit.candidate
    if isinstance(candidate, LogitCandidate):
        if fit.block:
            return _blocks_at_temperatures(
                candidate.temperatures, lengths or instances.BLOCKS[:2], tolerance
            )
        return _at_temperatures(candidate.temperatures, laws or [IID(1), IID(2)], tolerance)
    batched = isinstance(candidate, BatchCandidate | BlockKernel)
    fine, coarse = (
        (instances.DETECT_ALONE, instances.DETECT_SLOW)
        if batched
        else (instances.DETECT, instances.DETECT_ROWS)
    )
    errors = {
        "detect": detect or (coarse if alone else fine),
        "false_alarm": false_alarm,
        "missed": missed,
    }
    if fit.block:
        gammas = lengths or instances.BLOCKS
        if batched or alone:
            return _sampled_blocks(
                gammas, instances.few_models if alone else instances.standard_models, rng, **errors
            )
        integrated = _sequences(lengths or (*instances.BLOCKS, instances.MANY_POSITIONS), tolerance)
        return _sampled_blocks(gammas, instances.tail_models, rng, **errors) + integrated
    asked = laws or _default_laws(candidate)
    if alone or batched:
        names = instances.FEW if alone else (*instances.INSTANCES, *instances.TAILS)
        return _sampled([(name, law) for name in names for law in asked], rng, **errors)
    beside = [
        (name, law)
        for name, ks in instances.SAMPLED.items()
        for law in asked
        if laws or law.k in ks
    ]
    return _sampled(beside, rng, **errors) + _integrated(asked, tolerance)


def _is_slow(candidate: Kind, seconds: float) -> bool:
    """Whether a kernel of batches takes so long a row that the usual samples would not fit the
    time.
    """
    laws = [np.tile(law, (_ROWS, 1)) for law in instances.instance("three tokens")]
    drafts = np.zeros((_ROWS, 1), dtype=np.int64)
    if isinstance(candidate, BlockKernel):
        shown = laws[0][:, None], np.stack([laws[1], laws[1]], axis=1)
    elif isinstance(candidate, BatchCandidate):
        shown = laws[0][0], laws[1][0]
    else:
        return False
    took = []
    for _ in range(3):  # the first call loads what it needs, and a busy machine interrupts
        begun = time.monotonic()
        try:
            candidate.verify(
                shown[0].copy(), shown[1].copy(), drafts.copy(), np.random.default_rng(0)
            )
        except (Exception, SystemExit):  # which is for the audit to say, on its own instances
            return False
        took.append(time.monotonic() - begun)
    return min(took) / _ROWS * _SAMPLES > seconds


def _default_laws(candidate: Kind) -> list[Law]:
    """Return i.i.d. drafts in the standard numbers; of a verifier, the first kind of law that it
    supports.
    """
    ks = (*instances.DRAFTS, instances.MANY_DRAFTS)
    if not isinstance(candidate, Verifier):
        return [IID(k) for k in ks]
    kinds: list[type[Law]] = [IID, *LAWS]
    supported = ([kind(k) for k in ks if candidate.supports(kind(k))] for kind in kinds)
    return next((laws for laws in supported if laws), [IID(1)])


def _integrated(laws: Iterable[Law], tolerance: float | None) -> list[_Job]:
    """Return the exact audits under each law, instance by instance."""

    def job(name: str, law: Law, problem: Problem) -> _Job:
        return _Job(
            f"{name}, {law!r}",
            _drafts(law),
            lambda candidate: exact(candidate, problem, tolerance=tolerance),
        )

    by_law = [
        [job(name, law, problem) for name, problem in instances.standard_problems(law)]
        for law in laws
    ]
    return _in_turn(by_law)


def _sampled(
    plan: Sequence[tuple[str, Law]],
    rng: np.random.Generator,
    *,
    detect: float,
    false_alarm: float,
    missed: float,
) -> list[_Job]:
    """Return the sampled audits of (instance, law), the false-alarm probability shared among them."""
    problems = [(name, law, instances.problem_of(name, law)) for name, law in plan]
    drawable = [(name, law, problem) for name, law, problem in problems if problem is not None]
    errors = {
        "detect": detect,
        "false_alarm": false_alarm / max(1, len(drawable)),
        "missed": missed,
    }

    def job(name: str, law: Law, problem: Problem) -> _Job:
        return _Job(
            f"{name}, {law!r}, samples",
            _drafts(law),
            lambda candidate: sampled(candidate, problem, rng=rng, **errors),
        )

    return [job(*entry) for entry in drawable]


def _sequences(lengths: Iterable[int], tolerance: float | None) -> list[_Job]:
    """Return the exact audits of blocks of each length, model by model."""

    def job(name: str, gamma: int, p: LanguageModel, q: LanguageModel) -> _Job:
        def run(candidate: Kind) -> Audit:
            return sequence(candidate, draft=p, target=q, num_drafts=gamma, tolerance=tolerance)

        return _Job(f"{name}, γ = {gamma}", f"γ = {gamma}", run)

    return _in_turn(
        [
            [job(name, gamma, *pair) for name, pair in instances.standard_models(gamma).items()]
            for gamma in lengths
        ]
    )


def _sampled_blocks(
    lengths: Iterable[int],
    models: Callable[[int], Mapping[str, tuple[TableModel, TableModel]]],
    rng: np.random.Generator,
    *,
    detect: float,
    false_alarm: float,
    missed: float,
) -> list[_Job]:
    """Return the sampled audits of blocks of each length on its models, the false-alarm probability
    shared among them.
    """
    by_length = [
        [(name, gamma, *pair) for name, pair in models(gamma).items()] for gamma in lengths
    ]
    count = max(1, sum(map(len, by_length)))

    def job(name: str, gamma: int, p: TableModel, q: TableModel) -> _Job:
        def run(candidate: Kind) -> Audit:
            return sampled_blocks(
                candidate,
                draft=p,
                target=q,
                num_drafts=gamma,
                rng=rng,
                detect=detect,
                false_alarm=false_alarm / count,
                missed=missed,
            )

        return _Job(f"{name}, γ = {gamma}, samples", f"γ = {gamma}", run)

    return _in_turn([[job(*entry) for entry in entries] for entries in by_length])


def _at_temperatures(
    temperatures: Sequence[float], laws: Sequence[Law], tolerance: float | None
) -> list[_Job]:
    """Return the exact audits of code that takes raw logits, at each temperature."""

    def job(name: str, law: Law, temperature: float) -> _Job:
        def run(candidate: Kind) -> Audit:
            assert isinstance(candidate, LogitCandidate)
            with np.errstate(divide="ignore"):
                p, q = (_SHIFT + np.log(mass) for mass in instances.instance(name))
            return exact(
                *candidate.on(draft=p, target=q, law=law, temperature=temperature),
                tolerance=tolerance,
            )

        return _Job(f"{name}, {law!r}, temperature {temperature:g}", _drafts(law), run)

    return [
        job(name, law, heat) for name in instances.LOGITS for heat in temperatures for law in laws
    ]


def _blocks_at_temperatures(
    temperatures: Sequence[float], lengths: Sequence[int], tolerance: float | None
) -> list[_Job]:
    """Return the exact audits of code that takes raw logits of blocks, at each temperature."""

    def job(
        name: str, gamma: int, temperature: float, models: tuple[TableModel, TableModel]
    ) -> _Job:
        def run(candidate: Kind) -> Audit:
            assert isinstance(candidate, LogitCandidate)
            with np.errstate(divide="ignore"):
                draft, target = (
                    {c: _SHIFT + np.log(row) for c, row in model.table.items()} for model in models
                )  # type: ignore[call-overload]
            handed, p, q = candidate.on_models(draft=draft, target=target, temperature=temperature)
            return sequence(handed, draft=p, target=q, num_drafts=gamma, tolerance=tolerance)

        return _Job(f"{name}, γ = {gamma}, temperature {temperature:g}", f"γ = {gamma}", run)

    return [
        job(name, gamma, heat, models)
        for heat in temperatures
        for gamma in lengths
        for name, models in instances.few_models(gamma).items()
    ]


def _in_turn(groups: Iterable[Sequence[_Job]]) -> list[_Job]:
    """Return the first of every group, then the second of every group, and so on; at the end those
    of many drafts.
    """
    jobs = [job for entries in itertools.zip_longest(*groups) for job in entries if job is not None]
    return sorted(jobs, key=lambda job: job.group in _MANY)


def _drafts(law: Law) -> str:
    return f"{law.k} draft{'s' if law.k > 1 else ''} by {type(law).__name__}"


_MANY = {*(_drafts(law(instances.MANY_DRAFTS)) for law in LAWS), f"γ = {instances.MANY_POSITIONS}"}
"""Laws and lengths that are tested by default if there is time, without which there is a verdict
all the same.
"""


def _check_laws(laws: Iterable[Law]) -> list[Law]:
    try:
        chosen = list(laws)
    except (TypeError, RuntimeError) as error:  # the latter from a tensor without data
        raise InvalidParameter(
            f"laws must hold draft laws; got {laws!r:.80}. Pass [otm.IID(1)], say."
        ) from error
    if not chosen or not all(isinstance(law, Law) for law in chosen):
        raise InvalidParameter(
            f"laws must hold at least one draft law; got {chosen!r}. Pass [otm.IID(1)], say."
        )
    return chosen


def _check_lengths(num_drafts: Sequence[int]) -> tuple[int, ...]:
    lengths = check_counts(num_drafts, name="num_drafts")
    if not lengths:
        raise InvalidParameter(
            "num_drafts must hold at least one length; it is empty. Pass [1, 2], say."
        )
    if (most := max(lengths)) >= MAX_SEQUENCES.bit_length():
        raise TooLarge(
            f"Blocks are enumerated up to {MAX_SEQUENCES:,}; two tokens and {most} drafts have "
            f"2^{most + 1}. Pass fewer."
        )
    return tuple(lengths)
