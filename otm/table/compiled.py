"""What `otm.table` computes, compiled, one row at a time: the host's way where numba is installed.

The formulas are those of `otm.table.arrays`, which serves devices and hosts without numba, and which the tests hold this module
against. On a host that way is bound by calls: hundreds of NumPy operations on arrays of a tenth of a millisecond each, between
which threads wait for the interpreter. Here the interpreter is left alone, so that threads add up, and a row is read three times:

* once for its descriptions and once for all that needs no order, block by block in the first cache. Powers (1 − p)^k of small p are
  series in p, so that all k share the moments Σ q p^n;
* once along the order of q/p, after a sort of the tokens with mass, which stays NumPy's, because that is vectorised. The races need
  it: their terms depend on every token's rank. On a stretch of the order where the match probability h = c (1 + y) hardly changes
  all k share the moments Σ q y^n.

The optimum looks into the few blocks of the order that can hold it, K-SEQ, recursive rejection, lenience and the greedy optimum
search it.

Floating-point sums may be reordered (`reassoc`) and fused (`contract`), nothing else: infinities and NaN are meant and kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from otm._arrays import quiet
from otm._numba import Function, compile_once
from otm.errors import ShapeMismatch
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

DESCRIBED = ("draft_entropy", "target_entropy", "tv", "kl_target_draft", "kl_draft_target")

_DRAFT_ENTROPY = DESCRIBED.index("draft_entropy")
_TARGET_ENTROPY = DESCRIBED.index("target_entropy")
_TV = DESCRIBED.index("tv")
_KL_TARGET_DRAFT = DESCRIBED.index("kl_target_draft")
_KL_DRAFT_TARGET = DESCRIBED.index("kl_draft_target")

# Sums over the tokens of a row that need no order, Σ p to Σ p q without the most likely ones, as `_without_order` leaves them.
_NUM_SUMS = 10
_P, _Q, _OVERLAP, _SAME, _SQUARED, _KEPT, _SERIES, _SERIES_REST, _REST, _REST_SAME = range(_NUM_SUMS)

_FAST = frozenset({"reassoc", "contract", "nsz"})
_LEAST = -1.7976931348623157e308  # what −∞ is taken for, so that 0 times it is 0
_LARGEST_FINITE = np.int64(0x7FEFFFFFFFFFFFFF)
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
_NEGLIGIBLE = 2.0**-56  # a bound that exceeds the best value known by less is rounding
_SMALLEST_DIVISOR = 1e-290
_NEWTON_STEPS, _BISECTIONS, _SETTLED = 16, 60, 2.0**-52
_UNDECIDED = 1e-9  # far beyond the rounding of a divergence, far below what a row usually leaves between it and the threshold


def _part(fast: frozenset[str] = frozenset()) -> Callable[[Function], Function]:
    """Compile what entries are made of, always into their code.

    A function that is called has two compiled forms, one of its own and one within its caller's library. A process that compiles
    runs the first and one that loads the library the second, which differ in the last bits.
    """

    def compiled(function: Function) -> Function:
        return cast(Function, njit(forceinline=True, error_model="numpy", fastmath=set(fast))(function))

    return compiled


def try_out() -> None:
    """Compute one row of one token: what is compiled is loaded or made now."""
    one = np.ones((1, 1))
    chunk_values(one, one, one - one, one - one, [1])


def chunk_values(
    p: Floats, q: Floats, log_p: Floats, log_q: Floats, ks: Sequence[int]
) -> tuple[dict[tuple[str, int], Floats], dict[str, Floats]]:
    """Return every value of a chunk `(rows, V)` and its descriptions; float64, `ks` ascending.

    Logarithms may be anything but NaN where the mass is 0; a NaN makes its row's descriptions NaN.

    Cost: per row one sort of the tokens with mass and some twenty loops, four per k. Accuracy: as `otm.table.arrays`.
    """
    if not p.shape == q.shape == log_p.shape == log_q.shape:  # compiled loops would read what lies beyond
        raise ShapeMismatch(
            f"A chunk's arrays must have one shape; got {[a.shape for a in (p, q, log_p, log_q)]}. Broadcast them."
        )
    p, q, log_p, log_q = (np.require(a, np.float64, ["C", "A"]) for a in (p, q, log_p, log_q))
    rows = len(p)
    described = np.empty((len(DESCRIBED), rows))
    per_k, single = np.empty((len(PER_K), len(ks), rows)), np.empty((len(SINGLE), rows))
    typical = TypicalAcceptance()
    lossy = np.asarray([Lenience().lenience, typical.delta, typical.eps, Fuzzy().threshold])
    with quiet():  # compiled code never warns, but numba may be told not to compile
        _describe(p, q, log_p, log_q, described)
        order, live = descending_ratio_order(p, q)
        _values(p, q, order, live, np.asarray(ks, dtype=np.int64), lossy, described, per_k, single)
    values = {(stem, k): per_k[i, j] for i, stem in enumerate(PER_K) for j, k in enumerate(ks)}
    values |= {(stem, 1): single[i] for i, stem in enumerate(SINGLE)}
    if 2 in ks:
        values["spechub_greedy", 2] = values["greedy_optimal_greedy", 2]
    return values, dict(zip(DESCRIBED, described, strict=True))


def descending_ratio_order(p: Floats, q: Floats) -> tuple[Integers, Integers]:
    """Return each row's tokens with any mass by descending q/p, `(rows, V)`, and their number `(rows,)`; the rest is undefined.

    As in `otm.overlap` the index rides in the last bits of p/q through a plain sort; a row in which those bits were needed to
    tell two ratios apart is sorted again.
    """
    rows, width = p.shape
    bits = (width - 1).bit_length()
    order, live, wrong = np.empty((rows, width), dtype=np.int64), np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.bool_)
    _pack(p, q, bits, order, live)
    # Non-negative finite floats sort as their bits do, and NumPy's sort of floats is the faster one.
    order.view(np.float64)[:, : int(live.max(initial=0))].sort(axis=-1)
    _unpack(p, q, order, live, bits, wrong)
    with quiet():
        for r in np.flatnonzero(wrong):
            tokens = order[r, : live[r]]
            tokens[:] = tokens[np.argsort(p[r, tokens] / q[r, tokens])]
    return order, live


@compile_once(types.void(_ROWS, _ROWS, _ROWS, _ROWS, types.float64[:, ::1]), fastmath=_FAST)
def _describe(p: Floats, q: Floats, log_p: Floats, log_q: Floats, described: Floats) -> None:
    """Fill entropies, total variation and both relative entropies, in nats."""
    for r in range(len(p)):
        draft_entropy = target_entropy = distance = forward = backward = 0.0
        alone_p = alone_q = unknown_p = unknown_q = 0
        for i in range(p.shape[1]):
            unknown_p += log_p[r, i] != log_p[r, i]
            unknown_q += log_q[r, i] != log_q[r, i]
            log_draft = log_p[r, i] if log_p[r, i] > _LEAST else _LEAST
            log_target = log_q[r, i] if log_q[r, i] > _LEAST else _LEAST
            log_draft, log_target = log_draft if log_draft < 0.0 else 0.0, log_target if log_target < 0.0 else 0.0
            draft_entropy -= p[r, i] * log_draft
            target_entropy -= q[r, i] * log_target
            excess, difference = q[r, i] - p[r, i], log_target - log_draft
            distance += abs(excess)
            forward += q[r, i] * difference - excess  # term by term non-negative, as in otm.divergences.kl_divergence
            backward += excess - p[r, i] * difference
            alone_q += (p[r, i] == 0) & (q[r, i] > 0)
            alone_p += (q[r, i] == 0) & (p[r, i] > 0)
        described[_DRAFT_ENTROPY, r] = np.nan if unknown_p > 0 else draft_entropy
        described[_TARGET_ENTROPY, r] = np.nan if unknown_q > 0 else target_entropy
        described[_TV, r] = 0.5 * distance
        described[_KL_TARGET_DRAFT, r] = np.inf if alone_q > 0 else max(forward, 0.0)
        described[_KL_DRAFT_TARGET, r] = np.inf if alone_p > 0 else max(backward, 0.0)


@compile_once(types.void(_ROWS, _ROWS, types.int64, types.int64[:, ::1], types.int64[::1]))
def _pack(p: Floats, q: Floats, bits: int, packed: Integers, live: Integers) -> None:
    """Fill, for each token with any mass, p/q with the token's index in its last bits; what is left sorts last."""
    width = p.shape[1]
    mask = (np.int64(1) << bits) - 1
    for r in range(len(p)):
        ratio = packed[r].view(np.float64)
        count = 0
        for i in range(width):
            count += p[r, i] + q[r, i] > 0
            ratio[i] = p[r, i] / q[r, i]
        live[r] = count
        if count == width:  # this loop is vectorised, the other cannot be
            for i in range(width):
                packed[r, i] = (min(packed[r, i], _LARGEST_FINITE) & ~mask) | i
        else:
            n = 0
            for i in range(width):
                if p[r, i] + q[r, i] > 0:
                    packed[r, n] = (min(packed[r, i], _LARGEST_FINITE) & ~mask) | i
                    n += 1
            packed[r, n:] = _LARGEST_FINITE


