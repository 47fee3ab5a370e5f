"""The optimal acceptance of drafts from one distribution, as a minimum along the overlap curve.

For every draft law, the best acceptance of any coupling is α* = 1 + min_T [Q(T) − b(T)] over sets T
of tokens, where b(T) is the probability that all drafts fall into T (max-flow/min-cut on the graph
from drafted sets to their tokens; docs/theory.md, "The cut formula"). Where b(T) is a convex
function of P(T), P(T)^k for k i.i.d. drafts and P/(P + c (1 − P)) for a threshold race, a
minimising T is a *prefix* of supp p in ascending order of q/p: tokens that the draft model
overrates most come first.

The scan runs over the complements of the prefixes, from the other end of the order: with C = P(Tᶜ)
accumulated from the small side, b(T), exp(k·log1p(−C)) say, keeps full accuracy where P(T) is close
to 1, which is where k in the thousands looks. It looks at every prefix: in terms of the curve's
level there may be several local minima (docs/theory.md, "The overlap curve").
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Array, clip, gather, namespace, quiet, tracks_gradient, untracked
from otm.drafts.base import Law
from otm.errors import InvalidParameter
from otm.overlap import OverlapCurve
from otm.overlap.curve import Containment, containments
from otm.overlap.gradient import attach_curve_gradient
from otm.overlap.rows import dispatch_by_length
from otm.pmf import align_pair


@dataclasses.dataclass(frozen=True)
class CurveLaw(Law, abc.ABC):
    """A law of one drafter whose b(T) is a function of P(T) alone, `contained`."""

    one_drafter = True
    differentiable = True

    @property
    @abc.abstractmethod
    def contained(self) -> Containment:
        """The containment b as a function of the mass outside the set."""

    def align(self, draft: Array, target: Array) -> tuple[Array, Array]:
        """Broadcast the leading axes of draft and target `(..., V)`."""
        return align_pair(draft, target)

    def optimal_values(self, draft: Array, target: Array, sizes: Sequence[Any]) -> Array:
        """Return the prefix cut for each size, from one order or from bins (`curve_values`)."""
        return curve_values(draft, target, [law.contained for law in self.family(sizes)])

    def worst_set(self, draft: NDArray[Any], target: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the minimising prefix of supp p in the order of q/p, as a mask."""
        return curve_worst_set(draft, target, self.contained)


def check_curve_law(law: object) -> type[CurveLaw]:
    """Return a class of curve laws, or raise `InvalidParameter`."""
    if isinstance(law, type) and issubclass(law, CurveLaw):
        return law
    raise InvalidParameter(
        "law must be a class of draft laws that depend on the overlap curve alone; got "
        f"{law!r}. Choose otm.IID or otm.ThresholdRace."
    )


def curve_values(draft: Array, target: Array, sizes: Sequence[Containment]) -> Array:
    """Return α* = 1 + min_j [Q(T_j) − b(T_j)] over prefixes T_j, for each size, shape `(len(sizes),
    ...)` in float64.

    Cost: on long rows three passes (`otm.overlap.rows`), else one sort, two running sums and one
        pass per size. Accuracy: that of the running sums, for every size.
    """
    if tracks_gradient(draft, target):
        # α* = 1 + min_λ [H(λ) − λ + a function of λ], b's conjugate, so that at the minimum dα* =
        # dH at fixed λ.
        values, levels = curve_values_and_levels(untracked(draft), untracked(target), sizes)
        return attach_curve_gradient(values, draft, target, levels=levels)
    return _values_and_outside(draft, target, sizes)[: len(sizes), ...]


def curve_values_and_levels(
    draft: Array, target: Array, sizes: Sequence[Containment]
) -> tuple[Array, Array]:
    """Return α* and the level λ = b′(P(T)) of a minimising cut T, both `(len(sizes), ...)`.

    T = {q < λ p} is minimising (docs/theory.md, "The prefix property"), so the level is all that
    one needs of the search to evaluate the optimum again on fixed sets of tokens, and so its
    gradient (docs/theory.md, "Gradients").
    """
    n, found = len(sizes), _values_and_outside(draft, target, sizes)
    outside = clip(found[n:, ...], 0.0, 1.0)
    levels = [size.slope(outside[i, ...]) for i, size in enumerate(sizes)]
    return found[:n, ...], namespace(found).stack(levels, axis=0)


def _values_and_outside(draft: Array, target: Array, sizes: Sequence[Containment]) -> Array:
    """Return α* and then, in as many rows again, P of the tokens outside a minimising set."""

    def in_bins(bins: Any, p: Array, q: Array) -> tuple[Array, Array]:
        found: tuple[Array, Array] = bins.optimum(p, q, sizes)
        return found

    return dispatch_by_length(in_bins, lambda curve: optimum_on_curve(curve, sizes), draft, target)


def optimum_on_curve(curve: OverlapCurve, sizes: Sequence[Containment]) -> Array:
    """Return α* and then, in as many rows again, P of the tokens outside a minimising set, `(2
    len(sizes), ...)`.

    With Tᶜ on the prefixes of the order: b(T) − Q(T) = b(T) + Q(Tᶜ) − 1.
    """
    xp, most, place = namespace(curve.above_draft), {}, {}
    height = xp.empty_like(curve.above_draft)  # a new array costs more than to fill it
    with quiet():
        for size, contained in containments(curve.above_draft, sizes):
            height[...] = contained
            height += curve.above_target
            place[size] = xp.argmax(height, axis=-1)
            most[size] = gather(height, place[size][..., None])[..., 0]
    values = xp.stack([most[size] for size in sizes], axis=0)
    outside = gather(curve.above_draft, xp.stack([place[size] for size in sizes], axis=-1))
    # T = Ω has b − Q = 0 and nothing outside
    outside = xp.where(values > 1.0, xp.moveaxis(outside, -1, 0), xp.zeros_like(values))
    return xp.concat([1.0 - clip(values - 1.0, 0.0, 1.0), outside], axis=0)


def curve_worst_set(
    draft: NDArray[Any], target: NDArray[Any], size: Containment
) -> NDArray[np.bool_]:
    """Return the minimising prefix T as a mask `(V,)`; ties go to the smallest complement."""
    curve = OverlapCurve.of(draft, target)
    with quiet():
        ((_, contained),) = containments(curve.above_draft, [size])
    gain = contained + curve.above_target
    members, best = np.ones(len(draft), dtype=bool), int(np.argmax(gain))
    # The empty complement (T = Ω) has b − Q = 0, which in these terms is 1.
    if gain[best] > 1.0:
        members[curve.tokens[: best + 1]] = False
    return members
