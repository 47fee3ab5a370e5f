"""Steps and generation: what is returned, where texts end, what is refused, and that nothing
already decoded is lost.
"""

import itertools

import numpy as np
import pytest

import otm
from otm.sequence import (
    DECODERS,
    Absorbing,
    BlockMarginals,
    BlockVerification,
    DraftSelection,
    Ersd,
    Fly,
    Generation,
    GreedyMultipath,
    Gsd,
    LikeliestTree,
    NoiseTree,
    PrefixTree,
    RefinedScores,
    RegretBudget,
    Sampled,
    SampledTree,
    SpeculativeSampling,
    Staged,
    StaticDecoder,
    Step,
    StochasticBeam,
    TableModel,
    TraversalVerification,
    TreeVerification,
    ZerothOrder,
    best_step,
    expected_calls,
    expected_step,
    generate,
    level_cut_upper,
    loose_step,
    markov_pair,
    matched_tokens,
    step,
    step_law,
    steps,
)
from otm.sequence.models import DerivedModel
from otm.trees import TreeShape
from tests.sequence.toys import IID, asked, bias, with_further

TREE = TreeShape([0, 0, 1])
MIDDLE = ZerothOrder([0.3, 0.4, 0.3])
LISTED = [
    SpeculativeSampling(2),
    PrefixTree((2, 1)),
    TreeVerification(TREE, IID, otm.Optimal()),
    GreedyMultipath(2, 2, stem=1),
    LikeliestTree(3, 2),
    NoiseTree(3, 2, cells=2),
    SampledTree(3, 2),
    Staged(BlockVerification(1), MIDDLE, 2),
]
INSTANCES = with_further(LISTED, length=2, width=2, tree=TREE)
DRAFT, TARGET = ZerothOrder([0.5, 0.3, 0.2]), ZerothOrder([0.2, 0.5, 0.3])
MODELS = {"draft": DRAFT, "target": TARGET}
SURE = dict.fromkeys(("draft", "target"), ZerothOrder([0.0, 1.0]))

CHAIN = SpeculativeSampling(2)
CUT = {"num_drafts": 2, "length": 1, "samples": 9, "context": []}


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("decoder", INSTANCES, ids=repr)
class TestEveryDecoder:
    def test_steps_add_up_to_the_text(self, decoder):
        text = generate(decoder, **MODELS, context=[0], num_tokens=20, rng=rng())
        decoded = list(itertools.chain.from_iterable(one.tokens for one in text.steps))
        assert text.tokens == tuple(decoded[:20])
        assert text.num_calls == len(text.steps) < 20
        assert text.tokens_per_call == len(decoded) / len(text.steps)
        assert not text.ended
        for one in text.steps:
            assert len(one.tokens) == one.accepted + 1
            assert len(one.survivors) == one.accepted <= decoder.depth <= decoder.num_nodes
            assert one.stopped in ("rejected", "end_of_draft")
            if isinstance(decoder, StaticDecoder):
                reached = [decoder.shape.levels[list(v)].tolist() for v in one.survivors]
                assert [set(levels) for levels in reached] == [{i + 1} for i in range(one.accepted)]
        again = generate(decoder, **MODELS, context=[0], num_tokens=20, rng=rng())
        assert again == text  # a function of the generator

    def test_lossless_up_to_the_end_of_the_text(self, decoder):
        """Token 2 absorbs both models, and steps are cut at it."""
        assert bias(decoder, Absorbing(DRAFT, 2), Absorbing(TARGET, 2), step=step_law) < 5e-11
        text = generate(decoder, **MODELS, context=[], num_tokens=10_000, rng=rng(), eos=2)
        assert text.ended and text.tokens.index(2) == len(text.tokens) - 1
        for one in text.steps:
            assert (one.stopped == "end_of_sequence") == (one.tokens[-1] == 2)
            assert one.accepted in (len(one.tokens), len(one.tokens) - 1)

    def test_one_batch_per_step_for_the_target_one_per_level_for_the_draft(self, decoder):
        draft, target = Counting(DRAFT), Counting(TARGET)
        step(decoder, draft=draft, target=target, context=[], randomness=Sampled(rng()))
        assert target.calls == 1
        # the next draft depends on a look at the one before
        if isinstance(decoder, SampledTree | Staged):
            assert 1 <= draft.calls <= decoder.num_nodes
        else:
            assert draft.calls == decoder.depth


