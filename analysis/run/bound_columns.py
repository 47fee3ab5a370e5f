"""The papers' quantities at every position, as columns that a run has on request.

`measure --bounds` adds, for each k, K-SEQ's γ*, its guarantee, and SpecTr's Theorem 1 for two sets
of tokens; and once a position ERSD's Lemma 3.1, which the exact race stands beside, and what it
takes to name the accepted draft: D(q‖p) in bits, the entropy of the index that the Poisson
functional representation selects, and the upper bounds (7) and (8). Theorem 1 with its best set is
no column of its own: it equals the optimum (docs/theory.md, "Theorem 1 is tight"). With the empty
set a bound on it stands, for which only sequences of one token are counted; for k = 1 it is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import otm
from otm._display.tabular import columns
from otm._machine.arrays import Floats
from otm.overlap import OverlapCurve
from otm.races import matching_probabilities
from otm.verifiers import gamma_star

from ..models.processing import Setting, distributions

_PER_K = {
    "gamma_star": ("γ* of K-SEQ", "factor"),
    "kseq_guarantee": ("K-SEQ is sure of", "probability"),
    "theorem1_all": ("Theorem 1, Ω₀ = Ω: at most", "probability"),
    "theorem1_none": ("Theorem 1, Ω₀ = ∅, from above: at most", "probability"),
}
_SINGLE = {
    "race_lemma": ("Lemma 3.1: the race is sure of", "probability"),
    "index_least": ("(6): an index takes at least", "bits"),
    "index_entropy": ("entropy of the Poisson representation's index", "bits"),
    "index_most_greedy": ("(7): greedy rejection's index takes at most", "bits"),
    "index_most_race": (
        "(8): the Poisson representation's index, and a race's rank, take at most",
        "bits",
    ),
}
_TITLE = "the papers' quantities"
_MOST_INDICES = 64
_CELLS = 512
_RATIO = 1.05
_SURE = 1.0 - 2.0**-53  # a chance whose complement has a logarithm


def bound_statistics(ks: Sequence[int]) -> list[tuple[str, str, str]]:
    """Return (column, name, unit) of each bound column."""
    per_k = [
        (f"{stem}_k{k}", f"{words}, k = {k}", unit)
        for stem, (words, unit) in _PER_K.items()
        for k in ks
    ]
    return per_k + [(stem, words, unit) for stem, (words, unit) in _SINGLE.items()]


def bound_columns(
    draft: Any, target: Any, settings: Sequence[Setting], ks: Sequence[int]
) -> dict[str, Floats]:
    """Return the columns of logits `(rows, V)`, positions outside, settings inside.

    Args:
        draft, target: logits on the host.
        settings: of the processing.
        ks: numbers of drafts.

    Cost: per row and setting a sort and a few passes for each k, and half a million exponentials.
    """
    names = [name for name, _, _ in bound_statistics(ks)]
    found = np.empty((len(draft), len(settings), len(names)))
    for row in range(len(draft)):
        for number, problem in enumerate(problems(draft[row], target[row], settings)):
            values = _quantities(problem, ks)
            found[row, number] = [values[name] for name in names]
    return {name: found[..., i].reshape(-1) for i, name in enumerate(names)}


def problems(draft: Any, target: Any, settings: Sequence[Setting]) -> Iterable[otm.Problem]:
    """Yield the pair of distributions of logits `(V,)` under each setting."""
    sides = (
        distributions(
            np.asarray(side, dtype=np.float64)[None],
            [getattr(setting, name) for setting in settings],
        )
        for name, side in (("draft", draft), ("target", target))
    )
    for (p, _), (q, _) in zip(*sides, strict=True):
        yield otm.Problem(draft=np.asarray(p[0]), target=np.asarray(q[0]), law=otm.IID(1))


def _quantities(problem: otm.Problem, ks: Sequence[int]) -> dict[str, float]:
    p, q = problem.draft, problem.target
    values: dict[str, float] = {}
    for k in ks:
        here = problem.with_law(otm.IID(k))
        values[f"gamma_star_k{k}"] = float(gamma_star(here))
        values[f"kseq_guarantee_k{k}"] = float(otm.bounds.kseq_lower(here))
        values[f"theorem1_all_k{k}"] = theorem1_all(here)
        values[f"theorem1_none_k{k}"] = float(1.0 - np.maximum(p**k - q, 0.0).sum())
    values["race_lemma"] = float(otm.bounds.poisson_matching_lower(problem))
    values["index_least"] = float(otm.bounds.index_entropy_lower(problem))
    values["index_entropy"] = index_entropy(problem)
    values["index_most_greedy"] = float(otm.bounds.greedy_index_entropy_upper(problem))
    values["index_most_race"] = float(otm.bounds.index_entropy_upper(problem))
    return values


def theorem1_all(problem: otm.Problem) -> float:
    """Return Theorem 1's bound with Ω₀ = Ω, Σ min(q, 1 − (1 − p)^k).

    K-SEQ's guarantee rests on it; it takes any vocabulary.

    >>> import otm
    >>> round(theorem1_all(otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))), 12)
    0.9375
    """
    with np.errstate(divide="ignore"):
        drafted = -np.expm1(problem.num_drafts * np.log1p(-np.minimum(problem.draft, 1.0)))
    return float(np.minimum(problem.target, drafted).sum())


def index_entropy(problem: otm.Problem) -> float:
    """Return the entropy, in bits, of the index that the Poisson functional representation selects.

    Pr(K = n) = Σ q h (1 − h)^{n−1}, h = 1/(1 + g) the chance that the target's winner is the list's
    next entry. Chances are binned in 512 cells of their logarithm, and indices beyond a few by
    fives in the hundred; ∞ where the target has mass that is never drafted. Accuracy: about 1e-3
    bits.

    >>> import otm
    >>> round(index_entropy(otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(1))), 3)
    0.0
    """
    curve = OverlapCurve.of(problem.draft, problem.target)
    mass, chance = (
        np.asarray(curve.in_order(problem.target)),
        np.asarray(matching_probabilities(curve)),
    )
    live = mass > 0
    mass, logs = mass[live], np.log(np.maximum(chance[live], 1e-300))
    if float(logs.min()) < -600.0:
        return math.inf
    cell = np.minimum(
        ((logs - logs.min()) / max(float(np.ptp(logs)), 1e-12) * _CELLS).astype(np.int64),
        _CELLS - 1,
    )
    weight = np.bincount(cell, mass, _CELLS)
    held = weight > 0
    hits = np.exp(np.bincount(cell, mass * logs, _CELLS)[held] / weight[held])
    hits = np.minimum(hits, _SURE)
    most = 60.0 / float(hits.min())
    ends = np.unique(
        np.floor(
            np.append(
                np.arange(1.0, 64.0), _RATIO ** np.arange(85, 86 + math.log(most + 64.0, _RATIO))
            )
        )
    )
    stays = np.exp(np.outer(ends - 1.0, np.log1p(-hits)))
    shares = -np.diff(stays, axis=0) @ weight[held]
    widths = np.diff(ends)
    kept = shares > 0
    return float((shares[kept] * (np.log2(widths[kept]) - np.log2(shares[kept]))).sum())


def rank_entropy(problem: otm.Problem, *, draws: int, rng: np.random.Generator) -> float:
    """Return the entropy, in bits, of the target winner's rank in the draft's race, from draws.

    The plug-in estimate with Miller's and Madow's correction, (observed ranks − 1)/(2 draws) nats.
    """
    rates = np.stack([problem.draft, problem.target])
    ranks = np.empty(draws, dtype=np.int64)
    for i in range(draws):
        clocks = rng.exponential(size=problem.num_tokens)
        with np.errstate(divide="ignore"):
            first, second = clocks / rates
        ranks[i] = int((first < first[int(np.argmin(second))]).sum())
    counts = np.unique(ranks, return_counts=True)[1]
    shares = counts / draws
    return float(-(shares * np.log2(shares)).sum() + (len(counts) - 1) / (2 * draws * math.log(2)))


def greedy_index_entropy(problem: otm.Problem) -> tuple[float, float]:
    """Return a lower bound on the entropy of greedy rejection's index, and the mass left open.

    The entropy is in bits.

    Pr(K = k) is what the k-th i.i.d. draft adds to recursive rejection; indices beyond 64 count as
    one. Where nothing is left open the bound is the entropy.
    """
    curve = np.asarray(
        otm.acceptance_curve(otm.RecursiveRejection(), problem, k=range(1, _MOST_INDICES + 1))
    )
    rest = max(0.0, 1.0 - float(curve[-1]))
    shares = np.append(np.diff(curve, prepend=0.0), rest)
    shares = shares[shares > 0]
    return float(-(shares * np.log2(shares)).sum()), rest


def bounds_table(
    problem: otm.Problem, ks: Sequence[int], *, draws: int, rng: np.random.Generator
) -> str:
    """Return the papers' quantities of one pair of distributions as text."""
    values = _quantities(problem, ks)
    rows = [
        (words, *(f"{values[f'{stem}_k{k}']:.4f}" for k in ks))
        for stem, (words, _) in _PER_K.items()
    ]
    lines = columns([(_TITLE, *(f"k = {k}" for k in ks)), *rows], right=range(1, 1 + len(ks)))
    lines.append("Theorem 1 with its best set is the optimum")
    raced = float(otm.acceptance(otm.Race(), problem))
    lines.append(f"race, k = 1: {raced:.4f}, by Lemma 3.1 at least {values['race_lemma']:.4f}")
    greedy, rest = greedy_index_entropy(problem)
    least, race = f"{values['index_least']:.3f}", f"{values['index_most_race']:.3f}"
    named = [
        ("bits to name the accepted draft", "takes", "at least, D(q‖p)", "at most"),
        (
            "Poisson representation",
            f"{values['index_entropy']:.3f}",
            f"{least}, ERSD (6)",
            f"{race}, ERSD (8)",
        ),
        (
            "greedy rejection",
            f"{'' if rest < 1e-6 else '≥ '}{greedy:.3f}",
            f"{least}, ERSD (6)",
            f"{values['index_most_greedy']:.3f}, ERSD (7)",
        ),
    ]
    if draws:
        rank = rank_entropy(problem, draws=draws, rng=rng)
        named.append(
            (
                f"a race's rank, {draws:,} races",
                f"{rank:.3f}",
                "(6) does not apply",
                f"{race}, ERSD (8)",
            )
        )
    return "\n".join([*lines, *columns(named, right=[1])])
