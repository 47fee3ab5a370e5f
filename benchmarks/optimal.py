"""The optimal verifier: building it, using it, and the exact alternatives at truncated
vocabularies.

First part: V = 128,256, language-like logits, each operation against `numpy.argsort` of the same
q/p in the same run. Second part: the settings in which published work solves the transport problem,
V truncated to the target's most likely tokens. A dash means that every alternative would enumerate
more than 200,000 drafted sets, or ten million entries of a dense cost.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow

import otm
from benchmarks.core import language_like, pot_value
from benchmarks.timing import medians
from otm.drafts.base import collapse, enumerate_drafts, members

NUM_TOKENS = 128_256
_MOST_SETS = 200_000
_MOST_COST = 10_000_000


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Time both parts and return one row per operation and setting."""
    rng = np.random.default_rng(0)
    return [*_full(rng, seconds), *_truncated(rng, seconds)]


def _row(
    task: str, ms: float, other: str, other_ms: float | None, memory: str = ""
) -> dict[str, Any]:
    ratio = "—" if other_ms is None else ms / other_ms
    return {
        "task": task,
        "ms": ms,
        "alternative": other,
        "alternative ms": "—" if other_ms is None else other_ms,
        "ratio": ratio,
        "peak memory, arrays of V": memory,
    }


def _full(rng: np.random.Generator, seconds: float) -> list[dict[str, Any]]:
    draft, target = language_like(NUM_TOKENS, rng)
    ratio = target / draft
    functions: dict[str, Callable[[], object]] = {"argsort": lambda: np.argsort(ratio)}
    measured: dict[str, str] = {}
    for k in (2, 8, 64):
        problem = otm.Problem(draft=draft, target=target, law=otm.IID(k))
        functions[f"optimal_acceptance, k = {k}"] = lambda p=problem: otm.optimal_acceptance(p)
        functions[f"prepare(Optimal()), k = {k}"] = lambda p=problem: otm.prepare(otm.Optimal(), p)
        functions[f"prepare(Optimal(bins=4096)), k = {k}"] = lambda p=problem: otm.prepare(
            otm.Optimal(bins=4096), p
        )
        functions[f"optimal_bracket(bins=4096), k = {k}"] = lambda p=problem: (
            otm.bounds.optimal_bracket(p)
        )
    single = otm.Problem(draft=draft, target=target, law=otm.IID(1))
    functions["optimal_acceptance_curve, k = 1..32"] = lambda: otm.optimal_acceptance_curve(
        single, k=range(1, 33)
    )
    functions["acceptance(Race()), k = 1"] = lambda: otm.acceptance(otm.Race(), single)
    for k in (2, 8, 64):
        distinct = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(k))
        functions[f"optimal_acceptance without replacement, k = {k}"] = lambda p=distinct: (
            otm.optimal_acceptance(p)
        )
    for name, function in functions.items():
        measured[name] = f"{_peak(function) / (8 * NUM_TOKENS):.1f}"
    rule = otm.prepare(otm.Optimal(), otm.Problem(draft=draft, target=target, law=otm.IID(8)))
    drafts, uniforms = rule.draw(rng.random((1, 8)))[0][0], rng.random(8)
    rule.select(drafts, uniforms)
    functions["select among 8 drafts, after the build"] = lambda: rule.select(drafts, uniforms)
    times = medians(functions, seconds=seconds)
    sort = times.pop("argsort")
    other = "numpy.argsort of q/p alone"
    return [
        _row(f"{name}, V = 128,256", ms, other, sort, measured.get(name, ""))
        for name, ms in times.items()
    ]


def _peak(function: Callable[[], object]) -> float:
    """Return the peak of memory allocated during a call, in bytes; NumPy reports its buffers to
    tracemalloc.
    """
    function()
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak)


def _truncated(rng: np.random.Generator, seconds: float) -> list[dict[str, Any]]:
    full_draft, full_target = language_like(NUM_TOKENS, rng)
    kept = np.argsort(-full_target)
    rows = []
    for num_tokens in (10, 100, 1000, NUM_TOKENS):
        draft, target = (otm.normalise(x[kept[:num_tokens]]) for x in (full_draft, full_target))
        for k in (2, 4, 5, 8):
            problem = otm.Problem(draft=draft, target=target, law=otm.IID(k))
            ours = lambda p=problem: otm.prepare(otm.Optimal(), p)  # noqa: E731
            others = _alternatives(problem)
            size = f"prepare(Optimal()), V = {num_tokens:,}, k = {k}"
            if not others:
                rows.append(
                    _row(
                        size,
                        medians({"ours": ours}, seconds=seconds / 2)["ours"],
                        "none enumerates this",
                        None,
                    )
                )
            for name, other in others.items():
                # integer flows round 200,000 masses to 2^-30
                if not abs(other() - otm.optimal_acceptance(problem)) < 1e-4:
                    raise RuntimeError(
                        f"{name} disagrees with the cut formula at V = {num_tokens}, k = {k}"
                    )
                times = medians({"ours": ours, "other": other}, seconds=seconds / 2, least=3)
                rows.append(_row(size, times["ours"], name, times["other"]))
    return rows


def _alternatives(problem: otm.Problem) -> dict[str, Callable[[], float]]:
    num_tokens, k = problem.num_tokens, problem.num_drafts
    num_sets = sum(math.comb(num_tokens, j) for j in range(1, k + 1))
    num_sequences = problem.law.num_sequences(num_tokens)
    found: dict[str, Callable[[], float]] = {}
    if num_sets <= _MOST_SETS and num_sequences <= 4_000_000:
        found["linear program on sets, HiGHS"] = lambda: otm.optimum(problem).value
        found["maximum flow on sets, scipy"] = lambda: _max_flow(problem)
    if num_sequences * num_tokens <= _MOST_COST:
        found["ot.emd2, dense membership cost"] = lambda: pot_value(problem)
    return found


def _max_flow(problem: otm.Problem) -> float:
    """Solve the collapsed graph with SciPy's integer maximum flow; masses are rounded to 2^-30."""
    sets = collapse(enumerate_drafts(problem.law, problem.draft))
    rows, columns = np.nonzero(members(sets.tokens, problem.num_tokens))
    num_sets, scale = len(sets.mass), 2.0**30
    source, sink = num_sets + problem.num_tokens, num_sets + problem.num_tokens + 1
    heads = np.concatenate(
        [np.full(num_sets, source), rows, num_sets + np.arange(problem.num_tokens)]
    )
    tails = np.concatenate(
        [np.arange(num_sets), num_sets + columns, np.full(problem.num_tokens, sink)]
    )
    capacity = np.rint(
        np.concatenate([sets.mass * scale, np.full(len(rows), scale), problem.target * scale])
    ).astype(np.int32)
    graph = coo_array((capacity, (heads, tails)), shape=(sink + 1, sink + 1)).tocsr()
    return float(maximum_flow(graph, source, sink).flow_value) / scale
