"""What is true, from definitions and published formulas, in exact or 60-digit arithmetic; nothing
here is the library's code.

Every oracle takes a `Row` and returns a `Decimal` or several. Drafts are enumerated sequence by
sequence and the optimum is the least over all token sets where these are few; long rows take the
theorem that the best cut is a prefix in the order of q/p.
"""

from __future__ import annotations

import bisect
import decimal
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from evidence.torture.problems import DIGITS, Row, context
from tests import exact

Numbers = Sequence[Decimal]
ZERO, ONE, INFINITY = Decimal(0), Decimal(1), Decimal("Infinity")
ALL_SETS = 6
"""Largest number of tokens whose sets are all tried."""


def in_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate an oracle in the precision of its row."""

    @functools.wraps(function)
    def exactly(row: Row, *others: Any, **named: Any) -> Any:
        return row.exactly(lambda: function(row, *others, **named))

    return exactly


def total(values: Iterable[Decimal]) -> Decimal:
    """Sum in the precision in force."""
    return sum(values, ZERO)


def power(base: Decimal, exponent: int) -> Decimal:
    """Return base^exponent to 60 digits, 0⁰ = 1."""
    if exponent == 0:
        return ONE
    with decimal.localcontext(context(DIGITS + 20)):
        return base**exponent


def log(value: Decimal) -> Decimal:
    """Return the natural logarithm to 60 digits."""
    with decimal.localcontext(context(DIGITS)):
        return (+value).ln()


def exp(value: Decimal) -> Decimal:
    """Return e to the value to 60 digits."""
    with decimal.localcontext(context(DIGITS)):
        return (+value).exp()


def one_minus_power(base: Decimal, exponent: int) -> Decimal:
    """Return 1 − (1 − x)^k, with 40 digits of its own however small x is."""
    if base < Decimal("1e-40"):  # k x − k (k − 1) x²/2 …: the rest is below 1e-60 of it
        return exponent * base * (ONE - (exponent - 1) * base / 2)
    return ONE - ((ONE - base) ** exponent if exponent <= 64 else power(ONE - base, exponent))


# --------------------------------------------------------------------------------------------------
# laws of the drafts


@functools.lru_cache(64)
@in_row
def sequences(row: Row) -> list[tuple[tuple[int, ...], Decimal]]:
    """Return every draft sequence with its mass, −1 where nothing is left to draft; masses of zero
    are left out.
    """
    if row.law in ("IID", "Product"):
        drafters = row.drafts if row.law == "Product" else (row.p,) * row.k
        found: list[tuple[tuple[int, ...], Decimal]] = [((), ONE)]
        for p in drafters:
            found = [((*x, y), mass * p[y]) for x, mass in found for y in range(len(p)) if p[y] > 0]
        return found
    p = row.p
    likeliest = sorted((y for y in range(len(p)) if p[y] > 0), key=lambda y: (-p[y], y))
    if row.law == "WithoutReplacement":
        found = [((), ONE)]
        for _ in range(row.k):
            found = [grown for x, mass in found for grown in _next_distinct(p, x, mass)]
        return found
    if row.law == "ThresholdRace":
        return _threshold_sets(row)
    if row.law == "TopK":
        top = likeliest[: row.k]
        return [((*top, *(-1,) * (row.k - len(top))), ONE)]
    top = likeliest[: row.k - 1]  # Greedy
    return [
        ((*x, *(-1,) * (row.k - len(x))), mass) for x, mass in _next_distinct(p, tuple(top), ONE)
    ]


def _threshold_sets(row: Row) -> list[tuple[tuple[int, ...], Decimal]]:
    """Return the drafted sets of a threshold race: after S the next new draw is y, or the last."""
    width = len(row.p)
    found: dict[tuple[int, ...], Decimal] = {}
    paths: list[tuple[tuple[int, ...], Decimal]] = [((y,), p) for y, p in enumerate(row.p) if p > 0]
    while paths:
        x, mass = paths.pop()
        inside = total(row.p[y] for y in x)
        rate = inside + row.k * (total(row.p) - inside)
        drafted = (*sorted(x), *(-1,) * (width - len(x)))
        found[drafted] = found.get(drafted, ZERO) + mass / rate
        paths += [
            ((*x, y), mass * (row.k - 1) * p / rate)
            for y, p in enumerate(row.p)
            if p > 0 and y not in x and row.k > 1
        ]
    return list(found.items())


def _next_distinct(
    p: Numbers, x: tuple[int, ...], mass: Decimal
) -> list[tuple[tuple[int, ...], Decimal]]:
    left = [y for y in range(len(p)) if p[y] > 0 and y not in x]
    if not left:
        return [((*x, -1), mass)]
    whole = total(p[y] for y in left)
    return [((*x, y), mass * p[y] / whole) for y in left]


@functools.lru_cache(64)
@in_row
def drafted_sets(row: Row) -> dict[int, Decimal]:
    """Return the law of the set of drafted tokens, sets as bit masks."""
    found: dict[int, Decimal] = {}
    for x, mass in sequences(row):
        key = sum(1 << y for y in {y for y in x if y >= 0})
        found[key] = found.get(key, ZERO) + mass
    return found


@in_row
def containment(row: Row, members: int) -> Decimal:
    """Return Pr(all drafts lie in the set)."""
    if row.law == "IID":
        return power(total(row.p[y] for y in range(len(row.p)) if members >> y & 1), row.k)
    return total(mass for key, mass in drafted_sets(row).items() if key & ~members == 0)


@in_row
def inclusion(row: Row) -> list[Decimal]:
    """Return Pr(x is drafted) for each token."""
    if row.law == "IID":
        return [one_minus_power(p, row.k) for p in row.p]
    return [
        total(mass for key, mass in drafted_sets(row).items() if key >> y & 1)
        for y in range(len(row.q))
    ]


# --------------------------------------------------------------------------------------------------
# optima


@functools.lru_cache(64)
@in_row
def optimum(row: Row) -> Decimal:
    """Return 1 + min_T [Q(T) − b(T)] over every token set T; over prefixes for long rows of i.i.d.
    drafts.
    """
    width = len(row.q)
    if row.law == "IID" and width > ALL_SETS:
        return ONE + min(q - power(p, row.k) for p, q in prefixes(row))
    if row.law == "ThresholdRace" and width > ALL_SETS:
        return ONE + min(q - p / (p + row.k * (ONE - p)) for p, q in prefixes(row))
    if row.law == "IID":
        return Decimal(exact.optimum_iid(row.p, row.q, row.k))  # an int where α* is 1
    return ONE + min(
        total(row.q[y] for y in range(width) if members >> y & 1) - containment(row, members)
        for members in range(1 << width)
    )


@in_row
def cut_value(row: Row, members: Sequence[bool]) -> Decimal:
    """Return 1 + Q(T) − b(T) of one set."""
    mask = sum(1 << y for y, is_in in enumerate(members) if is_in)
    if row.law == "IID":
        drafted = power(total(p for p, is_in in zip(row.p, members, strict=True) if is_in), row.k)
    else:
        drafted = containment(row, mask)
    return ONE + total(q for q, is_in in zip(row.q, members, strict=True) if is_in) - drafted


@functools.lru_cache(16)
@in_row
def by_ratio(row: Row) -> list[tuple[Decimal, Decimal]]:
    """Return (p, q) in ascending order of q/p, tokens that are never drafted last."""
    pairs = [(p, q) for p, q in zip(row.p, row.q, strict=True) if p > 0 or q > 0]
    return sorted(pairs, key=lambda both: both[1] / both[0] if both[0] else INFINITY)


@in_row
def prefixes(row: Row) -> list[tuple[Decimal, Decimal]]:
    """Return (P, Q) of every prefix in that order, the empty one first."""
    return list(
        itertools.accumulate(
            by_ratio(row),
            lambda sums, both: (sums[0] + both[0], sums[1] + both[1]),
            initial=(ZERO, ZERO),
        )
    )


# --------------------------------------------------------------------------------------------------
# the overlap curve, K-SEQ


@in_row
def overlap(row: Row, level: Decimal = ONE) -> Decimal:
    """Return Σ min(q, t p)."""
    return total(min(q, level * p) for p, q in zip(row.p, row.q, strict=True))


@in_row
def hockey_stick(row: Row, level: Decimal) -> Decimal:
    """Return Σ (q − t p)₊."""
    return total(max(q - level * p, ZERO) for p, q in zip(row.p, row.q, strict=True))


@functools.lru_cache(64)
@in_row
def kseq_root(row: Row) -> tuple[Decimal, Decimal]:
    """Return γ* and H(γ*): bisection of 1 − (1 − β)^k = γβ, β = H(γ)/γ, on [1, k], first on the
    pieces of H, then inside one.
    """
    if row.k == 1:
        return ONE, overlap(row)
    pieces = by_ratio(row)
    sums = prefixes(row)
    whole = sums[-1][0]
    ratios = [q / p if p else INFINITY for p, q in pieces]

    def height(level: Decimal, below: int) -> Decimal:
        return sums[below][1] + level * (whole - sums[below][0])

    def too_high(level: Decimal, below: int) -> bool:
        reached = height(level, below)
        return one_minus_power(min(reached / level, ONE), row.k) > reached

    # Below the root p_acc > γβ. Ratios inside (1, k) split it into pieces on which H is linear.
    inner = [(ratio, below) for below, ratio in enumerate(ratios) if ONE < ratio < row.k]
    low, high = 0, len(inner)
    while low < high:
        index = (low + high) // 2
        if too_high(*inner[index]):
            low = index + 1
        else:
            high = index
    left = inner[low - 1][0] if low else ONE
    right = inner[low][0] if low < len(inner) else Decimal(row.k)
    below = sum(ratio <= left for ratio in ratios)
    with decimal.localcontext(context(DIGITS + 20)):
        for _ in range(240):
            middle = (left + right) / 2
            if too_high(middle, below):
                left = middle
            else:
                right = middle
            if right - left < Decimal("1e-60"):
                break
        return left, height(left, below)


@in_row
def kseq(row: Row) -> Decimal:
    """Return K-SEQ's acceptance at γ*, γ*β(γ*)."""
    return kseq_root(row)[1]