@compile_once(types.void(_ROWS, _ROWS, types.int64[:, ::1], types.int64[::1], types.int64, types.boolean[::1]))
def _unpack(p: Floats, q: Floats, packed: Integers, live: Integers, bits: int, wrong: NDArray[np.bool_]) -> None:
    """Leave the sorted tokens' indices, and mark rows where the bits that these took were needed to tell two ratios apart."""
    mask = (np.int64(1) << bits) - 1
    for r in range(len(live)):
        wrong[r] = False
        for j in range(1, live[r]):
            if packed[r, j] >> bits == packed[r, j - 1] >> bits:
                last, this = packed[r, j - 1] & mask, packed[r, j] & mask
                wrong[r] |= p[r, this] / q[r, this] < p[r, last] / q[r, last]
        for j in range(live[r]):
            packed[r, j] &= mask


@_part()
def _ratio(p: Floats, q: Floats, token: int) -> float:
    return float(q[token] / p[token])


@_part()
def _optima(
    p: Floats, q: Floats, tokens: Integers, above_p: Floats, above_q: Floats, edges: Floats, ks: Integers, values: Floats
) -> None:
    """Fill α*_k = 1 − max_C [(1 − C)^k + Q(Tᶜ) − 1]⁺ over the prefixes Tᶜ of mass C (`otm.drafts.iid_cut`).

    Block by block: within one the sum is bounded as within a bin (docs/theory.md, "Without a sort"), and few need a look inside.
    """
    n = len(tokens)
    blocks = (n + _BLOCK - 1) // _BLOCK
    inside, power, target = edges[0], edges[1], edges[2]
    inside[0], power[0], target[0] = 1.0, 1.0, 0.0
    for b in range(blocks):
        end = min((b + 1) * _BLOCK, n) - 1
        inside[b + 1], power[b + 1], target[b + 1] = max(1.0 - above_p[end], 0.0), 1.0, above_q[end]
    reached = 0
    for i, k in enumerate(ks):
        worst = 1.0
        for b in range(blocks + 1):
            if k <= _LARGEST_MULTIPLIED_POWER:
                power[b] *= _integer_power(inside[b], k - reached)
            else:
                power[b] = math.exp(k * math.log1p(-min(1.0 - inside[b], 1.0)))
            worst = max(worst, power[b] + target[b])
        reached = k
        best = worst
        for b in range(blocks):
            first, end = b * _BLOCK, min((b + 1) * _BLOCK, n)
            mass = above_p[end - 1] - (above_p[first - 1] if first > 0 else 0.0)
            high, low = _ratio(p, q, tokens[first]), _ratio(p, q, tokens[end - 1])
            # Without draft mass an end is best; its ratio times 0 would be NaN, which is not above either.
            bound = min(power[b + 1] + target[b] + high * mass, power[b] + target[b + 1] - low * mass)
            if not bound > best + _NEGLIGIBLE:
                continue
            for j in range(first, end):
                if k <= _LARGEST_MULTIPLIED_POWER:
                    worst = max(worst, _integer_power(max(1.0 - above_p[j], 0.0), k) + above_q[j])
                else:
                    worst = max(worst, math.exp(k * math.log1p(-min(above_p[j], 1.0))) + above_q[j])
        values[i] = 1.0 - min(worst - 1.0, 1.0)


