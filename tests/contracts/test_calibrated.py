"""Calibrated Monte Carlo: every sampler against its exact law, with a stated false-alarm rate and
stated power.

Each check compares counts with exact binomial laws and splits its false-alarm rate of 1e-9 over its
cells (Bonferroni). Power is computed, not hoped for: for each named mutant the probability that the
check notices it is evaluated from the same binomial laws and required to exceed 1 − 1e-6 before the
mutant is run.
"""

import itertools

import numpy as np
import pytest
from scipy.stats import binom

import otm
from otm import Problem
from otm.drafts.base import enumerate_drafts
from otm.verbs import run
from tests import instances, mutants
from tests.contracts.alarms import (
    FALSE_ALARM,
    SAMPLES,
    acceptance_region,
    alarms,
    joint_law,
    keys,
    power,
    tabulate,
    which_row,
)

INSTANCES = ("plain", "zeros", "partial")


@pytest.mark.parametrize(("verifier", "law"), instances.supported_pairs())
def test_samplers_execute_their_law(verifier, law):
    """Of drafts and output together, of the output, and both acceptances."""
    for seed, name in enumerate(INSTANCES):
        problem = instances.make_problem(law, *instances.ROWS[name])
        rows, mass = joint_law(verifier, problem)
        draws = run(otm.prepare(verifier, problem), size=SAMPLES, rng=np.random.default_rng(seed))
        counts = tabulate(draws, rows, problem.num_tokens)
        output = counts.sum(axis=0)
        assert not alarms(counts, mass, SAMPLES).any(), name
        assert not alarms(output, mass.sum(axis=0), SAMPLES).any(), name
        assert not verifier.lossless or not alarms(output, problem.target, SAMPLES).any(), name
        hits = np.array([draws.member.sum(), draws.accepted.sum()])
        exact = [otm.acceptance(verifier, problem, by=by) for by in ("membership", "rule")]
        assert not alarms(hits, np.array(exact), SAMPLES).any(), name
        assert (draws.member | ~draws.accepted).all()


@pytest.mark.parametrize("kind", otm.drafts.LAWS)
def test_laws_draw_what_they_enumerate(kind):
    for k, (seed, name) in itertools.product((1, 2, 3), enumerate(INSTANCES)):
        law = kind.of_size(k)
        problem = instances.make_problem(law, *instances.ROWS[name])
        table, rng = enumerate_drafts(law, problem.draft), np.random.default_rng(200 + seed)
        uniforms = rng.random((SAMPLES, law.num_uniforms(problem.num_tokens)))
        drafts = law.draw(problem.draft, uniforms)
        order = np.argsort(keys(table.tokens, problem.num_tokens))
        drawn = which_row(drafts, table.tokens[order], problem.num_tokens)
        counts = np.bincount(drawn, minlength=len(order))
        assert not alarms(counts, table.mass[order], SAMPLES).any(), (law, name)


# --- power
# --------------------------------------------------------------------------------------------------

_LOGITS = np.array([2.0, 1.2, 0.4, -0.5])
_RAW = otm.from_logits(_LOGITS)
_PROCESSED = otm.from_logits(_LOGITS, temperature=0.7, top_k=3)
_DRAFT, _TARGET = [0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]
# On _TARGET every stage of recursive rejection after the first accepts with probability 0 or 1, and
# then a reused uniform is as good as a fresh one. Here token 1 is accepted with probability 5/9 at
# the second stage.
_UNTIDY = [0.2, 0.35, 0.2, 0.25]

_HEAVY = [1.0, 1e-17, 3e-17, 2e-17]  # 1 − p(0) is 0 in floating point

# mutant, what it should have done, draft, target
MUTANTS = [
    (mutants.NoRenormalisation(), otm.RecursiveRejection(), _DRAFT, _TARGET),
    (mutants.ReusedUniform(), otm.RecursiveRejection(), _DRAFT, _UNTIDY),
    (mutants.ReusedUniformKSeq(), otm.KSeq(), _DRAFT, _TARGET),
    (mutants.ClippedKSeq(), otm.KSeq(), _DRAFT, _TARGET),
    (mutants.ForgottenChoice(), otm.WithoutReplacementOptimal(), _DRAFT, _TARGET),
    (mutants.RawTarget(raw=tuple(_RAW)), otm.RecursiveRejection(), _DRAFT, _PROCESSED),
    (mutants.Distinct("not renormalised"), otm.RecursiveRejection(), _DRAFT, _UNTIDY),
    (mutants.Distinct("reuse"), otm.RecursiveRejection(), _DRAFT, _UNTIDY),
    (mutants.Distinct("one minus"), otm.RecursiveRejection(), _HEAVY, _UNTIDY),
]


@pytest.mark.parametrize(
    ("mutant", "correct", "draft", "target"), [pytest.param(*m, id=repr(m[0])) for m in MUTANTS]
)
def test_mutants_die(mutant, correct, draft, target):
    """In the exact law, in samples of the output, and in samples of drafts and output."""
    problem = Problem(draft=draft, target=target, law=mutant.laws[0](3))
    rows, claimed = joint_law(correct, problem)
    own_rows, joint = joint_law(mutant, problem)
    np.testing.assert_array_equal(own_rows, rows)
    truth = joint.sum(axis=0)
    # The contract allows about 1e-13 (tests/tolerance.py): a loss of 1e-3 is not a matter of
    # tolerance.
    assert np.abs(truth - problem.target).max() > 1e-3
    assert np.abs(claimed.sum(axis=0) - problem.target).max() < 1e-13
    assert power(truth, problem.target, SAMPLES) > 1 - 1e-6
    assert power(joint, claimed, SAMPLES) > 1 - 1e-6
    draws = otm.sample(mutant, problem, size=SAMPLES, rng=np.random.default_rng(1))
    counts = tabulate(draws, rows, problem.num_tokens)
    assert alarms(counts, claimed, SAMPLES).any()
    assert alarms(counts.sum(axis=0), problem.target, SAMPLES).any()
    # and it is the mutant's own law that is drawn, so the alarm is about the law and not about the
    # sampler
    assert not alarms(counts.sum(axis=0), truth, SAMPLES).any()


def test_the_false_alarm_rate_is_what_it_says():
    # Exactly, not by simulation: the total probability of the alarm region, cell by cell, summed
    # over cells.
    mass = np.array([1e-6, 1e-3, 0.2, 0.3, 0.498999])
    low, high = acceptance_region(mass, SAMPLES, FALSE_ALARM / mass.size)
    outside = binom.cdf(low - 1, SAMPLES, mass) + binom.sf(high, SAMPLES, mass)
    assert outside.sum() <= FALSE_ALARM
