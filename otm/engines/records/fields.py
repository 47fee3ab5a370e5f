"""Forms that are JSON objects with known keys: the meaning of each key, and the counts that follow.

A form says in `Fields` by which keys its objects tell of steps, accepted and drafted tokens, a
histogram, every step, rates or a mean. Of what an object tells, the most detailed is read, and all
of it must agree.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from otm.engines.positions import MAX_POSITIONS, ROUNDING
from otm.engines.records.document import Document, Form, count, integers, number
from otm.engines.records.record import AcceptanceRecord
from otm.engines.records.tally import Tally, near_count, padded
from otm.errors import InvalidParameter

Object = dict[str, Any]
Keys = tuple[str, ...]
"""Alternative names of a field, one of which is in an object; none if the form has no such
field.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """The keys under which the objects of a form hold the steps of one part.

    Attributes:
        steps: verification steps; objects without steps are left out, unless their emitted and
            accepted tokens tell how many target calls they took.
        accepted, drafted: tokens in all steps, never counting the one that the target adds.
        histogram: steps by accepted drafts, a list or an object.
        offered: steps by drafts on offer, a list.
        taken, tried: accepted and drafted tokens of each step, two lists.
        rates: of steps that accepted at least i drafts, as fractions or in per cent; which it is
            follows from the counts.
        emitted: tokens in all steps, those of the target and of prefills among them.
        prefills: how many prefills; 1 unless told.
        mean: tokens per step, counting the one that the target adds.
        length: drafts per step that the engine was set to.
        proposed: the same times steps.
        part: what the part is called.
        sums: whether histogram and steps must add up to what is told in all.
        half: half of the last decimal of rates, as fractions, and of a mean; a mean that is told
            with so few decimals must be that of the counts.
    """

    steps: Keys = ()
    accepted: Keys = ()
    drafted: Keys = ()
    histogram: Keys = ()
    offered: Keys = ()
    taken: Keys = ()
    tried: Keys = ()
    rates: Keys = ()
    emitted: Keys = ()
    prefills: Keys = ()
    mean: Keys = ()
    length: Keys = ()
    proposed: Keys = ()
    part: Keys = ()
    sums: bool = True
    half: float = ROUNDING

    def tally(self, found: Object, name: str) -> Tally:
        """Return the counts of one object, after a check that all counts agree."""
        name = str(_value(found, self.part) or name)[:40]
        accepted, drafted = _counted(found, self.accepted), _counted(found, self.drafted)
        if _value(found, self.steps) is None and accepted is None:
            return Tally.of_mean(number(_value(found, self.mean), self.mean[0]), name=name)
        steps = self._calls(found, accepted)
        if not steps:
            return Tally(name=name, steps=0.0, accepted=0.0)
        if self.half > ROUNDING:
            self._require_mean(found, steps, accepted)
        laws = (
            self._by_step(found, name),
            self._by_accepted(found, drafted, name),
            self._by_position(found, steps, accepted, drafted, name),
        )
        known = [law for law in laws if law is not None]
        if not known:
            return Tally(name, float(steps), self._accepted(found, steps, accepted), drafted)
        for law in known if self.sums else ():
            _require_agreement(law, known[0], (steps, accepted, drafted))
        return known[0]

    def tells(self, found: Object) -> bool:
        """True if an object tells of steps, of a mean, or of tokens from which steps follow."""
        if _value(found, self.steps or self.mean) is not None:
            return True
        return None not in (_counted(found, self.accepted), _counted(found, self.emitted))

    def _calls(self, found: Object, accepted: int | None) -> int:
        """Return the steps that are told, or all target calls: tokens, less the accepted ones."""
        if (told := _value(found, self.steps)) is not None:
            return count(told, self.steps[0])
        calls = (self._emitted(found) or 0) - (accepted or 0)
        if calls < 0:
            raise InvalidParameter(
                f"{self.accepted[0]} is less than {self.emitted[0]}; got {accepted} of "
                f"{_counted(found, self.emitted)} tokens. Check the export."
            )
        return calls

    def _emitted(self, found: Object) -> int | None:
        """Return the emitted tokens of target calls, without the tokens of prefills."""
        emitted, prefills = _counted(found, self.emitted), _counted(found, self.prefills)
        return None if emitted is None else emitted - (1 if prefills is None else prefills)

    def configured(self, found: Object) -> float | None:
        """Return the drafts per step that the engine was set to, None if unknown."""
        proposed, steps = _counted(found, self.proposed), _counted(found, self.steps)
        return proposed / steps if proposed and steps else _counted(found, self.length)

    def _require_mean(self, found: Object, steps: int, accepted: int | None) -> None:
        """Raise unless counts give the mean that a table tells: a number may have been cut."""
        told = _value(found, self.mean)
        if told is None or accepted is None:
            return
        mean = 1.0 + accepted / steps
        if abs(number(told, self.mean[0]) - mean) > self.half + 1e-9:
            raise InvalidParameter(
                f"Counts must give the {self.mean[0]} of their table, {told}; they give "
                f"{mean:.4g}. Was it cut?"
            )

    def _by_step(self, found: Object, name: str) -> Tally | None:
        taken, tried = _value(found, self.taken), _value(found, self.tried)
        if taken is None or tried is None:
            return None
        lists = integers(taken, self.taken[0]), integers(tried, self.tried[0])
        return Tally.of_steps(*lists, name=name)

    def _by_accepted(self, found: Object, drafted: int | None, name: str) -> Tally | None:
        histogram, offered = _value(found, self.histogram), _value(found, self.offered)
        if histogram is None:
            return None
        counts = _dense(histogram, self.histogram[0])
        length = min(_counted(found, self.length) or 0, MAX_POSITIONS)
        counts += [0] * (length + 1 - len(counts))  # positions that were never accepted
        caps = None if offered is None else integers(offered, self.offered[0])
        return Tally.of_histogram(counts, name=name, drafted=drafted, offered=caps)

    def _by_position(
        self, found: Object, steps: int, accepted: int | None, drafted: int | None, name: str
    ) -> Tally | None:
        told = _value(found, self.rates)
        if told is None:
            return None
        if not isinstance(told, list) or accepted is None:
            raise InvalidParameter(
                f"{self.rates[0]} must be a list beside {self.accepted[0]}; got {told!r:.40} "
                f"beside {accepted}. Check the export."
            )
        rates = [number(rate, self.rates[0]) for rate in told]
        mean, total, slack = accepted / steps, math.fsum(rates), self.half * max(1, len(rates))
        scales = [scale for scale in (1.0, 100.0) if abs(total - scale * mean) <= scale * slack]
        if not scales or (len(scales) > 1 and total > 0):
            raise InvalidParameter(
                f"{self.rates[0]} must add up to accepted tokens over drafts, {mean:.6g}, or to "
                f"{100 * mean:.6g} in per cent; they add up to {total:.6g}. Check the export."
            )
        # Rates of fewer decimals than the counts have are brought to the counts.
        scale = scales[0] * (total / scales[0] / mean if self.half > ROUNDING and total else 1.0)
        counts = [near_count(min(1.0, rate / scale) * steps) for rate in rates]
        return Tally.of_survivors(
            counts, steps=steps, name=name, accepted=accepted, drafted=drafted
        )

    def _accepted(self, found: Object, steps: int, accepted: int | None) -> float:
        """Return the accepted tokens of an object that holds no law."""
        if accepted is None and (emitted := self._emitted(found)) is not None:
            accepted = max(0, emitted - steps)
        if accepted is not None:
            return float(accepted)
        name = (*self.mean, *self.accepted, *self.steps)[0]
        return max(0.0, (number(_value(found, self.mean), name) - 1.0) * steps)


