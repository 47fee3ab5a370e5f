"""Interception of torch's draws, and of computations with the drawn values: real tensors with
traced numbers in a shadow.

Every operation passes a dispatcher, below autograd, `torch.nn.functional` and
`torch.distributions`. Random ones are executed, so that their generators move on, and the result
gets a *shadow*: an array of objects beside its storage, shared by all its views, however they were
taken. Where an operation reads elements with a shadow

* what moves elements moves their shadows (found by moving indices in their place),
* arithmetic and comparisons are done on the objects, answers kept open until somebody looks
  (`DeferredDraw`),
* the extreme of several is a race (`otm.audit.tracing.traced_numbers.arg_extreme`),
* what asks for open answers gets them in its memory, each a decision of the execution, and is then
  executed as it is,
* anything else stops the execution. Values in memory under a number's shadow are NaN.

Nothing here imports torch: the module is handed in by whoever finds it loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otm.audit.tracing.execution import Execution
from otm.audit.tracing.intercept.draws import (
    DeferredDraw,
    DrawnOutcome,
    Draws,
    TracingDraws,
    settled,
)
from otm.audit.tracing.intercept.laws import TORCH, SeedInteger
from otm.audit.tracing.intercept.of_python import patched
from otm.audit.tracing.traced_numbers import TracedArray, TracedNumber, arg_extreme, arg_order

_FLOAT32 = 2.0**-24

Objects = NDArray[np.object_]
_OPEN = (TracedNumber, DeferredDraw, DrawnOutcome)


@contextlib.contextmanager
def torch_draws(torch: Any) -> Iterator[_Shadows]:
    """Replace torch's draws by draws of the execution."""
    shadows = _Shadows(torch)
    from_numpy = torch.from_numpy

    class Calls(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        """Calls of torch functions from Python."""

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return shadows.called(func, args, kwargs or {})

    class Operations(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        """Operations that torch executes."""

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # torch's compiler, where it is loaded, must be kept out; it takes seconds to load only
            # for that
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return shadows.operated(func, args, kwargs or {})

    def of_numpy(array: Any) -> Any:
        return torch.as_tensor(array) if _has_numbers(array) else from_numpy(array)

    with patched((torch, "from_numpy", of_numpy)), Calls(), Operations():
        yield shadows


@dataclasses.dataclass(frozen=True)
class Elementwise:
    """An operation on elements, one by one.

    Attributes:
        function: from an iterator of elements to the result; it looks at what it takes.
        operands: the arguments that hold the elements.
        answers: whether it answers a question, which then stays open until somebody looks; what
            computes numbers is done at once.
    """

    function: Callable[[Iterator[Any]], Any]
    operands: tuple[str, ...] = ("self",)
    answers: bool = False

    def element(self, *things: Any) -> Any:
        """Return an element of the result, None where all operands are plain."""
        if not any(map(_is_open, things)):
            return None  # as the operation has it
        if self.answers:
            return DeferredDraw(lambda: bool(self.function(map(settled, things))))
        return self.function(map(settled, things))


def _of(function: Callable[..., Any]) -> Callable[[Iterator[Any]], Any]:
    """Return a function of several elements as one of an iterator."""
    return lambda elements: function(*elements)


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, TracedNumber) or isinstance(b, TracedNumber):
        return a / b
    return float(np.float64(a) / np.float64(b))


def _bounded(a: Any, b: Any, *, largest: bool) -> Any:
    """Return the larger or smaller of two."""
    number, other = (a, b) if isinstance(a, TracedNumber) else (b, a)
    if isinstance(other, TracedNumber):
        return number if (number > other) == largest else other
    return number.clamped(other, None) if largest else number.clamped(None, other)


def _clamped(x: Any, low: Any = None, high: Any = None) -> Any:
    if isinstance(low, TracedNumber) or isinstance(high, TracedNumber):
        raise TypeError("clamped by random numbers")
    return x.clamped(low, high)


def _question(question: Callable[[float], bool]) -> Callable[[Iterator[Any]], bool]:
    """Return a function that tests elements for finiteness or the like.

    Random numbers are, but on a set of probability 0: NumPy and Python answer the same of them.
    """
    return lambda elements: all(
        question(0.0 if isinstance(x, TracedNumber) else float(x)) for x in elements
    )


_TWO = ("self", "other")
_ELEMENTWISE = {
    "neg": Elementwise(_of(operator.neg)),
    "log": Elementwise(_of(TracedNumber.log)),
    "log1p": Elementwise(_of(TracedNumber.log1p)),
    "exp": Elementwise(_of(TracedNumber.exp)),
    "expm1": Elementwise(_of(TracedNumber.expm1)),
    "sqrt": Elementwise(_of(TracedNumber.sqrt)),
    "reciprocal": Elementwise(_of(TracedNumber.reciprocal)),
    "abs": Elementwise(_of(abs)),
    "floor": Elementwise(_of(TracedNumber.floor)),
    "add": Elementwise(_of(operator.add), _TWO),
    "sub": Elementwise(_of(operator.sub), _TWO),
    "rsub": Elementwise(_of(operator.sub), ("other", "self")),
    "mul": Elementwise(_of(operator.mul), _TWO),
    "div": Elementwise(_of(_divided), _TWO),
    "pow": Elementwise(_of(operator.pow), ("self", "exponent")),
    "maximum": Elementwise(_of(functools.partial(_bounded, largest=True)), _TWO),
    "minimum": Elementwise(_of(functools.partial(_bounded, largest=False)), _TWO),
    "clamp": Elementwise(_of(_clamped), ("self", "min", "max")),
    "clamp_min": Elementwise(_of(_clamped), ("self", "min")),
    "clamp_max": Elementwise(_of(_clamped), ("self", "min", "max")),
    "isnan": Elementwise(_question(math.isnan)),
    "isinf": Elementwise(_question(math.isinf)),
    "isfinite": Elementwise(_question(math.isfinite)),
    "lt": Elementwise(_of(operator.lt), _TWO, answers=True),
    "le": Elementwise(_of(operator.le), _TWO, answers=True),
    "gt": Elementwise(_of(operator.gt), _TWO, answers=True),
    "ge": Elementwise(_of(operator.ge), _TWO, answers=True),
    "eq": Elementwise(_of(operator.eq), _TWO, answers=True),
    "ne": Elementwise(_of(operator.ne), _TWO, answers=True),
    "logical_not": Elementwise(_of(operator.not_), answers=True),
    "bitwise_not": Elementwise(_of(operator.not_), answers=True),
    "logical_and": Elementwise(all, _TWO, answers=True),
    "bitwise_and": Elementwise(all, _TWO, answers=True),
    "logical_or": Elementwise(any, _TWO, answers=True),
    "bitwise_or": Elementwise(any, _TWO, answers=True),
}
_OF_TRUTH = {"logical_and", "bitwise_and", "logical_or", "bitwise_or"}
_MOVED: dict[str, tuple[str, ...]] = {
    "clone": ("self",),
    "copy": ("self", "src"),
    "where": ("self", "other"),
    "index": ("self",),
    "index_put": ("self", "values"),
    "_index_put_impl": ("self", "values"),
    "masked_fill": ("self", "value"),
    "masked_select": ("self",),
    "gather": ("self",),
    "index_select": ("self",),
    "take": ("self",),
    "cat": ("tensors",),
    "stack": ("tensors",),
    "repeat": ("self",),
    "scatter": ("self", "src", "value"),
    "flip": ("self",),
    "roll": ("self",),
    "constant_pad_nd": ("self", "value"),
    "index_copy": ("self", "source"),
    "index_fill": ("self", "value"),
    "fill": ("self", "value"),
    "zero": ("self",),
    "slice_scatter": ("self", "src"),
    "select_scatter": ("self", "src"),
}
_DATALESS = {
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_empty",
    "new_zeros",
    "new_ones",
    "new_full",
    "_unsafe_view",
}
_READ = {
    "item",
    "tolist",
    "numpy",
    "__array__",
    "__float__",
    "__int__",
    "__bool__",
    "__index__",
    "__contains__",
    # what looks below
    "data_ptr",
    "untyped_storage",
    "storage",
    "__dlpack__",
    "__deepcopy__",
    "__reduce_ex__",
    "__repr__",
    "__format__",
}


_MADE_OF = {"tensor", "as_tensor", "asarray"}
_LOOKS = _READ | _MADE_OF
_OF_OPEN = {"cumprod", "all", "any"}
_SAME_MEMORY = {"detach", "lift_fresh", "alias", "_reshape_alias"}
_READ_ONE: dict[str, Callable[[Any], Any]] = {"item": settled, "__int__": int, "__bool__": bool}


class _Operation(NamedTuple):
    """The name and arguments of an operation of torch.

    Attributes:
        base: its name.
        plain: the same without the underscore of what works in place.
        drawn: the name of the law in `TORCH` that it draws from; "" if there is none.
        random: whether it draws.
        names: of its arguments.
        defaults: of those that have one.
    """

    base: str
    plain: str
    drawn: str
    random: bool
    names: tuple[str, ...]
    defaults: dict[str, Any]


class _Call(NamedTuple):
    """An operation with arguments by name, and the function that executes the call."""

    operation: _Operation
    execute: Callable[[], Any]
    given: dict[str, Any]


@functools.cache
def _described(func: Any) -> _Operation:
    base = func._schema.name.removeprefix("aten::")
    arguments, plain = func._schema.arguments, base.rstrip("_")
    drawn = plain.removesuffix("_like")
    return _Operation(
        base=base,
        plain=plain,
        drawn=drawn if drawn in TORCH else "",
        random=drawn in TORCH or any(tag.name == "nondeterministic_seeded" for tag in func.tags),
        names=tuple(one.name for one in arguments),
        defaults={one.name: one.default_value for one in arguments if one.has_default_value()},
    )


class _Shadows:
    """The shadows of one execution's tensors, by storage.

    Attributes:
        draws: where the draws of the execution come from.
    """

    draws: Draws

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self._of: dict[int, tuple[Any, Objects]] = {}
        self._quiet = False
        self._run: Execution | None = None

    def begin(self, draws: Draws) -> None:
        """Start an execution: set the draws and, if the execution is traced, the run."""
        self.draws = draws
        self._run = draws.run if isinstance(draws, TracingDraws) else None
        self._of.clear()

    def end(self) -> None:
        """Forget the tensors of the execution."""
        self._run = None
        self._of.clear()

    # Elements and their shadows.
    def shadow(self, tensor: Any) -> Objects | None:
        """Return the objects beside a tensor, None at plain elements, or None if all are."""
        kept = self._of.get(tensor.untyped_storage().data_ptr()) if self._of else None
        if kept is None or not (size := tensor.numel()):
            return None
        _, beside = kept
        if size == 1:
            thing = beside[tensor.storage_offset()]
            return _objects([thing], tuple(tensor.shape)) if _is_open(thing) else None
        view = _seen_as(beside, tensor)
        return view if _open(view).any() else None

    def put(self, tensor: Any, objects: Any) -> Any:
        """Store open elements in a tensor's shadow, plain values in memory; None skips."""
        found = np.asarray(objects, dtype=object)
        if found.size == 1:
            return self._put_one(tensor, found.item())
        if not found.size:
            return tensor
        found = found.reshape(tuple(tensor.shape))
        hidden = _open(found)
        beside = self._beside(tensor, needed=bool(hidden.any()))
        if beside is not None:
            _seen_as(beside, tensor)[...] = np.where(hidden, found, np.asarray(None))
        plain = _each(lambda thing: thing is not None, found).astype(bool) & ~hidden
        memory = tensor.detach()
        if plain.any():
            values = self._memory(tensor)
            values[plain] = found[plain]
            memory.copy_(self.torch.tensor(values.tolist(), dtype=tensor.dtype))
        if hidden.any() and tensor.is_floating_point():
            memory.masked_fill_(self.torch.from_numpy(hidden).to(tensor.device), math.nan)
        return tensor

    def _beside(self, tensor: Any, *, needed: bool) -> Objects | None:
        """Return the objects beside a tensor's storage, made if needed; None if there are none."""
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if needed and key not in self._of:
            size = storage.nbytes() // tensor.element_size()
            self._of[key] = storage, np.full(size, None, dtype=object)
        return self._of.get(key, (None, None))[1]

    def _put_one(self, tensor: Any, thing: Any) -> Any:
        """Store the element of a tensor of one, which most numbers of a verifier are."""
        hidden = _is_open(thing)
        beside = self._beside(tensor, needed=hidden)
        if beside is not None:
            beside[tensor.storage_offset()] = thing if hidden else None
        if not hidden and thing is not None:
            tensor.detach().fill_(thing)
        elif hidden and tensor.is_floating_point():
            tensor.detach().fill_(math.nan)
        return tensor

    def _memory(self, tensor: Any) -> Objects:
        """Return the values in a tensor's memory."""
        return _objects(tensor.detach().reshape(-1).tolist(), tuple(tensor.shape))

    def elements(self, thing: Any) -> Objects:
        """Return the elements of a tensor or scalar: shadows, and plain values elsewhere."""
        if not isinstance(thing, self.torch.Tensor):
            return _objects([thing], ())
        shadow = self.shadow(thing)
        if shadow is not None and shadow.size == 1:
            return shadow
        found = self._memory(thing)
        return found if shadow is None else np.where(_open(shadow), shadow, found)

    def settle(self, thing: Any) -> bool:
        """Resolve every open answer of a tensor; return True if traced numbers remain."""
        shadow = self.shadow(thing) if isinstance(thing, self.torch.Tensor) else None
        if shadow is None:
            return False
        found = _each(settled, shadow)
        self.put(thing, found)
        return bool(_open(found).any())

    def tensor_of(self, data: Any, dtype: Any = None, device: Any = None) -> Any:
        """Return a tensor of numbers and plain values."""
        array = np.asarray(data, dtype=object)
        if dtype is None:
            double = isinstance(data, np.ndarray | TracedNumber)
            dtype = self.torch.float64 if double else self.torch.get_default_dtype()
        return self.put(self.torch.empty(array.shape, dtype=dtype, device=device), array)

    def note_precision(self, *things: Any) -> None:
        """Note the precision of plain tensors that random numbers meet."""
        for thing in things:
            single = isinstance(thing, self.torch.Tensor) and thing.dtype == self.torch.float32
            if self._run is not None and single and self.shadow(thing) is None:
                self._run.coarsest = _FLOAT32

    # Calls from Python: what reads a tensor without an operation, and what mixes tensors with
    # numbers.
    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Answer a call from Python that reads a tensor, or mixes tensors with traced numbers."""
        name = getattr(func, "__name__", "")
        plain = name not in _LOOKS and TracedNumber not in map(type, (*args, *kwargs.values()))
        if plain or self._run is None:
            return func(*args, **kwargs)
        self._quiet = True  # the operations on shadows' tensors are no operations of the code
        try:
            if name in _MADE_OF and args and _has_numbers(args[0]):
                return self.tensor_of(args[0], kwargs.get("dtype"), kwargs.get("device"))
            args = [self._without_number(thing) for thing in args]
            kwargs = {key: self._without_number(thing) for key, thing in kwargs.items()}
            if name in _READ_ONE and (answer := self._answer(args[0])) is not None:
                return _READ_ONE[name](answer)
            if name in _READ and args and self.settle(args[0]):
                return self._read(name, args[0])
        finally:
            self._quiet = False
        return func(*args, **kwargs)

    def _without_number(self, thing: Any) -> Any:
        """Return a traced number as a tensor, anything else unchanged."""
        return self.tensor_of(thing) if isinstance(thing, TracedNumber) else thing

    def _answer(self, tensor: Any) -> int | None:
        """Return the answer that one open integer or truth value has; None if there is none.

        It stays out of the tensor's memory, where three operations would have to pass.
        """
        shadow = None if tensor.is_floating_point() else self.shadow(tensor)
        if shadow is None or shadow.size != 1:
            return None
        return (bool if tensor.dtype == self.torch.bool else int)(settled(shadow.item()))

    def _read(self, name: str, tensor: Any) -> Any:
        """Return the numbers of a tensor, if the reading function can pass on traced numbers."""
        objects = self.elements(tensor)
        if name == "tolist":
            return objects.tolist()
        if name in ("numpy", "__array__"):
            return objects.view(TracedArray)
        if name not in _READ_ONE or objects.size != 1:
            raise self.draws.abort(f"a tensor of random numbers was read by {name}")
        return _READ_ONE[name](objects.item())

    # Operations.
    def operated(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Execute an operation, and follow any draw or read of elements with a shadow."""
        operation = _described(func)
        if self._quiet or not (self._of or operation.random):
            return func(*args, **kwargs)
        shadows = [] if operation.random else self._shadows_among((*args, *kwargs.values()))
        if not (shadows or operation.random):
            return func(*args, **kwargs)
        given = operation.defaults | dict(zip(operation.names, args, strict=False)) | kwargs
        call = _Call(operation, functools.partial(func, *args, **kwargs), given)
        if operation.drawn:
            return self._draw(operation.drawn, call)
        if operation.random:
            raise self.draws.abort(f"torch.{operation.base} has no branches")
        if operation.base in _DATALESS:
            return call.execute()
        if operation.base == "view" and func._overloadname == "dtype":
            raise self.draws.abort("the bits of random numbers were looked at")
        if func.is_view or operation.base in _SAME_MEMORY:
            return call.execute()
        if operation.plain in _MOVED:
            return self._move(call)
        if operation.plain == "_to_copy":
            return self._converted(call)
        things = (thing for shadow in shadows for thing in shadow.flat)
        return self._computed(call, any(isinstance(thing, TracedNumber) for thing in things))

    def _shadows_among(self, things: Any) -> list[Objects]:
        """Return the shadows among the arguments of an operation."""
        found = map(self.shadow, self._tensors(things))
        return [shadow for shadow in found if shadow is not None]

    def _tensors(self, things: Any) -> list[Any]:
        return [thing for thing in _flat(things) if isinstance(thing, self.torch.Tensor)]

    def _computed(self, call: _Call, numbers: bool) -> Any:
        """Follow an operation on open elements.

        `numbers` says if traced numbers are among the elements.
        """
        plain, given = call.operation.plain, call.given
        special = getattr(self, f"_on_{plain}", None)
        # several axes at once are for settled answers
        along = not isinstance(given.get("dim"), list | tuple)
        if special is not None and along and (numbers or plain in _OF_OPEN):
            return special(call)
        entry = _ELEMENTWISE.get(plain)
        if plain in _OF_TRUTH and given["self"].dtype != self.torch.bool:
            entry = None  # of integers it is arithmetic on bits
        options = given.get("out"), given.get("rounding_mode")
        if entry is not None and (entry.answers or numbers) and options == (None, None):
            if given.get("alpha", 1) != 1:
                raise self.draws.abort(f"torch.{plain} with alpha on random numbers")
            self.note_precision(*given.values())
            operands = [self.elements(given.get(name)) for name in entry.operands]
            return self.put(call.execute(), _each(entry.element, *operands))
        if self._settled(self._tensors(call.given.values())):
            return call.execute()
        raise self.draws.abort(f"torch.{plain} on random numbers")

    def _settled(self, tensors: list[Any]) -> bool:
        """Resolve all open answers; return True if no traced number remains."""
        return not any(self.settle(tensor) for tensor in tensors)

    def _converted(self, call: _Call) -> Any:
        """Convert elements to another type; conversions to integers or truth values stay open."""
        dtype = call.given["dtype"] or call.given["self"].dtype
        kind = bool if dtype == self.torch.bool else int
        function = functools.partial(_as_kind, float if dtype.is_floating_point else kind)
        elements = self.elements(call.given["self"])
        return self.put(call.execute(), _each(function, elements))

    def _move(self, call: _Call) -> Any:
        """Apply the operation to numbered places instead of elements, and move the shadows
        alike.
        """
        base = call.operation.plain
        table: list[Any] = [None]

        def numbered(thing: Any) -> Any:
            if isinstance(thing, list | tuple):
                return [numbered(one) for one in thing]
            if not isinstance(thing, self.torch.Tensor):
                return 0
            places = np.zeros(tuple(thing.shape), dtype=np.int64)
            shadow = self.shadow(thing)
            if shadow is not None:
                hidden = _open(shadow)
                places[hidden] = len(table) + np.arange(hidden.sum())
                table.extend(shadow[hidden])
            return self.torch.from_numpy(places).to(thing.device)

        places = {}
        for name, thing in call.given.items():
            if name in _MOVED[base]:
                places[name] = numbered(thing)
            elif not self._settled(_flat([thing])):
                raise self.draws.abort(f"torch.{base} by random numbers")
            elif name not in ("out", "unsafe"):
                places[name] = thing
        packet = getattr(self.torch.ops.aten, base.removesuffix("_impl").removeprefix("_"))
        moved = packet(**places).cpu().numpy().reshape(-1)
        return self.put(call.execute(), _objects(table, (len(table),)).take(moved))

    # Operations on several elements at once.
    def _on_argmax(self, call: _Call) -> Any:
        winner = functools.partial(_extreme, largest=call.operation.plain == "argmax")
        return self._answered_later(winner, call)

    _on_argmin = _on_argmax

    def _on_all(self, call: _Call) -> Any:
        every = all if call.operation.plain == "all" else any
        # a generator: no more is asked than tells
        return self._answered_later(lambda row: every(bool(settled(thing)) for thing in row), call)

    _on_any = _on_all

    def _answered_later(self, question: Callable[[Objects], Any], call: _Call) -> Any:
        """Execute an operation that answers a question about each row, which stays open."""
        rows, axis = self._along(call.given)
        found = np.apply_along_axis(
            lambda row: DeferredDraw(functools.partial(question, row)), axis, rows
        )
        return self.put(call.execute(), found)

    def _along(self, given: dict[str, Any]) -> tuple[Objects, int]:
        """Return elements and the axis of an operation, all in one row without an axis."""
        objects, dim = self.elements(given["self"]), given.get("dim")
        return (objects.reshape(-1), 0) if dim is None or not objects.ndim else (objects, dim)

    def _on_max(self, call: _Call) -> Any:
        if isinstance(call.given.get("other"), self.torch.Tensor):
            raise self.draws.abort("torch.max of two tensors of random numbers")
        rows, axis = self._along(call.given)
        winners = np.apply_along_axis(_extreme, axis, rows, largest=call.operation.plain == "max")
        return self._picked(call.execute(), rows, np.expand_dims(winners, axis), axis)

    _on_min = _on_max

    def _on_sort(self, call: _Call) -> Any:
        rows, axis = self._along(call.given)
        topk = call.operation.plain == "topk"
        largest = call.given["largest" if topk else "descending"]

        def order(row: Objects) -> list[int]:
            size = call.given["k"] if topk else len(row)
            return arg_order([settled(thing) for thing in row], size, largest=largest)

        places = np.apply_along_axis(order, axis, rows)
        return self._picked(call.execute(), rows, places, axis)

    _on_topk = _on_argsort = _on_sort

    def _picked(self, result: Any, rows: Objects, places: NDArray[np.int64], axis: int) -> Any:
        """Give a result the elements at some places along an axis, or the places, or both."""
        values = np.take_along_axis(rows, places, axis)
        if isinstance(result, self.torch.Tensor):
            return self.put(result, values if result.is_floating_point() else places)
        self.put(result[0], values)
        self.put(result[1], places)
        return result

    def _on_searchsorted(self, call: _Call) -> Any:
        given = call.given
        table = given.get("boundaries", given.get("sorted_sequence"))
        if self.settle(table):
            raise self.draws.abort("torch.searchsorted in random numbers")
        self.note_precision(table)
        right = given.get("right", False) or given.get("side") == "right"
        ends, values = self.elements(table), self.elements(given["self"])
        result = call.execute()
        values = np.broadcast_to(values, tuple(result.shape))
        found: Objects = np.full(values.shape, None, dtype=object)
        for place in np.ndindex(*values.shape):
            row = ends if ends.ndim == 1 else ends[place[:-1]]
            found[place] = DeferredDraw(
                functools.partial(_position, row.tolist(), values[place], right)
            )
        return self.put(result, found)

    _on_bucketize = _on_searchsorted

    def _on_cumprod(self, call: _Call) -> Any:
        rows, axis = self._along(call.given)
        if any(isinstance(thing, TracedNumber) for thing in rows.flat):
            raise self.draws.abort("torch.cumprod of random numbers")

        def products(row: Objects) -> Objects:
            starts = [functools.partial(_product, row[: j + 1]) for j in range(len(row))]
            return _objects([DeferredDraw(start) for start in starts], row.shape)

        found = np.apply_along_axis(products, axis, rows)
        return self.put(call.execute(), found)

    # Draws.
    def _draw(self, name: str, call: _Call) -> Any:
        """Execute a random operation, so that the generator moves, and attach the law of the
        draw.
        """
        base, given = call.operation.base, call.given
        generator = given.get("generator") or self.torch.default_generator
        state = "torch", generator.get_state().numpy().tobytes()
        read = given | {"self": None} if base.endswith("_") else given
        if not self._settled(self._tensors(read.values())):
            raise self.draws.abort(f"torch.{base} with random numbers as parameters")
        count, parameters = self._parameters(name, given)
        result = call.execute()
        size = result.numel() if count is None else count
        values = TORCH[name].law(self.draws, state, size, **parameters)
        if values and isinstance(values[0], SeedInteger):
            seeds = self.torch.tensor(list(map(int, values)), dtype=self.torch.int64)
            return result.copy_(seeds.reshape(result.shape))  # good for seeds only
        return self.put(result, _objects(values, tuple(result.shape)))

    def _parameters(self, name: str, given: dict[str, Any]) -> tuple[int | None, dict[str, Any]]:
        """Return the number of values, None for one an element, and the law's parameters."""
        if name == "multinomial" or (name == "bernoulli" and given.get("p") is None):
            self.note_precision(given["self"])
            weights = given["self"].detach().to(self.torch.float64)
            if name == "bernoulli":
                return None, {"p": weights.reshape(-1).tolist()}
            rows = weights.reshape(-1, weights.shape[-1]).tolist()
            return given["num_samples"], {"rows": rows, "replace": given.get("replacement", False)}
        parameters = TORCH[name].parameters(given)
        if any(isinstance(thing, self.torch.Tensor) for thing in parameters.values()):
            raise self.draws.abort(f"torch.{name} with tensors has no branches")
        return None, parameters


def _seen_as(objects: Objects, tensor: Any) -> Objects:
    """Return the view of a storage's objects that corresponds to the tensor."""
    flat = objects[tensor.storage_offset() :]
    if tensor.is_contiguous():
        return flat[: tensor.numel()].reshape(tuple(tensor.shape))
    strides = [flat.itemsize * n for n in tensor.stride()]
    return np.lib.stride_tricks.as_strided(flat, tuple(tensor.shape), strides)


def _objects(things: list[Any], shape: tuple[int, ...]) -> Objects:
    """Return things as an array of objects."""
    found: Objects = np.empty(len(things), dtype=object)
    found[:] = things
    return found.reshape(shape)


def _each(function: Callable[..., Any], *operands: Objects) -> Objects:
    """Apply a function to elements one by one, broadcasting."""
    if all(one.size == 1 for one in operands):
        return _objects([function(*(one.item() for one in operands))], ())
    return np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), dtype=object)


