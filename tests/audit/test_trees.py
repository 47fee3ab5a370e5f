"""Kernels for drafted trees: the arrays that they are given, and what is no tree. Right and broken
kernels are in the tests of the corpus.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import trees
from otm import audit
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
    assert tree.tokens[0] == 0  # a token, as kernels look one up
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
