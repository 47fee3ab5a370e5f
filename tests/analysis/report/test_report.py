"""The report's numbers against other ways to get them, and what a hostile or broken run can do to
it.
"""

import base64
import dataclasses
import gzip
import hashlib
import json
import re
import shutil
import tracemalloc
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import otm
from analysis.decode.decoder_text import levels_of, most_tokens
from analysis.decode.efficiency import efficiency
from analysis.decode.results import open_results
from analysis.errors import AnalysisError
from analysis.report import aggregate as aggregation, aggregate as surveying, explanations, reading
from analysis.report.aggregate import Aggregates, aggregate
from analysis.report.answer import answer_data, answer_run
from analysis.report.decode_results import read_decode
from analysis.report.markdown import escaped, render as render_markdown
from analysis.report.page import embedded_json, render
from analysis.report.page_texts import view
from analysis.report.reading import Run, open_run
from analysis.report.summary import LAWS, measured_data, schemes_of
from analysis.report.write import write_report
from analysis.run import manifest as manifests
from analysis.run.manifest import manifest_of
from analysis.run.settings import NOTES
from analysis.statistics import CellCounts, ClusterSums
from otm.statistics import ratio_of_means
from tests.analysis.report.synthetic_run import (
    HOSTILE,
    RECORDS,
    decode_file,
    hostile_manifest,
    sealed,
    write_run,
)

ROUNDING = 1e-12  # sums of at most 1e4 numbers in [0, 1]: relative error below 1e4 · 2^-53


@dataclasses.dataclass(frozen=True)
class Measured:
    """A run on disk with its averages and all its rows."""

    run: Run
    found: Aggregates
    rows: dict[str, np.ndarray]


def text_of(run: Run, found: Aggregates) -> dict[str, Any]:
    """What a report of this run shows as text, without costs."""
    return view(run, found, None, answer_run(run, found, None, None))


def page_of(run: Run, found: Aggregates) -> str:
    """The page of this run."""
    data = {
        "answer": answer_data(run, answer_run(run, found, None, None)),
        "measured": measured_data(run, found, None),
    }
    return render(text_of(run, found), data)


