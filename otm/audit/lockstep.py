"""A verifier on all draft sequences at once: executions that go the same way are one, whatever the drafts.

Following code draft sequence by draft sequence (`otm.audit.tracing`) costs V^k times the same. But code hardly goes V^k ways: a
rejection of the second draft is the same event whichever token was drafted, only its probability differs. So the code is run on
drafts and uniforms that stand for their values on every sequence. Each sequence has its probability and its box of uniforms; a
comparison divides each of them where its own threshold lies, and the run goes on where the answer is yes, or no, for all sequences
in which it may be so. Recursive rejection of k drafts goes k ways to accept and one way for each token to reject all.

Where the code asks for the number of a draft (`int(drafts[0])`, an index into a list) one way becomes as many as there are tokens.
What is followed are tokens that index draft and target, and comparisons that are linear in one uniform; the rest raises `Escape`.

Each way is executed again, on plain arrays for one of its sequences and a point of its box, and must give the same answer.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.audit.boxes import Escape
from otm.audit.traced_numbers import TracedArray

Code = Callable[[Any, Any, Any, Any], Hashable]
"""What answers on draft and target (arrays), drafts `(k,)` and uniforms `(n,)`; it may write into all of them."""

Values = NDArray[Any] | float
"""One for each sequence, or the same for all."""

_LEAST_SIDE = 2.0**-50
"""A part of a uniform that is narrower than this is rounding, and stays with its neighbour."""

_OF_A_QUESTION = 2_000
_OF_A_WAY = 10_000
"""What a question, and the executions of a way, cost beside the sequences, in sequences."""

_CHECKS = 64
"""How often the first way is executed on plain numbers; of the next ones so many twice."""

_PACE = 64
"""After every so many ways it is asked whether the work will do."""


@dataclasses.dataclass(frozen=True, eq=False)
class Ways:
    """What came out.

    Attributes:
        found: (the numbers of the sequences, the answer, its probability on each of them together with the sequence).
        error: probability of what was not followed.
        ways: how many were.
    """

    found: list[tuple[NDArray[np.int64], Hashable, NDArray[np.float64]]]
    error: float
    ways: int


def follow(
    code: Code,
    *,
    draft: NDArray[np.float64],
    target: NDArray[np.float64],
    drafts: NDArray[np.int64],
    mass: NDArray[np.float64],
    num_uniforms: int,
    most_work: int,
) -> Ways:
    """Return what code answers on every draft sequence, with probabilities.

    Args:
        code: a function of its arguments.
        draft, target: the distributions.
        drafts, mass: the sequences `(N, k)` and their probabilities `(N,)`.
        num_uniforms: n.
        most_work: sequences that may be looked at, over all questions, before the rest stays unknown; sooner if it will not do.

    Raises:
        Escape: if it does what cannot be followed, or answers otherwise on plain arrays; the message says which.

    Cost: for each way two executions and, for each question, a few operations on arrays of N. Accuracy: 2⁻⁵⁰ for each question.
    """
    rng = np.random.default_rng(0)
    columns = np.asfortranarray(drafts)
    waiting = [Part(np.arange(len(drafts)), mass, {}, ())]
    found: list[tuple[NDArray[np.int64], Hashable, NDArray[np.float64]]] = []
    work, errors = 0, [0.0]
    while waiting and work < most_work:
        run = Run(columns, waiting.pop())
        answer = code(draft.view(Gathered), target.view(Gathered), run.drafted(), run.uniforms(num_uniforms))
        for _ in range(_CHECKS if not found else 1 + (len(found) < _CHECKS)):
            row = int(rng.integers(len(run.rows)))
            point = run.point(row, rng.random(num_uniforms))
            if code(draft.copy(), target.copy(), drafts[run.rows[row]].copy(), point) != answer:
                raise Escape("on plain numbers it answers otherwise: hidden state, its own randomness, or an unknown operation")
        waiting += run.pending
        found.append((run.rows, answer, run.mass))
        errors.append(run.neglected)
        work += run.work + _OF_A_WAY
        if len(found) % _PACE == 0:
            left = math.fsum(part.probability for part in waiting)
            if left * work > 2.0 * (float(mass.sum()) - left) * (most_work - work):
                break
    return Ways(found, math.fsum(errors) + math.fsum(part.probability for part in waiting), len(found))


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Where a way goes on: the sequences on which the code may go it, how likely, and where their uniforms are.

    Attributes:
        rows: the numbers `(m,)` of the sequences.
        mass: the probability `(m,)` of each, its uniforms included.
        sides: by uniform, low and high end `(m,)`.
        answers: to every question so far.
    """

    rows: NDArray[np.int64]
    mass: NDArray[np.float64]
    sides: Mapping[int, tuple[NDArray[np.float64], NDArray[np.float64]]]
    answers: tuple[Any, ...]

    @property
    def probability(self) -> float:
        """Of going this way, and on."""
        return float(self.mass.sum())


