"""Rows on the host as work grows, and the rows that are hardest for bins: compiled code against a
softmax and against the sort.

First part: processor time of one thread and memory of each question over rows × V × k, against
`torch.softmax` of the same rows in float64; the lines "slope" are exponents fitted to the lines
above them (least squares of logarithms): of V for one row, of rows and of k at the largest V.
Second part: pairs on which bins help least, against the same question with bins left out.
Everything is compiled first.
"""

from __future__ import annotations

import functools
import math
import time
import tracemalloc
from collections.abc import Callable, Collection, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch

import otm
from benchmarks.core import language_like
from benchmarks.timing import medians
from otm.overlap.lumped_row import RowSteps
from otm.table.arrays import LOGARITHMIC, RACES
from otm.table.table import RequestedColumns

VOCABULARIES = (4_096, 32_768, 128_256)
ROWS = (1, 4, 16)
COUNTS = (1, 8, 32)
HARD_VOCABULARY, HARD_COUNT = 128_256, 8
FEWER = {"no races": RACES, "no races, no logarithms": RACES | LOGARITHMIC}
"""Columns that are left out."""
_NONE = "—"


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Time both parts with one thread and return one row per measurement."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [*_growth(seconds), *_hard(seconds)]
    finally:
        torch.set_num_threads(threads)


def _row(
    operation: str,
    pair: str,
    sizes: tuple[object, ...],
    ms: object,
    against: str,
    ratio: object,
    memory: object,
) -> dict[str, Any]:
    rows, vocabulary, k = sizes
    return {
        "operation": operation,
        "pair": pair,
        "rows": rows,
        "V": vocabulary,
        "k": k,
        "ms": ms,
        "against": against,
        "ratio": ratio,
        "peak memory, arrays of rows × V": memory,
    }


def columns_but(left_out: Collection[str], k: int) -> list[str]:
    """Return the names of the other columns that exist for 1..k drafts."""
    return sorted(RequestedColumns.of(range(1, k + 1), None).names.difference(left_out))


def questions(draft: np.ndarray, target: np.ndarray, k: int) -> dict[str, Callable[[], object]]:
    """Return what is asked of rows `(rows, V)`; what takes one row at a time is asked of each."""
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(k))
    single = [
        otm.Problem(draft=p, target=q, law=otm.IID(k))
        for p, q in zip(problem.draft, problem.target, strict=True)
    ]
    rules = [otm.prepare(otm.Optimal(), one) for one in single]
    # The token that is most overdrafted, k times, with the largest uniform: rejected.
    worst = [
        np.full((1, k), np.argmin(one.target / np.maximum(rule.selection_law, 1e-300)))
        for one, rule in zip(single, rules, strict=True)
    ]
    uniforms = np.full((1, k + 2), 1 - 2.0**-53)
    for rule in rules:
        for name in ("selection_law", "residual", "level"):
            rule.__dict__.pop(name, None)  # nothing is left over from finding the token
    return {
        "optimal_acceptance": lambda: otm.optimal_acceptance(problem),
        "acceptance(KSeq(), by=rule)": lambda: otm.acceptance(otm.KSeq(), problem, by="rule"),
        "optimal_acceptance_curve, 1..k": lambda: otm.optimal_acceptance_curve(
            problem, k=range(1, k + 1)
        ),
        "prepare(Optimal())": lambda: [otm.prepare(otm.Optimal(), one) for one in single],
        "verify, rejected": lambda: [
            rule.verify(drafts, uniforms, None) for rule, drafts in zip(rules, worst, strict=True)
        ],
        "acceptance_table, 1..k": lambda: otm.acceptance_table(
            draft=draft, target=target, k=range(1, k + 1)
        ),
        **{
            f"acceptance_table, 1..k, {name}": functools.partial(
                otm.acceptance_table,
                draft=draft,
                target=target,
                k=range(1, k + 1),
                columns=columns_but(left_out, k),
            )
            for name, left_out in FEWER.items()
        },
    }


