"""Files appear whole or not at all, and clear words say why one cannot be written.

A reader refuses a damaged file in words that name it, or answers as if it were whole where a digest
protects it.
"""

import hashlib
import json
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import otm
from analysis import files
from analysis.decode.results import ResultsFile, Task, TextRecord, open_results, prompt_name
from analysis.errors import AnalysisError
from analysis.models.prompts import open_prompts, prompts
from analysis.report.reading import read_prompts
from analysis.run.runs import measure_trace_file
from analysis.run.shards import read_shard, shard_path
from analysis.trace.traces import open_trace
from analysis.train.pair_training import recipe_from_json
from otm.audit.token_log import read_log
from tests.analysis.report.synthetic_run import write_run
from tests.analysis.traces_for_tests import SETTINGS, write_small_trace
from tests.damage import damaged


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


TYPED = (AnalysisError, otm.OtmError)


def make_log(path):
    law = [0.25, 0.5, 0.125, 0.125]
    lines = [{"context": "a", "drafts": [i % 4], "output": i % 3, "target": law} for i in range(6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_results(path):
    file = ResultsFile(path, settings={"num_tokens": 8}, provenance={"host": "here"})
    for decoder in ("SpeculativeSampling(3)", "DraftSelection(4, 2)"):
        task = Task(decoder, prompt_name([1]), 0)
        file.append(TextRecord(task, (5, 6, 7, 8), (3, 1), (2, 0), (2, 0), 3, False, 0.25))


def make_recipe(path):
    size = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "learning_rate": 0.01}
    sizes = {side: size | {"steps": 12} for side in ("draft", "target")}
    path.write_text(json.dumps({"vocabulary": 300, "context": 16, "batch": 2} | sizes))


def make_shard(path):
    trace = write_small_trace(path.with_name("trace.safetensors"), positions=30)
    run = path.with_name("run")
    measure_trace_file(run, trace=trace, settings=SETTINGS)
    path.write_bytes(shard_path(run, 0).read_bytes())


def make_prompts(path):
    write_run(path.parent / "whole", prompts=2, ks=(1,), positions=2)
    path.write_bytes((path.parent / "whole" / "prompts.parquet").read_bytes())


def read_trace(path):
    return [np.asarray(batch.position).tolist() for batch in open_trace(path).batches(rows=8)]


READERS = {
    "log.jsonl": (make_log, lambda path: [one.output for one in read_log(path)], False),
    "results.jsonl": (make_results, lambda path: len([*open_results(path)[1]]), False),
    "recipe.json": (make_recipe, lambda path: recipe_from_json(path).batch, False),
    "prompts.jsonl": (
        lambda path: path.write_text('{"id": 1, "text": "one"}\n{"id": 2, "text": "two"}\n'),
        lambda path: [prompt.text for prompt in prompts(open_prompts(path))],
        False,
    ),
    "prompts.parquet": (
        lambda path: pq.write_table(pa.table({"text": ["one", "two"]}), path),
        lambda path: [prompt.text for prompt in prompts(open_prompts(path))],
        False,
    ),
    "run/prompts.parquet": (
        make_prompts,
        lambda path: read_prompts(SimpleNamespace(folder=path.parent), [0, 1]),
        False,
    ),
    "trace.safetensors": (lambda path: write_small_trace(path, positions=20), read_trace, True),
    "shard-00000.parquet": (make_shard, lambda path: str(read_shard(path)), True),
}


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory):
    """The bytes of each file, and the answer of its reader."""
    found = {}
    for name, (make, read, _) in READERS.items():
        path = tmp_path_factory.mktemp("files") / name
        path.parent.mkdir(exist_ok=True)
        make(path)
        found[name] = path.read_bytes(), read(path)
    return found


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_a_damaged_file_is_refused_or_read(name, undamaged, tmp_path, draw):
    (data, expected), (_, read, protected) = undamaged[name], READERS[name]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(draw.draw(damaged(data)))
    try:
        found = read(path)
    except TYPED as error:
        assert path.stem in str(error) and len(str(error)) < 4_000
    else:
        assert not protected or found == expected
