"""The best step: against the optimum of one level, block verification, an independent program, and
certificates from garbage.
"""

import itertools

import numpy as np
import pytest
import scipy

import otm
from otm.sequence import (
    BlockVerification,
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
    best_step_lp,
    expected_step,
    outcomes,
    sequence_law,
    step_law,
)
from otm.sequence.best_step_lp import MOST_GAP
from otm.trees import TreeShape
from tests.sequence.toys import IID, asked, random_models, smooth_models

CERTIFIED = 1e-9
TREE = TreeShape([0, 0, 1])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "law", [otm.IID(1), otm.IID(3), otm.WithoutReplacement(2), otm.Greedy(2)], ids=repr
)
def test_one_level_is_the_optimal_transport_problem(law, seed):
    draft, target = random_models(3, 0, np.random.default_rng([1, seed]))
    decoder = TreeVerification(TreeShape.batch(law.k), law, otm.TransportPlan())
    found = best_step(decoder, **asked((draft, target)))
    problem = otm.Problem(draft=draft.next([]), target=target.next([]), law=law)
    # The cut formula is exact to rounding, without replacement to its quadrature, 1e-8 at worst in
    # general, 1e-14 here.
    assert found.lower - 1e-12 <= 1 + otm.optimal_acceptance(problem) <= found.upper + 1e-12
    assert 0 <= found.gap <= CERTIFIED


@pytest.mark.parametrize("seed", range(6))
def test_one_sequence_is_block_verification(seed):
    models = asked(random_models(2 + seed % 2, 3, np.random.default_rng([2, seed])), [1])
    found = best_step(SpeculativeSampling(2), **models)
    block = expected_step(BlockVerification(2), **models).block_efficiency
    assert found.lower - 1e-12 <= block <= found.upper + 1e-12


def by_the_definition(decoder, draft, target):
    """The literal program: π(D, s) over trees D as drafted and outputs s = path in D and one token;
    Σ_{s ≤ o} m(s)/Q(s) = 1.
    """
    length, size = decoder.depth + 1, draft.num_tokens
    trees = [
        (sorted({c for c in tree.contexts() if c is not None}), mass)
        for tree, mass in outcomes(lambda randomness: decoder.draft(draft, (), randomness))
    ]
    laws = [sequence_law(target, [], n) for n in range(1, length + 1)]
    columns = [
        (i, (*path, y)) for i, (paths, _) in enumerate(trees) for path in paths for y in range(size)
    ]
    texts = list(itertools.product(range(size), repeat=length))
    rows = np.zeros((len(trees) + len(texts), len(columns)))
    for j, (i, s) in enumerate(columns):
        rows[i, j] = 1.0
        for row, text in enumerate(texts):
            rows[len(trees) + row, j] = (text[: len(s)] == s) / laws[len(s) - 1][s]
    solution = scipy.optimize.linprog(
        -np.array([len(s) for _, s in columns]),
        A_eq=rows,
        b_eq=np.array([mass for _, mass in trees] + [1.0] * len(texts)),
        method="highs",
    )
    assert solution.status == 0, solution.message
    return float(-solution.fun)


