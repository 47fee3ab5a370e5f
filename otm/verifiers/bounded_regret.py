"""Acceptance by bounded regret: any token nearly as likely as the likeliest passes."""

from __future__ import annotations

import dataclasses
import math

from otm._machine.arrays import Array, namespace
from otm.pmf import check_choice, check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import FALLBACKS, TIE, Fallback, LossyVerifier, keep_passing


@dataclasses.dataclass(frozen=True)
class BoundedRegret(LossyVerifier):
    """Accept x iff log(max q/q(x)) ≤ r, otherwise take the target's likeliest token.

    The regret is a difference of logits, so that a temperature divides it. Masses within 1e-12 of
    the bound e^{−r} max q pass.

    Rule acceptance P(A), A the tokens that pass; by membership + Σ_{x∉A} p(x) ρ(x), ρ what is drawn
    on rejection: the likeliest token alone as published, or q. Output law p·1_A + P(Aᶜ) ρ. Of a
    target at temperature 0 only r = 0 keeps the law. Lossy. Law: IID(1).

    Args:
        regret: r ≥ 0 in nats. Of the published rule, which counts regrets over a block, this is the
            first position: min(B, g).
        fallback: "greedy", the likeliest token, or "target", a draw from q.

    Raises:
        InvalidParameter: if one is out of range.

    Cost: O(V log V), batched.
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: ASD (2608.03447; transformers#48636), its reference code at 4228d0f; whole blocks:
        `otm.sequence.RegretBudget`.

    >>> import otm
    >>> p, q = [0.2, 0.3, 0.5], [0.5, 0.4, 0.1]  # log 1.25 = .223
    >>> problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
    >>> [otm.acceptance(BoundedRegret(regret), problem, by="rule") for regret in (0.2, 0.25)]
    [0.2, 0.5]
    """

    title = "bounded regret"
    display_fields = ("regret",)

    regret: float = parameter(check_real, default=2.0625, low=0.0)
    fallback: Fallback = parameter(check_choice, default="greedy", choices=FALLBACKS)

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Accept the tokens of small regret."""
        xp = namespace(target)
        least = math.exp(-self.regret) * xp.max(target, axis=-1, keepdims=True) - TIE
        return keep_passing(draft, target, target >= least, self.fallback)
