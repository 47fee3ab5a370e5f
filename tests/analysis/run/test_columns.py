"""Columns beside the table's: the papers' quantities, what acceptance is lost to, trees by rank and
along texts, and the checks of all these.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import otm
from analysis.errors import AnalysisError
from analysis.models.causal import pair_models
from analysis.models.processing import Setting, settings_of
from analysis.models.source import PairSource, load_source
from analysis.report.write import write_report
from analysis.run import checks, loss_columns as losses
from analysis.run.bound_columns import (
    bound_columns,
    bound_statistics,
    bounds_table,
    greedy_index_entropy,
    index_entropy,
    rank_entropy,
    theorem1_all,
)
from analysis.run.checks import Checked, check_position
from analysis.run.loss_columns import PARTS, loss_columns, loss_statistics
from analysis.run.manifest import read_manifest
from analysis.run.measure import ShardTask, measure_shard
from analysis.run.merge import merge
from analysis.run.ranks import (
    acceptance_by_rank,
    best_tree,
    by_rank,
    rank_powers,
    tokens_with_gradient,
    tree_rows,
    upper_with_gradient,
)
from analysis.run.settings import Settings, check_settings
from analysis.run.tree_names import SCALE, tree_nodes, tree_statistics
from analysis.run.trees import write_trees
from analysis.steps.nodes import DEPTH
from otm import Processing
from otm.sequence import LikeliestTree, Sampled
from otm.table import TableColumn, acceptance_table
from otm.trees import optimal_tree, tree_expected_tokens, tunstall_upper
from tests.analysis.report.synthetic_run import write_run

KS = (1, 2, 4)
(PLAIN,) = settings_of([1.0], [1.0])


def logits(number, width=60):
    """Of a draft and a target that follows it."""
    rng = np.random.default_rng(number)
    draft = 3.0 * rng.normal(size=width)
    return draft, draft + rng.normal(size=width)


def problem_of(draft, target, k=1):
    return otm.Problem(draft=otm.from_logits(draft), target=otm.from_logits(target), law=otm.IID(k))


# ---- the papers' quantities ----------------------------------------------------------------------


@pytest.mark.parametrize("number", range(2))
def test_quantities_stand_in_the_order_that_the_theorems_say(number):
    draft, target = logits(number)
    rows, settings = (
        (np.stack([side] * 2) for side in (draft, target)),
        settings_of([1.0, 0.7], [1.0]),
    )
    columns = bound_columns(*rows, settings, KS)
    assert list(columns) == [name for name, _, _ in bound_statistics(KS)]
    assert all(len(values) == 4 for values in columns.values())
    table = acceptance_table(draft=otm.from_logits(draft), target=otm.from_logits(target), k=KS)
    at = {name: float(values[0]) for name, values in columns.items()}
    for k in KS:
        problem = problem_of(draft, target, k)
        assert 1.0 <= at[f"gamma_star_k{k}"] <= k
        assert at[f"kseq_guarantee_k{k}"] <= table[f"kseq_iid_k{k}"] + 1e-12
        # Every set bounds the optimum, and the relaxed sum over sequences stands above the sum
        # itself.
        assert table[f"optimum_iid_k{k}"] <= at[f"theorem1_all_k{k}"] + 1e-12
        if k <= 2:
            whole = otm.bounds.spectr_upper(problem, subset=np.ones(60, dtype=bool))
            assert at[f"theorem1_all_k{k}"] == pytest.approx(whole, abs=1e-12)
            empty = otm.bounds.spectr_upper(problem, subset=[])
            assert empty <= at[f"theorem1_none_k{k}"] + 1e-12
            assert k > 1 or empty == pytest.approx(at["theorem1_none_k1"], abs=1e-12)
    assert at["race_lemma"] <= table["race_iid_k1"]
    assert at["index_least"] <= at["index_entropy"] <= at["index_most_race"]
    greedy = greedy_index_entropy(problem_of(draft, target))[0]
    assert at["index_least"] <= greedy <= at["index_most_greedy"]


def test_the_index_has_the_entropy_of_its_law():
    """Pr(K = n) of the Poisson representation: the winner at time t precedes g t others on average,
    n − 1 of them.
    """
    problem, n = problem_of(*logits(1, 8)), np.arange(100_000)[:, None]
    p, q = problem.draft, problem.target
    rates = np.array([np.maximum(q[i] / p[i] * p - q, 0.0).sum() for i in range(len(p))])
    law = ((rates / (1 + rates)) ** n / (1 + rates)) @ q
    assert law.sum() == pytest.approx(1.0, abs=1e-9)
    exact = -float((law[law > 0] * np.log2(law[law > 0])).sum())
    assert index_entropy(problem) == pytest.approx(exact, abs=2e-3)  # as documented
    # a rank is at most the index
    assert rank_entropy(problem, draws=2_000, rng=np.random.default_rng(0)) <= exact + 0.2


def test_what_is_never_drafted_takes_for_ever_to_name():
    problem = otm.Problem(draft=[1.0, 0.0], target=[0.5, 0.5], law=otm.IID(1))
    assert index_entropy(problem) == np.inf and theorem1_all(problem) == 0.5
    shown = bounds_table(problem, [1, 2], draws=50, rng=np.random.default_rng(1))
    assert "Poisson representation inf inf, ERSD (6) inf, ERSD (8)" in " ".join(shown.split())
    assert "inf, ERSD (7)" in shown and "nan" not in shown


# ---- what acceptance is lost to ------------------------------------------------------------------


def test_the_parts_add_up_to_what_is_not_accepted(monkeypatch):
    """In the order of positions and settings, two positions taken at once."""
    monkeypatch.setattr(losses, "_NUMBERS_AT_ONCE", 24)
    settings = (
        Setting(),
        Setting(Processing(top_k=4), Processing(temperature=0.7, min_p=0.1)),
        Setting(Processing(top_p=0.8, order="llama.cpp"), Processing(top_p=0.9, order="vllm")),
    )
    draft, target = 2.0 * np.random.default_rng(4).standard_normal((2, 5, 12))
    draft[:, -3:] = -np.inf
    found = loss_columns(draft, target, settings, (1, 3))
    assert list(found) == [name for name, _, _ in loss_statistics((1, 3))]
    columns = {name: values.reshape(5, len(settings)) for name, values in found.items()}
    whole = sum(columns[f"lost_{name}"] for name in PARTS)
    for place, setting in enumerate(settings):
        p, q = setting.draft(draft), setting.target(target)
        likeliest, rounded = np.sort(q, axis=-1), otm.losses.draft_rounding(draft=p, target=q)
        for values, expected in (  # sums of 12 masses in [0, 1]
            (whole, 1.0 - np.minimum(p, q).sum(axis=-1)),
            (columns["likeliest_k1"], likeliest[:, -1]),
            (columns["likeliest_k3"], likeliest[:, -3:].sum(axis=-1)),
            (columns["rounding_tv"], rounded.output_tv),
            (columns["lost_rounding"], -rounded.gain),
        ):
            np.testing.assert_allclose(values[:, place], expected, atol=1e-14)
    unknown = settings[0].target(target)[:, -3:].sum(axis=-1)
    np.testing.assert_allclose(columns["lost_vocabulary"][:, 0], unknown, atol=1e-14)
    assert (columns["lost_truncation"].max(axis=0) > 1e-15).tolist() == [False, True, True]
    assert columns["lost_excluded"][:, 1].max() > 0.01


# ---- trees by rank -------------------------------------------------------------------------------


def test_schemes_that_accept_by_rank_keep_every_measured_number():
    def column(scheme, law, k, definition="membership"):
        return TableColumn(f"{scheme}_{law}_k{k}", scheme, "", law, k, True, None, definition)

    ranked = [column("RecursiveRejection()", "IID", k) for k in (4, 1, 2)]
    others = [column("KSeq(gamma=None)", "IID", 1), column("Race()", "IID", 1)]
    others += [column("Naive()", "TopK", 2), *(column("Naive()", "IID", k, "rule") for k in (1, 2))]
    assert by_rank([*others, *ranked]) == [[ranked[1], ranked[2], ranked[0]]]


@pytest.mark.parametrize("nodes", [1, 2, 5, 64, 10**7])
@pytest.mark.parametrize("vector", [(0.5, 0.2, 0.1), (0.2, 0.5), (0.6, 0.0), (0.5, 0.3, 0.2)])
def test_derivatives(vector, nodes):
    """Central differences; towards (.5, .3, .2) no mass can be added, so its own go from a rank to
    another, where what is left open is never less than nothing.
    """
    by_ranks, step = np.array(vector), 1e-6
    whole = sum(vector) == 1.0
    found = [(upper_with_gradient(by_ranks, nodes)[1], lambda a: upper_with_gradient(a, nodes)[0])]
    if nodes <= 64:
        tree = best_tree(by_ranks, nodes)
        powers = rank_powers(tree.shape, len(vector))
        tokens, gradient = tokens_with_gradient(by_ranks, powers)
        assert tokens == pytest.approx(tree.expected_tokens)
        found += [(gradient, lambda changed: tree_expected_tokens(changed, shape=tree.shape))]
    for gradient, value in found:
        for rank in [] if whole and nodes < len(vector) else np.flatnonzero(by_ranks):
            ahead = np.eye(len(vector))
            direction = ahead[rank] - (ahead[rank - 1] if whole else 0.0)
            ends = (value(by_ranks + sign * step * direction) for sign in (1, -1))
            slope = np.subtract(*ends) / (2 * step)
            assert slope == pytest.approx(float(gradient @ direction), rel=1e-4, abs=1e-4)


def test_intervals_of_rows_are_those_of_derivatives_by_the_measured_numbers():
    """One mean varies at a time, by .002; 1.962341 is the quantile of 1,000 clusters."""
    ks, means, step = (1, 2, 4), np.array([0.5, 0.65, 0.72]), 1e-6
    for place in range(3):
        covariance = np.zeros((3, 3))
        covariance[place, place] = 0.002**2
        rows, up, down = (
            tree_rows(ks, means + sign * np.eye(3)[place] * step, covariance, 1_000)
            for sign in (0, 1, -1)
        )
        for row, high, low in zip(rows, up, down, strict=True):
            for name in ("tokens", "upper"):
                mine, *ends = (getattr(one, name) for one in (row, high, low))
                half = 1.962341 * 0.002 * abs(np.log(ends[0].value / ends[1].value)) / (2 * step)
                assert np.log(mine.high / mine.value) == pytest.approx(half, rel=1e-3, abs=1e-9)
                assert mine.low == pytest.approx(mine.value**2 / mine.high)


@pytest.mark.parametrize("ks", [(1, 2, 4, 8), (2, 8), (1, 8)])
def test_gaps_in_k_leave_the_bound_above_every_tree_of_so_many_children(
    ks,
):
    uniform, zipf = np.full(16, 1 / 16), 1 / np.arange(1.0, 17.0)
    problem = otm.Problem(draft=uniform, target=zipf / zipf.sum(), law=otm.IID(8))
    means = np.asarray(otm.acceptance_curve(otm.RecursiveRejection(), problem, k=range(1, 9)))
    vector, known = np.diff(means, prepend=0.0), means[[k - 1 for k in ks]]
    linear = np.diff(np.interp(range(9), (0, *ks), (0.0, *known)))
    np.testing.assert_allclose(acceptance_by_rank(ks, known), linear, rtol=1e-12)
    measured = np.diff(known, prepend=0.0)
    rows = tree_rows(ks, known, np.full((len(ks), len(ks)), np.nan), 1)
    assert [row.nodes for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    for row in rows:
        assert not row.tokens.has_interval and "(" not in row.tokens.words(3)
        assert row.tokens.value == pytest.approx(best_tree(linear, row.nodes).expected_tokens)
        best = optimal_tree(vector, num_nodes=row.nodes).expected_tokens
        assert row.tokens.value <= best + 1e-12 and best <= row.upper.value
        assert row.upper.value <= tunstall_upper(measured, num_nodes=row.nodes) + 1e-12
    assert best == pytest.approx(3.7295, abs=5e-5)
    # Even if all that lies between two measured numbers is accepted at one rank.
    gathered = np.zeros(8)
    gathered[[k - 1 for k in ks]] = measured
    for nodes in (8, 64):
        upper = upper_with_gradient(measured, nodes)[0]
        assert best_tree(gathered, nodes).expected_tokens <= upper
    # what two ranks allow is less than what eight yield
    assert upper_with_gradient(vector[:2], 64)[0] < best


def test_a_run_keeps_its_trees_and_its_report_shows_them(tmp_path):
    folder = write_run(tmp_path / "run", prompts=6, positions=8, ks=KS, bounds=True)
    found = write_trees(folder, read_manifest(folder))
    assert [one.setting["temperature"] for one in found] == [0.7, 1.0]
    last = found[1]
    assert (last.positions, last.prompts) == (48, 6)
    for row in last.schemes[0].rows:
        ends = [row.tokens.low, row.tokens.value, row.upper.value, row.upper.high]
        assert ends == sorted(ends)
    record = json.loads((folder / "trees.json").read_text())
    kept = record["settings"][1]["schemes"][0]["rows"][6]
    assert kept["tokens"]["value"] == row.tokens.value
    merge([folder], tmp_path / "merged")
    assert json.loads((tmp_path / "merged" / "trees.json").read_text()) == record
    shown = write_report(folder)
    for path in (shown.markdown, shown.html):
        text = path.read_text(encoding="utf-8")
        assert row.tokens.words(3) in text and row.upper.words(3) in text
    assert row.upper.words(3) in str(last)
    assert "every vertex as the mean of 48 positions" in str(last)
    unasked = write_run(tmp_path / "unasked", prompts=2, positions=3)
    assert write_trees(unasked, read_manifest(unasked)) == ()
    assert not (unasked / "trees.json").exists()


# ---- trees along texts ---------------------------------------------------------------------------


def test_columns_are_those_of_the_trees_along_the_text():
    """Likeliest trees anew by their decoder; float32 logits of two ways differ by about 1e-6."""
    models, sizes, text = PairSource(device="cpu"), (2, 8), "Returns the number of items"
    settings = Settings(
        k=(1,), positions="target", new_tokens=12, trees=sizes, columns=("kseq_iid",)
    )
    assert settings.recorded["trees"] == sizes
    shard = measure_shard(ShardTask(0, models, settings, ((0, text),)))
    rows = pq.read_table(pa.BufferReader(shard.shard)).to_pandas()
    names = [name for name, _, _ in tree_statistics(sizes)]
    assert tree_nodes(rows.columns) == list(sizes)
    # Twelve tokens are written, eleven have a context behind them; the last calls lack text.
    there = rows[: 12 - DEPTH]
    assert len(rows) == 12 and not there[names].isna().any(axis=None)
    assert rows[names][12 - DEPTH :].isna().all(axis=None)
    assert there[SCALE].nunique() == 1 and (there[names] >= np.append(np.ones(6) - 1e-12, 0)).all(
        axis=None
    )
    for stem in ("noise_tree", "likeliest_tree"):
        assert (there[f"{stem}_n8"] >= there[f"{stem}_n2"]).all()  # one tree within the other
    pair = load_source(models)
    draft, target = pair_models(pair, settings.pairs[0])
    context = tuple(pair.encode(text))
    tree = LikeliestTree(8, DEPTH).draft(draft, context, Sampled(np.random.default_rng(0)))
    first = {one[len(context)] for one in tree.contexts() if one and len(one) > len(context)}
    accepted = float(target.next(context)[sorted(first)].sum())
    assert float(there["likeliest_tree_n8"].iloc[0]) >= 1.0 + accepted - 1e-4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "--positions target"),
        ({"positions": "target", "new_tokens": DEPTH - 1}, "--num-tokens 16"),
    ],
)
def test_trees_want_texts_of_the_target(given, message):
    with pytest.raises(AnalysisError, match=message):
        check_settings(Settings(trees=(8,), **given))


# ---- checks --------------------------------------------------------------------------------------


def checked(ks, place="here"):
    return check_position(*logits(9, 12), PLAIN, ks, place=place, seed=[1])


def test_checks_agree_and_find_a_column_that_is_wrong(monkeypatch):
    fine = checked(KS)
    assert (fine.positions, fine.failures) == (1, ()) and "all agree (false alarm" in str(fine)

    def wrong(**arguments):
        table = acceptance_table(**arguments)
        table.values[[column.name for column in table.columns].index("kseq_iid_k2")] = 0.2
        return table

    monkeypatch.setattr(checks, "acceptance_table", wrong)
    found = fine + checked(KS, "there")
    assert found.positions == 2 and "kseq_iid_k2" in str(found)
    assert any("kseq_iid_k2 at there is 0.2000" in failure for failure in found.failures)
    assert str(Checked()) == "nothing checked"


def test_a_wrong_tree_and_a_wrong_bound_are_found(monkeypatch):
    right = checked((1, 2, 3))
    assert (right.trees, right.failures) == (4, ())
    assert "4 trees and their bounds against 500 calls" in str(right)
    monkeypatch.setattr(checks, "upper_with_gradient", lambda vector, nodes: (1.0, vector))
    low = checked((1, 2, 3)).failures
    assert any("recursive rejection at here yields at most" in failure for failure in low)
    monkeypatch.setattr(checks, "simulated_tokens", lambda *_, walks, rng: np.ones(walks))
    wrong = checked((1, 2, 3)).failures
    assert sum("decoded 1.000" in failure for failure in wrong) == 4
    assert not any("closed form" in failure for failure in wrong)
