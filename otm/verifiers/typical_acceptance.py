"""Rules that accept whatever the target finds good enough: typical acceptance, one of the likeliest
tokens, a bounded regret, a margin, a distance between actions.
"""

from __future__ import annotations

import dataclasses
import math

from otm._arrays import Array, namespace, quiet, total
from otm.pmf import check_choice, check_count, check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import FALLBACKS, TIE, Fallback, LossyVerifier, by_rank, keep_passing


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
    >>> problem = otm.Problem(
    ...     draft=[0.6, 0.4, 0.0], target=[0.05, 0.55, 0.4], law=otm.IID(1)
    ... )  # threshold 0.09
    >>> (
    ...     otm.acceptance(TypicalAcceptance(), problem, by="rule"),
    ...     otm.lossy.output_law(TypicalAcceptance(), problem),
    ... )
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


@dataclasses.dataclass(frozen=True)
class RelaxedAcceptance(LossyVerifier):
    """Accept x iff it is among the target's N likeliest and q(x) ≥ max q − δ, else draw from q.

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
        """Accept the tokens that are both likely enough and among the likeliest."""
        xp = namespace(target)
        likely = target >= xp.max(target, axis=-1, keepdims=True) - self.delta - TIE
        passes = likely & (by_rank(target) < self.top)
        return keep_passing(draft, target, passes, self.fallback)


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
    >>> problem = otm.Problem(
    ...     draft=[0.2, 0.3, 0.5], target=[0.5, 0.4, 0.1], law=otm.IID(1)
    ... )  # log 1.25 = .223
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


@dataclasses.dataclass(frozen=True)
class Mars(LossyVerifier):
    """Accept the target's likeliest token, and its second if their logits z₂/z₁ > θ.

    Otherwise take the likeliest.

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
    >>> problem = otm.Problem(
    ...     draft=[0.2, 0.3, 0.5], target=[0.5, 0.4, 0.1], law=otm.IID(1)
    ... )  # log 1.25 = .223 against 2.0 and .2
    >>> [otm.acceptance(Mars(top_logit=top), problem, by="rule") for top in (20.0, 2.0)]
    [0.5, 0.2]
    """

    title = "MARS"
    display_fields = ("theta", "top_logit")

    theta: float = parameter(check_real, default=0.9, low=0.0, high=1.0)
    top_logit: float = parameter(check_real, default=20.0, low=0.0, open_low=True)
    fallback: Fallback = parameter(check_choice, default="greedy", choices=FALLBACKS)

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Accept the likeliest token, and the second where it is close."""
        xp = namespace(target)
        rank = by_rank(target)
        margin = math.exp(-(1.0 - self.theta) * self.top_logit) if self.theta < 1.0 else 1.0
        close = target > margin * xp.max(target, axis=-1, keepdims=True) + TIE
        passes = (rank == 0) | ((rank == 1) & close)
        return keep_passing(draft, target, passes, self.fallback)


@dataclasses.dataclass(frozen=True)
class ActionDistance(LossyVerifier):
    """Accept a token at most r away from the target's likeliest one, otherwise take that one.

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
    >>> problem = otm.Problem(
    ...     draft=[0.1, 0.2, 0.3, 0.4], target=[0.0, 0.7, 0.2, 0.1], law=otm.IID(1)
    ... )  # tokens 0, 1 and 2 pass
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
