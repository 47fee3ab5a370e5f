"""Compiled bins: small rows against exact fractions, which rows are left to the sort, and that sums
of many tokens lose nothing.
"""

import math
from decimal import Decimal

import numpy as np
import pytest
from numba import njit

from otm.overlap import compiled
from otm.overlap.curve import Containment
from otm.overlap.walk import PIECE, sort_tokens
from tests.counted import told
from tests.overlap.instances import SIZES, problems

UNIT = 2.0**-53
LARGEST = np.finfo(float).max


def ending(lowest, rng):
    """60 tokens, of which 14 share a bin of the ratios from `lowest` on and hold most mass."""
    p = np.where(np.arange(60) < 14, 4.0, 0.1) * rng.uniform(0.5, 1.0, 60)
    ratio = lowest * (1 + rng.uniform(0.001, 0.015, 60))
    ratio[14:] *= 2.0 ** rng.uniform(-3, 3, 46)
    # One token, never or always drafted, makes up the sums without a change of any ratio.
    lack = (p * ratio).sum() - p.sum()
    p, ratio = np.append(p, max(lack, 0.0)), np.append(ratio, 0.0)
    q = np.append((p * ratio)[:-1], max(-lack, 0.0))
    shuffled = rng.permutation(61)
    return p[shuffled] / p.sum(), q[shuffled] / p.sum()


def small_beside_large(root):
    """Masses that vanish one by one beside a larger one of their bin, or of the bins before; K-SEQ
    of two drafts has γ* = `root`, and the optimum ends in the same bin.
    """
    p = np.array([0.2, 0.1, *[0.7 * 2.0**-55] * 43])
    q = p * np.array([2.2, *(1.405 - 1e-4 * np.arange(14)), *(1.35 - 0.01 * np.arange(30))])
    rest = root * (1.7 - root)  # where H(γ) = 0.3 γ + rest is γ β = γ (2 − γ)
    q[0] += 1 - q.sum() - rest
    return np.append(p, np.full(12, 0.7 / 12)), np.append(q, np.full(12, rest / 12))


def two_sizes_in_a_bin():
    """Two and three drafts both have their optimum between the first and the last of 12 tokens of
    one bin, where 2 (1 − C) = 3 (1 − C)² = 4/3.
    """
    p = np.concatenate([np.full(4, 0.331 / 4), np.full(12, 0.0004), np.full(40, 0.6642 / 40)])
    lump = 4 / 3 + 0.008 * np.cos(np.arange(12.0))
    q = p * np.concatenate([np.full(4, 2.5), lump, np.zeros(40)])
    q[16:] = (1 - q.sum()) * np.linspace(0.5, 1.5, 40) / 40
    return p, q


def bins_that_vanish(mass):
    """30 bins of one token each, none of which alone changes the sums of those before it, and of
    which one draft's optimum takes all.
    """
    p = np.array([mass, *[2.6 * mass * 2.0**-55] * 30, 1 - mass])
    q = p * np.append([0.66 / mass], [*(0.64 / mass * 2.0 ** (-np.arange(30) / 31)), 0.0])
    q[-1] = 1 - q.sum()
    return p, q


def small_rows():
    """Rows whose questions end in bins of one token and of several, at the ends of the order, on
    ties and on no token at all.
    """
    rng = np.random.default_rng(3)
    rows = {
        "one token": (np.ones(1), np.ones(1)),
        "ties and zeros": tuple(rng.integers(0, 7, (2, 40)).astype(float)),
        "equal": (np.arange(8.0), np.arange(8.0)),
        "disjoint": (np.array([1.0, 0.0]), np.array([0.0, 1.0])),
        "drafts rarely": (rng.random(40) ** 8, rng.random(40)),
    }
    rows |= {f"a bin at {lowest}": ending(lowest, rng) for lowest in (0.25, 0.75, 1.0, 1.5, 2.5)}
    rows |= {f"small beside large, {root}": small_beside_large(root) for root in (1.40495, 1.4036)}
    rows |= {f"bins that vanish, {mass}": bins_that_vanish(mass) for mass in (0.08, 0.3)}
    rows["two sizes in a bin"] = two_sizes_in_a_bin()
    q = np.array([1e-310, 2e-310, *range(1, 7)])
    rows["subnormal ratios"] = np.repeat([3.0, 1.0], [2, 6]), q
    # The four sums of a bin lose unlike amounts.
    unlike = np.append(np.full(4, 0.25), np.tile([0.2, 0.45, 0.7, 0.95], 64) * 2.0**-55)
    rows["one bin"] = unlike, unlike
    # Ratios beyond 2^±64 share the bins at the ends, whatever they are.
    p, q = rng.random((2, 60))
    p[:6] *= 2.0 ** -rng.uniform(70, 1000, 6)
    q[8:14] *= 2.0 ** -rng.uniform(70, 1000, 6)
    p[6:8], q[14:16], p[16], q[16] = 0.0, 0.0, 0.0, 0.0
    rows["beyond the bins"] = p, q
    return {name: (p / p.sum(), q / q.sum()) for name, (p, q) in rows.items()}


ROWS = small_rows()


