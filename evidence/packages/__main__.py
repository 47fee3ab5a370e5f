"""`python -m evidence.packages [NAME …]`: install packages, each in an environment of its own,
audit their verifiers there and renew the page. `--page` renews the page alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from typing import Any

from evidence.environments import installed
from evidence.packages import page
from evidence.packages.registry import PACKAGES, SUBJECTS, PackageSubject
from evidence.public_code import report
from evidence.public_code.each import audit_each

ENVIRONMENTS = report.ROOT / "build" / "packages"
OPTIONS = ("--no-deps", "--ignore-requires-python")


def main(arguments: list[str] | None = None) -> int:
    """Audit the packages named and renew the page."""
    parser = argparse.ArgumentParser(prog="python -m evidence.packages", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages (default: all)")
    parser.add_argument("--page", action="store_true", help="audit nothing")
    parser.add_argument("--one", metavar="SUBJECT", help="audit one callable here, print its row")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(PACKAGES)):
        parser.error(f"there is no package {', '.join(unknown)}; choose from {', '.join(PACKAGES)}")
    if options.one:
        print(json.dumps(_audited(SUBJECTS[options.one]), ensure_ascii=False))
        return 0
    names = [key for key, one in SUBJECTS.items() if one.repository in (options.names or PACKAGES)]
    record = report.read(page.RESULTS)

    def command(subject: Any) -> list[Any]:
        place, packages = ENVIRONMENTS / subject.repository, PACKAGES[subject.repository]
        python, _ = installed(place, packages, options=OPTIONS, shares=True)
        return [python, "-m", "evidence.packages", "--one", subject.key]

    if options.page:
        page.write(record)
        return 0
    return int(audit_each(SUBJECTS, names, command, record, page.write, report.ROOT) > 0)


def _audited(subject: PackageSubject) -> dict[str, Any]:
    """Audit a callable in this environment."""
    import torch

    from evidence.public_code.run import run

    torch.set_num_threads(1)
    # before the audits put their own randomness in the place of the libraries'
    module = subject.code.split(":")[0]
    if "/" not in module:
        importlib.import_module(module)
    return run(subject, subject.shim)


if __name__ == "__main__":
    sys.exit(main())
