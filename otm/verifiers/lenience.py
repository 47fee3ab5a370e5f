"""Lenience: speculative decoding that accepts a draft up to a factor above the target."""

from __future__ import annotations

import dataclasses
from typing import Literal

from otm._machine.arrays import Array, namespace, normalised_excess
from otm.pmf import check_choice, check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import LossyVerifier, keep_towards, rejected_mass


@dataclasses.dataclass(frozen=True)
class Lenience(LossyVerifier):
    """Accept x with probability min(1, q(x)/(l p(x))), otherwise draw from a residual.

    l = 1 is speculative decoding.

    Rule acceptance Σ min(p, q/l). With R = Σ (p − q/l)₊ and a residual ρ the output law is min(p,
    q/l) + R ρ, where

        residual="plain":   ρ ∝ (q − p)₊, the residual of speculative decoding left as it is;
        residual="scaled":  ρ ∝ (q − l p)₊, the residual in which p is scaled as it is in the ratio.

    Both keep π ≤ q/l, the guarantee in the source, which does not spell out the residual. They
    differ: the plain one moves mass only to tokens that the target prefers, and is at most as far
    from q in total variation. Both vanish wherever a draft can be rejected, so rule and membership
    agree. Lossy for l < 1. Law: IID(1).

    Args:
        lenience: l in (0, 1].
        residual: "plain" or "scaled".

    Raises:
        InvalidParameter: if either is out of range.

    Cost: O(V), batched.
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: Leviathan et al. 2023, Appendix A.5.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> verifier = Lenience(0.8)  # min(.75, .5/.8) + .25
    >>> otm.acceptance(verifier, problem), otm.lossy.output_law(verifier, problem)
    (0.875, array([0.625, 0.375]))
    """

    title = "lenience"
    summary = "accepts more than is lossless by a factor (Leviathan et al. 2023, A.5)"
    display_fields = ("lenience",)
    table_columns = ("lenience_iid",)

    lenience: float = parameter(check_real, default=0.5, low=0.0, high=1.0, open_low=True)
    residual: Literal["plain", "scaled"] = parameter(
        check_choice, default="plain", choices=("plain", "scaled")
    )

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Return min(1, q/(l p)), the chosen residual and Σ (p − q/l)₊."""
        xp = namespace(draft, target)
        keep = keep_towards(target / self.lenience, draft)
        scale = 1.0 if self.residual == "plain" else self.lenience
        residual = normalised_excess(xp.clip(target - scale * draft, 0.0, None), target)
        return keep, residual, rejected_mass(draft, keep)