@_part()
def _integer_power(base: float, exponent: int) -> float:
    value = 1.0
    while exponent > 0:
        if exponent & 1:
            value *= base
        base *= base
        exponent >>= 1
    return value


@_part()
def _kseq(p: Floats, q: Floats, tokens: Integers, above_p: Floats, above_q: Floats, k: int) -> float:
    """Return the acceptance at γ*, found in the segment r_{j+1} ≤ γ* ≤ r_j by `otm.verifiers.kseq`'s steps."""
    n = len(tokens)
    whole_q = above_q[n - 1]
    low, high = 0, n
    while low < high:  # the first tokens, those with γβ < p_acc at γ = r_j, are to be counted
        middle = (low + high) // 2
        r, inside, outside = _ratio(p, q, tokens[middle]), above_p[middle], whole_q - above_q[middle]
        stops = r <= 1.0 or r * inside + outside - _accept(inside + outside / r, k) <= 0  # NaN (∞·0) goes on
        low, high = (low, middle) if stops else (middle + 1, high)
    inside = above_p[low - 1] if low > 0 else 0.0
    outside = whole_q - above_q[low - 1] if low > 0 else 1.0
    left = max(_ratio(p, q, tokens[low]), 1.0) if low < n else 1.0
    right = max(left, min(_ratio(p, q, tokens[low - 1]), float(k))) if low > 0 else left
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


