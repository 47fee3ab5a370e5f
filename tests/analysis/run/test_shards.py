"""Shards on disk: read as they were written, held by one process, never changed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.errors import AnalysisError
from analysis.files import write_atomically
from analysis.run import shards

COLUMNS = {"prompt": np.arange(4), "value": np.linspace(0.0, 1.0, 4)}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shard-00000.parquet"
    write_atomically(path, shards.encode_shard(COLUMNS, {"threads": 2}))
    columns, metadata = shards.read_shard(path)
    assert metadata == {"threads": 2}
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(columns[name], values)
    assert shards.encode_shard(COLUMNS, {"threads": 2}) == path.read_bytes()
    assert shards.encode_shard(COLUMNS, {"threads": 1}) != path.read_bytes()


def test_one_process_at_a_time_and_no_litter(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "shard-00000.parquet.partial").write_text("killed here")
    with shards.exclusive(tmp_path):
        assert not list((tmp_path / "shards").iterdir())
        with pytest.raises(AnalysisError, match="another one"), shards.exclusive(tmp_path):
            pass
    with shards.exclusive(tmp_path):
        pass


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    path = tmp_path / "shard-00000.parquet"
    path.write_bytes(shards.encode_shard(COLUMNS, {})[:-20])
    with pytest.raises(AnalysisError, match="shard-00000"):
        shards.read_shard(path)


def test_what_has_lost_its_digest_is_no_shard(tmp_path: Path) -> None:
    """Damage can take the digest away with the metadata, and what is left be readable."""
    path = tmp_path / "shard-00000.parquet"
    pq.write_table(pa.table({"prompt": [0, 1], "value": [0.1, 0.2]}), path)
    with pytest.raises(AnalysisError, match="not what was written"):
        shards.inspect_shard(path)