def _growth(seconds: float) -> Iterator[dict[str, Any]]:
    sizes = [(1, v, 8) for v in VOCABULARIES]
    sizes += [(n, VOCABULARIES[-1], 8) for n in ROWS[1:]] + [
        (1, VOCABULARIES[-1], k) for k in COUNTS if k != 8
    ]
    found: dict[str, dict[tuple[int, int, int], float]] = {}
    for size in sizes:
        count, vocabulary, k = size
        rng = np.random.default_rng(0)
        draft, target = (
            np.stack(side)
            for side in zip(*(language_like(vocabulary, rng) for _ in range(count)), strict=True)
        )
        logits = torch.log(torch.asarray(target))
        asked = questions(draft, target, k)
        times = medians(
            asked | {"softmax": lambda z=logits: torch.softmax(z, dim=-1)},
            seconds=seconds / 4,
            clock=time.process_time,
        )
        for name, function in asked.items():
            found.setdefault(name, {})[size] = times[name]
            memory = f"{peak(function) / draft.nbytes:.2f}"
            yield _row(
                name,
                "language-model-like",
                size,
                times[name],
                "torch.softmax",
                times[name] / times["softmax"],
                memory,
            )
    largest = VOCABULARIES[-1]
    for name, by_size in found.items():
        for axis, label, chosen in (
            (1, "V", [size for size in by_size if size[0] == 1 and size[2] == 8]),
            (0, "rows", [size for size in by_size if size[1] == largest and size[2] == 8]),
            (2, "k", [size for size in by_size if size[1] == largest and size[0] == 1]),
        ):
            slope = np.polyfit(
                np.log([size[axis] for size in chosen]),
                np.log([by_size[size] for size in chosen]),
                1,
            )[0]
            shown: list[object] = [_NONE, _NONE, _NONE]
            shown[axis] = "slope"
            yield _row(
                name,
                "language-model-like",
                (*shown,),
                _NONE,
                f"{label} to the power",
                float(slope),
                _NONE,
            )


def peak(function: Callable[[], object]) -> float:
    """Return the peak of memory allocated during a call, in bytes."""
    function()
    tracemalloc.start()
    function()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(found)


def hard_pairs(width: int, k: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the pairs on which bins of the ratio help least."""
    rng = np.random.default_rng(1)
    p, q = language_like(width, rng)
    inside = np.cumsum(np.full(width, 1 / width))
    drafted, wanted = rng.random((2, width)) < 0.5
    drafted[0] = wanted[0] = True
    tiny = 10.0 ** rng.uniform(-320, 0, (2, width))
    pairs = {
        "flat": (
            otm.from_logits(0.3 * rng.standard_normal(width)),
            otm.from_logits(0.3 * rng.standard_normal(width)),
        ),
        "all ratios equal": (p, p),
        "all in one bin": (p, p * (1 + 1e-2 * rng.random(width))),
        "r = k P^(k−1)": (np.full(width, 1.0), k * (inside - 0.5 / width) ** (k - 1)),
        "zeros": (np.where(drafted, p, 0), np.where(wanted, q, 0)),
        "subnormal masses": (tiny[0], tiny[1]),
    }
    return {name: (otm.normalise(a), otm.normalise(b)) for name, (a, b) in pairs.items()}


def _hard(seconds: float) -> Iterator[dict[str, Any]]:
    for pair, (p, q) in hard_pairs(HARD_VOCABULARY, HARD_COUNT).items():
        problem = otm.Problem(draft=p, target=q, law=otm.IID(HARD_COUNT))
        asked: dict[str, Callable[[], object]] = {
            "optimal_acceptance": lambda problem=problem: otm.optimal_acceptance(problem),
            "acceptance(KSeq(), by=rule)": lambda problem=problem: otm.acceptance(
                otm.KSeq(), problem, by="rule"
            ),
        }
        # every token is an atom there, in plain Python: seconds, in both ways
        if pair != "r = k P^(k−1)":
            asked["prepare(Optimal())"] = lambda problem=problem: otm.prepare(
                otm.Optimal(), problem
            )
        for name, function in asked.items():
            times = medians(
                {"ours": function, "sorted": lambda f=function: _sorted(f)},
                seconds=seconds / 4,
                least=3,
                clock=time.process_time,
            )
            sizes = (1, HARD_VOCABULARY, HARD_COUNT)
            yield _row(
                name,
                pair,
                sizes,
                times["ours"],
                "the same, sorted",
                times["ours"] / times["sorted"],
                _NONE,
            )


def _sorted(function: Callable[[], object]) -> object:
    """Ask with the bins left out."""
    with (
        mock.patch.multiple(
            "otm.overlap.rows", SHORTEST_BINNED=math.inf, _SHORTEST_ON_HOST=math.inf
        ),
        mock.patch.object(RowSteps, "of", RowSteps.sorted),
    ):
        return function()
