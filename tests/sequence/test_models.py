"""Toy models: the protocol, what they remember, where texts end, and what they refuse."""

import itertools
from typing import Any

import numpy as np
import pytest

import otm
from otm.sequence import (
    Absorbing,
    BlockMarginals,
    MarkovModel,
    Memoised,
    SpeculativeSampling,
    TableModel,
    ZerothOrder,
    expected_step,
    markov_pair,
    sequence_law,
)
from otm.sequence.models import next_distribution, next_distributions
from tests.sequence.toys import asked, random_models

HALVES = [0.5, 0.5]
TABLE = {(): HALVES, (0,): [0.25, 0.75], (1,): [1.0, 0.0]}
MODELS = [
    ZerothOrder([0.25, 0.75]),
    MarkovModel([[0.9, 0.1], [0.2, 0.8]]),
    MarkovModel([0.3, 0.7]),
    TableModel(TABLE),
    Memoised(MarkovModel([[0.9, 0.1], [0.2, 0.8]])),
    Absorbing(TableModel(TABLE), eos=1),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_batch_is_its_rows(model):
    contexts = [(), (0,), (1,), (0,)]
    batch = model.next_batch(contexts)
    assert batch.dtype == np.float64 and batch.shape == (4, model.num_tokens) == (4, 2)
    assert [model.next(context).tolist() for context in contexts] == batch.tolist()


def test_a_chain_remembers_its_order_and_fills_short_contexts_with_token_0():
    _, model = markov_pair(3, order=2, rng=np.random.default_rng(0))
    rows = [model.next(c).tolist() for c in ([2, 0, 1], [1, 0, 1], [2, 1], [], [2])]
    wanted = [model.table[pair].tolist() for pair in ((0, 1), (0, 1), (2, 1), (0, 0), (0, 2))]
    assert rows == wanted and rows[0] != rows[2]


@pytest.mark.parametrize(("similarity", "order"), [(0.0, 1), (0.3, 2), (0.9, 0), (1.0, 2)])
def test_similarity_scales_the_distance(similarity, order):
    """TV(s·q + (1 − s)·d, q) = (1 − s)·TV(d, q), row by row."""
    draft, target = markov_pair(4, order=order, similarity=similarity, rng=1)
    unrelated, same = markov_pair(4, order=order, similarity=0.0, rng=1)
    np.testing.assert_array_equal(target.table, same.table)
    far, farthest = (np.abs(p.table - target.table).sum(axis=-1) for p in (draft, unrelated))
    np.testing.assert_allclose(far, (1 - similarity) * farthest, atol=2e-15)
    assert draft.order == order


def test_the_joint_law_is_the_product_of_conditionals():
    model, _ = random_models(3, 3, np.random.default_rng(0))
    law = sequence_law(model, [2], 2)
    for x, y in itertools.product(range(3), repeat=2):
        assert law[x, y] == pytest.approx(model.next([2])[x] * model.next([2, x])[y], abs=1e-16)


class Counting:
    """Answers with one row for every context, and counts what it is asked."""

    num_tokens = 2

    def __init__(self, row=HALVES):
        self.row, self.asked, self.calls = row, list[Any](), 0

    def next(self, context):
        return self.next_batch([context])[0]

    def next_batch(self, contexts):
        self.calls += 1
        self.asked += map(tuple, contexts)
        return np.array([self.row] * len(contexts))


def test_what_is_remembered_is_asked_once_and_checked_once():
    inner = Counting()
    model = Memoised(inner)
    model.next_batch([(0,), (1,), (0,)])
    model.next_batch([(0,), (1, 1)])
    model.next((1,))
    assert inner.asked == [(0,), (1,), (1, 1)]
    first = next_distributions(model, [(0,), (1,)], name="draft")
    assert first[0,] is next_distributions(model, [(1,), (0,)], name="draft")[0,]
    assert inner.calls == 2
    assert next_distributions(inner, [], name="draft") == {}
    broken = Memoised(Counting([0.7, 0.7]))
    for _ in range(2):
        with pytest.raises(
            otm.errors.InvalidDistribution, match=r"After context \(3,\): the draft"
        ):
            next_distributions(broken, [(3,)], name="draft")


def test_the_end_repeats_itself():
    """A prompt may contain it, and the model is not asked beyond it."""
    ends = Absorbing(ZerothOrder([0.25, 0.75]), eos=0)
    assert ends.next([1, 1]).tolist() == [0.25, 0.75]
    assert ends.next([0]).tolist() == ends.next([0, 1]).tolist() == [1.0, 0.0]
    later = Absorbing(ZerothOrder([0.25, 0.75]), eos=0, start=2)
    assert later.next([0, 1]).tolist() == [0.25, 0.75]
    assert later.next([0, 1, 0]).tolist() == [1.0, 0.0]
    inner = Counting()
    Absorbing(inner, eos=1).next_batch([(0,), (1,), (0, 1), (0, 0)])
    Absorbing(inner, eos=1).next_batch([(1,)])
    assert (inner.asked, inner.calls) == ([(0,), (0, 0)], 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MarkovModel([[0.2, 0.3, 0.5]] * 2), r"one axis of length V.*\(2, 3\)"),
        (lambda: MarkovModel([HALVES, [0.5, 0.6]]), "sum to 1"),
        (lambda: MarkovModel([HALVES] * 2).next([5]), r"lie in \[0, 2\); got \(5,\)"),
        (lambda: markov_pair(1000, order=2, rng=0), r"limited to 16,777,216 entries.* have V\^3"),
        (lambda: TableModel({(): HALVES, (0,): [0.5, 0.6]}), r"entry \(0,\) must sum to 1"),
        (lambda: TableModel({}), "at least one context"),
        (lambda: TableModel({(): np.array(1.0)}), r"entry \(\) needs a vocabulary axis"),
        (
            lambda: TableModel({(): np.ma.array(HALVES, mask=[False, True])}),
            r"entry \(\) must not be masked",
        ),
        (lambda: TableModel(TABLE).next([1, 1]), r"one of the 3 in the table; \(1, 1\) is not"),
        (lambda: ZerothOrder([HALVES] * 2), r"the form \(V,\), V tokens; its shape is \(2, 2\)"),
        (lambda: sequence_law(ZerothOrder(HALVES), [], 25), "limited to 16,777,216 entries"),
        (lambda: sequence_law(ZerothOrder(HALVES), [], 0), "length must be an integer of at le"),
        *(
            (lambda bad=bad: sequence_law(ZerothOrder(HALVES), bad, 1), "A context must be a seq")
            for bad in ([-1], [True], [0.5], [None], "ab", b"ab", {0: 1}, 5)
        ),
        *(
            (
                lambda eos=eos: Absorbing(ZerothOrder(HALVES), eos=eos),
                rf"a token in \[0, 2\); got {eos!r}\. Pass eos=None",
            )
            for eos in (-1, 2, 0.5, True, "end", None)
        ),
    ],
)
def test_refusals(make, said):
    with pytest.raises(otm.errors.OtmError, match=said):
        make()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([[0.7, 0.7]], r"After context \(5,\): the draft model's next-token dis.* must sum to 1"),
        ([[np.nan, 1.0]], r"After context \(5,\): .* must be finite"),
        ([[1.5, -0.5]], r"After context \(5,\): .* must be non-negative"),
        (HALVES, r"one distribution per context, \(1, V\); it returned shape \(2,\)"),
        ([HALVES] * 2, r"one distribution per context, \(1, V\); it returned shape \(2, 2\)"),
    ],
)
def test_the_gate_says_which_model_and_context(answer, said, monkeypatch):
    model = Counting()
    monkeypatch.setattr(model, "next_batch", lambda contexts: np.array(answer))
    with pytest.raises(otm.errors.InvalidDistribution, match=said):
        next_distribution(model, (5,), name="draft")
    # the bad row of a batch, after a long context
    monkeypatch.setattr(model, "next_batch", lambda contexts: np.array([HALVES, [0.5, 0.6]]))
    with pytest.raises(otm.errors.InvalidDistribution, match=r"After context \(… 8 tokens …, 8, 9"):
        next_distributions(model, [(0,), tuple(range(20))], name="target")


NARROW = np.float32([1 / 3, 1 / 3, 1 / 3])  # in float64 it sums to 1 + 3e-8


@pytest.mark.parametrize(
    "model",
    [
        ZerothOrder(NARROW),
        MarkovModel(np.stack([NARROW] * 3)),
        TableModel(dict.fromkeys([(), *((token,) for token in range(3))], NARROW)),
        Memoised(ZerothOrder(NARROW)),
        BlockMarginals(np.stack([NARROW] * 2)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_float32_table_is_the_distribution_that_it_rounds(model):
    assert model.next([]).tolist() == pytest.approx([1 / 3] * 3, abs=1e-16)
    target = ZerothOrder(np.float32([0.5, 0.3, 0.2]))
    found, exact = (
        expected_step(SpeculativeSampling(1), **asked((draft, target))).block_efficiency
        for draft in (model, ZerothOrder([1 / 3] * 3))
    )
    assert found == pytest.approx(exact, abs=1e-15)
    assert sequence_law(model, [], 2).sum() == pytest.approx(1.0, abs=1e-15)
