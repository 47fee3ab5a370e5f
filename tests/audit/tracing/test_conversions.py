"""Calls of `float` on random numbers change nothing, and are followed as nothing."""

import random

import numpy as np
import pytest

import otm
from otm import audit
from otm.audit.tracing.branching import trace

torch = pytest.importorskip("torch")

P, Q = otm.sequence.ZerothOrder([0.5, 0.5]), otm.sequence.ZerothOrder([0.25, 0.75])


@pytest.mark.parametrize(
    "draw",
    [
        lambda: float(random.random()),
        lambda: float(np.random.default_rng().random()),
        lambda: float(np.random.default_rng().random(1)[0]),
        lambda: float(torch.rand(1)),
        lambda: torch.rand(()).item(),
        lambda: float(float(random.random())),
    ],
)
def test_a_conversion_keeps_the_law_exact(draw):
    law = trace(lambda u: draw() < 0.25)
    assert law.mass == {True: 0.25, False: 0.75}
    assert law.error == 0.0
    assert "float" not in globals()


def test_float_stays_a_type_beside_its_calls():
    def looks(u):
        x = float(u[0])
        known = float("0.5"), float(np.float32(0.5)), float(True)
        sums = np.zeros(2, dtype=float).dtype == np.float64 == np.ones(1, int).astype(float).dtype
        return (x < 0.25, isinstance(x, float), isinstance(0.5, float), sums, known)

    law = trace(looks, 1)
    assert law.mass.keys() == {(b, True, True, True, (0.5, 0.5, 1.0)) for b in (True, False)}


@pytest.mark.parametrize("biased", [False, True])
def test_a_step_that_converts_its_uniforms_is_audited_exactly(biased):
    def step(draft, target, rng):
        p, q = draft.next([]), target.next([])
        x = int(rng.choice(2, p=p))
        if float(rng.random()) * float(p[x]) < float(q[x]):
            return [x]
        rest = q if biased else np.maximum(q - p, 0.0)
        return [int(np.searchsorted(np.cumsum(rest / rest.sum()), float(rng.random()), "right"))]

    found = audit.step(step, draft=P, target=Q, length=1, rng=np.random.default_rng(0))
    assert isinstance(found, audit.end_to_end.JointAudit)
    # one half of the drafts of token 0 is refused; the target keeps a quarter of them at 0
    assert found.total_variation == (0.0625 if biased else 0.0)


def scalar(x):
    """Convert as public code does, by trial."""
    try:
        return float(x)
    except TypeError:
        return float(np.asarray(x)[-1])


def test_what_float_refuses_is_refused_with_its_own_error():
    def step(draft, target, rng):
        p, q = draft.next([]), target.next([])
        x = int(rng.choice(2, p=p))
        if float(rng.random()) * p[x] < q[x]:
            return [x]
        sums = np.cumsum(np.maximum(q - p, 0.0))
        return [int(np.searchsorted(sums / scalar(sums), float(rng.random()), "right"))]

    found = audit.step(step, draft=P, target=Q, length=1, rng=0)
    assert found.verdict == "lossless"


def test_code_that_asks_what_float_is_is_not_followed():
    """It would be another law: the second execution, on plain numbers, shows it."""

    def asks(draft, target, rng):
        u, half = float(rng.random()), draft.next([])[0].item()
        return [0 if type(half) is float and u < half else 1]

    found = audit.step(asks, draft=P, target=Q, length=1, rng=0)
    assert found.verdict == "not lossless"
    assert "gave another answer" in found.reason
    assert found.total_variation.low < 0.25 < found.total_variation.high


def test_an_interrupted_trace_leaves_no_other_float():
    def interrupts(u):
        if float(u[0]) < 0.5:
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt):
        trace(interrupts, 1)
    assert "float" not in globals()
