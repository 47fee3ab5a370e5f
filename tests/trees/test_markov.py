"""Bounds for acceptance that depends on the last ranks: every tree below them, their limits, and a
plausible one that is none.
"""

import math

import numpy as np
import pytest

import otm
from otm.trees import markov
from otm.trees.optimal import optimal_tree
from otm.trees.tunstall import tunstall_minimum_upper, tunstall_upper
from otm.trees.vector import entropy_bits
from tests.trees.instances import trees_within, value

# The solver's tolerances are 1e-7; what they leave of an inequality is divided out.
SOLVED = 1e-6

Path = tuple[int, ...]


def chained(*rows, order=1):
    """Acceptance after no rank, then after each; of a longer order, what the last
    ranks add up to.
    """

    def step(path):
        before = path[:-1][max(0, len(path) - 1 - order) :]
        row = rows[0] if not before else rows[1 + sum(before) % (len(rows) - 1)]
        return row[path[-1]] if path[-1] < len(row) else 0.0

    return step


STICKY = chained([0.5, 0.5], [0.5, 0.5], [1.0])
"""Two children, but after the second only the first: states visited 2:1, ⅔ bit a visit."""


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_no_tree_at_all_is_above(order, seed):
    rng = np.random.default_rng([order, seed])
    masses = rng.dirichlet(rng.choice([0.2, 1.0, 5.0], size=3), size=4)
    kept = rng.uniform(0.2, 1.0, size=(4, 1)) if seed % 2 else 1.0
    step = chained(*(-np.sort(-masses) * kept).tolist(), order=order)
    for nodes in range(6):
        bound = tunstall_upper(step, num_nodes=nodes, order=order)
        assert 1 + max(value(tree, step) for tree in trees_within(nodes, None, 3)) <= bound
    narrow = optimal_tree(step, num_nodes=300, order=order, max_width=2).expected_tokens
    assert narrow <= tunstall_upper(step, num_nodes=300, order=order, max_width=2)


def test_without_memory_it_is_the_lesser_of_tunstalls_bound_and_the_plateau():
    vector = [0.6, 0.25, 0.1]
    plateau = tunstall_minimum_upper(vector, num_nodes=10**15, num_explored=3).value
    assert plateau == pytest.approx(20.0)
    for nodes in (0, 10, 1_000, 10**15):
        found = tunstall_upper(chained(vector, vector), num_nodes=nodes, order=1)
        least = min(tunstall_upper(vector, num_nodes=nodes), plateau)
        assert found == pytest.approx(least, rel=SOLVED)


def test_a_state_whose_entropy_says_nothing_is_paid_by_the_others():
    # w = 1 after the second child, y = 3/2: 1 + 3/2 (log₂ (N + 2) − 1) + 1/2.
    for nodes in (0, 2, 30, 1022):
        assert tunstall_upper(STICKY, num_nodes=nodes, order=1) == pytest.approx(
            1.5 * math.log2(nodes + 2), rel=SOLVED
        )
    # With two bits a visit to the root for nothing, and .469 bits a visit below.
    even, uneven = [0.5, 0.5], [0.9, 0.1]
    found = tunstall_upper(chained(even, uneven), num_nodes=0, order=1)
    assert found == pytest.approx(1.0, rel=SOLVED)
    assert tunstall_upper(uneven, num_nodes=0) == pytest.approx(2.132, abs=5e-4)


