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
    BlockKSeq,
    BlockVerification,
    Decoder,
    DraftSelection,
    Ersd,
    Generation,
    GreedyMultipath,
    Gsd,
    LikeliestTree,
    PrefixTree,
    RefinedScores,
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
    expected_step,
    generate,
    sequence_law,
    step,
    step_law,
    steps,
)
from otm.trees import TreeShape
from tests.sequence.toys import IID, with_further

TREE = TreeShape([0, 0, 1])
MIDDLE = ZerothOrder([0.3, 0.4, 0.3])
LISTED: list[Decoder] = [
    SpeculativeSampling(2),
    DraftSelection(2, 2),
    PrefixTree((2, 1)),
    TreeVerification(TREE, IID, otm.Optimal()),
    Gsd(TREE),
    Ersd(TREE),
    BlockVerification(2),
    TraversalVerification(TREE),
    GreedyMultipath(2, 2, stem=1),
    LikeliestTree(3, 2),
    SampledTree(3, 2),
    StochasticBeam(2, 2),
    Staged(BlockVerification(1), MIDDLE, 2),
    RefinedScores(2, 2),
    BlockKSeq(2, 2),
]
INSTANCES = with_further(LISTED, length=2, width=2, tree=TREE)
DRAFT, TARGET = ZerothOrder([0.5, 0.3, 0.2]), ZerothOrder([0.2, 0.5, 0.3])


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_instances_are_all_there_are() -> None:
    assert {type(decoder) for decoder in INSTANCES} == set(DECODERS)


@pytest.mark.parametrize("decoder", INSTANCES, ids=repr)
class TestEveryDecoder:
    def test_is_a_value(self, decoder: Decoder) -> None:
        assert decoder in {decoder}
        assert 1 <= decoder.depth <= decoder.num_nodes
        assert decoder.lossless

    def test_steps_add_up_to_the_text(self, decoder: Decoder) -> None:
        text = generate(decoder, draft=DRAFT, target=TARGET, context=[0], num_tokens=20, rng=rng())
        assert len(text.tokens) == 20
        assert (
            tuple(itertools.chain.from_iterable(one.tokens for one in text.steps))[:20]
            == text.tokens
        )
        assert text.num_calls == len(text.steps) < 20
        assert text.tokens_per_call == np.mean([len(one.tokens) for one in text.steps]) > 1
        assert not text.ended
        for one in text.steps:
            assert len(one.tokens) == one.accepted + 1
            assert len(one.survivors) == one.accepted <= decoder.depth
            if isinstance(decoder, StaticDecoder):
                assert all(
                    decoder.shape.levels[v] == i
                    for i, vertices in enumerate(one.survivors, start=1)
                    for v in vertices
                )
            assert one.stopped in ("rejected", "end_of_draft")

    def test_the_text_is_a_function_of_the_generator(self, decoder: Decoder) -> None:
        texts = [
            generate(
                decoder, draft=DRAFT, target=TARGET, context=[], num_tokens=9, rng=rng()
            ).tokens
            for _ in range(2)
        ]
        assert texts[0] == texts[1]

    def test_the_context_is_only_read(self, decoder: Decoder) -> None:
        context = [0, 1]
        step(decoder, draft=DRAFT, target=TARGET, context=context, randomness=Sampled(rng()))
        assert context == [0, 1]

    def test_lossless_up_to_the_end_of_the_text(self, decoder: Decoder) -> None:
        """Both models absorbed by token 2: enumeration shows the law of the text with its end, and
        steps are cut at it.
        """
        models = {"draft": Absorbing(DRAFT, 2), "target": Absorbing(TARGET, 2)}
        law = step_law(decoder, **models, context=[])
        found = completed_law(law, target=models["target"], context=[], length=3)
        np.testing.assert_allclose(found, sequence_law(models["target"], [], 3), atol=5e-11)
        randomness = Sampled(rng())
        for _ in range(20):
            one = step(
                decoder, draft=DRAFT, target=TARGET, context=[], randomness=randomness, eos=2
            )
            assert 2 not in one.tokens[:-1]
            assert (one.stopped == "end_of_sequence") == (one.tokens[-1] == 2)
            assert one.accepted in (len(one.tokens), len(one.tokens) - 1)

    def test_generation_stops_at_the_end(self, decoder: Decoder) -> None:
        text = generate(
            decoder, draft=DRAFT, target=TARGET, context=[], num_tokens=10_000, rng=rng(), eos=2
        )
        assert text.ended
        assert text.tokens[-1] == 2
        assert 2 not in text.tokens[:-1]
        assert text.steps[-1].stopped == "end_of_sequence"

    def test_reading_past_the_end_is_refused(self, decoder: Decoder) -> None:
        with pytest.raises(
            otm.errors.InvalidParameter, match="already ends with the end-of-sequence token 2"
        ):
            step(
                decoder,
                draft=DRAFT,
                target=TARGET,
                context=[0, 2],
                randomness=Sampled(rng()),
                eos=2,
            )
        with pytest.raises(otm.errors.InvalidParameter, match="already ends"):
            generate(
                decoder, draft=DRAFT, target=TARGET, context=[2], num_tokens=3, rng=rng(), eos=2
            )

    def test_different_vocabularies(self, decoder: Decoder) -> None:
        narrow = ZerothOrder([0.5, 0.5])
        for ask in (step_law, expected_step, best_step):
            for draft, target, sizes in ((DRAFT, narrow, "3 and 2"), (narrow, TARGET, "2 and 3")):
                with pytest.raises(
                    otm.errors.ShapeMismatch, match=f"one vocabulary; they have {sizes} tokens"
                ):
                    ask(decoder, draft=draft, target=target, context=[])
        with pytest.raises(
            otm.errors.ShapeMismatch, match="one vocabulary; they have 3 and 2 tokens"
        ):
            step(decoder, draft=DRAFT, target=narrow, context=[], randomness=Sampled(rng()))

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

    @pytest.mark.parametrize("culprit", ["draft", "target"])
    def test_nothing_decoded_is_lost_when_a_model_breaks(
        self, decoder: Decoder, culprit: str
    ) -> None:
        models: dict[str, Any] = {"draft": DRAFT, "target": TARGET}
        whole = generate(decoder, **models, context=[], num_tokens=60, rng=rng())
        models[culprit] = Breaking(models[culprit], after=20)
        with pytest.raises(
            otm.errors.DecodingInterrupted,
            match=rf"of 60 tokens: After context .*{culprit}.*finite.*\.generation",
        ) as caught:
            generate(decoder, **models, context=[], num_tokens=60, rng=rng())
        partial = caught.value.generation
        assert isinstance(partial, Generation)
        assert 0 < len(partial.tokens) < 60
        assert partial.tokens == whole.tokens[: len(partial.tokens)]
        assert partial.steps == whole.steps[: len(partial.steps)]
        assert not partial.ended
        assert isinstance(caught.value.__cause__, otm.errors.InvalidDistribution)

    def test_a_model_that_breaks_at_once_raises_its_own_error(self, decoder: Decoder) -> None:
        with pytest.raises(
            otm.errors.InvalidDistribution, match=r"After context \(\): the draft model's"
        ):
            generate(
                decoder,
                draft=Breaking(DRAFT, after=0),
                target=TARGET,
                context=[],
                num_tokens=5,
                rng=rng(),
            )


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


