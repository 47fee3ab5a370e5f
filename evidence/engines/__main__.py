"""`python -m evidence.engines [NAME …]`: run engines, each in an environment of its own, and renew
the page from what they wrote. `--page` renews the page alone.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import time
import venv
from pathlib import Path

from evidence.engines import page

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


def installed(name: str, packages: tuple[str, ...]) -> tuple[Path, float]:
    """Make an engine's environment if it is not there, and tell the seconds that it took.

    A name after a minus is taken off again: what a package asks for and this machine cannot run.
    """
    folder = ENVIRONMENTS / name
    stamp, told = folder / "installed.json", {"packages": list(packages)}
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not stamp.exists() or json.loads(stamp.read_text())["packages"] != told["packages"]:
        start = time.perf_counter()
        venv.create(folder, clear=True, with_pip=True)
        pip = [python, "-m", "pip", "--quiet"]
        unwanted = [package[1:] for package in packages if package[0] == "-"]
        wanted = [package for package in packages if package[0] != "-"]
        subprocess.run([*pip, "install", *wanted], check=True)
        if unwanted:
            subprocess.run([*pip, "uninstall", "--yes", *unwanted], check=True)
        stamp.write_text(json.dumps(told | {"seconds": round(time.perf_counter() - start)}))
    return python, json.loads(stamp.read_text())["seconds"]


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
            python, seconds = installed(name, known[name])
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
