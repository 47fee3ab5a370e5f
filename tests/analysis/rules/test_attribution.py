"""Records drawn from a rule are told to be its own, and those of none are told to be of none."""

import itertools

import numpy as np
import pytest

from analysis.advise.laws import race_agreement
from analysis.advise.walk import Walk, along_block
from analysis.errors import AnalysisError
from analysis.rules.attribution import (
    ERROR,
    RecordStatistics,
    fewest_steps,
    log_likelihoods,
    of_texts,
    p_values,
    predicted,
    predicted_given,
    statistics_of,
    steps_to_tell,
    text_moments,
)
from analysis.rules.rules import chain_walk, in_bfloat16
from analysis.rules.survivals import Survivals
from analysis.steps.texts import SampledText
from otm.engines.records import Tally
from otm.sequence import markov_pair
from tests.analysis.toys import record_of

LENGTH, STARTS, STEPS = 3, 32, 5_000
RULES = {
    "match-independent": lambda p, q: p * q,
    "match-argmax": lambda p, q: np.minimum(np.eye(p.shape[1])[p.argmax(axis=1)], q),
    "match-noise": race_agreement,
    "rejection": np.minimum,
    "rejection-bfloat16": lambda p, q: np.minimum(in_bfloat16(p), q),
    "rejection-hot": lambda p, q: np.minimum(p**0.4 / (p**0.4).sum(axis=1, keepdims=True), q),
}
NAMES = (*RULES, "block")
COINCIDE = ("rejection", "rejection-bfloat16")


def sampled_walks(texts, rng, *, ends=False):
    """Return the walks of all rules along texts of a Markov chain, which may end there."""
    draft, target = markov_pair(12, similarity=0.7, concentration=0.3, rng=np.random.default_rng(1))
    p, q = (model.next_batch([[x] for x in range(12)]) for model in (draft, target))
    cumulative, walks = np.cumsum(q, axis=1), []
    for _ in range(texts):
        tokens = [int(rng.integers(12))]
        for uniform in rng.random(STARTS + (0 if ends else LENGTH)) * cumulative[:, -1].min():
            tokens.append(int(np.searchsorted(cumulative[tokens[-1]], uniform, side="right")))
        before = tokens[:-1]
        text = SampledText((tokens[0],), np.array(tokens[1:]), p[before], q[before])
        walks.append(
            (
                *(
                    chain_walk(rule(text.draft, text.target), text, LENGTH, STARTS, None)
                    for rule in RULES.values()
                ),
                along_block(text, most=LENGTH, starts=STARTS, eos=None)[-1],
            )
        )
    return walks


def drawn(walk, rng, *, losing=0.0):
    """Return how many steps accept exactly 0, …, L drafts of one decoded text.

    Args:
        walk: of the rule that decodes it.
        rng: of its luck.
        losing: how often an engine's fault loses a second draft that was accepted.
    """
    found, at = np.zeros(LENGTH + 1, dtype=np.int64), 0
    reached = np.append(walk.reached[1:], np.zeros((1, walk.reached.shape[1])), axis=0)
    while at < STARTS:
        accepted = int((reached[:, at] > rng.random()).sum())
        if accepted > 1 and rng.random() < losing:
            accepted = 1
        found[accepted] += 1
        at += 1 + accepted
    return found


def drawn_record(bank, rule, rng, *, requests, losing=0.0):
    """Return a record of 5,000 steps, with its requests told apart or not."""
    parts, steps = [], 0
    while steps < STEPS:
        walk = bank[int(rng.integers(len(bank)))][rule]
        parts.append(drawn(walk, rng, losing=losing))
        steps += int(parts[-1].sum())
    counted = parts if requests else [np.sum(parts, axis=0)]
    tallies = [Tally.of_histogram(part, name=str(i)) for i, part in enumerate(counted)]
    return record_of(*tallies, unit="request" if requests else "server", length=LENGTH)


def told(seen, prediction):
    """Return the rules that the statistics of a record are consistent with."""
    found = p_values(seen, prediction)
    return {name for name, one in zip(NAMES, found, strict=True) if one >= ERROR}


def attributed(records, *, texts, size):
    """Return how many records of each rule are attributed to it and to what coincides alone."""
    rng = np.random.default_rng(3)
    bank, walks = sampled_walks(size, rng), sampled_walks(texts, rng)
    prediction = predicted(Survivals.of(walks, range(texts)), walks)
    right = dict.fromkeys((*NAMES, "none"), 0)
    for number, name in itertools.product(range(records), right):
        # an engine's fault makes a record of none
        of = "rejection" if name == "none" else name
        losing, requests = 0.2 * (name == "none"), number % 2 == 0
        record = drawn_record(bank, NAMES.index(of), rng, requests=requests, losing=losing)
        found = told(statistics_of(record, LENGTH), prediction)
        own = set(COINCIDE) if name in COINCIDE else {name}
        right[name] += not found if name == "none" else name in found and found <= own
    return right


