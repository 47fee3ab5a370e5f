"""Tree cuts: against the program over enumerated trees, the size asked for, and that each side
certifies alone.
"""

import itertools
import math

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
    tree_cuts,
)
from otm.sequence.best_step_lp import _by_enumeration
from otm.sequence.decoder import independent_sequences
from otm.sequence.tree_cuts import (
    PathTree,
    hit_probability,
    largest_excess,
    priced_bound,
)
from otm.trees import TreeShape
from tests.sequence.toys import IID, asked, contexts, random_models, smooth_models


@pytest.mark.parametrize("seed", range(18))
def test_it_is_the_program_over_drafted_trees(seed):
    rng = np.random.default_rng([1, seed])
    size, length, k = [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3), (3, 1, 4), (3, 2, 1)][seed % 6]
    pair = random_models(size, length, rng) if seed % 2 else smooth_models(size, length, seed)
    decoder = DraftSelection(k, length)
    cut, enumerated = best_step(decoder, **asked(pair)), _by_enumeration(decoder, *pair, ())
    assert max(cut.lower, enumerated.lower) <= min(cut.upper, enumerated.upper)
    assert cut.value == pytest.approx(enumerated.value, abs=1e-9)


def antichains(paths):
    """Every set of paths none of which begins with another."""
    found = [[]]
    for i, path in enumerate(paths):
        apart = [
            all(path[: len(w)] != w and w[: len(path)] != path for w in (paths[j] for j in chosen))
            for chosen in found
        ]
        found += [[*chosen, i] for chosen in itertools.compress(found, apart)]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_every_antichain_is_respected_and_the_cuts_bind(seed):
    draft, target = smooth_models(2 + seed % 2, 2, seed)
    found = best_step(DraftSelection(3, 2), **asked((draft, target)))
    laws = [sequence_law(draft, [], n) for n in (1, 2)]
    paths, accepted = list(found.accepted), np.array([*found.accepted.values()])
    mass = np.array([laws[len(path) - 1][path] for path in paths])
    everyone = antichains(paths)
    assert len(everyone) > 20
    for chosen in everyone:
        assert accepted[chosen].sum() <= 1 - (1 - mass[chosen].sum()) ** 3 + 1e-15
    for cut in found.cuts:
        chosen = [paths.index(path) for path in cut.paths]
        assert accepted[chosen].sum() == pytest.approx(cut.hit, abs=1e-8 / cut.weight)
        assert cut.hit == pytest.approx(1 - (1 - mass[chosen].sum()) ** 3, abs=1e-15)


@pytest.mark.parametrize(
    ("size", "length", "k", "seed"),
    [(2, 2, 2, 571242538), (3, 2, 3, 612445087), (3, 3, 4, 9502183)],
)
def test_tiny_masses(size, length, k, seed):
    """Small antichains bind: a solver with absolute tolerances sees nothing of them, the repair of
    the whole does.
    """
    rng = np.random.default_rng(seed)
    tables = [otm.from_logits(6.0 * rng.normal(size=(size + 1, size))) for _ in range(2)]
    pair = tuple(
        TableModel({path: table[[size, *path][-1]] for path in contexts(size, length)})
        for table in tables
    )
    assert 0 <= best_step(DraftSelection(k, length), **asked(pair)).gap <= 1e-9


def test_sizes_close_together_become_knots_as_well():
    """Where none that are apart by 3 % are taken the rounds end with a gap of .0025."""
    assert 0 <= best_step(DraftSelection(3, 4), **asked(smooth_models(2, 4, 189))).gap <= 1e-9


def cuts_bound(cuts, tree):
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


@pytest.mark.parametrize(
    ("decoder", "size"),
    [(DraftSelection(8, 3), 8), (DraftSelection(4, 2), 20), (PrefixTree((2, 2)), 2)],
)
def test_cuts_certify_alone(decoder, size):
    """Far beyond enumeration, and of enumerated trees as well."""
    draft, target = smooth_models(size, decoder.depth, 1)
    found = best_step(decoder, **asked((draft, target)))
    assert 0 <= found.gap <= 1e-9 and found.cuts
    tree = PathTree.of(draft, target, (), decoder.depth)
    assert cuts_bound(found.cuts, tree) + 1 == pytest.approx(found.upper, abs=1e-7)
    law = otm.IID(int(decoder.shape.num_children[0]))
    problem = otm.Problem(draft=draft.next([]), target=target.next([]), law=law)
    first = sum(f for path, f in found.accepted.items() if len(path) == 1)
    assert first <= otm.optimal_acceptance(problem) + 1e-12


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6, 7, 9, 10, 11])  # those with a path at all
def test_certificates_hold_whatever_the_solver_says(seed):
    """Any acceptances are repaired to feasible ones, any prices bound from above."""
    rng = np.random.default_rng(seed)
    draft, target = random_models(3, 2, rng)
    k = 1 + seed % 4
    tree = PathTree.of(draft, target, (), 2)
    best = best_step(DraftSelection(k, 2), **asked((draft, target)))
    proposed = rng.exponential(size=len(tree.paths)) * rng.choice([0.1, 1.0])
    repaired = tree_cuts._repaired(tree, k, proposed)
    assert 1 + repaired.sum() <= best.upper
    assert np.all(repaired <= tree.share * tree.before(repaired, 1.0) * (1 + 1e-15))
    for chosen in antichains(tree.paths):
        hit = 1 - (1 - tree.draft[chosen].sum()) ** k
        assert repaired[chosen].sum() <= hit * (1 + 1e-13) + 1e-16
    for scale in (0.0, 0.5, 2.0):
        prices = scale * rng.exponential(size=len(tree.paths))
        assert 1 + priced_bound(tree, k, prices) >= best.lower


