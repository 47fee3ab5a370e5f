"""Shards say which run they are of, and every reader believes that instead of a file's name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.errors import AnalysisError
from analysis.models.prompts import open_prompts
from analysis.models.source import PairSource
from analysis.report.reading import open_run
from analysis.run.identity import run_identity
from analysis.run.merge import merge
from analysis.run.runs import measure_prompts, measure_trace_file
from analysis.run.settings import Settings
from analysis.run.shards import encode_shard, read_shard, shard_path
from analysis.trace.traces import open_trace
from tests.analysis.traces_for_tests import SETTINGS, write_small_trace


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of four shards, one of another trace at the same settings, and the
    traces.
    """
    folder = tmp_path_factory.mktemp("identity")
    for seed, name in enumerate(("run", "other")):
        trace = write_small_trace(folder / f"{name}.safetensors", positions=30, seed=seed)
        measure_trace_file(folder / name, trace=trace, settings=SETTINGS)
    return folder


@pytest.fixture
def run(measured: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(measured / "run", tmp_path / "run"))


READERS: dict[str, Callable[[Path, Path], object]] = {
    "report": lambda run, measured: open_run(run),
    "merge": lambda run, measured: merge([run], run.parent / "merged"),
    "measure": lambda run, measured: measure_trace_file(
        run, trace=measured / "run.safetensors", settings=SETTINGS
    ),
}


def edit(run: Path, change: Callable[[dict], object]) -> None:
    record = json.loads((run / "manifest.json").read_text())
    change(record)
    (run / "manifest.json").write_text(json.dumps(record))


def swap_schemes(record: dict) -> None:
    """Say of one column that it is another's scheme: the numbers stay, what they mean does not."""
    schemes = record["schemes"]
    schemes[0]["column"], schemes[1]["column"] = schemes[1]["column"], schemes[0]["column"]


def tamper(path: Path) -> None:
    """Change one value and leave the metadata as they are."""
    table = pq.read_table(path)
    place = table.column_names.index("tv_upper")
    values = table["tv_upper"].to_numpy().copy()
    values[0] += 2.0**-40
    pq.write_table(table.set_column(place, "tv_upper", pa.array(values)), path)


