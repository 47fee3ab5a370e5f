"""The rates and the quadrature of all verifiers by exponential races.

In an exponential race token i arrives at time E_i/p_i, E_i independent standard exponentials. Two
races on the same E_i, one with rates p and one with rates q, meet in the quantities

    g_i = Σ_j (r_i p_j − q_j)₊ ,      r_i = q_i/p_i,

the rate, per unit of the target's time, at which another token overtakes i in the draft race: given
that the target's winner is i at time t, no other token precedes i in the draft race with
probability e^{−t g_i}. In ascending order of r, with the prefix masses P_m = P(first m tokens) and
Q_m, one has g_m = r_m P_m − Q_m and g_{m+1} − g_m = (r_{m+1} − r_m) P_m: one sort gives all of them
(docs/theory.md, "Races").

Integrals over the target's winning time t ~ Exp(1) are taken by the trapezoid rule in x = log t.
Rotating every arrival time by a common phase φ multiplies each arrival's density by e^{iφ} and
turns each survival factor e^{−a|t|} into one of modulus e^{−a|t| cos φ}, so a probability of m
arrivals grows by at most (cos φ)^{−m} on the ray arg t = φ. The integrand is thus analytic and
integrable in the strip |Im x| < a for every a < π/2, and the trapezoid rule with step h errs by at
most 2M/(e^{2πa/h} − 1), M = ∫|f(x ± ia)|dx [Trefethen & Weideman 2014, Theorem 5.1]:
`exponential_nodes` inverts that for h.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import (
    Array,
    at_least_one,
    gather,
    namespace,
    quiet,
    search_rows,
    to_numpy,
    total,
    unit_rows,
)
from otm._machine.compiled import compiled
from otm.drafts.base import enumerate_drafts
from otm.overlap.curve import ROOM, Containment, OverlapCurve
from otm.overlap.rows import SHORTEST_BINNED, SORT_SECONDS
from otm.problem import Problem

QUADRATURE_ERROR = 1e-12
"""Bound on the discretisation error of `exponential_nodes`, for integrands of modulus at most 1."""

_CUT_OFF = 1e-13  # mass of the exponential law left out at either end

LEAST_MASS = 1e-30
"""Integrated couplings leave out draft sequences of smaller probability."""


def matching_probabilities(curve: OverlapCurve, c: float = 1.0) -> Array:
    """Return Pr(i arrives before c times the first draft | i wins the target's race).

    In the curve's order, `(..., V)`; at c = 1 it is 1/(1 + g_i). At the level t = r_i/c

    1/(t P(tokens with a ratio below t) + Q(tokens with at least t)) = 1/(1 + t − H(t)),

    from a sum of non-negative terms; 0 where p = 0. Accuracy: the running sums' error enters by
    t h² ≤ h, h the probability, so that Σ q h has no more than theirs.
    """
    xp, above, above_target = namespace(curve.ratio), curve.above_draft, curve.above_target
    level, whole = curve.ratio / c, above[..., -1:]
    if c > 1.0:
        flat = [xp.reshape(-a, (-1, int(a.shape[-1]))) for a in (curve.ratio, level)]
        last = search_rows(flat[0], flat[1]) - 1  # the token itself at least: r ≥ r/c
        last = xp.reshape(last, tuple(level.shape))
        above, above_target = gather(above, last), gather(above_target, last)
    with quiet():
        # The total, not 1: a float32 row sums to 1 only to float32 accuracy, and at p = q the terms
        # must cancel exactly.
        hit = 1.0 / (level * (whole - above) + above_target)
    # NaN, ∞·0: p = q = 0, or p subnormal under a zero prefix, where the probability is at most p.
    return xp.where(xp.isfinite(hit), hit, xp.zeros_like(hit))


def race_match(draft: Array, target: Array, sizes: Sequence[Containment]) -> Array:
    """Return Σ q [1 − (1 − h)^k] for each size, with h the probability that i arrives before c
    times the first arrival of the draft race, `(len(sizes), ...)`.

    The target's winner is among the first k points of a draft race whose tokens arrive again, or,
    k = 1, arrives before c times the first.
    """
    width = int(draft.shape[-1])
    is_long = isinstance(draft, np.ndarray) and width >= SHORTEST_BINNED
    seconds = SORT_SECONDS * math.prod(draft.shape) * len(sizes)
    engine = compiled("otm.overlap.compiled", seconds=seconds) if is_long else None
    if engine is not None:
        rows = (np.ascontiguousarray(a, np.float64).reshape(-1, width) for a in (draft, target))
        return np.asarray(engine.matches(*rows, sizes)).reshape(-1, *draft.shape[:-1])
    curve = OverlapCurve.of(draft, target)
    masses, found = curve.in_order(target), dict[Containment, Array]()
    for c, alike in itertools.groupby(sorted(set(sizes)), key=operator.itemgetter(0)):
        hit = matching_probabilities(curve, c)  # of one c at a time: they are as long as the rows
        for c, k in alike:
            found[Containment(c, k)] = total(masses * (hit if k == 1 else at_least_one(hit, k)))
    return namespace(draft, target).stack([found[size] for size in sizes], axis=0)


def exponential_nodes(
    log_growth: Callable[[NDArray[np.float64]], NDArray[np.float64]], *, smallest: float = 1.0
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return nodes t and weights w with Σ w f(t) = ∫₀^∞ e^{−t} f(t) dt, up to a proven error.

    The error is `QUADRATURE_ERROR` and two cut-offs.

    Args:
        log_growth: maps c = cos φ in (0, 1) to a bound on log|f(|t| e^{±iφ})|; f itself is within
            [0, 1] on the real axis.
        smallest: the smallest integral that is wanted to relative accuracy; the lower cut-off is
            scaled with it. (The discretisation error is relative anyway: where |f| ≤ growth ·
            f(c|t|), M is at most the growth times the integral.)

    The factor e^{−t} adds 1/c to M. The widest strip is not the best one (the bound grows with it),
    so the step is the largest over a grid of strips: h(a) = 2πa / log(1 + 2 M(a)/error). The
    cut-offs t < ε and t > log 1/ε, ε = `_CUT_OFF`, lose at most ε each. (An integrand that is small
    everywhere is small for t of order 1 too, so only the lower cut-off needs scaling.)
    """
    strips = np.linspace(0.3, 1.55, 126)
    log_m = log_growth(np.cos(strips)) - np.log(np.cos(strips))
    log_bound = np.log(2.0 / QUADRATURE_ERROR) + log_m
    step = float(np.max(2.0 * np.pi * strips / np.logaddexp(0.0, log_bound)))
    first, last = np.log(_CUT_OFF * smallest), np.log(-np.log(_CUT_OFF))
    t = np.exp(np.arange(first, last + step, step))
    return t, step * t * np.exp(-t)


def overtaking_rates(draft: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """Return the rates g of tokens, masses in ascending order of q/p, `(n,)`, non-decreasing.

    Accumulated as (r_{m+1} − r_m) P_m ≥ 0, which keeps small rates accurate where r_m P_m − Q_m
    would cancel.
    """
    wide = ROOM * draft
    with quiet():  # a rate beyond the largest float overtakes at once
        steps = np.diff(target / wide) * np.cumsum(wide)[:-1]
    return np.concatenate([[0.0], np.cumsum(np.maximum(steps, 0.0))])


def log_arrivals(
    log_exponentials: NDArray[np.float64], rates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return log(E/p), +∞ where p = 0: masses of 1e-300 neither overflow nor tie."""
    with quiet():
        return np.where(rates > 0, log_exponentials - np.log(rates), np.inf)


def log_exponentials(uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map uniforms in [0, 1) to logarithms of standard exponentials."""
    with quiet():
        return np.asarray(np.log(-np.log1p(-uniforms)))


def per_row(
    function: Callable[[NDArray[Any], NDArray[Any]], float], draft: Array, target: Array
) -> Array:
    """Evaluate a NumPy function of one pair `(V,)` on every row; return `(...)` in float64."""
    xp = namespace(draft, target)
    shape, width = tuple(target.shape[:-1]), int(target.shape[-1])
    p, q = (np.reshape(unit_rows(to_numpy(a)), (-1, width)) for a in (draft, target))
    values = np.asarray([function(*row) for row in zip(p, q, strict=True)], dtype=np.float64)
    return xp.asarray(values.reshape(shape), device=target.device)


def sequences(problem: Problem) -> tuple[NDArray[np.int64], float]:
    """Return the draft sequences of mass at least `LEAST_MASS`, `(n, k)`, and the smallest mass."""
    table = enumerate_drafts(problem.law, problem.draft)
    kept = table.mass >= LEAST_MASS
    return table.tokens[kept], float(table.mass[kept].min())
