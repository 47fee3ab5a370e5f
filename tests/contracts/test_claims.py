"""The numbers of docs/claims.md: what papers and public code say of each other, by enumeration and
by the best step.
"""

import dataclasses
import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

import otm
from otm.sequence import (
    BlockVerification,
    GreedyMultipath,
    Jacobi,
    MarkovModel,
    RefinedScores,
    SpeculativeSampling,
    Step,
    TableModel,
    ZerothOrder,
    best_step,
    expected_step,
    jacobi_law,
    sequence_law,
    step_law,
)
from tests.paths import ROOT
from tests.sequence.hierarchical import CappedAtOne, Hierarchical
from tests.sequence.toys import bias, distance, random_models, smooth_models

PAGE = " ".join((ROOT / "docs" / "claims.md").read_text(encoding="utf-8").split())
GOLD = {"draft": ZerothOrder([2 / 3, 1 / 3]), "target": ZerothOrder([1 / 3, 2 / 3])}


class TestHierarchicalSpeculativeDecoding:
    @pytest.mark.parametrize("seed", range(6))
    def test_is_block_verification(self, seed):
        draft, target = (
            smooth_models(3, 3, seed)
            if seed < 3
            else random_models(3, 3, np.random.default_rng([31, seed]))
        )
        models = {"draft": draft, "target": target, "context": []}
        assert (
            distance(step_law(Hierarchical(3), **models), step_law(BlockVerification(3), **models))
            <= 1e-15
        )

    @pytest.mark.parametrize(
        ("length", "tokenwise", "block"),
        [
            (1, Fraction(2, 3), Fraction(2, 3)),
            (2, Fraction(10, 9), Fraction(11, 9)),
            (3, Fraction(38, 27), Fraction(5, 3)),
        ],
    )
    def test_the_gold_instance(self, length, tokenwise, block):
        tokens = expected_step(SpeculativeSampling(length), **GOLD, context=[]).block_efficiency
        assert tokens == pytest.approx(1 + float(tokenwise), abs=1e-14)
        for decoder in (BlockVerification(length), Hierarchical(length)):
            assert step_law(decoder, **GOLD, context=[]).block_efficiency == pytest.approx(
                1 + float(block), abs=1e-14
            )
        assert best_step(BlockVerification(length), **GOLD, context=[]).value == pytest.approx(
            1 + float(block), abs=1e-9
        )
        assert f"| {length} | {tokenwise} | {block} | {block} |" in PAGE

    def test_capped_at_one_it_accepts_too_much(self):
        law = step_law(CappedAtOne(2), **GOLD, context=[])
        assert law.block_efficiency == pytest.approx(1 + 4 / 3, abs=1e-14)
        assert bias(CappedAtOne(2), **GOLD, step=step_law) == pytest.approx(1 / 9, abs=1e-15)
        assert bias(Hierarchical(2), **GOLD, step=step_law) <= 1e-15
        assert "accepts 4/3 drafts at γ = 2" in PAGE
        assert "total variation of 1/9" in PAGE


class TestSpecTrGbv:
    """Σ p [1 − (1 − min(q/p, 1))^K] at one position."""

    @staticmethod
    def formula(draft, target, count):
        return float((draft * (1 - (1 - np.minimum(target / draft, 1.0)) ** count)).sum())

    def test_one_draft_is_single_draft_rejection(self):
        rng = np.random.default_rng(0)
        draft, target = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
        assert self.formula(draft, target, 1) == pytest.approx(
            np.minimum(draft, target).sum(), abs=1e-15
        )

    def test_more_than_the_optimum(self):
        draft, target = np.array([0.99, 0.01]), np.array([0.5, 0.5])
        assert self.formula(draft, target, 2) == pytest.approx(0.757475, abs=1e-6)
        best = otm.optimum(otm.Problem(draft=draft, target=target, law=otm.IID(2)))
        assert best.upper == pytest.approx(0.5199, abs=1e-9)
        assert "| (99/100, 1/100) | (1/2, 1/2) | .757475 | .5199 |" in PAGE

    def test_less_than_the_optimum(self):
        draft, target = np.array([0.5, 0.5]), np.array([1.0, 0.0])
        assert self.formula(draft, target, 2) == 0.5
        assert (
            otm.optimal_acceptance(otm.Problem(draft=draft, target=target, law=otm.IID(2))) == 0.75
        )
        assert "| (1/2, 1/2) | (1, 0) | 1/2 | 3/4 |" in PAGE


