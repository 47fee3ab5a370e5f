"""Lossy verifiers: what each of them keeps, and the laws of some as written."""

import dataclasses
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import otm
from otm import Fuzzy, Lenience, Mentored, TypicalAcceptance
from otm.verifiers.base import enumerated_acceptance
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft

LOSSY = [
    Mentored(0.2),
    Lenience(1.0),
    Lenience(0.4),
    Lenience(0.4, residual="scaled"),
    TypicalAcceptance(),
    TypicalAcceptance(eps=0.3, delta=0.9),
    Fuzzy(0.2),
    Fuzzy(0.3, divergence="tv", fallback="speculative"),
    Fuzzy(0.4, divergence="kl"),
    otm.Cactus(),
    otm.ThresholdMatching(0.35, 0.6),
    otm.Lantern(2, delta=0.05),
    otm.Lantern(),
    otm.Lantern(3, delta=1.7),
    otm.Grouped(2, margin=0.3),
    otm.ActionDistance(1),
]


def two_softmaxes(seed):
    """One softmax over 50 tokens computed in two ways, which differ by rounding."""
    masses = np.exp(3 * np.random.default_rng(seed).normal(size=50))
    return masses / masses.sum(), masses * (1 / masses.sum())


PAIRS = strategies.pairs(max_tokens=6) | st.integers(0, 99).map(two_softmaxes)


@pytest.mark.parametrize("verifier", LOSSY, ids=repr)
@settings(max_examples=50)
@given(pair=PAIRS)
def test_law_acceptances_and_gain(verifier, pair):
    """They are those of the rule; the gain is at most the total variation."""
    problem = one_draft(pair)
    law, plan = otm.lossy.output_law(verifier, problem), otm.coupling(verifier, problem)
    assert (law >= 0).all()
    assert law.sum() == pytest.approx(1, abs=ROUNDING)
    np.testing.assert_allclose(law, plan.output_marginal, rtol=0, atol=ROUNDING)
    member, rule = (otm.acceptance(verifier, problem, by=by) for by in ("membership", "rule"))
    assert member == pytest.approx(plan.acceptance, abs=ROUNDING)
    enumerated = enumerated_acceptance(otm.prepare(verifier, problem), "rule")
    assert rule == pytest.approx(enumerated, abs=ROUNDING)
    spent = otm.lossy.distortion(verifier, problem)
    assert spent.total_variation == pytest.approx(0.5 * np.abs(law - pair[1]).sum(), abs=1e-15)
    ceiling = otm.lossy.tv_frontier(problem, tv=min(1.0, spent.total_variation))
    assert member <= ceiling + ROUNDING
    # Pinsker: TV ≤ √(KL/2).
    assert spent.total_variation <= np.sqrt(0.5 * spent.kl) + 1e-7


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (otm.Mentored, {"kl": -0.1}),
        (otm.Mentored, {"kl": float("nan")}),
        (otm.Lenience, {"lenience": 0.0}),
        (otm.Lenience, {"lenience": 1.5}),
        (otm.Lenience, {"residual": "other"}),
        (otm.TypicalAcceptance, {"eps": 1.5}),
        (otm.TypicalAcceptance, {"delta": -0.1}),
        (otm.RelaxedAcceptance, {"top": 0}),
        (otm.RelaxedAcceptance, {"delta": 1.5}),
        (otm.RelaxedAcceptance, {"fallback": "draft"}),
        (otm.BoundedRegret, {"regret": -1.0}),
        (otm.Mars, {"theta": 1.5}),
        (otm.Mars, {"top_logit": 0.0}),
        (otm.ThresholdMatching, {"single": 1.5}),
        (otm.ThresholdMatching, {"accumulated": 0.0}),
        (otm.Ensemble, {"weight": -0.1}),
        (otm.Cascade, {"alpha": 2.0}),
        (otm.Cascade, {"rule": "token_v1"}),
        (otm.Cactus, {"delta": -0.1}),
        (otm.Lantern, {"delta": -0.1}),
        (otm.Lantern, {"neighbours": 0}),
        (otm.Lantern, {"neighbours": [1, 0]}),
        (otm.Lantern, {"neighbours": [[0], [1]]}),
        (otm.Lantern, {"neighbours": [[1, 1], [0, -1]]}),
        (otm.Lantern, {"neighbours": [[1], [2]]}),
        (otm.Lantern, {"neighbours": [[0.5], [0.0]]}),
        (otm.Grouped, {"margin": 1.5}),
        (otm.Grouped, {"neighbours": [[-2], [0]]}),
        (otm.ActionDistance, {"distance": -1}),
        (otm.TvOptimal, {"tv": 1.5}),
        (otm.Fuzzy, {"threshold": -1.0}),
        (otm.Fuzzy, {"divergence": "hellinger"}),
        (otm.Fuzzy, {"fallback": "draft"}),
    ],
    ids=str,
)
def test_parameters_out_of_range(make, wrong):
    with pytest.raises(otm.errors.InvalidParameter, match=f"{next(iter(wrong))} must"):
        make(**wrong)


