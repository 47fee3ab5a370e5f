"""Drafts without replacement: the quadrature against rational enumeration, exact integrals and
closed forms.
"""

import collections
import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binom

import otm
from otm.drafts import successive_cut
from otm.drafts.successive_cut import successive_containment, successive_inclusion, trapezoid_step
from otm.drafts.without_replacement import Remaining, choose_gap
from tests import exact, strategies
from tests.contracts.alarms import FALSE_ALARM, SAMPLES
from tests.verifiers.rational import successive

F = Fraction

# The rule's proven error is 1e-15, the part below t₀ 1e-17, dropped nodes 1e-18 each; what remains
# is rounding: F is a convex combination repeated V times (V + 1 units in the last place), weights
# and running sums add a few more, all relative to 1.
ACCURACY = 1e-14


def rounding_of(num_tokens):
    return ACCURACY + 8 * num_tokens * 2.0**-53


def successive_table(p, k):
    """Law of the drafted set by drawing one token after the other, in rational arithmetic."""
    support = [x for x, mass in enumerate(p) if mass > 0]
    table = collections.defaultdict(Fraction)
    for drafts in itertools.permutations(support, min(k, len(support))):
        table[frozenset(drafts)] += successive(list(p), drafts)
    return table


def smallest_cut(p, q, k):
    """1 + min over all 2^V sets of Q − b."""
    table = successive_table(p, k)
    return exact.optimum_from_table([list(s) for s in table], list(table.values()), q)


class TestAgainstEnumeration:
    @given(pair=strategies.pairs(max_tokens=7), k=st.integers(1, 4))
    def test_optimum_worst_set_containment_inclusion(self, pair, k):
        draft, target = pair
        k = min(k, len(draft))
        p, q = exact.exact(draft), exact.exact(target)
        problem = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(k))
        value = float(smallest_cut(p, q, k))
        assert otm.optimal_acceptance(problem) == pytest.approx(value, abs=ACCURACY)
        table = successive_table(p, k)
        T = otm.optimal_cut(problem)
        inside = {int(y) for y in np.flatnonzero(T)}
        contained = float(sum((mass for drafted, mass in table.items() if drafted <= inside), F(0)))
        assert successive_containment(problem.draft, T, k) == pytest.approx(contained, abs=ACCURACY)
        assert 1 + problem.target[T].sum() - contained == pytest.approx(value, abs=ACCURACY)
        included = successive_inclusion(problem.draft, k)
        wanted = [float(sum(m for s, m in table.items() if x in s)) for x in range(len(draft))]
        np.testing.assert_allclose(included, wanted, rtol=0, atol=ACCURACY)
        ks = [k, *range(1, len(draft) + 1)]
        curve = otm.optimal_acceptance_curve(problem, k=ks)
        assert curve[0] == pytest.approx(value, abs=ACCURACY)  # all numbers share one pass
        assert (np.diff(curve[1:]) >= -ACCURACY).all()

    @pytest.mark.parametrize("scale", [1e-12, 1e-300])
    @pytest.mark.parametrize("k", [2, 4])
    def test_masses_far_apart(self, scale, k):
        # Behind two heavy tokens the race among the tiny ones decides: nothing may be rounded away.
        weights = np.array([0.7, 0.3, 5 * scale, 2 * scale, scale, 3 * scale, scale**1.01])
        target = np.array([0.05, 0.02, 0.4, 0.1, 0.03, 0.2, 0.2])
        problem = otm.Problem(
            draft=weights / weights.sum(), target=target, law=otm.WithoutReplacement(k)
        )
        value = smallest_cut(exact.exact(problem.draft), exact.exact(target), k)
        assert otm.optimal_acceptance(problem) == pytest.approx(float(value), abs=ACCURACY)

    def test_the_smallest_masses_that_a_float_can_hold(self):
        smallest = 5e-324
        problem = otm.Problem(
            draft=[1.0, smallest, smallest, smallest],
            target=[0.1, 0.6, 0.2, 0.1],
            law=otm.WithoutReplacement(2),
        )
        # After token 0 each of the three others is as likely: α* = .1 + min(.6, 1/3) + .2 + .1.
        assert otm.optimal_acceptance(problem) == pytest.approx(0.4 + 1 / 3, abs=ACCURACY)