@pytest.mark.parametrize("bits", [2.0, 4.0, 9.0])
def test_no_price_of_a_bit_is_better(bits):
    # At any price the worth of stopping in time, by iteration, gives a bound; rejections let it
    # converge.
    rows = np.array([[0.3, 0.3, 0.2], [0.85, 0.05, 0.05], [0.4, 0.3, 0.1], [0.2, 0.1, 0.1]])
    entropy = np.array([entropy_bits([*row, 1.0 - row.sum()]) for row in rows])
    found = markov.MarkovAcceptance.of(chained(*rows.tolist()), 1, None).bound(bits)
    told = []
    for price in np.linspace(0.0, 1.5 / entropy.min(), 100):
        worth = np.zeros(4)
        for _ in range(300):
            worth = np.maximum(0.0, 1.0 - price * entropy + rows @ worth[1:])
        told.append(1.0 + price * (bits - entropy[0]) + rows[0] @ worth[1:])
    # What 300 steps leave out is .95³⁰⁰/.05 at most, 5e-6. Between two of 100 prices the bound
    # bends by less than a hundredth.
    assert min(told) * (1 - 0.03) <= found <= min(told) * (1 + 1e-4)


def test_it_grows_as_the_logarithm_over_the_entropy_rate():
    rows = [[0.7, 0.2, 0.1], [0.4, 0.35, 0.25], [0.9, 0.05, 0.05]]
    stationary = np.linalg.matrix_power(np.array(rows), 200)[0]
    rate = float(stationary @ [entropy_bits(row) for row in rows])
    step = chained(rows[0], *rows)
    small, large = (tunstall_upper(step, num_nodes=2**bits, order=1) for bits in (30, 50))
    assert (large - small) / 20 == pytest.approx(1 / rate, rel=SOLVED)


def test_what_a_solver_says_is_checked(monkeypatch):
    states = markov.MarkovAcceptance.of(STICKY, 1, None)
    assert len(states.entropy) == 3 and len(states.step) == 5  # no rank, the first, the second
    right = states.bound(5.0)
    price, worth = states._best_price(5.0) or (0.0, np.zeros(3))
    for wrong in ((price * 0.9, worth), (price, worth * 0.5), (-1.0, worth - 1.0)):
        monkeypatch.setattr(
            markov.MarkovAcceptance, "_best_price", lambda self, bits, wrong=wrong: wrong
        )
        assert states.bound(5.0) >= right * (1 - SOLVED)  # never less than the least that is true


def test_what_is_never_accepted_yields_no_less_than_one_token():
    assert 1.0 <= tunstall_upper(lambda path: 0.0, num_nodes=5, order=0) <= 1.0 + SOLVED


def test_a_price_that_pays_for_the_rounding_alone_proves_nothing():
    """What is short of 1 is then 1 in floating point."""
    lone = np.zeros(0, dtype=np.int64)
    states = markov.MarkovAcceptance(np.ones(1), 2, lone, lone, np.zeros(0))
    assert states._certified(1.0, 18 * 2.0**-53, np.zeros(1)) == math.inf


@pytest.mark.parametrize("lacks", [0.0, 2.0**-53, 2.0**-48])
def test_what_a_lone_symbol_lacks_to_one_is_no_entropy(lacks):
    """A rest of at most 64 u is rounding, for a function as for a vector."""
    alone = chained([1.0 - lacks], [1.0 - lacks], order=2)
    assert tunstall_upper(alone, num_nodes=5, order=2) == math.inf
    assert tunstall_upper([1.0 - lacks], num_nodes=5) == math.inf


def test_what_is_never_accepted_is_one_token():
    assert tunstall_upper(lambda path: 0.0, num_nodes=9, order=2) == pytest.approx(1.0, rel=SOLVED)
    assert tunstall_upper(lambda path: 1e-9, num_nodes=3, order=1, max_width=2) >= 1.0


@pytest.mark.parametrize(
    ("acceptance", "order", "error", "said"),
    [
        (STICKY, None, "InvalidParameter", "needs its order"),
        ([0.5], 1, "InvalidParameter", "a vector's is 0"),
        (chained([0.6, 0.6], [0.6, 0.6]), 1, "InvalidDistribution", "sum to more than 1"),
        (lambda path: 1e-9, 1, "TooLarge", "50,000 ranks"),
    ],
)
def test_what_has_no_bound_is_refused(acceptance, order, error, said):
    with pytest.raises(getattr(otm.errors, error), match=said):
        tunstall_upper(acceptance, num_nodes=3, order=order)