def attributed_of_given_texts(records, *, texts):
    """Return how many records are attributed to their rule and to what so many steps cannot tell.

    Args:
        records: of each rule.
        texts: written.
    """
    rng = np.random.default_rng(4)
    walks = sampled_walks(texts, rng, ends=True)
    prediction = predicted_given(walks, [False] * len(NAMES))
    right = dict.fromkeys((*NAMES, "none"), 0)
    for number, name in itertools.product(range(records), right):
        rule = NAMES.index("rejection-hot" if name == "none" else name)
        losing = 0.5 if name == "none" else 0.0
        counts = np.sum([drawn(row[rule], rng, losing=losing) for row in walks], axis=0)
        if number % 2:  # an engine that counts drafts beyond the end of some texts
            counts += texts // 30 * np.array([-1, 0, 0, 1])
        record = record_of(Tally.of_histogram(counts, name=""), length=LENGTH)
        seen = of_texts(statistics_of(record, LENGTH), STARTS * texts, texts)
        found, own = told(seen, prediction), set[str]()
        if name != "none":
            needed = [steps_to_tell(seen, prediction, rule, i) for i in range(len(NAMES))]
            own = {other for other, n in zip(NAMES, needed, strict=True) if n > seen.steps}
        right[name] += found <= own and (name == "none" or name in found)
    return right


@pytest.mark.parametrize(
    ("records", "texts", "wrong"), [(2, 30, 1), pytest.param(100, 300, 4, marks=pytest.mark.long)]
)
def test_a_record_of_given_texts_is_told_by_far_fewer_steps(records, texts, wrong):
    """Of 30 texts, 300 to 750 steps.

    Of 16 records one may be wrong: that two are has probability 1 % at α = .01.
    """
    right = attributed_of_given_texts(records, texts=texts)
    missed = [records - found for found in right.values()]
    assert max(missed) <= wrong and (records > 2 or sum(missed) <= wrong), right


def test_what_so_many_steps_cannot_tell():
    """Of coins that fall for a draft with probability 1/2 and 3/4: log 25 over the smaller of
    log(2/√3) and ¼ log(27/16) nats a step; of rules with luck of their own nothing is known.
    """
    walks = [
        tuple(Walk.of(np.array([[1.0] * 4, [rate] * 4]), np.zeros((1, 4))) for rate in rates)
        for rates in [(0.5, 0.75, 0.5)] * 2
    ]
    found = fewest_steps(walks, [False, False, True])
    assert found[0, 1] == found[1, 0] == pytest.approx(4.0 * np.log(25.0) / np.log(27 / 16))
    assert np.isinf(found[0, 0]) and not found[2].any()
    # of a rule that accepts more than another on every text nothing but luck is between
    prediction = predicted_given(walks, [False, False, False])
    seen = RecordStatistics(0.5, np.array([0.5]), 1_000.0)
    assert steps_to_tell(seen, prediction, 0, 1) < 1_000.0
    assert np.isinf(steps_to_tell(seen, prediction, 0, 2))


def test_what_is_known_of_a_given_text_is_what_steps_do_there():
    """The mean, and the luck but for one step a text, of 1,000 records of the same texts."""
    rng = np.random.default_rng(6)
    walks = sampled_walks(3, rng, ends=True)
    rule = NAMES.index("match-noise")
    found = predicted_given(walks, [False] * len(NAMES))
    counts = np.array(
        [np.sum([drawn(row[rule], rng) for row in walks], axis=0) for _ in range(1_000)]
    )
    survivors, steps = np.cumsum(counts[:, ::-1], axis=1)[:, -2::-1], counts.sum(axis=1)
    mean = survivors.sum(axis=0) / steps.sum()
    # four standard errors, a step's spread being a half at most
    assert mean == pytest.approx(found.mean[rule], abs=4 * 0.5 / np.sqrt(steps.sum()))
    residuals = survivors - steps[:, None] * found.mean[rule]
    once = np.minimum.outer(mean, mean) - np.outer(mean, mean)
    exact = found.luck[rule] * sum(row[rule].steps for row in walks) - 3 * once
    # a variance of 1,000 normal numbers is sure to 4·√(2/1,000) = 18 %
    assert np.diag(np.cov(residuals.T)) == pytest.approx(np.diag(exact), rel=0.18)
    certain = found.luck[NAMES.index("match-argmax")] * sum(row[1].steps for row in walks)
    one = found.mean[1]
    assert certain == pytest.approx(3 * (np.minimum.outer(one, one) - np.outer(one, one)))


@pytest.mark.parametrize(
    ("records", "texts", "size", "wrong"),
    [(3, 80, 200, 1), pytest.param(100, 200, 2_000, 4, marks=pytest.mark.long)],
)
def test_a_record_is_told_to_be_of_the_rule_that_it_is_drawn_from(records, texts, size, wrong):
    """Of 24 records one may be wrong: that two are has probability below 3 % at α = .01. Of 100 of
    a rule a rate of .99 leaves 4 or more wrong with probability .02, all 8 together .15.
    """
    right = attributed(records, texts=texts, size=size)
    missed = [records - found for found in right.values()]
    assert max(missed) <= wrong and (records > 3 or sum(missed) <= wrong), right


