"""Relative entropies of what is partly known."""

from __future__ import annotations

import numpy as np

from otm import partial
from otm.divergences import kl_divergence
from otm.partial import PartialPair, TopTokens
from tests.partial.oracles import quantity


def test_relative_entropy_by_its_curve() -> None:
    # With shifts 0 the integral that bounds the relative entropy from below is the relative
    # entropy.
    from otm.partial.distances import _shifted_kl

    rng = np.random.default_rng(12)
    p, q = rng.dirichlet(np.ones(6), size=20), rng.dirichlet(np.ones(6), size=20)
    none = np.zeros(20)
    np.testing.assert_allclose(
        _shifted_kl(p, q, none, none), kl_divergence(draft=p, target=q), atol=1e-12
    )
    assert (_shifted_kl(p, q, none + 0.01, none + 0.02) < kl_divergence(draft=p, target=q)).all()
    np.testing.assert_array_equal(_shifted_kl(p, p, none, none), none)


def _random_masses(rng: np.random.Generator, num_tokens: int) -> np.ndarray:
    """Ties, tiny masses, and heavy tokens that leave a tail of 1e-9 of which 1 − Σ keeps seven
    digits.
    """
    kinds = ([1.0, 2.0, 3.0], [0.0, 1.0, 1.0, 2.0], [1.0, 1e-30, 1e-300, 0.0], [1.0, 1e-8, 1e-17])
    weights = rng.choice(kinds[rng.integers(len(kinds))], num_tokens)
    weights[rng.integers(num_tokens)] = 1.0
    return np.asarray(weights / weights.sum())


def _random_list(rng: np.random.Generator, mass: np.ndarray) -> TopTokens:
    """The likeliest tokens with their exact or derived tail, or any tokens with the
    tightest cap.
    """
    order, style, count = (
        np.argsort(-mass, kind="stable"),
        rng.integers(3),
        rng.integers(1, len(mass) + 1),
    )
    if style == 0:
        return TopTokens.of(mass, m=int(count))
    if style == 1:
        return TopTokens(tokens=order[:count], probabilities=mass[order[:count]])
    listed, rest = np.split(rng.permutation(len(mass)), [count])
    cap = np.asarray(mass[rest].max(initial=0.0))
    return TopTokens(
        tokens=listed, probabilities=mass[listed], tail=np.asarray(mass[rest].sum()), cap=cap
    )


def test_no_divergence_leaves_its_interval_where_tails_tie_with_caps_or_are_nearly_lost() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        num_tokens = int(rng.integers(2, 7))
        p, q = _random_masses(rng, num_tokens), _random_masses(rng, num_tokens)
        known = num_tokens if rng.random() < 0.7 else None
        pair = PartialPair(
            draft=_random_list(rng, p), target=_random_list(rng, q), num_tokens=known
        )
        found = partial.divergences(pair)
        for name in ("total_variation", "kl_target_draft", "kl_draft_target"):
            assert getattr(found, name).contains(quantity(name, p, q)), (name, p, q, found)


def test_a_derived_tail_that_passes_its_caps_by_an_ulp() -> None:
    """1 − 1/3 is more than two caps of 1/3: the ulp too many was put where the draft has nothing,
    and D(q‖p) ≥ ∞ followed.
    """
    third = TopTokens(tokens=[0], probabilities=[1 / 3])
    pair = PartialPair(draft=TopTokens(tokens=[0, 1, 2], probabilities=[1 / 3] * 3), target=third)
    assert partial.divergences(pair).kl_target_draft.lower == 0.0


def test_a_tail_of_a_few_least_floats_is_shared_by_more_tokens_than_it_has_floats() -> None:
    # p leaves 3·2⁻¹⁰⁷⁴ for two tokens that p does not list: one share rounds to 0, the truth is
    # finite.
    least = 2.0**-1074
    draft = np.array([1.0, 2 * least, 1e-104, 1e-40, 1e-40, least, 1e-104])
    target = np.full(7, 1 / 7)
    for num_tokens in (None, 7):
        pair = PartialPair(
            draft=TopTokens.of(draft, m=5), target=TopTokens.of(target, m=5), num_tokens=num_tokens
        )  # fmt: skip
        interval = partial.divergences(pair).kl_target_draft
        truth = np.sum(target * (np.log(target) - np.log(draft)))
        assert 300 < interval.lower <= truth <= interval.upper