def measured(folder: Path) -> Measured:
    run = open_run(folder)
    table = pa.concat_tables([pq.read_table(path) for path in run.shards])
    return Measured(
        run, aggregate(run), {name: table.column(name).to_numpy() for name in table.column_names}
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measured(write_run(tmp_path_factory.mktemp("plain") / "run", top_ps=(0.8, 1.0)))


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Intervals so wide that costs decide whether drafting pays, does not, or cannot be told."""
    return measured(
        write_run(tmp_path_factory.mktemp("loose") / "run", width=0.9, temperatures=(1.0,))
    )


@pytest.fixture
def copy(plain: Measured, tmp_path: Path) -> Path:
    return Path(shutil.copytree(plain.run.folder, tmp_path / "run"))


def rows_of(data: Measured, setting: int) -> np.ndarray:
    temperature, top_p = data.found.strata.settings[setting]
    return np.flatnonzero((data.rows["temperature"] == temperature) & (data.rows["top_p"] == top_p))


# ---- means ---------------------------------------------------------------------------------------


def test_means_gaps_and_statistics_are_those_of_the_rows(plain: Measured) -> None:
    assert len(plain.found.strata.settings) == 4
    assert sum(plain.found.strata.rows) == plain.run.num_rows == 12 * 20 * 4
    for s in range(4):
        rows = rows_of(plain, s)
        for i, column in enumerate(plain.run.schemes):
            values = plain.rows[column.name][rows]
            assert abs(plain.found.lower[s].value[i] - values.mean()) < ROUNDING
            if column.optimum is not None:
                gap = (plain.rows[column.optimum][rows] - values).mean()
                assert abs(plain.found.gap_low[s].value[i] - gap) < ROUNDING
                assert gap > -1e-9  # an optimum is one; 1e-9 for the rounding of both
            else:
                assert np.isnan(plain.found.gap_low[s].value[i])
        for i, statistic in enumerate(plain.run.statistics):
            values = plain.rows[statistic.name][rows]
            finite = np.isfinite(values)
            assert abs(plain.found.statistics[s].value[i] - values[finite].mean()) < ROUNDING * max(
                1, values[finite].max()
            )
            assert plain.found.infinite[s][i] == pytest.approx(np.isinf(values).mean())
    assert max(share.max() for share in plain.found.infinite) > 0.1, (
        "top-p should have made some divergences infinite"
    )


@pytest.mark.parametrize(
    ("quantity", "binned"), [("target_entropy", "by_entropy"), ("position", "by_position")]
)
def test_bins_hold_about_equally_many_rows_and_the_right_ones(
    plain: Measured, quantity: str, binned: str
) -> None:
    for s in range(4):
        rows, table = rows_of(plain, s), getattr(plain.found, binned)[s]
        order = np.argsort(plain.rows[quantity][rows], kind="stable")
        ends = np.cumsum(table.rows).astype(int)
        assert ends[-1] == len(rows)
        # 240 rows in ten bins; ties (top-p leaves one token: entropy 0) and cells (.01 nats, one
        # position) limit how equal they are
        ties = np.unique(plain.rows[quantity][rows], return_counts=True)[1].max()
        assert table.rows.min() > 0 and table.rows.max() <= 48 + ties
        assert len(table.rows) >= 7
        for b, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            mine = rows[order[start:end]]
            assert abs(table.centre[b] - plain.rows[quantity][mine].mean()) < 1e-9
            for i, column in enumerate(plain.run.schemes):
                assert (
                    abs(table.lower[b].value[i] - plain.rows[column.name][mine].mean()) < ROUNDING
                )


def test_quantiles_and_histograms_are_those_of_the_rows(plain: Measured) -> None:
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    for i, column in enumerate(plain.run.schemes):
        values = plain.rows[column.name][rows_of(plain, 0)]
        expected = np.quantile(values, levels, method="inverted_cdf")
        # one bin, and half of one
        assert np.abs(plain.found.histograms.quantiles(0, i, levels) - expected).max() <= 0.0011
        counted = np.histogram(np.minimum(values, 1 - 1e-9), bins=np.linspace(0, 1, 41))[0] / len(
            values
        )
        # a value on an edge may fall to either side: allow two of 240
        assert np.abs(plain.found.histograms.coarse(0, i, 40) - counted).sum() <= 4 / 240


def test_edges_of_a_constant_and_of_nothing() -> None:
    tally = CellCounts(width=1.0, cells=8)
    assert len(tally.edges(10)) == 0
    tally.add(np.full(50, 3.0))
    assert len(tally.edges(10)) == 0
    tally.add(np.array([1e9, np.inf, 0.0]))
    assert tally.counts[-1] == 1 and tally.counts[0] == 1


# ---- intervals -----------------------------------------------------------------------------------


def test_interval_agrees_with_the_cluster_bootstrap() -> None:
    """Unequal clusters; the percentile bootstrap's Monte Carlo error at 4,000 resamples is below 2
    %, its bias of order 1/C.
    """
    rng = np.random.default_rng(5)
    counts = rng.integers(5, 60, size=150).astype(float)
    sums = counts * np.clip(rng.normal(0.7, 0.15, size=150), 0, 1)
    result = ratio_of_means(sums[:, None], counts[:, None])
    bootstrap = stats.bootstrap(
        (sums, counts),
        lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=4_000,
        method="percentile",
        rng=np.random.default_rng(6),
    ).confidence_interval
    width = result.high[0] - result.low[0]
    assert width == pytest.approx(bootstrap.high - bootstrap.low, rel=0.08)
    assert abs(result.low[0] - bootstrap.low) < 0.1 * width


REPLICATIONS = 1_500


def covered(clusters: int, *, by_row: bool) -> int:
    """Count intervals that hold the true mean: 48 prompts of 6 rows, most of the variance between
    prompts.
    """
    rng = np.random.default_rng(11)
    prompt = np.repeat(np.arange(48), 6)
    values = rng.normal(size=(48, REPLICATIONS))[prompt] + 0.3 * rng.normal(
        size=(288, REPLICATIONS)
    )
    table = ClusterSums(groups=1, clusters=288 if by_row else clusters, columns=REPLICATIONS)
    cluster = np.arange(288) if by_row else prompt
    for part in np.array_split(np.arange(288), 5):  # batches cut prompts in two
        table.add(np.zeros(len(part), dtype=np.int64), cluster[part], values[part])
    means = ratio_of_means(*table.tables([0]))
    return int(((means.low <= 0) & (means.high >= 0)).sum())


@pytest.mark.parametrize("clusters", [48, 16])
def test_interval_covers_as_often_as_it_says(clusters: int) -> None:
    """Equal clusters of normal rows make it the one-sample t interval, exact at 95 %; also when
    three prompts share a cluster.

    Bounds at a false-alarm rate of 1e-9; an interval that takes rows as independent covers about 62
    % and must be caught.
    """
    low, high = stats.binom.ppf([5e-10, 1 - 5e-10], REPLICATIONS, 0.95)
    assert low <= covered(clusters, by_row=False) <= high
    assert covered(clusters, by_row=True) < low


def test_one_cluster_has_no_interval() -> None:
    result = ratio_of_means(np.array([[1.0]]), np.array([[4.0]]))
    assert result.value[0] == 0.25
    assert np.isnan(result.low[0]) and np.isnan(result.high[0])


def test_limits_stay_in_the_range_of_what_is_averaged(tmp_path: Path) -> None:
    """Two prompts: the t quantile is 12.7, so that limits reach far beyond [0, 1] unless they are
    cut; means are left alone.
    """
    folder = write_run(
        tmp_path / "run",
        prompts=2,
        ks=(1, 2),
        temperatures=(1.0,),
        positions=6,
        seed=3,
        losses=True,
    )
    data = measured(folder)
    prompt = data.rows["prompt"]
    beyond = 0
    for i, column in enumerate(data.run.schemes):
        values = data.rows[column.name]
        sums = np.array([[values[prompt == c].sum()] for c in range(2)])
        free = ratio_of_means(sums, np.full((2, 1), 6.0))
        low, high = data.found.lower[0].low[i], data.found.lower[0].high[i]
        assert (low, high) == pytest.approx(
            (max(0.0, free.low[0]), min(1.0, free.high[0])), abs=ROUNDING
        )
        beyond += free.low[0] < 0 or free.high[0] > 1
    assert beyond > 3
    means, statistics = data.found.statistics[0], data.run.statistics
    high = dict(zip([column.name for column in statistics], means.high, strict=False))
    signed = [column.name == "lost_rounding" for column in statistics] * 2
    assert (means.low >= np.where(signed, -1, 0)).all() and (means.low <= means.value).all()
    assert all(high[column.name] <= 1 for column in statistics if column.unit == "probability")
    assert high["tv"] == high["likeliest_k2"] == 1 < high["target_entropy"]
    summary = (
        write_report(data.run.folder)
        .markdown.read_text(encoding="utf-8")
        .partition("## Mean acceptance")[2]
    )
    limits = [
        float(end) for pair in re.findall(r"\(([-\d.]+) to ([-\d.]+)\)", summary) for end in pair
    ]
    assert len(limits) > 20 and min(limits) == 0 and max(limits) == 1


def test_a_run_of_one_prompt_is_reported_without_intervals(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", prompts=1, ks=(1,), temperatures=(1.0,), positions=3)
    text = write_report(folder).html.read_text(encoding="utf-8")
    assert "no interval over prompts" in text
    assert not re.search(r"\bnan\b", write_report(folder).markdown.read_text(encoding="utf-8"))


# ---- memory and sizes ----------------------------------------------------------------------------


def repeated(source: Path, folder: Path, times: int) -> Path:
    """Write a run of `times` as many prompts by repeating shards under new prompt numbers."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("shard-*"))
    shards = sorted((source / "shards").glob("*.parquet"))
    for copy in range(times):
        for i, path in enumerate(shards):
            table = pq.read_table(path)
            table = table.set_column(
                0, "prompt", pa.array(table.column("prompt").to_numpy() + 12 * copy)
            )
            pq.write_table(table, folder / "shards" / f"shard-{copy * len(shards) + i:05d}.parquet")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["plan"] |= {"num_prompts": 12 * times, "num_shards": times * len(shards)}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return sealed(folder)


def peak(folder: Path) -> int:
    run = open_run(folder)
    tracemalloc.start()
    try:
        aggregate(run)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_run(
    plain: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven times the rows and prompts: what is left to grow are a few numbers per prompt (here 72
    more prompts, below 40 kB).
    """
    monkeypatch.setattr(aggregation, "MOST_CLUSTERS", 12)
    small, large = (peak(repeated(plain.run.folder, tmp_path / str(n), n)) for n in (1, 7))
    assert large < small + 100_000
    assert small > 1_000_000, "the tables themselves should have been seen"


def test_sharing_clusters_changes_no_mean(plain: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "MOST_CLUSTERS", 5)
    found = aggregate(plain.run)
    assert found.num_clusters == 5
    for a, b in zip(found.lower, plain.found.lower, strict=True):
        np.testing.assert_allclose(a.value, b.value, atol=ROUNDING)
        assert not np.allclose(a.low, b.low, atol=1e-6)


@pytest.mark.parametrize(
    ("module", "limit", "value", "message"),
    [
        (aggregation, "_MOST_BYTES", 1 << 18, r"must fit into 0\.25 MiB"),
        (surveying, "_MOST_SETTINGS", 3, "at most 3 sampling settings"),
        (surveying, "_MOST_PROMPTS", 5, "numbered below 5"),
        (reading, "_MOST_ROW_GROUP_BYTES", 1 << 10, "row group"),
        (manifests, "_MOST_BYTES", 100, "bytes and is larger than 100"),
        (reading, "_MOST_COLUMNS", 3, "columns"),
    ],
)
def test_sizes_are_checked_first(
    plain: Measured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    limit: str,
    value: int,
    message: str,
) -> None:
    monkeypatch.setattr(module, limit, value)
    with pytest.raises(AnalysisError, match=message):
        write_report(plain.run.folder, out=tmp_path)
    assert not list(tmp_path.iterdir())


# ---- broken runs ---------------------------------------------------------------------------------


def edit(folder: Path, change: dict[str, Any]) -> None:
    path = folder / "manifest.json"
    path.write_text(
        json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8"
    )


def replaced(folder: Path, column: str, values: Any) -> None:
    path = folder / "shards" / "shard-00001.parquet"
    table = pq.read_table(path)
    pq.write_table(
        table.set_column(table.column_names.index(column), column, pa.array([values] * len(table))),
        path,
    )
    sealed(folder)


BREAKAGES = {
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "has no manifest"),
    "no JSON": (lambda f: (f / "manifest.json").write_text("{"), "not JSON"),
    "deep JSON": (lambda f: (f / "manifest.json").write_text("[" * 200_000), "not JSON"),
    "not UTF-8": (lambda f: (f / "manifest.json").write_bytes(b'{"a": "\xff"}'), "not JSON"),
    "a list": (lambda f: (f / "manifest.json").write_text("[]"), "schema_version"),
    "another version": (lambda f: edit(f, {"schema_version": 3}), "schema_version is 3"),
    "schemes no list": (lambda f: edit(f, {"schemes": {"a": 1}}), "not a list"),
    "no schemes": (lambda f: edit(f, {"schemes": []}), "0 schemes"),
    "k a string": (lambda f: edit(f, {"schemes": [{"column": "kseq_iid_k2", "k": "2"}]}), "k ≥ 1"),
    "no column name": (lambda f: edit(f, {"schemes": [{"k": 2}]}), "'column'"),
    "no shards": (lambda f: shutil.rmtree(f / "shards"), "at least one finished shard"),
    "missing column": (
        lambda f: edit(f, {"statistics": [{"column": "other", "name": "x", "unit": ""}]}),
        "lacks 'other'",
    ),
    "truncated shard": (
        lambda f: (f / "shards" / "shard-00001.parquet").write_bytes(
            (f / "shards" / "shard-00001.parquet").read_bytes()[:-9]
        ),
        "shard-00001.parquet must be an intact Parquet file",
    ),
    "text for numbers": (lambda f: replaced(f, "kseq_iid_k2", "high"), "not what was written"),
    "negative prompt": (lambda f: replaced(f, "prompt", -1), "integers ≥ 0"),
    "missing prompt": (lambda f: replaced(f, "prompt", None), "integers ≥ 0"),
    "endless temperature": (lambda f: replaced(f, "temperature", float("inf")), "finite"),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_run_is_refused_in_one_sentence(name: str, copy: Path, tmp_path: Path) -> None:
    damage, message = BREAKAGES[name]
    damage(copy)
    with pytest.raises(AnalysisError, match=re.escape(message)):
        write_report(copy, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_corrupt_pages_are_refused(copy: Path, tmp_path: Path) -> None:
    path = copy / "shards" / "shard-00000.parquet"
    data = bytearray(path.read_bytes())
    for i in range(4, len(data) // 2):
        data[i] ^= 0x5A
    path.write_bytes(bytes(data))
    with pytest.raises(AnalysisError, match=r"shard-00000\.parquet"):
        write_report(copy, out=tmp_path / "out")


def test_prompts_with_a_damaged_byte_are_read_or_refused(copy: Path) -> None:
    """What Parquet finds while it reads, a header or a page later, is refused as what it finds when
    it opens.
    """
    run, path = open_run(copy), copy / "prompts.parquet"
    whole = path.read_bytes()
    refused = 0
    for place in range(4, 300):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        try:
            reading.read_prompts(run, [0, 1])
        except AnalysisError as error:
            assert "prompts.parquet" in str(error)
            refused += 1
    assert refused > 30


def test_a_shard_that_links_out_of_the_run_is_not_followed(copy: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.parquet"
    (copy / "shards" / "shard-00002.parquet").rename(moved)
    (copy / "shards" / "shard-00002.parquet").symlink_to(moved)
    with pytest.raises(AnalysisError, match="link out of it"):
        write_report(copy)


def test_values_that_are_missing_are_left_out_of_their_own_mean_only(
    copy: Path, plain: Measured
) -> None:
    replaced(copy, "kseq_iid_k2", float("nan"))
    changed = measured(copy)
    place = {column.name: i for i, column in enumerate(plain.run.schemes)}
    values = changed.rows["kseq_iid_k2"][rows_of(changed, 0)]
    assert abs(changed.found.lower[0].value[place["kseq_iid_k2"]] - np.nanmean(values)) < ROUNDING
    assert (
        changed.found.lower[0].value[place["kseq_iid_k4"]]
        == plain.found.lower[0].value[place["kseq_iid_k4"]]
    )
    gap = np.nanmean(changed.rows["optimum_iid_k2"][rows_of(changed, 0)] - values)
    assert abs(changed.found.gap_low[0].value[place["kseq_iid_k2"]] - gap) < ROUNDING


def test_an_unfinished_run_is_reported_and_says_so(copy: Path) -> None:
    (copy / "shards" / "shard-00001.parquet").unlink()
    written = write_report(copy)
    for path in (written.html, written.markdown):
        assert "Unfinished run: 2 of 3 shards" in path.read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_is_an_error(plain: Measured, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="choose another --out"):
        write_report(plain.run.folder, out=Path("/proc/report"))


@pytest.mark.parametrize("name", ["file", "page.html", "Summary.MD"])
def test_out_is_a_folder(plain: Measured, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AnalysisError, match=f"--out must be a folder.*{name}"):
        write_report(plain.run.folder, out=tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "v1.html").mkdir()
    assert write_report(plain.run.folder, out=tmp_path / "v1.html").html.is_file(), (
        "a folder may be called anything"
    )


def test_every_setting_has_its_own_answer(plain: Measured) -> None:
    answer = answer_run(plain.run, plain.found, None, None)
    summary = render_markdown(text_of(plain.run, plain.found))
    for setting, (label, card) in enumerate(text_of(plain.run, plain.found)["cards"]):
        assert card == answer.cards[setting]
        assert f"| {label} | {card.title} | {card.what} |" in summary
    assert len({card.what for card in answer.cards}) == len(answer.cards)
    assert (
        summary.index("# ")
        < summary.index(answer.cards[3].what)
        < summary.index("## The answer at every setting")
    )
    first, other = (
        "## Mean acceptance, temperature 1, no top-p",
        "## Mean acceptance, temperature 0.7, top-p 0.8",
    )
    assert summary.index("## The answer") < summary.index(first) < summary.index(other)


def test_kinds_and_optima_of_schemes(plain: Measured) -> None:
    schemes = schemes_of(plain.run)
    kinds = {scheme.name: scheme.kind for scheme in schemes}
    assert (
        kinds["optimum, i.i.d. drafts (otm.Optimal)"] == "optimum" and kinds["K-SEQ"] == "verifier"
    )
    assert kinds["optimum, greedy drafts (otm.GreedyOptimal)"] == "optimum"
    assert [s.usable for s in schemes] == [s.kind in ("optimum", "verifier") for s in schemes]
    assert kinds["lenience (lenience = 0.5)"] == "lossy" and kinds["Poisson matching"] == "bound"


# ---- variants of runs ----------------------------------------------------------------------------


def test_interval_runs_enclose_the_exact_ones(tmp_path: Path) -> None:
    """The same seed with and without intervals of width .06: exact means and gaps lie between the
    certified ends.
    """
    settings: dict[str, Any] = {"ks": (1, 2), "temperatures": (1.0,), "prompts": 6}
    exact = measured(write_run(tmp_path / "exact", **settings))
    wide = measured(write_run(tmp_path / "wide", width=0.06, **settings))
    assert (wide.found.lower[0].value <= exact.found.lower[0].value).all()
    assert (wide.found.upper[0].value >= exact.found.lower[0].value).all()
    known = np.isfinite(exact.found.gap_low[0].value)
    assert (
        wide.found.gap_low[0].value[known] <= exact.found.gap_low[0].value[known] + ROUNDING
    ).all()
    assert (
        wide.found.gap_high[0].value[known] >= exact.found.gap_low[0].value[known] - ROUNDING
    ).all()
    for i in np.flatnonzero(known):
        column, best = wide.run.schemes[i], f"{wide.run.schemes[i].optimum}"
        least = np.maximum(0, wide.rows[f"{best}_lower"] - wide.rows[column.upper]).mean()
        most = np.maximum(0, wide.rows[f"{best}_upper"] - wide.rows[column.lower]).mean()
        assert abs(wide.found.gap_low[0].value[i] - least) < ROUNDING
        assert abs(wide.found.gap_high[0].value[i] - most) < ROUNDING
    data = measured_data(wide.run, wide.found, None)["acceptance"][0]
    for i, column in enumerate(wide.run.schemes):
        assert data["low"][i] <= max(0.0, wide.found.lower[0].low[i]) + 1e-6
        assert data["high"][i] >= min(1.0, wide.rows[column.upper].mean()) - 1e-6
    assert "certified between two ends" in write_report(tmp_path / "wide").html.read_text(
        encoding="utf-8"
    )


BAND = (
    "Line: certified lower end. Band: from there to the certified upper end, widened by the 95 % "
    "interval over prompts."
)


def test_charts_of_intervals_say_what_line_and_band_are(loose: Measured, plain: Measured) -> None:
    shown = text_of(loose.run, loose.found)
    page = page_of(loose.run, loose.found)
    assert page.count(BAND) == 1, "once, above the charts"
    assert (
        " points more (certified range; what was not recorded leaves it open) than K-SEQ"
        in shown["short"][0][1]
    )
    exact = text_of(plain.run, plain.found)
    assert BAND not in page_of(plain.run, plain.found)
    assert "certified" not in " ".join(line for lines in exact["short"] for line in lines)


def test_intervals_of_statistics_reach_from_one_end_to_the_other(tmp_path: Path) -> None:
    """Total variation: lower limit of the lower end to upper limit of the upper one. Divergences
    without an upper end say so.
    """
    folder = write_run(tmp_path / "run", width=0.2, ks=(1,), temperatures=(1.0,), prompts=8)
    for path in sorted((folder / "shards").glob("*.parquet")):
        table = pq.read_table(path)
        upper = np.full(len(table), np.inf)
        place = table.column_names.index("kl_target_draft_upper")
        pq.write_table(table.set_column(place, "kl_target_draft_upper", pa.array(upper)), path)
    sealed(folder)
    data = measured(folder)
    rows = {row[0]: row for row in text_of(data.run, data.found)["tables"][0]["statistics"]}
    ends = [one_sample(data, f"tv_{end}") for end in ("lower", "upper")]
    means = [data.rows[f"tv_{end}"].mean() for end in ("lower", "upper")]
    told = rows["Total variation (probability)"]
    assert told[1:] == (
        f"[{means[0]:.4f}, {means[1]:.4f}]",
        f"{ends[0][0]:.4f} to {ends[1][1]:.4f}",
        "",
    )
    why = "no upper bound: a token that was not listed could have probability 0 in one model"
    low, mean = (
        one_sample(data, "kl_target_draft_lower")[0],
        data.rows["kl_target_draft_lower"].mean(),
    )
    assert rows["KL(target ‖ draft) (nats)"][1:] == (f"[{mean:.4f}, ∞]", f"{low:.4f} to ∞", why)
    summary = write_report(folder).markdown.read_text(encoding="utf-8")
    assert not re.search(r"\bnan\b", summary) and "left out" not in summary


def one_sample(data: Measured, column: str) -> tuple[float, float]:
    """The t interval of the prompts' means; prompts have equally many rows."""
    means = [data.rows[column][data.rows["prompt"] == c].mean() for c in range(8)]
    found = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    return max(0.0, found.low), min(1.0, found.high) if column.startswith("tv") else found.high


def test_what_is_infinite_and_what_could_be_are_told_apart(tmp_path: Path) -> None:
    """In 10 of 40 rows a divergence is infinite, in 20 others only its upper end is."""
    folder = write_run(
        tmp_path / "run", width=0.2, ks=(1,), temperatures=(1.0,), prompts=2, shards=1
    )
    path = folder / "shards" / "shard-00000.parquet"
    table = pq.read_table(path)
    for end, count in (("lower", 10), ("upper", 30)):
        name = f"kl_target_draft_{end}"
        values = table.column(name).to_numpy().copy()
        values[:count] = np.inf
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pq.write_table(table, path)
    sealed(folder)
    data = measured(folder)
    row = text_of(data.run, data.found)["tables"][0]["statistics"][3]
    assert row[1].endswith(", ∞]") and row[2].endswith(" to ∞")
    assert row[3].startswith(
        "infinite at 25.0 % of positions, left out of the mean; no upper bound at 50.0 % of "
        "positions: "
    )


def test_a_quantity_infinite_everywhere_has_no_mean(copy: Path) -> None:
    for path in (copy / "shards").glob("*.parquet"):
        table = pq.read_table(path)
        place = table.column_names.index("kl_target_draft")
        pq.write_table(
            table.set_column(place, "kl_target_draft", pa.array(np.full(len(table), np.inf))), path
        )
    run = open_run(sealed(copy))
    row = text_of(run, aggregate(run))["tables"][0]["statistics"][3]
    assert row[1:] == ("–", "", "infinite at 100.0 % of positions, left out of the mean")


def test_the_summary_explains_its_terms_and_says_where_positions_are_from_once(
    plain: Measured,
) -> None:
    shown = text_of(plain.run, plain.found)
    summary = render_markdown(shown)
    for term, explanation in shown["terms"]:
        assert f"* **{escaped(term)}**: {escaped(explanation)}" in summary
    assert explanations._POSITIONS["text"] in summary
    assert plain.run.manifest["position_note"] not in summary
    single = dataclasses.replace(
        plain.run, manifest=plain.run.manifest | {"settings": {"positions": "by hand"}}
    )
    assert f"Positions: {plain.run.manifest['position_note']}." in explanations.method(
        single, plain.found
    )


def test_both_ends_of_intervals_are_said(loose: Measured) -> None:
    shown = text_of(loose.run, loose.found)
    i = next(i for i, c in enumerate(loose.run.schemes) if c.name == "optimum_iid_k1")
    low, high = loose.found.lower[0].value[i], loose.found.upper[0].value[i]
    assert f"yields {1 + low:.2f} to {1 + high:.2f} tokens instead of 1." in shown["short"][0][0]
    assert "exact" not in " ".join([shown["interval_words"], *shown["method"]])


def test_of_a_trace_the_models_and_the_setting_are_those_that_it_names(
    copy: Path, plain: Measured
) -> None:
    settings = {
        key: value
        for key, value in plain.run.section("settings").items()
        if key not in ("draft", "target")
    }
    edit(copy, {"settings": settings, "provenance": {"trace": {}}})
    shown = text_of(open_run(sealed(copy)), plain.found)
    assert shown["title"] == "unnamed draft drafting for unnamed target"
    assert set(shown["settings"]) == {"sampling as recorded"}
    said = {"draft_model": "a/b\u2028<i>", "target_model": "c", "temperature": "0.6", "top_k": "20"}
    edit(copy, {"provenance": {"trace": said}})
    shown = text_of(open_run(sealed(copy)), plain.found)
    assert shown["title"] == "a/b\ufffd<i> drafting for c"
    assert shown["setting_words"].startswith("Sampling: temperature 0.6, top-k 20")
    assert "<i>" not in page_of(open_run(copy), plain.found)
    assert "<i>" not in render_markdown(shown)
    edit(copy, {"provenance": {"trace": ["no object"]}})
    assert (
        text_of(open_run(copy), plain.found)["settings"]
        == text_of(plain.run, plain.found)["settings"]
    )


def test_optima_are_named_by_the_verifiers_that_attain_them(plain: Measured, copy: Path) -> None:
    """K-SEQ stays below the optimum here, so the recommended i.i.d. verifier is otm.Optimal()."""
    place = {column.name: i for i, column in enumerate(plain.run.schemes)}
    mean = plain.found.lower[3].value
    gap = 100 * (
        mean[place["optimum_iid_k4"]]
        - max(mean[place[f"{name}_iid_k4"]] for name in ("kseq", "recursive_rejection"))
    )
    short = text_of(plain.run, plain.found)["short"][3]
    assert (
        f"otm.Optimal() attains it: {gap:.1f} points more than" in short[1]
        and "the best other verifier" in short[1]
    )
    assert gap > 0.1
    iid = [scheme for scheme in schemes_of(plain.run) if scheme.law == "IID"]
    assert iid[0].label == "optimum, i.i.d. drafts (otm.Optimal)"
    assert iid[0].short == "optimal (i.i.d.)"
    entries = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))["schemes"]
    for entry in entries:
        if entry["scheme"] == "RecursiveRejection()":
            entry |= {
                "scheme": "optimum",
                "label": "optimum",
                "law": "WithoutReplacement",
                "optimum_column": entry["column"],
            }
    edit(copy, {"schemes": entries})
    usable = {scheme.label: scheme.usable for scheme in schemes_of(open_run(sealed(copy)))}
    assert not usable["optimum (without replacement)"], (
        "nothing attains that one at every vocabulary size"
    )


