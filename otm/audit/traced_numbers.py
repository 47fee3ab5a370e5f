"""Numbers that record how they are compared: each knows only which box of uniforms it is in.

A comparison that the box decides is answered. One that it does not decide splits the box (`otm.audit.boxes`), at the very float
where the comparison changes its answer, and the execution goes on in one part.

A comparison with a number, or of any monotone function of one uniform with a number (``u * total < c``, ``log(u) < c``), splits
once, exactly. A comparison between uniforms (races) has a slanted boundary: boxes are halved there until the audit's budget is
spent.

The numbers travel in NumPy arrays of dtype object, whose comparison, arithmetic, `searchsorted`, `argmin`, `where`, `sort` and
elementary functions call the methods below. Code that converts them to plain floats is noticed.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from otm.audit.boxes import Execution

_SPLITS_PER_COMPARISON = 400

Evaluation = Callable[[Sequence[float]], float]
Bounds = Callable[[], tuple[float, float]]

_UNKNOWN = math.nan, math.nan
"""Bounds of what may be NaN on the box, or anything at all: no comparison with it is decided."""


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

    def __init__(self, run: Execution, axes: frozenset[int], value: Evaluation, bounds: Bounds, monotone: bool) -> None:
        self.run, self.axes, self.value, self.bounds, self.monotone = run, axes, value, bounds, monotone

    def __repr__(self) -> str:
        self.run.escaped = True  # digits are a way to read the number, too
        low, high = self.bounds()
        return f"Number({low:.6g}..{high:.6g})"

    def __format__(self, specification: str) -> str:
        return format(float(self), specification)

    # Comparisons: everything the law of the output depends on.
    def __lt__(self, other: Any) -> Any:
        return _compare(self, other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return _compare(self, other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return _compare(other, self, operator.lt)

    def __ge__(self, other: Any) -> Any:
        return _compare(other, self, operator.le)

    def __eq__(self, other: object) -> bool:
        if _as_number(other, self.run) is None:
            return False
        return bool(_compare(self, other, operator.le)) and bool(_compare(other, self, operator.le))

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


class TracedArray(np.ndarray[Any, Any]):
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


def _compare(left: Any, right: Any, order: Callable[[float, float], bool]) -> Any:
    """Return whether left < right, or ≤ as `order` says, splitting the box until the answer is the same all over it."""
    run: Execution = left.run if isinstance(left, Number) else right.run
    one, other = _as_number(left, run), _as_number(right, run)
    if one is None or other is None:
        return NotImplemented
    if any(not side.axes and math.isnan(side.bounds()[0]) for side in (one, other)):
        return False
    comparison = _Comparison(run, one, other, order)
    for _ in range(_SPLITS_PER_COMPARISON):
        known = comparison.answer()
        if known is not None:
            return known
        if run.escaped or run.undecided or not comparison.narrow():
            break
    run.undecided = True
    return comparison.at(run.middle)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Comparison:
    """A comparison of two numbers, as a function of the uniforms; `order` is < or ≤."""

    run: Execution
    left: Number
    right: Number
    order: Callable[[float, float], bool]

    def at(self, point: Sequence[float]) -> bool:
        return self.order(self.left.value(point), self.right.value(point))

    def answer(self) -> bool | None:
        """Return the answer if the bounds give the same all over the box."""
        (least, most), (lowest, highest) = self.left.bounds(), self.right.bounds()
        if math.isnan(least) or math.isnan(lowest):
            return None
        if self.left is self.right:
            return self.order(least, least)
        if self.order(most, lowest):
            return True
        return None if self.order(least, highest) else False

    def narrow(self) -> bool:
        """Split the box so that the comparison comes closer to an answer; return False if it cannot be split further."""
        run, number = self.run, self.left if self.left.axes else self.right
        if not number.monotone or (self.left.axes and self.right.axes):
            return run.halve(self.left.axes | self.right.axes, self.at)
        (axis,) = number.axes
        if run.split_at_change(axis, self.at):
            return True
        # The same answer at both ends, yet the bounds leave it open.
        origin = [0.0] * len(run.low)
        if run.low[axis] == 0.0 and run.high[axis] > math.ulp(0.0) and math.isnan(number.value(origin)):
            run.split(axis, math.ulp(0.0), keep_low=False)  # log(0)·0, 0/0: that one point apart
            return True
        # Something may be NaN inside (a logarithm of negative numbers): tracing gives up. Otherwise rounding made the bounds
        # wider than the function: nothing to split, nothing to decide.
        run.escaped = run.escaped or math.isnan(number.bounds()[0])
        return False


def _as_number(thing: Any, run: Execution) -> Number | None:
    """Return one side of a comparison, a constant as a number that depends on no uniform; None for what is none."""
    if isinstance(thing, Number):
        return thing
    constant = _as_float(thing)
    if constant is None:
        return None
    return Number(run, frozenset(), lambda point: constant, lambda: (constant, constant), True)


def uniform(run: Execution, axis: int) -> Number:
    """Return the uniform along an axis."""

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
