"""Typical acceptance: a threshold on the target's mass, lower where the target is undecided."""

from __future__ import annotations

import dataclasses

from otm._machine.arrays import Array, namespace, quiet, total
from otm.pmf import check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import LossyVerifier, keep_passing


@dataclasses.dataclass(frozen=True)
class TypicalAcceptance(LossyVerifier):
    """Accept x iff q(x) > min(ε, δ·exp(−H(q))), H in nats; otherwise draw from the target.

    Rule acceptance P(A), A the tokens above the threshold; by membership + Σ_{x∉A} p(x) q(x);
    output law p·1_A + P(Aᶜ)·q. Lossy: a token above the threshold comes out at least as often as it
    is drafted, whatever its probability. Law: IID(1).

    Args:
        eps: ε, the cap on the threshold, in [0, 1].
        delta: δ, the factor of the entropy-dependent part, ≥ 0; √ε is recommended. The defaults are
            those of Medusa's public code (posterior_threshold 0.09, posterior_alpha 0.3); some
            later implementations have them the other way round.

    Raises:
        InvalidParameter: if either is out of range.

    Cost: O(V), batched.
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: Medusa [Cai et al. 2024], section 2.3.1. There the rule extends a sequence and a
        rejection ends it at the last accepted token; for one token, what follows is a draw from the
        target.

    >>> import otm
    >>> p, q = [0.6, 0.4, 0.0], [0.05, 0.55, 0.4]  # threshold 0.09
    >>> problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
    >>> verifier = TypicalAcceptance()
    >>> otm.acceptance(verifier, problem, by="rule"), otm.lossy.output_law(verifier, problem)
    (0.4, array([0.03, 0.73, 0.24]))
    """

    title = "typical acceptance"
    summary = "accepts what the target finds typical (Medusa)"
    display_fields = ("eps", "delta")
    table_columns = ("typical_acceptance_iid",)

    eps: float = parameter(check_real, default=0.09, low=0.0, high=1.0)
    delta: float = parameter(check_real, default=0.3, low=0.0)

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Accept the typical tokens."""
        xp = namespace(target)
        with quiet():
            entropy = -total(xp.where(target > 0, target * xp.log(target), xp.zeros_like(target)))
        threshold = xp.clip(self.delta * xp.exp(-entropy), None, self.eps)
        return keep_passing(draft, target, target > threshold[..., None], "target")
