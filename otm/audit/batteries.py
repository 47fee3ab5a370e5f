"""Batteries: many checks of one candidate under one verdict, with a default selection and order.

The instances, numbers of drafts and tokens, and the time are data: `otm.audit.standard_problems`;
which checks a candidate should pass it says itself (`Candidate.checks`). A battery begins with the
same small instance under every law, so that none is without a check where time is short, and what
was not reached is said in its coverage. Once something has failed, no samples are drawn for power.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from otm._display import drawing
from otm._machine.progress import report_phase
from otm.audit import standard_problems as standard
from otm.audit.blocks import BlockCandidate
from otm.audit.budget import USUAL, Deadline, Errors, OutOfTime
from otm.audit.candidate import NOISE, Candidate, Check, FunctionCandidate, Scope, as_kind
from otm.audit.classification import classify
from otm.audit.diagnosis import diagnose
from otm.audit.draft_noise import check_of_steps
from otm.audit.drafted import DraftedCandidate
from otm.audit.integration import IntegratedAudit
from otm.audit.logits import INFINITE
from otm.audit.one_token import TokenCandidate
from otm.audit.report import FAILED, PASSED, Audit, Coverage, Verdict, listing, merged
from otm.audit.sampled_audit import Interrupted, SampledAudit
from otm.audit.tracing.answers import CandidateFailure
from otm.audit.tracing.intercept.interception import preserved
from otm.audit.tracing.output_law import contradicts
from otm.audit.tracing.probing import OwnRandomness
from otm.drafts import Law
from otm.errors import InvalidParameter, OtmError, TooLarge, Unsupported
from otm.pmf import check_real
from otm.verifiers.base import Verifier


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatteryAudit(Audit):
    """The audits of one candidate on many instances, with the smallest failing instance.

    Attributes:
        counterexample: the audit of the smallest problem found on which it fails; None if none was
            looked for or found.
        left_out: what was asked for and not tested, and why.
        uncovered: laws or lengths of which something was not tested for want of time, so that to
            find nothing is no verdict.
        checks: those that were carried out, by name.
        raised: what the candidate raised, by instance, where it answered others like it.
        taken_for: what it was taken for, and how to say otherwise; "" if it was said.
        unreached: how many instances there was no time for.
        diagnoses: what the laws found say of a fault, a sentence each.
        refused: at which temperatures it raises, and whether on infinite logits; "" if on none.
        steps: the audits of texts of several steps beside those, by the key of the draft noise: of
            a verifier of blocks that is lossless on fresh drafts, whose verdict they leave as it
            is.
    """

    counterexample: Audit | None = None
    left_out: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    checks: Mapping[str, Check] = dataclasses.field(default_factory=dict)
    raised: Mapping[str, str] = dataclasses.field(default_factory=dict)
    taken_for: str = ""
    diagnoses: tuple[str, ...] = ()
    steps: Mapping[str, Audit] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any audit; samples do not spoil the "lossless" of integrations."""
        found = {audit.verdict for audit in self.audits.values()}
        if self.raised:
            found.add("raised")
        if found & {"lossless", "rounding"}:
            found.discard("little power")
        if (self.uncovered and found <= PASSED) or not found:
            return "no verdict"
        if "lossless" in found and found <= PASSED:
            return "rounding" if "rounding" in found else "lossless"
        verdict: Verdict = next(verdict for verdict in get_args(Verdict) if verdict in found)
        return verdict

    @property
    def failed(self) -> dict[str, Audit]:
        """The audits whose output does not have the target's law, by more than an ε if any is."""
        return next(filter(None, map(self._of, FAILED)), {})

    @property
    def worst(self) -> str:
        """The audit with the largest total variation, among the failed audits if there are any."""
        return max(self.failed or self.audits, key=lambda name: _extent(self.audits[name]))

    @property
    def severity(self) -> float:
        """The largest total variation."""
        return self.audits[self.worst].severity if self.audits else 0.0

    @property
    def coverage(self) -> Coverage:
        """The joint coverage of all audits, and the instances that were left out."""
        parts = ((name, audit.coverage) for name, audit in self.audits.items())
        beside = (standard.BETWEEN,) if self.audits else ()
        covered = merged(parts, (*beside, *self.left_out))
        return dataclasses.replace(covered, raised=len(self.raised), taken_for=self.taken_for)

    @property
    def false_alarm(self) -> float:
        """Probability at most that a lossless candidate is called "not lossless"."""
        return self.coverage.false_alarm

    def picture(self, ax: Any) -> None:
        """Draw the worst total variations as bars."""
        names = sorted(self.audits, key=lambda name: -self.audits[name].severity)
        worst = names[: drawing.MOST_BARS]
        beside = f", the worst {len(worst)} of {len(names)}" if len(worst) < len(names) else ""
        drawing.draw_bars(
            ax,
            names=worst,
            values=[self.audits[name].severity for name in worst],
            xlabel=f"total variation to the target, at least{beside}",
        )

    def row(self) -> tuple[str, str, str]:
        """Return the figures of the worst audit."""
        return self.audits[self.worst].row() if self.audits else ("", "", "nothing was tested")

    def sections(self) -> list[str]:
        """Return the summary, and the counterexample if there is one."""
        passed = self.verdict in PASSED or not self.audits
        return [self.summary()] if passed else [self.summary(), self.example()]

    def summary(self) -> str:
        """Return the number of failed instances, the worst audit, and the limits of samples."""
        if not self.audits:
            return f"Nothing was tested before {self._end}."
        worst = f"largest total variation {self.audits[self.worst].row()[0]}, on {self.worst!r}"
        rarely = f"with probability ≤ {self.false_alarm:.2g}"
        late = f"Not all was tested before {self._end}."
        if self._end != TO_COME:
            late += " --seconds (seconds=) gives more."
        said = [
            f"{len(self.failed)} of {len(self.audits)} instances fail; {worst}.",
            f"A lossless candidate is called otherwise {rarely}." if self.false_alarm else "",
            late if self.verdict == "no verdict" else "",
        ]
        first = {message: name for name, message in reversed([*self.raised.items()])}
        failed = sorted(self.failed.items(), key=lambda entry: -entry[1].severity)
        rows = [(name, *audit.row()) for name, audit in failed]
        sampled = [
            (name, audit.total_variation.interval_text, f"{audit.detect:.3g}", audit.accepted)
            for name, audit in sorted(self.audits.items(), key=lambda entry: -_extent(entry[1])[1])
            if isinstance(audit, SampledAudit)
            and audit.verdict in ("no difference found", "little power")
        ]
        parts = [
            "\n".join(self.diagnoses),
            " ".join(filter(None, said)),
            self._over_steps(),
            "\n".join(f"On {name}: {message}" for message, name in first.items()),
            listing(("instance", "TV", "KL(q‖π), nats", ""), rows) if rows else "",
            self._named("not exact") if self.verdict == "not lossless" else "",
            self._named("undecided"),
            self._named("no verdict"),
            listing(("samples", "TV (95 %)", "found if TV ≥", "acceptance (95 %)"), sampled)
            if sampled
            else "",
        ]
        return "\n\n".join(filter(None, parts))

    def _over_steps(self) -> str:
        """Return the result over several steps, by the key of the draft noise."""
        if (audit := self.steps.get("position")) is None:
            return ""
        noise = "with draft noise keyed by position, as vLLM draws it"
        tokens = f"{audit.coverage.tokens[0]} tokens"
        if audit.verdict in PASSED:
            return f"Lossless over {tokens} of several steps {noise}, too."
        mended = self.steps.get("step")
        return (
            f"Lossless on fresh drafts; {noise}, not: TV {audit.row()[0]} over {tokens}. Key the "
            f"draft noise by the step as well{f': then it is {mended.verdict}' if mended else ''}."
        )

    @property
    def _end(self) -> str:
        return TO_COME if TO_COME in self.uncovered else "time was up, as named above"

    def _named(self, verdict: Verdict) -> str:
        """Return the names of the instances with a verdict, "" if there are none."""
        names = self._of(verdict)
        return f"{verdict.capitalize()}: {'; '.join(names)}." if names else ""

    def _of(self, verdict: Verdict) -> dict[str, Audit]:
        return {name: audit for name, audit in self.audits.items() if audit.verdict == verdict}

    def example(self) -> str:
        """Return the figures of the counterexample, or of the worst instance, after the smallest
        instance for every other token that is the first to be wrong.
        """
        shown = self.counterexample or self.audits[self.worst]
        titles: dict[str, Audit] = {
            f"Wrong from token {place} on: {name}": self.audits[name]
            for place, name in sorted(self._first_wrong(shown).items())
        }
        titles["Minimal counterexample" if self.counterexample else self.worst] = shown
        return "\n\n".join(f"### {title}\n\n{one.figures()}" for title, one in titles.items())

    def _first_wrong(self, shown: Audit) -> dict[int, str]:
        """Return the smallest failing instance of one instance's size by first wrong token, but for
        the token of that one.
        """
        if not isinstance(shown, IntegratedAudit):
            return {}
        found: dict[int, str] = {}
        for name in sorted(self.failed, key=lambda name: _size(self.failed[name])):
            audit = self.failed[name]
            if isinstance(audit, IntegratedAudit) and audit.law.ndim == shown.law.ndim:
                found.setdefault(audit.first_position or 0, name)
        found.pop(shown.first_position or 0, None)
        return found


