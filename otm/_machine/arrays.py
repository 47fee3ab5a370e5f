"""Array operations that the array-API standard lacks, or leaves open in accuracy.

Every function takes arrays of any namespace that `array_api_compat` knows (NumPy, torch on CPU or
CUDA) and returns the same kind on the same device. Nothing here imports torch.
"""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

Array = Any
"""An array of any supported namespace; shapes are given in docstrings as `(..., V)`."""

Floats = NDArray[np.float64]

_OF_NUMPY = (np.ndarray, np.generic)

UNIT_ROUNDOFF = 2.0**-53
LEAST = 2.0**-1074  # the least float above 0

# Rows are processed in chunks of at most this many elements, so that temporaries stay in cache and
# peak extra memory is bounded by a few chunks, not by a few copies of the input.
CHUNK_ELEMENTS = 1 << 19
CHUNK_ON_DEVICE = 1 << 24  # a device needs enough work per call: a dozen temporaries of 128 MB

BLOCK = 256  # about √V at the vocabularies of language models

_SHOWN = 8  # entries of a row that a repr prints

_WORTH_A_THREAD = 1 << 16  # elements

_LONG_ROW = 256  # from here on a loop over rows costs nothing beside the rows

quiet: Callable[[], contextlib.AbstractContextManager[object]] = functools.partial(
    np.errstate, divide="ignore", invalid="ignore", over="ignore", under="ignore"
)
"""Silence NumPy where 0/0, x/0 and log 0 are intended and the results used; other namespaces never
warn.
"""


def namespace(*arrays: Array) -> Any:
    """Return the array-API namespace that the arrays share."""
    for array in arrays:  # called at every step of everything: a generator costs twice as much
        if not isinstance(array, _OF_NUMPY):
            return array_api_compat.array_namespace(*arrays)
    return np  # of the standard since 2.1; the compatible one takes .1 s to load


def is_on_host(array: Array) -> bool:
    """True if an array lies in the host's memory, where no read has to wait for a device."""
    return str(getattr(array, "device", "cpu")) == "cpu"


def host_views(arrays: Sequence[Array]) -> list[NDArray[Any]] | None:
    """Return NumPy views of arrays on the host, without a copy; None if one lies elsewhere.

    NumPy and compiled loops are fastest on the host, and need no second implementation: a torch
    tensor on the CPU is a NumPy array by another name.
    """
    if not all(is_on_host(array) for array in arrays):
        return None
    return [array if isinstance(array, np.ndarray) else to_numpy(array) for array in arrays]


def device_of(array: Array) -> Any:
    """Return the device for new arrays beside this one; None for NumPy, which has one."""
    return None if isinstance(array, np.ndarray) else array.device


def num_threads(array: Array) -> int:
    """Return the number of threads that the array's own library uses on the host; 1 for NumPy."""
    return int(getattr(namespace(array), "get_num_threads", lambda: 1)())


def share(function: Callable[[Any], Any], pieces: Sequence[Any], threads: int) -> list[Any]:
    """Apply a function that releases the interpreter's lock to every piece, on some threads."""
    if threads == 1 or len(pieces) == 1:
        return [function(piece) for piece in pieces]
    with cf.ThreadPoolExecutor(min(threads, len(pieces))) as pool:
        return list(pool.map(function, pieces))


def to_numpy(array: Array) -> NDArray[Any]:
    """Copy an array of any device to a NumPy array."""
    if isinstance(array, np.ndarray):
        return array
    if array_api_compat.is_torch_array(array):
        array = array.detach()
    return np.asarray(array_api_compat.to_device(array, "cpu"))


def tracks_gradient(*arrays: Array) -> bool:
    """True if torch records operations on one of the arrays, for differentiation.

    Under `torch.no_grad()` nothing is recorded, even for a tensor that requires gradients.
    """
    return any(
        array_api_compat.is_torch_array(array)
        and array.requires_grad
        and (array[None][:0] + 0.0).requires_grad
        for array in arrays
    )


