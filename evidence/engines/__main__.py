"""`python -m evidence.engines [NAME …]`: run engines, each in an environment of its own, and renew
the page from what they wrote. `--page` renews the page alone; `--trained` runs the shipped pair.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from pathlib import Path

from evidence.engines import gains, page
from evidence.environments import installed
from figures.engines import NAMES, RESULTS
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
    parser.add_argument("--trained", action="store_true", help="run the shipped pair")
    options = parser.parse_args(arguments)
    known, failures = engines(), 0
    if options.trained:
        known = {name: known[name] for name in NAMES if name in known} | {"own_loop": ()}
    names = [name.replace(".", "_").replace("-", "_") for name in options.names] or list(known)
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"there is no engine {', '.join(unknown)}; choose from {', '.join(known)}")
    for name in () if options.page else names:
        try:
            (_run_trained if options.trained else _run)(name, known[name])
        except subprocess.CalledProcessError as error:
            failures += 1
            print(f"{name}: {error}", file=sys.stderr)
    text = page.page(page.PAGE.read_text(encoding="utf-8"))
    page.PAGE.write_text(with_section(text, "trained", gains.table()), encoding="utf-8")
    return int(failures > 0)


def _run(name: str, packages: tuple[str, ...]) -> None:
    """Run an engine with the pair whose law is known."""
    python, seconds = installed(ENVIRONMENTS / name, packages)
    command = [python, "-m", f"evidence.engines.runners.{name}", page.RESULTS / f"{name}.json"]
    subprocess.run([*command, f"--install-seconds={seconds}"], check=True, cwd=page.ROOT)


def _run_trained(name: str, packages: tuple[str, ...]) -> None:
    """Run an engine with the shipped pair, or this library's loop, and compute what is due."""
    from analysis.files import SHIPPED_PAIR
    from analysis.models.pair import load_pair
    from evidence.engines import predicted

    pair = load_pair()
    given = predicted.prompts(pair, SHIPPED_PAIR / "held_out.txt")
    python, module = Path(sys.executable), f"evidence.engines.{name}"
    if packages:
        python, module = (
            installed(ENVIRONMENTS / name, packages)[0],
            f"evidence.engines.runners.trained.{name}",
        )
    written, prompts = (ENVIRONMENTS / f"{name}-{part}.json" for part in ("written", "prompts"))
    prompts.parent.mkdir(parents=True, exist_ok=True)
    prompts.write_text(json.dumps(given), encoding="utf-8")
    command = [python, "-m", module, SHIPPED_PAIR, prompts, written]
    subprocess.run(command, check=True, cwd=page.ROOT)
    record = json.dumps(predicted.record(written, pair, given), indent=1)
    (RESULTS / f"{name}.json").write_text(record + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
