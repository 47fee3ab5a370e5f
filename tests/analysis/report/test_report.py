"""The report's numbers against other ways to get them, and what a hostile or broken run can do to
it.
"""

import base64
import dataclasses
import functools
import gzip
import hashlib
import json
import re
import shutil
import tracemalloc
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import otm
from analysis.errors import AnalysisError
from analysis.report import aggregate as aggregation, explanations, reading
from analysis.report.aggregate import Aggregates, aggregate
from analysis.report.answer import answer_run, slider_answers, slider_stops
from analysis.report.markdown import escaped, render_markdown
from analysis.report.page import embedded_json, render_page
from analysis.report.page_texts import view
from analysis.report.reading import Run, open_run
from analysis.report.summary import LAWS, measured_data, schemes_of
from analysis.report.write import write_report
from analysis.run import manifest as manifests
from analysis.run.settings import NOTES
from tests.analysis.report.synthetic_run import (
    HOSTILE,
    hostile_manifest,
    replaced,
    write_run,
)
from tests.analysis.traces_for_tests import edit_json

ROUNDING = 1e-12  # sums of at most 1e4 numbers in [0, 1]: relative error below 1e4 · 2^-53


@dataclasses.dataclass(frozen=True)
class Measured:
    """A run on disk with its averages and all its rows, and what its report shows without costs."""

    run: Run
    found: Aggregates
    rows: dict[str, np.ndarray]

    @functools.cached_property
    def answer(self):
        return answer_run(self.run, self.found, None, None)

    @functools.cached_property
    def shown(self):
        return view(self.run, self.found, self.answer)

    @functools.cached_property
    def page(self):
        measured = measured_data(self.run, self.found)
        data = {"answer": slider_stops(self.answer), "measured": measured}
        return render_page(self.shown, data, slider_answers(self.run, self.answer))

    def means(self, setting):
        columns = [column.name for column in self.run.schemes]
        return dict(zip(columns, self.found.lower[setting].value, strict=True))

    def of(self, setting):
        """The rows of a setting, prompt by prompt."""
        temperature, top_p = self.found.strata.settings[setting]
        here = (self.rows["temperature"] == temperature) & (self.rows["top_p"] == top_p)
        return {name: column[here] for name, column in self.rows.items()}


def measured(folder):
    run = open_run(folder)
    table = pa.concat_tables([pq.read_table(path) for path in run.shards])
    rows = {name: table.column(name).to_numpy() for name in table.column_names}
    return Measured(run, aggregate(run), rows)