@settings(max_examples=100)
@given(pair=strategies.pairs(max_tokens=6), factor=st.floats(0.05, 1.0))
def test_lenience(pair, factor):
    problem = one_draft(pair)
    p, q = problem.draft, problem.target
    kept = np.minimum(p, q / factor)
    for residual, weight in (("plain", 1.0), ("scaled", factor)):
        verifier = Lenience(factor, residual=residual)
        for by in ("rule", "membership"):
            found = otm.acceptance(verifier, problem, by=by)
            assert found == pytest.approx(kept.sum(), abs=ROUNDING)
        left = np.maximum(q - weight * p, 0)
        # Where the rejection is rounding, so may be the residual, and anything times it is.
        if left.sum() > 1e-9:
            wanted = kept + (1 - kept.sum()) * left / left.sum()
            law = otm.lossy.output_law(verifier, problem)
            np.testing.assert_allclose(law, wanted, rtol=0, atol=1e-12)


@given(pair=strategies.pairs(max_tokens=6), delta=st.floats(0.0, 2.0))
def test_cactus(pair, delta):
    problem, verifier = one_draft(pair), otm.Cactus(delta)
    p, q = problem.draft, problem.target
    raised = np.minimum(1.0, q + np.sqrt(2 * delta * q * (1 - q)))
    due = np.minimum(p, raised)
    for x in np.flatnonzero(p - raised > 0):
        aim = q * (1 - raised[x]) / (1 - q[x])
        aim[x] = raised[x]
        excess = np.maximum(aim - p, 0)
        due = due + (p[x] - raised[x]) * (excess / excess.sum() if excess.any() else q)
    np.testing.assert_allclose(
        otm.lossy.output_law(verifier, problem), due, rtol=0, atol=10 * ROUNDING
    )
    for by in ("rule", "membership"):
        assert otm.acceptance(verifier, problem, by=by) == pytest.approx(
            np.minimum(p, raised).sum(), abs=ROUNDING
        )


def test_an_immense_bonus_is_no_overflow():
    problem = otm.Problem(draft=[0.75, 0.25], target=[1.0, 0.0], law=otm.IID(1))
    assert otm.acceptance(otm.Cactus(1e308), problem) == 0.75


