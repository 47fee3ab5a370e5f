"""Reading an engine's log of a million lines: seconds, megabytes a second, memory.

Each log is a server's as it comes: a line of drafts and one of throughput among eighteen of
requests (vLLM), a line every interval (SGLang), eleven lines of each request among twice as many
others (llama.cpp at `-lv 4`). Each reading is a process of its own, timed without its start, so
that its memory is its own; `--beside FOLDER` reads the same file with another revision in turn.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.processes import ROUNDS, homes, told

LINES = 1_000_000
_REQUEST = 'INFO:     10.0.0.7:52114 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
_READ = """
import json, pathlib, re, resource, sys, time
sys.path.insert(0, sys.argv[1])
from otm.engines import read_acceptance
start = time.process_time()
mean = read_acceptance(sys.argv[2]).mean
seconds = time.process_time() - start
status = pathlib.Path("/proc/self/status")
if status.exists():  # Linux, whose ru_maxrss begins with that of the process that started this one
    most = int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1])
else:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "mib": most / 1024, "mean": mean}))
"""


def vllm(rng: random.Random) -> Iterator[str]:
    """Yield a log of vLLM, three drafts a step."""
    while True:
        steps = rng.randint(100, 900)
        counts = [round(share * steps) for share in (0.8, 0.55, 0.4)]
        total = sum(counts)
        yield _REQUEST * 18
        yield (
            "INFO 11-28 15:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 10.0 tokens/s,"
            f" Avg generation throughput: {(steps + total) / 10:.1f} tokens/s, Running: 4 reqs, "
            "Waiting: 0 reqs, GPU KV cache usage: 1.2%, Prefix cache hit rate: 0.0%\n"
        )
        rates = ", ".join(f"{count / steps:.3f}" for count in counts)
        yield (
            "INFO 11-28 15:00:00 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: "
            f"{1 + total / steps:.2f}, Accepted throughput: {total / 10:.2f} tokens/s, Drafted "
            f"throughput: {3 * steps / 10:.2f} tokens/s, Accepted: {total} tokens, Drafted: "
            f"{3 * steps} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance "
            f"rate: {100 * total / 3 / steps:.1f}%\n"
        )


def sglang(rng: random.Random) -> Iterator[str]:
    """Yield a log of SGLang, three drafts a step."""
    while True:
        mean = rng.uniform(1.5, 3.5)
        yield (
            "[2026-05-27 20:14:38 TP0] Decode batch. #running-req: 18, #token: 16384, token usage: "
            f"0.71, accept len: {mean:.2f}, accept rate: {(mean - 1) / 3:.2f}, cuda graph: True, "
            "gen throughput (token/s): 2520.18, #queue-req: 3\n"
        )


def llama_cpp(rng: random.Random) -> Iterator[str]:
    """Yield a log of llama.cpp, two drafts a step."""
    task = 0
    while True:
        task += 1
        steps = rng.randint(20, 200)
        first, second = round(0.8 * steps), round(0.6 * steps)
        accepted, head = first + second, f"0.05.820.007 I slot print_timing: id  0 | task {task} | "
        yield "0.05.820.007 I slot launch_slot_: processing task, is_child = 0\n" * 18
        yield (
            f"{head}       eval time = {37.6 * steps:10.2f} ms / {steps + accepted + 1:5} tokens\n"
            f"{head}draft acceptance = {accepted / 2 / steps:.5f} ({accepted:5} accepted / "
            f"{2 * steps:5} generated), mean len = {1 + accepted / steps:5.2f}\n"
            f"{head}     acc per pos = ({first / steps:.3f}, {second / steps:.3f})\n"
        )


def run(*, seconds: float, beside: Path | None = None) -> list[dict[str, Any]]:
    """Return a row for each engine; `seconds` has no effect, a file is read three times."""
    rows = []
    makers: dict[str, Callable[[random.Random], Iterator[str]]] = {
        "vLLM": vllm,
        "SGLang": sglang,
        "llama.cpp": llama_cpp,
    }
    for name, make in makers.items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "server.log")
            size = _write(file, make(random.Random(0)))
            taken: dict[str, list[dict[str, float]]] = {}
            for _ in range(ROUNDS):
                for side, home in homes(beside).items():
                    taken.setdefault(side, []).append(told(home, _READ, file))
        row: dict[str, Any] = {"log of": name, "MB": size / 1e6}
        for side, found in taken.items():
            middle = statistics.median(one["seconds"] for one in found)
            spread = [f"{choose(one['seconds'] for one in found):.2f}" for choose in (min, max)]
            row[f"{side}CPU s"] = middle
            row[f"{side}least to most"] = " to ".join(spread)
            row[f"{side}MB/s"] = size / 1e6 / middle
            row[f"{side}MiB"] = max(one["mib"] for one in found)
        rows.append(row)
    return rows


def _write(file: Path, pieces: Iterator[str]) -> int:
    """Write a log of a million lines, and return its size in bytes."""
    lines = 0
    with file.open("w", encoding="utf-8") as log:
        for piece in pieces:
            log.write(piece)
            lines += piece.count("\n")
            if lines >= LINES:
                break
    return file.stat().st_size
