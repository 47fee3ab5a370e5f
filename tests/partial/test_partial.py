"""Partial knowledge: the truth is always inside and completions reach the ends; enumeration, linear programs and search say so."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import otm
from otm import partial
from otm.divergences import harmonic_mean_distance, kl_divergence, total_variation
from otm.partial import Completion, Interval, PartialPair, TopTokens
from otm.partial.completion import complete_closely, complete_furthest
from tests import strategies

KS = [1, 2, 3, 8]
SCHEMES = {"kseq": otm.KSeq(), "recursive": otm.RecursiveRejection()}
DIVERGENCES = ("total_variation", "kl_target_draft", "kl_draft_target", "harmonic_mean")
LEVELS = [0.1, 0.5, 0.9, 1.0, 1.3, 2.0, 5.0]

# Completions are sums of at most 30 masses here, each within a few units of roundoff, and the solver HiGHS stops at 1e-9 at most.
ROUNDING, SOLVER = 1e-12, 1e-8


def _iid(p: Any, q: Any, k: int) -> otm.Problem:
    return otm.Problem(draft=p, target=q, law=otm.IID(k))


def overlap_of(pair: PartialPair) -> Interval:
    """Σ min(p, q), the one draft of the optimum."""
    ends = partial.optimal_acceptance(pair, k=[1])
    return Interval(*(getattr(ends, f.name)[0] for f in dataclasses.fields(ends)))


def intervals(pair: PartialPair) -> dict[str, Interval]:
    """Every interval of one position, one per quantity and k."""
    found = {"overlap": overlap_of(pair)}
    curves = {"optimum": partial.optimal_acceptance(pair, k=KS)}
    curves |= {name: partial.acceptance(verifier, pair, k=KS) for name, verifier in SCHEMES.items()}
    for name, curve in curves.items():
        for i, k in enumerate(KS):
            found[f"{name} {k}"] = Interval(*(getattr(curve, f.name)[i] for f in dataclasses.fields(curve)))
    divergences = partial.divergences(pair)
    return found | {f.name: getattr(divergences, f.name) for f in dataclasses.fields(divergences)}


def quantity(name: str, p: np.ndarray, q: np.ndarray) -> float:
    """One of the same quantities of fully known distributions, by the library's dense functions."""
    kind, *k = name.split()
    if kind in SCHEMES:
        return float(otm.acceptance(SCHEMES[kind], _iid(p, q, int(k[0]))))
    return {
        "overlap": lambda: min(1.0, float(np.minimum(p, q).sum())),  # masses of sum 1 + 2u overlap by as much
        "optimum": lambda: float(otm.optimal_acceptance(_iid(p, q, int(k[0])))),
        "total_variation": lambda: total_variation(draft=p, target=q),
        "kl_target_draft": lambda: kl_divergence(draft=p, target=q),
        "kl_draft_target": lambda: kl_divergence(draft=q, target=p),
        "harmonic_mean": lambda: harmonic_mean_distance(draft=p, target=q),
    }[kind]()


def dense(p: np.ndarray, q: np.ndarray) -> dict[str, float]:
    """All of them, each curve from one call."""
    found = {name: quantity(name, p, q) for name in ("overlap", *DIVERGENCES)}
    curves = {name: otm.acceptance_curve(scheme, _iid(p, q, 1), k=KS) for name, scheme in SCHEMES.items()}
    curves["optimum"] = otm.optimal_acceptance_curve(_iid(p, q, 1), k=KS)
    return found | {f"{name} {k}": float(values[i]) for name, values in curves.items() for i, k in enumerate(KS)}


def assert_inside(pair: PartialPair, p: np.ndarray, q: np.ndarray) -> None:
    values = dense(p, q)
    for name, interval in intervals(pair).items():
        assert interval.contains(values[name]), (name, interval, values[name])


