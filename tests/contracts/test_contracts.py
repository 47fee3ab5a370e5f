"""What every law and every verifier must satisfy, generated from the registries: a new file is
tested without editing this one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.drafts.base import PAD, collapse, enumerate_drafts, members
from otm.verifiers.base import check_drafts, enumerated_acceptance
from tests import exact, instances, strategies
from tests.contracts.accuracy import accuracy, value_accuracy
from tests.tolerance import CERTIFIED_GAP, COLLECTED, rounding


def live_drafts(problem: otm.Problem, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The draft sequences whose mass exceeds the floor, and their masses."""
    table = enumerate_drafts(problem.law, problem.draft)
    live = table.mass > floor
    return table.tokens[live], table.mass[live]


def conditioning_floor(verifier: otm.Verifier, problem: otm.Problem) -> float:
    """Where shared randomness is integrated numerically the joint law is accurate in absolute terms
    only.

    Given drafts of smaller mass than that, no conditional law can be asked of it.
    """
    return COLLECTED if isinstance(otm.prepare(verifier, problem), otm.verifiers.Shared) else 0.0


def verbs_of_one_row(verifier: otm.Verifier, problem: otm.Problem) -> list[Callable[[], object]]:
    """Everything that runs a verifier on one pair of distributions, ready to be called."""
    rng = np.random.default_rng(0)
    return [
        lambda: otm.prepare(verifier, problem),
        lambda: otm.coupling(verifier, problem),
        lambda: otm.kernel(verifier, problem, [0] * problem.num_drafts),
        lambda: otm.sample(verifier, problem, size=1, rng=rng),
        lambda: otm.estimate(verifier, problem, samples=1, rng=rng),
    ]


@functools.cache
def coupling_of(verifier: otm.Verifier, law: otm.Law, name: str) -> otm.results.Coupling:
    """The coupling on a named instance, computed once: for races it is a quadrature."""
    problem = instances.named_problem(name, law)
    assert problem is not None
    return otm.coupling(verifier, problem)


def by_sequence(tokens: np.ndarray, values: np.ndarray) -> dict[tuple[int, ...], float]:
    return dict(zip(map(tuple, tokens.tolist()), values.tolist(), strict=True))


@functools.cache
@st.composite
def problems_for(draw: st.DrawFn, law: otm.Law) -> otm.Problem:
    """A problem on at most four tokens under this law, with every oddity of tests/strategies.py."""
    least = 1 if instances.fits(law, 1) else law.size
    first, target = draw(strategies.pairs(min_tokens=least, max_tokens=4))
    rows = [first] + [draw(strategies.distributions(len(first))) for _ in range(int(law.size) - 1)]
    return instances.make_problem(law, rows, target)


# --- laws
# --------------------------------------------------------------------------------------------------


def least_cut(problem: otm.Problem) -> float:
    """The optimum from the definition: the least of all cuts, in rational arithmetic."""
    table = problem.law.enumerate(exact_draft(problem))
    target = exact.exact(problem.target)
    return float(exact.optimum_from_table(table.tokens.tolist(), list(table.mass), target))


