"""Monte Carlo sweeps: many (verifier, problem) cases, their draws cut into independent pieces for any executor.

A piece has its own generator, seeded by (seed, case, piece), so that estimates do not depend on who ran what, in which order.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest

import otm
from otm.montecarlo import count_accepted
from otm.results import Definition

from ..run.scheduling import Workers, run_each

PIECE = 100_000
"""Draws of a piece: enough work that handing it out costs nothing beside it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One acceptance to estimate."""

    verifier: otm.Verifier
    problem: otm.Problem


@dataclasses.dataclass(frozen=True, eq=False)
class _Piece:
    number: int
    case: Case
    samples: int
    seed: tuple[int, int, int]
    by: Definition


def sweep(
    cases: Sequence[Case],
    *,
    samples: int,
    seed: int,
    workers: Workers | None = None,
    by: Definition = "membership",
    confidence: float = 0.95,
) -> list[otm.results.Estimate]:
    """Estimate every case's acceptance by running its verifier, with Clopper–Pearson intervals.

    Args:
        cases: verifiers and problems `(V,)`.
        samples: draws per case.
        seed: of all draws; the same seed gives the same estimates on every executor.
        workers: where the pieces run.
        by: which acceptance.
        confidence: coverage of each interval.

    >>> problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(2))
    >>> print(sweep([Case(otm.KSeq(), problem)], samples=1000, seed=0)[0])
    1.0000 [0.9963, 1.0000]
    """
    hits = [0] * len(cases)
    for number, count in run_each(workers or Workers(), _count, _pieces(cases, samples, seed, by)):
        hits[number] += count
    return [_estimate(count, samples, confidence, by) for count in hits]


def _pieces(cases: Sequence[Case], samples: int, seed: int, by: Definition) -> Iterator[_Piece]:
    for number, case in enumerate(cases):
        for piece, start in zip(itertools.count(), range(0, samples, PIECE), strict=False):
            yield _Piece(number, case, min(PIECE, samples - start), (seed, number, piece), by)


def _count(piece: _Piece) -> tuple[int, int]:
    rule = otm.prepare(piece.case.verifier, piece.case.problem)
    return piece.number, count_accepted(rule, piece.samples, np.random.default_rng(piece.seed), piece.by)


def _estimate(hits: int, samples: int, confidence: float, by: Definition) -> otm.results.Estimate:
    interval: Any = binomtest(hits, samples).proportion_ci(confidence_level=confidence, method="exact")
    return otm.results.Estimate(
        mean=hits / samples, low=float(interval.low), high=float(interval.high), samples=samples, confidence=confidence, by=by
    )
