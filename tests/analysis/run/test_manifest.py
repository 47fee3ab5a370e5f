"""Manifests of earlier schemas: what their columns are today."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.errors import AnalysisError
from analysis.report.reading import open_run
from analysis.report.summary import schemes_of
from analysis.report.write import write_report
from analysis.run.manifest import SCHEMA, read_manifest
from analysis.run.shards import encode_shard, read_shard, shard_path
from otm.table import table_columns

FIRST = Path(__file__).parent / "first_schema.json"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run as the first schema had it: the manifest names its columns as the shards do, and labels
    the schemes.
    """
    folder = tmp_path / "run"
    (folder / "shards").mkdir(parents=True)
    shutil.copy(FIRST, folder / "manifest.json")
    record = json.loads(FIRST.read_text(encoding="utf-8"))
    names = [entry["column"] for entry in record["schemes"] + record["statistics"]]
    for shard in range(2):
        rng = np.random.default_rng(shard)
        columns = {
            "prompt": np.full(5, shard),
            "position": np.arange(5),
            "temperature": np.ones(5),
            "top_p": np.ones(5),
        }
        columns |= {name: rng.random(5) for name in names}
        shard_path(folder, shard).write_bytes(
            encode_shard(columns, {"shard": shard, "settings": {}})
        )
    pq.write_table(
        pa.table({"prompt": [0, 1], "name": ["a", "b"], "text": ["", ""]}),
        folder / "prompts.parquet",
    )
    return folder


def test_columns_of_the_first_schema_have_today_s_identities(run: Path) -> None:
    found = read_manifest(run)
    assert found["schema_version"] == SCHEMA == 2
    assert [
        (
            e["column"],
            e["scheme"],
            e["label"],
            e["law"],
            e["k"],
            e["lossless"],
            e["optimum_column"],
            e["definition"],
        )
        for e in found["schemes"]
    ] == [
        (c.name, c.scheme, c.label, c.law, c.k, c.lossless, c.optimum, c.definition)
        for c in table_columns((1, 2))
        if c.law != "ThresholdRace"  # younger than the schema
    ]


def test_identities_are_what_the_first_schema_measured(run: Path) -> None:
    """Defaults may change; what such a run holds does not. If this fails, `_from_first_schema` has
    to name the old ones.
    """
    assert {e["scheme"] for e in read_manifest(run)["schemes"]} == {
        "optimum",
        "KSeq(gamma=None)",
        "RecursiveRejection()",
        "NaiveTree()",
        "Naive()",
        "ListRace()",
        "Maximal()",
        "Race()",
        "MinHash()",
        "GreedyOptimal()",
        "SpecHub()",
        "Poisson representation bound",
        "Lenience(lenience=0.5, residual='plain')",
        "TypicalAcceptance(eps=0.09, delta=0.3)",
        "Fuzzy(threshold=0.1, divergence='js', fallback='target')",
    }


def test_a_column_that_nobody_knows_keeps_its_label(run: Path) -> None:
    record = json.loads(FIRST.read_text(encoding="utf-8"))
    record["schemes"][0] |= {"column": "own_k1", "scheme": "my own", "law": "Own"}
    (run / "manifest.json").write_text(json.dumps(record), encoding="utf-8")
    entry = read_manifest(run)["schemes"][0]
    assert (entry["column"], entry["scheme"], entry["label"], entry["law"]) == (
        "own_k1",
        "my own",
        "my own",
        "Own",
    )


def test_a_report_reads_the_shards_of_the_first_schema(run: Path, tmp_path: Path) -> None:
    opened = open_run(run)
    assert "naive (top k)" in {scheme.label for scheme in schemes_of(opened)}
    stored = read_shard(shard_path(run, 0))[0]["naive_top_k_k2"]
    first = next(iter(opened.batches(["prompt", "naive_top_k_k2"])))
    np.testing.assert_array_equal(first["naive_top_k_k2"], stored)
    summary = write_report(run, out=tmp_path / "out").markdown.read_text(encoding="utf-8")
    mean = np.mean([read_shard(shard_path(run, shard))[0]["naive_top_k_k2"] for shard in range(2)])
    assert f"{mean:.4f}" in next(
        line for line in summary.splitlines() if line.startswith("| naive (top k)")
    )


def test_entries_that_are_no_objects_are_refused(run: Path) -> None:
    for schema in (1, 2):
        (run / "manifest.json").write_text(
            json.dumps({"schema_version": schema, "schemes": ["kseq"]}), encoding="utf-8"
        )
        with pytest.raises(AnalysisError, match="'schemes' is not a list of objects"):
            read_manifest(run)
