"""Verifiers of Gaussian drafts: the decision is along the shift, and the rest of a draft is kept.

Drafts are tried in turn by K-SEQ and by recursive rejection; a single one may be reflected. The
optimum, which selects among all drafts, has a file of its own.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from otm._machine.arrays import Floats, quiet
from otm.continuous.gaussian_curve import MOST_SHIFT, GaussianCurve, ratio
from otm.errors import InvalidParameter, ShapeMismatch
from otm.pmf import RNGLike, check_rng, plain_reals, settle_counts
from otm.verifiers.kseq import roots_along

_PROPOSALS = 1 << 16  # drawn at once for all rows that wait
_LEAST_PROPOSALS = 16


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GaussianSamples:
    """Verified steps.

    Attributes:
        output: points `(..., n)` whose law is the target's.
        accepted: whether each is one of its drafts, `(...)`.
    """

    output: Floats
    accepted: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class GaussianRule(abc.ABC):
    """A lossless verifier of k independent drafts N(μ_p, σ²) towards a target N(μ_q, σ²).

    Let u be the direction of (μ_q − μ_p)/σ and δ its length. Along u a draft is x ~ N(0, 1) and the
    target N(δ, 1); across u both have the same law, independent of x. A rule chooses a draft by
    its x and replaces x if it rejects; what lies across u is kept, whatever the dimension
    (docs/theory.md, "The curve of other laws").

    Args:
        num_drafts: k ≥ 1.

    Raises:
        InvalidParameter: unless k is an integer of at least 1.
    """

    num_drafts: int

    def __post_init__(self) -> None:
        settle_counts(self, num_drafts=1)

    def verify(
        self,
        drafts: object,
        *,
        draft_mean: object,
        target_mean: object,
        scale: object = 1.0,
        rng: RNGLike,
    ) -> GaussianSamples:
        """Return a point of the target's law for each row, one of the row's drafts where possible.

        Args:
            drafts: k independent draws from N(μ_p, σ²), `(..., k, n)`.
            draft_mean, target_mean: μ_p and μ_q, `(..., n)`.
            scale: σ > 0, a number or one for each coordinate, `(..., n)`.
            rng: a NumPy generator or a seed.

        Returns:
            GaussianSamples.

        Raises:
            ShapeMismatch: unless the shapes are these. InvalidParameter: if a scale is not
                positive, a draft not finite, or means are more than 1e100 deviations apart.

        Cost: O(k n) a row, and one proposal on average after rejections. Accuracy: of the
            output's law, that of Φ and of the scores, 1e-12 in total variation.

        >>> import numpy as np
        >>> from otm.continuous import GaussianReflection
        >>> out = GaussianReflection(1).verify(
        ...     [[-3.0, 7.0]], draft_mean=[0, 0], target_mean=[2, 0], rng=0
        ... )
        >>> out.output.tolist(), bool(out.accepted)  # reflected at the middle, 1; across it kept
        ([5.0, 7.0], False)
        """
        points, start, end, deviation = check_steps(
            drafts, draft_mean, target_mean, scale, count=self.num_drafts, axes=((), (), ())
        )
        along, shift = direction(start, end, deviation)
        x = ((points - start[..., None, :]) / deviation[..., None, :] * along[..., None, :]).sum(-1)
        source, (flat, distance) = check_rng(rng), (x.reshape(-1, x.shape[-1]), shift.reshape(-1))
        index, kept = self._choose(flat, distance, source)
        chosen = flat[np.arange(len(flat)), index]
        moved = np.zeros(len(flat))
        rejected = np.flatnonzero(~kept)
        if len(rejected):
            replaced = self._replace(chosen[rejected], distance[rejected], source)
            moved[rejected] = replaced - chosen[rejected]
        rows: tuple[int, ...] = shift.shape
        draft = np.take_along_axis(points, index.reshape(*rows, 1, 1), axis=-2)[..., 0, :]
        moves = moved.reshape(*rows, 1) * along * deviation
        return GaussianSamples(draft + moves, kept.reshape(rows))

    @abc.abstractmethod
    def _choose(
        self, x: Floats, shift: Floats, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the chosen draft of each row `(rows, k)`, and True where the draft is accepted."""

    @abc.abstractmethod
    def _replace(self, x: Floats, shift: Floats, rng: np.random.Generator) -> Floats:
        """Return the replacements of rejected x, `(rows,)`."""