FAULTS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "copy": (
        lambda run, measured: shutil.copy(shard_path(run, 0), shard_path(run, 2)),
        r"shard-00002\.parquet .*says shard 0",
    ),
    "other prompts": (
        lambda run, measured: shutil.copy(shard_path(measured / "other", 1), shard_path(run, 1)),
        r"shard-00001\.parquet .*another manifest",
    ),
    "an index too many": (
        lambda run, measured: shutil.copy(shard_path(run, 0), shard_path(run, 4)),
        r"shard-00004\.parquet .*4 shards",
    ),
    "edited settings": (
        lambda run, measured: edit(run, lambda record: record["settings"].update(k=[1, 3])),
        r"shard-00000\.parquet .*settings \['k'\] differ",
    ),
    "edited meaning": (
        lambda run, measured: edit(run, swap_schemes),
        r"shard-00000\.parquet .*another manifest",
    ),
    "truncated": (
        lambda run, measured: shard_path(run, 1).write_bytes(shard_path(run, 1).read_bytes()[:-30]),
        r"shard-00001\.parquet .*read",
    ),
    "empty": (
        lambda run, measured: shard_path(run, 3).write_bytes(b""),
        r"shard-00003\.parquet .*read",
    ),
    "changed": (
        lambda run, measured: tamper(shard_path(run, 2)),
        r"shard-00002\.parquet .*not what was written",
    ),
    "another name": (
        lambda run, measured: shutil.copy(shard_path(run, 0), run / "shards" / "shard-foo.parquet"),
        r"shard-foo\.parquet.*Remove it",
    ),
    "an alias": (
        lambda run, measured: shutil.copy(
            shard_path(run, 0), run / "shards" / "shard-000000.parquet"
        ),
        r"shard-000000\.parquet.*Remove it",
    ),
    "a link": (
        lambda run, measured: (
            shard_path(run, 1).unlink(),
            shard_path(run, 1).symlink_to(shard_path(measured / "run", 1)),
        ),
        r"shard-00001\.parquet.*link",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("reader", READERS)
def test_what_does_not_belong_is_named_and_nothing_is_written(
    reader: str, fault: str, run: Path, measured: Path
) -> None:
    make, message = FAULTS[fault]
    make(run, measured)
    before = {
        path: path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    with pytest.raises(AnalysisError, match=message):
        READERS[reader](run, measured)
    assert before == {
        path: path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    assert not (run.parent / "merged").exists()


@pytest.mark.parametrize("reader", ["report", "merge", "measure"])
def test_a_pipe_for_a_shard_is_not_waited_for(reader: str, run: Path, measured: Path) -> None:
    shard_path(run, 1).unlink()
    os.mkfifo(shard_path(run, 1))
    with pytest.raises(AnalysisError, match=r"shard-00001\.parquet"):
        READERS[reader](run, measured)


def test_a_shard_that_names_no_run_is_refused(run: Path, measured: Path) -> None:
    columns, about = read_shard(shard_path(run, 2))
    del about["run"]
    shard_path(run, 2).write_bytes(encode_shard(columns, about))
    for read in READERS.values():
        with pytest.raises(AnalysisError, match=r"shard-00002\.parquet .*not say of which run"):
            read(run, measured)


def test_parts_that_were_allowed_to_differ_stay_one_run(measured: Path, tmp_path: Path) -> None:
    """Each part's shards keep the identity of their own manifest; the merged one lists them, until
    it is edited.
    """
    parts = [tmp_path / name for name in "abc"]
    for index, part in enumerate(parts):
        share = range(index, index + 1)
        measure_trace_file(part, trace=measured / "run.safetensors", settings=SETTINGS, share=share)
        columns, about = read_shard(shard_path(part, index))
        edit(part, lambda record, index=index: record["provenance"].update(num_tokens=64 + index))
        about["run"] = run_identity(json.loads((part / "manifest.json").read_text()))
        shard_path(part, index).write_bytes(encode_shard(columns, about))
    out, allow = tmp_path / "merged", ["provenance.num_tokens"]
    assert merge(parts[:2], out, allow=allow).finished == 2
    assert merge(parts[2:], out, allow=allow).finished == 3
    assert merge([out], tmp_path / "again").finished == 3
    assert len(open_run(tmp_path / "again").shards) == 3
    edit(out, swap_schemes)
    with pytest.raises(AnalysisError, match="another manifest"):
        open_run(out)


@pytest.fixture(scope="module")
def with_logits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of other prompts that keep their logits, and the prompts."""
    folder = tmp_path_factory.mktemp("logits")
    for name, texts in (
        ("run", "Return the number.\nIf True, sort.\n"),
        ("other", "Raises an error.\nAn array of bytes.\n"),
    ):
        (folder / f"{name}.txt").write_text(texts)
        keep(folder / name)
    return folder


def keep(run: Path, prompts: Path | None = None) -> object:
    settings = Settings(k=(1,), shard_prompts=1, max_tokens=6, save_logits=4)
    source = open_prompts(prompts or run.with_suffix(".txt"))
    return measure_prompts(run, source=source, models=PairSource(device="cpu"), settings=settings)


def logits(run: Path, index: int) -> Path:
    return run / "logits" / f"shard-{index:05d}.safetensors"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda run, other: shutil.copy(logits(other, 1), logits(run, 1)),
            r"shard-00001\.safetensors .*another manifest",
        ),
        (
            lambda run, other: shutil.copy(logits(run, 0), logits(run, 1)),
            r"shard-00001\.safetensors .*says shard 0",
        ),
        (
            lambda run, other: flip(logits(run, 1)),
            r"shard-00001\.safetensors is not what was written",
        ),
        (
            lambda run, other: shorten_list(run / "logits" / "trace.json"),
            r"trace\.json must give a digest for each",
        ),
    ],
    ids=["other run", "copy", "flipped", "list"],
)
def test_logits_that_are_not_of_the_run_are_refused_by_every_reader(
    with_logits: Path, tmp_path: Path, spoil: Callable[[Path, Path], object], message: str
) -> None:
    run = Path(shutil.copytree(with_logits / "run", tmp_path / "run"))
    spoil(run, with_logits / "other")
    with pytest.raises(AnalysisError, match=message):
        keep(run, with_logits / "run.txt")
    with pytest.raises(AnalysisError, match=message):
        merge([run], tmp_path / "merged")
    with pytest.raises(AnalysisError, match=r"shard-00001|trace\.json"):
        open_trace(run / "logits")


def test_logits_that_are_gone_are_measured_again(with_logits: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(with_logits / "run", tmp_path / "run"))
    logits(run, 1).unlink()
    (run / "logits" / "trace.json").unlink()
    keep(run, with_logits / "run.txt")
    for path in (with_logits / "run").rglob("*"):
        if path.parent.name in ("shards", "logits"):
            assert path.read_bytes() == (run / path.relative_to(with_logits / "run")).read_bytes()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def shorten_list(path: Path) -> None:
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"files": record["files"][:1]}))
