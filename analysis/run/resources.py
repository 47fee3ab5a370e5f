"""Numbers of processes and threads of a measurement on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from ..files import MANIFEST, is_file
from ..models.source import PairSource
from . import MOST_THREADS
from .manifest import damaged_manifest, read_manifest, section


def resources(
    out: Path,
    models: object,
    *,
    workers: int | None,
    threads: int | None,
    scheduler: str | None,
    trace: Path | None,
) -> tuple[int, int]:
    """Return the numbers of processes and of threads in each, at most all cores unless asked.

    An existing run keeps its threads: the last bits of a forward pass depend on them. Otherwise
    small models on the CPU get a process per core, large ones fewer processes with more threads,
    and models on a GPU one process.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if threads is None and is_file(out / MANIFEST):
        said = section(read_manifest(out), "settings").get("threads")
        if type(said) is not int or not 1 <= said <= MOST_THREADS:
            raise damaged_manifest(
                f"its settings name no number of threads from 1 to {MOST_THREADS}; got {said!r:.40}"
            )
        threads = said
    if scheduler is not None:
        return 1, threads or 1
    most = 1 if trace is not None else processes_for(models, cores)
    processes = workers or max(1, min(most, cores // (threads or 1)))
    return processes, threads or max(1, cores // processes)


def processes_for(models: object, cores: int) -> int:
    """Return the number of copies of a pair that fit into half of the free memory.

    One on a GPU, or where the size is not known here.
    """
    from ..models.pair import choose_device

    if (
        not isinstance(models, PairSource)
        or models.device_map is not None
        or choose_device(models.device) != "cpu"
        or models.memory is None
    ):
        return 1
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(cores, 8, int(free / 2 / models.memory)))
