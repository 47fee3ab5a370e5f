"""What torch draws, and what code computes with it: real tensors with numbers that can be followed
in their shadow.

Every operation passes a dispatcher, below autograd, `torch.nn.functional` and
`torch.distributions`. Random ones are executed, so that their generators move on, and the result
gets a *shadow*: an array of objects beside its storage, shared by all its views, however they were
taken. Where an operation reads elements with a shadow

* what moves elements moves their shadows (found by moving indices in their place),
* arithmetic and comparisons are done on the objects, answers kept open until somebody looks
  (`DeferredDraw`),
* the extreme of several is a race (`otm.tracing.traced_numbers.arg_extreme`),
* what asks for open answers gets them in its memory, each a decision of the execution, and is then
  executed as it is,
* anything else stops the execution. Values in memory under a number's shadow are NaN.

Nothing here imports torch: the module is handed in by whoever finds it loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otm.tracing.intercept.draws import DeferredDraw, DrawnOutcome, Draws, TracingDraws, settled
from otm.tracing.intercept.laws import TORCH, SeedInteger
from otm.tracing.traced_numbers import TracedArray, TracedNumber, arg_extreme, arg_order

_FLOAT32 = 2.0**-24

Objects = NDArray[np.object_]
_OPEN = (TracedNumber, DeferredDraw, DrawnOutcome)


@contextlib.contextmanager
def torch_draws(torch: Any, draws: Draws) -> Iterator[_Shadows]:
    """Take what torch draws from `draws`."""
    function_mode, dispatch_mode = _modes("torch._dynamo" in sys.modules)
    shadows = _Shadows(torch, draws)
    from_numpy = torch.from_numpy
    torch.from_numpy = lambda array: (
        torch.as_tensor(array) if _has_numbers(array) else from_numpy(array)
    )
    try:
        with function_mode(shadows), dispatch_mode(shadows):
            yield shadows
    finally:
        torch.from_numpy = from_numpy


@functools.cache
def _modes(compiles: bool) -> tuple[Any, Any]:
    """Return the two interceptors: of calls from Python, and of operations.

    Args:
        compiles: whether torch's compiler is loaded, which must then be kept out of them; it takes
            seconds to load only for that.
    """
    overrides, dispatch = (
        importlib.import_module(f"torch.{name}") for name in ("overrides", "utils._python_dispatch")
    )

    class Calls(overrides.TorchFunctionMode):  # type: ignore[name-defined, misc]
        def __init__(self, shadows: _Shadows) -> None:
            super().__init__()
            self.shadows = shadows

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return self.shadows.called(func, args, kwargs or {})

    class Operations(dispatch.TorchDispatchMode):  # type: ignore[name-defined, misc]
        def __init__(self, shadows: _Shadows) -> None:
            super().__init__()
            self.shadows = shadows

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return compiles

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return self.shadows.operated(func, args, kwargs or {})

    return Calls, Operations


@dataclasses.dataclass(frozen=True)
class Elementwise:
    """What an operation does to elements, one by one.

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
        """Return an element of the result."""
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
    """Return what asks whether an element is finite or the like.

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
}
_BELOW = {
    "data_ptr",
    "untyped_storage",
    "storage",
    "__dlpack__",
    "__deepcopy__",
    "__reduce_ex__",
    "__repr__",
    "__format__",
}


class _Shadows:
    """The shadows of one execution's tensors, by their storage."""

    def __init__(self, torch: Any, draws: Draws) -> None:
        self.torch, self.draws = torch, draws
        self.traced = False
        self._of: dict[int, tuple[Any, Objects]] = {}
        self._quiet = False
        self._run: Any = None

    def begin(self, draws: Draws) -> None:
        self.traced, self._run = isinstance(draws, TracingDraws), getattr(draws, "run", None)
        self._of.clear()

    def end(self) -> None:
        self.traced = False
        self._of.clear()

    # Elements and their shadows.
    def shadow(self, tensor: Any) -> Objects | None:
        """Return the objects beside a tensor, None where there is none; None if there are none at
        all.
        """
        if not self._of or not tensor.numel():
            return None
        found = self._of.get(tensor.untyped_storage().data_ptr())
        if found is None:
            return None
        view = _seen_as(found[1], tensor)
        return view if any(thing is not None for thing in _listed(view)) else None

    def put(self, tensor: Any, objects: Objects) -> Any:
        """Give a tensor its elements: numbers and open answers in its shadow, plain ones in memory,
        None leaves what is there.
        """
        if not tensor.numel():
            return tensor
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        things = _listed(objects)
        shadows = [thing if _open(thing) else None for thing in things]
        if key not in self._of:
            if all(thing is None for thing in things):
                return tensor
            self._of[key] = (
                storage,
                np.full(storage.nbytes() // tensor.element_size(), None, dtype=object),
            )
        _seen_as(self._of[key][1], tensor)[...] = _objects(shadows, tuple(tensor.shape))
        with self.torch.no_grad():
            plain = tensor.detach()
            if None not in shadows:
                if tensor.is_floating_point():
                    plain.fill_(math.nan)
                return tensor
            for place, thing, hidden in zip(
                np.ndindex(*tensor.shape), things, shadows, strict=True
            ):
                if hidden is not None:
                    if tensor.is_floating_point():
                        plain[place] = math.nan
                elif thing is not None:
                    plain[place] = thing
        return tensor

    def elements(self, thing: Any) -> Objects:
        """Return the elements of a tensor or scalar as objects: those of the shadow, plain values
        elsewhere.
        """
        if not isinstance(thing, self.torch.Tensor):
            return _objects([thing], ())
        plain = thing.detach()
        if plain.is_floating_point():
            plain = plain.to(self.torch.float64)
        values = plain.reshape(-1).tolist()
        shadow = self.shadow(thing)
        if shadow is not None:
            values = [
                value if hidden is None else hidden
                for value, hidden in zip(values, _listed(shadow), strict=True)
            ]
        return _objects(values, tuple(thing.shape))

    def settle(self, thing: Any) -> bool:
        """Look at every open answer of a tensor, so that its memory is right; return whether
        numbers remain in its shadow.
        """
        shadow = self.shadow(thing) if isinstance(thing, self.torch.Tensor) else None
        if shadow is None:
            return False
        things = _listed(shadow)
        if not any(isinstance(element, DeferredDraw | DrawnOutcome) for element in things):
            return True
        self.put(thing, _objects([settled(element) for element in things], shadow.shape))
        return any(isinstance(element, TracedNumber) for element in things)

    def tensor_of(self, data: Any, dtype: Any, device: Any = None) -> Any:
        """Return a tensor of numbers and plain values."""
        array = np.asarray(data, dtype=object)
        if dtype is None:
            dtype = (
                self.torch.float64
                if isinstance(data, np.ndarray | TracedNumber)
                else self.torch.get_default_dtype()
            )
        return self.put(self.torch.empty(array.shape, dtype=dtype, device=device), array)

    def note_precision(self, *things: Any) -> None:
        """Note the precision of plain tensors that random numbers meet."""
        for thing in things:
            if (
                self.traced
                and isinstance(thing, self.torch.Tensor)
                and thing.dtype == self.torch.float32
                and self.shadow(thing) is None
            ):
                self._run.coarsest = _FLOAT32

    # Calls from Python: what reads a tensor without an operation, and what mixes tensors with
    # numbers.
    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(func, "__name__", "")
        if not self.traced:
            return func(*args, **kwargs)
        self._quiet = True  # the operations on shadows' tensors are no operations of the code
        try:
            answer, args, kwargs = self._asked(name, args, kwargs)
        finally:
            self._quiet = False
        return func(*args, **kwargs) if answer is None else answer[0]

    def _asked(self, name: str, args: Any, kwargs: Any) -> tuple[list[Any] | None, Any, Any]:
        """Return the answer, if there is one without the function itself, and what to call it with."""
        if name in ("tensor", "as_tensor", "asarray") and args and _has_numbers(args[0]):
            return (
                [self.tensor_of(args[0], kwargs.get("dtype"), kwargs.get("device"))],
                args,
                kwargs,
            )
        if any(isinstance(thing, TracedNumber) for thing in (*args, *kwargs.values())):
            args = [
                self.tensor_of(thing, None) if isinstance(thing, TracedNumber) else thing
                for thing in args
            ]
            kwargs = {
                k: self.tensor_of(v, None) if isinstance(v, TracedNumber) else v
                for k, v in kwargs.items()
            }
        if args and name in _READ | _BELOW and self.settle(args[0]):
            return [self._read(name, args[0])], args, kwargs
        return None, args, kwargs

    def _read(self, name: str, tensor: Any) -> Any:
        """Return the numbers of a tensor, as far as they can go on as numbers."""
        objects = self.elements(tensor)
        if name == "item" and tensor.numel() == 1:
            return objects.reshape(-1)[0]
        if name == "tolist":
            return objects.tolist()
        if name in ("numpy", "__array__"):
            return objects.view(TracedArray)
        if name == "__int__":
            return int(objects.reshape(-1)[0])
        if name == "__bool__":
            return bool(objects.reshape(-1)[0])
        raise self.draws.abort(f"a tensor of random numbers was read by {name}")

    # Operations.
    def operated(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._quiet:
            return func(*args, **kwargs)
        base, drawn, random = _described(func)
        if drawn is not None:
            return self._draw(drawn, func, args, kwargs)
        if random:
            raise self.draws.abort(f"torch.{base} has no branches")
        if not self._of:
            return func(*args, **kwargs)
        tensors = [
            thing
            for thing in _flat((*args, *kwargs.values()))
            if isinstance(thing, self.torch.Tensor)
        ]
        shadowed = [tensor for tensor in tensors if self.shadow(tensor) is not None]
        if not shadowed or base in _DATALESS:
            return func(*args, **kwargs)
        if func.is_view or base in ("detach", "lift_fresh", "alias", "_reshape_alias"):
            if base == "view" and func._overloadname == "dtype":
                raise self.draws.abort("the bits of random numbers were looked at")
            return func(*args, **kwargs)
        return self._computed(func, base, args, kwargs, shadowed)

    def _computed(self, func: Any, base: str, args: Any, kwargs: Any, shadowed: list[Any]) -> Any:
        plain = base[:-1] if base.endswith("_") and not base.endswith("__") else base
        plain = {"_to_copy": "to_copy"}.get(plain, plain)
        given = self._bound(func, args, kwargs)
        if plain in _MOVED:
            return self._move(func, plain, args, kwargs, given)
        numbers = any(
            isinstance(thing, TracedNumber)
            for tensor in shadowed
            for thing in self.shadow(tensor).flat
        )  # type: ignore[union-attr]
        if plain == "to_copy":
            return self._converted(func, args, kwargs)
        special = getattr(self, f"_on_{plain}", None)
        if special is not None and (numbers or plain in ("cumprod", "all", "any")):
            return special(func, args, kwargs, given)
        entry = _ELEMENTWISE.get(plain)
        if plain in _OF_TRUTH and given["self"].dtype != self.torch.bool:
            entry = None  # of integers it is arithmetic on bits
        options = given.get("out"), given.get("rounding_mode")
        if entry is not None and (entry.answers or numbers) and options == (None, None):
            if given.get("alpha", 1) != 1:
                raise self.draws.abort(f"torch.{plain} with alpha on random numbers")
            self.note_precision(*given.values())
            operands = [given.get(name) for name in entry.operands]
            return self._each(func, args, kwargs, operands, entry.element)
        for tensor in shadowed:
            if self.settle(tensor):
                raise self.draws.abort(f"torch.{base} on random numbers")
        return func(*args, **kwargs)

    def _bound(self, func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        names, defaults = _signature(func)
        return {**defaults, **dict(zip(names, args, strict=False)), **kwargs}

    def _each(
        self, func: Any, args: Any, kwargs: Any, operands: Any, function: Callable[..., Any]
    ) -> Any:
        """Apply a function to the elements at every place where one of them is open, after the
        operation itself.
        """
        objects = [self.elements(thing) for thing in operands]
        result = func(*args, **kwargs)
        shape = tuple(result.shape)
        rows = [_listed(np.broadcast_to(row, shape)) for row in objects]
        found = [
            function(*here) if any(map(_open, here)) else None for here in zip(*rows, strict=True)
        ]
        return self.put(result, _objects(found, shape))

    def _move(self, func: Any, base: str, args: Any, kwargs: Any, given: dict[str, Any]) -> Any:
        """Do to numbered places what the operation does to elements, and take the shadows along."""
        table: list[Any] = [None]
        data = _MOVED[base]

        def numbered(thing: Any) -> Any:
            if isinstance(thing, list | tuple):
                return [numbered(one) for one in thing]
            if not isinstance(thing, self.torch.Tensor):
                return 0
            places = np.zeros(tuple(thing.shape), dtype=np.int64)
            shadow = self.shadow(thing)
            if shadow is not None:
                for place in np.ndindex(*shadow.shape):
                    if shadow[place] is not None:
                        places[place] = len(table)
                        table.append(shadow[place])
            return self.torch.from_numpy(places).to(thing.device)

        places = {name: numbered(thing) if name in data else thing for name, thing in given.items()}
        for name, thing in given.items():
            for tensor in _flat([thing]) if name not in data else ():
                if self.settle(tensor):
                    raise self.draws.abort(f"torch.{base} by random numbers")
        if base == "clone":
            moved = places["self"]
        elif base == "copy":
            moved = places["src"].expand(given["self"].shape)
        elif base in ("fill", "zero"):
            moved = self.torch.zeros_like(places["self"])
        else:
            packet = getattr(self.torch.ops.aten, base.removesuffix("_impl").removeprefix("_"))
            given_names = [
                argument.name
                for argument in func._schema.arguments
                if argument.name in {**kwargs, **given}
            ]
            moved = packet(
                **{name: places[name] for name in given_names if name not in ("out", "unsafe")}
            )
        result = func(*args, **kwargs)
        ids = moved.cpu().numpy()
        found: Objects = np.full(ids.shape, None, dtype=object)
        for place in np.ndindex(*ids.shape):
            found[place] = table[ids[place]]
        return self._replaced(result, found)

    def _replaced(self, tensor: Any, found: Objects) -> Any:
        """Give a tensor that was written its shadow, and none where it got plain elements."""
        shadow = self.shadow(tensor)
        if shadow is not None:
            shadow[...] = None
        return self.put(tensor, found)

    def _converted(self, func: Any, args: Any, kwargs: Any) -> Any:
        objects = self.elements(args[0])
        result = func(*args, **kwargs)
        kind = (
            bool
            if result.dtype == self.torch.bool
            else float
            if result.is_floating_point()
            else int
        )
        found: Objects = np.full(objects.shape, None, dtype=object)
        for place in np.ndindex(*objects.shape):
            thing: Any = objects[place]
            if isinstance(thing, TracedNumber):
                found[place] = (
                    thing if kind is float else DeferredDraw(functools.partial(kind, thing))
                )
            elif _open(thing):
                found[place] = DeferredDraw(lambda thing=thing: kind(thing.resolve()))  # type: ignore[misc]
        return self.put(result, found)

    # Operations on several elements at once.
    def _rows(self, tensor: Any, dim: Any) -> tuple[Objects, tuple[int, ...]]:
        """Return the elements `(n, length)` along an axis (all of them for None), and the shape of
        the others.
        """
        objects = self.elements(tensor)
        if dim is None:
            return objects.reshape(1, -1), ()
        moved = np.moveaxis(objects, dim, -1) if objects.ndim else objects.reshape(1)
        return moved.reshape(-1, moved.shape[-1]), moved.shape[:-1]

    def _on_argmax(self, func: Any, args: Any, kwargs: Any, given: dict[str, Any]) -> Any:
        rows, _ = self._rows(given["self"], given.get("dim"))
        result = func(*args, **kwargs)
        largest = "argmax" in func._schema.name
        found: Objects = np.empty(len(rows), dtype=object)
        for i, row in enumerate(rows):
            found[i] = DeferredDraw(functools.partial(_extreme, row, largest))
        return self.put(result, found.reshape(tuple(result.shape)))

    _on_argmin = _on_argmax

    def _on_max(self, func: Any, args: Any, kwargs: Any, given: dict[str, Any]) -> Any:
        if isinstance(given.get("other"), self.torch.Tensor):
            raise self.draws.abort("torch.max of two tensors of random numbers")
        rows, _ = self._rows(given["self"], given.get("dim"))
        result = func(*args, **kwargs)
        winners = [_extreme(row, "max" in func._schema.name) for row in rows]
        values: Objects = np.empty(len(rows), dtype=object)
        values[:] = [row[i] for row, i in zip(rows, winners, strict=True)]
        if isinstance(result, self.torch.Tensor):
            return self.put(result, values.reshape(tuple(result.shape)))
        self.put(result[0], values.reshape(tuple(result[0].shape)))
        result[1].copy_(self.torch.tensor(winners).reshape(result[1].shape))
        return result

    _on_min = _on_max

    def _on_sort(self, func: Any, args: Any, kwargs: Any, given: dict[str, Any]) -> Any:
        dim = given.get("dim", -1)
        rows, others = self._rows(given["self"], dim)
        result = func(*args, **kwargs)
        topk = "topk" in func._schema.name
        size = given["k"] if topk else rows.shape[1]
        largest = given.get("largest", True) if topk else given.get("descending", False)
        orders = [
            arg_order([settled(thing) for thing in row], size, largest=largest) for row in rows
        ]
        places = np.moveaxis(np.asarray(orders, dtype=np.int64).reshape(*others, size), -1, dim)
        values: Objects = np.empty((len(rows), size), dtype=object)
        for i, order in enumerate(orders):
            values[i] = [rows[i][j] for j in order]
        of_places, of_values = (
            (result, None) if isinstance(result, self.torch.Tensor) else (result[1], result[0])
        )
        of_places.copy_(self.torch.tensor(places.tolist()).reshape(of_places.shape))
        if of_values is not None:
            self.put(of_values, np.moveaxis(values.reshape(*others, size), -1, dim))
        return result

    _on_topk = _on_argsort = _on_sort

    def _on_searchsorted(self, func: Any, args: Any, kwargs: Any, given: dict[str, Any]) -> Any:
        bucketize = "bucketize" in func._schema.name
        table, values = (
            (given["boundaries"], given["self"])
            if bucketize
            else (given["sorted_sequence"], given["self"])
        )
        if self.settle(table):
            raise self.draws.abort("torch.searchsorted in random numbers")
        self.note_precision(table)
        right = given.get("right", False) or given.get("side") == "right"
        ends, wanted = self.elements(table), self.elements(values)
        result = func(*args, **kwargs)
        shape = tuple(result.shape)
        wanted = np.broadcast_to(wanted, shape)
        found: Objects = np.full(shape, None, dtype=object)
        for place in np.ndindex(*shape):
            if _open(wanted[place]):
                row = ends if ends.ndim == 1 else ends[place[:-1]]
                found[place] = DeferredDraw(
                    functools.partial(_position, row.tolist(), wanted[place], right)
                )
        return self.put(result, found)

    _on_bucketize = _on_searchsorted

    def _on_all(self, func: Any, args: Any, kwargs: Any, given: dict[str, Any]) -> Any:
        if isinstance(given.get("dim"), list | tuple):
            if self.settle(given["self"]):
                raise self.draws.abort("torch.all of random numbers")
            return func(*args, **kwargs)
        rows, _ = self._rows(given["self"], given.get("dim"))
        result = func(*args, **kwargs)
        every = all if func._schema.name.endswith("all") else any
        found: Objects = np.empty(len(rows), dtype=object)
        for i, row in enumerate(rows):
            found[i] = DeferredDraw(lambda row=row: every(bool(settled(thing)) for thing in row))  # type: ignore[misc]
        return self.put(result, found.reshape(tuple(result.shape)))

    _on_any = _on_all

    def _on_cumprod(self, func: Any, args: Any, kwargs: Any, given: dict[str, Any]) -> Any:
        dim = given["dim"]
        rows, others = self._rows(given["self"], dim)
        if any(isinstance(thing, TracedNumber) for thing in rows.flat):
            raise self.draws.abort("torch.cumprod of random numbers")
        result = func(*args, **kwargs)
        found: Objects = np.empty(rows.shape, dtype=object)
        for i, row in enumerate(rows):
            for j in range(len(row)):
                found[i, j] = DeferredDraw(functools.partial(_product, row[: j + 1]))
        return self.put(result, np.moveaxis(found.reshape(*others, rows.shape[1]), -1, dim))

    # Draws.
    def _draw(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Execute a random operation, so that its generator moves, and give the result its law."""
        given = self._bound(func, args, kwargs)
        generator = given.get("generator")
        generator = self.torch.default_generator if generator is None else generator
        state = "torch", generator.get_state().numpy().tobytes()
        for thing in _flat(given.values()):
            parameter = thing is not given.get("self") or not func._schema.name.endswith("_")
            if parameter and self.traced and self.settle(thing):
                raise self.draws.abort(f"{func._schema.name} with random numbers as parameters")
        count, parameters = self._parameters(name, given)
        result = func(*args, **kwargs)
        values = TORCH[name].law(
            self.draws, state, result.numel() if count is None else count, **parameters
        )
        if values and isinstance(values[0], SeedInteger):
            return result  # good for seeds only; executions on real randomness see to the rest
        if self.traced:
            return self._replaced(result, _objects(values, tuple(result.shape)))
        with self.torch.no_grad():
            plain = self.torch.as_tensor(np.asarray(values, dtype=np.float64))
            result.copy_(plain.reshape(result.shape))
        return result

    def _parameters(self, name: str, given: dict[str, Any]) -> tuple[int | None, dict[str, Any]]:
        """Return how many values are drawn, unless one for each element, and the law's parameters."""
        if name in ("bernoulli", "multinomial"):
            self.note_precision(given["self"])
        weights = given["self"].detach().to(self.torch.float64) if "self" in given else None
        if name == "multinomial":
            rows = weights.reshape(-1, weights.shape[-1]).tolist()
            return given["num_samples"], {"rows": rows, "replace": given.get("replacement", False)}
        if name == "bernoulli" and given.get("p") is None:
            return None, {"p": weights.reshape(-1).tolist()}
        parameters = TORCH[name].parameters(given)
        if any(isinstance(thing, self.torch.Tensor) for thing in parameters.values()):
            raise self.draws.abort(f"torch.{name} with tensors has no branches")
        return None, parameters


@functools.cache
def _described(func: Any) -> tuple[str, str | None, bool]:
    """Return an operation's name, that of what it draws in `TORCH`, and whether it is random."""
    base = func._schema.name.removeprefix("aten::")
    drawn = base.rstrip("_").removesuffix("_like")
    seeded = type(func.tags[0]).nondeterministic_seeded in func.tags if func.tags else False
    return base, drawn if drawn in TORCH else None, seeded


@functools.cache
def _signature(func: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of an operation's arguments, and their defaults."""
    arguments = func._schema.arguments
    defaults = {
        argument.name: argument.default_value
        for argument in arguments
        if argument.has_default_value()
    }
    return tuple(argument.name for argument in arguments), defaults


def _seen_as(objects: Objects, tensor: Any) -> Objects:
    """Return the view of a storage's objects that the tensor is of the storage."""
    flat = objects[tensor.storage_offset() :]
    if tensor.is_contiguous():
        return flat[: tensor.numel()].reshape(tuple(tensor.shape))
    return np.lib.stride_tricks.as_strided(
        flat, tuple(tensor.shape), [8 * n for n in tensor.stride()]
    )


def _listed(objects: Objects) -> list[Any]:
    found: list[Any] = objects.reshape(-1).tolist()
    return found


def _objects(things: list[Any], shape: tuple[int, ...]) -> Objects:
    """Return things as an array of objects."""
    found: Objects = np.empty(len(things), dtype=object)
    found[:] = things
    return found.reshape(shape)


def _open(thing: Any) -> bool:
    return isinstance(thing, _OPEN)


def _extreme(row: Any, largest: bool) -> int:
    return arg_extreme([settled(thing) for thing in row], largest=largest)


def _position(ends: list[float], value: Any, right: bool) -> int:
    x = settled(value)
    for i, end in enumerate(ends):
        if x < end or (not right and x == end):
            return i
    return len(ends)


def _product(row: Any) -> Any:
    found: Any = 1
    for thing in row:
        found = found * settled(thing)
        if not found:
            break
    return found


def _flat(things: Any) -> list[Any]:
    found = []
    for thing in things:
        found += _flat(thing) if isinstance(thing, list | tuple) else [thing]
    return found


def _has_numbers(data: Any) -> bool:
    if isinstance(data, np.ndarray):
        return data.dtype == object and any(isinstance(thing, TracedNumber) for thing in data.flat)
    if isinstance(data, list | tuple):
        return any(map(_has_numbers, data))
    return isinstance(data, TracedNumber)
