"""What becomes of drafts given the output: against the enumerated kernels of the verifiers, walks
against exact steps, and what drafts are lost to along texts.
"""

import itertools
import math

import numpy as np
import pytest

import otm
from analysis.advise.laws import (
    RankLaw,
    kseq_survivors,
    optimal_survivors,
    race_agreement,
    race_ranks,
    rejection_ranks,
    single_survivors,
)
from analysis.advise.losses import SEVERAL, _expected, first_drafts, measure_losses
from analysis.advise.walk import (
    Walk,
    along_all_lengths,
    along_block,
    along_scores,
    along_tree,
    tree_gains,
)
from analysis.models.from_logits import UNLIMITED
from analysis.steps.likeliest_trees import match_law
from analysis.steps.noise_trees import noise_given, noise_law
from otm import Processing, optimal_acceptance
from otm.drafts import IID, WithoutReplacement
from otm.drafts.base import enumerate_drafts
from otm.losses import acceptance_losses, draft_rounding
from otm.problem import Problem
from otm.sequence import (
    Absorbing,
    BlockVerification,
    DraftSelection,
    Gsd,
    LikeliestTree,
    NoiseTree,
    RefinedScores,
    SharedNoise,
    SpeculativeSampling,
    expected_step,
    markov_pair,
    matched_tokens,
    noise_tokens,
)
from otm.sequence.randomness import Enumerated
from otm.trees import TreeShape, acceptance_vector
from tests.analysis.toys import Toy, sampled_text, text_of
from tests.sequence.toys import random_pair_of_rows

LAWS = ((kseq_survivors, otm.KSeq()), (optimal_survivors, otm.Optimal()))
MOST = 4


RNG = np.random.default_rng(7)
SMOOTH = [tuple(RNG.dirichlet(np.full(4, shape), size=2)) for shape in (0.3, 1.0, 1.0, 3.0)]
PAIRS = [*SMOOTH, *(random_pair_of_rows(4, RNG) for _ in range(8))]


@pytest.mark.parametrize(
    "law, verifier", LAWS, ids=lambda value: getattr(value, "__name__", str(value))
)
@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_survivors_have_the_law_of_the_enumerated_kernel(law, verifier, number):
    p, q = PAIRS[number]
    tokens = np.flatnonzero(q > 0)
    found = law(
        np.tile(p, (len(tokens), 1)), np.tile(q, (len(tokens), 1)), tokens, most=MOST, eos=1
    )
    for m in range(1, MOST + 1):
        problem = otm.Problem(draft=p, target=q, law=IID(m))
        drafts = enumerate_drafts(IID(m), p)
        accepted, residual = otm.prepare(verifier, problem).split(drafts.tokens)
        joint = drafts.mass[:, None] * (accepted + residual)
        truth = np.zeros((4, m + 1))
        for y in range(4):
            np.add.at(truth[y], (drafts.tokens == y).sum(axis=1), joint[:, y])
        # Sums of 4^m products of at most m + 2 factors.
        np.testing.assert_allclose(
            found.given[:, m, : m + 1] * q[tokens, None], truth[tokens], atol=1e-13
        )
        np.testing.assert_allclose(found.alive[:, m], truth[[0, 2, 3], 1:].sum(), atol=1e-13)


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_race_ranks_have_the_law_of_the_enumerated_races(number):
    p, q = PAIRS[number]
    most = min(3, int((p > 0).sum()))
    coupling = otm.coupling(
        otm.Race(), otm.Problem(draft=p, target=q, law=WithoutReplacement(most))
    )
    truth = np.zeros((4, most))
    joint = coupling.joint.toarray()
    for drafts, row in zip(coupling.drafts, joint, strict=True):
        for rank, token in enumerate(drafts[drafts >= 0]):
            truth[token, rank] += row[token]
    tokens = np.flatnonzero(q > 0)
    found = race_ranks(
        np.tile(p, (len(tokens), 1)), np.tile(q, (len(tokens), 1)), tokens, most=most, eos=1
    )
    # the quadrature, as documented
    np.testing.assert_allclose(found.given * q[tokens, None], truth[tokens], atol=1e-7)
    np.testing.assert_array_equal(
        found.accepted, np.where((tokens == 1)[:, None], 0.0, found.given)
    )


