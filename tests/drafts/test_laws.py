"""Greedy, deterministic and different drafters, and what every law says about inclusion; against rational enumeration."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import otm
from otm.audit.instances import one_per_drafter, standard_problems
from otm.audit.shrinking import small_problems
from otm.drafts import product_cut
from otm.drafts.base import PAD, enumerate_drafts
from otm.drafts.product_cut import product_worst_set
from otm.verifiers.base import check_drafts, members
from tests import exact, instances, strategies
from tests.tolerance import UNIT_ROUNDOFF, rounding

F = Fraction


# --- greedy and deterministic ---------------------------------------------------------------------------------------------------


def ranked(p: exact.Masses) -> list[int]:
    """Tokens by descending mass, lowest index first among equals."""
    return sorted(range(len(p)), key=lambda x: (-p[x], x))


def greedy_optimum(p: exact.Masses, q: exact.Masses, k: int) -> Fraction:
    """Q(top) + Σ_{i ∉ top} min(q_i, p_i/(1 − P(top))), over tokens that can be drafted."""
    top = [x for x in ranked(p)[: k - 1] if p[x] > 0]
    left = 1 - sum((p[x] for x in top), F(0))
    value = sum((q[x] for x in top), F(0))
    if left > 0:
        value += sum((min(q[x], p[x] / left) for x in range(len(p)) if x not in top), F(0))
    return value


class TestGreedy:
    @given(pair=strategies.pairs(max_tokens=6), k=st.integers(1, 4))
    def test_closed_form_and_cut_over_the_enumeration(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        draft, target = pair
        k = min(k, len(draft))
        law = otm.Greedy(k)
        problem = otm.Problem(draft=draft, target=target, law=law)
        p, q = exact.exact(problem.draft), exact.exact(problem.target)
        table = law.enumerate(np.asarray(p, dtype=object))
        value = float(exact.optimum_from_table(table.tokens.tolist(), list(table.mass), q))
        assert value == float(greedy_optimum(p, q, k))
        assert otm.optimal_acceptance(problem) == pytest.approx(value, abs=rounding(len(draft), k))

    def test_by_hand(self) -> None:
        problem = otm.Problem(draft=[0.2, 0.5, 0.3], target=[0.6, 0.2, 0.2], law=otm.Greedy(2))
        assert otm.optimal_acceptance(problem) == pytest.approx(0.2 + 0.4 + 0.2, abs=rounding(3, 2))
        assert otm.optimal_cut(problem).tolist() == [False, True, True]
        assert otm.optimal_acceptance_curve(problem, k=[1, 3]) == pytest.approx([0.6, 1.0], abs=rounding(3, 3))

    def test_one_greedy_draft_is_a_single_draft(self) -> None:
        rng = np.random.default_rng(0)
        p, q = otm.examples.dirichlet(50, rng=rng, rows=20), otm.examples.dirichlet(50, rng=rng, rows=20)
        greedy = otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.Greedy(1)))
        single = otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.IID(1)))
        np.testing.assert_allclose(greedy, single, atol=rounding(50, 1))

    def test_ties_go_to_the_lowest_index(self) -> None:
        table = otm.Greedy(3).enumerate(np.full(4, 0.25))
        assert table.tokens.tolist() == [[0, 1, 2], [0, 1, 3]]
        assert table.mass.tolist() == [0.5, 0.5]

    def test_tokens_without_mass_are_never_drafted(self) -> None:
        p = np.array([0.0, 1.0, 0.0])
        for k in (2, 3):
            assert otm.Greedy(k).enumerate(p).tokens.tolist() == [[1] + [PAD] * (k - 1)]
            problem = otm.Problem(draft=p, target=[0.3, 0.3, 0.4], law=otm.Greedy(k))
            assert otm.optimal_acceptance(problem) == pytest.approx(0.3, abs=1e-16)

    def test_the_rest_is_summed_not_subtracted(self) -> None:
        # 1 − p(0) is 0 in floating point.
        problem = otm.Problem(draft=[1.0, 3e-20, 1e-20], target=[0.1, 0.8, 0.1], law=otm.Greedy(2))
        assert otm.optimal_acceptance(problem) == pytest.approx(0.1 + 0.75 + 0.1, abs=1e-15)
        assert problem.law.containment(problem.draft, np.array([True, True, False])) == pytest.approx(0.75, abs=1e-15)


class TestDeterministic:
    @given(pair=strategies.pairs(max_tokens=6), k=st.integers(1, 4))
    def test_the_optimum_is_the_targets_mass_on_the_drafts(self, pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
        draft, target = pair
        k = min(k, len(draft))
        problem = otm.Problem(draft=draft, target=target, law=otm.TopK(k))
        top = [x for x in ranked(exact.exact(problem.draft))[:k] if problem.draft[x] > 0]
        value = math.fsum(problem.target[top])
        assert otm.optimal_acceptance(problem) == pytest.approx(value, abs=rounding(len(draft), k))
        assert otm.acceptance(otm.Naive(), problem) == pytest.approx(value, abs=rounding(len(draft), k))
        assert enumerate_drafts(problem.law, problem.draft).tokens.tolist() == [top + [PAD] * (k - len(top))]


@pytest.mark.parametrize("make", [otm.WithoutReplacement, otm.Greedy, otm.TopK])
def test_more_distinct_drafts_than_tokens_are_an_error(make: type[otm.Law]) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="Distinct drafts need k ≤ V; got k = 3 with V = 2"):
        otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=make(3))
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=make(1))
    with pytest.raises(otm.errors.InvalidParameter, match="k ≤ V"):
        otm.optimal_acceptance_curve(problem, k=[1, 2, 3])


# --- different drafters ---------------------------------------------------------------------------------------------------------


def product_optimum(drafts: list[exact.Masses], q: exact.Masses) -> Fraction:
    """1 + min over all 2^V sets of Q(T) − Π_d P_d(T)."""
    best = F(0)
    for T in exact.subsets(len(q)):
        inside = math.prod((sum((p[y] for y in T), F(0)) for p in drafts), start=F(1))
        best = min(best, sum((q[y] for y in T), F(0)) - inside)
    return 1 + best


@st.composite
def drafters(draw: st.DrawFn, *, max_tokens: int = 6, max_drafters: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Different drafters `(k, V)` and a target, related or not."""
    first, target = draw(strategies.pairs(max_tokens=max_tokens))
    others = [draw(strategies.distributions(len(first))) for _ in range(draw(st.integers(1, max_drafters - 1)))]
    return np.stack([first, *others]), target


