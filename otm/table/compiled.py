"""What `otm.table` computes, compiled, one row at a time: the host's way where numba is installed.

The formulas are those of `otm.table.arrays`, which serves devices and hosts without numba, and which the tests hold this module
against. On a host that way is bound by calls: hundreds of NumPy operations on arrays of a tenth of a millisecond each, between
which threads wait for the interpreter. Here the interpreter is left alone, so that threads add up. A row is read as it is given,
float32 or float64, and divided by its sum block by block in the first cache; no copy of it is made:

* once for its sums, once for all that needs no order: the schemes of one draft, entropies and divergences (a logarithm of a block
  is a polynomial, four or eight at a time), and powers (1 − p)^k, whose series in p lets all k share the moments Σ q p^n;
* once along the order of q/p, after a sort of the tokens with mass, which stays NumPy's, because that is vectorised. The races need
  it: their terms depend on every token's rank. On a stretch of the order where the match probability h = c (1 + y) hardly changes
  all k share the moments Σ q y^n.

What is left of the order are the masses at the ends of its blocks. The optimum looks into the few blocks that can hold it; K-SEQ,
recursive rejection, lenience and the greedy optimum find theirs, and the gate of `Fuzzy` most often needs none. So the one array
of a row's length that is made is the order.

Floating-point sums may be reordered (`reassoc`) and fused (`contract`), nothing else: infinities and NaN are meant and kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from otm._arrays import quiet
from otm._numba import Function, compile_once
from otm.errors import ShapeMismatch
from otm.table.arrays import CURVE, LIKELY, LOGARITHMIC, RACES
from otm.verifiers.fuzzy import Fuzzy
from otm.verifiers.lenience import Lenience
from otm.verifiers.typical_acceptance import TypicalAcceptance

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
)
# Positions are looked up by name, so that an insertion above moves them all.
_OPTIMUM = PER_K.index("optimum_iid")
_KSEQ = PER_K.index("kseq_iid")
_RECURSIVE = PER_K.index("recursive_rejection_iid")
_NAIVE_TREE = PER_K.index("naive_tree_iid")
_NAIVE = PER_K.index("naive_iid")
_LIST_RACE = PER_K.index("list_race_rule_iid")
_POISSON = PER_K.index("poisson_representation_lower_without_replacement")
_GREEDY_OPTIMAL = PER_K.index("greedy_optimal_greedy")
_NAIVE_GREEDY = PER_K.index("naive_greedy")
_TOP_K = PER_K.index("naive_top_k")

SINGLE = ("maximal_iid", "race_iid", "minhash_iid", "minhash_rule_iid", "lenience_iid", "typical_acceptance_iid", "fuzzy_iid")
_MAXIMAL = SINGLE.index("maximal_iid")
_RACE = SINGLE.index("race_iid")
_MINHASH = SINGLE.index("minhash_iid")
_MINHASH_RULE = SINGLE.index("minhash_rule_iid")
_LENIENCE = SINGLE.index("lenience_iid")
_TYPICAL = SINGLE.index("typical_acceptance_iid")
_FUZZY = SINGLE.index("fuzzy_iid")

# Read-only arrays are another type to numba; what takes these takes writable ones too.
_ROWS = types.Array(types.float64, 2, "C", readonly=True)
_ROW = types.Array(types.float64, 1, "C", readonly=True)

DESCRIBED = ("draft_entropy", "target_entropy", "tv", "kl_target_draft", "kl_draft_target")

_DRAFT_ENTROPY = DESCRIBED.index("draft_entropy")
_TARGET_ENTROPY = DESCRIBED.index("target_entropy")
_TV = DESCRIBED.index("tv")
_KL_TARGET_DRAFT = DESCRIBED.index("kl_target_draft")
_KL_DRAFT_TARGET = DESCRIBED.index("kl_draft_target")

# A block's sums over tokens in no order, and its largest masses.
_NUM_SUMS, _NUM_PARTS = 5, 7
_P, _Q, _OVERLAP, _SAME, _SQUARED, _MOST_P, _MOST_Q = range(_NUM_PARTS)

# What is kept of a row between the two passes.
_NUM_KEPT = 4
_WHOLE_P, _WHOLE_Q, _FIRST, _SHIFT = range(_NUM_KEPT)

# How much of the order is needed: none, of groups of tokens, of all of them.
_BY_READING, _IN_GROUPS, _IN_ORDER = range(3)

_FAST = frozenset({"reassoc", "contract", "nsz"})
_INFINITE, _UNLIMITED, _NOWHERE = np.int64(0x7FF0000000000000), np.int64(0x7FDFFFFFFFFFFFFF), np.int64(0x7FEFFFFFFFFFFFFF)
_UNSIGNED = np.int64(0x7FFFFFFFFFFFFFFF)
# The same numbers as in otm.drafts.iid_cut and otm.verifiers.kseq, which a test compares: imported, they would be frozen into
# numba's files on disk, which are made anew when this module changes and not when those do. Compiled functions stay here for the
# same reason.
_LARGEST_MULTIPLIED_POWER = 64
_BLOCK = 256
_TERMS = (
    9  # of a Taylor series in |y| ≤ 1/64 whose coefficients are at most 2: what is left out is below 2⁻⁵³ of the sum of weights
)
_NARROW = 1 / 64
_LIGHT = 1 / 16  # (1 − p)^k with k p below it: the ninth term and those after it are below 2⁻⁵³
_LIGHTER = 2.0**-10  # the same of the fifth term
_FEWER_TERMS = 5
_NEGLIGIBLE = 2.0**-56  # a bound that exceeds the best value known by less is rounding
_SMALLEST_DIVISOR = 1e-290
_NEWTON_STEPS, _BISECTIONS, _SETTLED = 16, 60, 2.0**-52
_UNDECIDED = 1e-9  # far beyond the rounding of a divergence, far below what a row usually leaves between it and the threshold
_SHORTEST_GROUPED = 1024  # below, a sort is as fast
_MOST_GROUPS, _PER_GROUP = 4096, 32  # groups at most, and how many tokens they hold on average
_ROOM = 8  # one in so many tokens, put in order here; NumPy does more of them faster
_MANY = 2 * _BLOCK  # what a plain sum may have of terms
_SAMPLE = 1024
_LEAST_RATIO, _MOST_RATIO = np.int64(1023 - 64) << np.int64(52), np.int64(1023 + 64) << np.int64(52)  # bits of 2⁻⁶⁴ and 2⁶⁴
_INSIDE, _BEYOND = 1.0 - 2.0**-50, 1.0 + 2.0**-50  # a quotient of rounded quotients is off by less
_FEW = 128  # pieces of a row, each of two logarithms
_ALIKE = 1.0 - 2.0**-47  # many tokens whose ratios differ by less, as rounding leaves equal ones, count as equal
_STRAND = _BLOCK // 4  # running sums of so many tokens are taken side by side: an addition waits for the one before it
_OUT_OF_ORDER = 1.0 + 2.0**-50  # neighbours whose ratios differ by less may stand either way
_SUMS_TO_ONE = 2.0**-50
_LARGEST, _LOG_2 = 1.7976931348623157e308, 0.6931471805599453
_IMMATERIAL = 1e-290  # products of two tokens' masses that have lost their digits
_ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)  # √½ as bits
_MANTISSA = np.int64(0x000FFFFFFFFFFFFF)
_LEAST_NORMAL = 2.2250738585072014e-308
# log(1 + t)/t on [√½ − 1, √2 − 1], Chebyshev's approximation of degree 19: a relative error of 6.5e-17.
_LOG = (
    *(1.0, -0.4999999999999992, 0.3333333333332591, -0.25000000000033595, 0.20000000002056925),
    *(-0.1666666666349147, 0.14285714065198032, -0.12499999996813993, 0.11111122928547465, -0.10000012799803608),
    *(0.09090558863565067, -0.0833264971300386, 0.0769813905960958, -0.0715930776300252, 0.06616916103729839),
    *(-0.06044932248651876, 0.0600236262459681, -0.06793484925253536, 0.0624974432991521, -0.027579154885274428),
)


def _part(fast: frozenset[str] = frozenset()) -> Callable[[Function], Function]:
    """Compile what entries are made of, always into their code.

    A function that is called has two compiled forms, one of its own and one within its caller's library. A process that compiles
    runs the first and one that loads the library the second, which differ in the last bits.
    """

    def compiled(function: Function) -> Function:
        return cast(Function, njit(forceinline=True, error_model="numpy", fastmath=set(fast))(function))

    return compiled


def _cast(given: Any, made: Any, kind: str) -> Callable[[Any], Any]:
    """Return a function of compiled code that reads the bits of one type as another."""

    def read(_typing: Any, _number: Any) -> tuple[Any, Callable[..., Any]]:
        def code(_context: Any, builder: Any, _signature: Any, numbers: Any) -> Any:
            return builder.bitcast(numbers[0], getattr(ir, kind)(*([64] if kind == "IntType" else [])))

        return made(given), code

    return cast(Callable[[Any], Any], intrinsic(read))


_bits, _number = _cast(types.float64, types.int64, "IntType"), _cast(types.int64, types.float64, "DoubleType")


def try_out() -> None:
    """Compute one row of one token: what is compiled is loaded or made now."""
    one = np.ones((1, 1))
    chunk_values(one, one, [1], DESCRIBED)


_PLACED = {"fuzzy_iid", *CURVE, *LIKELY} - RACES
_RAISED = {"naive_iid", "naive_tree_iid"}


def chunk_values(
    p: NDArray[np.floating], q: NDArray[np.floating], ks: Sequence[int], wanted: Collection[str]
) -> tuple[dict[tuple[str, int], Floats], dict[str, Floats], Floats]:
    """Return the values of a chunk `(rows, V)`, its descriptions, and what tells distributions from other rows; `ks` ascending.

    Args:
        p, q: float32 or float64, both the same; divided by their sums here, which need not be 1.
        ks: numbers of drafts, ascending.
        wanted: stems of columns and names of descriptions; what else is returned may be wrong.

    Returns:
        Values by (stem of the column, k); descriptions by name; and `(2, rows)`, Σ p and Σ q, NaN where an entry is negative. Where
        these are not what they should be the rest is meaningless.

    Cost: per row two reads; for values along the curve one more of the tokens with mass, in groups; for the races, whose every term
    depends on a rank, a sort and two. Memory: the order, and what is divided. Accuracy: as `otm.table.arrays`.
    """
    if p.shape != q.shape or p.dtype != q.dtype:  # compiled loops would read what lies beyond
        raise ShapeMismatch(
            f"A chunk's rows must be alike; got {p.shape} of {p.dtype}, {q.shape} of {q.dtype}. Broadcast them."
        )
    (p, sum_p, dead_p), (q, sum_q, dead_q) = (unit_chunk(a) for a in (p, q))
    asked = set(wanted)
    way = _IN_ORDER if asked & RACES else _IN_GROUPS if asked & _PLACED else _BY_READING
    needs = np.asarray([way, bool(asked & LOGARITHMIC), bool(asked & _RAISED)], dtype=np.int64)
    counts = np.asarray(ks, dtype=np.int64)
    sparse = dead_p + dead_q > p.shape[1]  # half of the tokens have no mass, at least
    with quiet():  # compiled code never warns, but numba may be told not to compile
        if sparse.any():
            rows = [(live_tokens(p[r], q[r], ks[-1]) if sparse[r] else (p[r : r + 1], q[r : r + 1])) for r in range(len(p))]
            parts = [_results(*row, counts, needs) for row in rows]
            described, per_k, single = (np.concatenate(joined, axis=-1) for joined in zip(*parts, strict=True))
        else:
            described, per_k, single = _results(p, q, counts, needs)
    values = {(stem, k): per_k[i, j] for i, stem in enumerate(PER_K) for j, k in enumerate(ks)}
    values |= {(stem, 1): single[i] for i, stem in enumerate(SINGLE)}
    if 2 in ks:
        values["spechub_greedy", 2] = values["greedy_optimal_greedy", 2]
    return values, dict(zip(DESCRIBED, described, strict=True)), np.stack([sum_p, sum_q])


def live_tokens(p: Floats, q: Floats, least: int) -> tuple[Floats, Floats]:
    """Return the tokens of a row with any mass, `(1, n)` both, and some without where there are fewer than `least`."""
    kept = np.empty((2, 1, len(p)))
    n = _keep_live(p, q, least, kept[0, 0], kept[1, 0])
    return kept[0, :, :n], kept[1, :, :n]


def _results(p: Floats, q: Floats, ks: Integers, needs: Integers) -> tuple[Floats, Floats, Floats]:
    """Return descriptions `(…, rows)`, values by `PER_K` and k, and values by `SINGLE`, of rows that are distributions.

    `needs`: how much of the order, whether logarithms, whether powers (1 − p)^k.
    """
    needs = needs.copy()
    way = int(needs[0])
    count, width = p.shape
    bits = (width - 1).bit_length()
    described, kept = np.zeros((len(DESCRIBED), count)), np.empty((count, _NUM_KEPT))
    per_k, single = np.zeros((len(PER_K), len(ks), count)), np.empty((len(SINGLE), count))
    top, rest = np.empty((count, ks[-1]), dtype=np.int64), np.empty((count, 2, ks[-1] + 1))
    live, wrong = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.bool_)
    typical = TypicalAcceptance()
    lossy = np.asarray([Lenience().lenience, typical.delta, typical.eps, Fuzzy().threshold])
    if way == _IN_GROUPS and width < _SHORTEST_GROUPED:
        way = needs[0] = _IN_ORDER
    groups = min(1 << (width // _PER_GROUP).bit_length(), _MOST_GROUPS)
    order = np.empty((count, width if way == _IN_ORDER else 0), dtype=np.int64)
    place = np.empty((count, width if way == _IN_GROUPS else 0), dtype=np.int16)
    bins = np.zeros((count, groups if way == _IN_GROUPS else 0, 3))
    work, moments, blocks = np.empty((7, _BLOCK)), np.empty((2, _TERMS)), (width + _BLOCK - 1) // _BLOCK
    parts, in_top = np.empty((_NUM_PARTS, blocks)), np.empty(_BLOCK, dtype=np.bool_)
    _read(
        *(p, q, ks, lossy, needs, bits, order, place, bins, live, kept, top, rest, described, per_k, single),
        *(work, moments, parts, in_top),
    )
    if way == _BY_READING:
        return described, per_k, single
    if way == _IN_ORDER:
        sort_packed(order)
    else:
        order = np.empty((count, width), dtype=np.int64)
    most = max(blocks, bins.shape[1]) + 1
    room = max(_BLOCK, width // _ROOM if way == _IN_GROUPS else 0)
    scratch: tuple[Any, ...] = (
        *(work, moments, np.empty((6, most)), np.empty(most, dtype=np.bool_)),
        *(np.empty((4, room)), np.empty((2, most), dtype=np.int64)),
    )
    _values(p, q, needs, order, place, bins, live, bits, ks, lossy, kept, top, rest, described, per_k, single, wrong, *scratch)
    needs[0] = _IN_ORDER
    for r in np.flatnonzero(wrong):
        one = slice(r, r + 1)
        put_in_order(p[r], q[r], order[r, : live[r]])
        said, many, few = (np.ascontiguousarray(a[..., one]) for a in (described, per_k, single))
        placed, about = (order[one], place[one], bins[one], live[one], bits), (kept[one], top[one], rest[one])
        _values(p[one], q[one], needs, *placed, ks, lossy, *about, said, many, few, wrong[one], *scratch)
        per_k[..., one], single[..., one] = many, few
    return described, per_k, single


def sort_packed(order: Integers) -> None:
    """Sort each row's entries, p/q with the token's index in its last bits; those without mass come last.

    Non-negative finite floats sort as their bits do, and NumPy's sort of floats is the faster one.
    """
    order.view(np.float64).sort(axis=-1)


def put_in_order(p: Floats, q: Floats, order: Integers) -> None:
    """List a row's tokens with mass by the ratios themselves."""
    with quiet():
        order[:] = np.argsort(p / q)[: len(order)]  # 0/0, without mass, comes last