class TestNeighbours:
    """Rules of image and action models: tables of neighbours, hand values, and laws as written."""

    P, Q = np.array([0.4, 0.1, 0.5, 0.0]), np.array([0.1, 0.4, 0.3, 0.2])

    def test_lantern_by_hand(self):
        # δ > 1 bounds by a share of the token's own mass: .2 ≤ 2 · .1, and .3 ≤ 1 · .3 does
        for delta, first in ((0.6, 0.3), (2.4, 0.1), (3.0, 0.3)):
            rule = otm.Lantern([[3], [0], [0], [0]], delta)
            assert rule.raised(self.Q) == pytest.approx([first, 0.5, 0.4, 0.3])

    @settings(max_examples=60)
    @given(
        pair=PAIRS,
        seed=st.integers(0, 2**32),
    )
    def test_lantern_draft_by_draft(self, pair, seed):
        (p, q), rng = pair, np.random.default_rng(seed)
        count, delta = rng.integers(1, 4), rng.choice([0.0, 0.05, 0.6, 1.8])
        table = np.full((len(p), count), -1)
        for x in range(len(p)):
            others = rng.permutation(np.delete(np.arange(len(p)), x))[: rng.integers(count + 1)]
            table[x, np.sort(rng.permutation(count)[: len(others)])] = others
        rule, law = otm.Lantern(table, delta), np.zeros(len(p))
        for x in range(len(p)):
            raised, some, sum_ = q[x], False, 0.0
            for y in table[x][table[x] >= 0]:
                sum_ += q[y]
                if sum_ <= (delta if delta <= 1 else (delta - 1) * q[x]) + 1e-12:
                    raised, some = q[x] + sum_, True
            law[x] += min(p[x], raised)
            if p[x] > raised:
                spared = [y for y in table[x] if y >= 0 and some]
                left = np.maximum(q - np.where(np.isin(np.arange(len(p)), spared), 0.0, p), 0.0)
                law += (p[x] - raised) * (left / left.sum() if left.any() else q)
        np.testing.assert_allclose(
            otm.lossy.output_law(rule, one_draft(pair)), law, rtol=0, atol=10 * ROUNDING
        )

    def test_large_tables(self):
        """Bytes of a chunk, not of the batch: 64 rows × 1,000 tokens × 50 neighbours are 26 MB."""
        size = 1000
        table = (np.arange(size)[:, None] + np.arange(1, 51)).astype(np.uint16) % size
        rule, same = otm.Lantern(table), otm.Lantern(table.tolist())
        table[0, 0] = 700
        other = otm.Lantern(table)
        assert (rule, hash(rule)) == (same, hash(same))
        assert rule != other
        assert repr(rule) != repr(other)
        assert max(map(len, (repr(rule), str(rule)))) < 120
        assert dataclasses.replace(rule, delta=0.2) == otm.Lantern(rule.neighbours, delta=0.2)
        assert pickle.loads(pickle.dumps(rule)) == rule
        assert otm.Lantern([[1, -1], [0, -1]]) != otm.Lantern([[1], [-1], [0], [-1]])
        masses = otm.examples.dirichlet(size, rng=np.random.default_rng(2), rows=128)
        for verifier in (rule, otm.Grouped(rule.neighbours)):
            tracemalloc.start()
            otm.acceptance(verifier, one_draft((masses[:64], masses[64:])))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 64 * size * 50 * 8

    @settings(max_examples=60)
    @given(pair=strategies.pairs(max_tokens=6), data=st.data())
    def test_clusters_that_part_the_vocabulary_accept_no_less(self, pair, data):
        p, q = pair
        labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(p), max_size=len(p))))
        table = np.full((len(p), len(p)), -1)
        for x, label in enumerate(labels):
            others = [y for y in np.flatnonzero(labels == label) if y != x]
            table[x, : len(others)] = others
        problem, rule = one_draft(pair), otm.Grouped(table, margin=1.0)
        if q.max() == 1.0:  # a certain token differs by the margin
            return
        groups = sum(min(p[labels == g].sum(), q[labels == g].sum()) for g in range(3))
        assert otm.acceptance(rule, problem, by="rule") == pytest.approx(groups, abs=ROUNDING)
        assert groups >= np.minimum(p, q).sum() - ROUNDING

    def test_grouped_by_rank(self):
        # ascending order 0 .1, 3 .2, 2 .3, 1 .4; each with the one below it: {0}, {3, 0}, {2, 3},
        # {1, 2}: kept .1/.4, –, .5/.5, .7/.6
        rule, problem = otm.Grouped(1, margin=0.15), one_draft((self.P, self.Q))
        assert otm.acceptance(rule, problem, by="rule") == pytest.approx(0.4 * 0.25 + 0.1 + 0.5)
        # a margin that no two are within leaves single-draft rejection
        alone = otm.Grouped(1, margin=0.05)
        assert otm.acceptance(alone, problem) == pytest.approx(0.1 + 0.1 + 0.3)
        np.testing.assert_allclose(otm.lossy.output_law(alone, problem), self.Q)

    def test_actions_within_a_distance(self):
        problem = one_draft((np.array([0.3, 0.3, 0.2, 0.2]), np.array([0.4, 0.1, 0.1, 0.4])))
        for distance, passing in enumerate((0.3, 0.6, 0.8, 1.0)):
            rule = otm.ActionDistance(distance)
            assert otm.acceptance(rule, problem) == pytest.approx(passing)
            kept = np.where(np.arange(4) <= distance, problem.draft, 0.0)
            due = kept + (1 - passing) * np.eye(4)[0]
            np.testing.assert_allclose(otm.lossy.output_law(rule, problem), due, atol=1e-15)

    def test_a_table_for_another_vocabulary_is_refused(self):
        with pytest.raises(otm.errors.ShapeMismatch, match="given for 2 tokens, the problem has 4"):
            otm.acceptance(otm.Lantern([[1], [0]]), one_draft((self.P, self.Q)))


class TestFuzzy:
    P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])

    @pytest.mark.parametrize("divergence", ["tv", "kl", "js"])
    @pytest.mark.parametrize("fallback", ["target", "speculative"])
    def test_the_gate(self, divergence, fallback):
        problem, m = one_draft((self.P, self.Q)), 0.5 * (self.P + self.Q)
        kl = lambda a, b: float(a @ np.log(a / b))  # noqa: E731
        distance = {
            "tv": 0.5 * float(np.abs(self.P - self.Q).sum()),
            "kl": kl(self.Q, self.P),
            "js": 0.5 * (kl(self.P, m) + kl(self.Q, m)),
        }[divergence]
        is_open, closed = (
            Fuzzy(distance * part, divergence=divergence, fallback=fallback)
            for part in (1.001, 0.999)
        )
        assert otm.acceptance(is_open, problem) == 1.0
        np.testing.assert_array_equal(otm.lossy.output_law(is_open, problem), self.P)
        np.testing.assert_allclose(otm.lossy.output_law(closed, problem), self.Q, atol=1e-15)
        rule, member = (otm.acceptance(closed, problem, by=by) for by in ("rule", "membership"))
        assert rule == (0.0 if fallback == "target" else member)
        caught = self.P * self.Q if fallback == "target" else np.minimum(self.P, self.Q)
        assert member == pytest.approx(caught.sum())

    def test_the_zero_threshold_opens_for_equal_distributions_only(self):
        for divergence in ("tv", "kl", "js"):
            verifier = Fuzzy(0.0, divergence=divergence)
            assert otm.acceptance(verifier, one_draft((self.P, self.P)), by="rule") == 1.0
            assert otm.acceptance(verifier, one_draft((self.P, self.Q)), by="rule") == 0.0
