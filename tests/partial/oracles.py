"""Oracles of partly known pairs, by enumeration and by construction of completions."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import otm
from otm import partial
from otm.divergences import harmonic_mean_distance, kl_divergence, total_variation
from otm.partial import Completion, Interval, PartialPair, TopTokens

KS = [1, 2, 3, 8]
SCHEMES = {"kseq": otm.KSeq(), "recursive": otm.RecursiveRejection()}
RACES = {"threshold": otm.Optimal(), "race": otm.Race()}  # of threshold races
LEVELS = [0.1, 0.5, 0.9, 1.0, 1.3, 2.0, 5.0]
# Completions are sums of at most 30 masses here, each within a few units of roundoff, and the
# solver HiGHS stops at 1e-9 at most.
ROUNDING, SOLVER = 1e-12, 1e-8


def _iid(p: Any, q: Any, k: int) -> otm.Problem:
    return otm.Problem(draft=p, target=q, law=otm.IID(k))


def overlap_of(pair: PartialPair) -> Interval:
    """Σ min(p, q), the one draft of the optimum."""
    ends = partial.optimal_acceptance(pair, k=[1])
    return Interval(*(getattr(ends, f.name)[0] for f in dataclasses.fields(ends)))


def intervals(pair: PartialPair) -> dict[str, Interval]:
    """Every interval of one position, one per quantity and k."""
    found = {"overlap": overlap_of(pair)}
    curves = {"optimum": partial.optimal_acceptance(pair, k=KS)}
    curves |= {name: partial.acceptance(verifier, pair, k=KS) for name, verifier in SCHEMES.items()}
    curves |= {
        name: partial.acceptance(verifier, pair, k=KS, law=otm.ThresholdRace)
        for name, verifier in RACES.items()
    }
    for name, curve in curves.items():
        for i, k in enumerate(KS):
            found[f"{name} {k}"] = Interval(
                *(getattr(curve, f.name)[i] for f in dataclasses.fields(curve))
            )
    divergences = partial.divergences(pair)
    return found | {f.name: getattr(divergences, f.name) for f in dataclasses.fields(divergences)}


def dense(p: np.ndarray, q: np.ndarray) -> dict[str, float]:
    """Return all quantities of fully known distributions, by the library's dense functions."""
    found = {
        # masses of sum 1 + 2u overlap by as much
        "overlap": min(1.0, float(np.minimum(p, q).sum())),
        "total_variation": total_variation(draft=p, target=q),
        "kl_target_draft": kl_divergence(draft=p, target=q),
        "kl_draft_target": kl_divergence(draft=q, target=p),
        "harmonic_mean": harmonic_mean_distance(draft=p, target=q),
    }
    asked = {"optimum": otm.Optimal(), **SCHEMES}
    for k in KS:
        problem = _iid(p, q, k)
        late = problem.with_law(otm.ThresholdRace(k))
        found |= {f"{name} {k}": float(otm.acceptance(one, problem)) for name, one in asked.items()}
        found |= {f"{name} {k}": float(otm.acceptance(one, late)) for name, one in RACES.items()}
    return found


def assert_inside(pair: PartialPair, p: np.ndarray, q: np.ndarray) -> None:
    values = dense(p, q)
    for name, interval in intervals(pair).items():
        assert interval.contains(values[name]), (name, interval, values[name])


