"""The optimal verifier against rational arithmetic, enumeration and its own sampler; small
vocabularies and ugly distributions.
"""

import dataclasses
import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import IID, Optimal, Problem
from otm.errors import SolverFailure
from otm.overlap.curve import Containment
from otm.overlap.lumped_row import RowSteps
from otm.verifiers.optimal.bins import bin_tokens
from otm.verifiers.optimal.score_pieces import moment, upper_gap
from otm.verifiers.optimal.scores import Nodes, build_scores, optimal_selection
from tests import strategies
from tests.tolerance import UNIT_ROUNDOFF, rounding
from tests.verifiers.optimal.large import language_rows

COUNTS = st.sampled_from([1, 2, 3, 4, 7, 64, 65, 1000, 10**6])


# --- step 1 and 2: the law of the selected draft
# --------------------------------------------------------------------------------


def law_of_the_pieces(scores, k):
    """E[g(U)] of each atom in rational arithmetic, from the float ends of its pieces."""
    moments, lengths = [Fraction(0)] * len(scores.level), [Fraction(0)] * len(scores.level)
    for owner, gap, length in zip(
        scores.owner.tolist(), scores.gap.tolist(), scores.length.tolist(), strict=True
    ):
        top = 1 - Fraction(gap)
        bottom = max(Fraction(0), top - Fraction(length))
        moments[owner] += top**k - bottom**k
        lengths[owner] += Fraction(length)
    return [m / x if x else Fraction(0) for m, x in zip(moments, lengths, strict=True)]


@settings(max_examples=100)
@given(strategies.pairs(max_tokens=6), st.sampled_from([1, 2, 3, 4, 7, 40]))
def test_the_pieces_have_the_selection_law(pair, k):
    # Independent of `achieved`: moments of the pieces as exact fractions; what a token draws is a
    # mixture of two atoms.
    problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
    rule = otm.prepare(Optimal(), problem)
    scores, atoms = rule.scores, law_of_the_pieces(rule.scores, k)
    for y in range(problem.num_tokens):
        i = int(np.searchsorted(scores.level, rule.level[y], side="right")) - 1
        theta = Fraction(float((rule.level[y] - scores.level[i]) / scores.steps[i]))
        mean = (1 - theta) * atoms[i] + theta * atoms[min(i + 1, scores.num_atoms)]
        assert abs(
            float(Fraction(float(problem.draft[y])) * mean) - rule.selection_law[y]
        ) <= rounding(problem.num_tokens, k)
    # The mixture of the score laws is uniform: disjoint pieces from 0 to 1, each atom's total
    # length its mass.
    assert all(value <= scores.tolerance for value in scores.residuals.values()), scores.residuals


# --- losslessness and optimality
# ------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(strategies.pairs(max_tokens=40), COUNTS)
def test_ugly_distributions_at_every_number_of_drafts(pair, k):
    problem = Problem(draft=pair[0], target=pair[1], law=IID(k))
    rule = otm.prepare(Optimal(), problem)
    s, q = rule.selection_law, problem.target
    close = rounding(problem.num_tokens, k)
    assert s.sum() == pytest.approx(1, abs=close)
    assert np.minimum(s, q).sum() == pytest.approx(otm.optimal_acceptance(problem), abs=1e-12)
    assert rule.upper == pytest.approx(otm.optimal_acceptance(problem), abs=1e-12)
    # p·clip(q/p, c, d), whose c and d the optimum and the core leave no choice
    live = problem.draft > 0
    p, levels = problem.draft[live], s[live] / problem.draft[live]
    clipped = np.clip(q[live], levels.min() * p, levels.max() * p)
    np.testing.assert_allclose(s[live], clipped, rtol=0, atol=close)
    accepted = s * rule.keep(np.arange(len(s)))
    np.testing.assert_allclose(accepted + (1 - accepted.sum()) * rule.residual, q, atol=close)
    # The core, set by set of low levels (a superset of what holds for all sets), against P^k from
    # the definition.
    order = np.argsort(rule.level, kind="stable")
    x, G = np.cumsum(problem.draft[order]), np.cumsum(s[order])
    with np.errstate(under="ignore"):
        assert (np.minimum(x, 1.0) ** k - k * close <= G).all()


def nodes_of(p, level):
    """Nodes at tokens in descending order of their levels, with nothing between them."""
    return Nodes(level, p, p * level, np.zeros(1), np.zeros(1), np.full(1, -1))


