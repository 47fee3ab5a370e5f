"""Trees by rank and their bound: derivatives, intervals, gaps in k, decoded trees."""

from __future__ import annotations

import numpy as np
import pytest

import otm
from analysis.run.ranks import (
    SIZES,
    acceptance_by_rank,
    best_tree,
    by_rank,
    rank_powers,
    simulated_tokens,
    tokens_with_gradient,
    tree_rows,
    upper_with_gradient,
)
from otm.table import TableColumn
from otm.trees import optimal_tree, tree_expected_tokens, tunstall_upper

FALLING, RISING = np.array([0.5, 0.2, 0.1]), np.array([0.2, 0.5])


def test_schemes_that_accept_by_rank_keep_every_measured_number() -> None:
    def column(scheme: str, law: str, k: int, definition: str = "membership") -> TableColumn:
        return TableColumn(f"{scheme}_{law}_k{k}", scheme, "", law, k, True, None, definition)

    ranked = [column("RecursiveRejection()", "IID", k) for k in (4, 1, 2)]
    others = [
        column("KSeq(gamma=None)", "IID", 1),
        column("Race()", "IID", 1),
        column("Naive()", "TopK", 2),
    ]
    bound = [column("Naive()", "IID", k, "rule") for k in (1, 2)]
    assert by_rank([*others, *ranked, *bound]) == [[ranked[1], ranked[2], ranked[0]]]


@pytest.mark.parametrize("nodes", [1, 2, 5, 64, 10**7])
@pytest.mark.parametrize(
    "vector", [FALLING, RISING, np.array([0.6, 0.0]), np.array([0.5, 0.3, 0.2])]
)
def test_derivatives(vector: np.ndarray, nodes: int) -> None:
    # Central differences; towards (.5, .3, .2) no mass can be added, so its own go from a rank to
    # another.
    step, whole = 1e-6, vector.sum() == 1.0
    gradients = {"upper": upper_with_gradient(vector, nodes)[1]}
    values = {"upper": lambda changed: upper_with_gradient(changed, nodes)[0]}
    if nodes <= 64:
        tree = best_tree(vector, nodes)
        tokens, gradients["tokens"] = tokens_with_gradient(
            vector, rank_powers(tree.shape, len(vector))
        )
        assert tokens == pytest.approx(tree.expected_tokens)
        values["tokens"] = lambda changed: tree_expected_tokens(changed, shape=tree.shape)
    for name, gradient in gradients.items():
        for rank in np.flatnonzero(vector):
            direction = np.eye(len(vector))[rank] - (
                np.eye(len(vector))[rank - 1] if whole else 0.0
            )
            if whole and nodes < len(vector):
                continue  # what is left open is never less than nothing
            slope = (
                values[name](vector + step * direction) - values[name](vector - step * direction)
            ) / (2 * step)
            assert slope == pytest.approx(float(gradient @ direction), rel=1e-4, abs=1e-4)


def test_rows_and_their_intervals() -> None:
    means, rng = np.array([0.5, 0.65, 0.72]), np.random.default_rng(0)
    root = 0.002 * np.array([[1.0, 0.0, 0.0], [0.8, 0.4, 0.0], [0.7, 0.4, 0.3]])
    rows = tree_rows((1, 2, 3), means, root @ root.T, clusters=1_000)
    assert [row.nodes for row in rows] == list(SIZES)
    for row in rows:
        assert row.tokens.value == pytest.approx(
            optimal_tree(np.diff(means, prepend=0.0), num_nodes=row.nodes).expected_tokens
        )
        assert (
            row.tokens.value
            <= row.upper.value
            <= tunstall_upper(np.diff(means, prepend=0.0), num_nodes=row.nodes)
        )
    # The spread of what means with this covariance give, which 200 of them tell to 5 %; where the
    # bound of large trees goes over to its limit, 1 over what is left, it bends too much for a
    # derivative.
    drawn = [
        tree_rows((1, 2, 3), means + root @ rng.normal(size=3), np.full((3, 3), np.nan), 1)
        for _ in range(200)
    ]
    for place, row in enumerate(rows[:-1]):
        for name in ("tokens", "upper"):
            values = [getattr(one[place], name).value for one in drawn]
            mine = getattr(row, name)
            half = float(np.log(mine.high / mine.value))
            assert float(np.std(np.log(values))) * 1.962 == pytest.approx(half, rel=0.2)
    assert not drawn[0][0].tokens.has_interval and "(" not in drawn[0][0].tokens.words(3)