def spread(
    pair: PartialPair, completion: Completion, num_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Write a completion of one row as distributions on V tokens, and check admissibility.

    The result is a witness, not a claim.
    """
    p, q = np.zeros(num_tokens), np.zeros(num_tokens)
    listed = np.concatenate([pair.draft.tokens, pair.target.tokens])
    width = len(listed)
    np.add.at(p, listed[listed >= 0], completion.draft[:width][listed >= 0])
    np.add.at(q, listed[listed >= 0], completion.target[:width][listed >= 0])
    free = iter(sorted(set(range(num_tokens)) - set(listed.tolist())))
    for lump in range(width, len(completion.count)):
        tokens = list(itertools.islice(free, int(completion.count[lump])))
        assert len(tokens) == completion.count[lump], "more tokens than there are"
        p[tokens] += completion.draft[lump] / max(len(tokens), 1)
        q[tokens] += completion.target[lump] / max(len(tokens), 1)
    for mass, side in ((p, pair.draft), (q, pair.target)):
        others = np.ones(num_tokens, dtype=bool)
        others[side.tokens[side.tokens >= 0]] = False
        np.testing.assert_allclose(
            mass[side.tokens[side.tokens >= 0]], side.probabilities[side.tokens >= 0], atol=ROUNDING
        )
        assert mass.sum() == pytest.approx(1.0, abs=ROUNDING)
        assert mass[others].max(initial=0.0) <= side.cap + ROUNDING
        assert mass.min() >= 0.0
    return p, q


def lowest_overlap(pair: PartialPair, num_tokens: int, level: float) -> float:
    """min over completions of H(t), by enumeration of all sets.

    H(t) = min_T [Q(T) + t − t P(T)]; for one T the completions of p and of q are independent: as
    much of p's tail in T as the caps admit, as much of q's outside. Exact whatever the lists hold.
    """
    q_in, p_in = _extreme_masses(pair, num_tokens)
    return float(np.min(q_in - level * p_in)) + level


def _extreme_masses(pair: PartialPair, num_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every set T, the least Q(T) and the largest P(T) over completions."""
    sides = []
    for side in (pair.draft, pair.target):
        known = np.full(num_tokens, np.nan)
        known[side.tokens[side.tokens >= 0]] = side.probabilities[side.tokens >= 0]
        sides.append((known, float(side.tail), float(side.cap)))
    inside = np.array(list(itertools.product([0.0, 1.0], repeat=num_tokens)))
    (p, p_tail, p_cap), (q, q_tail, q_cap) = sides
    p_in = inside @ np.nan_to_num(p) + np.minimum(p_tail, p_cap * (inside @ np.isnan(p)))
    q_in = inside @ np.nan_to_num(q) + np.maximum(
        0.0, q_tail - q_cap * ((1.0 - inside) @ np.isnan(q))
    )
    return q_in, p_in


def highest_overlap(pair: PartialPair, num_tokens: int, level: float) -> float:
    """max over completions of H(t) = Σ min(q, t p), a linear program in (p, q, minimum)."""
    bounds, equal, right = [], np.zeros((2, 3 * num_tokens)), []
    for i, side in enumerate((pair.draft, pair.target)):
        known = dict(zip(side.tokens.tolist(), side.probabilities.tolist(), strict=True))
        bounds += [
            (known[x], known[x]) if x in known else (0.0, float(side.cap))
            for x in range(num_tokens)
        ]
        equal[i, i * num_tokens : (i + 1) * num_tokens] = 1.0
        right.append(sum(v for x, v in known.items() if x >= 0) + float(side.tail))
    bounds += [(0.0, None)] * num_tokens
    eye = np.eye(num_tokens)
    below = np.block([[-level * eye, 0 * eye, eye], [0 * eye, -eye, eye]])
    cost = np.concatenate([np.zeros(2 * num_tokens), -np.ones(num_tokens)])
    # Fixed variables and equalities agree only to rounding: leave the solver room, it is far below
    # its own tolerance.
    solved = linprog(
        cost,
        A_ub=below,
        b_ub=np.zeros(2 * num_tokens),
        A_eq=equal,
        b_eq=right,
        bounds=bounds,
        method="highs",
    )
    assert solved.status == 0, solved.message
    return -float(solved.fun)


def curve(completion: Completion, level: float) -> float:
    return float(np.minimum(completion.target, level * completion.draft).sum())


def _instances(
    count: int, *, seed: int, most: int = 7
) -> list[tuple[np.ndarray, np.ndarray, PartialPair]]:
    """Random pairs with known V, lists of different lengths, concentrated and flat: crowded tails
    are common.
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        num_tokens = int(rng.integers(2, most + 1))
        p, q = (rng.dirichlet(np.full(num_tokens, rng.choice([0.3, 1.0, 10.0]))) for _ in range(2))
        m = rng.integers(1, num_tokens + 1, size=2)
        found.append(
            (
                p,
                q,
                PartialPair(
                    draft=TopTokens.of(p, m=int(m[0])),
                    target=TopTokens.of(q, m=int(m[1])),
                    num_tokens=num_tokens,
                ),
            )
        )
    return found
