"""The frontiers as programs without structure, and instances for these."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from otm import IID, Problem, WithoutReplacement
from otm.drafts.base import live_drafts, members


def program(problem: Problem, *constraints_of: object) -> float:
    """Return the best acceptance over couplings and output laws: no cut, no order.

    Couplings are of the enumerated drafts and an output law π under constraints.

    Couplings are of the enumerated drafts and an output law π, on which the constraints are.
    """
    table = live_drafts(problem.law, problem.draft)
    hits = members(table.tokens, problem.num_tokens).astype(float)
    flow = cp.Variable(hits.shape, nonneg=True)
    law = cp.Variable(problem.num_tokens, nonneg=True)
    constraints = [
        cp.sum(flow, axis=1) <= table.mass,
        cp.sum(flow, axis=0) <= law,
        cp.sum(law) == 1,
    ]
    constraints += [make(law) for make in constraints_of]  # type: ignore[operator]
    precise = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    return float(
        cp.Problem(cp.Maximize(cp.sum(cp.multiply(hits, flow))), constraints).solve(
            solver="CLARABEL", **precise
        )
    )


def random_problems(seed: int, count: int, *, max_tokens: int, zeros: bool = True) -> list[Problem]:
    rng = np.random.default_rng(seed)
    found = []
    for trial in range(count):
        V = int(rng.integers(2, max_tokens + 1))
        p, q = rng.dirichlet(np.ones(V)), rng.dirichlet(np.ones(V))
        if zeros and trial % 3 == 0:
            q[rng.integers(V)] = 0.0
            q /= q.sum()
        if zeros and trial % 4 == 0:
            p[rng.integers(V)] = 0.0
            p /= p.sum()
        law = [IID(1), IID(2), IID(3), WithoutReplacement(2)][trial % 4]
        found.append(Problem(draft=p, target=q, law=law))
    return found
