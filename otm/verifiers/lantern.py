"""Tokens that stand for each other: LANTERN raises a draft by the target mass of the tokens nearest
to it, grouped verification takes a draft for its cluster.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from otm._arrays import Array, gather, namespace, normalised_excess, running_sum, total
from otm.drafts.base import PAD
from otm.pmf import check_real
from otm.problem import Problem
from otm.scheme import parameter
from otm.verifiers.lossy_rule import (
    TIE,
    LossyVerifier,
    Raised,
    RaisedRule,
    keep_towards,
    rejected_mass,
)
from otm.verifiers.neighbourhood import (
    Neighbours,
    at_neighbours,
    check_neighbours,
    neighbour_table,
)


@dataclasses.dataclass(frozen=True)
class Lantern(Raised):
    """Accept x with min(1, h(x)/p(x)), h(x) = q(x) and what its nearest neighbours have of q.

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
    >>> problem = otm.Problem(
    ...     draft=[0.5, 0.5, 0.0, 0.0], target=[0.25, 0.25, 0.25, 0.25], law=otm.IID(1)
    ... )  # token 0 is raised by token 2, token 1 by token 3
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
        """Compute what each draft is raised to, and where its residual leaves p out."""
        table = neighbour_table(self.neighbours, problem.num_tokens)
        raised, counts = self._raised(problem.target, table)
        counts &= table != PAD
        spared = np.where(counts.any(axis=-1, keepdims=True), table, PAD)
        return LanternRule(problem=problem, raised=np.asarray(raised), spared=spared)

    def output_law(self, problem: Problem) -> NDArray[np.float64]:
        """Return the law of the output `(V,)`: what is kept, and every lost draft's residual."""
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
        """Return h `(..., V)`, and which entries of the table count, `(..., V, m)`."""
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


@dataclasses.dataclass(frozen=True)
class Grouped(LossyVerifier):
    """Accept x with min(1, Q(C)/P(C)), C a cluster around x, otherwise draw from ∝ (q − p)₊.

    C is x and those of its neighbours whose q is within a margin of q(x). If clusters are a
    partition, the same for all of their tokens, as many drafts are accepted as by single-draft
    rejection, or more: Σ min(P(C), Q(C)) ≥ Σ min(p, q), the paper's theorem. If each token has a
    window of its own, as its algorithm has it, it may be fewer (docs/claims.md).

    Rule acceptance Σ p·keep; by membership + Σ p (1 − keep)·residual. Lossy. Law: IID(1).

    Args:
        neighbours: an array `(V, m)`, the other tokens of each one's cluster, −1 for none; or m ≥
            1, those next to it in ascending order of q, below and above in turn.
        margin: in [0, 1]; q of the two must differ by less.

    Raises:
        InvalidParameter: if one is out of range. ShapeMismatch: on a problem with another V.

    Cost: O(V (m + log V)), batched. Accuracy: (3ν + 16) u (docs/theory.md, "Plain sums").
    Reference: grouped speculative decoding [So et al. 2025], 2508.07747v1, Algorithm 3 as public
        notes describe it, and its public code, junhyukso/GSD at 4216c7c: 13 neighbours, margin .15,
        and for the distances of the codebook, which a table stands for here, .5. That code rejects
        the seven least likely tokens, whose window it cannot cut; here windows end with the order.

    >>> import otm
    >>> problem = otm.Problem(
    ...     draft=[0.4, 0.1, 0.5, 0.0], target=[0.1, 0.4, 0.3, 0.2], law=otm.IID(1)
    ... )
    >>> pairs = [[1], [0], [3], [2]]  # {0, 1} has .5 of both, {2, 3} too; rejection keeps .5
    >>> otm.acceptance(Grouped(pairs, margin=1.0), problem)
    1.0
    """

    title = "grouped"
    display_fields = ("margin",)

    neighbours: Neighbours = parameter(check_neighbours, default=13)
    margin: float = parameter(check_real, default=0.15, low=0.0, high=1.0)

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Compare the masses of clusters; the residual is that of tokens."""
        xp, p, q = namespace(draft, target), draft, target
        by_rank = isinstance(self.neighbours, int)
        if by_rank:
            order = xp.argsort(target, axis=-1, stable=True)
            p, q = gather(draft, order), gather(target, order)
        table = neighbour_table(self.neighbours, int(q.shape[-1]))
        near = at_neighbours(q, table)
        close = abs(near - q[..., None]) < self.margin - TIE
        sums = [
            own + total(xp.where(close, each, 0.0 * each))
            for own, each in ((q, near), (p, at_neighbours(p, table)))
        ]
        keep = keep_towards(*sums)
        keep = gather(keep, xp.argsort(order, axis=-1)) if by_rank else keep
        excess = xp.clip(target - draft, 0.0, None)
        return keep, normalised_excess(excess, target), rejected_mass(draft, keep)
