"""Hypothesis profiles, the array kinds that parity tests run on, and a browser."""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from otm._machine.compiled import compiled, load_at_once
from tests.browser import started

# Derandomised, so that a red suite is red again on the next run; `--hypothesis-profile=search`
# looks for new counterexamples.
settings.register_profile(
    "suite",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

# Most tests mean compiled code; without this it is not loaded for as little as they ask.
load_at_once()

# Bytecode is kept even where the environment says not to: each process that collects tests, or that
# a test starts, would compile hundreds of modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests of what an optional library does are left out where it is not installed; all others run.
_ABOUT = {
    "matplotlib": "contracts/calls display/test_drawing test_plot display/test_tabular",
    "numba": "overlap/test_compiled table/compiled/test_driver table/compiled/test_second_pass "
    "verifiers/optimal/test_draws",
    "ot": "transport/test_lp",
    "torch": "benchmarks/test_rows devices "
    "contracts/test_backends contracts/test_bad_input contracts/test_devices "
    "contracts/test_gradients contracts/test_memory contracts/test_walk engines/test_chain "
    "overlap/test_arrays overlap/test_gradient overlap/test_rows table/test_table test_losses "
    "audit/tracing/intercept/test_interception audit/tracing/intercept/test_laws "
    "audit/tracing/intercept/test_of_torch",
}
collect_ignore = [
    f"{module}.py"
    for library, modules in _ABOUT.items()
    if importlib.util.find_spec(library) is None
    for module in modules.split()
]


def pytest_configure(config: pytest.Config) -> None:
    """Compile what numba compiles before several workers would, each for itself."""
    if config.getoption("numprocesses", None):
        for name in ("overlap.compiled", "table.compiled.driver", "verifiers.optimal.draws"):
            compiled(f"otm.{name}", seconds=math.inf)


def pytest_collection_finish() -> None:
    """Leave what is imported by now out of garbage collections, which would walk through it."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a browser as a job apart."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.job(name="browser"))


@dataclasses.dataclass(frozen=True)
class Backend:
    """One kind of array: conversion from and to NumPy, and the tolerance of float32."""

    library: str
    device: str
    dtype: str

    def array(self, values: Any) -> Any:
        numpy_array = np.asarray(values, dtype=self.dtype)
        if self.library == "numpy":
            return numpy_array
        import torch

        return torch.asarray(numpy_array.copy(), device=self.device)

    def numpy(self, values: Any) -> np.ndarray:
        if isinstance(values, float | np.ndarray):
            return np.asarray(values)
        return np.asarray(values.detach().cpu().numpy())

    def is_own(self, values: Any) -> bool:
        if self.library == "numpy":
            return isinstance(values, np.ndarray)
        import torch

        return isinstance(values, torch.Tensor) and values.device.type == self.device

    @property
    def tolerance(self) -> float:
        """Return the tolerance of results: 2e-5 in float32, where 1e-3 would not tell.

        Values are Lipschitz in the inputs, whose rounding is 6e-8 relative.
        """
        return 1e-13 if self.dtype == "float64" else 2e-5


# Asked of the system: torch takes seconds to import, in every process that collects tests.
_CUDA = any(Path(place).exists() for place in ("/dev/nvidiactl", "/dev/dxg"))
_BACKENDS = [
    Backend(library, device, dtype)
    for library, device in [("numpy", "cpu"), ("torch", "cpu"), *[("torch", "cuda")] * _CUDA]
    if importlib.util.find_spec(library)
    for dtype in ("float64", "float32")
]


@pytest.fixture(params=_BACKENDS, ids=lambda b: f"{b.library}-{b.device}-{b.dtype}")
def backend(request: pytest.FixtureRequest) -> Backend:
    """Return every array kind in turn, with kinds on the device on a machine with a driver."""
    chosen: Backend = request.param
    return chosen


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield one Chromium for all tests of pages, in one process as the group "browser"."""
    with started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver
