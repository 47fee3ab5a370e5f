"""Exact and entropic: this library against OTT's Sinkhorn on the literal program, with what
smoothing costs in value.

The acceptance of the coupling where Sinkhorn stops falls short of the optimum by the column *short
by*: entropic smoothing spreads mass over pairs where nothing is accepted. Compiled before it is
timed, in float64, on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import otm
from benchmarks.timing import medians
from otm.drafts.base import enumerate_drafts


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Time the tasks and return one row each."""
    import jax
    from jax import numpy as jnp
    from ott.geometry.geometry import Geometry
    from ott.problems.linear.linear_problem import LinearProblem
    from ott.solvers.linear.sinkhorn import Sinkhorn

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    rows = []
    for num_tokens, k in ((10, 3), (16, 3)):
        draft, target = (otm.examples.dirichlet(num_tokens, rng=rng) for _ in range(2))
        problem = otm.Problem(draft=draft, target=target, law=otm.IID(k))
        table = enumerate_drafts(problem.law, problem.draft)
        cost = 1.0 - (table.tokens[:, :, None] == np.arange(num_tokens)).any(axis=1)
        mass = table.mass / table.mass.sum()
        best = float(otm.optimal_acceptance(problem))
        for smoothing in (0.1, 0.01, 0.001):

            @jax.jit
            def solve(cost: Any, mass: Any, target: Any, smoothing: float = smoothing) -> Any:
                geometry = Geometry(cost_matrix=cost, epsilon=smoothing)
                solver = Sinkhorn(max_iterations=20_000, threshold=1e-6)
                found = solver(LinearProblem(geometry, a=mass, b=target))
                return jnp.sum(found.matrix * (1.0 - cost)), found.converged

            arrays = [jnp.asarray(array) for array in (cost, mass, np.asarray(problem.target))]
            accepted, converged = (np.asarray(value) for value in solve(*arrays))
            times = medians(
                {
                    "ours": lambda p=problem: otm.optimal_acceptance(p),
                    "other": lambda f=solve, a=arrays: jax.block_until_ready(f(*a)),
                },
                seconds=seconds,
            )
            rows.append(
                {
                    "task": f"value of OTM, V = {num_tokens}, k = {k}",
                    "this library": "optimal_acceptance",
                    "ms": times["ours"],
                    "alternative": f"Sinkhorn, ε = {smoothing:g}"
                    + ("" if converged else ", not converged"),
                    "alternative ms": times["other"],
                    "ratio": times["ours"] / times["other"],
                    "short by": best - float(accepted),
                }
            )
    return rows
