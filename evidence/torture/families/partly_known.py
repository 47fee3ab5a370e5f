"""Intervals from lists of top tokens: the pair that the lists were taken from is one completion, so
its truth lies inside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

import otm
from evidence.torture import oracles
from evidence.torture.calls import ALL_SETS, OUTWARD, SIXTY, ours
from evidence.torture.problems import Case, Row, cases
from evidence.torture.promises import Promise, Rows, promised

ORACLES: dict[str, Callable[..., Any]] = {
    "total_variation": functools.partial(oracles.hockey_stick, level=Decimal(1)),
    "kl_target_draft": oracles.kl,
    "kl_draft_target": oracles.backward_kl,
    "harmonic_mean": oracles.harmonic,
}
SOME = functools.partial(
    cases,
    law="IID",
    tokens=(1, 2, 3, 4, 6, 8, 20),
    counts=(1, 2, 3, 8, 64, 1000),
    rows=(1, 2),
    kinds=("float64", "list"),
)


def _known(case: Case) -> otm.partial.PartialPair:
    """Return what is left of the pair: m tokens of each side, of the draft perhaps fewer, V told or
    not.
    """
    m = 1 + int(case.extra * case.num_tokens)
    draft, target = (
        otm.partial.TopTokens.of(case.given(masses), m=m) for masses in (case.draft, case.target)
    )
    return otm.partial.PartialPair(
        draft=draft, target=target, num_tokens=case.num_tokens if case.extra > 0.4 else None
    )


def _ends(interval: Any, case: Case) -> Rows:
    shape = (len(case.target),)
    lower, upper = (
        np.asarray(end, dtype=np.float64).reshape(shape) for end in (interval.lower, interval.upper)
    )
    return Rows(zip(lower.tolist(), upper.tolist(), strict=True))


def _acceptance(verifier: otm.Verifier) -> Callable[[Case], Rows]:
    return lambda case: _ends(otm.partial.acceptance(verifier, _known(case), k=[case.k]), case)


def _divergence(name: str) -> Callable[[Case], Rows]:
    return lambda case: _ends(getattr(otm.partial.divergences(_known(case)), name), case)


def _root(row: Row) -> Decimal:
    """Return γ*; its limit k where the supports are disjoint and every γ solves the equation."""
    root, height = oracles.kseq_root(row)
    return root if height else Decimal(row.k)


def _optimum(row: Row, case: Case) -> Decimal:
    return oracles.optimum(row)


FEWER = functools.partial(SOME, counts=(1, 2, 3, 8))
ACCEPT, KSEQ = "otm.partial.acceptance", "bisection in 60 digits"
BETWEEN = [
    Promise(
        "otm.partial.optimal_acceptance",
        "interval",
        SOME,
        lambda c: _ends(otm.partial.optimal_acceptance(_known(c), k=[c.k]), c),
        _optimum,
        OUTWARD,
        ALL_SETS,
    ),
    Promise(ACCEPT, "interval", SOME, _acceptance(otm.KSeq()), ours(oracles.kseq), OUTWARD, KSEQ),
    Promise(ACCEPT, "interval", SOME, _acceptance(otm.Optimal()), _optimum, OUTWARD, ALL_SETS),
    Promise(
        ACCEPT,
        "interval",
        FEWER,
        _acceptance(otm.RecursiveRejection()),
        ours(oracles.recursive_rejection),
        OUTWARD,
        "stages",
    ),
    Promise(
        ACCEPT,
        "interval",
        functools.partial(SOME, counts=(1,)),
        _acceptance(otm.Maximal()),
        ours(oracles.overlap),
        OUTWARD,
        SIXTY,
    ),
    Promise(
        "otm.partial.gamma_star",
        "interval",
        SOME,
        lambda c: _ends(otm.partial.gamma_star(_known(c), k=[c.k]), c),
        ours(_root),
        OUTWARD,
        KSEQ,
    ),
    *(
        Promise(
            "otm.partial.divergences",
            "interval",
            SOME,
            _divergence(name),
            ours(oracle),
            OUTWARD,
            SIXTY,
        )
        for name, oracle in ORACLES.items()
    ),
]

promised("partly known pairs", BETWEEN)
