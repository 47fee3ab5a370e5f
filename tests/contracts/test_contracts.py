"""What every law and every verifier must satisfy, generated from the registries: a new file is
tested without editing this one.
"""

import functools
import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm.drafts.base import PAD, collapse, enumerate_drafts, members
from otm.verifiers.base import enumerated_acceptance
from tests import exact, instances, strategies
from tests.contracts.accuracy import accuracy, value_accuracy
from tests.tolerance import CERTIFIED_GAP, COLLECTED, rounding

Named = Iterator[tuple[str, otm.Problem]]


def named_problems(laws):
    """Every named instance under each of the laws, with a name that says both."""
    for law in laws:
        for name, problem in instances.named_problems(law):
            yield f"{name}, {law}", problem


def plain(law):
    return instances.make_problem(law, *instances.ROWS["plain"])


def live_drafts(problem, floor=0.0):
    """The draft sequences whose mass exceeds the floor, and their masses."""
    table = enumerate_drafts(problem.law, problem.draft)
    live = table.mass > floor
    return table.tokens[live], table.mass[live]


@functools.cache
def coupling_of(verifier, law, name):
    """The coupling on a named instance, computed once: for races it is a quadrature."""
    return otm.coupling(verifier, dict(instances.named_problems(law))[name])


def by_sequence(tokens, values):
    return dict(zip(map(tuple, tokens.tolist()), values.tolist(), strict=True))


@functools.cache
@st.composite
def problems_for(draw, laws):
    """A problem on at most four tokens under one of the laws, with every oddity of
    tests/strategies.py.
    """
    law = draw(st.sampled_from(laws))
    least = 1 if instances.fits(law, 1) else law.size
    first, target = draw(strategies.pairs(min_tokens=least, max_tokens=4))
    rows = [first] + [draw(strategies.distributions(len(first))) for _ in range(int(law.size) - 1)]
    return instances.make_problem(law, rows, target)


def renumbered(law, num_tokens):
    """A problem without ties, the same with other numbers for its tokens, and their old numbers."""
    rng = np.random.default_rng(11)
    rows = otm.examples.dirichlet(num_tokens, rng=rng, rows=3)
    target, order = otm.examples.dirichlet(num_tokens, rng=rng), rng.permutation(num_tokens)
    permuted = instances.make_problem(law, rows[:, order], target[order])
    return instances.make_problem(law, rows, target), permuted, order


# --- laws
# --------------------------------------------------------------------------------------------------


def exact_draft(problem):
    """The draft as Fractions with an exact unit sum, in the shape that the law takes."""
    rows = problem.draft.reshape(-1, problem.num_tokens)
    return np.asarray([exact.exact(row) for row in rows], dtype=object).reshape(problem.draft.shape)


def check_optimum(problem, name=""):
    """Compare the optimum, and what its cut is worth, with the least of all cuts, from the
    definition in rational arithmetic.
    """
    table, target = problem.law.enumerate(exact_draft(problem)), exact.exact(problem.target)
    best = float(exact.optimum_from_table(table.tokens.tolist(), list(table.mass), target))
    assert abs(otm.optimal_acceptance(problem) - best) <= 1e-12, name
    T = otm.optimal_cut(problem)
    assert (T.shape, T.dtype) == ((problem.num_tokens,), bool), name
    worth = 1 + problem.target[T].sum() - problem.law.containment(problem.draft, T)
    assert abs(float(worth) - best) <= 1e-12, name
    return best


@pytest.mark.parametrize(
    "laws",
    [pytest.param([*map(cls.of_size, (1, 2, 3))], id=cls.__name__) for cls in otm.drafts.LAWS],
)
class TestLaws:
    def test_drafts_are_enumerated_in_floats_and_exactly_and_drawn(self, laws):
        rng, least = np.random.default_rng(2), {}
        for name, problem in named_problems(laws):
            law, slack = problem.law, rounding(problem.num_tokens, problem.law.size)
            table = enumerate_drafts(law, problem.draft)
            listed = by_sequence(table.tokens, table.mass)
            assert len(listed) == len(table.mass) <= law.num_sequences(problem.num_tokens), name
            assert table.tokens.shape == (len(table.mass), problem.num_drafts), name
            assert (table.mass >= 0).all(), name
            assert table.mass.sum() == pytest.approx(1, abs=slack), name
            assert law.least_token <= table.tokens.min(), name
            assert table.tokens.max() < problem.num_tokens, name
            least[law] = min(least.get(law, 0), table.tokens.min())
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
        for law in laws:
            assert law.least_token == least[law] and law.least_token in (PAD, 0), law

    def test_containment_is_the_mass_of_the_sequences_inside(self, laws):
        for name, problem in named_problems(laws):
            tokens, mass = live_drafts(problem)
            drafted = members(tokens, problem.num_tokens)
            for bits in itertools.product([False, True], repeat=problem.num_tokens):
                T = np.array(bits)
                inside = mass[~(drafted & ~T).any(axis=1)].sum()
                found = problem.law.containment(problem.draft, T)
                assert abs(found - inside) <= COLLECTED, (name, bits)

    def test_the_optimum_is_the_least_cut_and_that_of_the_programs(self, laws):
        for name, problem in named_problems(laws):
            best = pytest.approx(check_optimum(problem, name), abs=CERTIFIED_GAP)
            for method in ("sets", "sequences"):
                solved = otm.optimum(problem, method=method)
                assert solved.gap <= CERTIFIED_GAP, (name, method)
                assert solved.value == best, (name, method)
            plan, table = (
                otm.optimum(problem).coupling,
                enumerate_drafts(problem.law, problem.draft),
            )
            assert (plan.joint.data >= 0).all(), name
            assert plan.draft_marginal == pytest.approx(table.mass, abs=1e-12), name
            assert plan.output_marginal == pytest.approx(problem.target, abs=1e-12), name
            assert plan.acceptance == best, name
            assert otm.acceptance(otm.TransportPlan(), problem) == best, name

    def test_the_optimum_on_every_oddity(self, laws):
        @settings(max_examples=50)
        @given(problem=problems_for(tuple(laws)))
        def check(problem):
            check_optimum(problem)

        check()