# --- exact integrals beyond what can be enumerated
# -----------------------------------------------------------------------------


def escape_exactly(inside, outside, k):
    """1 − b for integer masses n_i in T and an integer rest c: ∫ c e^{−ct} Pr(N ≤ k − 1) dt with z
    = e^{−t} is a sum of c/(c + e).

    Pr(N = j) is a polynomial in z with integer coefficients: adding mass n maps f_j to f_j z^n +
    f_{j−1}(1 − z^n). No quadrature.
    """
    counts = [{0: 1}] + [{} for _ in range(k - 1)]
    for n in inside:
        updated = []
        for j in range(k):
            here = {}
            for e, coefficient in counts[j].items():
                here[e + n] = here.get(e + n, 0) + coefficient
            for e, coefficient in counts[j - 1].items() if j else ():
                here[e] = here.get(e, 0) + coefficient
                here[e + n] = here.get(e + n, 0) - coefficient
            updated.append(here)
        counts = updated
    # Coefficients stay below C(V, k)·2^k < 1e20, so 80 digits leave 60 after all cancellation.
    with mpmath.workdps(80):
        terms = (mpmath.mpf(a) * outside / (outside + e) for f in counts for e, a in f.items())
        return float(mpmath.fsum(terms))


def integer_masses(kind):
    if kind == "spread over thirty digits":
        return [10**30] * 3 + [10**18] * 8 + [10**6] * 6 + [1] * 7
    if kind == "one token takes nearly all":
        return [10**30] + list(range(1, 25)) + [7] * 10
    return [int(n) for n in np.random.default_rng(3).integers(1, 21, size=120)]


