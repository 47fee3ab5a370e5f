"""Per-position acceptance, as serving engines report it for chains of drafts.

Engines print one number for each draft position. They nearly all mean *survival*,

    s_i = Pr(at least i drafts are accepted),      E[tokens] = 1 + s_1 + … + s_L,

not the acceptance of draft i given that the drafts before it were accepted, s_i/s_{i−1}:
multiplying survivals once more counts every rejection twice. EAGLE's lists `alpha` and `alpha_num`
(accepted and tried at each position) are conditional. What each engine writes, and how it is read:
`otm.engines.records`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm.errors import InvalidDistribution, InvalidParameter, TooLarge
from otm.pmf import any_array, check_count, plain_reals

MAX_TEXT = 64 * 2**20
"""Largest CSV text read, in characters."""

MAX_CELLS = 10_000_000
"""Largest CSV table read, rows times columns."""

MAX_POSITIONS = 100_000
"""Longest chain of drafts that is believed."""

_ROUNDING = (
    2e-3  # engines print three decimals, so neighbours may be out of order by one unit in each
)

_WIDE_COLUMN = re.compile(r"^(?:.*_)?pos(?:ition)?_?(\d{1,6})$")
_RATE_COLUMNS = ("acceptance_rate", "survival", "rate")


Reach = Literal["inside", "at the limit", "beyond"]
"""Where an optimum lies against what was measured: at the limit a longer draft may pay, beyond it
rests on an extrapolation.
"""


def reach_of(length: int, measured: int) -> Reach:
    """Return where a draft of some length lies against the number of measured positions.

    >>> reach_of(3, 3)
    'at the limit'
    """
    return "inside" if length < measured else "at the limit" if length == measured else "beyond"


@dataclasses.dataclass(frozen=True, eq=False)
class PositionAcceptance:
    """Survival of a chain of drafts by position.

    Args:
        survival: `(L,)`, Pr(at least i drafts are accepted), i = 1..L, in [0, 1] and
            non-increasing. A rise of at most 0.002, two roundings to three decimals, is levelled.
        measured: how many of the positions were measured, the first ones; all if None. The rest is
            extrapolated (see `extended`).

    Raises:
        InvalidDistribution: if survival is none.
        InvalidParameter: if `measured` is no number of positions.

    >>> chain = PositionAcceptance([0.8, 0.6])
    >>> (
    ...     chain.expected_tokens.__round__(6),
    ...     chain.conditional.round(6).tolist(),
    ...     chain.accepted_law.round(6).tolist(),
    ... )
    (2.4, [0.8, 0.75], [0.2, 0.2, 0.6])
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
        if (values - level).max() > _ROUNDING:
            i = int(np.argmax(values - level))
            raise InvalidDistribution(
                f"Survival must not increase; position {i} has {values[i]:.6g} after "
                f"{level[i]:.6g}. If these are conditional "
                "acceptances, call PositionAcceptance.from_conditional."
            )
        level.setflags(write=False)
        known = level.size if measured is None else check_count(measured, name="measured")
        if known > level.size:
            raise InvalidParameter(
                f"measured is at most the {level.size} positions that are given; got {known}. Give "
                "more."
            )
        object.__setattr__(self, "survival", level)
        object.__setattr__(self, "measured", known)

    @property
    def expected_tokens(self) -> float:
        """Expected tokens per target call, 1 + Σ survival."""
        return 1.0 + float(self.survival.sum())

    @property
    def conditional(self) -> NDArray[np.float64]:
        """Acceptance of each draft given that those before it are accepted, `(L,)`; 0 where that
        never happens.
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
        """The acceptance at every position of an i.i.d. chain that fits the counts best: accepted
        over tried drafts.
        """
        tried = 1.0 + float(self.survival[:-1].sum())
        return float(self.survival.sum()) / tried

    def __repr__(self) -> str:
        return (
            f"PositionAcceptance(length={len(self.survival)}, "
            f"expected_tokens={self.expected_tokens:.6g})"
        )

    @classmethod
    def from_conditional(cls, acceptance: ArrayLike) -> PositionAcceptance:
        """Read acceptances of each draft given that those before it were accepted, as EAGLE's
        alpha/alpha_num.

        Args:
            acceptance: `(L,)`, each in [0, 1].

        Returns:
            PositionAcceptance, whose survival is their running product.

        Raises:
            InvalidDistribution: unless each lies in [0, 1].

        Cost: O(L).

        >>> PositionAcceptance.from_conditional([0.8, 0.75]).survival.round(6).tolist()
        [0.8, 0.6]
        """
        array = plain_reals(acceptance, "acceptance")
        if (
            array.ndim != 1
            or array.dtype.kind not in "iuf"
            or not ((array >= 0) & (array <= 1)).all()
        ):
            raise InvalidDistribution(
                "acceptance must hold one probability per position, (L,) in [0, 1]; got "
                f"{array.dtype} of shape {array.shape}. "
                "Divide what was accepted by what was tried."
            )
        return cls(np.cumprod(array.astype(np.float64)))

    @classmethod
    def from_histogram(cls, counts: Sequence[int]) -> PositionAcceptance:
        """Read how many verifications accepted exactly 0, 1, …, L drafts, as SGLang's
        spec_accept_histogram.

        Args:
            counts: H, `(L + 1,)`: H[j] verifications accepted exactly j drafts.

        Returns:
            PositionAcceptance of length L.

        Raises:
            InvalidParameter: unless there are at least two counts, none negative, some positive.

        Cost: O(L).

        >>> PositionAcceptance.from_histogram([2, 2, 6]).survival.tolist()
        [0.8, 0.6]
        """
        raw = any_array(counts)
        array = raw.astype(np.float64) if raw.dtype.kind in "iuf" else np.empty(0)
        if (
            array.ndim != 1
            or array.size < 2
            or not np.isfinite(array).all()
            or array.min() < 0
            or array.sum() <= 0
        ):
            raise InvalidParameter(
                "A histogram needs counts ≥ 0 of 0, 1, … accepted drafts, not all 0; got "
                f"{raw.tolist()[:8] if raw.ndim else raw}."
            )
        return cls(np.cumsum(array[::-1])[::-1][1:] / array.sum())

    @classmethod
    def from_csv(cls, text: str) -> tuple[PositionAcceptance, ...]:
        r"""Read survival by position from CSV.

        Either one row per position, with columns "position" (from 0 or 1, contiguous) and
        "acceptance_rate" ("survival", "rate"), or "accepted" and "drafts", which are divided: one
        chain. Or one row per run, with columns "…pos_0", "…pos_1", …: one chain per row, empty
        cells at the end making it shorter.

        Args:
            text: CSV with a header.

        Returns:
            One PositionAcceptance per chain.

        Raises:
            InvalidParameter: on other columns, missing positions, or cells that are no numbers.
            InvalidDistribution: if the numbers are no survival function.
            TooLarge: beyond 64 Mi characters or ten million cells.

        Cost: O(length of the text).

        >>> PositionAcceptance.from_csv("position,acceptance_rate\n0,0.8\n1,0.6\n")
        (PositionAcceptance(length=2, expected_tokens=2.4),)
        >>> PositionAcceptance.from_csv("dataset,pos_0,pos_1\nmt_bench,0.8,0.6\n")[
        ...     0
        ... ].survival.tolist()
        [0.8, 0.6]
        """
        try:
            reader = csv.DictReader(io.StringIO(_text(text), newline=""), strict=True)
            # Every row becomes a cell for each column, however short it is.
            num_cells = len(reader.fieldnames or ()) * (text.count("\n") + text.count("\r"))
            if num_cells > MAX_CELLS:
                raise TooLarge(
                    f"A table may have {MAX_CELLS:,} cells; this one has up to {num_cells:,}. Keep "
                    "the columns that matter."
                )
            rows = list(reader)
        except csv.Error as error:
            raise InvalidParameter(
                f"The text must be CSV; it does not parse ({error}). Check quotes and separators."
            ) from error
        names = {
            name.strip().lower(): name
            for name in (rows[0] if rows else {})
            if isinstance(name, str)
        }
        if "position" in names:
            return (cls(_by_position(rows, names)),)
        wide = {
            int(match.group(1)): names[name]
            for name in names
            if (match := _WIDE_COLUMN.match(name))
        }
        if not wide:
            raise InvalidParameter(
                'The header must name "position", or a column for each position ending in pos_0, '
                "pos_1, …; it names "
                f"{list(names)[:8]}."
            )
        columns = [wide[position] for position in _contiguous(wide)]
        chains = []
        for row in rows:
            cells = [(row[name] or "").strip() for name in columns]
            length = max((i for i, cell in enumerate(cells, start=1) if cell), default=0)
            chains.append(cls([_number(cell) for cell in cells[:length]]))
        return tuple(chains)

    def to_csv(self) -> str:
        r"""Write one row per position, which `from_csv` reads back exactly.

        Returns:
            CSV with the columns position (from 0) and acceptance_rate (survival).

        Cost: O(L).

        >>> PositionAcceptance([0.8, 0.6]).to_csv()
        'position,acceptance_rate\n0,0.8\n1,0.6\n'
        """
        rows = "".join(f"{i},{value!r}\n" for i, value in enumerate(self.survival.tolist()))
        return "position,acceptance_rate\n" + rows

    def extended(self, length: int) -> PositionAcceptance:
        """Return the chain continued beyond what was measured, where every further draft is
        accepted as the last measured one was.

        s_{L+j} = s_L (s_L/s_{L−1})^j: an assumption, which acceptance that falls with the position
        does not meet.

        Args:
            length: number of positions wanted; the chain itself if it has as many.

        Returns:
            PositionAcceptance, whose `measured` stays what it was.

        Raises:
            InvalidParameter: unless length is an integer ≥ 1.

        Cost: O(length).

        >>> PositionAcceptance([0.8, 0.6]).extended(4).survival.round(6).tolist()
        [0.8, 0.6, 0.45, 0.3375]
        """
        more = check_count(length, name="length") - self.survival.size
        if more <= 0:
            return self
        tail = self.survival[-1] * self.conditional[self.measured - 1] ** np.arange(1, more + 1)
        return PositionAcceptance(np.concatenate([self.survival, tail]), measured=self.measured)

    def by_path(self) -> ChainPaths:
        """Return acceptance by path for `optimal_tree` and `choose_tree`: rank 0 at each position,
        nothing elsewhere.

        Returns:
            A function of the rank path: s_i/s_{i−1} for the chain's i-th vertex, 0 for every other
            vertex. It knows how many positions were measured, so that `choose_tree` says when it
            stopped there.

        Cost: O(L) once, O(depth) per path.

        >>> PositionAcceptance([0.8, 0.6]).by_path()((0, 0)).__round__(6)
        0.75
        """
        return ChainPaths(tuple(self.conditional.tolist()), self.measured)


@dataclasses.dataclass(frozen=True)
class ChainPaths:
    """Acceptance by rank path of a chain, and up to where it was measured.

    Attributes:
        steps: conditional acceptance of each position.
        measured: how many of them were measured.
    """

    steps: tuple[float, ...]
    measured: int

    def __call__(self, path: tuple[int, ...]) -> float:
        """Return the acceptance of the vertex at the end of a path, given that its parent is
        accepted.
        """
        return self.steps[len(path) - 1] if len(path) <= len(self.steps) and not any(path) else 0.0


def _by_position(rows: list[dict[str, str]], names: dict[str, str]) -> NDArray[np.float64]:
    """Return survival from rows with a position, and a rate or two counts."""
    rate = next((names[name] for name in _RATE_COLUMNS if name in names), None)
    if rate is None and not {"accepted", "drafts"} <= set(names):
        raise InvalidParameter(
            "Beside position there must be acceptance_rate, or accepted and drafts; got "
            f"{list(names)[:8]}."
        )
    found: dict[int, float] = {}
    for row in rows:
        position = _number(row[names["position"]])
        if position != int(position) or int(position) in found:
            raise InvalidParameter(
                f"Positions must be different whole numbers; got {row[names['position']]!r}. Keep "
                "one run."
            )
        if rate is not None:
            found[int(position)] = _number(row[rate])
        else:
            drafts = _number(row[names["drafts"]])
            if drafts <= 0:
                raise InvalidParameter(
                    f"drafts must be above 0 to divide by; got {drafts:g}. Leave such rows out."
                )
            found[int(position)] = _number(row[names["accepted"]]) / drafts
    return _in_order(found)


def _in_order(found: dict[int, float]) -> NDArray[np.float64]:
    """Return the values by position."""
    return np.asarray([found[position] for position in _contiguous(found)])


def _contiguous(positions: Iterable[int]) -> list[int]:
    """Return the positions in order, which must run from 0 or 1 without a gap."""
    ordered = sorted(positions)
    if (
        not ordered
        or ordered[0] not in (0, 1)
        or ordered != list(range(ordered[0], ordered[0] + len(ordered)))
    ):
        raise InvalidParameter(
            f"Positions must run from 0 or 1 without a gap; got {ordered[:8]}. Fill in the missing "
            "ones."
        )
    return ordered


def _number(cell: object) -> float:
    try:
        value = float(str(cell))
    except ValueError as error:
        raise InvalidParameter(
            f"Expected a number; got {str(cell)[:40]!r}. Check the export."
        ) from error
    if not np.isfinite(value) or value < 0:
        raise InvalidParameter(f"Expected a finite number ≥ 0; got {value}. Check the export.")
    return value


def _text(text: str) -> str:
    if not isinstance(text, str):
        raise InvalidParameter(
            f"Pass the text itself; got {type(text).__name__}. Read the file first."
        )
    if len(text) > MAX_TEXT:
        raise TooLarge(
            f"A text may have {MAX_TEXT:,} characters; this one has {len(text):,}. Cut it."
        )
    return text
