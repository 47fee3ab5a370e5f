"""Spec-VLA: a draft near the target's likeliest token passes, for actions with an order."""

from __future__ import annotations

import dataclasses

from otm._machine.arrays import Array, namespace
from otm.pmf import check_count
from otm.scheme import parameter
from otm.verifiers.lossy_rule import LossyVerifier, keep_passing


@dataclasses.dataclass(frozen=True)
class ActionDistance(LossyVerifier):
    """Accept a token at most r away from the target's likeliest token, otherwise take that token.

    Tokens stand for bins of a robot's action, so that their numbers are places on a line. Of
    equally likely tokens the one with the lowest number is the likeliest.

    Acceptance P(A), A the tokens within r, by rule and by membership; output law p·1_A + P(Aᶜ) on
    the likeliest. Lossy: its target is the greedy token. Law: IID(1).

    Args:
        distance: r ≥ 0; 9 is the published value.

    Raises:
        InvalidParameter: if it is no integer of at least 0.

    Cost: O(V), batched. Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: Spec-VLA [Wang et al. 2025], 2507.22424v1; its public code, PineTreeWss/SpecVLA at
        56ef298 (openvla/prismatic/extern/hf/utils.py), which compares the numbers of tokens and
        relaxes greedy decoding only.

    >>> import otm
    >>> p, q = [0.1, 0.2, 0.3, 0.4], [0.0, 0.7, 0.2, 0.1]  # tokens 0, 1 and 2 pass
    >>> problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
    >>> round(otm.acceptance(ActionDistance(1), problem), 12)
    0.6
    """

    title = "action distance"
    display_fields = ("distance",)
    equivariant = False

    distance: int = parameter(check_count, default=9, minimum=0)

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Accept the tokens within the distance."""
        xp = namespace(target)
        tokens = xp.arange(int(target.shape[-1]), device=target.device)
        passes = abs(tokens - xp.argmax(target, axis=-1, keepdims=True)) <= self.distance
        return keep_passing(draft, target, passes, "greedy")
