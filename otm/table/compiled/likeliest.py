"""The draft model's likeliest tokens, and the schemes that draft them."""

from __future__ import annotations

from otm.table.compiled.columns import GREEDY_OPTIMAL, NAIVE_GREEDY, TOP_K
from otm.table.compiled.curve import excess_above
from otm.table.compiled.parts import BLOCK, FAST, SAME, SUM_P, Flags, Floats, Integers, Order, part

_SMALLEST_DIVISOR = 1e-290


@part()
def likeliest(p: Floats, most: Floats, top: Integers, mass: Floats) -> float:
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
def without_likeliest(
    p: Floats, q: Floats, start: int, top: Integers, in_top: Flags, sums: Floats
) -> None:
    """Replace a block's Σ p and Σ p q by those without the most likely tokens: less them is what
    rounding has left of them.
    """
    for j in range(len(p)):
        in_top[j] = False
    for token in top:
        if start <= token < start + len(p):
            in_top[token - start] = True
    mass = same = 0.0
    for j in range(len(p)):
        mass += 0.0 if in_top[j] else p[j]
        same += 0.0 if in_top[j] else p[j] * q[j]
    sums[SUM_P], sums[SAME] = mass, same


@part(FAST, at_once=True)
def by_likely_tokens(
    order: Order, groups: int, top: Integers, rest: Floats, ks: Integers, per_k: Floats
) -> None:
    """Fill the schemes that draft the most likely tokens, walking down from the most likely one;
    ties go to the lowest index.

    Without the first k − 1 the last draft has the law p/P(rest); Σ min(q, p/P(rest)) is
    H(1/P(rest)) less what those have in it.
    """
    p, q = order.p, order.q
    taken, walked = 0.0, 0
    for i, k in enumerate(ks):
        while walked < k - 1:
            taken += q[top[walked]] if p[top[walked]] > 0 else 0.0
            walked += 1
        left, together, same = rest[0, k - 1], 0.0, 0.0
        if left >= _SMALLEST_DIVISOR:
            level = 1.0 / left
            excess = excess_above(order, groups, level)
            together = order.ends[1, groups] - excess
            for j in range(k - 1):
                together -= min(q[top[j]], level * p[top[j]])
            together, same = max(together, 0.0), rest[1, k - 1] / left
        elif left > 0.0:
            least = p[top[k - 1]]
            for j in range(len(p)):
                if p[j] < least or (p[j] == least and j >= top[k - 1]):
                    # not by 1/left, which overflows where left is subnormal
                    last_draft = p[j] / left
                    together += min(q[j], last_draft)
                    same += q[j] * last_draft
        per_k[GREEDY_OPTIMAL, i] = taken + together
        per_k[NAIVE_GREEDY, i] = taken + same
        per_k[TOP_K, i] = taken + (q[top[k - 1]] if p[top[k - 1]] > 0 else 0.0)


@part(FAST, at_once=True)
def masses_without(p: Floats, q: Floats, top: Integers, parts: Floats, rest: Floats) -> None:
    """Fill Σ p and Σ p q without the first so many of the likeliest tokens, all of which `parts`
    leaves out.
    """
    count = len(top)
    rest[0, count] = rest[1, count] = 0.0
    for b in range((len(p) + BLOCK - 1) // BLOCK):
        rest[0, count] += parts[SUM_P, b]
        rest[1, count] += parts[SAME, b]
    for i in range(count - 1, -1, -1):
        mass, target = p[top[i]], q[top[i]]
        rest[0, i], rest[1, i] = rest[0, i + 1] + mass, rest[1, i + 1] + mass * target
