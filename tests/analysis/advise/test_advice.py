"""The advice: its arithmetic on hand values, and the whole command on the shipped pair."""

import dataclasses
import json
import math
import signal
import time
import types

import numpy as np
import pytest

from analysis.advise import advice as advice_module, clocked, end_to_end, speedups
from analysis.advise.advice import Advice, AdviceSettings, TimedPlan, advise
from analysis.advise.costs import Clock, Pieces, StepModel
from analysis.advise.engine_settings import chain_settings, engine_chain
from analysis.advise.families import (
    FAMILIES,
    SCALE_TEXTS,
    Limits,
    MatchedTrees,
    TextToRead,
    WalkedPlan,
    Work,
)
from analysis.advise.losses import SEVERAL, DraftLosses, RoundedDrafts, SeveralLosses
from analysis.advise.screen import advice_screen, so_far, trial_table
from analysis.advise.speedups import Tokens, speedup, verdict_of
from analysis.advise.trial import Trial, run_trials
from analysis.advise.walk import Walk
from analysis.decode.decoder_text import decoder_from_text
from analysis.decode.plain import PLAIN
from analysis.errors import AnalysisError
from analysis.files import SHIPPED_PAIR
from analysis.run.loss_columns import PARTS
from analysis.run.ranks import drafting_widths
from analysis.statistics import clustered_error
from analysis.steps.texts import SampledText
from otm import Processing
from otm.__main__ import main
from otm.commands.printing import WIDTH
from otm.engines import CostSurface, read_costs
from otm.results.statistics import Estimate
from otm.sequence import (
    BlockVerification,
    DraftSelection,
    Gsd,
    LikeliestTree,
    MarkovModel,
    NoiseTree,
    RefinedScores,
    SpeculativeSampling,
    markov_pair,
)
from otm.trees import TreeShape
from tests.analysis.toys import Toy, sampled_text

MODEL = StepModel((1e-3, 0.0), ((0, 8, 64), (4e-3, 5e-3, 12e-3)), {})
PASSES = CostSurface.of_points(
    {(1, 10): 1e-3, (1, 74): 1e-3}, {(1, 10, 1): 4e-3, (1, 74, 1): 4.4e-3}, source="by hand"
)


def row(decoder, value, *, over_chain=1.0, spread=0.05):
    family, words = "chain", f"chain of {decoder.depth}"
    if isinstance(decoder, Gsd):
        family, words = "static tree", f"tree of {decoder.num_nodes} nodes, depth {decoder.depth}"
    plan = WalkedPlan(family, "text", words, decoder, (), Work.of(decoder))
    limits = [Estimate(v, v * (1 - spread), v * (1 + spread)) for v in (value, over_chain)]
    return TimedPlan(plan, 2.4, (2e-3, 5e-3, 1e-3), *limits)


def advice(verdict, *rows, chain):
    return Advice(
        asked=AdviceSettings(),
        verdict=verdict,
        rows=rows,
        chain=chain,
        chains=(1.6, 2.0, 2.2),
        plain_seconds=4e-3,
        model=MODEL,
        looks=1,
        texts=20,
        prompts=10,
        rounds=12,
        decided=verdict != "undecided",
        num_plans=109,
    )


ONE = Work.of(SpeculativeSampling(1))
CHAIN, SLOW = row(SpeculativeSampling(2), 1.2), row(SpeculativeSampling(1), 0.8)
TREE = row(Gsd(TreeShape([0, 0, 1])), 1.5, over_chain=1.25)
HALF = Estimate(0.5, 0.45, 0.55)
PARTS_LOST = dict.fromkeys(PARTS, Estimate(0.0, 0.0, 0.0)) | {
    "ranking": Estimate(0.3, 0.2, 0.4),
    "shape": Estimate(0.2, 0.1, 0.3),
}
GONE = DraftLosses(HALF, PARTS_LOST, 4, 3, Estimate(2.1, 2.0, 2.2), Estimate(3.0, 2.9, 3.1), 40)


