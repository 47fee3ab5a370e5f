"""The joint law of what code writes when it drafts, verifies and goes on by itself: exact where it
branches, else sampled.

The code is a function without arguments that returns rows of tokens; all randomness is its own.
Where every draw can be followed (`otm.tracing.branching`) its law is known exactly. Where one
cannot, the verdict is that of samples with proved error rates, and the report says what stood in
the way. A row that is shorter than the length looked at is followed by samples of the target, as it
would be: a lossless step leaves the law of the text untouched (SpecTr, Theorem 3).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from otm import drawing
from otm.audit.coverage import SAMPLES, Coverage
from otm.audit.error_budget import DETECT_END_TO_END, DetectionBudget, Errors, check_errors
from otm.audit.integration import BRANCHING, check_tolerance
from otm.audit.report import SampledFigures, SingleAudit, Verdict, facts, format_probability
from otm.audit.sampled_audit import SampledAudit, outputs
from otm.divergences import divergence_term
from otm.drafts.base import MAX_SEQUENCES
from otm.errors import InvalidParameter, TooLarge
from otm.evidence import log_evidence, samples_needed
from otm.pmf import check_count, check_real, check_rng
from otm.tracing.answers import CandidateFailure, Failed, outcome_of
from otm.tracing.branching import TracedLaw, contradicts_samples, trace
from otm.tracing.execution import TraceAborted
from otm.tracing.intercept.interception import preserved
from otm.tracing.output_law import CONTRADICTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_SAMPLES = 200_000
"""Largest plan of samples: code that decodes is slow."""

_FIRST_LOOK = 250
_LEAST_DETECT = 1e-6

Row = tuple[int, ...]
Next = Callable[[Row], NDArray[np.float64]]
"""The target's distribution after what a row has so far."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JointAudit(SingleAudit):
    """What code writes on one instance, against the target; `str` gives the report in Markdown.

    Attributes:
        instance: what it was run on, in words.
        covered, not_covered: what the verdict is about, beside numbers of tokens, and what it is
            not.
        length: how many tokens of each row are compared jointly.
        law: π over the rows' tokens, `(V,)` for each token of each row; None where it was sampled.
        target_law: the target's.
        tolerance: the largest total variation that rounding explains.
        error: bound on the error of the total variation beyond rounding.
        runs: how many executions were told apart.
        samples: the sampled audit, numbered in base V; None where the law is exact.
        again: Python that repeats it, with {} for the code's name; "" unless a battery made it.
    """

    instance: str
    covered: tuple[str, ...]
    not_covered: tuple[str, ...]
    length: int
    law: NDArray[np.float64] | None
    target_law: NDArray[np.float64]
    tolerance: float
    error: float
    runs: int
    samples: SampledAudit | None
    again: str = ""

    @functools.cached_property
    def total_variation(self) -> float:
        """½ Σ |π − q|; of samples the lower end of the 95 % interval."""
        if self.law is None:
            assert self.samples is not None
            return float(self.samples.total_variation.low)
        missing = max(0.0, 1.0 - float(self.law.sum()) - self.error)
        return float(0.5 * (np.abs(self.law - self.target_law).sum() + missing))

    @property
    def severity(self) -> float:
        """The total variation, of samples the lower end of its interval."""
        return self.total_variation

    @property
    def drawn(self) -> SampledFigures | None:
        """What samples say, where the law is not exact."""
        return None if self.samples is None else self.samples.drawn

    @property
    def coverage(self) -> Coverage:
        """What was run, how far its tokens were compared, and by what."""
        found = Coverage(
            instances=(self.instance,),
            subjects=self.covered,
            tokens=(self.length,),
            vocabulary=(self.target_law.shape[0],),
            by=((BRANCHING, 1),),
            untested=(f"more than {self.length:,} tokens of a text", *self.not_covered),
        )
        if self.samples is None:
            return found
        return dataclasses.replace(
            found,
            by=((SAMPLES, 1),),
            samples=self.samples.planned,
            detect=self.samples.asked,
            false_alarm=self.samples.false_alarm,
        )

    @property
    def kl(self) -> float | None:
        """KL(q‖π) in nats; None of samples."""
        return (
            None
            if self.law is None
            else float(divergence_term(self.target_law.reshape(-1), self.law.reshape(-1)).sum())
        )

    @property
    def verdict(self) -> Verdict:
        """Whether what is written has the target's law."""
        if self.samples is not None:
            return self.samples.verdict
        if self.total_variation - self.error > self.tolerance:
            return "not lossless"
        return "lossless" if self.total_variation + self.error <= self.tolerance else "undecided"

    @property
    def worst(self) -> Row | None:
        """The tokens whose joint probability is furthest from the target's; None of samples."""
        if self.law is None:
            return None
        index = int(np.abs(self.law - self.target_law).argmax())
        return tuple(int(i) for i in np.unravel_index(index, self.law.shape))

    def picture(self) -> Callable[[Axes], None]:
        """Return the total variation as a bar."""
        return functools.partial(
            drawing.draw_bars,
            names=[self.instance],
            values=[self.total_variation],
            xlabel="total variation to the target",
        )

    def row(self) -> tuple[str, str, str]:
        """Return total variation, KL(q‖π) and the worst tokens, or what samples say."""
        if self.samples is not None:
            return self.samples.row()
        kl = "" if self.kl is None else format_probability(self.kl)
        return format_probability(self.total_variation), kl, f"worst {self.worst}"

    def sections(self) -> list[str]:
        """Return the instance, and how far the law is off and where, or what samples say."""
        rows = [("instance", self.instance)]
        worst, shown = self.worst, format_probability
        if self.law is None or worst is None:
            return [facts(rows), *([] if self.samples is None else self.samples.sections())]
        error = f", known to ± {self.error:.2g}" if self.error else ""
        allowed = f"(rounding explains {self.tolerance:.1g}{error})"
        comes, should = shown(self.law[worst]), shown(self.target_law[worst])
        rows += [
            ("total variation", f"**{shown(self.total_variation)}** {allowed}"),
            ("worst", f"{worst}: comes out with {comes}, should with {should}"),
            ("how", f"branching on every draw: {self.runs} executions"),
        ]
        return [facts(rows)]


