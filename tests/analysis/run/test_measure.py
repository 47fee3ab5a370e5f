"""The measurement end to end: values, positions, kills and resumption, bad input."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import torch

import otm
from analysis.commands.measure import measure
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
from analysis.run.loss_columns import PARTS, loss_statistics
from analysis.run.manifest import manifest_of, read_manifest
from analysis.run.measure import ShardTask, measure_shard
from analysis.run.scheduling import Workers
from analysis.run.settings import OF_MODELS, Settings
from analysis.trace.traces import write_manifest
from otm import Processing
from otm.table.table import DESCRIPTIONS, Wanted
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
def prompt_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    path.write_text("\n".join(text.strip() for text in TEXTS) + "\n\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(prompt_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run") / "run"
    runs.measure_prompts(run, source=open_prompts(prompt_file), models=CPU, settings=SMALL)
    return run


def table(run: Path):
    return pyarrow.dataset.dataset(run / "shards").to_table().to_pandas()


def test_the_draft_may_have_its_own_processing_and_what_is_lost_to_it_is_told() -> None:
    own = Setting(Processing(top_k=50, top_p=0.9, order="vllm"), Processing(min_p=1e-4))
    settings = Settings(
        k=(2,), draft_temperatures=(0.7, 1.3), max_tokens=12, otherwise=own, losses=True
    )
    recorded = {
        "min_p": 1e-4,
        "draft_min_p": None,
        "draft_top_k": 50,
        "draft_top_p": 0.9,
        "draft_order": "vllm",
        "losses": True,
    }
    assert recorded.items() <= settings.recorded.items()
    shard = measure_shard(ShardTask(0, CPU, settings, ((0, "Returns the number of items"),)))
    rows = pyarrow.parquet.read_table(pyarrow.BufferReader(shard.shard)).to_pandas()
    assert sorted(set(rows["draft_temperature"])) == [0.7, 1.3]
    pair = load_source(CPU)
    tokens = pair.encode("Returns the number of items")
    draft, target = pair.next_logits(tokens)
    for temperature in (0.7, 1.3):
        p = otm.from_logits(
            draft.double(), temperature=temperature, top_k=50, top_p=0.9, order="vllm"
        ).numpy()
        q = otm.from_logits(target.double(), min_p=1e-4).numpy()
        problem = otm.Problem(draft=p, target=q, law=otm.IID(2))
        here = rows[(rows["position"] == len(tokens)) & (rows["draft_temperature"] == temperature)]
        # float32 logits of a batched pass and of a single one differ by about 1e-6
        np.testing.assert_allclose(
            here["optimum_iid_k2"], otm.optimal_acceptance(problem), rtol=1e-4
        )
        lost = sum(here[f"lost_{name}"] for name in PARTS)
        np.testing.assert_allclose(1.0 - lost, np.minimum(p, q).sum(), rtol=1e-4)
    assert set(rows["draft_top_p"]) == {0.9} and {
        name for name, _, _ in loss_statistics((2,))
    } <= set(rows)


def test_bounds_leave_the_trees_of_the_run_and_checks_decode_them(tmp_path: Path) -> None:
    asked = Settings(
        k=(1, 2), columns=("recursive_rejection_iid",), max_tokens=4, bounds=True, check=1
    )
    (tmp_path / "prompt.txt").write_text(TEXTS[0].strip() + "\n", encoding="utf-8")
    run = tmp_path / "run"
    done = runs.measure_prompts(
        run, source=open_prompts(tmp_path / "prompt.txt"), models=CPU, settings=asked
    )
    (trees,) = done.trees
    rows = table(run)
    first, second = (float(rows[f"recursive_rejection_iid_k{k}"].mean()) for k in (1, 2))
    (scheme,) = trees.schemes
    assert trees.positions == len(rows) and scheme.acceptance == pytest.approx(
        (first, second - first)
    )
    assert (
        scheme.rows[0].tokens.value == pytest.approx(1 + first) and (run / "trees.json").is_file()
    )
    # every scheme's, whatever columns were asked for
    assert done.checked.trees == 4 * done.written and not done.checked.failures


def test_values_are_those_of_the_library_on_the_models_logits(finished: Path) -> None:
    """Prompt by prompt through the models, scheme by scheme through the library: no batch, no
    table.

    Logits in float32 differ by about 1e-5 between batch shapes, and acceptances by as much.
    """
    rows = table(finished)
    pair = load_source(CPU)
    tokens = pair.encode(TEXTS[2].strip())
    assert set(rows[rows.prompt == 2].position) == set(range(1, len(tokens) + 1))
    for position in (1, len(tokens)):
        logits = pair.next_logits(tokens[:position])
        for temperature in (0.7, 1.0):
            p, q = (
                otm.from_logits(z.double(), temperature=temperature, top_p=0.9).numpy()
                for z in logits
            )
            here = rows.query(
                "prompt == 2 and position == @position and temperature == @temperature and top_p "
                "== 0.9"
            )
            assert len(here) == 1
            row = here.iloc[0]
            problem = otm.Problem(draft=p, target=q, law=otm.IID(4))
            assert row.optimum_iid_k4 == pytest.approx(otm.optimal_acceptance(problem), abs=1e-4)
            assert row.kseq_iid_k4 == pytest.approx(otm.acceptance(otm.KSeq(), problem), abs=1e-4)
            assert row.tv == pytest.approx(
                otm.divergences.total_variation(draft=p, target=q), abs=1e-4
            )
            greedy = problem.with_law(otm.Greedy(4))
            assert row.greedy_optimal_greedy_k4 == pytest.approx(
                otm.acceptance(otm.GreedyOptimal(), greedy), abs=1e-4
            )


def test_the_manifest_describes_every_column(finished: Path) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    names = set(pq.read_schema(finished / "shards" / "shard-00000.parquet").names)
    described = {entry["column"] for entry in manifest["schemes"] + manifest["statistics"]}
    assert names == described | {"prompt", "position", "temperature", "top_p"}
    assert manifest["plan"] == {"num_prompts": 4, "prompts_per_shard": 2, "num_shards": 2}
    assert manifest["provenance"]["num_tokens"] == 4096
    assert len(manifest["provenance"]["weights"]["draft"]) == 64
    assert manifest["settings"]["prompts"]["count"] == 4
    rows = pq.read_table(finished / "prompts.parquet").to_pylist()
    assert rows[3]["text"] == TEXTS[3]
    metadata = json.loads(
        pq.read_schema(finished / "shards" / "shard-00001.parquet").metadata[b"otm"]
    )
    assert metadata["first_prompt"] == 2
    assert metadata["threads"] == 1
    assert [prompt for prompt, _ in metadata["batches"][0]] == [2, 3]


def test_a_run_holds_the_columns_that_were_asked_for(
    finished: Path, prompt_file: Path, tmp_path: Path
) -> None:
    """With their optima, the values of a run with all, and a manifest that says so, in whatever
    order they were named.
    """
    few = dataclasses.replace(SMALL, columns=("tv", "kseq_iid"))
    runs.measure_prompts(
        tmp_path / "run", source=open_prompts(prompt_file), models=CPU, settings=few
    )
    manifest = read_manifest(tmp_path / "run")
    names = [f"{stem}_k{k}" for stem in ("optimum_iid", "kseq_iid") for k in SMALL.k]
    assert [entry["column"] for entry in manifest["schemes"]] == names
    assert [entry["column"] for entry in manifest["statistics"]] == ["tv"]
    assert manifest["settings"]["columns"] == ["kseq_iid", "tv"]
    assert read_manifest(finished)["settings"]["columns"] is None
    held, whole = table(tmp_path / "run"), table(finished)
    keys = {"prompt", "position", "temperature", "top_p"}
    assert set(held.columns) == {*keys, *names, "tv"}
    for name in held.columns:
        np.testing.assert_allclose(
            held[name].to_numpy(),
            whole[name].to_numpy(),
            rtol=0,
            atol=rounding(4096, 4),
            err_msg=name,
        )
    again = dataclasses.replace(few, columns=("kseq_iid", "tv"))
    runs.measure_prompts(
        tmp_path / "run", source=open_prompts(prompt_file), models=CPU, settings=again
    )
    with pytest.raises(AnalysisError, match="needs a scheme; tv name none"):
        runs.measure_prompts(
            tmp_path / "none",
            source=open_prompts(prompt_file),
            models=CPU,
            settings=dataclasses.replace(SMALL, columns=("tv",)),
        )


def test_every_description_of_the_table_is_a_statistic() -> None:
    statistics = manifest_of({"threads": 1}, "", {}, {}, ())["statistics"]
    assert sorted(entry["column"] for entry in statistics) == sorted(DESCRIPTIONS)


def test_the_command_offers_the_positions_there_are() -> None:
    (option,) = get_type_hints(measure, include_extras=True)["positions"].__metadata__
    assert option.help.split(":")[0] == f"{', '.join(OF_MODELS[:-1])} or {OF_MODELS[-1]}"


@pytest.mark.long  # each process loads torch and the models
def test_two_processes_measure_the_same_bytes(
    finished: Path, prompt_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    runs.measure_prompts(
        run, source=open_prompts(prompt_file), models=CPU, settings=SMALL, workers=Workers(count=2)
    )
    for path in (finished / "shards").iterdir():
        assert path.read_bytes() == (run / "shards" / path.name).read_bytes()


def test_the_documented_way_to_read_results_gives_the_reports_numbers(finished: Path) -> None:
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
    compared = 0
    for name, mean, half in (line.split() for line in done.stdout.splitlines()[1:]):
        i = place[name]
        assert (run.schemes[i].k, run.schemes[i].lossless) == (4, True)
        # Six decimals are printed.
        assert float(mean) == pytest.approx(shown.value[i], abs=6e-7)
        assert max(0.0, float(mean) - float(half)) == pytest.approx(shown.low[i], abs=1.2e-6)
        assert min(1.0, float(mean) + float(half)) == pytest.approx(shown.high[i], abs=1.2e-6)
        compared += 1
    assert compared > 5


@pytest.mark.parametrize("kind", ["target", "draft", "on-policy"])
def test_sampled_paths(kind: str) -> None:
    """A path is reproduced by its seed, differs between settings, and its contexts follow the
    prompt.
    """
    pair = load_source(CPU)
    asked = Settings(
        positions=kind, temperatures=(0.7, 1.0), max_tokens=24, new_tokens=12, block=2, seed=3
    )
    first, second = (list(positions.windows(pair, 5, TEXTS[0], asked)) for _ in range(2))
    assert first == second
    assert [window.settings for window in first] == [tuple(settings_of([0.7], [1.0])), (PLAIN,)]
    prompt = tuple(pair.encode(TEXTS[0]))
    for window in first:
        assert window.tokens[: len(prompt)] == prompt
        assert window.contexts[0] == len(prompt)
        assert len(window.tokens) == len(prompt) + 11
        if kind != "on-policy":
            assert window.contexts == tuple(range(len(prompt), len(prompt) + 12))
    assert first[0].tokens != first[1].tokens


def test_on_policy_contexts_leave_out_bonus_positions_and_follow_the_target() -> None:
    """With one model as both, every draft is accepted: of each block of 2 drafts and a bonus token,
    two contexts are compared.
    """
    pair = load_source(CPU)
    twin = dataclasses.replace(pair, draft=pair.target)
    prompt = tuple(pair.encode(TEXTS[0]))
    uniforms = np.random.default_rng(0).random((7, 3))
    output, contexts = positions.decode(twin, prompt, PLAIN, uniforms, block=2)
    assert [n - len(prompt) for n in contexts] == [0, 1, 3, 4, 6]
    # Accepted drafts and bonus tokens are all drawn from the target with the first uniform.
    assert output == positions.continuation(pair, prompt, PLAIN, uniforms[:, 0], side=1)


def test_a_decoded_token_has_the_targets_law() -> None:
    """One step of the decoder on a fixed pair of laws, over a grid of uniforms: exact up to the
    grid's mesh.
    """
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])

    class Fixed:
        config = type("Config", (), {"max_position_embeddings": 99})()

        def __init__(self, law: np.ndarray) -> None:
            self.law = law

        def __call__(self, row: torch.Tensor, **_: object) -> object:
            logits = torch.log(torch.tensor(self.law))[None, None]
            return type("Answer", (), {"logits": logits, "past_key_values": None})()

    pair = positions.Pair(
        draft=Fixed(p), target=Fixed(q), tokenizer=None, device="cpu", num_tokens=3
    )
    size = 20
    middle = (np.arange(size) + 0.5) / size
    counts = np.zeros(3)
    for a in middle:
        for b in middle:
            for c in middle[::4]:
                counts[
                    positions.decode(pair, (0,), PLAIN, np.array([[a, b, c]]), block=4)[0][0]
                ] += 1
    # Each of the three uniforms misses its integral by at most 1/20, 1/20, 1/5 of the mass that it
    # decides on (≤ ½ is rejected).
    np.testing.assert_allclose(counts / counts.sum(), q, atol=0.05)


def test_no_forward_pass_waits_for_the_columns_of_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second batch goes through the models while the first is measured, and the bytes are the
    same as without.
    """
    settings = dataclasses.replace(SMALL, batch_elements=1)
    task = ShardTask(0, CPU, settings, ((0, TEXTS[0]), (1, TEXTS[1])))
    with monkeypatch.context() as patch:
        patch.setattr(shard, "one_behind", map)
        wanted = measure_shard(task)
    second = threading.Event()
    logits, columns = positions.compared_logits, shard.columns_of
    batches_read = []

    def reading(pair: Any, group: Any) -> Any:
        batches_read.append(len(group))
        if len(batches_read) == 2:
            second.set()
        return logits(pair, group)

    def waiting(*arguments: Any) -> Any:
        assert second.wait(30), "the second forward pass waits for the columns of the first"
        return columns(*arguments)

    monkeypatch.setattr(positions, "compared_logits", reading)
    monkeypatch.setattr(shard, "columns_of", waiting)
    found = measure_shard(task)
    assert batches_read == [1, 1]
    assert found.shard == wanted.shard