_DECIDES, _SAMPLING = 0.1, 0.7
"""Total variation that more time is to find, and the share that samples have beside branching."""

TO_COME = "an interruption"
"""The reason in a report of an interrupted battery."""


def _extent(audit: Audit) -> tuple[float, float]:
    """Return the total variation, with samples both ends of the interval."""
    high = audit.total_variation.high if isinstance(audit, SampledAudit) else audit.severity
    return audit.severity, high


def battery(
    candidate: object,
    *,
    only: str | Sequence[str] = (),
    laws: Iterable[Law] | None = None,
    num_drafts: Sequence[int] | None = None,
    seed: int = 0,
    errors: Errors = USUAL,
    tolerance: float | None = None,
    seconds: float = standard.SECONDS,
    shrink_for: float = standard.SHRINKING,
    draft: object = None,
    target: object = None,
    noise: str | None = None,
    vocabulary: int | None = None,
) -> BatteryAudit:
    """Audit a callable of any kind, by integration where possible and by samples elsewhere.

    Samples are drawn of the instances that are too large to integrate, none where all are small
    enough; and of all kinds of instances where nothing can be integrated.

    Args:
        candidate: a function of one token or of a block, a step, a kernel of trees or a generation
            (`otm.audit.candidate`; which one is found out), a `Candidate`, or one of the library's
            verifiers.
        only: which checks, all unless given: "exact" for those by integration, "sampled" for every
            standard instance by samples instead, or parts of the checks' names ("zeros").
        laws: how several drafts of one position are drawn; i.i.d. drafts, 1 to 8 of them, unless
            given.
        num_drafts: of a block verifier, the lengths γ; 1 to 8 unless given.
        seed: of all samples.
        errors: of all samples together; what they are to find is what the time allows unless given
            (`otm.audit.standard_problems`), .02 where samples only are asked for.
        tolerance: as for `exact`.
        seconds: CPU seconds for the audits, or ten times as many of waiting; what is not reached
            is named in the coverage, and what integration leaves is spent on samples.
        shrink_for: time for a minimal counterexample, in seconds; 0 looks for none. Where nothing
            fails it goes to what a verdict needs and `seconds` did not reach.
        draft, target: laws to audit it on instead of the standard instances: `(V,)`, the same at
            every position, or `(V, V)`, a row for each last token. Raw logits are their logarithms.
        noise: of a verifier of blocks, the key of the draft noise of a text of several steps that
            is to be lossless, too, as `otm.audit.several_steps` has it. Unless given, such a text
            with noise by position is reported beside the verdict.
        vocabulary: of a verifier that is handed its drafts, the size of a further instance, which
            is sampled: faults that are small for each token add up there.

    Returns:
        BatteryAudit: the verdict, what it covers, each audit, and if one fails a minimal
        counterexample.

    Raises:
        InvalidParameter: if the candidate is of no kind, no check is left, one of draft and target
            is given without the other, or noise is no key, or given for another candidate.
        InvalidDistribution, ShapeMismatch: if draft or target are no such laws.
        CandidateFailure: if it fails where it was asked for by laws or lengths, or everywhere.
            Defaults that do not fit a callable are left out instead.

    Cost: about two seconds for a callable in NumPy that fails; at most `seconds` and `shrink_for`,
        and one call. For a counterexample up to 300 small audits.

    >>> import numpy as np
    >>> def second_passes(p, q, drafts, uniforms):
    ...     x = int(drafts[0])
    ...     if len(drafts) > 1:
    ...         return int(drafts[1])  # any second draft is accepted
    ...     r = np.maximum(q - p, 0.0)
    ...     if uniforms[0] * p[x] < q[x]:
    ...         return x
    ...     return int(np.searchsorted(np.cumsum(r) / r.sum(), uniforms[1], side="right"))
    >>> battery(second_passes, only="exact", shrink_for=0).verdict
    'not lossless'
    """
    spare = check_real(shrink_for, name="shrink_for", low=0.0)
    if (draft is None) != (target is None):
        raise InvalidParameter(
            "draft and target go together; got one of them. Give both, or neither."
        )
    scope = Scope(
        only=only,
        laws=laws,
        num_drafts=num_drafts,
        errors=errors,
        tolerance=tolerance,
        seed=seed,
        deadline=Deadline(check_real(seconds, name="seconds", low=0.0), spare=spare),
        pair=None if draft is None else (draft, target),  # type: ignore[arg-type]  # is checked
        noise=noise,
        vocabulary=vocabulary,
    )
    return with_counterexample(run_battery(candidate_of(candidate, scope), scope), scope)


