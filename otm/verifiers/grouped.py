"""Grouped verification: a draft stands for a cluster of tokens."""

from __future__ import annotations

import dataclasses

from otm._machine.arrays import Array, gather, namespace, normalised_excess, total
from otm.pmf import check_real
from otm.scheme import parameter
from otm.verifiers.lossy_rule import TIE, LossyVerifier, keep_towards, rejected_mass
from otm.verifiers.neighbourhood import (
    Neighbours,
    at_neighbours,
    check_neighbours,
    neighbour_table,
)


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
    >>> p, q = [0.4, 0.1, 0.5, 0.0], [0.1, 0.4, 0.3, 0.2]
    >>> problem = otm.Problem(draft=p, target=q, law=otm.IID(1))
    >>> pairs = [[1], [0], [3], [2]]  # {0, 1} has .5 of both, {2, 3} too; rejection keeps .5
    >>> otm.acceptance(Grouped(pairs, margin=1.0), problem)
    1.0
    """

    title = "grouped"
    display_fields = ("margin",)

    neighbours: Neighbours = parameter(check_neighbours, default=13)
    margin: float = parameter(check_real, default=0.15, low=0.0, high=1.0)

    def keep_and_residual(self, draft: Array, target: Array) -> tuple[Array, Array, Array]:
        """Compare the masses of clusters; the residual is a law of tokens."""
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
