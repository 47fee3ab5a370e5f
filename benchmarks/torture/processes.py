"""Commands that write, and what may befall them: killed, interrupted, out of room, two at once,
without a worker.

Whatever happened, the same command run again must end with the files of an undisturbed run; what is
there before that must be part of them; and nothing may outlive the command by more than `LINGER`
seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from analysis.run.shards import read_shard
from benchmarks.torture import readers
from benchmarks.torture.isolation import Apart, scratch
from tests.analysis.traces_for_tests import write_small_trace
from tests.paths import ROOT

LINGER = 2.0
"""Seconds that a worker may outlive its parent."""

PATIENCE = 180.0

Random = np.random.Generator


@dataclasses.dataclass(frozen=True)
class Work:
    """A command that writes.

    Args:
        command: the row of the table.
        arguments: of `python -m analysis`, where {given} is a folder with inputs, {pair} names the
            tiny models and {out} is the folder for the output.
        result: what the output says, compared between runs; of an unfinished output the part that
            is there.
        weight: how often it is tried.
        forked: whether it runs in a fork of a process that has imported everything.
    """

    command: str
    arguments: str
    result: Callable[[Path], dict[str, Any]]
    weight: float = 1.0
    forked: bool = False

    def words(self, out: Path) -> list[str]:
        """Return the words of the command; models and a run are made for those who read them."""
        given = inputs()
        if "{pair}" in self.arguments and not (given / "models").exists():
            shutil.copytree(readers.tiny_models(), given / "models")
        if "{given}/run" in self.arguments and not (given / "run").exists():
            run = readers.template("analysis.report.reading.open_run") / "run"
            shutil.copytree(run, given / "run")
        if self.command == "otm score":  # writes a file into a folder that is there
            out.mkdir(exist_ok=True)
        pair = f"--draft {given}/models/draft --target {given}/models/target --device cpu"
        return self.arguments.format(given=given, pair=pair, out=out).split()


@functools.cache
def inputs() -> Path:
    """Return a folder with what the commands read: a trace, prompts, responses, a recipe,
    a text.
    """
    folder = Path(tempfile.mkdtemp(prefix="torture-inputs-", dir=scratch()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_small_trace(folder / "trace.safetensors", positions=48)
    size = readers.SIZE | {"steps": 30}
    recipe = readers.RECIPE | {"draft": size, "target": size, "precision": "float32"}
    responses = [{"prompt": [1, 2, 3], "tokens": [4 + number, 5]} for number in range(6)]
    texts = {
        "prompts.txt": "\n".join(readers.TEXTS),
        "responses.jsonl": "\n".join(map(json.dumps, responses)),
        "recipe.json": json.dumps(recipe),
        "text.txt": "\n\n".join(f"Paragraph {i}: return value {i % 7}." for i in range(300)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return folder


def _json_result(name: str, *keys: str) -> Callable[[Path], dict[str, Any]]:
    """Return what reads some keys of a JSON file, which is there whole or not at all."""

    def result(out: Path) -> dict[str, Any]:
        path = out / name
        if not path.exists():
            return {}
        record = json.loads(path.read_bytes())
        return {key: record[key] for key in keys}

    return result


def _files_result(*names: str) -> Callable[[Path], dict[str, Any]]:
    return lambda out: {name: (out / name).read_bytes() for name in names if (out / name).exists()}


def _run_result(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted((out / "shards").glob("*.parquet")) if out.is_dir() else ():
        read_shard(path)
        found[path.name] = path.read_bytes()
    for path in sorted((out / "logits").glob("*.json")) if out.is_dir() else ():
        found[path.name] = path.read_bytes()
    for name in [name for name in found if name.endswith(".parquet")]:
        logits = out / "logits" / name.replace(".parquet", ".safetensors")
        if (out / "logits").is_dir():
            found[logits.name] = logits.read_bytes()
    return found


def _decode_result(out: Path) -> dict[str, Any]:
    path = out / "results.jsonl"
    lines = path.read_bytes().split(b"\n")[1:-1] if path.exists() else []
    records = [json.loads(line) for line in lines]
    return {
        f"{r['decoder']} {r['prompt']} {r['seed']}": {k: v for k, v in r.items() if k != "seconds"}
        for r in records
    }


def _train_result(out: Path) -> dict[str, Any]:
    card = out / "pair" / "README.md"  # written last
    if not card.exists():
        return {}
    files = (
        "draft/model.safetensors",
        "target/model.safetensors",
        "draft/tokenizer.json",
        "held_out.txt",
        "training.json",
    )
    return {name: (out / "pair" / name).read_bytes() for name in files}


_TRACE = "measure --from-trace {given}/trace.safetensors --out {out} --k 1,2 --shard-size 6"
_PROMPTS = "{pair} --prompts {given}/prompts.txt"

WORK: dict[str, Work] = {
    "forked": Work(
        "otm measure --from-trace", _TRACE + " --workers 2", _run_result, 1, forked=True
    ),
    "forked alone": Work(
        "otm measure --from-trace", _TRACE + " --workers 1", _run_result, 0.5, forked=True
    ),
    "trace": Work("otm measure --from-trace", _TRACE + " --workers 2", _run_result, 0.5),
    "models": Work(
        "otm measure",
        f"measure {_PROMPTS} --out {{out}} --shard-size 1 --max-tokens 12 --save-logits 8 "
        "--k 1,2 --workers 2 --threads 1",
        _run_result,
    ),
    "decode": Work(
        "otm decode",
        f"decode {_PROMPTS} --out {{out}}/results.jsonl --decoder SpeculativeSampling(2) "
        "--decoder Gsd(batch(2)) --num-tokens 12 --seeds 0,1",
        _decode_result,
    ),
    "train": Work(
        "otm train",
        "train --out {out}/pair --work {out}/work --text {given}/text.txt "
        "--recipe {given}/recipe.json --device cpu --threads 1",
        _train_result,
    ),
    "steps": Work(
        "otm steps",
        "steps {pair} --text {given}/text.txt --contexts 6 --context-tokens 4 --sequences 2,2 "
        "--sequences 2,3 --out {out}/steps.json",
        _json_result("steps.json", "seed"),
    ),
    "score": Work(
        "otm score",
        "score {pair} --texts {given}/responses.jsonl --out {out}/forced.jsonl",
        _files_result("forced.jsonl"),
    ),
    "report": Work(
        "otm report", "report {given}/run --out {out}", _files_result("report.html", "report.md")
    ),
    "experiment": Work(
        "otm experiment",
        "experiment lossy_rules --num-prompts 1 --work {out}/work --out {out}",
        _json_result("lossy_rules.json", "one_draft", "chains"),
    ),
    "advise": Work(
        "otm advise",
        f"advise {_PROMPTS} --seconds 2 --num-tokens 4 --max-nodes 2 --max-depth 2 "
        "--out {out}/advice.json",
        _json_result("advice.json", "format", "version"),
    ),
}


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    said: str


class Running:
    """A command in a session of its own; it and its workers are gone when it has ended, and its
    output is closed.
    """

    def __init__(self, arguments: list[str], **options: Any) -> None:
        self._said = tempfile.NamedTemporaryFile(dir=scratch())  # noqa: SIM115 (as long as the object)
        self.number, self._output = self._start(arguments, options)
        self._status: int | None = None

    def _start(self, arguments: list[str], options: dict[str, Any]) -> tuple[int, Any]:
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "analysis", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
            **options,
        )
        return self.process.pid, self.process.stdout

    def ended(self) -> int | None:
        """Return the exit status, None while there is none."""
        return self.process.poll()

    def members(self) -> list[int]:
        """Return the living processes of the session, this command's own first."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError):
                state, _, _, session = path.read_text().rsplit(")", 1)[1].split()[:4]
                if int(session) == self.number and state != "Z":
                    found.append(int(path.parent.name))
        return sorted(found)

    def lasts(self, seconds: float) -> bool:
        """Wait so long, and return whether the command still runs."""
        until = time.monotonic() + seconds
        while self.ended() is None and time.monotonic() < until:
            time.sleep(min(0.01, max(0.0, until - time.monotonic())))
        return self.ended() is None

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """Return how the command ended; its session and its output must end with it."""
        if self.lasts(seconds):
            said = self.said()
            self.end()
            raise AssertionError(f"still running after {seconds:g} s: {said}")
        status = self.ended()
        assert status is not None
        until = time.monotonic() + LINGER
        while (left := self.members()) and time.monotonic() < until:
            time.sleep(0.02)
        said = self.said()
        if left:
            names = [_name(process) for process in left]
            self.end()
            raise AssertionError(f"{names} outlive the command by more than {LINGER:g} s: {said}")
        if self._output is not None:
            self._output.read()  # ends, since nobody holds it
        self.end()
        return Ended(status, said)

    def send(self, kind: signal.Signals) -> None:
        """Send a signal to the command alone."""
        if self.ended() is None:
            os.kill(self.number, kind)

    def said(self) -> str:
        """Return the end of what it wrote to its standard error."""
        return Path(self._said.name).read_bytes()[-3000:].decode(errors="replace")

    def end(self) -> None:
        """End whatever is left."""
        for process in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        while self.ended() is None:
            time.sleep(0.01)
        if self._output is not None:
            self._output.close()
        self._said.close()