class Counting(DerivedModel):
    """Counts batched calls, and answers NaN once a context has `after` tokens or more."""

    def __init__(self, model, after=np.inf):
        self.model, self.calls, self.after = model, 0, after

    def next_batch(self, contexts):
        self.calls += 1
        rows = self.model.next_batch(contexts)
        return np.where([[len(context) >= self.after] for context in contexts], np.nan, rows)


@pytest.mark.parametrize("culprit", ["draft", "target"])
def test_nothing_decoded_is_lost_when_a_model_breaks(culprit):
    wanted = {"context": [], "num_tokens": 60}
    whole = generate(Gsd(TREE), **MODELS, **wanted, rng=rng())
    models = MODELS | {culprit: Counting(MODELS[culprit], after=20)}
    with pytest.raises(
        otm.errors.DecodingInterrupted,
        match=rf"of 60 tokens: After context .*{culprit}.*finite.*\.generation",
    ) as caught:
        generate(Gsd(TREE), **models, **wanted, rng=rng())
    partial = caught.value.generation
    assert isinstance(partial, Generation) and not partial.ended
    assert 0 < len(partial.tokens) < 60
    assert partial.tokens == whole.tokens[: len(partial.tokens)]
    assert partial.steps == whole.steps[: len(partial.steps)]
    assert isinstance(caught.value.__cause__, otm.errors.InvalidDistribution)
    models[culprit] = Counting(MODELS[culprit], after=0)
    with pytest.raises(otm.errors.InvalidDistribution, match=rf"After context \(\): the {culprit}"):
        generate(Gsd(TREE), **models, **wanted, rng=rng())


@pytest.mark.parametrize("ask", [step_law, expected_step, best_step, step])
def test_different_vocabularies(ask):
    further = {"randomness": Sampled(rng())} if ask is step else {}
    for pair, sizes in (((DRAFT, SURE["target"]), "3 and 2"), ((SURE["draft"], TARGET), "2 and 3")):
        with pytest.raises(otm.errors.ShapeMismatch, match=f"vocabulary; they have {sizes} tokens"):
            ask(CHAIN, **asked(pair), **further)


def stepped(decoder):
    return step(decoder, **MODELS, context=[], randomness=Sampled(rng()))


