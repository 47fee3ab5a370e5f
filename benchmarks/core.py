"""Exact optima: this library against SciPy, POT and a plain sort.

Every row is one task, timed in one run with its alternative. The ratio is this library's time over
the alternative's: below 1 it is faster. All answers are compared first, and a disagreement beyond
1e-6 stops the run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import ot
from scipy.optimize import linprog
from scipy.sparse import coo_array

import otm
from benchmarks.timing import medians
from otm.drafts.base import collapse, enumerate_drafts, members


def language_like(num_tokens: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return a draft and a target with normal logits: scale 3, and a further normal of scale 1
    between them.
    """
    logits = 3.0 * rng.standard_normal(num_tokens)
    return otm.from_logits(logits), otm.from_logits(logits + rng.standard_normal(num_tokens))


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Time the tasks and return one row each."""
    rng = np.random.default_rng(0)
    return [*_programs(rng, seconds), *_full_vocabulary(rng, seconds)]


def _row(task: str, ours: str, other: str, times: dict[str, float]) -> dict[str, Any]:
    return {
        "task": task,
        "this library": ours,
        "ms": times["ours"],
        "alternative": other,
        "alternative ms": times["other"],
        "ratio": times["ours"] / times["other"],
    }


def _programs(rng: np.random.Generator, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for num_tokens, k in ((10, 3), (10, 4), (16, 3), (16, 4)):
        problem = otm.Problem(
            draft=otm.examples.dirichlet(num_tokens, rng=rng),
            target=otm.examples.dirichlet(num_tokens, rng=rng),
            law=otm.IID(k),
        )
        value = float(otm.optimal_acceptance(problem))
        size = f"V = {num_tokens}, k = {k}"
        alternatives: dict[str, Callable[[], float]] = {
            "ot.emd2, dense membership cost": lambda p=problem: pot_value(p)
        }
        if num_tokens ** (k + 1) <= 20_000:
            alternatives["scipy linprog (HiGHS), Ω^k"] = lambda p=problem: _linprog(p)
        for name, other in alternatives.items():
            _agree(value, other(), name)
            for ours, function in {
                "optimum, method=sequences": lambda p=problem: otm.optimum(p, method="sequences"),
                "optimum, method=sets": lambda p=problem: otm.optimum(p),
                "optimal_acceptance": lambda p=problem: otm.optimal_acceptance(p),
            }.items():
                rows.append(
                    _row(
                        f"value of OTM, {size}",
                        ours,
                        name,
                        medians({"ours": function, "other": other}, seconds=seconds),
                    )
                )
    problem = otm.Problem(
        draft=otm.examples.dirichlet(60, rng=rng),
        target=otm.examples.dirichlet(60, rng=rng),
        law=otm.IID(3),
    )
    other = lambda: _linprog_sets(problem)  # noqa: E731
    _agree(float(otm.optimal_acceptance(problem)), other(), "linprog on sets")
    times = medians(
        {"ours": lambda: otm.optimum(problem), "other": other}, seconds=seconds, least=3
    )
    rows.append(
        _row(
            "certified optimum, V = 60, k = 3",
            "optimum, method=sets",
            "scipy linprog (HiGHS choice), same sets",
            times,
        )
    )
    return rows


def _full_vocabulary(rng: np.random.Generator, seconds: float) -> list[dict[str, Any]]:
    draft, target = language_like(128_256, rng)
    ratio = target / draft
    other = lambda: np.argsort(ratio)  # noqa: E731
    rows = []
    for k in (1, 2, 8, 64, 1000):
        problem = otm.Problem(draft=draft, target=target, law=otm.IID(k))
        times = medians(
            {"ours": lambda p=problem: otm.optimal_acceptance(p), "other": other}, seconds=seconds
        )
        rows.append(
            _row(
                f"optimum, V = 128,256, k = {k}",
                "optimal_acceptance",
                "numpy.argsort of q/p alone",
                times,
            )
        )
    single = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    in_time = single.with_law(otm.ThresholdRace(4.0))
    ks, cs = range(1, 33), np.linspace(1.0, 16.5, 32)
    of_drafts, of_thresholds = "k = 1..32, V = 128,256", "c = 1, 1.5, ..., 16.5, V = 128,256"
    curves: list[tuple[str, str, Callable[[], object]]] = [
        (of_drafts, "optimal_acceptance_curve", lambda: otm.optimal_acceptance_curve(single, k=ks)),
        *(
            (
                of_drafts,
                f"acceptance_curve({type(verifier).__name__}())",
                functools.partial(otm.acceptance_curve, verifier, single, k=ks),
            )
            for verifier in (otm.KSeq(), otm.RecursiveRejection())
        ),
        ("c = 4, V = 128,256", "optimal_acceptance", lambda: otm.optimal_acceptance(in_time)),
        ("c = 4, V = 128,256", "acceptance(Race())", lambda: otm.acceptance(otm.Race(), in_time)),
        (
            of_thresholds,
            "optimal_acceptance_curve",
            lambda: otm.optimal_acceptance_curve(in_time, k=cs),
        ),
        (
            of_thresholds,
            "acceptance_curve(Race())",
            lambda: otm.acceptance_curve(otm.Race(), in_time, k=cs),
        ),
        (
            "V = 128,256",
            "Problem(...), the input gate",
            lambda: otm.Problem(draft=draft, target=target, law=otm.IID(1)),
        ),
    ]
    for task, name, function in curves:
        times = medians({"ours": function, "other": other}, seconds=seconds)
        rows.append(_row(task, name, "numpy.argsort of q/p alone", times))
    return rows


def pot_value(problem: otm.Problem) -> float:
    """Solve the transport problem with POT's network simplex on the dense membership cost."""
    table = enumerate_drafts(problem.law, problem.draft)
    cost = 1.0 - (table.tokens[:, :, None] == np.arange(problem.num_tokens)).any(axis=1)
    mass = table.mass * (problem.target.sum() / table.mass.sum())
    return 1.0 - float(ot.emd2(mass, problem.target, cost, numItermax=10_000_000))