def told(given, lost=GONE):
    """The screen of an advice."""
    surroundings = {"on": "cpu", "threads": 2}
    return advice_screen(given, draft="small", surroundings=surroundings, passes=PASSES, lost=lost)


@pytest.mark.parametrize(
    ("given", "first", "second"),
    [
        (
            advice("speculate", TREE, CHAIN, chain=CHAIN),
            "SPECULATE: tree of 3 nodes, depth 2",
            "1.50 x plain decoding (1.42 to 1.58), 2.40 tokens",
        ),
        (
            advice("do not speculate", SLOW, chain=SLOW),
            "DO NOT SPECULATE with",
            "fastest: chain of 1, 0.80 x plain decoding",
        ),
        (advice("undecided", SLOW, chain=SLOW), "DO NOT SPECULATE, PROBABLY", "chain of 1: 0.80 x"),
        (advice("undecided", CHAIN, chain=CHAIN), "SPECULATE, MAYBE", "chain of 2: 1.20 x"),
    ],
)
def test_the_answer_comes_first_and_fits_the_screen(given, first, second):
    lines = told(given).splitlines()
    assert lines[0].startswith(first) and second in lines[1] and len(lines) <= 40
    copied = tuple(f"  {engine}: " for engine in chain_settings("", 1))
    assert all(len(line) <= WIDTH for line in lines if not line.startswith(copied))
    words = " ".join(" ".join(lines).split())
    assert (
        "50 % (45 to 55) of first drafts are accepted; lost are 30 % to the draft's ranking, 20 % "
        "to the draft's shape." in words
    )
    assert "not surely faster" not in words
    of_three = SeveralLosses(
        3,
        "K-SEQ",
        HALF,
        dict.fromkeys(SEVERAL, Estimate(0.2, 0.1, 0.3)) | {"verifier": Estimate(0.05, 0.0, 0.1)},
    )
    rounded = RoundedDrafts(*(Estimate(value, value, value) for value in (-2e-5, 3e-4, 6e-4)))
    more = dataclasses.replace(GONE, several=of_three, rounding=rounded)
    words = " ".join(told(given, more).split())
    for said in (
        "begins with 3 drafts: of so many, drawn independently, K-SEQ accepts one 50 % of the "
        "time; lost are 20 % to",
        "5 % to the scheme",
        "one draft is accepted 0.002 percentage points less often, and the output is 3.0e-04",
    ):
        assert said in words
    # 3 · 2⁻⁹/(1 − 2⁻⁸)
    assert "3 drafts change nothing by more than 1.8e-03 here, 5.9e-03 anywhere" in words
    if given.best is not given.chain:
        assert "1.25 x the best chain, of 2 (1.19 to 1.31)" in lines[2]


def test_a_plan_that_is_not_surely_faster_than_the_chain_says_so():
    near = row(Gsd(TreeShape([0, 0, 1])), 1.5, over_chain=1.02)
    text = told(advice("speculate", near, CHAIN, chain=CHAIN))
    assert "1.02 x the best chain, of 2 (0.97 to 1.07)\n  not surely faster than that chain" in text


def test_engines_are_told_what_passes_alone_say():
    """1.6·4/(1 + 4.125), 2·4/(2 + 4.25), 2.2·4/(3 + 4.375): 1.249, 1.28, 1.193."""
    chain = engine_chain((1.6, 2.0, 2.2), MODEL, timed=SLOW.over_plain)
    assert chain.length == 2 and chain.speedup.value == pytest.approx(1.28) and chain.may_pay
    assert chain.speedup.low == pytest.approx(1.28 * 0.95)
    text = told(advice("do not speculate", SLOW, chain=SLOW))
    for engine, setting in chain_settings("small", 2).items():
        assert f"  {engine}: {setting}" in text
    dear = StepModel((4e-3, 0.0), MODEL.target, {})
    assert not engine_chain((1.6, 2.0, 2.2), dear, timed=SLOW.over_plain).may_pay