def test_the_covariance_of_a_text_is_that_of_all_its_courses():
    """Against the enumeration of every way in which steps may follow each other."""
    (row,) = sampled_walks(1, np.random.default_rng(0))
    whole = row[NAMES.index("block")]
    walk = Walk.of(whole.reached[:, :4], whole.gained[:, :4])
    mean = np.array([0.7, 0.5, 0.3])
    reached = np.append(walk.reached, np.zeros((1, 4)), axis=0)

    def courses(at, residual, mass):
        if at >= 4:
            return mass * np.outer(residual, residual)
        return np.sum(
            [
                courses(
                    at + 1 + j,
                    residual + (j > np.arange(3)) - mean,
                    mass * (reached[j, at] - reached[j + 1, at]),
                )
                for j in range(4)
            ],
            axis=0,
        )

    np.testing.assert_allclose(text_moments(walk, mean), courses(0, np.zeros(3), 1.0), atol=1e-14)


def test_survivals_are_paired_and_clustered_by_prompt():
    """Two prompts, one with two texts: the means of 4 tokens in 2 steps and of 3 in 2."""

    def walk(gained):
        return Walk(np.ones(1), np.ones((2, 1)), np.array([[gained]]))

    walks = [(walk(0.25), walk(0.5)), (walk(0.75), walk(1.0)), (walk(0.5), walk(0.75))]
    found = Survivals.of(walks, [4, 4, 9])
    assert found.clusters == 2 and found.tokens(0).value == pytest.approx(1.5)
    assert found.tokens(0).low == pytest.approx(1.5) == found.tokens(0).high
    lead = found.lead(1, 0)
    assert (lead.value, lead.low, lead.high) == pytest.approx((0.25, 0.25, 0.25))
    alone = Survivals.of(walks, [0, 0, 0])
    assert alone.tokens(1).value == pytest.approx(1.75) and not alone.tokens(1).has_interval


def covered(draws, *, prompts, size):
    """Return how many intervals hold tokens per call, and a paired lead, of all prompts."""
    rng = np.random.default_rng(8)
    bank = sampled_walks(size, rng)
    whole, found = Survivals.of(bank, range(size)), np.zeros(2, dtype=int)
    match, block = NAMES.index("match-argmax"), NAMES.index("block")
    for _ in range(draws):
        one = Survivals.of([bank[i] for i in rng.integers(size, size=prompts)], range(prompts))
        pairs = (
            (one.tokens(match), whole.tokens(match)),
            (one.lead(block, match), whole.lead(block, match)),
        )
        found += [interval.low <= exact.value <= interval.high for interval, exact in pairs]
    return found


@pytest.mark.parametrize(
    ("draws", "prompts", "size", "least", "most"),
    [(200, 16, 40, 176, 199), pytest.param(2_000, 100, 400, 1_860, 1_940, marks=pytest.mark.long)],
)
def test_intervals_cover_what_they_are_of(draws, prompts, size, least, most):
    """Of tokens per call and of paired leads, in 200 draws of 16 prompts out of 40.

    95 % of 200 is 190, with a standard error of 3.1; a ratio of few prompts is covered less. 95 %
    of 2,000 is 1,900, with a standard error of 10.
    """
    found = covered(draws, prompts=prompts, size=size)
    assert (found >= least).all() and (found <= most).all(), found


def test_of_rules_that_are_not_told_apart_the_likeliest_comes_first():
    """20 steps of either, exactly as predicted: nothing speaks against the other."""
    walks = sampled_walks(12, np.random.default_rng(3))
    prediction = predicted(Survivals.of(walks, range(12)), walks)
    both = [NAMES.index(name) for name in ("rejection", "block")]
    for own in both:
        mean = prediction.mean[own]
        for survival in (mean, None):
            seen = RecordStatistics(float(mean.sum()), survival, 20.0)
            # of several tests, times their number, no more than 1; of the mean alone one
            least = ERROR if survival is None else 1.0
            assert p_values(seen, prediction)[both].min() >= least
            likely = log_likelihoods(seen, prediction)[both]
            assert both[int(likely.argmax())] == own


def test_certain_rules_have_no_luck():
    """Without any luck on either side a record is consistent with the rule that it equals."""
    walk = Walk.of(np.ones((2, 4)), np.ones((1, 4)))
    walks = [(walk,)] * 3
    prediction = predicted(Survivals.of(walks, [0, 1, 2]), walks)
    assert p_values(RecordStatistics(1.0, np.ones(1), 9.0), prediction)[0] == 1.0
    assert p_values(RecordStatistics(0.9, None, 9.0), prediction)[0] == 0.0


def test_a_mean_alone_tells_no_survival():
    mean = statistics_of(record_of(Tally("", 10.0, 5.0, 20.0)), 2)
    assert mean.accepted == 0.5 and mean.survival is None


@pytest.mark.parametrize(
    ("tally", "length", "message"),
    [
        (Tally.of_rates([0.5], name=""), 1, "rates alone"),
        (Tally("", 10.0, 5.0, 30.0), 2, "3 drafts a step, and 2 are asked for"),
    ],
)
def test_records_that_tell_nothing_are_refused(tally, length, message):
    with pytest.raises(AnalysisError, match=message):
        statistics_of(record_of(tally), length)
