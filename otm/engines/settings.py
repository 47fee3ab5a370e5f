"""What engines are told: vLLM's table of draft lengths by batch size, and simulated acceptance that
keeps the law, not only the mean.

vLLM takes a survival as it is (`synthetic_acceptance_rates`). SGLang and TensorRT-LLM take one
length, and draw its two neighbours: the mean is kept and the law is not, and what steps cost
depends on the law. A law is a mixture of fixed lengths, so it is kept by a *mixture of runs*: one
for each number of accepted drafts, weighted by its share of steps. Seconds per token of the mixture
are Σ w_j T_j/Σ w_j (j + 1), T_j the seconds per step of run j.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.engines.planning import plan_lengths
from otm.engines.positions import PositionAcceptance
from otm.engines.records.record import AcceptanceRecord
from otm.engines.surface import CostSurface
from otm.errors import InvalidParameter
from otm.pmf import check_count, check_instance

NEVER = 1e-9
"""What TensorRT-LLM is told for "no draft accepted": 0 means that nothing is forced."""

MAX_BATCH = 4_096
"""Largest batch size that a table covers."""


@dataclasses.dataclass(frozen=True)
class SimulatedRun:
    """One run of an engine that accepts a fixed number of drafts in each step.

    Attributes:
        accepted: drafts accepted in each step.
        weight: share of steps that accept as many.
        environment: the variables to set.
    """

    accepted: int
    weight: float
    environment: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Settings that simulate an acceptance law.

    Attributes:
        runs: a mixture of runs that has the law.
        single: variables of one run that has its mean only.
        distance: total variation between the law of that one run and the law.
    """

    runs: tuple[SimulatedRun, ...]
    single: dict[str, str]
    distance: float

    @property
    def law(self) -> NDArray[np.float64]:
        """Pr(exactly j drafts are accepted), j = 0, 1, …, of the mixture."""
        law = np.zeros(max(run.accepted for run in self.runs) + 1)
        for run in self.runs:
            law[run.accepted] += run.weight
        return law


def vllm_lengths(
    record: AcceptanceRecord,
    costs: CostSurface,
    *,
    context: int,
    max_batch: int | None = None,
    extend: int | None = None,
    extrapolate_costs: bool = False,
) -> dict[str, Any]:
    """Write vLLM's table of draft lengths by batch size.

    Args:
        record, costs, extend, extrapolate_costs: as for `plan_lengths`.
        context: the context length that the table is for.
        max_batch: the largest batch size in the table; the largest measured one if None.

    Returns:
        Entries for `--speculative-config`: num_speculative_tokens, and
        num_speculative_tokens_per_batch_size, a list of [first batch, last batch, drafts] that
        covers 1 to max_batch; drafts are 0 where speculation does not pay.

    Raises:
        InvalidParameter: as `plan_lengths`; if batch size 1 or `max_batch` is not within the
            measured ones and costs are not extrapolated.

    Cost: that of planning every batch size. Reference: vLLM,
    docs/features/speculative_decoding/dynamic_speculative_decoding.md at 015a47e1.

    >>> from otm.engines.records import parse_acceptance
    >>> record = parse_acceptance(
    ...     '{"meta_info": {"spec_verify_ct": 10, "spec_accept_histogram": [2, 2, 6]}}'
    ... )
    >>> points = {(1, 0, 1): 0.020, (1, 0, 3): 0.021, (64, 0, 1): 0.030, (64, 0, 3): 0.080}
    >>> costs = CostSurface.of_points({(1, 0): 0.002, (64, 0): 0.003}, points, source="by hand")
    >>> vllm_lengths(record, costs, context=0)["num_speculative_tokens_per_batch_size"]
    [[1, 24, 2], [25, 49, 1], [50, 64, 0]]
    """
    largest = (
        check_instance(costs, CostSurface, name="costs").batches[-1]
        if max_batch is None
        else check_count(max_batch, name="max_batch")
    )
    if largest > MAX_BATCH:
        raise InvalidParameter(
            f"A table covers up to {MAX_BATCH:,} sequences; got {largest:,}. Pass a smaller "
            "max_batch."
        )
    plan = plan_lengths(
        record,
        costs,
        batches=range(1, largest + 1),
        contexts=[context],
        extend=extend,
        extrapolate_costs=extrapolate_costs,
    )
    table: list[list[int]] = []
    for choice in plan.choices:
        if table and table[-1][2] == choice.length:
            table[-1][1] = choice.batch
        else:
            table.append([choice.batch, choice.batch, choice.length])
    return {
        "num_speculative_tokens": max(1, *(row[2] for row in table)),
        "num_speculative_tokens_per_batch_size": table,
    }