class TestRefusals:
    @pytest.mark.parametrize("value", [0, -1, 1.5, True])
    @pytest.mark.parametrize(
        "make",
        [
            SpeculativeSampling,
            BlockVerification,
            lambda n: DraftSelection(n, 2),
            lambda n: DraftSelection(2, n),
            lambda n: PrefixTree((2, n)),
        ],
        ids=["speculative", "block", "K", "L", "factor"],
    )
    def test_counts(self, make: Any, value: object) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="must be an integer of at least 1"):
            make(value)

    def test_no_factors(self) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="factors must name at least one"):
            PrefixTree(())

    @pytest.mark.parametrize(
        "make",
        [Gsd, Ersd, TraversalVerification, lambda tree: TreeVerification(tree, IID, otm.Naive())],
        ids=["gsd", "ersd", "traversal", "tree"],
    )
    def test_empty_trees_and_other_things(self, make: Any) -> None:
        for tree, message in (
            (TreeShape([]), "at least one drafted token"),
            ([0, 1], "is an otm.trees.TreeShape"),
        ):
            with pytest.raises(otm.errors.InvalidParameter, match=message):
                make(tree)

    @pytest.mark.parametrize(
        "decoder",
        [
            Gsd(TreeShape.batch(4)),
            Ersd(TreeShape.batch(4)),
            TraversalVerification(TreeShape.batch(4)),
            TreeVerification(TreeShape.batch(4), otm.TopK(1), otm.Naive()),
        ],
        ids=repr,
    )
    def test_more_children_than_tokens(self, decoder: Decoder) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="4"):
            step(decoder, draft=DRAFT, target=TARGET, context=[], randomness=Sampled(rng()))

    def test_a_verifier_for_fewer_drafts(self) -> None:
        with pytest.raises(otm.errors.Unsupported, match=r"Maximal\(\).*IID\(k=2\)"):
            step(
                DraftSelection(2, 1, otm.Maximal()),
                draft=DRAFT,
                target=TARGET,
                context=[],
                randomness=Sampled(rng()),
            )

    def test_verifiers_that_share_randomness(self) -> None:
        for verifier in (otm.Race(), otm.MinHash(), otm.ListRace()):
            with pytest.raises(
                otm.errors.Unsupported, match=r"shared randomness.*otm\.sequence\.Ersd"
            ):
                step(
                    SpeculativeSampling(1, verifier),
                    draft=DRAFT,
                    target=TARGET,
                    context=[],
                    randomness=Sampled(rng()),
                )

    def test_drafters_that_are_several(self) -> None:
        with pytest.raises(otm.errors.Unsupported, match="drafted by one model"):
            TreeVerification(TREE, otm.Product(2), otm.Naive())

    @pytest.mark.parametrize("num_tokens", [0, -3, 2.5])
    def test_number_of_tokens(self, num_tokens: object) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="num_tokens"):
            generate(
                SpeculativeSampling(1),
                draft=DRAFT,
                target=TARGET,
                context=[],
                num_tokens=num_tokens,
                rng=rng(),
            )  # type: ignore[arg-type]

    def test_no_generator(self) -> None:
        with pytest.raises(otm.errors.InvalidParameter, match="rng must be a numpy"):
            generate(
                SpeculativeSampling(1),
                draft=DRAFT,
                target=TARGET,
                context=[],
                num_tokens=3,
                rng=None,
            )  # type: ignore[arg-type]