def test_atoms_at_some_levels_select_like_atoms_at_all():
    for V, k in [(300, 2), (2000, 2), (500, 8), (300, 64), (400, 10**6)]:
        p, q = language_rows(V, k)
        rule = otm.prepare(Optimal(), Problem(draft=p, target=q, law=IID(k)))
        order = np.argsort(rule.level)[::-1]
        level = rule.level[order]
        scores = build_scores(nodes_of(p[order], level), np.arange(V), Containment(k=k), V)
        assert rule.scores.num_atoms <= min(50, scores.num_atoms)  # "below a hundred"
        for each in (scores, rule.scores):
            missed = p[order] * each.mean(level) - rule.selection_law[order]
            assert abs(missed).sum() <= rounding(V, k)
        # lumps and single tokens hold each mass once
        nodes = Nodes.of(*optimal_selection(RowSteps.of(p, q), 0.0, Containment(k=k)))[0]
        assert nodes.mass.sum() + nodes.mass_after.sum() == pytest.approx(1.0, abs=rounding(V, k))
    assert rule.scores.num_atoms < scores.num_atoms


@pytest.mark.parametrize(("k", "V"), [(2, 3000), (3, 200), (8, 200)])
def test_ratios_that_leave_no_room_make_every_token_an_atom(k, V):
    # q(T) = P(T)^k for every prefix: each is a minimising cut, the core is tight everywhere, the
    # scores are intervals in order.
    p = otm.examples.dirichlet(V, rng=np.random.default_rng(5))
    x = np.append(0.0, np.cumsum(p))
    q = np.diff((x / x[-1]) ** k)
    problem = Problem(draft=p, target=q / q.sum(), law=IID(k))
    rule = otm.prepare(Optimal(), problem)
    assert otm.optimal_acceptance(problem) == pytest.approx(1, abs=1e-12)
    assert rule.lower == pytest.approx(1, abs=1e-12)
    # at the low end the masses q fall below rounding and share an atom
    assert rule.scores.num_atoms > 0.5 * V
    drafts = np.array([[3, 150, 20, 7, 90, 11, 4, 6][:k]])
    # the largest ratio wins, and is accepted
    assert otm.kernel(Optimal(), problem, drafts)[0].argmax() == drafts.max()


# --- the construction
# -------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    st.sampled_from(
        [
            *(Containment(k=k) for k in (2, 3, 4, 9, 64, 1000, 10**6)),
            *(Containment(c=c) for c in (1.001, 2.0, 30.0, 1e6)),
        ]
    ),
    st.floats(1e-12, 1.0),
    st.floats(0.0, 1.0),
)
def test_places_invert_moments(size, width, at):
    (c, k), steep = size, size.steepest
    gap = at * (1 - width) / max(1, steep / 20) if width < 0.9 else at * (1 - width)
    value = moment(gap, width, size)
    with mpmath.workdps(60):
        top = 1 - mpmath.mpf(gap)
        ends = [x / (x + c * (1 - x)) for x in (top, top - width if top > width else 0)]
        truth = ends[0] ** k - ends[1] ** k
        # k log1p(−h) has relative error 2u and absolute size up to 745 before the moment
        # underflows; width/(1−h) likewise.
        assert abs(value - truth) <= 3000 * UNIT_ROUNDOFF * truth + 1e-300
    found = upper_gap(width, value, size)
    assert 0 <= found <= 1 - width + 8 * UNIT_ROUNDOFF  # "up to rounding"
    assert moment(found, width, size) == pytest.approx(value, rel=3000 * UNIT_ROUNDOFF, abs=1e-15)


def test_uniforms_at_the_ends_select_a_draft_and_what_is_never_drafted_loses():
    problem = Problem(draft=[0.5, 0.5, 0.0], target=[0.2, 0.3, 0.5], law=IID(2))
    rule = otm.prepare(Optimal(), problem)
    ends = [0.0, np.nextafter(1.0, 0.0), 0.5, 1e-300]
    uniforms = np.array(list(itertools.permutations(ends, 2)))
    drafts = np.array([[2, 0], [0, 2]] * 6)
    assert (rule.select(drafts, uniforms) == 0).all()
    assert rule.select(drafts[0], uniforms[0]) == 0
    accepted, residual = rule.split(np.array([[2, 2], [2, -1]]))
    assert (accepted == 0).all()
    np.testing.assert_allclose(residual.sum(axis=1), 1)


