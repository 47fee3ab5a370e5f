"""Independent pieces of work, run in this process, in local processes or on a Dask cluster.

Work is pure: what a piece returns depends on its argument alone. So a piece whose worker died is
run again, by itself, and only time is lost; where it dies again and again, the piece is named.
Workers end with the process that started them, however that ends. Few pieces are in flight at once,
so that neither the arguments nor the results of a long run pile up in memory.
"""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import ctypes
import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import threading
import urllib.parse
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

from ..errors import AnalysisError

Argument = TypeVar("Argument")
Result = TypeVar("Result")

MOST_RETRIES = 3
"""Times that a piece is given to a new pool after the processes running it died."""

_PATIENCE = 5.0  # seconds for a scheduler to answer
_WITH_PORT = ("tcp", "tls", "ucx", "ws", "wss")
_PR_SET_PDEATHSIG = 1


class Inline(cf.Executor):
    """An executor that runs each call at once, in this process and thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> cf.Future[Any]:
        """Run the call and return the finished future."""
        future: cf.Future[Any] = cf.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclasses.dataclass(frozen=True)
class Workers:
    """Processes or a cluster that run pieces of work.

    Args:
        count: local processes; 1 runs everything in this one.
        scheduler: address of a Dask scheduler, such as tcp://host:8786, or None.
        apart: run in another process even if it is one, so that this one lives to tell which piece
            took all memory.
    """

    count: int = 1
    scheduler: str | None = None
    apart: bool = False

    def for_pieces(self, pieces: int) -> Workers:
        """Return workers for some pieces, no more than pieces: a process takes seconds to start."""
        return dataclasses.replace(self, count=max(1, min(self.count, pieces)))

    def check(self) -> None:
        """Raise `AnalysisError` unless somebody answers at the scheduler's address."""
        if self.scheduler is None:
            return
        place = urllib.parse.urlsplit(
            self.scheduler if "://" in self.scheduler else f"tcp://{self.scheduler}"
        )
        if place.scheme == "inproc":
            return
        try:
            if place.scheme not in _WITH_PORT or not place.hostname or not place.port:
                raise ValueError("an address is tcp://HOST:PORT")
            if place.scheme != "ucx":
                socket.create_connection((place.hostname, place.port), timeout=_PATIENCE).close()
        except (OSError, ValueError) as error:
            raise _no_scheduler(self.scheduler, error) from error

    @contextlib.contextmanager
    def open(self) -> Iterator[cf.Executor]:
        """Yield a running executor, which is stopped at the end."""
        if self.scheduler is not None:
            with _dask(self.scheduler) as executor:
                yield executor
        elif self.count == 1 and not self.apart:
            yield Inline()
        else:
            # Forked children of a process that has run torch may hang in its thread pool.
            context = multiprocessing.get_context("spawn")
            executor = cf.ProcessPoolExecutor(
                self.count, mp_context=context, initializer=begin_worker
            )
            try:
                yield executor
            finally:
                executor.shutdown(wait=True, cancel_futures=True)

    @property
    def in_flight(self) -> int:
        """Number of pieces handed out at once: one waits behind each that runs."""
        return 64 if self.scheduler is not None else 2 * self.count if self.count > 1 else 1


def begin_worker() -> None:
    """Prepare a worker: one numerical thread, no hold on the output, an end with the parent.

    Code that may use more threads sets the number later. A pool's workers wait for work from a pipe
    that they hold open themselves, so they would outlive a parent that was killed, and a reader of
    its output would wait for them.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        # The kernel also ends a worker that computes without letting another thread of its run.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """Wait for the parent's end, which may have come already, and end this process."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def run_each(
    workers: Workers,
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    *,
    name: Callable[[Argument], str] = repr,
) -> Iterator[Result]:
    """Apply a pure function to every argument and yield results on completion, in any order.

    A piece that raises ends the run; results that are there are yielded first. Pieces whose process
    was killed are run again, one at a time and before all others, so that the one which took the
    memory is known (Dask has its own count).

    Raises:
        AnalysisError: if the process of one piece is killed four times; if one finds no memory.
    """
    waiting = iter(arguments)
    suspects: list[Argument] = []
    died: list[Argument] = []
    while True:
        with workers.open() as executor:
            lost = yield from _run_in(executor, function, _drained(suspects), 1, name)
            if not lost:
                lost = yield from _run_in(executor, function, waiting, workers.in_flight, name)
        if not lost:
            return
        suspects[:0] = lost
        died += lost
        for argument in lost:
            if sum(other is argument for other in died) > MOST_RETRIES:
                raise _out_of_memory(
                    name(argument),
                    f"was killed {MOST_RETRIES + 1} times over. Memory is the usual reason",
                )


def one_behind(
    function: Callable[[Argument], Result], arguments: Iterable[Argument]
) -> Iterator[Result]:
    """Yield `function` of each argument in order, computed in a thread while the next is made.

    Two arguments at most are alive at a time, so memory does not depend on which of the two is
    faster. What either raises is raised here, once what is running has ended. It gains where both
    leave the interpreter's lock alone, as models and compiled loops do.

    >>> list(one_behind(abs, iter([-1, 2, -3])))
    [1, 2, 3]
    """
    with cf.ThreadPoolExecutor(1) as thread:
        running: cf.Future[Result] | None = None
        for argument in arguments:
            if running is not None:
                yield running.result()
            running = thread.submit(function, argument)
            del argument
        if running is not None:
            yield running.result()


def _drained(first: list[Argument]) -> Iterator[Argument]:
    while first:
        yield first.pop(0)


def _out_of_memory(piece: str, what: str) -> AnalysisError:
    return AnalysisError(
        f"A process must have the memory that its work takes; the one that computed {piece} "
        f"{what}. Use fewer --workers, or a "
        "machine with more; what is finished is kept."
    )


def _run_in(
    executor: cf.Executor,
    function: Callable[[Argument], Result],
    arguments: Iterator[Argument],
    most: int,
    name: Callable[[Argument], str],
) -> Generator[Result, None, list[Argument]]:
    """Yield results; return the arguments that got none because the executor broke."""
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
                    yield future.result()
                elif isinstance(error, cf.BrokenExecutor):
                    lost.append(argument)
                elif type(error).__name__ == "KilledWorker":  # Dask's, which need not be installed
                    failure = _out_of_memory(
                        name(argument), "was killed wherever it ran. Memory is the usual reason"
                    )
                elif isinstance(error, MemoryError):
                    failure = _out_of_memory(name(argument), "found none left")
                else:
                    failure = error
    finally:
        for future in pending:
            future.cancel()
    if failure is not None:
        raise failure
    return lost


def _no_scheduler(address: str, error: Exception) -> AnalysisError:
    return AnalysisError(
        f"The scheduler must be the address of a running Dask scheduler; {address!r:.80} gave: "
        f"{error}. Start one, or correct it."
    )


@contextlib.contextmanager
def _dask(address: str) -> Iterator[cf.Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise AnalysisError(
            "A Dask scheduler needs the distributed library, which is not installed. Install it: "
            "pip install distributed."
        ) from error
    Workers(scheduler=address).check()
    try:
        client = Client(address, timeout=20, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise _no_scheduler(address, error) from error
    with client:
        # Results are pure functions of the arguments, but a run that is repeated must not find the
        # last one's futures.
        yield client.get_executor(pure=False, retries=MOST_RETRIES)
