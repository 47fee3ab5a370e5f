"""Drafters that fill a block: laws per position, transitions, and what a transition is worth."""

import itertools
import math

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
    sequence_law,
)
from tests.sequence.toys import asked, contexts

RNG = np.random.default_rng(31)
ROWS = RNG.dirichlet(np.ones(4), 3)
LEFT, RIGHT = RNG.normal(size=(2, 4, 2))
LOW_RANK = BlockMarginals(ROWS, start=1, transition=(LEFT, RIGHT))


def by_hand(context):
    """The law after a context of the low-rank drafter, number by number."""
    shift = [sum(LEFT[context[-1]][i] * RIGHT[y][i] for i in range(2)) for y in range(4)]
    weights = [ROWS[len(context) - 1][y] * math.exp(shift[y]) for y in range(4)]
    return [weight / sum(weights) for weight in weights]


# --- a transition


def test_the_law_of_a_position_is_shifted_by_the_token_before_it():
    table = BlockMarginals(ROWS, 1, LEFT @ RIGHT.T)
    gate = RNG.normal(size=(3, 2))
    gated = BlockMarginals(ROWS, 1, lambda at, before: (LEFT[before] * gate[at]) @ RIGHT.T)
    contexts = [(1,), (0, 3), (2, 2, 1), (3, 0)]
    wanted = [by_hand(context) for context in contexts]
    np.testing.assert_allclose(LOW_RANK.next_batch(contexts), wanted, rtol=1e-13)
    np.testing.assert_allclose(table.next_batch(contexts), wanted, rtol=1e-13)
    at_one = BlockMarginals(ROWS, 1, (LEFT * gate[1], RIGHT))
    np.testing.assert_allclose(gated.next([3, 0]), at_one.next([3, 0]), rtol=1e-13)
    plain = BlockMarginals(ROWS, start=2).next_batch([(0, 0), (1, 1, 1), (0, 1, 0)])
    np.testing.assert_array_equal(plain, ROWS[[0, 1, 1]])
    assert repr(table).startswith("BlockMarginals(rows=<3 × 4 float64>, start=1, ")


def test_what_cannot_follow_and_where_nothing_precedes():
    chain = BlockMarginals([[0.25, 0.75]] * 2, 0, np.log([[1.0, 1e-300], [1.0, 1.0]]) * 1e300)
    assert chain.next([]).tolist() == [0.25, 0.75]
    assert chain.next([0]).tolist() == [1.0, 0.0]
    assert chain.next_batch([]).shape == (0, 2)


def test_a_large_vocabulary_is_asked_by_its_matrices():
    size, rank = 30_000, 4
    left, right = RNG.normal(size=(2, size, rank)).astype(np.float32)
    model = BlockMarginals(RNG.dirichlet(np.ones(size), 2), 1, (left, right))
    ratio = model.next([7, 29_999])[[5, 6]] / model.rows[1][[5, 6]]
    shifts = (right[[5, 6]] @ left[29_999]).astype(float)
    assert math.log(ratio[0] / ratio[1]) == pytest.approx(shifts[0] - shifts[1], abs=1e-5)


def test_trees_and_blocks_know_what_the_transition_says():
    """The likeliest paths of all, without noise and with it, by sorting all products; their tokens
    by adding; and the product of the conditionals along the chain.
    """
    noise, scale = SharedNoise(3), 0.7
    mass = {(1,): 1.0}
    belief = mass.copy()
    for path in itertools.chain.from_iterable(
        itertools.product((1,), *[range(4)] * n) for n in (1, 2, 3)
    ):
        law = np.array(by_hand(path[:-1]))
        weights = np.exp((np.log(law) + noise.row(len(path) - 1, 4)) / scale)
        mass[path] = mass[path[:-1]] * law[path[-1]]
        belief[path] = belief[path[:-1]] * weights[path[-1]] / weights.sum()
    ranked, noisy = (sorted(list(of)[1:], key=lambda u: -of[u]) for of in (mass, belief))
    target = markov_pair(4, rng=np.random.default_rng(2))[1]
    for size in (1, 5, 17, 84):
        reached = [
            math.prod(target.next(path[:end])[path[end]] for end in range(1, len(path)))
            for path in ranked[:size]
        ]
        tokens = matched_tokens(LikeliestTree(size, 3), **asked((LOW_RANK, target), [1]))
        np.testing.assert_allclose(tokens, 1 + np.cumsum([0.0, *reached]), rtol=1e-12)
    sampled = otm.sequence.Sampled(0, noise=noise)
    tree = NoiseTree(9, 3, scale).draft(LOW_RANK, (1,), sampled)
    assert list(tree.contexts())[1:] == noisy[:9]
    law = sequence_law(LOW_RANK, [1], 3)
    np.testing.assert_allclose(law.ravel(), [mass[1, *u] for u in np.ndindex(4, 4, 4)], rtol=1e-12)


# --- what a transition is worth


@pytest.mark.parametrize("length", [1, 2, 4])
def test_two_texts(length):
    """0000 and 1111, each with probability 1/2."""
    target = TableModel(
        {c: np.full(2, 0.5) if len(set(c)) != 1 else np.eye(2)[c[0]] for c in contexts(2, length)}
    )
    draft = block_marginals(target, context=[], length=length)
    np.testing.assert_allclose(draft.rows, np.full((length, 2), 0.5))
    models = asked((draft, target))
    # A sampled block is one of the two texts with 2/2^L: 1 + Σ 2^{1−i}, below 3 at any length, and
    # nothing does better with it.
    for decoder in (BlockVerification(length), SpeculativeSampling(length)):
        found = expected_step(decoder, **models).block_efficiency
        assert found == pytest.approx(3 - 2.0 ** (1 - length), abs=1e-14)
    assert best_step(BlockVerification(length), **models).value == pytest.approx(found, abs=1e-9)
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


