"""What a verdict covers: what was tested, by what, and what was not.

The line that stands over every report is written from it.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from otm.problem import Problem

Number = TypeVar("Number", int, float)

SAMPLES, PROBING = "samples", "probing"
"""The means of an audit that draws, and of one that probes a black box."""

STATE, LONGER_STATE = "state kept between calls", "state kept over more than two calls"
"""What is not tested of it; the latter where two calls are compared jointly."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """What was tested, by what, and what was not; `str` gives a line each.

    Attributes:
        instances: names of the problems, models or logs.
        subjects: what was run, where it is more than a verifier that is handed its drafts.
        drafts: numbers of drafts a position, or of drafted positions where `tokens` is more than
            one.
        tokens: how many tokens were compared jointly.
        vocabulary: sizes V.
        laws: how the drafts were drawn.
        least: the smallest positive probability of a tested law; 1 where that says nothing.
        temperatures: at which raw logits were handed over; none where laws were.
        unfollowed: the most that was not followed of the draws of one instance, as a probability.
        raised: on how many instances the candidate raised.
        taken_for: what the candidate was taken for, where that was found out.
        by: (means, number of instances), such as ("exact integration", 15).
        samples: the most that were planned for one instance.
        detect: the total variation that samples were planned to find; 0 where there were none.
        finest: the smallest of these over several audits.
        false_alarm: probability at most that a lossless candidate is called "not lossless".
        untested: what was not, beyond what the numbers say.
    """

    instances: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    drafts: tuple[int, ...] = ()
    tokens: tuple[int, ...] = (1,)
    vocabulary: tuple[int, ...] = ()
    laws: tuple[str, ...] = ()
    least: float = 1.0
    temperatures: tuple[float, ...] = ()
    unfollowed: float = 0.0
    raised: int = 0
    taken_for: str = ""
    by: tuple[tuple[str, int], ...] = ()
    samples: int = 0
    detect: float = 0.0
    finest: float = 0.0
    false_alarm: float = 0.0
    untested: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.instances:
            return f"Tested: nothing.\nNot tested: {'; '.join(self.untested) or 'anything'}."
        many = len(self.instances) > 1
        what = [
            *self.subjects,
            f"{_ranges(self.drafts)} {_plural('draft', self.drafts)}" if self.drafts else "",
            f"{_ranges(self.tokens)} {_plural('token', self.tokens)}",
            f"V = {_ranges(self.vocabulary)}" if self.vocabulary else "",
            f"temperature {', '.join(map('{:g}'.format, self.temperatures))}"
            if self.temperatures
            else "",
            f"drafts by {', '.join(self.laws)}" if self.laws else "",
            f"{len(self.instances)} instances" if many else "",
        ]
        drawn = {SAMPLES: f"up to {self.samples:,} samples"}
        by = [
            f"by {drawn.get(means, means)}{' each' * (means in drawn and count > 1)}"
            for means, count in self.by
        ]
        if many or len(by) > 1:
            by = [f"{count:,} {said}" for (_, count), said in zip(self.by, by, strict=True)]
        most = max(self.drafts, default=0)
        between = tuple(sorted({*range(min(self.drafts, default=0), most)} - {*self.drafts}))
        levels = sorted({self.finest or self.detect, self.detect})
        found = " to ".join(f"{level:g}" for level in levels)
        beyond = [
            f"{_ranges(between)} {_plural('draft', between)}" if between else "",
            f"V > {max(self.vocabulary):,}" if self.vocabulary else "",
            "other temperatures" if self.temperatures else "",
            f"more than {most:,} {_plural('draft', (most,))}" if most else "",
            f"probabilities below {self.least:.1g}" if self.least < 1.0 else "",
            f"total variations below {found} where sampled" if self.detect else "",
            *self.untested,
        ]
        tested = f"Tested: {', '.join(filter(None, what))}; {', '.join(by)}."
        untested = f"Not tested: {'; '.join(filter(None, beyond))}."
        return f"{tested}\n{untested}"


def coverage_of_problem(problem: Problem) -> Coverage:
    """Return what an audit of one token on one problem covers, but for how.

    >>> import otm
    >>> problem = otm.Problem(draft=[0.5, 0.5], target=[0.75, 0.25], law=otm.IID(2))
    >>> coverage_of_problem(problem).drafts, coverage_of_problem(problem).least
    ((2,), 0.25)
    """
    laws = np.concatenate([np.atleast_2d(problem.draft), problem.target[None]])
    return Coverage(
        instances=("the problem given",),
        drafts=(problem.num_drafts,),
        vocabulary=(problem.num_tokens,),
        laws=(type(problem.law).__name__,),
        least=float(laws[laws > 0].min()),
        untested=("later tokens of a block", "processing of logits", "laws in float32"),
    )


def merged(parts: Iterable[tuple[str, Coverage]], untested: Iterable[str] = ()) -> Coverage:
    """Return the coverage of several audits, by label, and of what was left out.

    >>> one = Coverage(
    ...     instances=("a",), drafts=(1,), vocabulary=(2,), by=(("exact integration", 1),)
    ... )
    >>> print(  # doctest: +ELLIPSIS
    ...     merged(
    ...         [
    ...             ("a, k = 1", one),
    ...             ("b, k = 2", dataclasses.replace(one, drafts=(2,), vocabulary=(4,))),
    ...         ]
    ...     )
    ... )
    Tested: 1..2 drafts, 1 token, V = 2, 4, 2 instances; 2 by exact integration. Not tested: ...
    """
    labelled = list(parts)
    covers = [cover for _, cover in labelled]
    by: collections.Counter[str] = collections.Counter()
    for cover in covers:
        by.update(dict(cover.by))
    notes = dict.fromkeys(itertools.chain(*(cover.untested for cover in covers), untested))
    if LONGER_STATE in notes:
        notes.pop(STATE, None)
    return Coverage(
        instances=tuple(label for label, _ in labelled),
        subjects=tuple(dict.fromkeys(subject for cover in covers for subject in cover.subjects)),
        drafts=_union(cover.drafts for cover in covers),
        tokens=_union(cover.tokens for cover in covers),
        vocabulary=_union(cover.vocabulary for cover in covers),
        laws=tuple(dict.fromkeys(law for cover in covers for law in cover.laws)),
        least=min((cover.least for cover in covers), default=1.0),
        temperatures=_union(cover.temperatures for cover in covers),
        unfollowed=max((cover.unfollowed for cover in covers), default=0.0),
        raised=sum(cover.raised for cover in covers),
        by=tuple(by.items()),
        samples=max((cover.samples for cover in covers), default=0),
        detect=max((cover.detect for cover in covers), default=0.0),
        finest=min((cover.detect for cover in covers if cover.detect), default=0.0),
        false_alarm=sum(cover.false_alarm for cover in covers),
        untested=tuple(notes),
    )


def _union(numbers: Iterable[tuple[Number, ...]]) -> tuple[Number, ...]:
    return tuple(sorted(set(itertools.chain(*numbers))))


def _ranges(numbers: tuple[int, ...]) -> str:
    """Print numbers, neighbours as a range: nothing between them is passed over.

    >>> _ranges((1, 2, 3, 8)), _ranges((2, 4, 48, 300, 2000))
    ('1..3, 8', '2, 4, 48, 300, 2,000')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]:,}" if len(run) == 1 else f"{run[0]:,}..{run[-1]:,}" for run in runs)


def _plural(noun: str, numbers: tuple[int, ...]) -> str:
    return noun if numbers == (1,) else f"{noun}s"
