"""Lower bounds on the race's acceptance: the Poisson matching lemma, and the infinite-list race
that it coarsens.

The first k arrivals of a draft race are k *different* tokens. Letting every token arrive again and
again (a Poisson process, whose first points are k independent draws from p) can only push the
target's winner back, so the race with k arrivals accepts at least as often as the winner is among
the first k points. Those points overtake the winner i at total rate g_i per unit of the target's
time, so their number is geometric:

    race ≥ Σ_{p>0} q [1 − (g/(1+g))^k] ≥ Σ q [1 − (q/(p+q))^k] ≥ Σ k p q/(k p + q),      g_i = Σ_j (q_i p_j/p_i − q_j)₊ ≤ q_i/p_i.

The second step forgets everything but the two masses of the token itself; it is the Poisson
matching lemma for k points. The third is `otm.bounds.list_matching_lower`, by Bernoulli's
inequality (1 + p/q)^k ≥ 1 + k p/q.
"""

from __future__ import annotations

from otm._arrays import BLOCK, Array, as_scalar_or_array, by_rows, namespace, quiet, total
from otm.bounds.outward import down
from otm.drafts.iid import IID
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import Unsupported
from otm.overlap import OverlapCurve
from otm.problem import Problem, require_law
from otm.races import matching_probabilities


def poisson_matching_lower(problem: Problem) -> Array:
    """Return the Poisson matching lemma's lower bound on the race's acceptance.

    k = 1: Pr(Y = X) ≥ Σ p q/(p + q) = ½ (1 − d_HM(p, q));  k first arrivals: Σ_{p>0} q [1 − (q/(p +
    q))^k].

    For k = 1 the bound never exceeds ½, even at p = q where the race always accepts: it forgets the
    other tokens, and is loose by construction. `otm.acceptance(otm.Race(), ...)` is the exact
    value, at any vocabulary for k = 1.

    Args:
        problem: any batch `(..., V)` with law `IID(1)` or `WithoutReplacement(k)`.

    Returns:
        A float, or `(...)` in float64.

    Raises:
        Unsupported: for other laws.

    Cost: O(V). Accuracy: rounded down, by (3ν + 16) u of the value (`otm.bounds.outward`).
    Reference: ERSD [Kobus & Gündüz 2025], Lemma 3.1; Li & Anantharam 2021, Lemma 1; k > 1:
        docs/theory.md, "Races".

    >>> p, q = [0.5, 0.2, 0.15, 0.1, 0.05], [0.1, 0.3, 0.05, 0.25, 0.3]
    >>> round(poisson_matching_lower(otm.Problem(draft=p, target=q, law=otm.IID(1))), 6)
    0.355119
    """
    k = _number_of_arrivals(problem, "The Poisson matching lemma")
    return as_scalar_or_array(
        by_rows(lambda p, q: _matching(p, q, k)[None], problem.draft, problem.target)[0]
    )


def poisson_representation_lower(problem: Problem) -> Array:
    """Return a certificate for the race with k arrivals: the exact acceptance if every token could
    arrive again and again.

    Σ_{p>0} q [1 − (g/(1 + g))^k], g_i = Σ_j (q_i p_j/p_i − q_j)₊: the exact acceptance of the
    Poisson functional representation with k i.i.d. list entries, and a lower bound on the race,
    whose k arrivals are distinct. Equal to the race for k = 1.

    Args:
        problem: any batch `(..., V)` with law `IID(1)` or `WithoutReplacement(k)`.

    Returns:
        A float, or `(...)` in float64.

    Raises:
        Unsupported: for other laws.

    Cost: O(V log V). Accuracy: rounded down, by 4 (256 + V/256) + 3ν + 32 units of roundoff, 4e-13
        at V = 128,256.
    Reference: Li & El Gamal 2018 (Poisson functional representation); the value and the bound:
        docs/theory.md, "Races".

    >>> p, q = [0.5, 0.2, 0.15, 0.1, 0.05], [0.1, 0.3, 0.05, 0.25, 0.3]
    >>> round(poisson_representation_lower(otm.Problem(draft=p, target=q, law=otm.IID(1))), 6)
    0.454717
    """
    k = _number_of_arrivals(problem, "The Poisson functional representation's bound")

    def certificate(p: Array, q: Array) -> Array:
        curve = OverlapCurve.of(p, q)
        width = int(p.shape[-1])
        reached = total(curve.in_order(q) * _at_least_one(matching_probabilities(curve), k))
        # The matching probabilities are quotients of running sums.
        return down(
            reached, width, units=4.0 * (min(width, BLOCK) + width / BLOCK) + 32.0, weight=k
        )[None]

    return as_scalar_or_array(by_rows(certificate, problem.draft, problem.target)[0])


def _number_of_arrivals(problem: Problem, name: str) -> int:
    message = (
        f"{name} is about the first arrivals of one draft race, WithoutReplacement(k) or IID(1); "
        f"the problem has {{law!r}}. "
        "Use otm.bounds.list_matching_lower for IID(k), or law=otm.WithoutReplacement({law.k})."
    )
    law = require_law(problem, IID, WithoutReplacement, message=message)
    if isinstance(law, IID) and law.k > 1:
        raise Unsupported(message.format(law=law))
    return law.k


def _matching(draft: Array, target: Array, k: int) -> Array:
    xp = namespace(draft, target)
    p, q = xp.astype(draft, xp.float64), xp.astype(target, xp.float64)
    with quiet():
        hit = xp.where(p > 0, p / (p + q), xp.zeros_like(p))
    return down(total(q * _at_least_one(hit, k)), p.shape[-1], units=16, weight=k)


def _at_least_one(hit: Array, k: int) -> Array:
    """Return 1 − (1 − h)^k with full relative accuracy for small h."""
    xp = namespace(hit)
    with quiet():
        return -xp.expm1(k * xp.log1p(-xp.clip(hit, 0.0, 1.0)))
