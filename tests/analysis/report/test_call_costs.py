"""What calls cost: by hand, and what a record of costs must hold."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import AnalysisError
from analysis.report.call_costs import Costs, measured_costs, read_latency
from analysis.report.plans import Plan
from otm.engines import CostSurface, chain_speedup
from tests.analysis.report.records import latency, written

PLAN = Plan("a verifier", 0, "levels", "a tree", 6, 2, (1, 2), 2.5, 2.5, None, None, 0.0)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_chain_costs_what_it_does_in_leviathans_theorem(length: int) -> None:
    """(1 + α + … + α^L)/(1 + L·c), Leviathan et al. 2023, Theorem 3.8."""
    plan = dataclasses.replace(PLAN, kind="chain", nodes=length, depth=length, widths=(1,) * length)
    tokens = sum(0.7**i for i in range(length + 1))
    speed = tokens / Costs.of_ratios(0.08, 0.0).of_call(plan)
    assert speed == pytest.approx(
        float(chain_speedup(0.7, length=length, cost_ratio=0.08)), rel=1e-14
    )


def test_a_record_of_latency_is_read_in_steps_of_plain_decoding(tmp_path: Path) -> None:
    """Drafting at one vertex and at two, checking six between one and seven: .2 + .3 + 1.1 +
    .3·5/6.
    """
    costs = read_latency(written(tmp_path / "a.json", latency()))
    assert costs.most_nodes == 7 and costs.source == "otm latency on a board"
    assert costs.models == {"draft": "dddddddd", "target": "tttttttt"}
    assert costs.of_call(PLAN) == pytest.approx(0.2 + 0.3 + 1.1 + 0.3 * 5 / 6, rel=1e-14)


def test_the_rest_of_a_step_is_that_of_its_kind() -> None:
    costs = measured_costs(
        {1: 0.1},
        {0: 1.0, 8: 1.4},
        source="here",
        rest={"levels": (0.5, 0.01, 0.002), "chain": (9.0, 9.0, 9.0)},
    )
    assert costs.of_call(PLAN) == pytest.approx(0.2 + 1.3 + 0.5 + 0.02 + 0.012, rel=1e-14)


def test_a_cost_surface_is_read_at_batch_1_and_its_first_context(tmp_path: Path) -> None:
    target = {
        (batch, context, n): 0.02 + 0.001 * (n - 1) + context
        for batch in (1, 2)
        for context in (0, 9)
        for n in (1, 5)
    }
    surface = CostSurface.of_points(
        {(batch, context): 0.004 * batch for batch in (1, 2) for context in (0, 9)},
        target,
        source="by hand",
    )
    path = tmp_path / "surface.json"
    path.write_text(surface.to_json(), encoding="utf-8")
    costs = read_latency(path)
    assert costs.most_nodes == 4 and costs.drafting(3) == pytest.approx(0.2)
    assert [costs.checking(n) for n in range(5)] == pytest.approx([1.0, 1.05, 1.1, 1.15, 1.2])


@pytest.mark.parametrize(
    "record",
    [
        [],
        {"nothing": 1},
        latency(nodes=[1, 2, 7]),
        latency(nodes=[0]),
        latency(tree={"draft": [{"median": 1.0}]}),
        latency(tree={"draft": [{"median": -1.0}] * 3, "target": [{"median": 1.0}] * 3}),
        latency(tree={"draft": [{"median": 1.0}] * 3, "target": [{"median": float("nan")}] * 3}),
        latency(manifest={}),
    ],
    ids=str,
)
def test_what_is_no_record_of_costs_is_refused_in_one_sentence(record: Any, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError) as error:
        read_latency(written(tmp_path / "costs.json", record))
    assert "\n" not in str(error.value)


def test_missing_and_torn_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"tree": ', encoding="utf-8")
    for name in ("torn.json", "missing.json"):
        with pytest.raises(AnalysisError, match="cannot be read"):
            read_latency(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no endless file")
def test_a_record_without_end_is_refused() -> None:
    with pytest.raises(AnalysisError, match="no regular file"):
        read_latency(Path("/dev/zero"))
