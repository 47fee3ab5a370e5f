"""LANTERN: a draft is raised by the target mass of the nearest tokens."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, namespace, running_sum, total
from otm.drafts.base import PAD
from otm.pmf import check_real
from otm.problem import Problem
from otm.scheme import parameter
from otm.verifiers.lossy_rule import TIE, Raised, RaisedRule
from otm.verifiers.neighbourhood import (
    Neighbours,
    at_neighbours,
    check_neighbours,
    neighbour_table,
)


@dataclasses.dataclass(frozen=True)
class Lantern(Raised):
    """Accept x with min(1, h(x)/p(x)), h(x) = q(x) plus the target mass of x's nearest neighbours.

    Of x's neighbours in order of distance, the longest run with a sum of q of at most δ counts; for
    δ > 1 of at most (δ − 1) q(x). A rejected x is followed by a draw from ∝ (q − p)₊ with p set to
    0 on all of x's neighbours, if any counts. So what a draft aims at is within δ of q in total
    variation. The output is not: where p is uniform on half of V tokens with uniform q and one
    neighbour each, δ = 1/V takes every draft, TV = 1/2 (docs/theory.md, "Lossy rules").

    A neighbour without mass counts, as in the public code: its sum is at most any δ. So δ = 0 is
    lossless where every nearest neighbour has mass.

    Acceptance Σ min(p, h), by rule and by membership. Lossy for δ > 0. Law: IID(1).

    Args:
        neighbours: an array `(V, m)`, each token's neighbours, the nearest first, −1 for none,
            which never counts; or m ≥ 1 for tokens on a line, those next to each below and above in
            turn.
        delta: δ ≥ 0.

    Raises:
        InvalidParameter: if one is out of range. ShapeMismatch: on a problem with another V.

    Cost: O(V m), batched. Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums"); sides of δ within
        1e-12 are equal.
    Reference: LANTERN [Jang et al. 2025], 2410.03355v3, and LANTERN++ (δ > 1), 2502.06352; the rule
        is that of sampled drafts in their public code, jadohu/LANTERN at 3a56e45
        (models/ea_model_llamagen.py), which sets p to 0 on one neighbour more.

    >>> import otm
    >>> p, q = [0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]  # 0 is raised by 2, 1 by 3
    >>> problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
    >>> rule = Lantern([[2], [3], [0], [1]], delta=0.25)
    >>> otm.acceptance(rule, problem), otm.lossy.distortion(rule, problem).total_variation
    (1.0, 0.5)
    """

    title = "LANTERN"
    display_fields = ("delta",)
    equivariant = False

    neighbours: Neighbours = parameter(check_neighbours, default=2)
    delta: float = parameter(check_real, default=0.1, low=0.0)

    def raised(self, target: Array) -> Array:
        """Return h `(..., V)` of a target in float64."""
        return self._raised(target, neighbour_table(self.neighbours, int(target.shape[-1])))[0]

    def prepare(self, problem: Problem) -> LanternRule:
        """Compute the raised mass of each draft, and the tokens that the residual spares from p."""
        table = neighbour_table(self.neighbours, problem.num_tokens)
        raised, counts = self._raised(problem.target, table)
        counts &= table != PAD
        spared = np.where(counts.any(axis=-1, keepdims=True), table, PAD)
        return LanternRule(problem=problem, raised=np.asarray(raised), spared=spared)

    def output_law(self, problem: Problem) -> NDArray[np.float64]:
        """Return the law of the output `(V,)`, kept mass plus every rejected draft's residual."""
        rule, p, q = self.prepare(problem), problem.draft, problem.target
        kept, excess, both = np.minimum(p, rule.raised), np.maximum(q - p, 0.0), np.minimum(p, q)
        live = rule.spared != PAD
        # a residual is at least what is rejected, but for rounding
        size = np.maximum(
            excess.sum() + np.where(live, both[rule.spared], 0.0).sum(axis=1), p - kept
        )
        share = np.divide(p - kept, size, out=np.zeros_like(p), where=p > kept)
        spared = np.bincount(rule.spared[live], (share[:, None] * live)[live], len(p))
        return np.asarray(kept + excess * share.sum() + both * spared)

    def _raised(self, target: Array, table: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return h `(..., V)`, and a mask of the table's entries that count, `(..., V, m)`."""
        near = at_neighbours(target, table)
        most = self.delta if self.delta <= 1.0 else (self.delta - 1.0) * target[..., None]
        counts = running_sum(near + 0.0) <= most + TIE
        return target + total(namespace(near).where(counts, near, 0.0 * near)), counts


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LanternRule(RaisedRule):
    """LANTERN prepared for one problem.

    Attributes:
        spared: the neighbours that each draft's residual leaves p out of `(V, m)`, −1 for none.
    """

    spared: NDArray[np.int64]

    def residual_weights(self, drafts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return (q − p)₊, q itself on the neighbours of the one draft."""
        spared = self.spared[drafts[0]]
        weights = np.maximum(self.problem.target - self.problem.draft, 0.0)
        weights[spared[spared != PAD]] = self.problem.target[spared[spared != PAD]]
        return np.asarray(weights if weights.any() else self.problem.target)