@dataclasses.dataclass(eq=False)
class Run:
    """One execution.

    Attributes:
        drafts: all sequences `(N, k)`.
        here: what it is true of; questions that were answered on the way there are not asked again.
        asked: how many questions were.
        pending: the parts set aside.
        neglected: probability that was given to the neighbour of a part too narrow.
        work: sequences looked at.
    """

    drafts: NDArray[np.int64]
    here: Part
    asked: int = 0
    pending: list[Part] = dataclasses.field(default_factory=list)
    neglected: float = 0.0
    work: int = 0

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of the sequences that are still here."""
        return self.here.rows

    @property
    def mass(self) -> NDArray[np.float64]:
        """The probability of each."""
        return self.here.mass

    def drafted(self) -> Drafted:
        """Return the drafts `(k,)`."""
        k = self.drafts.shape[1]
        return _objects([Varying(self, lambda rows, i=i: self.drafts[rows, i]) for i in range(k)]).view(Drafted)

    def uniforms(self, count: int) -> TracedArray:
        """Return the uniforms `(count,)`."""
        return _objects([Varying(self, 0.0, axis=axis, slope=1.0) for axis in range(count)]).view(TracedArray)

    def point(self, row: int, anywhere: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return uniforms in the middle of a sequence's box, and anywhere on the axes that it leaves open."""
        for axis, (low, high) in self.here.sides.items():
            anywhere[axis] = 0.5 * (low[row] + high[row])
        return anywhere

    def answered(self) -> Any:
        """Return the answer to the next question if it is known, else None."""
        self.asked += 1
        return self.here.answers[self.asked - 1] if self.asked <= len(self.here.answers) else None

    def divide(self, parts: Sequence[Part]) -> Any:
        """Go on in the likeliest part that answers divide this one into, leave the others for later, and return its answer."""
        self.work += _OF_A_QUESTION + len(self.rows)
        possible = [part for part in parts if part.probability > 0.0]
        self.here = max(possible, key=lambda part: part.probability)
        self.pending += [part for part in possible if part is not self.here]
        return self.here.answers[-1]

    def part(self, answer: Any, stays: NDArray[np.bool_]) -> Part:
        """Return the sequences that an answer is true of."""
        sides = {axis: (low[stays], high[stays]) for axis, (low, high) in self.here.sides.items()}
        return Part(self.rows[stays], self.mass[stays], sides, (*self.here.answers, answer))

    def one_of(self, values: Callable[[], Values]) -> Any:
        """Ask which of its values, one for each sequence, something has."""
        answer = self.answered()
        if answer is not None:
            return answer
        found = np.broadcast_to(values(), len(self.rows))
        known = np.unique(found)
        return self.divide([self.part(value, found == value) for value in known])

    def below(self, axis: int, slope: Values, bound: Values) -> bool:
        """Ask whether slope · u is below the bound, u a uniform."""
        count = len(self.rows)
        low, high = self.here.sides.get(axis, (np.zeros(count), np.ones(count)))
        slope, bound = np.broadcast_to(slope, count), np.broadcast_to(bound, count)
        with np.errstate(all="ignore"):
            at = np.asarray(bound / slope)
        rising = slope >= 0.0
        flat, unknown = slope == 0.0, np.isnan(at)
        if flat.any() or unknown.any():  # true of all or none
            at = np.where(flat, np.where(bound > 0.0, high, low), np.where(unknown, np.where(rising, low, high), at))
        at = np.clip(at, low, high)
        width = high - low
        for end in (low, high):
            near = (at != end) & (np.abs(at - end) < _LEAST_SIDE)
            if near.any():
                self.neglected += float((self.mass * np.abs(at - end) / width)[near].sum())
                at = np.where(near, end, at)
        share = (at - low) / width
        return bool(
            self.divide([self._side(axis, answer, rising == answer, (low, at, high), share, width) for answer in (True, False)])
        )

    def _side(self, axis: int, answer: bool, lower: Any, ends: Any, share: Any, width: Any) -> Part:
        """Return the part of each sequence's box, below or above a threshold, where the answer is this one."""
        low, at, high = ends
        mass = self.mass * np.where(lower, share, (high - at) / width)
        stays = mass > 0.0
        part = self.part(answer, stays)
        sides = {**part.sides, axis: (np.where(lower, low, at)[stays], np.where(lower, at, high)[stays])}
        return dataclasses.replace(part, mass=mass[stays], sides=sides)