def test_greedy_multipath_on_equal_models():
    """Ties: tests/sequence/test_greedy_multipath.py."""
    model = ZerothOrder([0.5, 0.5])
    for count in (1, 2, 5):
        tokens = expected_step(
            GreedyMultipath(count, 1), draft=model, target=model, context=[]
        ).block_efficiency
        assert tokens == pytest.approx(1.5 + 0.5**count, abs=1e-14)
    assert "TV = 1/6" in PAGE


@pytest.mark.parametrize(("order", "distance"), [((0, 1, 2), (7, 130)), ((0, 2, 1), (7, 170))])
def test_ties_of_greedy_multipath_err_by_their_order(order, distance):
    """Two drafts: the first that reaches 1 goes on, verified by the law of the last in an order."""
    p = [Fraction(5, 10), Fraction(3, 10), Fraction(2, 10)]
    q = [Fraction(4, 20), Fraction(7, 20), Fraction(9, 20)]
    ratio = [min(Fraction(1), y / x) for x, y in zip(p, q, strict=True)]
    assert sorted(range(3), key=ratio.__getitem__) == [0, 1, 2]  # a stable sort, as it reads there
    true, law = [Fraction(0)] * 3, [Fraction(0)] * 3
    for x in range(3):
        for y in range(3):
            true[max((x, y), key=ratio.__getitem__)] += p[x] * p[y]
            law[max((x, y), key=order.index)] += p[x] * p[y]
    kept = [mass * min(Fraction(1), y / s) for mass, y, s in zip(true, q, law, strict=True)]
    rest = [max(Fraction(0), y - s) for y, s in zip(q, law, strict=True)]
    output = [a + (1 - sum(kept)) * r / sum(rest) for a, r in zip(kept, rest, strict=True)]
    found = sum(max(Fraction(0), a - b) for a, b in zip(output, q, strict=True))
    assert found == Fraction(*distance)
    assert f"{distance[0]}/{distance[1]}" in PAGE


@dataclasses.dataclass(frozen=True)
class Truncated(SpeculativeSampling):
    """Cuts a chain of drafts where a rule says so: on the tokens before draft i, or on draft i
    itself.
    """

    looks_at_itself: bool = False

    def verify(self, tree, target, randomness):
        drafted = tree.tokens[1:].tolist()
        decided_on = drafted if self.looks_at_itself else [-1, *drafted]
        length = next(
            (i for i, token in enumerate(decided_on[: self.length]) if token == 0), self.length
        )
        if length == 0:
            return Step((randomness.choose(target(())),), 0, "end_of_draft")
        cut = dataclasses.replace(
            tree, shape=otm.trees.TreeShape.chain(length), tokens=tree.tokens[: length + 1]
        )
        return SpeculativeSampling(length).verify(cut, target, randomness)


class TestTruncation:
    def test_on_what_was_drafted_before_it_is_lossless(self):
        for seed in range(6):
            draft, target = random_models(3, 3, np.random.default_rng([32, seed]))
            assert bias(Truncated(3), draft, target, step=step_law) <= 1e-14

    def test_on_the_draft_itself_it_is_biased(self):
        model = ZerothOrder([0.5, 0.5])
        assert bias(
            Truncated(1, looks_at_itself=True), model, model, step=step_law
        ) == pytest.approx(0.25, abs=1e-15)
        assert bias(Truncated(1), model, model, step=step_law) <= 1e-15
        assert "output (1/4, 3/4), TV = 1/4" in PAGE


