"""Steps that a rule needs, against the library's exact laws of a step and against simulation."""

import numpy as np
import pytest

from evidence.engines.rules import RULES, calls, law
from otm.sequence import MarkovModel, SpeculativeSampling, expected_step

LOGITS = np.random.default_rng(3).normal(size=(2, 4, 4))


@pytest.mark.parametrize("drafts", [1, 2, 4])
def test_rejection_is_the_library_s_speculative_sampling(drafts):
    """A text of γ + 1 tokens is one step with the probability that all drafts are accepted."""
    target, draft = law(LOGITS[0], 0.7), law(LOGITS[1], 0.7)
    accepted = RULES["rejection"].accepted(target, LOGITS[1], 0.7)
    models = {"draft": MarkovModel(draft), "target": MarkovModel(target)}
    step = expected_step(SpeculativeSampling(drafts), context=[2], **models).law
    mean, _ = calls(target, accepted, drafts=drafts, last=2, length=2)
    assert mean == pytest.approx(2 - (1 - step.accepted_law[0]), abs=1e-12)
    powers = [np.linalg.matrix_power(accepted, j)[2].sum() for j in range(drafts + 1)]
    assert sum(powers) == pytest.approx(step.block_efficiency, abs=1e-12)


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.accepted])
def test_mean_and_spread_are_those_of_simulated_steps(name):
    """A token of the target is an accepted draft with probability M/P; five standard errors."""
    rng, temperature, length, texts = np.random.default_rng(5), 0.8, 6, 2_000
    target = law(LOGITS[0], temperature)
    accepted = RULES[name].accepted(target, LOGITS[1], temperature)
    assert (accepted <= target + 1e-12).all()
    assert accepted.min() >= 0.0
    found = []
    for _ in range(texts):
        last, left, steps = 1, length, 0
        while left > 0:
            steps += 1
            for j in range(4):  # three drafts and the target's own token
                token = rng.choice(4, p=target[last])
                kept = j < 3 and rng.random() < accepted[last, token] / target[last, token]
                last, left = token, left - 1
                if not kept:
                    break
        found.append(steps)
    mean, variance = calls(target, accepted, drafts=3, last=1, length=length)
    assert np.mean(found) == pytest.approx(mean, abs=5 * (variance / texts) ** 0.5)
    assert np.var(found) == pytest.approx(variance, rel=0.2)
