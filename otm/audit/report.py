"""The common parts of all audits: a verdict, the coverage of the verdict, and a report made of the
figures.

Instances, methods and untested faults form a `Coverage`; the line above every report is written
from it. An audit has data and gives a verdict (`Audit.verdict`), the coverage (`Audit.coverage`),
one row for a table of many audits (`Audit.row`), the sections of the report (`Audit.sections`) and
a picture (`Audit.picture`). All prints, tables and drawings are made of these, here. `facts` and
`listing` render the sections, `format_probability` the numbers in them.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, TypeVar

import numpy as np

from otm._display.tabular import OneTable, Table, markdown
from otm.problem import Problem

Number = TypeVar("Number", int, float)

SAMPLES, PROBING = "samples", "probing"
"""The means of an audit that draws, and of one that probes a black box."""

STATE, LONGER_STATE = "state kept between calls", "state kept over more than two calls"
"""Reported as untested; the second string applies where two calls are compared jointly."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """The coverage of an audit: instances, methods and untested faults; `str` gives a line each.

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
    """Describe the instance of a one-token audit; the method is filled in later.

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
    """Merge the coverages of several audits, by label, and the list of untested faults.

    >>> by = (("exact integration", 1),)
    >>> one = Coverage(instances=("a",), drafts=(1,), vocabulary=(2,), by=by)
    >>> other = dataclasses.replace(one, drafts=(2,), vocabulary=(4,))
    >>> print(merged([("a, k = 1", one), ("b, k = 2", other)]))  # doctest: +ELLIPSIS
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
    """Print numbers, with neighbours as a range: no number between the ends is missing.

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


Verdict = Literal[
    "not lossless",
    "fault",
    "raised",
    "not exact",
    "undecided",
    "no verdict",
    "little power",
    "no difference found",
    "rounding",
    "identical",
    "lossless",
]
"""Worst first. Audits by integration say "lossless", "not exact" where rounding does not explain a
deviation of the size of a code's own ε, or "undecided" within their error; those of samples "no
difference found", "little power" where only a large one would have been, or "no verdict" where
there are too few of them to find what was asked for. "raised": the candidate raised on inputs that
are valid, and answered others. "rounding": exact but for a few units in the last place of arrays
coarser than float64. Of two runs that should write the same text: "identical", "rounding" or
"fault".
"""

PASSED = frozenset[Verdict]({"lossless", "no difference found", "identical", "rounding"})
"""Verdicts that let a candidate pass."""

FAILED: tuple[Verdict, ...] = ("not lossless", "not exact")
"""Verdicts on an output that does not have the target's law, worst first."""

MOST_ENTRIES = 12
"""Entries of a distribution that are written out."""

