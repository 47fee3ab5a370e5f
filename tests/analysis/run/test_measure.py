"""The measurement end to end: values, positions, kills and resumption, bad input."""

import dataclasses
import itertools
import json
import pickle
import re
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import torch

import otm
from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.models.processing import Setting, settings_of
from analysis.models.prompts import Digest, data_set, open_prompts, prompts
from analysis.models.source import PairSource, load_source
from analysis.report.aggregate import aggregate
from analysis.report.reading import open_run
from analysis.report.write import write_report
from analysis.run import measure as shard, positions, runs
from analysis.run.columns import table_of_logits
from analysis.run.loss_columns import loss_statistics
from analysis.run.manifest import read_manifest
from analysis.run.measure import ShardTask, measure_shard
from analysis.run.scheduling import Workers
from analysis.run.settings import Settings
from analysis.trace.traces import write_manifest
from otm import Processing
from otm.table.table import RequestedColumns
from tests.analysis.traces_for_tests import SETTINGS, write_small_trace
from tests.paths import ROOT
from tests.tolerance import rounding

KILLING = Path(__file__).with_name("killing.py")
CPU = PairSource(device="cpu")
(PLAIN,) = settings_of([1.0], [1.0])
SMALL = Settings(
    k=(1, 2, 4),
    temperatures=(0.7, 1.0),
    top_ps=(0.9, 1.0),
    shard_prompts=2,
    max_tokens=24,
    new_tokens=6,
)
TEXTS = [
    "Return the number of elements.",
    "If True, the array is sorted.\n",
    "Raises an error if x < 0.",
    "def f(x): </script>",
]


@pytest.fixture(scope="module")
def prompt_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    path.write_text("\n".join(text.strip() for text in TEXTS) + "\n\n", encoding="utf-8")
    return path


def measured(run, prompts, settings=SMALL, **more):
    source = open_prompts(prompts)
    return runs.measure_prompts(run, source=source, models=CPU, settings=settings, **more)


@pytest.fixture(scope="module")
def finished(prompt_file, tmp_path_factory):
    run = tmp_path_factory.mktemp("run") / "run"
    measured(run, prompt_file)
    return run


@pytest.fixture
def trace(tmp_path):
    return write_small_trace(tmp_path / "trace.safetensors", positions=30)


def table(run):
    return pyarrow.dataset.dataset(run / "shards").to_table().to_pandas()


def same_shards(one, other):
    files = [sorted((run / "shards").iterdir()) for run in (one, other)]
    return [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_the_draft_may_have_its_own_processing_and_what_is_lost_to_it_is_told(pair):
    own = Setting(Processing(top_k=50, top_p=0.9, order="vllm"), Processing(min_p=1e-4))
    temperatures = (0.7, 1.3)
    settings = Settings(
        k=(2,), draft_temperatures=temperatures, max_tokens=12, otherwise=own, losses=True
    )
    recorded = {"min_p": 1e-4, "draft_min_p": None, "draft_top_k": 50, "losses": True}
    recorded |= {"draft_top_p": 0.9, "draft_order": "vllm"}
    assert recorded.items() <= settings.recorded.items()
    found = measure_shard(ShardTask(0, CPU, settings, ((0, TEXTS[0]),)))
    rows = pq.read_table(pa.BufferReader(found.shard)).to_pandas()
    assert sorted(set(rows["draft_temperature"])) == [0.7, 1.3] and {0.9} == set(
        rows["draft_top_p"]
    )
    assert {name for name, _, _ in loss_statistics((2,))} <= set(rows)
    tokens = pair.encode(TEXTS[0])
    draft, target = (side.double() for side in pair.next_logits(tokens))
    q = otm.from_logits(target, min_p=1e-4).numpy()
    for temperature in temperatures:
        filters = {"top_k": 50, "top_p": 0.9, "order": "vllm"}
        p = otm.from_logits(draft, temperature=temperature, **filters).numpy()
        best = otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.IID(2)))
        here = rows[(rows["position"] == len(tokens)) & (rows["draft_temperature"] == temperature)]
        # float32 logits of a batched pass and of a single one differ by about 1e-6
        np.testing.assert_allclose(here["optimum_iid_k2"], best, rtol=1e-4)


