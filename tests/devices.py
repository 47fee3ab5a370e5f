"""A device where there is none: torch's fake tensors on CUDA, a watch on what waits for the host,
the CPU told to be one.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from otm._machine import arrays, compiled

_READS = {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal"}
_SIZED_BY_VALUES = {
    "aten::nonzero",
    "aten::masked_select",
    "aten::bincount",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
}


@contextlib.contextmanager
def replaced(name: str, function: Callable[..., Any], home: Any = arrays) -> Iterator[None]:
    """Put another function in the place of one, wherever the library has imported it."""
    plain = getattr(home, name)
    with pytest.MonkeyPatch.context() as patch:
        for module in _library(len(sys.modules)):
            if getattr(module, name, None) is plain:
                patch.setattr(module, name, function)
        yield


@functools.lru_cache(maxsize=1)
def _library(num_modules: int) -> list[ModuleType]:
    """Return the library's modules, as long as no other module is imported."""
    return [module for name, module in list(sys.modules.items()) if name.startswith("otm")]


def no_host() -> Any:
    """Treat every torch tensor as one that the host cannot look into, so that the CPU runs what a
    device would.
    """
    plain = arrays.is_on_host
    return replaced(
        "is_on_host", lambda array: not isinstance(array, torch.Tensor) and plain(array)
    )


def without_compiled_code() -> Any:
    """Have the library do without numba."""
    return replaced("compiled", lambda name, seconds: None, compiled)


class Watch(TorchDispatchMode):
    """Count what makes the host wait for a device, or moves an array from one to the other.

    A number that the host asks of a fake tensor is answered by 0, so that the call goes on.

    Attributes:
        waits: the names of the operations that wait for the device, in order.
        sends: copies from the host to the device, which nothing waits for.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []
        self.sends: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split(".")[0]
        fake = any(isinstance(a, torch.Tensor) and a.device.type != "cpu" for a in args)
        if name in _READS | _SIZED_BY_VALUES or (name == "aten::index" and _has_mask(args[1])):
            self.waits.append(name)
            if fake and name == "aten::_local_scalar_dense":
                return args[0].dtype.is_floating_point and 0.0
        result = func(*args, **(kwargs or {}))
        if name in ("aten::_to_copy", "aten::copy_"):
            source = args[1] if name == "aten::copy_" else args[0]
            if source.device != result.device and source.ndim:
                (self.waits if result.device.type == "cpu" else self.sends).append(name)
        return result


def _has_mask(indices: Any) -> bool:
    return any(isinstance(i, torch.Tensor) and i.dtype == torch.bool for i in indices)


class _PlainIndexing(TorchFunctionMode):
    """Index by the operations that indexing is made of: a torch without CUDA has a guard in front
    of the brackets themselves.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            view, tensors = _view(*args)
            return view if tensors is None else torch.ops.aten.index(view, tensors)
        if func is torch.Tensor.__setitem__:
            view, tensors = _view(*args[:2])
            value = (
                args[2]
                if isinstance(args[2], torch.Tensor)
                else torch.full((), args[2], dtype=view.dtype, device=view.device)
            )
            return (
                torch.ops.aten.copy_(view, value)
                if tensors is None
                else torch.ops.aten.index_put_(view, tensors, value)
            )
        if func is torch.Tensor.contiguous:
            return (
                args[0]
                if args[0].is_contiguous()
                else torch.ops.aten.clone(args[0], memory_format=torch.contiguous_format)
            )
        return func(*args, **(kwargs or {}))


def _view(array: torch.Tensor, key: Any) -> tuple[torch.Tensor, list[Any] | None]:
    """Return what slices, numbers and new axes select, and the tensors that index it."""
    parts = list(key) if isinstance(key, tuple) else [key]
    whole = array.ndim - sum(part is not None and part is not Ellipsis for part in parts)
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    (at,) = [i for i, part in enumerate(parts) if part is Ellipsis]
    parts[at : at + 1] = [slice(None)] * whole
    tensors: list[Any] = []
    for part in parts:
        axis = len(tensors)
        if isinstance(part, int):
            array = torch.ops.aten.select(array, axis, part)
            continue
        if part is None:
            array = torch.ops.aten.unsqueeze(array, axis)
        elif isinstance(part, slice) and part != slice(None):
            array = torch.ops.aten.slice(array, axis, part.start, part.stop, part.step or 1)
        tensors.append(part if isinstance(part, torch.Tensor) else None)
    return array, tensors if any(t is not None for t in tensors) else None


@contextlib.contextmanager
def fake_cuda(
    copied: Callable[[tuple[int, ...]], np.ndarray] = np.zeros,
) -> Iterator[tuple[FakeTensorMode, Watch]]:
    """Yield a mode that makes tensors without data on a CUDA device, and the watch on them.

    What is copied to the host is what `copied` makes of its shape.
    """
    watch = Watch()

    def watched(array: Any) -> Any:
        if isinstance(array, torch.Tensor) and array.device.type != "cpu":
            watch.waits.append("to_numpy")
            return copied(tuple(array.shape))
        return plain(array)

    plain = arrays.to_numpy
    with replaced("to_numpy", watched), FakeTensorMode() as mode, watch, _PlainIndexing():
        yield mode, watch
