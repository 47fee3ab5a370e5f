"""One context that intercepts the draws of all loaded libraries."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from otm.audit.tracing.intercept.draws import Draws
from otm.audit.tracing.intercept.of_numpy import numpy_draws, state_of
from otm.audit.tracing.intercept.of_python import python_draws
from otm.audit.tracing.intercept.of_torch import torch_draws


class Interception:
    """The intercepted libraries, whose draws come from one execution after the other."""

    def __init__(self, common: _States) -> None:
        self._common, self._libraries = common, list[Any]()

    @contextlib.contextmanager
    def into(self, draws: Draws) -> Iterator[None]:
        """Take draws in this context from `draws`, with all generators in the initial state."""
        self._common.set_back(python=self._libraries[-1].moved_on)
        for library in self._libraries:
            library.begin(draws)
        yield
        for library in self._libraries:
            library.end()


@contextlib.contextmanager
def intercepted() -> Iterator[Interception]:
    """Intercept draws of `random`, `numpy.random` and torch; restore the generators at the end."""
    with preserved() as before, contextlib.ExitStack() as stack:
        interception = Interception(before)
        # torch before the others: it may load a part of itself; `random` last, as `into` asks it
        found = [torch_draws(sys.modules["torch"])] if "torch" in sys.modules else []
        for library in (*found, numpy_draws(), python_draws()):
            interception._libraries.append(stack.enter_context(library))
        yield interception


@contextlib.contextmanager
def preserved(seed: int | None = None) -> Iterator[_States]:
    """Seed every library's common generator, if a seed is given, and restore all at the end."""
    before = _States()
    if seed is not None:
        seed_all(seed)
    try:
        yield before
    finally:
        before.set_back()


def seed_all(seed: int) -> None:
    """Seed every library's common generator."""
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        in_use = torch.cuda.is_initialized() or torch.backends.mps.is_available()
        # for devices that are not in use yet `torch.manual_seed` would note the stack, which takes
        # longer than all else here
        (torch if in_use else torch.default_generator).manual_seed(seed)


class _States:
    """The states of the libraries' common generators at construction."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()
        self._words = state_of(np.random.mtrand._rand)
        torch = sys.modules.get("torch")
        self._torch = None if torch is None else torch.get_rng_state()

    def set_back(self, *, python: bool = True) -> None:
        """Set the generators back; Python's, whose state takes long to read, if it has moved."""
        if python:
            random.setstate(self._python)
        if state_of(np.random.mtrand._rand) != self._words:
            np.random.set_state(self._numpy)
        if self._torch is not None:
            torch = sys.modules["torch"]
            # no operation of torch's to compare them, as operations are intercepted
            if torch.get_rng_state().numpy().tobytes() != self._torch.numpy().tobytes():
                torch.set_rng_state(self._torch)