@pytest.mark.parametrize(
    ("family", "decoder", "named", "needed", "engine"),
    [
        (
            "likeliest tree",
            LikeliestTree(12, 3),
            "likeliest tree of 12, depth 3",
            "tree attention",
            "--speculative-num-steps 3 --speculative-eagle-topk 8 "
            "--speculative-num-draft-tokens 13",
        ),
        (
            "tree on shared noise",
            NoiseTree(24, 4, 0.84),
            "noise tree 24 x 4, scale 0.84",
            "tree attention, the sampler's noise by seed and position",
            "docs/howto/matching.md says what changes",
        ),
        (
            "block verification",
            BlockVerification(3),
            "block verification of 3",
            "the draft's probabilities",
            "docs/howto/kernels.md says what changes",
        ),
        (
            "K sequences, refined scores",
            RefinedScores(2, 2),
            "2 sequences x 2, refined scores",
            "the draft's probabilities, several sequences in one call",
            "docs/howto/kernels.md says what changes",
        ),
    ],
)
def test_a_plan_is_told_with_what_it_needs(family, decoder, named, needed, engine):
    (of_family,) = (one for one in FAMILIES if one.name == family)
    if isinstance(of_family, MatchedTrees):
        scale = decoder.scale if isinstance(decoder, NoiseTree) else None
        assert of_family.named(decoder.size, decoder.depth, scale)[1:] == (named, decoder)
    plan = WalkedPlan(family, "text", named, decoder, (), Work(2.5, 9.0, 12))
    best = TimedPlan(
        plan, 2.4, (2e-3, 5e-3, 1e-3), Estimate(1.4, 1.3, 1.5), Estimate(1.1, 1.05, 1.15)
    )
    text = told(advice("speculate", best, CHAIN, chain=CHAIN))
    assert text.startswith(f"SPECULATE: {named}\n") and text.endswith(engine)
    assert f"\n  needs of the engine {needed}\n" in text
    assert any(line.startswith(f"{named}  ") for line in text.splitlines())


def test_the_scale_is_that_of_the_first_texts_and_stays():
    """A target that follows the draft's noise closely has a small scale, one that does not a large
    one; later texts do not move it.
    """
    rng, scales = np.random.default_rng(4), []
    (family,) = (one for one in FAMILIES if one.name == "tree on shared noise")
    for similarity in (0.99, 0.3):
        draft, target = markov_pair(8, similarity=similarity, rng=rng)
        texts = [sampled_text(draft, target, rng, 39) for _ in range(SCALE_TEXTS + 1)]
        first = tuple(texts[:SCALE_TEXTS])
        laws = [
            family.law(
                TextToRead(
                    text, draft, target, Limits(3, 2), 4, None, np.random.default_rng(0), first
                )
            )
            for text in texts[-2:]
        ]
        assert laws[0].scale == laws[1].scale
        plans = list(family.plans(laws, limits=Limits(3, 2), starts=4))
        assert plans and {plan.decoder.scale for plan in plans} == {laws[0].scale}
        scales.append(laws[0].scale)
    assert scales[0] < 0.5 * scales[1]


def test_what_limits_is_what_would_help_most_or_no_single_part():
    """2.4 tokens, 4 ms plain, steps of 2 + 5 + 1 ms: free drafts: 9.6/6; cheap checking, no Python:
    9.6/7; all accepted: 12/8. At 1.6 ms plain, 3.84/6 = .64, and so on; accepted whole 3 tokens,
    .6.
    """
    fast, poor = (
        dataclasses.replace(advice(verdict, one, chain=one), plain_seconds=plain)
        for verdict, one, plain in (("speculate", CHAIN, 4e-3), ("do not speculate", SLOW, 1.6e-3))
    )
    assert (
        "limits what drafting costs: with free draft calls, the fastest plan would give 1.60 x"
        in " ".join(told(fast).split())
    )
    text = " ".join(told(poor).split())
    assert "limits no single part: even with" in text and "would give 0.64 x" in text