def untracked(array: Array) -> Array:
    """Return an array with the same numbers, not copied, detached from torch's gradient graph."""
    return (
        array.detach() if array_api_compat.is_torch_array(array) and array.requires_grad else array
    )


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredRows:
    """Rows `(..., V)` of numbers, with the extremes that tell whether these are distributions.

    Attributes:
        xp: the array-API namespace of the rows.
        given: the rows, with a gradient perhaps.
        rows: the same without a gradient.
        tracked: whether torch records operations on the rows.
        given_sums, sums: Σ along the last axis in float64 `(...)`, with and without a gradient.
        smallest: the smallest entry.
        worst: the largest |sum − 1|. A NaN or infinity anywhere makes the sum of the row NaN or
            infinite, and so this number: one pass finds both.
        signed: whether an entry is negative or −0.
        least: the smallest sum.
    """

    xp: Any
    given: Array
    rows: Array
    tracked: bool
    given_sums: Array
    sums: Array
    smallest: float
    worst: float
    signed: bool
    least: float


def measure(arrays: Sequence[Array]) -> list[MeasuredRows]:
    """Measure several arrays of rows `(..., V)`, with one wait if all are on one device."""
    with quiet():
        sums = [total(array) for array in arrays]
        asked = [
            _extremes(untracked(array), untracked(each))
            for array, each in zip(arrays, sums, strict=True)
        ]
    places = {(type(each), str(getattr(each, "device", ""))) for each in asked}
    if len(places) == 1 and not isinstance(asked[0], list):
        found = to_numpy(namespace(*asked).stack(list(asked), axis=0)).tolist()
    else:
        found = [each if isinstance(each, list) else to_numpy(each).tolist() for each in asked]
    return [
        MeasuredRows(
            xp=namespace(array),
            given=array,
            rows=untracked(array),
            tracked=tracks_gradient(array),
            given_sums=each,
            sums=untracked(each),
            smallest=smallest,
            worst=worst,
            signed=bool(signed),
            least=least,
        )
        for array, each, (smallest, worst, signed, least) in zip(arrays, sums, found, strict=True)
    ]


def _extremes(array: Array, sums: Array) -> Array | list[float]:
    """Return smallest entry, largest |sum − 1|, a flag for negative entries, and least sum."""
    xp = namespace(array)
    if is_on_host(array):
        smallest = float(xp.min(array))
        # only 0 can have a sign unseen
        signed = smallest == 0.0 and bool(xp.any(xp.signbit(array)))
        return [smallest, float(xp.max(xp.abs(sums - 1))), signed, float(xp.min(sums))]
    found = xp.min(array), xp.max(xp.abs(sums - 1)), xp.any(xp.signbit(array)), xp.min(sums)
    return xp.stack([xp.astype(x, xp.float64, copy=False) for x in found], axis=0)


def with_gradient(values: Array, function: Array) -> Array:
    """Return the values with the gradient of another, finite array of the same shape.

    The values of `function` are subtracted again; only its gradient counts.

    So an answer that took a search keeps every bit, and has the gradient of a formula that the
    search has made simple.
    """
    return values + (function - untracked(function))


def running_sum(array: Array) -> Array:
    """Return the cumulative sum along the last axis in float64, `(..., V)`, perhaps in place.

    In blocks of `BLOCK` whose ends are summed in turn: a sum of non-negative terms errs by BLOCK +
    V/BLOCK units of roundoff at worst, relative to itself, instead of V, and never falls. Devices
    scan in tiles of their own accord.

    On NumPy the sum is taken in place: at 100,000 entries a fresh array costs as much in page
    faults as the sum itself.
    """
    xp, width = namespace(array), int(array.shape[-1])
    in_place = isinstance(array, np.ndarray) and array.dtype == np.float64

    def add_up(part: Array) -> Array:
        return (
            np.cumsum(part, axis=-1, out=part)
            if in_place
            else xp.cumulative_sum(part, axis=-1, dtype=xp.float64)
        )

    if width < 2 * BLOCK or not is_on_host(array):
        return add_up(array)
    whole = width - width % BLOCK
    # on NumPy a view: an axis is split
    blocks = add_up(xp.reshape(array[..., :whole], (*tuple(array.shape[:-1]), -1, BLOCK)))
    ends = xp.cumulative_sum(blocks[..., -1], axis=-1)
    blocks[..., 1:, :] += ends[..., :-1, None]
    rest = add_up(array[..., whole:])
    rest += ends[..., -1:]
    return (
        array
        if in_place
        else xp.concat([xp.reshape(blocks, (*tuple(array.shape[:-1]), whole)), rest], axis=-1)
    )