def test_bounds_leave_the_trees_of_the_run_and_checks_decode_them(prompt_file, tmp_path):
    chosen = {"columns": ("recursive_rejection_iid",), "bounds": True, "check": 1}
    run = tmp_path / "run"
    done = measured(run, prompt_file, Settings(k=(1, 2), max_tokens=4, **chosen))
    (trees,) = done.trees
    rows, (scheme,) = table(run), trees.schemes
    first, second = (float(rows[f"recursive_rejection_iid_k{k}"].mean()) for k in (1, 2))
    assert trees.positions == len(rows) and (run / "trees.json").is_file()
    assert scheme.acceptance == pytest.approx((first, second - first))
    assert scheme.rows[0].tokens.value == pytest.approx(1 + first)
    # every scheme's, whatever columns were asked for
    assert done.checked.trees == 4 * done.written and not done.checked.failures


def test_values_are_those_of_the_library_on_the_models_logits(finished, pair):
    """Prompt by prompt through the models, scheme by scheme through the library: no batch, no
    table.

    Logits in float32 differ by about 1e-5 between batch shapes, and acceptances by as much.
    """
    rows = table(finished)
    rows = rows[(rows["prompt"] == 2) & (rows["top_p"] == 0.9)]
    tokens = pair.encode(TEXTS[2].strip())
    assert sorted(rows["position"]) == sorted([*range(1, len(tokens) + 1)] * 2)
    for position in (1, len(tokens)):
        logits = pair.next_logits(tokens[:position])
        for one in (0.7, 1.0):
            p, q = (otm.from_logits(z.double(), temperature=one, top_p=0.9).numpy() for z in logits)
            problem = otm.Problem(draft=p, target=q, law=otm.IID(4))
            greedy = problem.with_law(otm.Greedy(4))
            here = rows[(rows["position"] == position) & (rows["temperature"] == one)]
            for name, value in (
                ("optimum_iid_k4", otm.optimal_acceptance(problem)),
                ("kseq_iid_k4", otm.acceptance(otm.KSeq(), problem)),
                ("greedy_optimal_greedy_k4", otm.acceptance(otm.GreedyOptimal(), greedy)),
                ("tv", otm.divergences.total_variation(draft=p, target=q)),
                ("kl_target_draft", otm.divergences.kl_divergence(draft=p, target=q)),
            ):
                np.testing.assert_allclose(here[name], [value], rtol=0, atol=1e-4)


def test_the_manifest_describes_every_column(finished):
    manifest = json.loads((finished / "manifest.json").read_text())
    schema = pq.read_schema(finished / "shards" / "shard-00001.parquet")
    described = {entry["column"] for entry in manifest["schemes"] + manifest["statistics"]}
    assert set(schema.names) == described | {"prompt", "position", "temperature", "top_p"}
    assert manifest["plan"] == {"num_prompts": 4, "prompts_per_shard": 2, "num_shards": 2}
    assert manifest["provenance"]["num_tokens"] == 4096
    assert len(manifest["provenance"]["weights"]["draft"]) == 64
    assert manifest["settings"]["prompts"]["count"] == 4
    assert pq.read_table(finished / "prompts.parquet").to_pylist()[3]["text"] == TEXTS[3]
    about = json.loads(schema.metadata[b"otm"])
    assert (about["first_prompt"], about["threads"]) == (2, 1)
    assert [prompt for prompt, _ in about["batches"][0]] == [2, 3]


