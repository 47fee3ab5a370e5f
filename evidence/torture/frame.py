"""What a family of trials is, how one trial is found again, and how its input is shrunk.

A *family* is a generator of trials that never ends. Before each trial the frame sets its random
numbers anew from (seed, family, index), so `--replay family:seed:index` repeats one trial without
those before it. For this to hold a family draws random numbers only between one `yield` and the
next, and keeps nothing from one trial to another that a result depends on. What is set up before
the loop is torn down in a `finally`: the frame closes a family when its time is over.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import math
import pkgutil
import secrets
import shlex
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from otm._machine.compiled import load_at_once
from tests.paths import ROOT

load_at_once()  # compiled code is tortured, too

Thing = TypeVar("Thing")


@dataclasses.dataclass(frozen=True)
class Trial:
    """What was tried on one function.

    Args:
        function: The public name, the row of the table, such as `otm.bounds.kseq_lower`.
        inputs: How many inputs were tried.
        ratio: Worst error ÷ promised bound. More than 1 is a failure; for what passes or fails 0
            and `inf`.
        reproduce: Python that fails on the shrunk input and can be pasted; "" where the seed must
            do.
        detail: What was expected and what came, for a failure; for a success of no account.
    """

    function: str
    inputs: int
    ratio: float
    reproduce: str = ""
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether the promise was broken; a ratio that is not a number breaks it."""
        return not self.ratio <= 1


@dataclasses.dataclass(frozen=True)
class Family:
    """A registered generator of trials."""

    name: str
    run: Callable[[np.random.Generator], Iterator[Trial]]

    @property
    def itself(self) -> str:
        """The row of the table for failures that are the family's own."""
        return f"(family {self.name})"


_FAMILIES: dict[str, Family] = {}


Run = Callable[[np.random.Generator], Iterator[Trial]]


def family(name: str) -> Callable[[Run], Run]:
    """Register a generator of trials under a name without colon."""

    def register(run: Run) -> Run:
        _FAMILIES[name] = Family(name, run)
        return run

    return register


def families() -> dict[str, Family]:
    """Return every family by its name, from all modules of `evidence.torture.families`."""
    package = importlib.import_module("evidence.torture.families")
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")
    return dict(sorted(_FAMILIES.items()))


def fresh_seed() -> int:
    """Return a seed from the operating system."""
    return secrets.randbits(48)


def revision_seed() -> int:
    """Return the seed that belongs to the sources as they stand: new with every change, the same
    wherever they are tested.

    A trial that fails in one clone fails in all of them, and what has passed in one passes in the
    next.
    """
    digest = hashlib.sha256()
    for folder in ("otm", "evidence", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")


class Course:
    """One family under one seed: trials by their index, whatever order they are asked for in."""

    def __init__(self, chosen: Family, seed: int) -> None:
        self.family, self.seed = chosen, seed
        self._random = np.random.default_rng()
        self._running: Iterator[Trial] | None = None

    def trial(self, index: int) -> Trial:
        """Return the trial of this index; an exception that leaves the family is a failed trial of
        the family itself.
        """
        state = np.random.default_rng(
            [self.seed, zlib.crc32(self.family.name.encode()), index]
        ).bit_generator.state
        self._random.bit_generator.state = state
        try:
            if self._running is None:
                self._running = self.family.run(self._random)
            return next(self._running)
        except StopIteration:
            self._running = None
            return Trial(self.family.itself, 0, math.inf, detail="the family ended by itself")
        except (
            Exception
        ):  # the trial's own machinery failed: kept with its seed, and the run goes on
            self._running = None
            return Trial(self.family.itself, 0, math.inf, detail=traceback.format_exc())

    def close(self) -> None:
        """Let the family tear down what it set up."""
        close = getattr(self._running, "close", None)
        self._running = None
        if close is not None:
            close()


def replay_line(name: str, seed: int, index: int) -> str:
    """Return the command that repeats one trial."""
    return f"python -m evidence.torture --replay {shlex.quote(f'{name}:{seed}:{index}')}"


def spend(
    name: str, *, seconds: float, seed: int | None = None, most: float = math.inf
) -> list[tuple[int, Trial]]:
    """Run one family in this process for some seconds, 1 to `most` trials, with a fresh seed unless
    one is given.
    """
    running = Course(families()[name], fresh_seed() if seed is None else seed)
    done: list[tuple[int, Trial]] = []
    until = time.monotonic() + seconds
    try:
        while not done or (time.monotonic() < until and len(done) < most):
            done.append((len(done), running.trial(len(done))))
    finally:
        running.close()
    return done


def told(name: str, seed: int, index: int, trial: Trial) -> str:
    """Return a failure in words: what, how badly, and how to see it again."""
    lines = [
        f"{trial.function}: error ÷ bound = {trial.ratio:.3g}",
        trial.detail,
        replay_line(name, seed, index),
        trial.reproduce,
    ]
    return "\n".join(line for line in lines if line)


def shrink(
    thing: Thing,
    *,
    simpler: Callable[[Thing], Iterable[Thing]],
    fails: Callable[[Thing], bool],
    seconds: float = 20.0,
) -> Thing:
    """Return the last of a chain of ever simpler things that all fail: greedy, first come first
    taken, for some seconds at most.

    `simpler` must not lead in circles; an exception in `fails` counts as a pass.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for candidate in simpler(thing):
            if _quietly(functools.partial(fails, candidate)):
                thing = candidate
                break
            if time.monotonic() > until:
                return thing
        else:
            return thing
    return thing


def _quietly(fails: Callable[[], bool]) -> bool:
    try:
        return fails()
    except Exception:
        return False
