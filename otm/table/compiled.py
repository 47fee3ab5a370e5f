"""What `otm.table` computes, compiled, one row at a time: the host's way where numba is installed.

The formulas are those of `otm.table.arrays`, which serves devices and hosts without numba, and which the tests hold this module
against. On a host that way is bound by calls: hundreds of NumPy operations on arrays of a tenth of a millisecond each, between
which threads wait for the interpreter. Here a row passes through the first cache once per loop, tokens without any mass drop out
before the sort, and the interpreter is left alone, so that threads add up. The sort itself stays NumPy's, which is vectorised.

Floating-point sums may be reordered (`reassoc`) and fused (`contract`), nothing else: infinities and NaN are meant and kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from numba import njit
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

DESCRIBED = ("draft_entropy", "target_entropy", "tv", "kl_target_draft", "kl_draft_target")

_DRAFT_ENTROPY = DESCRIBED.index("draft_entropy")
_TARGET_ENTROPY = DESCRIBED.index("target_entropy")
_TV = DESCRIBED.index("tv")
_KL_TARGET_DRAFT = DESCRIBED.index("kl_target_draft")
_KL_DRAFT_TARGET = DESCRIBED.index("kl_draft_target")

_FAST = frozenset({"reassoc", "contract", "nsz"})
_LARGEST_FINITE = np.int64(0x7FEFFFFFFFFFFFFF)
# The same numbers as in otm.drafts.iid_cut and otm.verifiers.kseq, which a test compares: imported, they would be frozen into
# numba's files on disk, which are made anew when this module changes and not when those do. Compiled functions stay here for the
# same reason.
_LARGEST_MULTIPLIED_POWER = 64
_BLOCK = 256
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
    """Return every value of a chunk `(rows, V)` and its descriptions; float64, `ks` ascending, logarithms finite.

    Cost: per row one sort of the tokens with mass and some twenty loops, four per k. Accuracy: as `otm.table.arrays`.
    """
    if not p.shape == q.shape == log_p.shape == log_q.shape:  # compiled loops would read what lies beyond
        raise ShapeMismatch(
            f"A chunk's arrays must have one shape; got {[a.shape for a in (p, q, log_p, log_q)]}. Broadcast them."
        )
    # Read-only arrays are another type to numba: copied, they need no compilation of their own.
    p, q, log_p, log_q = (np.require(a, np.float64, ["C", "A", "W"]) for a in (p, q, log_p, log_q))
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


@compile_once(fastmath=_FAST)
def _describe(p: Floats, q: Floats, log_p: Floats, log_q: Floats, described: Floats) -> None:
    """Fill entropies, total variation and both relative entropies, in nats."""
    for r in range(len(p)):
        draft_entropy = target_entropy = distance = forward = backward = 0.0
        alone_p = alone_q = 0
        for i in range(p.shape[1]):
            draft_entropy -= p[r, i] * log_p[r, i]
            target_entropy -= q[r, i] * log_q[r, i]
            excess, difference = q[r, i] - p[r, i], log_q[r, i] - log_p[r, i]
            distance += abs(excess)
            forward += q[r, i] * difference - excess  # term by term non-negative, as in otm.divergences.kl_divergence
            backward += excess - p[r, i] * difference
            alone_q += (p[r, i] == 0) & (q[r, i] > 0)
            alone_p += (q[r, i] == 0) & (p[r, i] > 0)
        described[_DRAFT_ENTROPY, r], described[_TARGET_ENTROPY, r], described[_TV, r] = (
            draft_entropy,
            target_entropy,
            0.5 * distance,
        )
        described[_KL_TARGET_DRAFT, r] = np.inf if alone_q > 0 else max(forward, 0.0)
        described[_KL_DRAFT_TARGET, r] = np.inf if alone_p > 0 else max(backward, 0.0)


@compile_once()
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


@compile_once()
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


@compile_once(fastmath=_FAST)
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
    work = np.empty((6, width))
    for r in range(p.shape[0]):
        n = live[r]
        sorted_p, sorted_q, above_p, above_q = work[0, :n], work[1, :n], work[2, :n], work[3, :n]
        ratio, power = work[4, :n], work[5, :n]
        for j in range(n):
            sorted_p[j], sorted_q[j] = p[r, order[r, j]], q[r, order[r, j]]
        whole_p, whole_q = _running_sums(sorted_p, sorted_q, above_p, above_q)
        for j in range(n):
            ratio[j] = sorted_q[j] / sorted_p[j]
        _optima(above_p, above_q, power, ks, per_k[_OPTIMUM, :, r])
        for i, k in enumerate(ks):
            per_k[_KSEQ, i, r] = _kseq(ratio, above_p, above_q, k)
        _recursive_rejection(ratio, above_p, above_q, ks, per_k[_RECURSIVE, :, r])
        single[_LENIENCE, r] = (whole_q - _excess(ratio, above_p, above_q, lossy[0])) / lossy[0]  # Σ min(p, q/l)
        _single_draft(sorted_p, sorted_q, lossy, described[:, r], single[:, r])
        _by_powers(sorted_p, sorted_q, power, whole_q, ks, per_k[:, :, r])
        hit = ratio  # Pr(the draft race is won by this token | the target's is), see otm.races; q/p is needed no more
        for j in range(n):
            rate = ratio[j] * (whole_p - above_p[j]) + above_q[j]
            # NaN, ∞·0, is p subnormal under a zero prefix: the probability is at most p
            hit[j] = 1.0 / rate if rate == rate else 0.0
        single[_RACE, r] = _races(sorted_q, hit, power, whole_q, ks, per_k[:, :, r])
        _by_likely_tokens(p[r], q[r], ks, work[0], per_k[:, :, r])


@_part()
def _running_sums(p: Floats, q: Floats, above_p: Floats, above_q: Floats) -> tuple[float, float]:
    """Fill cumulative sums, in blocks as `otm._arrays.running_sum` takes them, and return the totals; not to be reassociated.

    Both at once: each waits for its own last addition.
    """
    before_p = before_q = 0.0
    for start in range(0, len(p), _BLOCK):
        part_p = part_q = 0.0
        for j in range(start, min(start + _BLOCK, len(p))):
            part_p += p[j]
            part_q += q[j]
            above_p[j], above_q[j] = before_p + part_p, before_q + part_q
        before_p += part_p
        before_q += part_q
    return before_p, before_q


@_part(_FAST | {"nnan"})
def _optima(above_p: Floats, above_q: Floats, power: Floats, ks: Integers, values: Floats) -> None:
    """Fill α*_k = 1 − max_C [(1 − C)^k + Q(Tᶜ) − 1]⁺ over the prefixes Tᶜ of mass C (`otm.drafts.iid_cut`)."""
    n = len(above_p)
    power[:] = 1.0
    reached = 0
    for i, k in enumerate(ks):
        worst = 1.0
        if k <= _LARGEST_MULTIPLIED_POWER:
            for _ in range(k - reached - 1):
                for j in range(n):
                    power[j] *= 1.0 - above_p[j]
            for j in range(n):
                power[j] *= 1.0 - above_p[j]
                worst = max(worst, power[j] + above_q[j])
            reached = k
        else:
            for j in range(n):
                worst = max(worst, math.exp(k * math.log1p(-min(above_p[j], 1.0))) + above_q[j])
        values[i] = 1.0 - min(worst - 1.0, 1.0)


@_part()
def _kseq(ratio: Floats, above_p: Floats, above_q: Floats, k: int) -> float:
    """Return the acceptance at γ*, found in the segment r_{j+1} ≤ γ* ≤ r_j by `otm.verifiers.kseq`'s steps."""
    n = len(ratio)
    whole_q = above_q[n - 1]
    low, high = 0, n
    while low < high:  # the first tokens, those with γβ < p_acc at γ = r_j, are to be counted
        middle = (low + high) // 2
        r, inside, outside = ratio[middle], above_p[middle], whole_q - above_q[middle]
        stops = r <= 1.0 or r * inside + outside - _accept(inside + outside / r, k) <= 0  # NaN (∞·0) goes on
        low, high = (low, middle) if stops else (middle + 1, high)
    inside = above_p[low - 1] if low > 0 else 0.0
    outside = whole_q - above_q[low - 1] if low > 0 else 1.0
    left = max(ratio[low], 1.0) if low < n else 1.0
    right = max(left, min(ratio[low - 1], float(k))) if low > 0 else left
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
def _excess(ratio: Floats, above_p: Floats, above_q: Floats, threshold: float) -> float:
    """Return Σ (q − c p)₊: Q − c P of the tokens with q > c p."""
    low, high = 0, len(ratio)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if ratio[middle] > threshold else (low, middle)
    return max(above_q[low - 1] - threshold * above_p[low - 1], 0.0) if low > 0 else 0.0


