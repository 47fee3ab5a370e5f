"""Margin-aware verification (MARS): with a small margin the second likeliest token passes too."""

from __future__ import annotations

import dataclasses
import math

from otm._machine.arrays import Array, namespace
from otm.pmf import check_choice, check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import FALLBACKS, TIE, Fallback, LossyVerifier, by_rank, keep_passing


@dataclasses.dataclass(frozen=True)
class Mars(LossyVerifier):
    """Accept the target's likeliest token, and the second likeliest if the logits have z₂/z₁ > θ.

    Any other token is replaced by the likeliest.

    A ratio of logits is no function of the distribution: adding a constant to all of them changes
    it, and nothing else. With z₁ given it is a test on masses, z₂ = z₁ + log(q₂/q₁):

        q₂ > q₁ exp(−(1 − θ) z₁),

    a margin that is wide where the model's logits are large, and always open once z₁ is negative.
    Sides within 1e-12 are equal.

    Rule acceptance P(A), A the one or two tokens; by membership + Σ_{x∉A} p(x) ρ(x), ρ what is
    drawn on rejection. Output law p·1_A + P(Aᶜ) ρ. Lossy. Law: IID(1).

    Args:
        theta: θ in [0, 1]; .9 is the published value.
        top_logit: z₁ > 0, the target's largest logit; it belongs to the context, here it is one
            number for all.
        fallback: "greedy", the likeliest token, as exact matching has it, or "target", a draw from
            q.

    Raises:
        InvalidParameter: if one is out of range.

    Cost: O(V log V), batched.
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: MARS [Song et al. 2026], 2601.15498v1, the rule of its abstract and its ratio r =
        z₂/z₁ with θ = .9.

    >>> import otm
    >>> p, q = [0.2, 0.3, 0.5], [0.5, 0.4, 0.1]  # log 1.25 = .223 against 2.0 and .2
    >>> problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
    >>> [otm.acceptance(Mars(top_logit=top), problem, by="rule") for top in (20.0, 2.0)]
    [0.5, 0.2]
    """

    title = "MARS"
    display_fields = ("theta", "top_logit")

    theta: float = parameter(check_real, default=0.9, low=0.0, high=1.0)
    top_logit: float = parameter(check_real, default=20.0, low=0.0, open_low=True)
    fallback: Fallback = parameter(check_choice, default="greedy", choices=FALLBACKS)

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Accept the likeliest token, and the second likeliest where the margin is small."""
        xp = namespace(target)
        rank = by_rank(target)
        margin = math.exp(-(1.0 - self.theta) * self.top_logit) if self.theta < 1.0 else 1.0
        close = target > margin * xp.max(target, axis=-1, keepdims=True) + TIE
        passes = (rank == 0) | ((rank == 1) & close)
        return keep_passing(draft, target, passes, self.fallback)