def check_steps(
    drafts: object,
    draft_mean: object,
    target_mean: object,
    scale: object,
    *,
    count: int,
    axes: tuple[tuple[int, ...], ...],
) -> list[Floats]:
    """Return drafts `(..., count, n)`, and both means and the scale with the given axes."""
    given = {"drafts": drafts, "draft_mean": draft_mean, "target_mean": target_mean, "scale": scale}
    reals = {
        name: np.asarray(plain_reals(value, name), dtype=np.float64)
        for name, value in given.items()
    }
    points, deviation = reals.pop("drafts"), reals["scale"]
    if not ((deviation > 0) & np.isfinite(deviation)).all():
        raise InvalidParameter(
            f"scale must be positive and finite; got {scale!r}. Pass standard deviations."
        )
    if points.ndim < 2 or points.shape[-2] != count or not points.shape[-1]:
        raise ShapeMismatch(
            f"drafts must have the shape (..., {count}, n); got {points.shape}. Stack the drafts "
            "of a row, or the steps of a chain, on the last axis but one."
        )
    if not np.isfinite(points).all():
        raise InvalidParameter("drafts must be finite; a point is not. Check where they are drawn.")
    found = [points]
    for (name, values), between in zip(reals.items(), axes, strict=True):
        shape = (*points.shape[:-2], *between, points.shape[-1])
        try:
            found.append(np.broadcast_to(values, shape))
        except ValueError as error:
            raise ShapeMismatch(
                f"{name} must fit the shape {shape}; got {values.shape}. Drop the axis of several "
                "drafts of a step; of a chain the target has one step more than the draft."
            ) from error
    return found