@in_row
def kseq_guarantee(row: Row) -> Decimal:
    """Return (1 − (1 − 1/k)^k) Σ min(k p, q)."""
    return kseq_factor(row.k) * overlap(row, Decimal(row.k))


def kseq_factor(k: int) -> Decimal:
    """Return 1 − (1 − 1/k)^k."""
    with decimal.localcontext(context(DIGITS + 20)):
        return ONE - (ONE - ONE / k) ** k


# --------------------------------------------------------------------------------------------------
# single schemes


@in_row
def recursive_rejection(row: Row) -> Decimal:
    """Return the acceptance step by step: r ∝ (r − p)₊; without replacement over every path of
    rejected drafts.
    """
    return exact.recursive_rejection(row.p, row.q, row.k, distinct=row.law == "WithoutReplacement")


@in_row
def naive(row: Row) -> Decimal:
    """Return Σ q Pr(x is drafted)."""
    return total(q * drafted for q, drafted in zip(row.q, inclusion(row), strict=True))


@in_row
def naive_tree(row: Row) -> Decimal:
    """Return Σ min(p, q) + Σ (q − p)₊ [1 − (1 − p)^{k−1}]."""
    return total(
        min(p, q) + max(q - p, ZERO) * (one_minus_power(p, row.k - 1) if row.k > 1 else ZERO)
        for p, q in zip(row.p, row.q, strict=True)
    )