def test_the_kernel_refuses_too_many_drafts():
    rule = otm.prepare(Optimal(), Problem(draft=[0.5, 0.5], target=[0.3, 0.7], law=IID(513)))
    with pytest.raises(otm.errors.TooLarge, match="512"):
        rule.split(np.zeros((1, 513), dtype=np.int64))
    p, q = language_rows(12, 0)
    last = otm.prepare(Optimal(), Problem(draft=p, target=q, law=IID(512)))
    accepted, _ = last.split(np.repeat(np.arange(12)[:, None], 512, axis=1))
    np.testing.assert_allclose(accepted, np.diag(last.keep(np.arange(12))), atol=1e-12)


# --- the self-checks
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "condition"),
    [
        (lambda s: {"gap": np.append(s.gap[:-1], s.gap[-1] + 1e-9)}, "tiling"),
        (lambda s: {"owner": np.where(s.owner == 5, 6, s.owner)}, "length"),
        (lambda s: {"level": s.level + 1e-9 * (s.level > 0.5)}, "moment"),
        (lambda s: {"length": s.length * (1 + 1e-9)}, "tiling"),
        (lambda s: {"mass": s.mass * (1 - 1e-9)}, "length"),
    ],
)
def test_a_wrong_law_is_never_returned(broken, condition):
    p, q = otm.examples.dirichlet(30, rng=np.random.default_rng(1), rows=2)
    scores = otm.prepare(Optimal(), Problem(draft=p, target=q, law=IID(3))).scores
    scores.check()
    moved = dataclasses.replace(scores, gap=0.5 * scores.gap)
    missed = abs(moved.mass @ moved.achieved - 1.0)
    assert 0.1 < missed == pytest.approx(moved.residuals["mass"])
    wrong = dataclasses.replace(scores, **broken(scores))
    with pytest.raises(SolverFailure, match=condition):
        wrong.check()


def test_a_law_outside_the_core_is_refused():
    # Two atoms of mass ½ with levels 0.2 and 1.8: s = (0.1, 0.9), but both drafts are token 0 with
    # probability ¼.
    with pytest.raises(SolverFailure, match="moment"):
        build_scores(
            nodes_of(np.array([0.5, 0.5]), np.array([1.8, 0.2])), np.arange(2), Containment(k=2), 2
        )


def test_bins_by_hand(backend):
    """Fifty of half an exponent from 2⁻²⁴ to 2; what cannot be drafted belongs to none."""
    p = np.array([0.25, 0.25, 0.25, 0.25, 0.0])
    q = p * 2.0 ** np.array([-30.0, -20.3, -3.1, -0.6, 0.0])
    q[-1] = 1 - q.sum()
    cells = bin_tokens(backend.array(p), backend.array(q), 50, 2.0)
    assert backend.numpy(cells.index)[:4].tolist() == [0, 7, 41, 46]
    for masses, whole in ((cells.draft, 1.0), (cells.target, 1 - q[-1]), (cells.undrafted, q[-1])):
        assert backend.numpy(masses).sum() == pytest.approx(whole, abs=1e-7)


@pytest.mark.parametrize("bins", [1, 64, 4096])
def test_bins_of_many_equal_tokens(bins):
    """A bin's mass is a sum over its tokens: rounding is counted by tokens, not by bins."""
    uniform = np.full(50_257, 1 / 50_257)
    problem = otm.Problem(draft=uniform, target=uniform, law=otm.IID(2))
    assert otm.prepare(otm.Optimal(bins=bins), problem).lower == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize(
    ("draft", "target"),
    [
        ([5 / 9, 5e-324, 4 / 9], [5 / 13, 5e-324, 8 / 13]),
        ([0.14, 0.27, 0.59, 5e-324], [0.63, 0.37, 6e-311, 5e-324]),
        ([7.5e-18, 0.375, 5e-324, 0.0, 0.625], [0.0, 0.78, 5e-324, 0.217, 0.003]),
    ],
)
def test_a_token_of_the_least_mass_needs_no_pieces(draft, target, k):
    """Products of its mass lose all digits; it would upset the places of the others."""
    problem = otm.Problem(
        draft=otm.normalise(np.array(draft)), target=otm.normalise(np.array(target)), law=otm.IID(k)
    )
    plan = otm.coupling(otm.Optimal(), problem)
    assert np.abs(plan.output_marginal - problem.target).max() <= 1e-13
    assert otm.acceptance(otm.Optimal(), problem) == pytest.approx(
        otm.optimal_acceptance(problem), abs=1e-13
    )
    np.testing.assert_allclose(
        otm.kernel(otm.Optimal(), problem, plan.drafts).sum(axis=1), 1.0, rtol=0, atol=1e-12
    )