class Varying:
    """A number that differs between sequences, alone or as the slope of one uniform: constant + slope · u."""

    __slots__ = ("axis", "constant", "run", "slope")

    def __init__(self, run: Run, constant: Any, *, axis: int | None = None, slope: Any = 0.0) -> None:
        self.run, self.constant, self.axis, self.slope = run, constant, axis, slope

    def now(self) -> Values:
        """Return the constant on the sequences that are still here."""
        values: Values = _at(self.constant, self.run.rows)
        return values

    def resolved(self) -> Any:
        """Become a plain number: the run goes on where it is that one."""
        if self.axis is not None:
            raise Escape("a random number was converted to a plain float")
        return self.run.one_of(self.now)

    def __index__(self) -> int:
        return operator.index(self.resolved())

    def __int__(self) -> int:
        return int(self.resolved())

    def __float__(self) -> float:
        return float(self.resolved())

    def __hash__(self) -> int:
        return hash(self.resolved())

    def __bool__(self) -> bool:
        return bool(self.resolved())

    def item(self) -> Any:
        """Become a plain number."""
        return self.resolved().item()

    def __repr__(self) -> str:
        return repr(self.resolved())

    def __neg__(self) -> Varying:
        return self.scaled(-1.0, operator.mul)

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __add__(self, other: Any) -> Any:
        return _sum(self, other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _sum(self, other, -1.0)

    def __rsub__(self, other: Any) -> Any:
        return _sum(-self, other, 1.0)

    def __mul__(self, other: Any) -> Any:
        one, two = (self, _as_varying(other, self.run)) if self.axis is not None else (_as_varying(other, self.run), self)
        if one is None or two is None:
            return NotImplemented
        if two.axis is not None:
            raise Escape("it multiplies its uniforms")
        return one.scaled(two.constant, operator.mul)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        divisor = _as_varying(other, self.run)
        if divisor is None:
            return NotImplemented
        if divisor.axis is not None:
            raise Escape("it divides by a uniform")
        return self.scaled(divisor.constant, operator.truediv)

    def __rtruediv__(self, other: Any) -> Any:
        number = _as_varying(other, self.run)
        return NotImplemented if number is None else number / self

    def scaled(self, by: Any, operation: Any) -> Varying:
        """Return this number times, or divided by, one without a uniform."""
        return Varying(
            self.run, _joined(operation, self.constant, by), axis=self.axis, slope=_joined(operation, self.slope, by)
        )

    def __lt__(self, other: Any) -> Any:
        return _compared(self, other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return _compared(self, other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return _compared(self, other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return _compared(self, other, operator.ge)

    def __eq__(self, other: object) -> Any:
        return _compared(self, other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return _compared(self, other, operator.ne)


class Drafted(np.ndarray[Any, Any]):
    """The drafts: an object array, which a function of NumPy gets as plain integers."""

    def __contains__(self, token: object) -> bool:
        return any(draft == token for draft in self)  # no further than to the first

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _SYMMETRIC and len(args) == 1 and set(kwargs) <= {"minlength"} and args[0].dtype == object:
            return func(args[0].sorted(), **kwargs)
        return func(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})

    def sorted(self) -> NDArray[np.int64]:
        """Become plain numbers in ascending order; in which they were drafted is not asked."""
        run = self[0].run

        def sets() -> NDArray[np.int64]:
            """Number the multisets by the first sequence that has them."""
            rows = np.sort(np.transpose([np.broadcast_to(draft.now(), len(run.rows)) for draft in self]), axis=1)
            _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
            return np.asarray(run.rows[first[which.reshape(-1)]])

        first = run.one_of(sets)
        return np.sort([_at(draft.constant, np.array([first]))[0] for draft in self])


class Gathered(np.ndarray[Any, Any]):
    """An array that a drafted token, or all of them, may index without becoming plain."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Drafted) and key.dtype == object:
            return _objects([self[each] for each in key])
        if isinstance(key, list):
            return super().__getitem__([int(each) if isinstance(each, Varying) else each for each in key])
        keys = key if isinstance(key, tuple) else (key,)
        tokens = [each for each in keys if isinstance(each, Varying)]
        if not tokens or self.dtype == object or len(keys) != self.ndim or not all(map(_is_index, keys)):
            return super().__getitem__(key)
        table = np.array(self, subok=False)  # as it is now

        def value(rows: NDArray[np.int64]) -> Any:
            return table[tuple(_at(each.constant, rows) if isinstance(each, Varying) else each for each in keys)]

        return Varying(tokens[0].run, value)


def _is_index(thing: Any) -> bool:
    return (isinstance(thing, Varying) and thing.axis is None) or isinstance(thing, int | np.integer)


_SYMMETRIC = (np.bincount, np.sort, np.unique)
"""Functions of an array that do not depend on its order."""


def _plain(thing: Any) -> Any:
    return (
        np.array([int(each) for each in thing], dtype=np.int64)
        if isinstance(thing, Drafted) and thing.dtype == object
        else thing
    )


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _at(values: Any, rows: NDArray[np.int64]) -> Any:
    return values(rows) if callable(values) else values


def _joined(operation: Any, one: Any, other: Any) -> Any:
    """Return an operation on what is known of every sequence, done where it is asked for."""

    def value(rows: NDArray[np.int64]) -> Any:
        with np.errstate(all="ignore"):
            return operation(np.float64(_at(one, rows)), np.float64(_at(other, rows)))

    return value if callable(one) or callable(other) else value(np.arange(0))


def _as_varying(thing: Any, run: Run) -> Varying | None:
    if isinstance(thing, Varying):
        return thing
    if isinstance(thing, np.float32 | np.float16):
        raise Escape("it computes in less than double precision")
    number = isinstance(thing, int | float | np.number | np.bool_)
    return Varying(run, float(thing)) if number else None


def _sum(one: Varying, other: Any, sign: float) -> Any:
    two = _as_varying(other, one.run)
    if two is None:
        return NotImplemented
    if one.axis is not None and two.axis not in (None, one.axis):
        raise Escape("it adds up its uniforms")
    two = two.scaled(sign, operator.mul)
    return Varying(
        one.run,
        _joined(operator.add, one.constant, two.constant),
        axis=two.axis if one.axis is None else one.axis,
        slope=_joined(operator.add, one.slope, two.slope),
    )


def _compared(one: Varying, other: Any, operation: Any) -> Any:
    run, two = one.run, _as_varying(other, one.run)
    if two is None:
        return NotImplemented
    if one.axis is None and two.axis is None:
        return bool(run.one_of(lambda: operation(one.now(), two.now())))
    if operation in (operator.eq, operator.ne):  # a uniform is no given number
        return operation is operator.ne
    if None not in (one.axis, two.axis) and one.axis != two.axis:
        raise Escape("it compares its uniforms with each other")
    axis = one.axis if two.axis is None else two.axis
    assert axis is not None
    answer = run.answered()
    if answer is not None:
        return answer
    with np.errstate(all="ignore"):
        slope = np.asarray(_at(one.slope, run.rows)) - np.asarray(_at(two.slope, run.rows))
        bound = np.asarray(two.now()) - np.asarray(one.now())
    if operation in (operator.lt, operator.le):
        return run.below(axis, slope, bound)
    return run.below(axis, -slope, -bound)
