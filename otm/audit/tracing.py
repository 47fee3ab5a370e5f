"""Numbers that record how they are compared: the way to integrate somebody's code over its uniforms, exactly.

A verifier uses its uniforms by comparing them: with an acceptance probability, with a cumulative sum, with each other. Inside a box
of uniforms on which every comparison comes out the same way the output is constant, and the volume of the box is its probability.
So the code is run on numbers that know only which box they are in. A comparison that the box decides is answered; one that it does
not decide splits the box, at the very float where the comparison changes its answer, and the run goes on in one part while the
other waits its turn. When nothing waits, the boxes tile [0, 1)^n and the law of the output is a sum of volumes.

A comparison with a number, or of any monotone function of one uniform with a number (``u * total < c``, ``log(u) < c``), splits
once, exactly. A comparison between uniforms (races) has a slanted boundary: boxes are halved there, the most voluminous first,
until the budget is spent, and what is then left undecided is an error bound that needs no assumption.

The numbers travel in NumPy arrays of dtype object, whose comparison, arithmetic, `searchsorted`, `argmin`, `where`, `sort` and
elementary functions call the methods below. Code that converts them to plain floats is noticed, and the attempt is void: see
`otm.audit.probing` for what is done then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import itertools
import math
import struct
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_SLANTED = 1_500
"""How many boxes are halved along slanted boundaries, over all functions of an audit, before what is undecided stays so."""

MOST_WORK = 40_000
"""How many boxes are visited or set aside, over all functions of an audit: ``int(u * 2**32)`` has no end."""

_NO_VOLUME = 1e-30

_CHECKS = 32

_SPLITS_PER_RUN = 400
_LEAST_WIDTH = 2.0**-50

Evaluation = Callable[[Sequence[float]], float]
Bounds = Callable[[], tuple[float, float]]

_UNKNOWN = math.nan, math.nan
"""Bounds of what may be NaN on the box, or anything at all: no comparison with it is decided."""


@dataclasses.dataclass(frozen=True, eq=False)
class Integral:
    """The law of a function of n uniforms.

    Attributes:
        mass: probability of each value.
        undecided: volume of the boxes on which the value is not known; a bound on the error of each probability, and of the law in
            total variation.
        cells: number of boxes.
    """

    mass: dict[Hashable, float]
    undecided: float
    cells: int


@dataclasses.dataclass(eq=False)
class _Run:
    """One execution: the box it is in, the parts split off on the way, and whether the trace is complete."""

    low: list[float]
    high: list[float]
    pending: list[tuple[list[float], list[float]]] = dataclasses.field(default_factory=list)
    escaped: bool = False
    undecided: bool = False
    slanted: bool = False

    @property
    def middle(self) -> list[float]:
        # Between neighbouring floats the mean rounds to one of them; the upper one is not in the box.
        return [min(0.5 * (a + b), math.nextafter(b, 0.0)) for a, b in zip(self.low, self.high, strict=True)]

    @property
    def volume(self) -> float:
        return math.prod(b - a for a, b in zip(self.low, self.high, strict=True))

    def split(self, axis: int, at: float, keep_low: bool) -> None:
        """Go on in one part of the box and leave the other for later."""
        other_low, other_high = list(self.low), list(self.high)
        if keep_low:
            self.high[axis] = other_low[axis] = at
        else:
            self.low[axis] = other_high[axis] = at
        self.pending.append((other_low, other_high))


class Number:
    """A function of the uniforms, known on the current box: what the code under audit computes with.

    Args:
        run: the execution that it belongs to.
        axes: which uniforms it depends on.
        value: evaluates it at a point.
        bounds: bounds it on the current box.
        monotone: whether it is a monotone function of a single uniform.
    """

    __slots__ = ("axes", "bounds", "monotone", "run", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, run: _Run, axes: frozenset[int], value: Evaluation, bounds: Bounds, monotone: bool) -> None:
        self.run, self.axes, self.value, self.bounds, self.monotone = run, axes, value, bounds, monotone

    def __repr__(self) -> str:
        self.run.escaped = True  # digits are a way to read the number, too
        low, high = self.bounds()
        return f"Number({low:.6g}..{high:.6g})"

    def __format__(self, specification: str) -> str:
        return format(float(self), specification)

    # Comparisons: everything the law of the output depends on.
    def __lt__(self, other: Any) -> Any:
        return _compare(self, other, strict=True)

    def __le__(self, other: Any) -> Any:
        return _compare(self, other, strict=False)

    def __gt__(self, other: Any) -> Any:
        return _compare(other, self, strict=True)

    def __ge__(self, other: Any) -> Any:
        return _compare(other, self, strict=False)

    def __eq__(self, other: object) -> bool:
        if _side(other) is None:
            return False
        return bool(_compare(self, other, strict=False)) and bool(_compare(other, self, strict=False))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self != 0.0

    # Arithmetic.
    def __neg__(self) -> Number:
        return _unary(self, lambda x: -x)

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        return -self if self < 0.0 else self

    def __add__(self, other: Any) -> Any:
        return _binary(self, other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return _binary(other, self, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return _binary(self, other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return _binary(other, self, lambda a, b: a - b)

    def __mul__(self, other: Any) -> Any:
        return _binary(self, other, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Any:
        return _binary(other, self, lambda a, b: a * b)

    def __truediv__(self, other: Any) -> Any:
        return _quotient(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _quotient(other, self)

    # Elementary functions, by the names under which NumPy's object loops look for them.
    def exp(self) -> Number:
        """Return e^x."""
        return _unary(self, np.exp)

    def expm1(self) -> Number:
        """Return e^x − 1."""
        return _unary(self, np.expm1)

    def log(self) -> Number:
        """Return the natural logarithm, −∞ at 0."""
        return _unary(self, np.log)

    def log1p(self) -> Number:
        """Return log(1 + x)."""
        return _unary(self, np.log1p)

    def sqrt(self) -> Number:
        """Return the square root."""
        return _unary(self, np.sqrt)

    # Conversions that leave the trace.
    def __float__(self) -> float:
        self.run.escaped = True
        return self.value(self.run.middle)

    def __index__(self) -> int:
        self.run.escaped = True
        raise TypeError("a uniform is no index")

    def __int__(self) -> int:
        """Truncate; each integer in reach is a comparison (``int(u * n)`` draws uniformly)."""
        return self.__floor__() if self >= 0.0 else -(-self).__floor__()

    __trunc__ = __int__

    def __floor__(self) -> int:
        """Round down."""
        # A box that was split goes on elsewhere than at its old middle: begin again there, not one integer further.
        while True:
            floor = math.floor(self.value(self.run.middle))
            if not self < float(floor) and not self >= float(floor + 1):
                return floor

    def floor(self) -> float:
        """Round down, as `numpy.floor` does."""
        return float(self.__floor__())


class Uniforms(np.ndarray[Any, Any]):
    """An object array of numbers; it only makes `searchsorted` look values up one by one.

    NumPy's own compares neighbouring values with each other first, to narrow its search: a comparison that the law of the output
    does not depend on and that would split the box along a diagonal.
    """

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.searchsorted and len(args) >= 2 and isinstance(args[1], np.ndarray) and args[1].dtype == object:
            table, values = np.asarray(args[0]), np.asarray(args[1])
            found = [func(table, value, *args[2:], **kwargs) for value in values.reshape(-1)]
            return np.asarray(found, dtype=np.int64).reshape(values.shape)
        return super().__array_function__(func, types, args, kwargs)


def integrate(
    function: Callable[[NDArray[Any]], Hashable],
    num_uniforms: int,
    *,
    most_slanted: int = MOST_SLANTED,
    most_work: int = MOST_WORK,
) -> Integral | None:
    """Return the law of `function(uniforms)` by running it on boxes of uniforms, or None if the trace is incomplete.

    Args:
        function: takes uniforms `(num_uniforms,)`, an object array of `Number` or a float64 array, and returns a hashable value.
        num_uniforms: n.
        most_slanted: budget of runs that compare uniforms with each other.
        most_work: budget of boxes in all, those counted that a run sets aside for later.

    Returns:
        Integral, or None if the function converted a uniform to a plain number, raised, or gave another value on plain floats from
        the same box.

    Cost: two runs per box and 32 more. Accuracy: each boundary is exact to the last bit of the float that the code compares, 2^-53
    per box.
    """
    everything = ([0.0] * num_uniforms, [1.0] * num_uniforms)
    tie = itertools.count()
    waiting = [(-1.0, next(tie), everything)]
    masses: dict[Hashable, list[float]] = {}
    undecided: list[float] = []
    leaves: list[tuple[list[float], list[float], Hashable]] = []
    cells = slanted = work = 0
    while waiting and slanted < most_slanted and work < most_work:
        run = _Run(*heapq.heappop(waiting)[2])
        value = _execute(function, run)
        if run.escaped:
            return None
        cells += 1
        work += 1 + len(run.pending)
        slanted += run.slanted
        for low, high in run.pending:
            size = math.prod(b - a for a, b in zip(low, high, strict=True))
            if size > 0.0:
                heapq.heappush(waiting, (-size, next(tie), (low, high)))
        if run.undecided:
            undecided.append(run.volume)
        else:
            masses.setdefault(value, []).append(run.volume)
            leaves.append((run.low, run.high, value))
    if not _confirmed(function, leaves, num_uniforms):
        return None
    undecided += [-size for size, _, _ in waiting]
    return Integral(mass={v: math.fsum(m) for v, m in masses.items()}, undecided=math.fsum(undecided), cells=cells)


def _execute(function: Callable[[NDArray[Any]], Hashable], run: _Run) -> Hashable:
    """Run the code on a box, then on plain floats from what became of the box; disagreement or an exception voids the trace."""
    numbers: NDArray[Any] = np.empty(len(run.low), dtype=object)
    for axis in range(len(run.low)):
        numbers[axis] = _uniform(run, axis)
    try:
        # Whatever the code does with objects it was not written for must not end the audit: plain floats come next.
        with contextlib.suppress(Exception), np.errstate(all="ignore"):
            value = function(numbers.view(Uniforms))
            if run.escaped:
                return None
            # Boxes of no volume, where a uniform is exactly 0, may hold a 0/0 that objects and floats treat differently.
            if run.undecided or run.volume < _NO_VOLUME or function(np.asarray(run.middle)) == value:
                return value
    except RecursionError:  # pragma: no cover - a callable that recurses on its own comparison
        pass
    run.escaped = True
    return None


def _confirmed(
    function: Callable[[NDArray[Any]], Hashable], leaves: list[tuple[list[float], list[float], Hashable]], num_uniforms: int
) -> bool:
    """Run the code on plain floats at random points: code with randomness of its own does not keep to its boxes."""
    lows = np.asarray([low for low, _, _ in leaves]).reshape(len(leaves), num_uniforms)
    highs = np.asarray([high for _, high, _ in leaves]).reshape(len(leaves), num_uniforms)
    for point in np.random.default_rng(0).random((_CHECKS, num_uniforms)):
        inside = np.flatnonzero(((lows <= point) & (point < highs)).all(axis=1))
        if inside.size and function(point.copy()) != leaves[int(inside[0])][2]:
            return False
    return True


def _uniform(run: _Run, axis: int) -> Number:
    def bounds() -> tuple[float, float]:
        return run.low[axis], math.nextafter(run.high[axis], 0.0)  # the box is half-open

    return Number(run, frozenset([axis]), lambda point: point[axis], bounds, True)


def _unary(child: Number, function: Callable[[float], Any]) -> Number:
    """Apply a monotone function."""

    def apply(x: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(x))

    def bounds() -> tuple[float, float]:
        first, last = (apply(x) for x in child.bounds())
        if math.isnan(first) or math.isnan(last):
            return _UNKNOWN
        return (first, last) if first <= last else (last, first)

    return Number(child.run, child.axes, lambda point: apply(child.value(point)), bounds, child.monotone)


def _binary(left: Any, right: Any, function: Callable[[float, float], float]) -> Any:
    """Combine by +, − or ×: monotone in each argument, so the extremes lie at the corners."""
    if isinstance(left, Number) and isinstance(right, Number):
        one, other = left, right

        def bounds() -> tuple[float, float]:
            corners = [function(a, b) for a in one.bounds() for b in other.bounds()]
            # ∞ − ∞ or 0·∞ at a corner: min and max would depend on the order.
            return _UNKNOWN if any(map(math.isnan, corners)) else (min(corners), max(corners))

        def value(point: Sequence[float]) -> float:
            return function(one.value(point), other.value(point))

        return Number(left.run, left.axes | right.axes, value, bounds, False)
    constant = _as_float(right if isinstance(left, Number) else left)
    if constant is None:
        return NotImplemented
    if math.isnan(constant):
        return constant
    if isinstance(left, Number):
        return _unary(left, lambda x: function(x, constant))
    return _unary(right, lambda x: function(constant, x))


def _quotient(left: Any, right: Any) -> Any:
    """Divide; by a number whose sign the box leaves open the bounds say nothing."""
    if not isinstance(right, Number):
        return _binary(left, right, _divide)
    if isinstance(left, Number):
        return _binary(left, _quotient(1.0, right), lambda a, b: a * b)
    constant = _as_float(left)
    if constant is None:
        return NotImplemented
    divisor, exact = right, _unary(right, lambda x: _divide(constant, x))

    if math.isnan(constant):
        return constant

    def bounds() -> tuple[float, float]:
        low, high = divisor.bounds()
        # The sign of a zero at an end may be the other one than that of everything else in the box.
        if low < 0.0 <= high or (low == 0.0 and math.copysign(1.0, low) < 0.0):
            return (-math.inf, math.inf) if constant and math.isfinite(constant) else _UNKNOWN
        return exact.bounds()

    return Number(right.run, right.axes, exact.value, bounds, right.monotone and right.bounds()[0] >= 0.0)


def _divide(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def _as_float(value: Any) -> float | None:
    """Return a plain number as a float; None for what arithmetic with a number does not apply to (arrays take over then)."""
    if isinstance(value, np.ndarray) and value.ndim:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _compare(left: Any, right: Any, *, strict: bool) -> Any:
    """Return left < right (or ≤), splitting the box if it leaves that open."""
    if left is right and not math.isnan(left.bounds()[0]):
        return not strict
    run: _Run = left.run if isinstance(left, Number) else right.run
    one, other = _side(left), _side(right)
    if one is None or other is None:
        return NotImplemented
    if any(not isinstance(side, Number) and math.isnan(float(side)) for side in (left, right)):
        return False
    (value_of_left, bounds_of_left), (value_of_right, bounds_of_right) = one, other

    def at(point: Sequence[float]) -> bool:
        a, b = value_of_left(point), value_of_right(point)
        return a < b if strict else a <= b

    def answer() -> bool | None:
        (least, most), (lowest, highest) = bounds_of_left(), bounds_of_right()
        if math.isnan(least) or math.isnan(lowest):
            return None
        return _ordered(least, most, lowest, highest, strict)

    for _ in range(_SPLITS_PER_RUN):
        known = answer()
        if known is not None:
            return known
        if run.escaped or run.undecided or not _narrow(run, left, right, at):
            break
    run.undecided = True
    return at(run.middle)


def _side(thing: Any) -> tuple[Evaluation, Bounds] | None:
    """Return how to evaluate and bound one side of a comparison."""
    if isinstance(thing, Number):
        return thing.value, thing.bounds
    constant = _as_float(thing)
    if constant is None:
        return None
    return lambda point: constant, lambda: (constant, constant)


def _ordered(least: float, most: float, lowest: float, highest: float, strict: bool) -> bool | None:
    if (most < lowest) if strict else (most <= lowest):
        return True
    if (least >= highest) if strict else (least > highest):
        return False
    return None


def _narrow(run: _Run, left: Any, right: Any, at: Callable[[Sequence[float]], bool]) -> bool:
    """Split the box so that the comparison comes closer to an answer; return False if it cannot be split further."""
    numbers = [side for side in (left, right) if isinstance(side, Number)]
    axes = frozenset[int]().union(*(number.axes for number in numbers))
    if len(numbers) == 1 and numbers[0].monotone:
        return _split_exactly(run, numbers[0], at)
    run.slanted = True
    axis = max(axes, key=lambda i: run.high[i] - run.low[i])
    if run.high[axis] - run.low[axis] < _LEAST_WIDTH:
        return False
    middle = 0.5 * (run.low[axis] + run.high[axis])
    # Go on where the corners agree, if they agree anywhere: that part is likely settled soonest.
    upper = run.low[axis], middle
    keep_low = _agree(run, axis, *upper, at=at) or not _agree(run, axis, middle, run.high[axis], at=at)
    run.split(axis, middle, keep_low)
    return True


def _agree(run: _Run, axis: int, low: float, high: float, *, at: Callable[[Sequence[float]], bool]) -> bool:
    ends = [(a, math.nextafter(b, 0.0)) for a, b in zip(run.low, run.high, strict=True)]
    ends[axis] = low, math.nextafter(high, 0.0)
    return len({at([end[0] for end in ends]), at([end[1] for end in ends])}) == 1 and (
        at([end[j % 2] for j, end in enumerate(ends)]) == at([end[(j + 1) % 2] for j, end in enumerate(ends)])
    )


def _split_exactly(run: _Run, number: Number, at: Callable[[Sequence[float]], bool]) -> bool:
    """Split at the first float of the axis where a monotone comparison changes its answer."""
    (axis,) = number.axes
    point = list(run.low)

    def holds(u: float) -> bool:
        point[axis] = u
        return at(point)

    low, high = run.low[axis], math.nextafter(run.high[axis], 0.0)
    before, after = holds(low), holds(high)
    if before == after:
        if low == 0.0 < high and math.isnan(number.value([0.0] * len(run.low))):  # log(0)·0, 0/0: that one point apart
            run.split(axis, math.ulp(0.0), keep_low=False)
            return True
        # Something may be NaN inside (a logarithm of negative numbers): tracing gives up. Otherwise rounding made the bounds
        # wider than the function: nothing to split, nothing to decide.
        run.escaped = run.escaped or math.isnan(number.bounds()[0])
        return False
    # Non-negative floats are ordered as their bit patterns are: 62 halvings at most, however close to 0 the boundary lies.
    first, last = _bits(low), _bits(high)
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if holds(_float(middle)) == before else (first, middle)
    at_float = _float(last)
    run.split(axis, at_float, keep_low=at_float - run.low[axis] >= run.high[axis] - at_float)
    return True


def _bits(value: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def _float(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value
