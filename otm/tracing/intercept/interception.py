"""One context for all libraries whose draws are intercepted, those that are loaded."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from otm.tracing.execution import TraceAborted
from otm.tracing.intercept.draws import Draws
from otm.tracing.intercept.of_numpy import common_state, numpy_draws
from otm.tracing.intercept.of_python import python_draws
from otm.tracing.intercept.of_torch import torch_draws


class Interception(Draws):
    """Where intercepted draws come from while something is executed: one execution after the other."""

    def __init__(self) -> None:
        self._current: Draws | None = None
        self._moved = True
        self._parts: list[Any] = []
        self._common = _States()

    @contextlib.contextmanager
    def into(self, draws: Draws) -> Iterator[None]:
        """Take from `draws` what is drawn in this context; every library's common generator begins
        where it was at first.
        """
        if self._moved:
            self._common.set_back()
        self._current, self._moved = draws, False
        for part in self._parts:
            part.begin(draws)
        yield
        for part in self._parts:
            part.end()

    def uniforms(self, state: Hashable, size: int, kind: str = "uniform") -> list[Any]:
        """Return uniforms on [0, 1)."""
        return self._draws.uniforms(state, size, kind)

    def choices(self, state: Hashable, weights: Sequence[Sequence[float]]) -> list[Any]:
        """Return an outcome for every row of weights."""
        return self._draws.choices(state, weights)

    def abort(self, how: str) -> TraceAborted:
        """Return the exception that stops the execution."""
        return self._draws.abort(how)

    @property
    def _draws(self) -> Draws:
        assert self._current is not None
        self._moved = True
        return self._current


@contextlib.contextmanager
def intercepted() -> Iterator[Interception]:
    """Intercept what `random`, `numpy.random` and torch draw; their generators are afterwards as
    they were before.
    """
    torch = sys.modules.get("torch")
    with preserved(), contextlib.ExitStack() as stack:
        interception = Interception()
        if torch is not None:  # before the others: it may load a part of torch
            interception._parts.append(stack.enter_context(torch_draws(torch, interception)))
        interception._parts.append(stack.enter_context(python_draws(interception)))
        interception._parts.append(stack.enter_context(numpy_draws(interception)))
        yield interception


@contextlib.contextmanager
def preserved(seed: int | None = None) -> Iterator[None]:
    """Put the state of every library's common generator back at the end, and seed them before if a
    seed is given.
    """
    before = _States()
    if seed is not None:
        seed_all(seed)
    try:
        yield
    finally:
        before.set_back()


def seed_all(seed: int) -> None:
    """SeedInteger every library's common generator."""
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_initialized() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    # for devices that are not in use yet it would note the stack, which takes longer than all else
    # here
    else:
        torch.default_generator.manual_seed(seed)


class _States:
    """The states of the libraries' common generators when it was made."""

    def __init__(self) -> None:
        torch = sys.modules.get("torch")
        self._python, self._numpy, self._words = (
            random.getstate(),
            np.random.get_state(),
            common_state(),
        )
        self._torch = None if torch is None else torch.get_rng_state()

    def set_back(self) -> None:
        """Set the generators back."""
        random.setstate(self._python)
        if common_state() != self._words:
            np.random.set_state(self._numpy)
        if self._torch is not None:
            sys.modules["torch"].set_rng_state(self._torch)
