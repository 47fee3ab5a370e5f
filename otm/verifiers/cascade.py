"""Speculative cascades: verification towards the draft's law where this is good enough."""

from __future__ import annotations

import dataclasses
from typing import Literal

from otm._machine.arrays import Array, namespace, total
from otm.pmf import check_choice, check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import TIE, AimedVerifier


@dataclasses.dataclass(frozen=True)
class Cascade(AimedVerifier):
    """Verify one draft losslessly towards the law of a cascade of the two models.

        rule="opt":       π = q if max p < max q − a TV(p, q), else p (every draft is accepted);
        rule="token_v3":  π = p·1_G + P(Gᶜ) q,  G = {x: q(x) ≥ (1 − a) max q}.

    Sides within 1e-12 count as equal: with a target of one token they often are, and rounding must
    not decide.

    Acceptance Σ min(p, π), by rule and by membership; output law π. `token_v3` accepts as often as
    accepting on the test x ∈ G and drawing from q otherwise (the form of typical acceptance), and
    more where q puts mass outside of G. Lossy. Law: IID(1).

    Args:
        rule: "opt" or "token_v3".
        alpha: a, in [0, 1]: the price of deferring to the target, or the part of the largest mass
            that G may lack.

    Raises:
        InvalidParameter: if either is out of range.

    Cost: O(V), batched.
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: Narasimhan et al. 2025, rules OPT and Token v3, with their q (small) and p (large)
        exchanged.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25, 0.0], target=[0.5, 0.3, 0.2], law=otm.IID(1))
    >>> verifier = Cascade(rule="token_v3", alpha=0.2)  # G holds the first token: .25 goes to q
    >>> otm.lossy.output_law(verifier, problem)
    array([0.875, 0.075, 0.05 ])
    >>> otm.acceptance(Cascade(rule="opt", alpha=0.2), problem)
    1.0
    """

    title = "speculative cascade"
    display_fields = ("rule", "alpha")

    rule: Literal["opt", "token_v3"] = parameter(
        check_choice, default="token_v3", choices=("opt", "token_v3")
    )
    alpha: float = parameter(check_real, default=0.5, low=0.0, high=1.0)

    def aimed_law(self, draft: Array, target: Array) -> Array:
        """Return the cascade's law."""
        xp = namespace(draft)
        largest = xp.max(target, axis=-1, keepdims=True)
        if self.rule == "opt":
            distance = total(xp.clip(draft - target, 0.0, None))[..., None]
            behind = largest - self.alpha * distance - xp.max(draft, axis=-1, keepdims=True)
            return xp.where(behind > TIE, target, draft)
        good = target >= (1.0 - self.alpha) * largest - TIE
        kept = xp.where(good, draft, xp.zeros_like(draft))
        return kept + total(draft - kept)[..., None] * target