def test_threads_change_no_value() -> None:
    rng = np.random.default_rng(0)
    draft, target = (rng.standard_normal((90, 4096)).astype(np.float32) for _ in range(2))
    one, two = (
        table_of_logits(
            draft, target, settings_of([1.0], [1.0]), Wanted.of((1, 2), None), threads=n
        )
        for n in (1, 2)
    )
    assert np.array_equal(one, two)


def test_one_order_serves_every_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of q/p, where both models have the same and nothing is dropped; equal differences in float32
    are no disorder.
    """
    from otm.table.compiled import driver

    sort, sorted_rows = driver.sort_packed, []
    monkeypatch.setattr(driver, "sort_packed", lambda order: sorted_rows.append(sort(order)))
    monkeypatch.setattr(driver, "put_in_order", lambda *_: pytest.fail("put in order again"))
    rng = np.random.default_rng(1)
    draft = (3.0 * rng.standard_normal((2, 20_000))).astype(np.float32)
    target = draft + rng.standard_normal(draft.shape).astype(np.float32)
    wanted = Wanted.of((1, 4), None)
    settings = settings_of([1.0, 0.7, 1.3], [1.0])
    together = table_of_logits(draft, target, settings, wanted)
    assert len(sorted_rows) == 1
    alone = [table_of_logits(draft, target, [setting], wanted) for setting in settings]
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=0, atol=1e-13)
    apart = table_of_logits(draft, target, settings_of([1.0], [1.0], [1.0, 0.5]), wanted)
    np.testing.assert_allclose(
        apart[1], table_of_logits(draft, target, settings_of([1.0], [1.0], [0.5]), wanted)[0]
    )


@pytest.mark.parametrize(
    "one_sided", [Processing(top_p=0.9), Processing(top_k=3), Processing(min_p=0.1)], ids=str
)
def test_one_side_may_be_filtered_in_float32(one_sided: Processing) -> None:
    draft, target = (3.0 * np.random.default_rng(1).standard_normal((2, 5, 300))).astype(np.float32)
    wanted = Wanted.of((1, 2), None)
    for setting in (Setting(one_sided, Processing()), Setting(Processing(), one_sided)):
        narrow, wide = (
            table_of_logits(draft, target, [setting], wanted, precision=name)
            for name in ("float32", "float64")
        )
        # float32 logits of ± 15 are off by 1e-6 once shifted
        np.testing.assert_allclose(narrow, wide, rtol=0, atol=2e-6)


def kill(source: Path, folder: Path, kills: int, seed: int) -> int:
    """Return how many kills hit between the first shard and the last."""
    arguments = (source, folder / "reference", folder / "work", kills, seed)
    done = subprocess.run(
        [sys.executable, str(KILLING), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= kills
    return int(done.stdout.split()[2])


def test_twenty_kills_on_a_trace(tmp_path: Path) -> None:
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=64)
    assert kill(trace, tmp_path, 20, seed=1) >= 5


@pytest.mark.long
def test_a_hundred_kills_on_a_trace(tmp_path: Path) -> None:
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=320)
    assert kill(trace, tmp_path, 100, seed=3) >= 30


def test_an_existing_run_with_other_settings_is_not_touched(
    finished: Path, prompt_file: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(AnalysisError, match=r"settings\.k: ") as differing:
        runs.measure_prompts(
            run,
            source=open_prompts(prompt_file),
            models=CPU,
            settings=dataclasses.replace(SMALL, k=(1,)),
        )
    assert "schemes" not in str(differing.value), "what follows from the settings hides them"
    with pytest.raises(
        AnalysisError, match=r"settings\.temperatures: \[0\.5\] against \[0\.7, 1\.0\]"
    ):
        runs.measure_prompts(
            run,
            source=open_prompts(prompt_file),
            models=CPU,
            settings=dataclasses.replace(SMALL, temperatures=(0.5,)),
        )
    other = tmp_path / "other.txt"
    other.write_text("Another prompt.\n")
    with pytest.raises(AnalysisError, match=r"settings\.prompts\.sha256"):
        runs.measure_prompts(run, source=open_prompts(other), models=CPU, settings=SMALL)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_an_unfinished_share_goes_on(finished: Path, prompt_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    share = runs.measure_prompts(
        run, source=open_prompts(prompt_file), models=CPU, settings=SMALL, share=range(1, 2)
    )
    assert (share.finished, share.written, share.num_shards) == (1, 1, 2)
    rest = runs.measure_prompts(run, source=open_prompts(prompt_file), models=CPU, settings=SMALL)
    assert (rest.finished, rest.written) == (2, 1)
    for path in (finished / "shards").iterdir():
        assert path.read_bytes() == (run / "shards" / path.name).read_bytes()


def test_saved_logits_are_a_trace_that_brackets_the_full_values(
    prompt_file: Path, tmp_path: Path
) -> None:
    settings = Settings(k=(1, 2), shard_prompts=2, max_tokens=12, save_logits=64)
    runs.measure_prompts(
        tmp_path / "run", source=open_prompts(prompt_file), models=CPU, settings=settings
    )
    trace = Settings(positions="trace", k=(1, 2), shard_prompts=16)
    runs.measure_trace_file(tmp_path / "again", trace=tmp_path / "run" / "logits", settings=trace)
    full, partial = table(tmp_path / "run"), table(tmp_path / "again")
    assert (full.position.to_numpy() == partial.position.to_numpy()).all()
    for name in ("optimum_iid_k2", "kseq_iid_k2", "recursive_rejection_iid_k2", "tv"):
        assert (partial[f"{name}_lower"] <= full[name] + 1e-9).all()
        assert (partial[f"{name}_upper"] >= full[name] - 1e-9).all()
    assert (partial.optimum_iid_k2_upper - partial.optimum_iid_k2_lower).mean() < 0.5


@pytest.mark.parametrize(("side", "value"), [(0, float("nan")), (1, float("inf"))])
def test_nan_and_infinite_logits_are_named(
    monkeypatch: pytest.MonkeyPatch, prompt_file: Path, tmp_path: Path, side, value
) -> None:
    original = positions.Pair.logits

    def broken(self: positions.Pair, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sides = [z.clone() for z in original(self, rows)]
        if rows.shape[0] == 2 and rows[0, 0] != load_source(CPU).encode(TEXTS[0])[0]:
            sides[side][1, 3, 7] = value
        return tuple(sides)

    monkeypatch.setattr(positions.Pair, "logits", broken)
    with pytest.raises(
        AnalysisError,
        match=f"the {('draft', 'target')[side]} model gives some at prompt 3, position 4",
    ):
        runs.measure_prompts(
            tmp_path / "run", source=open_prompts(prompt_file), models=CPU, settings=SMALL
        )
    assert [p.name for p in (tmp_path / "run" / "shards").iterdir()] == ["shard-00000.parquet"]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (None, "absent.txt", "existing file"),
        (b"fine\n\xff\xfe\n", "latin.txt", r"UTF-8; line 2 .*byte 5"),
        (b"\n \n", "blank.txt", "at least one prompt"),
        (b'{"text": "a"}\nnot json\n', "bad.jsonl", "line 2"),
        (
            b'{"prompt": "a"}\n',
            "other.jsonl",
            r"'text'; other.jsonl:1 has fields \['prompt'\]. Pass --field",
        ),
        (
            b'{"text": "a"}\n{"text": 3}\n',
            "n.jsonl",
            r"'text' of n\.jsonl:2 is a number, not a string\. Correct it\.",
        ),
        (b'{"text": null}\n', "n.jsonl", r"'text' of n\.jsonl:1 is null, not a string"),
        (b"PAR1 no", "bad.parquet", "Parquet"),
        (
            b'{"text": "a"}\n{"text": "b \\ud800"}\n',
            "half.jsonl",
            r"half\.jsonl:2 holds half a surrogate pair at character 2",
        ),
    ],
)
def test_prompts_that_cannot_be_read(refused, tmp_path: Path, content, name, message) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    error = refused("measure", "--prompts", path, "--out", tmp_path / "run", "--device", "cpu")
    assert re.search(message, error), error
    assert not (tmp_path / "run").exists()


LONG = "n" * 5_000


@pytest.mark.parametrize(
    "arguments",
    [
        ("measure", "--prompts", LONG, "--out", "run"),
        ("measure", "--prompts", "prompts.txt", "--out", LONG),
        ("measure", "--prompts", "prompts.txt", "--draft", f"/{LONG}", "--out", "run"),
        ("measure", "--from-trace", LONG, "--out", "run"),
        ("measure", "--from-trace", LONG, "--out", LONG),
        ("merge", LONG, "--out", "run"),
        ("merge", "run", "--out", LONG),
        ("report", LONG),
        ("report", "run", "--out", LONG),
    ],
    ids=lambda arguments: " ".join(argument[:12] for argument in arguments),
)
def test_names_that_no_file_can_have_are_told(
    monkeypatch: pytest.MonkeyPatch, refused, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("Return the number.\n")
    refused(*arguments)
    assert {path.name for path in tmp_path.iterdir()} == {"prompts.txt"}


def test_what_lies_beside_a_trace_is_not_read(tmp_path: Path) -> None:
    """A link out of the folder, to a pipe without a writer or to a device, would hang; its digest
    would follow somebody's files.
    """
    folder = tmp_path / "trace"
    folder.mkdir()
    write_small_trace(folder / "a.safetensors", positions=30)
    write_manifest(folder, ["a.safetensors"])
    digests = []
    for number in range(2):
        run = tmp_path / f"run{number}"
        runs.measure_trace_file(run, trace=folder, settings=SETTINGS)
        digests.append(
            json.loads((run / "manifest.json").read_text())["settings"]["trace"]["sha256"]
        )
        if number == 0:
            (tmp_path / "elsewhere").write_text("somebody's")
            (folder / "link").symlink_to(tmp_path / "elsewhere")
            # a regular file by its mode, whose end never comes
            (folder / "kernel").symlink_to("/proc/kmsg")
    assert digests[0] == digests[1]


def test_options_are_shown_whole_in_a_narrow_terminal(monkeypatch, printed) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    shown = printed("measure", "--help")
    assert "--draft-temperature" in shown and "--trust-remote-code" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--k", "0"), "k starts at 1; got 0."),
        (("--k", "8-1"), "8-1 runs backwards; write 1-8."),
        (("--k", "a"), "ranges"),
        (("--temperature", "-1"), "must be a finite number ≥ 0; got -1.0"),
        (("--temperature", "nan"), "must be a finite number ≥ 0; got nan"),
        (("--draft-temperature", "1e400"), "must be a finite number ≥ 0; got inf"),
        (("--top-p", "0"), "top_p"),
        (("--positions", "on-polcy"), "one of text, target, draft, on-policy; got 'on-polcy'"),
        (("--out", "{}/file"), "--out must be a folder"),
        (("--out", "/proc/run"), "The folder cannot be made; choose another --out."),
        (("--shards", "3:1"), "START:STOP"),
        (("--workers", "0"), "from 1 to 1024"),
        (("--dtype", "int8"), "'float32', 'float16' or 'bfloat16'"),
        (("--dataset", "also"), "either"),
        (("--from-trace", "x"), "goes without"),
    ],
)
def test_requests_that_make_no_sense(
    refused, prompt_file: Path, tmp_path: Path, arguments, message
) -> None:
    (tmp_path / "file").write_text("mine")
    common = ("--prompts", prompt_file, "--device", "cpu", "--out", tmp_path / "run")
    assert message in refused("measure", *common, *(str(a).format(tmp_path) for a in arguments))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_that_never_began_leaves_no_folder(refused, prompt_file: Path, tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "run", tmp_path / "mine"):
        places = ("--prompts", prompt_file, "--out", folder, "--draft", tmp_path / "missing")
        assert "missing" in refused("measure", *places)
    assert not (tmp_path / "run").exists()
    assert (tmp_path / "mine").is_dir(), "a folder that was there stays"


def test_models_that_are_no_folders_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no model")
    (tmp_path / "empty").mkdir()
    bare = Path(shutil.copytree(SHIPPED_PAIR / "draft", tmp_path / "bare"))
    for path in bare.glob("tokenizer*"):
        path.unlink()
    for name, message in (
        (
            "/nonexistent/model",
            "The draft model /nonexistent/model does not exist. Check the path.",
        ),
        ("./nonexistent", "The draft model ./nonexistent does not exist. Check the path."),
        (str(tmp_path / "file"), "is a file; pass a folder in Hugging Face format."),
        (
            str(tmp_path / "empty"),
            "has no config.json and no tokenizer.json; pass a folder in Hugging Face format.",
        ),
        (str(bare), "has no tokenizer.json; pass a folder in Hugging Face format."),
    ):
        with pytest.raises(AnalysisError, match=re.escape(message)):
            load_source(PairSource(draft=name, device="cpu"))
    with pytest.raises(AnalysisError, match="The target model /nonexistent does not exist"):
        load_source(PairSource(target="/nonexistent", device="cpu"))


def test_a_trace_goes_without_what_was_chosen_when_it_was_recorded(
    printed, refused, tmp_path: Path
) -> None:
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=30)
    common = ("measure", "--from-trace", trace, "--out", tmp_path / "run", "--k", "1,2")
    # The default's value is refused, too: it would be a claim about the recording.
    useless = {
        "--temperature": "1.0",
        "--top-p": "0.9",
        "--positions": "draft",
        "--save-logits": "3",
        "--draft-temperature": "2",
    }
    error = refused(*common, *(word for option in useless.items() for word in option))
    assert "positions it was recorded with; --from-trace goes without" in error
    assert all(name in error for name in useless) and "--k" not in error
    assert not (tmp_path / "run").exists()
    printed(*common, "--threads", "1", "--shard-size", "8")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["settings"].keys() == {"k", "positions", "shard_prompts", "threads", "trace"}
    shard = pq.read_schema(tmp_path / "run" / "shards" / "shard-00000.parquet")
    said = {"k": [1, 2], "positions": "trace", "shard_prompts": 8, "threads": 1}
    assert json.loads(shard.metadata[b"otm"])["settings"] == said
    with pytest.raises(AnalysisError, match=r"That is a run without --save-logits\."):
        runs.measure_trace_file(tmp_path / "again", trace=tmp_path / "run", settings=SETTINGS)


@pytest.mark.parametrize("kind", ["target", "draft", "on-policy"])
def test_logits_of_several_sampled_paths_say_which_they_are_on(
    prompt_file: Path, tmp_path: Path, kind: str
) -> None:
    """The certified values of each path enclose what the run measured along it, and the report
    tells the paths apart.
    """
    several = Settings(
        k=(1,),
        temperatures=(0.7, 1.0),
        draft_temperatures=(1.0,),
        shard_prompts=2,
        max_tokens=12,
        new_tokens=4,
        positions=kind,
        save_logits=4096,
    )
    runs.measure_prompts(
        tmp_path / "run", source=open_prompts(prompt_file), models=CPU, settings=several
    )
    settings = dataclasses.replace(SETTINGS, shard_prompts=9)
    runs.measure_trace_file(
        tmp_path / "again", trace=tmp_path / "run" / "logits", settings=settings
    )
    full, certified = table(tmp_path / "run"), table(tmp_path / "again")
    assert sorted(set(certified.path_temperature)) == [0.7, 1.0]
    names = {
        "path_temperature": "temperature",
        "path_top_p": "top_p",
        "path_draft_temperature": "draft_temperature",
    }
    keys = ["prompt", "position", *names.values()]
    joined = full.merge(
        certified.drop(columns=["temperature", "top_p"]).rename(columns=names), on=keys
    )
    assert len(joined) == len(full) == len(certified)
    plain = joined[joined.temperature == 1.0]  # the saved logits are at temperature 1
    assert len(plain) > 0
    assert (plain.maximal_iid_k1_lower <= plain.maximal_iid_k1 + 1e-5).all()
    assert (plain.maximal_iid_k1_upper >= plain.maximal_iid_k1 - 1e-5).all()
    assert aggregate(open_run(tmp_path / "again")).strata.settings == (
        (1.0, 1.0, 0.7, 1.0, 1.0),
        (1.0, 1.0, 1.0, 1.0, 1.0),
    )
    assert "path temperature 0.7" in write_report(tmp_path / "again").markdown.read_text(
        encoding="utf-8"
    )


def test_logits_of_one_sampled_path_say_which_and_are_the_same_bytes_again() -> None:
    settings = Settings(
        k=(1,), temperatures=(0.7,), positions="target", max_tokens=8, new_tokens=3, save_logits=20
    )
    first, second = (
        measure_shard(ShardTask(0, CPU, settings, ((0, TEXTS[0]),))).logits for _ in range(2)
    )
    assert first is not None
    assert first == second
    about = json.loads(first[8 : 8 + int.from_bytes(first[:8], "little")])["__metadata__"]
    assert {
        "temperature": "1",
        "top_p": "1",
        "positions": "target",
        "path_temperature": "0.7",
    }.items() <= about.items()


def test_the_speed_counts_from_the_first_shards_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Half a second before the first shard, which a start may take, is none of the work."""
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=30)
    original = runs.run_each

    def late(*arguments, **keywords):
        time.sleep(0.5)
        yield from original(*arguments, **keywords)

    monkeypatch.setattr(runs, "run_each", late)
    begin = time.monotonic()
    summary = runs.measure_trace_file(tmp_path / "run", trace=trace, settings=SETTINGS)
    assert 0 < summary.seconds < time.monotonic() - begin - 0.5
    assert summary.rows == summary.contexts == 30