def test_tokens_cluster_by_prompt():
    """Tokens 4 + 2 over 2 + 2 steps; the prompts' influences on log 1.5 are (4 − 3)/6 and (2 −
    3)/6.
    """
    walks = tuple(
        Walk(np.array([steps]), np.ones((2, 1)), np.array([[gained]]))
        for steps, gained in ((1.0, 1.5), (1.0, 0.5), (2.0, 0.0))
    )
    plans = [WalkedPlan("chain", "", "", SpeculativeSampling(1), walks, ONE)]
    tokens, alone = Tokens.of(plans, [7, 7, 3]), Tokens.of(plans, [0, 0, 0])
    assert tokens.mean.tolist() == [1.5]
    np.testing.assert_allclose(sorted(tokens.influence[:, 0]), [-1 / 6, 1 / 6])
    np.testing.assert_allclose(clustered_error(tokens.influence), [1 / 3])
    assert np.isnan(alone.critical(error=0.05, seed=0))
    nothing_sure = speedup(1.5, alone.influence[:, 0], clock_error=0.0, critical=float("nan"))
    for best in (nothing_sure, Estimate(1.2, 0.9, 1.4)):
        assert verdict_of(best, []) == "undecided"


def test_intervals_of_the_best_of_many_cover(monkeypatch):
    """Of 40 plans with one true mean the one that looks best is covered as often as said; one
    plan's own interval is not enough.
    """
    monkeypatch.setattr(speedups, "_SIMULATED", 2_000)
    rng, covered, naive, trials, error = np.random.default_rng(2), 0, 0, 200, 0.1
    for seed in range(trials):
        influence = rng.standard_normal((12, 40)) * 0.02
        tokens = Tokens(np.exp(influence.sum(axis=0)), influence - influence.mean(axis=0))
        best = int(np.argmax(tokens.mean))
        for width in (tokens.critical(error=error, seed=seed), 1.796):
            found = speedup(
                float(tokens.mean[best]),
                tokens.influence[:, best],
                clock_error=0.0,
                critical=width,
            )
            hit = found.low <= 1.0 <= found.high
            covered, naive = (covered + hit, naive) if width != 1.796 else (covered, naive + hit)
    # Binomial(200, 0.9) is below 160 with probability 1e-5.
    assert covered >= 160 > naive


def test_clock_errors_widen_intervals():
    influence = np.array([[0.03], [-0.03]])
    for clock_error, whole in ((0.0, 0.06), (0.08, 0.1)):
        found = speedup(1.2, influence[:, 0], clock_error=clock_error, critical=2.0)
        ends = 1.2 * np.exp(-2 * whole), 1.2 * np.exp(2 * whole)
        assert (found.low, found.high) == pytest.approx(ends)


def test_steps_are_modelled_from_their_pieces():
    model = StepModel((1e-3, 1e-4), ((0, 4), (4e-3, 6e-3)), {"chain": (1e-3, 1e-4, 1e-5)})
    plan = WalkedPlan("chain", "", "", SpeculativeSampling(2), (), Work.of(SpeculativeSampling(2)))
    assert model.seconds(plan) == pytest.approx(2 * 1.1e-3 + 5e-3 + 1e-3 + 2e-4 + 2e-5)
    assert model.checking(8) == pytest.approx(8e-3)
    assert drafting_widths(TreeShape([0, 0, 1, 2, 3])) == (1, 2, 1)


@pytest.mark.parametrize("limits", [Limits(1, 1), Limits(3, 2, 2), Limits(6, 40, 16)])
def test_plans_keep_to_the_limits(limits):
    """Never more nodes, depth or sequences than are allowed, and every plan is written as the
    commands take it.
    """
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(20), size=(2, 4))
    text, model = (
        SampledText((0,), q.argmax(axis=1), p, q),
        MarkovModel(rng.dirichlet(np.ones(20), size=20)),
    )
    for family in FAMILIES:
        law = family.law(TextToRead(text, model, model, limits, 3, None, rng))
        plans = list(family.plans([law], limits=limits, starts=3))
        assert len({plan.text for plan in plans}) == len(plans)
        for plan in plans:
            assert plan.decoder.num_nodes <= limits.nodes and plan.decoder.depth <= limits.depth
            assert decoder_from_text(plan.text) == plan.decoder
            if isinstance(plan.decoder, DraftSelection):
                assert plan.decoder.num_drafts <= limits.sequences
            (walk,) = plan.walks
            assert walk.steps <= walk.tokens <= walk.steps * (1 + plan.decoder.depth) + 1e-9
        for decoder in family.probes(limits):
            assert decoder.num_nodes <= limits.nodes and decoder.depth <= limits.depth