def test_the_measured_columns_have_their_kinds_and_words(plain: Measured) -> None:
    """The columns that `measure` writes, not names made up here: the report knows some of them by
    what they are called.
    """
    columns = otm.table.table_columns([1, 2, 4])
    written = manifest_of({"threads": 1}, "", {}, {}, columns)
    run = dataclasses.replace(
        plain.run,
        manifest=written,
        schemes=tuple(reading._scheme(entry) for entry in written["schemes"]),
    )
    schemes = schemes_of(run)
    of_column = {
        columns[i].name.rsplit("_k", 1)[0]: scheme for scheme in schemes for i in scheme.columns
    }
    optima = {
        "optimum_iid": "optimum, i.i.d. drafts (otm.Optimal)",
        "greedy_optimal_greedy": "optimum, greedy drafts (otm.GreedyOptimal)",
        "optimum_threshold_race": "optimum, threshold race drafts (otm.Optimal)",
    }
    for column in columns:
        stem = column.name.rsplit("_k", 1)[0]
        expected = "optimum" if stem in optima else "verifier" if column.lossless else "lossy"
        assert of_column[stem].kind == ("bound" if column.definition == "bound" else expected), (
            column
        )
        assert of_column[stem].usable == (of_column[stem].kind in ("optimum", "verifier")), column
    assert {scheme.label for scheme in schemes if scheme.kind == "optimum"} == set(optima.values())
    assert {stem: of_column[stem].label for stem in optima} == optima
    assert of_column["naive_top_k"].label == "naive (top k)"
    assert of_column["lenience_iid"].label == "lenience (lenience = 0.5; i.i.d.)"
    assert of_column["minhash_rule_iid"].label == "MinHash, by rule (i.i.d.)"
    assert len({scheme.label for scheme in schemes}) == len(schemes) == len(of_column)
    told = [term for term, _ in explanations.terms(schemes)]
    for scheme in schemes:
        assert any(scheme.name in term for term in told), f"{scheme.name} is not explained"
        assert any(LAWS[scheme.law] in term for term in told), f"{scheme.law} is not explained"


