"""What a gradient costs: softmax and acceptance, forwards and backwards, against softmax alone.

32 rows, float32, language-like logits that require gradients, processor time of one thread. A step
of training takes the softmax of the draft's logits and its gradient whatever the loss, and so does
every row here: "1 + …" says that the softmax's own time is part of the ratio. The target's
distribution is at hand. Divergence is what distillation takes in place of an acceptance.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import otm
from benchmarks.timing import medians

ROWS, VOCABULARIES, COUNT = 32, (4_096, 32_000, 128_256), 4


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Time every loss at every vocabulary and return one row each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [
            row for num_tokens in VOCABULARIES for row in _vocabulary(num_tokens, seconds=seconds)
        ]
    finally:
        torch.set_num_threads(before)


def _vocabulary(num_tokens: int, *, seconds: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    values = 3.0 * rng.standard_normal((ROWS, num_tokens))
    logits = torch.asarray(values, dtype=torch.float32).requires_grad_()
    target = torch.softmax(
        torch.asarray(values + rng.standard_normal(values.shape), dtype=torch.float32), dim=-1
    )
    weights = torch.asarray(rng.standard_normal(values.shape), dtype=torch.float32)

    def trained(answer: Callable[[otm.Problem], torch.Tensor], k: int) -> Callable[[], object]:
        def step() -> None:
            problem = otm.Problem(
                draft=torch.softmax(logits, dim=-1), target=target, law=otm.IID(k)
            )
            torch.autograd.grad((1.0 - answer(problem)).mean(), logits)

        return step

    functions: dict[str, Callable[[], object]] = {
        "softmax alone": lambda: torch.autograd.grad(
            (torch.softmax(logits, dim=-1) * weights).sum(), logits
        ),
        "1 + divergence, log_softmax": lambda: torch.autograd.grad(
            -(target * torch.log_softmax(logits, dim=-1)).sum(dim=-1).mean(), logits
        ),
        "1 + Σ min(p, q)": trained(lambda problem: otm.acceptance(otm.Maximal(), problem), 1),
        f"1 + optimum, k = {COUNT}": trained(otm.optimal_acceptance, COUNT),
        f"1 + K-SEQ, k = {COUNT}": trained(
            lambda problem: otm.acceptance(otm.KSeq(), problem), COUNT
        ),
        f"1 + recursive rejection, k = {COUNT}": trained(
            lambda problem: otm.acceptance(otm.RecursiveRejection(), problem), COUNT
        ),
        "1 + optimum, k = 1..8": trained(
            lambda problem: otm.optimal_acceptance_curve(problem, k=range(1, 9)), COUNT
        ),
    }
    times = medians(functions, seconds=seconds, clock=time.process_time)
    return [
        {
            "V": f"{num_tokens:,}",
            "forwards and backwards": name,
            "ms of processor": spent,
            "ratio to softmax alone": spent / times["softmax alone"],
        }
        for name, spent in times.items()
    ]