def vllm_simulation(acceptance: PositionAcceptance) -> dict[str, Any]:
    """Write settings with which vLLM accepts drafts by this law, whatever they are.

    Args:
        acceptance: survival by position.

    Returns:
        Entries for `--speculative-config`; the rates are the survival itself, so the law is kept.

    Cost: O(L). Reference: vLLM, vllm/config/speculative.py at 002e77c1
    (`synthetic_acceptance_rates`: unconditional, non-increasing).

    >>> vllm_simulation(PositionAcceptance([0.8, 0.6]))["synthetic_acceptance_rates"]
    [0.8, 0.6]
    """
    rates = check_instance(acceptance, PositionAcceptance, name="acceptance").survival.tolist()
    return {
        "num_speculative_tokens": len(rates),
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": rates,
    }


def sglang_simulation(acceptance: PositionAcceptance) -> Simulation:
    """Write settings with which SGLang accepts drafts by this law.

    `SGLANG_SIMULATE_ACC_LEN` counts the root; with the method match-expected it draws its two
    neighbouring whole numbers.

    Args:
        acceptance: survival by position.

    Returns:
        Simulation.

    Cost: O(L). Reference: SGLang, python/sglang/srt/speculative/spec_utils.py at 00731f0b
    (`sample_simulated_acc_len`).

    >>> simulation = sglang_simulation(PositionAcceptance([0.75, 0.5]))
    >>> (
    ...     simulation.single["SGLANG_SIMULATE_ACC_LEN"],
    ...     simulation.distance,
    ...     [run.weight for run in simulation.runs],
    ... )
    ('2.25', 0.5, [0.25, 0.25, 0.5])
    """

    def environment(accepted: float) -> dict[str, str]:
        return {
            "SGLANG_SIMULATE_ACC_LEN": _decimal(1.0 + accepted),
            "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        }

    return _simulation(acceptance, environment)


def tensorrt_llm_simulation(acceptance: PositionAcceptance) -> Simulation:
    """Write settings with which TensorRT-LLM accepts drafts by this law.

    `TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS` excludes the bonus token; a fraction is the
    probability of one more. 0 forces nothing, so "none accepted" is 1e-9.

    Args:
        acceptance: survival by position.

    Returns:
        Simulation.

    Cost: O(L). Reference: TensorRT-LLM, tensorrt_llm/_torch/speculative/interface.py at 00b6d5a2
    (`_apply_force_accepted_tokens`).

    >>> simulation = tensorrt_llm_simulation(PositionAcceptance([0.75, 0.5]))
    >>> simulation.single, simulation.runs[0].environment
    ({'TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS': '1.25'}, {'TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS': '1e-09'})
    """
    return _simulation(
        acceptance,
        lambda accepted: {
            "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": _decimal(accepted or NEVER)
        },
    )


def _simulation(acceptance: PositionAcceptance, environment: Any) -> Simulation:
    law = check_instance(acceptance, PositionAcceptance, name="acceptance").accepted_law
    mean = float(acceptance.survival.sum())
    whole = int(mean)
    neighbours = np.zeros(law.size + 1)
    neighbours[whole], neighbours[whole + 1] = 1.0 - (mean - whole), mean - whole
    distance = 0.5 * float(np.abs(neighbours - np.append(law, 0.0)).sum())
    runs = tuple(
        SimulatedRun(j, float(law[j]), environment(float(j)))
        for j in np.flatnonzero(law > 0).tolist()
    )
    return Simulation(runs, environment(mean), distance)


def _decimal(value: float) -> str:
    """Return the shortest text that reads back exactly."""
    return str(int(value)) if value == int(value) else repr(value)