def joint(
    write: Callable[[], Sequence[Row]],
    targets: Sequence[Next],
    length: int,
    *,
    name: str,
    instance: str,
    covered: tuple[str, ...],
    not_covered: tuple[str, ...],
    rng: np.random.Generator,
    tolerance: float | None,
    errors: Errors,
    seconds: float,
) -> JointAudit:
    """Return the audit of code that writes rows, each at most `length` tokens, against the target
    of each row.
    """
    branching = check_real(seconds, name="seconds", low=0.0)
    check_errors(errors)
    check_rng(rng)
    num_tokens = len(targets[0](()))
    size = len(targets) * length
    if num_tokens ** min(size, MAX_SEQUENCES.bit_length()) > MAX_SEQUENCES:
        raise TooLarge(
            f"The joint law of {size} tokens has {num_tokens}^{size} entries, at most "
            f"{MAX_SEQUENCES:,} are enumerated. Use a "
            "smaller toy model, fewer rows or a shorter length."
        )
    laws = [functools.cache(target) for target in targets]
    target_law = _product([_completions(law, (), length) for law in laws])
    allowed = check_tolerance(tolerance, num_tokens * size, length)

    def value(uniforms: Any) -> Any:
        return outcome_of(lambda: _checked(write(), len(targets), num_tokens, length))

    found, reason = None, ""
    try:
        found = trace(value, most_seconds=branching)
        if contradicts_samples([found]):
            reason = CONTRADICTED
    except TraceAborted as error:
        reason = str(error)
    audit = JointAudit(
        name=name,
        instance=instance,
        covered=covered,
        not_covered=not_covered,
        length=length,
        law=None,
        target_law=target_law,
        tolerance=allowed,
        error=0.0,
        runs=0,
        samples=None,
    )
    if found is not None and not reason:
        if tolerance is None:  # the numbers that random ones met may be coarser than float64
            allowed *= found.coarsest * 2.0**53
        _require_rare_failures(found, allowed, instance)
        exact = dataclasses.replace(
            audit,
            law=_law_of(found, laws, target_law.shape, length),
            tolerance=allowed,
            error=found.error,
            runs=found.cells,
        )
        if exact.verdict != "undecided":
            return exact
        reason = f"the law is known to ± {found.error:.2g} only"
    samples = _sampled(value, laws, target_law, length, name=name, rng=rng, errors=errors)
    return dataclasses.replace(audit, tolerance=allowed, samples=samples, reason=reason)


def _require_rare_failures(found: TracedLaw, allowed: float, instance: str) -> None:
    """Raise the likeliest failure as `CandidateFailure`, if failures are likelier than allowed."""
    failures = {answer: mass for answer, mass in found.mass.items() if isinstance(answer, Failed)}
    if math.fsum(failures.values()) > allowed:
        worst, mass = max(failures.items(), key=lambda item: item[1])
        raise CandidateFailure(
            f"{worst.message} It does so with probability {mass:.6g} on {instance}."
        )


def _law_of(
    found: TracedLaw, laws: Sequence[Next], shape: tuple[int, ...], length: int
) -> NDArray[np.float64]:
    """Return the joint law of the rows' tokens, each row followed by samples of its target."""
    law = np.zeros(shape)
    for rows, mass in found.mass.items():
        if isinstance(rows, tuple):
            open_places = [[slice(None)] * (length - len(row)) for row in rows]
            places = [[*row, *left] for row, left in zip(rows, open_places, strict=True)]
            after = [_completions(q, row, length) for q, row in zip(laws, rows, strict=True)]
            law[tuple(itertools.chain.from_iterable(places))] += mass * _product(after)
    return law