def run_battery(candidate: Candidate, scope: Scope) -> BatteryAudit:
    """Return a battery before a counterexample is looked for: see `battery`.

    Args:
        candidate: what is audited.
        scope: the checks, and the time; its spare seconds come on top for what a verdict needs, as
            long as nothing has failed: no counterexample will be looked for then.
    """
    limited = candidate.limited(scope.deadline)
    seed = scope.seed % 2**32
    with preserved(seed=seed):  # what the callable draws by itself follows the seed as well
        try:
            if scope.pair is not None and not scope.sampled:
                _require_followed(limited, scope)
            found = carry_out(_checks(limited, scope), limited, scope)
            diagnoses = diagnose(candidate, found.audits, found.failed)
            return _with_steps(dataclasses.replace(found, diagnoses=diagnoses), limited, scope)
        except OwnRandomness as error:
            if scope.sampled or ("exact" in scope.only and isinstance(limited, DraftedCandidate)):
                raise
            scope = dataclasses.replace(scope, own_randomness=True)
            found = carry_out(_checks(limited, scope), limited, scope)
            return dataclasses.replace(found, reason=error.reason)


def _checks(candidate: Candidate, scope: Scope) -> list[Check]:
    """Return the checks of a candidate, after the check of several steps if requested."""
    if scope.vocabulary is not None and not isinstance(candidate, DraftedCandidate):
        raise InvalidParameter(
            f"A vocabulary is of verifiers that are handed their drafts; {candidate.name!r} is "
            f"{candidate.description}. Drop it."
        )
    steps = [] if scope.noise is None else [check_of_steps(candidate, scope, scope.noise)]
    return [*steps, *scope.checks(candidate)]