def form_of_objects(
    *,
    name: str,
    marks: str,
    unit: str,
    convention: str,
    fields: Fields,
    find: Callable[[Document], Iterable[Object]],
    about: Callable[[Sequence[Object], Sequence[Tally]], dict[str, Any]] = lambda found, parts: {},
) -> Form:
    """Return the form of documents that hold objects, each a part of the record.

    Args:
        name, marks: of the form.
        unit, convention: of its records.
        fields: what the objects tell by which keys.
        find: returns the objects of a document, none if it is not of the form.
        about: what else the record says of objects and their counts, such as notes.
    """

    def read(document: Document) -> AcceptanceRecord:
        found = [one for one in find(document) if fields.tells(one)]
        parts = tuple(fields.tally(one, f"{unit} {i}") for i, one in enumerate(found, start=1))
        lengths = {fields.configured(one) for one in found}
        (only,) = lengths if len(lengths) == 1 else (None,)
        length = int(only) if only is not None and only == int(only) else None
        known = {"form": name, "length": length} | about(found, parts)
        return AcceptanceRecord(unit=unit, parts=parts, convention=convention, **known)

    def recognises(document: Document) -> bool:
        return any(True for _ in find(document))

    return Form(name, marks, recognises, read)


def _value(found: Object, keys: Keys) -> Any:
    """Return the first value among several keys of an object, else None."""
    told = (found[key] for key in keys if found.get(key) not in (None, []))
    return next(told, None)


def _counted(found: Object, keys: Keys) -> int | None:
    value = _value(found, keys)
    return None if value is None else count(value, keys[0])


def _dense(histogram: object, name: str) -> list[int]:
    """Return counts by accepted drafts from a dense list or a sparse object."""
    if not isinstance(histogram, dict):
        return list(integers(histogram, name))
    pairs = {count(j, f"a key of {name}"): count(n, name) for j, n in histogram.items()}
    most = max(pairs, default=0)
    if most > MAX_POSITIONS:
        raise InvalidParameter(
            f"A step accepts up to {MAX_POSITIONS:,} drafts; got {most}. Check the export."
        )
    return [pairs.get(j, 0) for j in range(most + 1)]


def _require_agreement(law: Tally, other: Tally, told: tuple[int, int | None, int | None]) -> None:
    """Raise unless the counts agree with the totals, and with another form of the counts."""
    assert law.survivors is not None and other.survivors is not None
    counted = law.steps, law.accepted, law.drafted
    length = max(law.survivors.size, other.survivors.size)
    same = np.array_equal(padded(law.survivors, length), padded(other.survivors, length))
    if not same or any(known not in (None, own) for known, own in zip(told, counted, strict=True)):
        raise InvalidParameter(
            "Steps, histogram and sums must be of the same steps (in all, accepted and drafted "
            f"tokens); {law.name} counts {counted} and tells {told}. Check the export."
        )
