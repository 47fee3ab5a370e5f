"""Tokens per call by verified nodes: each plan's mean against the exact law of its decoder, nodes
counted once, and plans within a budget.
"""

from __future__ import annotations

import numpy as np
import pytest

import otm
from analysis.errors import AnalysisError
from analysis.steps.drafters import BlurredModel
from analysis.steps.gains import BOUND, CHAIN, REFINED, SCHEMES, TRAVERSAL, DraftedSequences
from analysis.steps.nodes import ALL, LIKELIEST, NOISE_TREE, compare_nodes
from analysis.steps.rows import against, best_within
from otm.errors import InvalidParameter
from otm.sequence import (
    BlockKSeq,
    BlockVerification,
    DraftSelection,
    GreedyMultipath,
    RefinedScores,
    Sampled,
    SharedNoise,
    TraversalVerification,
    ZerothOrder,
    expected_step,
    markov_pair,
    matched_tokens,
    noise_tokens,
)
from otm.trees import TreeShape

K, L = 2, 2
PLANS = {
    (REFINED, K): RefinedScores(K, L),
    (CHAIN, 1): BlockVerification(L),
    ("block K-SEQ", K): BlockKSeq(K, L),
    ("greedy multi-path block verification", K): GreedyMultipath(K, L),
    ("optimal, vertex by vertex", K): DraftSelection(K, L, otm.Optimal()),
    ("recursive rejection, vertex by vertex", K): DraftSelection(K, L, otm.RecursiveRejection()),
    (TRAVERSAL, K): TraversalVerification(TreeShape.sequences(K, L), otm.IID(1)),
}


def test_plans_have_the_tokens_of_their_decoders() -> None:
    """40 times from one context: the first two of three sequences, the first two of eight tokens;
    five standard errors, passed by each of seven means with probability 1 − 4e-6.
    """
    draft, target = markov_pair(4, similarity=0.4, rng=np.random.default_rng(2))
    randomness = Sampled(np.random.default_rng(0))
    records = [DraftedSequences(draft, target, (0,), 3, 8, randomness) for _ in range(40)]
    gained = {k: [one.gained(k, SCHEMES, (L,)) for one in records] for k in (1, K)}
    for (name, number), decoder in PLANS.items():
        exact = expected_step(decoder, draft=draft, target=target, context=[0]).block_efficiency
        found = np.array([tokens[name][L - 1] for tokens in gained[number]])
        error = found.std(ddof=1) / np.sqrt(len(found))
        assert abs(found.mean() - exact) <= 5 * error + 1e-12, name
    # E different nodes of two sequences: Σ over levels of 2 − Pr(the two coincide up to there).
    p = draft.table
    alike = (p[0] ** 2).sum(), float(np.einsum("x,xy->", p[0] ** 2, p**2))
    used = np.array([one.nodes(K)[L - 1] for one in records])
    assert abs(used.mean() - (4 - sum(alike))) <= 5 * used.std() / np.sqrt(len(used))


def test_rows_are_those_of_the_trees() -> None:
    """Trees by the library's own functions; the reference is less than itself by nothing."""
    draft, target = markov_pair(4, similarity=0.6, rng=np.random.default_rng(1))
    contexts = [(i % 4,) for i in range(6)]
    found = compare_nodes(
        draft=draft,
        target=target,
        contexts=contexts,
        nodes=(2, 6),
        noises=2,
        numbers=(1, 2),
        rng=np.random.default_rng(7),
    )
    rows = {(row.name, row.nodes): row for row in found.rows}
    seeds = np.random.default_rng(7).integers(1 << 53, size=2)
    grown = [
        noise_tokens(
            otm.sequence.NoiseTree(6, 8, found.scales[1 - place % 2]),
            draft=draft,
            target=target,
            context=context,
            noises=[SharedNoise(int(seed)) for seed in seeds],
        ).value[6]
        for place, context in enumerate(contexts)
    ]
    likeliest = [
        matched_tokens(
            otm.sequence.LikeliestTree(6, 8), draft=draft, target=target, context=context
        )[6]
        for context in contexts
    ]
    assert rows[NOISE_TREE, 6].mean == pytest.approx(np.mean(grown), abs=1e-12)
    assert rows[LIKELIEST, 6].mean == pytest.approx(np.mean(likeliest), abs=1e-12)
    less = np.mean(np.array(grown) - np.array(likeliest))
    assert rows[LIKELIEST, 6].less == pytest.approx(less, abs=1e-12)
    assert rows[NOISE_TREE, 6].less == rows[NOISE_TREE, 6].less_high == 0.0
    assert found.rows[0].name == BOUND
    assert "6 contexts" in str(found)
    assert {name for name, _ in rows} == {*ALL, BOUND}