TREES = (Gsd, Ersd, TraversalVerification, lambda tree: TreeVerification(tree, IID, otm.Naive()))
REFUSED = [
    *(
        (make, "at least|must lie in|must be")
        for make in (
            lambda: SpeculativeSampling(0),
            lambda: DraftSelection(0, 2),
            lambda: DraftSelection(2, 0),
            lambda: PrefixTree((2, 0)),
            lambda: PrefixTree(()),
            lambda: GreedyMultipath(2, 2, stem=-1),
            lambda: RefinedScores(2, 2, cells=1),
            lambda: LikeliestTree(0, 1),
            lambda: LikeliestTree(1, 0),
            lambda: LikeliestTree(1, 1, width=0),
            lambda: StochasticBeam(0, 1),
            lambda: StochasticBeam(1, 0),
            lambda: Staged(SpeculativeSampling(1), MIDDLE, 0),
            lambda: Fly(2, window=0),
            lambda: Fly(2, samples=-1),
            lambda: Fly(2, entropy=-0.5),
            lambda: RegretBudget(2, budget=-0.5),
            lambda: RegretBudget(2, gate=-0.5),
            lambda: RegretBudget(2, mismatches=-1),
            lambda: RegretBudget(2, budget=1.0, spent=1.5),
            lambda: BlockMarginals([[0.5, 0.5]], start=-1),
            lambda: Absorbing(MIDDLE, 1, start=-1),
            lambda: markov_pair(2, concentration=0.0, rng=rng()),
            lambda: markov_pair(2, similarity=1.5, rng=rng()),
            lambda: markov_pair(2, order=-1, rng=rng()),
            lambda: level_cut_upper(**MODELS, **CUT | {"samples": 2}, rng=rng()),
            lambda: level_cut_upper(**MODELS, **CUT | {"num_drafts": 0}, rng=rng()),
        )
    ),
    *((lambda make=make: make(TreeShape([])), "at least one drafted token") for make in TREES),
    *((lambda make=make: make([0, 1]), "is an otm.trees.TreeShape") for make in TREES),
    # four children of three tokens
    *((lambda make=make: stepped(make(TreeShape.batch(4))), "4") for make in TREES[:3]),
    (lambda: stepped(TreeVerification(TreeShape.batch(4), otm.TopK(1), otm.Naive())), "4"),
    # verifiers for other drafts
    (lambda: stepped(DraftSelection(2, 1, otm.Maximal())), r"Maximal\(\).*IID\(k=2\)"),
    (lambda: stepped(SpeculativeSampling(1, otm.Race())), r"shared randomness.*sequence\.Ersd"),
    (lambda: TreeVerification(TREE, otm.Product(2), otm.Naive()), "drafted by one model"),
    (lambda: SampledTree(2, 2, otm.TransportPlan()), "one by one"),
    (lambda: StochasticBeam(2, 2, otm.Maximal()), "one by one"),
    (lambda: TraversalVerification(TREE, otm.TopK(1)), "independent drafts"),
    (lambda: SpeculativeSampling(2, otm.KSeq), "verifier must be of the class"),
    # what is of certain decoders
    (lambda: matched_tokens(CHAIN, **MODELS, context=[]), "LikeliestTree"),
    (lambda: loose_step(CHAIN, **MODELS, context=[]), "GreedyChain"),
    (lambda: expected_calls(CHAIN, draft=DRAFT, context=[]), "Staged"),
    (
        lambda: generate(CHAIN, **MODELS, context=[0, 2], num_tokens=3, rng=rng(), eos=2),
        "already ends with the end-of-sequence token 2",
    ),
]


@pytest.mark.parametrize(("make", "said"), REFUSED)
def test_refusals(make, said):
    with pytest.raises(otm.errors.OtmError, match=said):
        make()


def test_an_accepted_end_has_no_bonus():
    """Both models always say the end: the first draft is it, and nothing follows."""
    for context in ([], [1, 0]):  # a prompt may contain it
        one = step(CHAIN, **SURE, context=context, randomness=Sampled(rng()), eos=1)
        assert one == Step((1,), 1, "end_of_sequence", ((1,),))


def test_an_end_beyond_what_was_asked_is_not_reached():
    wanted = {"context": [], "num_tokens": 1, "rng": rng(), "eos": 1}
    text = generate(CHAIN, **SURE, **wanted)
    assert text.ended and text.tokens == (1,)
    model = TableModel(
        {(): [1.0, 0.0], (0,): [0.0, 1.0], (0, 1): [0.0, 1.0], (0, 1, 1): [0.0, 1.0]}
    )
    text = generate(CHAIN, draft=model, target=model, **wanted)
    # the step went on to the end, the text asked for did not
    assert text.tokens == (0,) and not text.ended


def test_endless_steps():
    run = steps(CHAIN, **MODELS, context=[], rng=rng())
    assert len(list(itertools.islice(run, 50))) == 50
    ending = list(steps(CHAIN, **MODELS, context=[], rng=rng(), eos=1))
    assert [1 in one.tokens for one in ending] == [False] * (len(ending) - 1) + [True]
    assert np.isnan(Generation(tokens=(), steps=(), ended=False).tokens_per_call)


def test_the_instances_are_all_there_are():
    assert {type(decoder) for decoder in INSTANCES} == set(DECODERS)