def unit_chunk(rows: NDArray[Any]) -> tuple[Floats, Floats, Integers]:
    """Return rows in float64, divided by their sums, these, NaN where an entry is negative, and how many entries are 0.

    Float64 rows that sum to 1 but for 8 units of roundoff are returned as they are: their masses are as close as that to p/Σp.
    """
    wide = np.require(rows, np.float64, ["C", "A"])
    sums, zeros = np.empty(len(wide)), np.empty(len(wide), dtype=np.int64)
    is_plain = _sums(wide, sums, zeros)
    if is_plain and rows.dtype == np.float64 and (np.abs(sums - 1.0) <= _SUMS_TO_ONE).all():
        return wide, sums, zeros
    unit = np.empty(wide.shape) if np.may_share_memory(wide, rows) else wide
    _divide(wide, sums, unit)
    return unit, sums, zeros


@compile_once(types.boolean(_ROWS, types.float64[::1], types.int64[::1]), fastmath=_FAST)
def _sums(rows: Floats, sums: Floats, zeros: Integers) -> bool:
    """Fill each row's sum, NaN where an entry is negative, and its zeros, and return whether no entry has a sign, not even a 0."""
    width = rows.shape[1]
    is_plain = True
    for r in range(len(rows)):
        is_negative, whole = False, 0.0
        zeros[r] = 0
        for start in range(0, width, _BLOCK):
            end, part, signs, alike = min(start + _BLOCK, width), 0.0, np.int64(0), 0
            for i in range(start, end):
                part += rows[r, i]
                signs |= _bits(rows[r, i])
                alike += rows[r, i] == 0
            whole += part
            zeros[r] += alike
            if signs < 0:
                is_plain = False
                for i in range(start, end):
                    is_negative |= rows[r, i] < 0
        sums[r] = np.nan if is_negative else whole
    return is_plain