@pytest.mark.parametrize(
    "kind",
    ["spread over thirty digits", "one token takes nearly all", "a hundred and twenty tokens"],
)
@pytest.mark.parametrize("k", [2, 5, 8])
def test_containment_equals_an_exact_integral(kind, k):
    masses = integer_masses(kind)
    total = sum(masses)
    draft = np.array([float(F(n, total)) for n in masses])
    included = successive_inclusion(draft, k)
    order = np.random.default_rng(7).permutation(len(masses)).tolist()
    for size in (k, len(masses) // 2, len(masses) - 1):
        T, off = order[:size], sum(masses[x] for x in order[size:])
        contained = successive_containment(draft, np.isin(np.arange(len(masses)), T), k)
        wanted = escape_exactly([masses[x] for x in T], off, k)
        # Masses are rounded once, which moves b by at most k units in the last place relative.
        assert 1 - contained == pytest.approx(wanted, abs=rounding_of(len(masses)))
    # The last set is all but one token, which is drafted unless the others hold all drafts.
    assert included[order[-1]] == pytest.approx(wanted, abs=rounding_of(len(masses)))


@pytest.mark.parametrize("k", [2, 8])
def test_full_vocabulary_with_a_uniform_draft_has_a_closed_form(k):
    """Equal masses make the drafts a random sample: b(T) = Π_i (m − i)/(V − i) for |T| = m."""
    num_tokens = 128_256
    target = otm.examples.dirichlet(num_tokens, rng=np.random.default_rng(0))
    problem = otm.Problem(
        draft=otm.examples.uniform(num_tokens), target=target, law=otm.WithoutReplacement(k)
    )
    m = np.arange(num_tokens + 1, dtype=np.float64)
    contained = np.prod([(np.maximum(m - i, 0)) / (num_tokens - i) for i in range(k)], axis=0)
    cost = np.concatenate([[0.0], np.cumsum(np.sort(target))])
    value = 1 + (cost - contained).min()
    # V steps of one unit in the last place each, if they all erred the same way: 1.4e-11. The
    # requirement is 1e-8.
    assert otm.optimal_acceptance(problem) == pytest.approx(value, abs=num_tokens * 2.0**-53)


class TestSearch:
    """On long rows few prefixes are evaluated: the scan of all of them is the witness."""

    @given(pair=strategies.pairs(max_tokens=7), k=st.integers(1, 4))
    def test_the_search_finds_the_smallest_cut(self, pair, k):
        draft, target = pair
        k = min(k, len(draft))
        problem = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(k))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(successive_cut, "_LONG_ROW", 0)
            patch.setattr(successive_cut, "_FEW_PREFIXES", 0)
            value, cut = otm.optimal_acceptance(problem), otm.optimal_cut(problem)
        wanted = float(smallest_cut(exact.exact(draft), exact.exact(target), k))
        assert value == pytest.approx(wanted, abs=ACCURACY)
        contained = successive_containment(problem.draft, cut, k)
        assert 1 + problem.target[cut].sum() - contained == pytest.approx(wanted, abs=ACCURACY)

    def test_a_single_draft_that_one_token_takes(self):
        draft = np.append(0.5, np.full(4999, 0.5 / 4999))
        problem = otm.Problem(
            draft=draft,
            target=np.append(0.0, np.full(4999, 1 / 4999)),
            law=otm.WithoutReplacement(1),
        )
        assert otm.optimal_acceptance(problem) == pytest.approx(0.5, abs=ACCURACY)

    @pytest.mark.parametrize("kind", ["peaked", "uniform", "equal", "three hundred digits", "one"])
    @pytest.mark.parametrize("ks", [[2], [8], [1, 3, 40]])
    def test_the_search_finds_what_the_scan_does(self, kind, ks, monkeypatch):
        rng = np.random.default_rng(5)
        num_tokens = 5000
        target = otm.examples.dirichlet(num_tokens, rng=rng, concentration=0.3)
        draft = {
            "peaked": lambda: otm.examples.dirichlet(num_tokens, rng=rng, concentration=0.1),
            "uniform": lambda: otm.examples.uniform(num_tokens),
            "equal": lambda: target,
            "three hundred digits": lambda: otm.normalise(10.0 ** -rng.uniform(0, 300, num_tokens)),
            "one": lambda: otm.normalise(np.append(1.0, rng.random(num_tokens - 1) * 1e-13)),
        }[kind]()
        problem = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(1))
        found = otm.optimal_acceptance_curve(problem, k=ks)
        monkeypatch.setattr(successive_cut, "_LONG_ROW", num_tokens)
        scanned = otm.optimal_acceptance_curve(problem, k=ks)
        np.testing.assert_allclose(found, scanned, atol=rounding_of(num_tokens), rtol=0)

    @pytest.mark.parametrize("k", [2, 8, 64])
    def test_tokens_added_at_once_are_those_added_in_turn(self, k, monkeypatch):
        rng = np.random.default_rng(k)
        p = otm.normalise(rng.exponential(size=3000) * 10.0 ** -rng.uniform(0, 6, 3000))
        for size in (2900, 1500, 100):
            members = np.arange(3000) < size
            together = successive_containment(p, members, k)
            with monkeypatch.context() as patch:
                patch.setattr(successive_cut, "_LARGEST_LIGHT", 0.0)
                alone = successive_containment(p, members, k)
            assert together == pytest.approx(alone, abs=rounding_of(size))


class TestQuadrature:
    @pytest.mark.parametrize("k", [2, 8, 33])
    def test_half_the_step_changes_nothing(self, k, monkeypatch):
        rng = np.random.default_rng(1)
        draft, target = otm.examples.dirichlet(300, rng=rng, rows=2, concentration=0.3)
        problem = otm.Problem(draft=draft, target=target, law=otm.WithoutReplacement(k))
        value = otm.optimal_acceptance(problem)
        monkeypatch.setattr(successive_cut, "trapezoid_step", lambda k: trapezoid_step(k) / 2)
        assert otm.optimal_acceptance(problem) == pytest.approx(value, abs=rounding_of(300))

    def test_the_bound_is_respected_by_the_gamma_integral(self):
        # Many tokens of vanishing mass make N Poisson and the integrand y^k e^{−y}/Γ(k) in log y,
        # whose Fourier transform is a Gamma function: by Poisson summation the rule errs by at most
        # 2|Γ(k + 2πi/h)|/Γ(k), up to far smaller terms.
        for k in (2, 8, 32, 64):
            h = trapezoid_step(k)
            with mpmath.workdps(30):
                error = 2 * abs(mpmath.gamma(mpmath.mpc(k, 2 * mpmath.pi / h))) / mpmath.gamma(k)
            assert error < 1e-15, k


