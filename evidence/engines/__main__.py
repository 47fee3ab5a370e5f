"""`python -m evidence.engines [NAME …]`: run engines, each in an environment of its own, and renew
the page from what they wrote. `--page` renews the page alone; `--pair NAME` runs a trained pair.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

from evidence.engines import gains, page
from evidence.environments import installed
from figures.engines import NAMES, PAIRS, RESULTS
from otm._display.tabular import with_section

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
    parser.add_argument("--pair", choices=PAIRS, help="run a trained pair, not the tiny one")
    options = parser.parse_args(arguments)
    known, failures = engines(), 0
    if options.pair:
        known = {name: known[name] for name in NAMES if name in known} | {"own_loop": ()}
    names = [name.replace(".", "_").replace("-", "_") for name in options.names] or list(known)
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"there is no engine {', '.join(unknown)}; choose from {', '.join(known)}")
    for name in () if options.page else names:
        try:
            if options.pair:
                _run_trained(name, known[name], options.pair)
            else:
                _run(name, known[name])
        except subprocess.CalledProcessError as error:
            failures += 1
            print(f"{name}: {error}", file=sys.stderr)
    text = page.page(page.PAGE.read_text(encoding="utf-8"))
    for pair in PAIRS:
        text = with_section(text, pair, gains.table(pair))
    page.PAGE.write_text(text, encoding="utf-8")
    return int(failures > 0)


def _run(name: str, packages: tuple[str, ...]) -> None:
    """Run an engine with the pair whose law is known."""
    python, seconds = installed(ENVIRONMENTS / name, packages)
    command = [python, "-m", f"evidence.engines.runners.{name}", page.RESULTS / f"{name}.json"]
    subprocess.run([*command, f"--install-seconds={seconds}"], check=True, cwd=page.ROOT)


def _run_trained(name: str, packages: tuple[str, ...], chosen: str) -> None:
    """Run an engine with a trained pair, or this library's loop, and compute what is due."""
    from analysis.files import SHIPPED_PAIR
    from analysis.models.pair import load_pair
    from evidence.engines import pairs, predicted

    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    folder = pairs.PAIRS[chosen].folder(ENVIRONMENTS)
    pair = load_pair(draft=str(folder / "draft"), target=str(folder / "target"), device="cpu")
    task = predicted.task(pair, SHIPPED_PAIR / "held_out.txt", pairs.PAIRS[chosen].length)
    python, module = Path(sys.executable), f"evidence.engines.{name}"
    if packages:
        python, module = (
            installed(ENVIRONMENTS / name, packages)[0],
            f"evidence.engines.runners.trained.{name}",
        )
    written, told = (ENVIRONMENTS / f"{chosen}-{name}-{part}.json" for part in ("written", "task"))
    told.write_text(json.dumps(dataclasses.asdict(task)), encoding="utf-8")
    command = [python, "-m", module, folder, told, written]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    subprocess.run(command, check=True, cwd=page.ROOT, env=os.environ | threads)
    record = json.dumps(predicted.record(written, pair, task.prompts), indent=1)
    (RESULTS / chosen / f"{name}.json").write_text(record + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
