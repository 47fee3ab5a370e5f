"""Measuring every batched scheme, k = 1..8, against the forward passes that it follows and against
a softmax.

First rows: the shipped pair, windows of 256 tokens, V = 4,096, with one thread for both (a process
per core is what `analysis measure` runs) and with as many as there are cores. The measurement
starts from both models' logits and gives every column of one (temperature, top-p) setting: two
softmaxes in float64, one sort, every scheme. Then a whole batch after batch: the models, the
columns, one after the other, and the columns one batch behind the models, as `measure` runs. Last
rows: 32 rows of V = 49,152 and 128,256 on the CPU and on CUDA, where there is one, against the two
softmaxes that they need.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch

from analysis.files import SHIPPED_PAIR
from analysis.models.pair import load_pair
from analysis.models.processing import settings_of
from analysis.run.columns import table_of_logits
from analysis.run.scheduling import one_behind
from benchmarks.timing import medians
from otm.table.arrays import RACES
from otm.table.table import NAMES, RequestedColumns

ALL, NO_RACES = (
    RequestedColumns.of(range(1, 9), names)
    for names in (None, [name for name in NAMES if name not in RACES])
)
WINDOWS, LENGTH = 4, 256
ROWS, LARGE = 32, (49_152, 128_256)


def run(*, seconds: float) -> list[dict[str, Any]]:
    """Time both parts and return one row per operation."""
    cores = len(os.sched_getaffinity(0))
    small = [row for threads in sorted({1, cores}) for row in shipped_pair(threads, seconds)]
    return [*small, *one_batch_behind(cores, seconds), *large_vocabulary(seconds)]


def shipped_pair(threads: int, seconds: float) -> list[dict[str, Any]]:
    """Time the measurement against the two models' forward passes, compiled and as it is where
    numba is not installed.
    """
    torch.set_num_threads(threads)
    pair = load_pair(device="cpu")
    text = (SHIPPED_PAIR / "held_out.txt").read_text(encoding="utf-8")
    tokens = pair.tokenizer(text)["input_ids"][: WINDOWS * LENGTH]
    rows = torch.tensor(tokens).reshape(WINDOWS, LENGTH)
    draft, target = (z.reshape(-1, pair.num_tokens).numpy() for z in pair.logits(rows))
    functions: dict[str, Callable[[], object]] = {"both forward passes": lambda: pair.logits(rows)}
    for name, setting in (
        ("temperature 1", (1.0, 1.0)),
        ("temperature 0.7, top-p 0.9", (0.7, 0.9)),
    ):
        settings = settings_of(*([value] for value in setting))
        functions[f"measure, {name}"] = lambda settings=settings: table_of_logits(
            draft, target, settings, ALL, threads=threads
        )
        functions[f"measure, {name}, without numba"] = lambda settings=settings: _without_numba(
            lambda: table_of_logits(draft, target, settings, ALL, threads=threads)
        )
    device = f"cpu, {threads} thread{'s' if threads > 1 else ''}"
    times = medians(functions, seconds=seconds)
    return _rows(times, "both forward passes", WINDOWS * LENGTH, pair.num_tokens, device, "float64")


def one_batch_behind(threads: int, seconds: float) -> list[dict[str, Any]]:
    """Time batches through the models and into columns: each alone, in turn, and with the columns
    computed beside the models.
    """
    torch.set_num_threads(threads)
    pair = load_pair(device="cpu")
    text = (SHIPPED_PAIR / "held_out.txt").read_text(encoding="utf-8")
    rows = torch.tensor(pair.tokenizer(text)["input_ids"][: WINDOWS * LENGTH]).reshape(
        WINDOWS, 1, LENGTH
    )
    settings = settings_of([1.0], [1.0])

    def columns(logits: Any) -> object:
        both = (side.reshape(-1, pair.num_tokens).numpy() for side in logits)
        return table_of_logits(*both, settings, ALL, threads=threads)

    read = [pair.logits(window) for window in rows]
    functions: dict[str, Callable[[], object]] = {
        "both forward passes, batch by batch": lambda: [pair.logits(window) for window in rows],
        "columns, batch by batch": lambda: [columns(logits) for logits in read],
        "forward passes and columns in turn": lambda: list(map(columns, map(pair.logits, rows))),
        "columns one batch behind": lambda: list(one_behind(columns, map(pair.logits, rows))),
    }
    times = medians(functions, seconds=seconds)
    device = f"cpu, {threads} thread{'s' if threads > 1 else ''}"
    return _rows(
        times,
        "forward passes and columns in turn",
        WINDOWS * LENGTH,
        pair.num_tokens,
        device,
        "float64",
    )


def _without_numba(function: Callable[[], object]) -> object:
    with (
        mock.patch("otm.table.table.compiled", lambda _: None),
        mock.patch("analysis.run.columns.compiled", lambda _: None),
    ):
        return function()


def large_vocabulary(seconds: float) -> list[dict[str, Any]]:
    """Time the measurement at large vocabularies against its softmaxes, on every device and in both
    precisions.
    """
    found = []
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        for vocabulary in LARGE:
            for precision in ("float32", "float64"):
                found += _large(device, vocabulary, precision, seconds)
    return found


def _large(device: str, vocabulary: int, precision: str, seconds: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    base = 3.0 * rng.standard_normal((ROWS, vocabulary))
    both = [
        torch.asarray(x, dtype=torch.float32, device=device)
        for x in (base, base + rng.standard_normal(base.shape))
    ]
    threads = torch.get_num_threads()
    given = [z.numpy() for z in both] if device == "cpu" else both
    wide = [z.to(getattr(torch, precision)) for z in both]
    functions: dict[str, Callable[[], object]] = {
        "both softmaxes": lambda: [torch.softmax(z, dim=-1) for z in wide],
        **{
            f"measure, {name}": lambda top_p=top_p, wanted=wanted: table_of_logits(
                *given, settings_of([1.0], [top_p]), wanted, precision=precision, threads=threads
            )
            for name, top_p, wanted in (
                ("temperature 1", 1.0, ALL),
                ("temperature 1, no races", 1.0, NO_RACES),
                ("temperature 1, top-p 0.9", 0.9, ALL),
            )
        },
    }
    hardware = torch.cuda.get_device_name() if device == "cuda" else f"cpu, {threads} threads"
    times = medians({k: _finished(f, device) for k, f in functions.items()}, seconds=seconds)
    return _rows(times, "both softmaxes", ROWS, vocabulary, hardware, precision)


def _finished(function: Callable[[], object], device: str) -> Callable[[], object]:
    def call() -> None:
        function()
        if device == "cuda":
            torch.cuda.synchronize()

    return call


def _rows(
    times: dict[str, float],
    yardstick: str,
    count: int,
    vocabulary: int,
    device: str,
    precision: str,
) -> list[dict[str, Any]]:
    return [
        {
            "operation": name,
            "V": vocabulary,
            "device": device,
            "softmax in": precision,
            "ms": ms,
            "positions per second": 1e3 * count / ms,
            "against": yardstick,
            "ratio": ms / times[yardstick],
        }
        for name, ms in times.items()
    ]
