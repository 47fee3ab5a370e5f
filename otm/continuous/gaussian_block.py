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
from numpy.typing import NDArray
from scipy.interpolate import make_interp_spline
from scipy.special import ndtr

from otm._machine.arrays import Floats, quiet, unit_quadrature
from otm.continuous.gaussian_curve import GaussianCurve
from otm.continuous.gaussian_rule import check_steps, direction, draw_residual
from otm.errors import ShapeMismatch
from otm.pmf import RNGLike, check_rng, settle_counts

_NODES = 16
_LEAST_LOG = -42.0  # a weight of e to it is below a rounding of 1
_LEAST_SHIFT = 1e-15  # a smaller one loses less than a rounding
_FARTHEST = 9.0  # standard deviations; 1e-19 lies beyond


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GaussianBlockSamples:
    """Verified chains.

    Attributes:
        accepted: how many drafts of each chain are kept, from the first on, `(...)`.
        output: the point after them `(..., n)`, which the target adds.
    """

    accepted: NDArray[np.int64]
    output: Floats


@final
@dataclasses.dataclass(frozen=True)
class GaussianBlock:
    """Keep the longest prefix of a chain of Gaussian drafts that passes a test as a whole.

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

    >>> GaussianBlock(3).survival([1.0, 1.0, 1.0]).round(6).tolist()
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
        """Return the number of kept steps of each chain, and the target's point after these.

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
                positive, a draft not finite, or means are more than 1e100 deviations apart.

        Cost: O(γ n) a chain. Accuracy: of the output's law, that of Φ, 1e-15 in total variation.

        >>> import numpy as np
        >>> rng, steps = np.random.default_rng(0), np.array([[[0.0]] * 3] * 20_000)
        >>> drafts = rng.standard_normal((20_000, 2, 1))
        >>> found = GaussianBlock(2).verify(
        ...     drafts, draft_mean=steps[:, :2], target_mean=steps + 1.0, rng=rng
        ... )
        >>> bool(abs(found.accepted.mean() - (0.617 + 0.430)) < 0.03)  # nearly five standard errors
        True
        """
        length = self.length
        points, start, end, deviation = check_steps(
            drafts,
            draft_mean,
            target_mean,
            scale,
            count=length,
            axes=((length,), (length + 1,), (length + 1,)),
        )
        source, size = check_rng(rng), end[..., -1, :].shape
        chains = (-1, length, size[-1])
        along, shift = direction(start, end[..., :-1, :], deviation[..., :-1, :])
        x = ((points - start) / deviation[..., :-1, :] * along).sum(axis=-1)
        x, shift = (a.reshape(-1, length) for a in (x, shift))
        weight, chance = _chances(x, shift)
        passes = source.random(chance.shape) < chance
        passes[:, 0] = True  # what nothing longer passes ends here
        accepted = length - passes[:, ::-1].argmax(axis=1)
        last = end[..., -1, :] + deviation[..., -1, :] * source.standard_normal(size)
        output = last.reshape(-1, size[-1])
        rows = np.flatnonzero(accepted < length)
        steps = accepted[rows]  # what follows the accepted ones is rejected
        shift, weight = shift[rows, steps], weight[rows, steps]
        replaced = draw_residual(shift, lambda _, at: 1.0 / weight[at, None], source)
        units = (along * deviation[..., :-1, :]).reshape(chains)
        # what lies across the shift is kept
        moves = (replaced - x[rows, steps])[:, None] * units[rows, steps]
        output[rows] = points.reshape(chains)[rows, steps] + moves
        return GaussianBlockSamples(accepted.reshape(size[:-1]), output.reshape(size))

    def survival(self, shifts: object) -> Floats:
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

        Cost: some 50 ms a step, more where the least shift is below .05. Accuracy: 1e-13
            *observed*, against the identity.
        Reference: docs/theory.md, "Blocks of Gaussian steps"; Spitzer 1956.

        >>> block, single = GaussianBlock(8).survival([0.5] * 8), np.cumprod([0.8025873486] * 8)
        >>> round(float(block.sum()), 4), round(float(single.sum()), 4)
        (4.2773, 3.3656)
        """
        given = GaussianCurve(shifts).shift
        if given.shape != (self.length,):
            raise ShapeMismatch(
                f"shifts must have the shape ({self.length},); got {given.shape}. Give one "
                "distance of the means for each step."
            )
        grid = _grid(float(given.min(initial=1.0, where=given > _LEAST_SHIFT)))
        # one column for each step: what its weight is worth in expectation at the weight so far
        worth = np.zeros((len(grid), 0))
        for shift in given[::-1].tolist():
            worth = np.column_stack([np.exp(grid), worth])
            worth = _expected(grid, worth, shift) if shift > _LEAST_SHIFT else worth
        return np.asarray(np.clip(worth[-1], 0.0, 1.0))


def _chances(x: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """Return w₀ … w_γ and the pass probability of each prefix, `(rows, γ + 1)`."""
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


def _grid(shift: float) -> Floats:
    """Return log w from −42 to 0 in steps that shrink towards 0."""
    # what a weight is worth has a layer of the shift's width below w = 1, and is smooth elsewhere
    scale = 2.0 * min(shift, 1.0)
    count = math.ceil(math.log1p(-_LEAST_LOG / scale) / 0.035)
    return np.asarray(-scale * np.expm1(np.linspace(math.log1p(-_LEAST_LOG / scale), 0.0, count)))


def _expected(grid: Floats, worth: Floats, shift: float) -> Floats:
    """Return E[worth of log w after a step of this shift] at each log w of the grid, `(n, m)`."""
    last = (0.5 * shift**2 - grid[:, None]) / shift  # beyond it w is 1
    # panels of one deviation of the draft, and those that halve towards w = 1
    halving = last - _FARTHEST * 0.5 ** np.arange(-1.0, 24.0)
    whole = np.broadcast_to(np.arange(-_FARTHEST, _FARTHEST + 1.0), (len(grid), 19))
    breaks = np.sort(np.column_stack([halving, last, whole]), axis=1)
    breaks = np.clip(breaks, -_FARTHEST, np.minimum(last, _FARTHEST))
    places, weights = unit_quadrature(_NODES)
    width = np.diff(breaks)[..., None]
    z = breaks[:, :-1, None] + width * places
    mass = width * weights * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    after = make_interp_spline(grid, worth, k=9)(
        np.clip(shift * (z - last[..., None]), _LEAST_LOG, 0.0)
    )
    return np.asarray(np.einsum("nij,nijm->nm", mass, after) + ndtr(-last) * worth[-1])
