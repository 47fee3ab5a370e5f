"""Blocks of tokens: the joint law by enumeration, where it fails first, and the faults that only position can show."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import otm
from otm.audit import Candidate, CandidateFailure, audit_sequence, audit_sequence_battery, shrink_sequence, table_model

SWAP = [Fraction(2, 3), Fraction(1, 3)], [Fraction(1, 3), Fraction(2, 3)]


def draw(mass: Any, u: Any) -> int:
    return int(np.searchsorted(np.cumsum(mass) / np.sum(mass), u, side="right"))


def chain(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Speculative decoding of one chain, from the paper."""
    for i, x in enumerate(drafts):
        if not uniforms[i] * p[i, x] < q[i, x]:
            return [*drafts[:i], draw(np.maximum(q[i] - p[i], 0.0), uniforms[-1])], i
    return [*drafts, draw(q[-1], uniforms[-1])], len(drafts)


def textbook(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """A listing that adds the bonus token whenever γ tokens are there: also after a rejection of the last draft."""
    tokens: list[int] = []
    for i, x in enumerate(drafts):
        if uniforms[i] * p[i, x] < q[i, x]:
            tokens.append(int(x))
        else:
            tokens.append(draw(np.maximum(q[i] - p[i], 0.0), uniforms[len(drafts)]))
            break
    if len(tokens) == len(drafts):
        tokens.append(draw(q[-1], uniforms[len(drafts) + 1]))
    return tokens, len(tokens)


def block(p: Any, q: Any, drafts: Any, uniforms: Any) -> tuple[list[int], int]:
    """Block verification (Sun et al. 2024): accept a prefix as a whole."""
    gamma, weight, weights, heights = len(drafts), 1.0, [1.0], []
    for i, x in enumerate(drafts):
        weight = min(1.0, weight * q[i, x] / p[i, x])
        weights.append(weight)
        if i + 1 < gamma:
            excess = np.maximum(weight * q[i + 1] - p[i + 1], 0.0).sum()
            heights.append(excess / (excess + 1 - weight) if excess + 1 - weight > 0 else 1.0)
    heights.append(weight)
    keep = max([i + 1 for i in range(gamma) if uniforms[i] <= heights[i]], default=0)
    rest = q[gamma] if keep == gamma else np.maximum(weights[keep] * q[keep] - p[keep], 0.0)
    return [*drafts[:keep], draw(rest, uniforms[-1])], keep


def one_uniform(p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
    return chain(p, q, drafts, [uniforms[0]] * len(drafts) + [uniforms[-1]])


def off_by_one(p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
    """Reads the target one position late, where there is one."""
    return chain(p, np.concatenate([q[1:], q[-1:]]), drafts, uniforms)


def no_bonus(p: Any, q: Any, drafts: Any, uniforms: Any) -> Any:
    tokens, accepted = chain(p, q, drafts, uniforms)
    return np.array([*tokens[: len(drafts)], -1]), accepted


@pytest.mark.parametrize("verify", [chain, block, no_bonus])
def test_correct_verifiers_pass(verify: Any) -> None:
    assert audit_sequence_battery(verify).verdict == "lossless"


def test_expected_tokens_of_the_gold_instance() -> None:
    """(1/3, 2/3) drafted by (2/3, 1/3), two drafts: 10/9 accepted token by token, 11/9 by blocks."""
    models = [table_model(lambda c, law=law: [float(x) for x in law], 2, 2) for law in SWAP]
    for verify, accepted in ((chain, Fraction(10, 9)), (block, Fraction(11, 9))):
        audit = audit_sequence(verify, draft=models[0], target=models[1], num_drafts=2)
        assert math.isclose(audit.accepted or 0.0, float(accepted), abs_tol=1e-14)
        assert math.isclose(audit.tokens_per_call, 1 + float(accepted), abs_tol=1e-14)
        assert audit.first_position is None


def test_the_textbook_fault_by_hand() -> None:
    """γ = 1: after a rejection of x the replacement y is right, and the bonus comes from q(·|x) instead of q(·|y).

    With p = (1, 0), q = (1/2, 1/2) first, and q(·|0) = (1, 0), q(·|1) = (0, 1) after: the output is 00 or, rejected, 10; the target
    says 00 or 11. Total variation 1/2, from position 2 on.
    """
    draft = table_model(lambda c: [1.0, 0.0], 2, 1)
    target = table_model(lambda c: [0.5, 0.5] if not c else [1.0 - c[0], float(c[0])], 2, 1)
    audit = audit_sequence(Candidate(textbook, num_uniforms=lambda g, v: g + 2), draft=draft, target=target, num_drafts=1)
    assert math.isclose(audit.total_variation, 0.5, abs_tol=1e-15)
    assert (audit.first_position, audit.kl, audit.accepted) == (2, math.inf, 2.0)
    assert audit.law[1, 0] == audit.law[0, 0] == 0.5


@pytest.mark.parametrize(
    ("verify", "position"),
    [(one_uniform, 2), (off_by_one, 1)],
    ids=["one uniform for all positions", "target one position late"],
)
def test_faults_of_position_are_found_and_shrunk(verify: Any, position: int) -> None:
    audit = audit_sequence_battery(verify)
    assert audit.verdict == "not lossless"
    found = audit.counterexample
    assert found is not None
    assert found.verdict == "not lossless"
    assert found.first_position == position
    assert found.law.shape[0] == 2
    assert "### Minimal counterexample" in str(audit)
    variations = found.prefix_variations
    assert all(b >= a - 1e-15 for a, b in itertools.pairwise(variations))


def test_one_uniform_for_two_positions_in_fractions() -> None:
    """The law of the block with one shared uniform, integrated by hand over its breakpoints."""
    p, q = SWAP
    law = dict.fromkeys(itertools.product((0, 1), repeat=3), Fraction(0))
    for a, b in itertools.product((0, 1), repeat=2):
        keep = [min(Fraction(1), q[x] / p[x]) for x in (a, b)]
        both, first = min(keep), keep[0]
        weight = p[a] * p[b]
        for y, z in itertools.product((0, 1), repeat=2):
            law[a, b, y] += weight * both * q[y] / 2  # the loop over z counts it twice
            law[a, 1, z] += weight * max(first - both, 0) * q[z] * (y == 1)  # residual of the second: token 1
            law[1, y, z] += weight * (1 - first) * q[y] * q[z]
    models = [table_model(lambda c, law=law: [float(x) for x in law], 2, 2) for law in SWAP]
    audit = audit_sequence(one_uniform, draft=models[0], target=models[1], num_drafts=2)
    for outcome, mass in law.items():
        assert math.isclose(audit.law[outcome], float(mass), abs_tol=1e-15)


def test_a_block_that_ends_early_is_completed_by_the_target() -> None:
    models = [table_model(lambda c, law=law: [float(x) for x in law], 2, 2) for law in SWAP]
    audit = audit_sequence(lambda p, q, d, u: [draw(q[0], u[0])], draft=models[0], target=models[1], num_drafts=2)
    assert audit.verdict == "lossless"
    assert math.isclose(audit.tokens_per_call, 1.0, abs_tol=1e-15)


@pytest.mark.parametrize("answer", [[], [2], [0, 0, 0], None, [0.5], [-1], "ab"], ids=repr)
def test_what_is_no_block_is_refused(answer: Any) -> None:
    model = table_model(lambda c: [0.5, 0.5], 2, 1)
    with pytest.raises(CandidateFailure, match="1 to 2 tokens"):
        audit_sequence(lambda p, q, d, u: answer, draft=model, target=model, num_drafts=1)


def test_models_must_fit() -> None:
    two, three = (table_model(lambda c, n=n: np.full(n, 1 / n), n, 1) for n in (2, 3))
    with pytest.raises(otm.errors.ShapeMismatch, match="one vocabulary"):
        audit_sequence(chain, draft=two, target=three, num_drafts=1)
    wide = table_model(lambda c: np.full(50, 0.02), 50, 0)
    with pytest.raises(otm.errors.TooLarge, match="toy models"):
        audit_sequence(chain, draft=wide, target=wide, num_drafts=9)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert shrink_sequence(chain, budget=100) is None