def test_a_run_stands_beside_its_prediction():
    trials = [
        Trial("plain decoding", 4, 100, 100, 1.0, 1.0, 1.05, 1.0, 1.0, 1.0),
        Trial("a", 4, 110, 50, 2.1, 0.9, 0.8, 1.5, 1.22, 1.44),
    ]
    text = trial_table(trials, {"a": "likeliest tree of 20, depth 10"})
    assert "likeliest tree of 20, depth 10" in text and "2.20" in text
    assert "off by at most 12 %, their ratios by 19 %" in text and text.endswith("by 23 %")
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert "nothing was run" in trial_table([], {})


class Sleeping(Toy):
    """A toy that takes its time."""

    seconds = 0.0

    def next_batch(self, contexts):
        time.sleep(self.seconds)
        return super().next_batch(contexts)


def quick_toys():
    """Two models that answer at once."""
    return map(Toy, markov_pair(6, similarity=0.9, rng=np.random.default_rng(1)))


def test_a_draft_that_costs_little_and_is_often_right_is_advised(
    monkeypatch,
):
    """The target sleeps 6 ms, the draft ¼ ms: what is advised drafts several tokens and, run for
    real, is faster as predicted.
    """
    monkeypatch.setattr(advice_module, "LEAST_ROUNDS", 3)
    draft, target = map(Sleeping, markov_pair(6, similarity=0.97, rng=np.random.default_rng(1)))
    draft.seconds, target.seconds = 2.5e-4, 6e-3
    prompts = [[0], [1, 2], [3], [4, 5, 0], [2], [5]]
    asked = AdviceSettings(num_tokens=12, limits=Limits(3, 3, 1), seconds=0.0, quick=0.0)
    found = advise(draft, target, prompts, asked=asked, eos=None)
    # How sure it is depends on what else the machine does; which way it leans does not.
    assert found.verdict != "do not speculate" and found.looks == 1
    assert found.best.over_plain.value > 1.2 and found.best.tokens > 1.5
    ran = run_trials(found, draft, target, prompts, eos=None, repeats=2, seed=3)
    assert ran[0].name == PLAIN
    for one in ran:
        # Sleep dominates; what is left is the spread of 72 calls' tokens, at most 4 each:
        # three standard errors are 21 %, and a busy machine sleeps longer now and then.
        assert one.predicted_speedup / one.speedup == pytest.approx(1.0, abs=0.4)
    assert ran[1].speedup > 1.1


class Counted:
    """A clock that moves on by one whenever it is looked at, a thousand of which are a second of
    the stop watch, so that a test measures as much on a fast machine as on a slow one.
    """

    def __init__(self):
        self.now = 0

    def perf_counter(self):
        return self.now / 1e3

    def monotonic(self):
        self.now += 1
        return self.now


@pytest.fixture
def new_watch(monkeypatch):
    """Set such a clock anew."""

    def at_zero():
        watch = Counted()
        monkeypatch.setattr(advice_module, "time", watch)
        real = types.SimpleNamespace(monotonic=watch.monotonic, perf_counter=time.perf_counter)
        monkeypatch.setattr(clocked, "time", real)
        return watch

    return at_zero


