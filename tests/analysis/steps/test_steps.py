"""Tokens per call by shape, by verified nodes and by lists: each row's mean against the exact law
of its decoder or against single problems; the contexts that they are read at.
"""

import numpy as np
import pytest

import otm
from analysis.errors import AnalysisError
from analysis.steps.contexts import (
    along_texts,
    stretches,
    third_by_entropy,
    written_entropy,
)
from analysis.steps.drafted_sequences import (
    CHAIN,
    REFINED,
    SCHEMES,
    TRAVERSAL,
    DraftedSequences,
)
from analysis.steps.drafters import BlurredModel
from analysis.steps.lists import BELIEF, BEST, BEST_THRESHOLD, THRESHOLD, compare_lists
from analysis.steps.nodes import ALL, LIKELIEST, NOISE_TREE, compare_nodes
from analysis.steps.rows import BOUND, against, best_within, conclusion
from analysis.steps.shapes import compare_steps
from otm.errors import InvalidParameter
from otm.sequence import (
    BlockKSeq,
    BlockVerification,
    DraftSelection,
    GreedyMultipath,
    Gsd,
    LikeliestTree,
    MarkovModel,
    NoiseTree,
    RefinedScores,
    Sampled,
    SharedNoise,
    TraversalVerification,
    ZerothOrder,
    best_step,
    expected_step,
    markov_pair,
    matched_tokens,
    noise_tokens,
)
from otm.sequence.shared_noise import perturbed
from otm.trees import TreeShape

K, L = 2, 2
CHAINS = TreeShape.sequences(K, L)
DECODERS = {
    REFINED: RefinedScores(K, L),
    CHAIN: BlockVerification(L),
    "block K-SEQ": BlockKSeq(K, L),
    "greedy multi-path block verification": GreedyMultipath(K, L),
    "optimal, vertex by vertex": DraftSelection(K, L, otm.Optimal()),
    "K-SEQ, vertex by vertex": DraftSelection(K, L, otm.KSeq()),
    "recursive rejection, vertex by vertex": DraftSelection(K, L, otm.RecursiveRejection()),
    TRAVERSAL: TraversalVerification(CHAINS, otm.IID(1)),
    "recursive rejection, tree of different first tokens": Gsd(CHAINS),
}


def models(num_tokens, similarity, seed):
    """A draft and a target by their names."""
    rng = np.random.default_rng(seed)
    draft, target = markov_pair(num_tokens, similarity=similarity, rng=rng)
    return {"draft": draft, "target": target}


HARD, PAIR = models(4, 0.4, 2), models(4, 0.6, 1)


def test_means_are_those_of_the_exact_laws():
    """One context, 150 steps: 4.5 standard errors, passed by each of eleven means with probability
    1 − 7e-6. Beside them 40 times the first two of three sequences, at the first two of eight
    tokens: five standard errors, 1 − 4e-6.
    """
    given = HARD | {"num_drafts": K, "length": L, "rng": np.random.default_rng(0)}
    found = compare_steps(**given, contexts=[(0,)] * 150)
    rows = {row.name: row for row in found.rows}
    assert set(rows) == {BOUND, *DECODERS}
    randomness = Sampled(np.random.default_rng(0))
    records = [DraftedSequences(*HARD.values(), (0,), 3, 8, randomness) for _ in range(40)]
    gained = [one.tokens(K, SCHEMES, (L,)) for one in records]
    for name, decoder in DECODERS.items():
        exact = expected_step(decoder, **HARD, context=[0]).block_efficiency
        assert abs(rows[name].mean - exact) <= 4.5 * rows[name].half / 1.96 + 1e-12, name
        assert rows[name].less == pytest.approx(rows[REFINED].mean - rows[name].mean, abs=1e-12)
        tokens = np.array([one[name][L - 1] for one in gained if name in one] or [exact] * 2)
        error = tokens.std(ddof=1) / np.sqrt(len(tokens))
        assert abs(tokens.mean() - exact) <= 5 * error + 1e-12, name
    # E different nodes of two sequences: Σ over levels of 2 − Pr(the two coincide up to there).
    p = HARD["draft"].table
    alike = (p[0] ** 2).sum(), float(np.einsum("x,xy->", p[0] ** 2, p**2))
    used = np.array([one.nodes(K)[L - 1] for one in records])
    assert abs(used.mean() - (4 - sum(alike))) <= 5 * used.std() / np.sqrt(len(used))
    best = best_step(RefinedScores(K, L), **HARD, context=[0])
    assert rows[BOUND].mean >= best.lower - 4.5 * rows[BOUND].half / 1.96
    assert found.rows[0].name == BOUND and "150 contexts" in str(found)
    # conditional expectations vary less over drafts than tokens, which do by about one
    assert rows[REFINED].half < 0.5 * rows[TRAVERSAL].half