def _checked(rows: Any, size: int, num_tokens: int, length: int) -> tuple[Row, ...]:
    found = tuple(tuple(int(token) for token in row) for row in rows)
    if len(found) != size or any(
        not 0 < len(row) <= length or not all(0 <= x < num_tokens for x in row) for row in found
    ):
        raise CandidateFailure(
            f"The callable must return 1 to {length} tokens in [0, {num_tokens}) for each of "
            f"{size} rows; it returned {rows!r}."
        )
    return found


def _completions(law: Next, row: Row, length: int) -> NDArray[np.float64]:
    """Return the law of samples of the target after a row, up to `length` tokens in all."""
    if len(row) == length:
        return np.ones(())
    mass = law(row)
    impossible = np.zeros((len(mass),) * (length - len(row) - 1))
    return np.stack(
        [
            mass[x] * _completions(law, (*row, x), length) if mass[x] else impossible
            for x in range(len(mass))
        ]
    )


def _product(laws: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return functools.reduce(np.multiply.outer, laws)


def _sampled(
    value: Callable[[Any], Any],
    laws: Sequence[Next],
    target_law: NDArray[np.float64],
    length: int,
    *,
    name: str,
    rng: np.random.Generator,
    errors: Errors,
) -> SampledAudit:
    """Write, complete and count until the evidence suffices or the plan is at its end."""
    mass = target_law.reshape(-1) / target_law.sum()
    levels = errors.levels(DETECT_END_TO_END)
    each = errors.shared(len(levels))  # which level is taken depends on the time the code took
    plans = {
        level: samples_needed(
            mass,
            detect=check_real(level, name="detect", low=_LEAST_DETECT, high=1.0),
            false_alarm=each.false_alarm / 2,
            missed=errors.missed,
        )
        for level in levels
    }
    detect, planned = next(iter(plans.items()))
    if min(plans.values()) > MOST_SAMPLES:
        raise TooLarge(
            f"At most {MOST_SAMPLES:,} texts are written; detect={max(plans):g} needs "
            f"{min(plans.values()):,}. Ask for a larger "
            "total variation, or a shorter length."
        )
    seen: list[int] = []
    until = _FIRST_LOOK
    begun = time.monotonic()
    with preserved(seed=int(rng.integers(2**31))):
        while True:
            while len(seen) < min(until, planned):
                rows = value(np.empty(0))
                if isinstance(rows, Failed):
                    raise CandidateFailure(rows.message)
                text = itertools.chain.from_iterable(
                    _completed(law, row, length, rng) for law, row in zip(laws, rows, strict=True)
                )
                seen.append(int(np.ravel_multi_index(tuple(text), target_law.shape)))
            evidence = float(log_evidence(np.bincount(seen, minlength=len(mass)), mass))
            if len(seen) >= planned or evidence >= math.log(2.0 / each.false_alarm):
                break
            if until == _FIRST_LOOK and isinstance(errors.detect, DetectionBudget):
                most = min(
                    MOST_SAMPLES, len(seen) * errors.detect.seconds / (time.monotonic() - begun)
                )
                detect, planned = next(
                    (plan for plan in plans.items() if plan[1] <= most),
                    min(plans.items(), key=lambda p: p[1]),
                )
            until *= 2
    asked = dataclasses.replace(each, detect=detect)
    return outputs(np.asarray(seen), target=mass, name=name, errors=asked)


def _completed(law: Next, row: Row, length: int, rng: np.random.Generator) -> Row:
    while len(row) < length:
        row = (*row, int(rng.choice(len(law(row)), p=law(row) / law(row).sum())))
    return row


def seeded_rng() -> np.random.Generator:
    """Return a generator whose seed is drawn: followed while code is traced, new on every real
    execution.
    """
    return np.random.default_rng(int(np.random.randint(2**31)))  # noqa: NPY002 (it is seeded and intercepted with the rest)


def check_end(end: int | None, num_tokens: int) -> None:
    """Raise `InvalidParameter` unless an end of sequence is a token, or there is none."""
    if end is not None and check_count(end, name="end", minimum=0) >= num_tokens:
        raise InvalidParameter(
            f"end must be a token in [0, {num_tokens}), the models' vocabulary, or None; got "
            f"{end}. Choose one that they can write."
        )


def stop_after_end_token(law: Next, end: int | None) -> Next:
    """Return a target that stays at the end of sequence once it is there."""
    if end is None:
        return law

    def after(row: Row) -> NDArray[np.float64]:
        if end not in row:
            return law(row)
        mass = np.zeros(len(law(())))
        mass[end] = 1.0
        return mass

    return after