def test_words_are_for_classes_that_exist() -> None:
    assert (
        explanations._LAW_TERMS.keys() <= LAWS.keys() == {law.__name__ for law in otm.drafts.LAWS}
    )


def test_every_kind_of_position_is_put_into_words() -> None:
    assert explanations._POSITIONS.keys() == NOTES.keys()


def test_the_best_draft_temperature_is_named(tmp_path: Path) -> None:
    data = measured(
        write_run(
            tmp_path / "run",
            temperatures=(1.0,),
            draft_temperatures=(0.5, 1.0, 3.0),
            ks=(1, 2),
            prompts=5,
            positions=10,
        )
    )
    sentence = text_of(data.run, data.found)["best_draft_temperature"]
    best = max(
        (0.5, 1.0, 3.0),
        key=lambda t: data.rows["optimum_iid_k2"][data.rows["draft_temperature"] == t].mean(),
    )
    assert f": {best:g} at temperature 1, top-p 1" in sentence


# ---- decode runs ---------------------------------------------------------------------------------


def test_block_efficiency_and_its_prediction(plain: Measured, tmp_path: Path) -> None:
    decoded = read_decode(decode_file(tmp_path / "decode.jsonl", RECORDS))
    rows = {row.decoder: row for row in decoded.predicted(plain.run, plain.found)}
    setting = plain.found.strata.settings.index((1.0, 1.0))
    mean = {c.name: plain.found.lower[setting].value[i] for i, c in enumerate(plain.run.schemes)}
    single, kseq = mean["optimum_iid_k1"], mean["kseq_iid_k4"]
    assert rows["SpeculativeSampling(3)"].measured.value == pytest.approx(12 / 6)
    assert (
        rows["SpeculativeSampling(3)"].target_calls == 6
        and rows["SpeculativeSampling(3)"].prompts == 2
    )
    assert rows["SpeculativeSampling(3)"].predicted == pytest.approx(
        1 + single + single**2 + single**3
    )
    assert rows["DraftSelection(4, 2)"].predicted == pytest.approx(1 + kseq + kseq * single)
    assert rows["BlockVerification(3)"].predicted is None
    assert not rows["DraftSelection(4, 2)"].measured.has_interval
    written = write_report(plain.run.folder, out=tmp_path / "out", decode=tmp_path / "decode.jsonl")
    assert 'id="chart-decode"' in written.html.read_text(encoding="utf-8")
    assert (
        f"| SpeculativeSampling(3) | {rows['SpeculativeSampling(3)'].predicted:.3f} | 2.000 |"
        in written.markdown.read_text(encoding="utf-8")
    )