@pytest.mark.parametrize(
    "decoder",
    [
        SpeculativeSampling(2),
        DraftSelection(2, 2),
        PrefixTree((1, 2)),
        Gsd(TREE),
        TreeVerification(TreeShape([0, 1, 1]), IID, otm.Naive()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("seed", range(2))
def test_against_the_literal_program(decoder, seed):
    # positive masses: HiGHS takes equalities with 1/Q(s) as they are
    pair = smooth_models(2, 2, seed)
    found = best_step(decoder, **asked(pair))
    # HiGHS meets the literal equalities to 1e-7, absolutely; their prices are at most 3.
    assert found.value == pytest.approx(by_the_definition(decoder, *pair), abs=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6, 7, 9, 10, 11])  # those with a path at all
def test_certificates_hold_whatever_the_solver_says(seed):
    """Any proposed transport is repaired to a feasible plan, which respects the target and ends no
    more steps after u than the clipped, scaled transport does; any multipliers bound from above.
    """
    rng = np.random.default_rng(seed)
    pair = random_models(3, 2, rng)
    decoder = PrefixTree((2, 1))
    instance = best_step_lp._instance(decoder, *pair, ())
    paths, edges = instance.paths, len(instance.path)
    best = best_step(decoder, **asked(pair))
    transport = rng.exponential(size=edges) * rng.choice([0.01, 1.0]) * rng.integers(-1, 3, edges)
    accepted = best_step_lp._repaired(instance, transport)
    assert 1 + accepted.sum() <= best.upper
    plan = np.maximum(transport, 0.0)
    used = np.bincount(instance.tree, weights=plan, minlength=len(instance.mass))
    plan *= np.minimum(1.0, instance.mass / np.maximum(used, 1e-300))[instance.tree]
    ends = np.bincount(instance.path, weights=plan, minlength=len(accepted))
    assert np.all(accepted <= paths.share * paths.before(accepted, 1.0) + 1e-12)
    assert np.all(paths.ending(accepted)[:-1] <= ends + 1e-12)
    for scale in (0.0, 0.5, 2.0):
        prices = scale * rng.standard_normal(len(paths.paths))
        assert best_step_lp._priced(instance, prices) >= best.lower


def test_the_law_of_the_drafts_matters_not_the_verifier():
    models = asked(smooth_models(3, 2, 2))
    values = [
        best_step(decoder, **models).value
        for decoder in (Gsd(TREE), Ersd(TREE), TraversalVerification(TREE))
    ]
    assert max(values) - min(values) <= CERTIFIED


@pytest.mark.parametrize("decoder", [SpeculativeSampling(2), Gsd(TREE)], ids=repr)
def test_nothing_can_be_accepted(decoder):
    found = best_step(
        decoder, **asked((ZerothOrder([0.5, 0.5, 0, 0]), ZerothOrder([0, 0, 0.5, 0.5])))
    )
    assert (found.lower, found.upper, found.accepted) == (1.0, 1.0, {})


def honest_but_scaled(instance, solve=best_step_lp._solve):
    return tuple(0.9 * part for part in solve(instance))


def stopped(*args, solve=scipy.optimize.linprog, **program):
    return solve(*args, **program | {"options": {"maxiter": 0}})


@pytest.mark.parametrize(
    ("name", "value", "decoder", "said"),
    [
        (
            "MAX_VARIABLES",
            10,
            PrefixTree((1, 2)),
            "limited to 10 pairs.*smaller vocabulary",
        ),
        ("_solve", honest_but_scaled, PrefixTree((1, 2)), r"must agree within 1e-06; HiGHS's answ"),
        ("scipy.optimize.linprog", stopped, DraftSelection(2, 2), "stopped with"),
    ],
)
def test_what_ends_in_an_error(name, value, decoder, said, monkeypatch):
    monkeypatch.setattr(f"otm.sequence.best_step_lp.{name}", value)
    with pytest.raises(otm.errors.OtmError, match=said):
        best_step(decoder, **asked(smooth_models(2, 2, 3)))


def test_products_of_masses_that_underflow():
    """Q(u) = 1e-300 · 1e-300 is 0 in floats: what ends after such a path is nothing, not 0/0. And
    both tokens are drafted by a race, so a step decodes two, whichever came first.
    """
    tiny = ZerothOrder(np.array([1.0 - 1e-300, 1e-300]))
    found = best_step(SpeculativeSampling(2), **asked((tiny, tiny)))
    assert found.value == pytest.approx(3.0, abs=1e-9)
    law = step_law(Ersd(TreeShape.batch(2)), **asked((tiny, ZerothOrder([0.5, 0.5]))))
    assert law.block_efficiency == pytest.approx(2.0, abs=1e-12)
    assert law.mass.sum() == pytest.approx(1.0, abs=1e-12)


def test_ends_that_tiny_probabilities_keep_apart_are_returned():
    """HiGHS's tolerances are absolute; without the two tokens the best step is nearly the same."""
    tiny = [1.3205849344501336e-13, 1.848446582491721e-08]
    uniform = ZerothOrder([1 / 3] * 3)
    found, limit = (
        best_step(StochasticBeam(2, 2), **asked((uniform, ZerothOrder(mass)), [0]))
        for mass in ([*tiny, 1.0 - sum(tiny)], [0.0, 0.0, 1.0])
    )
    assert max(found.gap, limit.gap) <= MOST_GAP
    assert found.value == pytest.approx(limit.value, abs=MOST_GAP)
