"""One scheme at one number of drafts: what is computed of it, and from what bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from otm._arrays import Array
from otm.bounds.acceptance import kseq_lower
from otm.bounds.lists import list_matching_lower, poisson_representation_lower
from otm.drafts import Law
from otm.errors import TooLarge
from otm.lossy.output import Distortion, distortion
from otm.montecarlo import estimate
from otm.problem import Problem
from otm.results import Estimate
from otm.verbs import acceptance, optimal_acceptance
from otm.verifiers import PLANS, KSeq, ListRace, Race, Verifier

SAME = 1e-9
"""Total variation below which an output law is the target, and difference below which acceptances
are equal: races' quadrature.
"""

CONFIDENCE = 0.999
"""Of each interval: of a hundred rows, one in ten tables has one that misses."""

PROVEN_LOWER: Mapping[Verifier, Callable[[Problem], Array]] = {
    KSeq(): kseq_lower,
    Race(): poisson_representation_lower,
    ListRace(): list_matching_lower,
}
"""Lower bounds that are proven for one verifier, with these parameters, under every law that it
supports.
"""


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One scheme at one number of drafts.

    Attributes:
        law, verifier: the scheme.
        exact: acceptance by membership, None where it cannot be computed (see `note`).
        lower: proven lower bound on this scheme's acceptance, None where there is none.
        optimum: the law's optimal acceptance, None where it cannot be computed.
        monte_carlo: estimate from the sampler, None if no samples were asked for.
        note: why a cell is empty.
        distortion: distances of the output law to the target for a lossy verifier, None for a
            lossless one.
    """

    law: Law
    verifier: Verifier
    exact: float | None
    lower: float | None
    optimum: float | None
    monte_carlo: Estimate | None
    note: str = ""
    distortion: Distortion | None = None

    @property
    def frontier(self) -> float | None:
        """The most that any scheme with this one's total variation to the target accepts: min(1,
        optimum + TV).
        """
        if self.optimum is None or self.distortion is None:
            return self.optimum
        return min(1.0, self.optimum + self.distortion.total_variation)

    @property
    def gap(self) -> float | None:
        """Frontier − exact: the acceptance that this scheme leaves on the table; for a lossless one
        the frontier is the optimum.
        """
        if self.frontier is None or self.exact is None:
            return None
        return max(0.0, self.frontier - self.exact)


@dataclasses.dataclass(frozen=True)
class Draws:
    """How many draws a row gets that has an exact value, and one that has none."""

    everywhere: int
    otherwise: int


def row_of(
    verifier: Verifier, problem: Problem, best: float | None, draws: Draws, rng: np.random.Generator
) -> ComparisonRow:
    """Return what is known of a verifier on a problem whose optimum is `best`; None and a note
    where it is too large.
    """
    note, exact, interval = "", None, None
    try:
        exact = float(acceptance(verifier, problem))
        if draws.everywhere:
            interval = estimate(
                verifier, problem, samples=draws.everywhere, confidence=CONFIDENCE, rng=rng
            )
    except TooLarge as error:
        note = str(error).split(";")[0]
        # The plan of a program that cannot be solved cannot be sampled either; other samplers can.
        if draws.otherwise and not isinstance(verifier, PLANS):
            interval = estimate(
                verifier, problem, samples=draws.otherwise, confidence=CONFIDENCE, rng=rng
            )
    return ComparisonRow(
        law=problem.law,
        verifier=verifier,
        exact=exact,
        lower=_proven_lower(verifier, problem),
        optimum=best,
        monte_carlo=interval,
        note=note,
        distortion=None if verifier.lossless else _distortion_or_none(verifier, problem),
    )


def _distortion_or_none(verifier: Verifier, problem: Problem) -> Distortion | None:
    try:
        return distortion(verifier, problem)
    except TooLarge:
        return None


def _proven_lower(verifier: Verifier, problem: Problem) -> float | None:
    """Return the bound of the literature that is proven for this scheme, None where there is none."""
    # Not a lookup: a verifier from outside need not be hashable.
    return next(
        (float(bound(problem)) for proven, bound in PROVEN_LOWER.items() if proven == verifier),
        None,
    )


def optimum_or_none(problem: Problem) -> float | None:
    """Return the optimal acceptance, None where the problem is too large."""
    try:
        return float(optimal_acceptance(problem))
    except TooLarge:
        return None


_Thing = TypeVar("_Thing")


def distinct(things: Iterable[_Thing]) -> list[_Thing]:
    """Return the first of equals, in order; a verifier from outside need not be hashable."""
    found: list[_Thing] = []
    for thing in things:
        if thing not in found:
            found.append(thing)
    return found
