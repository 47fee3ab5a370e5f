"""SpecHub: the draft model's favourite is one of two drafts and takes the other's rest.

The hub a = argmax p is one draft, the other is x ~ p renormalised off the hub. SpecHub draws the
pair in an order of its own: (x, a) with mass p(x), (a, x) with mass p(a)·p(x)/(1 − p(a)), so that
the first token has law p. The order carries no information about x (it is (x, a) with probability 1
− p(a) whatever x), so drafts of `Greedy(2)`, which list the hub first, get their order from a
uniform of the verifier.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, inverse_cdf, normalised_excess
from otm.drafts.base import PAD
from otm.drafts.greedy import Greedy
from otm.problem import Problem
from otm.results import Definition
from otm.verifiers.base import Conditional, Verifier
from otm.verifiers.rules import accepted_in_turn, first_accepted


@dataclasses.dataclass(frozen=True)
class SpecHub(Verifier):
    """Accept the other token as far as the target allows, then the favourite (the hub).

    From (x, a) accept x with probability min(1, q(x)/p(x)); from (a, x) accept x with probability
    min(1, (q(x) − p(x))₊ / Q(a, x)), Q(a, x) = p(a)p(x)/(1 − p(a)). What is left of each kind of
    pair goes to the hub: from (a, x) with probability min(1, q(a)/left), from (x, a) with what q(a)
    still allows. Otherwise draw from the residual.

        α = q(a) + Σ_{i≠a} min(q(i), p(i)/(1 − p(a))),     q(a) if p(a) = 1.

    Rule and membership agree: the residual has mass only where x is accepted for sure. Lossless,
    and optimal for its drafts. Against recursive rejection without replacement it goes either way.
    Law: Greedy(2).

    Cost: O(V).
    Accuracy: (3ν + 2 min(k, 64) + 16) u (docs/theory.md, "Plain sums").
    Reference: SpecHub [Sun et al. 2024, arXiv 2411.05289].

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.2, 0.6], law=otm.Greedy(2))
    >>> round(otm.acceptance(SpecHub(), problem), 12)  # .2 + min(.2, .6) + min(.6, .4)
    0.8
    """

    title = "SpecHub"
    summary = "two drafts, the most likely token as a hub (SpecHub)"
    lossless = True
    laws = (Greedy(2),)
    table_columns = ("spechub_greedy",)

    def prepare(self, problem: Problem) -> SpecHubRule:
        """Compute the four kinds of accept probabilities and the residual."""
        p, q = problem.draft, problem.target
        hub = int(np.argmax(p))
        others = np.arange(len(p)) != hub
        rest = p[others].sum()
        first = np.where(others, p, 0.0)  # mass of (x, a)
        second = first / rest * p[hub] if rest > 0 else first  # mass of (a, x)
        wanted = np.where(others, q, 0.0)
        keep_first = _ratio(np.minimum(first, wanted), first)
        wanted = np.maximum(wanted - first, 0.0)
        keep_second = _ratio(np.minimum(second, wanted), second)
        residual = np.maximum(wanted - second, 0.0)
        # What goes to the hub: together at least 1 − Σ_{i≠a} q(i) = q(a), so the hub leaves no
        # residual. With nothing but the hub to draft there is only the pair (a, no draft), of mass
        # 1.
        left_second = (second * (1.0 - keep_second)).sum() if rest > 0 else p[hub]
        left_first = (first * (1.0 - keep_first)).sum()
        hub_second = min(left_second, q[hub])
        hub_first = min(left_first, q[hub] - hub_second)
        return SpecHubRule(
            problem=problem,
            hub_ahead=float(p[hub]) if rest > 0 else 1.0,
            keep_first=keep_first,
            keep_second=keep_second,
            keep_hub=(
                hub_first / left_first if left_first > 0 else 0.0,
                hub_second / left_second if left_second > 0 else 0.0,
            ),
            residual=normalised_excess(residual, q),
        )

    def acceptance(self, problem: Problem, by: Definition) -> Array:
        """Evaluate the closed form, which is the optimum of the law, batched."""
        return problem.law.optimal_values(problem.draft, problem.target, [2])[0]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SpecHubRule(Conditional):
    """SpecHub prepared for one problem.

    Attributes:
        hub_ahead: p(a), the probability that the pair was drawn as (a, x).
        keep_first, keep_second: probability of accepting x from (x, a) and from (a, x), `(V,)`.
        keep_hub: probability of accepting the hub after x was rejected, from (x, a) and from (a,
            x).
        residual: law of the output otherwise `(V,)`.
    """

    num_uniforms = 4  # one for the order of the pair, two accept steps, one residual draw

    hub_ahead: float
    keep_first: NDArray[np.float64]
    keep_second: NDArray[np.float64]
    keep_hub: tuple[float, float]
    residual: NDArray[np.float64]

    def split(self, drafts: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mix the two orders of the pair."""
        hub, other = drafts[:, 0], drafts[:, 1]
        pair = np.stack([other, hub], axis=1)
        accepted, left = np.zeros((len(drafts), self.problem.num_tokens)), np.zeros(len(drafts))
        orders = (
            (1.0 - self.hub_ahead, self.keep_first, self.keep_hub[0]),
            (self.hub_ahead, self.keep_second, self.keep_hub[1]),
        )
        for probability, keep, keep_hub in orders:
            kept = np.where(other == PAD, 0.0, keep[other])
            part, rest = accepted_in_turn(
                pair,
                np.stack([kept, np.full_like(kept, keep_hub)], axis=1),
                self.problem.num_tokens,
            )
            accepted += probability * part
            left += probability * rest
        return accepted, left[:, None] * self.residual

    def verify(
        self, drafts: NDArray[np.int64], uniforms: NDArray[np.float64], state: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Settle the order, try the other token, then the hub, then draw from the residual."""
        hub, other = drafts[:, 0], drafts[:, 1]
        ahead = uniforms[:, 0] < self.hub_ahead
        keep = np.where(
            other == PAD, 0.0, np.where(ahead, self.keep_second[other], self.keep_first[other])
        )
        keep_hub = np.where(ahead, self.keep_hub[1], self.keep_hub[0])
        wins = np.stack([uniforms[:, 1] < keep, uniforms[:, 2] < keep_hub], axis=1)
        return first_accepted(
            np.stack([other, hub], axis=1), wins, inverse_cdf(self.residual, uniforms[:, 3])
        )


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return part/whole, 1 where the whole is 0."""
    return np.divide(part, whole, out=np.ones_like(whole), where=whole > 0)