@pytest.fixture(autouse=True)
def memory_that_held_something(monkeypatch):
    empty = np.empty
    monkeypatch.setattr(np, "empty", lambda *shape, **of: np.full_like(empty(*shape, **of), 7))


def in_order(p, q):
    """(p, q) of the tokens with mass in descending order of q/p; sums and quotients of these have
    28 digits.
    """
    pairs = [(Decimal(a), Decimal(b)) for a, b in zip(p.tolist(), q.tolist(), strict=True)]
    return sorted(
        (both for both in pairs if any(both)),
        key=lambda both: (both[0] == 0, both[1] / both[0] if both[0] else 0),
        reverse=True,
    )


def test_optima_of_small_rows_are_those_of_all_prefixes():
    """The value, and a set that has it."""
    sizes = [*SIZES[::-1], Containment(c=1.5)]
    for name, (p, q) in ROWS.items():
        found, left = compiled.optimum(p[None], q[None], sizes)
        assert not left.any(), name
        cuts = [(Decimal(0), Decimal(0))]
        for a, b in in_order(p, q):
            cuts.append((cuts[-1][0] + a, cuts[-1][1] + b))
        for (c, k), value, outside in zip(sizes, *found.reshape(2, -1), strict=True):
            close = Decimal((min(k, 64) / 2 + 4) * UNIT)
            sums = [
                above + (max(1 - mass, Decimal(0)) / (1 + Decimal(c - 1) * mass)) ** k
                for mass, above in cuts
            ]
            assert abs(Decimal(value) - (2 - max(1, *sums))) <= close, (name, c, k)
            near = [
                float(mass)
                for (mass, _), both in zip(cuts, sums, strict=True)
                if max(sums) - both <= close
            ]
            assert min(abs(outside - mass) for mass in near) <= 2 * UNIT, (name, c, k)


@pytest.mark.parametrize("k", [1, 2, 3, 8, 60, 1000])
def test_roots_of_small_rows_are_those_of_the_curve(k):
    """γ*, and slope and offset of the piece of the curve that it lies on."""
    for name, (p, q) in ROWS.items():
        found, left = compiled.kseq_roots(p[None], q[None], [k])
        assert left[0] == (name in ("equal", "one bin")), name
        if left[0]:
            continue
        gamma, slope, offset = found[:, 0]
        pairs, level = in_order(p, q), Decimal(gamma)
        height = sum(min(b, level * a) for a, b in pairs)
        assert 1.0 <= gamma <= (1 if name == "disjoint" else k)  # there every γ solves it
        assert abs(1 - (1 - height / level) ** k - height) <= 8 * UNIT, (name, k)
        is_tied = (slope < 1) & (gamma == np.divide(q, p, where=p > 0, out=np.zeros_like(p)))
        if is_tied.any():  # either piece is right
            assert abs(gamma * slope + offset - float(height)) <= 4 * UNIT * gamma, (name, k)
        else:
            above = float(sum(a for a, b in pairs if b > a * level))
            below = float(sum(b for a, b in pairs if b < a * level))
            assert abs(slope - above) <= UNIT, (name, k)
            assert abs(offset - below) <= UNIT, (name, k)


def test_matches_of_small_rows_are_those_of_all_pairs():
    """Σ q (1 − (1 − h)^k), 1/h = Σ_j max(t p_j, q_j) at t = q/(c p), token by token.

    P, Q and the terms of a piece may be added one by one, each addition rounding by u
    (docs/theory.md, "The races' order and merge").
    """
    sizes = [Containment(k=3), *(Containment(c=c) for c in (1.0, 1.5, 40.0, 1e6))]
    for name, (p, q) in ROWS.items():
        pairs = in_order(p, q)
        values = compiled.matches(p[None], q[None], sizes)[:, 0]
        for (c, k), value in zip(sizes, values, strict=True):
            wanted = Decimal(0)
            for a, b in pairs:
                if a and b:
                    level = b / (a * Decimal(c))
                    wanted += b * (1 - (1 - 1 / sum(max(level * x, y) for x, y in pairs)) ** k)
            assert abs(value - float(wanted)) <= (2 * PIECE + 3) * UNIT, (name, c, k)


@njit
def put_in_order(p, q, tokens):
    sort_tokens(p, q, tokens)


def crowds(rng):
    """Ratios that are alike, that crowd in one step of the sort, and that reach far beyond those
    which are looked at for their spread.
    """
    width = 6000
    spread = np.exp(rng.standard_normal(width))
    near = 1.0 + 1e-9 * rng.random(width)
    yield "spread", spread
    yield "all alike", np.ones(width)
    yield "two ratios", rng.choice([1.0, 1.0 + 2.0**-52], width)
    yield "crowded between far ones", np.where(rng.random(width) < 0.7, near, spread)
    yield "far beyond", spread ** np.where(rng.random(width) < 0.01, 200.0, 1.0)
    yield "falling", np.sort(spread)
    yield "rising", np.sort(spread)[::-1].copy()
    yield "no mass on one side", spread * rng.choice([0.0, 1.0, np.inf], width)
    for short in (0, 1, 2, 31, 32, 33, 40):
        yield f"{short} tokens", spread[:short]