def nodes_of(contexts, **options):
    """Compare trees of two sizes at contexts of a pair."""
    given = PAIR | {"nodes": (2, 6), "noises": 2, "numbers": (1, 2)} | options
    return compare_nodes(contexts=contexts, rng=np.random.default_rng(7), **given)


def test_rows_are_those_of_the_trees():
    """Trees by the library's own functions; the reference is less than itself by nothing."""
    contexts = [(i % 4,) for i in range(6)]
    found = nodes_of(contexts)
    rows = {(row.name, row.nodes): row for row in found.rows}
    seeds = np.random.default_rng(7).integers(1 << 53, size=2)
    noises = [SharedNoise(int(seed)) for seed in seeds]
    trees = [NoiseTree(6, 8, found.scales[1 - place % 2]) for place in range(6)]
    grown = [
        noise_tokens(tree, **PAIR, context=context, noises=noises).value[6]
        for tree, context in zip(trees, contexts, strict=True)
    ]
    likeliest = [matched_tokens(LikeliestTree(6, 8), **PAIR, context=one)[6] for one in contexts]
    for name, values in ((NOISE_TREE, grown), (LIKELIEST, likeliest)):
        assert rows[name, 6].mean == pytest.approx(np.mean(values), abs=1e-12)
        less = np.mean(grown) - np.mean(values)
        assert rows[name, 6].less == pytest.approx(less, abs=1e-12)
    assert rows[NOISE_TREE, 6].less_high == 0.0
    assert found.rows[0].name == BOUND and "6 contexts" in str(found)
    assert {name for name, _ in rows} == {*ALL, BOUND}


def test_a_target_without_chance_is_told_apart():
    """Greedy decoding: the likeliest tree and the chain of argmaxes, which misses after token 1."""
    draft, target = ZerothOrder([0.6, 0.4]), MarkovModel([[0.0, 1.0], [1.0, 0.0]])
    found = nodes_of([(1,)] * 6, draft=draft, target=target, nodes=(2, 4))
    # The text goes on 0, 1, 0, …; of four nodes the tree has 0, 1, 00 and 01, 10 or 000.
    assert [(row.name, row.mean) for row in found.rows if row.nodes == 2] == [
        (NOISE_TREE, 2.0),
        ("chain of argmaxes", 2.0),
    ]
    assert found.overlap == pytest.approx(0.6)


def test_the_best_plan_within_a_budget():
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


def test_intervals_are_over_texts():
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