def total(array: Array) -> Array:
    """Sum along the last axis in float64, `(..., V)` to `(...)`.

    NumPy sums pairwise and torch in vector lanes, so the error is O(log V) units in the last place.
    """
    xp = namespace(array)
    if isinstance(array, np.ndarray) and array.ndim > 1 and array.strides[-1] != array.itemsize:
        # NumPy adds such rows up column by column, one term after the other
        array = np.ascontiguousarray(array)
    return xp.sum(array, axis=-1, dtype=xp.float64)


def gather(array: Array, indices: Array) -> Array:
    """Take entries along the last axis, batched: `out[..., j] = array[..., indices[..., j]]`."""
    xp = namespace(array, indices)
    if array.ndim == 1 and isinstance(array, np.ndarray):
        return xp.take(array, indices, axis=0)  # twice as fast as the batched form on one row
    if (
        isinstance(array, np.ndarray)
        and indices.ndim == array.ndim == 2
        and indices.shape[-1] >= _LONG_ROW
    ):
        picked = np.empty(indices.shape, array.dtype)
        for row, (values, wanted) in enumerate(zip(array, indices, strict=True)):
            # a third of take_along_axis's time
            np.take(values, wanted, out=picked[row], mode="clip")
        return picked
    if array_api_compat.is_torch_array(array):
        # the wrapper, which also takes negative indices, makes four passes more
        return array.gather(-1, indices)
    return xp.take_along_axis(array, indices, axis=-1)


def search_rows(table: Array, values: Array) -> Array:
    """Count the entries of each row's ascending table that do not exceed each value.

    `table` is `(rows, m)`, `values` `(rows, n)`, the counts are `(rows, n)` in int64.

    The standard's `searchsorted` takes one table: NumPy goes row by row, other kinds use their own
    batched one.
    """
    if isinstance(table, np.ndarray):
        if table.ndim == 1:
            return table.searchsorted(values, side="right")
        return np.stack(
            [
                row.searchsorted(wanted, side="right")
                for row, wanted in zip(table, values, strict=True)
            ]
        )
    return namespace(table, values).searchsorted(
        table.contiguous(), values.contiguous(), right=True
    )


def histogram(index: Array, weights: Array, bins: int) -> Array:
    """Sum the weights `(..., V)` that fall into each bin, `(..., bins)` in float64.

    `index` holds integers in [0, bins).

    The standard has no scatter-add: NumPy counts rows side by side, other kinds use their own
    `scatter_add`.
    """
    xp = namespace(index, weights)
    wide = xp.astype(weights, xp.float64, copy=False)
    shape = (*tuple(index.shape[:-1]), bins)
    if isinstance(index, np.ndarray):
        if index.ndim == 1:
            return np.bincount(index, weights=wide, minlength=bins)
        rows = int(np.prod(index.shape[:-1], dtype=np.int64))
        shifted = index.reshape(rows, -1) + bins * np.arange(rows)[:, None]
        return np.bincount(
            shifted.reshape(-1), weights=wide.reshape(-1), minlength=rows * bins
        ).reshape(shape)
    return xp.zeros(shape, dtype=xp.float64, device=index.device).scatter_add(-1, index, wide)


