"""The first pass over rows: sums, descriptions and every scheme that needs no order."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from otm._machine.arrays import BLOCK, Floats
from otm._machine.compiled import compile_once
from otm.overlap.walk import (
    FAST,
    ROWS,
    Integers,
    add_to_bins,
    bits,
    multiply,
    number,
    part,
)
from otm.table.compiled.common import (
    BUFFERS,
    DRAFT_ENTROPY,
    FIRST,
    FIRST_PASS,
    FUZZY,
    IN_GROUPS,
    KL_DRAFT_TARGET,
    KL_TARGET_DRAFT,
    LEAST_NORMAL,
    MAXIMAL,
    MINHASH,
    MINHASH_RULE,
    MOST_P,
    MOST_Q,
    NAIVE,
    NAIVE_TREE,
    NUM_ADDED,
    OVERLAP,
    REQUEST,
    RESULTS,
    SAME,
    SHIFT,
    SIGNED,
    SQUARED,
    SUM_P,
    SUM_Q,
    TARGET_ENTROPY,
    TERMS,
    TV,
    TYPICAL,
    WHOLE_P,
    WHOLE_Q,
    Buffers,
    FirstPass,
    Request,
    RowResults,
    add_moments,
    clear,
    logarithm,
)

_LIGHT = 1 / 16  # (1 − p)^k with k p below it: the ninth term and those after it are below 2⁻⁵³
_RATIOS_SAMPLED = 1024  # tokens whose ratios say how far the bins of a row reach
_LEAST_RATIO, _MOST_RATIO = (
    np.int64(1023 - 64) << np.int64(52),
    np.int64(1023 + 64) << np.int64(52),
)  # of 2⁻⁶⁴ and 2⁶⁴


@part(FAST, at_once=True)
def _add_entropies(
    p: Floats, q: Floats, logs_p: Floats, logs_q: Floats, known: bool, described: Floats
) -> None:
    """Add a block to the entropies and both relative entropies, in nats."""
    draft_entropy = target_entropy = forward = backward = 0.0
    for j in range(BLOCK):
        log_p = logs_p[j] if known else logarithm(p[j])
        log_q = logs_q[j] if known else logarithm(q[j])
        difference = log_q - log_p
        draft_entropy -= p[j] * log_p
        target_entropy -= q[j] * log_q
        # term by term non-negative, as in otm.divergences.kl_divergence
        forward += q[j] * difference - (q[j] - p[j])
        backward += (q[j] - p[j]) - p[j] * difference
    described[DRAFT_ENTROPY] += draft_entropy
    described[TARGET_ENTROPY] += target_entropy
    described[KL_TARGET_DRAFT] += forward
    described[KL_DRAFT_TARGET] += backward


@part(FAST)
def _add_masses(p: Floats, q: Floats, excess: Floats, sums: Floats) -> float:
    """Fill a block's sums and (q − p)₊, and return Σ |q − p|/2 of the block."""
    distance = whole_p = whole_q = overlap = same = squared = 0.0
    for j in range(BLOCK):
        both = min(p[j], q[j])
        excess[j] = q[j] - both
        distance += abs(q[j] - p[j])
        whole_p += p[j]
        whole_q += q[j]
        overlap += both
        same += p[j] * q[j]
        squared += both * both
    sums[SUM_P], sums[SUM_Q], sums[OVERLAP], sums[SAME], sums[SQUARED] = (
        whole_p,
        whole_q,
        overlap,
        same,
        squared,
    )
    return 0.5 * distance


@part(FAST)
def _zeros(p: Floats, q: Floats) -> tuple[int, int, int]:
    """Count the tokens of a block that have no target mass but draft mass, no draft mass but target
    mass, and neither.
    """
    without_q = without_p = neither = 0
    for j in range(BLOCK):
        without_p += (p[j] == 0) & (q[j] > 0)
        without_q += (q[j] == 0) & (p[j] > 0)
        neither += (q[j] == 0) & (p[j] == 0)
    return without_q, without_p, neither