def test_several_contexts_of_a_text_share_its_half():
    """Scales are fitted on the other half of the texts, whatever the order of contexts."""
    contexts = [(i % 4, i % 3) for i in range(12)]
    found = nodes_of(contexts, texts=[i // 2 for i in range(12)], only=[LIKELIEST])
    assert (found.contexts, found.texts) == (12, 6)
    # of three texts each, the contexts of one half at even places and of the other at odd ones
    order = [i for text in (0, 4, 8) for i in (text, text + 2, text + 1, text + 3)]
    apart = nodes_of([contexts[i] for i in order], only=[LIKELIEST])
    assert apart.scales == pytest.approx(found.scales)


def test_blurred_models_are_functions_of_the_context():
    model = BlurredModel(ZerothOrder([0.5, 0.25, 0.25]), 0.5)
    first, again, other = model.next_batch([(1, 2), (1, 2), (2, 1)])
    assert first.tolist() == again.tolist() != other.tolist()
    assert first.sum() == pytest.approx(1.0)
    with pytest.raises(InvalidParameter, match="deviation must lie"):
        BlurredModel(model, float("nan"))


@pytest.mark.parametrize(
    ("count", "given", "message"),
    [
        (5, {}, "at least 6 contexts"),
        (10, {"texts": [0, 1, 2, 3, 4] * 2}, "got 5"),
        (6, {"only": ["likeliest"]}, "Schemes are .*got 'likeliest'"),
    ],
)
def test_too_few_contexts_or_texts_and_other_names_are_refused(count, given, message):
    with pytest.raises(AnalysisError, match=message):
        nodes_of([(0,)] * count, **given)


def test_lists_are_those_of_single_problems():
    given, contexts = models(5, 0.6, 3), [(i % 5,) for i in range(10)]
    rng = np.random.default_rng(0)
    found = compare_lists(**given, contexts=contexts, numbers=(2,), noises=2, rng=rng)
    rows = {row.name: row for row in found.rows}
    pairs = [tuple(model.next(one) for model in given.values()) for one in contexts]
    (c,) = found.thresholds
    asked = {
        BEST: (otm.Optimal(), otm.IID(2)),
        "K-SEQ, i.i.d.": (otm.KSeq(), otm.IID(2)),
        "naive, top k": (otm.Naive(), otm.TopK(2)),
        THRESHOLD: (otm.Race(), otm.ThresholdRace(c)),
        BEST_THRESHOLD: (otm.Optimal(), otm.ThresholdRace(c)),
    }
    for name, (verifier, law) in asked.items():
        each = [otm.acceptance(verifier, otm.Problem(draft=p, target=q, law=law)) for p, q in pairs]
        assert rows[name].mean == pytest.approx(np.mean(each), abs=1e-12), name
    arrive = [np.sum(c * p / (1 + (c - 1) * p)) for p, _ in pairs]
    assert np.mean(arrive) == pytest.approx(2.0)
    assert "10 contexts" in str(found)
    # Of 20 rows the 20 most believed entries of each half: here by its own sort of all of them.
    seeds = [SharedNoise(int(one)) for one in np.random.default_rng(0).integers(1 << 53, size=2)]
    held = []
    for half in (0, 1):
        rates = [
            (perturbed(p, seed.row(1, 5)) / found.scales[1 - half], seed.choose(q, 1))
            for p, q in pairs[half::2]
            for seed in seeds
        ]
        beliefs = [np.exp(row) / np.exp(row).sum() for row, _ in rates]
        least = np.sort(np.concatenate(beliefs))[-20]
        held += [belief[y] >= least for belief, (_, y) in zip(beliefs, rates, strict=True)]
    assert rows[BELIEF].mean == pytest.approx(np.mean(held))


def test_windows_do_not_overlap():
    found = stretches(range(100), 7, 50, np.random.default_rng(0))
    assert len(found) == 14
    assert len({token for window in found for token in window}) == 98


def test_contexts_by_the_entropy_of_what_follows():
    """A chain that stays in 0, leaves 1 by a coin, and draws from four tokens after 2 and 3."""
    target = MarkovModel(
        [[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]
    )
    contexts = [(2,), (0,), (1,), (0,), (3,), (1,)]
    rng = np.random.default_rng(0)
    assert third_by_entropy(target, contexts, "low", 1, rng) == [(0,), (0,)]
    assert third_by_entropy(target, contexts, "high", 1, rng) == [(2,), (3,)]
    with pytest.raises(AnalysisError, match="low, middle, high; got 'hot'"):
        third_by_entropy(target, contexts, "hot", 1, rng)
    noises = [SharedNoise(0), SharedNoise(1)]
    assert written_entropy(target, (1,), noises, 1) == pytest.approx(np.log(2))


def test_contexts_along_texts_end_with_the_text():
    """A chain that counts up to 3, which ends the text: after (0,) and 2 tokens it is there."""
    target = MarkovModel(np.eye(4)[[1, 2, 3, 3]])
    found, texts = along_texts(
        target, [(0,), (2, 1)], count=4, apart=1, eos=3, rng=np.random.default_rng(0)
    )
    assert found == [(0,), (0, 1), (0, 1, 2), (2, 1), (2, 1, 2)]
    assert texts == [0, 0, 0, 1, 1]
    endless, _ = along_texts(
        target, [(0,)], count=3, apart=2, eos=None, rng=np.random.default_rng(0)
    )
    assert endless == [(0,), (0, 1, 2), (0, 1, 2, 3, 3)]


def test_a_table_ends_with_the_best_beside_what_engines_run():
    rows = [("at most, by level cuts", 9.0, 0.1), ("refined scores", 2.2, 0.1)]
    assert conclusion(rows) == "BEST: refined scores, 2.200 tokens per call."
    runs = ("recursive rejection, vertex by vertex", 2.0, 0.1)
    said = " ".join(conclusion([*rows, runs], "accepted").split())
    assert said.startswith("BEST: refined scores, 2.200 accepted, +0.200 (+10.0 %) over recursive")
    assert said.endswith("which engines run: worth a trial.")
    assert "not sure" in conclusion([*rows, (*runs[:2], 0.2)])