def test_a_file_that_decode_wrote_is_reported(plain: Measured, tmp_path: Path, printed) -> None:
    """From the shipped pair to the page, with the interval that `decode` itself printed."""
    prompts, results = tmp_path / "prompts.txt", tmp_path / "decode.jsonl"
    prompts.write_text("Returns the value of\nIf True, the result is\n", encoding="utf-8")
    decoders = ["SpeculativeSampling(2)", "Gsd(batch(2))"]
    chosen = [part for text in decoders for part in ("--decoder", text)]
    words = ("--prompts", prompts, "--out", results, *chosen, "--num-tokens", "6")
    shown = printed("decode", *words, "--device", "cpu")
    written = write_report(plain.run.folder, out=tmp_path / "out", decode=results)
    summary, page = (path.read_text(encoding="utf-8") for path in (written.markdown, written.html))
    records = list(open_results(results)[1])
    for decoder in decoders:
        found = efficiency(records, decoder=decoder)
        tokens = found.tokens_per_call
        interval = f"{tokens.low:.3f} to {tokens.high:.3f}"
        row = next(line for line in summary.splitlines() if line.startswith(f"| {decoder} |"))
        assert f"| {tokens.value:.3f} | {interval} | {found.num_calls} | 2 |" in row
        assert f"<td>{interval}</td>" in page
        assert interval in next(line for line in shown.splitlines() if line.startswith(decoder))
    caption = (
        "Predicted from the run's mean acceptance, over all its prompts, as if one draft sequence "
        "survived each level; a scheme "
        "that keeps several gets more."
    )
    assert caption in summary and caption.replace("'", "&#39;") in page
    assert all(
        "2 prompts decoded; the predictions are for all 12 of the measured run." in text
        for text in (summary, page)
    )


