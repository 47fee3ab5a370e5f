"""What compiled rows are made of: how a part is compiled, a number's bits, sums and powers of a
block, what parts hand on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from otm._numba import Function, compile_once

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Read-only arrays are another type to numba; what takes these takes writable ones too.
ROWS = types.Array(types.float64, 2, "C", readonly=True)
ROW = types.Array(types.float64, 1, "C", readonly=True)
TABLE, COUNTS = types.float64[:, ::1], types.int64[:, ::1]

FAST = frozenset({"reassoc", "contract", "nsz"})
BLOCK = 256
# of a Taylor series in |y| ≤ 1/64 whose coefficients are at most 2: what is left out is below 2⁻⁵³
# of the sum of weights
TERMS = 9
LARGEST_MULTIPLIED_POWER = 64
LEAST_NORMAL = 2.2250738585072014e-308

# How much of the order is needed: none, of groups of tokens, of all of them.
BY_READING, IN_GROUPS, IN_ORDER = range(3)

_LOG_2 = 0.6931471805599453
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


class Asked(NamedTuple):
    """What is asked of rows: numbers of drafts, ascending; how much of the order; whether
    logarithms and powers (1 − p)^k.

    Tokens are packed for a sort unless the order is known.
    """

    ks: Integers
    way: int
    packed: bool
    logarithms: bool
    powers: bool
    lossy: Floats  # lenience, δ and ε of typical acceptance, the gate of Fuzzy


class Found(NamedTuple):
    """Values of rows: descriptions `(…, rows)`, columns by `PER_K` and k, and by `SINGLE`."""

    described: Floats
    per_k: Floats
    single: Floats


class Read(NamedTuple):
    """What the first read of rows leaves: `SUMS` of each, tokens with mass, the likeliest tokens,
    masses without them.
    """

    sums: Floats
    live: Integers
    top: Integers
    rest: Floats


class Layout(NamedTuple):
    """Where a row's tokens are: packed for a sort or listed by groups; each token's group, and the
    groups' masses and sizes.
    """

    order: Integers
    place: NDArray[np.int16]
    bins: Floats


class Scratch(NamedTuple):
    """Room to work in: blocks, moments, a row's sums block by block, ends of groups, a group put in
    order.
    """

    work: Floats
    moments: Floats
    parts: Floats
    in_top: Flags
    ends: Floats
    opened: Floats
    starts: Integers
    is_sorted: Flags


class Order(NamedTuple):
    """A row in descending order of q/p, group by group.

    Attributes:
        p, q: the row.
        tokens: listed by groups; `starts`: where each begins, and where the last one ends.
        is_sorted: whether a group's tokens are in order themselves.
        ends: masses P and Q up to each group, largest and smallest ratio of each, and room for two
            more lines.
        opened: room for one group in order: p, q, P and Q up to and with each token.
    """

    p: Floats
    q: Floats
    tokens: Integers
    starts: Integers
    is_sorted: Flags
    ends: Floats
    opened: Floats


ASKED = types.NamedTuple(
    (types.int64[::1], types.int64, *(types.boolean,) * 3, types.float64[::1]), Asked
)
FOUND = types.NamedTuple(
    (types.float64[:, ::1], types.float64[:, :, ::1], types.float64[:, ::1]), Found
)
READ = types.NamedTuple((TABLE, types.int64[::1], COUNTS, types.float64[:, :, ::1]), Read)
LAYOUT = types.NamedTuple((COUNTS, types.int16[:, ::1], types.float64[:, :, ::1]), Layout)
SCRATCH = types.NamedTuple(
    (TABLE, TABLE, TABLE, types.boolean[::1], TABLE, TABLE, COUNTS, types.boolean[::1]), Scratch
)
ORDER = types.NamedTuple(
    (ROW, ROW, types.int64[::1], types.int64[::1], types.boolean[::1], TABLE, TABLE), Order
)

# Sums of a row that the first read leaves: Σ p, Σ q, which bits number its groups, and whether an
# entry has a sign.
NUM_SUMS = 5
WHOLE_P, WHOLE_Q, FIRST, SHIFT, SIGNED = range(NUM_SUMS)

# Lines of `Scratch.parts`: a block's sums over tokens in no order, and its largest masses.
NUM_ADDED, NUM_PARTS = 5, 7
SUM_P, SUM_Q, OVERLAP, SAME, SQUARED, MOST_P, MOST_Q = range(NUM_PARTS)


def part(
    fast: frozenset[str] = frozenset(), *, at_once: bool = False
) -> Callable[[Function], Function]:
    """Compile what entries are made of, always into their code.

    A function that is called has two compiled forms, one of its own and one within its caller's
    library. A process that compiles runs the first and one that loads the library the second, which
    differ in the last bits.

    Args:
        fast: which liberties floating-point sums may take.
        at_once: whether it is made part of what calls it before either is compiled, and takes that
            one's liberties: what calls other parts would have them optimised once more for itself.
    """
    # Nobody calls a part from outside: wrappers would be a fifth of the time to compile.
    options: dict[str, Any] = {
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "error_model": "numpy",
        "fastmath": set(fast),
    }
    options |= {"inline": "always"} if at_once else {"forceinline": True}

    def compiled(function: Function) -> Function:
        return cast(Function, njit(**options)(function))

    return compiled


def _cast(given: Any, made: Any, kind: str) -> Callable[[Any], Any]:
    """Return a function of compiled code that reads the bits of one type as another."""

    def read(_typing: Any, _number: Any) -> tuple[Any, Callable[..., Any]]:
        def code(_context: Any, builder: Any, _signature: Any, numbers: Any) -> Any:
            return builder.bitcast(
                numbers[0], getattr(ir, kind)(*([64] if kind == "IntType" else []))
            )

        return made(given), code

    return cast(Callable[[Any], Any], intrinsic(read))


bits, number = (
    _cast(types.float64, types.int64, "IntType"),
    _cast(types.int64, types.float64, "DoubleType"),
)


@part(FAST)
def logarithm(mass: float) -> float:
    """Return log x of a normal number.

    With 2^e m = x and m in [√½, √2), log x = e log 2 + t (1 − t/2 + …) at t = m − 1: no division
    and no table, so that loops are vectorised. Accuracy: 2 u relatively, as numbers near 1 have no
    e log 2.
    """
    shifted = bits(mass) - _ROOT_HALF
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


@part()
def integer_power(base: float, exponent: int) -> float:
    """Return a power by squaring."""
    value = 1.0
    while exponent > 0:
        if exponent & 1:
            value *= base
        base *= base
        exponent >>= 1
    return value


@part(FAST)
def multiply(power: Floats, taken: Floats, times: int) -> None:
    """Multiply by (1 − x)^times, by squaring: a factor of 2 in `times` costs one pass."""
    if times <= 0:
        return
    for j in range(len(power)):
        square, left = max(1.0 - taken[j], 0.0), times
        while left > 0:
            if left & 1:
                power[j] *= square
            square *= square
            left >>= 1


@part(FAST)
def dot(x: Floats, y: Floats) -> float:
    """Return Σ x y of a block."""
    total = 0.0
    for j in range(BLOCK):
        total += x[j] * y[j]
    return total


@part(FAST)
def add_moments(weight: Floats, x: Floats, moments: Floats) -> None:
    """Add Σ w x^n for each n."""
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = m8 = 0.0
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
    """Fill with 0; an assignment to a slice compiles what it could complain with, a
    second's work.
    """
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            table[i, j] = 0.0


@compile_once(types.float64(types.float64, types.int64), inside=True)
def contained(outside: float, k: int) -> float:
    """Return (1 − C)^k as `otm.drafts.iid_cut` does."""
    if k <= LARGEST_MULTIPLIED_POWER:
        return integer_power(max(1.0 - outside, 0.0), k)
    return math.exp(k * math.log1p(-min(outside, 1.0)))


@compile_once(types.float64(types.float64, types.int64), inside=True)
def accept(beta: float, k: int) -> float:
    """Return 1 − (1 − β)^k with full relative accuracy for small β."""
    return -math.expm1(k * math.log1p(-min(max(beta, 0.0), 1.0)))