@_part()
def _recursive_rejection(ratio: Floats, above_p: Floats, above_q: Floats, ks: Integers, values: Floats) -> None:
    """Fill 1 − m_k from m_i = Σ (q − (m_0 + … + m_{i−1}) p)₊ (`otm.verifiers.recursive_rejection.rejection_levels`)."""
    rejected, used, drawn = 1.0, 0.0, 0
    for i, k in enumerate(ks):
        while drawn < k:
            used += rejected
            rejected = min(_excess(ratio, above_p, above_q, used), rejected)
            drawn += 1
        values[i] = 1.0 - rejected


@_part(_FAST)
def _single_draft(p: Floats, q: Floats, lossy: Floats, described: Floats, single: Floats) -> None:
    """Fill single-draft rejection, MinHash and the lossy schemes of one draft at their default parameters."""
    overlap = same = squared = kept = 0.0
    _, delta, eps, gate = lossy
    threshold = min(delta * math.exp(-described[_TARGET_ENTROPY]), eps)
    for j in range(len(p)):
        both = min(p[j], q[j])
        overlap += both
        same += p[j] * q[j]
        squared += both * both
        kept += p[j] * (1.0 - q[j]) if q[j] > threshold else 0.0
    single[_MAXIMAL] = overlap
    # Σ |p − q| min(p, q) = Σ p q − Σ min(p, q)²
    single[_MINHASH] = (overlap + same - squared) / (1.0 + described[_TV])
    single[_MINHASH_RULE] = overlap / (1.0 + described[_TV])
    single[_TYPICAL] = kept + same
    single[_FUZZY] = 1.0 if _is_closer(p, q, gate, described) else same


