"""Lower bounds on the acceptance of races: the matching lemmas, and simpler bounds.

The first k arrivals of a draft race are k *different* tokens. Letting every token arrive again and
again (a Poisson process, whose first points are k independent draws from p) can only push the
target's winner back, so the race with k arrivals accepts at least as often as the winner is among
the first k points. Those points overtake the winner i at total rate g_i per unit of the target's
time, so their number is geometric:

    race ≥ Σ_{p>0} q [1 − (g/(1+g))^k] ≥ Σ q [1 − (q/(p+q))^k] ≥ Σ k p q/(k p + q),
    g_i = Σ_j (q_i p_j/p_i − q_j)₊ ≤ q_i/p_i.

The first is `poisson_representation_lower`. The second step forgets everything but the two masses
of the token itself: the Poisson matching lemma for k points, `poisson_matching_lower`. The third,
`list_matching_lower`, follows by Bernoulli's inequality (1 + p/q)^k ≥ 1 + k p/q.
"""

from __future__ import annotations

from otm._machine.arrays import BLOCK, Array, at_least_one, namespace, quiet, total
from otm.bounds.rounding import bound_by_row, round_down
from otm.drafts.base import Law
from otm.drafts.iid import IID
from otm.drafts.threshold_race import ThresholdRace
from otm.drafts.without_replacement import WithoutReplacement
from otm.overlap.curve import Containment
from otm.problem import Problem, require_law
from otm.races import race_match


def list_matching_lower(problem: Problem) -> Array:
    """Return the list matching lemma's lower bound on the acceptance of a list race or a race.

    Pr(Y ∈ S) ≥ Σ_{p>0} k p q/(k p + q).

    From the list race's exact acceptance by rule, Σ k q/(k + g), by g ≤ q/p. For k = 1 it is the
    Poisson matching lemma, at most ½; for k first arrivals it is the weakest of three forms
    (`otm.bounds.poisson_matching_lower`).

    Args:
        problem: any batch `(..., V)` with law `IID(k)` (list race) or `WithoutReplacement(k)`
            (race).

    Returns:
        A float, or `(...)` in float64; at most k/(k + 1).

    Raises:
        Unsupported: for other laws.

    Cost: O(V). Accuracy: rounded down, by (3ν + 16) u of the value (`otm.bounds.rounding`).
    Reference: Rowan, Phan & Khisti 2025 (2506.05632), list matching lemma.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.IID(3))
    >>> round(list_matching_lower(problem), 12)
    0.75
    """
    k = require_law(
        problem,
        IID,
        WithoutReplacement,
        message="The list matching bound is about races, with IID(k) or WithoutReplacement(k) "
        "drafts; the problem has {law!r}. Use otm.optimal_acceptance, which is exact for every "
        "law.",
    ).k
    return _harmonic(problem, k)


def threshold_race_lower(problem: Problem) -> Array:
    """Return a lower bound on the probability that a threshold race drafts the target's winner.

    Pr(Y ∈ S) ≥ Σ_{p>0} c p q/(c p + q) ≥ ½ Σ min(c p, q) ≥ ½ α*.

    The Poisson matching lemma with c p for p, which forgets all tokens but one. So matching never
    accepts less than half of what any lossless verifier can make of the same drafts.
    `otm.acceptance(otm.Race(), ...)` is the exact value, at any vocabulary.

    Args:
        problem: any batch `(..., V)` with law `ThresholdRace(c)`.

    Returns:
        A float, or `(...)` in float64; at most c/(c + 1).

    Raises:
        Unsupported: for other laws.

    Cost: O(V). Accuracy: rounded down, by (3ν + 16) u of the value (`otm.bounds.rounding`).
    Reference: docs/theory.md, "Threshold races"; c = 1: ERSD [Kobus & Gündüz 2025], Lemma 3.1.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.5], target=[0.5, 0.5], law=otm.ThresholdRace(3))
    >>> round(threshold_race_lower(problem), 12)
    0.75
    """
    message = (
        "The bound is about threshold races; the problem has {law!r}. Use "
        "otm.bounds.list_matching_lower for IID(k) or WithoutReplacement(k)."
    )
    return _harmonic(problem, require_law(problem, ThresholdRace, message=message).c)


def _harmonic(problem: Problem, times: float) -> Array:
    """Return Σ w p q/(w p + q), rounded down."""

    def matched(p: Array, q: Array) -> Array:
        xp = namespace(p, q)
        with quiet():
            # p/(w p + q) first: the product p q of masses near 1e-300 underflows.
            terms = xp.where(p > 0, times * q * (p / (times * p + q)), xp.zeros_like(p))
        return round_down(total(terms), p.shape[-1], units=16, weight=times)

    return bound_by_row(matched, problem.draft, problem.target)