def test_processes_are_started_for_what_is_wanted_after_compiling_once(
    monkeypatch: pytest.MonkeyPatch, prompt_file: Path, tmp_path: Path
) -> None:
    """Of four shards one machine measures one; a second process would load models in vain."""
    events = []
    original = runs.run_each

    def noted(place, *arguments, **keywords):
        events.append(place.count)
        return original(dataclasses.replace(place, count=1), *arguments, **keywords)

    monkeypatch.setattr(runs, "run_each", noted)
    monkeypatch.setattr(runs, "compile_table", lambda: events.append("compiled"))
    settings = Settings(k=(1,), shard_prompts=1, max_tokens=4)
    for name, share, count in (("one", range(2, 3), 1), ("two", range(2, 9), 2)):
        done = runs.measure_prompts(
            tmp_path / name,
            source=open_prompts(prompt_file),
            models=CPU,
            settings=settings,
            workers=Workers(count=4),
            share=share,
        )
        assert done.written == count
        assert events[:2] == ["compiled", count]
        events.clear()


def test_commands_measure_and_merge(printed, tmp_path: Path) -> None:
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=30)
    common = ("measure", "--from-trace", trace, "--shard-size", "8", "--k", "1-2")
    for name, shards in (("a", "0:2"), ("b", "2:4")):
        shown = printed(*common, "--out", tmp_path / name, "--shards", shards)
        assert "2 of 4 shards, 2 of them now" in shown
    merged = printed("merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "c")
    assert "4 shards, complete" in merged


def test_progress_tells_how_much_is_done_and_how_fast(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace = write_small_trace(tmp_path / "trace.safetensors", positions=30)
    shown = list[tuple[str, ...]]()
    monkeypatch.setattr(runs, "told", lambda *said: shown.append(said))
    runs.measure_trace_file(tmp_path / "run", trace=trace, settings=SETTINGS)
    parts = [said[1] for said in shown if said[0] == "positions"]
    assert parts[0] == "0 of 30" and parts[-1].startswith("30 of 30, ")
    assert parts[-1].endswith(" positions per second")


def test_every_kind_of_source_has_the_same_prompts(tmp_path: Path) -> None:
    import pyarrow as pa

    texts = [text.strip() for text in TEXTS]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    folder = tmp_path / "set"
    folder.mkdir()
    shutil.copy(tmp_path / "a.jsonl", folder / "train.jsonl")
    sources = [
        open_prompts(tmp_path / "a.txt"),
        open_prompts(tmp_path / "a.jsonl"),
        open_prompts(tmp_path / "a.parquet"),
    ]
    pytest.importorskip("datasets")
    digests = set()
    for source in (*sources, data_set(str(folder))):
        digest = Digest()
        found = list(prompts(source))
        for prompt in found:
            digest.update(prompt)
        assert [prompt.text for prompt in found] == texts, source
        digests.add(digest.hexadecimal)
    assert len(digests) == 1
    with pytest.raises(AnalysisError, match="could not be opened"):
        list(data_set(str(tmp_path / "none")).texts())


def test_a_data_set_that_is_pickled_is_not_read(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    import pickle

    (tmp_path / "train.pkl").write_bytes(pickle.dumps({"text": ["x"]}))
    with pytest.raises(AnalysisError):
        list(data_set(str(tmp_path)).texts())


def test_memory_does_not_grow_with_the_number_of_prompts(tmp_path: Path) -> None:
    """Planning and cutting into shards: ten times the prompts, the same peak."""
    peaks = []
    for count in (3_000, 30_000):
        path = tmp_path / f"{count}.txt"
        path.write_text(
            "".join(f"prompt number {i} of many, long enough to be counted\n" for i in range(count))
        )
        tracemalloc.start()
        digest = Digest()
        source = open_prompts(path)
        runs._write_prompts(tmp_path / f"{count}.parquet", runs._digested(source, digest))
        for group in runs.in_shards(source, 16):
            assert len(group) <= 16
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert digest.count == count
    assert peaks[1] < 1.3 * peaks[0]


def test_half_precision_models_and_a_device_map(prompt_file: Path) -> None:
    pytest.importorskip("accelerate")
    from analysis.run.measure import ShardTask

    task = ShardTask(
        0,
        PairSource(dtype="bfloat16", device_map="cpu"),
        Settings(k=(1,), max_tokens=8),
        ((0, TEXTS[0]),),
    )
    result = measure_shard(task)
    assert result.contexts == result.rows > 0
    assert load_source(task.models).target.dtype == torch.bfloat16