def test_race_ranks_of_many_tokens_that_overtake():
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.full(200, 0.05))
    q = 0.5 * p + 0.5 * rng.dirichlet(np.full(200, 0.05))
    tokens = np.flatnonzero(q > 0)
    found = race_ranks(
        np.tile(p, (len(tokens), 1)), np.tile(q, (len(tokens), 1)), tokens, most=5, eos=None
    )
    for k in (1, 5):
        exact = otm.acceptance(
            otm.Race(), otm.Problem(draft=p, target=q, law=WithoutReplacement(k))
        )
        assert abs(q[tokens] @ found.given[:, :k].sum(axis=1) - exact) < 1e-7


def test_ranks_have_the_acceptance_vector_as_their_mean():
    p, q = PAIRS[1]
    exact = acceptance_vector(
        otm.RecursiveRejection(), otm.Problem(draft=p, target=q, law=WithoutReplacement(3))
    )
    samples = 4_000
    found = rejection_ranks(
        np.tile(p, (4, 1)),
        np.tile(q, (4, 1)),
        np.arange(4),
        most=3,
        eos=None,
        rng=np.random.default_rng(0),
        samples=samples,
    )
    # The first two ranks draw one child at most, and values lie in [0, 1]: Hoeffding at 1e-9 for
    # the mean of all 4 rows.
    reach = np.sqrt(np.log(2 / 1e-9) / (2 * samples))
    np.testing.assert_allclose(found.accepted, np.tile(exact, (4, 1)), atol=reach)
    np.testing.assert_allclose((found.given * q[:, None]).sum(axis=0), exact, atol=reach)
    np.testing.assert_allclose(found.accepted[:, 0], exact[0], atol=1e-14)


DRAFT, TARGET = markov_pair(3, similarity=0.4, rng=np.random.default_rng(5))


def mean_over_texts(value, length=3):
    """Average over every text of the target."""
    every = itertools.product(range(3), repeat=length)
    texts = [text_of(tokens, DRAFT, TARGET) for tokens in every]
    return sum(text.target[np.arange(length), text.tokens].prod() * value(text) for text in texts)


def exactly(decoder):
    """The tokens per call of the library's exact step."""
    return expected_step(decoder, draft=DRAFT, target=TARGET, context=[0]).block_efficiency


