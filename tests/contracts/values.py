"""All functions that promise to return the kind of array that a problem holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import otm
from otm import IID, KSeq, Maximal, Problem, RecursiveRejection

VALUES: dict[str, Callable[[Problem], Any]] = {
    "optimal_acceptance": otm.optimal_acceptance,
    "optimal_acceptance, k = 200": lambda p: otm.optimal_acceptance(p.with_law(IID(200))),
    "KSeq": lambda p: otm.acceptance(KSeq(), p),
    "KSeq by rule": lambda p: otm.acceptance(KSeq(), p, by="rule"),
    "KSeq(gamma)": lambda p: otm.acceptance(KSeq(gamma=6.0), p),
    "KSeq(gamma) by rule": lambda p: otm.acceptance(KSeq(gamma=6.0), p, by="rule"),
    "RecursiveRejection": lambda p: otm.acceptance(RecursiveRejection(), p),
    "Maximal": lambda p: otm.acceptance(Maximal(), p.with_law(IID(1))),
    "support_limit_upper": otm.bounds.support_limit_upper,
    "kseq_lower": otm.bounds.kseq_lower,
    "total_variation": lambda p: otm.divergences.total_variation(draft=p.draft, target=p.target),
    "kl_divergence": lambda p: otm.divergences.kl_divergence(draft=p.draft, target=p.target),
    "harmonic_mean_distance": lambda p: otm.divergences.harmonic_mean_distance(
        draft=p.draft, target=p.target
    ),
}
CURVES: dict[str, Callable[[Problem], Any]] = {
    "optimal_acceptance_curve": lambda p: otm.optimal_acceptance_curve(p, k=[1, 4, 100]),
    "KSeq curve": lambda p: otm.acceptance_curve(KSeq(), p, k=[1, 4, 100]),
    "RecursiveRejection curve": lambda p: otm.acceptance_curve(
        RecursiveRejection(), p, k=[1, 4, 7]
    ),
}
