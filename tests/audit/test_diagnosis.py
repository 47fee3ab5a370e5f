"""Sentences under a verdict, temperatures that are refused, and a vocabulary of the user's."""

import functools

import numpy as np
import pytest

from evidence.corpus import blocks
from otm import audit
from otm.audit.classification import classify
from otm.errors import InvalidParameter
from tests.audit.callables import maximal


def drawn(mass, uniform):
    return int(np.searchsorted(np.cumsum(mass), uniform * mass.sum(), side="right"))


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def swapped(target_probs, draft_probs, drafts, uniforms):
    return maximal(draft_probs, target_probs, drafts, uniforms)


def trusting(draft, target, drafts, uniforms):
    return int(drafts[0])


def first_trusted(draft, target, drafts, uniforms):
    return [int(drafts[0]), drawn(target[1], uniforms[0])]


def row_after(draft, target, drafts, uniforms):
    """Verify draft i against row i + 1, the last one for all that is beyond."""
    rows = [*range(1, len(target)), len(target) - 1]
    return blocks.chain(draft, target[rows], drafts, uniforms)


def trusting_step(draft, target, rng):
    x = int(rng.choice(draft.num_tokens, p=draft.next([])))
    return [x, int(rng.choice(target.num_tokens, p=target.next([x])))]


def losing_step(draft, target, rng):
    x = int(rng.choice(target.num_tokens, p=target.next([])))
    return [int(rng.choice(target.num_tokens, p=target.next([x])))]


def greedy(draft, target, drafts, uniforms, temperature):
    return int(target.argmax())


def lukewarm(draft, target, drafts, uniforms, temperature):
    return drawn(softmax(target), uniforms[0])


UNVERIFIED = "The first token has the draft's law"


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        (swapped, "Its first parameter is called target_probs and is given the draft"),
        (trusting, UNVERIFIED),
        (audit.BlockCandidate(first_trusted), UNVERIFIED),
        (trusting_step, UNVERIFIED),
        (audit.BlockCandidate(row_after), "Where every row of the target comes one place later"),
        (losing_step, "The first token has the law of the target's second"),
        (greedy, "It has the same law at temperatures 0, 0.3, 0.6, 1, 1.5, and always the same"),
        (lukewarm, "It has the same law at temperatures 0, 0.3, 0.6, 1, 1.5."),
    ],
)
def test_a_fault_that_the_laws_name(candidate, said):
    found = audit.battery(candidate, seconds=6.0, shrink_for=0.0)
    assert found.verdict == "not lossless"
    assert found.summary().startswith(said)


def test_arguments_in_the_other_order_are_told_of_what_is_sampled():
    """A kernel of batches with a generator has no law that is known."""

    def rows(target, draft, drafts, rng):
        return np.asarray(drafts[:, 0])

    found = audit.battery(audit.BatchCandidate(rows), seconds=6.0, shrink_for=0.0)
    assert found.verdict == "not lossless"
    assert found.summary().startswith("Its first parameter is called target")


def test_what_is_lossless_has_no_diagnosis():
    assert audit.battery(maximal, only="ties", shrink_for=0.0).diagnoses == ()


def by_temperature(draft, target, drafts, uniforms, temperature):
    if temperature == 0:
        raise ValueError("a temperature is positive")
    laws = softmax(draft / temperature), softmax(target / temperature)
    return maximal(*laws, drafts, uniforms)


def of_finite_logits(draft, target, drafts, uniforms, temperature):
    if not np.isfinite([draft, target]).all():
        raise ValueError("a logit is finite")
    if temperature == 0:
        return int(target.argmax())
    return by_temperature(draft, target, drafts, uniforms, temperature)


@pytest.mark.parametrize(
    ("verify", "tested", "refused"),
    [
        (by_temperature, "0.3, 0.6, 1, 1.5", "at temperature 0"),
        (of_finite_logits, "0, 0.3, 0.6, 1, 1.5", "on logits of −∞"),
    ],
)
def test_what_code_refuses_beforehand_is_no_fault(verify, tested, refused):
    found = audit.battery(verify, seconds=60.0)
    assert found.headline == f"lossless at temperature {tested}; {refused} it raises"


def clamped(draft, target, drafts, rng):
    x, size, least = drafts[:, 0], len(drafts), 1e-5
    rest = np.maximum(target - draft, least)
    tokens = np.searchsorted(np.cumsum(rest), rng.random(size) * rest.sum(), side="right")
    kept = rng.random(size) * draft[x] < target[x]
    return np.where(kept, x, tokens)


def test_small_faults_of_many_tokens_add_up():
    kernel = audit.BatchCandidate(clamped)
    small = audit.battery(kernel, seconds=4.0, only="two tokens")
    assert small.verdict in ("no difference found", "little power")
    found = audit.battery(kernel, seconds=8.0, vocabulary=20_000)
    assert "vocabulary of 20,000, 1 draft, samples" in found.failed
    with pytest.raises(InvalidParameter, match="handed their drafts"):
        audit.battery(classify(trusting_step), vocabulary=20_000)


def test_replaced_tokens_that_count_as_accepted_are_told_of_a_lossless_verifier():
    def counting(draft, target, drafts, uniforms):
        return maximal(draft, target, drafts, uniforms)[0], True

    found = audit.battery(counting, only="exact")
    assert found.verdict == "lossless"
    (said,) = found.diagnoses
    assert said in str(found)
    assert said.endswith("a draft with 3/4: replaced tokens count as accepted.")

    def exactly(draft, target, drafts, uniforms):
        x, _ = maximal(draft, target, drafts, uniforms)
        return x, x in drafts

    assert not audit.battery(exactly, only="exact").diagnoses


def test_a_second_fault_further_on_has_an_example_of_its_own():
    def likeliest_bonus(draft, target, drafts, uniforms):
        x = int(drafts[0])
        if uniforms[0] * draft[0][x] < target[0][x]:
            return [x, int(target[1].argmax())]
        return [drawn(target[0], uniforms[1])]

    found = audit.battery(audit.BlockCandidate(likeliest_bonus), num_drafts=[1])
    assert found.counterexample.first_position == 1
    first, second = found.example().split("### ")[1:]
    assert first.startswith("Wrong from token 2 on: equal models, γ = 1")
    assert second.startswith("Minimal counterexample")


def test_the_first_line_is_of_the_audits_that_fail():
    """On two tokens nothing is refused, and the deviation is float32's."""

    def mixed(draft, target, rng):
        p, q = (np.float32(model.next([])) for model in (draft, target))
        x = drawn(p, rng.random())
        if rng.random() * p[x] < q[x] or len(p) == 2:
            return [x]
        return [drawn(q, rng.random())]

    found = audit.battery(functools.partial(mixed), only=["zeros", "equal in float32"])
    assert found.name == "mixed"
    assert {one.verdict for one in found.audits.values()} == {"not lossless", "rounding"}
    assert "float32" not in found.head().splitlines()[0]
