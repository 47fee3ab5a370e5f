"""The record of measured latencies: complete, relative to the cell that SpecTr divides by, and with
its origin.
"""

import json
from types import SimpleNamespace

import pytest

from analysis.commands.latency import latency
from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.models.latency import Grid, measure_latency
from analysis.provenance import weights_digest
from otm.engines import read_costs


def test_the_command_writes_a_record_that_plans_read(tmp_path, capsys):
    """One round of a small grid: every cell is there and positive, and the tables are relative to
    the target's (4, 1).
    """
    out, words = tmp_path / "latency.json", {"device": "cpu", "seconds": 0.0, "any_load": True}
    latency(out=out, lengths=[1, 4], batch_sizes=[1, 2], cached_tokens=16, nodes=[0, 3], **words)
    shown, record = capsys.readouterr().out, json.loads(out.read_text(encoding="utf-8"))
    assert "batch = 2" in shown and shown.count("length = 4") == 2
    unit = record["passes"]["target"][1][0]["median"]
    assert record["relative"]["target"][1][0]["median"] == 1.0
    for side in ("draft", "target"):
        assert [len(row) for row in (record["tree"][side], *record["passes"][side])] == [2, 2, 2]
        for seconds, relative in zip(record["passes"][side], record["relative"][side], strict=True):
            for left, right in zip(seconds, relative, strict=True):
                assert 0 < left["low"] <= left["median"] <= left["high"]
                assert right["median"] == pytest.approx(left["median"] / unit)
    assert record["draft_step"] == record["tree"]["draft"][0]
    manifest, digest = record["manifest"], weights_digest(str(SHIPPED_PAIR / "target"))
    assert manifest["models"]["target"] == {"name": "target", "sha256": digest}
    said = {"device", "threads", "load average before", "versions", "processor", "revision"}
    assert said <= manifest.keys() and str(SHIPPED_PAIR.parent) not in json.dumps(manifest)
    costs = read_costs(out)
    assert (costs.batches, costs.contexts, costs.tokens) == ((1, 2), (16,), (1, 4))
    cost = costs.at(batch=2, context=16, length=3)
    assert cost.target == record["passes"]["target"][1][1]["median"]
    assert cost.draft == record["passes"]["draft"][0][1]["median"]
    with pytest.raises(AnalysisError, match="length 4"):
        latency(out=out, lengths=[1, 2], any_load=True)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (Grid(lengths=(1, 2)), "length 4"),
        (Grid(context=0), "at least 1"),
        (Grid(context=511), "positions"),
        (Grid(nodes=(0, 5000)), "5000 nodes"),
    ],
)
def test_grids_that_do_not_fit_are_refused(pair, grid, message):
    with pytest.raises(AnalysisError, match=message):
        measure_latency(pair, grid, seconds=0.0)


def test_each_cell_times_its_own_tokens_and_nothing_else(pair, monkeypatch):
    """With a clock that advances by the tokens sent through either model, each cell's time is known
    exactly.
    """
    clock = [0.0]

    def advance(_, __, keywords):
        clock[0] += keywords["input_ids"].numel()

    models = (pair.draft, pair.target)
    hooks = [model.register_forward_pre_hook(advance, with_kwargs=True) for model in models]
    fake = SimpleNamespace(perf_counter=lambda: clock[0])
    monkeypatch.setattr("analysis.models.latency.time", fake)
    grid = Grid(lengths=(3, 4), batches=(1, 2), nodes=(0, 1, 6), context=8)
    record = measure_latency(pair, grid, seconds=0.0, least=1)
    for hook in hooks:
        hook.remove()
    for side in ("draft", "target"):
        for name, expected in (
            ("passes", [[3, 6], [4, 8]]),
            ("relative", [[0.75, 1.5], [1, 2]]),
        ):
            medians = [[cell["median"] for cell in row] for row in record[name][side]]
            assert medians == expected
        # the root and the drafted nodes
        assert [cell["median"] for cell in record["tree"][side]] == [1, 2, 7]
    assert record["rounds"] == 1