@pytest.mark.parametrize(
    ("pair", "length", "k", "scale"),
    [
        *((smooth_models(3, 2, seed), 2, 2 + seed % 3, 1.0) for seed in range(9)),
        # all that the target can take, with a token of q = p/30: 1 above φ(0.8)
        ((ZerothOrder([0.5, 0.3, 0.2]), ZerothOrder([0.99, 0.01, 0.0])), 1, 10, 1e9),
    ],
)
def test_the_largest_excess_is_that_of_all_antichains(pair, length, k, scale):
    tree = PathTree.of(*pair, (), length)
    proposed = scale * np.random.default_rng(k).exponential(size=len(tree.paths))
    ceiling = np.minimum(proposed, k * (1 - 1e-8) * tree.draft)
    # the largest f below the ceiling with f(uy) ≤ q(y | u) f(u)
    accepted = np.append(ceiling, 1.0)
    for i, (parent, share) in enumerate(zip(tree.parents, tree.share, strict=True)):
        accepted[i] = min(ceiling[i], share * accepted[parent])
    worst = max(
        float(accepted[chosen].sum() / hit_probability(tree.draft[chosen].sum(), k))
        for chosen in antichains(tree.paths)[1:]
    )
    assert largest_excess(tree, k, accepted[:-1]) == pytest.approx(max(1.0, worst), rel=1e-13)


def test_an_excess_between_two_slopes_is_found():
    """Token by token as much as φ(i/n) allows, but at one i a little more."""
    n, k = 30, 2
    uniform = ZerothOrder(np.full(n, 1 / n))
    tree, allowed = PathTree.of(uniform, uniform, (), 1), hit_probability(np.arange(n + 1) / n, k)
    for i in range(2, n):
        accepted = np.diff(allowed)
        moved = 0.4 * (accepted[i - 1] - accepted[i])
        accepted[i - 1] += moved
        accepted[i] -= moved
        worst = max(np.cumsum(np.sort(accepted)[::-1]) / allowed[1:])
        assert largest_excess(tree, k, accepted) == pytest.approx(worst, rel=1e-13), i


WIDE = (ZerothOrder(np.full(49_152, 1 / 49_152)),) * 2


@pytest.mark.parametrize(
    ("limit", "most", "pair", "said"),
    [
        ("MAX_PATHS", 10, smooth_models(3, 2, 3), "is limited to 10;.*smaller vocabulary or len"),
        ("MAX_ENTRIES", 10, smooth_models(3, 2, 3), "limited to 10 variables"),
        ("MAX_ENTRIES", 60, smooth_models(3, 2, 3), "limited to 60 variables"),  # of all chords
        (None, 0, WIDE, r"after 1 tokens there are 49,152 paths × 49,152 tokens.*level_cut_upper"),
    ],
)
def test_too_large(limit, most, pair, said, monkeypatch):
    if limit:
        monkeypatch.setattr(tree_cuts, limit, most)
    with pytest.raises(otm.errors.TooLarge, match=said):
        best_step(DraftSelection(2, 2), **asked(pair))


CHAINS = TreeShape.sequences(3, 2)


@pytest.mark.parametrize(
    ("decoder", "count"),
    [
        (SpeculativeSampling(2), 1),
        (DraftSelection(3, 2), 3),
        (RefinedScores(3, 2), 3),
        (TreeVerification(CHAINS, IID, otm.Naive()), 3),
        (TreeVerification(CHAINS, otm.WithoutReplacement(1), otm.Naive()), None),
        (TreeVerification(TreeShape([0, 0, 1]), IID, otm.Naive()), None),
        (PrefixTree((3, 1)), 3),
        (PrefixTree((1, 2)), None),
        (Ersd(CHAINS), None),
        (LikeliestTree(2, 2), None),
    ],
    ids=repr,
)
def test_which_drafts_are_independent_sequences(decoder, count):
    assert independent_sequences(decoder) == count


def test_level_by_level_is_not_optimal():
    """The counterexample of docs/theory.md: the first level could accept for sure, the best step
    lets 1/16 of that go.
    """
    rows = {path: [0.5, 0.5] for path in contexts(2, 2)}
    pair = (
        TableModel(rows | {(0,): [1, 0], (1, 0): [0.75, 0.25]}),
        TableModel(rows | {(): [0.75, 0.25], (0,): [0, 1], (1,): [1, 0]}),
    )
    found = best_step(DraftSelection(2, 3), **asked(pair))
    assert found.value == pytest.approx(1 + 367 / 256, abs=1e-9)
    assert found.accepted[0,] + found.accepted[1,] == pytest.approx(15 / 16, abs=1e-9)
    assert best_step(DraftSelection(2, 1), **asked(pair)).value == pytest.approx(2, abs=1e-9)
