"""Two finite problems that enclose a pair of densities on a line, for use with all of the library.

Cut the line into cells. Of each cell the masses P and Q are known and two numbers between which q/p
lies. Melting a cell into one token of these masses raises the overlap curve, and parting it into
the two tokens with the extreme ratios that have the masses together lowers it:

    H of the parted cells ≤ H ≤ H of the melted cells.

The optimum of i.i.d. drafts and of threshold races and K-SEQ's acceptance grow with H, and so lie
between those of the two problems; hockey-stick divergences 1 − H fall with it. Recursive
rejection's acceptance does not: of it the two problems have approximations (docs/theory.md, "The
curve of other laws").
"""

from __future__ import annotations

import abc
import dataclasses
from typing import NamedTuple, final

import numpy as np
from scipy.special import ndtr

from otm._machine.arrays import Floats, quiet
from otm.drafts.base import Law
from otm.errors import InvalidParameter
from otm.pmf import check_count, check_instance, host_pmf, plain_reals
from otm.problem import Problem

_FAR = 38.0  # deviations beyond which a Gaussian has no mass that a float holds
_BENT = 4.0  # points at sinh of equal distances up to it: denser in the middle by cosh of it


class Density(abc.ABC):
    """A law on a line, with points and masses for a division into cells."""

    @abc.abstractmethod
    def points(self, count: int) -> Floats:
        """Return about `count` ascending points at which to divide the line for this law."""

    @abc.abstractmethod
    def masses(self, edges: Floats) -> Floats:
        """Return the masses of the n + 1 cells between n ascending points."""

    @abc.abstractmethod
    def bounds(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return bounds of the density in each cell, `(n + 1,)` both."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GaussianMixture(Density):
    """Σ_i w_i N(μ_i, σ_i²).

    Args:
        weights: probabilities `(m,)`.
        means: μ, `(m,)`.
        scales: σ > 0, `(m,)`.

    Raises:
        InvalidDistribution: unless the weights are probabilities. InvalidParameter: unless means
            and scales are as many numbers, and scales positive.

    >>> GaussianMixture([0.5, 0.5], [-1, 1], [1, 2]).masses([0.0]).round(6).tolist()
    [0.574941, 0.425059]
    """

    weights: Floats
    means: Floats
    scales: Floats

    def __post_init__(self) -> None:
        weights = host_pmf(self.weights, name="weights")
        means, scales = (
            np.asarray(plain_reals(getattr(self, name), name), dtype=np.float64)
            for name in ("means", "scales")
        )
        if not (weights.shape == means.shape == scales.shape and weights.ndim == 1):
            raise InvalidParameter(
                "weights, means and scales must be as many, `(m,)`; got the shapes "
                f"{weights.shape}, {means.shape} and {scales.shape}. Give one of each."
            )
        if not ((scales > 0).all() and np.isfinite(means).all()):
            raise InvalidParameter(
                f"scales must be positive; got {scales!r}. Give standard deviations."
            )
        for name, value in (("weights", weights), ("means", means), ("scales", scales)):
            object.__setattr__(self, name, value)

    def points(self, count: int) -> Floats:
        """Return points around every component, denser in the middle."""
        each = np.sinh(np.linspace(-_BENT, _BENT, max(2, count // len(self.means))))
        return np.unique(self.means[:, None] + self.scales[:, None] * (_FAR / each[-1] * each))

    def masses(self, edges: Floats) -> Floats:
        """Return differences of Φ, from the nearer end."""
        low, high = self._ends(edges)
        upper = low + high > 0
        each = ndtr(np.where(upper, -low, high)) - ndtr(np.where(upper, -high, low))
        return np.asarray(self.weights @ each)

    def bounds(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return sums of the components' least and largest values, at ends of cells or means."""
        low, high = self._ends(edges)
        nearest, farthest = np.clip(0.0, low, high), np.maximum(abs(low), abs(high))
        peaks = self.weights / self.scales / np.sqrt(2.0 * np.pi)
        least, most = (peaks @ np.exp(-0.5 * z**2) for z in (farthest, nearest))
        return least, most

    def _ends(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return the ends of each cell in each component's deviations, `(m, n + 1)`."""
        ends = np.concatenate([[-np.inf], np.asarray(edges, dtype=np.float64), [np.inf]])
        z = (ends - self.means[:, None]) / self.scales[:, None]
        return z[:, :-1], z[:, 1:]


class Enclosure(NamedTuple):
    """Two finite problems that enclose a pair of densities.

    Attributes:
        melted: its curve lies above that of the densities: what it accepts bounds from above.
        parted: its curve lies below: what it accepts bounds from below.
    """

    melted: Problem
    parted: Problem


def enclosure(draft: Density, target: Density, *, law: Law, cells: int = 1 << 16) -> Enclosure:
    """Return the two finite problems that enclose two densities.

    The gap between both falls with the square of the cells' width, for only cells whose ratios
    enclose the level that a question looks at differ.

    Args:
        draft, target: densities, such as `GaussianMixture`.
        law: `otm.IID(k)` or another that depends on H alone.
        cells: about how many cells, at least 2.

    Returns:
        Enclosure; ask both of its problems anything that grows with H.

    Raises:
        InvalidParameter: if a count or a kind is wrong.

    Cost: O(cells). Accuracy: up to the rounding of masses, 1e-13.
    Reference: docs/theory.md, "The curve of other laws".

    >>> import otm
    >>> one, other = GaussianMixture([1], [0], [1]), GaussianMixture([1], [1], [1])
    >>> found = enclosure(one, other, law=otm.IID(4))
    >>> [round(otm.optimal_acceptance(each), 6) for each in (found.parted, found.melted)]
    [0.924197, 0.924197]
    """
    check_instance(draft, Density, name="draft")
    check_instance(target, Density, name="target")
    count = check_count(cells, name="cells", minimum=2)
    edges = np.unique(np.concatenate([each.points(count // 2) for each in (draft, target)]))
    p, q = (each.masses(edges) for each in (draft, target))
    (p_low, p_high), (q_low, q_high) = (each.bounds(edges) for each in (draft, target))
    with quiet():
        low = np.where(p_high > 0, q_low / p_high, 0.0)
        high = np.where(p_low > 0, q_high / p_low, np.inf)
        low, high = np.fmin(low, q / p), np.fmax(high, q / p)
        apart = np.where(high > low, (q - low * p) / (high - low), 0.0)
    upper = np.clip(np.where(np.isfinite(high), apart, 0.0), 0.0, p)
    lower = p - upper
    least = np.where(p > 0, low * lower, 0.0)
    parted = [np.append(lower, upper), np.append(least, np.maximum(q - least, 0.0))]
    problems = [
        Problem(draft=a / a.sum(), target=b / b.sum(), law=law) for a, b in ((p, q), parted)
    ]
    return Enclosure(*problems)