# --- verifiers under their laws
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verifier", "law"), instances.supported_pairs())
class TestPairs:
    def test_the_coupling_and_what_is_said_of_it(self, verifier, law):
        for name, problem in instances.named_problems(law):
            plan = coupling_of(verifier, problem.law, name)
            slack, tokens_and_mass = value_accuracy(verifier, problem), live_drafts(problem)
            drawn = by_sequence(plan.drafts, plan.draft_marginal)
            wanted = by_sequence(*tokens_and_mass)
            for row in drawn.keys() | wanted.keys():
                error = abs(drawn.get(row, 0) - wanted.get(row, 0))
                assert error <= accuracy(verifier, problem), (name, row)
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

    def test_the_kernel_is_the_conditional_law_of_the_coupling(self, verifier, law):
        for name, problem in instances.named_problems(law):
            # Where shared randomness is integrated numerically the joint law is accurate in
            # absolute terms only: given drafts of smaller mass no conditional law can be asked of.
            shared = isinstance(otm.prepare(verifier, problem), otm.verifiers.Shared)
            tokens, mass = live_drafts(problem, COLLECTED if shared else 0.0)
            rows = otm.kernel(verifier, problem, tokens)
            assert rows.shape == (len(tokens), problem.num_tokens), name
            assert (rows >= 0).all(), name
            slack = rounding(problem.num_tokens, problem.law.size)
            assert rows.sum(axis=1) == pytest.approx(1, abs=slack), name
            one = otm.kernel(verifier, problem, tokens[-1])
            np.testing.assert_array_equal(one, rows[-1], err_msg=name)
            plan = coupling_of(verifier, problem.law, name)
            index = {tuple(row): i for i, row in enumerate(plan.drafts.tolist())}
            joint = plan.joint.toarray()[[index[tuple(row)] for row in tokens.tolist()]]
            np.testing.assert_allclose(
                mass[:, None] * rows, joint, atol=accuracy(verifier, problem), err_msg=name
            )
        problem = instances.make_problem(law, *instances.ROWS["tiny"])
        for drafts in live_drafts(problem)[0][::25]:
            try:
                row = otm.kernel(verifier, problem, drafts)
            except otm.errors.InvalidParameter as error:
                assert "positive probability" in str(error)
                continue
            slack = rounding(problem.num_tokens, law.size)
            assert row.sum() == pytest.approx(1, abs=slack) and (row >= 0).all(), drafts

    def test_acceptance_curve_stacks_acceptances(self, verifier, law):
        problem, counts = plain(law), [k for k in (1, 2, 3) if verifier.supports(law.of_size(k))]
        for by in BY:
            if not law.one_drafter:  # carries its k in the shape of the draft
                with pytest.raises(otm.errors.ShapeMismatch):
                    otm.acceptance_curve(verifier, problem, k=[law.size + 1], by=by)
                continue
            curve = otm.acceptance_curve(verifier, problem, k=counts, by=by)
            rows = [
                otm.acceptance(verifier, problem.with_law(law.of_size(k)), by=by) for k in counts
            ]
            assert np.asarray(curve) == pytest.approx(rows, abs=value_accuracy(verifier, problem))

    def test_acceptance_does_not_depend_on_how_tokens_are_numbered(self, verifier, law):
        if not verifier.equivariant:
            pytest.skip("numbers are places on a line; a table of neighbours has a test of its own")
        for num_tokens in (3, 4):
            straight, permuted, order = renumbered(law, num_tokens)
            tolerance = value_accuracy(verifier, straight)
            for by in BY:
                left, right = (otm.acceptance(verifier, one, by=by) for one in (straight, permuted))
                assert left == pytest.approx(right, abs=tolerance), by
            if verifier.is_plan:  # one of many of the same value: rows need not be equivariant
                continue
            new, _ = live_drafts(permuted)
            old = np.where(new == PAD, PAD, order[new])
            np.testing.assert_allclose(
                otm.kernel(verifier, permuted, new),
                otm.kernel(verifier, straight, old)[:, order],
                atol=10 * tolerance,
            )

    def test_a_rule_is_a_pure_function_of_uniforms(self, verifier, law):
        rule, rng = otm.prepare(verifier, plain(law)), np.random.default_rng(3)
        first = rng.random((300, rule.num_draft_uniforms))
        second = rng.random((300, rule.num_uniforms))
        drafts, state = rule.draw(first)
        output, accepted = rule.verify(drafts, second, state)
        again, state_again = rule.draw(first.copy())
        np.testing.assert_array_equal(drafts, again)
        repeated = rule.verify(again, second.copy(), state_again)
        np.testing.assert_array_equal((output, accepted), repeated)
        assert (output.shape, accepted.shape, accepted.dtype) == ((300,), (300,), bool)
        # What the rule accepts is a draft.
        assert (output[accepted, None] == drafts[accepted]).any(axis=1).all()
        for i in range(5):  # one row at a time is the same as all at once
            here = None if state is None else state[i : i + 1]
            alone = rule.verify(drafts[i : i + 1], second[i : i + 1], here)
            assert (alone[0][0], alone[1][0]) == (output[i], accepted[i])


