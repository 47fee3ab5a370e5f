"""List races: k independent races draw the drafts, the target races on all k at once.

Draft l is the winner of its own race, argmin_i E_i^l/p_i, so the drafts are i.i.d.; the output is
argmin_i min_l E_i^l/q_i, whose law is q because the minimum over the lists of standard exponentials
is exponential for every token. The rule accepts when the winning list's own draft is the output; by
membership another list's draft may equal it by luck.

The target's race is won at time t ~ Exp(k) by token j ~ q in a uniformly chosen list. In that list
the draft is j with probability e^{−t g_j} (g as in `otm.races`); in any other list every clock is
fresh at q_i t, and the draft is j with probability

    H_j(t) = p_j Σ_{m≥j} (e^{−t g_m} − e^{−t g_{m+1}}) / P_m ,

tokens in ascending order of q/p, P_m the mass of the first m, g_∞ = ∞: between the draft times at
which tokens m and m+1 join (r_m t and r_{m+1} t), P_m is the total rate, and nothing has arrived
before with probability e^{−t g_m}. So H for all tokens is one suffix sum, and the membership
acceptance costs O(V) per node of a one-dimensional integral, at full vocabulary too.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import Array, by_rows, namespace, quiet, total
from otm._machine.patience import Pace
from otm.drafts.iid import IID
from otm.overlap import OverlapCurve
from otm.overlap.curve import drafted_ascending
from otm.problem import Problem
from otm.races import (
    exponential_nodes,
    log_arrivals,
    log_exponentials,
    matching_probabilities,
    overtaking_rates,
    per_row,
    sequences,
)
from otm.results import Coupling, Definition
from otm.verifiers.base import Shared, Verifier, require_state

_TINY = 1e-300
_ENTRIES_AT_ONCE = 1 << 18


@dataclasses.dataclass(frozen=True)
class ListRace(Verifier):
    """Output the winner of the target's race over all k lists.

    The rule accepts if that is the winning list's own draft.

    By rule:       α = Σ_j k / Σ_i [max(p_i/p_j, q_i/q_j) + (k−1) q_i/q_j] = Σ_j k q_j/(k + g_j);
    by membership: α = Σ_j q_j ∫₀^∞ k e^{−kt} [1 − (1 − e^{−t g_j})(1 − H_j(t))^{k−1}] dt.

    Lossless, and the output does not depend on which drafts the verifier is told. Law: IID(k).

    Cost: by rule O(V log V), batched; by membership O(V · nodes) after a sort, some 110 (k = 1) to
        600 (k = 64) nodes, row by row.
    Accuracy: by rule about 1e-14; by membership quadrature error below 2e-12, derived in
        `otm.races`.
    Reference: Rowan, Phan & Khisti 2025 (2506.05632), list matching; the membership value:
        docs/theory.md, "Races".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> otm.acceptance(ListRace(), problem, by="rule")  # g = (0, 1): .5·2/2 + .5·2/3
    0.8333333333333333
    >>> round(otm.acceptance(ListRace(), problem), 6)
    0.854167
    """

    title = "list race"
    summary = "k draft races against one target race (Rowan et al. 2025)"
    lossless = True
    laws = (IID,)
    proven_lower = "list_matching_lower"
    table_columns = ("list_race_rule_iid",)

    def prepare(self, problem: Problem) -> ListRaceRule:
        """Return the rule, which needs no preparation: a race compares arrival times."""
        return ListRaceRule(problem=problem)

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Return the sum over tokens by rule, batched; the integral by membership, row by row."""
        p, q, k = problem.draft, problem.target, problem.num_drafts
        rule = by_rows(lambda p, q: _own_list_match(p, q, k)[None], p, q)[0]
        if by == "rule" or k == 1:
            return rule
        # the quadrature's error, below 2e-12, is more than tiny values differ by
        member = per_row(lambda p, q: any_list_match(p, q, k), p, q)
        return namespace(p, q).maximum(member, rule)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ListRaceRule(Shared):
    """k draft races and the target's race over all lists.

    The state is the logarithms of the exponentials `(n, k, V)`.
    """

    num_uniforms = 0  # none: the races are the randomness

    @property
    def num_draft_uniforms(self) -> int:
        """One exponential per list and token."""
        return self.problem.num_drafts * self.problem.num_tokens

    def draw(self, uniforms: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Run the k draft races."""
        state = log_exponentials(uniforms).reshape(
            len(uniforms), self.problem.num_drafts, self.problem.num_tokens
        )
        return np.argmin(log_arrivals(state, self.problem.draft), axis=2), state

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Find the first of all arrivals under q; accept if the arrival is the list's own draft."""
        times = log_arrivals(require_state(state), self.problem.target)
        winner = np.argmin(times.reshape(len(times), -1), axis=1)
        lists, output = np.divmod(winner, self.problem.num_tokens)
        return output, drafts[np.arange(len(drafts)), lists] == output

    def joint(self) -> Coupling:
        """Integrate over the target's time: the lists are independent given time and winner."""
        problem, k = self.problem, self.problem.num_drafts
        tokens, smallest = sequences(problem)
        t, weights = _list_nodes(k, smallest)
        joint = np.zeros((len(tokens), problem.num_tokens))
        for node, weight in zip(t, weights, strict=True):
            own, other = _conditional_winners(problem.draft, problem.target, node)
            for position in range(k):
                beside = other[np.delete(tokens, position, axis=1)].prod(axis=1)
                joint += weight / k * own[tokens[:, position]] * beside[:, None]
        return Coupling(drafts=tokens, joint=scipy.sparse.csr_array(joint * problem.target))


def _own_list_match(draft: Array, target: Array, k: int) -> Array:
    """Return Σ_j k q_j/(k + g_j) from h = 1/(1 + g): k/(k + g) = k h/(1 + (k − 1) h)."""
    curve = OverlapCurve.of(draft, target)
    hit = matching_probabilities(curve)
    return total(curve.in_order(target) * (k * hit / (1.0 + (k - 1) * hit)))


def any_list_match(draft: NDArray[np.float64], target: NDArray[np.float64], k: int) -> float:
    """Integrate the probability that the output is one of the k drafts; one row."""
    order = drafted_ascending(draft, target)
    p, q = draft[order], target[order]
    rates = overtaking_rates(p, q)
    t, weights = _list_nodes(k)
    step = max(1, _ENTRIES_AT_ONCE // len(p))
    value = 0.0
    pace = Pace("The acceptance of a list race by membership", 'Ask by="rule", or otm.estimate.')
    for start in range(0, len(t), step):
        pace.check((start + 1) / len(t))
        now = t[start : start + step, None]
        other = p * _suffix_rates(p, rates, now)
        with quiet():
            missed = -np.expm1(-now * rates) * np.clip(1.0 - other, 0.0, 1.0) ** (k - 1)
        value += float(weights[start : start + step] @ ((1.0 - missed) @ q))
    return value


def _list_nodes(k: int, smallest: float = 1.0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return quadrature nodes and weights for the law Exp(k)."""
    # On the ray arg t = φ, c = cos φ: |e^{−t g}| ≤ 1 and |H| ≤ H/c ≤ 1/c, so 1 − Π(1 − ·) over k
    # lists is within (1 + 1/c)^k.
    t, weights = exponential_nodes(lambda c: k * np.log1p(1.0 / c), smallest=smallest)
    return t / k, weights


def _suffix_rates(
    draft: NDArray[Any], rates: NDArray[Any], now: NDArray[Any]
) -> NDArray[np.float64]:
    """Return H_j(t)/p_j = Σ_{m≥j} (e^{−t g_m} − e^{−t g_{m+1}})/P_m in ascending order."""
    # A prefix mass below 1e-300 multiplies rates that vanish with it; flooring it there keeps 1/P
    # finite.
    with quiet():
        alive = np.exp(-now * rates)
    alive[:, :-1] -= alive[:, 1:]
    return np.asarray(
        np.cumsum((alive / np.maximum(np.cumsum(draft), _TINY))[:, ::-1], axis=1)[:, ::-1]
    )


def _conditional_winners(
    draft: NDArray[np.float64], target: NDArray[np.float64], t: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the draft's law at time t in the winning list `(x, y)` and in another `(x,)`."""
    # In the winning list y arrives at exactly r_y t: x ≠ y wins the draft race if it arrives
    # before, Σ_{x≤m<y} of the same terms.
    order = drafted_ascending(draft, target)
    p = draft[order]
    rates = overtaking_rates(p, target[order])
    suffix = _suffix_rates(p, rates, np.full((1, 1), t))[0]
    other = np.zeros(len(draft))
    other[order] = p * suffix
    own = np.tile(other[:, None], len(draft))  # for an output that never arrives, where p = 0
    before = np.triu(np.maximum(suffix[:, None] - suffix, 0.0), 1) * p[:, None]
    with quiet():
        own[np.ix_(order, order)] = before + np.diag(np.exp(-t * rates))
    return own, other
