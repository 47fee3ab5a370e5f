"""Relaxed acceptance: any of the target's likeliest tokens passes."""

from __future__ import annotations

import dataclasses

from otm._machine.arrays import Array, namespace
from otm.pmf import check_choice, check_count, check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import FALLBACKS, TIE, Fallback, LossyVerifier, by_rank, keep_passing


@dataclasses.dataclass(frozen=True)
class RelaxedAcceptance(LossyVerifier):
    """Accept x iff x is among the target's N likeliest and q(x) ≥ max q − δ, else draw from q.

    Sides within 1e-12 count as equal.

    Rule acceptance P(A), A the tokens that pass (of equal masses at the border the lowest index);
    by membership + Σ_{x∉A} p(x) ρ(x), ρ what is drawn on rejection: q, or the likeliest token alone
    as greedy engines have it. Output law p·1_A + P(Aᶜ) ρ. Lossy. Law: IID(1).

    Args:
        top: N ≥ 1.
        delta: δ in [0, 1].
        fallback: "target", a draw from q, or "greedy", its likeliest token.

    Raises:
        InvalidParameter: if one is out of range.

    Cost: O(V log V), batched.
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: NVIDIA TensorRT-LLM's relaxed acceptance for thinking phases (relaxed_topk,
        relaxed_delta), greedy there.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.2, 0.3, 0.5], target=[0.5, 0.4, 0.1], law=otm.IID(1))
    >>> otm.acceptance(RelaxedAcceptance(top=2, delta=0.2), problem, by="rule")
    0.5
    """

    title = "relaxed acceptance"
    display_fields = ("top", "delta")

    top: int = parameter(check_count, default=10)
    delta: float = parameter(check_real, default=0.6, low=0.0, high=1.0)
    fallback: Fallback = parameter(check_choice, default="target", choices=FALLBACKS)

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Accept the tokens that are likely enough and among the likeliest."""
        xp = namespace(target)
        likely = target >= xp.max(target, axis=-1, keepdims=True) - self.delta - TIE
        passes = likely & (by_rank(target) < self.top)
        return keep_passing(draft, target, passes, self.fallback)
