"""The audit of two runs that should write the same text: are the differences rounding, or a fault?

Greedy decoding with speculation on should write what it writes without; so should sampling with one
seed and noise shared by position. But a token decoded in a batch of k + 1 rows has other roundings
than one decoded alone, and where two tokens are nearly as likely the text flips.

*What is compared.* Up to the first difference of a text both runs see the same context, so that
their log-probabilities differ by numerical noise only. At each such position the *change* is the
largest amount by which the log-odds of a rival (one of the likeliest tokens of both lists) against
the chosen token differ between the runs. A flip at a margin m needs a change of m at least: what
the first run has for its own token, plus what the second has for its.

*The limit.* A change is noise until it exceeds a limit that is learnt from others: with U the
(k+1)-th largest of n changes, that of a further position exceeds U + c Σ (the k excesses over U)
with probability at most (k+1)/(n+1) (1+c)^−k, for every c ≥ 1 and every noise whose tail beyond U
is lighter than some exponential (its hazard does not fall). Changes are taken in the order of their
place in the text, across all texts; each is judged by a limit learnt before its place, from the
first 32, 64, 128, … So a fault that begins somewhere, and then spoils every value, cannot hide
itself. Where noise is too rare to be measured, a change of 1 counts as the most that it can be.

*The choice.* Whatever the context, a greedy token is the likeliest of its own list. Tokens of the
second run that are not, by more than the first run ever is, are as likely in either run without a
fault: r of them, and none of the first, have probability (share of the second run's tokens)^r.

Proofs: docs/theory.md, "Audits".
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otm._display import drawing
from otm._machine.arrays import Floats
from otm.audit.budget import USUAL, Errors, check_errors
from otm.audit.evidence import noise_limit
from otm.audit.report import Audit, Coverage, Verdict, facts, listing
from otm.audit.text_log import LoggedText, Token, nameless, read_texts
from otm.errors import InvalidParameter
from otm.pmf import check_instance, check_real

_RIVALS = 5
"""Number of the likeliest tokens of a list that are compared: unlikely tokens have more noise."""

_RESOLUTION = 1e-6
"""Differences up to this size come from log-probabilities written in float32."""

_COARSE = 1.0
"""Change of log-odds that rounding does not make: logits in bfloat16 are 1/8 apart at 16 to 32."""

_FIRST = 32
"""Positions that the first limit is learnt from."""

_LONGEST_SHIFT, _ALIGNED = 8, 8
"""Largest number of missing tokens, and the number of tokens that must agree after these."""

_Top = dict[Token, float]
_Pair = tuple[LoggedText, LoggedText]


class Place(NamedTuple):
    """A token of a text in both runs.

    Places are ordered by `token`, then by `text`.

    Attributes:
        token: number of the token in its text, from 0.
        text: number of the text, from 0.
        plain, speculative: what was written there; None where a text has ended.
        margin: how far the plain run's token was ahead, in log-odds; NaN if it was not logged.
        change: how much the log-odds differ between the runs, or must differ for what was written;
            NaN if it is not known.
        rival: the same of the plain run's second likeliest token; NaN where texts part.
        words: what it looks like, where it is a difference.
    """

    token: int
    text: int
    plain: Token | None
    speculative: Token | None
    margin: float
    change: float
    rival: float = math.nan
    words: str = ""


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SameTextAudit(Audit):
    """The comparison of two runs of the same prompts; `str` gives the report in Markdown.

    Attributes:
        texts, tokens: how many the plain run holds.
        changes: of the log-odds at the positions with the same context, `(n,)`, by place.
        limit: the change that rounding explains, learnt from all of them; None if unknown.
        tolerance: the limit, where it was given.
        safe: how many positions have a margin above the limit, and so cannot flip by rounding.
        expected: how many flips the measured noise makes of the margins, and its deviation.
        differences: where texts part for the first time.
        faults: what rounding does not explain, the earliest first.
        obstacle: why there is no verdict, "" if there is one.
        errors: `false_alarm` is the probability at most of a fault where there is rounding only.
    """

    texts: int
    tokens: int
    changes: Floats
    limit: float | None
    tolerance: float | None
    safe: int
    expected: tuple[float, float]
    differences: tuple[Place, ...]
    faults: tuple[Place, ...]
    obstacle: str
    errors: Errors

    @property
    def verdict(self) -> Verdict:
        """The verdict: identical, rounding, a fault, or none."""
        if self.faults:
            return "fault"
        if self.obstacle:
            return "no verdict"
        return "rounding" if self.differences else "identical"

    @property
    def coverage(self) -> Coverage:
        """The two runs, and the faults that no two runs can show."""
        taken = (
            f"changes up to {_COARSE:g} at the first {_FIRST} positions, which teach rounding"
            if self.tolerance is None
            else f"changes up to the given tolerance of {self.tolerance:g}"
        )
        return Coverage(
            instances=(self.name,),
            tokens=(self.tokens,),
            by=(
                (f"two runs of {self.texts:,} texts, {self.changes.size:,} positions compared", 1),
            ),
            false_alarm=self.errors.false_alarm,
            untested=(
                "what follows the first difference of a text, but for its own choices",
                taken,
            ),
        )

    @property
    def severity(self) -> float:
        """The total variation of the written tokens at the fault; 0 without a fault."""
        return float(self.verdict == "fault")

    def picture(self, ax: Any) -> None:
        """Draw the share of changes larger than a size, with the limit."""
        sizes = np.sort(self.changes)[::-1].tolist() or [0.0]
        ranks = list(range(1, len(sizes) + 1))
        lines = [drawing.Line("change of log-odds", ranks, sizes)]
        if self.limit is not None:
            lines.append(drawing.Line("limit", ranks, [self.limit] * len(ranks), best=True))
        drawing.draw_lines(ax, lines, xlabel="positions, the largest change first", ylabel="nats")

    def row(self) -> tuple[str, str, str]:
        """Return the total variation and the finding."""
        return f"{self.severity:g}", "", self.detail

    def sections(self) -> list[str]:
        """Return the noise, the differences that noise explains, and the places where texts
        part.
        """
        rows = [("texts", f"{self.texts:,} of {self.tokens:,} tokens in all")]
        if self.changes.size:
            typical, most = np.quantile(self.changes, [0.5, 1.0])
            rows.append(("change of log-odds", f"{typical:.2g} in the median, {most:.2g} at most"))
        if self.limit is not None:
            rows += [
                (
                    "limit",
                    f"a change of {self.limit:.2g} is rounding; false alarms"
                    f" ≤ {self.errors.false_alarm:g} over all texts",
                ),
                (
                    "cannot flip",
                    f"{self.safe:,} of {self.changes.size:,} positions have a margin above it",
                ),
            ]
        parts = [facts(rows)]
        for title, found in (("Faults", self.faults), ("First differences", self.differences)):
            if found:
                lines = [_line(one) for one in found]
                parts.append(f"{title}:\n\n{listing(_HEAD, lines)}")
        return parts


_HEAD = ("text", "token", "plain", "speculative", "margin", "change", "")


def _line(one: Place) -> tuple[str, ...]:
    """Return a row of the table of differences."""
    written = ["–" if token is None else f"{token!r:.20}" for token in one[2:4]]
    numbers = ["–" if math.isnan(x) else f"{x:.3g}" for x in (one.margin, one.change)]
    return str(one.text), str(one.token), *written, *numbers, one.words


def same_text(
    plain: str | os.PathLike[str] | Sequence[LoggedText],
    speculative: str | os.PathLike[str] | Sequence[LoggedText],
    *,
    same_seed: bool = False,
    tolerance: float | None = None,
    name: str = "",
    errors: Errors = USUAL,
) -> SameTextAudit:
    r"""Judge whether two runs write the same texts up to rounding.

    Args:
        plain: the run without speculation: the path of its responses (the forms are at the head of
            `otm.audit.text_log`), or its texts.
        speculative: the run with it, of the same prompts in the same order.
        same_seed: whether texts were sampled with the noise of one seed, which the logged values
            then contain; greedy if False.
        tolerance: change of log-odds that counts as rounding; learnt from the runs if None.
        name: what to call the pair in the report; the second file's name, or "texts", if empty.
        errors: `false_alarm`, the probability at most of a fault where there is rounding only.

    Returns:
        SameTextAudit: "identical", "rounding", "fault" or "no verdict", with the reason.

    Raises:
        InvalidParameter: if a file cannot be read, or greedy values are no log-probabilities.
        InvalidRecord: if a file holds something else than texts.

    Cost: O(N log N) for N logged values. Reference: docs/theory.md, "Audits".

    >>> line = '{"tokens": [5, 9], "top": [[[5, -0.1], [7, -2.5]], [[9, -0.7], [3, -0.9]]]}'
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = [pathlib.Path(folder, name) for name in ("plain.jsonl", "speculative.jsonl")]
    ...     _ = runs[0].write_text(line), runs[1].write_text(line.replace("9", "3"))
    ...     found = same_text(*runs, tolerance=0.1)
    >>> found.headline
    'fault: at token 1 of text 0, a flip at a margin of 0.2 (change 0.2, limit 0.1)'
    """
    check_instance(name, str, name="name")
    check_instance(same_seed, bool, name="same_seed")
    level = check_errors(errors).false_alarm / 2
    if tolerance is not None:
        check_real(tolerance, name="tolerance", low=0.0)
    if isinstance(speculative, str | os.PathLike):
        name = name or Path(speculative).name
    runs = _texts_of(plain, "plain", same_seed), _texts_of(speculative, "speculative", same_seed)
    obstacle = _unlike(*runs)
    pairs = [] if obstacle else list(zip(*runs, strict=True))
    compared = _Comparison(pairs, tolerance, level)
    unchosen, ungreedy = _unchosen(pairs, compared.limit, level)
    obstacle = obstacle or ungreedy or compared.obstacle()
    obstacle = obstacle or _not_compared(runs, compared.changes.size)
    faults = [] if ungreedy else sorted(compared.faults + unchosen, key=operator.itemgetter(0, 1))
    expected = compared.expected()
    return SameTextAudit(
        name=name or "texts",
        detail=_headline_detail(faults, compared.differences, obstacle, expected, compared.limit),
        texts=len(runs[0]),
        tokens=sum(len(text.tokens) for text in runs[0]),
        changes=compared.changes,
        limit=compared.limit,
        tolerance=tolerance,
        safe=sum(one.margin > (compared.limit or math.inf) for one in compared.positions),
        expected=expected,
        differences=tuple(compared.differences),
        faults=tuple(faults),
        obstacle=obstacle,
        errors=errors,
    )


def _texts_of(run: Any, label: str, same_seed: bool) -> list[LoggedText]:
    """Return the texts of a run; raise an error where the values cannot be log-probabilities."""
    if isinstance(run, str | os.PathLike):
        texts = read_texts(run)
    elif isinstance(run, Sequence):
        texts = [check_instance(text, LoggedText, name=f"A text of {label}") for text in run]
    else:
        raise InvalidParameter(
            f"{label} must be a file's path or its texts; got {run!r:.80}. Pass one of these."
        )
    highest = max((max(top.values()) for text in texts for top in text.top if top), default=0.0)
    if highest > _RESOLUTION and not same_seed:
        raise InvalidParameter(
            f"Log-probabilities are at most 0; {label} has {highest:.4g}. If they contain the "
            "noise by which tokens were chosen, say so: same_seed=True, --same-seed."
        )
    return texts


def _not_compared(runs: Iterable[Sequence[LoggedText]], positions: int) -> str:
    """Return the reason why the values of two runs say nothing, "" if they do."""
    tops = [top for run in runs for text in run for top in text.top if top]
    reason = "" if positions else "the lists have no token in common"
    if not tops:
        reason = "no likeliest tokens are logged"
    elif all(value == 0.0 for top in tops for value in top.values()):
        reason = "all values are 0, which are no log-probabilities"
    elif all(len(top) < 2 for top in tops):
        reason = "the lists of likeliest tokens have one entry"
    return reason and f"no position could be compared: {reason}. Log the two likeliest at least"


def _unlike(plain: Sequence[LoggedText], speculative: Sequence[LoggedText]) -> str:
    """Return the reason why two runs cannot be compared text by text, "" if there is none."""
    if not plain or len(plain) != len(speculative):
        return f"the runs hold {len(plain):,} and {len(speculative):,} texts"
    prompts = [(one.prompt, other.prompt) for one, other in zip(plain, speculative, strict=True)]
    others = [i for i, pair in enumerate(prompts) if None not in pair and pair[0] != pair[1]]
    return (
        f"other prompts in {_counted(len(others), 'text')}, first in text {others[0]}"
        if others
        else ""
    )


class _Comparison:
    """The places of all texts, the limits learnt along the texts, and the places beyond these."""

    def __init__(self, pairs: Sequence[_Pair], tolerance: float | None, level: float) -> None:
        self.positions: list[Place] = []
        self.differences: list[Place] = []
        for number, (plain, speculative) in enumerate(pairs):
            self._compare(number, plain, speculative)
        self.positions.sort()
        self.changes = np.asarray([one.change for one in self.positions], dtype=np.float64)
        self.given = tolerance is not None
        self.sizes = [_FIRST << i for i in range(32) if _FIRST << i <= self.changes.size]
        learnt = [
            noise_limit(
                self.changes[:size],
                level=level / (len(self.sizes) * (size + len(self.differences))),
                resolution=_RESOLUTION,
            )
            for size in self.sizes
        ]
        self.measured = bool(learnt) and learnt[-1] is not None
        self.limits = [_COARSE if one is None else one for one in learnt]
        if tolerance is not None:
            self.sizes, self.limits = [0], [tolerance]
        self.faults = self._beyond()

    @property
    def limit(self) -> float | None:
        """The limit that all changes teach; the limit before the first fault, if there is one."""
        if not self.limits:
            return None
        return self._limit_at(min(self.faults)) if self.faults else self.limits[-1]

    def _compare(self, number: int, plain: LoggedText, speculative: LoggedText) -> None:
        """Compare two texts up to the first difference, or to the end if the text is forced."""
        length = min(len(plain.tokens), len(speculative.tokens))
        # Beyond the first difference the contexts differ, and no value can be compared; a forced
        # text goes on, since the speculative run was given the plain one.
        for j in range(length):
            chosen, written = plain.tokens[j], speculative.tokens[j]
            if nameless(chosen) or nameless(written):
                return  # whether they are one token cannot be known, nor what follows
            before, after = plain.top[j], speculative.top[j]
            if plain.forced and before and before.get(written, -math.inf) < max(before.values()):
                chosen = max(before, key=before.__getitem__)
            if chosen != written:
                self.differences.append(_flip(number, j, chosen, plain, speculative))
                if not plain.forced:
                    return
            elif moved := _moved(before, after, chosen):
                values = _lead(before, chosen), max(moved), moved[0]
                words = f"values change by {max(moved):.3g} before any flip"
                self.positions.append(Place(j, number, chosen, chosen, *values, words))
        if len(plain.tokens) != len(speculative.tokens):
            self.differences.append(_end(number, length, plain, speculative))

    def expected(self) -> tuple[float, float]:
        """Return the mean number of flips from the runners-up's noise over all margins, and the
        deviation.

        A margin m is flipped by a change beyond m in one of two directions; one of m makes a tie,
        which is broken either way.
        """
        noise = np.sort([one.rival for one in self.positions])
        known = [one.margin for one in self.positions + self.differences]
        margins = np.asarray([margin for margin in known if math.isfinite(margin)])
        if not noise.size:
            return 0.0, 0.0
        beyond = noise.size - np.searchsorted(noise, margins + _RESOLUTION)
        near = np.maximum(margins - _RESOLUTION, _RESOLUTION)
        reached = noise.size - np.searchsorted(noise, near)
        flipped = 0.25 * (beyond + np.maximum(beyond, reached)) / noise.size
        return float(flipped.sum()), math.sqrt(float((flipped * (1.0 - flipped)).sum()))

    def _limit_at(self, place: Place) -> float:
        """Return the limit learnt before a place; the first limit for the places before that."""
        if not self.limits:
            return math.inf
        index = bisect.bisect_right(self.sizes, bisect.bisect_left(self.positions, place[:2])) - 1
        return self.limits[max(0, index)]

    def _beyond(self) -> list[Place]:
        """Return the differences, and the first change of each text, beyond the limits."""
        judged = self.positions[self.sizes[0] :] if self.sizes else []
        changed = [one for one in judged if one.change > self._limit_at(one)]
        first = {one.text: one for one in reversed(changed)}
        exact = not self.given and self.changes.size >= _FIRST
        exact = exact and not self.changes.any()
        return [*first.values()] + [
            one
            for one in self.differences
            if one.change > self._limit_at(one)
            or math.isinf(one.change)
            or (exact and one.change == 0.0)  # the same values, and another choice
        ]

    def obstacle(self) -> str:
        """Return the obstacle to a verdict on the differences, "" if there is none."""
        unknown = [one for one in self.differences if math.isnan(one.change)]
        if unknown:
            return f"{_named(unknown[0])} has no log-probabilities to judge the difference by"
        if self.given:
            return ""
        if (most := self.changes[:_FIRST].max(initial=0.0)) > _COARSE:
            return (
                f"log-odds change by {most:.3g} at the first {_FIRST} positions, which is no "
                "rounding: other weights, other settings, or a fault from the start; or say what "
                "is rounding (--tolerance)"
            )
        if not self.differences:
            return ""
        if self.changes.size < _FIRST:
            return (
                f"values in both runs at {self.changes.size} of the {_FIRST} positions that "
                "measure rounding: log more, or say what it is (--tolerance)"
            )
        if not self.measured and any(one.change > _RESOLUTION for one in self.differences):
            return (
                f"only {(self.changes > _RESOLUTION).sum()} of {self.changes.size:,} positions "
                "change at all, too few to measure rounding: say what it is (--tolerance)"
            )
        return ""


def _lead(top: _Top, ahead: Token, behind: Token | None = None) -> float:
    """Return a lower bound on the lead of a token over another, or over all others; NaN if
    unknown.
    """
    others = [value for name, value in top.items() if name != ahead]
    if ahead not in top or not others:
        return math.nan
    return top[ahead] - (max(others) if behind is None else top.get(behind, min(others)))


def _moved(before: _Top, after: _Top, chosen: Token) -> list[float]:
    """Return the change of the log-odds of the likeliest rivals against a token."""
    if chosen not in before or chosen not in after:
        return []
    likeliest = sorted(before, key=before.__getitem__, reverse=True)[:_RIVALS]
    shift = after[chosen] - before[chosen]
    return [abs(after[x] - before[x] - shift) for x in likeliest if x in after and x != chosen]


def _flip(number: int, j: int, chosen: Token, plain: LoggedText, speculative: LoggedText) -> Place:
    """Return the difference of two tokens at one place."""
    written = speculative.tokens[j]
    margin = _lead(plain.top[j], chosen, written)
    back = _lead(speculative.top[j], written, chosen)
    change = max(margin, 0.0) + (back if back > 0.0 else 0.0)
    words = f"a flip{'' if math.isnan(margin) else f' at a margin of {margin:.3g}'}"
    words += _pattern(plain, speculative, j)
    if change == 0.0 and isinstance(chosen, int) and isinstance(written, int):
        which = "last" if written > chosen else "first"
        words = f"a tie, of which the speculative run takes the {which} token"
    return Place(j, number, chosen, written, margin, change, words=words)


def _pattern(plain: LoggedText, speculative: LoggedText, j: int) -> str:
    """Describe the shift after which the rests of two texts agree, "" if there is none."""
    one, other = plain.tokens, speculative.tokens
    for shift in range(1, _LONGEST_SHIFT + 1):
        moved = _counted(shift, "token")
        if _agree(one[j + shift :], other[j:]):
            return f": {moved} missing, the rest is the same"
        if _agree(one[j:], other[j + shift :]):
            kind = "doubled" if other[j : j + shift] == other[j - shift : j] else "added"
            return f": {moved} {kind}, the rest is the same"
    return ""


def _agree(one: Sequence[Token], other: Sequence[Token]) -> bool:
    """True if two texts begin with the same `_ALIGNED` tokens."""
    return len(one) >= _ALIGNED <= len(other) and one[:_ALIGNED] == other[:_ALIGNED]


def _end(number: int, j: int, plain: LoggedText, speculative: LoggedText) -> Place:
    """Return the difference of two texts of which one is the beginning of the other.

    A text that stopped may have flipped to the token that ends it, which not every engine writes;
    a limit of length cannot be missed by rounding.
    """
    early = len(plain.tokens) > len(speculative.tokens)
    longer, shorter = (plain, speculative) if early else (speculative, plain)
    margin = _lead(longer.top[j], longer.tokens[j])
    change = math.inf if shorter.finish == "length" else margin
    excess = _counted(len(longer.tokens) - j, "token")
    words = f"the speculative text {f'ends {excess} early' if early else f'goes on for {excess}'}"
    mine, theirs = (longer.tokens[j], None) if early else (None, longer.tokens[j])
    return Place(j, number, mine, theirs, margin, change, words=words)


def _named(place: Place) -> str:
    return f"token {place.token} of text {place.text}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number > 1)}"


def _unchosen(pairs: Sequence[_Pair], limit: float | None, level: float) -> tuple[list[Place], str]:
    """Return a token of the second run that is not the likeliest of the list, as a fault; or a
    message that this holds of the first run.
    """
    most = _COARSE if limit is None else limit
    usual = [one.change for text, _ in pairs if not text.forced for one in _behind(0, text)]
    largest = max(usual, default=0.0)
    if largest > most:
        return [], (
            f"the plain run's tokens are up to {largest:.3g} behind the likeliest of their lists: "
            "no greedy choice of these values"
        )
    lists = sorted(one for i, (_, text) in enumerate(pairs) for one in _behind(i, text))
    beyond = [one for one in lists if one.change > max(largest, _RESOLUTION)]
    gross = [one for one in beyond if one.change > most]
    likelihood = (len(lists) / (len(lists) + len(usual))) ** len(beyond) if usual else 1.0
    return gross[:1] or (beyond[:1] if likelihood <= level else []), ""


def _behind(number: int, text: LoggedText) -> Iterator[Place]:
    """Yield the distance of each token of a text to the likeliest of the token's list."""
    for j, (token, top) in enumerate(zip(text.tokens, text.top, strict=True)):
        if len(top) > 1 and not nameless(token):
            best = max(top, key=top.__getitem__)
            behind = top[best] - top.get(token, min(top.values()))
            words = f"a token {behind:.3g} behind the likeliest of its own list"
            yield Place(j, number, token, token, math.nan, behind, words=words)


def _headline_detail(
    faults: Sequence[Place],
    differences: Sequence[Place],
    obstacle: str,
    expected: tuple[float, float],
    limit: float | None,
) -> str:
    """Return the text of the headline beside the verdict."""
    if faults:
        said = f"at {_named(faults[0])}, {faults[0].words}"
        beyond = limit is not None and limit < faults[0].change < math.inf
        return f"{said} (change {faults[0].change:.3g}, limit {limit:.2g})" if beyond else said
    if obstacle:
        return obstacle
    if not differences:
        return ""
    mean, spread = expected
    ties = sum(one.change == 0.0 for one in differences)
    said = f"{_counted(len(differences), 'flip')} where {mean:.1f} ± {spread:.1f} are expected"
    return f"{said}; {ties:,} between equal log-probabilities" if ties else said