@compile_once(types.void(_ROWS, types.float64[::1], types.float64[:, ::1]))
def _divide(rows: Floats, sums: Floats, unit: Floats) -> None:
    """Fill rows divided by their sums; −0 becomes 0, or q/p would be −∞."""
    for r in range(len(rows)):
        scale = 1.0 / sums[r]
        for i in range(rows.shape[1]):
            unit[r, i] = abs(rows[r, i]) * scale


@compile_once(types.int64(_ROW, _ROW, types.int64, types.float64[::1], types.float64[::1]))
def _keep_live(p: Floats, q: Floats, least: int, kept_p: Floats, kept_q: Floats) -> int:
    """Fill the masses of the tokens with any, zeros after them if they are fewer than `least`, and return how many there are."""
    at = 0
    for i in range(len(p)):  # the next one is written over what has no mass: no branch to guess
        kept_p[at], kept_q[at] = p[i], q[i]
        at += (p[i] > 0) | (q[i] > 0)
    while at < least:
        kept_p[at] = kept_q[at] = 0.0
        at += 1
    return at


@_part()
def _add_up(mass: Floats, before: float, running: Floats) -> None:
    """Fill the running sums of a group; of a block in strands, since each addition waits for the one before it."""
    n = len(mass)
    if n == _BLOCK:
        a = b = c = d = 0.0
        for j in range(_STRAND):
            a += mass[j]
            b += mass[_STRAND + j]
            c += mass[2 * _STRAND + j]
            d += mass[3 * _STRAND + j]
            running[j], running[_STRAND + j], running[2 * _STRAND + j], running[3 * _STRAND + j] = a, b, c, d
        second = before + a
        third = second + b
        fourth = third + c
        for j in range(_STRAND):
            running[j] += before
            running[_STRAND + j] += second
            running[2 * _STRAND + j] += third
            running[3 * _STRAND + j] += fourth
    else:
        rest = 0.0  # what the additions have rounded off: a group may be long
        for j in range(n):
            after = before + mass[j]
            rest += (before - after) + mass[j]
            before = after
            running[j] = before + rest


@compile_once(
    types.int64(_ROW, _ROW, types.int64[::1], types.int64[::1], types.boolean[::1], types.int64, *(types.float64[:, ::1],) * 2)
)
def _open(
    p: Floats,
    q: Floats,
    tokens: Integers,
    starts: Integers,
    is_sorted: NDArray[np.bool_],
    group: int,
    ends: Floats,
    opened: Floats,
) -> int:
    """Fill a group in order: p, q and the masses up to and with each token; return how many it has, −1 if there is no room.

    Called, not inlined: without `reassoc` both compiled forms do the same.
    """
    start = starts[group]
    n = int(starts[group + 1] - start)
    if n > opened.shape[1]:
        return -1
    if not is_sorted[group]:
        key = opened[2]
        for j in range(n):
            i = np.uint64(tokens[start + j])
            key[j] = p[i] / q[i] if q[i] > 0 else (np.inf if p[i] > 0 else 0.0)
        gap = n // 2
        while gap > 0:
            for j in range(gap, n):
                ratio, token, t = key[j], tokens[start + j], j
                while t >= gap and key[t - gap] > ratio:
                    key[t], tokens[start + t] = key[t - gap], tokens[start + t - gap]
                    t -= gap
                key[t], tokens[start + t] = ratio, token
            gap = gap * 5 // 11 if gap > 2 else gap - 1
        is_sorted[group] = True
    for j in range(n):
        opened[0, j] = p[np.uint64(tokens[start + j])]
    for j in range(n):
        opened[1, j] = q[np.uint64(tokens[start + j])]
    _add_up(opened[0, :n], ends[0, group], opened[2, :n])
    _add_up(opened[1, :n], ends[1, group], opened[3, :n])
    return n


@_part()
def _integer_power(base: float, exponent: int) -> float:
    value = 1.0
    while exponent > 0:
        if exponent & 1:
            value *= base
        base *= base
        exponent >>= 1
    return value


@compile_once(types.float64(types.float64, types.int64))
def _contained(outside: float, k: int) -> float:
    """Return (1 − C)^k as `otm.drafts.iid_cut` does."""
    if k <= _LARGEST_MULTIPLIED_POWER:
        return _integer_power(max(1.0 - outside, 0.0), k)
    return math.exp(k * math.log1p(-min(outside, 1.0)))


@_part()
def _optima(
    p: Floats,
    q: Floats,
    tokens: Integers,
    starts: Integers,
    is_sorted: NDArray[np.bool_],
    groups: int,
    ends: Floats,
    opened: Floats,
    power: Floats,
    ks: Integers,
    values: Floats,
) -> bool:
    """Fill α*_k = 1 − max_C [(1 − C)^k + Q(Tᶜ) − 1]⁺ over the prefixes Tᶜ of mass C (`otm.drafts.iid_cut`); False without room.

    Group by group: within one the sum is bounded as within a bin (docs/theory.md, "Without a sort"), and few need a look inside.
    """
    at, reached = -1, 0
    for b in range(groups + 1):
        power[0, b] = 1.0
    for i, k in enumerate(ks):
        if k <= _LARGEST_MULTIPLIED_POWER:
            _multiply(power[0, : groups + 1], ends[0, : groups + 1], k - reached)
            reached = k
        else:
            for b in range(groups + 1):
                power[0, b] = _contained(ends[0, b], k)
        worst = 1.0
        for b in range(groups + 1):
            worst = max(worst, power[0, b] + ends[1, b])
        best = worst
        for b in range(groups):
            mass = ends[0, b + 1] - ends[0, b]
            # Without draft mass an end is best; its ratio times 0 would be NaN, which is not above either.
            power[1, b] = min(
                power[0, b + 1] + ends[1, b] + ends[2, b] * mass, power[0, b] + ends[1, b + 1] - ends[3, b] * mass
            )
        for b in range(groups):
            if not power[1, b] > best + _NEGLIGIBLE or ends[2, b] == ends[3, b]:
                continue  # of equal ratios an end is best
            if b != at:
                if _open(p, q, tokens, starts, is_sorted, b, ends, opened) < 0:
                    return False
                at = b
            for j in range(starts[b + 1] - starts[b]):
                worst = max(worst, _contained(opened[2, j], k) + opened[3, j])
        values[i] = 1.0 - min(worst - 1.0, 1.0)
    return True