def _open(objects: Objects) -> NDArray[np.bool_]:
    """Return a mask of the elements that are traced numbers or open answers."""
    return np.array([*map(_is_open, objects.flat)], dtype=bool).reshape(objects.shape)


def _is_open(thing: Any) -> bool:
    return isinstance(thing, _OPEN)


def _extreme(row: Any, largest: bool) -> int:
    return arg_extreme([settled(thing) for thing in row], largest=largest)


def _position(ends: list[float], value: Any, right: bool) -> int:
    x = settled(value)
    for i, end in enumerate(ends):
        if x < end or (not right and x == end):
            return i
    return len(ends)


def _as_kind(kind: type, thing: Any) -> Any:
    """Convert an open element to a float, an integer or a truth value, later if necessary."""
    if not _is_open(thing):
        return None
    if kind is float and isinstance(thing, TracedNumber):
        return thing
    return DeferredDraw(lambda: kind(settled(thing)))


def _product(row: Any) -> Any:
    found: Any = 1
    for thing in row:
        found = found * settled(thing)
        if not found:
            break
    return found


def _flat(things: Any) -> list[Any]:
    nested = (_flat(thing) if isinstance(thing, (list, tuple)) else (thing,) for thing in things)
    return [*itertools.chain.from_iterable(nested)]


def _has_numbers(data: Any) -> bool:
    if isinstance(data, np.ndarray):
        return data.dtype == object and any(isinstance(thing, TracedNumber) for thing in data.flat)
    if isinstance(data, list | tuple):
        return any(map(_has_numbers, data))
    return isinstance(data, TracedNumber)
