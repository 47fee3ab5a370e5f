"""Tree cuts: against the program over enumerated trees, the size asked for, and that each side
certifies alone.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import otm
from otm.sequence import (
    DraftSelection,
    Ersd,
    LikeliestTree,
    PrefixTree,
    RefinedScores,
    SpeculativeSampling,
    TableModel,
    TreeVerification,
    ZerothOrder,
    best_step,
    sequence_law,
)
from otm.sequence.best_step_lp import _by_enumeration
from otm.sequence.decoder import independent_sequences
from otm.sequence.models import Context
from otm.sequence.tree_cuts import (
    PathTree,
    TreeCut,
    hit_probability,
    largest_excess,
    priced_bound,
)
from otm.trees import TreeShape
from tests.sequence.toys import IID, random_models, smooth_models


def module() -> Any:
    return sys.modules["otm.sequence.tree_cuts"]


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_program_over_drafted_trees(seed: int) -> None:
    rng = np.random.default_rng([1, seed])
    size, length, k = [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3), (3, 1, 4), (3, 2, 1)][seed % 6]
    draft, target = (
        random_models(size, length, rng) if seed % 2 else smooth_models(size, length, seed)
    )
    decoder = DraftSelection(k, length)
    cut, enumerated = (
        best_step(decoder, draft=draft, target=target, context=[]),
        _by_enumeration(decoder, draft, target, ()),
    )
    assert max(cut.lower, enumerated.lower) <= min(cut.upper, enumerated.upper)
    assert cut.value == pytest.approx(enumerated.value, abs=1e-9)


def antichains(paths: list[Context]) -> list[tuple[int, ...]]:
    """Every set of paths none of which begins with another."""
    found: list[tuple[int, ...]] = [()]
    for i, path in enumerate(paths):
        found += [
            (*chosen, i)
            for chosen in found
            if all(
                path[: len(paths[j])] != paths[j] and paths[j][: len(path)] != path for j in chosen
            )
        ]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_every_antichain_is_respected_and_the_cuts_bind(seed: int) -> None:
    draft, target = smooth_models(2 + seed % 2, 2, seed)
    found = best_step(DraftSelection(3, 2), draft=draft, target=target, context=[])
    laws = [sequence_law(draft, [], n) for n in (1, 2)]
    mass = {path: float(laws[len(path) - 1][path]) for path in found.accepted}
    paths = list(found.accepted)
    everyone = antichains(paths)
    assert len(everyone) > 20
    for chosen in everyone:
        hit = 1 - (1 - sum(mass[paths[i]] for i in chosen)) ** 3
        assert sum(found.accepted[paths[i]] for i in chosen) <= hit + 1e-15
    for cut in found.cuts:
        assert sum(found.accepted[path] for path in cut.paths) == pytest.approx(
            cut.hit, abs=1e-8 / cut.weight
        )
        assert cut.hit == pytest.approx(
            1 - (1 - sum(mass[path] for path in cut.paths)) ** 3, abs=1e-15
        )


@pytest.mark.parametrize(
    ("size", "length", "k", "spread", "seed"),
    [(2, 2, 2, 6.0, 571242538), (3, 2, 3, 6.0, 612445087), (3, 3, 4, 6.0, 9502183)],
)
def test_tiny_masses(size: int, length: int, k: int, spread: float, seed: int) -> None:
    """Small antichains bind: a solver with absolute tolerances sees nothing of them, the repair of
    the whole does.
    """
    rng = np.random.default_rng(seed)
    tables = [otm.from_logits(spread * rng.normal(size=(size + 1, size))) for _ in range(2)]
    contexts = [path for n in range(length) for path in itertools.product(range(size), repeat=n)]
    draft, target = (
        TableModel({path: table[path[-1] if path else size] for path in contexts})
        for table in tables
    )
    found = best_step(DraftSelection(k, length), draft=draft, target=target, context=[])
    assert 0 <= found.gap <= 1e-9


def cuts_bound(cuts: Sequence[TreeCut], tree: PathTree) -> float:
    """What cuts certify of accepted tokens by themselves, without the solver that found them: Σ
    weight·hit + Σ_y q(y) ν(y).
    """
    number = {path: i for i, path in enumerate(tree.paths)}
    prices = np.zeros(len(tree.paths))
    for cut in cuts:
        prices[[number[path] for path in cut.paths]] += cut.weight
    beyond = np.zeros(len(prices) + 1)  # the last entry is the empty path's
    for i in reversed(range(len(prices))):
        worth = max(0.0, 1.0 - prices[i] + beyond[i])
        beyond[tree.parents[i]] += tree.share[i] * worth
    return math.fsum(cut.weight * cut.hit for cut in cuts) + float(beyond[-1])


def chained(tree: PathTree, ceiling: np.ndarray) -> np.ndarray:
    """The largest f below a ceiling with f(uy) ≤ q(y | u) f(u)."""
    found = np.append(ceiling, 1.0)
    for i, (parent, share) in enumerate(zip(tree.parents, tree.share, strict=True)):
        found[i] = min(ceiling[i], share * found[parent])
    return found[:-1]


@pytest.mark.parametrize("size, length, k", [(8, 3, 8), (20, 2, 4)])
def test_far_beyond_enumeration(size: int, length: int, k: int) -> None:
    draft, target = smooth_models(size, length, 0)
    found = best_step(DraftSelection(k, length), draft=draft, target=target, context=[])
    assert 0 <= found.gap <= 1e-9
    assert cuts_bound(found.cuts, PathTree.of(draft, target, (), length)) + 1 == pytest.approx(
        found.upper, abs=1e-7
    )
    one = otm.optimal_acceptance(
        otm.Problem(draft=draft.next([]), target=target.next([]), law=otm.IID(k))
    )
    assert 1 + one < found.upper
    assert sum(f for path, f in found.accepted.items() if len(path) == 1) <= one + 1e-12


def test_cuts_of_enumerated_trees_certify_as_well() -> None:
    draft, target = smooth_models(2, 2, 1)
    found = best_step(PrefixTree((2, 2)), draft=draft, target=target, context=[])
    assert found.cuts
    assert cuts_bound(found.cuts, PathTree.of(draft, target, (), 2)) + 1 == pytest.approx(
        found.upper, abs=1e-8
    )


@pytest.mark.parametrize("seed", range(20))
def test_certificates_hold_whatever_the_solver_says(seed: int) -> None:
    """Any acceptances are repaired to feasible ones, any prices bound from above."""
    rng = np.random.default_rng(seed)
    draft, target = random_models(3, 2, rng)
    k = 1 + seed % 4
    tree = PathTree.of(draft, target, (), 2)
    if not tree.paths:
        return
    best = best_step(DraftSelection(k, 2), draft=draft, target=target, context=[])
    proposed = rng.exponential(size=len(tree.paths)) * rng.choice([0.1, 1.0])
    repaired = module()._repaired(tree, k, proposed)
    assert 1 + repaired.sum() <= best.upper
    before = np.where(tree.parents >= 0, repaired[tree.parents], 1.0)
    assert np.all(repaired <= tree.share * before * (1 + 1e-15))
    for chosen in antichains(tree.paths):
        assert repaired[list(chosen)].sum() <= hit_probability(
            tree.draft[list(chosen)].sum(), k
        ) * (1 + 1e-14)
    for scale in (0.0, 0.5, 2.0):
        assert (
            1 + priced_bound(tree, k, scale * rng.exponential(size=len(tree.paths))) >= best.lower
        )


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_excess_is_that_of_all_antichains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    draft, target = smooth_models(3, 2, seed)
    tree, k = PathTree.of(draft, target, (), 2), 2 + seed % 3
    accepted = chained(
        tree, np.minimum(rng.exponential(size=len(tree.paths)), k * (1 - 1e-8) * tree.draft)
    )
    worst = max(
        (
            float(accepted[list(chosen)].sum() / hit_probability(tree.draft[list(chosen)].sum(), k))
            for chosen in antichains(tree.paths)[1:]
        ),
        default=1.0,
    )
    assert largest_excess(tree, k, accepted) == pytest.approx(max(1.0, worst), rel=1e-13)


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target = smooth_models(3, 2, 3)
    monkeypatch.setattr(module(), "MAX_PATHS", 10)
    with pytest.raises(
        otm.errors.TooLarge, match=r"limited to 10;.*Take a smaller vocabulary or length"
    ):
        best_step(DraftSelection(2, 2), draft=draft, target=target, context=[])
    monkeypatch.setattr(module(), "MAX_PATHS", 100)
    monkeypatch.setattr(module(), "MAX_ENTRIES", 20)
    with pytest.raises(otm.errors.TooLarge, match="limited to 20 variables"):
        best_step(DraftSelection(2, 2), draft=draft, target=target, context=[])


def test_the_models_are_not_asked_for_more_than_fits() -> None:
    model = ZerothOrder(np.full(49_152, 1 / 49_152))
    with pytest.raises(
        otm.errors.TooLarge,
        match=r"after 1 tokens there are 49,152 paths × 49,152 tokens.*level_cut_upper",
    ):
        best_step(SpeculativeSampling(2), draft=model, target=model, context=[])


def test_which_drafts_are_independent_sequences() -> None:
    chains = TreeShape.sequences(3, 2)
    for decoder, expected in (
        (SpeculativeSampling(2), 1),
        (DraftSelection(3, 2), 3),
        (RefinedScores(3, 2), 3),
        (TreeVerification(chains, IID, otm.Naive()), 3),
        (TreeVerification(chains, otm.WithoutReplacement(1), otm.Naive()), None),
        (TreeVerification(TreeShape([0, 0, 1]), IID, otm.Naive()), None),
        (PrefixTree((3, 1)), 3),
        (PrefixTree((1, 2)), None),
        (Ersd(chains), None),
        (LikeliestTree(2, 2), None),
    ):
        assert independent_sequences(decoder) == expected, decoder


def test_level_by_level_is_not_optimal() -> None:
    """The counterexample of docs/theory.md: the first level could accept for sure, the best step
    lets 1/16 of that go.
    """
    half = [0.5, 0.5]
    draft = TableModel(
        {
            (): half,
            (0,): [1, 0],
            (1,): half,
            (0, 0): half,
            (0, 1): half,
            (1, 0): [0.75, 0.25],
            (1, 1): half,
        }
    )
    target = TableModel(
        {
            (): [0.75, 0.25],
            (0,): [0, 1],
            (1,): [1, 0],
            (0, 0): half,
            (0, 1): half,
            (1, 0): half,
            (1, 1): half,
        }
    )
    found = best_step(DraftSelection(2, 3), draft=draft, target=target, context=[])
    assert found.value == pytest.approx(1 + 367 / 256, abs=1e-9)
    assert found.accepted[0,] + found.accepted[1,] == pytest.approx(15 / 16, abs=1e-9)
    one = best_step(DraftSelection(2, 1), draft=draft, target=target, context=[])
    assert one.value == pytest.approx(2, abs=1e-9)
