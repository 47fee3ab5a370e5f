"""Block verification of Gaussian steps: a chain of drafts, verified as a whole.

Along the shift of step t, in units of its standard deviation, the draft is x ~ N(0, 1) and the
target N(δ, 1), where δ and the direction may depend on all the points before. A prefix has the
weight w ← min(1, w q/p), and the integral that block verification asks of every prefix is closed,

    Z = ∫ (w q − p)₊ = w Φ(δ/2 + log(w)/δ) − Φ(log(w)/δ − δ/2),      ∫ (p − w q)₊ = Z + 1 − w.
"""

from __future__ import annotations

import dataclasses
import math
from typing import final

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import NDArray
from scipy.special import ndtr

from otm._arrays import Floats, quiet, unit_quadrature
from otm.continuous.gaussian_curve import GaussianCurve
from otm.continuous.gaussian_rule import check_steps, direction, draw_residual
from otm.errors import ShapeMismatch
from otm.pmf import RNGLike, check_rng, settle_counts

_NODES = 16
_LEAST_LOG = -42.0  # a weight of e to it is below a rounding of 1
_FARTHEST = 9.0  # standard deviations; 1e-19 lies beyond


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GaussianBlockSamples:
    """Verified chains.

    Attributes:
        kept: how many drafts of each chain are kept, from the first on, `(...)`.
        output: the point after them `(..., n)`, which the target adds.
    """

    kept: NDArray[np.int64]
    output: Floats


