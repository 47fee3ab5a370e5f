"""How many deliberate mistakes the suite notices: `python -m evidence.mutation --out FOLDER`.

A mutant is one small change in a function: an operator, a comparison, a number, a condition. Its
tests are those that execute its line: those of its room first, then the fastest. All tests are
collected once, and each mutant is a fork of that process in which functions have other code: it
costs its tests, no more. Compiled kernels are interpreted. The same command goes on with what its
folder lacks; the order is random, so that what a run cut short has tried is a sample as well.
docs/mutants.md lists mutants that change no answer, and has the table.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import copy
import functools
import gc
import importlib
import io
import json
import os
import pickle
import random
import re
import resource
import signal
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from otm._display.tabular import with_section

ROOMS = ["overlap", "verifiers", "drafts", "table", "sequence", "trees", "engines", "audit/tracing"]
LEFT_OUT = ("analysis", "house", "figures", "benchmarks", "evidence", "commands")
SLOWEST = 12  # CPU seconds of one test, beyond which it takes no part
PATIENCE = 320  # seconds on the clock: a test may wait for a child, or for a busy machine
MEMORY = 6 << 30  # bytes: a mutant may ask for any number of them
PAGE = Path("docs/mutants.md")
_SWAPPED = "Add Sub,Mult Div,Lt LtE,Gt GtE,Eq NotEq,In NotIn,Is IsNot,And Or,BitAnd BitOr"
_SWAPPED += ",min max,minimum maximum,any all,floor ceil,argmin argmax,cumsum cumprod"
_OTHER = {a: b for pair in _SWAPPED.split(",") for a, b in [pair.split(), pair.split()[::-1]]}
_OTHER |= {"FloorDiv": "Mult", "Mod": "Mult", "Pow": "Mult"}


def mistake(node: ast.AST) -> ast.AST | None:
    """Return what may stand mistakenly in place of a node."""
    other: Any = copy.copy(node)
    operator = type(getattr(node, "op", None) or getattr(node, "ops", [None])[0]).__name__
    if isinstance(node, ast.UnaryOp):
        return node.operand if isinstance(node.op, ast.USub | ast.Not) else None
    if operator in _OTHER:
        other.op = getattr(ast, _OTHER[operator])()
        other.ops = [other.op, *getattr(node, "ops", [])[1:]]
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        other.value = 0.3 * node.value or 1.0 if isinstance(node.value, float) else node.value + 1
        other.value = not node.value if isinstance(node.value, bool) else other.value
    elif isinstance(node, ast.Name) and node.id in _OTHER:
        other.id = _OTHER[node.id]
    elif isinstance(node, ast.Attribute) and node.attr in _OTHER:
        other.attr = _OTHER[node.attr]
    elif isinstance(node, ast.If | ast.IfExp):
        other.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
    else:
        return None
    found: ast.AST = ast.fix_missing_locations(other)
    return found


def executed(node: ast.AST, *, inside: bool = False) -> Iterator[ast.AST]:
    """Yield what functions execute, without annotations, defaults and messages of errors."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments):
        return
    if inside:
        yield node
    left_out = ("annotation", "returns", "decorator_list")
    fields = [value for field, value in ast.iter_fields(node) if field not in left_out]
    for child in [x for value in fields for x in (value if isinstance(value, list) else [value])]:
        if isinstance(child, ast.AST):
            yield from executed(child, inside=inside or isinstance(node, ast.FunctionDef))


def mutants_of(file: Path) -> Iterator[tuple[str, int, int, str]]:
    """Yield the file, the node by its place in the order of `ast.walk`, its line and the change."""
    tree, lines = ast.parse(file.read_text()), file.read_text().splitlines()
    places = {id(node): place for place, node in enumerate(ast.walk(tree))}
    for node in executed(tree):
        pair: list[Any] = [node, mistake(node)]
        if pair[1] is not None:
            shown = [ast.unparse(n.test if isinstance(n, ast.If) else n)[:160] for n in pair]
            line = pair[0].lineno
            change = f"{lines[line - 1].strip()}: {' -> '.join(shown)}"
            yield str(file), places[id(node)], line, change


