"""`python -m evidence.engines [NAME …]`: run engines, each in an environment of its own, and renew
the page from what they wrote. `--page` renews the page alone.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from pathlib import Path

from evidence.engines import page
from evidence.environments import installed

RUNNERS = Path(__file__).with_name("runners")
ENVIRONMENTS = page.ROOT / "build" / "engines"


def engines() -> dict[str, tuple[str, ...]]:
    """Read the packages of each engine from its runner, which cannot be imported here."""
    found = {}
    for path in sorted(RUNNERS.glob("[!_]*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PACKAGES":
                found[path.stem] = ast.literal_eval(node.value)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the engines named and renew the page."""
    parser = argparse.ArgumentParser(prog="python -m evidence.engines", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="engines (default: all)")
    parser.add_argument("--page", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    known, failures = engines(), 0
    names = [name.replace(".", "_").replace("-", "_") for name in options.names] or list(known)
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"there is no engine {', '.join(unknown)}; choose from {', '.join(known)}")
    for name in () if options.page else names:
        try:
            python, seconds = installed(ENVIRONMENTS / name, known[name])
            command = [python, "-m", f"evidence.engines.runners.{name}"]
            out = page.RESULTS / f"{name}.json"
            subprocess.run(
                [*command, out, f"--install-seconds={seconds}"], check=True, cwd=page.ROOT
            )
        except subprocess.CalledProcessError as error:
            failures += 1
            print(f"{name}: {error}", file=sys.stderr)
    page.PAGE.write_text(page.page(page.PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
