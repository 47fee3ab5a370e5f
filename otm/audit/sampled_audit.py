"""The sampled audit: any callable, any vocabulary, randomness of its own; an alarm is false with a
stated, proved probability.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from otm import drawing
from otm.audit.candidate import (
    BatchCandidate,
    as_candidate,
    read_batch,
    unwrapped,
)
from otm.audit.coverage import SAMPLES, Coverage, covering
from otm.audit.probabilities import number
from otm.audit.verdicts import SingleAudit, Verdict
from otm.errors import InvalidParameter, TooLarge
from otm.evidence import (
    detectable,
    distance,
    distance_threshold,
    log_evidence,
    log_excess_evidence,
    log_mean,
    pool,
    samples_needed,
    variation_interval,
)
from otm.pmf import as_pmf, check_instance, check_real, check_rng, plain_integers
from otm.problem import Problem, check_problem
from otm.results import is_member
from otm.statistics import Estimate, binomial_interval
from otm.tabular import markdown
from otm.tracing.answers import naming_failures
from otm.verbs import optimal_acceptance, prepare, run
from otm.verifiers.base import Verifier
from otm.verifiers.callables import run_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CELLS = 256
"""Largest number of cells that output counts are kept in; a larger vocabulary is pooled by q/p."""

MOST_SAMPLES = 10**10
"""Largest plan that is begun: months of calls."""

_LEAST_ERROR, _LEAST_DETECT = 1e-100, 1e-100
_FIRST_LOOK = 500
_LARGEST_BATCH = 20_000

_Drawn = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_] | None]
"""Output tokens (m,), drafts (m, k), accept flags (m,) or None."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SampledAudit(SingleAudit):
    """What samples say about a verifier on one problem; `str` gives the report in Markdown.

    Attributes:
        name: of the candidate.
        samples: how many outputs were drawn.
        planned: how many would have been drawn had nothing been found before.
        tested: what was tested, but for how.
        cells: number of cells the outputs were counted in.
        distance: T = ½ Σ |N/n − q| over the cells.
        threshold: what T exceeds with probability at most half of `false_alarm` for a lossless
            verifier.
        log_e_value: logarithm of the evidence; it ever exceeds log(2/`false_alarm`) with at most
            the other half.
        total_variation: 95 % interval of the total variation between output law and target, over
            the cells.
        membership: 95 % interval of Pr(the output is among the drafts); None without drafts.
        rule: 95 % interval of Pr(the rule accepted); None without flags.
        optimum: α* of the problem; None without drafts.
        detect: total variation from which on every law is found with probability at least 1 −
            `missed`.
        asked: the total variation that was not to be missed; if `detect` is larger, finding nothing
            is no verdict.
        false_alarm, missed: the error probabilities.
    """

    samples: int
    planned: int
    tested: Coverage
    cells: int
    distance: float
    threshold: float
    log_e_value: float
    total_variation: Estimate
    membership: Estimate | None
    rule: Estimate | None
    optimum: float | None
    detect: float
    asked: float
    false_alarm: float
    missed: float

    def __repr__(self) -> str:
        return (
            f"SampledAudit({self.name!r}, {self.verdict}, samples={self.samples}, "
            f"total_variation={self.total_variation.interval_text})"
        )

    @property
    def found_by(self) -> str:
        """Which of the two tests raised the alarm: "evidence", "distance" or ""."""
        if self.log_e_value >= math.log(2.0 / self.false_alarm):
            return "evidence"
        return (
            "distance" if self.samples >= self.planned and self.distance >= self.threshold else ""
        )

    @property
    def verdict(self) -> Verdict:
        """An alarm is false with probability at most `false_alarm`; without one there must be
        enough samples to see `asked`.
        """
        if self.found_by:
            return "not lossless"
        return "no difference found" if self.detect <= self.asked else "no verdict"

    @property
    def samples_needed(self) -> int:
        """How many samples find `asked`, at these cells: what T needs grows with 1/ε²."""
        return math.ceil(self.planned * (self.detect / self.asked) ** 2)

    @property
    def coverage(self) -> Coverage:
        """What was tested, by how many samples, and what so many do not show."""
        pooled = self.cells < max(self.tested.vocabulary)
        hidden = ("differences between tokens of similar q/p where sampled",) if pooled else ()
        return dataclasses.replace(
            self.tested,
            by=((SAMPLES, 1),),
            samples=self.planned,
            detect=self.asked,
            untested=(*self.tested.untested, *hidden),
        )

    @property
    def severity(self) -> float:
        """The lower end of the interval."""
        return float(self.total_variation.low)

    def _draw(self, ax: Axes) -> None:
        named = {
            "total variation": self.total_variation,
            "accepted, by membership": self.membership,
            "by the rule": self.rule,
        }
        known = {
            name: (0.5 * (i.low + i.high), i.low, i.high)
            for name, i in named.items()
            if i is not None
        }
        drawing.draw_intervals(ax, list(known), list(known.values()), xlabel="95 % intervals")
        ax.set_title(f"{self.name}: {self.verdict}", fontsize=10)

    def row(self) -> tuple[str, str, str]:
        """Return the figures that a battery shows."""
        power = (
            f"found in {self.samples:,} samples"
            if self.found_by
            else f"≥ {self.detect:.3g} missed with ≤ {self.missed:g}"
        )
        return self.total_variation.interval_text, "", power

    def figures(self) -> str:
        """Return the report without its heading."""
        evidence, distance = f"evidence e^{self.log_e_value:.4g}", f"distance {self.distance:.6g}"
        found = {
            "evidence": (
                f"{evidence} against the target's law, alarm at "
                f"e^{math.log(2 / self.false_alarm):.4g}"
            ),
            "distance": f"{distance} of the samples from the target's law, alarm at {self.threshold:.6g}",
            "": f"{evidence} and {distance} are within what chance explains",
        }[self.found_by]
        missed = f"a total variation ≥ {self.detect:.3g} is missed with ≤ {self.missed:g}"
        if self.detect > self.asked:
            missed += f"; {self.asked:g} needs {self.samples_needed:,} samples"
        rows = [
            ("samples", f"{self.samples:,} of {self.planned:,} planned, in {self.cells} cells"),
            ("found", found),
            ("errors", f"false alarm ≤ {self.false_alarm:g}; {missed}"),
            ("total variation", f"{self.total_variation.interval_text} (95 %)"),
        ]
        if self.membership is not None and self.optimum is not None:
            rule = "" if self.rule is None else f"; by the rule {self.rule.interval_text}"
            rows.append(
                (
                    "acceptance",
                    f"by membership {self.membership.interval_text}{rule} (95 %); the optimum is "
                    f"{number(self.optimum)}",
                )
            )
        elif self.rule is not None:
            rows.append(("acceptance", f"of whole blocks {self.rule.interval_text} (95 %)"))
        return markdown(("", ""), rows)