def test_the_first_law_of_greedy_multipath_overflows_with_six_sequences():
    """Powers of masses over 1e-8 in float32: five factors of 1e8 are infinite, and the drafted law
    stands in.
    """
    assert np.isfinite(np.float32(1e8) ** np.float32(4))
    with np.errstate(over="ignore"):
        assert np.isinf(np.float32(1e8) ** np.float32(5))
    draft, target = np.array([0.4, 0.6]), np.array([0.3, 0.7])
    selected = np.array([0.4**6, 1 - 0.4**6])  # the first token ranks lower
    accepted = selected * np.minimum(1, target / draft)
    output = accepted + (1 - accepted.sum()) * np.array([0.0, 1.0])
    assert 0.5 * np.abs(output - target).sum() == pytest.approx(0.2969, abs=5e-5)


def _instances():
    zipf = otm.examples.zipf(8)
    given = [
        ([2 / 3, 1 / 3], [1 / 3, 2 / 3], 2),
        ([0.5, 0.5], [0.5, 0.5], 3),
        ([0.75, 0.25, 0.0], [0.0, 0.25, 0.75], 2),
        ([0.25] * 4, [0.125, 0.125, 0.375, 0.375], 3),
        (zipf, zipf[::-1].copy(), 4),
        ([1.0, 0.0, 0.0], [0.2, 0.3, 0.5], 4),
    ]
    rng = np.random.default_rng(2026)
    drawn = [
        (*rng.dirichlet(np.full(size, 0.3), size=2), k)
        for size, k in ((5, 2), (20, 4), (100, 8), (1000, 16))
    ]
    return [(np.asarray(p), np.asarray(q), k) for p, q, k in (*given, *drawn)]


def _bisected(p, q, k, *, steps):
    """The division factor of the public peer: an interval [1, k] halved, its upper end."""
    low, high = 1.0, float(k)
    for _ in range(steps):
        middle = (low + high) / 2
        each = np.minimum(q / middle, p).sum()
        low, high = (middle, high) if 1 - (1 - each) ** k >= middle * each else (low, middle)
    return high


def test_the_public_peers_acceptances():
    """Its formulas, in the letters of this library, on ten instances."""
    for p, q, k in _instances():
        problem = otm.Problem(draft=p, target=q, law=otm.IID(k))
        excess = np.maximum(q - p, 0)
        assert otm.acceptance(otm.Naive(), problem) == pytest.approx(
            (q * (1 - (1 - p) ** k)).sum(), abs=1e-12
        )
        caught = np.minimum(p, q).sum() + (excess * (1 - (1 - p) ** (k - 1))).sum()
        assert otm.acceptance(otm.NaiveTree(), problem) == pytest.approx(caught, abs=1e-12)
        rest, reject, missed = q, 1.0, np.ones_like(q)
        for _ in range(k):
            rejected = max(1 - np.minimum(p, rest).sum(), 1e-6)
            reject *= 1 - np.minimum(p, rest).sum()
            missed = missed * (1 - np.maximum(p - rest, 0) / rejected)
            left = np.maximum(rest - p, 0)
            rest = left / left.sum() if left.any() else np.full_like(q, 1 / len(q))
        stages = 1 - reject + reject * (rest * (1 - missed)).sum()
        assert otm.acceptance(otm.RecursiveRejection(), problem) == pytest.approx(stages, abs=1e-12)
        factor = _bisected(p, q, k, steps=int(np.ceil(np.log2((k - 1) / 1e-4))))
        divided = otm.acceptance(otm.KSeq(gamma=factor), problem)
        assert divided == pytest.approx(otm.acceptance(otm.KSeq(), problem), abs=2e-6)
    p, q, k = _instances()[8]
    problem = otm.Problem(draft=p, target=q, law=otm.IID(k))
    assert otm.acceptance(otm.KSeq(gamma=_bisected(p, q, k, steps=4)), problem) == pytest.approx(
        0.5198, abs=5e-5
    )
    assert otm.acceptance(otm.KSeq(), problem) == pytest.approx(0.5343, abs=5e-5)