@_part()
def _clear(table: Floats) -> None:
    """Fill with 0; an assignment to a slice compiles what it could complain with, a second's work."""
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            table[i, j] = 0.0


@compile_once(types.float64(types.float64, types.int64))
def _accept(beta: float, k: int) -> float:
    """Return 1 − (1 − β)^k with full relative accuracy for small β."""
    return -math.expm1(k * math.log1p(-min(max(beta, 0.0), 1.0)))


@_part()
def _stops(ratio: float, inside: float, outside: float, k: int) -> bool:
    """Whether γβ ≥ p_acc does not hold any more at γ = ratio, or γ ≤ 1; NaN (∞·0) goes on."""
    return bool(ratio <= 1.0 or ratio * inside + outside - _accept(inside + outside / ratio, k) <= 0)


@_part()
def _kseq(
    p: Floats,
    q: Floats,
    tokens: Integers,
    starts: Integers,
    is_sorted: NDArray[np.bool_],
    groups: int,
    ends: Floats,
    opened: Floats,
    k: int,
) -> float:
    """Return the acceptance at γ*, found in the segment r_{j+1} ≤ γ* ≤ r_j by `otm.verifiers.kseq`'s steps; NaN without room."""
    whole = ends[1, groups]
    low, high = 0, groups
    while low < high:  # the groups whose tokens all have γβ < p_acc at their own ratio
        b = (low + high) // 2
        stops = _stops(ends[3, b], ends[0, b + 1], whole - ends[1, b + 1], k)
        low, high = (low, b) if stops else (b + 1, high)
    group, inside, outside = low, ends[0, low], whole - ends[1, low]
    left, right = 1.0, ends[3, low - 1] if low > 0 else 0.0
    if group < groups and ends[2, group] == ends[3, group]:
        left = max(ends[2, group], 1.0)
    elif group < groups:
        n = _open(p, q, tokens, starts, is_sorted, group, ends, opened)
        if n < 0:
            return np.nan
        low, high = 0, n
        while low < high:
            j = (low + high) // 2
            stops = _stops(opened[1, j] / opened[0, j], opened[2, j], whole - opened[3, j], k)
            low, high = (low, j) if stops else (j + 1, high)
        if low > 0:
            inside, outside, right = opened[2, low - 1], whole - opened[3, low - 1], opened[1, low - 1] / opened[0, low - 1]
        if low < n:
            left = max(opened[1, low] / opened[0, low], 1.0)
        elif group + 1 < groups:
            left = max(ends[2, group + 1], 1.0)
    right = max(left, min(right, float(k)))
    gamma = _solve_between(left, right, inside, outside, k)
    return _accept(inside + outside / gamma, k)


@_part()
def _solve_between(left: float, right: float, inside: float, outside: float, k: int) -> float:
    """Return the root of γβ − p_acc, β = A + B/γ: Newton's steps inside the bracket, then bisection."""
    if inside == 0.0 and outside == 0.0:
        return left  # disjoint supports: every γ solves it
    gamma = 0.5 * (left + right)
    for step in range(_NEWTON_STEPS + _BISECTIONS):
        beta = inside + outside / gamma
        value = gamma * inside + outside - _accept(beta, k)
        if abs(value) <= _SETTLED:
            break  # p_acc(γ) lies between p_acc(γ*) and γβ(γ) = p_acc(γ) + value: it is that close
        if value < 0:
            left = gamma
        else:
            right = gamma
        middle = 0.5 * (left + right)
        if step < _NEWTON_STEPS:
            slope = inside + k * min(max(1.0 - beta, 0.0), 1.0) ** (k - 1.0) * outside / gamma**2
            guess = gamma - value / slope
            if left <= guess <= right:
                middle = guess
        settled = abs(middle - gamma) <= _SETTLED * gamma
        gamma = middle
        if settled:
            break
    return gamma


@compile_once(types.float64(_ROW, _ROW, types.int64[::1], types.int64[::1], types.int64, types.float64[:, ::1], types.float64))
def _excess(p: Floats, q: Floats, tokens: Integers, starts: Integers, groups: int, ends: Floats, level: float) -> float:
    """Return Σ (q − t p)₊: Q − t P of the groups with q > t p, and term by term in the group where that ends."""
    low, high = 0, groups
    while low < high:
        b = (low + high) // 2
        low, high = (b + 1, high) if ends[2, b] > level else (low, b)
    if low == 0:
        return 0.0
    excess = 0.0
    for start in range(starts[low - 1], starts[low], _BLOCK):
        part = 0.0
        for j in range(start, min(start + _BLOCK, starts[low])):
            i = np.uint64(tokens[j])
            part += max(q[i] - level * p[i], 0.0)
        excess += part
    return float(max(ends[1, low - 1] - level * ends[0, low - 1] + excess, 0.0))


@_part()
def _recursive_rejection(
    p: Floats, q: Floats, tokens: Integers, starts: Integers, groups: int, ends: Floats, ks: Integers, values: Floats
) -> None:
    """Fill 1 − m_k from m_i = Σ (q − (m_0 + … + m_{i−1}) p)₊ (`otm.verifiers.recursive_rejection.rejection_levels`)."""
    rejected, used, drawn = 1.0, 0.0, 0
    for i, k in enumerate(ks):
        while drawn < k:
            used += rejected
            rejected = min(_excess(p, q, tokens, starts, groups, ends, used), rejected)
            drawn += 1
        values[i] = 1.0 - rejected


@_part(_FAST)
def _logarithm(mass: float) -> float:
    """Return log x of a normal number.

    With 2^e m = x and m in [√½, √2), log x = e log 2 + t (1 − t/2 + …) at t = m − 1: no division and no table, so that loops are
    vectorised. Accuracy: 2 u relatively, as numbers near 1 have no e log 2.
    """
    shifted = _bits(mass) - _ROOT_HALF
    t = _number((shifted & _MANTISSA) + _ROOT_HALF) - 1.0
    t2 = t * t
    t4 = t2 * t2
    low = (_LOG[0] + _LOG[1] * t + t2 * (_LOG[2] + _LOG[3] * t)) + t4 * (_LOG[4] + _LOG[5] * t + t2 * (_LOG[6] + _LOG[7] * t))
    middle = (_LOG[8] + _LOG[9] * t + t2 * (_LOG[10] + _LOG[11] * t)) + t4 * (
        _LOG[12] + _LOG[13] * t + t2 * (_LOG[14] + _LOG[15] * t)
    )
    high = _LOG[16] + _LOG[17] * t + t2 * (_LOG[18] + _LOG[19] * t)
    t8 = t4 * t4
    log: float = float(shifted >> 52) * _LOG_2 + t * (low + t8 * (middle + t8 * high))
    return log


@_part(_FAST)
def _add_entropies(p: Floats, q: Floats, log_of_p: Floats, log_of_q: Floats, described: Floats) -> None:
    """Add a block to entropies and both relative entropies, in nats; logarithms are taken of `log_of_p` and `log_of_q`."""
    draft_entropy = target_entropy = forward = backward = 0.0
    for j in range(_BLOCK):
        log_p, log_q = _logarithm(log_of_p[j]), _logarithm(log_of_q[j])
        difference = log_q - log_p
        draft_entropy -= p[j] * log_p
        target_entropy -= q[j] * log_q
        forward += q[j] * difference - (q[j] - p[j])  # term by term non-negative, as in otm.divergences.kl_divergence
        backward += (q[j] - p[j]) - p[j] * difference
    described[_DRAFT_ENTROPY] += draft_entropy
    described[_TARGET_ENTROPY] += target_entropy
    described[_KL_TARGET_DRAFT] += forward
    described[_KL_DRAFT_TARGET] += backward


@_part(_FAST)
def _add_masses(p: Floats, q: Floats, excess: Floats, sums: Floats) -> float:
    """Fill a block's sums and (q − p)₊, and return its Σ |q − p|/2."""
    distance = whole_p = whole_q = overlap = same = squared = 0.0
    for j in range(_BLOCK):
        both = min(p[j], q[j])
        excess[j] = q[j] - both
        distance += abs(q[j] - p[j])
        whole_p += p[j]
        whole_q += q[j]
        overlap += both
        same += p[j] * q[j]
        squared += both * both
    sums[_P], sums[_Q], sums[_OVERLAP], sums[_SAME], sums[_SQUARED] = whole_p, whole_q, overlap, same, squared
    return 0.5 * distance


