"""Verification towards another law: a mixture, a cascade, the best law within a budget."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, namespace, to_numpy, total
from otm.pmf import check_choice, check_real
from otm.scheme import parameter
from otm.taut_string import Hull, by_ratio, string_law
from otm.verifiers.lossy_rule import TIE, AimedVerifier


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


@dataclasses.dataclass(frozen=True)
class Cascade(AimedVerifier):
    """Verify one draft losslessly towards what a cascade of the two models would sample.

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
    >>> otm.lossy.output_law(
    ...     Cascade(rule="token_v3", alpha=0.2), problem
    ... )  # G holds the first token: .25 goes to q
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


@dataclasses.dataclass(frozen=True)
class Mentored(AimedVerifier):
    """Single-draft rejection towards the law π that maximises Σ min(p, π) subject to KL(q‖π) ≤ D.

    Off Z = {q = 0 < p}:  π = clip(p, q/β, q/α),  α ≤ 1 ≤ β,  Σ (p − q/α)₊ = Σ (q/β − p)₊ =: e;
    acceptance 1 − e.

    The published solution searches α in (0, 1] and leaves Z without mass, so it never accepts more
    than 1 − p(Z): wrong for targets with zeros (top-k, top-p) once the budget is large. There π
    puts the mass p(Z) − e on Z, ∝ p, and q/β or p elsewhere. Searching e instead of α covers both:
    it is the depth of a taut string (`otm.taut_string`).

    Rule and membership agree. Lossy for D > 0. Law: IID(1).

    Args:
        kl: D ≥ 0 in nats; at D = 0 this is `Maximal`, from D = KL(q‖p) on it accepts every draft.

    Raises:
        InvalidParameter: if `kl` is negative or not a number.

    Cost: O(V log V), row by row on the host.
    Accuracy: 1e-13 in the acceptance, about 1e-15 in the budget spent by π. (Where the draft model
        gives a token of the target no mass, e can be too small for any uniform to exceed 1 − e; π
        is still the law meant.)
    Reference: Tran-Thien 2023, "An optimal lossy variant of speculative decoding"; zeros:
        docs/theory.md, "Lossy frontiers".

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0, 0.5, 0.5], law=otm.IID(1))
    >>> round(otm.acceptance(Mentored(0.3), problem), 6)
    0.759182
    """

    title = "mentored decoding"
    display_fields = ("kl",)

    kl: float = parameter(check_real, default=0.1, low=0.0)

    def aimed_law(self, draft: Array, target: Array) -> Array:
        """Return the law π that the budget buys, row by row on the host."""
        xp, width = namespace(draft, target), int(target.shape[-1])
        rows = [np.reshape(to_numpy(masses), (-1, width)) for masses in (draft, target)]
        laws = [mentored_law(p, q, float(self.kl)) for p, q in zip(*rows, strict=True)]
        law = np.stack(laws).reshape(tuple(target.shape))
        return law if isinstance(target, np.ndarray) else xp.asarray(law, device=target.device)


def mentored_law(
    draft: NDArray[np.float64], target: NDArray[np.float64], kl: float
) -> NDArray[np.float64]:
    """Return the output law π `(V,)` of mentored decoding; one row.

    The obstacle's steps are (q, p) in ascending order of q/p, already concave: no hull is built.

    The obstacle's steps are (q, p) in ascending order of q/p: already concave, so no hull has to be
    built.
    """
    p, q = draft / draft.sum(), target / target.sum()
    drafted, zeros = np.flatnonzero(q > 0), q == 0
    tokens = drafted[by_ratio(p[drafted], q[drafted])]
    steps_q, steps_p, vertical = q[tokens], p[tokens], float(p[zeros].sum())
    hull = Hull.of(steps_q, steps_p, vertical)
    rejected = hull.solve(kl)
    sorted_law, on_zeros = string_law(hull, np.arange(len(tokens)), steps_q, steps_p, rejected)
    law = np.zeros(len(p))
    law[tokens] = sorted_law
    if vertical > 0:
        law[zeros] = p[zeros] * (on_zeros / vertical)
    return law
