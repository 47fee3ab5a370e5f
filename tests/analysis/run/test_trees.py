"""What is written of trees to a run's folder, and what its report shows."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from analysis.report.aggregate import aggregate
from analysis.report.plans import plans_of
from analysis.report.reading import open_run
from analysis.report.write import write_report
from analysis.run.manifest import read_manifest
from analysis.run.merge import merge
from analysis.run.trees import write_trees
from tests.analysis.report.synthetic_run import write_run


def test_a_run_keeps_its_trees_and_its_report_shows_them(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", prompts=6, positions=8, ks=(1, 2, 4), bounds=True)
    found = write_trees(folder, read_manifest(folder))
    assert [one.setting["temperature"] for one in found] == [0.7, 1.0]
    table = pq.read_table(folder / "shards").to_pandas()
    here = table[table.temperature == 1.0]
    sampled = next(one for one in found[1].schemes if one.scheme == "RecursiveRejection()")
    first, second = (here[f"recursive_rejection_iid_k{k}"].mean() for k in (1, 2))
    last = here.recursive_rejection_iid_k4.mean()
    assert sampled.ks == (1, 2, 4)
    assert sampled.acceptance == pytest.approx(
        [first, second - first, (last - second) / 2, (last - second) / 2]
    )
    assert sampled.rows[1].tokens.value == pytest.approx(1 + max(second, first + first**2))
    assert (found[1].positions, found[1].prompts) == (48, 6)
    assert all(
        row.tokens.low <= row.tokens.value <= row.upper.value <= row.upper.high
        for row in sampled.rows
    )  # type: ignore[operator]
    record = json.loads((folder / "trees.json").read_text())
    assert (
        record["settings"][1]["schemes"][0]["rows"][6]["tokens"]["value"]
        == found[1].schemes[0].rows[6].tokens.value
    )
    merge([folder], tmp_path / "merged")
    assert json.loads((tmp_path / "merged" / "trees.json").read_text()) == record
    shown = write_report(folder)
    row = found[1].schemes[0].rows[6]
    for text in (
        shown.markdown.read_text(encoding="utf-8"),
        shown.html.read_text(encoding="utf-8"),
    ):
        assert row.tokens.words(3) in text and row.upper.words(3) in text
    assert row.upper.words(3) in str(
        found[1]
    ) and "every vertex as the mean of 48 positions" in str(found[1])
    unasked = write_run(tmp_path / "unasked", prompts=2, positions=3)
    assert (
        write_trees(unasked, read_manifest(unasked)) == () and not (unasked / "trees.json").exists()
    )
    assert "What trees win" not in write_report(unasked).markdown.read_text(encoding="utf-8")


def test_plans_and_trees_agree_where_numbers_of_drafts_are_missing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ks=(1, 2, 4, 8), temperatures=(1.0,), bounds=True)
    run = open_run(folder)
    plans = [plan for plan in plans_of(run, aggregate(run), 0, 2.0).all if plan.kind == "ranks"]
    schemes = write_trees(folder, read_manifest(folder))[0].schemes
    for scheme in schemes:
        mine = [plan for plan in plans if plan.verifier.startswith(scheme.label)]
        assert mine
        for row in scheme.rows:
            tokens = max(plan.tokens for plan in mine if plan.nodes <= row.nodes)
            assert tokens == pytest.approx(row.tokens.value, abs=2e-9) and tokens <= row.upper.value
