"""The containment, the inclusion and the minimum cut of drafts without replacement, by quadrature.

Give every token an exponential clock with rate p(x). The tokens in order of arrival are a
successive sample, so "the first k drafts lie in T" says that at least k clocks of T ring before the
first one outside, at rate c = p(Tᶜ):

    1 − b(T) = ∫₀^∞ c e^{−ct} F_{k−1}(t) dt,      F_j(t) = Pr(N_T(t) ≤ j),

N_T(t) the number of arrivals in T, a sum of independent indicators with probabilities 1 −
e^{−p(x)t}. Adding a token x to T mixes F_j with F_{j−1}, F_j ← F_j + (1 − e^{−p(x)t})(F_{j−1} −
F_j): a convex combination, so nothing cancels however far the masses are apart. One pass over the
tokens in the order of q/p gives every prefix, and every number of drafts up to k on the way.

*Many tokens at once.* At a given time most tokens of a large set are unlikely to have arrived.
Where z = p(x)t ≤ δ the factors e^{−z}(1 + v(e^z − 1)) of the generating function are multiplied out
from the power sums Σ (e^z − 1)^m, and these are series in the sums Σ p^j, the same for all t.
Newton's identities alternate in sign and lose at most the factor e^{kδ} ≤ e². The few other tokens,
some (k + 40)/δ before F_{k−1} vanishes, are added one by one.

*Few prefixes.* b has rising slopes (docs/theory.md, "The prefix property"), so that along the
prefixes 1 − b_j is a concave function of the mass C_j outside. A chord between two prefixes lies
below it, and Q_j plus the chord below every value between them: on long rows prefixes are
evaluated only until that bound leaves few that could be the least, and these are scanned.

*The step.* With t = e^u the integrand is analytic in |Im u| < π/2, and the trapezoid rule with step
h errs by at most 2M/(e^{2πθ/h} − 1) if the integrand's integral along Im u = ±θ is at most M. Put z
= p(x)t with arg z = θ. Since |e^z − 1| = |∫₀¹ z e^{sz} ds| ≤ (|z|/Re z)(e^{Re z} − 1), each factor
|e^{−z}| + v|1 − e^{−z}| of the generating function is at most 1 at v = cos θ, whence |Pr(N = j)| ≤
(cos θ)^{−j} for complex times, for any masses. The factor y e^{−y}, y = ct, integrates to 1/cos θ,
so M ≤ Σ_{j<k} (cos θ)^{−j−1} ≤ (cos θ)^{−k}/(1 − cos θ). The step is the largest that keeps the
error below 1e-15 for the best θ: 0.18 for k = 8, 0.09 for k = 64.

*The range.* Below t₀ with t₀^k/k! = 1e-17 every F_{k−1} is 1 to that accuracy, and the nodes there
sum to a power series in c t₀. Above, a node is dropped once F_{k−1} has fallen below 1e-18 for
every larger prefix too (F only decreases), and no node beyond c t = 50 matters. Masses of 1e-300
cost more nodes, not accuracy. c is a sum of what is left, never 1 − P(T).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, Floats, namespace, quiet, running_sum, to_numpy, unit_rows
from otm._machine.patience import Pace
from otm.drafts.base import check_enough_tokens
from otm.overlap.curve import ascending

_QUADRATURE_ERROR = 1e-15
_NEGLIGIBLE = 1e-18
_LAST_EXPONENT = 50.0  # y e^{−y} < 1e-20 beyond
_LARGEST_START = 0.5  # where the series for the nodes below t₀ needs 15 terms
_BLOCK_ELEMENTS = 1 << 16
_LARGEST_EXPONENT = 700.0  # e^700 is representable
_UNIT = 2.0**600  # of time: subnormal rates ring at 1e325, where all that is lost is below 1e-180
_LONG_ROW = 4096  # from here on a search costs less than a scan of all prefixes
_SEARCHES = 12  # rounds of bounds; what they leave over is scanned
_SPLITS = 4  # prefixes evaluated per round, evenly by mass and as many by number
_FEW_PREFIXES = 512  # a scan of so many costs as much as one more prefix by itself
_POWERS = 20  # of z ≤ 1/8: what is left out of a series is below 1e-17
_LARGEST_LIGHT = 0.125
_HEAVY_AT_ONCE = 32


def successive_values(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    """Return the optimal acceptance for each number of drafts, `(len(ks), ...)` in float64.

    α*_k = 1 + min_j [Q(T_j) − b_k(T_j)] over the prefixes T_j in the order of q/p. Computed on the
    host in NumPy and returned as the kind of array that came in.

    Cost: O(V·max(ks)·nodes) with some 50 to 300 nodes; on rows of more than 4,096 tokens one sort
        and some 20 prefixes at O(V + heads·max(ks)·nodes) each. Accuracy: 1e-14 absolute.
    """
    xp = namespace(draft, target)
    p, q = (unit_rows(to_numpy(array)) for array in (draft, target))
    leading, num_tokens = p.shape[:-1], p.shape[-1]
    check_enough_tokens(max(ks), num_tokens)
    p, q = p.reshape(-1, num_tokens), q.reshape(-1, num_tokens)
    values = np.empty((len(ks), len(p)))
    for rows in _blocks(len(p), 25 * (max(ks) + 1)):
        values[:, rows] = np.clip(_least_losses(p[rows], q[rows], ks)[1], 0.0, 1.0)
    return xp.asarray(values.reshape(len(ks), *leading), device=draft.device)


def successive_worst_set(draft: Floats, target: Floats, k: int) -> NDArray[np.bool_]:
    """Return the minimising prefix T as a mask `(V,)`; the empty set if no prefix is better."""
    order, loss, length = _least_losses(draft[None], target[None], [k])
    members = np.zeros(len(draft), dtype=bool)
    if loss[0, 0] < 1.0:
        members[order[0, : length[0, 0]]] = True
    return members


def successive_containment(draft: Floats, members: NDArray[np.bool_], k: int) -> float:
    """Return b(T) = Pr(the first k drafts lie in T) of one set, exact where 1 or 0."""
    outside = math.fsum(draft[~members])
    inside = draft[members & (draft > 0)]
    if outside == 0.0:
        return 1.0
    if len(inside) < k:
        return 0.0
    if k == 1:
        return math.fsum(inside)
    descending = np.sort(inside)[::-1]
    before, last = descending[:-1], descending[None, -1:]
    return 1.0 - float(_race_escape(last, np.array([[outside]]), [k], before)[0, 0, 0])


def prefix_containment(draft: Floats, k: int) -> Floats:
    """Return b of every prefix of the tokens in the given order, `(V,)`.

    Cost: O(V·k·nodes). Accuracy: 1e-14.
    """
    support = np.array([np.count_nonzero(draft)])
    escape = _escape(draft[None], _outside(draft[None]), [k], support=support)
    return np.asarray(1.0 - escape[0, 0])


def successive_inclusion(draft: Floats, k: int) -> Floats:
    """Return Pr(x is among the first k drafts) = 1 − b(Ω ∖ {x}) for each token, `(V,)`.

    The count without token x is that of the tokens before it plus that of the tokens after it: two
    states meet, one carried forwards, one backwards. Forward states are kept at block boundaries
    and recomputed inside.

    Cost: three passes of O(V·k·nodes). Accuracy: 1e-14.
    """
    p = draft[draft > 0]
    if k >= len(p):
        inclusion = np.ones(len(p))
    else:
        inclusion = p / math.fsum(p) if k == 1 else _inclusion(p, k)
    included = np.zeros(len(draft))
    included[draft > 0] = inclusion
    return included


def trapezoid_step(k: int, error: float = _QUADRATURE_ERROR) -> float:
    """Return the largest step in log t that keeps the trapezoid rule's proven error below `error`.

    h = max_θ 2πθ / log(1 + 2 (cos θ)^{−k} / ((1 − cos θ)·error)), see the head of this module.

    >>> round(trapezoid_step(8), 3), round(trapezoid_step(64), 3)
    (0.178, 0.085)
    """
    theta = np.linspace(0.01, 1.56, 400)
    log_bound = math.log(2.0 / error) - k * np.log(np.cos(theta)) - np.log1p(-np.cos(theta))
    return float(np.max(2 * np.pi * theta / np.logaddexp(0.0, log_bound)))


@dataclasses.dataclass(frozen=True, eq=False)
class _Race:
    """Nodes t_n = t₀ e^{hn} of the quadrature, in units of `_UNIT`, so that none overflows."""

    step: float
    start_time: float
    times: Floats

    @classmethod
    def over(cls, least_k: int, largest_k: int, smallest_rate: float) -> _Race:
        """Place nodes for least_k to largest_k drafts and every c ≥ smallest_rate."""
        step = trapezoid_step(largest_k)
        start = min(
            _LARGEST_START, math.exp((math.lgamma(least_k + 1) + math.log(1e-17)) / least_k)
        )
        span = math.log(_LAST_EXPONENT) - math.log(smallest_rate) - math.log(start)
        logs = math.log(start) + step * np.arange(max(1, math.ceil(span / step) + 1))
        capped = np.minimum(logs, _LARGEST_EXPONENT)
        times = np.exp(capped) / _UNIT * np.exp(logs - capped)
        return cls(step=step, start_time=start, times=times)

    @property
    def nodes(self) -> int:
        return len(self.times)

    def start(self, rows: int, k: int) -> Floats:
        """Return (F_{−1}, F_0, .., F_{k−1}) of the empty set, `(rows, k + 1, nodes)`."""
        state = np.ones((rows, k + 1, self.nodes))
        state[:, 0] = 0.0
        return state

    def exponents(self, rates: Floats, nodes: int | slice) -> Floats:
        """Return rate·t at a slice of the nodes, or the first few, `(..., nodes)`."""
        part = nodes if isinstance(nodes, slice) else slice(nodes)
        with quiet():
            scaled: Floats = (rates * _UNIT)[..., None] * self.times[part]
        return scaled

    def weights(self, rates: Floats, live: int) -> Floats:
        """Return h·ct·e^{−ct} for each rate c, `(..., live)`."""
        y = np.minimum(self.exponents(rates, live), 1000.0)
        return np.asarray(self.step * y * np.exp(-y))

    def below(self, rates: Floats) -> Floats:
        """Return the sum of the weights of all nodes below t₀, where F = 1."""
        # h Σ_m (−1)^m z^{m+1}/(m! (e^{h(m+1)} − 1)), z = ct₀
        z = rates * self.start_time
        total = np.zeros_like(z)
        for m in reversed(range(16)):
            total = z * (total + (-1) ** m / (math.factorial(m) * math.expm1(self.step * (m + 1))))
        return np.asarray(self.step * total)

    def advance(
        self,
        state: Floats,
        rates: Floats,
        live: int,
        history: Floats | None,
        ks: Sequence[int] = (),
    ) -> int:
        """Add tokens of given rates `(rows, B)` to T in turn; return the number of live nodes.

        The state changes in place; `history` `(B, rows, len(ks), live)` receives F_{k−1} after each
        token.
        """
        rings = -np.expm1(-self.exponents(rates.T, live))[:, :, None, :]
        upper, lower = state[:, 1:, :live], state[:, :-1, :live]
        change = np.empty_like(upper)
        # of one number a view, which costs a fraction of a selection
        wanted = slice(ks[0], ks[0] + 1) if len(ks) == 1 else list(ks)
        for number, ring in enumerate(rings):
            np.subtract(lower, upper, out=change)
            change *= ring
            upper += change
            if history is not None:
                history[number] = state[:, wanted, :live]
        alive = (state[:, -1, :live] > _NEGLIGIBLE).any(axis=0)
        return int(np.flatnonzero(alive).max(initial=-1)) + 1

    def add_many(self, state: Floats, rates: Floats) -> int:
        """Add tokens of descending rates `(n,)` to T of one row, in place; return as `advance`."""
        k = state.shape[1] - 1
        light, live, added = min(_LARGEST_LIGHT, 2.0 / k), self.nodes, 0
        # The heaviest first: they end the latest nodes, where the others would be heavy too.
        while live and added < len(rates):
            if self.exponents(rates[added : added + 1], live)[0, -1] <= light:
                return self._add_light(state, rates[added:], live)
            live = self.advance(state, rates[None, added : added + _HEAVY_AT_ONCE], live, None)
            added += _HEAVY_AT_ONCE
        return live

    def _add_light(self, state: Floats, rates: Floats, live: int) -> int:
        """Add tokens that are light at all live nodes, in place; return as `advance`."""
        last = slice(live - 1, live)
        scaled = self.exponents(rates, last)[:, 0]
        counts = _light_counts(
            scaled, np.exp(self.step * np.arange(1 - live, 1)), state.shape[1] - 1
        )
        k, live = counts.shape
        before = state[0, 1:, :live].copy()
        state[0, 1:, :live] = counts[0] * before
        for j in range(1, k):
            state[0, 1 + j :, :live] += counts[j] * before[: k - j]
        return live

    def counts_before_each(self, state: Floats, rates: Floats, live: int) -> Floats:
        """Return F_0, .., F_{k−1} before each token, `(B, k, live)`; T gains all but the last."""
        k = state.shape[1] - 1
        counts = np.empty((len(rates), 1, k, live))
        counts[0] = state[:, 1:, :live]
        self.advance(state, rates[None, :-1], live, counts[1:], range(1, k + 1))
        return counts[:, 0]


def _light_counts(scaled: Floats, ratio: Floats, k: int) -> Floats:
    """Return Pr(j of the tokens have arrived), j < k, at the nodes where this is not negligible.

    Args:
        scaled: z = p·t at the last node, in descending order, at most 2/k, `(n,)`.
        ratio: the nodes' times, in parts of the last one's, ascending `(live,)`.
    """
    # Σ z^j: of high powers only the tokens that can be seen beside the first.
    moments = np.zeros(_POWERS)
    power, rising = scaled.copy(), -scaled
    moments[0] = power.sum()
    for j in range(1, _POWERS):
        seen = np.searchsorted(rising, rising[0] * 1e-20 ** (1.0 / j))
        power = power[:seen]
        power *= scaled[:seen]
        moments[j] = power.sum()
    # Pr(N < k) ≤ e^{−Σz} (1 + Σ(e^z − 1))^{k−1}, and Σ(e^z − 1) ≤ 1.1 Σz.
    seen_all = moments[0] * ratio
    alive = seen_all - (k - 1) * np.log1p(1.1 * seen_all) < -math.log(_NEGLIGIBLE)
    ratio = ratio[: int(np.flatnonzero(alive)[-1]) + 1]
    powers = moments[:, None] * ratio ** np.arange(1, _POWERS + 1)[:, None]
    sums = _SERIES @ powers  # Σ (e^z − 1)^m, m = 1.._POWERS
    sums[1::2] *= -1.0
    counts = np.empty((k, len(ratio)))
    counts[0] = np.exp(-powers[0])
    for j in range(1, k):  # Newton's identities
        terms = min(j, _POWERS)
        counts[j] = (sums[:terms] * counts[j - terms : j][::-1]).sum(axis=0) / j
    return counts


def _series() -> Floats:
    """Return the coefficients of z^j in (e^z − 1)^m, rows m and columns j from 1 to `_POWERS`."""
    first = np.array([0.0, *(1.0 / math.factorial(j) for j in range(1, _POWERS + 1))])
    rows = [first]
    for _ in range(_POWERS - 1):
        rows.append(np.convolve(rows[-1], first)[: _POWERS + 1])
    return np.stack(rows)[:, 1:]


_SERIES = _series()


def _least_losses(
    draft: Floats, target: Floats, ks: Sequence[int]
) -> tuple[NDArray[np.intp], Floats, NDArray[np.intp]]:
    """Return the order of q/p `(rows, V)`, the least loss Q(T_j) + 1 − b_k(T_j) and the index j.

    The loss and the index are `(len(ks), rows)`.
    """
    with quiet():
        order = np.asarray(ascending(draft, target))
    p = np.take_along_axis(draft, order, axis=-1)
    inside = running_sum(np.take_along_axis(target, order, axis=-1))
    outside = _outside(p)
    if p.shape[1] <= _LONG_ROW:
        losses = inside + _escape(p, outside, ks, support=np.count_nonzero(p, axis=-1))
        return order, losses.min(axis=-1), losses.argmin(axis=-1) + 1
    found = [_search(*row, ks) for row in zip(p, inside, outside, strict=True)]
    least, length = (np.stack(part, axis=-1) for part in zip(*found, strict=True))
    return order, least, length


def _outside(p: Floats) -> Floats:
    """Return the mass behind each token of the rows, `(rows, V)`."""
    outside = np.zeros_like(p)
    outside[:, :-1] = running_sum(p[:, :0:-1].copy())[:, ::-1]
    return outside


def _search(
    p: Floats, inside: Floats, outside: Floats, ks: Sequence[int]
) -> tuple[Floats, NDArray[np.intp]]:
    """Return the least Q + 1 − b_k of a long row's prefixes, and the lengths, `(len(ks),)` each."""
    size = int(np.count_nonzero(outside)) + 1  # of the first prefix that holds all of supp p
    cost, left = np.append(0.0, inside[:size]), np.append(1.0, outside[:size])
    support, by_mass = np.array([np.count_nonzero(p)]), np.argsort(-p[:size])

    def escapes(first: int, last: int) -> Floats:
        run = slice(first - 1, last)
        before = p[by_mass[by_mass < first - 1]]
        return _escape(p[None, run], outside[None, run], ks, support=support, before=before)[:, 0]

    # Known are the empty prefix, which surely lets a draft escape, and the whole support.
    known, escape = np.array([0, size]), np.tile([1.0, 0.0], (len(ks), 1))
    unknown = np.arange(1, size)
    for _ in range(_SEARCHES):
        best = (cost[known] + escape).min(axis=1, keepdims=True)
        chords = [np.interp(-left[unknown], -left[known], row) for row in escape]
        bounds = cost[unknown] + np.stack(chords)
        kept = (bounds < best).any(axis=0)
        unknown, bounds = unknown[kept], bounds[:, kept]
        if len(unknown) <= _FEW_PREFIXES:
            break
        parts = np.arange(1, _SPLITS + 1) / (_SPLITS + 1)
        mass = np.cumsum(p[unknown - 1])
        by_share = np.searchsorted(mass[:-1], parts * mass[-1])
        by_number = (parts * len(unknown)).astype(np.intp)
        chosen = unknown[np.unique([*bounds.argmin(axis=1), *by_share, *by_number])]
        known = np.append(known, chosen)
        escape = np.hstack([escape, *(escapes(length, length) for length in chosen)])
        place = np.argsort(known)
        known, escape = known[place], escape[:, place]
        unknown = np.setdiff1d(unknown, chosen, assume_unique=True)
    # What is left is scanned, from the first to the last between two known prefixes.
    gaps = np.searchsorted(known, unknown)
    for gap in np.unique(gaps):
        first, last = unknown[gaps == gap][[0, -1]]
        known = np.append(known, np.arange(first, last + 1))
        escape = np.hstack([escape, escapes(first, last)])
    losses = cost[known] + escape
    return losses.min(axis=1), known[losses.argmin(axis=1)]


