"""The optimum between two certificates in O(V), without sorting: tokens of similar q/p share a bin.

Group the tokens of supp p into bins of log(q/p) and give all tokens of a bin the same score law.
Each bin is then one token of a smaller problem with masses P_b = P(bin), Q_b = Q(bin), and three
things hold for *any* bins (docs/theory.md, "The binned form"):

* the selected draft has law s(y) = p(y)·a_b exactly, for each token, so accepting with min(1,
  q(y)/s(y)) is exactly lossless;
* that verifier accepts lower = Σ_y min(p(y)·a_b, q(y)), so lower ≤ α*;
* a cut that is a union of bins is a cut, so upper = 1 + min over such cuts [Q − b] ≥ α*.

The bins are equally wide in log₂(q/p) from 2⁻²⁴ to k, or c of a threshold race. No finer
distinction is needed above, where the optimal level is a constant d no larger; below 2⁻²⁴ at most
that much acceptance is at stake. Everything is a histogram, a scan over bins and a gather: the form
for batches and for a GPU.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from otm._machine.arrays import (
    Array,
    by_rows,
    clip,
    gather,
    histogram,
    is_on_host,
    namespace,
    quiet,
    total,
)
from otm.drafts.curve_cut import CurveLaw
from otm.errors import InvalidParameter
from otm.overlap.curve import Containment, ratios
from otm.pmf import check_count
from otm.problem import Problem, require_law

_LOWEST_EXPONENT = -24.0
_MOST_BINS = 1 << 20


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """Tokens grouped by ratio: bin of each token `(..., V)`, masses `(..., bins)` by ascending
    ratio, target mass off supp p.
    """

    index: Array
    draft: Array
    target: Array
    undrafted: Array


def bin_tokens(draft: Array, target: Array, bins: int, steepest: float) -> Cells:
    """Group tokens into bins of log₂(q/p), equally wide from −24 to the steepest rise of b; ratios
    outside join the end bins.

    Target mass of tokens with p = 0 belongs to no bin. Cost: O(V), one logarithm per token.
    """
    xp = namespace(draft, target)
    p, q = xp.astype(draft, xp.float64, copy=False), xp.astype(target, xp.float64, copy=False)
    highest = max(1.0, math.log2(steepest))
    place = ratios(p, q)  # of 0/0, which has no mass, any bin will do
    with quiet():
        place = np.log2(place, out=place) if isinstance(place, np.ndarray) else xp.log2(place)
    place -= _LOWEST_EXPONENT
    place *= bins / (highest - _LOWEST_EXPONENT)
    # an infinite place must not reach the conversion
    index = xp.astype(clip(place, 0.0, float(bins - 1)), xp.int64)
    if is_on_host(p) and bool(xp.min(p) > 0):
        return Cells(
            index, histogram(index, p, bins), histogram(index, q, bins), xp.zeros_like(p[..., 0])
        )
    dead = xp.where(p > 0, 0.0, q)
    masses = [histogram(index, weights, bins) for weights in (p, q - dead)]
    return Cells(index=index, draft=masses[0], target=masses[1], undrafted=total(dead))


def check_bins(bins: object) -> int:
    """Return the number of bins, or raise unless this is an integer from 1 to `_MOST_BINS`."""
    count = check_count(bins, name="bins")
    if count > _MOST_BINS:
        raise InvalidParameter(
            f"bins must be at most {_MOST_BINS:,}; got {count:,}. Use bins=None, which needs none."
        )
    return count


def require_curve(problem: Problem) -> CurveLaw:
    """Return the problem's law if b(T) is a function of P(T), or raise `Unsupported`."""
    return require_law(
        problem,
        CurveLaw,  # type: ignore[type-abstract]  # any of its kind
        message="Bins of q/p serve i.i.d. drafts and threshold races; the problem's law is "
        "{law!r}. Use otm.optimum.",
    )


def bracket_ends(problem: Problem, bins: int) -> Array:
    """Return `optimal_bracket`'s lower and upper ends stacked, `(2, ...)`."""
    size = require_curve(problem).contained
    return by_rows(lambda p, q: _bracket(p, q, bins, size), problem.draft, problem.target)


