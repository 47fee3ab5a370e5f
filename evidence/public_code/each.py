"""Carry out audits one after the other, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.timing import machine
from evidence.public_code.registry import Subject

MOST_SECONDS = 600
"""Time for one subject, shrinking and confirmation included."""


def audit_each(
    subjects: Mapping[str, Subject],
    names: Iterable[str],
    command: Callable[[Subject], list[Any]],
    record: dict[str, Any],
    write: Callable[[dict[str, Any]], None],
    root: Path,
) -> int:
    """Run the commands that print rows, keep each row as it comes, and count what failed.

    Args:
        subjects: all that a record has rows of, in their order.
        names: of those that are audited now.
        command: prints the row of a subject as the last line, in JSON.
        record: the machine and the rows so far.
        write: keeps a record.
        root: the folder that commands run in.
    """
    rows = {row["subject"]: row for row in record["rows"]}
    failures = 0
    for name in names:
        try:
            done = subprocess.run(
                command(subjects[name]),
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS,
                # compiled code cannot be followed, and is the same code
                env={**os.environ, "TORCHDYNAMO_DISABLE": "1"},
                check=True,
                cwd=root,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            failures += 1
            print(f"{name}: {error}\n{str(error.stderr or '')[-1000:]}", file=sys.stderr)
            continue
        rows[name] = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{name}: {rows[name]['verdict']}, {rows[name]['total_variation']}, "
            f"{rows[name]['seconds']} s",
            flush=True,
        )
        write(
            {
                "machine": record["machine"] or machine(),
                "rows": [rows[key] for key in subjects if key in rows],
            }
        )
    return failures