def spread(pair: PartialPair, completion: Completion, num_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Write a completion of one row as distributions on V tokens, and check that it is admissible: a witness, not a claim."""
    p, q = np.zeros(num_tokens), np.zeros(num_tokens)
    listed = np.concatenate([pair.draft.tokens, pair.target.tokens])
    width = len(listed)
    np.add.at(p, listed[listed >= 0], completion.draft[:width][listed >= 0])
    np.add.at(q, listed[listed >= 0], completion.target[:width][listed >= 0])
    free = iter(sorted(set(range(num_tokens)) - set(listed.tolist())))
    for lump in range(width, len(completion.count)):
        tokens = list(itertools.islice(free, int(completion.count[lump])))
        assert len(tokens) == completion.count[lump], "more tokens than there are"
        p[tokens] += completion.draft[lump] / max(len(tokens), 1)
        q[tokens] += completion.target[lump] / max(len(tokens), 1)
    for mass, side in ((p, pair.draft), (q, pair.target)):
        others = np.ones(num_tokens, dtype=bool)
        others[side.tokens[side.tokens >= 0]] = False
        np.testing.assert_allclose(mass[side.tokens[side.tokens >= 0]], side.probabilities[side.tokens >= 0], atol=ROUNDING)
        assert mass.sum() == pytest.approx(1.0, abs=ROUNDING)
        assert mass[others].max(initial=0.0) <= side.cap + ROUNDING
        assert mass.min() >= 0.0
    return p, q


def lowest_overlap(pair: PartialPair, num_tokens: int, level: float) -> float:
    """min over completions of H(t), by enumeration of all sets.

    H(t) = min_T [Q(T) + t − t P(T)]; for one T the completions of p and of q are independent: as much of p's tail in T as the caps
    admit, as much of q's outside. Exact whatever the lists hold.
    """
    q_in, p_in = _extreme_masses(pair, num_tokens)
    return float(np.min(q_in - level * p_in)) + level


def lowest_optimum(pair: PartialPair, num_tokens: int, k: int) -> float:
    """min over completions of α*_k = 1 + min_T [Q(T) − P(T)^k], by the same enumeration."""
    q_in, p_in = _extreme_masses(pair, num_tokens)
    return float(1.0 + np.min(q_in - p_in**k))


def _extreme_masses(pair: PartialPair, num_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every set T, the least Q(T) and the largest P(T) over completions."""
    sides = []
    for side in (pair.draft, pair.target):
        known = np.full(num_tokens, np.nan)
        known[side.tokens[side.tokens >= 0]] = side.probabilities[side.tokens >= 0]
        sides.append((known, float(side.tail), float(side.cap)))
    inside = np.array(list(itertools.product([0.0, 1.0], repeat=num_tokens)))
    (p, p_tail, p_cap), (q, q_tail, q_cap) = sides
    p_in = inside @ np.nan_to_num(p) + np.minimum(p_tail, p_cap * (inside @ np.isnan(p)))
    q_in = inside @ np.nan_to_num(q) + np.maximum(0.0, q_tail - q_cap * ((1.0 - inside) @ np.isnan(q)))
    return q_in, p_in


def highest_overlap(pair: PartialPair, num_tokens: int, level: float) -> float:
    """max over completions of H(t) = Σ min(q, t p), a linear program in (p, q, minimum)."""
    bounds, equal, right = [], np.zeros((2, 3 * num_tokens)), []
    for i, side in enumerate((pair.draft, pair.target)):
        known = dict(zip(side.tokens.tolist(), side.probabilities.tolist(), strict=True))
        bounds += [(known[x], known[x]) if x in known else (0.0, float(side.cap)) for x in range(num_tokens)]
        equal[i, i * num_tokens : (i + 1) * num_tokens] = 1.0
        right.append(sum(v for x, v in known.items() if x >= 0) + float(side.tail))
    bounds += [(0.0, None)] * num_tokens
    eye = np.eye(num_tokens)
    below = np.block([[-level * eye, 0 * eye, eye], [0 * eye, -eye, eye]])
    cost = np.concatenate([np.zeros(2 * num_tokens), -np.ones(num_tokens)])
    # Fixed variables and equalities agree only to rounding: leave the solver room, it is far below its own tolerance.
    solved = linprog(cost, A_ub=below, b_ub=np.zeros(2 * num_tokens), A_eq=equal, b_eq=right, bounds=bounds, method="highs")
    assert solved.status == 0, solved.message
    return -float(solved.fun)


def curve(completion: Completion, level: float) -> float:
    return float(np.minimum(completion.target, level * completion.draft).sum())


def _instances(count: int, *, seed: int, most: int = 7) -> list[tuple[np.ndarray, np.ndarray, PartialPair]]:
    """Random pairs with known V, lists of different lengths, concentrated and flat: crowded tails are common."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        num_tokens = int(rng.integers(2, most + 1))
        p, q = (rng.dirichlet(np.full(num_tokens, rng.choice([0.3, 1.0, 10.0]))) for _ in range(2))
        m = rng.integers(1, num_tokens + 1, size=2)
        found.append(
            (p, q, PartialPair(draft=TopTokens.of(p, m=int(m[0])), target=TopTokens.of(q, m=int(m[1])), num_tokens=num_tokens))
        )
    return found


@given(strategies.pairs(max_tokens=6), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_the_truth_is_inside(pair: tuple[np.ndarray, np.ndarray], first: int, second: int, size_known: bool) -> None:
    p, q = pair
    tops = TopTokens.of(p, m=first), TopTokens.of(q, m=second)
    assert_inside(PartialPair(draft=tops[0], target=tops[1], num_tokens=len(p) if size_known else None), p, q)


def test_ends_are_attained_by_admissible_completions() -> None:
    for _, _, pair in _instances(60, seed=1):
        lowest, highest = (dense(*spread(pair, c, pair.num_tokens)) for c in (pair.furthest, pair.closest))
        for name, interval in intervals(pair).items():
            if name.startswith("recursive") and not name.endswith(" 1"):
                assert not interval.is_tight
                continue
            assert interval.is_tight
            ends = (
                (lowest[name], highest[name])
                if name.split()[0] in ("overlap", "optimum", "kseq", "recursive")
                else (
                    highest[name],
                    lowest[name],
                )
            )
            # The completion may be off its own end by rounding and by the slack that the end was moved.
            for end, value in zip((interval.lower, interval.upper), ends, strict=True):
                assert end == value or abs(end - value) <= interval.slack + 1e-9 * abs(value), (name, interval, ends)


def test_lower_ends_against_enumeration_of_all_sets() -> None:
    crowded = 0
    for _, _, pair in _instances(40, seed=2):
        exact = [lowest_optimum(pair, pair.num_tokens, k) for k in KS]
        ends = partial.optimal_acceptance(pair, k=KS)
        np.testing.assert_allclose(ends.lower, np.maximum(exact - ends.slack, 0.0), atol=ROUNDING)
        for level in LEVELS:
            assert curve(pair.furthest, level) == pytest.approx(lowest_overlap(pair, pair.num_tokens, level), abs=ROUNDING)
        crowded += bool(
            pair.furthest.count[len(pair.draft.tokens) + len(pair.target.tokens) :].sum() == pair.layout.spare[0] > 0
        )
    assert crowded >= 10, "the instances must exercise tails that cannot avoid each other"


def test_closest_curve_is_highest_at_every_level_at_once() -> None:
    for _, _, pair in _instances(25, seed=3):
        for level in LEVELS[1:6]:
            assert curve(pair.closest, level) == pytest.approx(highest_overlap(pair, pair.num_tokens, level), abs=SOLVER)


def test_no_completion_found_by_search_leaves_an_interval() -> None:
    # Vertices (tails poured into tokens in random order) and mixtures of them; climbing on K-SEQ and on recursive rejection, whose
    # extremes are not vertices' business.
    rng = np.random.default_rng(4)
    for _, _, pair in _instances(12, seed=5):
        found = intervals(pair)
        for name in ("kseq 3", "recursive 3", "kl_draft_target", "optimum 8"):
            for sign in (1.0, -1.0):
                best = [_pour(side, pair.num_tokens, rng) for side in (pair.draft, pair.target)]
                value = quantity(name, *best)
                for _ in range(12):
                    step = rng.choice([1.0, 0.5, 0.1])
                    moved = [
                        (1 - step) * m + step * _pour(s, pair.num_tokens, rng)
                        for m, s in zip(best, (pair.draft, pair.target), strict=True)
                    ]
                    reached = quantity(name, *moved)
                    assert found[name].contains(reached), (name, found[name], reached)
                    if sign * reached > sign * value:
                        best, value = moved, reached


def _pour(side: TopTokens, num_tokens: int, rng: np.random.Generator) -> np.ndarray:
    mass = np.zeros(num_tokens)
    mass[side.tokens[side.tokens >= 0]] = side.probabilities[side.tokens >= 0]
    left = float(side.tail)
    for token in rng.permutation(list(set(range(num_tokens)) - set(side.tokens.tolist()))):
        mass[token] = min(left, float(side.cap))
        left -= mass[token]
    return mass / mass.sum()


def test_more_knowledge_never_widens() -> None:
    for p, q, _ in _instances(15, seed=6):
        before: dict[str, Interval] | None = None
        for m in range(1, len(p) + 1):
            now = intervals(PartialPair(draft=TopTokens.of(p, m=m), target=TopTokens.of(q, m=m), num_tokens=len(p)))
            for name in before or {}:
                # Slack grows with the length of the list, by some units of roundoff.
                slack = now[name].slack + before[name].slack
                assert now[name].lower >= before[name].lower - slack
                assert now[name].upper <= before[name].upper + slack
            before = now
        assert before is not None
        values = dense(p, q)
        for name, interval in before.items():
            assert interval.lower - interval.slack <= values[name] <= interval.upper + interval.slack
            assert interval.width <= 3 * interval.slack or math.isinf(values[name]) or name.startswith("recursive")


def test_by_hand() -> None:
    # p = (½, ¼ | tail ¼), q = (¼, ·, ¼ | tail ½), caps ¼. V unknown. Disjoint tails: overlap ¼ on token 0 alone.
    one, two = TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25]), TopTokens(tokens=[0, 2], probabilities=[0.25, 0.25])
    pair = PartialPair(draft=one, target=two)
    ends = overlap_of(pair)
    # Closest: ρ solves ½ − ρ/4 = ρ(¼ − 1/(4ρ)), so ρ = 3/2; q(1) = min(3/8, ¼) is capped, hence ½ − ¼ = ρ/4 − ¼ and ρ = 2:
    # q(1) = ¼, p(2) = 1/8, and the spare tokens have p-mass 1/8, q-mass ¼. Overlap ¼ + ¼ + 1/8 + 1/8 = ¾.
    np.testing.assert_allclose(pair.closest.draft, [0.5, 0.25, 0.0, 0.125, 0.125], atol=1e-15)
    np.testing.assert_allclose(pair.closest.target, [0.25, 0.25, 0.0, 0.25, 0.25], atol=1e-15)
    assert ends.upper == pytest.approx(0.75, abs=1e-13)
    assert ends.lower == pytest.approx(0.25, abs=1e-13)
    # With V = 4 there is one spare token. p's tail takes it, q's takes it too and then token 1: ¼ + ¼ + ¼.
    crowded = PartialPair(draft=one, target=two, num_tokens=4)
    assert overlap_of(crowded).lower == pytest.approx(0.75, abs=1e-13)
    # With V = 5 q's tail goes to token 4 and half of … to token 1: two tokens at cap ¼ are needed, p's one and q's two exceed two.
    assert overlap_of(PartialPair(draft=one, target=two, num_tokens=5)).lower == pytest.approx(0.5, abs=1e-13)
    assert overlap_of(PartialPair(draft=one, target=two, num_tokens=6)).lower == pytest.approx(0.25, abs=1e-13)


class TestMutants:
    """What is wrong without a cap, or with a token known to one model taken as impossible in the other."""

    def test_without_the_cap_ends_are_not_attained(self) -> None:
        caught = [0, 0]
        for _, _, pair in _instances(40, seed=7):
            no_cap = dataclasses.replace(
                pair.layout, draft_cap=0 * pair.layout.draft_cap + 1, target_cap=0 * pair.layout.target_cap + 1
            )
            for i, (complete, oracle) in enumerate(((complete_closely, highest_overlap), (complete_furthest, lowest_overlap))):
                caught[i] += abs(curve(complete(no_cap, ()), 1.0) - oracle(pair, pair.num_tokens, 1.0)) > 1e-3
        assert min(caught) >= 5, caught

    def test_a_token_known_to_one_model_only_is_not_impossible_in_the_other(self) -> None:
        outside = 0
        for p, q, pair in _instances(40, seed=8):
            known = pair.layout
            nowhere = np.zeros_like(known.only_draft)
            mutant = complete_closely(
                dataclasses.replace(known, only_draft=nowhere, only_target=nowhere, spare=known.spare + known.draft.shape[1]),
                (),
            )
            outside += curve(mutant, 1.0) < np.minimum(p, q).sum() - 1e-3
        assert outside >= 5, outside

    def test_without_the_number_of_tokens_lower_ends_are_lower(self) -> None:
        loose = 0
        for _, _, pair in _instances(40, seed=9):
            free = PartialPair(draft=pair.draft, target=pair.target)
            assert overlap_of(free).lower <= overlap_of(pair).lower + ROUNDING
            loose += overlap_of(free).lower < overlap_of(pair).lower - 1e-3
        assert loose >= 5, loose


def test_a_sampled_token_below_the_cap() -> None:
    # Engines add the sampled token to the list. The cap is then the least of the others, and where tails are crowded the lower
    # end is a bound that need not be attained. V = 7, both tails flat.
    rng = np.random.default_rng(10)
    outcomes = {True: 0, False: 0}
    for _ in range(60):
        p, q = rng.dirichlet(np.full(7, 4.0)), rng.dirichlet(np.full(7, 4.0))
        tops = []
        for mass in (p, q):
            order = np.argsort(-mass)
            listed = np.append(order[:2], rng.choice(order[2:]))
            tops.append(TopTokens(tokens=listed, probabilities=mass[listed], tail=1 - mass[listed].sum(), cap=mass[order[1]]))
        pair = PartialPair(draft=tops[0], target=tops[1], num_tokens=7)
        assert_inside(pair, p, q)
        exact, found = lowest_overlap(pair, 7, 1.0), overlap_of(pair)
        assert found.lower <= exact + ROUNDING
        outcomes[bool(found.lower_is_attained)] += 1
        if found.lower_is_attained:
            assert found.lower == pytest.approx(exact, abs=ROUNDING)
        assert curve(pair.closest, 1.3) == pytest.approx(highest_overlap(pair, 7, 1.3), abs=SOLVER)
    assert min(outcomes.values()) >= 10, outcomes


@pytest.mark.parametrize("digits", [2, 4, 6])
def test_rounded_log_probabilities(digits: int) -> None:
    rng = np.random.default_rng(11)
    rounding, outside = 0.5 * 10.0**-digits, 0
    for _ in range(30):
        p, q = rng.dirichlet(np.full(6, 1.0)), rng.dirichlet(np.full(6, 1.0))
        pairs = []
        for bound in (rounding, 0.0):
            tops = []
            for mass, m in ((p, 6), (q, 5)):
                top = TopTokens.of(mass, m=m)
                logs = np.round(np.log(top.probabilities), digits) if bound else np.log(top.probabilities)
                tops.append(TopTokens(tokens=top.tokens, probabilities=np.exp(logs), rounding=bound))
            pairs.append(PartialPair(draft=tops[0], target=tops[1], num_tokens=6))
        assert_inside(pairs[0], p, q)
        # Power: taken at face value, the rounded lists often exclude the truth.
        ends, true = partial.optimal_acceptance(pairs[0], k=[4]), otm.optimal_acceptance(_iid(p, q, 4))
        bare = ends.lower[0] + ends.slack[0], ends.upper[0] - ends.slack[0]
        outside += not bare[0] - ROUNDING <= true <= bare[1] + ROUNDING
        assert ends.slack[0] <= 5 * 1.2 * math.exp(rounding) * math.expm1(rounding) * 3 + ROUNDING
    assert outside >= 5, outside


def test_relative_entropy_by_its_curve() -> None:
    # With shifts 0 the integral that bounds the relative entropy from below is the relative entropy.
    from otm.partial.distances import _shifted_kl

    rng = np.random.default_rng(12)
    p, q = rng.dirichlet(np.ones(6), size=20), rng.dirichlet(np.ones(6), size=20)
    none = np.zeros(20)
    np.testing.assert_allclose(_shifted_kl(p, q, none, none), kl_divergence(draft=p, target=q), atol=1e-12)
    assert (_shifted_kl(p, q, none + 0.01, none + 0.02) < kl_divergence(draft=p, target=q)).all()
    np.testing.assert_array_equal(_shifted_kl(p, p, none, none), none)


def test_recursive_rejection_is_not_monotone_in_the_curve() -> None:
    # Merging tokens 0 and 2 raises the curve everywhere and lowers the acceptance: 1 − 1/16 against 1 − .0975.
    p, q = np.array([0.25, 0.35, 0.4]), np.array([0.0, 0.5, 0.5])
    near_p, near_q = np.array([0.65, 0.35]), np.array([0.5, 0.5])
    for level in LEVELS:
        assert np.minimum(near_q, level * near_p).sum() >= np.minimum(q, level * p).sum() - ROUNDING
    far, near = (otm.acceptance(otm.RecursiveRejection(), _iid(*pair, 2)) for pair in ((p, q), (near_p, near_q)))
    assert far == pytest.approx(0.9375, abs=1e-14)
    assert near == pytest.approx(0.9025, abs=1e-14)


def test_kseq_at_a_given_factor() -> None:
    for p, q, pair in _instances(20, seed=13):
        highest = float(partial.gamma_star(pair, k=[3]).upper[0])
        star = float(otm.verifiers.gamma_star(_iid(p, q, 3)))
        assert partial.gamma_star(pair, k=[3]).contains(star).all() or overlap_of(pair).upper < 1e-9
        ends = partial.acceptance(otm.KSeq(highest + 0.25), pair, k=[3])
        assert ends.contains(otm.acceptance(otm.KSeq(gamma=highest + 0.25), _iid(p, q, 3), by="rule")).all()
        for completion, end in ((pair.furthest, ends.lower), (pair.closest, ends.upper)):
            problem = _iid(*spread(pair, completion, pair.num_tokens), 3)
            value = otm.acceptance(otm.KSeq(gamma=highest + 0.25), problem, by="rule")
            assert abs(end[0] - value) <= 2 * ends.slack[0] + ROUNDING
        if highest > 1.01:
            with pytest.raises(otm.errors.InvalidParameter, match="largest gamma"):
                partial.acceptance(otm.KSeq(1.0), pair, k=[3])


def test_batches_are_rows_and_padding_is_nothing() -> None:
    rng = np.random.default_rng(14)
    p, q = rng.dirichlet(np.ones(9), size=(2, 3)), rng.dirichlet(np.ones(9), size=(2, 3))
    first, second = TopTokens.of(p, m=4), TopTokens.of(q, m=6)
    padded = TopTokens(
        tokens=np.concatenate([first.tokens, np.full((2, 3, 2), -1)], axis=-1),
        probabilities=np.concatenate([first.probabilities, np.zeros((2, 3, 2))], axis=-1),
        tail=first.tail,
    )
    whole, wide = (PartialPair(draft=side, target=second, num_tokens=9) for side in (first, padded))
    curves = {
        pair: (partial.optimal_acceptance(pair, k=KS), partial.acceptance(otm.KSeq(), pair, k=KS)) for pair in (whole, wide)
    }
    assert curves[whole][0].lower.shape == (4, 2, 3)
    for i, j in np.ndindex(2, 3):
        row = PartialPair(draft=TopTokens.of(p[i, j], m=4), target=TopTokens.of(q[i, j], m=6), num_tokens=9)
        for pair in (whole, wide):
            for batch, single in zip(
                curves[pair], (partial.optimal_acceptance(row, k=KS), partial.acceptance(otm.KSeq(), row, k=KS)), strict=True
            ):
                np.testing.assert_allclose(batch.lower[:, i, j], single.lower, atol=ROUNDING)
                np.testing.assert_allclose(batch.upper[:, i, j], single.upper, atol=ROUNDING)
    assert partial.optimal_acceptance(row, k=[1]).lower.shape == (1,)
    assert isinstance(partial.divergences(row).total_variation.lower, float)


def test_tails_without_mass_and_lists_of_one() -> None:
    sure = TopTokens(tokens=[3], probabilities=[1.0], tail=0.0)
    assert float(sure.tail) == 0.0
    other = TopTokens(tokens=[3], probabilities=[0.25])
    pair = PartialPair(draft=sure, target=other)
    ends = overlap_of(pair)
    assert (ends.lower, ends.upper) == (pytest.approx(0.25, abs=1e-13), pytest.approx(0.25, abs=1e-13))
    divergences = partial.divergences(pair)
    assert divergences.kl_target_draft.lower == math.inf
    assert divergences.kl_draft_target.upper == pytest.approx(math.log(4), abs=1e-9)
    apart = PartialPair(draft=TopTokens(tokens=[0], probabilities=[1.0]), target=TopTokens(tokens=[1], probabilities=[1.0]))
    assert partial.optimal_acceptance(apart, k=[5]).upper[0] <= 1e-13
    nothing = PartialPair(draft=TopTokens(tokens=[-1], probabilities=[0.0]), target=TopTokens(tokens=[-1], probabilities=[0.0]))
    free = overlap_of(nothing)
    assert (free.lower, free.upper) == (0.0, 1.0)
    assert free.is_tight


def test_at_real_size() -> None:
    # V = 128,256 with flat tails: both together need more tokens than there are, so V matters, and the witness is checked.
    rng = np.random.default_rng(15)
    num_tokens = 128_256
    p, q = rng.dirichlet(np.full(num_tokens, 20.0)), rng.dirichlet(np.full(num_tokens, 20.0))
    pair = PartialPair(draft=TopTokens.of(p, m=50), target=TopTokens.of(q, m=50), num_tokens=num_tokens)
    low, high = (spread(pair, completion, num_tokens) for completion in (pair.furthest, pair.closest))
    ends, true = partial.optimal_acceptance(pair, k=[1, 4]), otm.optimal_acceptance_curve(_iid(p, q, 1), k=[1, 4])
    assert ends.contains(true).all()
    for i, k in enumerate((1, 4)):
        # Running sums of 128,256 masses err by √V·u in practice, V·u = 1.4e-11 at worst.
        assert otm.optimal_acceptance(_iid(*low, k)) == pytest.approx(ends.lower[i], abs=2e-11)
        assert otm.optimal_acceptance(_iid(*high, k)) == pytest.approx(ends.upper[i], abs=2e-11)
    free = PartialPair(draft=pair.draft, target=pair.target)
    assert ends.lower[0] > overlap_of(free).lower + 1e-3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokens": [0, 0], "probabilities": [0.5, 0.25]}, "token 0 twice"),
        ({"tokens": [0, 1], "probabilities": [0.75, 0.5]}, "sum to 1 within"),
        ({"tokens": [0, 1], "probabilities": [0.5, float("nan")]}, "finite and non-negative"),
        ({"tokens": [0, 1], "probabilities": [-1.0, -2.0]}, "Exponentiate"),
        ({"tokens": [0, -1], "probabilities": [0.5, 0.25]}, "Padding"),
        ({"tokens": [0, -2], "probabilities": [0.5, 0.25]}, "at least 0, or −1"),
        ({"tokens": [0.0, 1.0], "probabilities": [0.5, 0.25]}, "must be integers"),
        ({"tokens": [0], "probabilities": [0.5, 0.25]}, "share one shape"),
        ({"tokens": [0, 1], "probabilities": [0.5, 0.25], "tail": 0.5}, "sum to 1 within"),
        ({"tokens": [0, 1], "probabilities": [0.5, 0.0]}, "caps each of them at 0"),
        ({"tokens": [0, 1], "probabilities": [0.5, 0.25], "tail": [0.25]}, "one value per row"),
        ({"tokens": [0, 1], "probabilities": [0.5, 0.25], "rounding": 0.5}, "rounding"),
        ({"tokens": [], "probabilities": []}, "m ≥ 1"),
        ({"tokens": [0, 1], "probabilities": np.array([0.5, 0.25], dtype=np.float16)}, "float32 or float64"),
    ],
)
def test_lists_that_describe_no_distribution(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(otm.OtmError, match=message):
        TopTokens(**fields)


def test_pairs_that_cannot_be() -> None:
    half, wide = TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25]), TopTokens(tokens=[[0, 1]], probabilities=[[0.5, 0.25]])
    for arguments, error, message in (
        ({"draft": half, "target": wide}, otm.errors.ShapeMismatch, "same leading axes"),
        ({"draft": half, "target": half, "num_tokens": 1}, otm.errors.InvalidParameter, "exceed every listed"),
        ({"draft": half, "target": half, "num_tokens": 2}, otm.errors.InvalidDistribution, "cannot hold its tail"),
        ({"draft": half, "target": [0.5, 0.5]}, otm.errors.InvalidParameter, "TopTokens.of"),
        (
            {"draft": half, "target": TopTokens(tokens=[2, 3], probabilities=[0.5, 0.5]), "num_tokens": 3},
            otm.errors.InvalidParameter,
            "exceed every listed",
        ),
    ):
        with pytest.raises(error, match=message):
            PartialPair(**arguments)
    pair = PartialPair(draft=half, target=half)
    for bad in ([], [0], 2, [1.5]):
        with pytest.raises(otm.errors.InvalidParameter):
            partial.optimal_acceptance(pair, k=bad)


def test_a_tail_that_rounding_hides_is_not_taken_for_nothing() -> None:
    """A list that sums to 1 in float64 may hide a tail of 1e-17: the relative entropy is then large, not infinite."""
    whole, half = TopTokens(tokens=[0], probabilities=[1.0]), TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5])
    ends = partial.divergences(PartialPair(draft=whole, target=half)).kl_target_draft
    truth = 0.5 * np.log(0.5) + 0.5 * np.log(0.5 / 1e-18)  # p = (1 − 1e-18, 1e-18)
    assert ends.lower <= truth <= ends.upper
    assert not ends.is_tight
    # Nothing is hidden where every token is listed, or where the caller says so.
    listed = TopTokens(tokens=[0, 1], probabilities=[1.0, 0.0])
    assert partial.divergences(PartialPair(draft=listed, target=half, num_tokens=2)).kl_target_draft.lower == np.inf
    told, other = (
        TopTokens(tokens=[0], probabilities=[1.0], tail=0.0),
        TopTokens(tokens=[0, 1], probabilities=[0.5, 0.5], tail=0.0),
    )
    assert partial.divergences(PartialPair(draft=told, target=other)).kl_target_draft.lower == np.inf


def _random_masses(rng: np.random.Generator, num_tokens: int) -> np.ndarray:
    """Ties, tiny masses, and heavy tokens that leave a tail of 1e-9 of which 1 − Σ keeps seven digits."""
    kinds = ([1.0, 2.0, 3.0], [0.0, 1.0, 1.0, 2.0], [1.0, 1e-30, 1e-300, 0.0], [1.0, 1e-8, 1e-17])
    weights = rng.choice(kinds[rng.integers(len(kinds))], num_tokens)
    weights[rng.integers(num_tokens)] = 1.0
    return np.asarray(weights / weights.sum())


def _random_list(rng: np.random.Generator, mass: np.ndarray) -> TopTokens:
    """The likeliest tokens with their exact or derived tail, or any tokens with the tightest cap."""
    order, style, count = np.argsort(-mass, kind="stable"), rng.integers(3), rng.integers(1, len(mass) + 1)
    if style == 0:
        return TopTokens.of(mass, m=int(count))
    if style == 1:
        return TopTokens(tokens=order[:count], probabilities=mass[order[:count]])
    listed, rest = np.split(rng.permutation(len(mass)), [count])
    cap = np.asarray(mass[rest].max(initial=0.0))
    return TopTokens(tokens=listed, probabilities=mass[listed], tail=np.asarray(mass[rest].sum()), cap=cap)


def test_no_divergence_leaves_its_interval_where_tails_tie_with_caps_or_are_nearly_lost() -> None:
    rng = np.random.default_rng(3)
    for _ in range(1500):
        num_tokens = int(rng.integers(2, 7))
        p, q = _random_masses(rng, num_tokens), _random_masses(rng, num_tokens)
        known = num_tokens if rng.random() < 0.7 else None
        pair = PartialPair(draft=_random_list(rng, p), target=_random_list(rng, q), num_tokens=known)
        found = partial.divergences(pair)
        assert found.kl_target_draft.contains(otm.divergences.kl_divergence(draft=p, target=q)), (p, q, found)
        assert found.kl_draft_target.contains(otm.divergences.kl_divergence(draft=q, target=p)), (p, q, found)
        assert found.total_variation.contains(otm.divergences.total_variation(draft=p, target=q)), (p, q, found)


def test_a_derived_tail_that_passes_its_caps_by_an_ulp() -> None:
    """1 − 1/3 is more than two caps of 1/3: the ulp too many was put where the draft has nothing, and D(q‖p) ≥ ∞ followed."""
    third = TopTokens(tokens=[0], probabilities=[1 / 3])
    pair = PartialPair(draft=TopTokens(tokens=[0, 1, 2], probabilities=[1 / 3] * 3), target=third)
    assert partial.divergences(pair).kl_target_draft.lower == 0.0