def _bracket(draft: Array, target: Array, bins: int, size: Containment) -> Array:
    xp = namespace(draft, target)
    cells = bin_tokens(draft, target, bins, size.steepest)
    levels, gain = _levels(cells, size)
    p, q = xp.astype(draft, xp.float64, copy=False), xp.astype(target, xp.float64, copy=False)
    lower = total(xp.minimum(p * gather(levels, cells.index), q))
    return xp.stack([xp.clip(lower, 0.0, 1.0), 1.0 - xp.clip(gain, 0.0, 1.0)], axis=0)


def _levels(cells: Cells, size: Containment) -> tuple[Array, Array]:
    """Return a_b = clip(Q_b/P_b, c, d) `(..., bins)` and max_T [b(T) − Q(T)] over unions of bins,
    batched.
    """
    xp, bins = namespace(cells.draft), int(cells.draft.shape[-1])
    p, q = xp.flip(cells.draft, axis=-1), xp.flip(cells.target, axis=-1)  # highest ratios first
    zero = xp.zeros_like(p[..., :1])
    # after 0, 1, ..., bins bins
    outside = xp.concat([zero, xp.cumulative_sum(p, axis=-1)], axis=-1)
    above = xp.concat([zero, xp.cumulative_sum(q, axis=-1)], axis=-1)
    with quiet():
        contained = xp.exp(size.logarithm(xp.clip(outside, 0.0, 1.0)))
    # With every bin outside, T = ∅ holds nothing, whatever rounding left of 1 − C.
    empty = xp.arange(bins + 1, device=outside.device) == bins
    contained = xp.where(empty, 0.0, contained)
    gains = contained + above + cells.undrafted[..., None]
    cut = xp.argmax(gains, axis=-1)[..., None]
    held = gather(contained, cut)
    with quiet():
        ratio = xp.where(p > 0, q / p, xp.zeros_like(p))
    # Σ_T p·max(r, c) = b(T) on the last bins, and Σ p·min(r, d) = 1 − b(T) off T, the mirror
    # image: min(r, d) = −max(−r, −d).
    c = _lift(cells.draft, cells.target, xp.flip(ratio, axis=-1), bins - cut, held)
    d = -_lift(p, -q, -ratio, cut, held - 1.0)
    c, d = xp.clip(c, 0.0, None), xp.clip(d, None, size.steepest)
    # c ≤ d makes this one clip, but where P(Tᶜ) is 1e-300 rounding leaves nothing of d, which must
    # not reach into T.
    off = xp.arange(bins, device=outside.device) < cut
    levels = xp.where(off, xp.minimum(ratio, xp.maximum(c, d)), xp.maximum(ratio, c))
    levels = xp.ones_like(levels) if size.steepest == 1.0 else levels
    return xp.flip(levels, axis=-1), xp.max(gains, axis=-1) - 1.0


def _lift(p: Array, q: Array, ratio: Array, count: Array, mass: Array) -> Array:
    """Solve Σ p·max(r, level) = mass over the first `count` bins, by ascending ratio r = q/p;
    `(..., 1)`, −∞ without any.

    Lifting bins 0..j to the ratio of bin j takes r_j P_j − Q_j, so the longest run is lifted that
    the spare mass pays for. It is found by counting, not by comparing slopes: a bin of mass 1e-300
    has no accurate slope.
    """
    xp = namespace(p)
    place = xp.arange(int(p.shape[-1]), device=p.device)
    run_p, run_q = xp.cumulative_sum(p, axis=-1), xp.cumulative_sum(q, axis=-1)
    spare = mass - gather(run_q, xp.clip(count - 1, 0, None))
    paid = (place < count) & (p > 0) & (ratio * run_p - run_q <= spare)
    last = xp.max(xp.where(paid, place, xp.zeros_like(place)), axis=-1, keepdims=True)
    lifted, before = gather(run_p, last), gather(run_q, last)
    with quiet():
        level = (spare + before) / lifted
    return xp.where((count > 0) & (lifted > 0), level, xp.full_like(level, -xp.inf))