def test_a_run_holds_the_columns_that_were_asked_for(finished, prompt_file, tmp_path):
    """With their optima, the values of a run with all, and a manifest that says so, in whatever
    order they were named.
    """
    run = tmp_path / "run"
    measured(run, prompt_file, dataclasses.replace(SMALL, columns=("tv", "kseq_iid")))
    manifest = read_manifest(run)
    names = [f"{stem}_k{k}" for stem in ("optimum_iid", "kseq_iid") for k in SMALL.k]
    assert [entry["column"] for entry in manifest["schemes"]] == names
    assert [entry["column"] for entry in manifest["statistics"]] == ["tv"]
    assert manifest["settings"]["columns"] == ["kseq_iid", "tv"]
    held, whole = table(run), table(finished)
    assert set(held) == {"prompt", "position", "temperature", "top_p", *names, "tv"}
    np.testing.assert_allclose(held, whole[held.columns], rtol=0, atol=rounding(4096, 4))
    measured(run, prompt_file, dataclasses.replace(SMALL, columns=("kseq_iid", "tv")))
    with pytest.raises(AnalysisError, match="needs a scheme; tv name none"):
        measured(tmp_path / "none", prompt_file, dataclasses.replace(SMALL, columns=("tv",)))


@pytest.mark.long  # each process loads torch and the models
def test_two_processes_measure_the_same_bytes(finished, prompt_file, tmp_path):
    measured(tmp_path / "run", prompt_file, workers=Workers(count=2))
    assert same_shards(finished, tmp_path / "run")


def test_the_documented_way_to_read_results_gives_the_reports_numbers(finished):
    """The snippet of docs/runs.md, in a process that loads no torch."""
    text = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0].replace('"RUN/', f'"{finished}/')
    code += "\nimport sys\nassert 'torch' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = open_run(finished)
    found = aggregate(run)
    shown = found.lower[found.strata.settings.index((1.0, 1.0))]
    place = {column.name: i for i, column in enumerate(run.schemes)}
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert len(lines) > 5
    for name, *numbers in lines:
        assert (run.schemes[place[name]].k, run.schemes[place[name]].lossless) == (4, True)
        mean, half = map(float, numbers)  # six decimals are printed
        one = shown.at(place[name])
        assert [one.value, one.low, one.high] == pytest.approx(
            [mean, max(0.0, mean - half), min(1.0, mean + half)], abs=1.2e-6
        )


@pytest.mark.parametrize("kind", ["target", "draft", "on-policy"])
def test_sampled_paths(kind, pair):
    """A path is reproduced by its seed, differs between settings, and its contexts follow the
    prompt.
    """
    sizes = {"max_tokens": 24, "new_tokens": 12, "block": 2, "seed": 3}
    asked = Settings(positions=kind, temperatures=(0.7, 1.0), **sizes)
    first, second = (list(positions.windows(pair, 5, TEXTS[0], asked)) for _ in range(2))
    assert first == second
    assert [window.settings for window in first] == [tuple(settings_of([0.7], [1.0])), (PLAIN,)]
    assert first[0].tokens != first[1].tokens
    prompt = tuple(pair.encode(TEXTS[0]))
    whole = tuple(range(len(prompt), len(prompt) + 12))
    for window in first:
        assert window.tokens[: len(prompt)] == prompt and len(window.tokens) == len(prompt) + 11
        assert window.contexts[0] == len(prompt) and set(window.contexts) <= set(whole)
        assert window.contexts == whole or kind == "on-policy"


def test_on_policy_contexts_leave_out_bonus_positions_and_follow_the_target(pair):
    """With one model as both, every draft is accepted: of each block of 2 drafts and a bonus token,
    two contexts are compared.
    """
    twin = dataclasses.replace(pair, draft=pair.target)
    prompt, uniforms = tuple(pair.encode(TEXTS[0])), np.random.default_rng(0).random((7, 3))
    output, contexts = positions.decode(twin, prompt, PLAIN, uniforms, block=2)
    assert [n - len(prompt) for n in contexts] == [0, 1, 3, 4, 6]
    # Accepted drafts and bonus tokens are all drawn from the target with the first uniform.
    assert output == positions.continuation(pair, prompt, PLAIN, uniforms[:, 0], side=1)


