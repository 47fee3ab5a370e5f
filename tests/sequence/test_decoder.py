"""Steps and generation: what is returned, where texts end, what is refused, and that nothing
already decoded is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import otm
from otm.sequence import (
    DECODERS,
    Absorbing,
    BestVerification,
    BlockMarginals,
    BlockVerification,
    Decoder,
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
    TraversalVerification,
    TreeVerification,
    ZerothOrder,
    best_step,
    completed_law,
    expected_calls,
    expected_step,
    generate,
    level_cut_upper,
    loose_step,
    markov_pair,
    matched_tokens,
    sequence_law,
    step,
    step_law,
    steps,
)
from otm.trees import TreeShape
from tests.sequence.toys import IID, completed, with_further

TREE = TreeShape([0, 0, 1])
MIDDLE = ZerothOrder([0.3, 0.4, 0.3])
LISTED: list[Decoder] = [
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
MODELS: dict[str, Any] = {"draft": DRAFT, "target": TARGET}
SURE: dict[str, Any] = dict.fromkeys(("draft", "target"), ZerothOrder([0.0, 1.0]))

CUT: dict[str, Any] = {"num_drafts": 2, "length": 1, "samples": 9, "context": []}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("decoder", INSTANCES, ids=repr)
class TestEveryDecoder:
    def test_steps_add_up_to_the_text(self, decoder: Decoder) -> None:
        assert decoder in {decoder}
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

    def test_lossless_up_to_the_end_of_the_text(self, decoder: Decoder) -> None:
        """Both models absorbed by token 2: enumeration shows the law of the text with its end, and
        steps are cut at it.
        """
        models = {"draft": Absorbing(DRAFT, 2), "target": Absorbing(TARGET, 2)}
        if decoder.carries_noise:
            found = completed(decoder, **models, length=3)
        else:
            law = step_law(decoder, **models, context=[])
            found = completed_law(law, target=models["target"], context=[], length=3)
        np.testing.assert_allclose(found, sequence_law(models["target"], [], 3), atol=5e-11)
        text = generate(decoder, **MODELS, context=[], num_tokens=10_000, rng=rng(), eos=2)
        assert text.ended and text.tokens.index(2) == len(text.tokens) - 1
        for one in text.steps:
            assert (one.stopped == "end_of_sequence") == (one.tokens[-1] == 2)
            assert one.accepted in (len(one.tokens), len(one.tokens) - 1)

    def test_one_batch_per_step_for_the_target_one_per_level_for_the_draft(
        self, decoder: Decoder
    ) -> None:
        draft, target = Counting(DRAFT), Counting(TARGET)
        step(decoder, draft=draft, target=target, context=[], randomness=Sampled(rng()))
        assert target.calls == 1
        # the next draft depends on a look at the one before
        if isinstance(decoder, SampledTree | Staged):
            assert 1 <= draft.calls <= decoder.num_nodes
        else:
            assert draft.calls == decoder.depth


class Counting:
    """Counts batched calls."""

    def __init__(self, model: ZerothOrder) -> None:
        self.model, self.calls = model, 0

    @property
    def num_tokens(self) -> int:
        return self.model.num_tokens

    def next(self, context: Any) -> np.ndarray:
        raise AssertionError("decoders ask in batches")

    def next_batch(self, contexts: Any) -> np.ndarray:
        self.calls += 1
        return self.model.next_batch(contexts)


class Breaking(Counting):
    """Answers NaN once a context has `after` tokens or more."""

    def __init__(self, model: ZerothOrder, after: int) -> None:
        super().__init__(model)
        self.after = after

    def next_batch(self, contexts: Any) -> np.ndarray:
        rows = self.model.next_batch(contexts)
        return np.where([[len(context) >= self.after] for context in contexts], np.nan, rows)


@pytest.mark.parametrize("culprit", ["draft", "target"])
def test_nothing_decoded_is_lost_when_a_model_breaks(culprit: str) -> None:
    asked: dict[str, Any] = {"context": [], "num_tokens": 60}
    whole = generate(Gsd(TREE), **MODELS, **asked, rng=rng())
    models = MODELS | {culprit: Breaking(MODELS[culprit], after=20)}
    with pytest.raises(
        otm.errors.DecodingInterrupted,
        match=rf"of 60 tokens: After context .*{culprit}.*finite.*\.generation",
    ) as caught:
        generate(Gsd(TREE), **models, **asked, rng=rng())
    partial = caught.value.generation
    assert isinstance(partial, Generation) and not partial.ended
    assert 0 < len(partial.tokens) < 60
    assert partial.tokens == whole.tokens[: len(partial.tokens)]
    assert partial.steps == whole.steps[: len(partial.steps)]
    assert isinstance(caught.value.__cause__, otm.errors.InvalidDistribution)
    models[culprit] = Breaking(MODELS[culprit], after=0)
    with pytest.raises(otm.errors.InvalidDistribution, match=rf"After context \(\): the {culprit}"):
        generate(Gsd(TREE), **models, **asked, rng=rng())


@pytest.mark.parametrize("ask", [step_law, expected_step, best_step, step])
def test_different_vocabularies(ask: Any) -> None:
    further = {"randomness": Sampled(rng())} if ask is step else {}
    for models, sizes in (
        ({"draft": DRAFT, "target": SURE["target"]}, "3 and 2"),
        ({"draft": SURE["draft"], "target": TARGET}, "2 and 3"),
    ):
        with pytest.raises(
            otm.errors.ShapeMismatch, match=f"one vocabulary; they have {sizes} tokens"
        ):
            ask(SpeculativeSampling(2), **models, context=[], **further)


class TestRefusals:
    @pytest.mark.parametrize(
        "make",
        [
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
            lambda: BestVerification(0, 1, MIDDLE, MIDDLE),
            lambda: BestVerification(1, 0, MIDDLE, MIDDLE),
            lambda: BlockMarginals([[0.5, 0.5]], start=-1),
            lambda: Absorbing(MIDDLE, 1, start=-1),
            lambda: markov_pair(2, concentration=0.0, rng=rng()),
            lambda: markov_pair(2, similarity=1.5, rng=rng()),
            lambda: markov_pair(2, order=-1, rng=rng()),
            lambda: level_cut_upper(**MODELS, **CUT | {"samples": 2}, rng=rng()),
            lambda: level_cut_upper(**MODELS, **CUT | {"num_drafts": 0}, rng=rng()),
        ],
    )
    def test_numbers_out_of_range(self, make: Callable[[], object]) -> None:
        with pytest.raises(otm.errors.InvalidParameter):
            make()

    @pytest.mark.parametrize(
        "make",
        [Gsd, Ersd, TraversalVerification, lambda tree: TreeVerification(tree, IID, otm.Naive())],
        ids=["gsd", "ersd", "traversal", "tree"],
    )
    def test_trees(self, make: Any) -> None:
        for tree, message in (
            (TreeShape([]), "at least one drafted token"),
            ([0, 1], "is an otm.trees.TreeShape"),
        ):
            with pytest.raises(otm.errors.InvalidParameter, match=message):
                make(tree)
        with pytest.raises(otm.errors.InvalidParameter, match="4"):  # of three tokens
            decoder = (
                TreeVerification(TreeShape.batch(4), otm.TopK(1), otm.Naive())
                if make(TREE).drafts == IID
                else make(TreeShape.batch(4))
            )
            step(decoder, **MODELS, context=[], randomness=Sampled(rng()))

    @pytest.mark.parametrize(
        ("decoder", "message"),
        [
            (DraftSelection(2, 1, otm.Maximal()), r"Maximal\(\).*IID\(k=2\)"),
            (SpeculativeSampling(1, otm.Race()), r"shared randomness.*otm\.sequence\.Ersd"),
        ],
        ids=repr,
    )
    def test_verifiers_for_other_drafts(self, decoder: Decoder, message: str) -> None:
        with pytest.raises(otm.errors.Unsupported, match=message):
            step(decoder, **MODELS, context=[], randomness=Sampled(rng()))

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: TreeVerification(TREE, otm.Product(2), otm.Naive()), "drafted by one model"),
            (lambda: SampledTree(2, 2, otm.TransportPlan()), "one by one"),
            (lambda: StochasticBeam(2, 2, otm.Maximal()), "one by one"),
            (lambda: TraversalVerification(TREE, otm.TopK(1)), "independent drafts"),
        ],
    )
    def test_laws_and_verifiers(self, make: Callable[[], object], message: str) -> None:
        with pytest.raises(otm.errors.Unsupported, match=message):
            make()

    def test_a_verifier_is_an_instance(self) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="verifier must be of the class"):
            SpeculativeSampling(2, otm.KSeq)  # type: ignore[arg-type]

    def test_what_is_of_certain_decoders(self) -> None:
        for ask, models, kind in (
            (matched_tokens, MODELS, "LikeliestTree"),
            (loose_step, MODELS, "GreedyChain"),
            (expected_calls, {"draft": DRAFT}, "Staged"),
        ):
            with pytest.raises(otm.errors.InvalidParameter, match=kind):
                ask(SpeculativeSampling(1), **models, context=[])  # type: ignore[operator]


class TestTheEnd:
    def test_an_accepted_end_has_no_bonus(self) -> None:
        """Both models always say the end: the first draft is it, and nothing follows."""
        for context in ([], [1, 0]):  # a prompt may contain it
            one = step(
                SpeculativeSampling(3),
                **SURE,
                context=context,
                randomness=Sampled(rng()),
                eos=1,
            )
            assert one == Step((1,), 1, "end_of_sequence", ((1,),))

    def test_an_end_beyond_what_was_asked_is_not_reached(self) -> None:
        asked: dict[str, Any] = {"context": [], "num_tokens": 1, "rng": rng(), "eos": 1}
        text = generate(SpeculativeSampling(3), **SURE, **asked)
        assert text.ended and text.tokens == (1,)
        first_zero = {(): [1.0, 0.0], (0,): [0.0, 1.0], (0, 1): [0.0, 1.0], (0, 1, 1): [0.0, 1.0]}
        model = otm.sequence.TableModel(first_zero)
        text = generate(SpeculativeSampling(2), draft=model, target=model, **asked)
        # the step went on to the end, the text asked for did not
        assert text.tokens == (0,) and not text.ended

    def test_reading_past_the_end_is_refused(self) -> None:
        with pytest.raises(
            otm.errors.InvalidParameter, match="already ends with the end-of-sequence token 2"
        ):
            generate(Gsd(TREE), **MODELS, context=[0, 2], num_tokens=3, rng=rng(), eos=2)

    def test_endless_steps(self) -> None:
        run = steps(SpeculativeSampling(1), **MODELS, context=[], rng=rng())
        assert len(list(itertools.islice(run, 50))) == 50
        ending = list(steps(SpeculativeSampling(1), **MODELS, context=[], rng=rng(), eos=1))
        assert [1 in one.tokens for one in ending] == [False] * (len(ending) - 1) + [True]
        assert np.isnan(Generation(tokens=(), steps=(), ended=False).tokens_per_call)


def test_the_instances_are_all_there_are() -> None:
    assert {type(decoder) for decoder in INSTANCES} == set(DECODERS)