MOST_ROWS = 12
"""Instances that a table of a report lists, worst first."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Audit(OneTable):
    """The result of an audit of one candidate; `str` gives the report in Markdown.

    Attributes:
        name: of the candidate.
        reason: what stood in the way of an exact law, "a random number was converted to a plain
            float" say; empty if nothing did.
        detail: what the headline says beside the verdict, where a number does not.
        aside: what it says after that: where the candidate raises, what more time would find.
        again: Python that repeats it, with {} for the candidate's name; "" where none can.
        audits: of a battery, one for each check that was carried out, by its name.
    """

    name: str
    reason: str = ""
    detail: str = ""
    aside: str = ""
    again: str = ""
    audits: Mapping[str, Audit] = dataclasses.field(default_factory=dict)

    @property
    @abc.abstractmethod
    def verdict(self) -> Verdict:
        """The verdict on whether the output has the target's law."""

    @property
    @abc.abstractmethod
    def coverage(self) -> Coverage:
        """The coverage of the verdict."""

    @property
    @abc.abstractmethod
    def severity(self) -> float:
        """The total variation to the target: exact, or the lower end of the 95 % interval."""

    @property
    def parts(self) -> Mapping[str, Audit]:
        """The parts of the audit, by instance: the audit alone, except for a battery."""
        alone = self.coverage.instances
        return self.audits or ({", ".join(alone): self} if alone else {})

    @abc.abstractmethod
    def row(self) -> tuple[str, str, str]:
        """Return total variation, KL(q‖π) and a remark, for a table of many audits."""

    @abc.abstractmethod
    def sections(self) -> list[str]:
        """Return the parts of the report below the head, in Markdown."""

    @abc.abstractmethod
    def picture(self, ax: Any) -> None:
        """Draw the figures into matplotlib's axes."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.verdict}, {self.row()[0]})"

    def __str__(self) -> str:
        return f"{self.head()}\n\n{self.figures()}"

    @property
    def headline(self) -> str:
        """The verdict with a number."""
        covered = self.coverage
        tried = len(covered.instances) + covered.raised
        unfollowed = f" but for {covered.unfollowed:.1g} of the draws, which were not followed"
        numbers = {
            "lossless": " (probed)" * (PROBING in dict(covered.by))
            + unfollowed * (covered.unfollowed > 0.0),
            "raised": f" on {covered.raised} of {tried} instances",
            "not exact": f" by {self.severity:.2g}",
            "little power": f": no difference found above {covered.detect:g}",
        }
        found = f": {self.detail}" if self.detail else ""
        return self.verdict + numbers.get(self.verdict, found) + self.aside

    def head(self) -> str:
        """Return the verdict, then what was audited, the coverage, and why no law is exact."""
        reason = f"\nNot traced, since {self.reason.rstrip('.')}." if self.reason else ""
        guess = f"{covered.taken_for}.\n" if (covered := self.coverage).taken_for else ""
        return f"## `{self.name}`: {self.headline}\n{guess}{covered}{reason}"

    def figures(self) -> str:
        """Return the report without the head."""
        return "\n\n".join(self.sections())

    def data(self) -> Table:
        """Return verdict and figures of each part; `severity` is a total variation, or below it."""
        rows = [
            (label, part.verdict, *part.row(), part.severity) for label, part in self.parts.items()
        ]
        return Table(
            columns=("instance", "verdict", "total variation", "KL(q‖π)", "remark", "severity"),
            rows=tuple(rows),
            title=f"{self.name}: {self.verdict}",
            notes=(str(self.coverage),),
        )

    def _draw(self, ax: Any) -> None:
        self.picture(ax)
        ax.set_title(f"{self.name}: {self.verdict}", fontsize=10)


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Render pairs (name, figure) as a section.

    >>> print(facts([("optimum", "3/4")]))
    | | |
    |---|---|
    | optimum | 3/4 |
    """
    return markdown(("", ""), rows)


def listing(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render the first `MOST_ROWS` rows as a section, and the number of all others."""
    shown = list(rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        shown.append(("…", f"{len(rows) - MOST_ROWS} more", *[""] * (len(head) - 2)))
    return markdown(head, shown)


def format_probability(value: float) -> str:
    """Format a probability as a fraction where a small one is meant, else with six digits.

    >>> format_probability(0.625), format_probability(1 / 3), format_probability(0.1234567)
    ('5/8', '1/3', '0.123457')
    """
    if not np.isfinite(value):
        return "∞"
    fraction = Fraction(value).limit_denominator(128)
    return str(fraction) if abs(float(fraction) - value) < 1e-14 else f"{value:.6g}"


def format_probabilities(values: Any) -> str:
    """Format a distribution, or one for each row, shortened beyond `MOST_ENTRIES` entries.

    >>> format_probabilities([[0.5, 0.5], [0.25, 0.75]])
    '(1/2, 1/2); (1/4, 3/4)'
    """
    array = np.asarray(values)
    if array.ndim > 1:
        return "; ".join(format_probabilities(row) for row in array)
    shown = ", ".join(format_probability(float(x)) for x in array[:MOST_ENTRIES])
    return f"({shown}{', …' if len(array) > MOST_ENTRIES else ''})"
