"""Texts of several steps: a block verification is lossless where the step keys the draft noise, and
not where the position alone does; token by token it is with every key.
"""

from fractions import Fraction

import numpy as np
import pytest

import otm
from evidence.corpus.blocks import chain, hierarchy, one_uniform_for_all_positions
from evidence.corpus.trees import recursive
from otm import audit
from otm.audit.end_to_end import JointAudit, seeded_rng
from otm.errors import InvalidParameter, Unsupported
from otm.sequence import BlockVerification, Sampled, ZerothOrder
from otm.sequence.drafted_tree import DraftTree
from otm.trees import TreeShape

PAIRS = [
    (((0.9, 0.1), (0.5, 0.5)), 2, 3, Fraction(1, 45)),
    (((0.75, 0.25), (0.25, 0.75)), 1, 3, Fraction(0)),
    (((0.75, 0.25), (0.25, 0.75)), 2, 3, Fraction(17, 288)),
    (((0.75, 0.25), (0.25, 0.75)), 3, 2, Fraction(1, 72)),
]
"""Draft and target, γ, tokens, and the total variation of a block's text with noise by position."""


def block(p, q, drafts, uniforms):
    """The library's block verification, on randomness of its own."""
    gamma = len(drafts)
    path = {tuple(drafts[:i].tolist()): i for i in range(gamma + 1)}
    tree = DraftTree(
        TreeShape.chain(gamma),
        (),
        np.array([-1, *drafts]),
        {context: p[i] for context, i in path.items() if i < gamma},
    )
    verified = BlockVerification(gamma).verify(tree, lambda c: q[path[c]], Sampled(seeded_rng()))
    return list(verified.tokens)


def found(verify, pair, shape, tokens, **options):
    p, q = map(ZerothOrder, pair)
    result = audit.several_steps(
        verify, draft=p, target=q, shape=shape, tokens=tokens, rng=0, **options
    )
    assert isinstance(result, JointAudit)
    return result


@pytest.mark.parametrize(("pair", "gamma", "tokens", "wanted"), PAIRS)
def test_a_block_is_lossless_where_the_step_keys_the_noise(pair, gamma, tokens, wanted):
    by_position = found(block, pair, gamma, tokens)
    assert by_position.total_variation == pytest.approx(float(wanted), abs=1e-14)
    assert by_position.verdict == ("not lossless" if wanted else "lossless")
    for noise in ("step", "fresh"):
        assert found(block, pair, gamma, tokens, noise=noise).total_variation < 1e-14


@pytest.mark.parametrize(
    ("pair", "gamma", "tokens", "wanted", "noise"),
    # noise by step takes ten times as many executions: the smallest pair
    [*((*one, "position") for one in PAIRS), (*PAIRS[1], "step")],
)
def test_token_by_token_is_lossless_with_every_key(pair, gamma, tokens, wanted, noise):
    for tests in ("position", "fresh"):
        result = found(chain, pair, gamma, tokens, noise=noise, tests=tests)
        assert (result.verdict, result.total_variation < 1e-14) == ("lossless", True)


def test_tests_keyed_by_position_are_met_again():
    """Drafts drawn afresh: a rule of whole prefixes has looked at later uniforms."""
    pair = PAIRS[0][0]
    assert found(hierarchy, pair, 2, 3, noise="fresh", tests="position").verdict == "not lossless"
    assert found(hierarchy, pair, 2, 3, noise="fresh").verdict == "lossless"
    both = found(hierarchy, pair, 2, 3)
    assert both.verdict == "not lossless"
    assert "draft noise by position, tests by step" in str(both.coverage)


def test_kernels_of_trees():
    """Independent siblings, level by level: lossless with any key."""
    pair, parents = PAIRS[1][0], (-1, 0, 0, 1)
    for noise in ("position", "step"):
        assert found(recursive, pair, parents, 2, noise=noise).verdict == "lossless"
    with pytest.raises(Unsupported, match="kernel of trees draws"):
        found(recursive, pair, parents, 2, tests="position")


def test_the_battery_says_so_beside_its_verdict():
    result = audit.battery(block, only="exact", num_drafts=[1, 2], seconds=120.0)
    assert result.verdict == "lossless"
    assert {key: single.verdict for key, single in result.steps.items()} == {
        "position": "not lossless",
        "step": "lossless",
    }
    assert (
        "Lossless on fresh drafts; with draft noise keyed by position, as vLLM draws it, not: TV "
        "1/45 over 3 tokens. Key the draft noise by the step as well: then it is lossless."
    ) in str(result)
    right = audit.battery(chain, only="exact", num_drafts=[2], seconds=120.0)
    assert [*right.steps] == ["position"]
    assert "Lossless over 3 tokens of several steps with draft noise keyed by position" in str(
        right
    )
    wrong = audit.battery(one_uniform_for_all_positions, only="exact", num_drafts=[2], shrink_for=0)
    assert (wrong.verdict, wrong.steps) == ("not lossless", {})


def test_the_battery_judges_by_the_noise_asked_for():
    options = {"only": "exact", "num_drafts": [2], "seconds": 120.0}
    biased = audit.battery(block, noise="position", **options)
    assert (biased.verdict, [*biased.failed]) == (
        "not lossless",
        ["several steps, γ = 2, draft noise by position"],
    )
    assert audit.battery(block, noise="step", **options).verdict == "lossless"
    given = audit.battery(
        block, noise="position", draft=[0.75, 0.25], target=[0.25, 0.75], **options
    )
    assert given.severity == pytest.approx(17 / 288, abs=1e-14)
    with pytest.raises(InvalidParameter, match="needs a function verify"):
        audit.battery(otm.KSeq(), noise="position")
    with pytest.raises(InvalidParameter, match="noise must be 'position', 'step' or 'fresh'"):
        audit.battery(block, noise="seed")
