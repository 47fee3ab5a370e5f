"""Rules that accept what the target finds good enough: their laws as written, ties left out."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import otm
from tests import strategies
from tests.verifiers.lossy_instances import ROUNDING, one_draft

TIES = 1e-11  # masses within 1e-12 of each other count as equal
FALLBACKS = st.sampled_from(["target", "greedy"])
RULES = {
    "typical": st.builds(otm.TypicalAcceptance, eps=st.floats(0, 1), delta=st.floats(0, 2)),
    "relaxed": st.builds(
        otm.RelaxedAcceptance, top=st.integers(1, 7), delta=st.floats(0, 1), fallback=FALLBACKS
    ),
    "regret": st.builds(otm.BoundedRegret, regret=st.floats(0, 5), fallback=FALLBACKS),
    "mars": st.builds(
        otm.Mars, theta=st.floats(0, 1), top_logit=st.floats(0.1, 4), fallback=FALLBACKS
    ),
}


def passing(rule, q):
    """Return which tokens pass, by the published condition, and how far the nearest is from it."""
    likeliest = sorted(range(len(q)), key=lambda y: (-q[y], y))
    ranks = np.argsort(likeliest)
    with np.errstate(divide="ignore"):
        logs = np.log(q / q.max())
    if isinstance(rule, otm.TypicalAcceptance):
        entropy = -sum(x * np.log(x) for x in q if x > 0)
        least = min(rule.eps, rule.delta * float(np.exp(-entropy)))
        return q > least, abs(q - least).min()
    if isinstance(rule, otm.RelaxedAcceptance):
        least = q.max() - rule.delta
        return (ranks < rule.top) & (q >= least), abs(q[ranks > 0] - least).min(initial=1.0)
    if isinstance(rule, otm.BoundedRegret):
        lost = np.exp(-rule.regret) * q.max()
        return -logs <= rule.regret, abs(q[ranks > 0] - lost).min(initial=1.0)
    # MARS compares logits, of which the largest is given: 1 + log(q/max q)/top is their ratio.
    ratio = 1 + logs / rule.top_logit
    least = np.exp((rule.theta - 1) * rule.top_logit) * q.max()
    second = q[ranks == 1]
    return (ranks == 0) | ((ranks == 1) & (ratio > rule.theta)), abs(second - least).min(initial=1)


@pytest.mark.parametrize("name", RULES)
@given(pair=strategies.pairs(max_tokens=6), data=st.data())
def test_law_as_written(name, pair, data):
    problem, verifier = one_draft(pair), data.draw(RULES[name])
    p, q = problem.draft, problem.target
    good, distance = passing(verifier, q)
    if distance < TIES:
        return
    greedy = getattr(verifier, "fallback", "target") == "greedy"
    rest = np.eye(len(q))[int(np.argmax(q))] if greedy else q
    rule, law = float(p[good].sum()), np.where(good, p, 0) + p[~good].sum() * rest
    np.testing.assert_allclose(otm.lossy.output_law(verifier, problem), law, rtol=0, atol=ROUNDING)
    assert otm.acceptance(verifier, problem, by="rule") == pytest.approx(rule, abs=ROUNDING)
    caught = float((p * rest)[~good].sum())
    assert otm.acceptance(verifier, problem) == pytest.approx(rule + caught, abs=ROUNDING)


def test_ties_pass():
    """A regret of none leaves the likeliest token and its equals, in each form of the condition."""
    tied = one_draft((np.array([0.2, 0.3, 0.5]), np.array([0.4, 0.4 - 1e-13, 0.2])))
    for verifier, accepted in (
        (otm.BoundedRegret(0.0), 0.5),
        (otm.BoundedRegret(np.inf), 1.0),
        (otm.RelaxedAcceptance(delta=0.0), 0.5),
        (otm.Mars(1.0), 0.2),
    ):
        assert otm.acceptance(verifier, tied, by="rule") == pytest.approx(accepted, abs=ROUNDING)