@_part()
def _accept(beta: float, k: int) -> float:
    """Return 1 − (1 − β)^k with full relative accuracy for small β."""
    return -math.expm1(k * math.log1p(-min(max(beta, 0.0), 1.0)))


@_part()
def _excess(p: Floats, q: Floats, tokens: Integers, above_p: Floats, above_q: Floats, threshold: float) -> float:
    """Return Σ (q − c p)₊: Q − c P of the tokens with q > c p."""
    low, high = 0, len(tokens)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _ratio(p, q, tokens[middle]) > threshold else (low, middle)
    return max(above_q[low - 1] - threshold * above_p[low - 1], 0.0) if low > 0 else 0.0


@_part()
def _recursive_rejection(
    p: Floats, q: Floats, tokens: Integers, above_p: Floats, above_q: Floats, ks: Integers, values: Floats
) -> None:
    """Fill 1 − m_k from m_i = Σ (q − (m_0 + … + m_{i−1}) p)₊ (`otm.verifiers.recursive_rejection.rejection_levels`)."""
    rejected, used, drawn = 1.0, 0.0, 0
    for i, k in enumerate(ks):
        while drawn < k:
            used += rejected
            rejected = min(_excess(p, q, tokens, above_p, above_q, used), rejected)
            drawn += 1
        values[i] = 1.0 - rejected


