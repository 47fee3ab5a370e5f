"""Every figure: built end to end, its numbers against closed forms and against its own Monte Carlo
points.
"""

import importlib
import json
import math
import os
import re

import numpy as np
import pytest
from scipy.stats import binom

import otm
from figures import __main__ as command, figure4, lossy_rules
from figures.paths import DATA
from otm._display import drawing
from tests.paths import ROOT, says

# 150 points are checked per run; each fails by chance with probability at most 1e-9 / 150.
FALSE_ALARM = 1e-9 / 150


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """All figures; the formats take more time than all else, so the first has all of them."""
    folder = tmp_path_factory.mktemp("figures")
    first, *others = command.DEFAULT + command.FURTHER
    how = ["--fast", "--seed", "7", "--out", str(folder)]
    assert command.main([first, *how]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "FORMATS", ("svg",))
        assert command.main([*others, *how]) == 0
    return folder


def _data(folder, name):
    record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    manifest = record["manifest"]
    assert manifest["seed"] == 7
    assert {"revision", "versions", "argv", "python"} <= manifest.keys()
    return record["data"]


def _check_share(share, value, samples):
    hits = round(share * samples)
    assert binom.cdf(hits, samples, value) > FALSE_ALARM / 2
    assert binom.sf(hits - 1, samples, value) > FALSE_ALARM / 2


def _check_points(points, exact, samples):
    for point in points:
        _check_share(point["mean"], min(1.0, exact[point["k"]]), samples)
        assert point["low"] <= point["mean"] <= point["high"]


@pytest.mark.parametrize("name", command.DEFAULT + command.FURTHER)
def test_a_picture_states_its_message_with_a_number(built, name):
    """A number that its data give: other data, another sentence."""
    record = json.loads((built / f"{name}.json").read_text(encoding="utf-8"))
    message = importlib.import_module(f"figures.{name}").message(record["data"])
    assert record["message"] == message and re.search(r"\d", message[:220]) and len(message) < 220
    assert "<svg" in (built / f"{name}.svg").read_text(encoding="utf-8")


