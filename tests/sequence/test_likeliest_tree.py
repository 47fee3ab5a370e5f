"""The likeliest paths against a search of all paths, sample and match against the best step, and
every budget from one tree.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from otm.sequence import (
    LikeliestTree,
    ZerothOrder,
    best_step,
    expected_step,
    matched_tokens,
)
from otm.sequence.randomness import Enumerated
from tests.sequence.toys import random_models


def products(model: object, num_tokens: int, length: int) -> dict[tuple[int, ...], float]:
    """The probability of every path of up to `length` tokens."""
    found = {(): 1.0}
    for path in itertools.chain.from_iterable(
        itertools.product(range(num_tokens), repeat=n) for n in range(1, length + 1)
    ):
        found[path] = found[path[:-1]] * model.next(path[:-1])[path[-1]]  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("seed", range(8))
def test_no_other_paths_are_likelier(seed: int) -> None:
    draft, _ = random_models(3, 3, np.random.default_rng([21, seed]))
    every = products(draft, 3, 3)
    for size in (1, 4, 9, 39):
        tree = LikeliestTree(size, 3).draft(draft, (), Enumerated({}))
        drafted = [every[context] for context in tree.contexts() if context]
        live = sorted((mass for path, mass in every.items() if path and mass > 0), reverse=True)[
            :size
        ]
        # in falling order, so that smaller trees are its beginnings
        np.testing.assert_allclose(drafted, live, rtol=1e-14)


def test_ties_go_to_the_elder_and_the_lower_token() -> None:
    draft = ZerothOrder([0.5, 0.0, 0.5])
    tree = LikeliestTree(5, 2).draft(draft, (), Enumerated({}))
    assert tree.contexts() == [(), (0,), (2,), (0, 0), (0, 2), (2, 0)]
    certain = LikeliestTree(3, 3).draft(ZerothOrder([0.0, 1.0]), (7,), Enumerated({}))
    assert certain.contexts() == [(7,), (7, 1), (7, 1, 1), (7, 1, 1, 1)]


def test_a_beam_expands_the_best_of_a_level_only() -> None:
    """Width 1 is a chain of argmaxes, though the second token weighs more than the chain's end."""
    draft = ZerothOrder([0.55, 0.45])
    assert LikeliestTree(3, 3, width=1).draft(draft, (), Enumerated({})).contexts() == [
        (),
        (0,),
        (0, 0),
        (0, 0, 0),
    ]
    assert LikeliestTree(3, 3).draft(draft, (), Enumerated({})).contexts() == [
        (),
        (0,),
        (1,),
        (0, 0),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_sample_and_match_is_the_best_verification_of_a_fixed_tree(seed: int) -> None:
    draft, target = random_models(3, 3, np.random.default_rng([22, seed]))
    models = {"draft": draft, "target": target, "context": []}
    decoder = LikeliestTree(5, 3)
    tokens = matched_tokens(decoder, **models)
    assert tokens[-1] == pytest.approx(best_step(decoder, **models).value, abs=1e-9)
    every = products(target, 3, 3)
    paths = [context for context in decoder.draft(draft, (), Enumerated({})).contexts() if context]
    np.testing.assert_allclose(
        tokens, 1 + np.cumsum([0.0, *(every[path] for path in paths)]), rtol=1e-14
    )


@pytest.mark.parametrize("seed", range(3))
def test_one_tree_answers_for_all_smaller_ones(seed: int) -> None:
    draft, target = random_models(3, 2, np.random.default_rng([23, seed]))
    models = {"draft": draft, "target": target, "context": []}
    whole = matched_tokens(LikeliestTree(9, 2), **models)
    for size in range(1, len(whole)):
        found = expected_step(LikeliestTree(size, 2), **models)
        assert found.block_efficiency == pytest.approx(whole[size], abs=1e-14)
        assert found.reached.sum() == pytest.approx(whole[size], abs=1e-14)


def test_at_a_vocabulary_of_a_hundred_thousand() -> None:
    """Ties and zeros included, the selection without a sort is the stable sort's."""
    rng = np.random.default_rng(5)
    mass = rng.integers(0, 5, 100_000).astype(float)
    mass /= mass.sum()
    tree = LikeliestTree(300, 1).draft(ZerothOrder(mass), (), Enumerated({}))
    assert tree.tokens[1:].tolist() == np.argsort(-mass, kind="stable")[:300].tolist()
