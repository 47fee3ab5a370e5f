"""Parts of one run: every shard says which run it is of, and every reader believes that instead of
a file's name; runs of several machines are merged, or refused with a place if they are not one run.
"""

import json
import os
import shutil
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
from analysis.run.shards import encode_shard, exclusive, read_shard, shard_path
from analysis.trace.traces import open_trace
from tests.analysis.traces_for_tests import SETTINGS, write_small_trace

SHARES = {"run": None, "left": range(2), "right": range(1, 3), "other": None}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with a run of four shards, two parts of it with one shard in common, one of another
    trace at the same settings, and the traces.
    """
    folder = tmp_path_factory.mktemp("identity")
    traces = [
        write_small_trace(folder / f"{seed}.safetensors", positions=30, seed=seed)
        for seed in range(2)
    ]
    for name, share in SHARES.items():
        trace = traces[name == "other"]
        measure_trace_file(folder / name, trace=trace, settings=SETTINGS, share=share)
    return folder


@pytest.fixture
def parts(measured, tmp_path):
    """Copies of all that may be changed."""
    return {name: shutil.copytree(measured / name, tmp_path / name) for name in SHARES}


def edit(run, *keys, to):
    """Write one field of a manifest anew."""
    record = json.loads((run / "manifest.json").read_text())
    place = record
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    (run / "manifest.json").write_text(json.dumps(record))


def rewrite(path, *, about=None, **columns):
    """Write a shard anew with other columns, or another word of itself."""
    held, said = read_shard(path)
    path.write_bytes(encode_shard(held | columns, said | (about or {})))


def tamper(path):
    """Change one value and leave the metadata as they are."""
    table = pq.read_table(path)
    values = table["tv_upper"].to_numpy() + 2.0**-40
    place = table.column_names.index("tv_upper")
    pq.write_table(table.set_column(place, "tv_upper", pa.array(values)), path)


def bare(path):
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)


def unnamed(path):
    columns, about = read_shard(path)
    del about["run"]
    path.write_bytes(encode_shard(columns, about))


READERS = {
    "report": lambda run, measured: open_run(run),
    "merge": lambda run, measured: merge([run], run.parent / "merged"),
    "measure": lambda run, measured: measure_trace_file(
        run, trace=measured / "0.safetensors", settings=SETTINGS
    ),
}
FAULTS = {
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
        lambda run, measured: edit(run, "settings", "k", to=[1, 3]),
        r"shard-00000\.parquet .*settings \['k'\] differ",
    ),
    "edited meaning": (  # of numbers that stay
        lambda run, measured: edit(run, "schemes", 0, "scheme", to="KSeq()"),
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
    "without a digest": (  # which damage can take away with the metadata
        lambda run, measured: bare(shard_path(run, 2)),
        r"shard-00002\.parquet .*not what was written",
    ),
    "of no run": (
        lambda run, measured: unnamed(shard_path(run, 2)),
        r"shard-00002\.parquet .*not say of which run",
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
    "a pipe": (
        lambda run, measured: (shard_path(run, 1).unlink(), os.mkfifo(shard_path(run, 1))),
        r"shard-00001\.parquet",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("reader", READERS)
def test_what_does_not_belong_is_named_and_nothing_is_written(reader, fault, measured, tmp_path):
    run = Path(shutil.copytree(measured / "run", tmp_path / "run"))
    make, message = FAULTS[fault]
    make(run, measured)

    def content():
        paths = [path for path in run.rglob("*") if path.is_file() and path.name != ".lock"]
        return {path: path.read_bytes() for path in paths}

    before = content()
    with pytest.raises(AnalysisError, match=message):
        READERS[reader](run, measured)
    assert content() == before and not (run.parent / "merged").exists()


def test_one_process_at_a_time_and_no_litter(tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "shard-00000.parquet.partial").write_text("killed here")
    for _ in range(2):
        with exclusive(tmp_path):
            assert not list((tmp_path / "shards").iterdir())
            with pytest.raises(AnalysisError, match="another one"), exclusive(tmp_path):
                pass


# ---- merging -------------------------------------------------------------------------------------


def test_parts_make_the_whole(parts, tmp_path):
    out = tmp_path / "merged"
    assert merge([parts["left"], parts["right"]], out).missing == (3,)
    assert merge([parts["run"]], out).missing == ()
    for index in range(4):
        whole = shard_path(parts["run"], index).read_bytes()
        assert shard_path(out, index).read_bytes() == whole
    assert len(json.loads((out / "manifest.json").read_text())["provenance"]["merged_from"]) == 2


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("provenance", "versions", "numpy"), "1.0"),
        (("provenance", "revision"), "another"),
        (("settings", "k"), [1, 2, 3]),
        (("settings", "threads"), 7),
    ],
    ids=str,
)
def test_another_provenance_is_refused_and_said_where(parts, tmp_path, keys, value):
    edit(parts["right"], *keys, to=value)
    with pytest.raises(AnalysisError, match=".".join(keys)):
        merge([parts["left"], parts["right"]], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_named_difference_may_be_allowed_and_when_and_where_does_not_matter(parts, tmp_path):
    two = [parts["left"], parts["right"]]
    for key in ("processor", "host", "argv", "created"):
        edit(parts["right"], "provenance", key, to="another")
    with pytest.raises(AnalysisError, match=r"provenance\.processor"):
        merge(two, tmp_path / "merged")
    assert merge(two, tmp_path / "merged", allow=["provenance.processor"]).finished == 3


def test_a_changed_label_stops_neither_resuming_nor_merging_and_a_changed_scheme_does(
    parts, measured, tmp_path
):
    left, trace = parts["left"], {"trace": measured / "0.safetensors", "settings": SETTINGS}
    edit(left, "schemes", 0, "label", to="the optimum")
    assert measure_trace_file(left, **trace, share=range(2, 3)).written == 1
    assert merge([left, parts["right"]], tmp_path / "merged").finished == 3
    edit(left, "schemes", 0, "scheme", to="another")
    with pytest.raises(AnalysisError, match="schemes"):
        merge([left, parts["right"]], tmp_path / "apart")


def test_two_versions_of_a_shard_are_refused(parts, tmp_path):
    path = shard_path(parts["right"], 1)
    rewrite(path, tv_upper=read_shard(path)[0]["tv_upper"] + 2.0**-40)
    with pytest.raises(AnalysisError, match=r"shard 1 differs .* in column tv_upper"):
        merge([parts["left"], parts["right"]], tmp_path / "merged")


def test_what_is_no_part_of_the_output_is_refused(parts, tmp_path):
    whole, other, out = parts["run"], parts["other"], tmp_path / "merged"
    holds = r"--out holds another run; choose another folder\..*settings\.trace\.sha256"
    for runs, place, message in (
        ([parts["left"], parts["right"]], other, holds),
        ([parts["left"], other], parts["right"], "Parts of one run"),
        ([], out, "at least one run"),
        ([tmp_path], out, r"manifest\.json"),
        ([whole], whole, "into itself"),
        ([whole], tmp_path / "\ud800", "."),  # half a surrogate pair names no file
    ):
        with pytest.raises(AnalysisError, match=message):
            merge(runs, place)


def test_parts_that_were_allowed_to_differ_stay_one_run(measured, tmp_path):
    """Each part's shards keep the identity of their own manifest; the merged one lists them, until
    it is edited.
    """
    parts = [Path(shutil.copytree(measured / "run", tmp_path / name)) for name in "abc"]
    for index, part in enumerate(parts):
        for other in {0, 1, 2, 3} - {index}:
            shard_path(part, other).unlink()
        edit(part, "provenance", "num_tokens", to=64 + index)
        manifest = json.loads((part / "manifest.json").read_text())
        rewrite(shard_path(part, index), about={"run": run_identity(manifest)})
    out, allow = tmp_path / "merged", ["provenance.num_tokens"]
    assert merge(parts[:2], out, allow=allow).finished == 2
    assert merge(parts[2:], out, allow=allow).finished == 3
    assert merge([out], tmp_path / "again").finished == 3
    assert len(open_run(tmp_path / "again").shards) == 3
    edit(out, "schemes", 0, "scheme", to="another")
    with pytest.raises(AnalysisError, match="another manifest"):
        open_run(out)


# ---- logits --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_logits(tmp_path_factory):
    """A folder with two runs of other prompts that keep their logits, and the prompts."""
    folder = tmp_path_factory.mktemp("logits")
    (folder / "run.txt").write_text("Return the number.\nIf True, sort.\n")
    (folder / "other.txt").write_text("Raises an error.\nAn array of bytes.\n")
    keep(folder / "run", folder / "run.txt")
    keep(folder / "other", folder / "other.txt")
    return folder


def keep(run, prompts, share=None):
    settings = Settings(k=(1,), shard_prompts=1, max_tokens=6, save_logits=4)
    models = {"models": PairSource(device="cpu"), "settings": settings}
    return measure_prompts(run, source=open_prompts(prompts), **models, share=share)


def logits(run, index):
    return run / "logits" / f"shard-{index:05d}.safetensors"


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def shorten_list(path):
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"files": record["files"][:1]}))


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
    with_logits, tmp_path, spoil, message
):
    run = Path(shutil.copytree(with_logits / "run", tmp_path / "run"))
    spoil(run, with_logits / "other")
    with pytest.raises(AnalysisError, match=message):
        keep(run, with_logits / "run.txt")
    with pytest.raises(AnalysisError, match=message):
        merge([run], tmp_path / "merged")
    with pytest.raises(AnalysisError, match=r"shard-00001|trace\.json"):
        open_trace(run / "logits")


def test_logits_that_are_gone_are_measured_again_and_merged_ones_are_a_trace(with_logits, tmp_path):
    """A share has no trace.json of its own; the run has, once every shard is there."""
    whole, merged = with_logits / "run", tmp_path / "merged"
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    logits(run, 1).unlink()
    (run / "logits" / "trace.json").unlink()
    merge([run], merged)
    assert not (merged / "logits" / "trace.json").exists()
    with pytest.raises(AnalysisError, match="once all its shards are there"):
        open_trace(run)
    keep(run, with_logits / "run.txt", range(1, 2))
    shutil.copy(logits(run, 1), logits(merged, 1))
    keep(merged, with_logits / "run.txt")
    for path in [*(whole / "shards").iterdir(), *(whole / "logits").iterdir()]:
        for again in (run, merged):
            assert path.read_bytes() == (again / path.relative_to(whole)).read_bytes()
    with pytest.raises(AnalysisError, match=f"Did you mean {merged / 'logits'}?"):
        open_trace(merged)