@final
@dataclasses.dataclass(frozen=True)
class GaussianBlock:
    """Keep the longest prefix of a chain of Gaussian drafts that passes a test of its whole.

    w₀ = 1, w_i = min(1, w_{i−1} q/p) at step i. Prefix i < γ passes with probability Z_i/(Z_i + 1 −
    w_i), Z_i = ∫ (w_i q − p)₊ of the step after it, the whole chain with w_γ; the longest that
    passes is kept. After it the point along the shift is drawn ∝ (w_i q − p)₊, and what lies across
    the shift is kept from the rejected draft. Lossless, also where shifts and directions depend on
    the points before; Pr(at least i steps are kept) = E[w_i], never below the product of min(1,
    q/p) that steps verified one by one reach.

    Args:
        length: γ ≥ 1 drafted steps.

    Raises:
        InvalidParameter: unless γ is an integer of at least 1.

    Cost: O(γ n) a chain, and at most γ proposals on average for the point after the kept ones.
    Reference: Sun et al. 2024 (2403.10444), Algorithm 2; of diffusion steps: Soen et al. 2026
        (2606.13426); docs/theory.md, "Blocks of Gaussian steps".

    >>> GaussianBlock(3).reach([1.0, 1.0, 1.0]).round(6).tolist()
    [0.617075, 0.430141, 0.315931]
    """

    length: int

    def __post_init__(self) -> None:
        settle_counts(self, length=1)

    def verify(
        self,
        drafts: object,
        *,
        draft_mean: object,
        target_mean: object,
        scale: object = 1.0,
        rng: RNGLike,
    ) -> GaussianBlockSamples:
        """Return how many steps of each chain are kept, and the target's point after them.

        Args:
            drafts: points of a chain, the i-th drawn from N(m_i, σ²) given those before,
                `(..., γ, n)`.
            draft_mean: m_i `(..., γ, n)`.
            target_mean: μ_i of the target along the same points, `(..., γ + 1, n)`: the last is of
                the step after the whole chain.
            scale: σ > 0, a number or one for each step and coordinate, `(..., γ + 1, n)`.
            rng: a NumPy generator or a seed.

        Returns:
            GaussianBlockSamples.

        Raises:
            ShapeMismatch: unless the shapes are these. InvalidParameter: if a scale is not
                positive.

        Cost: O(γ n) a chain. Accuracy: of the output's law, that of Φ, 1e-15 in total variation.

        >>> import numpy as np
        >>> rng, steps = np.random.default_rng(0), np.array([[[0.0]] * 3] * 20_000)
        >>> drafts = rng.standard_normal((20_000, 2, 1))
        >>> found = GaussianBlock(2).verify(
        ...     drafts, draft_mean=steps[:, :2], target_mean=steps + 1.0, rng=rng
        ... )
        >>> bool(abs(found.kept.mean() - (0.617 + 0.430)) < 0.03)  # nearly five standard errors
        True
        """
        points, start, end, deviation = check_steps(drafts, draft_mean, target_mean, scale)
        length, shape = self.length, (*points.shape[:-2], self.length + 1, *points.shape[-1:])
        if points.ndim < 2 or points.shape[-2] != length or not shape[-1]:
            raise ShapeMismatch(
                f"drafts must have the shape (..., {length}, n); got {points.shape}. Stack the "
                "steps of a chain on the last axis but one."
            )
        try:
            end, deviation = (np.broadcast_to(a, shape) for a in (end, deviation))
            start = np.broadcast_to(start, points.shape)
        except ValueError as error:
            raise ShapeMismatch(
                f"draft_mean must fit {points.shape}, target_mean and scale {shape}; got "
                f"{start.shape}, {end.shape} and {deviation.shape}. The target has one step more."
            ) from error
        source, rows, size = check_rng(rng), (-1, length, shape[-1]), (*shape[:-2], shape[-1])
        along, shift = direction(start, end[..., :-1, :], deviation[..., :-1, :])
        x = ((points - start) / deviation[..., :-1, :] * along).sum(axis=-1)
        x, shift = (a.reshape(-1, length) for a in (x, shift))
        weight, chance = _chances(x, shift)
        passes = source.random(chance.shape) < chance
        passes[:, 0] = True  # what nothing longer passes ends here
        kept = length - passes[:, ::-1].argmax(axis=1)
        last = end[..., -1, :] + deviation[..., -1, :] * source.standard_normal(size)
        output = last.reshape(-1, shape[-1])
        place = cut, _ = (np.flatnonzero(kept < length), kept[kept < length])
        replaced = draw_residual(shift[place], lambda _, at: 1.0 / weight[place][at, None], source)
        # what lies across the shift is kept
        moved = (replaced - x[place])[:, None] * (along * deviation[..., :-1, :]).reshape(rows)[
            place
        ]
        output[cut] = points.reshape(rows)[place] + moved
        return GaussianBlockSamples(kept.reshape(size[:-1]), output.reshape(size))

    def reach(self, shifts: object) -> Floats:
        """Return Pr(at least i steps are kept), i = 1 … γ, where no shift depends on the path.

        E[w_i] over the drafts, log w_i ← min(0, log w_{i−1} + δ_i x − δ_i²/2); their sum is what a
        chain keeps in the mean. For equal shifts i E[w_i] = Σ_j 2Φ(−δ√j/2) E[w_{i−j}], Spitzer's
        identity. Steps verified one by one reach Π_j 2Φ(−δ_j/2).

        Args:
            shifts: δ of each step, `(γ,)`.

        Returns:
            `(γ,)`, falling.

        Raises:
            ShapeMismatch: unless there are γ of them. InvalidParameter: if one is out of range.

        Cost: some 30 ms for every different shift, more where the least is below 1e-3. Accuracy:
            1e-13 *observed*, against the identity.
        Reference: docs/theory.md, "Blocks of Gaussian steps"; Spitzer 1956.

        >>> block, single = GaussianBlock(8).reach([0.5] * 8), np.cumprod([0.8025873486] * 8)
        >>> round(float(block.sum()), 4), round(float(single.sum()), 4)
        (4.2773, 3.3656)
        """
        given = GaussianCurve(shifts).shift
        if given.shape != (self.length,):
            raise ShapeMismatch(
                f"shifts must have the shape ({self.length},); got {given.shape}. Give one "
                "distance of the means for each step."
            )
        edges, nodes = _panels(float(given.min(initial=1.0, where=given > 0)))
        moves = {
            shift: _expectation(edges, nodes, shift) for shift in set(given[given > 0].tolist())
        }
        # one column for each step: what its weight is worth in expectation at the weight so far
        worth = np.zeros((len(nodes), 0))
        for shift in given[::-1].tolist():
            worth = np.column_stack([np.exp(nodes), worth])
            worth = moves[shift] @ worth if shift > 0 else worth
        at_one = _interpolated(edges, np.zeros((1, 1)), np.ones((1, 1)))[0]
        return np.asarray(np.clip(at_one @ worth, 0.0, 1.0))