def _escape(
    p: Floats,
    outside: Floats,
    ks: Sequence[int],
    *,
    support: NDArray[np.intp],
    before: Floats | None = None,
) -> Floats:
    """Return 1 − b_k of T after each of some tokens is added in turn, `(len(ks), rows, n)`.

    Args:
        p: masses of the tokens `(rows, n)`.
        outside: mass outside T after each `(rows, n)`.
        ks: numbers of drafts.
        support: number of tokens that can be drafted `(rows,)`.
        before: masses of the tokens that T starts with, descending `(m,)`, for one row only.
    """
    escape = np.empty((len(ks), *p.shape))
    counts = sorted({k for k in ks if k > 1 and (support > k).any()})
    raced = {}
    if counts and outside.any():
        raced = dict(zip(counts, _race_escape(p, outside, counts, before), strict=True))
    for number, k in enumerate(ks):
        # One draft escapes with probability c; as many drafts as there are tokens escape unless T
        # holds them all.
        here = np.where(outside > 0, raced.get(k, outside), 0.0)
        escape[number] = np.where((support <= k)[:, None], outside > 0, here)
    return escape


def _race_escape(p: Floats, outside: Floats, ks: Sequence[int], before: Floats | None) -> Floats:
    """Return the result of `_escape` by quadrature; ks ascending, at least 2."""
    rows, size = p.shape
    race = _Race.over(ks[0], ks[-1], float(outside[outside > 0].min()))
    state = race.start(rows, ks[-1])
    live = race.nodes if before is None else race.add_many(state, before)
    escape = np.empty((len(ks), rows, size))
    for block in _blocks(size, race.nodes * rows * len(ks)):
        history = np.empty((block.stop - block.start, rows, len(ks), live))
        nodes = live
        live = race.advance(state, p[:, block], nodes, history, ks)
        weights = race.weights(outside[:, block], nodes)
        escape[:, :, block] = np.einsum("brkn,rbn->krb", history, weights)
        escape[:, :, block] += race.below(outside[:, block])
    return np.minimum(escape, 1.0)