@in_row
def lenience(row: Row, *, factor: int) -> Decimal:
    """Return Σ min(p, q/l), 1/l an integer."""
    return total(min(p, factor * q) for p, q in zip(row.p, row.q, strict=True))


EPS, DELTA, THRESHOLD = map(Decimal, (0.09, 0.3, 0.1))
"""Defaults of typical acceptance and of the divergence gate."""


@in_row
def typical_acceptance(row: Row) -> Decimal:
    """Return P(A) + Σ_{x∉A} p q, A = {q > min(ε, δ e^{−H(q)})}."""
    threshold = min(EPS, DELTA * exp(-entropy(row)))
    return total(p if q > threshold else p * q for p, q in zip(row.p, row.q, strict=True))


@in_row
def fuzzy(row: Row) -> Decimal:
    """Return 1 where the Jensen–Shannon divergence is at most the threshold, else Σ p q."""
    is_open = jensen_shannon(row) <= THRESHOLD
    return ONE if is_open else total(p * q for p, q in zip(row.p, row.q, strict=True))


@in_row
def margin(row: Row) -> Decimal:
    """Return how far the pair is from deciding otherwise under typical acceptance and under the
    divergence gate.
    """
    threshold = min(EPS, DELTA * exp(-entropy(row)))
    return min(abs(jensen_shannon(row) - THRESHOLD), *(abs(q - threshold) for q in row.q))


