"""Triton's language in torch calls, all programs at once, for kernels without branches.

Thousands of steps are fast, where Triton's own interpreter takes milliseconds a program. A scalar
of the programs is `(P, 1)`, a block `(P, BLOCK)`. Effects of a compiler, and races between
programs, are not seen.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import threading
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from analysis.kernels import noise, vocabulary
from tests.paths import ROOT


@dataclasses.dataclass(frozen=True)
class Pointer:
    """Places in a flat tensor."""

    flat: torch.Tensor
    offset: Any = 0

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.flat, self.offset + more)

    @property
    def dtype(self) -> Any:
        """The type of a pointer, with the type of the elements."""
        return types.SimpleNamespace(element_ty=self.flat.dtype)


class Kernel:
    """A function that kernels call, or a kernel: `kernel[grid](*arguments)`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            axes = torch.meshgrid(*map(torch.arange, grid), indexing="ij")
            _launched.programs = [
                (axis.reshape(-1, 1), size) for axis, size in zip(axes, grid, strict=True)
            ]
            given = [Pointer(x.view(-1)) if isinstance(x, torch.Tensor) else x for x in args]
            self.function(*given, **kwargs)

        return launch


_launched = threading.local()
"""Holds `programs`: along each axis of the grid, the ids and the number of all programs."""


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(value)


def _load(pointer: Pointer, mask: Any = True, other: Any = 0) -> torch.Tensor:
    place = torch.where(_tensor(mask), _tensor(pointer.offset), 0)
    return torch.where(_tensor(mask), pointer.flat[place], torch.tensor(other).to(pointer.flat))


def _store(pointer: Pointer, value: torch.Tensor) -> None:
    pointer.flat[pointer.offset] = value.to(pointer.flat.dtype)


def _atomic_add(pointer: Pointer, value: torch.Tensor, mask: torch.Tensor) -> None:
    pointer.flat.index_add_(0, pointer.offset[mask], value[mask])


def _full(shape: tuple[int, ...], value: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((len(_launched.programs[0][0]), *(shape or (1,))), value, dtype=dtype)


def _philox(seed: Any, pair: Any, low: Any, high: Any, stream: int, rounds: int) -> Any:
    """Return the four words, by the library's own rounds, a pair and a position at a time."""
    assert (stream, rounds) == (0, noise._ROUNDS)
    width = int(pair.max()) + 1
    uniform = noise.uniform_rows(seed[:, 0], low[:, 0], 2 * width)
    whole = (uniform * 2.0**52 - 0.5).long().unflatten(-1, (width, 2))
    both = whole.gather(1, pair.expand(len(whole), -1)[..., None].expand(-1, -1, 2))
    words = [((one & 0xFFFFF) << 12, one >> 20) for one in both.unbind(dim=-1)]
    return *words[0], *words[1]


def _cast(value: torch.Tensor, dtype: torch.dtype, *, bitcast: bool = False) -> torch.Tensor:
    return value.view(dtype) if bitcast else value.to(dtype)


def _either(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda one, other, propagate=None: function(_tensor(one), _tensor(other))


def _modules() -> dict[str, types.ModuleType]:
    """Return `triton` and `triton.language` with the parts that the kernels use."""
    language, triton = types.ModuleType("triton.language"), types.ModuleType("triton")
    kinds = {name: getattr(torch, name) for name in ("int32", "int64", "float32", "float64")}
    vars(language).update(
        **kinds,
        uint32=torch.int64,
        uint64=torch.int64,
        constexpr=lambda value: value,
        PropagateNan=types.SimpleNamespace(ALL=None),
        program_id=lambda axis: _launched.programs[axis][0],
        num_programs=lambda axis: _launched.programs[axis][1],
        arange=lambda begin, end: torch.arange(begin, end)[None],
        zeros=lambda shape, dtype: _full(shape, 0, dtype),
        full=_full,
        broadcast_to=lambda value, shape: value.expand(shape),
        load=_load,
        store=_store,
        atomic_add=_atomic_add,
        philox=_philox,
        cast=_cast,
        where=torch.where,
        minimum=_either(torch.minimum),
        maximum=_either(torch.maximum),
        min=lambda value: value.amin(dim=-1, keepdim=True),
        max=lambda value: value.amax(dim=-1, keepdim=True),
        sum=lambda value: value.sum(dim=-1, keepdim=True),
        cumsum=lambda value: value.cumsum(dim=-1),
        div_rn=torch.div,
        log=torch.log,
    )
    vars(triton).update(jit=Kernel, cdiv=lambda size, by: -(-size // by), language=language)
    return {"triton": triton, "triton.language": language}


def loaded() -> Any:
    """Return a copy of the module `triton_rows` in this language, on blocks of four tokens."""
    path = ROOT / "analysis" / "kernels" / "triton_rows.py"
    spec = importlib.util.spec_from_file_location(f"{vocabulary.__package__}.batched", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, _modules()):
        spec.loader.exec_module(module)
    vars(module).update(_BLOCK=4, _CHUNK=8)
    return module