def _chances(x: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """Return w₀ … w_γ and what each prefix passes with, `(rows, γ + 1)`."""
    gained = shift * (x - 0.5 * shift)
    log_weight = np.zeros((len(x), x.shape[1] + 1))
    for step in range(x.shape[1]):
        log_weight[:, step + 1] = np.minimum(log_weight[:, step] + gained[:, step], 0.0)
    weight = np.exp(log_weight)
    before, half = weight[:, :-1], 0.5 * shift
    with quiet():
        reduced = log_weight[:, :-1] / shift
        excess = before * ndtr(half + reduced) - ndtr(reduced - half)
        # without a shift nothing exceeds; rounding must not leave less than nothing
        excess = np.where(shift > 0, np.maximum(excess, 0.0), 0.0)
        passing = np.where(before < 1.0, excess / (excess + 1.0 - before), 1.0)
    return weight, np.column_stack([passing, weight[:, -1]])


def _panels(shift: float) -> tuple[Floats, Floats]:
    """Return edges of panels of log w, halving towards 0 until below δ/16, and their nodes."""
    # what a weight is worth has a layer of the shift's width below w = 1, and is smooth elsewhere
    count = 4 + math.ceil(math.log2(-_LEAST_LOG / min(shift, 1.0)))
    edges = np.append(_LEAST_LOG * 0.5 ** np.arange(count), 0.0)
    places, _ = unit_quadrature(_NODES)
    return edges, (edges[:-1, None] + np.diff(edges)[:, None] * places).reshape(-1)


def _interpolated(edges: Floats, log_weight: Floats, mass: Floats) -> Floats:
    """Return the matrix from values at the nodes to Σ mass·value at points `(rows, m)`."""
    panel = np.clip(np.searchsorted(edges, log_weight, side="right") - 1, 0, len(edges) - 2)
    place = (log_weight - edges[panel]) / np.diff(edges)[panel]
    terms = mass[..., None] * legvander(2.0 * place - 1.0, _NODES - 1)
    rows, panels = len(log_weight), len(edges) - 1
    where = (np.arange(rows)[:, None] * panels + panel).reshape(-1)
    sums = [
        np.bincount(where, weights=terms[..., k].reshape(-1), minlength=rows * panels)
        for k in range(_NODES)
    ]
    # Legendre's coefficients of a panel from its values, exactly
    places, weights = unit_quadrature(_NODES)
    fit = (legvander(2.0 * places - 1.0, _NODES - 1) * weights[:, None]) * (
        2.0 * np.arange(_NODES) + 1.0
    )
    return np.asarray(
        (np.stack(sums, axis=-1).reshape(rows, panels, _NODES) @ fit.T).reshape(rows, -1)
    )


def _expectation(edges: Floats, start: Floats, shift: float) -> Floats:
    """Return the matrix from values at the nodes to E[value after a step | log w = start]."""
    last = (0.5 * shift**2 - start[:, None]) / shift  # beyond it w is 1
    whole = np.broadcast_to(np.arange(-_FARTHEST, _FARTHEST + 1.0), (len(start), 19))
    breaks = np.sort(np.column_stack([last + edges / shift, whole]), axis=1)
    breaks = np.clip(breaks, -_FARTHEST, np.minimum(last, _FARTHEST))
    places, weights = unit_quadrature(_NODES)
    width = np.diff(breaks)[..., None]
    z = (breaks[:, :-1, None] + width * places).reshape(len(start), -1)
    mass = (width * weights).reshape(z.shape) * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    after = np.clip(shift * (z - last), edges[0], 0.0)
    return _interpolated(
        edges, np.column_stack([after, 0.0 * start]), np.column_stack([mass, ndtr(-last)])
    )
