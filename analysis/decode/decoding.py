"""Run prompts through decoders with a real pair, and keep every result in a file that survives being killed.

The results file is JSON lines: a header that says what determines a result, then one record per (decoder, prompt, seed). A record
is appended and flushed to the disk when its text is complete, so a killed run loses the open text only; the next one cuts a torn
last line off and goes on. The randomness of a record depends on its prompt and seed alone: a resumed run gives the records of an
uninterrupted one, and a file can be extended by prompts, seeds and decoders.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import otm
from otm.sequence import Decoder, Generation, LanguageModel, generate

from ..errors import AnalysisError
from ..statistics import Floats, clustered_means
from .levels import most_tokens

FORMAT = "otm-decode"
VERSION = 1
_MAX_LINE = 1 << 24


@dataclasses.dataclass(frozen=True)
class Task:
    """What determines one record: the decoder, the prompt (by `prompt_name`) and the seed."""

    decoder: str
    prompt: str
    seed: int


@dataclasses.dataclass(frozen=True)
class Record:
    """One decoded text.

    Attributes:
        task: what determined it.
        tokens: the decoded tokens.
        lengths: decoded tokens of each step, that is of each serial call of the target.
        accepted: accepted drafts of each step.
        vertices: the deepest drafted vertex that agreed with the output in each step, 0 where none did.
        drafted: number of drafted tokens per step.
        ended: whether the text ended with the end-of-sequence token.
        seconds: wall time, drafting and verification included.
    """

    task: Task
    tokens: tuple[int, ...]
    lengths: tuple[int, ...]
    accepted: tuple[int, ...]
    vertices: tuple[int, ...]
    drafted: int
    ended: bool
    seconds: float

    @property
    def num_calls(self) -> int:
        """Serial calls of the target."""
        return len(self.lengths)


def run_tasks(
    tasks: Iterable[Task],
    *,
    decoders: dict[str, Decoder],
    prompts: Mapping[str, Sequence[int]],
    draft: LanguageModel,
    target: LanguageModel,
    num_tokens: int,
    eos: int | None,
    results: ResultsFile,
    before_each: Callable[[], None] = lambda: None,
    after_each: Callable[[Record], None] = lambda record: None,
) -> None:
    """Decode every task that the results file does not hold yet, and append its record.

    `before_each` is where models forget what they cache: the last bits of a distribution may depend on it.

    Raises:
        AnalysisError: if a model fails; the file keeps all records before, and the message says which task it was.
    """
    for task in tasks:
        if task in results.done:
            continue
        before_each()
        start = time.perf_counter()
        try:
            text = generate(
                decoders[task.decoder],
                draft=draft,
                target=target,
                context=prompts[task.prompt],
                num_tokens=num_tokens,
                rng=np.random.default_rng([task.seed, int(task.prompt, 16)]),
                eos=eos,
            )
        except (otm.OtmError, AnalysisError) as error:
            raise AnalysisError(
                f"Decoding stopped at prompt {task.prompt}, seed {task.seed}, {task.decoder}: {error} "
                f"{len(results.done)} records are safe in {results.path}; the same command goes on from there."
            ) from error
        record = _record(task, text, decoders[task.decoder].shape.num_nodes, time.perf_counter() - start)
        results.append(record)
        after_each(record)


def _record(task: Task, text: Generation, drafted: int, seconds: float) -> Record:
    return Record(
        task=task,
        tokens=text.tokens,
        lengths=tuple(len(one.tokens) for one in text.steps),
        accepted=tuple(one.accepted for one in text.steps),
        vertices=tuple(one.survivors[-1][0] if one.survivors else 0 for one in text.steps),
        drafted=drafted,
        ended=text.ended,
        seconds=round(seconds, 6),
    )


class ResultsFile:
    """The results of one setting, open for appending.

    Args:
        path: the file; made if it does not exist.
        settings: what determines the value of a record; must equal those of an existing file.
        provenance: where the run comes from; recorded when the file is made.

    Raises:
        AnalysisError: if the file holds results of other settings, is no results file, or cannot be written.
    """

    def __init__(self, path: Path, *, settings: dict[str, Any], provenance: dict[str, Any]) -> None:
        self.path = path
        self.done: set[Task] = set()
        wanted = json.loads(json.dumps(settings))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size:
                self._resume(wanted)
            else:
                header = {"format": FORMAT, "version": VERSION, "settings": wanted, "provenance": provenance}
                self._write(json.dumps(header))
        except OSError as error:
            raise AnalysisError(f"Results must go to a file that can be written; {path}: {error}. Choose another.") from error

    def append(self, record: Record) -> None:
        """Append a record and flush it to the disk.

        Raises:
            AnalysisError: if the disk is full or the file cannot be written; earlier records stay.
        """
        try:
            self._write(json.dumps(dataclasses.asdict(record.task) | _fields(record)))
        except OSError as error:
            raise AnalysisError(
                f"A record could not be written to {self.path}: {error}. Earlier records are safe; make room and run again."
            ) from error
        self.done.add(record.task)

    def _resume(self, wanted: dict[str, Any]) -> None:
        whole = _cut_torn_line(self.path)
        if whole == 0:
            raise AnalysisError(f"{self.path} is not a results file. Choose another name.")
        header, records = read_results(self.path)
        found = header["settings"]
        if found != wanted:
            names = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
            raise AnalysisError(
                f"A file holds results of one setting; {self.path} has "
                + "; ".join(f"{name} = {found.get(name)!r} where {wanted.get(name)!r} is asked for" for name in names)
                + ". Choose another file."
            )
        self.done = {record.task for record in records}

    def _write(self, line: str) -> None:
        data = (line + "\n").encode()
        with self.path.open("ab") as file:
            file.write(data)  # one write of one line: a kill leaves at most one torn line, the last
            file.flush()
            os.fsync(file.fileno())


def read_results(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """Read a results file: its header and its records; a torn last line is left out.

    Raises:
        AnalysisError: if the file is not one.
    """
    records = []
    try:
        lines = _lines(path)
        header = json.loads(next(lines, "null"))
        if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") != VERSION:
            raise ValueError(f"its first line is not a header of format {FORMAT}, version {VERSION}")
        for line in lines:
            row = json.loads(line)
            task = Task(str(row["decoder"]), str(row["prompt"]), int(row["seed"]))
            numbers = {key: tuple(map(int, row[key])) for key in ("tokens", "lengths", "accepted", "vertices")}
            records.append(
                Record(task, **numbers, drafted=int(row["drafted"]), ended=bool(row["ended"]), seconds=float(row["seconds"]))
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AnalysisError(f"{path} is not a results file of `python -m analysis decode`: {error}.") from error
    return header, records


def _fields(record: Record) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.name != "task"}


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        while line := file.readline(_MAX_LINE):
            if not line.endswith(b"\n"):
                return
            yield line.decode()


def _cut_torn_line(path: Path) -> int:
    """Cut what follows the last line break off and return how many bytes remain."""
    size = path.stat().st_size
    with path.open("rb+") as file:
        position = size
        while position > 0:
            start = max(0, position - 65_536)
            file.seek(start)
            place = file.read(position - start).rfind(b"\n")
            if place >= 0:
                file.truncate(start + place + 1)
                return start + place + 1
            position = start
    return 0


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """Tokens per serial call of the target, with an interval over prompts.

    Attributes:
        decoder: its text.
        mean: total tokens / total calls, texts weighted by their calls.
        low, high: 95 % interval over prompts, see `block_efficiency`; None for one prompt.
        num_prompts, num_texts, num_calls: behind the mean.
        accepted: accepted drafts per call.
        tokens_per_second: wall time included; a property of the machine as well.
    """

    decoder: str
    mean: float
    low: float | None
    high: float | None
    num_prompts: int
    num_texts: int
    num_calls: int
    accepted: float
    tokens_per_second: float


def block_efficiency(tokens: Floats, calls: Floats, *, most: int) -> tuple[float, float | None, float | None]:
    """Return tokens per target call with a 95 % interval over prompts, the one that tables and reports show.

    Σ tokens / Σ calls ± t · standard error, clustered by prompt as texts of one prompt depend on each other; its ends are cut to
    [1, most], outside which no mean can lie.

    Args:
        tokens, calls: `(prompts,)`, decoded tokens and serial target calls of each prompt, at least one call in all.
        most: tokens that one call can yield at most.

    Returns:
        The mean and both ends of its interval, None for one prompt.
    """
    means = clustered_means(tokens[:, None], calls[:, None])
    mean, low, high = (float(value[0]) for value in (means.mean, means.low, means.high))
    if not np.isfinite(low):
        return mean, None, None
    return mean, max(1.0, low), min(float(most), high)


def efficiency(records: Iterable[Record], *, decoder: str) -> Efficiency:
    """Return block efficiency, the mean number of decoded tokens per target call, with an interval over prompts.

    Raises:
        AnalysisError: if there is no record of the decoder.
    """
    mine = [record for record in records if record.task.decoder == decoder]
    if not mine:
        raise AnalysisError(f"There is no record of {decoder}; decode with it first.")
    prompts = sorted({record.task.prompt for record in mine})
    place = {prompt: i for i, prompt in enumerate(prompts)}
    tokens, calls = np.zeros(len(prompts)), np.zeros(len(prompts))
    for record in mine:
        tokens[place[record.task.prompt]] += sum(record.lengths)
        calls[place[record.task.prompt]] += record.num_calls
    mean, low, high = block_efficiency(tokens, calls, most=max(most_tokens(decoder, record.drafted) for record in mine))
    return Efficiency(
        decoder=decoder,
        mean=mean,
        low=low,
        high=high,
        num_prompts=len(prompts),
        num_texts=len(mine),
        num_calls=int(calls.sum()),
        accepted=sum(sum(record.accepted) for record in mine) / float(calls.sum()),
        tokens_per_second=float(tokens.sum()) / sum(record.seconds for record in mine),
    )


def prompt_name(tokens: Sequence[int]) -> str:
    """Return a prompt's name: the first 16 hexadecimal digits of the SHA-256 of its tokens.

    >>> prompt_name([1, 2])
    '3a316d6d3226f84c'
    """
    return hashlib.sha256(json.dumps([int(token) for token in tokens]).encode()).hexdigest()[:16]