def sampled(
    candidate: object,
    problem: Problem,
    *,
    rng: np.random.Generator,
    detect: float = 0.02,
    false_alarm: float = 1e-9,
    missed: float = 1e-3,
) -> SampledAudit:
    """Test whether a verifier's output has the target's law, sample by sample, with proved error
    probabilities.

    Drafts come from the problem's law. The evidence is looked at after 500, 1,000, 2,000, … samples
    and the audit stops when it suffices; otherwise the distance is tested at the planned number, n
    = ((½Σ√(q(1−q)) + √(log(2/δ)/2) + √(log(1/β)/2))/ε)².

    Args:
        candidate: a `Candidate`, a `BatchCandidate`, a function `verify(draft, target, drafts,
            uniforms)`, which may ignore the uniforms for randomness of its own, or one of the
            library's verifiers (its sampler is run).
        problem: one pair of distributions `(V,)`.
        rng: the source of the drafts and uniforms.
        detect: total variation ε that must not go unnoticed; beyond 256 tokens, of the laws pooled
            into cells of similar q/p.
        false_alarm: probability δ at most of calling a lossless verifier lossy.
        missed: probability β at most of not noticing a law at `detect` or more.

    Returns:
        SampledAudit.

    Raises:
        CandidateFailure: if the callable raises or returns no tokens of the vocabulary.
        InvalidParameter: if a probability is out of range or `rng` is no generator.
        TooLarge: if n exceeds ten billion.
        Unsupported, ShapeMismatch: as `otm.prepare`.

    Cost: n calls at most, 90,000 at four tokens and the defaults; a batched candidate gets up to
        20,000 rows a call.
    Accuracy: error probabilities hold for every sample size. Reference: docs/theory.md, "Audits";
        McDiarmid 1989; Ville 1939.

    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> trusting = BatchCandidate(lambda p, q, drafts, rng: drafts[:, 0], name="trusting")
    >>> audit = sampled(trusting, problem, rng=np.random.default_rng(0))
    >>> audit.verdict, audit.samples < audit.planned
    ('not lossless', True)
    """
    single = check_problem(problem).single(purpose="A sampled audit")
    check_rng(rng)
    errors = check_errors(false_alarm, missed)
    smallest = check_real(detect, name="detect", low=_LEAST_DETECT, high=1.0)
    draw, name = _draws(candidate, single, rng)
    cell = pool(
        single.draft if single.draft.ndim == 1 else single.draft.mean(axis=0),
        single.target,
        MOST_CELLS,
    )
    mass: NDArray[Any] = np.bincount(cell, weights=single.target)
    planned = samples_needed(mass, detect=smallest, false_alarm=errors[0] / 2, missed=errors[1])
    if planned > MOST_SAMPLES:
        raise TooLarge(
            f"A sampled audit draws at most {MOST_SAMPLES:,} outputs; detect={smallest:g} needs "
            f"{planned:,}. Ask for a larger "
            "total variation, or call otm.audit.exact on a small problem."
        )
    optimum = float(optimal_acceptance(single))
    tally = _Tally(np.zeros(len(mass), dtype=np.int64))
    looks = 1 + max(0, math.ceil(math.log2(planned / _FIRST_LOOK)))
    until = _FIRST_LOOK
    while True:
        while tally.samples < min(until, planned):
            tally.add(*draw(min(_LARGEST_BATCH, min(until, planned) - tally.samples)), cell)
        evidence = log_mean(
            float(log_evidence(tally.counts, mass)),
            log_excess_evidence(tally.members, tally.samples, optimum),
        )
        if tally.samples >= planned or evidence >= math.log(2.0 / errors[0]):
            break
        until *= 2
    # Which look was the last is chosen by the data: each interval is wrong with probability
    # .05/looks at any one of them.
    return _conclude(
        name,
        tally,
        mass,
        tested=covering(single, by=(), untested=("later tokens of a block",)),
        planned=planned,
        evidence=evidence,
        optimum=optimum,
        asked=smallest,
        errors=errors,
        uncertainty=0.05 / looks,
    )