def apply(file: str, node: int, functions: list[types.FunctionType]) -> None:
    """Exchange the code of those functions that the mutant changes."""
    tree = ast.parse(Path(file).read_text())
    at = list(ast.walk(tree))[node]
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is at:
                setattr(parent, field, mistake(at))
            elif isinstance(value, list):
                value[:] = [mistake(at) if child is at else child for child in value]
    place = str(Path(file).resolve())
    codes: dict[tuple[str, int], types.CodeType] = {}
    pending = [compile(tree, place, "exec")]
    while pending:
        inner = [x for x in pending.pop().co_consts if isinstance(x, types.CodeType)]
        codes |= {(code.co_name, code.co_firstlineno): code for code in inner}
        pending += inner
    for function in functions:
        code = function.__code__
        if code.co_filename == place:
            function.__code__ = codes.get((code.co_name, code.co_firstlineno), code)


def interpret_kernels() -> None:
    """Have compiled functions run by the interpreter, where they can be changed and watched."""
    numba: Any = importlib.import_module("numba")
    compiling: Any = importlib.import_module("otm._machine.compiled")
    numba.njit = compiling.compile_once = lambda *_, **__: lambda function: function
    engine: Any = importlib.import_module("otm.overlap.walk")
    engine.bits = lambda x: np.float64(x).view(np.int64)
    engine.number = lambda x: np.int64(x).view(np.float64)
    for name in ("overlap.walk", "table.compiled.first_pass", "table.compiled.second_pass"):
        kernels: Any = importlib.import_module(f"otm.{name}")
        kernels.math = np  # log1p(−1) is −∞ in compiled code, an error in Python's
    table: Any = importlib.import_module("otm.table.table")
    table._num_cores = lambda: 1  # an alarm in one of several threads leaves the others waiting
    np.seterr(all="ignore")


def in_forks(calls: Iterable[Callable[[], None]], workers: int) -> None:
    """Make each call in a fork of this process, some of them side by side."""
    for n, call in enumerate(calls):
        if n >= workers:
            os.wait()
        if os.fork() == 0:
            try:
                call()
            finally:
                os._exit(0)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


class Runner:
    """The pytest plugin that tries mutants in place of running the session's tests once."""

    def __init__(self, given: argparse.Namespace, mutants: list[Any]) -> None:
        """Take what the command was given, and the mutants that are left to try."""
        self.given, self.mutants, self.failed = given, mutants, False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure of the test that runs."""
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure what each test executes, then try every mutant."""
        if session.testsfailed:
            raise session.Interrupted("tests that cannot be collected would kill no mutant")
        for alarm in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(alarm, lambda *_: pytest.fail("too slow"))
        self.functions = [f for f in gc.get_objects() if type(f) is types.FunctionType]
        gc.freeze()  # what is never collected stays shared between forks
        files = collections.defaultdict(list)
        for item in session.items:
            files[self.given.out / f"{'-'.join(item.path.parts[-3:])}.pickle"].append(item)
        left = [
            (out, items)
            for out, items in files.items()
            if not out.exists() or out.stat().st_mtime < items[0].path.stat().st_mtime
        ]
        in_forks([functools.partial(self.measure, *part) for part in left], self.given.workers)
        self.items = {item.nodeid: item for item in session.items}
        self.tests = collections.defaultdict(list)
        for out in filter(Path.exists, files):
            for name, (seconds, lines) in pickle.loads(out.read_bytes()).items():
                for line in lines:
                    self.tests[line].append((seconds, name))
        tries = [functools.partial(self.attempt, *mutant) for mutant in self.mutants]
        in_forks(tries, self.given.workers)
        return True

    def fails(self, item: pytest.Item) -> bool:
        """Run one test and say whether it failed."""
        self.failed = False
        signal.setitimer(signal.ITIMER_PROF, SLOWEST)
        signal.alarm(PATIENCE)
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        except BaseException:  # the alarm may strike inside pytest itself
            self.failed = True
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        return self.failed

    def measure(self, out: Path, items: list[pytest.Item]) -> None:
        """Write each passing test's seconds and the lines of the library that it executes."""
        watch: Any = importlib.import_module("coverage").Coverage(data_file=None, source=["otm"])
        seconds, lines = {}, collections.defaultdict(set)
        watch.start()
        watch._collector.data_lock = threading.RLock()  # an alarm may strike while it is held
        for item in items:
            watch.switch_context(item.nodeid)
            begin = time.process_time()
            if not self.fails(item):
                seconds[item.nodeid] = time.process_time() - begin
        watch.stop()
        for file in watch.get_data().measured_files():
            for line, names in watch.get_data().contexts_by_lineno(file).items():
                for name in names:
                    lines[name].add((file, line))
        out.write_bytes(pickle.dumps({name: (seconds[name], lines[name]) for name in seconds}))

    def attempt(self, file: str, node: int, line: int, change: str) -> None:
        """Write the first test that notices a mutant, or none within the seconds it may take."""
        apply(file, node, self.functions)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        beside = f"tests/{Path(file).parts[1]}/"  # where a failure is likeliest
        tests = sorted(
            self.tests[str(Path(file).resolve()), line],
            key=lambda test: (not test[1].startswith(beside), test),
        )
        spent, killer = 0.0, None
        for seconds, name in tests:
            spent += seconds
            if spent > self.given.seconds or self.fails(self.items[name]):
                killer = name if self.failed else None
                break
        record = {"mutant": (file, node, line, change), "killer": killer, "tests": len(tests)}
        with (self.given.out / "mutants.jsonl").open("a") as stream:
            stream.write(json.dumps(record) + "\n")


