"""What a public function promises, as data: how to call it, what is true, how far it may be off;
and how a promise is tried.

A registered verifier and a bound of a problem are promised by default what their definition says
(`evidence.torture.families.registered`). Another new function is an entry in the list of a module
of `evidence.torture.families`:

    Promise("otm.new_function", "exact", iid, lambda c: otm.new_function(c.problem), lambda r, c:
    oracles.new_function(r), …)

`name` is its row of the accuracy page, several entries of one name share the row. The truth comes
from `evidence.torture.oracles`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from evidence.torture.frame import Trial, families, family, shrink
from evidence.torture.problems import Case, Row, simpler

UNIT_ROUNDOFF = 2.0**-53

Direction = Literal["exact", "lower", "upper", "interval", "estimate"]


@dataclasses.dataclass(frozen=True)
class Statement:
    """What the accuracy page says of a public name.

    Args:
        name: the public name, with its namespace.
        direction: whether the answer is exact to rounding, a bound from below or above, an
            interval, or an estimate.
        said: the promised bound in words.
        source: where it is proved or stated.
        witness: what the answer is held against.
    """

    name: str
    direction: Direction
    said: str
    source: str
    witness: str


@dataclasses.dataclass(frozen=True)
class Bound:
    """How far an answer may be off: a number for each row, and the same in words, with
    the source.
    """

    of: Callable[[Row, Decimal], float]
    said: str
    source: str

    def twice(self) -> Bound:
        """Return twice the bound, for what is moved to its own side by once."""
        return Bound(
            lambda row, truth: 2 * self.of(row, truth),
            f"rounded to its side, by at most twice {self.said}",
            self.source,
        )

    def plus(self, more: float) -> Bound:
        """Return the bound with some units of roundoff more."""
        return dataclasses.replace(
            self, of=lambda row, truth: self.of(row, truth) + more * UNIT_ROUNDOFF
        )


@dataclasses.dataclass(frozen=True)
class Promise:
    """A statement that can be tried.

    Args:
        name, direction: see `Statement`.
        cases: draws an input.
        value: calls the function: one answer per row, or several per row; `(lower, upper)` per row
            for an interval.
        truth: the true answer for a row, or as many as the function gives.
        bound: how far it may be off; beyond its own side for a bound or an interval.
        witness: what the truth is computed from.
        times: how many inputs make one trial.
    """

    name: str
    direction: Direction
    cases: Callable[[np.random.Generator], Case]
    value: Callable[[Case], Any]
    truth: Callable[[Row, Case], Any]
    bound: Bound
    witness: str
    times: int = 20

    @property
    def statement(self) -> Statement:
        """What the page says."""
        return Statement(
            self.name, self.direction, self.bound.said, self.bound.source, self.witness
        )


def ratio(promise: Promise, case: Case) -> tuple[float, str]:
    """Return worst error ÷ bound over the rows of a case, and in words what is worst; an exception
    is infinitely wrong.
    """
    rows = case.rows
    try:
        value = promise.value(case)
    except Exception as error:
        return math.inf, "".join(traceback.format_exception(error))
    worst, words = 0.0, ""
    answers = [value] if case.single and not _has_rows(value) else list(value)
    if len(answers) != len(rows):
        return math.inf, f"{len(answers)} answers for {len(rows)} rows: {value!r}"
    for row, answer in zip(rows, answers, strict=True):
        truth = promise.truth(row, case)
        found = _row_ratio(promise, row, answer, truth)
        if not found <= worst:
            worst, words = found, f"{answer!r} for {_shown(truth)}"
    return worst, words


class Rows(list[Any]):
    """Answers that are listed row by row already, even if there is one row."""


def _has_rows(value: object) -> bool:
    return isinstance(value, Rows)


def _shown(truth: Any) -> str:
    return f"{truth:.25g}" if isinstance(truth, Decimal) else str([f"{t:.20g}" for t in truth])


def _row_ratio(promise: Promise, row: Row, answer: Any, truth: Any) -> float:
    if promise.direction == "interval":
        lower, upper = (exactly(end) for end in answer)
        if lower.is_nan() or upper.is_nan():
            return math.inf
        return _divided(
            row, promise.bound, max(_above(row, lower, truth), _above(row, truth, upper)), truth
        )
    answers, truths = _flat(answer), truth if isinstance(truth, Sequence) else [truth]
    if len(answers) != len(truths):
        return math.inf
    worst = 0.0
    for one, true in zip(answers, truths, strict=True):
        if one.is_nan():
            return math.inf
        if promise.direction == "lower":
            error = _above(row, one, true)
        elif promise.direction == "upper":
            error = _above(row, true, one)
        else:
            error = max(_above(row, one, true), _above(row, true, one))
        worst = max(worst, _divided(row, promise.bound, error, true))
    return worst


_LAST_DIGITS = 15
"""Of an oracle's digits, those left to its own rounding: k up to 1e9 times sums of 128,256 terms
lose fourteen.
"""


def _above(row: Row, left: Decimal, right: Decimal) -> Decimal:
    """Return (left − right)₊, 0 between equal infinities and within the rounding of an oracle that
    adds numbers up to 1.
    """
    rounding = Decimal(10) ** (_LAST_DIGITS - row.digits)
    if left <= right or left - right <= max(abs(right), Decimal(1)) * rounding:
        return Decimal(0)
    return left - right


def _divided(row: Row, bound: Bound, error: Decimal, truth: Decimal) -> float:
    if error == 0:
        return 0.0
    limit = row.exactly(lambda: Decimal(bound.of(row, truth)))
    return math.inf if limit == 0 or error == Decimal("Infinity") else float(error / limit)


def _flat(answer: Any) -> list[Decimal]:
    if isinstance(answer, Decimal):
        return [answer]
    if isinstance(answer, list) and answer and isinstance(answer[0], Decimal):
        return answer
    if hasattr(answer, "detach"):
        answer = answer.detach().numpy()
    return [Decimal(float(x)) for x in np.asarray(answer, dtype=np.float64).reshape(-1)]


def exactly(value: Any) -> Decimal:
    """Return a number, a scalar array or a fraction as the number that it is."""
    if isinstance(value, Decimal):
        return value
    if hasattr(value, "numerator") and not isinstance(value, float):
        return Decimal(int(value.numerator)) / Decimal(int(value.denominator))
    return Decimal(float(value))


def trials(promises: Sequence[Promise], random: np.random.Generator) -> Iterator[Trial]:
    """Try promises chosen at random, for ever; what fails is shrunk and told as a test."""
    while True:
        yield one_trial(promises[int(random.integers(len(promises)))], random)


def one_trial(promise: Promise, random: np.random.Generator) -> Trial:
    """Try a promise on some cases."""
    worst, words, worst_case, inputs = 0.0, "", None, 0
    for _ in range(promise.times):
        case = promise.cases(random)
        found, told = ratio(promise, case)
        inputs += len(case.target)
        if not found <= worst:
            worst, words, worst_case = found, told, case
    if worst <= 1 or worst_case is None:
        return Trial(promise.name, inputs, worst)

    def fails(case: Case) -> bool:
        found = ratio(promise, case)[0]
        # an exception stays one, a number a number
        return not found <= 1 and math.isinf(found) == math.isinf(worst)

    smallest = shrink(worst_case, simpler=simpler, fails=fails)
    worst, words = ratio(promise, smallest)
    return Trial(promise.name, inputs, worst, _as_test(promise, smallest), words)


def _as_test(promise: Promise, case: Case) -> str:
    return "\n".join(
        [
            "import numpy as np",
            "",
            "from evidence.torture.problems import Case",
            "from evidence.torture.promises import promises_of, ratio",
            "",
            f"case = {case!r}",
            f"for promise in promises_of({promise.name!r}):",
            "    assert ratio(promise, case)[0] <= 1, ratio(promise, case)",
        ]
    )


_PROMISES: dict[str, list[Promise]] = {}


def promised(name: str, promises: Sequence[Promise]) -> None:
    """Register promises as a family of trials."""
    _PROMISES[name] = list(promises)
    family(name)(functools.partial(trials, promises))


_DEFAULTS: list[Promise] = []


def promised_by_default(promises: Sequence[Promise]) -> None:
    """Enter what holds of public names unless a family names them."""
    _DEFAULTS.extend(promises)


def unnamed() -> list[Promise]:
    """Return the promises by default of those names that no family names."""
    families()
    named = {promise.name for group in _PROMISES.values() for promise in group}
    named |= {name for name, _, _ in _STATEMENTS}
    return [promise for promise in _DEFAULTS if promise.name not in named]


def promises() -> list[Promise]:
    """Return every promise: those of the families, and by default of what they do not name."""
    rest = unnamed()
    return [promise for group in _PROMISES.values() for promise in group] + rest


def promises_of(name: str) -> list[Promise]:
    """Return every promise of one public name."""
    return [promise for promise in promises() if promise.name == name]


_STATEMENTS: dict[tuple[str, str, str], Statement] = {}


def stated(statement: Statement) -> None:
    """Enter what the accuracy page says of a function that is tried otherwise than by
    a `Promise`.
    """
    _STATEMENTS[statement.name, statement.direction, statement.said] = statement


def statements() -> list[Statement]:
    """Return what is said of every function, by name."""
    found = {
        (s.name, s.direction, s.said): s for s in (promise.statement for promise in promises())
    } | _STATEMENTS
    return sorted(found.values(), key=lambda s: (s.name, s.direction, s.said))
