"""The static ensemble: verify towards a mixture of target and draft."""

from __future__ import annotations

import dataclasses

from otm._machine.arrays import Array
from otm.pmf import check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import AimedVerifier


@dataclasses.dataclass(frozen=True)
class Ensemble(AimedVerifier):
    """Verify one draft losslessly towards π = w q + (1 − w) p; w = 1 is speculative decoding.

    Acceptance 1 − w TV(p, q), by rule and by membership; output law π, at total variation (1 − w)
    TV(p, q) from the target. So acceptance = α* + distance: it lies on the total variation frontier
    for one draft, whatever w is. Lossy for w < 1. Law: IID(1).

    Args:
        weight: w in [0, 1], the target's part.

    Raises:
        InvalidParameter: if it is out of range.

    Cost: O(V), batched.
    Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: docs/theory.md, "Lossy rules"; proposed for Hugging Face transformers
        (transformers#45979).

    >>> import otm
    >>> problem = otm.Problem(draft=[0.75, 0.25], target=[0.5, 0.5], law=otm.IID(1))
    >>> otm.acceptance(Ensemble(0.5), problem), otm.lossy.output_law(Ensemble(0.5), problem)
    (0.875, array([0.625, 0.375]))
    """

    title = "static ensemble"
    display_fields = ("weight",)

    weight: float = parameter(check_real, default=0.5, low=0.0, high=1.0)

    def aimed_law(self, draft: Array, target: Array) -> Array:
        """Return w q + (1 − w) p."""
        return self.weight * target + (1.0 - self.weight) * draft