def test_tokens_per_call_stay_between_one_and_one_more_than_the_levels(tmp_path: Path) -> None:
    """Two prompts, one at the least and one at the most: the t interval alone would be 2 ± 12.7."""
    records = [record | {"lengths": [1 + 2 * i]} for i, record in enumerate(RECORDS[1:3])]
    other = [record | {"decoder": "Ersd(batch(4))", "drafted": 4} for record in records]
    ends = [
        (row.measured.low, row.measured.high)
        for row in read_decode(decode_file(tmp_path / "d", records + other)).rows
    ]
    assert ends == [(1.0, 4.0), (1.0, 5.0)]
    assert (
        most_tokens("PrefixTree((4, 2))", 12) == 3
        and most_tokens("TreeVerification(chain(2))", 2) == 3
    )


def test_prompts_without_a_name_of_hexadecimal_digits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="line 2 does not belong there"):
        read_decode(decode_file(tmp_path / "d", [RECORDS[0] | {"prompt": "first"}]))


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        ("SpeculativeSampling(2)", ("IID", otm.Maximal(), (1, 1))),
        ("SpeculativeSampling(2, Optimal())", ("IID", otm.Optimal(), (1, 1))),
        ("SpeculativeSampling(2, Mentored(0.1))", ("IID", otm.Mentored(0.1), (1, 1))),
        ("PrefixTree((4, 2), Optimal())", ("IID", otm.Optimal(), (4, 2))),
        ("Gsd(batch(4))", ("WithoutReplacement", otm.RecursiveRejection(), (4,))),
        ("Gsd(parents([0, 0, 1]))", None),
        ("Gsd(tree('tree.json'))", None),
        ("TreeVerification(chain(2), TopK(1), Naive())", ("TopK", otm.Naive(), (1, 1))),
        ("PrefixTree((1000, 1000, 40))", None),
        ("Ersd(batch(4))", None),
        ("SpeculativeSampling(10**12)", None),
        ("SpeculativeSampling(1000000000000)", None),
        ("__import__('os').system('true')", None),
        ("(" * 5_000, None),
        ("", None),
    ],
)
def test_levels_of_a_decoder_are_read_from_its_text(decoder: str, expected: Any) -> None:
    assert levels_of(decoder) == expected