def test_the_answer_comes_in_time_whatever_is_known(new_watch):
    """Without time a chain is compared; the more there is, the more families; never is more asked
    of the models than there is time for, but for one text and one step.
    """
    asked, left_out = AdviceSettings(12, Limits(4, 3, 2), seconds=0.0, quick=0.0), []
    names = [family.name for family in FAMILIES]
    for until in (0, 400, 1_500, 100_000):
        watch = new_watch()
        found = advise(*quick_toys(), [[0], [1, 2], [3]], asked=asked, eos=None, until=until)
        assert watch.now < until + 100 or until == 100_000
        assert sorted([*found.left_out, *(row.plan.family for row in found.rows)]) == sorted(names)
        left_out.append(len(found.left_out))
        text = advice_screen(found, draft="small", surroundings={}, passes=None, lost=None)
        words = " ".join(text.split())
        assert ("there was no time for block verification" in words) == (until == 0)
        if until == 0:
            assert found.verdict == "undecided" and found.texts == 1
            assert ": no interval from one prompt or one round" in words
    assert left_out[0] == len(FAMILIES) - 1 and left_out[-1] == 0
    assert sorted(left_out, reverse=True) == left_out


def test_the_first_look_is_told_and_what_it_had_no_time_for_is_taken_in_later(
    new_watch, monkeypatch
):
    """At six tenths of the time at the latest, by a clock that moves on when it is looked at; a
    family that it cut off is compared in the end, on as many texts as the rest.
    """
    watch, heard, cut = new_watch(), list[tuple[int, Advice]](), list[int]()
    last = type(FAMILIES[-1])
    law = last.law

    def late(self, reading):
        cut.append(watch.now)
        if len(cut) == 1:
            raise clocked.DeadlinePassed
        return law(self, reading)

    monkeypatch.setattr(last, "law", late)
    asked = AdviceSettings(12, Limits(4, 3, 2), seconds=1e9, quick=10.0, confidence=0.9999)
    found = advise(
        *quick_toys(),
        [[0], [1, 2], [3]],
        asked=asked,
        eos=None,
        until=8_000,
        on_progress=lambda one: heard.append((watch.now, one)),
    )
    (when, first), *_ = heard
    assert 2_000 < when < 5_000 and watch.now > 7_900
    assert first.left_out == (FAMILIES[-1].name,) and found.left_out == ()
    assert {len(row.plan.walks) for row in found.rows} == {found.texts} and found.texts > 1
    verdict, plan = so_far(first).splitlines()
    assert verdict.startswith(("so far  SPECULATE", "so far  DO NOT"))
    assert " x plain decoding" in plan and plan.endswith("; measuring goes on")