@_part(_FAST)
def _without_order(
    p: Floats,
    q: Floats,
    top: Integers,
    ks: Integers,
    lossy: Floats,
    described: Floats,
    sums: Floats,
    moments: Floats,
    work: Floats,
    single: Floats,
    per_k: Floats,
) -> None:
    """Fill what needs no order, in one pass, block by block: the schemes of one draft, naive, naive tree, and `sums`."""
    sums[:] = 0.0
    moments[:] = 0.0
    per_k[_NAIVE_TREE], per_k[_NAIVE] = 0.0, 0.0
    threshold = min(lossy[1] * math.exp(-described[_TARGET_ENTROPY]), lossy[2])
    light = _LIGHT / ks[-1]
    last = top[-1]
    for start in range(0, len(p), _BLOCK):
        n = min(_BLOCK, len(p) - start)
        block_p, block_q, excess, power = p[start : start + n], q[start : start + n], work[0, :n], work[1, :n]
        _add_single(block_p, block_q, threshold, excess, sums)
        _add_series(block_p, block_q, sums)
        if _is_below(block_p, light):
            _add_moments(block_q, block_p, moments[0])
            _add_moments(excess, block_p, moments[1])
        else:
            _add_powers(block_p, block_q, excess, power, ks, per_k)
        _add_rest(block_p, block_q, start, last, p[last], sums)
    overlap, same = sums[_OVERLAP], sums[_SAME]
    single[_MAXIMAL] = overlap
    # Σ |p − q| min(p, q) = Σ p q − Σ min(p, q)²
    single[_MINHASH] = (overlap + same - sums[_SQUARED]) / (1.0 + described[_TV])
    single[_MINHASH_RULE] = overlap / (1.0 + described[_TV])
    single[_TYPICAL] = sums[_KEPT] + same
    single[_FUZZY] = 1.0 if _is_closer(p, q, lossy[3], sums, described) else same
    _naive(sums, moments, ks, per_k)


@_part(_FAST)
def _add_single(p: Floats, q: Floats, threshold: float, excess: Floats, sums: Floats) -> None:
    """Add a block to the sums of one draft, and fill (q − p)₊."""
    whole_p = whole_q = overlap = same = squared = kept = 0.0
    for j in range(len(p)):
        both = min(p[j], q[j])
        excess[j] = q[j] - both
        whole_p += p[j]
        whole_q += q[j]
        overlap += both
        same += p[j] * q[j]
        squared += both * both
        kept += p[j] * (1.0 - q[j]) if q[j] > threshold else 0.0
    sums[_P] += whole_p
    sums[_Q] += whole_q
    sums[_OVERLAP] += overlap
    sums[_SAME] += same
    sums[_SQUARED] += squared
    sums[_KEPT] += kept


@_part(_FAST)
def _add_rest(p: Floats, q: Floats, start: int, last: int, mass: float, sums: Floats) -> None:
    """Add a block's Σ p and Σ p q of all but the most likely tokens, down to `last`; of equals the first are the more likely."""
    rest = same = 0.0
    for j in range(len(p)):
        if p[j] < mass or (p[j] == mass and start + j > last):
            rest += p[j]
            same += p[j] * q[j]
    sums[_REST] += rest
    sums[_REST_SAME] += same


@_part(_FAST)
def _add_series(p: Floats, q: Floats, sums: Floats) -> None:
    """Add a block to a lower bound of the Jensen–Shannon divergence and to what is left of its series at most.

    With x = (p − q)/(p + q) it is Σ (p + q)/2 · Σ_n x^{2n}/(2n (2n − 1)). The first four terms are a lower bound, and what is left
    of the series is at most x^10 times what is left of it at x = 1, where it sums to log 2.
    """
    lower = rest = 0.0
    for j in range(len(p)):
        middle = 0.5 * (p[j] + q[j])
        x = (p[j] - q[j]) / (p[j] + q[j] if p[j] + q[j] > 0 else 1.0)
        square = x * x
        lower += middle * (square * (1 / 2 + square * (1 / 12 + square * (1 / 30 + square * (1 / 56)))))
        rest += middle * square * square * square * square * square
    sums[_SERIES] += lower
    sums[_SERIES_REST] += rest