def test_predictions_say_when_they_are_for_something_else(
    plain: Measured, tmp_path: Path, copy: Path
) -> None:
    edit(copy, {"provenance": {"weights": {"draft": "a", "target": "b"}}})
    decoded = read_decode(
        decode_file(
            tmp_path / "d.jsonl", RECORDS, temperature=0.3, weights={"draft": "a", "target": "c"}
        )
    )
    told = decoded.notes(open_run(sealed(copy)), plain.found)
    assert any("other model weights" in line for line in told)
    assert any("no sampling setting" in line for line in told)
    assert all(row.predicted is None for row in decoded.predicted(plain.run, plain.found))


def test_a_torn_last_line_is_no_error_and_any_other_is(tmp_path: Path) -> None:
    path = decode_file(tmp_path / "decode.jsonl", RECORDS)
    with path.open("a") as file:
        file.write('{"decoder": "Specul')
    assert len(read_decode(path).rows) == 3
    with path.open("a") as file:
        file.write("\n")
    with pytest.raises(AnalysisError, match="line 7"):
        read_decode(path)
    for text in ("", "[]\n", '{"format": "other"}\n'):
        path.write_text(text)
        with pytest.raises(AnalysisError, match="header"):
            read_decode(path)
    with pytest.raises(AnalysisError, match="--decode"):
        read_decode(tmp_path / "missing.jsonl")


# ---- the page as a document ----------------------------------------------------------------------


