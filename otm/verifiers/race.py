"""Exponential races: drafter and verifier race on the same random numbers.

Token i has one standard exponential E_i. The draft race is won by argmin E_i/p_i ~ p, the target's
by argmin E_i/q_i ~ q, whatever the other one does: the scheme is lossless for every drafter,
without ever comparing p with q (the Gumbel-max trick with shared Gumbels). The drafter offers the
first k arrivals of its race, k tokens without replacement, or all arrivals before c times the
first; the draft is accepted when the target's winner is among them.

*How often, k = 1.* The races agree on i iff E_i ≤ E_j·min(p_i/p_j, q_i/q_j) for all j, so

    α = Σ_i 1 / Σ_j max(p_j/p_i, q_j/q_i).

In ascending order of q/p the inner sum is two running sums. *Before c times the first.* The same
with c p_i for p_i at i alone. *k > 1.* Given that the target's winner
is i at time t (t ~ Exp(1), independent of i ~ q), every other E_j exceeds q_j t by a fresh
exponential, so j precedes i in the draft race with probability 1 − exp(−t(r_i p_j − q_j)₊),
independently, and α is an integral over t of Poisson-binomial probabilities. *k > 1 independent
drafts* are the first k points of the race in which every token arrives again and again, a Poisson
process of rate p_j: the points before the winner are geometric, and α has a closed form.

*The coupling, k = 1*, has a closed form. For r_i < r_j, with M(u) = Σ_m max(p_m, u q_m) and u_m =
p_m/q_m,

    Pr(X = i, Y = j) = p_i q_j ∫_{u_j}^{u_i} du / M(u)²,

because the exponents of all tokens sum to s·M(t/s) at draft time s and target time t; M is
piecewise linear. For k > 1, in units of t token j joins the draft race at time r_j and the winner i
arrives at exactly r_i: a pure birth process along the drafted sequence with piecewise constant
rates, integrated over t; independent drafts stay active. *Before c times the first* Pr(drafts ⊆ T,
Y = y) is that of a winner in T when the rates outside are multiplied by c: the closed form for k =
1, once for each T, and their alternating sums.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from otm._machine.arrays import Array, by_rows, namespace, quiet
from otm.drafts.base import PAD, rows_of_members
from otm.drafts.iid import IID
from otm.drafts.threshold_race import ThresholdRace
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import TooLarge
from otm.overlap.curve import ROOM, Containment, ascending, drafted_ascending
from otm.problem import Problem
from otm.races import (
    exponential_nodes,
    log_arrivals,
    log_exponentials,
    per_row,
    race_match,
    sequences,
)
from otm.results import Coupling, Definition, is_member
from otm.verifiers.base import CurvedVerifier, Shared, coupling_of_sets, require_state

MAX_DRAFTABLE = 512
"""Largest number of tokens of positive draft probability for the exact value with k > 1."""

MAX_PATHS = 200_000
"""Largest number of (draft sequence, output) pairs whose joint probability is integrated for k >
1.
"""

_PATHS_AT_ONCE = 256

_FASTEST = 2.0**50


@dataclasses.dataclass(frozen=True)
class Race(CurvedVerifier):
    """Output the winner of the target's exponential race.

    The winner is accepted if it is among the first k arrivals of the draft's race, or those before
    c times the first. Drafts may be k different tokens, or, where each arrives again and again, k
    independent ones (the Poisson functional representation for several drafts, MPFR).

    Threshold c, or one draft, c = 1:  α = Σ_i 1 / Σ_j max(p_j/(c p_i), q_j/q_i), terms with p_i q_i
    = 0 being 0, never below half of the optimum. The first k > 1:  α = Σ_{p_i>0} q_i ∫₀^∞ e^{−t}
    Pr(PoissonBinomial{1 − e^{−t(q_i p_j/p_i − q_j)₊}}_{j≠i} ≤ k − 1) dt. k independent drafts:  α =
    Σ_{p_i>0} q_i [1 − (g_i/(1 + g_i))^k], g_i = Σ_j (q_i p_j/p_i − q_j)₊, never below a list race.

    Rule and membership agree. Lossless. Laws: IID(k), WithoutReplacement(k), ThresholdRace(c).

    Raises:
        TooLarge: on the exact value for k > 1 different drafts with more than 512 draftable tokens
            (`otm.bounds.poisson_representation_lower` is a certificate at any size, `otm.estimate`
            an interval), and on a coupling with more than 200,000 entries, or of the sets of more
            than 14 draftable tokens (thresholds).

    Cost: threshold and independent drafts: one order of the tokens, then a walk for each size,
        batched; k > 1 different ones: O(n² k · 110) for n draftable tokens, about a second at n =
        512.
    Accuracy: threshold and independent drafts: about 1e-14 at V = 128,256; k > 1 different ones:
        quadrature error below 2e-12, derived in `otm.races`.
    Reference: ERSD [Kobus & Gündüz 2025], Algorithms 2 and 5 (one vertex); Maddison 2017; k = 1:
        Daliri et al. 2024 (Gumbel coupling); independent drafts: MPFR [Liu et al. 2026]
        (2609.21858v1), by its abstract and its authors' code, 1WanSicheng/ERSD_Watermark at
        010892e. The exact values: docs/theory.md, "Races".

    >>> import otm
    >>> p, q = [0.5, 0.2, 0.15, 0.1, 0.05], [0.1, 0.3, 0.05, 0.25, 0.3]
    >>> laws = [otm.IID(1), otm.WithoutReplacement(2), otm.WithoutReplacement(4)]
    >>> [round(otm.acceptance(Race(), otm.Problem(draft=p, target=q, law=law)), 6) for law in laws]
    [0.454717, 0.724113, 0.961116]
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(2))
    >>> round(otm.acceptance(Race(), problem), 12)  # g = (0, 1): .5·1 + .5·3/4
    0.875
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.ThresholdRace(2))
    >>> round(otm.acceptance(Race(), problem), 12)  # 1/(1 + 1) + 1/(1 + 3/2)
    0.9
    """

    title = "race"
    summary = (
        "both models use the same Gumbel noise; accepted where both pick the same token "
        "(ERSD; Daliri et al. 2024)"
    )
    lossless = True
    laws = (IID, WithoutReplacement, ThresholdRace)
    nested_in_k = True
    proven_lower = "poisson_representation_lower"
    table_columns = ("race_iid", "race_threshold_race")

    def prepare(self, problem: Problem) -> RaceRule:
        """Return the rule, which needs no preparation: a race compares arrival times."""
        return RaceRule(problem=problem)

    def curve(self, problem: Problem, ks: Sequence[float], by: Definition) -> Array:
        """Return sums over tokens, from one order; for different drafts integrals, row by row."""
        p, q, law = problem.draft, problem.target, problem.law
        if isinstance(law, WithoutReplacement) and max(ks) > 1:
            values = [self._different(problem.with_law(WithoutReplacement(int(k)))) for k in ks]
            return namespace(p, q).stack(values, axis=0)
        # one draft arrives before once its own time
        sizes = [Containment(k=int(k)) if isinstance(law, IID) else Containment(c=k) for k in ks]
        return by_rows(lambda p, q: race_match(p, q, sizes), p, q)

    def _different(self, problem: Problem) -> Array:
        if (k := problem.num_drafts) == 1:
            return self.acceptance(problem, "membership")
        return per_row(lambda p, q: first_arrivals_match(p, q, k), problem.draft, problem.target)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RaceRule(Shared):
    """Both races on shared exponentials, whose logarithms `(n, V)` are the state.

    Where tokens arrive again and again, the state holds the first points.
    """

    num_uniforms = 0  # none: the race is the randomness

    @property
    def num_draft_uniforms(self) -> int:
        """One exponential per token, and per draft where tokens arrive again and again."""
        law = self.problem.law
        return self.problem.num_tokens * (law.k if isinstance(law, IID) else 1)

    def draw(self, uniforms: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Run the draft race and keep the first k arrivals in order, or the arrivals in time."""
        state = log_exponentials(uniforms)
        if self.num_draft_uniforms > self.problem.num_tokens:
            size = (len(uniforms), -1, self.problem.num_tokens)
            points = np.logaddexp.accumulate(state.reshape(size), axis=1)
            times = log_arrivals(points, self.problem.draft).reshape(len(points), -1)
            drafts = first_arrivals(times, self.problem.num_drafts)
            return drafts % self.problem.num_tokens, points[:, 0]
        times = log_arrivals(state, self.problem.draft)
        if isinstance(self.problem.law, ThresholdRace):
            in_time = times <= times.min(axis=1, keepdims=True) + math.log(self.problem.law.c)
            return rows_of_members(in_time), state
        return first_arrivals(times, self.problem.num_drafts), state

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Run the target's race on the drafter's exponentials; accept a winner that was drafted."""
        output = np.argmin(log_arrivals(require_state(state), self.problem.target), axis=1)
        return output, is_member(output, drafts)

    def joint(self) -> Coupling:
        """Return the closed form of one draft or a threshold, else the integrated birth process."""
        problem, law = self.problem, self.problem.law
        if law.size == 1 and not isinstance(law, ThresholdRace):
            drafted = np.flatnonzero(problem.draft > 0)
            joint = winners_coupling(problem.draft, problem.target)[drafted]
            return Coupling(drafts=drafted[:, None], joint=scipy.sparse.csr_array(joint))
        if isinstance(law, ThresholdRace):
            return coupling_of_sets(problem, functools.partial(_winners_inside, problem, law.c))
        tokens, smallest = sequences(problem)
        if len(tokens) * problem.num_tokens > MAX_PATHS:
            raise TooLarge(
                f"The coupling of a race is limited to {MAX_PATHS:,} (draft sequence, output) "
                f"pairs; {law!r} over V = "
                f"{problem.num_tokens} has {len(tokens) * problem.num_tokens:,}. Call otm.sample "
                "for draws from it."
            )
        pieces = [
            _arrivals_coupling(problem, tokens[start : start + _PATHS_AT_ONCE], smallest)
            for start in range(0, len(tokens), _PATHS_AT_ONCE)
        ]
        return Coupling(drafts=tokens, joint=scipy.sparse.csr_array(np.concatenate(pieces)))


def _winners_inside(problem: Problem, c: float, members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return Pr(every draft of a threshold race lies in T, the target's winner = y), `(V,)`."""
    late = np.where(members, problem.draft, c * problem.draft)
    return np.asarray(winners_coupling(late, problem.target)[members].sum(axis=0))