@_part()
def _raise_to_normal(p: Floats, q: Floats, log_of_p: Floats, log_of_q: Floats, described: Floats) -> None:
    """Fill masses with 1 for those whose logarithm `_logarithm` cannot take, and add what that leaves out; of 0 it is nothing."""
    for j in range(_BLOCK):
        log_of_p[j], log_of_q[j] = p[j], q[j]
        if p[j] < _LEAST_NORMAL:
            log_of_p[j] = 1.0
            if p[j] > 0:
                log = math.log(p[j])
                described[_DRAFT_ENTROPY] -= p[j] * log
                described[_KL_TARGET_DRAFT] -= q[j] * log
                described[_KL_DRAFT_TARGET] += p[j] * log
        if q[j] < _LEAST_NORMAL:
            log_of_q[j] = 1.0
            if q[j] > 0:
                log = math.log(q[j])
                described[_TARGET_ENTROPY] -= q[j] * log
                described[_KL_TARGET_DRAFT] += q[j] * log
                described[_KL_DRAFT_TARGET] -= p[j] * log


@_part(_FAST)
def _zeros(p: Floats, q: Floats) -> tuple[int, int, int]:
    """Count the tokens of a block that have target mass only, draft mass only, and neither."""
    alone_q = alone_p = neither = 0
    for j in range(_BLOCK):
        alone_q += (p[j] == 0) & (q[j] > 0)
        alone_p += (q[j] == 0) & (p[j] > 0)
        neither += (q[j] == 0) & (p[j] == 0)
    return alone_p, alone_q, neither


@_part()
def _extremes(x: Floats) -> tuple[float, float]:
    """Return the smallest and the largest mass; read as integers, since a minimum of floats is not vectorised."""
    least, most = _bits(x[0]), _bits(x[0])
    for j in range(_BLOCK):
        least, most = min(least, _bits(x[j])), max(most, _bits(x[j]))
    smallest: float = _number(least)
    largest: float = _number(most)
    return smallest, largest


@_part()
def _pack(p: Floats, q: Floats, start: int, n: int, mask: int, order: Integers) -> None:
    """Fill, for each token of a block, p/q with the token's index in its last bits; without mass it comes last."""
    for j in range(n):
        ratio = _bits(p[j] / q[j]) & _UNSIGNED
        ratio = _NOWHERE if ratio > _INFINITE else min(ratio, _UNLIMITED)
        order[start + j] = (ratio & ~mask) | (start + j)