def test_a_decoded_token_has_the_targets_law():
    """One step of the decoder on a fixed pair of laws, over a grid of uniforms: exact up to the
    grid's mesh.
    """
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])

    def model(law):
        found = SimpleNamespace(logits=torch.tensor(np.log(law))[None, None], past_key_values=None)
        config = SimpleNamespace(max_position_embeddings=99)
        return type("Fixed", (), {"config": config, "__call__": lambda *_, **__: found})()

    sides = {"draft": model(p), "target": model(q), "tokenizer": None}
    pair = positions.Pair(**sides, device="cpu", num_tokens=3)
    middle = (np.arange(20) + 0.5) / 20
    rows = np.stack(np.meshgrid(middle, middle, middle[::4]), axis=-1).reshape(-1, 1, 3)
    drawn = [positions.decode(pair, (0,), PLAIN, row, block=4)[0][0] for row in rows]
    # Each of the three uniforms misses its integral by at most 1/20, 1/20, 1/5 of the mass that it
    # decides on (≤ ½ is rejected).
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), q, atol=0.05)


def test_no_forward_pass_waits_for_the_columns_of_the_last_one(
    monkeypatch,
):
    """The second batch goes through the models while the first is measured: each waits for the
    other to begin.
    """
    meeting, reads, measures = threading.Barrier(2), itertools.count(), itertools.count()
    logits, columns = positions.compared_logits, shard.columns_of

    def reading(pair, group):
        if next(reads) == 1:
            meeting.wait(30)
        return logits(pair, group)

    def measuring(*arguments):
        if next(measures) == 0:
            meeting.wait(30)
        return columns(*arguments)

    monkeypatch.setattr(positions, "compared_logits", reading)
    monkeypatch.setattr(shard, "columns_of", measuring)
    settings = dataclasses.replace(SMALL, batch_elements=1)
    measure_shard(ShardTask(0, CPU, settings, ((0, TEXTS[0]), (1, TEXTS[1]))))
    assert next(reads) == next(measures) == 2


def test_threads_change_no_value():
    sides = np.random.default_rng(0).standard_normal((2, 90, 4096)).astype(np.float32)
    wanted = RequestedColumns.of((1, 2), None)
    one, two = (table_of_logits(*sides, [PLAIN], wanted, threads=count) for count in (1, 2))
    assert np.array_equal(one, two)


def test_settings_measured_together_have_the_values_that_each_has_alone():
    noise = np.random.default_rng(1).standard_normal((2, 2, 20_000)).astype(np.float32)
    sides, wanted = (3 * noise[0], 3 * noise[0] + noise[1]), RequestedColumns.of((1, 4), None)
    same, own = settings_of([1.0, 0.7, 1.3], [1.0]), settings_of([1.0], [1.0], [1.0, 0.5])
    for settings in (same, own):
        together = table_of_logits(*sides, settings, wanted)
        alone = [table_of_logits(*sides, [setting], wanted) for setting in settings]
        np.testing.assert_array_equal(together, np.concatenate(alone))


@pytest.mark.parametrize(
    "one_sided", [Processing(top_p=0.9), Processing(top_k=3), Processing(min_p=0.1)], ids=str
)
def test_one_side_may_be_filtered_in_float32(one_sided):
    draft, target = (3.0 * np.random.default_rng(1).standard_normal((2, 5, 300))).astype(np.float32)
    wanted = RequestedColumns.of((1, 2), None)
    for setting in (Setting(one_sided, Processing()), Setting(Processing(), one_sided)):
        narrow, wide = (
            table_of_logits(draft, target, [setting], wanted, precision=name)
            for name in ("float32", "float64")
        )
        # float32 logits of ± 15 are off by 1e-6 once shifted
        np.testing.assert_allclose(narrow, wide, rtol=0, atol=2e-6)


