"""Batches of rows on the CPU and on CUDA: rows per second, and the time against `torch.softmax` on
the same tensor.

32 rows of V = 128,256, k = 8 drafts, language-like logits. A decoder has these arrays on its device
and verifies every step; the softmax that it takes anyway is the measure. CUDA is timed with a
synchronisation before and after every call, and left out where there is none. The drafts are drawn
from p, so a few rows take the residual draw, as they do in use; another operation makes every row
take it. On the CPU the answers come compiled; the last rows are what NumPy gives where numba is not
installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch

import otm
from benchmarks.timing import medians

ROWS, NUM_TOKENS, COUNT, BINS = 32, 128_256, 8, 4096
KS = range(1, COUNT + 1)


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Time every operation on every device in both precisions and return one row each."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    return [
        row
        for device in devices
        for dtype in (torch.float32, torch.float64)
        for row in operations(device, dtype, ROWS, NUM_TOKENS, seconds=seconds)
    ]


def operations(
    device: str, dtype: torch.dtype, rows: int, num_tokens: int, *, seconds: float
) -> list[dict[str, Any]]:
    """Time every operation on one kind of tensor."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.standard_normal((rows, num_tokens))
    both = [
        torch.asarray(x, dtype=dtype, device=device)
        for x in (logits, logits + rng.standard_normal(logits.shape))
    ]
    draft, target = (torch.softmax(each, dim=-1) for each in both)
    problem = otm.Problem(draft=draft, target=target, law=otm.IID(COUNT))
    rule = otm.verifiers.prepare_batch(otm.Optimal(bins=BINS), problem)
    drafts = torch.multinomial(draft, COUNT, replacement=True)
    uniforms = torch.asarray(rng.random((rows, rule.num_uniforms)), device=device)
    # The token that is most overdrafted, eight times, with the largest uniform: rejected in every
    # row.
    overdrafted = (target / rule.selection_law).argmin(dim=-1)[:, None].expand(rows, COUNT)
    rejecting = uniforms.clone()
    rejecting[:, -2] = 1.0 - 2.0**-53
    functions: dict[str, Callable[[], object]] = {
        "softmax": lambda: torch.softmax(both[1], dim=-1),
        "Problem(...), the input gate": lambda: otm.Problem(
            draft=draft, target=target, law=otm.IID(COUNT)
        ),
        "optimal_acceptance": lambda: otm.optimal_acceptance(problem),
        "acceptance(KSeq(), by=rule)": lambda: otm.acceptance(otm.KSeq(), problem, by="rule"),
        f"optimal_acceptance_curve, k = 1..{COUNT}": lambda: otm.optimal_acceptance_curve(
            problem, k=KS
        ),
        f"acceptance_table, k = 1..{COUNT}": lambda: otm.acceptance_table(
            draft=draft, target=target, k=KS
        ),
        f"optimal_bracket(bins={BINS})": lambda: otm.bounds.optimal_bracket(problem, bins=BINS),
        f"prepare_batch(Optimal(bins={BINS}))": lambda: otm.verifiers.prepare_batch(
            otm.Optimal(bins=BINS), problem
        ),
        "select among 8 drafts": lambda: rule.select(drafts, uniforms[:, :COUNT]),
        "verify 8 drafts": lambda: rule.verify(drafts, uniforms),
        "verify, every row rejects": lambda: rule.verify(overdrafted, rejecting),
    }
    if device == "cpu":
        for name in ("optimal_acceptance", "acceptance(KSeq(), by=rule)"):
            functions[f"{name}, without numba"] = lambda call=functions[name]: _without_numba(call)
    if rule.verify(overdrafted, rejecting)[1].any():
        raise RuntimeError("a row accepts what it must reject; find out why first")
    timed = {name: _synchronised(function, device) for name, function in functions.items()}
    times = medians(timed, seconds=seconds)
    hardware = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"cpu, {torch.get_num_threads()} threads"
    )
    return [
        {
            "operation": name,
            "rows": rows,
            "V": num_tokens,
            "device": hardware,
            "dtype": str(dtype).removeprefix("torch."),
            "ms": ms,
            "rows per second": 1e3 * rows / ms,
            "ratio to softmax": ms / times["softmax"],
        }
        for name, ms in times.items()
    ]


def _without_numba(function: Callable[[], object]) -> object:
    with mock.patch("otm.overlap.rows.compiled", lambda _: None):
        return function()


def _synchronised(function: Callable[[], object], device: str) -> Callable[[], object]:
    if device != "cuda":
        return function

    def call() -> None:
        torch.cuda.synchronize()
        function()
        torch.cuda.synchronize()

    return call