def true_places(flags: Array, room: int) -> tuple[Array, Array]:
    """Return the places of the first `room` true flags of each row, and whether there are more.

    `flags` is `(rows, V)`, the places are `(rows, room)`, V for none.

    On the host, which can look, the result is no wider than the fullest row needs.
    """
    xp, width = namespace(flags), int(flags.shape[-1])
    if isinstance(flags, np.ndarray):
        found = [np.flatnonzero(row) for row in flags]
        places = np.full((len(found), max(1, min(room, max(map(len, found))))), width)
        for row, where in zip(places, found, strict=True):
            row[: len(where)] = where[: len(row)]
        return places, np.asarray([len(where) > room for where in found])
    count = xp.cumulative_sum(flags, axis=-1, dtype=xp.int32)
    wanted = xp.arange(room, dtype=xp.int32, device=flags.device)
    places = search_rows(count, xp.broadcast_to(wanted, (int(flags.shape[0]), room)))
    return places, count[:, -1] > room


def reserve(elements: int) -> None:
    """Make the allocator keep the pages of the caller's float64 temporaries.

    Arrays of 100,000 entries cost more in page faults than in arithmetic. glibc hands freed memory
    back to the kernel beyond twice the size of the largest block it has seen freed (32 MiB at
    most), so one untouched block of the right size settles it. Elsewhere this does nothing. Cost: a
    microsecond.
    """
    np.empty(min(elements, _LARGEST_RESERVED))


_LARGEST_RESERVED = (1 << 22) - 1024  # just below the 32 MiB at which glibc stops adapting


def clip(array: Array, low: float, high: float) -> Array:
    """Limit entries to [low, high], on NumPy without the wrapper's checks.

    The checks cost more than small arrays do.
    """
    if isinstance(array, np.ndarray | np.generic):
        return np.minimum(np.maximum(array, low), high)
    return namespace(array).clip(array, low, high)


def integer_power(base: Array, exponent: int) -> Array:
    """Raise to an integer power ≥ 1 by squaring, from the leading bit down, in one new array.

    A generic `pow` costs ten multiplications per element.
    """
    result = namespace(base).asarray(base, copy=True)
    for bit in bin(exponent)[3:]:
        result *= result
        if bit == "1":
            result *= base
    return result


def at_least_one(chance: Array, count: Array | int) -> Array:
    """Return 1 − (1 − h)^count, broadcast, with full relative accuracy for a small chance h."""
    xp = namespace(chance)
    with quiet():
        return -xp.expm1(count * xp.log1p(-clip(chance, 0.0, 1.0)))


def unit_rows(array: Array) -> Array:
    """Return distributions `(..., V)` in float64, float32 rows divided by the sums.

    A float32 row misses a unit sum by up to 1e-7.

    Without the division an acceptance could exceed 1 by as much, a lower bound exceed its upper
    bound, and p = q would not be p = q after a cast.
    """
    xp = namespace(array)
    if array.dtype == xp.float64:
        return array
    wide = xp.astype(array, xp.float64)
    scale = 1.0 / total(wide)[..., None]
    if tracks_gradient(array):
        return wide * scale  # the product's gradient needs both as they were
    wide *= scale
    return wide


def normalised_excess(excess: Array, fallback: Array) -> Array:
    """Divide non-negative weights `(..., V)` by the sums; rows with sum 0 take the fallback."""
    xp = namespace(excess)
    mass = total(excess)[..., None]
    return xp.where(mass > 0, excess / xp.where(mass > 0, mass, xp.ones_like(mass)), fallback)


def by_rows(function: Callable[..., Array], *arrays: Array, per_entry: int = 1) -> Array:
    """Apply a function to chunks of distributions `(..., V)` and join the results `(n, rows)`.

    Each chunk is converted by `unit_rows`, and is so small that a result with `per_entry` numbers
    for each entry has no more numbers than a chunk.

    Rows in the host's memory go through NumPy, or what is compiled, whatever their kind; those of
    torch on torch's threads. Rows that track a gradient stay what they are. The results are of the
    arrays' kind, `(n, ...)`.
    """
    xp, views = namespace(*arrays), None if tracks_gradient(*arrays) else host_views(arrays)
    if views is None or isinstance(arrays[0], np.ndarray):
        return _by_rows(function, arrays, 1, per_entry)
    return xp.asarray(_by_rows(function, views, num_threads(arrays[0]), per_entry))