def outputs(
    outputs: object,
    *,
    target: object,
    draft: object = None,
    name: str = "outputs",
    detect: float = 0.02,
    false_alarm: float = 1e-9,
    missed: float = 1e-3,
) -> SampledAudit:
    """Test whether given output tokens of one context have the target's law: the fixed-size test.

    Args:
        outputs: tokens `(n,)`, independent, n chosen before they were looked at.
        target: q `(V,)`.
        draft: p `(V,)`, if known: beyond 256 tokens those of similar q/p share a cell (of similar
            index without it).
        name: what to call them in the report.
        detect: total variation ε that must not go unnoticed; too few outputs to see it get no
            verdict.
        false_alarm: probability at most of an alarm if they have the target's law.
        missed: probability at most of not noticing a law at `detect` or more.

    Returns:
        SampledAudit without acceptances.

    Raises:
        InvalidDistribution: if target is no distribution. InvalidParameter: if outputs are no
            tokens of it.

    Cost: O(n + V).

    >>> audit = outputs(np.arange(10_000) % 2, target=[0.5, 0.5])
    >>> audit.verdict, round(audit.detect, 3), audit.samples_needed
    ('no verdict', 0.056, 79265)
    """
    mass = np.asarray(as_pmf(target, name="target"), dtype=np.float64)
    check_instance(name, str, name="name")
    tokens = plain_integers(outputs, "outputs")
    if tokens.ndim != 1 or tokens.size == 0 or tokens.min() < 0 or tokens.max() >= len(mass):
        raise InvalidParameter(
            f"outputs must be integer tokens (n,) in [0, {len(mass)}), n ≥ 1; got {tokens.dtype} "
            f"of shape {tokens.shape}. "
            "Pass the sampled tokens of one context."
        )
    errors = check_errors(false_alarm, missed)
    smallest = check_real(detect, name="detect", low=_LEAST_DETECT, high=1.0)
    beside = mass if draft is None else np.asarray(as_pmf(draft, name="draft"), dtype=np.float64)
    if mass.ndim != 1 or beside.shape != mass.shape:
        raise InvalidParameter(
            f"One context has one pair of laws (V,); got shapes {mass.shape} and {beside.shape}. "
            "Pass one row."
        )
    cell = pool(beside, mass, MOST_CELLS)
    pooled = np.bincount(cell, weights=mass)
    tally = _Tally(np.bincount(cell[tokens], minlength=len(pooled)))
    return _conclude(
        name,
        tally,
        pooled,
        tested=Coverage(instances=(name,), vocabulary=(len(mass),), untested=("other contexts",)),
        planned=tally.samples,
        evidence=float(log_evidence(tally.counts, pooled)),
        optimum=None,
        asked=smallest,
        errors=errors,
        uncertainty=0.05,
    )


