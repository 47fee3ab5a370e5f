"""Mentored decoding: the most acceptance that a Kullback–Leibler budget can buy for one draft."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, namespace, to_numpy
from otm.divergences.taut_string import Hull, by_ratio, string_law
from otm.pmf import check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import AimedVerifier


@dataclasses.dataclass(frozen=True)
class Mentored(AimedVerifier):
    """Single-draft rejection towards the law π that maximises Σ min(p, π) subject to KL(q‖π) ≤ D.

    Off Z = {q = 0 < p}:  π = clip(p, q/β, q/α),  α ≤ 1 ≤ β,  Σ (p − q/α)₊ = Σ (q/β − p)₊ =: e;
    acceptance 1 − e.

    The published solution searches α in (0, 1] and leaves Z without mass, so it never accepts more
    than 1 − p(Z): wrong for targets with zeros (top-k, top-p) once the budget is large. There π
    puts the mass p(Z) − e on Z, ∝ p, and q/β or p elsewhere. Searching e instead of α covers both:
    it is the depth of a taut string (`otm.divergences.taut_string`).

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
