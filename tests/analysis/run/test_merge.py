"""Parts of one run from several machines: merged if they are parts of one run, refused with a place
if not.
"""

import json
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.models.prompts import open_prompts
from analysis.models.source import PairSource
from analysis.run.merge import merge
from analysis.run.runs import measure_prompts, measure_trace_file
from analysis.run.settings import Settings
from analysis.run.shards import encode_shard, read_shard, shard_path
from analysis.trace.traces import open_trace
from tests.analysis.traces_for_tests import SETTINGS, write_small_trace


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A whole run and two parts of it with one shard in common."""
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=30)
    whole, left, right = (tmp_path / name for name in ("whole", "left", "right"))
    measure_trace_file(whole, trace=trace, settings=SETTINGS)
    measure_trace_file(left, trace=trace, settings=SETTINGS, share=range(0, 2))
    measure_trace_file(right, trace=trace, settings=SETTINGS, share=range(1, 3))
    return [whole, left, right]


def change(run: Path, *keys: str | int, to: object) -> None:
    record = json.loads((run / "manifest.json").read_text())
    place = record
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    (run / "manifest.json").write_text(json.dumps(record))


def test_parts_make_the_whole(parts: list[Path], tmp_path: Path) -> None:
    whole, left, right = parts
    out = tmp_path / "merged"
    assert merge([left, right], out).missing == (3,)
    assert merge([whole], out).missing == ()
    for index in range(4):
        assert shard_path(out, index).read_bytes() == shard_path(whole, index).read_bytes()
    manifest = json.loads((out / "manifest.json").read_text())
    assert len(manifest["provenance"]["merged_from"]) == 2


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("provenance", "versions", "numpy"), "1.0"),
        (("provenance", "revision"), "another"),
        (("settings", "k"), [1, 2, 3]),
        (("settings", "threads"), 7),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_another_provenance_is_refused_and_said_where(
    parts: list[Path], tmp_path: Path, keys, value
) -> None:
    _, left, right = parts
    change(right, *keys, to=value)
    with pytest.raises(AnalysisError, match=".".join(keys)):
        merge([left, right], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_named_difference_may_be_allowed_and_when_and_where_does_not_matter(
    parts: list[Path], tmp_path: Path
) -> None:
    _, left, right = parts
    change(right, "provenance", "processor", to="another")
    for key in ("host", "argv", "created"):
        change(right, "provenance", key, to="another")
    with pytest.raises(AnalysisError, match=r"provenance\.processor"):
        merge([left, right], tmp_path / "merged")
    assert merge([left, right], tmp_path / "merged", allow=["provenance.processor"]).finished == 3


def test_a_changed_label_stops_neither_resuming_nor_merging_and_a_changed_scheme_does(
    parts: list[Path], tmp_path: Path
) -> None:
    _, left, right = parts
    change(left, "schemes", 0, "label", to="the optimum")
    trace = tmp_path / "trace.safetensors"
    assert measure_trace_file(left, trace=trace, settings=SETTINGS, share=range(2, 3)).written == 1
    assert merge([left, right], tmp_path / "merged").finished == 3
    change(left, "schemes", 0, "scheme", to="another")
    with pytest.raises(AnalysisError, match="measured for a run with another manifest"):
        measure_trace_file(left, trace=trace, settings=SETTINGS)
    with pytest.raises(AnalysisError, match="schemes"):
        merge([left, right], tmp_path / "other")


def test_two_versions_of_a_shard_are_refused(parts: list[Path], tmp_path: Path) -> None:
    _, left, right = parts
    columns, metadata = read_shard(shard_path(right, 1))
    columns["tv_upper"] = columns["tv_upper"] + 2.0**-40
    shard_path(right, 1).write_bytes(encode_shard(columns, metadata))
    with pytest.raises(AnalysisError, match=r"shard 1 differs .* in column tv_upper"):
        merge([left, right], tmp_path / "merged")


def test_a_foreign_shard_is_refused(parts: list[Path], tmp_path: Path) -> None:
    _, left, right = parts
    shard_path(left, 0).write_bytes(shard_path(right, 2).read_bytes())
    with pytest.raises(AnalysisError, match="it says shard 2"):
        merge([left, right], tmp_path / "merged")


def test_an_output_that_holds_another_run_is_told(parts: list[Path], tmp_path: Path) -> None:
    _, left, right = parts
    foreign = tmp_path / "foreign"
    trace = write_small_trace(tmp_path / "other.safetensors", positions=30, seed=1)
    measure_trace_file(foreign, trace=trace, settings=SETTINGS, share=range(0, 1))
    with pytest.raises(
        AnalysisError,
        match=r"--out holds another run; choose another folder\..*settings\.trace\.sha256",
    ):
        merge([left, right], foreign)
    with pytest.raises(AnalysisError, match="Parts of one run"):
        merge([left, foreign], right)


def test_merged_logits_are_a_trace(tmp_path: Path) -> None:
    """Shares of a run have no trace.json of their own; the merged run has, once every shard is
    there.
    """
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Return the number.\nRaises an error.\n", encoding="utf-8")
    settings = Settings(k=(1,), shard_prompts=1, max_tokens=6, save_logits=5)
    parts = [tmp_path / "left", tmp_path / "right"]
    for number, part in enumerate(parts):
        share = range(number, number + 1)
        measure_prompts(
            part,
            source=open_prompts(prompts),
            models=PairSource(device="cpu"),
            settings=settings,
            share=share,
        )
    with pytest.raises(AnalysisError, match="once all its shards are there"):
        open_trace(parts[0])
    merge(parts[:1], tmp_path / "merged")
    assert not (tmp_path / "merged" / "logits" / "trace.json").exists()
    merge(parts[1:], tmp_path / "merged")
    rows = sum(
        len(read_shard(shard_path(part, number))[0]["prompt"]) for number, part in enumerate(parts)
    )
    assert open_trace(tmp_path / "merged" / "logits").num_positions == rows
    with pytest.raises(AnalysisError, match=f"Did you mean {tmp_path / 'merged' / 'logits'}?"):
        open_trace(tmp_path / "merged")


def test_what_is_no_run_is_refused(parts: list[Path], tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="at least one run"):
        merge([], tmp_path / "merged")
    with pytest.raises(AnalysisError, match=r"manifest\.json"):
        merge([tmp_path], tmp_path / "merged")
    with pytest.raises(AnalysisError, match="into itself"):
        merge([parts[0]], parts[0])
    with pytest.raises(AnalysisError):  # half a surrogate pair names no file
        merge([parts[0]], tmp_path / "\ud800")
