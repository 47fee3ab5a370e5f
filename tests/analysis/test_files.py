"""Files appear whole or not at all, and clear words say why one cannot be written."""

import hashlib
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from analysis import files
from analysis.errors import AnalysisError


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    files.write_atomically(path, b"first")
    with pytest.raises(RuntimeError), files.open_atomically(path) as file:
        file.write(b"second, half wri")
        raise RuntimeError
    assert path.read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path):
    """A child process that may write 1,000 bytes per file stands for a disk without room."""
    path = tmp_path / "file"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                files.write_atomically(path, bytes(100_000))
            except AnalysisError as error:
                status = 0 if "free disk space" in str(error) and "kept" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert not list(tmp_path.iterdir())


def test_an_unwritable_place_is_told(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(AnalysisError, match=r"The folder cannot be made; choose another --out\."):
        files.make_folder(tmp_path / "file" / "run")
    error = OSError(30, "Read-only file system")
    assert "Choose another --out" in files.explain_write_error(error, tmp_path)


def test_what_is_no_file_is_not_read(tmp_path):
    """A pipe without a writer, a folder, and what the kernel offers as a file of size 0, whose end
    may never come.
    """
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none"):
        with pytest.raises(OSError, match="no regular file"):
            files.read_small(path, 10)
    assert files.read_small(Path("/proc/self/status"), 10) == b""
    (tmp_path / "large").write_bytes(bytes(11))
    with pytest.raises(ValueError, match="larger than 10"):
        files.read_small(tmp_path / "large", 10)


def test_the_digest_is_that_of_names_and_bytes():
    """SHA-256 of what a file says of itself, and of each column's name and bytes."""
    column = np.arange(3.0)
    expected = hashlib.sha256(b"{}" + hashlib.sha256(b"a" + column.tobytes()).digest()).hexdigest()
    assert files.content_digest(b"{}", ["a"], [{"a": column}]) == expected
    changed = column.copy()
    changed[1] = np.nextafter(1.0, 2.0)
    assert files.content_digest(b"{}", ["a"], [{"a": changed}]) != expected
    assert files.content_digest(b"{}", ["b"], [{"b": column}]) != expected
