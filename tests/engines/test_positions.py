"""Acceptance by position, from engines' reports: read, converted, and refused where damaged."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from otm.engines.positions import PositionAcceptance
from otm.engines.records import parse_acceptance
from otm.trees.optimal import optimal_tree
from otm.trees.shape import TreeShape

REFUSED = otm.errors.InvalidParameter, otm.errors.InvalidDistribution


@pytest.mark.parametrize(
    "text",
    [
        "position,acceptance_rate\n0,0.8\n1,0.6\n",
        "Position,Survival\r\n1,0.8\r\n2,0.6\r\n",
        'run,position,rate\n"a, b",1,0.6\n"a, b",0,0.8\n',
        "position,accepted,drafts\n0,8,10\n1,6,10\n",
        "dataset,acceptance_rate_pos_0,acceptance_rate_pos_1,num_drafts\nmt_bench,0.8,0.6,10\n",
        "dataset,variant,pos_0,pos_1,pos_2\nmt_bench,tpu,0.8,0.6,\n",
    ],
)
def test_csv(text):
    record = parse_acceptance(text)
    assert (record.form, record.steps) == ("CSV by position", None)
    assert record.survival.survival.tolist() == [0.8, 0.6]
    assert record.pooled_mean == pytest.approx(2.4)


def test_what_it_means():
    """Of ten verifications two accept no draft, two accept one, six accept two."""
    chain = PositionAcceptance([0.8, 0.6])
    assert chain.expected_tokens == pytest.approx(1 + 14 / 10)
    np.testing.assert_allclose(chain.conditional, [8 / 10, 6 / 8])
    np.testing.assert_allclose(chain.accepted_law, [0.2, 0.2, 0.6])
    assert chain.rate == pytest.approx(14 / 18)  # eighteen drafts were reached
    tree = optimal_tree(chain.by_path(), num_nodes=9)
    assert tree.shape == TreeShape.chain(2)
    assert tree.expected_tokens == pytest.approx(chain.expected_tokens)
    # Rounding to three decimals is forgiven.
    assert PositionAcceptance([0.5, 0.501]).survival.tolist() == [0.5, 0.5]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_csv_reads_back_exactly(values):
    chain = PositionAcceptance(sorted(values, reverse=True))
    again = parse_acceptance(chain.to_csv()).survival
    assert again.survival.tolist() == chain.survival.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "position\n0\n",
        "position,accepted\n0,3\n",
        "dataset,rate\na,0.5\n",
        "position,rate\n0,0.8\n2,0.6\n",
        "position,rate\n0,0.8\n0,0.6\n",
        "position,rate\n0.5,0.8\n",
        "position,rate\n5,0.8\n",
        "position,rate\n0,1e999\n",
        "position,rate\n0,80%\n",
        "position,rate\n0\n",
        "position,accepted,drafts\n0,3,0\n",
        "a,pos_0,pos_2\nx,0.8,0.6\n",
        "a,pos_0,pos_1\nx,,0.6\n",
        'position,rate\n0,"0.8\n',
        "position,rate\n0,80\n",
        "position,rate\n0,0.6\n1,0.8\n",
    ],
)
def test_damaged_csv_is_refused(text):
    with pytest.raises(REFUSED):
        parse_acceptance(text)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        *(
            (PositionAcceptance, bad)
            for bad in ([], [math.nan], [[0.5]], [0.5, 0.7], [1.5], [1.5, 0.5], [True])
        ),
        *((lambda n: PositionAcceptance([0.8, 0.6], measured=n), bad) for bad in (0, 3, 1.0)),
    ],
)
def test_what_is_no_chain_is_refused(make, argument):
    with pytest.raises(REFUSED):
        make(argument)


def test_short_rows_under_many_columns_are_counted_before_they_are_read():
    text = ",".join(f"pos_{i}" for i in range(3_000)) + "\n" + "0.5\n" * 10_000
    with pytest.raises(otm.errors.TooLarge, match="cells"):
        parse_acceptance(text)


def test_a_chain_is_continued_at_the_last_rate_and_says_so():
    chain = PositionAcceptance([0.8, 0.6])
    longer = chain.extended(5)
    wanted = [0.8, 0.6, 0.6 * 0.75, 0.6 * 0.75**2, 0.6 * 0.75**3]
    np.testing.assert_allclose(longer.survival, wanted, rtol=1e-15)
    assert (chain.measured, longer.measured, longer.extended(3).measured) == (2, 2, 2)
    assert chain.extended(2) is chain
    again = longer.extended(7).survival
    np.testing.assert_allclose(again, chain.extended(7).survival, rtol=1e-14)
    assert PositionAcceptance([0.0]).extended(3).survival.tolist() == [0, 0, 0]
