"""Counts of one part of a record: of a request, a log window, a data set, or the whole record.

A verification step drafts d tokens and accepts the first a of them, a ≤ d; the target then adds one
token of its own, so the step emits a + 1. Forms differ in how much they keep of the pairs (a, d):
all of them, in order; how many steps accepted at least i; how many were to draft at least i; sums;
or a mean. A `Tally` holds what there is, in one convention: *a* counts drafts only, never the token
that the target adds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm.engines.positions import MAX_POSITIONS, ROUNDING
from otm.errors import InvalidParameter
from otm.pmf import any_array, check_instance, check_real, plain_reals

MAX_STEPS = 50_000_000
"""Most verification steps of one part that are listed one by one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Tally:
    """Counts of the verification steps of one part of a record.

    Attributes:
        name: what the part is called in the record.
        steps: number of verification steps; 1 where only rates are known (see `counted`).
        undrafted: target calls beside the steps, in which nothing was drafted; 0 if none is known.
        accepted: accepted drafts in all of them, never counting the token that the target adds.
        drafted: drafted tokens in all of them; None if unknown.
        survivors: `(L,)`, how many steps accepted at least i drafts, i = 1..L; None if unknown. Σ
            survivors is `accepted`, unless the record's list was cut short: then some drafts were
            accepted beyond it.
        pairs: `(steps, 2)` int64, accepted and drafted of each step in order; None if unknown.
        offered: `(L,)`, how many steps were to draft at least i; None if unknown.
        counted: whether steps and sums are counts; False where the record has rates only.
    """

    name: str
    steps: float
    accepted: float
    drafted: float | None = None
    survivors: NDArray[np.float64] | None = None
    pairs: NDArray[np.int64] | None = None
    offered: NDArray[np.float64] | None = None
    counted: bool = True
    undrafted: float = 0.0

    @property
    def calls(self) -> float:
        """Target calls that are known: steps, and calls in which nothing was drafted."""
        return self.steps + self.undrafted

    @property
    def mean(self) -> float:
        """Tokens per call, 1 + accepted/calls."""
        return 1.0 + self.accepted / self.calls

    @property
    def error(self) -> float:
        """Standard error of the mean, steps taken as independent; NaN without a law or counts."""
        if self.survivors is None or not self.counted:
            return math.nan
        ranks = 2.0 * np.arange(1, self.survivors.size + 1) - 1.0
        spread = float(ranks @ self.survivors) / self.calls - (self.accepted / self.calls) ** 2
        return math.sqrt(max(0.0, spread) / self.calls)

    @property
    def unlocated(self) -> float:
        """Accepted drafts beyond the end of the list of survivors, if there is one."""
        if self.survivors is None:
            return 0.0
        return max(0.0, self.accepted - float(self.survivors.sum()))

    def less(self, earlier: Tally) -> Tally | None:
        """Return the counts since earlier ones of the same counters; None if some have fallen."""
        survivors = None
        if self.survivors is not None:
            length = max(
                self.survivors.size, 0 if earlier.survivors is None else earlier.survivors.size
            )
            survivors = padded(self.survivors, length) - padded(earlier.survivors, length)
        told = self.drafted is not None and earlier.drafted is not None
        drafted = (self.drafted or 0.0) - (earlier.drafted or 0.0) if told else None
        steps, accepted, idle = (
            getattr(self, name) - getattr(earlier, name)
            for name in ("steps", "accepted", "undrafted")
        )
        rose = [steps, accepted, drafted or 0.0, *([] if survivors is None else survivors)]
        if min(rose) < 0:
            return None
        return Tally(self.name, steps, accepted, drafted, survivors, undrafted=max(0.0, idle))

    def same(self, other: Tally) -> bool:
        """True if the sums are those of another part."""
        names = ("steps", "accepted", "drafted", "undrafted")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def offered_at(self, position: int) -> float:
        """Return the number of steps that were to draft `position` tokens or more; 0 if unknown."""
        if self.offered is None or self.offered.size < position:
            return 0.0
        return float(self.offered[position - 1])

    @staticmethod
    def of_steps(accepted: ArrayLike, drafted: ArrayLike, *, name: str) -> Tally:
        """Build a tally from a list of all steps.

        Args:
            accepted, drafted: `(n,)` integers, 0 ≤ accepted ≤ drafted.
            name: what the part is called.

        Raises:
            InvalidParameter: unless they are such integers, equally many.

        >>> Tally.of_steps([0, 2, 1], [2, 2, 1], name="request 1").survivors.tolist()
        [2.0, 1.0]
        """
        check_instance(name, str, name="name")
        a = _integers(accepted, "accepted drafts by step", name)
        d = _integers(drafted, "drafted tokens by step", name)
        if a.shape != d.shape or (a > d).any():
            raise InvalidParameter(
                "A step accepts at most what it drafts, and both are listed for every step; "
                f"{name} lists {a.size} and {d.size} steps, or accepts more than it drafts. Check "
                "the export."
            )
        positions = int(d.max(initial=0))
        return Tally(
            name=name,
            steps=float(a.size),
            accepted=float(a.sum()),
            drafted=float(d.sum()),
            survivors=_at_least(np.bincount(a, minlength=positions + 1)),
            pairs=np.stack([a, d], axis=1),
            offered=_at_least(np.bincount(d, minlength=positions + 1)),
        )

    @staticmethod
    def of_histogram(
        counts: ArrayLike,
        *,
        name: str,
        drafted: float | None = None,
        offered: ArrayLike | None = None,
    ) -> Tally:
        """Build a tally from numbers of steps by accepted drafts.

        Args:
            counts: `(L + 1,)` integers: how many steps accepted exactly 0, 1, …, L drafts.
            name: what the part is called.
            drafted: drafted tokens in all steps, if known.
            offered: `(M + 1,)` integers: how many steps were to draft exactly 0, 1, …, M, if known.

        Raises:
            InvalidParameter: unless the counts are integers ≥ 0, of equally many steps, and no more
                is accepted than drafted.

        >>> tally = Tally.of_histogram([2, 2, 6], name="all")
        >>> tally.survivors.tolist(), tally.mean
        ([8.0, 6.0], 2.4)
        """
        check_instance(name, str, name="name")
        exactly = _integers(counts, "steps by accepted drafts", name)
        survivors, caps = _at_least(exactly), None
        steps, accepted = float(exactly.sum()), float(survivors.sum())
        if offered is not None:
            listed = _integers(offered, "steps by drafts on offer", name)
            length = max(listed.size, exactly.size) - 1
            caps, survivors = padded(_at_least(listed), length), padded(survivors, length)
            if listed.sum() != steps or (caps < survivors).any():
                raise InvalidParameter(
                    f"Steps accept at most what is on offer; {name} counts {steps:g} steps by what "
                    f"they accepted and {listed.sum():g} by what was on offer, or accepts more. "
                    "Check the export."
                )
            drafted = float(caps.sum())
        if drafted is not None and drafted < accepted:
            raise InvalidParameter(
                f"No more is accepted than drafted; {name} accepts {accepted:g} of {drafted:g}. "
                "Check the export."
            )
        return Tally(
            name=name,
            steps=steps,
            accepted=accepted,
            drafted=drafted,
            survivors=survivors,
            offered=caps,
        )

    @staticmethod
    def of_rates(rates: ArrayLike, *, name: str) -> Tally:
        """Build a tally from the shares of steps that accepted at least 1, 2, …, L drafts.

        Args:
            rates: `(L,)`, in [0, 1], non-increasing but for rounding, which is levelled.
            name: what the part is called.

        Raises:
            InvalidDistribution: if the rates are no array of real numbers.
            InvalidParameter: if they are no such rates.

        >>> Tally.of_rates([0.8, 0.6], name="run 1").mean
        2.4
        """
        return dataclasses.replace(Tally.of_survivors(rates, steps=1.0, name=name), counted=False)

    @staticmethod
    def of_mean(mean: float, *, name: str) -> Tally:
        """Build a tally from tokens per step alone.

        Args:
            mean: tokens per step ≥ 1, counting the one that the target adds.
            name: what the part is called.

        Raises:
            InvalidParameter: if the mean is below 1, or more than a step can emit.

        >>> Tally.of_mean(2.4, name="server").mean
        2.4
        """
        check_instance(name, str, name="name")
        tokens = check_real(
            mean,
            name="a mean, which counts the target's token,",
            low=1.0,
            high=1.0 + MAX_POSITIONS,
        )
        return Tally(name=name, steps=1.0, accepted=tokens - 1.0, counted=False)

    @staticmethod
    def of_survivors(
        survivors: ArrayLike,
        *,
        steps: float,
        name: str,
        accepted: float | None = None,
        drafted: float | None = None,
        undrafted: float = 0.0,
        offered: NDArray[np.float64] | None = None,
    ) -> Tally:
        """Build a tally from the numbers of steps that accepted at least 1, 2, …, L drafts.

        Args:
            survivors: `(L,)` numbers, at most `steps`, non-increasing but for rounding, which is
                levelled; a rate times a number of steps will do.
            steps: number of steps > 0.
            name: what the part is called.
            accepted: accepted drafts in all steps, if known beside the list; Σ survivors if None.
            drafted: drafted tokens in all steps, if known.
            undrafted, offered: as in the tally, not looked at.

        Raises:
            InvalidDistribution: if the survivors are no array of real numbers.
            InvalidParameter: if they are no counts, or rise by more than the rounding to three
                decimals that engines print.

        >>> Tally.of_survivors([8, 6], steps=10, name="all", accepted=17).unlocated
        3.0
        """
        check_instance(name, str, name="name")
        number = check_real(steps, name="steps", low=0.0, open_low=True)
        array = plain_reals(survivors, "survivors")
        listed = array.ndim == 1 and array.dtype.kind in "iuf"
        values = array.astype(np.float64) if listed else np.empty(0)
        if not (
            np.isfinite(values).all() and np.isfinite(number) and 0 < values.size <= MAX_POSITIONS
        ):
            raise InvalidParameter(
                f"{name} must count the steps that accepted at least 1, 2, … drafts, (L,); got "
                f"shape {array.shape} of {number:g} steps. Record some verifications first."
            )
        level = np.minimum.accumulate(values)
        slack = ROUNDING * number
        if (
            values.min() < 0
            or values[0] > number * (1 + 1e-9) + slack
            or (values - level).max() > slack
        ):
            raise InvalidParameter(
                f"Steps that accept at least i drafts must become fewer with i; {name} has rates "
                f"{np.round(values / number, 4).tolist()[:8]}. Are these per cent, or conditional "
                "acceptances?"
            )
        level = np.minimum(level, number)
        total = (
            float(level.sum())
            if accepted is None
            else check_real(accepted, name="accepted", low=0.0)
        )
        if total < level.sum() - slack * level.size - 1e-9 * level.sum():
            raise InvalidParameter(
                f"Accepted drafts are at least the sum by position; {name} has {total:g} and "
                f"{level.sum():g}. Check the export."
            )
        return Tally(
            name=name,
            steps=number,
            accepted=total,
            drafted=drafted,
            survivors=level,
            offered=offered,
            undrafted=undrafted,
        )


