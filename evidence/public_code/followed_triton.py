"""Triton's language in torch calls, one program after the other, so that an audit follows what a
kernel draws and branches on; Triton itself is not needed.

It is for toys: blocks end after four entries, so vocabularies have four tokens at most. What a
compiler makes of a kernel, and races between its programs, are not seen.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

import torch

MOST_TOKENS = 4


@dataclasses.dataclass(frozen=True)
class Pointer:
    """A place in a flat tensor, or several."""

    flat: torch.Tensor
    offset: Any = 0

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.flat, self.offset + more)

    __radd__ = __add__

    def __sub__(self, less: Any) -> Pointer:
        return Pointer(self.flat, self.offset - less)


class Kernel:
    """A function that kernels call, or a kernel: `kernel[grid](*arguments)`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it from another kernel."""
        return self.function(*args, **kwargs)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, num_warps: int = 0, **kwargs: Any) -> None:
            given = [
                Pointer(one.view(-1)) if isinstance(one, torch.Tensor) else one for one in args
            ]
            for _programs[:] in itertools.product(*(range(size) for size in grid)):
                self.function(*given, **kwargs)

        return launch


_programs: list[int] = []
"""The ids of the program that runs."""


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(value)


def _jit(function: Any = None, **how: Any) -> Any:
    return _jit if function is None else Kernel(function)


def _load(pointer: Pointer, mask: Any = True, other: Any = 0) -> torch.Tensor:
    """Return what lies there; one place is looked at only where the mask is set."""
    if not _tensor(pointer.offset).ndim:
        return pointer.flat[int(pointer.offset)].clone() if mask else _tensor(other)
    inside = _tensor(mask).expand(pointer.offset.shape)
    return torch.where(inside, pointer.flat[torch.where(inside, pointer.offset, 0)], other)


def _store(pointer: Pointer, value: Any, mask: Any = True) -> None:
    if bool(mask):
        pointer.flat[int(pointer.offset)] = value


def _where(condition: Any, yes: Any, no: Any) -> Any:
    """Choose elements; one condition is branched on."""
    if _tensor(condition).ndim:
        return torch.where(condition, yes, no)
    return _tensor(yes if condition else no)


def _decided(value: torch.Tensor) -> torch.Tensor:
    """Return conditions as plain ones, each branched on."""
    return torch.tensor([bool(one) for one in value]) if value.dtype == torch.bool else value


def _max(value: torch.Tensor, axis: int = 0, *, return_indices: bool = False) -> Any:
    decided = _decided(value)
    place = decided.int().argmax() if decided.dtype == torch.bool else decided.argmax()
    return (decided[place], place) if return_indices else decided[place]


def _language() -> types.SimpleNamespace:
    """Return `triton.language`, as far as kernels of verification use it."""
    kinds = {name: getattr(torch, name) for name in ("int32", "int64", "float32", "float64")}
    return types.SimpleNamespace(
        **kinds,
        int1=torch.bool,
        constexpr=lambda value: value,
        static_range=range,
        program_id=lambda axis: torch.tensor(_programs[axis]),
        arange=lambda begin, end: torch.arange(begin, min(end, MOST_TOKENS)),
        load=_load,
        store=_store,
        where=_where,
        max=_max,
        argmax=lambda value, axis=0: _max(value, axis, return_indices=True)[1],
        sum=lambda value, axis=0: value.sum(),
        cumsum=lambda value, axis=0: value.cumsum(0),
        minimum=lambda one, other: torch.minimum(_tensor(one), _tensor(other)),
        maximum=lambda one, other: torch.maximum(_tensor(one), _tensor(other)),
        exp=torch.exp,
        log=torch.log,
        cast=lambda value, dtype: _tensor(value).to(dtype),
        zeros=lambda shape, dtype: torch.zeros(shape, dtype=dtype),
        full=lambda shape, value, dtype: torch.full(shape, value, dtype=dtype),
    )


TRITON = types.SimpleNamespace(
    jit=_jit,
    cdiv=lambda size, block: -(-size // block),
    next_power_of_2=lambda size: 1 << (size - 1).bit_length(),
)

GIVEN = {
    "triton": TRITON,
    "tl": _language(),
    "tldevice": types.SimpleNamespace(log1p=torch.log1p),
}
"""What a file of kernels is to find under the names that it imports."""
