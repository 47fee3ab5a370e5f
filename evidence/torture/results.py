"""What trials leave behind: files of JSON lines that only grow, in a folder that any number of runs
may share, and their table.

The first line of a file says where its trials come from; every later one is a trial, `[family,
function, inputs, ratio, index, seconds]`, a failure with what it needs to be understood besides. A
process that is killed leaves at most its last line torn, which is left out. So nothing is to be
merged and nothing is lost: the table is over all files of a folder.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import platform
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from evidence.torture.frame import Trial, replay_line
from otm._display.tabular import markdown
from tests.paths import ROOT


def revision() -> str:
    """Return the last commit that touched what is tried or what tries it, with a + if there are
    changes since.
    """
    last = _git("log", "-1", "--format=%h")
    changed = _git("status", "--porcelain")
    return last + ("+" if changed else "")


def _git(*words: str) -> str:
    command = ["git", *words, "--", "otm", "evidence/torture"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def machine() -> str:
    """Return the processor, the number of cores and the interpreter."""
    named = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    processor = named[0].partition(":")[2].strip() if named else platform.machine()
    return f"{processor}, {os.cpu_count()} cores, Python {platform.python_version()}"


class Writer:
    """One process's file of trials."""

    def __init__(self, folder: Path, *, seed: int, worker: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.seed = folder, seed
        started = datetime.datetime.now(datetime.UTC)
        stamp = started.strftime("%Y%m%dT%H%M%S")
        self._file = (folder / f"trials-{stamp}-{os.getpid()}-{worker}.jsonl").open(
            "a", encoding="utf-8"
        )
        head = {
            "seed": seed,
            "revision": revision(),
            "machine": machine(),
            "load": os.getloadavg()[0],
        }
        self._say(head | {"started": started.isoformat(timespec="seconds")})

    def _say(self, said: object) -> None:
        self._file.write(json.dumps(said) + "\n")
        self._file.flush()

    def record(self, family: str, index: int, trial: Trial, seconds: float) -> None:
        """Write a trial down before the next one begins."""
        line: list[object] = [
            family,
            trial.function,
            trial.inputs,
            trial.ratio,
            index,
            round(seconds, 4),
        ]
        if trial.failed:
            line.append({"reproduce": trial.reproduce, "detail": trial.detail})
        self._say(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One trial as it was written down; `source` is the first line of its file."""

    family: str
    trial: Trial
    index: int
    seconds: float
    source: dict[str, Any]


def recorded(folder: Path) -> Iterator[Recorded]:
    """Yield every trial of every file."""
    for path in sorted(folder.glob("trials-*.jsonl")):
        source: dict[str, Any] = {}
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file):
                if not line.endswith("\n"):
                    break  # torn by a kill
                said = json.loads(line)
                if number == 0:
                    source = said
                    continue
                family, function, inputs, ratio, index, seconds, *failure = said
                yield Recorded(
                    family,
                    Trial(function, inputs, float(ratio), **(failure[0] if failure else {})),
                    index,
                    seconds,
                    source,
                )


def next_indices(folder: Path, seed: int) -> dict[str, int]:
    """Return for each family the first index that no run with this seed has tried yet."""
    following: dict[str, int] = defaultdict(int)
    for done in recorded(folder):
        if done.source["seed"] == seed:
            following[done.family] = max(following[done.family], done.index + 1)
    return following


@dataclasses.dataclass
class Total:
    """Sums over trials."""

    trials: int = 0
    inputs: int = 0
    worst: float = 0.0
    failures: int = 0
    seconds: float = 0.0

    def add(self, done: Recorded) -> None:
        """Count one more trial."""
        self.trials += 1
        self.inputs += done.trial.inputs
        self.worst = math.inf if math.isnan(done.trial.ratio) else max(self.worst, done.trial.ratio)
        self.failures += done.trial.failed
        self.seconds += done.seconds


@dataclasses.dataclass
class Summary:
    """Totals by function and by family; the failures one by one."""

    functions: dict[str, Total]
    families: dict[str, Total]
    failures: list[Recorded]
    sources: list[dict[str, Any]]


def summary(folder: Path | None) -> Summary:
    """Return the totals of the trials in a folder; of none there are none."""
    total = Summary(defaultdict(Total), defaultdict(Total), [], [])
    for done in recorded(folder) if folder else ():
        for totals, key in (
            (total.functions, done.trial.function),
            (total.families, done.family),
        ):
            totals[key].add(done)
        if done.trial.failed:
            total.failures.append(done)
        if done.source not in total.sources:
            total.sources.append(done.source)
    return total


HEAD = (
    "# Trials",
    "",
    "What `python -m evidence.torture` tried, on which functions, and the worst error as a part "
    "of the promised bound. Written by",
    "`python -m evidence.torture table --out FOLDER`, not by hand. Where something passes or "
    "fails the ratio is 0, or ∞ if it fails;",
    "inputs are counted over all revisions in the folder, so that failures of an older one are "
    "listed with it.",
    "",
)


def shown_ratio(ratio: float) -> str:
    """Return worst error ÷ bound for a cell."""
    return "0" if ratio == 0 else f"{ratio:.2g}"


def table(total: Summary) -> str:
    """Return the Markdown table of a summary."""
    machines = sorted({source["machine"] for source in total.sources})
    loads = [source["load"] for source in total.sources]
    seeds = sorted({source["seed"] for source in total.sources})
    minutes = sum(sums.seconds for sums in total.families.values()) / 60
    tried = sorted(total.functions.items())
    lines = [
        *HEAD,
        f"{sum(sums.inputs for sums in total.families.values()):,} inputs in {minutes:,.0f} "
        f"minutes of one core; "
        f"{len(total.failures)} failures.",
        "",
        f"Machine: {'; '.join(machines)}. Load at the start of a process: "
        + (f"{min(loads):.1f} to {max(loads):.1f}." if loads else "none."),
        f"Seeds: {', '.join(map(str, seeds))}.",
        "",
        _table(
            ("function", "inputs tried", "worst error ÷ promised bound", "failures"),
            [
                (f"`{name}`", f"{sums.inputs:,}", shown_ratio(sums.worst), sums.failures)
                for name, sums in tried
            ],
        ),
        "",
        _table(
            ("family", "trials", "inputs tried", "minutes", "failures"),
            [
                (
                    name,
                    f"{sums.trials:,}",
                    f"{sums.inputs:,}",
                    f"{sums.seconds / 60:.1f}",
                    sums.failures,
                )
                for name, sums in sorted(total.families.items())
            ],
        ),
    ]
    if total.failures:
        lines += ["", "Failures:", ""]
        lines += [
            f"- `{done.trial.function}` {shown_ratio(done.trial.ratio)} at "
            f"{done.source['revision']}: "
            f"`{replay_line(done.family, done.source['seed'], done.index)}`"
            for done in total.failures[:100]
        ]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return markdown(head, [[str(cell) for cell in row] for row in rows], right=range(1, len(head)))
