"""Drafts without replacement seen as a race: containment, inclusion and the minimum cut by one
quadrature.

Give every token an exponential clock with rate p(x). The tokens in order of arrival are a
successive sample, so "the first k drafts lie in T" says that at least k clocks of T ring before the
first one outside, at rate c = p(Tᶜ):

    1 − b(T) = ∫₀^∞ c e^{−ct} F_{k−1}(t) dt,      F_j(t) = Pr(N_T(t) ≤ j),

N_T(t) the number of arrivals in T, a sum of independent indicators with probabilities 1 −
e^{−p(x)t}. Adding a token x to T mixes F_j with F_{j−1}, F_j ← F_j + (1 − e^{−p(x)t})(F_{j−1} −
F_j): a convex combination, so nothing cancels however far the masses are apart. One pass over the
tokens in the order of q/p gives every prefix, and every number of drafts up to k on the way.

*The step.* With t = e^u the integrand is analytic in |Im u| < π/2, and the trapezoid rule with step h errs by at most
2M/(e^{2πθ/h} − 1) if the integrand's integral along Im u = ±θ is at most M. Put z = p(x)t with arg z = θ. Since
|e^z − 1| = |∫₀¹ z e^{sz} ds| ≤ (|z|/Re z)(e^{Re z} − 1), each factor |e^{−z}| + v|1 − e^{−z}| of the generating function is at
most 1 at v = cos θ, whence |Pr(N = j)| ≤ (cos θ)^{−j} for complex times, for any masses. The factor y e^{−y}, y = ct, integrates to
1/cos θ, so M ≤ Σ_{j<k} (cos θ)^{−j−1} ≤ (cos θ)^{−k}/(1 − cos θ). The step is the largest that keeps the error below 1e-15 for the
best θ: 0.18 for k = 8, 0.09 for k = 64.

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

from otm._arrays import Array, namespace, quiet, running_sum, to_numpy, unit_rows
from otm.errors import InvalidParameter
from otm.overlap.curve import ascending

_QUADRATURE_ERROR = 1e-15
_NEGLIGIBLE = 1e-18
_LAST_EXPONENT = 50.0  # y e^{−y} < 1e-20 beyond
_LARGEST_START = 0.5  # where the series for the nodes below t₀ needs 15 terms
_BLOCK_ELEMENTS = 1 << 16
_ROW_ELEMENTS = 1 << 18
_LARGEST_EXPONENT = 700.0  # e^700 is representable

_Floats = NDArray[np.float64]


def successive_values(draft: Array, target: Array, ks: Sequence[int]) -> Array:
    """Return α*_k = 1 + min_j [Q(T_j) − b_k(T_j)] over prefixes T_j in the order of q/p, for each
    k, `(len(ks), ...)` in float64.

    Computed on the host in NumPy and returned as the kind of array that came in.

    Cost: O(V·max(ks)·nodes) with some 50 to 300 nodes. Accuracy: 1e-14 absolute, whatever the
    masses.
    """
    xp = namespace(draft, target)
    p, q = (unit_rows(to_numpy(array)) for array in (draft, target))
    leading, num_tokens = p.shape[:-1], p.shape[-1]
    check_enough_tokens(max(ks), num_tokens)
    p, q = p.reshape(-1, num_tokens), q.reshape(-1, num_tokens)
    values = np.empty((len(ks), len(p)))
    for rows in _row_chunks(len(p), max(ks)):
        order, escape = _prefix_scan(p[rows], q[rows], ks)
        inside = running_sum(np.take_along_axis(q[rows], order, axis=-1))
        values[:, rows] = np.clip((inside + escape).min(axis=-1), 0.0, 1.0)
    return xp.asarray(values.reshape(len(ks), *leading), device=draft.device)


def successive_worst_set(draft: _Floats, target: _Floats, k: int) -> NDArray[np.bool_]:
    """Return the minimising prefix T as a mask `(V,)`; the empty set where nothing beats it."""
    order, escape = _prefix_scan(draft[None], target[None], [k])
    gain = 1.0 - escape[0, 0] - running_sum(target[order[0]])
    members = np.zeros(len(draft), dtype=bool)
    best = int(np.argmax(gain))
    if gain[best] > 0.0:
        members[order[0, : best + 1]] = True
    return members


def successive_containment(draft: _Floats, members: NDArray[np.bool_], k: int) -> float:
    """Return b(T) = Pr(the first k drafts lie in T) for one set; exactly 1 or 0 where that is so."""
    outside = math.fsum(draft[~members])
    inside = draft[members & (draft > 0)]
    if outside == 0.0:
        return 1.0
    if len(inside) < k:
        return 0.0
    if k == 1:
        return math.fsum(inside)
    c = np.array([outside])
    race = _Race.over(k, k, outside)
    state = race.start(1, k)
    live = race.nodes
    for block in _blocks(len(inside), live):
        live = race.advance(state, inside[None, block], live, None)
    missed = race.below(c) + (race.weights(c, live)[0] * state[0, k, :live]).sum()
    return float(np.clip(1.0 - missed[0], 0.0, 1.0))


def successive_inclusion(draft: _Floats, k: int) -> _Floats:
    """Return Pr(x is among the first k drafts) for each token, `(V,)`: 1 − b(Ω ∖ {x}), all tokens
    at once.

    The count without token x is that of the tokens before it plus that of the tokens after it: two
    states meet, one carried forwards, one backwards. Forward states are kept at block boundaries
    and recomputed inside.

    Cost: three passes of O(V·k·nodes). Accuracy: 1e-14.
    """
    support = np.flatnonzero(draft > 0)
    included = np.zeros(len(draft))
    if k >= len(support):
        included[support] = 1.0
    elif k == 1:
        included[support] = draft[support] / math.fsum(draft[support])
    else:
        included[support] = _inclusion(draft[support], k)
    return included


def check_enough_tokens(k: int, num_tokens: int) -> None:
    """Raise `InvalidParameter` if k distinct tokens cannot be drafted from the vocabulary."""
    if k > num_tokens:
        raise InvalidParameter(
            f"Distinct drafts need k ≤ V; got k = {k} with V = {num_tokens} tokens. Pass k = "
            f"{num_tokens} or less, or otm.IID({k})."
        )


def trapezoid_step(k: int, error: float = _QUADRATURE_ERROR) -> float:
    """Return the largest step in log t for which the proven bound on the trapezoid rule's error is
    at most `error`.

    h = max_θ 2πθ / log(1 + 2 (cos θ)^{−k} / ((1 − cos θ)·error)), see the head of this module.

    >>> round(trapezoid_step(8), 3), round(trapezoid_step(64), 3)
    (0.178, 0.085)
    """
    theta = np.linspace(0.01, 1.56, 400)
    log_bound = math.log(2.0 / error) - k * np.log(np.cos(theta)) - np.log1p(-np.cos(theta))
    return float(np.max(2 * np.pi * theta / np.logaddexp(0.0, log_bound)))


@dataclasses.dataclass(frozen=True, eq=False)
class _Race:
    """The nodes t_n = t₀ e^{hn} of the quadrature, as products of two factors that do not overflow."""

    step: float
    start_time: float
    first: _Floats
    second: _Floats | None

    @classmethod
    def over(cls, least_k: int, largest_k: int, smallest_rate: float) -> _Race:
        """Place nodes for every number of drafts in [least_k, largest_k] and every c ≥
        smallest_rate.
        """
        step = trapezoid_step(largest_k)
        start = min(
            _LARGEST_START, math.exp((math.lgamma(least_k + 1) + math.log(1e-17)) / least_k)
        )
        span = math.log(_LAST_EXPONENT) - math.log(smallest_rate) - math.log(start)
        logs = math.log(start) + step * np.arange(max(1, math.ceil(span / step) + 1))
        capped = np.minimum(logs, _LARGEST_EXPONENT)
        beyond = np.exp(logs - capped) if logs[-1] > _LARGEST_EXPONENT else None
        return cls(step=step, start_time=start, first=np.exp(capped), second=beyond)

    @property
    def nodes(self) -> int:
        return len(self.first)

    def start(self, rows: int, k: int) -> _Floats:
        """Return (F_{−1}, F_0, .., F_{k−1}) of the empty set, `(rows, k + 1, nodes)`."""
        state = np.ones((rows, k + 1, self.nodes))
        state[:, 0] = 0.0
        return state

    def exponents(self, rates: _Floats, live: int) -> _Floats:
        """Return rate·t at the first `live` nodes, `(..., live)`."""
        with quiet():
            scaled: _Floats = rates[..., None] * self.first[:live]
            return scaled if self.second is None else scaled * self.second[:live]

    def weights(self, rates: _Floats, live: int) -> _Floats:
        """Return h·ct·e^{−ct} for each rate c, `(..., live)`."""
        y = np.minimum(self.exponents(rates, live), 1000.0)
        return np.asarray(self.step * y * np.exp(-y))

    def below(self, rates: _Floats) -> _Floats:
        """Return the weights of all nodes below t₀, where F = 1, summed: h Σ_m (−1)^m z^{m+1}/(m!
        (e^{h(m+1)} − 1)), z = ct₀.
        """
        z = rates * self.start_time
        total = np.zeros_like(z)
        for m in reversed(range(16)):
            total = z * (total + (-1) ** m / (math.factorial(m) * math.expm1(self.step * (m + 1))))
        return np.asarray(self.step * total)

    def advance(
        self,
        state: _Floats,
        rates: _Floats,
        live: int,
        history: _Floats | None,
        ks: Sequence[int] = (),
    ) -> int:
        """Add tokens with the given rates `(rows, B)` to T in turn, in place; return the number of
        nodes still alive.

        `history` `(B, rows, len(ks), live)` receives F_{k−1} after each token.
        """
        with quiet():
            rings = -np.expm1(-self.exponents(rates.T, live))[:, :, None, :]
        upper, lower = state[:, 1:, :live], state[:, :-1, :live]
        change = np.empty_like(upper)
        wanted = np.asarray(ks, dtype=np.intp)
        only = state[:, wanted[0], :live][:, None] if len(ks) == 1 else None
        for number, ring in enumerate(rings):
            np.subtract(lower, upper, out=change)
            change *= ring
            upper += change
            if history is not None:
                history[number] = state[:, wanted, :live] if only is None else only
        alive = np.flatnonzero((state[:, -1, :live] > _NEGLIGIBLE).any(axis=0))
        return int(alive[-1]) + 1 if len(alive) else 0

    def counts_before_each(self, state: _Floats, rates: _Floats, live: int) -> _Floats:
        """Return F_0, .., F_{k−1} before each token of the given rates, `(B, k, live)`; T gains all
        but the last one.
        """
        k = state.shape[1] - 1
        counts = np.empty((len(rates), 1, k, live))
        counts[0] = state[:, 1:, :live]
        self.advance(state, rates[None, :-1], live, counts[1:], range(1, k + 1))
        return counts[:, 0]


def _prefix_scan(
    draft: _Floats, target: _Floats, ks: Sequence[int]
) -> tuple[NDArray[np.intp], _Floats]:
    """Return the ascending order of q/p `(rows, V)` and 1 − b_k of each prefix `(len(ks), rows,
    V)`.
    """
    with quiet():
        order = np.asarray(ascending(draft, target))
    p = np.take_along_axis(draft, order, axis=-1)
    outside = np.zeros_like(p)
    outside[:, :-1] = running_sum(p[:, :0:-1].copy())[:, ::-1]
    support = (p > 0).sum(axis=-1)
    escape = np.empty((len(ks), *p.shape))
    counts = sorted({k for k in ks if k > 1 and (support > k).any()})
    if counts:
        found = dict(zip(counts, _escape(p, outside, counts), strict=True))
    for number, k in enumerate(ks):
        # One draft escapes with probability c; as many drafts as there are tokens escape unless T
        # holds them all.
        here = found[k] if k in counts else outside
        escape[number] = np.where(
            (support <= k)[:, None], outside > 0, np.where(outside > 0, here, 0.0)
        )
    return order, escape


def _escape(p: _Floats, outside: _Floats, ks: Sequence[int]) -> _Floats:
    """Return 1 − b_k for every prefix of the rows of p, `(len(ks), rows, V)`; ks ascending, at
    least 2.
    """
    rows, num_tokens = p.shape
    race = _Race.over(ks[0], ks[-1], float(outside[outside > 0].min()))
    state, live = race.start(rows, ks[-1]), race.nodes
    escape = np.empty((len(ks), rows, num_tokens))
    for block in _blocks(num_tokens, race.nodes * rows * len(ks)):
        size = block.stop - block.start
        history = np.empty((size, rows, len(ks), live))
        before = live
        live = race.advance(state, p[:, block], before, history, ks)
        weights = race.weights(outside[:, block], before)
        escape[:, :, block] = np.einsum("brkn,rbn->krb", history, weights) + race.below(
            outside[:, block]
        )
    return np.minimum(escape, 1.0)


def _inclusion(p: _Floats, k: int) -> _Floats:
    """Return the inclusion probabilities of tokens that all have mass, 2 ≤ k < len(p)."""
    race = _Race.over(k, k + 1, float(p.min()))
    # Without x at most k − 1 arrivals means at most k with it: where F_k is gone, every token's
    # term is. So k + 1 are carried.
    state, live = race.start(1, k + 1), race.nodes
    blocks = _blocks(len(p), race.nodes * (k + 1))
    marks = []
    for block in blocks:
        marks.append(state[:, : k + 1].copy())
        live = race.advance(state, p[None, block], live, None)
    after = race.start(1, k)
    included = np.empty(len(p))
    for block, before in zip(reversed(blocks), reversed(marks), strict=True):
        earlier = race.counts_before_each(before, p[block], live)
        later = race.counts_before_each(after, p[block][::-1], live)[::-1]
        race.advance(after, p[None, block][:, :1], live, None)
        exactly = np.diff(
            later, axis=1, prepend=0.0
        )  # Pr(j of the later tokens arrived); of the earlier at most k − 1 − j
        without = np.einsum("bjn,bjn->bn", exactly, earlier[:, ::-1])
        included[block] = (race.weights(p[block], live) * without).sum(axis=-1) + race.below(
            p[block]
        )
    return np.minimum(included, 1.0)


def _blocks(num_tokens: int, elements_per_token: int) -> list[slice]:
    """Cut the tokens into runs whose temporaries stay in cache."""
    size = max(1, min(num_tokens, _BLOCK_ELEMENTS // max(1, elements_per_token)))
    return [slice(start, min(num_tokens, start + size)) for start in range(0, num_tokens, size)]


def _row_chunks(rows: int, k: int) -> list[slice]:
    """Cut a batch into chunks whose states stay in cache."""
    size = max(1, _ROW_ELEMENTS // (100 * (k + 1)))
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]