def one_sample(values, prompts):
    """The t interval of the prompts' means, which have equally many rows."""
    means = [values[prompts == one].mean() for one in np.unique(prompts)]
    found = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    return float(found.low), float(found.high)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return measured(write_run(tmp_path_factory.mktemp("plain") / "run", top_ps=(0.8, 1.0)))


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Two prompts: the t quantile is 12.7, so that limits reach far beyond [0, 1] if not cut."""
    sizes = {"prompts": 2, "ks": (1, 2), "temperatures": (1.0,), "positions": 6}
    folder = tmp_path_factory.mktemp("few") / "run"
    return measured(write_run(folder, **sizes, seed=3, losses=True))


@pytest.fixture(scope="module")
def loose(tmp_path_factory):
    """Intervals so wide that costs decide whether drafting pays, does not, or cannot be told."""
    folder = tmp_path_factory.mktemp("loose") / "run"
    return measured(write_run(folder, width=0.9, temperatures=(1.0,)))


@pytest.fixture
def copy(plain, tmp_path):
    return Path(shutil.copytree(plain.run.folder, tmp_path / "run"))


# ---- means ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "few"])
def test_means_gaps_and_intervals_are_those_of_the_rows(name, request):
    """Intervals are those of the prompts' means, since prompts have equally many rows; they are cut
    where what is averaged ends.
    """
    data = request.getfixturevalue(name)
    assert sum(data.found.strata.rows) == data.run.num_rows == (960 if name == "plain" else 12)
    cut = 0
    for s in range(len(data.found.strata.settings)):
        rows = data.of(s)
        found, gaps = data.found.lower[s], data.found.gap_low[s]
        for i, column in enumerate(data.run.schemes):
            values = rows[column.name]
            free = np.array(one_sample(values, rows["prompt"]))
            inside = np.clip(free, 0.0, 1.0)
            cut += bool((free != inside).any())
            expected = [values.mean(), *inside]
            np.testing.assert_allclose(
                [found.value[i], found.low[i], found.high[i]], expected, rtol=0, atol=ROUNDING
            )
            # NaN for what has no optimum
            away = rows[column.optimum] - values if column.optimum else [np.nan]
            np.testing.assert_allclose(gaps.value[i], np.mean(away), rtol=0, atol=ROUNDING)
        overlaps = {c: 1 - rows["tv"][rows["prompt"] == c].mean() for c in set(rows["prompt"])}
        numbers, means = data.found.prompts[s]  # hardest first
        assert numbers.tolist() == sorted(overlaps, key=lambda c: overlaps[c])
        np.testing.assert_allclose(means, sorted(overlaps.values()), rtol=0, atol=ROUNDING)
        for i, statistic in enumerate(data.run.statistics):
            values = rows[statistic.name]
            mean = values[np.isfinite(values)].mean()
            assert data.found.statistics[s].value[i] == pytest.approx(mean, abs=ROUNDING)
            assert data.found.infinite[s][i] == pytest.approx(np.isinf(values).mean())
    if name == "few":
        assert cut > 3
    else:  # top-p should have made some divergences infinite
        assert max(share.max() for share in data.found.infinite) > 0.1


def test_limits_of_statistics_stay_where_these_can_be(few):
    means, statistics = few.found.statistics[0], few.run.statistics
    high = dict(zip([column.name for column in statistics], means.high, strict=False))
    signed = [column.name == "lost_rounding" for column in statistics] * 2
    assert (means.low >= np.where(signed, -1, 0)).all() and (means.low <= means.value).all()
    assert all(high[column.name] <= 1 for column in statistics if column.unit == "probability")
    assert high["tv"] == high["likeliest_k2"] == 1 < high["target_entropy"]


@pytest.mark.parametrize(
    ("quantity", "binned"), [("target_entropy", "by_entropy"), ("position", "by_position")]
)
def test_bins_hold_about_equally_many_rows_and_the_right_ones(plain, quantity, binned):
    for s in range(4):
        rows, table = plain.of(s), getattr(plain.found, binned)[s]
        order = np.argsort(rows[quantity], kind="stable")
        parts = np.split(order, np.cumsum(table.rows).astype(int))
        assert len(parts.pop()) == 0
        # 240 rows in ten bins; ties (top-p leaves one token: entropy 0) and cells (.01 nats, one
        # position) limit how equal they are
        ties = np.unique(rows[quantity], return_counts=True)[1].max()
        assert table.rows.min() > 0 and table.rows.max() <= 48 + ties and len(parts) >= 7
        for b, mine in enumerate(parts):
            assert abs(table.centre[b] - rows[quantity][mine].mean()) < 1e-9
            means = [rows[column.name][mine].mean() for column in plain.run.schemes]
            np.testing.assert_allclose(table.lower[b].value, means, rtol=0, atol=ROUNDING)


def test_quantiles_and_histograms_are_those_of_the_rows(plain):
    levels, bins = (0.05, 0.25, 0.5, 0.75, 0.95), np.linspace(0, 1, 41)
    for i, column in enumerate(plain.run.schemes):
        values = plain.of(0)[column.name]
        expected = np.quantile(values, levels, method="inverted_cdf")
        # one bin, and half of one
        assert np.abs(plain.found.histograms.quantiles(0, i, levels) - expected).max() <= 0.0011
        counted = np.histogram(np.minimum(values, 1 - 1e-9), bins=bins)[0] / len(values)
        # a value on an edge may fall to either side: allow two of 240
        assert np.abs(plain.found.histograms.coarse(0, i, 40) - counted).sum() <= 4 / 240


def test_an_unfinished_run_of_one_prompt_is_reported_without_intervals_and_says_so(tmp_path):
    sizes = {"prompts": 2, "ks": (1,), "temperatures": (1.0,), "positions": 3}
    written = write_report(write_run(tmp_path / "run", prompts_per_shard=1, shards=1, **sizes))
    page, summary = (one.read_text(encoding="utf-8") for one in (written.html, written.markdown))
    assert "no interval over prompts" in page and not re.search(r"\bnan\b", summary)
    assert all("Unfinished run: 1 of 2 shards" in text for text in (page, summary))


# ---- memory and sizes ----------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_run(tmp_path, monkeypatch):
    """Seven times the rows and prompts: what is left to grow are a few numbers per prompt (here 72
    more prompts, below 40 kB). That prompts share clusters moves no mean.
    """
    monkeypatch.setattr(aggregation, "MOST_CLUSTERS", 12)
    peaks = []
    for prompts in (12, 84):
        run = open_run(write_run(tmp_path / str(prompts), prompts=prompts, ks=(1, 2)))
        tracemalloc.start()
        shared = aggregate(run)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    monkeypatch.undo()
    apart = aggregate(run)
    assert (shared.num_clusters, apart.num_clusters) == (12, 84)
    for one, other in zip(shared.lower, apart.lower, strict=True):
        np.testing.assert_allclose(one.value, other.value, atol=ROUNDING)
        assert not np.allclose(one.low, other.low, atol=1e-6)
    assert peaks[1] < peaks[0] + 100_000
    assert peaks[0] > 1_000_000, "the tables themselves should have been seen"


@pytest.mark.parametrize(
    ("module", "limit", "value", "message"),
    [
        (aggregation, "_MOST_BYTES", 1 << 18, r"must fit into 0\.25 MiB"),
        (aggregation, "_MOST_SETTINGS", 3, "at most 3 sampling settings"),
        (aggregation, "_MOST_PROMPTS", 5, "numbered below 5"),
        (reading, "_MOST_ROW_GROUP_BYTES", 1 << 10, "row group"),
        (manifests, "_MOST_BYTES", 100, "bytes and is larger than 100"),
        (reading, "_MOST_COLUMNS", 3, "columns"),
    ],
)
def test_sizes_are_checked_first(
    plain,
    tmp_path,
    monkeypatch,
    module,
    limit,
    value,
    message,
):
    monkeypatch.setattr(module, limit, value)
    with pytest.raises(AnalysisError, match=message):
        write_report(plain.run.folder, out=tmp_path)
    assert not list(tmp_path.iterdir())


# ---- broken runs ---------------------------------------------------------------------------------


def edit(folder, **changes):
    edit_json(folder / "manifest.json", **changes)


BREAKAGES = {
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "has no manifest"),
    "deep JSON": (lambda f: (f / "manifest.json").write_text("[" * 200_000), "not JSON"),
    "not UTF-8": (lambda f: (f / "manifest.json").write_bytes(b'{"a": "\xff"}'), "not JSON"),
    "a list": (lambda f: (f / "manifest.json").write_text("[]"), "schema_version"),
    "another version": (lambda f: edit(f, schema_version=3), "schema_version is 3"),
    "schemes no list": (lambda f: edit(f, schemes={"a": 1}), "not a list"),
    "schemes of texts": (lambda f: edit(f, schemes=["kseq"]), "not a list of objects"),
    "no schemes": (lambda f: edit(f, schemes=[]), "0 schemes"),
    "k a string": (lambda f: edit(f, schemes=[{"column": "kseq_iid_k2", "k": "2"}]), "k ≥ 1"),
    "no column name": (lambda f: edit(f, schemes=[{"k": 2}]), "'column'"),
    "no shards": (lambda f: shutil.rmtree(f / "shards"), "at least one finished shard"),
    "missing column": (
        lambda f: edit(f, statistics=[{"column": "other", "name": "x", "unit": ""}]),
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
def test_a_broken_run_is_refused_in_one_sentence(name, copy, tmp_path):
    damage, message = BREAKAGES[name]
    damage(copy)
    with pytest.raises(AnalysisError, match=re.escape(message)):
        write_report(copy, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_values_that_are_missing_are_left_out_of_their_own_mean_only(copy, plain):
    replaced(copy, "kseq_iid_k2", float("nan"))
    changed, place = measured(copy), list(plain.means(0)).index("kseq_iid_k2")
    rows, means = changed.of(0), changed.means(0)
    assert abs(means["kseq_iid_k2"] - np.nanmean(rows["kseq_iid_k2"])) < ROUNDING
    assert means["kseq_iid_k4"] == plain.means(0)["kseq_iid_k4"]
    gap = np.nanmean(rows["optimum_iid_k2"] - rows["kseq_iid_k2"])
    assert abs(changed.found.gap_low[0].value[place] - gap) < ROUNDING


def test_out_is_a_folder_that_may_be_called_anything(plain, tmp_path, printed):
    (tmp_path / "file").write_text("")
    for name in ("file", "page.html", "Summary.MD"):
        with pytest.raises(AnalysisError, match=f"--out must be a folder.*{name}"):
            write_report(plain.run.folder, out=tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "v1.html").mkdir()
    there = sorted(path.name for path in plain.run.folder.iterdir())
    shown = printed("report", plain.run.folder, "--out", tmp_path / "v1.html")
    assert "Sampling: temperature 1, no top-p, of 4 measured the nearest to plain sampling" in shown
    written = sorted(path.name for path in (tmp_path / "v1.html").iterdir())
    assert written == ["report.html", "report.md"]
    assert sorted(path.name for path in plain.run.folder.iterdir()) == there


# ---- what is said --------------------------------------------------------------------------------


def test_every_setting_has_its_own_answer_and_every_number_is_in_the_markdown(plain):
    answer, summary, page = (
        plain.answer,
        render_markdown(plain.shown),
        set(Document(plain.page).text),
    )
    cells = [cell for t in plain.shown["tables"] for row in t["cells"] for cell in row[1:]]
    for value, interval in cells:
        assert value in summary and interval in summary
        assert value == "" or value in page
    assert "0.8" in summary and all(name in summary for name in ("K-SEQ", "otm.GreedyOptimal"))
    for setting, (label, card) in enumerate(plain.shown["cards"]):
        assert card == answer.cards[setting]
        assert f"| {label} | {card.title} | {card.what} |" in summary
    assert len({card.what for card in answer.cards}) == len(answer.cards)
    heads = re.findall(r"^## Mean acceptance, (.*) \(", summary, re.MULTILINE)
    assert heads[0] == "temperature 1, no top-p" and "temperature 0.7, top-p 0.8" in heads


def test_interval_runs_enclose_the_exact_ones(tmp_path):
    """The same seed with and without intervals of width .06: exact means and gaps lie between the
    certified ends.
    """
    settings = {"ks": (1, 2), "temperatures": (1.0,), "prompts": 6}
    exact = measured(write_run(tmp_path / "exact", **settings)).found
    data = measured(write_run(tmp_path / "wide", width=0.06, **settings))
    wide, rows = data.found, data.rows
    assert (wide.lower[0].value <= exact.lower[0].value).all()
    assert (wide.upper[0].value >= exact.lower[0].value).all()
    known = np.flatnonzero(np.isfinite(exact.gap_low[0].value))
    gaps, low, high = (one[0].value for one in (exact.gap_low, wide.gap_low, wide.gap_high))
    assert (low[known] <= gaps[known] + ROUNDING).all()
    assert (high[known] >= gaps[known] - ROUNDING).all()
    for i in known:
        column, best = data.run.schemes[i], data.run.schemes[i].optimum
        least = np.maximum(0, rows[f"{best}_lower"] - rows[column.upper]).mean()
        most = np.maximum(0, rows[f"{best}_upper"] - rows[column.lower]).mean()
        np.testing.assert_allclose([low[i], high[i]], [least, most], rtol=0, atol=ROUNDING)
    overlaps = [1 - rows["tv_upper"][rows["prompt"] == c].mean() for c in range(6)]
    np.testing.assert_allclose(wide.prompts[0][1], sorted(overlaps), rtol=0, atol=ROUNDING)
    drawn = measured_data(data.run, wide)["acceptance"][0]
    for i, column in enumerate(data.run.schemes):
        assert drawn["low"][i] <= max(0.0, wide.lower[0].low[i]) + 1e-6
        assert 1.0 >= drawn["high"][i] >= min(1.0, rows[column.upper].mean()) - 1e-6


def test_charts_of_intervals_say_what_line_and_band_are(loose, plain):
    assert loose.page.count("Line: certified lower end.") == 1, "once, above the charts"
    assert "certified between two ends" in loose.page and "certified lower" not in plain.page
    first, second = loose.shown["short"][0][:2]
    place = list(loose.means(0)).index("kseq_iid_k4")
    gap = (100 * means[0].value[place] for means in (loose.found.gap_low, loose.found.gap_high))
    left_open = "points more (certified range; what was not recorded leaves it open) than K-SEQ"
    assert "{:.1f} to {:.1f} {}".format(*gap, left_open) in second
    low, high = (means[0].value[0] for means in (loose.found.lower, loose.found.upper))
    assert f"yields {1 + low:.2f} to {1 + high:.2f} tokens instead of 1." in first


def test_intervals_of_statistics_reach_from_one_end_to_the_other(tmp_path):
    """Total variation: lower limit of the lower end to upper limit of the upper one. Divergences
    without an upper end say so.
    """
    sizes = {"ks": (1,), "temperatures": (1.0,), "prompts_per_shard": 8}
    folder = write_run(tmp_path / "run", width=0.2, prompts=8, **sizes)
    replaced(folder, "kl_target_draft_upper", float("inf"), shard=0)
    data = measured(folder)
    rows = {row[0]: row[1:] for row in data.shown["tables"][0]["statistics"]}
    names = ("tv_lower", "tv_upper", "kl_target_draft_lower")
    low, high, least = (
        (data.rows[name].mean(), *one_sample(data.rows[name], data.rows["prompt"]))
        for name in names
    )
    told = f"[{low[0]:.4f}, {high[0]:.4f}]", f"{max(0, low[1]):.4f} to {min(1, high[2]):.4f}", ""
    assert rows["Total variation (probability)"] == told
    why = "no upper bound: a token that was not listed could have probability 0 in one model"
    told = f"[{least[0]:.4f}, ∞]", f"{max(0, least[1]):.4f} to ∞", why
    assert rows["KL(target ‖ draft) (nats)"] == told
    summary = render_markdown(data.shown)
    assert not re.search(r"\bnan\b", summary) and "left out" not in summary


def test_what_is_infinite_and_what_could_be_are_told_apart(tmp_path):
    """In 10 of 40 rows a divergence is infinite, in 20 others only its upper end is; in a run of
    values it is infinite everywhere.
    """
    sizes = {"ks": (1,), "temperatures": (1.0,), "prompts": 2}
    folder = write_run(tmp_path / "run", width=0.2, **sizes)
    for end, count in (("lower", 10), ("upper", 30)):
        infinite = np.where(np.arange(40) < count, np.inf, 0.0)
        replaced(folder, f"kl_target_draft_{end}", infinite.__add__, shard=0)
    row = measured(folder).shown["tables"][0]["statistics"][3]
    assert row[1].endswith(", ∞]") and row[2].endswith(" to ∞")
    assert row[3].startswith(
        "infinite at 25.0 % of positions, left out of the mean; no upper bound at 50.0 % of "
        "positions: "
    )
    folder = write_run(tmp_path / "values", **sizes)
    replaced(folder, "kl_target_draft", float("inf"), shard=0)
    replaced(folder, "temperature", np.where(np.arange(40) < 10, -0.5, 0.0).__add__, shard=0)
    first, second = (table["statistics"][3] for table in measured(folder).shown["tables"])
    said = ("–", "", "infinite at 100.0 % of positions, left out of the mean")
    assert first[1:] == second[1:] == said  # of 10 rows, and of 30


def test_the_summary_explains_its_terms_and_says_where_positions_are_from_once(
    plain,
):
    summary, note = render_markdown(plain.shown), plain.run.manifest["position_note"]
    for term, explanation in plain.shown["terms"]:
        assert f"* **{escaped(term)}**: {escaped(explanation)}" in summary
    assert explanations._POSITIONS["text"] in summary and note not in summary
    by_hand = plain.run.manifest | {"settings": {"positions": "by hand"}}
    single = dataclasses.replace(plain.run, manifest=by_hand)
    assert f"Positions: {note}." in explanations.method(single, plain.found)


def test_of_a_trace_the_models_and_the_setting_are_those_that_it_names(few):
    def shown(**change):
        run = dataclasses.replace(few.run, manifest=few.run.manifest | change)
        return dataclasses.replace(few, run=run).shown

    settings = few.run.section("settings")
    bare = {name: settings[name] for name in settings.keys() - {"draft", "target"}}
    told = shown(settings=bare, provenance={"trace": {}})
    assert told["title"] == "unnamed draft drafting for unnamed target"
    assert set(told["settings"]) == {"sampling as recorded"}
    said = {"draft_model": "a/b\u2028<i>", "target_model": "c", "temperature": "0.6", "top_k": "20"}
    told = shown(settings=bare, provenance={"trace": said})
    assert told["title"] == "a/b\ufffd<i> drafting for c"
    assert told["setting_words"].startswith("Sampling: temperature 0.6, top-k 20")
    assert "<i>" not in render_markdown(told)
    assert shown(provenance={"trace": ["no object"]})["settings"] == few.shown["settings"]


def test_optima_are_named_by_the_verifiers_that_attain_them(plain):
    """K-SEQ stays below the optimum here, so the recommended i.i.d. verifier is otm.Optimal()."""
    means = plain.means(3)
    others = (means[f"{name}_iid_k4"] for name in ("kseq", "recursive_rejection"))
    gap = 100 * (means["optimum_iid_k4"] - max(others))
    said = plain.shown["short"][3][1]
    assert f"otm.Optimal() attains it: {gap:.1f} points more than" in said and gap > 0.1
    assert "the best other verifier" in said
    changes = {"scheme": "optimum", "label": "optimum", "law": "WithoutReplacement"}
    unattained = [
        dataclasses.replace(column, **changes, optimum=column.name)
        if column.scheme == "RecursiveRejection()"
        else column
        for column in plain.run.schemes
    ]
    other = schemes_of(dataclasses.replace(plain.run, schemes=tuple(unattained)))
    usable = {scheme.label: scheme.usable for scheme in other}
    assert not usable["optimum (without replacement)"], (
        "nothing attains that one at every vocabulary size"
    )


def kind_of(column):
    """What a column is to a reader."""
    if column.definition == "bound":
        return "bound"
    if column.stem in OPTIMA:
        return "optimum"
    return "verifier" if column.lossless else "lossy"


OPTIMA = {
    "optimum_iid": "optimum, i.i.d. drafts (otm.Optimal)",
    "greedy_optimal_greedy": "optimum, greedy drafts (otm.GreedyOptimal)",
    "optimum_threshold_race": "optimum, threshold race drafts (otm.Optimal)",
}


def test_the_measured_columns_have_their_kinds_and_words(plain):
    """The columns that `measure` writes, not names made up here: the report knows some of them by
    what they are called.
    """
    columns = otm.table.table_columns([1, 2, 4])
    written = manifests.manifest_of({"threads": 1}, "", {}, {}, columns)
    read = tuple(reading._scheme(entry) for entry in written["schemes"])
    schemes = schemes_of(dataclasses.replace(plain.run, manifest=written, schemes=read))
    of_column = {columns[i].stem: scheme for scheme in schemes for i in scheme.columns}
    for column in columns:
        scheme, kind = of_column[column.stem], kind_of(column)
        assert (scheme.kind, scheme.usable) == (kind, kind in ("optimum", "verifier")), column
    named = OPTIMA | {
        "naive_top_k": "naive (top k)",
        "lenience_iid": "lenience (lenience = 0.5; i.i.d.)",
        "minhash_rule_iid": "MinHash, by rule (i.i.d.)",
    }
    assert {stem: of_column[stem].label for stem in named} == named
    assert of_column["optimum_iid"].short == "optimal (i.i.d.)"
    assert len({scheme.label for scheme in schemes}) == len(schemes) == len(of_column)
    told = " ".join(term for term, _ in explanations.terms(schemes))
    assert all(scheme.name in told and LAWS[scheme.law] in told for scheme in schemes)


def test_words_are_for_what_exists():
    laws = {law.__name__ for law in otm.drafts.LAWS}
    assert explanations._LAW_TERMS.keys() <= LAWS.keys() == laws
    assert explanations._POSITIONS.keys() == NOTES.keys()


def test_the_best_draft_temperature_is_named(tmp_path):
    drafts = (0.5, 1.0, 3.0)
    sizes = {"temperatures": (1.0,), "ks": (1, 2), "prompts": 5, "positions": 10}
    data = measured(write_run(tmp_path / "run", draft_temperatures=drafts, **sizes))
    of_draft = [data.rows["draft_temperature"] == drafted for drafted in drafts]
    best = np.argmax([data.rows["optimum_iid_k2"][rows].mean() for rows in of_draft])
    said = f": {drafts[best]:g} at temperature 1, top-p 1"
    assert said in data.shown["best_draft_temperature"]


# ---- the page as a document ----------------------------------------------------------------------


class Document(HTMLParser):
    """Collects elements, their attributes, the text of scripts and all other text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements = []
        self.scripts = []
        self.text = []
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        (self.scripts if self._open == "script" else self.text).append(data)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    sizes = {"ks": (1, 2), "temperatures": (1.0,), "prompts": 6, "positions": 5}
    folder = write_run(tmp_path_factory.mktemp("hostile") / "run", name=HOSTILE, **sizes)
    hostile_manifest(folder)
    write_report(folder)
    return folder