@pytest.mark.parametrize("verifier", [otm.RecursiveRejection(), otm.Naive()], ids=str)
def test_decoded_trees_yield_what_is_expected(verifier: otm.Verifier) -> None:
    problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.3, 0.5], law=otm.IID(3))
    vector = otm.trees.acceptance_vector(verifier, problem)
    tree = best_tree(vector, 12)
    tokens = simulated_tokens(
        otm.prepare(verifier, problem), tree.shape, walks=4_000, rng=np.random.default_rng(1)
    )
    assert tokens.min() == 1 and tokens.max() == 1 + tree.shape.depth
    assert tokens.mean() == pytest.approx(
        tree.expected_tokens, abs=5 * tokens.std() / np.sqrt(4_000)
    )


@pytest.mark.parametrize("ks", [(1, 2, 4, 8), (2, 8), (1, 8)])
def test_gaps_in_k_leave_the_bound_above_every_tree_of_so_many_children(
    ks: tuple[int, ...],
) -> None:
    uniform, zipf = np.full(16, 1 / 16), 1 / np.arange(1.0, 17.0)
    problem = otm.Problem(draft=uniform, target=zipf / zipf.sum(), law=otm.IID(8))
    means = np.asarray(otm.acceptance_curve(otm.RecursiveRejection(), problem, k=range(1, 9)))
    vector, known = np.diff(means, prepend=0.0), means[[k - 1 for k in ks]]
    linear = np.diff(np.interp(range(9), (0, *ks), (0.0, *known)))
    np.testing.assert_allclose(acceptance_by_rank(ks, known), linear, rtol=1e-12)
    for row in tree_rows(ks, known, np.full((len(ks), len(ks)), np.nan), 1):
        assert row.tokens.value == pytest.approx(best_tree(linear, row.nodes).expected_tokens)
        best = optimal_tree(vector, num_nodes=row.nodes).expected_tokens
        assert row.tokens.value <= best + 1e-12 and best <= row.upper.value
    assert best == pytest.approx(3.7295, abs=5e-5)
    # Even if all that lies between two measured numbers is accepted at one rank.
    gathered = np.zeros(8)
    gathered[[k - 1 for k in ks]] = np.diff(known, prepend=0.0)
    for nodes in (8, 64):
        upper = upper_with_gradient(np.diff(known, prepend=0.0), nodes)[0]
        assert best_tree(gathered, nodes).expected_tokens <= upper
    if len(ks) == 4:  # what two ranks allow is less than what eight yield
        assert upper_with_gradient(vector[:2], 64)[0] < best


def test_derivatives_between_measured_numbers() -> None:
    ks, means, step = (1, 2, 4), np.array([0.5, 0.65, 0.72]), 1e-6
    root = 0.002 * np.eye(3)
    for place in range(3):
        one = np.outer(root[place], root[place])
        direction = np.eye(3)[place] * step
        rows, up, down = (
            tree_rows(ks, means, one, 1_000),
            *(tree_rows(ks, means + s * direction, one, 9) for s in (1, -1)),
        )
        for row, high, low in zip(rows, up, down, strict=True):
            for name in ("tokens", "upper"):
                slope = abs(np.log(getattr(high, name).value / getattr(low, name).value)) / (
                    2 * step
                )
                mine = getattr(row, name)
                assert np.log(mine.high / mine.value) == pytest.approx(
                    1.962341 * 0.002 * slope, rel=1e-3, abs=1e-9
                )