def test_tokens_are_sorted_by_their_ratios_and_those_without_mass_come_last():
    rng = np.random.default_rng(12)
    for name, ratio in crowds(rng):
        p = rng.random(len(ratio))
        q = np.where(np.isinf(ratio), p, p * np.where(np.isinf(ratio), 1.0, ratio))
        p[np.isinf(ratio)] = 0.0
        p[5::7] = q[5::7] = 0.0
        tokens = rng.permutation(len(p))[len(p) // 5 :]  # of a part of the row
        given = np.sort(tokens)
        put_in_order(p, q, tokens)
        assert (np.sort(tokens) == given).all(), name
        live = (p[tokens] > 0) | (q[tokens] > 0)
        assert (np.diff(live.astype(int)) <= 0).all(), name
        with np.errstate(divide="ignore"):
            found = q[tokens[live]] / p[tokens[live]]
        assert (found[1:] <= found[:-1]).all(), name


COUNTED = """
from otm.overlap import walk

rng, width, uses = np.random.default_rng(0), 4096, {}
spread = np.exp(3 * rng.standard_normal(width))
place, last = np.arange(width), np.nextafter(1.0, 2.0) - 1.0
few = rng.random(width) < 0.03
rows = {
    "spread": spread,
    "two alternate": np.where(few, spread, 1 + 1e-9 * (place % 2)),
    "the last bits": np.where(few, spread, 1 + last * (place % 3)),
    "noise in float32": np.where(few, spread, 1 + 1e-7 * rng.standard_normal(width)),
    "crowds in crowds": (1 + 2.0 ** -(place % 50)) ** rng.choice([1.0, 5.0, 30.0], width),
    "far beyond": np.where(few, spread**99, spread),
    "falling": np.sort(spread)[::-1].copy(),
    "rising": np.sort(spread),
}
for name, ratio in rows.items():
    keys = np.append(ratio, 0.0).view(np.int64).view(Counted)
    Counted.uses = 0
    walk.sort_row(np.ones(width), ratio, keys, place.copy().view(Counted))
    uses[name] = Counted.uses / width
print(json.dumps(uses))
"""


def test_a_sort_reads_a_token_a_few_times_wherever_ratios_crowd():
    """And writes it as often: to spread tokens out, again for each crowd, and by insertion."""
    reads = told(COUNTED)
    assert max(reads.values()) < 40, reads
    assert min(reads.values()) > 4, reads


def test_lumps_are_the_tokens_between_their_ratios():
    """Their masses, to the last bit but one, and their tokens in order."""
    for name, (p, q) in ROWS.items():
        lumps, live = compiled.Lumps(p, q), (p > 0) | (q > 0)
        ratio = np.divide(q, p, where=p > 0, out=np.full_like(p, np.inf))
        seen, number = 0, np.arange(lumps.steps.shape[1])
        for i, (mass, target, high, low) in zip(number, lumps.steps.T, strict=True):
            (inside,) = np.nonzero(live & (low <= ratio) & (np.minimum(ratio, LARGEST) < high))
            seen += len(inside)
            assert abs(mass - math.fsum(p[inside])) <= 2 * UNIT * mass, name
            assert abs(target - math.fsum(q[inside])) <= 2 * UNIT * target, name
            assert high <= low * (33 / 32) or low == 0 or high == np.inf, name
            found = lumps.in_order(number[[i]])
            if found is None:
                assert name in ("equal", "one bin")
                continue
            tokens, counts = found
            assert counts.tolist() == np.where(number == i, len(tokens), 0).tolist()
            tokens = tokens[live[tokens]]
            assert sorted(tokens.tolist()) == inside.tolist(), name
            assert (ratio[tokens][1:] <= ratio[tokens][:-1]).all(), name
        assert seen == live.sum(), name


def test_some_rows_are_left_to_the_sort_and_most_are_not():
    left = {}
    for name, p, q in problems(3000, 5):
        left[name] = (
            bool(compiled.optimum(p[None], q[None], [Containment(k=8), Containment(c=4.0)])[1][0]),
            bool(compiled.kseq_roots(p[None], q[None], [8])[1][0]),
        )
    assert left["a minimum on every piece"][0]
    assert left["one bin, all different"][1]
    assert not any(left["language model"] + left["flat"] + left["zeros"])
    assert not left["equal"][0]
    assert not left["few ratios"][0]


@pytest.mark.parametrize("k", [1, 1000])
def test_many_tokens_of_one_ratio_lose_nothing_to_their_sum(k):
    """All are in one bin, and added up one by one they were off by a hundredth of V u."""
    p = np.full((1, 128_256), 1.0 / 128_256)
    values, left = compiled.optimum(p, p.copy(), [Containment(k=k)])
    assert not left.any()
    # docs/theory.md, "The optimum from bins": 2 (22 + ν) u + 2k u·[k ≤ 64] + 12 u with ν ≤ 64.
    assert abs(values[0, 0] - 1.0) <= (2 * (22 + 64) + 2 * k * (k <= 64) + 12) * UNIT