def test_names_from_a_run_stay_text_in_the_page(hostile):
    page = (hostile / "report.html").read_text(encoding="utf-8")
    document = Document(page)
    counts = Counter(tag for tag, _ in document.elements)
    assert counts["script"] == len(document.scripts) == 4
    assert not {"img", "i", "b"} & counts.keys()
    names = [name for _, attributes in document.elements for name in attributes]
    assert not [name for name in names if name.startswith("on")]
    assert "<!--" not in page.replace("<\\!--", "")
    data = json.loads(document.scripts[0])["measured"]
    assert any(HOSTILE in scheme["label"] for scheme in data["schemes"])
    assert not set("<>&\u2028\u2029") & set(document.scripts[0])
    text = "".join(document.text)
    assert "document.title='owned'" in text, "the name itself should be readable"
    assert not set("\u2028\u2029\u202e") & set(text), (
        "characters that reorder text should be shown as such"
    )
    with pytest.raises(ValueError):
        embedded_json([float("nan")])


def test_the_page_needs_no_network_and_its_policy_fits_its_scripts(hostile):
    source = (hostile / "report.html").read_text(encoding="utf-8")
    assert len(source) < 2_500_000  # to be sent by mail; the library that draws is compressed
    document = Document(source)
    for tag, attributes in document.elements:
        for name in ("src", "href", "action", "data"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    (policy,) = (
        attributes["content"] or ""
        for _, attributes in document.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    _, _, packed, own = document.scripts
    hashes = [
        base64.b64encode(hashlib.sha256(text).digest()).decode()
        for text in (gzip.decompress(base64.b64decode(packed)), own.encode())
    ]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "unsafe-inline" not in policy.split("style-src")[0] and "unsafe-eval" not in policy


def test_names_from_a_run_stay_text_in_markdown(hostile):
    text = (hostile / "report.md").read_text(encoding="utf-8")
    assert "<" not in text and "\u2028" not in text
    assert "&amp;lt;b&amp;gt;" in text, "an entity in a name is shown, not resolved"
    rows = [line for line in text.splitlines() if line.startswith(("| scheme", "| optimum"))]
    assert len(rows) > 1
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_what_acceptance_is_lost_to_is_told(few, plain):
    """Parts that make 1 at every setting, in the page's data and in Markdown, and not among what
    describes the distributions.
    """
    for parts in measured_data(few.run, few.found)["lost"]:
        # Shares are rounded nowhere, but 1 less the optimum is only as exact as Σ min.
        assert sum(part["mean"] for part in parts) == pytest.approx(1.0, abs=1e-12)
        assert all(part["low"] <= part["mean"] <= part["high"] for part in parts)
    text = render_markdown(few.shown)
    told = text.split("## What acceptance is lost to, temperature 1")[1].split("\n## ")[0]
    accepted = 1 - few.rows["tv"].mean()
    assert f"| accepted by the best verifier | {accepted:.4f} |" in told
    rows = re.findall(r"^\| (\d) \| (0\.\d+) \| (0\.\d+) \|$", told, re.MULTILINE)
    columns = ("optimum_iid", "likeliest")
    means = [[f"{few.rows[f'{name}_k{k}'].mean():.4f}" for name in columns] for k in (1, 2)]
    assert rows == [("1", *means[0]), ("2", *means[1])]
    assert "lost to" not in text.split("## Mean acceptance")[1]
    assert "What acceptance is lost to" not in render_markdown(plain.shown)