class Forked(Running):
    """The same without the time for imports: a child of a process that has them
    (`benchmarks.torture.zygote`).
    """

    def _start(self, arguments: list[str], options: dict[str, Any]) -> tuple[int, Any]:
        asked = "benchmarks.torture.zygote:start", arguments, self._said.name
        return int(_zygote().ask(*asked, seconds=PATIENCE)), None

    def ended(self) -> int | None:
        """Return the exit status, None while there is none."""
        if self._status is None:
            state = Path(f"/proc/{self.number}/stat").read_text().rsplit(")", 1)[1].split()[0]
            if state == "Z":
                asked = "benchmarks.torture.zygote:status", self.number
                self._status = int(_zygote().ask(*asked, seconds=PATIENCE))
        return self._status


@functools.cache
def _zygote() -> Apart:
    apart = Apart("benchmarks.torture.zygote", memory=None)
    atexit.register(apart.close)
    return apart


def started(name: str, out: Path, *arguments: str) -> Running:
    """Start a command, forked where it imports no torch."""
    kind = Forked if WORK[name].forked else Running
    return kind([*WORK[name].words(out), *arguments])


def _name(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")[:80]
    return str(process)


@dataclasses.dataclass(frozen=True)
class Reference:
    """What an undisturbed run wrote, and how long it took."""

    result: dict[str, Any]
    seconds: float


@functools.cache
def reference(name: str) -> Reference:
    """Run a command undisturbed, twice: the first time may compile."""
    seconds = 0.0
    found: list[dict[str, Any]] = []
    for _ in range(2):
        with tempfile.TemporaryDirectory(prefix="torture-whole-", dir=scratch()) as place:
            began = time.monotonic()
            ended = started(name, Path(place) / "out").wait()
            seconds = time.monotonic() - began
            assert ended.status == 0, ended
            found.append(WORK[name].result(Path(place) / "out"))
    assert found[0] == found[1], f"two undisturbed runs of {name} differ"
    return Reference(found[0], seconds)


def part_of(name: str, out: Path, *, whole: bool) -> None:
    """Assert that what is there is part of what an undisturbed run writes, or all of it."""
    found, due = WORK[name].result(out), reference(name).result
    for key, value in found.items():
        assert due.get(key) == value, f"{key} is not what an undisturbed run writes"
    if whole:
        assert found.keys() == due.keys(), f"of {len(due)} results {len(found)} are there"
        assert not list(out.rglob("*.partial")), "temporary files are left"


def quiet(ended: Ended, *statuses: int) -> None:
    """Assert an exit status, and a message in place of a traceback.

    Python's own resource tracker is a process that can be killed as any other; the one that takes
    its place complains, each time in these words, of every name that it is told to forget and never
    knew.
    """
    assert ended.status in statuses, f"status {ended.status}: {ended.said}"
    assert "Traceback" not in _TRACKER.sub("", ended.said), ended.said


_TRACKER = re.compile(
    r"Traceback \(most recent call last\):\n  File "
    r"\"[^\"]*/multiprocessing/resource_tracker\.py\".*\n.*\nKeyError: .*\n"
    # An interrupt while the interpreter itself forks is told by `logging`, which holds its locks
    # then, and nobody can catch it.
    r"|Exception ignored in: <function _releaseLock .*\nTraceback \(most recent call last\):\n(?:  "
    r".*\n)+KeyboardInterrupt: *\n"
)


def go_on(name: str, out: Path) -> None:
    """Run the same command again, to its end."""
    quiet(started(name, out).wait(), 0)
    part_of(name, out, whole=True)


# --- what may befall a command


def killed(name: str, out: Path, random: Random) -> str:
    """Send a signal to the command, or kill one of its workers, at any moment, perhaps several
    times over.
    """
    told = []
    for _ in range(int(random.choice([1, 1, 2]))):
        running = started(name, out)
        try:
            moment = float(random.uniform(0, reference(name).seconds))
            running.lasts(moment)
            kind = signal.Signals(
                int(random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
            )
            workers = [process for process in running.members() if process != running.number]
            if workers and random.random() < 0.4:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(random.choice(workers)), signal.SIGKILL)
                told.append(f"a worker killed after {moment:.3f} s")
                quiet(running.wait(), 0)
            else:
                running.send(kind)
                told.append(f"{kind.name} after {moment:.3f} s")
                ended = running.wait()
                if (
                    kind == signal.SIGINT
                    and ended.said.rstrip().endswith("KeyboardInterrupt")
                    and moment < 1.0
                ):
                    continue  # before the command's own code runs, the interpreter speaks
                quiet(ended, 0, 1, 130, -kind)
        finally:
            running.end()
        part_of(name, out, whole=False)
    go_on(name, out)
    return ", ".join(told)


def skewed(name: str, out: Path, random: Random) -> str:
    """Kill the command, and let all that is there be of another time, as of another machine."""
    running = started(name, out)
    try:
        running.lasts(float(random.uniform(0, reference(name).seconds)))
        running.send(signal.SIGKILL)
        running.wait()
    finally:
        running.end()
    moved = float(random.uniform(-20, 20)) * 365 * 86_400
    for path in (out, *out.rglob("*")) if out.is_dir() else ():
        os.utime(path, (time.time() + moved,) * 2, follow_symlinks=False)
    go_on(name, out)
    return f"files of {moved / 86_400:+.0f} days"


def without_room(name: str, out: Path, random: Random) -> str:
    """Run on a disk that is too small, then make room."""
    size = int(random.integers(4, 400)) << 10
    with small_disk(out.parent / "disk", size) as disk:
        if disk is None:
            limit = functools.partial(_limit_files, size)
            quiet(Running(WORK[name].words(out), preexec_fn=limit).wait(), 0, 2)
            part_of(name, out, whole=False)
            go_on(name, out)
            return f"no file above {size} bytes"
        quiet(started(name, disk / "out").wait(), 0, 2)
        part_of(name, disk / "out", whole=False)
        subprocess.run(
            ["mount", "-o", "remount,size=256m", str(disk)], check=True, capture_output=True
        )
        go_on(name, disk / "out")
    return f"a disk of {size} bytes"


def _limit_files(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path | None]:
    """Mount a disk of some bytes, or give None where that is not allowed."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
        check=False,
        capture_output=True,
    )
    try:
        yield None if mounted.returncode else place
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


def two_at_once(name: str, out: Path, random: Random) -> str:
    """Start the command twice, a moment apart: one may be told that the other is at work."""
    apart = float(random.uniform(0, 0.5 * reference(name).seconds))
    both = [Running(WORK[name].words(out))]  # a fork's end is asked for one at a time
    try:
        time.sleep(apart)
        both.append(Running(WORK[name].words(out)))
        ended = [running.wait() for running in both]
    finally:
        for running in both:
            running.end()
    for one in ended:
        quiet(one, 0, 2)
    assert any(one.status == 0 for one in ended), f"neither finished: {ended}"
    part_of(name, out, whole=True)
    return f"a second writer after {apart:.3f} s"


def read_only(name: str, out: Path, random: Random) -> str:
    """Run on a disk that may not be written, then on one that may."""
    with small_disk(out.parent / "disk", 1 << 28) as disk:
        place = (disk or out.parent / "disk") / "out"
        place.mkdir()
        _let(disk, place, "ro")
        quiet(started(name, place).wait(), 2)
        assert not list(place.iterdir()), "something was written"
        _let(disk, place, "rw")
        go_on(name, place)
    return "a disk that is read-only"


def _let(disk: Path | None, place: Path, how: str) -> None:
    """Forbid or allow writing: a superuser is held by a disk only, another user by a folder too."""
    if disk is not None:
        subprocess.run(
            ["mount", "-o", f"remount,{how}", str(disk)], check=True, capture_output=True
        )
    else:
        place.chmod({"ro": 0o555, "rw": 0o755}[how])


def on_a_cluster(name: str, out: Path, random: Random) -> str:
    """Run on Dask processes as a user starts them; one may be killed while another is there, or the
    command itself.
    """
    with Cluster() as cluster:
        running = started(name, out, "--scheduler", cluster.address)
        told = "undisturbed"
        try:
            moment = float(random.uniform(0, 2 * reference(name).seconds))
            running.lasts(moment)
            match int(random.integers(3)):
                case 0:
                    cluster.kill_worker()
                    told = f"a Dask worker killed after {moment:.3f} s"
                    quiet(running.wait(), 0)
                case 1:
                    running.send(signal.SIGKILL)
                    told = f"SIGKILL after {moment:.3f} s"
                    quiet(running.wait(), 0, -signal.SIGKILL)
                case _:
                    quiet(running.wait(), 0)
        finally:
            running.end()
        part_of(name, out, whole=False)
    go_on(name, out)
    return f"on a cluster, {told}"


class Cluster:
    """A scheduler and two workers of Dask, as `dask scheduler` and `dask worker` start them."""

    def __enter__(self) -> Cluster:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._started: list[subprocess.Popen[bytes]] = []
        self._place = tempfile.mkdtemp(prefix="torture-dask-")
        words = f"--host 127.0.0.1 --port {port} --no-dashboard"
        self._start("distributed.cli.dask_scheduler", *words.split())
        for _ in range(2):
            words = f"{self.address} --nthreads 1 --no-nanny --no-dashboard"
            self._start("distributed.cli.dask_worker", *words.split())
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return self
            assert time.monotonic() < until, "the scheduler did not start"
            time.sleep(0.1)

    def _start(self, module: str, *arguments: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", module, *arguments]
        self._started.append(
            subprocess.Popen(
                command,
                env=environment,
                start_new_session=True,
                cwd=self._place,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def kill_worker(self) -> None:
        """Kill one of the workers."""
        self._started[-1].kill()

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._place, ignore_errors=True)


Event = Callable[[str, Path, Random], str]

EVENTS: dict[str, tuple[Event, float, tuple[str, ...]]] = {
    "killed": (killed, 10, tuple(WORK)),
    "skewed": (skewed, 1, ("forked", "forked alone", "decode", "train")),
    "without room": (
        without_room,
        1.5,
        ("forked", "forked alone", "trace", "models", "decode", "train"),
    ),
    "two at once": (two_at_once, 1, ("trace", "models")),
    "read-only": (read_only, 0.5, ("forked", "forked alone", "trace", "models", "decode", "train")),
    "on a cluster": (on_a_cluster, 1, ("trace", "models")),
}
"""What may befall which commands, and how often."""


def trial(event: str, name: str, seed: int) -> str:
    """Let something befall a command, and return what it was; an assertion says what went wrong."""
    reference(name)
    place = Path(tempfile.mkdtemp(prefix="torture-", dir=scratch()))
    try:
        return EVENTS[event][0](name, place / "out", np.random.default_rng(seed))
    finally:
        shutil.rmtree(place, ignore_errors=True)
