"""Shards on disk: whole or absent, never changed, and clear words when they cannot be written."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from analysis.errors import AnalysisError
from analysis.run import shards

COLUMNS = {"prompt": np.arange(4), "value": np.linspace(0.0, 1.0, 4)}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shard-00000.parquet"
    shards.write_atomically(path, shards.encode_shard(COLUMNS, {"threads": 2}))
    columns, metadata = shards.read_shard(path)
    assert metadata == {"threads": 2}
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(columns[name], values)
    assert shards.encode_shard(COLUMNS, {"threads": 2}) == path.read_bytes()
    assert shards.encode_shard(COLUMNS, {"threads": 1}) != path.read_bytes()


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    shards.write_atomically(path, b"first")
    with pytest.raises(RuntimeError), shards.appearing(path) as file:
        file.write(b"second, half wri")
        raise RuntimeError
    assert path.read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    """A child process that may write 1,000 bytes per file stands for a disk without room."""
    path = tmp_path / "shard-00000.parquet"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                shards.write_atomically(path, bytes(100_000))
            except AnalysisError as error:
                status = 0 if "free disk space" in str(error) and "kept" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert not list(tmp_path.iterdir())


def test_an_unwritable_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(AnalysisError, match=r"The folder cannot be made; choose another --out\."):
        shards.make_folder(tmp_path / "file" / "run")
    error = OSError(30, "Read-only file system")
    assert "Choose another --out" in shards._explain(error, tmp_path)


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