@dataclasses.dataclass(eq=False)
class _Tally:
    """Counts so far."""

    counts: NDArray[np.int64]
    members: int = 0
    accepted: int = 0
    flagged: bool = True

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    def add(
        self,
        outputs: NDArray[np.int64],
        drafts: NDArray[np.int64],
        flags: NDArray[np.bool_] | None,
        cell: NDArray[np.int64],
    ) -> None:
        self.counts = self.counts + np.bincount(cell[outputs], minlength=len(self.counts))
        self.members += int(np.count_nonzero(is_member(outputs, drafts)))
        self.flagged = self.flagged and flags is not None
        self.accepted += 0 if flags is None else int(np.count_nonzero(flags))


def _conclude(
    name: str,
    tally: _Tally,
    mass: NDArray[Any],
    *,
    tested: Coverage,
    planned: int,
    evidence: float,
    optimum: float | None,
    asked: float,
    errors: tuple[float, float],
    uncertainty: float,
) -> SampledAudit:
    n = tally.samples

    def interval(hits: int) -> Estimate:
        return binomial_interval(hits, n, confidence=1.0 - uncertainty)

    return SampledAudit(
        name=name,
        samples=n,
        planned=planned,
        tested=tested,
        cells=len(mass),
        distance=distance(tally.counts, mass),
        threshold=distance_threshold(mass, n, false_alarm=errors[0] / 2),
        log_e_value=evidence,
        total_variation=variation_interval(tally.counts, mass, uncertainty=uncertainty),
        membership=None if optimum is None else interval(tally.members),
        rule=interval(tally.accepted) if tally.flagged and optimum is not None else None,
        optimum=optimum,
        detect=detectable(mass, planned, false_alarm=errors[0] / 2, missed=errors[1]),
        asked=asked,
        false_alarm=errors[0],
        missed=errors[1],
    )


def check_errors(false_alarm: float, missed: float) -> tuple[float, float]:
    """Return both error rates of samples, each in [1e-100, 1/2], or raise `InvalidParameter`."""
    return (
        check_real(false_alarm, name="false_alarm", low=_LEAST_ERROR, high=0.5),
        check_real(missed, name="missed", low=_LEAST_ERROR, high=0.5),
    )


def _draws(
    candidate: object, problem: Problem, rng: np.random.Generator
) -> tuple[Callable[[int], _Drawn], str]:
    """Return how to draw outputs of a candidate, and its name."""
    thing = unwrapped(candidate)
    if isinstance(thing, Verifier):
        rule = prepare(thing, problem)

        def run_rule(size: int) -> _Drawn:
            samples = run(rule, size=size, rng=rng)
            return samples.output, samples.drafts, samples.accepted

        return run_rule, repr(thing)
    width = problem.law.num_uniforms(problem.num_tokens)

    def drafts_of(size: int) -> NDArray[np.int64]:
        return problem.law.draw(problem.draft, rng.random((size, width)))

    if isinstance(thing, BatchCandidate):
        return lambda size: _run_batch(thing, problem, drafts_of(size), rng), thing.name
    single = as_candidate(thing)

    def run_single(size: int) -> _Drawn:
        drafts = drafts_of(size)
        outputs, said = run_rows(
            single,
            problem,
            drafts,
            rng.random((size, single.count(problem.law.k, problem.num_tokens))),
        )
        return outputs, drafts, said

    return run_single, single.name


def _run_batch(
    candidate: BatchCandidate, problem: Problem, drafts: NDArray[np.int64], rng: np.random.Generator
) -> _Drawn:
    with naming_failures():
        answer = candidate.verify(problem.draft.copy(), problem.target.copy(), drafts.copy(), rng)
        outputs, flags = read_batch(answer, len(drafts), problem.num_tokens)
    return outputs, drafts, flags
