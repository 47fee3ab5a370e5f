"""Kernels for drafted trees: lossless ones on several shapes, broken ones with hand values, the
arrays they are given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import trees
from otm import audit
from otm.audit.end_to_end import JointAudit
from otm.audit.standard_problems import table_model
from otm.errors import InvalidParameter

P, Q = (0.5, 0.3, 0.2), (0.1, 0.45, 0.45)
LATER = ((0.3, 0.4, 0.3), (0.5, 0.25, 0.25), (0.2, 0.2, 0.6))
DRAFT = table_model(lambda context: LATER[(context[-1] + 1) % 3] if context else P, 3, 3)
TARGET = table_model(lambda context: LATER[context[-1]] if context else Q, 3, 3)


def audited(candidate: Any, parents: tuple[int, ...], **options: Any) -> Any:
    return audit.tree_kernel(
        candidate,
        draft=DRAFT,
        target=TARGET,
        parents=parents,
        rng=np.random.default_rng(0),
        **options,
    )


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("parents", [(-1,), (-1, 0, 0), (-1, 0, 0, 1)])
def test_recursive_rejection_is_lossless(parents: tuple[int, ...], replacement: bool) -> None:
    found = audited(trees.recursive, parents, replacement=replacement)
    assert (found.verdict, type(found)) == ("lossless", JointAudit)


# Draft 0 alone is rejected, .4 of all; what is left is (0, 3/8, 5/8), without its sum (0, .15,
# .25).
BY_HAND = {
    # The second draft is 1 with .3 and accepted with .15/.3 instead of surely: .06 of all goes to
    # token 2, and .03 that token 1 had from the residual after a second draft 0 was rejected: (0,
    # .15 − .3, .25 − .2) instead of (0, .075, .425)/.5.
    trees.no_renormalisation: 0.4 * (0.3 * 0.5 + 0.5 * 0.15),
    # A second draft 0 leads to (0, 3/8, 5/8) instead of (0, .075, .425)/.5.
    trees.duplicates_skipped: 0.4 * 0.5 * (0.375 - 0.15),
}


@pytest.mark.parametrize("candidate", BY_HAND)
def test_faults_among_siblings_are_found_exactly(candidate: Any) -> None:
    found = audited(candidate, (-1, 0, 0))
    assert (found.verdict, found.error) == ("not lossless", 0.0)
    assert found.total_variation == pytest.approx(BY_HAND[candidate], abs=1e-13)


def test_the_wrong_order_of_siblings_matters_without_replacement() -> None:
    assert audited(trees.youngest_first, (-1, 0, 0), replacement=True).verdict == "lossless"
    found = audited(trees.youngest_first, (-1, 0, 0), replacement=False)
    assert (found.verdict, found.error) == ("not lossless", 0.0)
    assert found.total_variation > 0.01


def test_a_tree_is_given_as_engines_have_it() -> None:
    seen = []

    def look(tree: Any, rng: Any) -> list[int]:
        seen.append(tree)
        return trees.recursive(tree, rng)

    audited(look, (-1, 0, 0, 1))
    tree = seen[-1]
    assert tree.first_child.tolist() == [1, 3, -1, -1]
    assert tree.next_sibling.tolist() == [-1, 2, -1, -1]
    assert tree.children(0) == [1, 2]
    assert tree.tokens[0] == -1
    assert tree.target[3] == pytest.approx(TARGET.next(tree.tokens[[1, 3]].tolist()))


def test_parents_make_a_tree() -> None:
    for parents in ((), (0,), (-1, 1), (-1, -1)):
        with pytest.raises(InvalidParameter, match="parents must be"):
            audited(trees.recursive, parents)


def test_too_few_tokens_for_siblings_are_no_fault_of_the_kernel() -> None:
    called = []
    with pytest.raises(
        InvalidParameter, match="has 4 children, all different; after \\(\\) the draft has 3 tokens"
    ):
        audited(lambda tree, rng: called.append(tree) or [0], (-1, 0, 0, 0, 0), replacement=False)
    assert not called