def first_arrivals(log_times: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Return the k earliest tokens `(n, k)` of each row in order, −1 for no arrival."""
    count = min(k, log_times.shape[1])
    early = np.argpartition(log_times, count - 1, axis=1)[:, :count]
    times = np.take_along_axis(log_times, early, axis=1)
    order = np.argsort(times, axis=1)
    drafts = np.full((len(log_times), k), PAD, dtype=np.int64)
    arrived = np.take_along_axis(times, order, axis=1) < np.inf
    drafts[:, :count] = np.where(arrived, np.take_along_axis(early, order, axis=1), PAD)
    return drafts


def first_arrivals_match(draft: NDArray[np.float64], target: NDArray[np.float64], k: int) -> float:
    """Integrate the probability that the target's winner is among the draft's first k; one row.

    The Poisson-binomial counts 0..k−1 of every target token are updated together, one overtaking
    token at a time: in ascending order of q/p, only earlier tokens overtake.

    Raises:
        TooLarge: beyond 512 tokens with p > 0.
    """
    order = drafted_ascending(draft, target)
    p, q = draft[order], target[order]
    if len(order) <= k:
        return float(q.sum())  # everything that can be drafted is
    if len(order) > MAX_DRAFTABLE:
        raise TooLarge(
            f"The exact value of a race with k > 1 is limited to {MAX_DRAFTABLE} draftable tokens "
            f"(p > 0); there are {len(order)}"
            f" and k = {k}. Call otm.bounds.poisson_representation_lower for a certificate or "
            "otm.estimate for a Monte "
            f"Carlo interval."
        )
    # Pr(N ≤ k − 1) = Σ of terms with at most k − 1 arrivals: growth (1/cos φ)^{k−1}.
    t, weights = exponential_nodes(lambda c: -(k - 1) * np.log(c))
    counts = np.zeros((k, len(order), len(t)))
    counts[0] = 1.0
    wide = ROOM * p
    ratio = q / wide
    for j in range(len(order) - 1):
        with quiet():
            exponent = np.maximum(ratio[j + 1 :] * wide[j] - q[j], 0.0)[:, None] * t
        stays, overtakes = np.exp(-exponent), -np.expm1(-exponent)
        behind = counts[:, j + 1 :]
        for count in range(k - 1, 0, -1):
            behind[count] = behind[count] * stays + behind[count - 1] * overtakes
        behind[0] *= stays
    return float(q @ (counts.sum(axis=0) @ weights))


def winners_coupling(
    draft: NDArray[np.float64], target: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the joint law `(V, V)` of the two races' winners (draft, target), in closed form.

    With h = 1/(1 + g), Pr(i, i) = q_i h_i, and for r_i < r_j in ascending order Pr(i, j) = p_i q_j
    Σ_{i≤m<j} (r_{m+1} − r_m) h_m h_{m+1}: on each piece M(u) is linear, so ∫ du/M² = Δu/(M M'), and
    M(1/r_m) = (1 + g_m)/r_m. With s = r h the summand is s_{m+1} h_m − s_m h_{m+1}, finite at p = 0
    too, where h = 0 and s = 1. Accuracy: absolute, about V units in the last place.
    """
    live = np.flatnonzero(draft + target > 0)
    with quiet():
        order = live[ascending(draft[live], target[live])]
        p, q = draft[order], target[order]
        below, above = np.cumsum(p) - p, np.cumsum(q[::-1])[::-1]
        below[0] = 0.0
        hit = np.where(p > 0, 1.0 / (q / p * below + above), 0.0)
        scaled = np.where(q > 0, 1.0 / (below + above * (p / q)), 0.0)
        hit[0] = 1.0 / above[0] if p[0] > 0 else 0.0
    pieces = np.maximum(scaled[1:] * hit[:-1] - scaled[:-1] * hit[1:], 0.0)
    reach = np.concatenate([[0.0], np.cumsum(pieces)])
    joint = np.zeros((len(draft), len(draft)))
    joint[np.ix_(order, order)] = np.triu(p[:, None] * q * (reach - reach[:, None]), 1)
    joint[order, order] = q * hit
    return joint


def _arrivals_coupling(
    problem: Problem, drafts: NDArray[np.int64], smallest: float
) -> NDArray[np.float64]:
    """Return Pr(first k arrivals = drafts[i], the target's winner = y) for k > 1, `(n, V)`."""
    # With the target's winner y at time t, the draft race in units of t: token j joins at r_j,
    # where its memoryless clock with rate t p_j starts; y itself arrives at exactly r_y. Between
    # two joining times the number of arrivals along the drafted sequence is a birth process that
    # dies when any other token arrives first; after the last one only the order matters. Of
    # independent drafts every token goes on arriving, y too.
    p, q = problem.draft, problem.target
    length = int(np.count_nonzero(drafts[0] != PAD))
    drafts = drafts[:, :length]
    # k arrivals in every path, and the one of y: growth (1/cos φ)^k.
    t, weights = exponential_nodes(lambda c: -length * np.log(c), smallest=smallest)
    drafted = np.flatnonzero(p > 0)
    wide = ROOM * p
    again = isinstance(problem.law, IID)
    joins = np.divide(q, wide, out=np.full(len(p), np.inf), where=p > 0)
    times = np.unique(joins[drafted])
    state = np.zeros((len(drafts), problem.num_tokens, len(t), length + 1))
    state[..., 0] = 1.0
    for start, end in zip(times, np.append(times[1:], np.inf), strict=True):
        active = np.where(joins <= start, wide, 0.0)
        exits, chances = _next_arrivals(drafts, active, again)
        _arrive_now(state, drafts, np.flatnonzero(joins == start))
        if end < np.inf:
            state = _evolve(state, exits, chances, (end - start) * t)
    # From the last joining time on the race runs for ever: only the order matters.
    settled = np.zeros(state.shape[:-1])
    for stage in range(length):
        settled = (settled + state[..., stage]) * chances[..., stage, None]
    return np.asarray(((settled + state[..., length]) @ weights) * q)


def _next_arrivals(
    drafts: NDArray[np.int64], active: NDArray[np.float64], again: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rate of arrivals and the probability of the next drafted token, `(n, V, k)`, or
    `(n, 1, k)` where they are the same for every winner.
    """
    # The winner's own clock is not running unless it goes on: its first arrival is deterministic.
    gone = np.zeros((1, len(active)), dtype=bool) if again else np.eye(len(active), dtype=bool)
    exits, chances = (np.zeros((len(drafts), len(gone), drafts.shape[1])) for _ in range(2))
    left = np.tile(active, (len(drafts), 1))
    for stage in range(drafts.shape[1]):
        running = np.where(gone, 0.0, left[:, None, :])
        exits[..., stage] = running.sum(axis=2)
        births = np.take_along_axis(running, drafts[:, None, stage, None], axis=2)[..., 0]
        np.divide(births, exits[..., stage], out=chances[..., stage], where=exits[..., stage] > 0)
        if not again:
            left[np.arange(len(drafts)), drafts[:, stage]] = 0.0
    return exits, chances


def _arrive_now(
    state: NDArray[np.float64], drafts: NDArray[np.int64], winners: NDArray[np.int64]
) -> None:
    """Replace arriving winners y by the next drafted token; other unfinished paths end."""
    is_next = drafts[:, None, :] == winners[:, None]
    before = state[:, winners]
    after = np.zeros_like(before)
    after[..., 1:] = before[..., :-1] * is_next[:, :, None, :]
    after[..., -1] += before[..., -1]
    state[:, winners] = after


def _evolve(
    state: NDArray[np.float64],
    exits: NDArray[np.float64],
    chances: NDArray[np.float64],
    duration: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Advance the birth processes by `duration`, one for each node."""
    with quiet():
        # A stage left 2^50 times over is left at once: capping its rate shifts the later clocks by
        # 1e-15 of the duration.
        rates = np.minimum(exits[:, :, None, :] * duration[:, None], _FASTEST)
    moves = _transitions(rates, chances[:, :, None, :] * rates)
    return np.asarray((state[..., None, :] @ moves)[..., 0, :])


def _transitions(rates: NDArray[np.float64], steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the exponential of the generator with diagonal −rates and superdiagonal `steps`."""
    # Scaling and squaring. With rates below 1/8 the Taylor series of an entry is led by its first
    # term and hardly cancels, and later products have non-negative terms only; the diagonal, known
    # exactly, is put in at every squaring, so errors add up instead of doubling.
    halvings = max(0, math.frexp(8.0 * rates.max())[1])
    stage = np.arange(rates.shape[-1] + 1)
    diagonal = np.concatenate([-rates, np.zeros_like(rates[..., :1])], axis=-1)
    scaled = np.zeros((*diagonal.shape, len(stage)))
    scaled[..., stage, stage] = 0.5**halvings * diagonal
    scaled[..., stage[:-1], stage[1:]] = 0.5**halvings * steps
    moves = unit = np.eye(len(stage))
    # Row sums are at most 1/4: the tail after 12 terms is below (1/4)^13/13! = 3e-18.
    for term in range(12, 0, -1):
        moves = unit + scaled @ moves / term
    for halving in range(halvings, -1, -1):
        moves = moves @ moves if halving < halvings else moves
        moves[..., stage, stage] = np.exp(0.5**halving * diagonal)
    return moves
