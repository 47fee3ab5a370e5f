"""`python -m evidence.public_code --checkouts FOLDER [NAME …]`: audit public code, each piece in
a process of its own.

Without `--checkouts`, the git commands that make the folder are printed; nothing is fetched here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from evidence.public_code import report
from evidence.public_code.checkouts import commands
from otm.commands.printing import escape_unencodable

MOST_SECONDS = 600
"""Time for one subject, shrinking and confirmation included."""


def main(arguments: list[str] | None = None) -> int:
    """Audit, write the results and the table of the page."""
    from evidence.public_code.registry import PINS
    from evidence.public_code.shims import SUBJECTS

    escape_unencodable()
    parser = argparse.ArgumentParser(prog="python -m evidence.public_code", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="subjects of the table (default: all)"
    )
    parser.add_argument(
        "--checkouts", type=Path, help="folder with OWNER+NAME at the pinned revisions"
    )
    parser.add_argument(
        "--one", action="store_true", help="audit one subject here and print its row"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(SUBJECTS)):
        parser.error(f"there is no subject {', '.join(unknown)}; choose from {', '.join(SUBJECTS)}")
    if options.checkouts is None:
        print(commands(PINS))
        return 0
    if options.one:
        import torch

        from evidence.public_code.run import run

        torch.set_num_threads(1)
        print(json.dumps(run(SUBJECTS[options.names[0]], options.checkouts), ensure_ascii=False))
        return 0
    from benchmarks.timing import machine

    record = report.read()
    rows = {row["subject"]: row for row in record["rows"]}
    failures = 0
    for name in options.names or SUBJECTS:
        command = [
            sys.executable,
            "-m",
            "evidence.public_code",
            "--checkouts",
            str(options.checkouts),
            "--one",
            name,
        ]
        # compiled code cannot be followed, and is the same code
        environment = {
            **os.environ,
            "TORCHDYNAMO_DISABLE": "1",
        }
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS,
                env=environment,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            failures += 1
            print(f"{name}: {error}\n{(error.stderr or '')[-1000:]}", file=sys.stderr)
            continue
        rows[name] = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{name}: {rows[name]['verdict']}, {rows[name]['total_variation']}, "
            f"{rows[name]['seconds']} s",
            flush=True,
        )
        report.write(
            {
                "machine": record["machine"] or machine(),
                "rows": [rows[key] for key in SUBJECTS if key in rows],
            }
        )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