def _require_followed(candidate: Candidate, scope: Scope) -> None:
    """Audit one standard instance: on given laws code may agree with a wrong law by chance.

    Raises:
        OwnRandomness: if the candidate contradicts the law found.
    """
    check, *_ = candidate.checks(dataclasses.replace(scope, pair=None))
    scope.deadline.start(share=1.0, with_spare=True)
    with contextlib.suppress(OutOfTime, CandidateFailure, TooLarge, Unsupported):
        if check.kind == "exact" and contradicts(reason := check.run().reason):
            raise OwnRandomness.because(reason)


def _with_steps(found: BatteryAudit, candidate: Candidate, scope: Scope) -> BatteryAudit:
    """Add an audit of several steps to the battery of a lossless verifier of blocks."""
    steps: dict[str, Audit] = {}
    followed = found.verdict == "lossless" and not found.reason and scope.noise is None
    for noise in NOISE[:2] if followed and isinstance(candidate, BlockCandidate) else ():
        scope.deadline.start(share=_BESIDE, with_spare=True)
        with contextlib.suppress(OutOfTime, CandidateFailure), scope.deadline.enforced():
            steps[noise] = check_of_steps(candidate, scope, noise).run()
        if noise not in steps or steps[noise].verdict in PASSED:
            break
    return dataclasses.replace(found, steps=steps)