def told_apart(parts: Sequence[Tally]) -> tuple[str, ...]:
    """Return a note that names the means of several engines, if they differ beyond chance.

    Beyond three standard errors of the difference between the largest and the smallest mean, with
    steps taken as independent.

    >>> told_apart([Tally.of_survivors([s], steps=1000, name=f"{s}") for s in (800, 500)])
    ('The engines differ: 800 has 1.80 tokens a call, 500 has 1.50.',)
    """
    low, high = (choose(parts, key=lambda part: part.mean) for choose in (min, max))
    error = math.hypot(low.error, high.error)
    if len(parts) < 2 or not high.mean - low.mean > 3.0 * error:
        return ()
    means = ", ".join(f"{part.name} has {part.mean:.2f}" for part in parts[:8])
    return (f"The engines differ: {means.replace(',', ' tokens a call,', 1)}.",)


def near_count(value: float) -> float:
    """Return a rate times a number of steps, rounded if within rounding of a whole number.

    >>> near_count(0.7 * 10), near_count(6.5)
    (7, 6.5)
    """
    return round(value) if abs(value - round(value)) < 1e-6 * max(1.0, value) else value


def _integers(values: ArrayLike, what: str, name: str) -> NDArray[np.int64]:
    array = any_array(values)
    if array.ndim == 1 and array.size == 0:
        return np.zeros(0, dtype=np.int64)
    largest = MAX_POSITIONS if "by step" in what else 2**53
    if (
        array.ndim != 1
        or array.dtype.kind not in "iu"
        or array.min() < 0
        or array.max() > largest
        or array.size > MAX_STEPS
    ):
        raise InvalidParameter(
            f"{what} must be a list of integers ≥ 0; {name} has {values!s:.60}. Check the export."
        )
    return array.astype(np.int64)


def _at_least(exactly: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the numbers of steps with at least 1, 2, … from the numbers with exactly 0, 1, …."""
    return np.cumsum(exactly[::-1])[::-1][1:].astype(np.float64)


def padded(values: NDArray[np.float64] | None, length: int) -> NDArray[np.float64]:
    """Extend values by position with zeros to a length; None gives zeros only.

    >>> import numpy as np
    >>> padded(np.array([8.0, 6.0]), 3).tolist()
    [8.0, 6.0, 0.0]
    """
    known = np.zeros(0) if values is None else values
    return np.pad(known, (0, length - known.size))