@_part()
def _spread(p: Floats, q: Floats, groups: int) -> tuple[int, int]:
    """Return which bits of p/q number the groups of a row: (x >> shift) − first, from a sample of the tokens.

    Tokens beyond the sample's range join the first and the last group.
    """
    least, most = _MOST_RATIO, _LEAST_RATIO
    step = max(len(p) // _SAMPLE, 1)
    for i in range(0, len(p), step):
        ratio = _bits(p[i] / q[i]) & _UNSIGNED
        if _LEAST_RATIO <= ratio <= _MOST_RATIO:
            least, most = min(least, ratio), max(most, ratio)
    shift = 0
    while (most >> shift) - (least >> shift) > groups - 3:
        shift += 1
    return int((least >> shift) - 1), shift


@_part()
def _place(p: Floats, q: Floats, first: int, shift: int, place: NDArray[np.int16], bins: Floats) -> None:
    """Fill each token's group and add it up: its masses and a one."""
    last = len(bins) - 1
    for j in range(len(place)):  # 0/0 may go anywhere
        place[j] = min(max((_bits(p[j] / q[j]) >> shift) - first, 0), last)
    for j in range(len(place)):
        into = bins[place[j]]
        into[0] += p[j]
        into[1] += q[j]
        into[2] += 1.0


@compile_once(
    types.int64(
        *(_ROW, _ROW, types.int16[::1], types.float64[:, ::1], types.int64, types.int64),
        *(types.int64[::1], types.int64[::1], types.boolean[::1], types.float64[:, ::1], types.int64[::1]),
    )
)
def _gather(
    p: Floats,
    q: Floats,
    place: NDArray[np.int16],
    bins: Floats,
    first: int,
    shift: int,
    tokens: Integers,
    starts: Integers,
    is_sorted: NDArray[np.bool_],
    ends: Floats,
    after_last: Integers,
) -> int:
    """List a row's tokens group by group, and fill the groups' ends: masses up to them, largest and smallest ratio.

    Returns:
        How many groups hold tokens.
    """
    groups = start = 0
    for b in range(len(bins)):
        after_last[b] = start
        start += int(bins[b, 2])
        if bins[b, 2] > 0:
            starts[groups] = after_last[b]
            groups += 1
    starts[groups] = start
    for i in range(len(place)):
        of = np.uint64(place[i])
        tokens[np.uint64(after_last[of])] = i
        after_last[of] += 1
    ends[0, 0] = ends[1, 0] = 0.0
    g = 0
    before, before_of_target, rest, rest_of_target = 0.0, 0.0, 0.0, 0.0
    for b in range(len(bins)):
        if not bins[b, 2] > 0:
            continue
        mass, target = bins[b, 0], bins[b, 1]
        # p/q lies between these bits of it
        most = _BEYOND / _number((first + b) << shift) if b > 0 else np.inf
        least = _INSIDE / _number((first + b + 1) << shift) if b < len(bins) - 1 else 0.0
        is_sorted[g] = starts[g + 1] - starts[g] == 1
        if starts[g + 1] - starts[g] > _MANY:
            mass = target = 0.0
            lowest, highest = np.inf, 0.0
            for at in range(starts[g], starts[g + 1], _BLOCK):
                part = part_of_target = 0.0
                for j in range(at, min(at + _BLOCK, starts[g + 1])):
                    i = tokens[j]
                    part += p[i]
                    part_of_target += q[i]
                    ratio = q[i] / p[i]
                    if p[i] > 0 or q[i] > 0:
                        lowest, highest = min(lowest, ratio), max(highest, ratio)
                mass += part
                target += part_of_target
            is_sorted[g] = lowest >= highest * _ALIKE
            most, least = highest, highest if is_sorted[g] else lowest
        after, after_of_target = before + mass, before_of_target + target
        rest += (before - after) + mass
        rest_of_target += (before_of_target - after_of_target) + target
        before, before_of_target = after, after_of_target
        g += 1
        ends[0, g], ends[1, g], ends[2, g - 1], ends[3, g - 1] = before + rest, before_of_target + rest_of_target, most, least
    return groups


@_part(_FAST)
def _above(p: Floats, q: Floats, threshold: float) -> float:
    """Return the Σ p (1 − q) of a block's tokens with q above the threshold."""
    kept = 0.0
    for j in range(len(p)):
        kept += p[j] * (1.0 - q[j]) if q[j] > threshold else 0.0
    return kept


@_part(_FAST)
def _add_powers(p: Floats, q: Floats, excess: Floats, power: Floats, ks: Integers, per_k: Floats) -> None:
    """Add a block's Σ (q − p)₊ (1 − p)^{k−1} and Σ q (1 − p)^k."""
    for j in range(_BLOCK):
        power[j] = 1.0
    reached = 0
    for i, k in enumerate(ks):
        _multiply(power, p, k - 1 - reached)
        missed = missed_excess = 0.0
        for j in range(_BLOCK):
            missed_excess += excess[j] * power[j]
            power[j] *= max(1.0 - p[j], 0.0)
            missed += q[j] * power[j]
        reached = k
        per_k[_NAIVE_TREE, i] += missed_excess
        per_k[_NAIVE, i] += missed


@_part(_FAST)
def _naive(whole: float, overlap: float, moments: Floats, ks: Integers, per_k: Floats) -> None:
    """Fill what depends on Pr(token x is not among k draws): naive tree (k − 1 draws, then one more) and naive.

    What is missed of tokens with large p is there already; of the others the moments Σ q p^n and Σ (q − p)₊ p^n are, and
    (1 − p)^k = Σ_n C(k, n) (−p)^n.
    """
    surplus = whole - overlap
    for i, k in enumerate(ks):
        missed, missed_excess = per_k[_NAIVE, i], per_k[_NAIVE_TREE, i]
        chosen = chosen_before = 1.0  # C(k, n) (−1)^n and C(k − 1, n) (−1)^n
        for n in range(_TERMS):
            missed += chosen * moments[0, n]
            missed_excess += chosen_before * moments[1, n]
            chosen *= -(k - n) / (n + 1.0)
            chosen_before *= -(k - 1.0 - n) / (n + 1.0)
        per_k[_NAIVE, i] = whole - missed
        per_k[_NAIVE_TREE, i] = overlap + surplus - missed_excess if k > 1 else overlap


@_part(_FAST)
def _add_few_moments(q: Floats, excess: Floats, p: Floats, moments: Floats) -> None:
    """Add Σ q p^n and Σ (q − p)₊ p^n for the first `_FEWER_TERMS` n."""
    q0 = q1 = q2 = q3 = q4 = e0 = e1 = e2 = e3 = e4 = 0.0
    for j in range(_BLOCK):
        square = p[j] * p[j]
        first, second = q[j] * p[j], excess[j] * p[j]
        q0 += q[j]
        q1 += first
        q2 += q[j] * square
        q3 += first * square
        q4 += q[j] * square * square
        e0 += excess[j]
        e1 += second
        e2 += excess[j] * square
        e3 += second * square
        e4 += excess[j] * square * square
    for n, value in enumerate((q0, q1, q2, q3, q4)):
        moments[0, n] += value
    for n, value in enumerate((e0, e1, e2, e3, e4)):
        moments[1, n] += value


@_part(_FAST)
def _add_moments(weight: Floats, x: Floats, moments: Floats) -> None:
    """Add Σ w x^n for each n."""
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = m8 = 0.0
    for j in range(_BLOCK):
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


@_part(_FAST)
def _multiply(power: Floats, taken: Floats, times: int) -> None:
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


@_part()
def _races(
    p: Floats,
    q: Floats,
    tokens: Integers,
    starts: Integers,
    is_sorted: NDArray[np.bool_],
    ends: Floats,
    whole_p: float,
    ks: Integers,
    opened: Floats,
    work: Floats,
    moments: Floats,
    per_k: Floats,
) -> tuple[float, bool]:
    """Fill the masses at the blocks' ends, list races, Σ q k h/(1 + (k − 1) h), and the Poisson bound, 1 − Σ q (1 − h)^k.

    h = Pr(the draft race is won by this token | the target's is), see `otm.races`, rises along the order. On a stretch of it
    where h = c (1 + y), |y| ≤ 1/64, both are power series in y, whose weights are the moments Σ q y^n: of 1/(1 + ρ y), ρ ≤ 1, and
    of (1 − h)^k, at most 1 in size for |y| ≤ 1, so that its coefficients are at most 1.

    Returns:
        The race, Σ q h, and whether two tokens stand in the wrong order.
    """
    _clear(moments)
    for i in range(len(ks)):
        per_k[_LIST_RACE, i] = per_k[_POISSON, i] = 0.0
    race = centre = 0.0
    swapped = 0
    ends[0, 0] = ends[1, 0] = 0.0
    blocks = (len(tokens) + _BLOCK - 1) // _BLOCK
    last_p, last_q = 0.0, 0.0
    for b in range(blocks):
        n = _open(p, q, tokens, starts, is_sorted, b, ends, opened)
        mass, target, hit, power = opened[0, :_BLOCK], opened[1, :_BLOCK], work[0], work[1]
        for j in range(n, _BLOCK):
            mass[j] = target[j] = opened[2, j] = opened[3, j] = 0.0
        ends[0, b + 1], ends[1, b + 1] = opened[2, n - 1], opened[3, n - 1]
        ends[2, b], ends[3, b] = target[0] / mass[0], target[n - 1] / mass[n - 1]
        swapped += target[0] * last_p > last_q * mass[0] * _OUT_OF_ORDER + _IMMATERIAL
        last_p, last_q = mass[n - 1], target[n - 1]
        swapped += _match(mass, target, opened[2], opened[3], whole_p, hit)
        race += _dot(target, hit)
        least, most = hit[0], hit[n - 1]
        if not most <= (1.0 + _NARROW) * centre:
            _close_stretch(moments, centre, ks, per_k)
            centre = min(least / (1.0 - _NARROW), 1.0)
        if 0.0 < most <= (1.0 + _NARROW) * centre:
            for j in range(_BLOCK):
                power[j] = (hit[j] - centre) / centre
            _add_moments(target, power, moments[0])
        else:
            centre = 0.0
            _add_races(target, hit, power, ks, per_k)
    _close_stretch(moments, centre, ks, per_k)
    for i, k in enumerate(ks):
        per_k[_LIST_RACE, i] *= k
        per_k[_POISSON, i] = ends[1, blocks] - per_k[_POISSON, i]
    return race, swapped > 0


@_part()
def _match(p: Floats, q: Floats, above_p: Floats, above_q: Floats, whole_p: float, hit: Floats) -> int:
    """Fill h = p/(q P(tokens with smaller ratio) + p Q(tokens with at least this ratio)); count swapped neighbours."""
    swapped = 0
    for j in range(_BLOCK):
        h = p[j] / (q[j] * (whole_p - above_p[j]) + p[j] * above_q[j])
        # NaN, 0/0, is p subnormal or 0 under a zero prefix: the probability is at most p
        hit[j] = h if h == h else 0.0
        before = max(j - 1, 0)
        swapped += q[j] * p[before] > q[before] * p[j] * _OUT_OF_ORDER + _IMMATERIAL
    return swapped


@_part(_FAST)
def _dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for j in range(_BLOCK):
        total += x[j] * y[j]
    return total


@_part()
def _missed(moments: Floats, powers: Floats, centre: float, k: int) -> float:
    """Return Σ q (1 − h)^k = Σ_n C(k, n) (−c)^n (1 − c)^{k−n} Σ q y^n."""
    terms, rest = min(k, _TERMS - 1), max(1.0 - centre, 0.0)
    power = _integer_power(rest, k - terms) if k <= _LARGEST_MULTIPLIED_POWER else math.exp((k - terms) * math.log1p(-centre))
    for n in range(terms, -1, -1):
        powers[n] = power
        power *= rest
    chosen, missed = 1.0, 0.0
    for n in range(terms + 1):
        missed += chosen * powers[n] * moments[n]
        chosen *= -centre * (k - n) / (n + 1.0)
    return missed


@compile_once(types.void(types.float64[:, ::1], types.float64, types.int64[::1], types.float64[:, :]))
def _close_stretch(moments: Floats, centre: float, ks: Integers, per_k: Floats) -> None:
    """Add a stretch's Σ q h/(1 + (k − 1) h) and Σ q (1 − h)^k from its moments, and clear those; centre 0 is no stretch."""
    if centre > 0.0:
        for i, k in enumerate(ks):
            scale = 1.0 + (k - 1.0) * centre
            rho = (k - 1.0) * centre / scale
            series = 0.0
            for m in range(_TERMS - 1, 0, -1):
                series = moments[0, m] - rho * series
            per_k[_LIST_RACE, i] += centre / scale * (moments[0, 0] + (1.0 - rho) * series)
            per_k[_POISSON, i] += _missed(moments[0], moments[1], centre, k)
    _clear(moments)


@_part(_FAST)
def _add_races(q: Floats, hit: Floats, power: Floats, ks: Integers, per_k: Floats) -> None:
    """Add a block's Σ q h/(1 + (k − 1) h) and Σ q (1 − h)^k, token by token."""
    for j in range(_BLOCK):
        power[j] = 1.0
    reached = 0
    for i, k in enumerate(ks):
        _multiply(power, hit, k - 1 - reached)
        together = missed = 0.0
        for j in range(_BLOCK):
            together += q[j] * hit[j] / (1.0 + (k - 1.0) * hit[j])
            power[j] *= max(1.0 - hit[j], 0.0)
            missed += q[j] * power[j]
        reached = k
        per_k[_LIST_RACE, i] += together
        per_k[_POISSON, i] += missed


@_part(_FAST)
def _by_likely_tokens(
    p: Floats,
    q: Floats,
    tokens: Integers,
    starts: Integers,
    groups: int,
    ends: Floats,
    top: Integers,
    rest: Floats,
    ks: Integers,
    per_k: Floats,
) -> None:
    """Fill the schemes that draft the most likely tokens, walking down from the most likely one; ties go to the lowest index.

    Without the first k − 1 the last draft has the law p/P(rest); Σ min(q, p/P(rest)) is H(1/P(rest)) less what those have in it.
    """
    taken, walked = 0.0, 0
    for i, k in enumerate(ks):
        while walked < k - 1:
            taken += q[top[walked]] if p[top[walked]] > 0 else 0.0
            walked += 1
        left, together, same = rest[0, k - 1], 0.0, 0.0
        if left >= _SMALLEST_DIVISOR:
            level = 1.0 / left
            excess = _excess(p, q, tokens, starts, groups, ends, level)
            together = ends[1, groups] - excess
            for j in range(k - 1):
                together -= min(q[top[j]], level * p[top[j]])
            together, same = max(together, 0.0), rest[1, k - 1] / left
        elif left > 0.0:
            least = p[top[k - 1]]
            for j in range(len(p)):
                if p[j] < least or (p[j] == least and j >= top[k - 1]):
                    last_draft = p[j] / left  # not by 1/left, which overflows where left is subnormal
                    together += min(q[j], last_draft)
                    same += q[j] * last_draft
        per_k[_GREEDY_OPTIMAL, i] = taken + together
        per_k[_NAIVE_GREEDY, i] = taken + same
        per_k[_TOP_K, i] = taken + (q[top[k - 1]] if p[top[k - 1]] > 0 else 0.0)


@_part()
def _likeliest(p: Floats, most: Floats, top: Integers, mass: Floats) -> float:
    """Fill the most likely tokens in order, the lowest index first among equals, by insertion: few tokens get that far.

    `most` holds the largest mass of each block, `mass` is overwritten. Returns the least of the most likely tokens' masses.
    """
    count, filled = len(top), 0
    for start in range(0, len(p), _BLOCK):
        if filled == count and most[start // _BLOCK] <= mass[count - 1]:
            continue
        for i in range(start, min(start + _BLOCK, len(p))):
            if filled == count and p[i] <= mass[count - 1]:
                continue
            at = filled if filled < count else count - 1
            while at > 0 and mass[at - 1] < p[i]:
                mass[at], top[at] = mass[at - 1], top[at - 1]
                at -= 1
            mass[at], top[at] = p[i], i
            filled = min(filled + 1, count)
    return float(mass[count - 1])


@_part(_FAST)
def _without_likeliest(p: Floats, q: Floats, start: int, top: Integers, in_top: NDArray[np.bool_], sums: Floats) -> None:
    """Replace a block's Σ p and Σ p q by those without the most likely tokens: less them is what rounding has left of them."""
    for j in range(len(p)):
        in_top[j] = False
    for token in top:
        if start <= token < start + len(p):
            in_top[token - start] = True
    mass = same = 0.0
    for j in range(len(p)):
        mass += 0.0 if in_top[j] else p[j]
        same += 0.0 if in_top[j] else p[j] * q[j]
    sums[_P], sums[_SAME] = mass, same


@_part()
def _curvature(x: float) -> float:
    """Return ½ [(1 + x) log(1 + x) + (1 − x) log(1 − x)], which with x = (p − q)/(p + q) and weight (p + q)/2 sums to JS(p, q)."""
    rising = (1.0 + x) * math.log1p(x) if x > -1.0 else 0.0
    return 0.5 * (rising + ((1.0 - x) * math.log1p(-x) if x < 1.0 else 0.0))


@_part()
def _is_closer(ends: Floats, groups: int, gate: float, tv: float) -> int:
    """Say whether the Jensen–Shannon divergence is at most `gate`, 1, or not, 0; −1 if the groups' masses leave it open.

    It is at most TV log 2. In a few groups at once it is at least what their masses have (Jensen) and, being convex, at most the
    chord between their ends (docs/theory.md, "The gate of Fuzzy without logarithms").
    """
    if tv * math.log(2.0) < gate - _UNDECIDED:
        return 1
    lower = upper = 0.0
    step = max(groups // _FEW, 1)
    for b in range(0, groups, step):
        last = min(b + step, groups)
        p, q = ends[0, last] - ends[0, b], ends[1, last] - ends[1, b]
        if not p + q > 0:
            continue
        x = min(max((p - q) / (p + q), -1.0), 1.0)
        least = (1.0 - ends[2, b]) / (1.0 + ends[2, b]) if ends[2, b] < _LARGEST else -1.0
        most = (1.0 - ends[3, last - 1]) / (1.0 + ends[3, last - 1]) if ends[3, last - 1] < _LARGEST else -1.0
        here = _curvature(x)
        lower += 0.5 * (p + q) * here
        chord = here
        if least < x < most:
            low, high = _curvature(least), _curvature(most)
            chord = low + (high - low) * ((x - least) / (most - least))
        upper += 0.5 * (p + q) * max(chord, here)
    if lower > gate + _UNDECIDED:
        return 0
    return 1 if upper < gate - _UNDECIDED else -1


@_part(_FAST)
def _is_closer_by_logarithms(p: Floats, q: Floats, gate: float, entropies: float) -> bool:
    """Decide the same from H((p + q)/2) − (H(p) + H(q))/2."""
    entropy = 0.0
    for start in range(0, len(p), _BLOCK):
        part = 0.0
        for j in range(start, min(start + _BLOCK, len(p))):
            middle = 0.5 * (p[j] + q[j])
            part -= middle * _logarithm(middle if middle >= _LEAST_NORMAL else 1.0)  # what is left out is below 10⁻³⁰⁰
        entropy += part
    return bool(entropy - 0.5 * entropies <= gate)


_TABLE, _INTEGER_TABLE = types.float64[:, ::1], types.int64[:, ::1]
_SCRATCH = (_TABLE, _TABLE, _TABLE, types.boolean[::1])
_LAID_OUT = (_INTEGER_TABLE, types.int16[:, ::1], types.float64[:, :, ::1])
_RESULTS = (types.float64[:, :, ::1], _TABLE, types.float64[:, :, ::1], _TABLE)


@compile_once(
    types.void(
        *(_ROWS, _ROWS, types.int64[::1], types.float64[::1], types.int64[::1], types.int64, *_LAID_OUT),
        *(types.int64[::1], _TABLE, _INTEGER_TABLE, *_RESULTS, *_SCRATCH),
    ),
    fastmath=_FAST,
)
def _read(
    p: Floats,
    q: Floats,
    ks: Integers,
    lossy: Floats,
    needs: Integers,
    bits: int,
    order: Integers,
    place: NDArray[np.int16],
    bins: Floats,
    live: Integers,
    kept: Floats,
    top: Integers,
    rest: Floats,
    described: Floats,
    per_k: Floats,
    single: Floats,
    work: Floats,
    moments: Floats,
    parts: Floats,
    in_top: NDArray[np.bool_],
) -> None:
    """Fill what needs no order: sums, descriptions, the schemes of one draft, naive, naive tree, the most likely tokens.

    In passing the tokens are packed for a sort, or put into groups, `bins` starting at 0.
    """
    width = p.shape[1]
    blocks = (width + _BLOCK - 1) // _BLOCK
    sums = work[6]
    mask, way, with_logarithms, with_powers = (1 << bits) - 1, needs[0], needs[1] != 0, needs[2] != 0
    for r in range(len(p)):
        _clear(moments)
        alone_p = alone_q = dead = 0
        kept[r, _FIRST] = kept[r, _SHIFT] = 0.0
        if way == _IN_GROUPS:
            first_group, shift = _spread(p[r], q[r], bins.shape[1])
            kept[r, _FIRST], kept[r, _SHIFT] = first_group, shift
        for b in range(blocks):
            first, last = b * _BLOCK, min((b + 1) * _BLOCK, width)
            n = last - first
            block_p, block_q, excess, power = work[0], work[1], work[2], work[3]
            log_of_p, log_of_q = block_p, block_q
            for j in range(n):
                block_p[j], block_q[j] = p[r, first + j], q[r, first + j]
            for j in range(n, _BLOCK):  # tokens without mass: loops of one length are shorter to compile and to run
                block_p[j] = block_q[j] = 0.0
            least_p, parts[_MOST_P, b] = _extremes(block_p)
            least_q, parts[_MOST_Q, b] = _extremes(block_q)
            if not (least_p >= _LEAST_NORMAL and least_q >= _LEAST_NORMAL):
                without_q, without_p, neither = _zeros(block_p, block_q)
                alone_p, alone_q, dead = alone_p + without_q, alone_q + without_p, dead + neither
                log_of_p, log_of_q = work[4], work[5]
                _raise_to_normal(block_p, block_q, log_of_p, log_of_q, described[:, r])
            if way == _IN_ORDER:
                _pack(block_p, block_q, first, n, mask, order[r])
            elif way == _IN_GROUPS:
                _place(block_p, block_q, int(kept[r, _FIRST]), int(kept[r, _SHIFT]), place[r, first:last], bins[r])
            if with_logarithms:
                _add_entropies(block_p, block_q, log_of_p, log_of_q, described[:, r])
            described[_TV, r] += _add_masses(block_p, block_q, excess, parts[:, b])
            drawn = parts[_MOST_P, b] * ks[-1]
            if not with_powers:
                continue
            if drawn <= _LIGHTER:
                _add_few_moments(block_q, excess, block_p, moments)
            elif drawn <= _LIGHT:
                for weight in range(2):  # q, and what q exceeds p by; one loop in the code
                    _add_moments(work[1 + weight], block_p, moments[weight])
            else:
                _add_powers(block_p, block_q, excess, power, ks, per_k[:, :, r])
        live[r] = blocks * _BLOCK - dead
        for i in range(_NUM_SUMS):
            sums[i] = 0.0
            for b in range(blocks):
                sums[i] += parts[i, b]
        kept[r, _WHOLE_P], kept[r, _WHOLE_Q] = sums[_P], sums[_Q]
        forward, backward = max(described[_KL_TARGET_DRAFT, r], 0.0), max(described[_KL_DRAFT_TARGET, r], 0.0)
        described[_KL_TARGET_DRAFT, r] = np.inf if alone_q > 0 else forward
        described[_KL_DRAFT_TARGET, r] = np.inf if alone_p > 0 else backward
        tv = described[_TV, r]
        single[_MAXIMAL, r] = sums[_OVERLAP]
        # Σ |p − q| min(p, q) = Σ p q − Σ min(p, q)²
        single[_MINHASH, r] = (sums[_OVERLAP] + sums[_SAME] - sums[_SQUARED]) / (1.0 + tv)
        single[_MINHASH_RULE, r] = sums[_OVERLAP] / (1.0 + tv)
        single[_FUZZY, r] = sums[_SAME]  # until the gate is known
        _naive(sums[_Q], sums[_OVERLAP], moments, ks, per_k[:, :, r])
        least = _likeliest(p[r], parts[_MOST_P], top[r], rest[r, 0])
        threshold = min(lossy[1] * math.exp(-described[_TARGET_ENTROPY, r]), lossy[2])
        accepted = 0.0
        for b in range(blocks):
            first, last = b * _BLOCK, min((b + 1) * _BLOCK, width)
            if parts[_MOST_Q, b] > threshold:
                accepted += _above(p[r, first:last], q[r, first:last], threshold)
            if parts[_MOST_P, b] >= least:  # some of the most likely tokens may be here
                _without_likeliest(p[r, first:last], q[r, first:last], first, top[r], in_top, parts[:, b])
        single[_TYPICAL, r] = accepted + sums[_SAME]
        # Σ p and Σ p q without the first so many
        count = len(top[r])
        rest[r, 0, count], rest[r, 1, count] = 0.0, 0.0
        for b in range(blocks):
            rest[r, 0, count] += parts[_P, b]
            rest[r, 1, count] += parts[_SAME, b]
        for i in range(count - 1, -1, -1):
            mass, target = p[r, top[r, i]], q[r, top[r, i]]
            rest[r, 0, i], rest[r, 1, i] = rest[r, 0, i + 1] + mass, rest[r, 1, i + 1] + mass * target


@compile_once(
    types.void(
        *(
            _ROWS,
            _ROWS,
            types.int64[::1],
            *_LAID_OUT,
            types.int64[::1],
            types.int64,
            types.int64[::1],
            types.float64[::1],
            _TABLE,
        ),
        *(_INTEGER_TABLE, *_RESULTS, types.boolean[::1], *_SCRATCH, _TABLE, _INTEGER_TABLE),
    ),
    fastmath=_FAST,
)
def _values(
    p: Floats,
    q: Floats,
    needs: Integers,
    order: Integers,
    place: NDArray[np.int16],
    bins: Floats,
    live: Integers,
    bits: int,
    ks: Integers,
    lossy: Floats,
    kept: Floats,
    top: Integers,
    rest: Floats,
    described: Floats,
    per_k: Floats,
    single: Floats,
    wrong: NDArray[np.bool_],
    work: Floats,
    moments: Floats,
    ends: Floats,
    is_sorted: NDArray[np.bool_],
    opened: Floats,
    whole: Integers,
) -> None:
    """Fill the columns that take the tokens in descending order of q/p, or in groups that are; without ranks the races are left.

    A row is wrong, and to be put in order again, if the index took bits that were needed to tell two ratios apart, or if the order
    inside a group matters that is too long.
    """
    way, with_logarithms = needs[0], needs[1] != 0
    starts, after_last, power, mask = whole[0], whole[1], ends[4:], (1 << bits) - 1
    for r in range(len(p)):
        is_wrong = False
        if way == _IN_GROUPS:
            tokens = order[r]
            first, shift = int(kept[r, _FIRST]), int(kept[r, _SHIFT])
            groups = _gather(p[r], q[r], place[r], bins[r], first, shift, tokens, starts, is_sorted, ends, after_last)
        else:
            tokens = order[r, : live[r]]
            for j in range(len(tokens)):
                tokens[j] &= mask
            groups = (len(tokens) + _BLOCK - 1) // _BLOCK
            for b in range(groups):
                starts[b], is_sorted[b] = b * _BLOCK, True
            starts[groups] = len(tokens)
            single[_RACE, r], is_wrong = _races(
                p[r], q[r], tokens, starts, is_sorted, ends, kept[r, _WHOLE_P], ks, opened, work, moments, per_k[:, :, r]
            )
        has_room = _optima(p[r], q[r], tokens, starts, is_sorted, groups, ends, opened, power, ks, per_k[_OPTIMUM, :, r])
        for i, k in enumerate(ks):
            value = _kseq(p[r], q[r], tokens, starts, is_sorted, groups, ends, opened, k)
            per_k[_KSEQ, i, r], has_room = value, has_room and value == value
        wrong[r] = is_wrong or not has_room
        _recursive_rejection(p[r], q[r], tokens, starts, groups, ends, ks, per_k[_RECURSIVE, :, r])
        lenience = lossy[0]
        excess = _excess(p[r], q[r], tokens, starts, groups, ends, lenience)
        single[_LENIENCE, r] = (kept[r, _WHOLE_Q] - excess) / lenience  # Σ min(p, q/l)
        _by_likely_tokens(p[r], q[r], tokens, starts, groups, ends, top[r], rest[r], ks, per_k[:, :, r])
        closer = _is_closer(ends, groups, lossy[3], described[_TV, r])
        if closer < 0 and with_logarithms:
            entropies = described[_DRAFT_ENTROPY, r] + described[_TARGET_ENTROPY, r]
            closer = _is_closer_by_logarithms(p[r], q[r], lossy[3], entropies)
        if closer > 0:
            single[_FUZZY, r] = 1.0