def equivalent() -> set[tuple[str, str]]:
    """Return the files and changes of the mutants that change no answer, as the page lists them."""
    listed = re.findall(r"^\* `(\S+)`: ``? ?(.*?) ?`?`$", PAGE.read_text(), re.MULTILINE)
    return {(f"otm/{file}", change) for file, change in listed}


def table(records: Iterable[dict[str, Any]]) -> str:
    """Return the share of mutants that were noticed, by room, with exact 95 % intervals."""
    ignored, rooms = equivalent(), collections.defaultdict(list)
    for record in records:
        file, _, _, change = record["mutant"]
        outcome = "killed" if record["killer"] else (file, change) in ignored
        for room in (Path(file).parts[1].removesuffix(".py"), "total"):
            rooms[room].append(outcome)
    lines = ["| room | mutants | killed | equivalent | killed of the others | 95 % |"]
    lines += ["|---|---:|---:|---:|---:|---|"]
    for room, outcomes in sorted(rooms.items(), key=lambda entry: (entry[0] == "total", entry[0])):
        killed, same = outcomes.count("killed"), outcomes.count(True)
        found = scipy.stats.binomtest(killed, len(outcomes) - same)
        low, high = found.proportion_ci()
        lines.append(
            f"| {room} | {len(outcomes)} | {killed} | {same} | {found.statistic:.1%} "
            f"| {low:.1%} to {high:.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Read the command line, try the mutants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--rooms", nargs="+", default=ROOMS, help="folders or modules of otm")
    parser.add_argument("--sample", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of tests for one mutant")
    parser.add_argument("--again", action="store_true", help="try those once more that lived")
    parser.add_argument("--write", action="store_true", help=f"the table into {PAGE}")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    interpret_kernels()
    places = [Path("otm", room) for room in given.rooms]
    files = [f for p in places for f in (sorted(p.rglob("*.py")) or [p.with_suffix(".py")])]
    for file in files:
        importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
    every = [mutant for file in files for mutant in mutants_of(file)]
    mutants = random.Random(given.seed).sample(every, min(given.sample, len(every)))
    result = given.out / "mutants.jsonl"
    result.touch()
    lived = equivalent() if given.again else None
    done = {
        mutant
        for mutant, record in latest(result).items()
        if lived is None or record["killer"] or (mutant[0], mutant[3]) in lived
    }
    folders = [p for p in sorted(Path("tests").iterdir()) if p.name not in LEFT_OUT]
    tested = [str(p) for p in folders if p.name[:5] == "test_" or list(p.glob("test_*"))]
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
    options += ["-W", "ignore:Module already imported", "--import-mode=importlib"]
    options += ["-m", "not long and not job", "--doctest-modules", *tested, "otm"]
    with contextlib.redirect_stdout(io.StringIO()):  # pytest's own report of each test
        pytest.main(options, plugins=[Runner(given, [m for m in mutants if m not in done])])
    found = table(latest(result).values())
    print(found)
    if given.write:
        PAGE.write_text(with_section(PAGE.read_text(), "mutants", found))


def latest(result: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the last record of each mutant."""
    records = [json.loads(line) for line in result.open()]
    return {tuple(record["mutant"]): record for record in records}


if __name__ == "__main__":
    main()
