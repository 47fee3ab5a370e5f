"""A process of its own for what may hang, crash or take all memory: asked for one thing at a time,
begun anew when it fails.

    python -m benchmarks.torture.isolation BYTES MODULE …

imports the modules and answers every line of its input, a JSON array of a function and its
arguments, by a line of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from tests.paths import ROOT

MEMORY = 3 << 30
"""Bytes of address space that a trial may take beside what importing took."""

_PR_SET_PDEATHSIG = 1


def scratch() -> str | None:
    """Return a folder in memory for what is written and thrown away, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Broken(Exception):
    """The process hung, or died; the message says which."""


class Apart:
    """Functions in a process of their own, which imports these modules first."""

    def __init__(self, *modules: str, memory: int | None = MEMORY) -> None:
        self._arguments = [str(memory or 0), *modules]
        self._process: subprocess.Popen[bytes] | None = None
        self._heard: IO[bytes] | None = None

    def ask(self, function: str, *arguments: Any, seconds: float) -> Any:
        """Call `module:name`, whose arguments and result are what JSON knows, or raise `Broken`."""
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            process = self._process = self._begin()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = b""
        until = time.monotonic() + seconds
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps([function, *arguments]).encode() + b"\n")
            process.stdin.flush()
        while not answer.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0:
                where = self._stacks(process)
                self.close()
                raise Broken(f"hung for {seconds:g} s\n{where}")
            if select.select([process.stdout], [], [], left)[0]:
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    status = process.wait()
                    said = self._said()
                    self.close()
                    raise Broken(f"died with status {status}\n{said}")
                answer += piece
        return json.loads(answer)

    def close(self, seconds: float = 0.0) -> None:
        """End the process, which may take so long to tear down what it has set up."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.terminate()
                self._process.wait(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
            self._process = None
        if self._heard is not None:
            self._heard.close()
            self._heard = None

    def _begin(self) -> subprocess.Popen[bytes]:
        self._heard = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.torture.isolation", *self._arguments],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._heard,
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.readline()  # imported: from here on the clock runs
        return process

    def _stacks(self, process: subprocess.Popen[bytes]) -> str:
        process.send_signal(signal.SIGUSR1)  # faulthandler writes where every thread is
        time.sleep(0.3)
        return self._said()

    def _said(self) -> str:
        assert self._heard is not None
        self._heard.seek(0, os.SEEK_END)
        self._heard.seek(max(0, self._heard.tell() - 3000))
        return self._heard.read().decode(errors="replace")


def main(memory: str, *modules: str) -> None:
    """Answer until the input ends, or whoever asks does."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # what was imported is not searched again and again
    limit_memory(int(memory))
    answers.write(b"\n")
    answers.flush()
    for line in sys.stdin.buffer:
        name, *arguments = json.loads(line)
        module, _, attribute = name.partition(":")
        answer = getattr(importlib.import_module(module), attribute)(*arguments)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def limit_memory(more: int) -> None:
    """Make what asks for so much more memory fail; 0 is no limit."""
    if more and sys.platform == "linux":
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))


if __name__ == "__main__":
    main(*sys.argv[1:])
