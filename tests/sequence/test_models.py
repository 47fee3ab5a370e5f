"""Toy models: the protocol, what they remember, where texts end, and what they refuse."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import otm
from otm.sequence import (
    Absorbing,
    BlockMarginals,
    LanguageModel,
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
from tests.sequence.toys import random_models

TABLE = {(): [0.5, 0.5], (0,): [0.25, 0.75], (1,): [1.0, 0.0]}
MODELS: list[LanguageModel] = [
    ZerothOrder([0.25, 0.75]),
    MarkovModel([[0.9, 0.1], [0.2, 0.8]]),
    MarkovModel([0.3, 0.7]),
    TableModel(TABLE),
    Memoised(MarkovModel([[0.9, 0.1], [0.2, 0.8]])),
    Absorbing(TableModel(TABLE), eos=1),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_batch_is_its_rows(model: LanguageModel) -> None:
    contexts = [(), (0,), (1,), (0,)]
    batch = model.next_batch(contexts)
    assert batch.shape == (4, 2)
    assert batch.dtype == np.float64
    for context, row in zip(contexts, batch, strict=True):
        assert model.next(context).tolist() == row.tolist()
    assert model.num_tokens == 2


class TestMarkov:
    def test_remembers_its_order(self) -> None:
        _, model = markov_pair(3, order=2, rng=np.random.default_rng(0))
        assert (
            model.next([2, 0, 1]).tolist()
            == model.next([1, 0, 1]).tolist()
            == model.table[0, 1].tolist()
        )
        assert model.next([2, 1]).tolist() != model.next([0, 1]).tolist()

    def test_short_contexts_are_filled_with_token_0(self) -> None:
        _, model = markov_pair(3, order=2, rng=np.random.default_rng(0))
        assert model.next([]).tolist() == model.table[0, 0].tolist()
        assert model.next([2]).tolist() == model.table[0, 2].tolist()

    def test_errors(self) -> None:
        with pytest.raises(otm.errors.InvalidDistribution, match=r"one axis of length V.*\(2, 3\)"):
            MarkovModel([[0.2, 0.3, 0.5]] * 2)
        with pytest.raises(otm.errors.InvalidDistribution, match="sum to 1"):
            MarkovModel([[0.5, 0.5], [0.5, 0.6]])
        with pytest.raises(otm.errors.InvalidParameter, match=r"lie in \[0, 2\); got \(5,\)"):
            MarkovModel([[0.5, 0.5], [0.5, 0.5]]).next([5])


class TestMarkovPair:
    @pytest.mark.parametrize("similarity", [0.0, 0.3, 0.9, 1.0])
    @pytest.mark.parametrize("order", [0, 1, 2])
    def test_similarity_scales_the_distance(self, similarity: float, order: int) -> None:
        draft, target = markov_pair(
            4, order=order, similarity=similarity, rng=np.random.default_rng(1)
        )
        unrelated, same = markov_pair(4, order=order, similarity=0.0, rng=np.random.default_rng(1))
        np.testing.assert_array_equal(target.table, same.table)
        # TV(s·q + (1 − s)·d, q) = (1 − s)·TV(d, q), row by row.
        distance = 0.5 * np.abs(draft.table - target.table).sum(axis=-1)
        np.testing.assert_allclose(
            distance,
            (1 - similarity) * 0.5 * np.abs(unrelated.table - target.table).sum(axis=-1),
            atol=1e-15,
        )
        assert draft.order == order

    def test_too_large(self) -> None:
        with pytest.raises(otm.errors.TooLarge, match=r"limited to 16,777,216 entries.* have V\^3"):
            markov_pair(1000, order=2, rng=np.random.default_rng(0))


class TestTable:
    def test_errors(self) -> None:
        with pytest.raises(otm.errors.InvalidDistribution, match=r"entry \(0,\) must sum to 1"):
            TableModel({(): [0.5, 0.5], (0,): [0.5, 0.6]})
        with pytest.raises(otm.errors.InvalidParameter, match="at least one context"):
            TableModel({})
        with pytest.raises(
            otm.errors.InvalidParameter,
            match=r"one of the 3 in the table; \(1, 1\) is not. Capture it",
        ):
            TableModel(TABLE).next([1, 1])

    def test_zeroth_order(self) -> None:
        with pytest.raises(
            otm.errors.InvalidDistribution,
            match=r"the form \(V,\), V tokens; its shape is \(2, 2\)",
        ):
            ZerothOrder([[0.5, 0.5], [0.5, 0.5]])


class Counting:
    """Counts what it is asked."""

    num_tokens = 2

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.calls = 0

    def next(self, context: object) -> np.ndarray:
        return self.next_batch([context])[0]

    def next_batch(self, contexts: object) -> np.ndarray:
        self.calls += 1
        self.asked += [tuple(context) for context in contexts]  # type: ignore[attr-defined]
        return np.full((len(contexts), 2), 0.5)  # type: ignore[arg-type]


class TestMemoised:
    def test_asks_once_and_in_one_call(self) -> None:
        inner = Counting()
        model = Memoised(inner)
        model.next_batch([(0,), (1,), (0,)])
        model.next_batch([(0,), (1, 1)])
        model.next((1,))
        assert inner.asked == [(0,), (1,), (1, 1)]
        assert inner.calls == 2

    def test_the_gate_is_passed_once(self) -> None:
        inner = Counting()
        model = Memoised(inner)
        first = next_distributions(model, [(0,), (1,)], name="draft")
        second = next_distributions(model, [(1,), (0,)], name="draft")
        assert first[0,] is second[0,]
        assert inner.calls == 1

    def test_the_gate_is_not_skipped(self) -> None:
        class Broken(Counting):
            def next_batch(self, contexts: object) -> np.ndarray:
                return np.full((len(contexts), 2), 0.7)  # type: ignore[arg-type]

        for _ in range(2):
            with pytest.raises(
                otm.errors.InvalidDistribution, match=r"After context \(3,\): the draft model's"
            ):
                next_distributions(Memoised(Broken()), [(3,)], name="draft")


class TestAbsorbing:
    def test_the_end_repeats_itself(self) -> None:
        model = Absorbing(ZerothOrder([0.25, 0.75]), eos=0)
        assert model.next([1, 1]).tolist() == [0.25, 0.75]
        assert model.next([0]).tolist() == model.next([0, 1]).tolist() == [1.0, 0.0]

    def test_a_prompt_may_contain_it(self) -> None:
        model = Absorbing(ZerothOrder([0.25, 0.75]), eos=0, start=2)
        assert model.next([0, 1]).tolist() == [0.25, 0.75]
        assert model.next([0, 1, 0]).tolist() == [1.0, 0.0]

    def test_the_model_is_not_asked_beyond_the_end(self) -> None:
        inner = Counting()
        Absorbing(inner, eos=1).next_batch([(0,), (1,), (0, 1), (0, 0)])
        assert inner.asked == [(0,), (0, 0)]
        Absorbing(inner, eos=1).next_batch([(1,)])
        assert inner.calls == 1

    @pytest.mark.parametrize("eos", [-1, 2, 0.5, True, "end", None], ids=repr)
    def test_a_token_outside_the_vocabulary(self, eos: object) -> None:
        with pytest.raises(
            otm.errors.InvalidParameter,
            match=rf"eos must be a token in \[0, 2\); got {eos!r}\. Pass eos=None",
        ):
            Absorbing(ZerothOrder([0.5, 0.5]), eos=eos)  # type: ignore[arg-type]


class TestSequenceLaw:
    def test_product_of_conditionals(self) -> None:
        model, _ = random_models(3, 3, np.random.default_rng(0))
        law = sequence_law(model, [2], 2)
        for x, y in itertools.product(range(3), repeat=2):
            assert law[x, y] == pytest.approx(model.next([2])[x] * model.next([2, x])[y], abs=1e-16)
        assert law.sum() == pytest.approx(1, abs=1e-15)

    def test_errors(self) -> None:
        with pytest.raises(otm.errors.TooLarge, match="limited to 16,777,216 entries"):
            sequence_law(ZerothOrder([0.5, 0.5]), [], 25)
        with pytest.raises(
            otm.errors.InvalidParameter, match="length must be an integer of at least 1"
        ):
            sequence_law(ZerothOrder([0.5, 0.5]), [], 0)


class TestTheGate:
    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (
                [[0.7, 0.7]],
                r"After context \(5,\): the draft model's next-token distribution must sum to 1",
            ),
            ([[np.nan, 1.0]], r"After context \(5,\): .* must be finite"),
            ([[1.5, -0.5]], r"After context \(5,\): .* must be non-negative"),
            ([0.5, 0.5], r"one distribution per context, \(1, V\); it returned shape \(2,\)"),
            (
                [[0.5, 0.5]] * 2,
                r"one distribution per context, \(1, V\); it returned shape \(2, 2\)",
            ),
        ],
    )
    def test_says_which_model_and_context(self, answer: object, message: str) -> None:
        class Answering(Counting):
            def next_batch(self, contexts: object) -> np.ndarray:
                return np.asarray(answer)

        with pytest.raises(otm.errors.InvalidDistribution, match=message):
            next_distribution(Answering(), (5,), name="draft")

    def test_names_the_bad_row_of_a_batch_and_shortens_long_contexts(self) -> None:
        class OneBad(Counting):
            def next_batch(self, contexts: object) -> np.ndarray:
                return np.array([[0.5, 0.5], [0.5, 0.6]])

        with pytest.raises(
            otm.errors.InvalidDistribution,
            match=r"After context \(… 8 tokens …, 8, 9, .*19\): the target model's",
        ):
            next_distributions(OneBad(), [(0,), tuple(range(20))], name="target")

    def test_nothing_asked(self) -> None:
        assert next_distributions(Counting(), [], name="draft") == {}


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
def test_a_float32_table_is_the_distribution_that_it_rounds(model: LanguageModel) -> None:
    assert model.next([]).tolist() == pytest.approx([1 / 3] * 3, abs=1e-16)
    wide = ZerothOrder([1 / 3] * 3)
    target = ZerothOrder(np.float32([0.5, 0.3, 0.2]))
    one = SpeculativeSampling(1)
    found, exact = (
        expected_step(one, draft=draft, target=target, context=[]) for draft in (model, wide)
    )
    assert found.block_efficiency == pytest.approx(exact.block_efficiency, abs=1e-15)
    assert sequence_law(model, [], 2).sum() == pytest.approx(1.0, abs=1e-15)
