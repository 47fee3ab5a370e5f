"""Drafters that fill a block: laws per position, transitions, and what a transition is worth."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import otm
from otm.sequence import (
    BlockMarginals,
    BlockVerification,
    LikeliestTree,
    MarkovModel,
    NoiseTree,
    SharedNoise,
    SpeculativeSampling,
    TableModel,
    best_step,
    block_marginals,
    expected_step,
    markov_pair,
    matched_tokens,
    noise_tokens,
    outcomes,
)
from otm.sequence.best_first import grown_best_first
from tests.sequence.toys import block_drafter, contexts

RNG = np.random.default_rng(31)
ROWS = RNG.dirichlet(np.ones(4), 3)
LEFT, RIGHT = RNG.normal(size=(2, 4, 2))
LOW_RANK = BlockMarginals(ROWS, start=1, transition=(LEFT, RIGHT))


def by_hand(context: tuple[int, ...]) -> list[float]:
    """The law after a context of the low-rank drafter, number by number."""
    shift = [sum(LEFT[context[-1]][i] * RIGHT[y][i] for i in range(2)) for y in range(4)]
    weights = [ROWS[len(context) - 1][y] * math.exp(shift[y]) for y in range(4)]
    return [weight / sum(weights) for weight in weights]


def paths() -> dict[tuple[int, ...], float]:
    """Every path of up to three tokens after token 1, with its probability."""
    found: dict[tuple[int, ...], float] = {(1,): 1.0}
    for length, end in itertools.product(range(3), itertools.product(range(4), repeat=3)):
        path = (1, *end[: length + 1])
        found[path] = found[path[:-1]] * by_hand(path[:-1])[path[-1]]
    return found


# --- a transition


def test_the_law_of_a_position_is_shifted_by_the_token_before_it() -> None:
    table = BlockMarginals(ROWS, 1, LEFT @ RIGHT.T)
    gate = RNG.normal(size=(3, 2))
    gated = BlockMarginals(ROWS, 1, lambda at, before: (LEFT[before] * gate[at]) @ RIGHT.T)
    asked = [(1,), (0, 3), (2, 2, 1), (3, 0)]
    wanted = [by_hand(context) for context in asked]
    np.testing.assert_allclose(LOW_RANK.next_batch(asked), wanted, rtol=1e-13)
    np.testing.assert_allclose(table.next_batch(asked), wanted, rtol=1e-13)
    at_one = BlockMarginals(ROWS, 1, (LEFT * gate[1], RIGHT))
    np.testing.assert_allclose(gated.next([3, 0]), at_one.next([3, 0]), rtol=1e-13)
    assert repr(table).startswith("BlockMarginals(rows=<3 × 4 float64>, start=1, ")


def test_what_cannot_follow_and_where_nothing_precedes() -> None:
    chain = BlockMarginals([[0.25, 0.75]] * 2, 0, np.log([[1.0, 1e-300], [1.0, 1.0]]) * 1e300)
    assert chain.next([]).tolist() == [0.25, 0.75]
    assert chain.next([0]).tolist() == [1.0, 0.0]
    assert chain.next_batch([]).shape == (0, 2)


def test_a_large_vocabulary_is_asked_by_its_matrices() -> None:
    size, rank = 30_000, 4
    left, right = RNG.normal(size=(2, size, rank)).astype(np.float32)
    model = BlockMarginals(RNG.dirichlet(np.ones(size), 2), 1, (left, right))
    law = model.next([7, 29_999])
    ratio = law[[5, 6]] / model.rows[1][[5, 6]]
    shifts = (right[[5, 6]] @ left[29_999]).astype(float)
    assert math.log(ratio[0] / ratio[1]) == pytest.approx(shifts[0] - shifts[1], abs=1e-5)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)


def test_the_likeliest_tree_holds_the_likeliest_paths() -> None:
    """Of all paths, by sorting them; and the tokens that it yields, by adding them."""
    every = paths()
    ranked = sorted((path for path in every if len(path) > 1), key=lambda path: -every[path])
    target = markov_pair(4, rng=np.random.default_rng(2))[1]
    for size in (1, 5, 17, 84):
        tree = LikeliestTree(size, 3)
        (found,), _ = grown_best_first(LOW_RANK, [(1,)], size=size, depth=3)
        assert [path.context for path in found[1:]] == ranked[:size]
        reached = [
            math.prod(target.next(path[:end])[path[end]] for end in range(1, len(path)))
            for path in ranked[:size]
        ]
        tokens = matched_tokens(tree, draft=LOW_RANK, target=target, context=[1])
        np.testing.assert_allclose(tokens, 1 + np.cumsum([0.0, *reached]), rtol=1e-12)


def test_blocks_are_sampled_along_the_chain() -> None:
    """The law of a drafted block is the product of the laws given the tokens before."""
    drafter = block_drafter(3, 2, np.random.default_rng(5))
    decoder = SpeculativeSampling(2)
    drafted: dict[tuple[int, ...], float] = {}
    for block, mass in outcomes(
        lambda randomness: tuple(decoder.draft(drafter, (), randomness).tokens[1:].tolist())
    ):
        drafted[block] = drafted.get(block, 0.0) + mass
    for x, y in itertools.product(range(3), repeat=2):
        wanted = drafter.next([])[x] * drafter.next([x])[y]
        assert drafted.get((x, y), 0.0) == pytest.approx(wanted, abs=1e-15)


def test_a_tree_on_shared_noise_believes_what_the_transition_says() -> None:
    """Its paths are the largest products of softmax((log p + g)/s), by sorting all of them."""
    noise, scale = SharedNoise(3), 0.7
    belief: dict[tuple[int, ...], float] = {(1,): 1.0}
    for path in sorted((path for path in paths() if len(path) > 1), key=len):
        before = path[:-1]
        scores = (np.log(by_hand(before)) + noise.row(len(before), 4)) / scale
        weights = np.exp(scores - scores.max())
        belief[path] = belief[before] * float(weights[path[-1]] / weights.sum())
    ranked = sorted((path for path in belief if len(path) > 1), key=lambda path: -belief[path])
    tree = NoiseTree(9, 3, scale).draft(LOW_RANK, (1,), otm.sequence.Sampled(0, noise=noise))
    assert list(tree.contexts())[1:] == ranked[:9]


# --- what a transition is worth


def two_texts(length: int) -> TableModel:
    """0000 and 1111, each with probability 1/2."""
    return TableModel(
        {c: np.full(2, 0.5) if len(set(c)) != 1 else np.eye(2)[c[0]] for c in contexts(2, length)}
    )


@pytest.mark.parametrize("length", [1, 2, 4])
def test_two_texts(length: int) -> None:
    target = two_texts(length)
    draft = block_marginals(target, context=[], length=length)
    np.testing.assert_allclose(draft.rows, np.full((length, 2), 0.5))
    models: dict[str, Any] = {"draft": draft, "target": target, "context": []}
    # A sampled block is one of the two texts with 2/2^L: 1 + Σ 2^{1−i}, below 3 at any length, and
    # nothing does better with it.
    sampled = expected_step(BlockVerification(length), **models).block_efficiency
    assert sampled == pytest.approx(3 - 2.0 ** (1 - length), abs=1e-14)
    assert best_step(BlockVerification(length), **models).value == pytest.approx(sampled, abs=1e-9)
    assert expected_step(SpeculativeSampling(length), **models).block_efficiency == pytest.approx(
        sampled, abs=1e-14
    )
    # The argmax block is one text throughout: 1 + L/2. Both texts take a whole tree: 1 + L with
    # 2^{L+1} − 2 vertices.
    argmax = matched_tokens(LikeliestTree(length, length, width=1), **models)
    np.testing.assert_allclose(argmax, 1 + 0.5 * np.arange(length + 1))
    whole = matched_tokens(LikeliestTree(2 ** (length + 1) - 2, length), **models)
    assert whole[-1] == pytest.approx(1 + length)
    # With a transition a sampled block is a text of the target's: 1 + L, and 2L vertices hold both.
    models["draft"] = block_marginals(target, context=[], length=length, memory=1)
    knowing = expected_step(BlockVerification(length), **models).block_efficiency
    assert knowing == pytest.approx(1 + length, abs=1e-14)
    assert matched_tokens(LikeliestTree(2 * length, length), **models)[-1] == 1 + length


def test_what_a_transition_is_worth_where_the_target_looks_back_by_two() -> None:
    """Numbers of docs/theory.md: heads per position, with a transition, and the target itself."""
    target = markov_pair(3, order=2, concentration=0.3, rng=0)[1]
    tokens, trees, noisy = [], [], []
    noises = [SharedNoise(seed) for seed in range(60)]
    for draft in (
        block_marginals(target, context=[], length=3),
        block_marginals(target, context=[], length=3, memory=1),
        target,
    ):
        models: dict[str, Any] = {"draft": draft, "target": target, "context": []}
        tokens.append(expected_step(BlockVerification(3), **models).block_efficiency)
        trees.append(matched_tokens(LikeliestTree(6, 3), **models)[-1])
        noisy.append(noise_tokens(NoiseTree(6, 3, 0.5), **models, noises=noises).value[-1])
    assert tokens == pytest.approx([3.4135, 3.9189, 4.0], abs=5e-5)
    assert trees == pytest.approx([3.2411, 3.3267, 3.3267], abs=5e-5)
    assert noisy == pytest.approx([223 / 60, 239 / 60, 4.0], abs=1e-12)


def test_a_memory_of_one_token_is_the_nearest_chain() -> None:
    """Relative entropy from a target of order two: less than of the marginals and of every chain
    nearby, and what is lost is the information of the third token on the first, given the second.
    """
    target = markov_pair(3, order=2, rng=1)[1]
    law = otm.sequence.sequence_law(target, [], 3)

    def lost(drafter: Any) -> float:
        other = otm.sequence.sequence_law(drafter, [], 3)
        return float(otm.divergences.kl_divergence(draft=other.ravel(), target=law.ravel()))

    best = block_marginals(target, context=[], length=3, memory=1)
    pair, last, middle = law.sum(axis=2), law.sum(axis=0), law.sum(axis=(0, 2))
    information = float(
        (law * np.log(law * middle[None, :, None] / (pair[..., None] * last[None]))).sum()
    )
    assert lost(best) == pytest.approx(information, abs=1e-13)
    known: Any = best.transition
    for _ in range(20):
        nudge = 1e-3 * RNG.normal(size=(3, 3, 3))

        def nudged(at: Any, before: Any, by: Any = nudge) -> Any:
            return known(at, before) + by[at, before]

        other = BlockMarginals(best.rows, 0, nudged)
        assert lost(best) < lost(other)
    assert lost(best) < lost(block_marginals(target, context=[], length=3))


def test_marginals_of_a_chain() -> None:
    chain = MarkovModel([[0.9, 0.1], [0.2, 0.8]])
    rows = block_marginals(chain, context=[0], length=3).rows
    np.testing.assert_allclose(
        rows, [np.linalg.matrix_power(chain.table, n)[0] for n in (1, 2, 3)], atol=1e-15
    )


def test_positions_and_wrong_arguments() -> None:
    model = BlockMarginals([[0.5, 0.5], [0.25, 0.75]], start=2)
    np.testing.assert_array_equal(
        model.next_batch([(0, 0), (1, 1, 1), (0, 1, 0)]), model.rows[[0, 1, 1]]
    )
    for outside in ([0], [0, 0, 0, 0]):
        with pytest.raises(otm.errors.InvalidParameter, match="2 positions after 2 tokens"):
            model.next(outside)
    with pytest.raises(otm.errors.InvalidParameter, match="context must be a sequence of tokens"):
        model.next("ab")  # type: ignore[arg-type]
    with pytest.raises(otm.errors.InvalidDistribution, match=r"the form \(L, V\)"):
        BlockMarginals([0.5, 0.5])


def test_transitions_of_another_form() -> None:
    rows, other = [[0.5, 0.5]] * 2, np.zeros((3, 2))
    for wrong in (other, (other, other), (other[:2], other[:2, :1]), [0.0, 0.0], (other,) * 3):
        with pytest.raises(otm.errors.ShapeMismatch, match=r"for V = 2; got shapes"):
            BlockMarginals(rows, 0, wrong)
    with pytest.raises(otm.errors.ShapeMismatch, match=r"\(1, 2\) logits for 1 tokens"):
        BlockMarginals(rows, 0, lambda at, before: np.zeros(3)).next([1])
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(otm.errors.InvalidDistribution, match=r"after \[1\] it does not"):
            BlockMarginals(rows, 0, np.full((2, 2), bad)).next([1])
    with pytest.raises(otm.errors.InvalidParameter, match=r"must lie in \[0, 2\); got 2"):
        BlockMarginals(rows, 1, np.zeros((2, 2))).next([2])
    with pytest.raises(otm.errors.InvalidParameter, match="memory must be 0 or 1"):
        block_marginals(MarkovModel([[1.0]]), context=[], length=1, memory=2)


def test_small_integers_are_a_transition_as_any_numbers_are() -> None:
    """Products of int8 would wrap; a table is a copy, and what is no number is refused without a
    warning.
    """
    left, right = np.array([[100], [0]]), np.array([[2], [0]])
    wide = BlockMarginals([[0.5, 0.5]], 1, (left, right)).next([0])
    narrow = BlockMarginals([[0.5, 0.5]], 1, (left.astype(np.int8), right.astype(np.int8)))
    assert narrow.next([0]).tolist() == wide.tolist() and wide[0] > 0.99
    table = np.zeros((2, 2))
    kept = BlockMarginals([[0.5, 0.5]], 1, table)
    table[:] = [[9.0, 0.0], [0.0, 9.0]]
    assert kept.next([0]).tolist() == [0.5, 0.5]
    with pytest.raises(otm.errors.InvalidDistribution, match="transition"):
        BlockMarginals([[0.5, 0.5]], 1, (np.full((2, 1), np.inf), np.ones((2, 1)))).next([0])
