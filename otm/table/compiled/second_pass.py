"""The second pass over rows: along the tokens, or groups of tokens, in descending order of q/p."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from otm._machine.arrays import BLOCK, Floats
from otm._machine.compiled import compile_once
from otm.overlap.curve import LARGEST_MULTIPLIED_POWER
from otm.overlap.walk import (
    ABOVE_P,
    ABOVE_Q,
    BELOW_Q,
    FAST,
    HIGH,
    LOW,
    PIECE,
    ROWS,
    Flags,
    Groups,
    Integers,
    accept,
    add,
    bound_optima,
    close_bins,
    excess_above,
    integer_power,
    kseq_group,
    kseq_root,
    late_matches,
    lay_out,
    list_tokens,
    multiply,
    part,
    recursive_rejection,
    refine_optima,
    sort_row,
)
from otm.table.compiled.common import (
    BUFFERS,
    DRAFT_ENTROPY,
    FIRST,
    FIRST_PASS,
    FUZZY,
    GREEDY_OPTIMAL,
    IN_GROUPS,
    KSEQ,
    LEAST_NORMAL,
    LENIENCE,
    LIST_RACE,
    NAIVE_GREEDY,
    OPTIMUM,
    POISSON,
    RACE,
    RECURSIVE,
    REQUEST,
    RESULTS,
    SHIFT,
    TARGET_ENTROPY,
    TERMS,
    THRESHOLD_OPTIMUM,
    THRESHOLD_RACE,
    TOP_K,
    TV,
    WHOLE_Q,
    Buffers,
    FirstPass,
    Request,
    RowResults,
    add_moments,
    clear,
    dot,
    logarithm,
)

NARROW = 1 / 64

# far beyond the rounding of a divergence, far below what a row usually leaves between it and the
# threshold
_UNDECIDED = 1e-9
_FEW = 128  # pieces of a row, each of two logarithms
_LARGEST = 1.7976931348623157e308
_SMALLEST_DIVISOR = 1e-290


@part(at_once=True)
def _races(
    groups: Groups,
    ks: Integers,
    work: Floats,
    moments: Floats,
    per_k: Floats,
) -> float:
    """Fill the masses at the blocks' ends, list races, Σ q k h/(1 + (k − 1) h), and the Poisson
    bound, 1 − Σ q (1 − h)^k, of a row that is laid out; return the race, Σ q h.

    h = Pr(the draft race is won by this token | the target's is), see `otm.races`, rises along the
    order. On a stretch of it where h = c (1 + y), |y| ≤ 1/64, both are power series in y, whose
    weights are the moments Σ q y^n: of 1/(1 + ρ y), ρ ≤ 1, and of (1 − h)^k, at most 1 in size for
    |y| ≤ 1, so that its coefficients are at most 1.
    """
    ends, opened, live, hit, power = (
        groups.ends,
        groups.opened,
        len(groups.tokens),
        work[0],
        work[1],
    )
    whole_p = opened[2, live - 1]
    clear(moments)
    for i in range(len(ks)):
        per_k[LIST_RACE, i] = per_k[POISSON, i] = 0.0
    race = lost = centre = 0.0
    ends[ABOVE_P, 0] = ends[ABOVE_Q, 0] = 0.0
    blocks = (live + BLOCK - 1) // BLOCK
    # While h changes little from block to block, the sums for all k come from moments about one
    # centre: a pass for each k would cost as much as the sort.
    for b in range(blocks):
        start, end = b * BLOCK, (b + 1) * BLOCK
        n = min(BLOCK, live - start)
        mass, target = opened[0, start:end], opened[1, start:end]
        above_p, above_q = opened[2, start:end], opened[3, start:end]
        ends[ABOVE_P, b + 1], ends[ABOVE_Q, b + 1] = above_p[n - 1], above_q[n - 1]
        ends[HIGH, b], ends[LOW, b] = target[0] / mass[0], target[n - 1] / mass[n - 1]
        _match(mass, target, above_p, above_q, whole_p, hit)
        for j in range(0, BLOCK, PIECE):
            race, lost = add(race, lost, dot(target[j : j + PIECE], hit[j : j + PIECE]))
        least, most = hit[0], hit[n - 1]
        if not most <= (1.0 + NARROW) * centre:
            close_stretch(moments, centre, ks, per_k)
            centre = min(least / (1.0 - NARROW), 1.0)
        if centre >= LEAST_NORMAL and most <= (1.0 + NARROW) * centre:
            scale = 1.0 / centre
            for j in range(BLOCK):
                power[j] = hit[j] * scale - 1.0
            add_moments(target, power, moments[0])
        else:
            centre = 0.0
            _add_races(target, hit, power, ks, per_k)
    close_stretch(moments, centre, ks, per_k)
    for i, k in enumerate(ks):
        per_k[LIST_RACE, i] *= k
        per_k[POISSON, i] = ends[ABOVE_Q, blocks] - per_k[POISSON, i]
    return race + lost


@part()
def _match(
    p: Floats, q: Floats, above_p: Floats, above_q: Floats, whole_p: float, hit: Floats
) -> None:
    """Fill h = p/(q P(tokens with smaller ratio) + p Q(tokens with at least this ratio))."""
    for j in range(BLOCK):
        h = p[j] / (q[j] * (whole_p - above_p[j]) + p[j] * above_q[j])
        # NaN, 0/0, is p subnormal or 0 under a zero prefix: the probability is at most p. Where p
        # and q are subnormal both products may vanish: h is then ∞.
        hit[j] = min(h, 1.0) if h == h else 0.0


@part()
def _missed(moments: Floats, powers: Floats, centre: float, k: int) -> float:
    """Return Σ q (1 − h)^k = Σ_n C(k, n) (−c)^n (1 − c)^{k−n} Σ q y^n."""
    terms, rest = min(k, TERMS - 1), max(1.0 - centre, 0.0)
    power = (
        integer_power(rest, k - terms)
        if k <= LARGEST_MULTIPLIED_POWER
        else math.exp((k - terms) * math.log1p(-centre))
    )
    for n in range(terms, -1, -1):
        powers[n] = power
        power *= rest
    chosen, missed = 1.0, 0.0
    for n in range(terms + 1):
        missed += chosen * powers[n] * moments[n]
        chosen *= -centre * (k - n) / (n + 1.0)
    return missed


@compile_once(
    types.void(types.float64[:, ::1], types.float64, types.int64[::1], types.float64[:, :])
)
def close_stretch(moments: Floats, centre: float, ks: Integers, per_k: Floats) -> None:
    """Add a stretch's Σ q h/(1 + (k − 1) h) and Σ q (1 − h)^k from the moments, and clear these;
    centre 0 is no stretch.
    """
    if centre > 0.0:
        for i, k in enumerate(ks):
            scale = 1.0 + (k - 1.0) * centre
            rho = (k - 1.0) * centre / scale
            series = 0.0
            for m in range(TERMS - 1, 0, -1):
                series = moments[0, m] - rho * series
            per_k[LIST_RACE, i] += centre / scale * (moments[0, 0] + (1.0 - rho) * series)
            per_k[POISSON, i] += _missed(moments[0], moments[1], centre, k)
    clear(moments)


@part(FAST)
def _add_races(q: Floats, hit: Floats, power: Floats, ks: Integers, per_k: Floats) -> None:
    """Add a block's Σ q h/(1 + (k − 1) h) and Σ q (1 − h)^k, token by token."""
    for j in range(BLOCK):
        power[j] = 1.0
    reached = 0
    for i, k in enumerate(ks):
        multiply(power, hit, k - 1 - reached)
        together = missed = 0.0
        for j in range(BLOCK):
            together += q[j] * hit[j] / (1.0 + (k - 1.0) * hit[j])
            power[j] *= max(1.0 - hit[j], 0.0)
            missed += q[j] * power[j]
        reached = k
        per_k[LIST_RACE, i] += together
        per_k[POISSON, i] += missed


@part()
def _curvature(x: float) -> float:
    """Return ½ [(1 + x) log(1 + x) + (1 − x) log(1 − x)], which with x = (p − q)/(p + q) and weight
    (p + q)/2 sums to JS(p, q).
    """
    rising = (1.0 + x) * math.log1p(x) if x > -1.0 else 0.0
    return 0.5 * (rising + ((1.0 - x) * math.log1p(-x) if x < 1.0 else 0.0))


@part()
def _is_closer(ends: Floats, n: int, gate: float, tv: float) -> int:
    """Return 1 if the Jensen–Shannon divergence is at most `gate`, 0 if not, −1 if undecided.

    The divergence is at most TV log 2. With tokens lumped to a few points it is at least that of
    the lumps' masses (Jensen) and, being convex, at most the chord between their ends
    (docs/theory.md, "The gate of Fuzzy without logarithms").
    """
    if tv * math.log(2.0) < gate - _UNDECIDED:
        return 1
    lower = upper = 0.0
    step = max(n // _FEW, 1)
    # Both bounds are sums over lumps: a few lumps decide nearly every row without a logarithm.
    for b in range(0, n, step):
        last = min(b + step, n)
        p, q = ends[ABOVE_P, last] - ends[ABOVE_P, b], ends[ABOVE_Q, last] - ends[ABOVE_Q, b]
        if not p + q > 0:
            continue
        x = min(max((p - q) / (p + q), -1.0), 1.0)
        least = (1.0 - ends[HIGH, b]) / (1.0 + ends[HIGH, b]) if ends[HIGH, b] < _LARGEST else -1.0
        most = (
            (1.0 - ends[LOW, last - 1]) / (1.0 + ends[LOW, last - 1])
            if ends[LOW, last - 1] < _LARGEST
            else -1.0
        )
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


@part(FAST)
def _is_closer_by_logarithms(p: Floats, q: Floats, gate: float, entropies: float) -> bool:
    """Decide `_is_closer` from H((p + q)/2) − (H(p) + H(q))/2."""
    entropy = 0.0
    for start in range(0, len(p), BLOCK):
        block = 0.0
        for j in range(start, min(start + BLOCK, len(p))):
            middle = 0.5 * (p[j] + q[j])
            block -= middle * logarithm(middle)
        entropy += block
    return bool(entropy - 0.5 * entropies <= gate)


@part(FAST, at_once=True)
def _by_likely_tokens(
    p: Floats,
    q: Floats,
    groups: Groups,
    n: int,
    top: Integers,
    rest: Floats,
    ks: Integers,
    per_k: Floats,
) -> None:
    """Fill the schemes that draft the most likely tokens, walking down from the most likely one;
    ties go to the lowest index.

    Without the first k − 1 the last draft has the law p/P(rest); Σ min(q, p/P(rest)) is
    H(1/P(rest)) less what those have in it.
    """
    taken, walked = 0.0, 0
    # `ks` ascends, so that the likeliest tokens are walked once for all numbers of drafts.
    for i, k in enumerate(ks):
        while walked < k - 1:
            taken += q[top[walked]] if p[top[walked]] > 0 else 0.0
            walked += 1
        left, together, same = rest[0, k - 1], 0.0, 0.0
        if left >= _SMALLEST_DIVISOR:
            level = 1.0 / left
            excess = excess_above(p, q, groups, n, level)
            together = groups.ends[ABOVE_Q, n] - excess
            for j in range(k - 1):
                together -= min(q[top[j]], level * p[top[j]])
            together, same = max(together, 0.0), rest[1, k - 1] / left
        elif left > 0.0:
            least = p[top[k - 1]]
            for j in range(len(p)):
                if p[j] < least or (p[j] == least and j >= top[k - 1]):
                    last_draft = (
                        p[j] / left
                    )  # not by 1/left, which overflows where left is subnormal
                    together += min(q[j], last_draft)
                    same += q[j] * last_draft
        per_k[GREEDY_OPTIMAL, i] = taken + together
        per_k[NAIVE_GREEDY, i] = taken + same
        per_k[TOP_K, i] = taken + (q[top[k - 1]] if p[top[k - 1]] > 0 else 0.0)


@compile_once(
    types.void(ROWS, ROWS, REQUEST, FIRST_PASS, RESULTS, types.boolean[::1], BUFFERS),
    fastmath=FAST,
)
def walk_rows(
    p: Floats,
    q: Floats,
    request: Request,
    first_pass: FirstPass,
    results: RowResults,
    wrong: Flags,
    buffers: Buffers,
) -> None:
    """Fill the columns that take the tokens in descending order of q/p, or in groups in this order;
    without ranks the races are left out.

    A row is wrong if the order inside a group matters that is too long.
    """
    ks, lossy, starts, ends = request.ks, request.lossy, buffers.starts, buffers.ends
    n_ks, is_in_groups, tokens = len(ks), request.way == IN_GROUPS, buffers.tokens
    # α* of so many i.i.d. drafts, and then of threshold races.
    best, cs, counts = np.ones((2, 2 * n_ks)), np.ones(2 * n_ks), np.ones(2 * n_ks, dtype=np.int64)
    for i, k in enumerate(ks):
        counts[i], cs[n_ks + i] = k, k
    late, first_late = np.empty(n_ks), int(ks[0] == 1)  # of c = 1 it is the race itself
    # Everything that needs the order of q/p is read off while the groups of a row are in the cache.
    for r in range(len(p)):
        described, single = results.described[:, r], results.single[:, r]
        per_k, sums = results.per_k[:, :, r], first_pass.sums[r]
        groups = Groups(
            first_pass.place[r],
            first_pass.bin_sizes[r],
            buffers.bins,
            tokens if is_in_groups else tokens[: first_pass.live[r]],
            starts,
            buffers.is_sorted,
            ends,
            buffers.opened,
        )
        wrong[r] = False
        if is_in_groups:
            n = close_bins(groups, int(sums[FIRST]), int(sums[SHIFT]), first_pass.bin_sums[r])
            for g in range(n):
                buffers.wanted[0, g] = True
            list_tokens(groups, n, buffers.wanted)
        else:
            live = sort_row(p[r], q[r], buffers.ratios, tokens)
            lay_out(p[r], q[r], tokens, buffers.opened)
            # The order is known: any stretch of it is a group.
            n = (live + BLOCK - 1) // BLOCK
            for g in range(n):
                starts[g], groups.is_sorted[g] = g * BLOCK, True
            starts[n] = live
            single[RACE] = _races(groups, ks, buffers.work, buffers.moments, per_k)
            if request.late:
                late[0] = single[RACE]
                of = slice(n_ks + first_late, 2 * n_ks)
                late_matches(
                    buffers.opened, buffers.ratios, live, cs[of], counts[of], late[first_late:]
                )
                for i in range(n_ks):  # as in `clear`: a slice takes three seconds to compile
                    per_k[THRESHOLD_RACE, i] = late[i]
            for g in range(n + 1):
                ends[BELOW_Q, g] = ends[ABOVE_Q, n] - ends[ABOVE_Q, g]
        bound_optima(groups, n, cs, counts, buffers.wanted, best)
        wrong[r] |= not refine_optima(p[r], q[r], groups, n, cs, counts, buffers.wanted, best)
        for i, k in enumerate(ks):
            gamma, slope, offset = kseq_root(p[r], q[r], groups, n, kseq_group(groups, n, k), k)
            per_k[OPTIMUM, i], per_k[KSEQ, i] = best[0, i], accept(slope + offset / gamma, k)
            per_k[THRESHOLD_OPTIMUM, i] = best[0, n_ks + i]
            wrong[r] |= gamma != gamma
        recursive_rejection(p[r], q[r], groups, n, ks, per_k[RECURSIVE])
        excess = excess_above(p[r], q[r], groups, n, lossy[0])
        single[LENIENCE] = (sums[WHOLE_Q] - excess) / lossy[0]  # Σ min(p, q/l)
        _by_likely_tokens(p[r], q[r], groups, n, first_pass.top[r], first_pass.rest[r], ks, per_k)
        closer = _is_closer(ends, n, lossy[3], described[TV])
        if closer < 0 and request.logarithms:
            entropies = described[DRAFT_ENTROPY] + described[TARGET_ENTROPY]
            closer = _is_closer_by_logarithms(p[r], q[r], lossy[3], entropies)
        if closer > 0:
            single[FUZZY] = 1.0
