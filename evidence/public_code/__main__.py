"""`python -m evidence.public_code --checkouts FOLDER [NAME …]`: audit public code, each piece in
a process of its own.

Without `--checkouts`, the git commands that make the folder are printed; nothing is fetched here.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from evidence.public_code import report
from evidence.public_code.checkouts import commands, folder
from evidence.public_code.registry import Subject
from otm.commands.printing import escape_unencodable


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
        chosen = SUBJECTS[options.names[0]]
        candidate = chosen.shim(folder(options.checkouts, chosen.repository))
        print(json.dumps(run(chosen, candidate), ensure_ascii=False))
        return 0
    from evidence.public_code.each import audit_each

    def command(subject: Subject) -> list[Any]:
        given = ["--checkouts", options.checkouts.resolve(), "--one", subject.key]
        return [sys.executable, "-m", "evidence.public_code", *given]

    names = options.names or SUBJECTS
    return int(audit_each(SUBJECTS, names, command, report.read(), report.write, report.ROOT) > 0)


if __name__ == "__main__":
    sys.exit(main())
