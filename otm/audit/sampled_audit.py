"""The sampled audit: any callable, any vocabulary, internal randomness; an alarm is false with a
stated, proved probability.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otm._display import drawing
from otm._machine.patience import Stopwatch
from otm.audit.budget import DETECT, ENOUGH, USUAL, DetectionBudget, Errors, check_errors
from otm.audit.evidence import (
    cleared,
    detectable,
    deviation,
    distance,
    distance_threshold,
    log_evidence,
    log_excess_evidence,
    log_mean,
    pool,
    samples_needed,
    samples_to_clear,
    variation_at_least,
    variation_interval,
)
from otm.audit.report import (
    LONGER_STATE,
    SAMPLES,
    STATE,
    Audit,
    Coverage,
    Verdict,
    facts,
    format_probability,
)
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_instance, host_pmf, plain_integers
from otm.results import is_member
from otm.results.statistics import Estimate, binomial_interval

MOST_CELLS = 256
"""Largest number of cells that output counts are kept in; a larger vocabulary is pooled by q/p."""

MOST_SAMPLES = 10**10
"""Largest plan that is begun: months of calls."""

_FIRST_LOOK = 500
_TO_BEGIN_WITH = 8
_INSTANT = 1e-6

LARGEST_BATCH = 20_000
"""Rows of a call of a kernel of batches."""


class Drawn(NamedTuple):
    """A batch of drawn outputs.

    Attributes:
        outputs: tokens `(m,)`.
        drafts: `(m, k)`; None if there are none that outputs could be members of.
        flags: whether each was said to be accepted `(m,)`; None if nothing was said.
    """

    outputs: NDArray[np.int64]
    drafts: NDArray[np.int64] | None = None
    flags: NDArray[np.bool_] | None = None


class Drawing(NamedTuple):
    """A sampler of outputs, with the target law for the comparison.

    Attributes:
        draw: draws so many outputs.
        target: q `(V,)`.
        draft: p `(V,)`, by which tokens of a large vocabulary are pooled; q itself if it is not
            known.
        optimum: α*, if outputs come with the drafts that they may be among.
        tested: what is tested, but for how.
        shape: numbers of tokens, by position, of which an output is a joint number; none if it is
            a token.
        cells: the largest number of cells that outputs are counted in.
        batch: how many outputs are drawn at a time.
    """

    draw: Callable[[int], Drawn]
    target: NDArray[np.float64]
    draft: NDArray[np.float64]
    optimum: float | None
    tested: Coverage
    shape: tuple[int, ...] = ()
    cells: int = MOST_CELLS
    batch: int = LARGEST_BATCH


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SampledAudit(Audit):
    """The evidence of samples about a verifier on one problem; `str` gives the report in Markdown.

    Attributes:
        samples: how many outputs were drawn.
        planned: how many would have been drawn had nothing been found before.
        tested: what was tested, but for how.
        cells: number of cells the outputs were counted in.
        outcomes: number of different outputs.
        distance: T = ½ Σ |N/n − q| over the cells.
        threshold: what T exceeds with probability at most half of a false alarm's for a lossless
            verifier.
        log_e_value: logarithm of the evidence; it ever exceeds `alarm` with at most the other half.
        total_variation: 95 % interval of the total variation between output law and target, over
            the cells.
        membership: 95 % interval of Pr(the output is among the drafts); None without drafts.
        rule: 95 % interval of Pr(the rule accepted); None without flags.
        optimum: α* of the problem; None without drafts.
        detect: total variation from which on every law is found with probability at least 1 −
            `missed`.
        asked: the total variation that was not to be missed; if `detect` is larger, finding nothing
            is no verdict.
        enough: the largest `asked` at which finding nothing lets a candidate pass.
        excess: what came out too often, and how often; "" without an alarm.
        errors: how often the verdict may be wrong.
        pace: how many samples were drawn in a second of `Deadline`; 0 of samples that were given.
    """

    samples: int
    planned: int
    tested: Coverage
    cells: int
    outcomes: int
    distance: float
    threshold: float
    log_e_value: float
    total_variation: Estimate
    membership: Estimate | None
    rule: Estimate | None
    optimum: float | None
    detect: float
    asked: float
    enough: float
    excess: str
    errors: Errors
    pace: float = dataclasses.field(default=0.0, compare=False)

    def seconds_to_find(self, detect: float) -> float:
        """Return the seconds in which samples of this pace would find a total variation."""
        return self.planned * (self.asked / detect) ** 2 / self.pace if self.pace else 0.0

    @property
    def alarm(self) -> float:
        """The logarithm of evidence from which on there is an alarm."""
        return math.log(2.0 / self.errors.false_alarm)

    @property
    def found_by(self) -> str:
        """The test that raised the alarm: "evidence", "distance" or ""."""
        if self.log_e_value >= self.alarm:
            return "evidence"
        return (
            "distance" if self.samples >= self.planned and self.distance >= self.threshold else ""
        )

    @property
    def verdict(self) -> Verdict:
        """The verdict: an alarm is false with the probability in `errors`; without one there must
        be enough samples to see `asked`.
        """
        if self.found_by:
            return "not lossless"
        if self.detect > self.asked:
            return "no verdict"
        return "no difference found" if self.asked <= self.enough else "little power"

    @property
    def samples_needed(self) -> int:
        """The number of samples that find `asked`, at these cells."""
        root = self.threshold * math.sqrt(self.samples) + deviation(self.errors.missed)
        return math.ceil((root / self.asked) ** 2)

    @property
    def coverage(self) -> Coverage:
        """The tested instance, the number of samples, and the faults that samples cannot show."""
        pooled = self.cells < self.outcomes
        hidden = ("differences between outputs of similar q/p where sampled",) if pooled else ()
        return dataclasses.replace(
            self.tested,
            by=((SAMPLES, 1),),
            samples=self.planned if self.found_by else self.samples,
            detect=self.asked,
            false_alarm=self.errors.false_alarm,
            untested=(*self.tested.untested, *hidden),
        )

    @property
    def severity(self) -> float:
        """The lower end of the interval."""
        return float(self.total_variation.low)

    @property
    def accepted(self) -> str:
        """The interval of the acceptance, by membership or by the rule; "" if neither is known."""
        known = self.rule if self.membership is None else self.membership
        return "" if known is None else known.interval_text

    def picture(self, ax: Any) -> None:
        """Draw the intervals."""
        named = {
            "total variation": self.total_variation,
            "accepted, by membership": self.membership,
            "by the rule": self.rule,
        }
        known = {name: interval for name, interval in named.items() if interval is not None}
        drawing.draw_intervals(
            ax,
            names=list(known),
            found=[(0.5 * (i.low + i.high), i.low, i.high) for i in known.values()],
            xlabel="95 % intervals",
        )

    def row(self) -> tuple[str, str, str]:
        """Return the interval of the total variation, and the finding or the power."""
        power = f"≥ {self.detect:.3g} missed with ≤ {self.errors.missed:g}"
        remark = f"found in {self.samples:,} samples" if self.found_by else power
        return self.total_variation.interval_text, "", remark

    def sections(self) -> list[str]:
        """Return the number of samples, the results of both tests, and the intervals."""
        evidence, distance = f"evidence e^{self.log_e_value:.4g}", f"distance {self.distance:.6g}"
        found = {
            "evidence": f"{evidence} against the target's law, alarm at e^{self.alarm:.4g}",
            "distance": f"{distance} of the samples from the target's law, alarm at "
            f"{self.threshold:.6g}",
            "": f"{evidence} and {distance} are within what chance explains",
        }[self.found_by]
        missed = f"a total variation ≥ {self.detect:.3g} is missed with ≤ {self.errors.missed:g}"
        if self.detect > self.asked:
            missed += f"; {self.asked:g} needs {self.samples_needed:,} samples"
        rows = [
            ("instance", ", ".join(self.tested.instances)),
            ("samples", f"{self.samples:,} of {self.planned:,} planned, in {self.cells} cells"),
            ("found", found),
            *([("too often", self.excess)] if self.excess else []),
            ("errors", f"false alarm ≤ {self.errors.false_alarm:g}; {missed}"),
            ("total variation", f"{self.total_variation.interval_text} (95 %)"),
        ]
        if self.membership is not None and self.optimum is not None:
            rule = "" if self.rule is None else f"; by the rule {self.rule.interval_text}"
            best = f"the optimum is {format_probability(self.optimum)}"
            by_membership = f"by membership {self.membership.interval_text}{rule} (95 %)"
            rows.append(("acceptance", f"{by_membership}; {best}"))
        elif self.rule is not None:
            rows.append(("acceptance", f"of whole blocks {self.rule.interval_text} (95 %)"))
        return [facts(rows)]


class Interrupted(KeyboardInterrupt):
    """Raised when an audit is interrupted; `found` holds the results so far."""

    def __init__(self, found: Audit) -> None:
        super().__init__()
        self.found = found


_MOST_JOINT = 64
"""Outcomes of a small batch, beyond which first tokens are compared only."""


def jointly(drawing: Drawing, rows: int) -> Drawing:
    """Return the sampler of batches of rows, with the joint outputs of several rows as one outcome.

    These rows are the first two, the middle and the last two; with batches of one row they come
    from two calls, one after the other. A fault in one row shows in the joint law, and so do rows
    that share their randomness, and state kept between the calls. Where there are too many
    outcomes, only the first tokens of the rows are taken.

    Args:
        drawing: what draws outputs by batches of so many rows.
        rows: of a batch.
    """
    seen = sorted({0, 1, rows // 2, rows - 2, rows - 1} & {*range(rows)})
    calls = 2 if rows == 1 else 1
    count = calls * len(seen)
    size, shape = len(drawing.target), drawing.shape or (len(drawing.target),)
    later = 1 if size**count <= _MOST_JOINT else math.prod(shape[1:])
    size, shape = size // later, shape if later == 1 else shape[:1]

    def draw(outcomes: int) -> Drawn:
        outputs = drawing.draw(outcomes * calls * rows).outputs.reshape(-1, rows)[:, seen] // later
        return Drawn(outputs.reshape(outcomes, count) @ size ** np.arange(count)[::-1])

    target, draft = (
        functools.reduce(np.multiply.outer, [law.reshape(size, later).sum(axis=1)] * count).reshape(
            -1
        )
        for law in (drawing.target, drawing.draft)
    )
    few = f"{len(seen)} of them " * (len(seen) < rows)
    tested = dataclasses.replace(
        drawing.tested,
        subjects=(
            *drawing.tested.subjects,
            "two calls of 1 row, jointly" if calls > 1 else f"batches of {rows} rows, {few}jointly",
        ),
        untested=(*drawing.tested.untested, LONGER_STATE if calls > 1 else STATE),
    )
    return Drawing(draw, target, draft, None, tested, shape * count)


def audit_of_draws(
    drawing: Drawing,
    *,
    name: str,
    errors: Errors,
    detect: float = DETECT,
    most_samples: int = MOST_SAMPLES,
    first_look: int = _FIRST_LOOK,
) -> SampledAudit:
    """Draw and count until the evidence suffices or the plan ends: see `otm.audit.sampled`.

    Args:
        drawing: what draws outputs, and what they are held against.
        name: of the candidate.
        errors: what must be found, and how often the audit may be wrong; a `DetectionBudget` is
            decided at the first look.
        detect: what must be found unless `errors` say it.
        most_samples: the largest plan.
        first_look: after how many samples the evidence is looked at; then at twice as many, ….

    Raises:
        Interrupted: with what the samples so far tell.
    """
    timed = isinstance(check_errors(errors).detect, DetectionBudget)
    early = isinstance(errors.detect, DetectionBudget) and errors.detect.early
    levels = errors.levels(detect)
    errors = errors.shared(len(levels))  # the level taken depends on how long the code took
    cell = pool(drawing.draft, drawing.target, drawing.cells)
    mass: NDArray[Any] = np.bincount(cell, weights=drawing.target)
    # half for the end of the plan, half for an end before
    alarm, missed = errors.false_alarm / 2, errors.missed / (1 + early)
    plans = [
        (level, samples_needed(mass, detect=level, false_alarm=alarm, missed=missed))
        for level in levels
    ]
    level, planned = plans[0]
    if min(count for _, count in plans) > most_samples:
        raise TooLarge(
            f"A sampled audit draws at most {most_samples:,} outputs; detect={level:g} needs "
            f"{planned:,}. Ask for a larger total variation, or audit something smaller."
        )
    tally = _Tally(np.zeros(len(mass), dtype=np.int64))
    looks = 1 + early + max(0, math.ceil(math.log2(planned / first_look)))
    if timed:
        drawing.draw(_TO_BEGIN_WITH)  # what is made once should not count for the pace
    until, watch = first_look, Stopwatch()
    broken_off = ""
    while True:
        try:
            while (missing := min(until, planned) - tally.samples) > 0:
                tally.add(drawing.draw(min(drawing.batch, missing)), cell)
        except KeyboardInterrupt:
            if tally.samples == 0:
                raise
            broken_off = f"an interruption after {tally.samples:,} of {planned:,} samples"
            planned = tally.samples  # at a time that they do not tell
        evidence = tally.log_e_value(mass, drawing.optimum)
        if tally.samples >= planned or evidence >= math.log(2.0 / errors.false_alarm):
            break
        if until == first_look and isinstance(errors.detect, DetectionBudget):
            pace = tally.samples / max(watch.seconds, _INSTANT)
            most = min(most_samples, pace * errors.detect.seconds)
            level, planned = next((plan for plan in plans if plan[1] <= most), plans[-1])
        clear = early * max(first_look, samples_to_clear(mass, detect=level, missed=missed))
        if tally.samples == clear and cleared(tally.counts, mass, detect=level, missed=missed):
            break
        until = clear if until < clear <= 2 * until else 2 * until
    # Which look was the last is chosen by the data: each interval is wrong with probability
    # .05/looks at any one of them.
    found = _conclude(
        name,
        tally,
        mass,
        tested=drawing.tested,
        planned=planned,
        evidence=evidence,
        optimum=drawing.optimum,
        errors=dataclasses.replace(errors, detect=level),
        missed=missed,
        uncertainty=0.05 / looks,
        outcomes=(cell, drawing.shape or (len(drawing.target),)),
        # who asks for a total variation gets a verdict on it
        enough=ENOUGH if timed else 1.0,
    )
    found = dataclasses.replace(found, pace=tally.samples / max(watch.seconds, _INSTANT))
    if broken_off:
        raise Interrupted(dataclasses.replace(found, detail=broken_off))
    return found


def outputs(
    outputs: object,
    *,
    target: object,
    draft: object = None,
    name: str = "outputs",
    errors: Errors = USUAL,
) -> SampledAudit:
    """Test whether given output tokens of one context have the target's law: the fixed-size test.

    Args:
        outputs: tokens `(n,)`, independent, n chosen before they were looked at.
        target: q `(V,)`.
        draft: p `(V,)`, if known: beyond 256 tokens those of similar q/p share a cell (of similar
            index without it).
        name: what to call them in the report.
        errors: the total variation that must not go unnoticed (too few outputs to see it get no
            verdict), and how often the test may be wrong.

    Returns:
        SampledAudit without acceptances.

    Raises:
        InvalidDistribution: if target is no distribution. InvalidParameter: if outputs are no
            tokens of it.

    Cost: O(n + V).

    >>> import numpy as np
    >>> audit = outputs(np.arange(10_000) % 2, target=[0.5, 0.5])
    >>> audit.verdict, round(audit.detect, 3), audit.samples_needed
    ('no verdict', 0.056, 79265)
    """
    mass = host_pmf(target, name="target")
    check_instance(name, str, name="name")
    tokens = plain_integers(outputs, "outputs")
    if tokens.ndim != 1 or tokens.size == 0 or tokens.min() < 0 or tokens.max() >= len(mass):
        raise InvalidParameter(
            f"outputs must be integer tokens (n,) in [0, {len(mass)}), n ≥ 1; got {tokens.dtype} "
            f"of shape {tokens.shape}. "
            "Pass the sampled tokens of one context."
        )
    beside = mass if draft is None else host_pmf(draft, name="draft")
    if mass.ndim != 1 or beside.shape != mass.shape:
        raise InvalidParameter(
            f"One context has one pair of laws (V,); got shapes {mass.shape} and {beside.shape}. "
            "Pass one row."
        )
    cell = pool(beside, mass, MOST_CELLS)
    pooled = np.bincount(cell, weights=mass)
    tally = _Tally(np.zeros(len(pooled), dtype=np.int64))
    tally.add(Drawn(tokens), cell)
    return _conclude(
        name,
        tally,
        pooled,
        tested=Coverage(instances=(name,), vocabulary=(len(mass),), untested=("other contexts",)),
        planned=tally.samples,
        evidence=tally.log_e_value(pooled, None),
        optimum=None,
        errors=check_errors(errors),
        missed=errors.missed,
        uncertainty=0.05,
        outcomes=(cell, (len(mass),)),
    )


@dataclasses.dataclass(eq=False)
class _Tally:
    """The counts so far: outputs by cell, outputs among the drafts, outputs reported accepted."""

    counts: NDArray[np.int64]
    members: int = 0
    accepted: int | None = 0

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    def add(self, drawn: Drawn, cell: NDArray[np.int64]) -> None:
        outputs, drafts, flags = drawn
        self.counts = self.counts + np.bincount(cell[outputs], minlength=len(self.counts))
        if drafts is not None:
            self.members += int(np.count_nonzero(is_member(outputs, drafts)))
        if flags is None or self.accepted is None:
            self.accepted = None
        else:
            self.accepted += int(np.count_nonzero(flags))

    def log_e_value(self, mass: NDArray[Any], optimum: float | None) -> float:
        """Return the evidence against q, and for more outputs among the drafts than α* allows."""
        counted = float(log_evidence(self.counts, mass))
        if optimum is None:
            return counted
        return log_mean(counted, log_excess_evidence(self.members, self.samples, optimum))


def _conclude(
    name: str,
    tally: _Tally,
    mass: NDArray[Any],
    *,
    tested: Coverage,
    planned: int,
    evidence: float,
    optimum: float | None,
    errors: Errors,
    missed: float,
    uncertainty: float,
    outcomes: tuple[NDArray[np.int64], tuple[int, ...]],
    enough: float = 1.0,
) -> SampledAudit:
    n, alarm = tally.samples, errors.false_alarm / 2
    asked = errors.level(DETECT)

    def interval(hits: int | None) -> Estimate | None:
        return None if hits is None else binomial_interval(hits, n, confidence=1.0 - uncertainty)

    audit = SampledAudit(
        name=name,
        samples=n,
        planned=planned,
        tested=tested,
        cells=len(mass),
        outcomes=len(outcomes[0]),
        distance=distance(tally.counts, mass),
        threshold=distance_threshold(mass, n, false_alarm=alarm),
        log_e_value=evidence,
        total_variation=variation_interval(tally.counts, mass, uncertainty=0.9 * uncertainty),
        membership=None if optimum is None else interval(tally.members),
        rule=interval(tally.accepted),
        optimum=optimum,
        detect=detectable(mass, planned, false_alarm=alarm, missed=missed),
        asked=asked,
        enough=enough,
        excess="",
        errors=errors,
    )
    if not audit.found_by:
        return audit
    # beside an alarm the interval must not begin at 0: what the evidence proves is proved of it
    known = audit.total_variation
    proved = variation_at_least(
        tally.counts,
        mass,
        uncertainty=0.1 * uncertainty,
        hits=tally.members,
        optimum=1.0 if optimum is None else optimum,
    )
    low = max(known.low, proved)
    return dataclasses.replace(
        audit,
        total_variation=dataclasses.replace(
            known, value=max(known.value, low), low=low, high=max(known.high, low)
        ),
        excess=_excess(tally.counts, mass, *outcomes),
    )


def _excess(
    counts: NDArray[np.int64],
    mass: NDArray[Any],
    cell: NDArray[np.int64],
    shape: tuple[int, ...],
) -> str:
    """Describe the excess of the cell with the strongest evidence."""
    samples = counts.sum()
    expected = samples * mass
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = np.where(counts > expected, counts * np.log(counts / expected), 0.0)
    worst = int(np.nanargmax(surprise - np.maximum(counts - expected, 0.0)))
    tokens = np.flatnonzero(cell == worst)
    named = [", ".join(map(str, np.unravel_index(token, shape))) for token in tokens[:3]]
    what = f"{'tokens' if len(shape) > 1 else 'token'} {' or '.join(named)}"
    if len(tokens) > len(named):
        what += f" or {len(tokens) - len(named):,} of similar q/p"
    return f"{what}: {counts[worst]:,} times, expected {expected[worst]:,.1f}"
