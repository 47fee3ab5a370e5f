"""Per-position acceptance of chains of drafts, in the convention of serving engines' reports.

Engines print one number for each draft position. They nearly all mean *survival*,

    s_i = Pr(at least i drafts are accepted),      E[tokens] = 1 + s_1 + … + s_L,

not the acceptance of draft i given that the drafts before it were accepted, s_i/s_{i−1}:
multiplying survivals once more counts every rejection twice. EAGLE's lists `alpha` and `alpha_num`
(accepted and tried at each position) are conditional: survival is their running product. What each
engine writes, and how it is read: `otm.engines.records`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import check_count, plain_reals

MAX_POSITIONS = 100_000
"""Longest chain of drafts that is believed."""

ROUNDING = 2e-3
"""Engines print three decimals, so neighbours may be out of order by one unit in each."""

Reach = Literal["inside", "at the limit", "beyond"]
"""The position of an optimum relative to the measured lengths. At the limit a longer draft may pay;
beyond it the optimum rests on an extrapolation.
"""


def reach_of(length: int, measured: int) -> Reach:
    """Return the position of a length relative to the number of measured positions, in words.

    >>> reach_of(3, 3)
    'at the limit'
    """
    return "inside" if length < measured else "at the limit" if length == measured else "beyond"


def continued(survival: NDArray[np.float64], measured: int, more: int) -> NDArray[np.float64]:
    """Continue survival `(..., L)` by further positions at the rate of the last measured one.

    >>> import numpy as np
    >>> continued(np.array([0.8, 0.6]), 2, 1).round(6).tolist()
    [0.8, 0.6, 0.45]
    """
    last = survival[..., measured - 1 : measured]
    before = survival[..., measured - 2 : measured - 1] if measured > 1 else np.ones_like(last)
    rate = np.divide(last, before, out=np.zeros_like(last), where=before > 0)
    tail = survival[..., -1:] * rate ** np.arange(1, more + 1)
    return np.concatenate([survival, tail], axis=-1)


@dataclasses.dataclass(frozen=True, eq=False)
class PositionAcceptance:
    """Survival of a chain of drafts by position.

    Args:
        survival: `(L,)`, Pr(at least i drafts are accepted), i = 1..L, in [0, 1] and
            non-increasing. A rise of at most 0.002, two roundings to three decimals, is levelled.
        measured: how many of the positions were measured, the first ones; all if None. The rest is
            extrapolated (see `extended`).

    Raises:
        InvalidDistribution: if the numbers are no survival function.
        InvalidParameter: if `measured` is no number of positions.

    >>> chain = PositionAcceptance([0.8, 0.6])
    >>> round(chain.expected_tokens, 6), chain.accepted_law.round(6).tolist()
    (2.4, [0.2, 0.2, 0.6])
    """

    survival: NDArray[np.float64]
    measured: int

    def __init__(self, survival: ArrayLike, *, measured: int | None = None) -> None:
        array = plain_reals(survival, "survival")
        if array.ndim != 1 or not 1 <= array.size <= MAX_POSITIONS or array.dtype.kind not in "iuf":
            raise InvalidDistribution(
                f"survival must hold one probability per position, (L,); got {array.dtype} "
                f"{array.shape}."
            )
        values = array.astype(np.float64)
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise InvalidDistribution(
                f"Survival must lie in [0, 1]; got {values.min()} to {values.max()}. Are these per "
                "cent?"
            )
        level = np.minimum.accumulate(values)
        if (values - level).max() > ROUNDING:
            i = int(np.argmax(values - level))
            raise InvalidDistribution(
                f"Survival must not increase; position {i} has {values[i]:.6g} after "
                f"{level[i]:.6g}. If these are conditional acceptances, such as EAGLE's "
                "alpha/alpha_num, pass their running product."
            )
        level.setflags(write=False)
        known = level.size if measured is None else check_count(measured, name="measured")
        if known > level.size:
            raise InvalidParameter(
                f"measured is at most the {level.size} positions that are given; got {known}. Give "
                "more."
            )
        vars(self).update(survival=level, measured=known)

    @property
    def expected_tokens(self) -> float:
        """Expected tokens per target call, 1 + Σ survival."""
        return 1.0 + float(self.survival.sum())

    @property
    def conditional(self) -> NDArray[np.float64]:
        """Acceptance of each draft given that all earlier drafts are accepted, `(L,)`.

        0 where the earlier drafts never are.
        """
        before = np.concatenate([[1.0], self.survival[:-1]])
        conditional: NDArray[np.float64] = np.divide(
            self.survival, before, out=np.zeros_like(before), where=before > 0
        )
        return conditional

    @property
    def accepted_law(self) -> NDArray[np.float64]:
        """Pr(exactly j drafts are accepted), j = 0..L, `(L + 1,)`."""
        return -np.diff(np.concatenate([[1.0], self.survival, [0.0]]))

    @property
    def rate(self) -> float:
        """Accepted over tried drafts: the acceptance of the i.i.d. chain that fits best."""
        tried = 1.0 + float(self.survival[:-1].sum())
        return float(self.survival.sum()) / tried

    def __repr__(self) -> str:
        return (
            f"PositionAcceptance(length={len(self.survival)}, "
            f"expected_tokens={self.expected_tokens:.6g})"
        )

    def to_csv(self) -> str:
        r"""Write a row for each position, in the form that `parse_acceptance` reads back exactly.

        Returns:
            CSV with the columns position (from 0) and acceptance_rate (survival).

        >>> PositionAcceptance([0.8, 0.6]).to_csv()
        'position,acceptance_rate\n0,0.8\n1,0.6\n'
        """
        rows = "".join(f"{i},{value!r}\n" for i, value in enumerate(self.survival.tolist()))
        return "position,acceptance_rate\n" + rows

    def extended(self, length: int) -> PositionAcceptance:
        """Continue the chain: each further draft is accepted at the rate of the last measured one.

        s_{L+j} = s_L (s_L/s_{L−1})^j: an assumption, which acceptance that falls with the position
        does not meet.

        Args:
            length: number of positions wanted; the chain itself if it has as many.

        Returns:
            PositionAcceptance, whose `measured` stays what it was.

        Raises:
            InvalidParameter: unless length is an integer ≥ 1.

        >>> PositionAcceptance([0.8, 0.6]).extended(4).survival.round(6).tolist()
        [0.8, 0.6, 0.45, 0.3375]
        """
        more = check_count(length, name="length") - self.survival.size
        if more <= 0:
            return self
        survival = continued(self.survival, self.measured, more)
        return PositionAcceptance(survival, measured=self.measured)

    def by_path(self) -> ChainPaths:
        """Return the chain as acceptance by rank path, for `optimal_tree` and `choose_tree`.

        Returns:
            A function of the rank path: s_i/s_{i−1} for the chain's i-th vertex, 0 for every other
            vertex. It knows how many positions were measured, so that `choose_tree` says when it
            stopped there.

        >>> round(PositionAcceptance([0.8, 0.6]).by_path()((0, 0)), 6)
        0.75
        """
        return ChainPaths(tuple(self.conditional.tolist()), self.measured)


@dataclasses.dataclass(frozen=True)
class ChainPaths:
    """Acceptance by rank path of a chain, with the number of measured positions.

    Attributes:
        steps: conditional acceptance of each position.
        measured: how many of them were measured.
    """

    steps: tuple[float, ...]
    measured: int

    def __call__(self, path: tuple[int, ...]) -> float:
        """Return the acceptance of a path's last vertex, given acceptance of the parent."""
        return self.steps[len(path) - 1] if len(path) <= len(self.steps) and not any(path) else 0.0