class TestProduct:
    @given(instance=drafters())
    def test_the_optimum_is_the_smallest_of_all_cuts(self, instance: tuple[np.ndarray, np.ndarray]) -> None:
        drafts, target = instance
        problem = otm.Problem(draft=drafts, target=target, law=otm.Product(len(drafts)))
        value = product_optimum([exact.exact(p) for p in problem.draft], exact.exact(problem.target))
        assert otm.optimal_acceptance(problem) == pytest.approx(float(value), abs=1e-12)

    @given(instance=drafters(max_drafters=2))
    def test_sweep_and_submodular_minimisation_agree(self, instance: tuple[np.ndarray, np.ndarray]) -> None:
        drafts, target = instance
        free = target == 0  # in T for nothing: the searches take the mass of these tokens as given
        base = drafts[:, free].sum(axis=1)
        searched = ~free & (drafts > 0).any(axis=0)
        assume(searched.any())
        drafts, target = drafts[:, searched], target[searched]
        losses = []
        for search in (product_cut._sweep, product_cut._least_norm):
            T = search(drafts, target, base)
            losses.append(target[T].sum() - (base + drafts[:, T].sum(axis=1)).prod())
        assert losses[0] == pytest.approx(losses[1], abs=2 * product_cut.CERTIFIED_GAP)

    @pytest.mark.parametrize("num_tokens", [60, 300])
    def test_sweep_and_submodular_minimisation_agree_at_size(self, num_tokens: int) -> None:
        rng = np.random.default_rng(num_tokens)
        for _ in range(5):
            drafts, target = otm.examples.dirichlet(num_tokens, rng=rng, rows=2), otm.examples.dirichlet(num_tokens, rng=rng)
            sets = [search(drafts, target, np.zeros(2)) for search in (product_cut._sweep, product_cut._least_norm)]
            losses = [target[T].sum() - drafts[:, T].sum(axis=1).prod() for T in sets]
            assert losses[0] == pytest.approx(losses[1], abs=2 * product_cut.CERTIFIED_GAP)

    @pytest.mark.parametrize("k", [2, 3, 5])
    def test_equal_drafters_are_iid_drafts(self, k: int) -> None:
        rng = np.random.default_rng(k)
        p, q = otm.examples.dirichlet(1000, rng=rng), otm.examples.dirichlet(1000, rng=rng)
        problem = otm.Problem(draft=np.tile(p, (k, 1)), target=q, law=otm.Product(k))
        iid = otm.Problem(draft=p, target=q, law=otm.IID(k))
        assert otm.optimal_acceptance(problem) == otm.optimal_acceptance(iid)
        np.testing.assert_array_equal(otm.optimal_cut(problem), otm.optimal_cut(iid))
        # and the searches themselves, not only the shortcut, find it
        small_p, small_q = otm.examples.dirichlet(20, rng=rng), otm.examples.dirichlet(20, rng=rng)
        search = product_cut._sweep if k == 2 else product_cut._least_norm
        T = search(np.tile(small_p, (k, 1)), small_q, np.zeros(k))
        small = otm.optimal_acceptance(otm.Problem(draft=small_p, target=small_q, law=otm.IID(k)))
        assert 1 + small_q[T].sum() - small_p[T].sum() ** k == pytest.approx(small, abs=2 * product_cut.CERTIFIED_GAP)

    def test_no_prefix_of_the_obvious_order_attains_the_optimum(self) -> None:
        """docs/theory.md, "Different drafters": the optimum .5331; the best prefix under q/(p₁ + p₂) gives .536."""
        drafts = np.array([[0.9, 0.09, 0.01, 0.0], [0.5, 0.01, 0.09, 0.4]])
        target = np.array([0.0, 0.066, 0.07, 0.864])
        problem = otm.Problem(draft=drafts, target=target, law=otm.Product(2))
        value = product_optimum([exact.exact(p) for p in drafts], exact.exact(target))
        assert float(value) == pytest.approx(0.5331, abs=5e-5)
        assert otm.optimal_acceptance(problem) == pytest.approx(float(value), abs=1e-14)
        order = np.argsort(target / drafts.sum(axis=0))
        prefixes = [order[:size] for size in range(5)]
        best = min(1 + target[T].sum() - drafts[:, T].sum(axis=1).prod() for T in prefixes)
        assert best == pytest.approx(0.536, abs=5e-4)
        assert best > float(value) + 1e-3

    def test_the_optimum_is_a_prefix_of_its_own_order(self) -> None:
        rng = np.random.default_rng(3)
        for k, num_tokens in itertools.product((2, 3), (5, 30)):
            drafts, target = otm.examples.dirichlet(num_tokens, rng=rng, rows=k), otm.examples.dirichlet(num_tokens, rng=rng)
            T = product_worst_set(drafts, target)
            sums = drafts[:, T].sum(axis=1)
            slope = sum(sums.prod() / sums[d] * drafts[d] for d in range(k))
            assert (target[T] <= slope[T]).all()
            assert (target[~T] >= slope[~T]).all()

    def test_the_linear_program_agrees(self) -> None:
        rng = np.random.default_rng(1)
        problem = otm.Problem(
            draft=otm.examples.dirichlet(12, rng=rng, rows=3), target=otm.examples.dirichlet(12, rng=rng), law=otm.Product(3)
        )
        solved = otm.optimum(problem)
        assert solved.lower <= otm.optimal_acceptance(problem) <= solved.upper
        low, high = otm.transport.certify_exactly(problem, solved)
        assert float(low) - 1e-15 <= otm.optimal_acceptance(problem) <= float(high) + 1e-15

    def test_batches_are_row_by_row_and_drafters_broadcast(self) -> None:
        rng = np.random.default_rng(0)
        drafts, targets = (
            otm.examples.dirichlet(5, rng=rng, rows=2),
            otm.examples.dirichlet(5, rng=rng, rows=6).reshape(2, 3, 5),
        )
        batch = otm.Problem(draft=drafts, target=targets, law=otm.Product(2))
        assert batch.draft.shape == (2, 3, 2, 5)
        values = otm.optimal_acceptance(batch)
        for index in np.ndindex(2, 3):
            alone = otm.Problem(draft=drafts, target=targets[index], law=otm.Product(2))
            assert values[index] == otm.optimal_acceptance(alone)

    def test_the_shape_of_the_draft_is_checked(self) -> None:
        p, q = [[0.5, 0.5], [0.25, 0.75]], [0.5, 0.5]
        with pytest.raises(otm.errors.ShapeMismatch, match=r"needs a draft of shape \(\.\.\., 3, V\).*got \(2, 2\).*Stack"):
            otm.Problem(draft=p, target=q, law=otm.Product(3))
        with pytest.raises(otm.errors.ShapeMismatch, match=r"got \(2,\)"):
            otm.Problem(draft=q, target=q, law=otm.Product(2))
        with pytest.raises(otm.errors.ShapeMismatch, match="share one vocabulary"):
            otm.Problem(draft=p, target=[1.0], law=otm.Product(2))
        problem = otm.Problem(draft=p, target=q, law=otm.Product(2))
        with pytest.raises(otm.errors.ShapeMismatch, match="one row per drafter"):
            problem.with_law(otm.Product(3))
        with pytest.raises(otm.errors.ShapeMismatch, match="k = 2 only; got k = 3"):
            otm.optimal_acceptance_curve(problem, k=[2, 3])
        assert otm.optimal_acceptance_curve(problem, k=[2, 2]).shape == (2,)

    def test_too_many_tokens_are_refused_with_the_number(self) -> None:
        rng = np.random.default_rng(0)
        for k, limit in ((2, 4096), (3, 128)):
            size = 3 * limit
            problem = otm.Problem(
                draft=otm.examples.dirichlet(size, rng=rng, rows=k), target=otm.examples.uniform(size), law=otm.Product(k)
            )
            with pytest.raises(otm.errors.TooLarge, match=rf"limited to {limit:,} tokens.*otm.estimate"):
                otm.optimal_acceptance(problem)

    def test_the_limit_counts_what_any_drafter_can_produce(self) -> None:
        problem = otm.Problem(draft=[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], target=[0.25, 0.25, 0.5], law=otm.Product(2))
        assert otm.bounds.support_limit_upper(problem) == 0.5
        assert otm.optimal_acceptance(problem) == 0.5

    def test_compare_leaves_it_out_unless_asked(self) -> None:
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