@in_row
def backward_kl(row: Row) -> Decimal:
    """Return Σ p log(p/q)."""
    return relative_entropy(row.p, row.q)


@in_row
def overtaking(row: Row) -> list[Decimal]:
    """Return g_i = Σ_j (q_i p_j/p_i − q_j)₊ for each token, ∞ where p = 0."""
    pairs = list(zip(row.p, row.q, strict=True))
    return [total(max(q * b / p - a, ZERO) for b, a in pairs) if p else INFINITY for p, q in pairs]


@in_row
def overtaking_sorted(row: Row) -> list[tuple[Decimal, Decimal]]:
    """Return (q, g) for the tokens with p > 0 from running sums, for long rows."""
    found, below_p, below_q = [], ZERO, ZERO
    for p, q in by_ratio(row):
        if p:
            below_p, below_q = below_p + p, below_q + q
            found.append((q, q / p * below_p - below_q))
    return found


@in_row
def poisson_representation(row: Row) -> Decimal:
    """Return Σ q [1 − (g/(1 + g))^k]; for k = 1 the exact acceptance of the race."""
    return total(q * one_minus_power(ONE / (ONE + g), row.k) for q, g in overtaking_sorted(row))


@in_row
def threshold_race(row: Row) -> Decimal:
    """Return Σ_i 1/Σ_j max(q_j/q_i, p_j/(c p_i)); of long rows Σ q/(Q(r ≥ t) + t P(r < t)), t =
    r/c.
    """
    both = list(zip(row.p, row.q, strict=True))
    if len(both) > ALL_SETS:
        sums = prefixes(row)
        ratios = [q / p if p else INFINITY for p, q in by_ratio(row)]
        levels = [(q, q / (row.k * p)) for p, q in both if p and q]
        places = [(q, t, sums[bisect.bisect_left(ratios, t)]) for q, t in levels]
        return total(q / (sums[-1][1] - below + t * mass) for q, t, (mass, below) in places)
    return total(
        ONE / total(max(b / q, a / (row.k * p)) for a, b in both) for p, q in both if p and q
    )


@in_row
def threshold_bound(row: Row) -> Decimal:
    """Return Σ c p q/(c p + q)."""
    return total(
        row.k * p * q / (row.k * p + q) for p, q in zip(row.p, row.q, strict=True) if p and q
    )


@in_row
def race(row: Row) -> Decimal:
    """Return Pr(the target's winner is among the first k arrivals), by expanding Π (1 − e^{−t a}) Π
    e^{−t a} under ∫ e^{−t} dt.
    """
    if row.k == 1:
        return poisson_representation(row)
    answer = ZERO
    for i, (p, q) in enumerate(zip(row.p, row.q, strict=True)):
        if not (p and q):
            continue
        rates = [
            max(q * b / p - a, ZERO)
            for j, (b, a) in enumerate(zip(row.p, row.q, strict=True))
            if j != i
        ]
        rates = [rate for rate in rates if rate > 0]
        whole = total(rates)
        for early in range(min(row.k - 1, len(rates)) + 1):
            for overtakers in itertools.combinations(rates, early):
                held = whole - total(overtakers)
                for size in range(early + 1):
                    for some in itertools.combinations(overtakers, size):
                        answer += (-1) ** size * q / (ONE + held + total(some))
    return answer