@part()
def _extremes(x: Floats) -> tuple[float, float]:
    """Return the smallest and the largest mass; read as integers, since a minimum of floats is not
    vectorised.
    """
    least, most = bits(x[0]), bits(x[0])
    for j in range(BLOCK):
        least, most = min(least, bits(x[j])), max(most, bits(x[j]))
    smallest: float = number(least)
    largest: float = number(most)
    return smallest, largest


@part(FAST)
def _above(p: Floats, q: Floats, threshold: float) -> float:
    """Return the Σ p (1 − q) of a block's tokens with q above the threshold."""
    kept = 0.0
    for j in range(len(p)):
        kept += p[j] * (1.0 - q[j]) if q[j] > threshold else 0.0
    return kept


@part(FAST, at_once=True)
def _add_powers(
    p: Floats, q: Floats, excess: Floats, power: Floats, ks: Integers, per_k: Floats
) -> None:
    """Add a block's Σ (q − p)₊ (1 − p)^{k−1} and Σ q (1 − p)^k."""
    for j in range(BLOCK):
        power[j] = 1.0
    reached = 0
    for i, k in enumerate(ks):
        multiply(power, p, k - 1 - reached)
        missed = missed_excess = 0.0
        for j in range(BLOCK):
            missed_excess += excess[j] * power[j]
            power[j] *= max(1.0 - p[j], 0.0)
            missed += q[j] * power[j]
        reached = k
        per_k[NAIVE_TREE, i] += missed_excess
        per_k[NAIVE, i] += missed


@part(FAST)
def _naive(whole: float, overlap: float, moments: Floats, ks: Integers, per_k: Floats) -> None:
    """Fill the columns that depend on Pr(token x is not among k draws): naive tree (k − 1 draws,
    then one more) and naive.

    The terms of tokens with large p are there already; of the others the moments Σ q p^n and Σ (q −
    p)₊ p^n are, and (1 − p)^k = Σ_n C(k, n) (−p)^n.
    """
    surplus = whole - overlap
    for i, k in enumerate(ks):
        missed, missed_excess = per_k[NAIVE, i], per_k[NAIVE_TREE, i]
        chosen = chosen_before = 1.0  # C(k, n) (−1)^n and C(k − 1, n) (−1)^n
        for n in range(TERMS):
            missed += chosen * moments[0, n]
            missed_excess += chosen_before * moments[1, n]
            chosen *= -(k - n) / (n + 1.0)
            chosen_before *= -(k - 1.0 - n) / (n + 1.0)
        per_k[NAIVE, i] = whole - missed
        per_k[NAIVE_TREE, i] = overlap + surplus - missed_excess if k > 1 else overlap