@pytest.mark.parametrize("law", instances.law_params())
class TestLaws:
    def test_drafts_are_enumerated_in_floats_and_exactly_and_drawn(self, law: otm.Law) -> None:
        rng, least = np.random.default_rng(2), []
        for name, problem in instances.named_problems(law):
            slack = rounding(problem.num_tokens, law.size)
            table = enumerate_drafts(law, problem.draft)
            listed = by_sequence(table.tokens, table.mass)
            assert len(listed) == len(table.mass) <= law.num_sequences(problem.num_tokens), name
            assert table.tokens.shape == (len(table.mass), problem.num_drafts), name
            assert (table.mass >= 0).all(), name
            assert table.mass.sum() == pytest.approx(1, abs=slack), name
            assert law.least_token <= table.tokens.min(), name
            assert table.tokens.max() < problem.num_tokens, name
            least.append(table.tokens.min())
            rational = law.enumerate(exact_draft(problem))
            assert sum(rational.mass, Fraction(0)) == 1, name
            exactly = by_sequence(rational.tokens, rational.mass)
            for row, mass in listed.items():
                assert abs(float(exactly.get(row, 0)) - mass) <= slack, (name, row)
            uniforms = rng.random((200, law.num_uniforms(problem.num_tokens)))
            drafts = law.draw(problem.draft, uniforms)
            assert np.array_equal(drafts, law.draw(problem.draft, uniforms.copy())), name
            assert drafts.shape == (200, problem.num_drafts), name
            assert all(listed[tuple(row)] > 0 for row in drafts.tolist()), name
        assert law.least_token == min(least)
        assert law.least_token in (PAD, 0)

    def test_no_draft_may_be_told_only_where_there_may_be_none(self, law: otm.Law) -> None:
        problem = instances.named_problem("plain", law)
        assert problem is not None
        row = np.array([[0] * (problem.num_drafts - 1) + [PAD]])
        if law.least_token == PAD:
            told = check_drafts(row, problem)
            assert told.shape == row.shape
            assert set(told.flat) == set(row.flat)
            assert told[0, -1] == PAD
        else:
            with pytest.raises(otm.errors.InvalidParameter, match=r"must lie in \[0, 4\); got -1"):
                check_drafts(row, problem)
        with pytest.raises(otm.errors.InvalidParameter, match=r"got -2 to"):
            check_drafts(row - 1, problem)

    def test_shapes_and_numbers_of_drafts(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            shape = law.draft_shape(problem.num_tokens)
            assert shape in ((problem.num_tokens,), (law.size, problem.num_tokens)), name
            assert (problem.draft.shape, problem.batch_shape) == (shape, ()), name
            rows = np.broadcast_to(problem.draft, (2, 3, *shape))
            batch = otm.Problem(draft=rows, target=problem.target, law=law)
            assert batch.batch_shape == (2, 3), name
        other = law.of_size(law.size + 1)
        assert (type(other), other.size) == (type(law), law.size + 1)
        assert other.of_size(law.size) == law
        assert hash(other.of_size(law.size)) == hash(law)

    def test_containment_is_the_mass_of_the_sequences_inside(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            tokens, mass = live_drafts(problem)
            drafted = members(tokens, problem.num_tokens)
            for bits in itertools.product([False, True], repeat=problem.num_tokens):
                T = np.array(bits)
                inside = mass[~(drafted & ~T).any(axis=1)].sum()
                assert abs(law.containment(problem.draft, T) - inside) <= COLLECTED, (name, bits)

    def test_the_optimum_is_the_least_cut_and_that_of_the_programs(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            best = otm.optimal_acceptance(problem)
            assert best == pytest.approx(least_cut(problem), abs=1e-12), name
            assert cut_value(problem) == pytest.approx(best, abs=1e-12), name
            for method in ("sets", "sequences"):
                solved = otm.optimum(problem, method=method)
                assert solved.gap <= CERTIFIED_GAP, (name, method)
                assert solved.value == pytest.approx(best, abs=CERTIFIED_GAP), (name, method)
            plan, table = otm.optimum(problem).coupling, enumerate_drafts(law, problem.draft)
            assert (plan.joint.data >= 0).all(), name
            np.testing.assert_allclose(plan.draft_marginal, table.mass, atol=1e-12, err_msg=name)
            np.testing.assert_allclose(
                plan.output_marginal, problem.target, atol=1e-12, err_msg=name
            )
            assert plan.acceptance == pytest.approx(best, abs=CERTIFIED_GAP), name
            assert otm.acceptance(otm.TransportPlan(), problem) == pytest.approx(
                best, abs=CERTIFIED_GAP
            ), name

    def test_the_optimum_on_every_oddity(self, law: otm.Law) -> None:
        @settings(max_examples=25)
        @given(data=st.data())
        def check(data: st.DataObject) -> None:
            problem = data.draw(problems_for(law))
            best = least_cut(problem)
            assert abs(otm.optimal_acceptance(problem) - best) <= 1e-12
            assert abs(cut_value(problem) - best) <= 1e-12

        check()


def cut_value(problem: otm.Problem) -> float:
    """What the cut that the library returns is worth."""
    T = otm.optimal_cut(problem)
    assert (T.shape, T.dtype) == ((problem.num_tokens,), bool)
    return float(1 + problem.target[T].sum() - problem.law.containment(problem.draft, T))


def exact_draft(problem: otm.Problem) -> np.ndarray:
    """The draft as Fractions with an exact unit sum, in the shape that the law takes."""
    rows = problem.draft.reshape(-1, problem.num_tokens)
    return np.asarray([exact.exact(row) for row in rows], dtype=object).reshape(problem.draft.shape)


@pytest.mark.parametrize("make", [pytest.param(cls, id=cls.__name__) for cls in otm.drafts.LAWS])
class TestLawsOverK:
    def test_the_optimum_does_not_decrease_with_the_number_of_drafts(
        self, make: type[otm.Law]
    ) -> None:
        for name in instances.NAMED:
            problems = [instances.named_problem(name, make(k)) for k in (1, 2, 3, 4)]
            values = [
                otm.optimal_acceptance(problem) for problem in problems if problem is not None
            ]
            assert (np.diff(values) >= -1e-13).all(), (name, values)

    def test_the_optimum_does_not_depend_on_how_tokens_are_numbered(
        self, make: type[otm.Law]
    ) -> None:
        rng = np.random.default_rng(5)
        for k in (1, 2, 3):
            # tie-free almost surely
            rows, target = (
                otm.examples.dirichlet(6, rng=rng, rows=3),
                otm.examples.dirichlet(6, rng=rng),
            )
            order = rng.permutation(6)
            straight = instances.make_problem(make(k), rows, target)
            permuted = instances.make_problem(make(k), rows[:, order], target[order])
            assert otm.optimal_acceptance(straight) == pytest.approx(
                otm.optimal_acceptance(permuted), abs=1e-12
            )


# --- pairs of a verifier and a law
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verifier", "law"), instances.supported_pairs())
class TestPairs:
    def test_the_coupling_and_what_is_said_of_it(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        for name, problem in instances.named_problems(law):
            plan, slack = coupling_of(verifier, law, name), value_accuracy(verifier, problem)
            tokens, mass = live_drafts(problem)
            drawn, wanted = by_sequence(plan.drafts, plan.draft_marginal), by_sequence(tokens, mass)
            error = max(
                abs(drawn.get(row, 0) - wanted.get(row, 0)) for row in drawn.keys() | wanted.keys()
            )
            assert error <= accuracy(verifier, problem), name
            member, by_rule = (
                otm.acceptance(verifier, problem, by=by) for by in ("membership", "rule")
            )
            assert member == pytest.approx(plan.acceptance, abs=slack), name
            rule = otm.prepare(verifier, problem)
            if isinstance(rule, otm.verifiers.Conditional):
                enumerated = enumerated_acceptance(rule, "rule")
                assert by_rule == pytest.approx(enumerated, abs=slack), name
            assert -1e-15 <= by_rule <= member + slack, name
            # A verifier with output law π gains at most TV(π, q) (docs/theory.md).
            off = np.abs(plan.output_marginal - problem.target)
            assert member <= min(1, otm.optimal_acceptance(problem) + off.sum() / 2) + slack, name
            assert not verifier.lossless or off.max() <= accuracy(verifier, problem), name

    def test_the_kernel_is_the_conditional_law_of_the_coupling(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        for name, problem in instances.named_problems(law):
            tokens, mass = live_drafts(problem, conditioning_floor(verifier, problem))
            rows = otm.kernel(verifier, problem, tokens)
            assert rows.shape == (len(tokens), problem.num_tokens), name
            assert (rows >= 0).all(), name
            slack = rounding(problem.num_tokens, law.size)
            np.testing.assert_allclose(rows.sum(axis=1), 1, atol=slack, err_msg=name)
            one = otm.kernel(verifier, problem, tokens[-1])
            np.testing.assert_array_equal(one, rows[-1], err_msg=name)
            plan = coupling_of(verifier, law, name)
            index = {tuple(row): i for i, row in enumerate(plan.drafts.tolist())}
            joint = plan.joint.toarray()[[index[tuple(row)] for row in tokens.tolist()]]
            np.testing.assert_allclose(
                mass[:, None] * rows, joint, atol=accuracy(verifier, problem), err_msg=name
            )
        problem = instances.named_problem("tiny", law)
        assert problem is not None
        for drafts in live_drafts(problem)[0]:
            try:
                row = otm.kernel(verifier, problem, drafts)
            except otm.errors.InvalidParameter as error:
                assert "positive probability" in str(error)
                continue
            assert row.sum() == pytest.approx(1, abs=rounding(problem.num_tokens, law.size)), drafts
            assert (row >= 0).all(), drafts

    def test_acceptance_curve_stacks_acceptances(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        counts = [k for k in (1, 2, 3) if verifier.supports(law.of_size(k))]
        for by in ("membership", "rule"):
            problem = instances.named_problem("plain", law)
            assert problem is not None
            try:
                curve = otm.acceptance_curve(verifier, problem, k=counts, by=by)
            except otm.errors.ShapeMismatch:
                # A law of different drafters carries its k in the shape of the draft: there is no
                # curve to ask for.
                assert not law.one_drafter
                continue
            rows = [
                otm.acceptance(verifier, problem.with_law(law.of_size(k)), by=by)  # type: ignore[arg-type]
                for k in counts
            ]
            np.testing.assert_allclose(
                np.asarray(curve), rows, atol=value_accuracy(verifier, problem)
            )

    def test_acceptance_does_not_depend_on_how_tokens_are_numbered(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        if not verifier.equivariant:
            pytest.skip("numbers are places on a line; a table of neighbours has a test of its own")
        rng = np.random.default_rng(11)
        for num_tokens in (3, 4):
            # tie-free a.s.
            rows, target = (
                otm.examples.dirichlet(num_tokens, rng=rng, rows=3),
                otm.examples.dirichlet(num_tokens, rng=rng),
            )
            order = rng.permutation(num_tokens)  # new token i is the old token order[i]
            straight = instances.make_problem(law, rows, target)
            permuted = instances.make_problem(law, rows[:, order], target[order])
            tolerance = value_accuracy(verifier, straight)
            for by in ("membership", "rule"):
                left, right = (
                    otm.acceptance(verifier, straight, by=by),
                    otm.acceptance(verifier, permuted, by=by),
                )
                assert left == pytest.approx(right, abs=tolerance)
            if verifier.is_plan:  # one of many of the same value: rows need not be equivariant
                continue
            new, _ = live_drafts(permuted)
            old = np.where(new == PAD, PAD, order[new])
            np.testing.assert_allclose(
                otm.kernel(verifier, permuted, new),
                otm.kernel(verifier, straight, old)[:, order],
                atol=10 * tolerance,
            )

    def test_a_rule_is_a_pure_function_of_uniforms(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        problem = instances.named_problem("plain", law)
        assert problem is not None
        rule = otm.prepare(verifier, problem)
        rng = np.random.default_rng(3)
        first, second = (
            rng.random((300, rule.num_draft_uniforms)),
            rng.random((300, rule.num_uniforms)),
        )
        drafts, state = rule.draw(first)
        again, state_again = rule.draw(first.copy())
        assert np.array_equal(drafts, again)
        output, accepted = rule.verify(drafts, second, state)
        output_again, accepted_again = rule.verify(again, second.copy(), state_again)
        assert np.array_equal(output, output_again)
        assert np.array_equal(accepted, accepted_again)
        assert output.shape == accepted.shape == (300,)
        assert accepted.dtype == bool
        # What the rule accepts is a draft.
        assert (output[accepted, None] == drafts[accepted]).any(axis=1).all()
        # One row at a time is the same as all at once.
        for i in range(5):
            state_here = None if state is None else state[i : i + 1]
            alone = rule.verify(drafts[i : i + 1], second[i : i + 1], state_here)
            assert alone[0][0] == output[i]
            assert alone[1][0] == accepted[i]


@pytest.mark.parametrize(
    ("verifier", "law"),
    [param for param in instances.supported_pairs() if param.values[0].lossless],
)
def test_lossless_verifiers_on_every_oddity(verifier: otm.Verifier, law: otm.Law) -> None:
    """The contracts above in one pass, on instances that Hypothesis makes up."""

    @settings(max_examples=15)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        problem = data.draw(problems_for(law))
        plan = otm.coupling(verifier, problem)
        tolerance = value_accuracy(verifier, problem)
        off = np.abs(plan.output_marginal - problem.target).max()
        assert off <= accuracy(verifier, problem)
        value = otm.acceptance(verifier, problem)
        assert value == pytest.approx(plan.acceptance, abs=tolerance)
        assert otm.acceptance(verifier, problem, by="rule") <= value + tolerance
        assert value <= otm.optimal_acceptance(problem) + tolerance

    check()


@pytest.mark.parametrize(
    "verifier", [pytest.param(v, id=instances.label(v)) for v in instances.verifiers()]
)
class TestRefusals:
    def test_verifiers_are_hashable_configuration(self, verifier: otm.Verifier) -> None:
        assert isinstance(verifier, otm.Verifier)
        assert len({verifier, verifier}) == 1
        assert isinstance(verifier.lossless, bool)
        assert any(verifier.supports(law) for law in instances.laws())

    def test_unsupported_laws_are_refused_and_named(self, verifier: otm.Verifier) -> None:
        for law in instances.laws():
            problem = instances.named_problem("plain", law)
            if problem is None or verifier.supports(law):
                continue
            for call in [
                *verbs_of_one_row(verifier, problem),
                lambda problem=problem: otm.acceptance(verifier, problem),
                lambda problem=problem: otm.acceptance_curve(
                    verifier, problem, k=[problem.law.size]
                ),
            ]:
                with pytest.raises(otm.errors.Unsupported) as caught:
                    call()
                assert repr(verifier) in str(caught.value)
                assert repr(law) in str(caught.value)
                assert "Choose" in str(caught.value)


def test_collapse_merges_exactly_the_sequences_with_one_set() -> None:
    for law in instances.laws():
        for name, problem in instances.named_problems(law):
            table = enumerate_drafts(law, problem.draft)
            sets = collapse(table)
            asked = [frozenset(x for x in row if x != PAD) for row in table.tokens.tolist()]
            given_ = [frozenset(x for x in row if x != PAD) for row in sets.tokens.tolist()]
            assert len(set(given_)) == len(given_), name
            assert [given_[i] for i in sets.of_sequence] == asked, name
            np.testing.assert_allclose(
                np.bincount(sets.of_sequence, weights=table.mass), sets.mass, atol=1e-15
            )