def test_a_target_without_chance_is_told_apart() -> None:
    """Greedy decoding: the likeliest tree and the chain of argmaxes, which misses after token 1."""
    draft, target = ZerothOrder([0.6, 0.4]), otm.sequence.MarkovModel([[0.0, 1.0], [1.0, 0.0]])
    found = compare_nodes(
        draft=draft,
        target=target,
        contexts=[(1,)] * 6,
        nodes=(2, 4),
        noises=2,
        rng=np.random.default_rng(0),
    )
    # The text goes on 0, 1, 0, …; of four nodes the tree has 0, 1, 00 and 01, 10 or 000.
    assert [(row.name, row.mean) for row in found.rows if row.nodes == 2] == [
        (NOISE_TREE, 2.0),
        ("chain of argmaxes", 2.0),
    ]
    assert found.overlap == pytest.approx(0.6)


def test_the_best_plan_within_a_budget() -> None:
    """One number for a part of the steps and the next for the rest, so that nodes are the budget;
    a length by what it yields.
    """
    tokens = np.array([[[1.5, 1.9], [1.7, 2.5]], [[1.5, 1.9], [1.9, 2.5]]])
    used = np.broadcast_to([[1.0, 2.0], [1.8, 3.5]], tokens.shape)
    one = best_within((1, 2), used, tokens, 1)
    assert (one.used, one.plan, one.tokens.tolist()) == (1.0, "K = 1, L = 1", [1.5, 1.5])
    more = best_within((1, 2), used, tokens, 3)
    assert more.plan == "K = 1 to 2, L = 2"
    assert more.used == pytest.approx(3.0)
    np.testing.assert_allclose(more.tokens, 1.9 + 0.6 / 1.5)
    assert best_within((1, 2), used, tokens, 9).used == 3.5


def test_intervals_are_over_texts() -> None:
    """Two contexts of each of three texts: Student's t of the three means, all as large."""
    tokens = np.array([1.0, 3.0, 2.0, 2.5, 4.0, 6.0])
    found = against(tokens, np.full(6, 5.0), [0, 0, 1, 1, 2, 2])
    means = tokens.reshape(3, 2).mean(axis=1)
    half = 4.302652729911275 * means.std(ddof=1) / np.sqrt(3)  # t with 2 degrees, 97.5 %
    assert found["mean"] == pytest.approx(means.mean())
    assert found["high"] - found["mean"] == pytest.approx(half)
    assert found["less"] == pytest.approx(5.0 - means.mean())
    each = against(tokens, tokens)
    assert each["mean"] - each["low"] == pytest.approx(
        2.5705818356363146 * tokens.std(ddof=1) / np.sqrt(6)
    )


def test_several_contexts_of_a_text_share_its_half() -> None:
    """Scales are fitted on the other half of the texts, whatever the order of contexts."""
    draft, target = markov_pair(4, similarity=0.6, rng=np.random.default_rng(1))
    given = {"draft": draft, "target": target, "nodes": (2,), "noises": 2, "numbers": (1,)}
    contexts = [(i % 4, i % 3) for i in range(12)]
    found = compare_nodes(
        **given,
        contexts=contexts,
        texts=[i // 2 for i in range(12)],
        only=[LIKELIEST],
        rng=np.random.default_rng(0),
    )
    assert (found.contexts, found.texts) == (12, 6)
    even = [one for i, one in enumerate(contexts) if (i // 2) % 2 == 0]
    odd = [one for i, one in enumerate(contexts) if (i // 2) % 2 == 1]
    apart = compare_nodes(
        **given,
        contexts=[one for pair in zip(even, odd, strict=True) for one in pair],
        only=[LIKELIEST],
        rng=np.random.default_rng(0),
    )
    assert apart.scales == pytest.approx(found.scales)


def test_blurred_models_are_functions_of_the_context() -> None:
    model = BlurredModel(ZerothOrder([0.5, 0.25, 0.25]), 0.5)
    first, again, other = model.next_batch([(1, 2), (1, 2), (2, 1)])
    assert first.tolist() == again.tolist() != other.tolist()
    assert first.sum() == pytest.approx(1.0)
    with pytest.raises(InvalidParameter, match="deviation must lie"):
        BlurredModel(model, float("nan"))


@pytest.mark.parametrize(
    ("count", "only", "message"),
    [(5, None, "at least 6 contexts"), (6, ["likeliest"], "Schemes are .*got 'likeliest'")],
)
def test_it_refuses_too_few_contexts_and_other_names(
    count: int, only: list[str] | None, message: str
) -> None:
    draft, target = markov_pair(3, rng=np.random.default_rng(0))
    with pytest.raises(AnalysisError, match=message):
        compare_nodes(
            draft=draft,
            target=target,
            contexts=[(0,)] * count,
            nodes=(2,),
            noises=2,
            only=only,
            rng=np.random.default_rng(0),
        )