@pytest.fixture
def interruptible():
    """As in the foreground, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_the_first_interrupt_is_a_deadline_and_the_second_one_the_end(capfd):
    model = clocked.Clocked(types.SimpleNamespace(num_tokens=2, max_length=None))
    with clocked.stoppable():
        assert not clocked.was_stopped()
        model.until = time.monotonic() + 60.0
        model.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(clocked.DeadlinePassed):
            model.check()
        assert clocked.seconds_left(math.inf) == math.inf  # what is waited for in any case
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert clocked.was_stopped() and "Ctrl-C again ends at once" in capfd.readouterr().err
    with clocked.stoppable():
        model.check()


def test_the_command_on_the_shipped_pair(monkeypatch, printed, tmp_path):
    """The smallest measurement gives a verdict, runs what it advises, and writes what `otm plan`
    can go on with.
    """
    monkeypatch.setattr(advice_module, "LEAST_ROUNDS", 2)
    monkeypatch.setattr(
        end_to_end, "announce_limit", lambda seconds: math.inf
    )  # once through everything, and no more
    prompts, out = tmp_path / "prompts.txt", tmp_path / "advice.json"
    lines = (SHIPPED_PAIR / "prompts.txt").read_text(encoding="utf-8").splitlines()[:2]
    prompts.write_text("\n".join(lines), encoding="utf-8")
    asked = (
        "--num-tokens 4 --max-nodes 4 --max-depth 2 --sequences 2 --seconds 0 --repeats 1 "
        "--threads 1 --temperature 0.8 --top-p 0.95 --order vllm --draft-temperature 0.6 "
        "--draft-top-k 50 --min-p 0.001 --device cpu --run"
    )
    shown = printed("advise", "--prompts", prompts, "--out", out, *asked.split())
    assert "SPECULATE" in shown.splitlines()[0] and "\nrun     2 texts" in shown
    record = json.loads(out.read_text(encoding="utf-8"))
    assert record["verdict"] in ("speculate", "do not speculate", "undecided")
    sides = {side: Processing(**one) for side, one in record["manifest"]["processing"].items()}
    wanted = Processing(temperature=0.8, top_p=0.95, min_p=0.001, order="vllm")
    assert sides == {
        "target": wanted,
        "draft": dataclasses.replace(wanted, temperature=0.6, top_k=50),
    }
    assert [one["name"] for one in record["run"]] == [
        "plain decoding",
        *(one["decoder"] for one in record["rows"]),
    ]
    gone = record["lost"]
    assert gone["accepted"]["value"] + sum(
        part["value"] for part in gone["parts"].values()
    ) == pytest.approx(1.0, abs=1e-9)
    assert {one["family"] for one in record["rows"]} == {family.name for family in FAMILIES}
    costs = tmp_path / "costs.json"
    costs.write_text(record["costs"]["passes"], encoding="utf-8")
    assert read_costs(costs).tokens[0] == 1
    np.testing.assert_array_equal(read_costs(out).target, read_costs(costs).target)


def test_chats_are_written_in_the_template(tmp_path):
    from analysis.models.pair import load_pair

    pair = load_pair(device="cpu")
    pair.tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if "
        "add_generation_prompt %}>>{% endif %}"
    )
    assert pair.tokenizer.decode(pair.encode_chat("Return the")) == "<user>Return the>>"
    assert pair.encode_prompt("Return the") == pair.encode("Return the")
    asked = dataclasses.replace(pair, chat=True)
    assert asked.encode_prompt("Return the") == pair.encode_chat("Return the")
    pair.tokenizer.chat_template = "{{ raise_exception('no users here') }}"
    with pytest.raises(AnalysisError, match="no users here"):
        pair.encode_chat("Return the")


def test_a_step_whose_round_was_cut_short_is_not_compared():
    """Time was over before the plain decoding after it: of two steps one has plain times beside."""
    chain = SpeculativeSampling(1)
    clock = Clock(None, None, [], None, np.random.default_rng(0))
    clock.pieces[chain] = Pieces(draft=[1.0, 9.0], target=[2.0, 9.0], rest=[0.0, 9.0])
    clock.plain[chain] = [2.0]
    found, error, rounds = clock.ratio(chain)
    assert found == pytest.approx(1.5) and np.isnan(error) and rounds == 1


def test_an_engine_is_advised_on_what_it_runs_with_its_drafts(monkeypatch, printed, tmp_path):
    monkeypatch.setattr(advice_module, "LEAST_ROUNDS", 2)
    monkeypatch.setattr(end_to_end, "announce_limit", lambda seconds: math.inf)
    prompts, out = tmp_path / "prompts.txt", tmp_path / "advice.json"
    lines = (SHIPPED_PAIR / "prompts.txt").read_text(encoding="utf-8").splitlines()[:2]
    prompts.write_text("\n".join([lines[0], 90 * lines[1]]), encoding="utf-8")
    asked = (
        "--num-tokens 4 --max-depth 2 --seconds 0 --repeats 1 --threads 1 --temperature 0.8 "
        "--device cpu --run"
    )
    told = ["advise", "--prompts", prompts, "--out", out, *asked.split()]
    shown = printed(*told, "--engine", "transformers")
    assert "note    transformers: rejection of drafts at the square" in shown
    assert "note    prompts are cut to their last 479 tokens, of 512 positions" in shown
    record = json.loads(out.read_text(encoding="utf-8"))
    assert record["manifest"]["processing"]["draft"]["temperature"] == pytest.approx(0.64)
    assert record["manifest"]["processing"]["target"]["temperature"] == 0.8
    assert {one["family"] for one in record["rows"]} == {FAMILIES[0].name}


def test_an_engine_without_rejection_is_not_advised_on(capsys):
    given = ["advise", "--prompts", str(SHIPPED_PAIR / "prompts.txt"), "--engine", "mlx-lm"]
    assert main(given) == 2
    assert "Ask otm rules --engine mlx-lm" in capsys.readouterr().err
