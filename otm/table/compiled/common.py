"""Common parts of the two passes over rows: names of columns, sums and powers of a block of tokens,
and the records passed from the first pass to the second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from otm._machine.arrays import BLOCK, Floats
from otm.overlap.walk import FAST, TABLE, Flags, Integers, bits, number, part

COUNTS, CUBE = types.int64[:, ::1], types.float64[:, :, ::1]

# of a Taylor series in |y| ≤ 1/64 whose coefficients are at most 2: what is left out is below 2⁻⁵³
# of the sum of weights
TERMS = 9
LEAST_NORMAL = 2.2250738585072014e-308

# How much of the order is needed: none, of groups of tokens, of all of them.
BY_READING, IN_GROUPS, IN_ORDER = range(3)

# The columns and descriptions that compiled rows fill, and where.
PER_K = (
    "optimum_iid",
    "kseq_iid",
    "recursive_rejection_iid",
    "naive_tree_iid",
    "naive_iid",
    "list_race_rule_iid",
    "poisson_representation_lower_without_replacement",
    "greedy_optimal_greedy",
    "naive_greedy",
    "naive_top_k",
    "optimum_threshold_race",
    "race_threshold_race",
)
SINGLE = (
    "maximal_iid",
    "race_iid",
    "minhash_iid",
    "minhash_rule_iid",
    "lenience_iid",
    "typical_acceptance_iid",
    "fuzzy_iid",
)
DESCRIBED = ("draft_entropy", "target_entropy", "tv", "kl_target_draft", "kl_draft_target")
OPTIMUM, KSEQ, RECURSIVE, NAIVE_TREE, NAIVE = range(5)
LIST_RACE, POISSON, GREEDY_OPTIMAL, NAIVE_GREEDY, TOP_K = range(5, 10)
THRESHOLD_OPTIMUM, THRESHOLD_RACE = range(10, len(PER_K))
MAXIMAL, RACE, MINHASH, MINHASH_RULE, LENIENCE, TYPICAL, FUZZY = range(len(SINGLE))
DRAFT_ENTROPY, TARGET_ENTROPY, TV, KL_TARGET_DRAFT, KL_DRAFT_TARGET = range(len(DESCRIBED))

# Sums of a row that the first pass leaves: Σ p, Σ q, which bits number its bins, and whether an
# entry has a sign.
NUM_SUMS = 5
WHOLE_P, WHOLE_Q, FIRST, SHIFT, SIGNED = range(NUM_SUMS)

# Lines of `Buffers.parts`: a block's sums over tokens in no order, and its largest masses.
NUM_ADDED, NUM_PARTS = 5, 7
SUM_P, SUM_Q, OVERLAP, SAME, SQUARED, MOST_P, MOST_Q = range(NUM_PARTS)

_LOG_2 = 0.6931471805599453
_RAISE, _RAISED = 2.0**54, np.int64(54 << 52)  # what makes a subnormal mass normal, in its bits
_ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)  # √½ as bits
_MANTISSA = np.int64(0x000FFFFFFFFFFFFF)
# log(1 + t)/t on [√½ − 1, √2 − 1], Chebyshev's approximation of degree 19: a relative error of
# 6.5e-17.
_LOG = (
    *(1.0, -0.4999999999999992, 0.3333333333332591, -0.25000000000033595, 0.20000000002056925),
    *(
        -0.1666666666349147,
        0.14285714065198032,
        -0.12499999996813993,
        0.11111122928547465,
        -0.10000012799803608,
    ),
    *(
        0.09090558863565067,
        -0.0833264971300386,
        0.0769813905960958,
        -0.0715930776300252,
        0.06616916103729839,
    ),
    *(
        -0.06044932248651876,
        0.0600236262459681,
        -0.06793484925253536,
        0.0624974432991521,
        -0.027579154885274428,
    ),
)


class Request(NamedTuple):
    """The columns and numbers of drafts that one call computes.

    Attributes:
        ks: numbers of drafts, ascending.
        way: how much of the order is needed.
        logarithms, powers, late: whether entropies, powers (1 − p)^k and the race for threshold
            races are asked for.
        lossy: the lenience, δ and ε of typical acceptance, the threshold of Fuzzy.
    """

    ks: Integers
    way: int
    logarithms: bool
    powers: bool
    late: bool
    lossy: Floats


class RowResults(NamedTuple):
    """The results of rows: descriptions `(…, rows)`, columns by `PER_K` and k, and by `SINGLE`."""

    described: Floats
    per_k: Floats
    single: Floats


class FirstPass(NamedTuple):
    """The results of the first pass.

    Attributes:
        sums: `SUMS` of each row.
        live: tokens with mass.
        top, rest: the likeliest tokens, and the masses without these.
        place: each token's bin, where tokens are put into bins.
        bin_sums, bin_sizes: the bins' sums and sizes.
    """

    sums: Floats
    live: Integers
    top: Integers
    rest: Floats
    place: NDArray[np.int16]
    bin_sums: Floats
    bin_sizes: Integers


class Buffers(NamedTuple):
    """Scratch arrays for one row: blocks, moments, sums by block, the fields of `Groups`, and the
    ratios' bits.
    """

    work: Floats
    moments: Floats
    parts: Floats
    bins: Integers
    tokens: Integers
    starts: Integers
    is_sorted: Flags
    ends: Floats
    opened: Floats
    wanted: Flags
    ratios: Integers


_LINE, _FLAGS = types.int64[::1], types.boolean[::1]
REQUEST = types.NamedTuple((_LINE, types.int64, *(types.boolean,) * 3, types.float64[::1]), Request)
RESULTS = types.NamedTuple((TABLE, CUBE, TABLE), RowResults)
_BINS = types.int16[:, ::1], types.float64[:, :, :, ::1], COUNTS
FIRST_PASS = types.NamedTuple((TABLE, _LINE, COUNTS, CUBE, *_BINS), FirstPass)
BUFFERS = types.NamedTuple(
    (TABLE, TABLE, TABLE, _LINE, _LINE, _LINE, _FLAGS, TABLE, TABLE, types.boolean[:, ::1], _LINE),
    Buffers,
)


@part(FAST)
def logarithm(mass: float) -> float:
    """Return log x of a mass, finite for x = 0.

    With 2^e m = x and m in [√½, √2), log x = e log 2 + t (1 − t/2 + …) at t = m − 1: no division
    and no table, so that loops are vectorised. Accuracy: 2 u relatively, as numbers near 1 have no
    e log 2.
    """
    shifted = bits(mass * _RAISE) - (_ROOT_HALF + _RAISED)
    t = number((shifted & _MANTISSA) + _ROOT_HALF) - 1.0
    t2 = t * t
    t4 = t2 * t2
    low = (_LOG[0] + _LOG[1] * t + t2 * (_LOG[2] + _LOG[3] * t)) + t4 * (
        _LOG[4] + _LOG[5] * t + t2 * (_LOG[6] + _LOG[7] * t)
    )
    middle = (_LOG[8] + _LOG[9] * t + t2 * (_LOG[10] + _LOG[11] * t)) + t4 * (
        _LOG[12] + _LOG[13] * t + t2 * (_LOG[14] + _LOG[15] * t)
    )
    high = _LOG[16] + _LOG[17] * t + t2 * (_LOG[18] + _LOG[19] * t)
    t8 = t4 * t4
    log: float = float(shifted >> 52) * _LOG_2 + t * (low + t8 * (middle + t8 * high))
    return log


@part(FAST)
def dot(x: Floats, y: Floats) -> float:
    """Return Σ x y."""
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@part(FAST)
def add_moments(weight: Floats, x: Floats, moments: Floats) -> None:
    """Add Σ w x^n for each n."""
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = m8 = 0.0
    # Nine sums in registers: an array of moments would be loaded and stored for every token.
    for j in range(BLOCK):
        w, y = weight[j], x[j]
        square = y * y
        fourth = square * square
        odd = w * y
        m0 += w
        m1 += odd
        m2 += w * square
        m3 += odd * square
        m4 += w * fourth
        m5 += odd * fourth
        m6 += w * square * fourth
        m7 += odd * square * fourth
        m8 += w * fourth * fourth
    for n, value in enumerate((m0, m1, m2, m3, m4, m5, m6, m7, m8)):
        moments[n] += value


@part()
def clear(table: Floats) -> None:
    """Fill with 0."""
    # An assignment to a slice compiles what it could complain with, a second's work.
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            table[i, j] = 0.0