def test_files_are_written_as_vectors_and_pixels(built):
    pdf = (built / "figure1.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/Type3" not in pdf, "bitmap-like fonts"
    assert (built / "figure1.png").read_bytes().startswith(b"\x89PNG")


def _check_series(series, samples):
    for points, exact in (("points", "optimum"), ("kseq_points", "kseq")):
        if points in series:
            _check_points(
                series[points], dict(zip(series["k"], series[exact], strict=True)), samples
            )


@pytest.mark.parametrize("name", ["figure1", "figure2"])
def test_curves_over_k_match_closed_forms_and_points(built, name):
    data = _data(built, name)
    for series in data["series"]:
        np.testing.assert_allclose(series["optimum"], series["closed_form"], rtol=0, atol=1e-13)
        assert np.all(np.array(series["kseq"]) <= np.array(series["optimum"]) + 1e-13)
        _check_series(series, data["samples"])
        if name == "figure1":  # K-SEQ attains it there
            np.testing.assert_allclose(series["kseq"], series["optimum"], rtol=0, atol=1e-12)
    assert ("kseq_points" in data["series"][0]) == (name == "figure2")
    if name == "figure2":  # the pair that turns the order keeps its points
        first, second = data["turn"]
        assert first["optimum"][0] > second["optimum"][0]
        assert first["optimum"][-1] < second["optimum"][-1]
        _check_series(first, data["samples"])
        _check_series(second, data["samples"])


def test_curves_over_q_match_closed_forms_and_points(built):
    data = _data(built, "figure3")
    for series in data["series"]:
        np.testing.assert_allclose(series["optimum"], series["closed_form"], rtol=0, atol=1e-13)
        targets = np.array([otm.examples.bernoulli(q) for q in series["sampled_q"]])
        law = otm.IID(series["k"])
        problem = otm.Problem(draft=otm.examples.bernoulli(0.25), target=targets, law=law)
        for points, verifier in (("points", otm.Optimal()), ("kseq_points", otm.KSeq())):
            for point, exact in zip(series[points], otm.acceptance(verifier, problem), strict=True):
                _check_points([point], {law.k: exact}, data["samples"])


def test_figure4_shows_the_paper_s_rounds_and_reruns_identically(built):
    data = _data(built, "figure4")
    assert [len(s) for s in data["survivors"]] == [6, 3, 2, 1]
    *accepted, _ = data["tokens"]
    assert (data["accepted"], len(accepted)) == (3, 3)
    assert [row[:3] for row in data["drafts"]].count(accepted) == 1
    assert data["tokens"] not in data["drafts"]
    record = figure4.capture()
    for row in record["draft"] + record["target"]:
        assert abs(sum(row["mass"]) - 1) < 1e-9


def test_figure5_points_and_support(built):
    whole = _data(built, "figure5")
    assert whole["pairs"][0]["pair"] == "shipped pair"
    for data in whole["pairs"]:
        assert data["k"] == list(range(1, 41))
        assert 10 <= len(data["draft"]) <= 20
        overlap = 1 - otm.divergences.total_variation(draft=data["draft"], target=data["target"])
        assert [data["optimum"][0], data["kseq"][0]] == pytest.approx([overlap] * 2, abs=1e-12)
        assert np.all(np.diff(data["optimum"]) >= -1e-13)
        _check_series(data, whole["samples"])


def test_same_seed_same_files(built, tmp_path):
    assert command.main(["1", "--fast", "--seed", "7", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "figure1.svg").read_bytes() == (built / "figure1.svg").read_bytes()
    assert _data(tmp_path, "figure1") == _data(built, "figure1")


def test_what_is_no_figure_or_no_folder_is_refused(tmp_path, capsys):
    for number, place in (("9", str(tmp_path)), ("1", "\0"), ("1", "\ud800")):
        with pytest.raises(SystemExit, match="2"):
            command.main([number, "--out", place])
    assert "choose from figure1" in capsys.readouterr().err


def test_landscape_shows_every_scheme_law_and_frontier(built):
    data = _data(built, "landscape")
    assert len(data["panels"]) == 3
    for panel in data["panels"]:
        optima = {(row["law"], row["k"]): row["value"] for row in panel["optima"]}
        shown = {row["verifier"] for row in panel["rows"]}
        assert shown == {v.__name__ for v in otm.verifiers.VERIFIERS if not v.is_plan}
        assert {law for law, _ in optima} == {law.__name__ for law in otm.drafts.LAWS} - {"Product"}
        for curve in panel["frontier"]:
            assert np.all(np.diff(curve["value"]) >= -1e-9)
            # no budget: the lossless optimum
            optimum = optima.get(("IID", curve["k"]), curve["value"][0])
            assert abs(curve["value"][0] - optimum) < 1e-9


def test_score_pieces_tile_the_unit_interval_and_give_the_selection_law(built):
    data = _data(built, "scores")
    pieces = sorted(data["pieces"], key=lambda piece: piece["left"])
    ends = np.cumsum([piece["length"] for piece in pieces])
    np.testing.assert_allclose(
        [piece["left"] for piece in pieces], np.concatenate([[0], ends[:-1]]), atol=1e-12
    )
    assert abs(ends[-1] - 1) < 1e-12
    assert abs(np.minimum(data["selection"], data["target"]).sum() - data["optimum"]) < 1e-12
    _check_share(data["accepted_share"], data["optimum"], data["samples"])


def test_the_lossy_rules_said_to_be_on_the_frontier_are_there(built):
    rows = _data(built, "lossy_rules")["one_draft"]["rows"]
    assert {row["rule"] for row in rows if abs(row["gap"]) < 1e-9} == set(lossy_rules.BETWEEN)


def test_decoders_lose_nothing_on_one_level_and_little_on_two(built):
    data = _data(built, "best_step")
    assert data["decoders"][2:] == ["optimal, vertex by vertex", "refined scores"]
    for row in data["rows"]:
        kseq, block, optimal, refined = row["lost"]
        assert min(kseq, block, optimal, refined) > -1e-9
        assert (abs(optimal) < 1e-9) == (row["L"] == 1)
        assert refined <= optimal / 4 + 1e-9
        # one level: the same rule, counted by membership and by the rule
        assert abs(kseq - block) < 1e-2 or row["L"] > 1


def test_ersd_theory_is_the_sum_of_path_products_and_its_bounds_hold(built):
    for panel in _panels(_data(built, "ersd3")):
        first, *_ = vector = np.array(panel["acceptance"])
        assert np.all(np.diff(vector) <= 0)
        curves = panel["theory"]
        ns, batch = curves["batch"]
        np.testing.assert_allclose(batch, 1 + np.cumsum(vector)[: len(ns)])
        ns, sequence = curves["sequence"]
        np.testing.assert_allclose(sequence, [(1 - first ** (n + 1)) / (1 - first) for n in ns])
        ns, optimal = curves["optimal"]
        assert ns == list(range(1, len(ns) + 1))
        for other in ("batch", "sequence", "SpecInfer"):
            at = {n: value for n, value in zip(*curves[other], strict=True) if n <= len(ns)}
            assert all(value <= optimal[n - 1] + 1e-12 for n, value in at.items())
        # The bound of Lemma 4.2 with a fixed i_max holds for trees that explore no more ranks, all
        # of these.
        for bound in ("minimal_bound", "fixed_bound"):
            assert np.all(np.array(panel[bound])[: len(ns)] >= np.array(optimal) - 1e-12)


def _panels(data):
    return [panel for pair in data["pairs"] for panel in pair["panels"]]


def test_ersd_gains_add_up_to_the_tokens_of_the_largest_runs(built):
    for runs, panel in zip(
        _panels(_data(built, "ersd3")), _panels(_data(built, "ersd4")), strict=True
    ):
        for strategy, gain in panel["measured"].items():
            mine = (run for run in runs["runs"] if run["strategy"] == strategy)
            largest = max(mine, key=lambda run: run["drafted"])
            assert abs(1 + sum(gain["mean"]) - largest["mean"]) < 1e-9
            assert all(low <= mean <= high for mean, low, high in zip(*gain.values(), strict=True))


def test_wall_times_are_as_advised_within_a_tenth(built):
    text = (ROOT / "docs" / "advice.md").read_text(encoding="utf-8")
    said = re.search(
        r"at most (\d+) %[^%]* and (\d+) % on SmolLM2; predicted [^%]* by (\d+) % and (\d+) %", text
    )
    assert said is not None
    pairs = _data(built, "wall_clock")["pairs"]
    assert all(pair["texts"] >= 40 for pair in pairs)
    for advised in (row["advised"] for pair in pairs for row in pair["rows"]):
        low, value, high = (advised[name] for name in ("low", "value", "high"))
        assert low is high is None or low <= value <= high
    speed, seconds = (
        [max(abs(found(row) - 1.0) for row in pair["rows"]) for pair in pairs]
        for found in (
            lambda row: row["advised"]["value"] / row["measured"],
            lambda row: row["seconds"]["predicted"] / row["seconds"]["measured"],
        )
    )
    assert max(*speed, *seconds) <= 0.1
    assert [int(number) for number in said.groups()] == [
        math.ceil(100 * error) for error in (*speed, *seconds)
    ]


def test_the_page_of_two_models_says_what_was_advised_and_measured():
    record = json.loads((DATA / "advice-smollm2.json").read_text(encoding="utf-8"))
    best = record["best"]
    value, low, high = (f"{best['over_plain'][name]:.2f}" for name in ("value", "low", "high"))
    (ran,) = (one for one in record["run"] if one["name"] == best["decoder"])
    assert record["verdict"] == "undecided" and float(value) < 1.0
    nodes, seconds = record["step_model"]["target"]
    times = seconds[nodes.index(1)] / seconds[nodes.index(0)]
    says(
        "docs/start/models.md",
        f"{best['name']}, was advised at {value} times plain decoding ({low} to {high}) and "
        f"measured at {ran['speedup']:.2f}",
        '"do not speculate, prob',
        f"checks two tokens takes {times:.1f} times as long",
    )


def test_committed_results_say_where_they_come_from():
    """No folder of the machine, no host's name; the machine's load where something was timed."""
    for path in DATA.glob("*.json"):
        manifest = json.loads(path.read_text(encoding="utf-8"))["manifest"]
        assert not any(os.sep in word for word in manifest.get("argv", [])), path.name
        assert {"versions", "python", "machine"} <= manifest.keys(), path.name
        if path.stem.startswith(("latency", "mentored", "advice")):
            assert len(manifest["load average before"]) == 3, path.name