@_part(_FAST)
def _is_closer(p: Floats, q: Floats, gate: float, sums: Floats, described: Floats) -> bool:
    """Say whether the Jensen–Shannon divergence is at most `gate`, most often without a logarithm."""
    lower, rest = sums[_SERIES], sums[_SERIES_REST] * (math.log(2.0) - 1 / 2 - 1 / 12 - 1 / 30 - 1 / 56)
    if lower > gate + _UNDECIDED or lower + rest < gate - _UNDECIDED:
        return bool(lower < gate)
    entropy = 0.0
    for j in range(len(p)):
        middle = 0.5 * (p[j] + q[j])
        entropy -= middle * math.log(middle) if middle > 0 else 0.0  # half the smallest number is 0
    return bool(entropy - 0.5 * (described[_DRAFT_ENTROPY] + described[_TARGET_ENTROPY]) <= gate)


@_part(_FAST)
def _add_powers(p: Floats, q: Floats, excess: Floats, power: Floats, ks: Integers, per_k: Floats) -> None:
    """Add a block's Σ (q − p)₊ (1 − p)^{k−1} and Σ q (1 − p)^k."""
    power[:] = 1.0
    reached = 0
    for i, k in enumerate(ks):
        _multiply(power, p, k - 1 - reached)
        missed = missed_excess = 0.0
        for j in range(len(p)):
            missed_excess += excess[j] * power[j]
            power[j] *= max(1.0 - p[j], 0.0)
            missed += q[j] * power[j]
        reached = k
        per_k[_NAIVE_TREE, i] += missed_excess
        per_k[_NAIVE, i] += missed


@_part(_FAST)
def _naive(sums: Floats, moments: Floats, ks: Integers, per_k: Floats) -> None:
    """Fill what depends on Pr(token x is not among k draws): naive tree (k − 1 draws, then one more) and naive.

    What is missed of tokens with large p is there already; of the others the moments Σ q p^n and Σ (q − p)₊ p^n are, and
    (1 − p)^k = Σ_n C(k, n) (−p)^n.
    """
    surplus = sums[_Q] - sums[_OVERLAP]
    for i, k in enumerate(ks):
        missed, missed_excess = per_k[_NAIVE, i], per_k[_NAIVE_TREE, i]
        chosen = chosen_before = 1.0  # C(k, n) (−1)^n and C(k − 1, n) (−1)^n
        for n in range(_TERMS):
            missed += chosen * moments[0, n]
            missed_excess += chosen_before * moments[1, n]
            chosen *= -(k - n) / (n + 1.0)
            chosen_before *= -(k - 1.0 - n) / (n + 1.0)
        per_k[_NAIVE, i] = sums[_Q] - missed
        per_k[_NAIVE_TREE, i] = sums[_OVERLAP] + surplus - missed_excess if k > 1 else sums[_OVERLAP]


@_part()
def _is_below(x: Floats, bound: float) -> bool:
    """Whether no mass exceeds the bound; read as integers, since a maximum of floats is not vectorised."""
    bits = x.view(np.int64)
    most = bits[0]
    for j in range(len(bits)):
        most = max(most, bits[j])
    limit = np.empty(1)
    limit[0] = bound
    return bool(most <= limit.view(np.int64)[0])