def candidate_of(thing: object, scope: Scope) -> Candidate:
    """Wrap a function, verifier or candidate in the matching kind of `Candidate`.

    Where each draft has a drafter of its own, a function counts as a verifier of one token, since
    that case cannot be tried out.
    """
    one_drafter = scope.laws is None or all(law.one_drafter for law in scope.laws)
    if one_drafter or isinstance(thing, Candidate | Verifier):
        return classify(thing)
    return as_kind(thing, TokenCandidate)


def carry_out(checks: Iterable[Check], candidate: Candidate, scope: Scope) -> BatteryAudit:
    """Carry out checks one by one, within the scope's deadline.

    By default the laws and lengths that a callable does not take are left out, and said so; and a
    law or length of which one check was too slow is not followed further. Where it takes one, and
    raises on some instance of it, that is part of the verdict.

    Raises:
        Interrupted: with what was found so far.
    """
    progress, planned = _Progress(candidate, scope), list(checks)
    try:
        for number, check in enumerate(planned, start=1):
            report_phase("auditing", f"{number} of {len(planned)} instances")
            if progress.wants(check):
                progress.carry_out(check)
    except KeyboardInterrupt:
        progress.uncovered[TO_COME] = None
        raise Interrupted(progress.found()) from None
    if progress.raised and not progress.audits and not progress.late:
        raise next(iter(progress.raised.values()))[1]
    return progress.found()


_BESIDE = 0.1
"""Share of the time for texts of several steps beside a verdict."""

_REFUSED = 4
"""Instances of a law or length on which a candidate may raise before the group counts as
refused.
"""