def test_a_run_killed_at_any_flush_goes_on(tmp_path):
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=32)
    command = [sys.executable, KILLING, trace, tmp_path / "reference", tmp_path / "work"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # four shards, prompts and the manifest, each flushed with its folder
    assert done.stdout.startswith("12 kills, 6 of them")


def test_an_existing_run_with_other_settings_is_not_touched(finished, prompt_file, tmp_path):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    other = tmp_path / "other.txt"
    other.write_text("Another prompt.\n")
    for texts, change, message in (
        (prompt_file, {"k": (1,)}, r"settings\.k: (?!.*schemes)"),  # which follow from k
        (prompt_file, {"temperatures": (0.5,)}, r"settings\.temperatures: \[0\.5\] against \[0\.7"),
        (other, {}, r"settings\.prompts\.sha256"),
    ):
        with pytest.raises(AnalysisError, match=message):
            measured(run, texts, dataclasses.replace(SMALL, **change))
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_saved_logits_are_a_trace_that_brackets_the_full_values(prompt_file, tmp_path):
    settings = Settings(k=(1, 2), shard_prompts=2, max_tokens=12, save_logits=64)
    measured(tmp_path / "run", prompt_file, settings)
    of_trace = Settings(positions="trace", k=(1, 2), shard_prompts=16)
    logits = tmp_path / "run" / "logits"
    runs.measure_trace_file(tmp_path / "again", trace=logits, settings=of_trace)
    full, partial = table(tmp_path / "run"), table(tmp_path / "again")
    assert (full.position == partial.position).all()
    for name in ("optimum_iid_k2", "kseq_iid_k2", "recursive_rejection_iid_k2", "tv"):
        assert (partial[f"{name}_lower"] <= full[name] + 1e-9).all()
        assert (partial[f"{name}_upper"] >= full[name] - 1e-9).all()
    assert (partial.optimum_iid_k2_upper - partial.optimum_iid_k2_lower).mean() < 0.5


@pytest.mark.parametrize(("side", "value"), [(0, float("nan")), (1, float("inf"))])
def test_nan_and_infinite_logits_are_named(monkeypatch, pair, prompt_file, tmp_path, side, value):
    original = positions.Pair.logits

    def broken(self, rows):
        sides = [z.clone() for z in original(self, rows)]
        if rows.shape[0] == 2 and rows[0, 0] != pair.encode(TEXTS[0])[0]:
            sides[side][1, 3, 7] = value
        return tuple(sides)

    monkeypatch.setattr(positions.Pair, "logits", broken)
    named = f"the {('draft', 'target')[side]} model gives some at prompt 3, position 4"
    with pytest.raises(AnalysisError, match=named):
        measured(tmp_path / "run", prompt_file)
    assert [p.name for p in (tmp_path / "run" / "shards").iterdir()] == ["shard-00000.parquet"]


def test_what_lies_beside_a_trace_is_not_read(tmp_path):
    """A link out of the folder, to a pipe without a writer or to a device, would hang; its digest
    would follow somebody's files.
    """
    folder, digests = tmp_path / "trace", []
    folder.mkdir()
    write_small_trace(folder / "a.safetensors", positions=30)
    write_manifest(folder, ["a.safetensors"])
    for name in ("before", "after"):
        runs.measure_trace_file(tmp_path / name, trace=folder, settings=SETTINGS)
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        digests.append(manifest["settings"]["trace"]["sha256"])
        # a regular file by its mode, whose end never comes
        for link, place in (("link", __file__), ("kernel", "/proc/kmsg")):
            (folder / f"{name} {link}").symlink_to(place)
    assert digests[0] == digests[1]


def test_models_that_are_no_folders_are_told(tmp_path):
    (tmp_path / "file").write_text("no model")
    (tmp_path / "empty").mkdir()
    shutil.copytree(SHIPPED_PAIR / "draft", tmp_path / "bare")
    for path in (tmp_path / "bare").glob("tokenizer*"):
        path.unlink()
    format_ = "pass a folder in Hugging Face format."
    for side, name, message in (
        ("draft", "/none", "The draft model /none does not exist. Check the path."),
        ("draft", "./none", "The draft model ./none does not exist. Check the path."),
        ("target", "/none", "The target model /none does not exist"),
        ("draft", tmp_path / "file", f"is a file; {format_}"),
        ("draft", tmp_path / "empty", f"has no config.json and no tokenizer.json; {format_}"),
        ("draft", tmp_path / "bare", f"has no tokenizer.json; {format_}"),
    ):
        with pytest.raises(AnalysisError, match=re.escape(message)):
            load_source(PairSource(**{side: str(name)}, device="cpu"))


def test_a_trace_goes_without_what_was_chosen_when_it_was_recorded(
    printed, refused, trace, tmp_path
):
    run = tmp_path / "run"
    common = ("measure", "--from-trace", trace, "--out", run, "--drafts", "1,2")
    # The default's value is refused, too: it would be a claim about the recording.
    useless = {"--temperatures": "1.0", "--top-ps": "0.9", "--positions": "draft"}
    useless |= {"--save-logits": "3", "--draft-temperatures": "2"}
    error = refused(*common, *(word for option in useless.items() for word in option))
    assert "positions it was recorded with; --from-trace goes without" in error
    assert all(name in error for name in useless) and "--drafts" not in error
    assert not run.exists()
    printed(*common, "--threads", "1", "--shard-size", "8")
    settings = json.loads((run / "manifest.json").read_text())["settings"]
    said = {"k": [1, 2], "positions": "trace", "shard_prompts": 8, "threads": 1}
    assert settings.items() >= said.items() and settings.keys() - said.keys() == {"trace"}
    schema = pq.read_schema(run / "shards" / "shard-00000.parquet")
    assert json.loads(schema.metadata[b"otm"])["settings"] == said
    with pytest.raises(AnalysisError, match=r"That is a run without --save-logits\."):
        runs.measure_trace_file(tmp_path / "again", trace=run, settings=SETTINGS)


@pytest.mark.parametrize("kind", ["target", "draft", "on-policy"])
def test_logits_of_several_sampled_paths_say_which_they_are_on(prompt_file, tmp_path, kind):
    """The certified values of each path enclose what the run measured along it, and the report
    tells the paths apart.
    """
    sizes = {"shard_prompts": 2, "max_tokens": 12, "new_tokens": 4, "k": (1,)}
    temperatures = {"temperatures": (0.7, 1.0), "draft_temperatures": (1.0,)}
    several = Settings(**sizes, **temperatures, positions=kind, save_logits=4096)
    again, logits = tmp_path / "again", tmp_path / "run" / "logits"
    measured(tmp_path / "run", prompt_file, several)
    nine = dataclasses.replace(SETTINGS, shard_prompts=9)
    runs.measure_trace_file(again, trace=logits, settings=nine)
    full, certified = table(tmp_path / "run"), table(again)
    assert sorted(set(certified.path_temperature)) == [0.7, 1.0]
    names = ["temperature", "top_p", "draft_temperature"]
    of_paths = certified.drop(columns=["temperature", "top_p"])
    of_paths = of_paths.rename(columns={f"path_{name}": name for name in names})
    joined = full.merge(of_paths, on=["prompt", "position", *names])
    assert len(joined) == len(full) == len(certified)
    plain = joined[joined.temperature == 1.0]  # the saved logits are at temperature 1
    assert (plain.maximal_iid_k1_lower <= plain.maximal_iid_k1 + 1e-5).all() and len(plain)
    assert (plain.maximal_iid_k1_upper >= plain.maximal_iid_k1 - 1e-5).all()
    found = aggregate(open_run(again)).strata.settings
    assert found == ((1.0, 1.0, 0.7, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0, 1.0))
    assert "path temperature 0.7" in write_report(again).markdown.read_text(encoding="utf-8")


def test_logits_of_one_sampled_path_say_which_and_are_the_same_bytes_again():
    sizes = {"k": (1,), "max_tokens": 8, "new_tokens": 3, "save_logits": 20}
    task = ShardTask(
        0, CPU, Settings(temperatures=(0.7,), positions="target", **sizes), ((0, TEXTS[0]),)
    )
    first, second = (measure_shard(task).logits for _ in range(2))
    assert first is not None and first == second
    about = json.loads(first[8 : 8 + int.from_bytes(first[:8], "little")])["__metadata__"]
    said = {"temperature": "1", "top_p": "1", "positions": "target", "path_temperature": "0.7"}
    assert said.items() <= about.items()


def test_the_speed_counts_from_the_first_shards_work_and_progress_tells_it(
    monkeypatch, trace, tmp_path
):
    """Half a second before the first shard, which a start may take, is none of the work."""
    original, shown = runs.run_each, list[tuple[str, ...]]()

    def late(*arguments, **keywords):
        time.sleep(0.5)
        yield from original(*arguments, **keywords)

    monkeypatch.setattr(runs, "run_each", late)
    monkeypatch.setattr(runs, "report_phase", lambda *said: shown.append(said))
    begin = time.monotonic()
    summary = runs.measure_trace_file(tmp_path / "run", trace=trace, settings=SETTINGS)
    assert 0 < summary.seconds < time.monotonic() - begin - 0.5
    assert summary.rows == summary.contexts == 30
    parts = [said[1] for said in shown if said[0] == "positions"]
    assert parts[0] == "0 of 30" and parts[1].startswith("8 of 30, ")
    assert parts[-1].startswith("30 of 30, ") and parts[-1].endswith(" positions per second")


def test_processes_are_started_for_what_is_wanted_after_compiling_once(
    monkeypatch, prompt_file, tmp_path
):
    """Of four shards one machine measures one; a second process would load models in vain."""
    events, original = [], runs.run_each

    def noted(place, *arguments, **keywords):
        events.append(place.count)
        return original(dataclasses.replace(place, count=1), *arguments, **keywords)

    monkeypatch.setattr(runs, "run_each", noted)
    monkeypatch.setattr(runs, "compile_table", lambda: events.append("compiled"))
    settings = Settings(k=(1,), shard_prompts=1, max_tokens=4)
    for count, share in ((1, range(2, 3)), (2, range(2, 9))):
        events.clear()
        places = {"workers": Workers(count=4), "share": share}
        done = measured(tmp_path / str(count), prompt_file, settings, **places)
        assert done.written == count and events[:2] == ["compiled", count]


def test_commands_measure_and_merge(printed, trace, tmp_path):
    common = ("measure", "--from-trace", trace, "--shard-size", "8", "--drafts", "1-2")
    for name, shards in (("a", "0:2"), ("b", "2:4")):
        shown = printed(*common, "--out", tmp_path / name, "--shards", shards)
        assert "2 of 4 shards, 2 of them now" in shown
    merged = printed("merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "c")
    assert "4 shards, complete" in merged


def test_every_kind_of_source_has_the_same_prompts(tmp_path):
    """A data set that is pickled is not read."""
    pytest.importorskip("datasets")
    texts = [text.strip() for text in TEXTS]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    (tmp_path / "set").mkdir()
    lines = "\n".join(json.dumps({"text": text}) for text in texts)
    for path in (tmp_path / "a.jsonl", tmp_path / "set" / "train.jsonl"):
        path.write_text(lines)
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    sources = [open_prompts(tmp_path / f"a.{kind}") for kind in ("txt", "jsonl", "parquet")]
    digests = set()
    for source in (*sources, data_set(str(tmp_path / "set"))):
        digest = Digest()
        found = list(prompts(source))
        for prompt in found:
            digest.update(prompt)
        assert [prompt.text for prompt in found] == texts, source
        digests.add(digest.hexadecimal)
    assert len(digests) == 1
    with pytest.raises(AnalysisError, match="could not be opened"):
        list(data_set(str(tmp_path / "none")).texts())
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "train.pkl").write_bytes(pickle.dumps({"text": ["x"]}))
    with pytest.raises(AnalysisError):
        list(data_set(str(tmp_path / "pickled")).texts())


def test_memory_does_not_grow_with_the_number_of_prompts(tmp_path):
    """Planning and cutting into shards: ten times the prompts, the same peak."""
    peaks = []
    for count in (3_000, 30_000):
        path, digest = tmp_path / f"{count}.txt", Digest()
        path.write_text("A prompt of many, long enough to be counted in memory, and cut.\n" * count)
        tracemalloc.start()
        source = open_prompts(path)
        runs._write_prompts(tmp_path / f"{count}.parquet", runs._digested(source, digest))
        assert all(len(group) <= 16 for group in runs.in_shards(source, 16))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert digest.count == count
    assert peaks[1] < 1.3 * peaks[0]


def test_half_precision_models_and_a_device_map():
    pytest.importorskip("accelerate")
    models = PairSource(dtype="bfloat16", device_map="cpu")
    settings = Settings(k=(1,), max_tokens=8)
    result = measure_shard(ShardTask(0, models, settings, ((0, TEXTS[0]),)))
    assert result.contexts == result.rows > 0
    assert load_source(models).target.dtype == torch.bfloat16
