"""Run independent pieces of work on any `concurrent.futures.Executor`: this process, local processes, or a Dask cluster.

Work is pure: what a piece returns depends on its argument alone. So a piece whose worker died is run again, wherever, and only
time is lost. Few pieces are in flight at once, so that neither the arguments nor the results of a long run pile up in memory.
"""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import dataclasses
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ..errors import AnalysisError

Argument = TypeVar("Argument")
Result = TypeVar("Result")

MOST_RETRIES = 3
"""How often a piece is given to a new pool after the processes running it died."""


class Inline(cf.Executor):
    """An executor that runs each call at once, in this process and thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> cf.Future[Any]:
        """Run the call and return its finished future."""
        future: cf.Future[Any] = cf.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclasses.dataclass(frozen=True)
class Workers:
    """Where work runs.

    Args:
        count: local processes; 1 runs everything in this one.
        scheduler: address of a Dask scheduler, such as tcp://host:8786, or None.
    """

    count: int = 1
    scheduler: str | None = None

    def for_pieces(self, pieces: int) -> Workers:
        """Return as many of them as there are pieces of work: a process takes seconds to start."""
        return dataclasses.replace(self, count=max(1, min(self.count, pieces)))

    @contextlib.contextmanager
    def open(self) -> Iterator[cf.Executor]:
        """Start the executor, and stop it at the end."""
        if self.scheduler is not None:
            with _dask(self.scheduler) as executor:
                yield executor
        elif self.count == 1:
            yield Inline()
        else:
            # Forked children of a process that has run torch may hang in its thread pool.
            context = multiprocessing.get_context("spawn")
            executor = cf.ProcessPoolExecutor(self.count, mp_context=context, initializer=single_threaded)
            try:
                yield executor
            finally:
                executor.shutdown(wait=True, cancel_futures=True)

    @property
    def in_flight(self) -> int:
        """How many pieces are handed out at once: one waits behind each that runs."""
        return 64 if self.scheduler is not None else 2 * self.count if self.count > 1 else 1


def single_threaded() -> None:
    """Keep the numerical libraries of a worker process to one thread; what may use more sets its own number later."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def run_each(workers: Workers, function: Callable[[Argument], Result], arguments: Iterable[Argument]) -> Iterator[Result]:
    """Apply a pure function to every argument and yield results as they come, in any order.

    A piece that raises ends the run; results that are there are yielded first. Pieces whose process was killed are run again, up
    to three times (Dask has its own count).

    Raises:
        AnalysisError: if processes keep dying.
    """
    waiting = iter(arguments)
    lost: list[Argument] = []
    for attempt in range(MOST_RETRIES + 1):
        progress = False
        with workers.open() as executor:
            for outcome in _run_in(executor, function, _chain(lost, waiting), workers.in_flight):
                if isinstance(outcome, _Lost):
                    lost = outcome.arguments
                    break
                progress = True
                yield outcome.value
            else:
                return
        if attempt == MOST_RETRIES and not progress:
            break
    raise AnalysisError(
        f"Worker processes must live; they were killed {MOST_RETRIES + 1} times over. Memory is the usual reason: "
        "use fewer --workers."
    )


@dataclasses.dataclass(frozen=True)
class _Done:
    value: Any


@dataclasses.dataclass(frozen=True)
class _Lost:
    arguments: list[Any]


def _chain(first: list[Argument], rest: Iterator[Argument]) -> Iterator[Argument]:
    while first:
        yield first.pop(0)
    yield from rest


def _run_in(
    executor: cf.Executor, function: Callable[[Argument], Result], arguments: Iterator[Argument], most: int
) -> Iterator[_Done | _Lost]:
    """Yield results, then, if the executor broke, the arguments that got none."""
    pending: dict[cf.Future[Result], Argument] = {}
    lost: list[Argument] = []
    failure: BaseException | None = None
    exhausted = False
    try:
        while True:
            while not exhausted and not lost and failure is None and len(pending) < most:
                try:
                    argument = next(arguments)
                except StopIteration:
                    exhausted = True
                    break
                try:
                    pending[executor.submit(function, argument)] = argument
                except cf.BrokenExecutor:
                    lost.append(argument)
            if not pending:
                break
            for future in cf.wait(pending, return_when=cf.FIRST_COMPLETED).done:
                argument = pending.pop(future)
                error = future.exception()
                if error is None:
                    yield _Done(future.result())
                elif isinstance(error, cf.BrokenExecutor):
                    lost.append(argument)
                else:
                    failure = error
    finally:
        for future in pending:
            future.cancel()
    if failure is not None:
        raise failure
    if lost:
        yield _Lost(lost)


@contextlib.contextmanager
def _dask(address: str) -> Iterator[cf.Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise AnalysisError(
            "A Dask scheduler needs the distributed library, which is not installed. Install it: pip install distributed."
        ) from error
    try:
        client = Client(address, timeout=20, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise AnalysisError(
            f"The scheduler must be the address of a running Dask scheduler; {address!r} gave: {error}."
        ) from error
    with client:
        # Results are pure functions of the arguments, but a run that is repeated must not find the last one's futures.
        yield client.get_executor(pure=False, retries=MOST_RETRIES)
