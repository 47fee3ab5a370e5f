"""Manifests that cannot be of a run are refused."""

import json
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.run.manifest import SCHEMA, read_manifest


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"schema_version": SCHEMA, "schemes": ["kseq"]}, "'schemes' is not a list of objects"),
        ({"schema_version": SCHEMA, "statistics": 3}, "'statistics' is not a list of objects"),
        ({"schema_version": SCHEMA - 1}, "schema_version is 1, this version reads 2"),
        ([], "schema_version is None"),
    ],
)
def test_what_describes_no_run_of_this_version_is_refused(
    tmp_path: Path, record: object, message: str
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(AnalysisError, match=message):
        read_manifest(tmp_path)
