"""Fuzzy speculative decoding: accept any draft wherever the two models are close."""

from __future__ import annotations

import dataclasses
from typing import Literal

from otm._machine.arrays import Array, namespace, normalised_excess, total
from otm.divergences import divergence_term
from otm.pmf import check_choice, check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import LossyVerifier, keep_towards, rejected_mass

Divergence = Literal["js", "kl", "tv"]


@dataclasses.dataclass(frozen=True)
class Fuzzy(LossyVerifier):
    """Accept the draft iff Div(q, p) ≤ threshold; otherwise fall back.

    The gate looks at the two distributions only, so the output law is p where it opens and q where
    it does not:

        fallback="target":       reject and draw from the target; acceptance by rule 1 or 0, by
                                 membership 1 or Σ p q;
        fallback="speculative":  verify by single-draft rejection; acceptance 1 or Σ min(p, q), the
                                 same output law.

    Lossy where 0 < Div ≤ threshold. Law: IID(1).

    Args:
        threshold: ≥ 0, in nats for "js" and "kl".
        divergence: "js" Jensen–Shannon (at most log 2), "kl" D(q‖p) (∞ where q > 0 = p), "tv" total
            variation.
        fallback: what a closed gate does. The published gate, its deterministic decision by the
            divergence alone, is the first; the second never accepts less.

    Raises:
        InvalidParameter: if an argument is out of range.

    Cost: O(V), batched.
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: Holsman, Huang & Dhingra 2025 (2502.20704), divergence gate with a tunable threshold.
        The default threshold is this library's; the paper tunes it per model pair.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))  # TV = 1/4
    >>> verifiers = [Fuzzy(t, divergence="tv", fallback="speculative") for t in (0.2, 0.25)]
    >>> [otm.acceptance(verifier, problem) for verifier in verifiers]
    [0.75, 1.0]
    """

    title = "fuzzy"
    summary = "accepts wherever the two distributions are close (Holsman et al. 2025)"
    display_fields = ("threshold",)
    table_columns = ("fuzzy_iid",)

    threshold: float = parameter(check_real, default=0.1, low=0.0)
    divergence: Divergence = parameter(check_choice, default="js", choices=("js", "kl", "tv"))
    fallback: Literal["target", "speculative"] = parameter(
        check_choice, default="target", choices=("target", "speculative")
    )

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Keep everything where the gate is open, otherwise the drafts that the fallback keeps."""
        xp = namespace(draft, target)
        is_open = (_divergence(draft, target, self.divergence) <= self.threshold)[..., None]
        closed, residual = xp.zeros_like(draft), target
        if self.fallback == "speculative":
            closed = keep_towards(target, draft)
            residual = normalised_excess(xp.clip(target - draft, 0.0, None), target)
        keep = xp.where(is_open, xp.ones_like(draft), closed)
        return keep, residual, rejected_mass(draft, keep)


def _divergence(p: Array, q: Array, kind: Divergence) -> Array:
    """Return the divergence `(...)` as a sum of non-negative terms, exactly 0 at p = q."""
    if kind == "tv":
        return 0.5 * total(abs(p - q))
    if kind == "kl":
        return total(divergence_term(q, p))
    # Twice a mass beside twice the middle: half of the smallest positive number would be 0.
    return 0.25 * total(divergence_term(2.0 * p, p + q) + divergence_term(2.0 * q, p + q))