# --- laws from outside ----------------------------------------------------------------------------------------------------------


def _outside(make: type[otm.Law]) -> type[otm.Law]:
    """A law that says of itself what `make` says and is no relative of it: what is true of one must be done for the other."""
    methods = {name: inspect.getattr_static(make, name) for name in otm.Law.__abstractmethods__ | {"one_drafter", "distinct"}}
    return dataclasses.dataclass(frozen=True)(type(f"Outside{make.__name__}", (otm.Law,), methods))


class TestLawsFromOutside:
    def test_independent_drafts_are_never_missing(self) -> None:
        problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=_outside(otm.IID)(2))
        assert check_drafts([0, 1], problem).tolist() == [[0, 1]]
        with pytest.raises(otm.errors.InvalidParameter, match=r"must lie in \[0, 2\); got -1 to 0"):
            check_drafts([0, PAD], problem)

    @pytest.mark.parametrize("make", otm.drafts.LAWS)
    def test_instances_have_the_shape_that_the_law_takes(self, make: type[otm.Law]) -> None:
        law = _outside(make)(2)
        for mine, named in ((small_problems(law), small_problems(make(2))), (_standard(law), _standard(make(2)))):
            for problem, wanted in itertools.islice(zip(mine, named, strict=True), 200):
                assert problem.draft.shape == problem.law.draft_shape(problem.num_tokens)
                np.testing.assert_array_equal(problem.draft, wanted.draft)
                np.testing.assert_array_equal(problem.target, wanted.target)

    def test_different_drafters_differ(self) -> None:
        drafts = one_per_drafter([0.5, 0.3, 0.2], otm.Product(2))
        np.testing.assert_array_equal(drafts, [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]])
        np.testing.assert_array_equal(one_per_drafter([0.5, 0.3, 0.2], otm.IID(2)), [0.5, 0.3, 0.2])

    def test_which_laws_have_one_drafter(self) -> None:
        assert set(otm.drafts.LAWS) - set(otm.drafts.SINGLE_DRAFTER_LAWS) == {otm.Product}
        for make in otm.drafts.LAWS:
            assert _outside(make)(3).one_drafter == (make is not otm.Product)