@_part(_FAST)
def _add_moments(weight: Floats, x: Floats, moments: Floats) -> None:
    """Add Σ w x^n for each n."""
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = m8 = 0.0
    for j in range(len(x)):
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
    whole_p: float,
    ks: Integers,
    above_p: Floats,
    above_q: Floats,
    work: Floats,
    moments: Floats,
    per_k: Floats,
) -> float:
    """Fill the running sums along the order, list races, Σ q k h/(1 + (k − 1) h), and the Poisson bound, 1 − Σ q (1 − h)^k.

    h = Pr(the draft race is won by this token | the target's is), see `otm.races`, rises along the order. On a stretch of it
    where h = c (1 + y), |y| ≤ 1/64, both are power series in y, whose weights are the moments Σ q y^n: of 1/(1 + ρ y), ρ ≤ 1, and
    of (1 − h)^k, at most 1 in size for |y| ≤ 1, so that its coefficients are at most 1.

    Returns:
        The race, Σ q h.
    """
    per_k[_LIST_RACE], per_k[_POISSON] = 0.0, 0.0
    race = before_p = before_q = centre = 0.0
    for start in range(0, len(tokens), _BLOCK):
        n = min(_BLOCK, len(tokens) - start)
        mass, target, hit, power = work[0, :n], work[1, :n], work[2, :n], work[3, :n]
        part_p = part_q = 0.0
        for j in range(
            n
        ):  # in blocks as `otm._arrays.running_sum` adds them up; both at once, since each waits for its last addition
            token = np.uint64(tokens[start + j])
            mass[j], target[j] = p[token], q[token]
            part_p += mass[j]
            part_q += target[j]
            above_p[start + j], above_q[start + j] = before_p + part_p, before_q + part_q
        before_p += part_p
        before_q += part_q
        for j in range(n):
            rate = target[j] / mass[j] * (whole_p - above_p[start + j]) + above_q[start + j]
            # NaN, ∞·0, is p subnormal under a zero prefix: the probability is at most p
            hit[j] = 1.0 / rate if rate == rate else 0.0
        race += _dot(target, hit)
        least, most = hit[0], hit[n - 1]
        if not most <= (1.0 + _NARROW) * centre:
            _close_stretch(moments, centre, ks, per_k)
            centre = min(least / (1.0 - _NARROW), 1.0)
        if 0.0 < most <= (1.0 + _NARROW) * centre:
            for j in range(n):
                power[j] = (hit[j] - centre) / centre
            _add_moments(target, power, moments[0])
        else:
            centre = 0.0
            _add_races(target, hit, power, ks, per_k)
    _close_stretch(moments, centre, ks, per_k)
    for i, k in enumerate(ks):
        per_k[_LIST_RACE, i] *= k
        per_k[_POISSON, i] = before_q - per_k[_POISSON, i]
    return race


@_part(_FAST)
def _dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@_part(_FAST)
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
    moments[:] = 0.0


@_part(_FAST)
def _add_races(q: Floats, hit: Floats, power: Floats, ks: Integers, per_k: Floats) -> None:
    """Add a block's Σ q h/(1 + (k − 1) h) and Σ q (1 − h)^k, token by token."""
    power[:] = 1.0
    reached = 0
    for i, k in enumerate(ks):
        _multiply(power, hit, k - 1 - reached)
        together = missed = 0.0
        for j in range(len(q)):
            together += q[j] * hit[j] / (1.0 + (k - 1.0) * hit[j])
            power[j] *= max(1.0 - hit[j], 0.0)
            missed += q[j] * power[j]
        reached = k
        per_k[_LIST_RACE, i] += together
        per_k[_POISSON, i] += missed


@_part(_FAST)
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


@_part(_FAST)
def _by_likely_tokens(
    p: Floats,
    q: Floats,
    tokens: Integers,
    above_p: Floats,
    above_q: Floats,
    top: Integers,
    sums: Floats,
    ks: Integers,
    per_k: Floats,
) -> None:
    """Fill the schemes that draft the most likely tokens, walking down from the most likely one; ties go to the lowest index.

    Without the first k − 1 the last draft has the law p/P(rest); Σ min(q, p/P(rest)) is H(1/P(rest)) less what those have in it.
    """
    rest, rest_same = np.zeros(len(top) + 1), np.zeros(len(top) + 1)  # Σ p and Σ p q without the first so many
    rest[-1], rest_same[-1] = sums[_REST], sums[_REST_SAME]
    for i in range(len(top) - 1, -1, -1):
        rest[i], rest_same[i] = rest[i + 1] + p[top[i]], rest_same[i + 1] + p[top[i]] * q[top[i]]
    taken, walked, n = 0.0, 0, len(tokens)
    for i, k in enumerate(ks):
        while walked < k - 1:
            taken += q[top[walked]] if p[top[walked]] > 0 else 0.0
            walked += 1
        left, together, same = rest[k - 1], 0.0, 0.0
        if left >= _SMALLEST_DIVISOR:
            level = 1.0 / left
            together = above_q[n - 1] - _excess(p, q, tokens, above_p, above_q, level)
            for j in range(k - 1):
                together -= min(q[top[j]], level * p[top[j]])
            together, same = max(together, 0.0), rest_same[k - 1] / left
        elif left > 0.0:
            for j in range(n):
                token = tokens[j]
                if p[token] < p[top[k - 1]] or (p[token] == p[top[k - 1]] and token >= top[k - 1]):
                    last_draft = p[token] / left  # not by 1/left, which overflows where left is subnormal
                    together += min(q[token], last_draft)
                    same += q[token] * last_draft
        last = top[k - 1]
        per_k[_GREEDY_OPTIMAL, i] = taken + together
        per_k[_NAIVE_GREEDY, i] = taken + same
        per_k[_TOP_K, i] = taken + (q[last] if p[last] > 0 else 0.0)


