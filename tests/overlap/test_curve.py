"""The overlap curve: values against exact fractions, its order and pieces, and what is an integral
or a level of it.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.overlap.curve import OverlapCurve, ascending, descending, overlap_at, ratios
from tests import strategies

LEVELS = [0.0, 1e-300, 0.1, 0.5, 1.0, 1.5, 2.0, 7.0, 1e9]


def exactly(p, q, level):
    return float(
        sum(
            min(Fraction(b), Fraction(level) * Fraction(a))
            for a, b in zip(p.tolist(), q.tolist(), strict=True)
        )
    )


@given(strategies.pairs(max_tokens=7), st.lists(st.floats(0, 20), max_size=5))
def test_both_ways_to_a_value_are_the_sum(pair, levels):
    p, q = pair
    curve = OverlapCurve.of(p, q)
    for level in [*LEVELS, *levels, *ratios(p, q)[np.isfinite(ratios(p, q))].tolist()]:
        wanted = exactly(p, q, level)
        # t p and the sums err relatively, by a unit for each token.
        assert abs(float(overlap_at(p, q, level)) - wanted) <= 2.0**-50 * (1 + wanted), level
        assert abs(float(curve.at(np.asarray(level))) - wanted) <= 2.0**-50 * (1 + wanted), level


@given(strategies.pairs(max_tokens=9))
def test_the_order_keeps_its_convention(pair):
    """Descending ratios; ∞ first, tokens without mass at ratio 0, ties in the order of tokens;
    `ascending` is the other end.
    """
    p, q = pair
    p, q = np.append(p, [0.0, 0.0]), np.append(q, [0.0, 0.0])
    tokens, ratio = descending(p, q), ratios(p, q)
    assert sorted(tokens.tolist()) == list(range(len(p)))
    ordered = ratio[tokens]
    assert not np.isnan(ordered).any()
    for before, after in itertools.pairwise(range(len(tokens))):
        assert ordered[before] > ordered[after] or (
            ordered[before] == ordered[after] and tokens[before] < tokens[after]
        )
    assert (ratio[(p == 0) & (q > 0)] == np.inf).all()
    assert (ratio[(p == 0) & (q == 0)] == 0).all()
    assert ascending(p, q).tolist() == tokens[::-1].tolist()


def test_long_rows_with_ratios_that_differ_in_their_last_bits_are_in_order():
    rng = np.random.default_rng(0)
    p = np.full((3, 5000), 1 / 5000)
    q = p * (1 + 2.0**-52 * rng.permuted(np.tile(np.arange(5000), (3, 1)), axis=-1))
    q[1] = p[1]  # all equal: tokens keep their order
    curve = OverlapCurve.of(p, q)
    assert (np.diff(curve.ratio, axis=-1) <= 0).all()
    np.testing.assert_array_equal(np.take_along_axis(q / p, curve.tokens, axis=-1), curve.ratio)
    assert (np.sort(curve.tokens, axis=-1) == np.arange(5000)).all()
    assert (curve.tokens[1] == np.arange(5000)).all()


def test_every_array_kind_gives_the_same_curve(backend):
    rng = np.random.default_rng(1)
    p, q = (
        otm.examples.dirichlet(40, rng=rng, rows=6, concentration=0.3).reshape(2, 3, 40)
        for _ in range(2)
    )
    p[..., :3], q[..., 2:5] = 0.0, 0.0
    curve, wanted = (
        OverlapCurve.of(backend.array(p), backend.array(q)),
        OverlapCurve.of(*(np.asarray(a, backend.dtype) for a in (p, q))),
    )
    np.testing.assert_array_equal(backend.numpy(curve.tokens), wanted.tokens)
    level = np.asarray([[0.5, 1.0, 2.0], [0.1, 3.0, 40.0]])
    height = np.minimum(level[..., None] * p, q).sum(axis=-1)
    of_sums = overlap_at(backend.array(p), backend.array(q), backend.array(level))
    for found in (curve.at(backend.array(level)), of_sums):
        assert backend.is_own(found)
        np.testing.assert_allclose(backend.numpy(found), height, atol=10 * backend.tolerance)
    # A number is for all rows, and several levels of each row come first.
    both = np.minimum(np.stack([2.0 * p, level[..., None] * p]), q).sum(axis=-1)
    for found, height in (
        (curve.at(2.0), both[0]),
        (curve.at(backend.array(np.stack([2.0 + 0 * level, level]))), both),
    ):
        np.testing.assert_allclose(backend.numpy(found), height, atol=10 * backend.tolerance)
    assert repr(curve) == "OverlapCurve(shape=(2, 3, 40))"


@given(strategies.pairs(max_tokens=7), st.lists(st.floats(0, 5), min_size=1, max_size=4))
def test_a_piece_is_the_curve_where_a_condition_ends(pair, places):
    p, q = pair
    curve, wanted = OverlapCurve.of(p, q), np.asarray(places)
    piece = curve.piece(lambda level, _slope, _offset: level > wanted, like=wanted)
    ratio = ratios(p, q)
    for i, place in enumerate(places):
        beyond = ratio > place
        assert piece.num_beyond[i] == beyond.sum()
        assert piece.low[i] == max(ratio[~beyond], default=0.0)
        assert piece.high[i] == min(ratio[beyond], default=np.inf)
        assert piece.slope[i] == pytest.approx(p[beyond].sum(), rel=2.0**-48)
        assert piece.offset[i] == pytest.approx(q[~beyond].sum(), rel=2.0**-48)