def _standard(law: otm.Law) -> Iterator[otm.Problem]:
    return (problem for _, problem in standard_problems(law))


# --- every law ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", instances.law_params())
def test_inclusion_is_what_the_enumeration_says(law: otm.Law) -> None:
    for name, problem in instances.named_problems(law):
        table = enumerate_drafts(law, problem.draft)
        drafted = table.mass @ members(table.tokens, problem.num_tokens)
        np.testing.assert_allclose(
            law.inclusion(problem.draft), drafted, atol=rounding(problem.num_tokens, law.k), err_msg=name
        )
        for x in range(problem.num_tokens):
            T = np.arange(problem.num_tokens) != x
            assert law.containment(problem.draft, T) == pytest.approx(1 - drafted[x], abs=rounding(problem.num_tokens, law.k))


@pytest.mark.parametrize("law", instances.law_params((2, 3)))
def test_values_on_every_kind_of_array(law: otm.Law, backend: object) -> None:
    rng = np.random.default_rng(4)
    rows, targets = otm.examples.dirichlet(6, rng=rng, rows=3), otm.examples.dirichlet(6, rng=rng, rows=4)
    plain = instances.make_problem(law, rows, targets[0])
    drafts = np.broadcast_to(plain.draft, (4, *plain.draft.shape))
    wanted = otm.optimal_acceptance(otm.Problem(draft=drafts, target=targets, law=law))
    problem = otm.Problem(draft=backend.array(drafts), target=backend.array(targets), law=law)
    values = otm.optimal_acceptance(problem)
    assert backend.is_own(values)
    np.testing.assert_allclose(backend.numpy(values), wanted, atol=backend.tolerance)
    included = law.inclusion(problem.draft)
    assert backend.is_own(included)
    np.testing.assert_allclose(backend.numpy(included), law.inclusion(drafts), atol=backend.tolerance)
    naive = otm.acceptance(otm.Naive(), problem)
    assert backend.is_own(naive)


def test_laws_are_hashable_scalars() -> None:
    made = {cls(2) for cls in otm.drafts.LAWS}
    assert len(made) == len(otm.drafts.LAWS)
    for law in made:
        assert law.with_k(3) == type(law)(3)
        for bad in (0, -1, 2.0, True, "2"):
            with pytest.raises(otm.errors.InvalidParameter, match="k must be an integer"):
                type(law)(bad)


def test_order_of_the_laws() -> None:
    """b without replacement ≤ b of i.i.d. drafts, so its optimum is at least as large; unit roundoff is all the slack there is."""
    rng = np.random.default_rng(6)
    for _ in range(50):
        p, q = otm.examples.dirichlet(8, rng=rng, concentration=0.4), otm.examples.dirichlet(8, rng=rng, concentration=0.4)
        for k in (1, 2, 4):
            problem = otm.Problem(draft=p, target=q, law=otm.IID(k))
            iid = otm.optimal_acceptance(problem)
            distinct = otm.optimal_acceptance(problem.with_law(otm.WithoutReplacement(k)))
            assert distinct >= iid - 64 * UNIT_ROUNDOFF