def _inclusion(p: Floats, k: int) -> Floats:
    """Return the inclusion probabilities of tokens that all have mass, 2 ≤ k < len(p)."""
    race = _Race.over(k, k + 1, float(p.min()))
    # Without x at most k − 1 arrivals means at most k with it: where F_k is gone, every token's
    # term is. So k + 1 are carried.
    state, live = race.start(1, k + 1), race.nodes
    blocks = _blocks(len(p), race.nodes * (k + 1))
    marks = []
    pace = Pace("Which tokens are drafted without replacement", "Take fewer drafts or tokens.")
    for block in blocks:
        pace.check(0.25 * block.stop / len(p))  # the way back takes three times as long
        marks.append(state[:, : k + 1].copy())
        live = race.advance(state, p[None, block], live, None)
    after = race.start(1, k)
    included = np.empty(len(p))
    for block, before in zip(reversed(blocks), reversed(marks), strict=True):
        pace.check(1.0 - 0.75 * (block.stop - 1) / len(p))
        earlier = race.counts_before_each(before, p[block], live)
        later = race.counts_before_each(after, p[block][::-1], live)[::-1]
        race.advance(after, p[None, block][:, :1], live, None)
        # Pr(j of the later tokens arrived), when of the earlier ones at most k − 1 − j have.
        exactly = np.diff(later, axis=1, prepend=0.0)
        without = np.einsum("bjn,bjn->bn", exactly, earlier[:, ::-1])
        included[block] = (race.weights(p[block], live) * without).sum(axis=-1) + race.below(
            p[block]
        )
    return np.minimum(included, 1.0)


def _blocks(number: int, elements_of_each: int) -> list[slice]:
    """Cut tokens or rows into runs whose temporaries stay in cache."""
    size = max(1, _BLOCK_ELEMENTS // max(1, elements_of_each))
    return [slice(start, min(number, start + size)) for start in range(0, number, size)]