def test_what_a_transition_is_worth_where_the_target_looks_back_by_two():
    """Numbers of docs/theory.md: heads per position, with a transition, and the target itself."""
    target = markov_pair(3, order=2, concentration=0.3, rng=0)[1]
    found = []
    noises = [SharedNoise(seed) for seed in range(60)]
    for draft in (
        block_marginals(target, context=[], length=3),
        block_marginals(target, context=[], length=3, memory=1),
        target,
    ):
        models = asked((draft, target))
        found += [
            expected_step(BlockVerification(3), **models).block_efficiency,
            matched_tokens(LikeliestTree(6, 3), **models)[-1],
            noise_tokens(NoiseTree(6, 3, 0.5), **models, noises=noises).value[-1],
        ]
    wanted = [3.4135, 3.2411, 223 / 60, 3.9189, 3.3267, 239 / 60, 4.0, 3.3267, 4.0]
    assert found == pytest.approx(wanted, abs=5e-5)


def test_a_memory_of_one_token_is_the_nearest_chain():
    """Relative entropy from a target of order two: less than of the marginals and of every chain
    nearby, and what is lost is the information of the third token on the first, given the second.
    """
    target = markov_pair(3, order=2, rng=1)[1]
    law = sequence_law(target, [], 3)

    def lost(drafter):
        other = sequence_law(drafter, [], 3)
        return float(otm.divergences.kl_divergence(draft=other.ravel(), target=law.ravel()))

    best = block_marginals(target, context=[], length=3, memory=1)
    pair, last, middle = law.sum(axis=2), law.sum(axis=0), law.sum(axis=(0, 2))
    told = law * np.log(law * middle[None, :, None] / (pair[..., None] * last[None]))
    assert lost(best) == pytest.approx(float(told.sum()), abs=1e-13)
    known = best.transition
    for nudge in 1e-3 * RNG.normal(size=(5, 3, 3, 3)):
        nudged = BlockMarginals(
            best.rows, 0, lambda at, before, by=nudge: known(at, before) + by[at, before]
        )
        assert lost(best) < lost(nudged)
    assert lost(best) < lost(block_marginals(target, context=[], length=3))


def test_marginals_of_a_chain():
    chain = MarkovModel([[0.9, 0.1], [0.2, 0.8]])
    rows = block_marginals(chain, context=[0], length=3).rows
    powers = [np.linalg.matrix_power(chain.table, n)[0] for n in (1, 2, 3)]
    np.testing.assert_allclose(rows, powers, atol=1e-15)


# --- what is refused

HALVES, WIDE = [[0.5, 0.5]] * 2, np.zeros((3, 2))


@pytest.mark.parametrize(
    ("rows", "start", "transition", "context", "said"),
    [
        ([0.5, 0.5], 0, None, [], r"the form \(L, V\)"),
        (HALVES, 2, None, [0], "2 positions after 2 tokens"),
        (HALVES, 2, None, [0] * 4, "2 positions after 2 tokens"),
        (HALVES, 2, None, "ab", "context must be a sequence of tokens"),
        *(
            (HALVES, 0, wrong, [], r"for V = 2; got shapes")
            for wrong in (WIDE, (WIDE, WIDE), (WIDE[:2], WIDE[:2, :1]), [0.0, 0.0], (WIDE,) * 3)
        ),
        (HALVES, 0, lambda at, before: np.zeros(3), [1], r"\(1, 2\) logits for 1 tokens"),
        *(
            (HALVES, 0, np.full((2, 2), bad), [1], r"after \[1\] it does not")
            for bad in (np.nan, np.inf, -np.inf)
        ),
        (HALVES, 1, (np.full((2, 1), np.inf), np.ones((2, 1))), [0], "A transition must leave"),
        (HALVES, 1, np.zeros((2, 2)), [2], r"must lie in \[0, 2\); got 2"),
    ],
)
def test_refusals(rows, start, transition, context, said):
    with pytest.raises(otm.errors.OtmError, match=said):
        BlockMarginals(rows, start, transition).next(context)


def test_small_integers_are_a_transition_as_any_numbers_are():
    """Products of int8 would wrap; a table is a copy."""
    left, right = np.array([[100], [0]]), np.array([[2], [0]])
    wide = BlockMarginals([[0.5, 0.5]], 1, (left, right)).next([0])
    narrow = BlockMarginals([[0.5, 0.5]], 1, (left.astype(np.int8), right.astype(np.int8)))
    assert narrow.next([0]).tolist() == wide.tolist() and wide[0] > 0.99
    table = np.zeros((2, 2))
    kept = BlockMarginals([[0.5, 0.5]], 1, table)
    table[:] = [[9.0, 0.0], [0.0, 9.0]]
    assert kept.next([0]).tolist() == [0.5, 0.5]
    with pytest.raises(otm.errors.InvalidParameter, match="memory must be 0 or 1"):
        block_marginals(MarkovModel([[1.0]]), context=[], length=1, memory=2)
