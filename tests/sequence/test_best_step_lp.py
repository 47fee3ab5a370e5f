"""The best step: against the optimum of one level, block verification, an independent program, and
certificates from garbage.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pytest
import scipy

import otm
from otm.sequence import (
    BlockVerification,
    Decoder,
    DraftSelection,
    Ersd,
    Gsd,
    PrefixTree,
    SpeculativeSampling,
    StochasticBeam,
    TraversalVerification,
    TreeVerification,
    ZerothOrder,
    best_step,
    expected_step,
    outcomes,
    sequence_law,
    step_law,
)
from otm.sequence.best_step_lp import MOST_GAP
from otm.trees import TreeShape
from tests.sequence.toys import (
    DISTINCT,
    IID,
    random_models,
    smooth_models,
)

CERTIFIED = 1e-9


def module() -> Any:
    return sys.modules["otm.sequence.best_step_lp"]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "law", [otm.IID(1), otm.IID(3), otm.WithoutReplacement(2), otm.Greedy(2)], ids=repr
)
def test_one_level_is_the_optimal_transport_problem(law: otm.Law, seed: int) -> None:
    draft, target = random_models(3, 0, np.random.default_rng([1, seed]))
    decoder = TreeVerification(TreeShape.batch(law.k), law, otm.TransportPlan())
    found = best_step(decoder, draft=draft, target=target, context=[])
    problem = otm.Problem(draft=draft.next([]), target=target.next([]), law=law)
    # The cut formula is exact to rounding, without replacement to its quadrature, 1e-8 at worst in
    # general, 1e-14 here.
    assert found.lower - 1e-12 <= 1 + otm.optimal_acceptance(problem) <= found.upper + 1e-12
    assert 0 <= found.gap <= CERTIFIED


@pytest.mark.parametrize("seed", range(10))
def test_one_sequence_is_block_verification(seed: int) -> None:
    rng = np.random.default_rng([2, seed])
    num_tokens, length = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    draft, target = random_models(num_tokens, length, rng)
    found = best_step(SpeculativeSampling(length), draft=draft, target=target, context=[])
    block = expected_step(
        BlockVerification(length), draft=draft, target=target, context=[]
    ).block_efficiency
    assert found.lower - 1e-12 <= block <= found.upper + 1e-12


def by_the_definition(decoder: Decoder, draft: Any, target: Any) -> float:
    """The literal program: π(D, s) over trees D as drafted and outputs s = path in D and one token;
    Σ_{s ≤ o} m(s)/Q(s) = 1.
    """
    length, size = decoder.depth + 1, draft.num_tokens
    trees = []
    for tree, mass in outcomes(lambda randomness: decoder.draft(draft, (), randomness)):
        trees.append((sorted({c for c in tree.contexts() if c is not None}), mass))
    joint = sequence_law(target, [], length)
    prefix_mass = {
        s: float(joint[s].sum())
        for n in range(1, length + 1)
        for s in itertools.product(range(size), repeat=n)
    }
    columns = [
        (i, (*path, y))
        for i, (paths, _) in enumerate(trees)
        for path in paths
        for y in range(size)
        if prefix_mass[*path, y] > 0
    ]
    texts = [o for o in itertools.product(range(size), repeat=length) if prefix_mass[o] > 0]
    rows = np.zeros((len(trees) + len(texts), len(columns)))
    for j, (i, s) in enumerate(columns):
        rows[i, j] = 1.0
        for row, text in enumerate(texts):
            if text[: len(s)] == s:
                rows[len(trees) + row, j] = 1.0 / prefix_mass[s]
    right = np.array([mass for _, mass in trees] + [1.0] * len(texts))
    solution = scipy.optimize.linprog(
        -np.array([len(s) for _, s in columns]), A_eq=rows, b_eq=right, method="highs"
    )
    assert solution.status == 0, solution.message
    return float(-solution.fun)


@pytest.mark.parametrize(
    "decoder",
    [
        SpeculativeSampling(2),
        DraftSelection(2, 2),
        PrefixTree((1, 2)),
        Gsd(TreeShape([0, 0, 1])),
        TreeVerification(TreeShape([0, 1, 1]), IID, otm.Naive()),
    ],
    ids=repr,
)
def test_against_the_literal_program(decoder: Decoder) -> None:
    for seed in range(3):
        # positive masses: HiGHS takes equalities with 1/Q(s) as they are
        draft, target = smooth_models(2, 2, seed)
        found = best_step(decoder, draft=draft, target=target, context=[])
        # HiGHS meets the literal equalities to 1e-7, absolutely; their prices are at most 3.
        assert found.value == pytest.approx(by_the_definition(decoder, draft, target), abs=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_certificates_hold_whatever_the_solver_says(seed: int) -> None:
    """Any proposed transport is repaired to a feasible plan, any multipliers bound from above."""
    rng = np.random.default_rng(seed)
    draft, target = random_models(3, 2, rng)
    decoder = PrefixTree((2, 1))
    instance = module()._instance(decoder, draft, target, ())
    if not instance.paths.paths:
        return
    best = best_step(decoder, draft=draft, target=target, context=[])
    transport = (
        rng.exponential(size=len(instance.path))
        * rng.choice([0.01, 1.0])
        * rng.integers(-1, 3, len(instance.path))
    )
    accepted = module()._repaired(instance, transport)
    assert 1 + accepted.sum() <= best.upper
    assert feasible(instance, accepted, transport)
    for scale in (0.0, 0.5, 2.0):
        assert (
            module()._priced(instance, scale * rng.standard_normal(len(instance.paths.paths)))
            >= best.lower
        )


def feasible(instance: Any, accepted: np.ndarray, transport: np.ndarray) -> bool:
    """Whether f respects the target and ends no more steps after u than the clipped, scaled
    transport does.
    """
    paths = instance.paths
    before = np.where(paths.parents >= 0, accepted[paths.parents], 1.0)
    plan = np.maximum(transport, 0.0)
    used = np.bincount(instance.tree, weights=plan, minlength=len(instance.mass))
    plan *= np.minimum(1.0, instance.mass / np.maximum(used, 1e-300))[instance.tree]
    ends = np.bincount(instance.path, weights=plan, minlength=len(accepted))
    inner = paths.parents >= 0
    beyond = np.bincount(paths.parents[inner], weights=accepted[inner], minlength=len(accepted))
    return bool(
        np.all(accepted <= paths.share * before + 1e-12)
        and np.all(accepted - beyond <= ends + 1e-12)
    )


class TestEdges:
    def test_nothing_can_be_accepted(self) -> None:
        found = best_step(
            SpeculativeSampling(2),
            draft=ZerothOrder([1.0, 0.0]),
            target=ZerothOrder([0.0, 1.0]),
            context=[],
        )
        assert (found.lower, found.upper, found.accepted) == (1.0, 1.0, {})

    def test_a_context(self) -> None:
        draft, target = smooth_models(2, 2, 3)
        found = best_step(SpeculativeSampling(1), draft=draft, target=target, context=[1])
        assert found.value == pytest.approx(
            1 + np.minimum(draft.next([1]), target.next([1])).sum(), abs=1e-10
        )
        assert set(found.accepted) == {(0,), (1,)}

    def test_too_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module(), "MAX_VARIABLES", 10)
        draft, target = smooth_models(2, 2, 3)
        with pytest.raises(
            otm.errors.TooLarge, match=r"limited to 10 pairs.*smaller vocabulary or tree"
        ):
            best_step(PrefixTree((1, 2)), draft=draft, target=target, context=[])

    def test_a_wrong_answer_of_the_solver_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        honest = module()._solve
        monkeypatch.setattr(
            module(), "_solve", lambda instance: tuple(0.9 * part for part in honest(instance))
        )
        draft, target = smooth_models(2, 2, 3)
        with pytest.raises(
            otm.errors.SolverFailure, match=r"must agree within 1e-06; HiGHS's answer gives \["
        ):
            best_step(PrefixTree((1, 2)), draft=draft, target=target, context=[])

    def test_a_solver_that_stops_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = scipy.optimize.linprog
        monkeypatch.setattr(
            scipy.optimize,
            "linprog",
            lambda *args, **kwargs: real(*args, **kwargs | {"options": {"maxiter": 0}}),
        )
        draft, target = smooth_models(2, 2, 3)
        with pytest.raises(otm.errors.SolverFailure, match="stopped with"):
            best_step(DraftSelection(2, 2), draft=draft, target=target, context=[])

    def test_the_law_of_the_drafts_matters_not_the_verifier(self) -> None:
        draft, target = smooth_models(3, 2, 2)
        tree = TreeShape([0, 0, 1])
        values = [
            best_step(d, draft=draft, target=target, context=[]).value
            for d in (Gsd(tree), Ersd(tree), TraversalVerification(tree, DISTINCT))
        ]
        assert max(values) - min(values) <= CERTIFIED


def test_products_of_masses_that_underflow() -> None:
    """Q(u) = 1e-300 · 1e-300 is 0 in floats: what ends after such a path is nothing, not 0/0."""
    tiny = ZerothOrder(np.array([1.0 - 1e-300, 1e-300]))
    found = best_step(SpeculativeSampling(2), draft=tiny, target=tiny, context=[])
    assert found.value == pytest.approx(3.0, abs=1e-9)


def test_race_drafts_too_unlikely_for_the_coupling() -> None:
    """Both tokens are drafted, so every step decodes two tokens, whichever order of arrival a mass
    of 1e-300 makes.
    """
    draft, target = ZerothOrder(np.array([1.0 - 1e-300, 1e-300])), ZerothOrder(np.array([0.5, 0.5]))
    law = step_law(Ersd(TreeShape.batch(2)), draft=draft, target=target, context=[])
    assert law.block_efficiency == pytest.approx(2.0, abs=1e-12)
    assert law.mass.sum() == pytest.approx(1.0, abs=1e-12)


def test_ends_that_tiny_probabilities_keep_apart_are_returned() -> None:
    """HiGHS's tolerances are absolute; without the two tokens the best step is nearly the same."""
    tiny = [1.3205849344501336e-13, 1.848446582491721e-08]
    decoder, uniform = StochasticBeam(2, 2), ZerothOrder([1 / 3] * 3)
    found, limit = (
        best_step(decoder, draft=uniform, target=ZerothOrder(mass), context=[0])
        for mass in ([*tiny, 1.0 - sum(tiny)], [0.0, 0.0, 1.0])
    )
    assert max(found.gap, limit.gap) <= MOST_GAP
    assert found.value == pytest.approx(limit.value, abs=MOST_GAP)