def poisson_matching_lower(problem: Problem) -> Array:
    """Return the Poisson matching lemma's lower bound on the race's acceptance.

    k = 1: Pr(Y = X) ≥ Σ p q/(p + q) = ½ (1 − d_HM(p, q));
    k first arrivals: Σ_{p>0} q [1 − (q/(p + q))^k];
    arrivals before c times the first: `threshold_race_lower`.

    For k = 1 the bound never exceeds ½, even at p = q where the race always accepts: it forgets the
    other tokens, and is loose by construction. `otm.acceptance(otm.Race(), ...)` is the exact
    value, at any vocabulary for k = 1.

    Args:
        problem: any batch `(..., V)` with law `IID(k)`, `WithoutReplacement(k)` or
            `ThresholdRace(c)`.

    Returns:
        A float, or `(...)` in float64.

    Raises:
        Unsupported: for other laws.

    Cost: O(V). Accuracy: rounded down, by (3ν + 16) u of the value (`otm.bounds.rounding`).
    Reference: ERSD [Kobus & Gündüz 2025], Lemma 3.1; Li & Anantharam 2021, Lemma 1; k > 1:
        docs/theory.md, "Races".

    >>> import otm
    >>> p, q = [0.5, 0.2, 0.15, 0.1, 0.05], [0.1, 0.3, 0.05, 0.25, 0.3]
    >>> round(poisson_matching_lower(otm.Problem(draft=p, target=q, law=otm.IID(1))), 6)
    0.355119
    """
    c, k = _arrivals(problem, "The Poisson matching lemma")

    def matched(p: Array, q: Array) -> Array:
        xp = namespace(p, q)
        with quiet():
            hit = xp.where(p > 0, c * p / (c * p + q), xp.zeros_like(p))
        return round_down(total(q * at_least_one(hit, k)), p.shape[-1], units=16, weight=k * c)

    return bound_by_row(matched, problem.draft, problem.target)


def poisson_representation_lower(problem: Problem) -> Array:
    """Return the race's acceptance if every token could arrive again and again, a lower bound.

    Σ_{p>0} q [1 − (g/(1 + g))^k], g_i = Σ_j (q_i p_j/p_i − q_j)₊: the exact acceptance of the
    Poisson functional representation with k i.i.d. list entries, the race of independent drafts,
    and less than that of the race whose k arrivals are distinct. Equal to it for k = 1, and for a
    threshold, which does not count arrivals.

    Args:
        problem: any batch `(..., V)` with law `IID(k)`, `WithoutReplacement(k)` or
            `ThresholdRace(c)`.

    Returns:
        A float, or `(...)` in float64.

    Raises:
        Unsupported: for other laws.

    Cost: O(V log V). Accuracy: rounded down, by 4 (256 + V/256) + 3ν + 32 units of roundoff, 4e-13
        at V = 128,256.
    Reference: Li & El Gamal 2018 (Poisson functional representation); the value and the bound:
        docs/theory.md, "Races".

    >>> import otm
    >>> p, q = [0.5, 0.2, 0.15, 0.1, 0.05], [0.1, 0.3, 0.05, 0.25, 0.3]
    >>> round(poisson_representation_lower(otm.Problem(draft=p, target=q, law=otm.IID(1))), 6)
    0.454717
    """
    size = _arrivals(problem, "The Poisson functional representation's bound")

    def reached(p: Array, q: Array) -> Array:
        value, width = race_match(p, q, [size])[0, ...], int(p.shape[-1])
        # The matching probabilities are quotients of running sums.
        units = 4.0 * (min(width, BLOCK) + width / BLOCK) + 32.0
        return round_down(value, width, units=units, weight=size.steepest)

    return bound_by_row(reached, problem.draft, problem.target)


def _arrivals(problem: Problem, name: str) -> Containment:
    """Return the size of a law whose drafts are early arrivals of one draft race, or raise."""
    message = (
        f"{name} is about the first arrivals of one draft race, WithoutReplacement(k), IID(k) or "
        "ThresholdRace(c); the problem has {law!r}. Use law=otm.WithoutReplacement(k)."
    )
    early: tuple[type[Law], ...] = (WithoutReplacement, ThresholdRace, IID)
    law = require_law(problem, *early, message=message)
    if isinstance(law, ThresholdRace):
        return Containment(c=law.c)
    return Containment(k=problem.num_drafts)
