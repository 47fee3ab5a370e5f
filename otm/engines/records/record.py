"""An engine's record of acceptance in one convention, and the limits of the data."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from otm.engines.positions import PositionAcceptance
from otm.engines.records.tally import Tally, padded
from otm.errors import InvalidParameter

Censoring = Literal["none", "observed", "hidden", "unknown"]
"""The kind of censoring: drafts missing in some steps read as rejected.

* none: every step drafted the same number;
* observed: the numbers differ and are recorded;
* hidden: the numbers differ, by the sums, and are not recorded;
* unknown: the record does not say how much was drafted.
"""

UNCOUNTED = "Calls that drafted nothing, as n-gram and suffix drafters leave some, are not counted."
"""The note on records that count drafting calls, and nothing that tells the others."""

REQUEST = "request"
"""The unit of records whose parts are independent requests."""


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds per token while a record was written.

    Attributes:
        token: seconds from one token of a request to its next, by running requests, 0 if unknown.
        usual: the running requests that were seen most often.
        draft: seconds of one draft; None if not told.
    """

    token: dict[int, float]
    usual: int
    draft: float | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class AcceptanceRecord:
    """An engine's record of acceptance: parts, conventions, and missing data.

    Attributes:
        form: the form that was recognised, such as "vLLM counters".
        unit: what a part is: "request", "window" of a log, "run", "drafter", "iteration" or
            "server".
        parts: a `Tally` each, at least one with a step.
        convention: whether the file's own lengths count the token that the target adds; here *a*
            never does and means do.
        length: drafts per step that the engine was set to, if the record says so.
        reported_mean: a mean over requests that the file states without listing them, in tokens per
            step; None otherwise.
        notes: what a reader of the numbers must know.
        times: what the record says of time; None if nothing.

    >>> parts = (Tally.of_histogram([2, 2, 6], name="a"),)
    >>> record = AcceptanceRecord(form="example", unit="request", parts=parts, convention="")
    >>> record.pooled_mean, record.survival.survival.tolist(), record.censoring
    (2.4, [0.8, 0.6], 'unknown')
    """

    form: str
    unit: str
    parts: tuple[Tally, ...]
    convention: str
    length: int | None = None
    reported_mean: float | None = None
    notes: tuple[str, ...] = ()
    times: Times | None = None

    def __post_init__(self) -> None:
        kept = tuple(part for part in self.parts if part.calls > 0)
        if not any(part.steps > 0 for part in kept):
            calls = sum(part.calls for part in kept)
            raise InvalidParameter(
                "The record must hold at least one verification step; in this "
                f"{self.form} nothing was drafted in {calls:,.0f} calls. "
                + ("Look at the drafter: it declined every time." if calls else "Run longer.")
            )
        object.__setattr__(self, "parts", kept)

    @property
    def counted(self) -> bool:
        """True if steps are counted, so that parts can be pooled."""
        return self.steps is not None or len(self.parts) == 1

    @property
    def listed(self) -> bool:
        """True if every step is listed, with the numbers of accepted and drafted tokens."""
        return all(part.pairs is not None for part in self.parts)

    @property
    def weight(self) -> float:
        """Verification steps in all; a part without a count of steps counts as one."""
        return sum(part.steps for part in self.parts)

    @property
    def steps(self) -> float | None:
        """Verification steps in all; None where only rates are known."""
        return self.weight if all(part.counted for part in self.parts) else None

    @property
    def undrafted(self) -> float:
        """Target calls in which nothing was drafted, as far as the record tells."""
        return sum(part.undrafted for part in self.parts)

    @property
    def drafting_share(self) -> float:
        """Share of the target calls that verified drafts; 1 where the record tells of no others."""
        return self.weight / (self.weight + self.undrafted)

    @property
    def drafting_mean(self) -> float:
        """Tokens per call among the calls that verified drafts."""
        return 1.0 + (self.mean - 1.0) / self.drafting_share

    @property
    def drafted(self) -> float | None:
        """Drafted tokens in all; None if unknown."""
        drafted = [part.drafted for part in self.parts]
        return None if None in drafted else sum(one for one in drafted if one is not None)

    @property
    def requests(self) -> int | None:
        """Number of requests with a step; None if the parts are no requests."""
        return len(self.parts) if self.unit == REQUEST else None

    @property
    def pooled_mean(self) -> float:
        """Tokens per call over all calls, 1 + Σ accepted/Σ calls, without regard to requests.

        Calls in which nothing was drafted count, as far as the record tells of them.

        Raises:
            InvalidParameter: if several parts have rates without counts.
        """
        self._require_counts()
        calls = self.weight + self.undrafted
        return 1.0 + sum(part.accepted for part in self.parts) / calls

    @property
    def mean(self) -> float:
        """Tokens per call: pooled where steps are counted, else the mean of the parts."""
        return self.pooled_mean if self.counted else self._mean_of_parts()

    @property
    def request_mean(self) -> float | None:
        """Mean over requests of each one's tokens per call, with equal weights."""
        return self._mean_of_parts() if self.unit == REQUEST else self.reported_mean

    @property
    def drafts_per_step(self) -> float | None:
        """Tokens drafted per step that drafts, on average; None if unknown."""
        if self.drafted is not None and self.counted:
            return self.drafted / self.weight
        same = self.length is not None and self.censoring == "none"
        return float(self.length or 0) if same else None

    @property
    def unlocated(self) -> float:
        """Accepted drafts per step at positions that truncated lists leave out."""
        return sum(part.unlocated for part in self.parts) / self.weight

    @property
    def measured(self) -> int:
        """Number of positions with a measured survival; 0 where there are means only."""
        lists = [part.survivors for part in self.parts if part.survivors is not None]
        return max(one.size for one in lists) if len(lists) == len(self.parts) else 0

    @functools.cached_property
    def survivors(self) -> NDArray[np.float64]:
        """Steps that accepted at least i drafts in all parts, `(measured,)`.

        Raises:
            InvalidParameter: if the record holds means only, or several parts have rates without
                counts.
        """
        if not self.measured:
            raise InvalidParameter(
                f"A plan needs how often each position was accepted; this {self.form} holds means "
                f"only, {self.mean:.4g} tokens a step. Record per-position rates or a histogram of "
                "accepted drafts."
            )
        self._require_counts()
        rows = [padded(part.survivors, self.measured) for part in self.parts]
        return np.asarray(np.sum(rows, axis=0))

    @functools.cached_property
    def survival(self) -> PositionAcceptance:
        """The observed survival: the steps that accepted at least i drafts over all steps.

        Drafts that were never made count as not accepted.

        Raises:
            InvalidParameter: if the record holds means only, or several parts have rates without
                counts.
        """
        return PositionAcceptance(np.minimum(1.0, self.survivors / self.weight))

    @functools.cached_property
    def censoring(self) -> Censoring:
        """The kind of censoring: do draft lengths differ between steps, and by how much if
        recorded?
        """
        length = self.measured
        if not length:
            return "unknown"
        if all(part.offered is not None for part in self.parts):
            full = all(part.offered_at(length) == part.steps for part in self.parts)
            return "none" if full else "observed"
        if self.drafted is None or not self.counted:
            return "unknown"
        # With a list cut short drafts went beyond it in some steps.
        most = self.weight * length
        differs = abs(self.drafted - most) > _relative_error(self.parts) * most
        return "hidden" if self.unlocated > 0 or differs else "none"

    def since(self, earlier: AcceptanceRecord) -> AcceptanceRecord:
        """Subtract an earlier scrape of the same counters.

        Args:
            earlier: the record of that scrape.

        Returns:
            AcceptanceRecord of the time between the two.

        Raises:
            InvalidParameter: unless both are the counters of one server, and none has fallen.

        >>> early, late = (
        ...     AcceptanceRecord(form="", unit="server", parts=(part,), convention="")
        ...     for part in (Tally("", 10.0, 14.0), Tally("", 30.0, 44.0))
        ... )
        >>> late.since(early).pooled_mean
        2.5
        """
        both = (self, earlier)
        counters = all(one.steps and one.unit == "server" for one in both)
        old = {part.name: part for part in earlier.parts}
        if not counters or self.form != earlier.form or not self._continues(earlier):
            raise InvalidParameter(
                "Two scrapes are of one server's counters; these are a "
                f"{self.form} and a {earlier.form}. Pass two pages of /metrics."
            )
        parts = tuple(
            part.less(old[part.name]) if part.name in old else part for part in self.parts
        )
        if any(part is None for part in parts):
            raise InvalidParameter(
                f"Counters only rise; this {self.form} has some below the earlier ones. Swap the "
                "two, or scrape again: the server was started anew."
            )
        return dataclasses.replace(
            self,
            parts=tuple(part for part in parts if part is not None),
            notes=("The time between two scrapes.",),
        )

    def _continues(self, earlier: AcceptanceRecord) -> bool:
        """True if every part of an earlier record has one part here of its name."""
        names = {part.name for part in self.parts}
        return len(names) == len(self.parts) and names >= {part.name for part in earlier.parts}

    def with_notes(self, *notes: str) -> AcceptanceRecord:
        """Return the record with further notes."""
        return dataclasses.replace(self, notes=(*self.notes, *notes))

    @staticmethod
    def together(records: Sequence[AcceptanceRecord]) -> AcceptanceRecord:
        """Join the parts of several records of one form.

        Args:
            records: one or more, of one form and kind of part.

        Returns:
            AcceptanceRecord; what is of one alone, its times or a length of its own, is dropped.

        Raises:
            InvalidParameter: if there is none, their forms differ, one is given twice, or two are
                scrapes of one server.

        >>> one, other = (
        ...     AcceptanceRecord(form="", unit="run", parts=(part,), convention="")
        ...     for part in (Tally("", 10.0, 14.0), Tally("", 30.0, 20.0))
        ... )
        >>> AcceptanceRecord.together([one, other]).steps
        40.0
        """
        if len({(one.form, one.unit) for one in records}) != 1:
            raise InvalidParameter(
                "Records that are put together are of one form; got "
                f"{sorted({one.form for one in records})}. Plan with them one by one."
            )
        first, *others = records
        if not others:
            return first
        for one, other in itertools.permutations(records, 2):
            one._require_other(other)
        lengths = {one.length for one in records}
        return dataclasses.replace(
            first,
            parts=tuple(part for one in records for part in one.parts),
            length=first.length if len(lengths) == 1 else None,
            reported_mean=None,
            times=None,
            notes=tuple(dict.fromkeys(note for one in records for note in one.notes)),
        )

    def _require_other(self, other: AcceptanceRecord) -> None:
        """Raise if another record is this one again, or an earlier scrape of the same counters."""
        if self.unit != "server" or not self.steps or not other.steps:
            return
        if not self._continues(other) or len(self.parts) != len(other.parts):
            return
        old = {part.name: part for part in other.parts}
        if all(part.same(old[part.name]) for part in self.parts):
            raise InvalidParameter(
                f"Records that are put together are different ones; a {self.form} is there twice. "
                "Pass it once."
            )
        if all(part.less(old[part.name]) is not None for part in self.parts):
            raise InvalidParameter(
                f"Records that are put together are of different servers; in two {self.form} all "
                "labels are the same, and all counters have risen: two scrapes of one. Pass the "
                "later page, and the earlier one as --since."
            )

    def _mean_of_parts(self) -> float:
        return math.fsum(part.mean for part in self.parts) / len(self.parts)

    def _require_counts(self) -> None:
        if not self.counted:
            raise InvalidParameter(
                f"Parts are pooled by their steps; this {self.form} has {len(self.parts)} parts "
                "with rates only. Read one of them, or record counts."
            )

    def __repr__(self) -> str:
        steps = f"{self.steps:,.0f} steps" if self.steps is not None else "rates only"
        parts = f"{len(self.parts):,} {self.unit}{'s' if len(self.parts) > 1 else ''}"
        mean = f", {self.pooled_mean:.4g} tokens a step" if self.counted else ""
        return f"AcceptanceRecord({self.form}: {parts}, {steps}{mean}, {self.measured} positions)"


def _relative_error(parts: tuple[Tally, ...]) -> float:
    """Return the relative error of counts: 0 of whole numbers, else that of three decimals."""
    counts = [np.append(part.survivors, part.steps) for part in parts if part.survivors is not None]
    whole = all((one == np.round(one)).all() for one in counts)
    return 0.0 if whole and len(counts) == len(parts) else 5e-3