def direction(start: Floats, end: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """Return the direction u of the shift of steps `(..., n)`, and the length δ `(...)`."""
    with quiet():
        along = (end - start) / deviation
        shift = np.sqrt((along**2).sum(axis=-1))
        # equal means: any direction
        along = np.where(shift[..., None] > 0, along / shift[..., None], np.eye(along.shape[-1])[0])
    if not (shift <= MOST_SHIFT).all():
        raise InvalidParameter(
            f"The means of a step must lie within {MOST_SHIFT:g} standard deviations of each "
            f"other; they are {shift.max():g} apart. Check means and scale."
        )
    return along, shift


def first_kept(
    keep: Floats, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Try the drafts of each row in turn with probabilities `(rows, k)`."""
    kept = rng.random(keep.shape) < keep
    return np.asarray(kept.argmax(axis=1)), np.asarray(kept.any(axis=1))


@dataclasses.dataclass(frozen=True)
class ResidualRule(GaussianRule):
    """A rule that draws from the residual ∝ (q − a p)₊ after a rejection, a a function of x."""

    @abc.abstractmethod
    def _taken(self, x: Floats, shift: Floats) -> Floats:
        """Return a at proposals `(rows, m)` of rows with shifts `(rows, 1)`."""

    def _replace(self, x: Floats, shift: Floats, rng: np.random.Generator) -> Floats:
        """Draw from the residual."""
        return draw_residual(
            shift, lambda proposed, rows: self._taken(proposed, shift[rows, None]), rng
        )


def draw_residual(
    shift: Floats,
    taken: Callable[[Floats, NDArray[np.int64]], Floats],
    rng: np.random.Generator,
) -> Floats:
    """Propose from the target, and take a proposal with probability (1 − a p/q)₊.

    A rejection has the probability ∫ (q − a p)₊, a proposal is taken as often: one on average.

    Args:
        shift: δ of each row, `(rows,)`.
        taken: maps proposals `(rows, m)` and the numbers of their rows to a.
        rng: decides.
    """
    found, waiting = np.empty(len(shift)), np.arange(len(shift))
    while len(waiting):
        here, width = shift[waiting, None], max(_LEAST_PROPOSALS, _PROPOSALS // len(waiting))
        proposed = here + rng.standard_normal((len(waiting), width))
        with quiet():
            left = 1.0 - taken(proposed, waiting) / ratio(proposed, here)
        kept = rng.random(proposed.shape) < left
        some = kept.any(axis=1)
        found[waiting[some]] = proposed[some, kept[some].argmax(axis=1)]
        waiting = waiting[~some]
    return found


@dataclasses.dataclass(frozen=True)
class InTurnRule(ResidualRule):
    """A rule that tries the drafts in turn, keeping the i-th with probability (q/p − t_i)₊/m_i."""

    @abc.abstractmethod
    def _stages(self, shift: Floats) -> tuple[Floats, Floats, Floats]:
        """Return t and m, one for each draft or for all, and the residual's level `(rows, 1)`."""

    def _choose(
        self, x: Floats, shift: Floats, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Try the drafts in turn."""
        level, left, _ = self._stages(shift)
        with quiet():  # 0/0 where equal laws have left nothing, after a draft that is kept
            return first_kept((ratio(x, shift[:, None]) - level) / left, rng)

    def _taken(self, x: Floats, shift: Floats) -> Floats:
        """Return the residual's level."""
        return self._stages(shift[:, 0])[2]


@final
@dataclasses.dataclass(frozen=True)
class GaussianKSeq(InTurnRule):
    """Accept each draft in turn with probability min(1, q/(γ* p)), else draw from (q − γ* p)₊.

    γ* solves 1 − (1 − H(γ)/γ)^k = H(γ), for each row's shift.

    Args:
        num_drafts: k ≥ 1.

    Raises:
        InvalidParameter: unless k is an integer of at least 1.

    Cost: a bisection along the curve, vectorised over rows.
    Reference: SpecTr, Algorithm 2; docs/theory.md, "The curve of other laws".

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> drafts = rng.standard_normal((20_000, 4, 3))
    >>> found = GaussianKSeq(4).verify(
    ...     drafts, draft_mean=np.zeros(3), target_mean=[0, 1, 0], rng=rng
    ... )
    >>> bool(abs(found.accepted.mean() - 0.839) < 0.02)  # nearly six standard errors
    True
    """

    def _stages(self, shift: Floats) -> tuple[Floats, Floats, Floats]:
        """Return 0, γ* and γ*."""
        gamma = roots_along(GaussianCurve(shift), [self.num_drafts])[0, 0, :, None]
        return np.zeros_like(gamma), gamma, gamma


@final
@dataclasses.dataclass(frozen=True)
class GaussianRejection(InTurnRule):
    """Try the drafts in turn, each by single-draft rejection against the current residual.

    With m_i the probability of i rejections and t_i = m_0 + … + m_{i−1}, draft i + 1 is accepted
    with probability min(1, (q/p − t_i)₊/m_i), m_i = 1 − H(t_i), and the last residual is (q − t_k
    p)₊. One draft: maximal coupling.

    Args:
        num_drafts: k ≥ 1.

    Raises:
        InvalidParameter: unless k is an integer of at least 1.

    Cost: k values of the curve, vectorised over rows.
    Reference: SpecInfer [Miao et al. 2024]; docs/theory.md, "Recursive rejection"; one draft on
        diffusion steps: De Bortoli et al. 2025.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> drafts = rng.standard_normal((20_000, 4, 3))
    >>> found = GaussianRejection(4).verify(
    ...     drafts, draft_mean=np.zeros(3), target_mean=[0, 1, 0], rng=rng
    ... )
    >>> bool(abs(found.accepted.mean() - 0.798) < 0.02)  # nearly six standard errors
    True
    """

    def _stages(self, shift: Floats) -> tuple[Floats, Floats, Floats]:
        """Return t_0, …, t_{k−1}, m_0, …, m_{k−1} and t_k."""
        curve, levels, left = GaussianCurve(shift), [np.zeros(len(shift))], [np.ones(len(shift))]
        for _ in range(self.num_drafts):
            levels.append(levels[-1] + left[-1])
            left.append(np.maximum(1.0 - curve.at(levels[-1]), 0.0))
        return np.stack(levels[:-1], axis=1), np.stack(left[:-1], axis=1), levels[-1][:, None]


@final
@dataclasses.dataclass(frozen=True)
class GaussianReflection(GaussianRule):
    """Accept the one draft with probability min(1, q/p), else reflect it between the means.

    As likely to accept as any verifier of one draft, 2Φ(−δ/2), and without a draw from a residual:
    the reflection x → δ − x maps what p has above q onto what q has above p.

    Args:
        num_drafts: 1.

    Raises:
        InvalidParameter: unless it is 1.

    Cost: O(n) a row.
    Reference: Bou-Rabee, Eberle & Zimmer 2020; of diffusion steps: De Bortoli et al. 2025.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> drafts = rng.standard_normal((20_000, 1, 3))
    >>> found = GaussianReflection(1).verify(
    ...     drafts, draft_mean=np.zeros(3), target_mean=[0, 1, 0], rng=rng
    ... )
    >>> bool(abs(found.accepted.mean() - 0.617) < 0.02)  # nearly six standard errors
    True
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_drafts != 1:
            raise InvalidParameter(
                f"num_drafts must be 1 for a reflection; got {self.num_drafts!r}. Choose "
                "GaussianOptimal for more."
            )

    def _choose(
        self, x: Floats, shift: Floats, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Try the draft."""
        return first_kept(ratio(x, shift[:, None]), rng)

    def _replace(self, x: Floats, shift: Floats, rng: np.random.Generator) -> Floats:
        """Reflect."""
        return shift - x