def test_the_divergence_of_cactus():
    size = 1000
    problem = otm.Problem(
        draft=np.repeat([2.0, 0.0], size // 2) / size,
        target=np.full(size, 1 / size),
        law=otm.IID(1),
    )
    rule = otm.Cactus(1 / (2 * size - 2))
    assert rule.delta == pytest.approx(0.0005, abs=1e-6)
    law = otm.lossy.output_law(rule, problem)[: size // 2]
    assert float(law @ np.log(law * size)) == pytest.approx(np.log(2), abs=1e-9)
    assert otm.acceptance(rule, problem) == pytest.approx(1.0, abs=1e-12)


def test_the_distance_of_lantern():
    size = 1000
    problem = otm.Problem(
        draft=np.repeat([2.0, 0.0], size // 2) / size,
        target=np.full(size, 1 / size),
        law=otm.IID(1),
    )
    rule = otm.Lantern(np.roll(np.arange(size), size // 2)[:, None], delta=1 / size)
    assert otm.acceptance(rule, problem) == pytest.approx(1.0, abs=1e-12)
    assert otm.lossy.distortion(rule, problem).total_variation == pytest.approx(0.5, abs=1e-12)


def test_windows_of_grouped_verification():
    problem = otm.Problem(draft=[0.1, 0.3, 0.3, 0.3], target=[0.05, 0.1, 0.65, 0.2], law=otm.IID(1))
    assert otm.acceptance(otm.Grouped(), problem, by="rule") == pytest.approx(51 / 80, abs=1e-15)
    assert otm.acceptance(otm.Maximal(), problem) == pytest.approx(13 / 20, abs=1e-15)
    parted = otm.Problem(draft=[0.6, 0.0, 0.4, 0.0], target=[0.2, 0.2, 0.2, 0.4], law=otm.IID(1))
    law = otm.lossy.output_law(otm.Grouped([[1], [0], [3], [2]], margin=1.0), parted)
    assert law[:2].sum() == pytest.approx(7 / 15, abs=1e-15)


def test_what_neighbours_accept_beside_the_frontier():
    place = np.arange(64)
    draft, target = (
        np.exp(-((place - centre) ** 2) / width) for centre, width in ((34, 72), (30, 128))
    )
    problem = otm.Problem(draft=draft / draft.sum(), target=target / target.sum(), law=otm.IID(1))
    assert (
        f"rejection accepts {otm.acceptance(otm.Maximal(), problem):.3f}".replace("0.", ".") in PAGE
    )
    rules = {
        "Lantern(2, delta=2.0)": otm.Lantern(2, delta=2.0),
        "Lantern(8, delta=0.05)": otm.Lantern(8, delta=0.05),
        "Grouped(7)": otm.Grouped(7),
        "Grouped()": otm.Grouped(),
        "ActionDistance(9)": otm.ActionDistance(9),
    }
    for name, rule in rules.items():
        spent = otm.lossy.distortion(rule, problem).total_variation
        best = otm.lossy.tv_frontier(problem, tv=spent)
        numbers = [
            f"{value:.3f}".removeprefix("0").replace("1.000", "1")
            for value in (otm.acceptance(rule, problem), spent, best)
        ]
        assert f"| `{name}` | {' | '.join(numbers)} |" in PAGE


def test_drafts_of_one_poisson_process():
    pair = {"draft": [0.5, 0.2, 0.15, 0.1, 0.05], "target": [0.1, 0.3, 0.05, 0.25, 0.3]}

    def row(name, value):
        return " | ".join([f"| {name}", *(f"{value(k):.3f}"[1:] for k in (2, 4))]) + " |"

    listed, different = (
        lambda k, law=law: otm.Problem(**pair, law=law(k))
        for law in (otm.IID, otm.WithoutReplacement)
    )
    race, lists = otm.Race(), otm.ListRace()
    for told in (
        row("independent, a race each (`ListRace`)", lambda k: otm.acceptance(lists, listed(k))),
        row("independent, one process (MPFR)", lambda k: otm.acceptance(race, listed(k))),
        row("the first k different arrivals of it", lambda k: otm.acceptance(race, different(k))),
        row(
            "the best for independent drafts, no watermark",
            lambda k: otm.optimal_acceptance(listed(k)),
        ),
    ):
        assert told in PAGE


def test_a_sampled_token_among_the_likeliest():
    law, target = np.array([0.0, 0.6, 0.4]), np.array([0.2, 0.2, 0.6])
    residual = np.maximum(target - law, 0.0)
    kept = target[1] / law[1]
    tried = kept * np.eye(3)[1] + (1 - kept) * residual / residual.sum()
    output = law[1] * tried + law[2] * target
    np.testing.assert_allclose(output, [0.28, 0.28, 0.44])
    assert 0.5 * abs(output - target).sum() == pytest.approx(4 / 25)
    # one of three drawn from all but the likeliest; if it is the second, the third fills its place
    draft, target = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    others = draft / draft[1:].sum()
    sets = {2: others[1] + others[2], 3: others[3]}
    # every set holds tokens 0 and 1: a flow from the sets to the outputs, as a linear program
    flow = linprog(
        -np.ones(2 * 3),
        A_ub=np.block(
            [
                [np.kron(np.eye(2), np.ones(3))],
                [np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]])],
                [np.array([[0, 0, 0, 0, 0, 1]])],
            ]
        ),
        b_ub=[sets[2], sets[3], *target[:3], target[3]],
    )
    changed = otm.Problem(
        draft=[0.45, 0.45, 0.1 * sets[2], 0.1 * sets[3]], target=target, law=otm.Greedy(3)
    )
    assert -flow.fun == pytest.approx(23 / 30)
    assert otm.acceptance(otm.GreedyOptimal(), changed) == pytest.approx(23 / 30)
    plain = otm.Problem(draft=draft, target=target, law=otm.Greedy(3))
    assert otm.optimal_acceptance(plain) == pytest.approx(14 / 15)


def _ends_of_the_accepted_length(accuracy):
    """Least and largest Σ_k Pr(first k right) over joint laws, by linear programs."""
    right = np.array(list(itertools.product((0, 1), repeat=len(accuracy))))
    length = np.cumprod(right, axis=1).sum(axis=1)
    equal = {"A_eq": np.vstack([right.T, np.ones(len(right))]), "b_eq": [*accuracy, 1.0]}
    return tuple(sign * linprog(sign * length, **equal).fun for sign in (1, -1))


def test_accepted_length_is_no_function_of_accuracies():
    accuracies, product = [0.8, 0.7, 0.6], np.cumprod([0.8, 0.7, 0.6]).sum()
    least, most = _ends_of_the_accepted_length(accuracies)
    assert f"says {product:.4g} accepted drafts" in PAGE
    assert f"at once it is {most:.4g}, if never in two at once {least:.4g}," in PAGE
    rng = np.random.default_rng(741)
    for _ in range(5):
        accuracy = rng.uniform(0.4, 1.0, size=4)
        low = np.maximum(0.0, 1.0 - np.cumsum(1.0 - accuracy)).sum()
        high = np.minimum.accumulate(accuracy).sum()
        assert _ends_of_the_accepted_length(accuracy.tolist()) == pytest.approx(
            (low, high), abs=1e-9
        )
        assert low <= np.cumprod(accuracy).sum() <= high


def test_recursive_rejection_of_distinct_siblings_is_not_optimal():
    problem = otm.Problem(
        draft=[1 / 3] * 3, target=[0.0, 1 / 3, 2 / 3], law=otm.WithoutReplacement(2)
    )
    assert otm.acceptance(otm.RecursiveRejection(), problem) == pytest.approx(5 / 6, abs=1e-15)
    assert otm.optimum(problem).lower == pytest.approx(1.0, abs=1e-9)
    assert "it accepts 5/6" in PAGE


def test_strict_and_probabilistic_rejection():
    same = otm.Problem(draft=[0.25] * 4, target=[0.25] * 4, law=otm.IID(1))
    found = [otm.acceptance(rule, same) for rule in (otm.Naive(), otm.Race(), otm.Maximal())]
    assert found == pytest.approx([0.25, 1.0, 1.0], abs=1e-15)
    sampled = otm.Problem(draft=[2 / 3, 1 / 3], target=[1.0, 0.0], law=otm.IID(1))
    greedy = sampled.with_law(otm.TopK(1))
    assert otm.acceptance(otm.Maximal(), sampled) == pytest.approx(2 / 3, abs=1e-15)
    assert otm.acceptance(otm.Naive(), greedy) == otm.optimal_acceptance(greedy) == 1.0
    rng = np.random.default_rng(35461)
    for p, q in rng.dirichlet(np.ones(6), size=(20, 2)):
        problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
        independent, shared, rejection = (
            otm.acceptance(rule, problem) for rule in (otm.Naive(), otm.Race(), otm.Maximal())
        )
        assert independent <= shared <= rejection <= 2 * shared
    assert "p = (2/3, 1/3), q = (1, 0) has 1 and 2/3" in PAGE


def _replaced(p, q, keep, instead):
    """Return the output's law: draft x is kept with min(1, keep/p), else `instead(x)` is drawn."""
    found = [Fraction(0)] * len(p)
    for x, mass in enumerate(p):
        if mass > 0:
            kept = min(Fraction(1), keep[x] / mass)
            found[x] += mass * kept
            for y, drawn in enumerate(instead(x) if kept < 1 else q):
                found[y] += mass * (1 - kept) * drawn
    return found


def _residual(p, q):
    excess = [max(y - x, Fraction(0)) for x, y in zip(p, q, strict=True)]
    return [one / sum(excess) for one in excess]


def _apart(left, right):
    return sum((abs(x - y) for x, y in zip(left, right, strict=True)), Fraction(0)) / 2


def test_replacements_from_the_target_have_their_closed_forms():
    """By enumeration in exact fractions, on the page's examples and on random pairs."""
    rng = np.random.default_rng(5)
    half, quarter = [Fraction(1, 2)] * 2, [Fraction(1, 4), Fraction(3, 4)]
    tenths = [Fraction(n, 10) for n in (4, 3, 2, 1)]
    masked = [Fraction(1, 3), Fraction(1, 3), Fraction(0), Fraction(1, 3)]
    named = [(half, quarter), ([Fraction(1), Fraction(0)], half), (tenths, masked)]
    drawn = [[[Fraction(int(n)) for n in rng.integers(0, 9, 5)] for _ in range(2)] for _ in "abcde"]
    random = [tuple([one / sum(row) for one in row] for row in pair) for pair in drawn]
    said = []
    for p, q in (*named, *random):
        residual = _residual(p, q)
        alpha = sum(map(min, p, q), Fraction(0))
        assert _replaced(p, q, q, lambda x, to=residual: to) == q
        off = _apart(_replaced(p, q, q, lambda x, to=q: to), q)
        assert off == (1 - alpha) * _apart(q, residual) <= alpha * (1 - alpha)
        loose = [Fraction(3, 2) * one for one in q]
        kept = list(map(min, p, loose))
        lenient = [_apart(_replaced(p, q, loose, lambda x, to=to: to), q) for to in (q, residual)]
        assert lenient[0] == sum(max(a - sum(kept) * y, 0) for a, y in zip(kept, q, strict=True))
        assert lenient[1] == sum(max(a - y, 0) for a, y in zip(kept, q, strict=True)) <= lenient[0]
        forced = _apart(
            _replaced(p, q, q, lambda x, q=q, rest=residual: rest if q[x] > 0 else q), q
        )
        forbidden = sum(x for x, y in zip(p, q, strict=True) if y == 0)
        assert forced == forbidden * _apart(q, residual)
        said.append((off, *lenient, forced))
    for found in (said[0][0], said[1][0], *said[0][1:3], said[2][3]):
        assert f"| {found} |" in PAGE, found


def test_a_first_token_accepted_as_often_as_can_be_costs_tokens():
    """The program over all antichains of paths of two sequences, and `best_step` beside it."""
    tables = [
        {
            (): [1 / 2, 1 / 4, 1 / 4],
            (0,): [0.2, 0.4, 0.4],
            (1,): [0.4, 0.4, 0.2],
            (2,): [1, 0, 0],
        },
        {
            (): [1 / 6, 1 / 3, 1 / 2],
            (0,): [0.8, 0.2, 0],
            (1,): [0, 1, 0],
            (2,): [4 / 9, 1 / 9, 4 / 9],
        },
    ]
    draft, target = (
        TableModel(one | {(x, y): one[x,] for x in range(3) for y in range(3)}) for one in tables
    )
    paths = [path for n in (1, 2) for path in itertools.product(range(3), repeat=n)]
    place = {path: i for i, path in enumerate(paths)}
    drawn = [np.prod([tables[0][u[:i]][u[i]] for i in range(len(u))]) for u in paths]
    rows, most = [], []
    for path in paths:  # f(uy) ≤ q(y | u) f(u)
        row, wanted = np.eye(12)[place[path]], tables[1][path[:-1]][path[-1]]
        if path[:-1]:
            row[place[path[:-1]]] = -wanted
        rows.append(row)
        most.append(0.0 if path[:-1] else wanted)
    for chosen in itertools.product((0.0, 1.0), repeat=12):
        inside = [path for path in paths if chosen[place[path]]]
        if inside and not any(path[:1] in inside for path in inside if len(path) == 2):
            rows.append(np.array(chosen))
            most.append(1.0 - (1.0 - np.dot(chosen, drawn)) ** 2)
    first = np.repeat([1.0, 0.0], [3, 9])[None]
    best = linprog(-np.ones(12), A_ub=rows, b_ub=most)
    pair = otm.Problem(draft=tables[0][()], target=tables[1][()], law=otm.IID(2))
    alpha = otm.optimal_acceptance(pair)
    least = linprog(-np.ones(12), A_ub=rows, b_ub=most, A_eq=first, b_eq=[alpha - 1e-12])
    assert alpha == pytest.approx(11 / 12, abs=1e-14) and "α* = 11/12" in PAGE
    assert best.x[:3].sum() == pytest.approx(133 / 150, abs=1e-9) and "133/150" in PAGE
    found = best_step(RefinedScores(2, 2), draft=draft, target=target, context=[])
    assert found.value - 1.0 == pytest.approx(-best.fun, abs=1e-8)
    assert f"accepts {-best.fun:.4f} drafts in the mean" in PAGE
    assert f"accepts {-least.fun:.4f} drafts at most" in PAGE


def test_replacements_from_the_target_on_the_contexts_of_a_figure():
    data = json.loads((ROOT / "figures" / "data" / "figure4.json").read_text(encoding="utf-8"))
    laws = [
        {tuple(row["context"]): dict(zip(row["tokens"], row["mass"], strict=True)) for row in side}
        for side in (data["draft"], data["target"])
    ]
    off = []
    for context, drafted in laws[0].items():
        target = laws[1][context]
        names = sorted({*drafted, *target})
        p, q = (np.array([law.get(name, 0.0) for name in names]) for law in (drafted, target))
        kept = np.minimum(p, q)
        off.append(np.abs(kept + (1 - kept.sum()) * q - q).sum() / 2)
    assert len(off) == 16
    sentence = f"the first is {np.mean(off):.3f} in the mean and {np.max(off):.3f} at most"
    assert sentence.replace("0.", ".") in PAGE


def test_jacobi_couplings():
    turning = MarkovModel([[0.25, 0.75], [0.75, 0.25]])
    for coupling, steps in (
        ("independent", "121/64"),
        ("maximal", "359/192"),
        ("inversion", "119/64"),
    ):
        found = jacobi_law(Jacobi(3, coupling), model=turning, context=[0], length=4)
        assert found.steps == pytest.approx(float(Fraction(steps)), abs=1e-13)
        assert found.distribution == pytest.approx(sequence_law(turning, [0], 4), abs=1e-14)
        assert steps in PAGE
    # draws until one repeats the last: ends[y] = q(y)·stay + (1 − q(y))·(ends from the other)
    q = np.array([2 / 3, 1 / 3])
    from_first = np.linalg.solve([[1, -q[1]], [-q[0], 1]], [q[0], 0.0])
    assert q @ from_first == pytest.approx(16 / 21, abs=1e-15)
    assert "16/21" in PAGE
