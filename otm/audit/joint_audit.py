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
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from otm import drawing
from otm.audit.candidate import WholeCandidate
from otm.audit.coverage import SAMPLES, Coverage
from otm.audit.integration import BRANCHING
from otm.audit.probabilities import number
from otm.audit.sampled_audit import SampledAudit, check_errors, outputs
from otm.audit.verdicts import SingleAudit, Verdict
from otm.divergences import divergence_term
from otm.drafts.base import MAX_SEQUENCES
from otm.errors import InvalidParameter, TooLarge
from otm.evidence import log_evidence, samples_needed
from otm.pmf import check_count, check_real, check_rng
from otm.tabular import markdown
from otm.tracing.answers import CandidateFailure, Failed, outcome_of
from otm.tracing.branching import contradicts_samples, trace
from otm.tracing.execution import TraceAborted
from otm.tracing.intercept.interception import preserved
from otm.tracing.output_law import CONTRADICTED, rounding_tolerance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_SAMPLES = 200_000
"""Largest plan of samples: code that decodes is slow."""

_FIRST_LOOK = 250

Row = tuple[int, ...]
Next = Callable[[Row], NDArray[np.float64]]
"""The target's distribution after what a row has so far."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JointAudit(SingleAudit):
    """What code writes on one instance, against the target; `str` gives the report in Markdown.

    Attributes:
        name: of the code.
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

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}, {self.verdict}, "
            f"{'exact' if self.samples is None else 'sampled'})"
        )

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
    def coverage(self) -> Coverage:
        """What was run, how far its tokens were compared, and by what."""
        sampled = (
            {}
            if self.samples is None
            else {"samples": self.samples.planned, "detect": self.samples.asked}
        )
        return Coverage(
            instances=(self.instance,),
            subjects=self.covered,
            tokens=(self.length,),
            vocabulary=(self.target_law.shape[0],),
            by=((SAMPLES if sampled else BRANCHING, 1),),
            untested=(f"more than {self.length:,} tokens of a text", *self.not_covered),
            **sampled,  # type: ignore[arg-type]
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

    def _draw(self, ax: Axes) -> None:
        drawing.draw_bars(
            ax, [self.instance], [self.total_variation], xlabel="total variation to the target"
        )
        ax.set_title(f"{self.name}: {self.verdict}", fontsize=10)

    def row(self) -> tuple[str, str, str]:
        """Return the figures that a battery shows."""
        if self.law is None or self.kl is None:
            assert self.samples is not None
            return self.samples.row()
        return number(self.total_variation), number(self.kl), f"worst {self.worst}"

    def figures(self) -> str:
        """Return the report without its head."""
        rows = [("instance", self.instance)]
        if self.law is not None:
            worst = self.worst
            assert worst is not None
            error = f", known to ± {self.error:.2g}" if self.error else ""
            rows += [
                (
                    "total variation",
                    f"**{number(self.total_variation)}** (rounding explains "
                    f"{self.tolerance:.1g}{error})",
                ),
                (
                    "worst",
                    f"{worst}: comes out with {number(self.law[worst])}, should with "
                    f"{number(self.target_law[worst])}",
                ),
                ("how", f"branching on every draw: {self.runs} executions"),
            ]
            return markdown(("", ""), rows)
        return f"{markdown(('', ''), rows)}\n\n{self.samples.figures() if self.samples else ''}"


@dataclasses.dataclass(frozen=True)
class Affordable:
    """The smallest total variation of several that samples can find in a time, in place of one.

    Attributes:
        levels: the total variations, the smallest first; the last is taken whatever it costs.
        seconds: the time.
    """

    levels: tuple[float, ...]
    seconds: float


@dataclasses.dataclass(frozen=True)
class Errors:
    """What samples may miss, and how often they may be wrong."""

    detect: float | Affordable
    false_alarm: float
    missed: float

    def __post_init__(self) -> None:
        for level in self.levels:
            check_real(level, name="detect", low=1e-6, high=1.0)
        check_errors(self.false_alarm, self.missed)

    @property
    def levels(self) -> tuple[float, ...]:
        """What is to be found, the smallest total variation that there is time for."""
        return self.detect.levels if isinstance(self.detect, Affordable) else (self.detect,)

    @property
    def of_each(self) -> float:
        """The probability of a false alarm of each level: which one is taken depends on the time
        that the code took.
        """
        return self.false_alarm / len(self.levels)


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
    unit = (
        check_real(tolerance, name="tolerance", low=0.0, high=1.0)
        if tolerance is not None
        else None
    )

    def value(uniforms: Any) -> Any:
        return outcome_of(lambda: _checked(write(), len(targets), num_tokens, length))

    found, reason = None, ""
    try:
        found = trace(value, most_seconds=branching)
        if contradicts_samples([found]):
            reason = CONTRADICTED
    except TraceAborted as error:
        reason = str(error)
    allowed = rounding_tolerance(num_tokens * size, length) if unit is None else unit
    common: dict[str, Any] = {
        "name": name,
        "instance": instance,
        "covered": covered,
        "not_covered": not_covered,
        "length": length,
        "target_law": target_law,
    }
    if found is not None and not reason:
        allowed = allowed * found.coarsest * 2.0**53 if unit is None else allowed
        failures = {
            answer: mass for answer, mass in found.mass.items() if isinstance(answer, Failed)
        }
        if math.fsum(failures.values()) > allowed:
            worst, mass = max(failures.items(), key=lambda item: item[1])
            raise CandidateFailure(
                f"{worst.message} It does so with probability {mass:.6g} on {instance}."
            )
        law = np.zeros(target_law.shape)
        for rows, mass in found.mass.items():
            if isinstance(rows, tuple):
                places = tuple(
                    itertools.chain.from_iterable(
                        (*row, *[slice(None)] * (length - len(row))) for row in rows
                    )
                )
                law[places] += mass * _product(
                    [_completions(q, row, length) for q, row in zip(laws, rows, strict=True)]
                )
        audit = JointAudit(
            **common, law=law, tolerance=allowed, error=found.error, runs=found.cells, samples=None
        )
        if audit.verdict != "undecided":
            return audit
        reason = f"the law is known to ± {found.error:.2g} only"
    samples = _sampled(value, laws, target_law, length, name=name, rng=rng, errors=errors)
    return JointAudit(
        **common, law=None, tolerance=allowed, error=0.0, runs=0, samples=samples, reason=reason
    )


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
    asked = {"false_alarm": errors.of_each, "missed": errors.missed}
    plans = {
        level: samples_needed(
            mass, detect=level, false_alarm=errors.of_each / 2, missed=errors.missed
        )
        for level in errors.levels
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
            if len(seen) >= planned or evidence >= math.log(2.0 / errors.of_each):
                break
            if until == _FIRST_LOOK and isinstance(errors.detect, Affordable):
                most = min(
                    MOST_SAMPLES, len(seen) * errors.detect.seconds / (time.monotonic() - begun)
                )
                detect, planned = next(
                    (plan for plan in plans.items() if plan[1] <= most),
                    min(plans.items(), key=lambda p: p[1]),
                )
            until *= 2
    return outputs(np.asarray(seen), target=mass, name=name, detect=detect, **asked)


def _completed(law: Next, row: Row, length: int, rng: np.random.Generator) -> Row:
    while len(row) < length:
        row = (*row, int(rng.choice(len(law(row)), p=law(row) / law(row).sum())))
    return row


_CALLED = {
    "step": "step(draft_model, target_model, rng)",
    "tree": "verify(tree, rng)",
    "generate": "generate(draft, target, request)",
}
"""How a candidate of each kind is called."""


def whole_of(candidate: Any, kind: Literal["step", "tree", "generate"]) -> WholeCandidate:
    """Return a candidate of this kind: a function, or one that says that it is of it."""
    if not isinstance(candidate, WholeCandidate):
        if not callable(candidate) or isinstance(candidate, type):
            raise InvalidParameter(
                f"The candidate must be a function {_CALLED[kind]}; got {candidate!r}. Pass the "
                "function itself."
            )
        return WholeCandidate(candidate, kind)
    if candidate.kind != kind:
        raise InvalidParameter(
            f"This audit is of kind {kind!r}; {candidate.name!r} is of kind {candidate.kind!r}. "
            "Call that one."
        )
    return candidate


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


def absorbed(law: Next, end: int | None) -> Next:
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