class TestEdges:
    def test_where_no_set_gains_the_empty_one_is_told(self):
        half = np.array([0.5, 0.5])
        assert not successive_cut.successive_worst_set(half, half, 1).any()

    def test_the_pace_is_told_what_is_done(self, monkeypatch):
        """A quarter on the way there, the rest on the way back."""
        told = []

        class Pace:
            def __init__(self, what, remedy):
                """Nothing is refused."""

            def check(self, share):
                told.append(share)

        monkeypatch.setattr(successive_cut, "Pace", Pace)
        monkeypatch.setattr(successive_cut, "_BLOCK_ELEMENTS", 1)  # a token at a time
        successive_inclusion(np.full(4, 0.25), 2)
        np.testing.assert_allclose(told, [*np.arange(1, 5) / 16, *np.arange(7, 17, 3) / 16])

    @pytest.mark.parametrize(
        ("tokens", "k", "contained"),
        [([0, 1, 2], 2, 1.0), ([0, 2], 3, 0.0), ([3], 1, 0.0), ([], 2, 0.0)],
    )
    def test_containment_is_exactly_zero_or_one_where_it_is(self, tokens, k, contained):
        p = np.array([0.3, 1e-300, 0.7 - 1e-300, 0.0])
        assert successive_containment(p, np.isin(np.arange(4), tokens), k) == contained

    def test_batches_are_row_by_row(self):
        rng = np.random.default_rng(0)
        drafts = otm.examples.dirichlet(9, rng=rng, rows=30, concentration=0.1)
        drafts[::3, :5] = 0.0
        drafts = drafts / drafts.sum(axis=1, keepdims=True)
        targets = otm.examples.dirichlet(9, rng=rng, rows=30)
        law, shape = otm.WithoutReplacement(1), (5, 6, 9)
        batch = otm.Problem(draft=drafts.reshape(shape), target=targets.reshape(shape), law=law)
        values = otm.optimal_acceptance_curve(batch, k=[2, 5, 9])
        assert values.shape == (3, 5, 6)
        for row, value in enumerate(values.reshape(3, 30).T):
            one = otm.Problem(draft=drafts[row], target=targets[row], law=law)
            alone = otm.optimal_acceptance_curve(one, k=[2, 5, 9])
            np.testing.assert_allclose(value, alone, atol=ACCURACY)


class TestSampling:
    def test_draws_behind_a_token_that_takes_nearly_everything(self):
        # 1 − p(0) is 0 in floating point; what is left must still be split 1 : 3.
        p = np.array([1e-20, 1.0, 3e-20])
        drafts = otm.WithoutReplacement(2).draw(p, np.random.default_rng(0).random((SAMPLES, 2)))
        assert (drafts[:, 0] == 1).all()
        hits = binom(SAMPLES, 0.25).cdf((drafts[:, 1] == 0).sum())
        assert FALSE_ALARM / 2 <= hits <= 1 - FALSE_ALARM / 2

    @given(data=st.data())
    def test_the_mass_left_keeps_its_digits(self, data):
        p = data.draw(strategies.distributions(data.draw(st.integers(1, 6))))
        remaining = Remaining.of(p)
        masses = [F(float(p[x])) for x in remaining.tokens]
        taken = data.draw(
            st.lists(st.integers(0, remaining.size - 1), unique=True, max_size=remaining.size)
        )
        left = sum((m for i, m in enumerate(masses) if i not in taken), F(0))
        found = remaining.mass(np.array([taken], dtype=np.int64).reshape(1, -1))[0]
        # (k + 2) units in the last place and as many again for the running sums.
        assert abs(F(float(found)) - left) <= left * F(2 * (len(p) + 2), 2**52)

    def test_uniforms_at_both_ends_stay_inside(self):
        p = np.array([0.0, 0.2, 0.0, 0.3, 0.5, 0.0])
        uniforms = np.array(list(itertools.product([0.0, np.nextafter(1.0, 0.0)], repeat=3)))
        drafts = otm.WithoutReplacement(3).draw(p, uniforms)
        assert all(sorted(row) == [1, 3, 4] for row in drafts.tolist())

    def test_a_point_at_the_very_end_is_in_the_last_gap_with_mass(self):
        gap, inside = choose_gap(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.ones(2))
        assert (gap.ravel().tolist(), inside.ravel().tolist()) == ([0, 1], [1.0, 1.0])