def _linprog(problem: otm.Problem) -> float:
    table = enumerate_drafts(problem.law, problem.draft)
    num_sequences, num_tokens = len(table.mass), problem.num_tokens
    cost = 1.0 - (table.tokens[:, :, None] == np.arange(num_tokens)).any(axis=1)
    x, y = np.divmod(np.arange(num_sequences * num_tokens), num_tokens)
    rows = np.concatenate([x, y + num_sequences])
    matrix = coo_array(
        (np.ones(len(rows)), (rows, np.tile(np.arange(len(x)), 2))),
        shape=(num_sequences + num_tokens, len(x)),
    )
    right = np.concatenate([table.mass * (problem.target.sum() / table.mass.sum()), problem.target])
    # One equality is redundant, and kept it makes HiGHS call masses whose totals differ by one
    # rounding infeasible.
    found = linprog(cost.reshape(-1), A_eq=matrix.tocsr()[:-1], b_eq=right[:-1], method="highs")
    return 1.0 - float(found.fun)


def _linprog_sets(problem: otm.Problem) -> float:
    sets = collapse(enumerate_drafts(problem.law, problem.draft))
    rows, columns = np.nonzero(members(sets.tokens, problem.num_tokens))
    size = len(sets.mass) + problem.num_tokens
    ends = np.concatenate([rows, columns + len(sets.mass)])
    matrix = coo_array(
        (np.ones(len(ends)), (ends, np.tile(np.arange(len(rows)), 2))), shape=(size, len(rows))
    )
    found = linprog(
        -np.ones(len(rows)),
        A_ub=matrix.tocsr(),
        b_ub=np.concatenate([sets.mass, problem.target]),
        method="highs",
    )
    return -float(found.fun)


def _agree(ours: float, other: float, name: str) -> None:
    if not abs(ours - other) <= 1e-6:
        raise RuntimeError(
            f"{name} gives {other!r} where the cut formula gives {ours!r}; find out which is wrong "
            "first"
        )
