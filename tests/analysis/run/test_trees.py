"""Trees and bounds of a run: derivatives, intervals, decoded trees, and what is written to a run's folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import otm
from analysis.report.write import write_report
from analysis.run.manifest import read_manifest
from analysis.run.merge import merge
from analysis.run.trees import (
    SIZES,
    Column,
    best_tree,
    by_rank,
    simulated_tokens,
    tokens_gradient,
    tree_rows,
    trees_table,
    upper_with_gradient,
    write_trees,
)
from otm.trees import optimal_tree, tree_expected_tokens, tunstall_upper
from tests.analysis.report.synthetic_run import write_run

FALLING, RISING = np.array([0.5, 0.2, 0.1]), np.array([0.2, 0.5])


def test_ranks_go_as_far_as_there_is_no_gap() -> None:
    def column(scheme: str, law: str, k: int, definition: str = "membership") -> Column:
        return Column(f"{scheme}_{law}_k{k}", scheme, "", law, k, definition)

    ranked = [column("RecursiveRejection()", "IID", k) for k in (1, 2, 4)]
    others = [column("KSeq(gamma=None)", "IID", 1), column("Race()", "IID", 1), column("Naive()", "TopK", 2)]
    bound = [column("Naive()", "IID", k, "rule") for k in (1, 2)]
    assert by_rank([*others, *ranked, *bound]) == [ranked[:2]]


@pytest.mark.parametrize("nodes", [1, 2, 5, 64, 10**7])
@pytest.mark.parametrize("vector", [FALLING, RISING, np.array([0.6, 0.0]), np.array([0.5, 0.3, 0.2])])
def test_derivatives(vector: np.ndarray, nodes: int) -> None:
    # Central differences; towards (.5, .3, .2) no mass can be added, so its own go from a rank to another.
    step, whole = 1e-6, vector.sum() == 1.0
    gradients = {"upper": upper_with_gradient(vector, nodes)[1]}
    values = {"upper": lambda changed: upper_with_gradient(changed, nodes)[0]}
    if nodes <= 64:
        tree = best_tree(vector, nodes)
        gradients["tokens"] = tokens_gradient(vector, tree)
        values["tokens"] = lambda changed: tree_expected_tokens(changed, shape=tree.shape)
    for name, gradient in gradients.items():
        for rank in np.flatnonzero(vector):
            direction = np.eye(len(vector))[rank] - (np.eye(len(vector))[rank - 1] if whole else 0.0)
            if whole and nodes < len(vector):
                continue  # what is left open is never less than nothing
            slope = (values[name](vector + step * direction) - values[name](vector - step * direction)) / (2 * step)
            assert slope == pytest.approx(float(gradient @ direction), rel=1e-4, abs=1e-4)


def test_rows_and_their_intervals() -> None:
    means, rng = np.array([0.5, 0.65, 0.72]), np.random.default_rng(0)
    root = 0.002 * np.array([[1.0, 0.0, 0.0], [0.8, 0.4, 0.0], [0.7, 0.4, 0.3]])
    rows = tree_rows(means, root @ root.T, clusters=1_000)
    assert [row.nodes for row in rows] == list(SIZES)
    for row in rows:
        assert row.tokens.value == pytest.approx(optimal_tree(np.diff(means, prepend=0.0), num_nodes=row.nodes).expected_tokens)
        assert row.tokens.value <= row.upper.value <= tunstall_upper(np.diff(means, prepend=0.0), num_nodes=row.nodes) * 2
    # The spread of what means with this covariance give, which 200 of them tell to 5 %; where the bound of large trees goes over to
    # its limit, 1 over what is left, it bends too much for a derivative.
    drawn = [tree_rows(means + root @ rng.normal(size=3), np.full((3, 3), np.nan), 1) for _ in range(200)]
    for place, row in enumerate(rows[:-1]):
        for name in ("tokens", "upper"):
            values = [getattr(one[place], name).value for one in drawn]
            mine = getattr(row, name)
            half = float(np.log(mine.high / mine.value))
            assert float(np.std(np.log(values))) * 1.962 == pytest.approx(half, rel=0.2)
    assert drawn[0][0].tokens.low is None and "(" not in str(drawn[0][0].tokens)


@pytest.mark.parametrize("verifier", [otm.RecursiveRejection(), otm.Naive()], ids=str)
def test_decoded_trees_yield_what_is_expected(verifier: otm.Verifier) -> None:
    problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.3, 0.5], law=otm.IID(3))
    vector = otm.trees.acceptance_vector(verifier, problem)
    tree = best_tree(vector, 12)
    tokens = simulated_tokens(otm.prepare(verifier, problem), tree.shape, walks=4_000, rng=np.random.default_rng(1))
    assert tokens.min() == 1 and tokens.max() == 1 + tree.shape.depth
    assert tokens.mean() == pytest.approx(tree.expected_tokens, abs=5 * tokens.std() / np.sqrt(4_000))


def test_a_pair_of_distributions_as_text() -> None:
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.75, 0.25], law=otm.IID(1))
    told = trees_table(problem, [1], draws=50, rng=np.random.default_rng(0))
    assert f"{'optimal tree, tokens':25}{1.75:8.3f}{2.3125:8.3f}{3.051:8.3f}" in told  # chains: 1 + ¾ + 9/16 + …
    assert "decoded 50 times" in told and told.count("\n") == 5
    assert trees_table(problem, [1], draws=0, rng=np.random.default_rng(0)).count("\n") == 3


def test_a_run_keeps_its_trees_and_its_report_shows_them(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", prompts=6, positions=8, ks=(1, 2, 4), bounds=True)
    found = write_trees(folder, read_manifest(folder))
    assert [one.setting["temperature"] for one in found] == [0.7, 1.0]
    table = pq.read_table(folder / "shards").to_pandas()
    here = table[table.temperature == 1.0]
    sampled = next(one for one in found[1].schemes if one.scheme == "RecursiveRejection()")
    first, second = (here[f"recursive_rejection_iid_k{k}"].mean() for k in (1, 2))
    assert sampled.acceptance == pytest.approx([first, second - first])
    assert sampled.rows[1].tokens.value == pytest.approx(1 + max(second, first + first**2))
    assert (found[1].positions, found[1].prompts) == (48, 6)
    assert all(row.tokens.low <= row.tokens.value <= row.upper.value <= row.upper.high for row in sampled.rows)  # type: ignore[operator]
    record = json.loads((folder / "trees.json").read_text())
    assert record["settings"][1]["schemes"][0]["rows"][6]["tokens"]["value"] == found[1].schemes[0].rows[6].tokens.value
    merge([folder], tmp_path / "merged")
    assert json.loads((tmp_path / "merged" / "trees.json").read_text()) == record
    shown = write_report(folder)
    row = found[1].schemes[0].rows[6]
    for text in (shown.markdown.read_text(encoding="utf-8"), shown.html.read_text(encoding="utf-8")):
        assert str(row.tokens) in text and str(row.upper) in text
    assert str(row.upper) in str(found[1]) and "every vertex as the mean of 48 positions" in str(found[1])
    unasked = write_run(tmp_path / "unasked", prompts=2, positions=3)
    assert write_trees(unasked, read_manifest(unasked)) == () and not (unasked / "trees.json").exists()
    assert "What trees win" not in write_report(unasked).markdown.read_text(encoding="utf-8")
