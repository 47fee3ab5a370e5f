"""Numbers that record comparisons: each is known only by the box of uniforms.

A comparison that the box decides is answered. One that it does not decide divides the execution
(`otm.audit.tracing.execution`):

* a comparison with a number, of any monotone function of one uniform (``u * total < c``, ``log(u) <
  c``), splits the box once, at the very float where the comparison changes its answer;
* a comparison of functions of −log u, linear up to a monotone map (``w/E``, ``log w + g``,
  ``u**(1/w)``), is a race, and exact (`otm.audit.tracing.exponentials`);
* any other comparison between uniforms has a slanted boundary: boxes are halved there until the
  audit's budget is spent.

The numbers travel in NumPy arrays of dtype object, whose comparison, arithmetic, `searchsorted`,
`argmin`, `where`, `sort` and elementary functions call the methods below, and beside torch tensors
(`otm.audit.tracing.intercept.of_torch`). Code that converts them to plain floats is stopped.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence

# by name, since `math` itself is patched while code is traced
from math import copysign, exp, floor, inf, isfinite, isinf, isnan, log, nan, ulp
from typing import Any, Literal

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from otm.audit.tracing.execution import Execution
from otm.audit.tracing.exponentials import LinearForm, UniformSource, least, sign

_SPLITS_PER_COMPARISON = 400

Evaluation = Callable[[Sequence[float]], float]
Bounds = Callable[[], tuple[float, float]]

_UNKNOWN = nan, nan
"""Bounds of a number that may be NaN on the box, or anything: no comparison with the number is
decided.
"""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class MonotoneForm:
    """A number as a monotone map of a form L of exponentials.

    Attributes:
        kind: "line" L^s with s = ±1, "power" e^{−L}, "log" s·log L.
        form: L, over sources; positive where the number is not L itself or e^{−L}.
        scale: s.
    """

    kind: Literal["line", "power", "log"]
    form: LinearForm
    scale: float = 1.0

    @property
    def falling(self) -> bool:
        """True if the number falls where L grows."""
        return self.kind == "power" or self.scale < 0.0

    def like(self, other: MonotoneForm) -> bool:
        """True if two numbers have the same order as the forms."""
        return self.kind == other.kind and self.scale == other.scale

    def plus(self, c: float) -> MonotoneForm | None:
        """Return the shape of the number plus c."""
        if c == 0.0:
            return self
        if self.kind == "line" and self.scale == 1.0:
            return MonotoneForm("line", self.form.shifted(c))
        if self.kind == "log" and abs(c / self.scale) < 700.0:
            return MonotoneForm("log", self.form.scaled(exp(c / self.scale)), self.scale)
        if self.kind == "power":
            return self.neglecting(c)  # u + ε: uniform on [ε, 1 + ε), which is [0, 1) but for ε
        return None

    def neglecting(self, amount: float) -> MonotoneForm | None:
        """Return the shape of a number changed by a tiny amount, or with a tiny probability."""
        terms = self.form.terms
        if len(terms) != 1 or self.form.constant != 0.0:
            return None
        near = self.form.shifted(amount)
        return MonotoneForm(self.kind, near, self.scale) if near.constant == 0.0 else None

    def times(self, c: float) -> MonotoneForm | None:
        """Return the shape of c times the number."""
        if c == 0.0 or not isfinite(c):
            return None
        if self.kind == "line":
            factor = c if self.scale > 0.0 else 1.0 / c
            return MonotoneForm("line", self.form.scaled(factor), self.scale)
        if self.kind == "log":
            return MonotoneForm("log", self.form, self.scale * c)
        return MonotoneForm("power", self.form.shifted(-log(c))) if c > 0.0 else None

    def inverted(self, c: float) -> MonotoneForm | None:
        """Return the shape of c over the number."""
        if self.kind != "line":
            return None
        return MonotoneForm("line", self.form, -self.scale).times(c)

    def exp(self) -> MonotoneForm | None:
        """Return the shape of the exponential."""
        if self.kind == "line" and self.scale == 1.0:
            return MonotoneForm("power", self.form.scaled(-1.0))
        if self.kind == "log" and self.scale in (1.0, -1.0):
            return MonotoneForm("line", self.form, self.scale)
        return None

    def log(self) -> MonotoneForm | None:
        """Return the shape of the logarithm."""
        if self.kind == "power":
            return MonotoneForm("line", self.form.scaled(-1.0))
        return MonotoneForm("log", self.form, self.scale) if self.kind == "line" else None

    def power(self, c: float) -> MonotoneForm | None:
        """Return the shape of the number to the c."""
        if self.kind == "power" and c > 0.0 and isfinite(c):
            return MonotoneForm("power", self.form.scaled(c))
        return self.inverted(1.0) if c == -1.0 else None


class TracedNumber:
    """A number under trace: a function of the uniforms, known on the current box.

    Args:
        run: the execution that it belongs to.
        sources: which uniforms it depends on.
        value: evaluates it at a point.
        bounds: bounds it on the current box.
        monotone: whether it is a monotone function of a single uniform.
        shape: what it is as a function of exponentials, where that is simple.
    """

    __slots__ = ("bounds", "monotone", "negative_of", "run", "shape", "sources", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        run: Execution,
        sources: frozenset[UniformSource],
        value: Evaluation,
        bounds: Bounds,
        monotone: bool,
        shape: MonotoneForm | None = None,
    ) -> None:
        self.run, self.sources, self.value, self.bounds, self.monotone, self.shape = (
            run,
            sources,
            value,
            bounds,
            monotone,
            shape,
        )
        self.negative_of: TracedNumber | None = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Present the number to torch as an overriding type; the interceptor is called first."""
        return NotImplemented

    @property
    def axes(self) -> frozenset[int]:
        """The axes of the box on which the number depends."""
        return frozenset().union(*(source.axes for source in self.sources))

    def __repr__(self) -> str:
        self.run.abort("a random number was printed")  # digits are a way to read the number, too
        low, high = self.bounds()
        return f"TracedNumber({low:.6g}..{high:.6g})"

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

    def __eq__(self, other: object) -> Any:
        below = _compare(self, other, operator.le)
        return (
            below
            if below is NotImplemented
            else bool(below) and bool(_compare(other, self, operator.le))
        )

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return equal if equal is NotImplemented else not equal

    def __bool__(self) -> bool:
        return bool(self != 0.0)

    # Arithmetic.
    def __neg__(self) -> TracedNumber:
        negative = _unary(self, lambda x: -x, self.shape and self.shape.times(-1.0))
        negative.negative_of = self
        return negative

    def __pos__(self) -> TracedNumber:
        return self

    def __abs__(self) -> TracedNumber:
        return -self if self < 0.0 else self

    def __add__(self, other: Any) -> Any:
        return _binary(self, other, operator.add, MonotoneForm.plus)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _binary(self, other, operator.sub, lambda shape, c: shape.plus(-c))

    def __rsub__(self, other: Any) -> Any:
        mirrored = _mirrored(self) if _as_float(other) == 1.0 else None
        return -self + other if mirrored is None else mirrored

    def __mul__(self, other: Any) -> Any:
        return _binary(self, other, operator.mul, MonotoneForm.times)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return _quotient(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _quotient(other, self)

    def __pow__(self, other: Any) -> Any:
        exponent = _as_float(other)
        if exponent is None:
            return NotImplemented
        if exponent == 0.0:
            return 1.0
        if isinf(exponent) and self.bounds()[0] >= 0.0 and self.bounds()[1] < 1.0:
            return 0.0 if exponent > 0.0 else inf  # u ** (1/0): no weight
        if exponent != 1.0 and not self >= 0.0:
            raise self.run.abort("a power of a random number of either sign")
        return _unary(
            self, lambda x: _power(x, exponent), self.shape and self.shape.power(exponent)
        )

    # Elementary functions, by the names under which NumPy's object loops look for them.
    def exp(self) -> TracedNumber:
        """Return e^x."""
        return _unary(self, _quietly(np.exp), self.shape and self.shape.exp())

    def expm1(self) -> TracedNumber:
        """Return e^x − 1."""
        return _unary(self, _quietly(np.expm1))

    def log(self) -> TracedNumber:
        """Return the natural logarithm, −∞ at 0."""
        return _unary(self, _quietly(np.log), self.shape and self.shape.log())

    def log1p(self) -> Any:
        """Return log(1 + x)."""
        if self.negative_of is not None and (rest := 1.0 - self.negative_of).shape is not None:
            return rest.log()  # log1p(−u)
        return _unary(self, _quietly(np.log1p))

    def sqrt(self) -> TracedNumber:
        """Return the square root."""
        return _unary(self, _quietly(np.sqrt))

    def reciprocal(self) -> Any:
        """Return 1/x."""
        return _quotient(1.0, self)

    def clamped(self, low: float | None, high: float | None) -> Any:
        """Return the number within bounds, neglecting tiny differences at a uniform's ends."""
        found = self
        for bound, inside in ((low, max), (high, min)):
            if bound is not None:
                found = found._bounded(float(bound), inside)
        return found

    def _bounded(self, bound: float, inside: Callable[[float, float], float]) -> TracedNumber:
        """Return the larger or smaller of the number and a bound."""
        shape = self.shape
        if shape is not None:
            above = {"power": 1.0 - bound, "line": exp(-max(bound, -700.0))}
            changed = bound if inside is max else above.get(shape.kind, inf)
            if shape.kind == "log" or shape.scale < 0.0:
                shape = None
            elif changed > 0.0:
                shape = shape.neglecting(changed)
        return _unary(self, lambda x: inside(x, bound), shape)

    # Conversions that leave the trace.
    def __float__(self) -> float:
        raise self.run.abort(
            "a random number was converted to a plain float (by NumPy or a C extension; compare "
            "the number itself, or draw it from `uniforms`)"
        )

    def __index__(self) -> int:
        raise self.run.abort("a uniform is no index")

    def __int__(self) -> int:
        """Truncate; each integer in reach is a comparison (``int(u * n)`` draws uniformly)."""
        return self.__floor__() if self >= 0.0 else -(-self).__floor__()

    __trunc__ = __int__

    def __floor__(self) -> int:
        """Round down."""
        assert self.axes  # which gives them to sources that nobody asked about yet
        # A box that was split goes on elsewhere than at its old middle: begin again there, not one
        # integer further.
        while True:
            below = floor(self.value(self.run.middle))
            if not self < float(below) and not self >= float(below + 1):
                return below

    def floor(self) -> float:
        """Round down, as `numpy.floor` does."""
        return float(self.__floor__())

    def item(self) -> TracedNumber:
        """Return the number, where NumPy's scalars return a plain number."""
        return self


def _power(x: float, exponent: float) -> float:
    """Return a power of floats, without a warning."""
    with np.errstate(all="ignore"):
        return float(np.float64(x) ** exponent)


class TracedArray(np.ndarray[Any, Any]):
    """An object array of traced numbers, with searches that make only the necessary comparisons.

    NumPy's own `searchsorted` compares neighbouring values with each other first, to narrow its
    search: a comparison that the law of the output does not depend on and that would split the box
    along a diagonal. And the winner of a race is one question.
    """

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if (
            func is np.searchsorted
            and len(args) >= 2
            and isinstance(args[1], np.ndarray)
            and args[1].dtype == object
        ):
            table, values = np.asarray(args[0]), np.asarray(args[1])
            found = [func(table, value, *args[2:], **kwargs) for value in values.reshape(-1)]
            return np.asarray(found, dtype=np.int64).reshape(values.shape)
        if func in (np.argmax, np.argmin) and isinstance(args[0], TracedArray):
            return _along(args[0], func is np.argmax, *args[1:], **kwargs)
        if (
            func is np.argsort
            and isinstance(args[0], TracedArray)
            and args[0].ndim == 1
            and args[0].dtype == object
        ):
            return np.asarray(
                arg_order(list(np.asarray(args[0])), len(args[0]), largest=False), dtype=np.int64
            )
        return super().__array_function__(func, types, args, kwargs)

    def argmax(self, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        """Return the index of the largest element."""
        return _along(self, True, axis, keepdims=keepdims)

    def argmin(self, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        """Return the index of the least element."""
        return _along(self, False, axis, keepdims=keepdims)


def _along(
    values: Any, largest: bool, axis: Any = None, out: Any = None, *, keepdims: Any = False
) -> Any:
    """Return the indices of the extremes along an axis."""
    plain = np.asarray(values)
    if plain.dtype != object:
        return (np.argmax if largest else np.argmin)(plain, axis=axis, out=out, keepdims=keepdims)
    rows = plain.reshape(-1) if axis is None else plain
    found = np.apply_along_axis(arg_extreme, -1 if axis is None else axis, rows, largest=largest)
    if keepdims:
        return found.reshape((1,) * plain.ndim) if axis is None else np.expand_dims(found, axis)
    return found[()]


def arg_extreme(values: Sequence[Any] | NDArray[Any], *, largest: bool) -> int:
    """Return the index of the largest or least of numbers, by a race where possible.

    Args:
        values: numbers and plain floats, at least one.
        largest: which.
    """
    plain = [i for i, value in enumerate(values) if not isinstance(value, TracedNumber)]
    numbers = [i for i, value in enumerate(values) if isinstance(value, TracedNumber)]
    best = None
    if plain:
        floats = [float(values[i]) for i in plain]
        best = plain[int(np.argmax(floats) if largest else np.argmin(floats))]
    if best is not None and (not numbers or isnan(values[best])):
        return best
    winner = _race([values[i] for i in numbers], largest)
    first = numbers[0 if winner is None else winner]
    if winner is None:
        for i in numbers[1:]:
            if values[i] > values[first] if largest else values[i] < values[first]:
                first = i
    if best is None:
        return first
    beaten = values[first] > values[best] if largest else values[first] < values[best]
    return first if beaten or (first < best and bool(values[first] == values[best])) else best


def arg_order(values: Sequence[Any], size: int, *, largest: bool) -> list[int]:
    """Return the first `size` indices in order, one winner after the other."""
    left, order = list(range(len(values))), []
    for _ in range(size):
        order.append(left.pop(arg_extreme([values[i] for i in left], largest=largest)))
    return order


def _race(numbers: Sequence[TracedNumber], largest: bool) -> int | None:
    """Return the index of the extreme number if the numbers form a race, else None."""
    shapes = [number.shape for number in numbers if number.shape is not None]
    if len(numbers) == 1:
        return 0
    if len(shapes) < len(numbers) or not all(shapes[0].like(shape) for shape in shapes):
        return None
    turned = 1.0 if largest == shapes[0].falling else -1.0
    return least(numbers[0].run, [shape.form.scaled(turned) for shape in shapes])


def _compare(left: Any, right: Any, order: Callable[[float, float], bool]) -> Any:
    """Return True if left < right (or ≤), dividing the execution until that is known."""
    run: Execution = left.run if isinstance(left, TracedNumber) else right.run
    one, other = _as_number(left, run), _as_number(right, run)
    if one is None or other is None:
        return NotImplemented
    comparison = _Comparison(run, one, other, order)
    if (known := comparison.answer()) is not None:
        return known
    for side in (one, other):
        if not side.sources and isnan(side.bounds()[0]):
            return False
    if not run.undecided and (ordered := comparison.race()) is not None:
        return order(ordered, 0)
    for _ in range(_SPLITS_PER_COMPARISON):
        if run.undecided or not (run.follow_split() or comparison.narrow()):
            break
        if (known := comparison.answer()) is not None:
            return known
    run.undecided = True
    return comparison.at(run.middle)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Comparison:
    """A comparison of two numbers, as a function of the uniforms; `order` is < or ≤."""

    run: Execution
    left: TracedNumber
    right: TracedNumber
    order: Callable[[float, float], bool]

    def at(self, point: Sequence[float]) -> bool:
        """Return the answer at a point."""
        return self.order(self.left.value(point), self.right.value(point))

    def answer(self) -> bool | None:
        """Return the answer if the bounds give the same all over the box."""
        (least_left, most), (lowest, highest) = self.left.bounds(), self.right.bounds()
        if isnan(least_left) or isnan(lowest):
            return None
        if self.left is self.right:
            return self.order(least_left, least_left)
        if self.order(most, lowest):
            return True
        return None if self.order(least_left, highest) else False

    def race(self) -> int | None:
        """Return the sign of left − right if both are one monotone map of forms of exponentials."""
        sides = [side for side in (self.left, self.right) if side.sources]
        if len(sides) == 1 and sides[0].monotone and len(sides[0].axes) == 1:
            return None  # a split, at the code's own float
        shapes = [side.shape for side in sides if side.shape is not None]
        if len(shapes) < len(sides):
            return None
        shape = shapes[0]
        if len(sides) == 2:
            difference = (
                shape.form.plus(shapes[1].form.scaled(-1.0)) if shape.like(shapes[1]) else None
            )
            found = None if difference is None else sign(self.run, difference)
            return -found if found is not None and shape.falling else found
        constant = (self.right if sides[0] is self.left else self.left).bounds()[0]
        found = _against(self.run, shape, constant)
        return found if found is None or sides[0] is self.left else -found

    def narrow(self) -> bool:
        """Divide the box towards an answer; return False if no further division is possible."""
        run, number = self.run, self.left if self.left.sources else self.right
        axes = self.left.axes | self.right.axes
        if not number.monotone or (self.left.sources and self.right.sources) or len(axes) > 1:
            return run.halve(axes, self.at)
        (axis,) = axes
        if run.split_at_change(axis, self.at, near=self._crossing(axis)):
            return True
        # The same answer at both ends, yet the bounds leave it open.
        lowest = run.low[axis] == 0.0 and run.high[axis] > ulp(0.0)
        if lowest and isnan(number.value([0.0] * len(run.low))):
            run.split(axis, ulp(0.0), keep_low=False)  # log(0)·0, 0/0: that one point apart
            return True
        # Something may be NaN inside (a logarithm of negative numbers): tracing gives up. Otherwise
        # rounding made the bounds wider than the function: nothing to split, nothing to decide.
        if isnan(number.bounds()[0]):
            raise run.abort("a comparison with what may be NaN")
        return False

    def _crossing(self, axis: int) -> float:
        """Return the point where the sides would meet along an axis if both were lines."""
        low, high = self.run.low, self.run.high
        first, last = (self.left.value(end) - self.right.value(end) for end in (low, high))
        rise = last - first
        if not isfinite(rise) or rise == 0.0:
            return 0.5 * (low[axis] + high[axis])
        return low[axis] - (high[axis] - low[axis]) * (first / rise)


def _against(run: Execution, shape: MonotoneForm, constant: float) -> int | None:
    """Return the sign of a number minus a constant, or None if that takes more than races."""
    if isinf(constant):
        return -1 if constant > 0.0 else 1
    level: float | None = constant
    if shape.kind == "power":
        if constant <= 0.0:
            return 1
        level = -log(constant)
    elif shape.kind == "log":
        exponent = constant / shape.scale
        level = exp(exponent) if abs(exponent) < 700.0 else None
    elif shape.scale < 0.0:
        if not all(c > 0.0 for c in shape.form.terms.values()) or shape.form.constant < 0.0:
            return None
        if constant <= 0.0:
            return 1
        level = 1.0 / constant
    if level is None or isinf(level):
        return None
    found = sign(run, LinearForm(shape.form.terms, shape.form.constant - level, shape.form.slack))
    return -found if found is not None and shape.falling else found


def _as_number(thing: Any, run: Execution) -> TracedNumber | None:
    """Return a side of a comparison, constants as numbers too; None for what is none."""
    if isinstance(thing, TracedNumber):
        return thing
    constant = _as_float(thing)
    if constant is None:
        return None
    return TracedNumber(
        run, frozenset(), lambda point: constant, lambda: (constant, constant), True
    )


def uniform(source: UniformSource) -> TracedNumber:
    """Return a uniform that the code drew."""
    return TracedNumber(
        source.run,
        frozenset([source]),
        source.value,
        source.bounds,
        True,
        MonotoneForm("power", LinearForm({source: 1.0}, 0.0)),
    )


def _mirrored(number: TracedNumber) -> TracedNumber | None:
    """Return 1 − u as a uniform again, if u was not used yet."""
    if len(number.sources) != 1:
        return None
    (source,) = number.sources
    if number.value != source.value or (mirror := source.mirrored()) is None:
        return None
    return uniform(mirror)


def mapped(number: TracedNumber, function: Callable[[float], float]) -> TracedNumber:
    """Return a monotone function of a number, without a shape."""
    return _unary(number, _quietly(function))


def _unary(
    child: TracedNumber, function: Callable[[float], float], shape: MonotoneForm | None = None
) -> TracedNumber:
    """Apply a monotone function."""

    def bounds() -> tuple[float, float]:
        low, high = child.bounds()
        first, last = function(low), function(high)
        if isnan(first) or isnan(last):
            return _UNKNOWN
        return (first, last) if first <= last else (last, first)

    return TracedNumber(
        child.run,
        child.sources,
        lambda point: function(child.value(point)),
        bounds,
        child.monotone,
        shape,
    )


@functools.cache
def _quietly(function: Any) -> Callable[[float], float]:
    """Return one of NumPy's functions, of floats and without a warning."""

    def quiet(x: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(x))

    return quiet


def _binary(
    left: Any,
    right: Any,
    function: Callable[[float, float], float],
    shaped: Callable[[MonotoneForm, float], MonotoneForm | None] = lambda shape, c: None,
) -> Any:
    """Combine by +, − or ×, the left side a number; the extremes lie at the corners."""
    if isinstance(right, TracedNumber):
        one, other = left, right

        def bounds() -> tuple[float, float]:
            corners = [function(a, b) for a in one.bounds() for b in other.bounds()]
            # ∞ − ∞ or 0·∞ at a corner: min and max would depend on the order.
            return _UNKNOWN if any(map(isnan, corners)) else (min(corners), max(corners))

        def value(point: Sequence[float]) -> float:
            return function(one.value(point), other.value(point))

        return TracedNumber(
            left.run,
            left.sources | right.sources,
            value,
            bounds,
            False,
            _joined(one.shape, other.shape, function),
        )
    constant = _as_float(right)
    if constant is None:
        return NotImplemented
    if isnan(constant):
        return constant
    if left.shape is not None and (settled := _overruled(constant, function)) is not None:
        return settled
    return _unary(
        left, lambda x: function(x, constant), left.shape and shaped(left.shape, constant)
    )


def _overruled(constant: float, function: Any) -> float | None:
    """Return a result that does not depend on the number: ±∞ added, or a product with 0."""
    if function is operator.mul:
        return 0.0 if constant == 0.0 else None
    of_infinity = {operator.add: constant, operator.sub: -constant}
    return of_infinity.get(function) if isinf(constant) else None


def _joined(
    one: MonotoneForm | None, other: MonotoneForm | None, function: Any
) -> MonotoneForm | None:
    """Return the shape of a sum of lines, or of a product of powers."""
    if one is None or other is None or one.kind != other.kind:
        return None
    if one.kind == "line" and function in (operator.add, operator.sub):
        return MonotoneForm(
            "line", one.form.plus(other.form.scaled(1.0 if function is operator.add else -1.0))
        )
    if one.kind == "power" and function is operator.mul:
        return MonotoneForm("power", one.form.plus(other.form))
    return None


def _quotient(left: Any, right: Any) -> Any:
    """Divide; the bounds are infinite where the box leaves the divisor's sign open."""
    if not isinstance(right, TracedNumber):
        return _binary(left, right, _divide, lambda shape, c: shape.times(_divide(1.0, c)))
    if isinstance(left, TracedNumber):
        return _binary(left, _quotient(1.0, right), operator.mul)
    constant = _as_float(left)
    if constant is None:
        return NotImplemented
    if isnan(constant):
        return constant
    if constant == 0.0 and right.shape is not None:
        return 0.0
    shape = right.shape and right.shape.inverted(constant)
    exact = _unary(right, lambda x: _divide(constant, x), shape)

    def bounds() -> tuple[float, float]:
        low, high = right.bounds()
        # The sign of a zero at an end may be the other one than that of everything else in the box.
        if low < 0.0 <= high or (low == 0.0 and copysign(1.0, low) < 0.0):
            return (-inf, inf) if constant and isfinite(constant) else _UNKNOWN
        return exact.bounds()

    monotone = right.monotone and right.bounds()[0] >= 0.0
    return TracedNumber(right.run, right.sources, exact.value, bounds, monotone, exact.shape)


def _divide(a: float, b: float) -> float:
    """Divide like IEEE floats: ±∞ by zero, NaN where the zero has no sign."""
    if b:
        return a / b
    return nan if a == 0.0 or isnan(a) else copysign(inf, a) * copysign(1.0, b)


def _as_float(value: Any) -> float | None:
    """Return a plain number as a float, None for arrays and anything that is no number."""
    if isinstance(value, (float, int)):
        return float(value)
    if array_api_compat.is_torch_array(value) or (isinstance(value, np.ndarray) and value.ndim):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