BY = ("membership", "rule")


@pytest.mark.parametrize(
    ("verifier", "law"), [one for one in instances.supported_pairs() if one.values[0].lossless]
)
def test_lossless_verifiers_on_every_oddity(verifier, law):
    """The contracts above in one pass, on instances that Hypothesis makes up."""

    @settings(max_examples=15)
    @given(problem=problems_for((law,)))
    def check(problem):
        plan = otm.coupling(verifier, problem)
        tolerance = value_accuracy(verifier, problem)
        off = np.abs(plan.output_marginal - problem.target).max()
        assert off <= accuracy(verifier, problem)
        value = otm.acceptance(verifier, problem)
        assert value == pytest.approx(plan.acceptance, abs=tolerance)
        assert otm.acceptance(verifier, problem, by="rule") <= value + tolerance
        assert value <= otm.optimal_acceptance(problem) + tolerance

    check()


def test_verifiers_are_hashable_configuration_and_refuse_laws_by_name():
    for verifier, law in itertools.product(instances.verifiers(), instances.laws()):
        assert isinstance(verifier, otm.Verifier) and isinstance(verifier.lossless, bool)
        assert len({verifier, verifier}) == 1
        problem, rng = plain(law), np.random.default_rng(0)
        calls = [
            lambda one: otm.prepare(one, problem),  # noqa: B023
            lambda one: otm.coupling(one, problem),  # noqa: B023
            lambda one: otm.kernel(one, problem, [0] * problem.num_drafts),  # noqa: B023
            lambda one: otm.sample(one, problem, size=1, rng=rng),  # noqa: B023
            lambda one: otm.estimate(one, problem, samples=1, rng=rng),  # noqa: B023
            lambda one: otm.acceptance(one, problem),  # noqa: B023
            lambda one: otm.acceptance_curve(one, problem, k=[problem.law.size]),  # noqa: B023
        ]
        for call in [] if verifier.supports(law) else calls:
            with pytest.raises(otm.errors.Unsupported, match="Choose") as caught:
                call(verifier)
            assert repr(verifier) in str(caught.value) and repr(law) in str(caught.value)


def test_collapse_merges_exactly_the_sequences_with_one_set():
    for name, problem in named_problems(instances.laws()):
        table = enumerate_drafts(problem.law, problem.draft)
        sets = collapse(table)
        asked, given_ = (
            [frozenset(x for x in row if x != PAD) for row in rows.tolist()]
            for rows in (table.tokens, sets.tokens)
        )
        assert len(set(given_)) == len(given_), name
        assert [given_[i] for i in sets.of_sequence] == asked, name
        merged = np.bincount(sets.of_sequence, weights=table.mass)
        np.testing.assert_allclose(merged, sets.mass, atol=1e-15)


def test_a_row_of_a_batch_is_a_problem():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5), 3), rng.dirichlet(np.ones(5))
    batch = otm.Problem(draft=p, target=q, law=otm.IID(2))
    rows = [otm.Problem(draft=one, target=q, law=otm.IID(2)) for one in p]
    whole = otm.optimal_acceptance(batch)
    for found in ([batch[i] for i in range(3)], [batch[i - 3] for i in range(3)], list(batch)):
        assert [otm.optimal_acceptance(one) for one in found] == whole.tolist()
        assert [one.batch_shape for one in found] == [one.batch_shape for one in rows]
    with pytest.raises(otm.errors.ShapeMismatch, match="is one pair"):
        rows[0][0]