@dataclasses.dataclass(eq=False)
class _Progress:
    """The audits of a battery so far, and the checks that raised or came too late."""

    candidate: Candidate
    scope: Scope
    audits: dict[str, Audit] = dataclasses.field(default_factory=dict)
    done: dict[str, Check] = dataclasses.field(default_factory=dict)
    raised: dict[str, tuple[Check, OtmError]] = dataclasses.field(default_factory=dict)
    late: dict[tuple[str, str], list[str]] = dataclasses.field(default_factory=dict)
    uncovered: dict[str, None] = dataclasses.field(default_factory=dict)
    failed: bool = False

    def wants(self, check: Check) -> bool:
        """True if a check is to be carried out; a check that comes too late is noted."""
        if self._count_refusals(check.group) >= _REFUSED:
            return False
        if before := self.late.get((check.group, check.kind)):
            before.append(self.scope.deadline.why)
            return False
        # no power is needed to find what integration has found
        integrated = any(done.kind == "exact" for done in self.done.values())
        return check.kind == "exact" or self.scope.sampled or not (self.failed and integrated)

    def carry_out(self, check: Check) -> None:
        """Carry out one check within a share of the time, and note the outcome."""
        deadline = self.scope.deadline
        deadline.start(
            share=self.candidate.share,
            with_spare=check.needed and not self.failed,
            kept=check.kept,
        )
        try:
            with deadline.enforced():
                self.audits[check.name] = audit = check.run()
            self.done[check.name] = check
            self.failed |= audit.verdict == "not lossless"
        except OutOfTime:
            self.late[check.group, check.kind] = [deadline.why]
            if check.needed:
                self.uncovered[check.group] = None
        except (CandidateFailure, Unsupported, TooLarge) as error:
            self.raised[check.name] = (check, error)

    def found(self) -> BatteryAudit:
        """Return the battery of all audits so far."""
        unfit = {
            check.group: error
            for check, error in reversed(self.raised.values())
            if self.scope.default and self._count_refusals(check.group)
        }
        reasons: dict[str, list[str]] = {}
        for group, error in sorted(unfit.items()):
            reasons.setdefault(str(error).splitlines()[0], []).append(group)
        left_out = [f"{', '.join(groups)} ({reason})" for reason, groups in reasons.items()]
        left_out += [
            f"{name} ({error})"
            for name, (_, error) in self.raised.items()
            if isinstance(error, TooLarge)
        ]
        left_out += [
            f"{len(whys)} instance{'s' * (len(whys) > 1)} with {group}"
            f"{' by samples' * (kind == 'sampled')} ({whys[0]})"
            for (group, kind), whys in self.late.items()
        ]
        guessed = ""
        if isinstance(self.candidate, FunctionCandidate) and self.candidate.found_out:
            guessed = (
                f"Taken for {self.candidate.description}, {self.candidate.called}; --mode, or a "
                "candidate of otm.audit, says otherwise"
            )
        found = BatteryAudit(
            name=self.candidate.name,
            taken_for=guessed,
            audits=self.audits,
            reason=next((audit.reason for audit in self.audits.values() if audit.reason), ""),
            left_out=tuple(left_out),
            uncovered=tuple(self.uncovered),
            checks=self.done,
            raised={
                name: str(error)
                for name, (check, error) in self.raised.items()
                if check.group not in unfit and not isinstance(error, TooLarge)
            },
        )
        heats = ", ".join(f"{heat:g}" for heat in found.coverage.temperatures)
        refused = self._refused(unfit)
        aside = f" at temperature {heats}; {refused} it raises" if refused else ""
        if found.verdict == "little power":
            aside = self._cost_of_power() + aside
        # what is said beside the verdict is said of audits with this verdict
        told = [one for one in self.audits.values() if one.verdict == found.verdict]
        detail = max(told, key=lambda one: (one.detail > "", one.severity), default=found).detail
        return dataclasses.replace(found, aside=aside, detail=detail)

    def _cost_of_power(self) -> str:
        """Return the seconds in which samples would find what decides, at their pace so far."""
        drawn = [audit for audit in self.audits.values() if isinstance(audit, SampledAudit)]
        each = max(audit.seconds_to_find(_DECIDES) for audit in drawn)
        count = len(drawn) + sum(map(len, self.late.values()))
        seconds = 10 * math.ceil(each * count / (standard.USED * _SAMPLING) / 10.0)
        return f"; --seconds {seconds:,} would find {_DECIDES:g}"

    def _refused(self, groups: Iterable[str]) -> str:
        """Name the temperatures at which the candidate raises always, and infinite logits."""
        heats = getattr(self.candidate, "temperatures", ())
        of_heats = {
            heat: [g for g in groups if g.startswith(f"temperature {heat:g},")] for heat in heats
        }
        named = {
            f"at temperature {heat:g}"
            if any(not g.endswith(INFINITE) for g in of_heat)
            else "on logits of −∞": None
            for heat, of_heat in of_heats.items()
            if of_heat
        }
        return " and ".join(named)

    def _count_refusals(self, group: str) -> int:
        """Count the instances of a group on which the candidate raised; 0 if another of the group
        was answered or the error came by chance.
        """
        raised = [error for check, error in self.raised.values() if check.group == group]
        answered = any(check.group == group for check in self.done.values())
        by_chance = any(isinstance(e, CandidateFailure) and not e.certain for e in raised)
        return 0 if answered or by_chance else len(raised)


def with_counterexample(found: BatteryAudit, scope: Scope) -> BatteryAudit:
    """Return a battery that failed with the smallest problem on which the candidate fails.

    Args:
        found: the battery.
        scope: of the battery; its deadline's spare seconds are for the search. Where they are up,
            the smallest standard instance that fails is taken; 0 looks for none.
    """
    deadline = scope.deadline
    failed = {name: audit for name, audit in found.failed.items() if audit.again}
    if not failed or deadline.spare == 0.0:
        return found
    smallest = min(failed, key=lambda name: _size(failed[name]))
    shrink = found.checks[smallest].shrink
    deadline.restart(deadline.spare)
    try:
        shrunk = None if shrink is None else shrink()
    except OwnRandomness:  # what was followed once need not be on every small problem
        shrunk = None
    return dataclasses.replace(found, counterexample=shrunk or failed[smallest])


def _size(audit: Audit) -> tuple[float, ...]:
    """Order audits by drafts, tokens and vocabulary, then by the severity of the failure."""
    covered = audit.coverage
    return (*covered.drafts, *covered.tokens, *covered.vocabulary, -audit.severity)
