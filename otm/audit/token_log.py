"""The format of a line of a server's log, and a strict reader.

One JSON object a line, one line for each output token::

    {"context": "req-17/42", "drafts": [5, 9], "draft": [0.1, …], "target": [0.2, …], "output": 9}
    {"context": "req-17/43", "drafts": [3], "draft": null, "output": 3,
     "target": {"tokens": [3, 8, 1], "probabilities": [0.6, 0.3, 0.05], "tail": 0.05}}

`target` is the law that the token should have, after temperature, top-k, top-p and penalties: all V
probabilities, or the largest ones with their tokens and what is left as `tail`. `draft` is the law
that the drafts came from, in either form, or null. `drafts` and `context` may be left out.
Probabilities must add up to 1 within 3e-5, so log them with six digits or more; the test resolves
differences of about 1/√records, far coarser.

A probability of 0 says that the token cannot come out: one output of probability 0 is an alarm, so
do not round small ones to 0.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from otm._machine.strict_json import plain_json
from otm.errors import InvalidDistribution, InvalidParameter
from otm.pmf import SUM_TOLERANCE_FLOAT32

LONGEST_LINE = 1 << 25
"""Bytes of one line: room for two laws of 400,000 tokens."""


class InvalidRecord(InvalidParameter):
    """Raised for a line of a log that is no record; the message gives the number of the line."""


@dataclasses.dataclass(frozen=True, eq=False)
class LogRecord:
    """One output token of a log.

    Attributes:
        context: whatever identifies it.
        drafts: drafted tokens `(k,)`, possibly none.
        target, draft: probabilities of the `tokens`, and last what is left for all others; draft is
            None if not logged.
        tokens: the listed tokens `(m,)`; `draft` and `target` are over them.
        output: the token that came out.
    """

    context: str
    drafts: NDArray[np.int64]
    target: NDArray[np.float64]
    draft: NDArray[np.float64] | None
    tokens: NDArray[np.int64]
    output: int

    @property
    def cell(self) -> int:
        """The index of the output among `tokens`, or m for "another one"."""
        found = np.flatnonzero(self.tokens == self.output)
        return int(found[0]) if found.size else len(self.tokens)


def read_log(path: str | Path) -> Iterator[LogRecord]:
    r"""Yield the records of a JSONL file, one line in memory at a time.

    Args:
        path: the file; empty lines are passed over.

    Yields:
        LogRecord, in order.

    Raises:
        InvalidParameter: unless `path` is a regular file (devices and pipes are not read).
        InvalidRecord: on the first line that is no record, naming file and line.

    Cost: one `parse_record` per line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "outputs.jsonl")
    ...     _ = path.write_text('{"output": 1, "target": [0.5, 0.5]}\n')
    ...     [record.output for record in read_log(path)]
    [1]
    """
    file = Path(path)
    try:
        regular = file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        regular = False
    if not regular:
        raise InvalidParameter(
            f"The log must be a regular file; {str(path)!r:.200} is none. Check the path."
        )
    try:
        with file.open("rb") as stream:
            # What the kernel offers as files of size 0 may have no end.
            for number, line in enumerate(_lines(stream) if file.stat().st_size else (), start=1):
                if line.strip():
                    yield parse_record(line, number)
    except InvalidRecord as error:
        raise InvalidRecord(f"{file.name:.80}: {error}") from error
    except OSError as error:
        raise InvalidParameter(
            f"The log must be readable; {str(path)!r:.200}: {error.strerror}. Check the file."
        ) from error


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise InvalidRecord(
                f"Line {number}: lines must be at most {LONGEST_LINE:,} bytes. Log the largest "
                "probabilities only."
            )
        yield line


def parse_record(line: str | bytes, number: int) -> LogRecord:
    """Read one line of a log. Nothing in a record is a path, a name of code or anything but data.

    Args:
        line: JSON, as text or UTF-8.
        number: of the line, for the message.

    Returns:
        LogRecord.

    Raises:
        InvalidRecord: unless the line is a record.

    Cost: O(V), or O(tokens listed).

    >>> target = '{"tokens": [2, 7], "probabilities": [0.5, 0.25], "tail": 0.25}'
    >>> parse_record(f'{{"output": 4, "target": {target}}}', 1).cell
    2
    """
    try:
        data = plain_json(line)
        if not isinstance(data, dict):
            raise InvalidRecord("a record is a JSON object")
        return _record(data)
    except (
        InvalidParameter,
        InvalidDistribution,
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InvalidRecord(
            f"Line {number} is no record: {error}. See otm.audit.token_log for the format."
        ) from error


def _record(data: dict[str, Any]) -> LogRecord:
    unknown = set(data) - {"context", "drafts", "draft", "target", "output", "accepted"}
    if unknown or "target" not in data or "output" not in data:
        raise InvalidRecord(
            "keys are context, drafts, draft, target, output and accepted; got "
            f"{sorted(data)!r:.300}"
        )
    output: Any = data["output"]
    drafts: Any = [] if data.get("drafts") is None else data["drafts"]
    if not _is_token(output) or not _are_all(drafts, _is_token):
        raise InvalidRecord("output must be a token, drafts a list of tokens (integers ≥ 0)")
    tokens, target = _law(data["target"], "target")
    for name in ("target", "draft"):
        # A full list names every token of the vocabulary: what lies outside is a mistake of the
        # record, not of the verifier.
        whole = len(data[name]) if isinstance(data.get(name), list) else None
        outside = [token for token in (*drafts, output) if whole is not None and token >= whole]
        if outside:
            raise InvalidRecord(f"token {outside[0]} is outside the {whole} tokens of {name}")
    draft = None
    if data.get("draft") is not None:
        listed, masses = _law(data["draft"], "draft")
        tokens, target, draft = _together(tokens, target, listed, masses)
    context = data.get("context", "")
    return LogRecord(
        str(context), np.asarray(drafts, dtype=np.int64), target, draft, tokens, output
    )


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _law(value: Any, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the listed tokens `(m,)` and the probabilities with the tail last, `(m + 1,)`."""
    alone = {"probabilities": value, "tail": 0.0}
    law = alone | {"tokens": [*range(len(value))]} if isinstance(value, list) else value
    if not isinstance(law, dict) or set(law) != {"tokens", "probabilities", "tail"}:
        # A tail taken for 0 would make an alarm of every token that is not listed.
        raise InvalidRecord(
            f"{name} must hold probabilities; in part it has the keys tokens, probabilities and "
            "tail, which is 0 where all are listed"
        )
    tokens, masses, tail = law["tokens"], law["probabilities"], law["tail"]
    if not masses or not _are_all(masses, _is_real) or not _is_real(tail):
        raise InvalidRecord(f"{name} must hold probabilities")
    if not _are_all(tokens, _is_token) or len(tokens) != len(masses):
        raise InvalidRecord(f"{name} must have one token for each probability")
    if len(set(tokens)) != len(tokens):
        raise InvalidRecord(f"the tokens of {name} must be distinct")
    mass = np.asarray([*masses, tail], dtype=np.float64)
    total = mass.sum()
    if not np.isfinite(total) or mass.min() < 0 or abs(total - 1.0) > SUM_TOLERANCE_FLOAT32:
        raise InvalidRecord(
            f"the probabilities of {name} must be non-negative and add up to 1; they add up to "
            f"{total:.9g}"
        )
    return np.asarray(tokens, dtype=np.int64), mass / total


def _are_all(values: object, is_one: Callable[[object], bool]) -> bool:
    return isinstance(values, list) and all(map(is_one, values))


def _is_real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _together(
    tokens: NDArray[np.int64],
    target: NDArray[np.float64],
    listed: NDArray[np.int64],
    masses: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Reduce two lists of tokens to the common tokens, or extend a complete list's partner."""
    if np.array_equal(tokens, listed):
        return tokens, target, masses
    # What one list holds and the other leaves to its tail has no ratio; unless that tail is empty,
    # and then it is 0.
    in_target, in_draft = set(tokens.tolist()), set(listed.tolist())
    kept = [
        token
        for token in dict.fromkeys([*tokens.tolist(), *listed.tolist()])
        if (token in in_target or target[-1] == 0.0) and (token in in_draft or masses[-1] == 0.0)
    ]
    aligned = []
    for names, mass in ((tokens, target), (listed, masses)):
        of: dict[int, float] = dict(zip(names.tolist(), mass[:-1].tolist(), strict=True))
        part = [of.get(token, 0.0) for token in kept]
        aligned.append(np.asarray([*part, max(0.0, 1.0 - math.fsum(part))]))
    return np.asarray(kept, dtype=np.int64), aligned[0], aligned[1]
