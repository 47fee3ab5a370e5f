"""`python -m figures [NAME …]`: rebuild Figures 1–5, or figures of experiments by name."""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np

from figures.headline import headline
from figures.paths import OUT
from figures.provenance import manifest
from figures.work import Work
from otm._display import drawing
from otm._machine.progress import INTERRUPTED, clock, report_phase, say
from otm.commands.printing import discard_stdout, escape_unencodable

DEFAULT = ("figure1", "figure2", "figure3", "figure4", "figure5")
FURTHER = (
    "landscape",
    "scores",
    "bracket",
    "ersd3",
    "ersd4",
    "table1",
    "table2",
    "mentored",
    "wall_clock",
    "best_step",
    "nodes",
    "quality",
    "kinds",
    "house",
    "front",
    "engines",
    "lossy_rules",
    "detection",
)
SAMPLES = 20_000
SAMPLES_FAST = 1_000


def main(arguments: list[str] | None = None) -> int:
    """Rebuild figures: data with a manifest as JSON, pictures as PDF, SVG and PNG."""
    escape_unencodable()
    parser = argparse.ArgumentParser(prog="python -m figures", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"1 to 5, or one of {', '.join(DEFAULT + FURTHER)}"
    )
    parser.add_argument(
        "--fast", action="store_true", help="few Monte Carlo draws and coarse grids, for tests"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the Monte Carlo points (default 1)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="output folder (default figures/out)")
    options = parser.parse_args(arguments)
    try:
        names = [_resolve(name) for name in options.names] or list(DEFAULT)
    except ValueError as error:
        parser.error(str(error))
    if options.seed < 0:
        parser.error(f"the seed must not be negative; got {options.seed}")
    if not isinstance(options.out, Path):
        parser.error("--out must be a folder's name; '--' is none")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        parser.error(f"--out must be a folder that can be written: {error}")
    try:
        with clock("loading"):
            _build_all(names, options)
        if sys.stdout is not None:  # it may have been closed
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        discard_stdout()
        print(
            f"error: there is no room for what is written ({error.strerror}); send it elsewhere",
            file=sys.stderr,
        )
        return 2
    return 0


def _build_all(names: list[str], options: argparse.Namespace) -> None:
    for name in names:
        report_phase(name)
        start = time.perf_counter()
        paths = build(
            importlib.import_module(f"figures.{name}"),
            name,
            options.out,
            fast=options.fast,
            seed=options.seed,
        )
        say(
            f"{name:<10} {time.perf_counter() - start:5.1f} s  "
            f"{', '.join(path.name for path in paths)}"
        )
    say(f"written to {options.out}")


def build(module: ModuleType, name: str, folder: Path, *, fast: bool, seed: int) -> list[Path]:
    """Compute one figure, write data and manifest, and draw the figure from these."""
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        report_phase(name, f"{done} points")

    work = Work(
        samples=SAMPLES_FAST if fast else SAMPLES,
        rng=np.random.default_rng(seed),
        fast=fast,
        tick=tick,
    )
    data = module.compute(work)
    record = {
        "figure": name,
        "manifest": manifest(seed=seed, captured=data.pop("captured", None)),
    }
    data = json.loads(json.dumps(data))  # as it is read again
    message: str = module.message(data)
    record |= {"message": message, "data": data}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    with drawing.style():
        canvas = module.draw(data)
        headline(canvas, message)
        return [path, *drawing.save(canvas, folder, name)]


def _resolve(name: str) -> str:
    full = f"figure{name}" if name.isdigit() else name
    if full not in DEFAULT + FURTHER:
        raise ValueError(f"there is no figure {name!r}; choose from {', '.join(DEFAULT + FURTHER)}")
    return full


if __name__ == "__main__":
    sys.exit(main())
