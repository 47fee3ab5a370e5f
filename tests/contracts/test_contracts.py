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
from otm.drafts.base import PAD, collapse, enumerate_drafts
from otm.verifiers.base import check_drafts, enumerated_acceptance, members
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
        lambda: otm.kernel(verifier, problem, [0] * problem.law.k),
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


@st.composite
def problems_for(draw: st.DrawFn, law: otm.Law) -> otm.Problem:
    """A problem on at most four tokens under this law, with every oddity of tests/strategies.py."""
    least = 1 if instances.fits(law, 1) else law.k
    first, target = draw(strategies.pairs(min_tokens=least, max_tokens=4))
    rows = [first] + [draw(strategies.distributions(len(first))) for _ in range(law.k - 1)]
    return instances.make_problem(law, rows, target)


# --- laws
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", instances.law_params())
class TestLaws:
    def test_enumeration_is_a_distribution_over_distinct_sequences(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            table = enumerate_drafts(law, problem.draft)
            assert (table.mass >= 0).all(), name
            assert table.mass.sum() == pytest.approx(1, abs=rounding(problem.num_tokens, law.k)), (
                name
            )
            assert table.tokens.shape == (len(table.mass), law.k), name
            assert len(np.unique(table.tokens, axis=0)) == len(table.tokens), name
            assert table.tokens.min() >= law.least_token, name
            assert table.tokens.max() < problem.num_tokens, name
            assert len(table.mass) <= law.num_sequences(problem.num_tokens), name

    def test_least_token_is_the_least_that_is_drafted(self, law: otm.Law) -> None:
        tables = [
            enumerate_drafts(law, problem.draft) for _, problem in instances.named_problems(law)
        ]
        assert law.least_token in (PAD, 0)
        assert law.least_token == min(table.tokens.min() for table in tables)

    def test_no_draft_may_be_told_only_where_there_may_be_none(self, law: otm.Law) -> None:
        problem = instances.named_problem("plain", law)
        assert problem is not None
        row = np.array([[0] * (law.k - 1) + [PAD]])
        if law.least_token == PAD:
            assert np.array_equal(check_drafts(row, problem), row)
        else:
            with pytest.raises(otm.errors.InvalidParameter, match=r"must lie in \[0, 4\); got -1"):
                check_drafts(row, problem)
        with pytest.raises(otm.errors.InvalidParameter, match=r"got -2 to"):
            check_drafts(row - 1, problem)

    def test_draft_shape_is_that_of_one_pair(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            shape = law.draft_shape(problem.num_tokens)
            assert shape in ((problem.num_tokens,), (law.k, problem.num_tokens)), name
            assert problem.draft.shape == shape, name
            assert problem.batch_shape == (), name
            rows = np.broadcast_to(problem.draft, (2, 3, *shape))
            assert otm.Problem(draft=rows, target=problem.target, law=law).batch_shape == (2, 3), (
                name
            )

    def test_containment_is_the_mass_of_the_sequences_inside(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            tokens, mass = live_drafts(problem)
            drafted = members(tokens, problem.num_tokens)
            for bits in itertools.product([False, True], repeat=problem.num_tokens):
                T = np.array(bits)
                inside = mass[~(drafted & ~T).any(axis=1)].sum()
                assert abs(law.containment(problem.draft, T) - inside) <= COLLECTED, (name, bits)

    def test_rational_enumeration_has_mass_exactly_one_and_agrees(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            rational = exact_draft(problem)
            table = law.enumerate(rational)
            assert sum(table.mass, Fraction(0)) == 1, name
            here = by_sequence(table.tokens, table.mass)
            floats = enumerate_drafts(law, problem.draft)
            for row, mass in by_sequence(floats.tokens, floats.mass).items():
                assert abs(float(here.get(row, 0)) - mass) <= rounding(problem.num_tokens, law.k), (
                    name,
                    row,
                )

    def test_the_optimum_is_the_smallest_of_all_cuts(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            table = law.enumerate(exact_draft(problem))
            best = exact.optimum_from_table(
                table.tokens.tolist(), list(table.mass), exact.exact(problem.target)
            )
            assert otm.optimal_acceptance(problem) == pytest.approx(float(best), abs=1e-12), name

    def test_the_optimum_on_every_oddity(self, law: otm.Law) -> None:
        @settings(max_examples=25)
        @given(data=st.data())
        def check(data: st.DataObject) -> None:
            problem = data.draw(problems_for(law))
            table = law.enumerate(exact_draft(problem))
            best = exact.optimum_from_table(
                table.tokens.tolist(), list(table.mass), exact.exact(problem.target)
            )
            assert abs(otm.optimal_acceptance(problem) - float(best)) <= 1e-12
            T = otm.optimal_cut(problem)
            assert (
                abs(1 + problem.target[T].sum() - law.containment(problem.draft, T) - float(best))
                <= 1e-12
            )

        check()

    def test_the_worst_set_attains_the_optimum(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            T = otm.optimal_cut(problem)
            assert T.shape == (problem.num_tokens,)
            assert T.dtype == bool
            value = 1 + problem.target[T].sum() - law.containment(problem.draft, T)
            assert value == pytest.approx(otm.optimal_acceptance(problem), abs=1e-12), name

    def test_the_linear_programs_agree_with_the_cut(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            for method in ("sets", "sequences"):
                solved = otm.optimum(problem, method=method)
                assert solved.gap <= CERTIFIED_GAP, (name, method)
                assert solved.value == pytest.approx(
                    otm.optimal_acceptance(problem), abs=CERTIFIED_GAP
                ), (name, method)

    def test_the_optimal_coupling_has_both_marginals(self, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            table = enumerate_drafts(law, problem.draft)
            plan = otm.optimum(problem).coupling
            assert (plan.joint.data >= 0).all(), name
            np.testing.assert_allclose(plan.draft_marginal, table.mass, atol=1e-12, err_msg=name)
            np.testing.assert_allclose(
                plan.output_marginal, problem.target, atol=1e-12, err_msg=name
            )
            assert plan.acceptance == pytest.approx(
                otm.optimal_acceptance(problem), abs=CERTIFIED_GAP
            ), name

    def test_with_k_changes_nothing_else(self, law: otm.Law) -> None:
        other = law.with_k(law.k + 1)
        assert type(other) is type(law)
        assert other.k == law.k + 1
        assert other.with_k(law.k) == law
        assert hash(other.with_k(law.k)) == hash(law)

    def test_drawing_is_a_pure_function_of_uniforms_inside_the_support(self, law: otm.Law) -> None:
        rng = np.random.default_rng(2)
        for name, problem in instances.named_problems(law):
            uniforms = rng.random((200, law.num_uniforms(problem.num_tokens)))
            drafts = law.draw(problem.draft, uniforms)
            assert np.array_equal(drafts, law.draw(problem.draft, uniforms.copy())), name
            assert drafts.shape == (200, law.k), name
            possible = {tuple(row) for row in live_drafts(problem)[0].tolist()}
            assert {tuple(row) for row in drafts.tolist()} <= possible, name


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
    def test_every_row_of_the_kernel_is_a_pmf(self, verifier: otm.Verifier, law: otm.Law) -> None:
        for name, problem in instances.named_problems(law):
            tokens, _ = live_drafts(problem, conditioning_floor(verifier, problem))
            rows = otm.kernel(verifier, problem, tokens)
            assert rows.shape == (len(tokens), problem.num_tokens), name
            assert (rows >= 0).all(), name
            np.testing.assert_allclose(
                rows.sum(axis=1), 1, atol=rounding(problem.num_tokens, law.k), err_msg=name
            )
            one = otm.kernel(verifier, problem, tokens[-1])
            assert one.shape == (problem.num_tokens,)
            np.testing.assert_array_equal(one, rows[-1], err_msg=name)

    def test_the_kernel_is_a_pmf_or_refused_for_drafts_of_tiny_mass(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        problem = instances.named_problem("tiny", law)
        assert problem is not None
        for drafts in live_drafts(problem)[0]:
            try:
                row = otm.kernel(verifier, problem, drafts)
            except otm.errors.InvalidParameter as error:
                assert "positive probability" in str(error)
                continue
            assert row.sum() == pytest.approx(1, abs=rounding(problem.num_tokens, law.k)), drafts
            assert (row >= 0).all(), drafts

    def test_the_coupling_has_the_law_of_the_drafts(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        for name, problem in instances.named_problems(law):
            plan = coupling_of(verifier, law, name)
            tokens, mass = live_drafts(problem)
            drawn, wanted = by_sequence(plan.drafts, plan.draft_marginal), by_sequence(tokens, mass)
            error = max(
                abs(drawn.get(row, 0) - wanted.get(row, 0)) for row in drawn.keys() | wanted.keys()
            )
            assert error <= accuracy(verifier, problem), name

    def test_the_kernel_is_the_conditional_law_of_the_coupling(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        for name, problem in instances.named_problems(law):
            tokens, mass = live_drafts(problem, conditioning_floor(verifier, problem))
            plan = coupling_of(verifier, law, name)
            index = {tuple(row): i for i, row in enumerate(plan.drafts.tolist())}
            joint = plan.joint.toarray()[[index[tuple(row)] for row in tokens.tolist()]]
            rows = otm.kernel(verifier, problem, tokens)
            np.testing.assert_allclose(
                mass[:, None] * rows, joint, atol=accuracy(verifier, problem), err_msg=name
            )

    def test_acceptance_by_membership_is_that_of_the_coupling(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        for name, problem in instances.named_problems(law):
            value = otm.acceptance(verifier, problem)
            enumerated = coupling_of(verifier, law, name).acceptance
            assert value == pytest.approx(enumerated, abs=value_accuracy(verifier, problem)), name

    def test_acceptance_by_the_rule_is_that_of_the_accepted_part(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        for name, problem in instances.named_problems(law):
            rule = otm.prepare(verifier, problem)
            value = otm.acceptance(verifier, problem, by="rule")
            if isinstance(rule, otm.verifiers.Conditional):
                enumerated = enumerated_acceptance(rule, "rule")
                assert value == pytest.approx(enumerated, abs=value_accuracy(verifier, problem)), (
                    name
                )
            assert (
                -1e-15
                <= value
                <= otm.acceptance(verifier, problem) + value_accuracy(verifier, problem)
            ), name

    def test_acceptance_does_not_exceed_the_optimum(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        # A lossy verifier with output law π gains at most TV(π, q) (docs/theory.md); a lossless one
        # has TV = 0.
        for name, problem in instances.named_problems(law):
            loss = 0.0
            if not verifier.lossless:
                loss = (
                    0.5
                    * np.abs(
                        coupling_of(verifier, law, name).output_marginal - problem.target
                    ).sum()
                )
            limit = min(1.0, otm.optimal_acceptance(problem) + loss) + value_accuracy(
                verifier, problem
            )
            assert otm.acceptance(verifier, problem) <= limit, name

    def test_acceptance_curve_stacks_acceptances(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        counts = [k for k in (1, 2, 3) if verifier.supports(law.with_k(k))]
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
                otm.acceptance(verifier, problem.with_law(law.with_k(k)), by=by)  # type: ignore[arg-type]
                for k in counts
            ]
            np.testing.assert_allclose(
                np.asarray(curve), rows, atol=value_accuracy(verifier, problem)
            )

    def test_acceptance_does_not_depend_on_how_tokens_are_numbered(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
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
    instances.supported_pairs(
        needing=lambda verifier: verifier.lossless,
        because="lossy by design, its output law is not the target",
    ),
)
class TestLossless:
    def test_the_output_has_the_law_of_the_target(
        self, verifier: otm.Verifier, law: otm.Law
    ) -> None:
        for name, problem in instances.named_problems(law):
            loss = np.abs(coupling_of(verifier, law, name).output_marginal - problem.target).max()
            assert loss <= accuracy(verifier, problem), name

    def test_random_problems_with_every_oddity(self, verifier: otm.Verifier, law: otm.Law) -> None:
        """The contracts above in one pass, on instances that Hypothesis makes up."""

        @settings(max_examples=15)
        @given(data=st.data())
        def check(data: st.DataObject) -> None:
            problem = data.draw(problems_for(law))
            plan = otm.coupling(verifier, problem)
            tolerance = value_accuracy(verifier, problem)
            assert np.abs(plan.output_marginal - problem.target).max() <= accuracy(
                verifier, problem
            )
            value = otm.acceptance(verifier, problem)
            assert value == pytest.approx(plan.acceptance, abs=tolerance)
            assert otm.acceptance(verifier, problem, by="rule") <= value + tolerance
            assert value <= otm.optimal_acceptance(problem) + tolerance

        check()


@pytest.mark.parametrize("law", instances.law_params())
def test_the_plan_as_a_verifier_attains_the_optimum(law: otm.Law) -> None:
    for name, problem in instances.named_problems(law):
        plan = otm.coupling(otm.TransportPlan(), problem)
        assert plan.acceptance == pytest.approx(
            otm.optimal_acceptance(problem), abs=CERTIFIED_GAP
        ), name
        assert otm.acceptance(otm.TransportPlan(), problem) == pytest.approx(
            plan.acceptance, abs=CERTIFIED_GAP
        ), name


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
                lambda problem=problem: otm.acceptance_curve(verifier, problem, k=[problem.law.k]),
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
