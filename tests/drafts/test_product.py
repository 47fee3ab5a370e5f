"""Different drafters: the cut by sweep and by search against brute force, rational enumeration and
by hand.
"""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import otm
from otm.drafts import product_cut
from tests import strategies


@st.composite
def drafters(draw, *, max_tokens=6, max_drafters=4):
    """Different drafters `(k, V)` and a target, related or not."""
    first, target = draw(strategies.pairs(max_tokens=max_tokens))
    others = [
        draw(strategies.distributions(len(first)))
        for _ in range(draw(st.integers(1, max_drafters - 1)))
    ]
    return np.stack([first, *others]), target


class TestProduct:
    @given(instance=drafters())
    def test_sweep_and_submodular_minimisation_agree(self, instance):
        drafts, target = instance
        free = target == 0  # in T for nothing: the searches take the mass of these tokens as given
        base = drafts[:, free].sum(axis=1)
        searched = ~free & (drafts > 0).any(axis=0)
        assume(searched.any())
        drafts, target = drafts[:, searched], target[searched]
        sets = [product_cut._least_norm(drafts, target, base)]
        if len(drafts) == 2:
            sets.append(product_cut._sweep(drafts, target, base))
        masks = np.array(list(itertools.product([False, True], repeat=len(target))))
        losses = [target[T].sum() - (base + drafts[:, T].sum(axis=1)).prod() for T in masks]
        for T in sets:
            loss = target[T].sum() - (base + drafts[:, T].sum(axis=1)).prod()
            assert loss == pytest.approx(min(losses), abs=2 * product_cut.CERTIFIED_GAP)

    @pytest.mark.parametrize("num_tokens", [60, 300])
    def test_they_agree_at_size(self, num_tokens):
        rng = np.random.default_rng(num_tokens)
        for _ in range(5):
            *drafts, target = otm.examples.dirichlet(num_tokens, rng=rng, rows=3)
            drafts, losses = np.stack(drafts), []
            for search in (product_cut._sweep, product_cut._least_norm):
                T = search(drafts, target, np.zeros(2))
                losses.append(target[T].sum() - drafts[:, T].sum(axis=1).prod())
            assert losses[0] == pytest.approx(losses[1], abs=2 * product_cut.CERTIFIED_GAP)

    @pytest.mark.parametrize("k", [2, 3, 5])
    def test_equal_drafters_are_iid_drafts(self, k):
        rng = np.random.default_rng(k)
        p, q = otm.examples.dirichlet(1000, rng=rng), otm.examples.dirichlet(1000, rng=rng)
        problem = otm.Problem(draft=np.tile(p, (k, 1)), target=q, law=otm.Product(k))
        iid = otm.Problem(draft=p, target=q, law=otm.IID(k))
        assert otm.optimal_acceptance(problem) == otm.optimal_acceptance(iid)
        np.testing.assert_array_equal(otm.optimal_cut(problem), otm.optimal_cut(iid))

    def test_batches_are_row_by_row_and_drafters_broadcast(self):
        rng = np.random.default_rng(0)
        drafts = otm.examples.dirichlet(5, rng=rng, rows=2)
        targets = otm.examples.dirichlet(5, rng=rng, rows=6).reshape(2, 3, 5)
        batch = otm.Problem(draft=drafts, target=targets, law=otm.Product(2))
        assert batch.draft.shape == (2, 3, 2, 5)
        values = otm.optimal_acceptance(batch)
        for index in np.ndindex(2, 3):
            alone = otm.Problem(draft=drafts, target=targets[index], law=otm.Product(2))
            assert values[index] == otm.optimal_acceptance(alone)

    def test_the_shape_of_the_draft_is_checked(self):
        p, q = [[0.5, 0.5], [0.25, 0.75]], [0.5, 0.5]
        problem = otm.Problem(draft=p, target=q, law=otm.Product(2))
        for draft, target, k, message in (
            (p, q, 3, r"needs a draft of shape \(\.\.\., 3, V\).*got \(2, 2\).*Stack"),
            (q, q, 2, r"got \(2,\)"),
            (p, [1.0], 2, "share one vocabulary"),
        ):
            with pytest.raises(otm.errors.ShapeMismatch, match=message):
                otm.Problem(draft=draft, target=target, law=otm.Product(k))
        with pytest.raises(otm.errors.ShapeMismatch, match="k = 2 only; got k = 3"):
            otm.optimal_acceptance_curve(problem, k=[2, 3])
        assert otm.optimal_acceptance_curve(problem, k=[2, 2]).shape == (2,)

    def test_too_many_tokens_are_refused_with_the_number(self):
        rng = np.random.default_rng(0)
        for k, limit in ((2, 4096), (3, 128)):
            size = 3 * limit
            problem = otm.Problem(
                draft=otm.examples.dirichlet(size, rng=rng, rows=k),
                target=otm.examples.uniform(size),
                law=otm.Product(k),
            )
            with pytest.raises(
                otm.errors.TooLarge, match=rf"limited to {limit:,} tokens.*otm.estimate"
            ):
                otm.optimal_acceptance(problem)

    def test_as_many_tokens_as_the_limit_are_taken(self, monkeypatch):
        monkeypatch.setattr(product_cut, "MAX_TOKENS_TWO_DRAFTERS", 2)
        # T = {0}: 1 + 1/2 − 3/8; T = {1}: 1 + 1/2 − 1/8.
        drafts, target = np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([0.5, 0.5])
        assert product_cut.product_values(drafts, target) == 1.0

    @pytest.mark.parametrize(
        ("drafts", "target", "members"),
        [
            # Tokens 0 to 3 are drafted 6:7 by both: all lines are parallel.
            ([[21, 24, 24, 18, 16], [26, 28, 28, 21, 0]], [0, 15, 1, 11, 8], [0, 2]),
            # The lines of tokens 1 and 2 lie so close that one beside them misses what is between:
            # 1 + .012 − .71 · .51.
            ([[70, 1, 5, 24], [50, 1, 5, 44]], [0, 1.2, 6.37, 92.43], [0, 1]),
        ],
    )
    def test_tokens_on_parallel_lines(self, drafts, target, members):
        p, q = (otm.normalise(np.array(rows, dtype=float)) for rows in (drafts, target))
        assert np.flatnonzero(product_cut.product_worst_set(p, q)).tolist() == members
        masks = np.array(list(itertools.product([False, True], repeat=len(q))))
        best = min(1.0 + q[T].sum() - p[:, T].sum(axis=1).prod() for T in masks)
        assert product_cut.product_values(p, q) == pytest.approx(best, abs=1e-15)

    def test_the_limit_counts_what_any_drafter_can_produce(self):
        problem = otm.Problem(
            draft=[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], target=[0.25, 0.25, 0.5], law=otm.Product(2)
        )
        limit = otm.bounds.support_limit_upper(problem)
        # rounded up by so much
        assert 0.5 <= limit == pytest.approx(0.5, abs=(3 * 4 + 4) * 2.0**-53)
        assert otm.optimal_acceptance(problem) == 0.5

    def test_compare_leaves_it_out_unless_asked(self):
        table = otm.compare(draft=[0.75, 0.25], target=[0.5, 0.5], k=[1, 2], samples=0)
        assert not any(isinstance(row.law, otm.Product) for row in table.rows)
        asked = otm.compare(
            draft=[[0.75, 0.25], [0.5, 0.5]],
            target=[0.5, 0.5],
            laws=[otm.Product],
            verifiers=[otm.TransportPlan()],
            k=[2],
            samples=0,
        )
        # T = {0}: 1 + 1/2 − 3/8; T = {1}: 1 + 1/2 − 1/8; the optimum is 1.
        assert asked.rows[0].optimum == 1.0
        assert asked.rows[0].exact == pytest.approx(1.0, abs=1e-9)


def test_few_tokens_of_tiny_masses_are_not_left_to_a_search():
    """Wolfe's algorithm stalls at differences of 2e-9 here."""
    first = [
        0.9961084448639884,
        2.9686345006942404e-08,
        1.8553965629339002e-09,
        4.7498152011107846e-07,
        0.0038910486127499548,
    ]
    others = [[4 / 9, 1 / 9, 1 / 3, 1 / 9, 0.0], [2 / 9, 2 / 9, 1 / 9, 1 / 9, 1 / 3]]
    problem = otm.Problem(draft=[first, *others], target=first, law=otm.Product(3))
    p, q = np.asarray(problem.draft), np.asarray(problem.target)
    sets = [np.array(members) for members in itertools.product([False, True], repeat=5)]
    best = 1.0 + min(q[T].sum() - p[:, T].sum(axis=1).prod() for T in sets)
    assert otm.optimal_acceptance(problem) == pytest.approx(best, abs=1e-15)