@pytest.mark.parametrize(
    "law, verifier", LAWS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_a_step_yields_what_the_exact_step_does(law, verifier):
    def tokens(text):
        laws = law(text.draft, text.target, text.tokens, most=3, eos=None)
        return along_all_lengths(laws, num_drafts=3, most=3, starts=1)[-1].tokens

    exact = exactly(DraftSelection(3, 3, verifier))
    assert mean_over_texts(tokens) == pytest.approx(exact, abs=1e-12)


def test_a_tree_yields_what_the_exact_step_does():
    """Texts of all kinds, averaged; the second child's law rests on samples."""
    shape, rng = TreeShape([0, 1, 0, 3, 1]), np.random.default_rng(3)

    def tokens(text):
        given = (text.draft, text.target, text.tokens)
        laws = rejection_ranks(*given, most=2, eos=None, rng=rng, samples=1_000)
        return along_tree(laws, shape=shape, starts=1).tokens

    # 9 texts of 1,000 samples in [0, 1] at two positions each
    assert mean_over_texts(tokens, 2) == pytest.approx(exactly(Gsd(shape)), abs=0.04)


def test_steps_start_where_the_decoder_stands():
    """Certain acceptance makes steps of L + 1 tokens, certain rejection of one; walks add up over
    all lengths.
    """
    rows = np.full((12, 2), 0.5)
    tokens = np.zeros(12, dtype=np.int64)
    sure = kseq_survivors(rows, rows, tokens, most=1, eos=None)
    walks = along_all_lengths(sure, num_drafts=1, most=3, starts=8)
    assert [(walk.steps, walk.tokens) for walk in walks] == [(4.0, 8.0), (3.0, 9.0), (2.0, 8.0)]
    never = kseq_survivors(
        np.tile([0.0, 1.0], (12, 1)), np.tile([1.0, 0.0], (12, 1)), tokens, most=1, eos=None
    )
    assert [
        (walk.steps, walk.tokens)
        for walk in along_all_lengths(never, num_drafts=1, most=2, starts=8)
    ] == [(8.0, 8.0)] * 2


def test_nothing_follows_the_end_of_a_text():
    """Drafts that end the text win no token beyond it."""
    rows = np.tile([0.5, 0.5], (2, 1))
    law = kseq_survivors(rows, rows, np.array([0, 1]), most=1, eos=1)
    walk = along_all_lengths(law, num_drafts=1, most=2, starts=2)[-1]
    # The first draft counts if it is token 0, the second if the first was and it is 0 too: 1 + 1/2
    # + 1/2, then the text is over.
    assert (walk.steps, walk.tokens) == (1.0, 2.0)


def test_a_tree_without_branches_walks_as_its_chain():
    """The first child's law needs no sample, so both walks are exact, from every start."""
    rng = np.random.default_rng(11)
    p, q = rng.dirichlet(np.ones(5), size=(2, 12))
    tokens = rng.integers(5, size=12)
    single = kseq_survivors(p, q, tokens, most=1, eos=2)
    ranked = rejection_ranks(p, q, tokens, most=1, eos=2, rng=rng)
    tree = along_tree(ranked, shape=TreeShape.chain(3), starts=9)
    chain = along_all_lengths(single, num_drafts=1, most=3, starts=9)[-1]
    assert (tree.steps, tree.tokens) == pytest.approx((chain.steps, chain.tokens), abs=1e-12)
    assert tree.accepted == pytest.approx(chain.accepted, abs=1e-12)
    assert 1.0 < chain.steps < 9.0
    # a text that ends earlier, beside the whole one
    short = RankLaw(ranked.given[:4], ranked.accepted[:4])
    several = tree_gains([ranked, short], shape=TreeShape.chain(3), starts=9)
    gains = several[0]
    assert (gains[0], gains.sum()) == pytest.approx((tree.steps, tree.tokens), abs=1e-12)
    cut = along_tree(short, shape=TreeShape.chain(3), starts=9)
    assert (several[1][0], several[1].sum()) == pytest.approx((cut.steps, cut.tokens), abs=1e-12)


def test_one_draft_has_the_acceptance_of_its_verifier_and_the_law_given_the_output():
    """Sums over outputs are the library's acceptances, whichever rule agrees with the draft."""
    p, q = np.array([one for one in PAIRS if (one[0] > 0).all()]).transpose(1, 0, 2)
    problem = otm.Problem(draft=p, target=q, law=IID(1))
    for joint, verifier in (
        (np.minimum(p, q), otm.Maximal()),
        (p * q, otm.Naive()),
        (race_agreement(p, q), otm.Race()),
    ):
        exact = otm.acceptance(verifier, problem)
        np.testing.assert_allclose(joint.sum(axis=1), exact, atol=1e-14)
        tokens = q.argmax(axis=1)
        law = single_survivors(joint, q, tokens, eos=2)
        at = np.arange(len(q)), tokens
        np.testing.assert_allclose(law.given[:, 1, 1] * q[at], joint[at], atol=1e-15)
        np.testing.assert_allclose(law.alive[:, 1], joint[:, [0, 1, 3]].sum(axis=1), atol=1e-15)


def test_block_verification_yields_its_exact_step():
    def tokens(text):
        return np.array([walk.tokens for walk in along_block(text, most=3, starts=1, eos=None)])

    exact = [exactly(BlockVerification(length)) for length in (1, 2, 3)]
    assert mean_over_texts(tokens) == pytest.approx(exact, abs=1e-12)
    # the last draft may end the text, which is not counted: token 1 is drafted after (0, 0)
    text = text_of((0, 0), DRAFT, TARGET)
    whole, ending = (along_block(text, most=2, starts=1, eos=eos)[-1] for eos in (None, 1))
    p, q = text.draft[1], text.target[1]
    odds = text.draft[0, 0] / text.target[0, 0]
    lost = whole.accepted[1] - ending.accepted[1]
    assert lost == pytest.approx(min(min(1.0, odds) * q[1], odds * p[1]), abs=1e-15)


def test_refined_scores_are_expected_to_accept_what_a_step_does():
    """The first step of many texts against the enumerated one, by standard errors; where the models
    can read no more none is taken, and a text ends where the target ends it.
    """
    decoder, rng = RefinedScores(2, 2), np.random.default_rng(1)

    def walk(starts, longest=UNLIMITED, eos=None):
        how = {"decoder": decoder, "starts": starts, "longest": longest, "eos": eos}
        return along_scores(DRAFT, TARGET, (0,), rng=rng, **how)

    found = np.array([walk(1).tokens for _ in range(400)])
    error = found.std(ddof=1) / math.sqrt(len(found))
    assert abs(found.mean() - exactly(decoder)) < 5.0 * error < 0.1
    assert walk(4, longest=2).steps == 0 and walk(4, longest=3).steps == 1
    ended = [walk(40, eos=2).visits.nonzero()[0].max() for _ in range(20)]
    assert max(ended) < 39 < walk(40).visits.nonzero()[0].max() + 3


def test_trees_on_the_noise_of_a_text_yield_what_trees_on_noise_do():
    rng, found = np.random.default_rng(0), []
    how = {"scale": 0.7, "sizes": (4,), "depth": 3}
    for _ in range(500):
        text = sampled_text(DRAFT, TARGET, rng, 3)
        noise = noise_given(text, rng)
        np.testing.assert_array_equal((np.log(text.target) + noise).argmax(axis=1), text.tokens)
        law = noise_law(DRAFT, text, noise=noise, **how, starts=1, eos=None)
        found.append(Walk.of(*law.at(size=4, depth=3)).tokens)
    noises = [SharedNoise(seed) for seed in range(500)]
    tree = NoiseTree(4, 3, 0.7)
    exact = noise_tokens(tree, draft=DRAFT, target=TARGET, context=[0], noises=noises)
    # two means of 500 numbers of one law: five standard errors
    error = np.std(found, ddof=1) * np.sqrt(2 / 500)
    assert np.mean(found) == pytest.approx(exact.value[4], abs=5 * error)
    # what ends the text is drafted and not counted
    ended = noise_law(DRAFT, text, noise=noise, **how, starts=3, eos=int(text.tokens[-1]))
    assert ended.gained[0, 0, 0, 2] == 0.0


def matched(draft, text, starts, eos=None):
    return match_law(draft, text, sizes=(1, 2, 4, 7), depth=3, starts=starts, eos=eos)


def test_likeliest_trees_yield_their_exact_expectation():
    """Averaged over every text, the first step's tokens are those that the library computes for
    every size and depth.
    """
    trees = [LikeliestTree(*sizes) for sizes in itertools.product((1, 2, 4, 7), (1, 2, 3))]

    def tokens(text):
        law = matched(DRAFT, text, 1)
        return np.array([Walk.of(*law.at(size=t.size, depth=t.depth)).tokens for t in trees])

    exact = [matched_tokens(t, draft=DRAFT, target=TARGET, context=[0])[-1] for t in trees]
    assert mean_over_texts(tokens) == pytest.approx(exact, abs=1e-12)


def test_likeliest_trees_walk_and_work_as_the_decoder_does():
    """At every position the tree that the decoder drafts there, with its draft calls; the end of
    the text wins nothing.
    """
    draft, target = markov_pair(3, similarity=0.7, rng=np.random.default_rng(8))
    text, eos, starts = text_of((0, 1, 0, 0, 1, 0, 0, 2), draft, target), 2, 8
    law = matched(draft, text, starts, eos)
    for place, size in enumerate(law.sizes):
        at, steps, calls, drafting = 0, 0, 0, 0
        stands = []
        for start in range(starts):
            tree = LikeliestTree(size, 3).draft(
                Absorbing(draft, eos, start=1), text.context(start), Enumerated({})
            )
            paths = {path[1 + start :] for path in tree.contexts() if path is not None}
            calls += len({len(context) for context in tree.draft})
            drafting += len(tree.draft)
            stands.append(
                max(i for i in range(4) if tuple(text.tokens[start : start + i]) in paths)
            )
        while at < starts:
            steps, at = steps + 1, at + 1 + stands[at]
        depth = min(size, 3)  # what a tree of this size can reach
        assert Walk.of(*law.at(size=size, depth=depth)).steps == steps
        assert law.calls[depth - 1, place] == pytest.approx(calls / starts) and law.drafting[
            depth - 1, place
        ] == pytest.approx(drafting / starts)
    # At the last position only the end is left to accept, which is not counted; before it the rest
    # of the tree's first level is.
    last = law.gained[2, -1, 0, -1]
    drafted = LikeliestTree(7, 3).draft(draft, text.context(7), Enumerated({}))
    first = {path[-1] for path in drafted.contexts() if path is not None and len(path) == 9}
    assert last == pytest.approx(sum(text.target[7, token] for token in first - {eos}))


CHAIN = SpeculativeSampling(2)


def test_the_end_of_a_text_wins_nothing():
    """One level, all tokens drafted: both trees hold whatever the target writes but the end."""
    draft, target = markov_pair(3, similarity=0.5, rng=np.random.default_rng(2))
    ends = _expected(draft, target, (0, 1), LikeliestTree(3, 1), 2)
    assert ends == pytest.approx([2.0 - target.next((0, 1))[2]] * 2)


TEXTS = [(0, (0,), (1, 2, 3)), (0, (1,), (0, 1)), (1, (2, 2), (3, 1, 1, 0))]
CONTEXTS = [(*prefix, *text[:end]) for _, prefix, text in TEXTS for end in range(len(text))]


@pytest.fixture
def pair():
    chains = markov_pair(5, similarity=0.5, rng=np.random.default_rng(4))
    return [Toy(model, Processing(temperature=0.8)) for model in chains]


def looked(pair, decoder, *, seconds=60.0, rounded=False):
    """What drafts are lost to: with so much time, at every position of three texts."""
    return measure_losses(
        *pair,
        TEXTS,
        decoder=decoder,
        tree=LikeliestTree(2, 2),
        eos=None,
        seconds=seconds,
        rng=np.random.default_rng(0),
        rounded=rounded,
    )


def test_shares_are_means_over_positions(pair):
    """The accepted share is the mean of Σ min, and everything makes 1."""
    found = looked(pair, CHAIN)
    p, q = (model.next_batch(CONTEXTS) for model in pair)
    overlap = float(np.mean(optimal_acceptance(Problem(draft=p, target=q, law=IID(1)))))
    assert found.positions == 9 and found.accepted.value == pytest.approx(overlap, abs=1e-13)
    whole = found.accepted.value + sum(share.value for share in found.parts.values())
    assert whole == pytest.approx(1.0, abs=1e-13)
    assert found.accepted.low < found.accepted.value < found.accepted.high
    assert 1.0 < found.tokens.value <= found.clairvoyant.value <= 3.0
    hasty = looked(pair, CHAIN, seconds=0.0)
    assert 2 <= hasty.positions <= 4 and not hasty.accepted.has_interval


def test_the_drafts_of_the_advised_plan_and_rounding_are_told_apart(pair):
    """The means of what the library says of three drafts, and of rounded ones."""
    plan = DraftSelection(3, 2)
    found = looked(pair, plan, rounded=True)
    logits = [model.logits(CONTEXTS).numpy() for model in pair]
    sides = dict(zip(("draft", "target"), (model.processing for model in pair), strict=True))
    whole = acceptance_losses(*logits, k=3, **sides, verifier=plan.verifier).mean()
    several, rounding = found.several, found.rounding
    assert several is not None and rounding is not None
    assert (several.drafts, several.verifier) == (3, str(plan.verifier))
    assert several.accepted.value == pytest.approx(whole["acceptance"], abs=1e-12)
    assert {name: share.value for name, share in several.parts.items()} == pytest.approx(
        {name: whole[name] for name in SEVERAL}, abs=1e-12
    )
    assert several.parts["verifier"].value > 1e-4 and found.accepted.value < several.accepted.value
    p, q = (model.next_batch(CONTEXTS) for model in pair)
    change = draft_rounding(draft=p, target=q)
    for name in ("gain", "output_tv", "draft_tv"):
        mean = float(getattr(change, name).mean())
        assert getattr(rounding, name).value == pytest.approx(mean, abs=1e-15)
    assert 0.0 < rounding.output_tv.value <= rounding.draft_tv.value


def test_how_many_drafts_a_plan_begins_with():
    draft, _ = markov_pair(4, similarity=0.5, rng=np.random.default_rng(3))
    contexts = [(0,), (1, 2)]
    for decoder, wanted in (
        (CHAIN, 1),
        (DraftSelection(4, 3), 4),
        (Gsd(TreeShape([0, 0, 1, 0])), 3),
        (LikeliestTree(3, 1), 3),
    ):
        assert first_drafts(decoder, draft, contexts) == wanted
    assert 1 <= first_drafts(LikeliestTree(4, 4), draft, contexts) <= 4