@_part(_FAST)
def _is_closer(p: Floats, q: Floats, gate: float, described: Floats) -> bool:
    """Say whether the Jensen–Shannon divergence is at most `gate`, most often without a logarithm.

    With x = (p − q)/(p + q) it is Σ (p + q)/2 · Σ_n x^{2n}/(2n (2n − 1)). The first four terms are a lower bound, and what is left
    of the series is at most x^10 times what is left of it at x = 1, where it sums to log 2.
    """
    lower = rest = 0.0
    for j in range(len(p)):
        middle = 0.5 * (p[j] + q[j])
        x = (p[j] - q[j]) / (p[j] + q[j])
        square = x * x
        lower += middle * (square * (1 / 2 + square * (1 / 12 + square * (1 / 30 + square * (1 / 56)))))
        rest += middle * square * square * square * square * square
    rest *= math.log(2.0) - 1 / 2 - 1 / 12 - 1 / 30 - 1 / 56
    if lower > gate + _UNDECIDED or lower + rest < gate - _UNDECIDED:
        return lower < gate
    entropy = 0.0
    for j in range(len(p)):
        middle = 0.5 * (p[j] + q[j])
        entropy -= middle * math.log(middle) if middle > 0 else 0.0  # half the smallest number is 0
    return bool(entropy - 0.5 * (described[_DRAFT_ENTROPY] + described[_TARGET_ENTROPY]) <= gate)


@_part(_FAST)
def _by_powers(p: Floats, q: Floats, power: Floats, whole_q: float, ks: Integers, per_k: Floats) -> None:
    """Fill what depends on Pr(token x is not among k draws): naive tree (k − 1 draws, then one more) and naive."""
    n = len(p)
    power[:] = 1.0
    reached = 0
    for i, k in enumerate(ks):
        _multiply(power, p, k - 1 - reached)
        missed_excess = missed = excess = overlap = 0.0
        for j in range(n):
            both = min(p[j], q[j])
            overlap += both
            excess += q[j] - both
            missed_excess += (q[j] - both) * power[j]
            power[j] *= max(1.0 - p[j], 0.0)
            missed += q[j] * power[j]
        reached = k
        per_k[_NAIVE_TREE, i] = overlap + excess - missed_excess if k > 1 else overlap
        per_k[_NAIVE, i] = whole_q - missed


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


@_part(_FAST)
def _races(q: Floats, hit: Floats, power: Floats, whole_q: float, ks: Integers, per_k: Floats) -> float:
    """Fill list races, Σ q k h/(1 + (k − 1) h), and the Poisson bound, 1 − Σ q (1 − h)^k; return the race, Σ q h."""
    n = len(q)
    power[:] = 1.0
    reached, race = 0, 0.0
    for j in range(n):
        race += q[j] * hit[j]
    for i, k in enumerate(ks):
        _multiply(power, hit, k - 1 - reached)
        together = missed = 0.0
        for j in range(n):
            together += q[j] * hit[j] / (1.0 + (k - 1.0) * hit[j])
            power[j] *= max(1.0 - hit[j], 0.0)
            missed += q[j] * power[j]
        reached = k
        per_k[_LIST_RACE, i] = k * together
        per_k[_POISSON, i] = whole_q - missed
    return race


@_part(_FAST)
def _by_likely_tokens(p: Floats, q: Floats, ks: Integers, rest: Floats, per_k: Floats) -> None:
    """Fill the schemes that draft the most likely tokens, walking down from the most likely one; ties go to the lowest index."""
    top = _likeliest(p, ks[-1])
    rest[:] = p
    taken, walked = 0.0, 0
    for i, k in enumerate(ks):
        while walked < k - 1:
            taken += q[top[walked]] if p[top[walked]] > 0 else 0.0
            rest[top[walked]] = 0.0
            walked += 1
        left = together = same = 0.0
        for j in range(len(rest)):
            left += rest[j]
        left = left if left > 0 else 1.0
        for j in range(len(rest)):
            last_draft = rest[j] / left  # not by 1/left, which overflows where left is subnormal
            together += min(q[j], last_draft)
            same += q[j] * last_draft
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
    for i in range(len(p)):
        if filled == count and p[i] <= mass[count - 1]:
            continue
        at = filled if filled < count else count - 1
        while at > 0 and mass[at - 1] < p[i]:
            mass[at], top[at] = mass[at - 1], top[at - 1]
            at -= 1
        mass[at], top[at] = p[i], i
        filled = min(filled + 1, count)
    return top