class Document(HTMLParser):
    """Collects elements, their attributes, the text of scripts and all other text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(
        tmp_path_factory.mktemp("hostile") / "run",
        ks=(1, 2),
        prompts=6,
        positions=5,
        temperatures=(1.0,),
        name=HOSTILE,
    )
    hostile_manifest(folder)
    decode = decode_file(
        folder / "decode.jsonl",
        [record | {"decoder": record["decoder"] + HOSTILE} for record in RECORDS],
    )
    write_report(folder, decode=decode)
    return folder


def test_names_from_a_run_stay_text_in_the_page(hostile: Path) -> None:
    page = (hostile / "report.html").read_text(encoding="utf-8")
    document = Document(page)
    counts = Counter(tag for tag, _ in document.elements)
    assert counts["script"] == 3
    assert not counts["img"] and not counts["i"] and not counts["b"]
    assert not [
        attributes
        for _, attributes in document.elements
        for name in attributes
        if name.startswith("on")
    ]
    assert "<!--" not in page.replace("<\\!--", "")
    data = json.loads(document.scripts[0])
    assert any(HOSTILE in scheme["label"] for scheme in data["measured"]["schemes"])
    assert data["measured"]["decode"][0]["decoder"].endswith(HOSTILE)
    assert not set("<>&\u2028\u2029") & set(document.scripts[0])
    assert "document.title='owned'" in "".join(document.text), "the name itself should be readable"
    assert not set("\u2028\u2029\u202e") & set("".join(document.text)), (
        "characters that reorder text should be shown as such"
    )


def test_the_page_needs_no_network_and_its_policy_fits_its_scripts(hostile: Path) -> None:
    source = (hostile / "report.html").read_text(encoding="utf-8")
    assert len(source) < 2_500_000  # to be sent by mail; the library that draws is compressed
    document = Document(source)
    for tag, attributes in document.elements:
        for name in ("src", "href", "action", "data"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    [policy] = [
        a["content"] or ""
        for a in document.attributes("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    _, packed, own = document.scripts
    library = gzip.decompress(base64.b64decode(packed)).decode()
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (library, own)
    ]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "unsafe-inline" not in policy.split("style-src")[0] and "unsafe-eval" not in policy


def test_names_from_a_run_stay_text_in_markdown(hostile: Path) -> None:
    text = (hostile / "report.md").read_text(encoding="utf-8")
    assert "<" not in text and "\u2028" not in text
    assert "&amp;lt;b&amp;gt;" in text, "an entity in a name is shown, not resolved"
    header = next(line for line in text.splitlines() if line.startswith("| scheme"))
    columns = len(re.findall(r"(?<!\\)\|", header))
    rows = [line for line in text.splitlines() if line.startswith("| optimum")]
    assert rows
    assert all(len(re.findall(r"(?<!\\)\|", row)) == columns for row in rows)


@pytest.mark.parametrize(
    "text", ["</script>", "<!-- <script>", "\u2028\u2029", "&amp;", '"\\', "\ud800", "\x00"]
)
def test_embedded_json_says_the_same_without_a_dangerous_character(text: str) -> None:
    embedded = embedded_json({text: [text]})
    assert json.loads(embedded) == {text: [text]}
    assert re.fullmatch(r"[\x20-\x7e]*", embedded)
    assert not set("<>&") & set(embedded)


def test_embedded_json_refuses_what_json_has_not() -> None:
    with pytest.raises(ValueError):
        embedded_json([float("nan")])


def test_every_number_of_the_page_is_in_the_markdown(plain: Measured) -> None:
    shown = text_of(plain.run, plain.found)
    summary = render_markdown(shown)
    document = Document(page_of(plain.run, plain.found))
    for table in shown["tables"]:
        for row in table["cells"]:
            for value, interval in row[1:]:
                assert value in summary and interval in summary
                assert value == "" or value in document.text
    assert "0.8" in summary and all(name in summary for name in ("K-SEQ", "otm.GreedyOptimal"))


def test_the_command_writes_both_files(copy: Path, tmp_path: Path, printed) -> None:
    there = sorted(path.name for path in copy.iterdir())
    shown = printed("report", copy, "--out", tmp_path / "out")
    assert "Sampling: temperature 1, no top-p, of 4 measured the nearest to plain sampling" in shown
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["report.html", "report.md"]
    assert sorted(path.name for path in copy.iterdir()) == there


def test_what_acceptance_is_lost_to_is_told(tmp_path: Path) -> None:
    """Parts that make 1 at every setting, in the page's data and in Markdown, and not among what
    describes the distributions.
    """
    folder = write_run(
        tmp_path / "run", prompts=4, positions=6, ks=(1, 2), temperatures=(0.7, 1.0), losses=True
    )
    data = measured(folder)
    for parts in measured_data(data.run, data.found, None)["lost"]:
        # Shares are rounded nowhere, but 1 less the optimum is only as exact as Σ min.
        assert sum(part["mean"] for part in parts) == pytest.approx(1.0, abs=1e-12)
        assert all(part["low"] <= part["mean"] <= part["high"] for part in parts)
    text = write_report(folder).markdown.read_text(encoding="utf-8")
    told = text.split("## What acceptance is lost to, temperature 1")[1].split("\n## ")[0]
    where = data.found.strata.settings.index((1.0, 1.0))
    # 1 − TV
    assert (
        f"| accepted by the best verifier | {1 - data.found.statistics[where].value[2]:.4f} |"
        in told
    )
    likeliest = [
        row[1] for row in re.findall(r"^\| (\d) \| 0\.\d+ \| (0\.\d+) \|$", told, re.MULTILINE)
    ]
    assert len(likeliest) == 2 and likeliest[0] < likeliest[1]
    assert "lost to" not in text.split("## Mean acceptance")[1]
    assert "What acceptance is lost to" not in write_report(
        write_run(tmp_path / "unasked", prompts=2, positions=3, ks=(1, 2))
    ).markdown.read_text(encoding="utf-8")
