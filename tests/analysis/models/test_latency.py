"""The record of measured latencies: complete, relative to the cell that SpecTr divides by, and with
its origin.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.commands.latency import latency
from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.models.latency import Grid, latency_table, measure_latency, write_latency
from analysis.models.pair import Pair, load_pair
from analysis.provenance import weights_digest
from otm.engines import read_costs


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair(device="cpu")


def test_record_of_a_small_grid(pair: Pair, tmp_path: Path) -> None:
    """One round of a small grid: every cell is there and positive, and the tables are relative to
    the target's (4, 1).
    """
    grid = Grid(lengths=(4, 8), batches=(1, 2), nodes=(0, 3), context=16)
    record = write_latency(pair, tmp_path / "latency.json", grid=grid, seconds=0.0, any_load=True)
    assert json.loads((tmp_path / "latency.json").read_text(encoding="utf-8")) == record
    assert record["relative"]["target"][0][0]["median"] == 1.0
    unit = record["passes"]["target"][0][0]["median"]
    for side in ("draft", "target"):
        assert len(record["tree"][side]) == 2
        for seconds, relative in zip(record["passes"][side], record["relative"][side], strict=True):
            assert len(seconds) == len(relative) == 2
            for left, right in zip(seconds, relative, strict=True):
                assert 0 < left["low"] <= left["median"] <= left["high"]
                assert right["median"] == pytest.approx(left["median"] / unit)
    assert record["draft_step"] == record["tree"]["draft"][0]
    manifest = record["manifest"]
    assert manifest["models"]["target"] == {
        "name": "target",
        "sha256": weights_digest(str(SHIPPED_PAIR / "target")),
    }
    assert {
        "device",
        "threads",
        "load average before",
        "versions",
        "processor",
        "revision",
    } <= manifest.keys()
    assert str(SHIPPED_PAIR.parent) not in json.dumps(manifest)
    assert len(latency_table(record).splitlines()) == 5


def test_plans_read_the_record_as_costs(pair: Pair, tmp_path: Path) -> None:
    grid = Grid(lengths=(1, 4), batches=(1, 2), nodes=(0,), context=16)
    record = write_latency(pair, tmp_path / "latency.json", grid=grid, seconds=0.0, any_load=True)
    costs = read_costs(tmp_path / "latency.json")
    assert (costs.batches, costs.contexts, costs.tokens) == ((1, 2), (16,), (1, 4))
    cost = costs.at(batch=2, context=16, length=3)
    assert cost.target == record["passes"]["target"][1][1]["median"]
    assert cost.draft == record["passes"]["draft"][0][1]["median"]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (Grid(lengths=(1, 2)), "length 4"),
        (Grid(context=0), "at least 1"),
        (Grid(context=511), "positions"),
        (Grid(nodes=(0, 5000)), "5000 nodes"),
    ],
)
def test_grids_that_do_not_fit_are_refused(pair: Pair, grid: Grid, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        measure_latency(pair, grid, seconds=0.0)


def test_each_cell_times_its_own_tokens_and_nothing_else(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that advances by the tokens sent through either model, each cell's time is known
    exactly.
    """
    clock = [0.0]

    def advance(_: object, __: object, keywords: dict[str, Any]) -> None:
        clock[0] += keywords["input_ids"].numel()

    hooks = [
        model.register_forward_pre_hook(advance, with_kwargs=True)
        for model in (pair.draft, pair.target)
    ]
    monkeypatch.setattr(
        "analysis.models.latency.time", SimpleNamespace(perf_counter=lambda: clock[0])
    )
    grid = Grid(lengths=(3, 4), batches=(1, 2), nodes=(0, 1, 6), context=8)
    record = measure_latency(pair, grid, seconds=0.0, least=1)
    for hook in hooks:
        hook.remove()
    for side in ("draft", "target"):
        assert [[cell["median"] for cell in row] for row in record["passes"][side]] == [
            [3, 6],
            [4, 8],
        ]
        assert [[cell["median"] for cell in row] for row in record["relative"][side]] == [
            [0.75, 1.5],
            [1, 2],
        ]
        # the root and the drafted nodes
        assert [cell["median"] for cell in record["tree"][side]] == [
            1,
            2,
            7,
        ]
    assert record["rounds"] == 1


def test_command_writes_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "latency.json"
    latency(
        out=out,
        lengths="2,4",
        batches="1,8",
        context=4,
        nodes="0,2",
        seconds=0.0,
        device="cpu",
        any_load=True,
    )
    shown = capsys.readouterr().out
    assert "batch = 8" in shown
    assert shown.count("length = 4") == 2
    assert json.loads(out.read_text(encoding="utf-8"))["lengths"] == [2, 4]
    with pytest.raises(AnalysisError, match="length 4"):
        latency(out=out, lengths="1,2", any_load=True)
