"""What engines are told, read back by what they do with it: the law is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm.engines.planning import plan_lengths
from otm.engines.positions import PositionAcceptance
from otm.engines.records import parse_acceptance
from otm.engines.settings import (
    MAX_BATCH,
    NEVER,
    sglang_simulation,
    tensorrt_llm_simulation,
    vllm_lengths,
    vllm_simulation,
)
from otm.engines.surface import CostSurface

survivals = st.lists(st.floats(0, 1), min_size=1, max_size=6).map(
    lambda values: sorted(values, reverse=True)
)


def accepted_by_vllm(rates: list[float]) -> np.ndarray:
    """Its kernel: each draft is accepted with its conditional rate until the first that is not."""
    law, alive, before = [], 1.0, 1.0
    for rate in rates:
        conditional = rate / before if before else 0.0
        law.append(alive * (1 - conditional))
        alive, before = alive * conditional, rate
    return np.array([*law, alive])


def accepted_by_sglang(environment: dict[str, str], steps: int) -> np.ndarray:
    """match-expected: the whole number below the length, or the one above with the fraction's
    probability; the root is counted.
    """
    assert environment["SGLANG_SIMULATE_ACC_METHOD"] == "match-expected"
    length = max(1.0, min(steps + 1, float(environment["SGLANG_SIMULATE_ACC_LEN"])))
    return two_points(length - 1, steps)


def accepted_by_tensorrt(environment: dict[str, str], steps: int) -> np.ndarray:
    """The whole part always, one more with the fraction's probability, at most all drafts; 0 would
    force nothing.
    """
    forced = float(environment["TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"])
    assert forced > 0
    return two_points(min(forced, steps), steps)


def two_points(mean: float, steps: int) -> np.ndarray:
    law = np.zeros(steps + 2)
    law[int(mean)], law[int(mean) + 1] = 1 - (mean - int(mean)), mean - int(mean)
    return law[: steps + 1]


@given(survivals)
def test_vllm_accepts_by_the_law(values: list[float]) -> None:
    chain = PositionAcceptance(values)
    settings = vllm_simulation(chain)
    assert (
        settings["num_speculative_tokens"]
        == len(values)
        == len(settings["synthetic_acceptance_rates"])
    )
    np.testing.assert_allclose(
        accepted_by_vllm(settings["synthetic_acceptance_rates"]), chain.accepted_law, atol=1e-12
    )


@pytest.mark.parametrize(
    ("write", "play"),
    [(sglang_simulation, accepted_by_sglang), (tensorrt_llm_simulation, accepted_by_tensorrt)],
)
@given(values=survivals)
def test_a_mixture_of_runs_keeps_the_law_and_one_run_the_mean(
    write: object, play: object, values: list[float]
) -> None:
    chain = PositionAcceptance(values)
    simulation = write(chain)  # type: ignore[operator]
    mixture = sum(run.weight * play(run.environment, len(values)) for run in simulation.runs)  # type: ignore[operator]
    np.testing.assert_allclose(mixture, chain.accepted_law, atol=1e-8)  # "none" is one in a billion
    np.testing.assert_allclose(
        np.pad(simulation.law, (0, len(values) + 1 - simulation.law.size)),
        chain.accepted_law,
        atol=1e-15,
    )
    single = play(simulation.single, len(values))  # type: ignore[operator]
    assert single @ np.arange(len(values) + 1) == pytest.approx(
        max(chain.expected_tokens - 1, NEVER), abs=1e-8
    )
    assert simulation.distance == pytest.approx(
        0.5 * np.abs(single - chain.accepted_law).sum(), abs=1e-8
    )


def test_one_run_is_far_from_most_laws() -> None:
    simulation = sglang_simulation(PositionAcceptance([0.5, 0.5, 0.5]))  # all or nothing
    assert simulation.single["SGLANG_SIMULATE_ACC_LEN"] == "2.5"
    assert simulation.distance == 1.0
    assert [run.environment["SGLANG_SIMULATE_ACC_LEN"] for run in simulation.runs] == ["1", "4"]


def test_vllm_s_table_is_the_plan_of_every_batch_size() -> None:
    record = parse_acceptance('{"spec_verify_ct": 100, "spec_accept_histogram": [20, 20, 20, 40]}')
    points = {
        (b, c, n): max(1.0, b * n / 24) + c / 1e3
        for b in (1, 8, 32)
        for c in (0, 50)
        for n in (1, 2, 3, 4)
    }
    costs = CostSurface.of_points(
        {(b, c): 0.04 for b in (1, 8, 32) for c in (0, 50)}, points, source=""
    )
    settings = vllm_lengths(record, costs, context=50)
    table = settings["num_speculative_tokens_per_batch_size"]
    assert [row[0] for row in table] == [1, *(row[1] + 1 for row in table[:-1])] and table[-1][
        1
    ] == 32
    plan = plan_lengths(record, costs, batches=range(1, 33), contexts=[50])
    assert [row[2] for row in table for _ in range(row[0], row[1] + 1)] == [
        choice.length for choice in plan.choices
    ]
    assert settings["num_speculative_tokens"] == max(row[2] for row in table) == 3
    assert table[-1][2] == 0
    assert vllm_lengths(record, costs, context=50, max_batch=4)[
        "num_speculative_tokens_per_batch_size"
    ] == [[1, 4, 3]]
    further = vllm_lengths(
        record, costs, context=50, max_batch=40, extend=6, extrapolate_costs=True
    )
    plan = plan_lengths(
        record, costs, batches=range(1, 41), contexts=[50], extend=6, extrapolate_costs=True
    )
    lengths = [
        row[2]
        for row in further["num_speculative_tokens_per_batch_size"]
        for _ in range(row[0], row[1] + 1)
    ]
    assert lengths == [choice.length for choice in plan.choices] and max(lengths) == 6
    for wrong in (33, MAX_BATCH + 1):
        with pytest.raises(otm.errors.InvalidParameter):
            vllm_lengths(record, costs, context=50, max_batch=wrong)