class TestTheEnd:
    def test_an_accepted_end_has_no_bonus(self) -> None:
        """Both models always say the end: the first draft is it, and nothing follows."""
        model = ZerothOrder([0.0, 1.0])
        one = step(
            SpeculativeSampling(3),
            draft=model,
            target=model,
            context=[],
            randomness=Sampled(rng()),
            eos=1,
        )
        assert one == Step((1,), 1, "end_of_sequence", ((1,),))

    def test_an_end_beyond_what_was_asked_is_not_reached(self) -> None:
        target = ZerothOrder([0.0, 1.0])
        text = generate(
            SpeculativeSampling(3),
            draft=target,
            target=target,
            context=[],
            num_tokens=1,
            rng=rng(),
            eos=1,
        )
        assert text.ended
        assert text.tokens == (1,)
        first_zero = {(): [1.0, 0.0], (0,): [0.0, 1.0], (0, 1): [0.0, 1.0], (0, 1, 1): [0.0, 1.0]}
        model = otm.sequence.TableModel(first_zero)
        text = generate(
            SpeculativeSampling(2),
            draft=model,
            target=model,
            context=[],
            num_tokens=1,
            rng=rng(),
            eos=1,
        )
        assert text.tokens == (0,)
        assert not text.ended  # the step went on to the end, the text asked for did not

    def test_a_prompt_may_contain_the_token(self) -> None:
        model = ZerothOrder([0.0, 1.0])
        one = step(
            SpeculativeSampling(1),
            draft=model,
            target=model,
            context=[1, 0],
            randomness=Sampled(rng()),
            eos=1,
        )
        assert one.tokens == (1,)

    def test_endless_steps(self) -> None:
        run = steps(SpeculativeSampling(1), draft=DRAFT, target=TARGET, context=[], rng=rng())
        assert len(list(itertools.islice(run, 50))) == 50
        assert (
            list(
                steps(
                    SpeculativeSampling(1), draft=DRAFT, target=TARGET, context=[], rng=rng(), eos=1
                )
            )[-1].tokens[-1]
            == 1
        )

    def test_nothing_decoded_yet(self) -> None:
        assert np.isnan(Generation(tokens=(), steps=(), ended=False).tokens_per_call)


@pytest.mark.parametrize(
    "make",
    [
        lambda v: SpeculativeSampling(2, v),
        lambda v: DraftSelection(2, 2, v),
        lambda v: PrefixTree((2,), v),
        lambda v: TreeVerification(TreeShape.batch(2), otm.IID(1), v),
    ],
)
@pytest.mark.parametrize("verifier", [otm.KSeq, otm.IID(2), "KSeq"])
def test_a_verifier_is_an_instance(make: Callable[[object], object], verifier: object) -> None:
    with pytest.raises(otm.errors.InvalidParameter, match="verifier must be of the class Verifier"):
        make(verifier)


def test_contexts_are_counted_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otm.sequence.exact_laws.MAX_CONTEXTS", 1_000)
    model = ZerothOrder([0.5, 0.5])
    for decoder in (SpeculativeSampling(40), TraversalVerification(TreeShape.chain(40))):
        with pytest.raises(otm.errors.TooLarge, match="at most 1,000 contexts"):
            expected_step(decoder, draft=model, target=model, context=[])
