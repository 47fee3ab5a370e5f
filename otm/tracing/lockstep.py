"""A verifier on all draft sequences at once: executions that go the same way are one, whatever the
drafts.

Following code draft sequence by draft sequence (`otm.tracing.exploration`) costs V^k times the
same. But code hardly goes V^k ways: a rejection of the second draft is the same event whichever
token was drafted, only its probability differs. So the code is run on drafts and uniforms that
stand for their values on every sequence. Each sequence has its probability and its box of uniforms;
a comparison divides each of them where its own threshold lies, and the run goes on where the answer
is yes, or no, for all sequences in which it may be so. Recursive rejection of k drafts goes k ways
to accept and one way for each token to reject all.

Where the code asks for the number of a draft (`int(drafts[0])`, an index into a list) one way
becomes as many as there are tokens. What is followed are tokens that index draft and target, and
comparisons that are linear in one uniform; the rest raises `Escape`.

Each way is executed again, on plain arrays for one of its sequences and a point of its box, and
must give the same answer.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import random
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.tracing.boxes import Escape
from otm.tracing.draws.of_numpy import common_state
from otm.tracing.traced_numbers import TracedArray

Code = Callable[[Any, Any, Any, Any], Hashable]
"""What answers on draft and target (arrays), drafts `(k,)` and uniforms `(n,)`; it may write into
all of them.
"""

Values = NDArray[Any] | float
"""One for each sequence, or the same for all."""

_LEAST_SIDE = 2.0**-50
"""A part of a uniform that is narrower than this is rounding, and stays with its neighbour."""

_OF_A_QUESTION = 2_000
_OF_A_WAY = 10_000
"""What a question, and the executions of a way, cost beside the sequences, in sequences."""

_CHECKS, _CHECKS_OF_NEXT = 64, 2
"""How often the first way, and each of the next, is executed on plain numbers: on its likeliest
sequence, then on any.
"""

_PACE = 64
"""After every so many ways it is asked whether the work will do."""


@dataclasses.dataclass(frozen=True, eq=False)
class Ways:
    """What came out.

    Attributes:
        found: (the numbers of the sequences, the answer, its probability on each of them together
            with the sequence).
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
        most_work: sequences that may be looked at, over all questions, before the rest stays
            unknown; sooner if it will not do.

    Raises:
        Escape: if it does what cannot be followed, or answers otherwise on plain arrays; the
            message says which.

    Cost: for each way two executions and, for each question, a few operations on arrays of N.
        Accuracy: 2⁻⁵⁰ for each question.
    """
    rng = np.random.default_rng(0)
    columns = np.asfortranarray(drafts)
    waiting = [Part(np.arange(len(drafts)), mass, {}, ())]
    found: list[tuple[NDArray[np.int64], Hashable, NDArray[np.float64]]] = []
    work, errors, drawn = 0, [0.0], _Generators()
    while waiting and work < most_work:
        run = Run(columns, waiting.pop())
        answer = code(
            draft.copy().view(Gathered),
            target.copy().view(Gathered),
            run.drafted(),
            run.uniforms(num_uniforms),
        )
        for row in run.likely(_CHECKS_OF_NEXT if found else _CHECKS, rng):
            point = run.point(row, rng.random(num_uniforms))
            if code(draft.copy(), target.copy(), drafts[run.rows[row]].copy(), point) != answer:
                drawn.require_unmoved()
                raise Escape(
                    "on plain numbers it answers otherwise: hidden state, its own randomness, or "
                    "an unknown operation"
                )
        if not found:
            drawn.require_unmoved()
        waiting += run.pending
        found.append((run.rows, answer, run.mass))
        errors.append(run.neglected)
        work += run.work + _OF_A_WAY
        if len(found) % _PACE == 0:
            left = math.fsum(part.probability for part in waiting)
            if left * work > 2.0 * (float(mass.sum()) - left) * (most_work - work):
                break
    drawn.require_unmoved()
    return Ways(
        found, math.fsum(errors) + math.fsum(part.probability for part in waiting), len(found)
    )


class _Generators:
    """Where the libraries' common generators were when it was made."""

    def __init__(self) -> None:
        torch = sys.modules.get("torch")
        self._torch = None if torch is None else torch.get_rng_state()
        self._python, self._numpy = random.getstate(), common_state()

    def require_unmoved(self) -> None:
        """Raise Escape if one is elsewhere now."""
        same = self._torch is None or sys.modules["torch"].equal(
            self._torch, sys.modules["torch"].get_rng_state()
        )
        if not (same and random.getstate() == self._python and common_state() == self._numpy):
            raise Escape(
                "it draws from random, numpy.random or torch, or seeds them: its own randomness"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Where a way goes on: the sequences on which the code may go it, how likely, and where their
    uniforms are.

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
        return _objects(
            [Varying(self, lambda rows, i=i: self.drafts[rows, i]) for i in range(k)]
        ).view(Drafted)

    def uniforms(self, count: int) -> TracedArray:
        """Return the uniforms `(count,)`."""
        return _objects([Varying(self, 0.0, axis=axis, slope=1.0) for axis in range(count)]).view(
            TracedArray
        )

    def point(self, row: int, anywhere: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return uniforms in the middle of a sequence's box, and anywhere on the axes that it
        leaves open.
        """
        for axis, (low, high) in self.here.sides.items():
            anywhere[axis] = 0.5 * (low[row] + high[row])
        return anywhere

    def likely(self, count: int, rng: np.random.Generator) -> list[int]:
        """Return the likeliest of the sequences, and others drawn by their probability."""
        cumulative = np.cumsum(self.mass)
        drawn = np.searchsorted(cumulative, rng.random(count - 1) * cumulative[-1], side="right")
        return [int(np.argmax(self.mass)), *np.minimum(drawn, len(cumulative) - 1).tolist()]

    def box(self, axis: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return low and high end of a uniform on each sequence."""
        count = len(self.rows)
        return self.here.sides.get(axis) or (np.zeros(count), np.ones(count))

    def answered(self) -> Any:
        """Return the answer to the next question if it is known, else None."""
        self.asked += 1
        return self.here.answers[self.asked - 1] if self.asked <= len(self.here.answers) else None

    def divide(self, parts: Sequence[Part]) -> Any:
        """Go on in the likeliest part that answers divide this one into, leave the others for
        later, and return its answer.
        """
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
        return self.divide(
            [
                self.part(value, np.isnan(found) if value != value else found == value)
                for value in known
            ]
        )

    def below(self, axis: int, slope: Values, bound: Values, otherwise: Callable[[], Any]) -> bool:
        """Ask whether slope · u is below the bound, u a uniform.

        Args:
            axis: which.
            slope, bound: on each sequence.
            otherwise: the answer on each where it is the same for all u (`_is_fixed`).
        """
        low, high = self.box(axis)
        slope, bound = np.broadcast_to(slope, len(low)), np.broadcast_to(bound, len(low))
        with np.errstate(all="ignore"):
            at = np.asarray(bound / slope)
        rising, fixed = slope >= 0.0, _is_fixed(slope, bound)
        if fixed.any():
            at = np.where(fixed, np.where(otherwise() == rising, high, low), at)
        at = np.clip(at, low, high)
        width = high - low
        for end in (low, high):
            near = (at != end) & (np.abs(at - end) < _LEAST_SIDE)
            if near.any():
                self.neglected += float((self.mass * np.abs(at - end) / width)[near].sum())
                at = np.where(near, end, at)
        share = (at - low) / width
        return bool(
            self.divide(
                [
                    self._side(axis, answer, rising == answer, (low, at, high), share, width)
                    for answer in (True, False)
                ]
            )
        )

    def _side(self, axis: int, answer: bool, lower: Any, ends: Any, share: Any, width: Any) -> Part:
        """Return the part of each sequence's box, below or above a threshold, where the answer is
        this one.
        """
        low, at, high = ends
        mass = self.mass * np.where(lower, share, (high - at) / width)
        stays = mass > 0.0
        part = self.part(answer, stays)
        sides = {
            **part.sides,
            axis: (np.where(lower, low, at)[stays], np.where(lower, at, high)[stays]),
        }
        return dataclasses.replace(part, mass=mass[stays], sides=sides)


class Varying:
    """A number that differs between sequences, alone or as the slope of one uniform: constant +
    slope · u.
    """

    __slots__ = ("axis", "constant", "run", "slope")

    def __init__(
        self, run: Run, constant: Any, *, axis: int | None = None, slope: Any = 0.0
    ) -> None:
        self.run, self.constant, self.axis, self.slope = run, constant, axis, slope

    def now(self) -> Values:
        """Return the constant on the sequences that are still here."""
        values: Values = _at(self.constant, self.run.rows)
        return values

    def middle(self) -> Values:
        """Return the number in the middle of each sequence's box."""
        if self.axis is None:
            return self.now()
        low, high = self.run.box(self.axis)
        slope = np.asarray(_at(self.slope, self.run.rows))
        with np.errstate(all="ignore"):
            values = np.asarray(self.now() + slope * (0.5 * (low + high)))
        if (np.isnan(values) & ~np.isfinite(slope)).any():
            raise Escape("it divides a random number by 0, or multiplies it by infinity")
        return values

    def resolved(self) -> Any:
        """Become a plain number: the run goes on where it is that one."""
        self.require_known()
        return self.run.one_of(self.now)

    def require_known(self) -> None:
        """Raise Escape if it has a uniform."""
        if self.axis is not None:
            raise Escape("a random number was converted to a plain float")

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

    def __copy__(self) -> Varying:
        return self

    def __deepcopy__(self, known: object) -> Varying:
        return self  # questions belong to the run

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
        one, two = (
            (self, _as_varying(other, self.run))
            if self.axis is not None
            else (_as_varying(other, self.run), self)
        )
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
        slope = _joined(operation, self.slope, by)
        if self.axis is not None:

            def constant(one: Any, other: Any) -> Any:
                """Leave 0 · ∞ to the slope: u/0 is infinite."""
                return np.where((one == 0.0) & ~np.isnan(other), 0.0, operation(one, other))

            return Varying(
                self.run, _joined(constant, self.constant, by), axis=self.axis, slope=slope
            )
        return Varying(self.run, _joined(operation, self.constant, by))

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
        if (
            func in _SYMMETRIC
            and len(args) == 1
            and set(kwargs) <= {"minlength"}
            and _is_numbers(args[0])
        ):
            return func(args[0].sorted(), **kwargs)
        return func(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})

    def sorted(self) -> NDArray[Any]:
        """Become plain numbers in ascending order; in which they were drafted is not asked."""
        run = self[0].run
        for draft in self:
            draft.require_known()

        def sets() -> NDArray[np.int64]:
            """Number the multisets by the first sequence that has them."""
            rows = np.sort(
                np.transpose([np.broadcast_to(draft.now(), len(run.rows)) for draft in self]),
                axis=1,
            )
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
            return super().__getitem__(
                [int(each) if isinstance(each, Varying) else each for each in key]
            )
        keys = key if isinstance(key, tuple) else (key,)
        tokens = [each for each in keys if isinstance(each, Varying)]
        if (
            not tokens
            or self.dtype == object
            or len(keys) != self.ndim
            or not all(map(_is_index, keys))
        ):
            return super().__getitem__(key)
        table = np.array(self, subok=False)  # as it is now

        def value(rows: NDArray[np.int64]) -> Any:
            return table[
                tuple(
                    _at(each.constant, rows) if isinstance(each, Varying) else each for each in keys
                )
            ]

        return Varying(tokens[0].run, value)


def _is_index(thing: Any) -> bool:
    return (isinstance(thing, Varying) and thing.axis is None) or isinstance(
        thing, int | np.integer
    )


_SYMMETRIC = (np.bincount, np.sort, np.unique)
"""Functions of an array that do not depend on its order."""


def _is_numbers(thing: Any) -> bool:
    return (
        isinstance(thing, Drafted)
        and thing.ndim == 1
        and thing.size > 0
        and all(isinstance(each, Varying) for each in thing)
    )


def _plain(thing: Any) -> Any:
    """Resolve the drafts, and what was computed of them, in an argument of a function of NumPy."""
    if type(thing) in (list, tuple):
        return type(thing)(map(_plain, thing))
    if not isinstance(thing, Drafted):
        return thing
    if thing.dtype != object:
        return np.asarray(thing)
    values = np.array(
        [each.resolved() if isinstance(each, Varying) else each for each in thing.reshape(-1)]
    )
    whole = values.dtype.kind in "iuf" and bool(
        (values == np.floor(values)).all()
    )  # x + 1 is a float here, and an integer there
    return values.astype(np.int64 if whole else values.dtype).reshape(thing.shape)


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
    exactly = operation in (operator.eq, operator.ne)
    if not exactly and None not in (one.axis, two.axis) and one.axis != two.axis:
        raise Escape("it compares its uniforms with each other")

    def middle() -> Any:
        return np.asarray(operation(one.middle(), two.middle()))

    def difference() -> tuple[Any, Any]:
        with np.errstate(all="ignore"):
            slopes = [np.asarray(_at(each.slope, run.rows)) for each in (one, two)]
            slope = (
                slopes[0] - slopes[1]
                if one.axis == two.axis or None in (one.axis, two.axis)
                else abs(slopes[0]) + abs(slopes[1])
            )
            return slope, np.asarray(two.now()) - np.asarray(one.now())

    if exactly:  # a uniform is no given number
        return bool(
            run.one_of(
                lambda: np.where(_is_fixed(*difference()), middle(), operation is operator.ne)
            )
        )
    answer = run.answered()
    if answer is not None:
        return answer
    axis = one.axis if two.axis is None else two.axis
    assert axis is not None
    slope, bound = difference()
    if operation in (operator.lt, operator.le):
        return run.below(axis, slope, bound, middle)
    return run.below(axis, -slope, -bound, middle)


def _is_fixed(slope: Any, bound: Any) -> Any:
    """Whether slope · u < bound is true of all u, or of none: without a slope, and where ∞ is
    compared.
    """
    return (slope == 0.0) | ~np.isfinite(slope) | np.isnan(bound)