@_part()
def _likeliest(p: Floats, count: int) -> Integers:
    """Return the most likely tokens in order, the lowest index first among equals, by insertion: few tokens get that far."""
    top = np.empty(count, dtype=np.int64)
    mass = np.empty(count)
    filled = 0
    for start in range(0, len(p), _BLOCK):
        end = min(start + _BLOCK, len(p))
        if filled == count and _is_below(p[start:end], mass[count - 1]):
            continue
        for i in range(start, end):
            if filled == count and p[i] <= mass[count - 1]:
                continue
            at = filled if filled < count else count - 1
            while at > 0 and mass[at - 1] < p[i]:
                mass[at], top[at] = mass[at - 1], top[at - 1]
                at -= 1
            mass[at], top[at] = p[i], i
            filled = min(filled + 1, count)
    return top


@compile_once(
    types.void(
        _ROWS,
        _ROWS,
        types.int64[:, ::1],
        types.int64[::1],
        types.int64[::1],
        types.float64[::1],
        types.float64[:, ::1],
        types.float64[:, :, ::1],
        types.float64[:, ::1],
    ),
    fastmath=_FAST,
)
def _values(
    p: Floats,
    q: Floats,
    order: Integers,
    live: Integers,
    ks: Integers,
    lossy: Floats,
    described: Floats,
    per_k: Floats,
    single: Floats,
) -> None:
    """Fill the columns of every row from its tokens with mass in descending order of q/p."""
    width = p.shape[1]
    above, edges, work = np.empty((2, width)), np.empty((3, width // _BLOCK + 2)), np.empty((4, _BLOCK))
    sums, moments = np.empty(_NUM_SUMS), np.empty((2, _TERMS))
    for r in range(p.shape[0]):
        tokens = order[r, : live[r]]
        above_p, above_q = above[0, : live[r]], above[1, : live[r]]
        top = _likeliest(p[r], ks[-1])
        _without_order(p[r], q[r], top, ks, lossy, described[:, r], sums, moments, work, single[:, r], per_k[:, :, r])
        single[_RACE, r] = _races(p[r], q[r], tokens, sums[_P], ks, above_p, above_q, work, moments, per_k[:, :, r])
        _optima(p[r], q[r], tokens, above_p, above_q, edges, ks, per_k[_OPTIMUM, :, r])
        for i, k in enumerate(ks):
            per_k[_KSEQ, i, r] = _kseq(p[r], q[r], tokens, above_p, above_q, k)
        _recursive_rejection(p[r], q[r], tokens, above_p, above_q, ks, per_k[_RECURSIVE, :, r])
        lenience = lossy[0]
        single[_LENIENCE, r] = (sums[_Q] - _excess(p[r], q[r], tokens, above_p, above_q, lenience)) / lenience  # Σ min(p, q/l)
        _by_likely_tokens(p[r], q[r], tokens, above_p, above_q, top, sums, ks, per_k[:, :, r])