def _by_rows(
    function: Callable[..., Array], arrays: Sequence[Array], threads: int, per_entry: int
) -> Array:
    xp = namespace(*arrays)
    leading, width = tuple(arrays[0].shape[:-1]), int(arrays[0].shape[-1])
    rows = int(np.prod(leading, dtype=np.int64)) if leading else 1
    step = max(
        1,
        (CHUNK_ELEMENTS if is_on_host(arrays[0]) else CHUNK_ON_DEVICE) // (width * per_entry),
    )
    if threads > 1 and rows * width >= _WORTH_A_THREAD:
        step = min(step, -(-rows // threads))
    if not leading or (rows <= step and threads == 1):
        return function(*map(unit_rows, arrays))
    flat = [xp.reshape(array, (rows, width)) for array in arrays]

    def piece(start: int) -> Array:
        return function(*(unit_rows(array[start : start + step, :]) for array in flat))

    joined = xp.concat(share(piece, range(0, rows, step), threads), axis=-1)
    return xp.reshape(joined, (int(joined.shape[0]), *leading))


def as_scalar_or_array(array: Array) -> Any:
    """Return a 0-dimensional result as a Python float unless a gradient is attached."""
    return float(array) if array.ndim == 0 and not tracks_gradient(array) else array


def brief_repr(instance: Any) -> str:
    """Return the repr of a dataclass, with floats to 12 digits and long rows abbreviated.

    Ends that are rounded outward by parts in 1e15 read as the numbers that they bound.

    >>> import otm
    >>> otm.Problem(draft=[0.1 + 0.2, 0.7], target=[0.5, 0.5], law=otm.IID(2))
    Problem(draft=[0.3, 0.7], target=[0.5, 0.5], law=IID(k=2))
    """
    shown = (f"{f.name}={_brief(getattr(instance, f.name))}" for f in fields(instance) if f.repr)
    return f"{type(instance).__name__}({', '.join(shown)})"


def _brief(value: Any) -> str:
    """Return the repr of a float or a short row, or the shape and dtype of a large array."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if not array_api_compat.is_array_api_obj(value):
        return repr(value) if not isinstance(value, Mapping) else f"<{len(value)} entries>"
    array: Any = value
    if array.ndim == 0:
        return _brief(array.item())
    if array.ndim > 1 or len(array) > _SHOWN:
        dtype = str(array.dtype).removeprefix("torch.")
        return f"<{' × '.join(map(str, array.shape))} {dtype}>"
    return f"[{', '.join(f'{x:.12g}' for x in to_numpy(untracked(array)).tolist())}]"


@functools.lru_cache(maxsize=64)
def unit_quadrature(nodes: int) -> tuple[Floats, Floats]:
    """Return the places and weights of Gauss–Legendre quadrature on [0, 1].

    >>> places, weights = unit_quadrature(2)
    >>> round(float(weights @ places**3), 15)
    0.25
    """
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return 0.5 + 0.5 * places, 0.5 * weights


def inverse_cdf(mass: NDArray[Any], uniforms: NDArray[Any]) -> NDArray[np.int64]:
    """Map uniforms in [0, 1) to tokens with probability mass / Σ mass, never to massless tokens.

    NumPy only; `mass` is `(V,)`, `uniforms` and the result have any one shape.
    """
    cumulative = np.cumsum(mass)
    last = int(np.flatnonzero(mass)[-1])
    tokens = np.searchsorted(cumulative, uniforms * cumulative[-1], side="right")
    # u·total can round up to the total itself
    return np.asarray(np.minimum(tokens, last), dtype=np.int64)