@in_row
def list_race_rule(row: Row) -> Decimal:
    """Return Σ k q/(k + g)."""
    return total(row.k * q / (row.k + g) for q, g in overtaking_sorted(row))


@in_row
def list_matching(row: Row) -> Decimal:
    """Return Σ k p q/(k p + q)."""
    return total(row.k * p * q / (row.k * p + q) for p, q in zip(row.p, row.q, strict=True) if p)


@in_row
def poisson_matching(row: Row) -> Decimal:
    """Return Σ q [1 − (q/(p + q))^k] over p > 0."""
    return total(
        q * one_minus_power(p / (p + q), row.k) for p, q in zip(row.p, row.q, strict=True) if p
    )


@in_row
def minhash(row: Row, *, by: str) -> Decimal:
    """Return Σ min/Σ max, or by membership with the chance that a later dart hits the
    same token.
    """
    both, most = overlap(row), total(max(p, q) for p, q in zip(row.p, row.q, strict=True))
    if by == "rule":
        return both / most
    # The first dart below max(p, q) stops one of the two; the other goes on afresh with its own
    # law.
    luck = total((p - q) * q if p > q else (q - p) * p for p, q in zip(row.p, row.q, strict=True))
    return (both + luck) / most


@in_row
def spectr_bound(row: Row, members: Sequence[bool]) -> Decimal:
    """Return SpecTr's Theorem 1 for one Ω₀, sequence by sequence."""
    chosen = [y for y, is_in in enumerate(members) if is_in]
    return Decimal(exact.theorem_1(row.p, row.q, row.k, chosen))


@in_row
def support_limit(row: Row) -> Decimal:
    """Return Q(supp p), the union of the supports for different drafters."""
    return total(q for y, q in enumerate(row.q) if any(p[y] > 0 for p in row.drafts))


# --------------------------------------------------------------------------------------------------
# divergences


@in_row
def kl(row: Row) -> Decimal:
    """Return Σ q log(q/p)."""
    return relative_entropy(row.q, row.p)


def relative_entropy(of: Numbers, against: Numbers) -> Decimal:
    """Return Σ a log(a/b) in the precision in force; ∞ where a > 0 = b.

    Where a and b are close log(a/b) is small and the sum cancels; 60 digits leave enough.
    """
    answer = ZERO
    for a, b in zip(of, against, strict=True):
        if a:
            if not b:
                return INFINITY
            answer += a * log(a / b) if abs(a - b) > b * Decimal("1e-30") else a * (a / b - ONE)
    return max(answer, ZERO)


@in_row
def harmonic(row: Row) -> Decimal:
    """Return ½ Σ (p − q)²/(p + q) = 1 − Σ 2pq/(p + q)."""
    return total((p - q) ** 2 / (p + q) for p, q in zip(row.p, row.q, strict=True) if p + q) / 2


@in_row
def entropy(masses: Row, of: str = "q") -> Decimal:
    """Return −Σ m log m in nats, of the draft or the target."""
    return -total(m * log(m) for m in getattr(masses, of) if m)


@in_row
def jensen_shannon(row: Row) -> Decimal:
    """Return the Jensen–Shannon divergence in nats."""
    middle = [(p + q) / 2 for p, q in zip(row.p, row.q, strict=True)]
    return (relative_entropy(row.p, middle) + relative_entropy(row.q, middle)) / 2


LOG_2 = Decimal(
    "0.693147180559945309417232121458176568075500134360255254120680009493393621969694715605863326996418687"
)


@in_row
def index_entropy(row: Row, *, greedy: bool) -> Decimal:
    """Return D + log₂(D + 1) + 4 in bits, or for greedy rejection D + log₂(D + log₂
    4e) + log₂ 4e.
    """
    bits = kl(row) / LOG_2
    if bits == INFINITY:
        return INFINITY
    constant = 2 + ONE / LOG_2
    return bits + (log(bits + constant) / LOG_2 + constant if greedy else log(bits + 1) / LOG_2 + 4)