@part()
def _spread(p: Floats, q: Floats, num_bins: int) -> tuple[int, int]:
    """Return the bits of q/p that number the bins of a row, (x >> shift) − first, from a sample of
    the tokens.

    Tokens beyond the sample's range join the first and the last bin.
    """
    least, most = _MOST_RATIO, _LEAST_RATIO
    step = max(len(p) // _RATIOS_SAMPLED, 1)
    for i in range(0, len(p), step):
        ratio = bits(abs(q[i] / p[i]))
        if _LEAST_RATIO <= ratio <= _MOST_RATIO:
            least, most = min(least, ratio), max(most, ratio)
    shift = 0
    while (most >> shift) - (least >> shift) > num_bins - 3:
        shift += 1
    return int((least >> shift) - 1), shift


@part()
def _likeliest(p: Floats, most: Floats, top: Integers, mass: Floats) -> float:
    """Fill the most likely tokens in order, the lowest index first among equals, by insertion: few
    tokens get that far.

    `most` holds the largest mass of each block, `mass` is overwritten. Returns the least of the
    most likely tokens' masses.
    """
    count, filled = len(top), 0
    for start in range(0, len(p), BLOCK):
        if filled == count and most[start // BLOCK] <= mass[count - 1]:
            continue
        for i in range(start, min(start + BLOCK, len(p))):
            if filled == count and p[i] <= mass[count - 1]:
                continue
            at = filled if filled < count else count - 1
            while at > 0 and mass[at - 1] < p[i]:
                mass[at], top[at] = mass[at - 1], top[at - 1]
                at -= 1
            mass[at], top[at] = p[i], i
            filled = min(filled + 1, count)
    return float(mass[count - 1])


@part(FAST)
def _without_likeliest(p: Floats, q: Floats, least: float, last: int, sums: Floats) -> None:
    """Replace a block's Σ p and Σ p q by sums without the most likely tokens.

    The last of these is the `last` of the block, of mass `least`; subtraction from the full sums
    would leave their rounding.
    """
    mass = same = 0.0
    for j in range(len(p)):
        kept = p[j] if p[j] < least or (p[j] == least and j > last) else 0.0
        mass += kept
        same += kept * q[j]
    sums[SUM_P], sums[SAME] = mass, same


@part(FAST, at_once=True)
def _masses_without(p: Floats, q: Floats, top: Integers, parts: Floats, rest: Floats) -> None:
    """Fill Σ p and Σ p q without the 0, 1, … likeliest tokens, all of which `parts` leaves out."""
    count = len(top)
    rest[0, count] = rest[1, count] = 0.0
    for b in range((len(p) + BLOCK - 1) // BLOCK):
        rest[0, count] += parts[SUM_P, b]
        rest[1, count] += parts[SAME, b]
    for i in range(count - 1, -1, -1):
        mass, target = p[top[i]], q[top[i]]
        rest[0, i], rest[1, i] = rest[0, i + 1] + mass, rest[1, i + 1] + mass * target


@part(FAST, at_once=True)
def _of_one_draft(
    p: Floats,
    q: Floats,
    lossy: Floats,
    least: float,
    top: Integers,
    whole: Floats,
    described: Floats,
    parts: Floats,
    single: Floats,
) -> None:
    """Fill the schemes of one draft that need no order, and take the likeliest tokens, of mass
    `least` at least, out of `parts`.
    """
    tv = described[TV]
    single[MAXIMAL] = whole[OVERLAP]
    # Σ |p − q| min(p, q) = Σ p q − Σ min(p, q)²
    single[MINHASH] = (whole[OVERLAP] + whole[SAME] - whole[SQUARED]) / (1.0 + tv)
    single[MINHASH_RULE] = whole[OVERLAP] / (1.0 + tv)
    single[FUZZY] = whole[SAME]  # until the gate is known
    threshold = min(lossy[1] * math.exp(-described[TARGET_ENTROPY]), lossy[2])
    accepted = 0.0
    for b in range((len(p) + BLOCK - 1) // BLOCK):
        first, last = b * BLOCK, min((b + 1) * BLOCK, len(p))
        if parts[MOST_Q, b] > threshold:
            accepted += _above(p[first:last], q[first:last], threshold)
        if parts[MOST_P, b] >= least:  # some of the most likely tokens may be here
            last_of_top = top[len(top) - 1] - first
            _without_likeliest(p[first:last], q[first:last], least, last_of_top, parts[:, b])
    single[TYPICAL] = accepted + whole[SAME]


@compile_once(
    types.void(ROWS, ROWS, ROWS, ROWS, REQUEST, FIRST_PASS, RESULTS, BUFFERS),
    fastmath=FAST,
)
def read_rows(
    p: Floats,
    q: Floats,
    known_log_p: Floats,
    known_log_q: Floats,
    request: Request,
    first_pass: FirstPass,
    results: RowResults,
    buffers: Buffers,
) -> None:
    """Fill the columns that need no order: sums, descriptions, the schemes of one draft, naive,
    naive tree, the most likely tokens.

    In passing the tokens are put into groups, `bins` starting at 0. Where logarithms are known they
    are finite; where not they have no columns.
    """
    width = p.shape[1]
    blocks = (width + BLOCK - 1) // BLOCK
    ks, work, moments, parts = request.ks, buffers.work, buffers.moments, buffers.parts
    block_p, block_q, excess, power, log_p, log_q = (
        work[0],
        work[1],
        work[2],
        work[3],
        work[4],
        work[5],
    )
    known = known_log_p.shape[1] == width
    # A block of a row stays in the first cache while all sums are taken from it: the row itself is
    # read once.
    for r in range(len(p)):
        described, per_k, sums = results.described[:, r], results.per_k[:, :, r], first_pass.sums[r]
        clear(moments)
        alone_p = alone_q = dead = signed = 0
        first_bin = shift = 0
        if request.way == IN_GROUPS:
            first_bin, shift = _spread(p[r], q[r], first_pass.bin_sums.shape[2])
        for b in range(blocks):
            first, last = b * BLOCK, min((b + 1) * BLOCK, width)
            n = last - first
            for j in range(n):
                block_p[j], block_q[j] = p[r, first + j], q[r, first + j]
            # tokens without mass: loops of one length are shorter to compile and to run
            for j in range(n, BLOCK):
                block_p[j] = block_q[j] = 0.0
            least_p, parts[MOST_P, b] = _extremes(block_p)
            least_q, parts[MOST_Q, b] = _extremes(block_q)
            if not (least_p >= LEAST_NORMAL and least_q >= LEAST_NORMAL):
                signed += (bits(least_p) < 0) | (bits(least_q) < 0)
                without_q, without_p, neither = _zeros(block_p, block_q)
                alone_p, alone_q, dead = alone_p + without_q, alone_q + without_p, dead + neither
            if request.way == IN_GROUPS:
                add_to_bins(
                    block_p,
                    block_q,
                    first_bin,
                    shift,
                    first_pass.place[r, first:last],
                    first_pass.bin_sums[r],
                    first_pass.bin_sizes[r],
                )
            if request.logarithms:
                if known:
                    for j in range(n):
                        log_p[j], log_q[j] = known_log_p[r, first + j], known_log_q[r, first + j]
                    for j in range(n, BLOCK):
                        log_p[j] = log_q[j] = 0.0
                _add_entropies(block_p, block_q, log_p, log_q, known, described)
            described[TV] += _add_masses(block_p, block_q, excess, parts[:, b])
            drawn = parts[MOST_P, b] * ks[-1]
            if not request.powers:
                continue
            if drawn <= _LIGHT:
                for weight in range(2):  # q, and what q exceeds p by; one loop in the code
                    add_moments(work[1 + weight], block_p, moments[weight])
            else:
                _add_powers(block_p, block_q, excess, power, ks, per_k)
        first_pass.live[r] = blocks * BLOCK - dead
        sums[FIRST], sums[SHIFT], sums[SIGNED] = first_bin, shift, signed
        whole = work[6]
        for i in range(NUM_ADDED):
            whole[i] = 0.0
            for b in range(blocks):
                whole[i] += parts[i, b]
        sums[WHOLE_P], sums[WHOLE_Q] = whole[SUM_P], whole[SUM_Q]
        forward, backward = (
            max(described[KL_TARGET_DRAFT], 0.0),
            max(described[KL_DRAFT_TARGET], 0.0),
        )
        described[KL_TARGET_DRAFT] = np.inf if alone_q > 0 else forward
        described[KL_DRAFT_TARGET] = np.inf if alone_p > 0 else backward
        _naive(whole[SUM_Q], whole[OVERLAP], moments, ks, per_k)
        least = _likeliest(p[r], parts[MOST_P], first_pass.top[r], first_pass.rest[r, 0])
        _of_one_draft(
            p[r],
            q[r],
            request.lossy,
            least,
            first_pass.top[r],
            whole,
            described,
            parts,
            results.single[:, r],
        )
        _masses_without(p[r], q[r], first_pass.top[r], parts, first_pass.rest[r])
