"""`python -m benchmarks [NAME …]`: time the library side by side with what a user would pick
instead, write a table.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.timing import machine
from otm._display.tabular import markdown
from otm.commands.printing import escape_unencodable

RESULTS = Path(__file__).parent / "results"
SUITES = (
    "core",
    "optimal",
    "rows",
    "trees",
    "device",
    "gradients",
    "measure",
    "kernels",
    "refusals",
    "ott",
    "gbv",
    "readers",
    "first_use",
    "compare",
    "table",
)
_VERSIONS = {
    "ott": ("jax", "ott-jax"),
    "gbv": ("torch",),
    "kernels": ("torch", "transformers"),
    "refusals": ("torch",),
}
"""What a suite is timed against besides what all are."""
_NEEDS = {
    "rows": "torch",
    "device": "torch",
    "gradients": "torch",
    "measure": "torch",
    "kernels": "torch",
    "refusals": "torch",
    "ott": "ott",
    "gbv": "torch",
}
_INSTALL = {"ott": ": pip install --group ott"}
_BESIDE = ("kernels", "readers", "first_use", "compare", "table")
"""Suites that time another revision as well."""

_CODE = ("gbv",)
"""Suites that run public code from a folder of checkouts."""


def main(arguments: list[str] | None = None) -> int:
    """Run the suites and write `results/NAME.json` and `results/NAME.md`."""
    escape_unencodable()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"suites to run, of {', '.join(SUITES)} (default: all)",
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="time per measured function")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--checkouts", type=Path, help="folder with OWNER+NAME of the public code that is timed"
    )
    parser.add_argument(
        "--beside", type=Path, help="checkout of another revision, which is timed, too"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(SUITES)):
        parser.error(f"there is no suite {', '.join(unknown)}; choose from {', '.join(SUITES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or SUITES:
        if name in _NEEDS and importlib.util.find_spec(_NEEDS[name]) is None:
            print(f"{name}: skipped, {_NEEDS[name]} is not installed{_INSTALL.get(name, '')}")
            continue
        if name in _CODE and options.checkouts is None:
            print(f"{name}: skipped, it needs --checkouts FOLDER")
            continue
        module = importlib.import_module(f"benchmarks.{name}")
        given = {"checkouts": options.checkouts} if name in _CODE else {}
        if name in _BESIDE:
            given = {"beside": options.beside}
        said = {**machine(*_VERSIONS.get(name, ())), **getattr(module, "SAID", {})}
        record = {"machine": said, "rows": module.run(seconds=options.seconds, **given)}
        (options.out / f"{name}.json").write_text(
            json.dumps(record, indent=1) + "\n", encoding="utf-8"
        )
        text = render(module.__doc__ or name, record)
        (options.out / f"{name}.md").write_text(text, encoding="utf-8")
        print(text)
    return 0


def render(title: str, record: dict[str, Any]) -> str:
    """Return a Markdown page: the rows as a table, the machine below."""
    rows = record["rows"]
    columns = list(rows[0])
    table = markdown(columns, [[_cell(row[column]) for column in columns] for row in rows])
    machine = "; ".join(f"{k} {v}" for k, v in record["machine"].items())
    return (
        f"# {title.splitlines()[0]}\n\n{table}\n\nMedians of interleaved runs. Machine: "
        f"{machine}.\n"
    )


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
