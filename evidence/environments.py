"""Environments that pinned packages are run in, one for each, made once."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path


def installed(
    folder: Path, packages: tuple[str, ...], *, options: tuple[str, ...] = (), shares: bool = False
) -> tuple[Path, float]:
    """Make an environment of packages unless it is there, and tell the seconds that it took.

    Args:
        folder: of the environment.
        packages: what pip installs; a name after a minus is taken off again: what a package asks
            for and this machine cannot run.
        options: of `pip install`.
        shares: whether what is installed here can be imported there, too, behind the packages.

    Returns:
        The environment's Python, and seconds.
    """
    told = {"packages": [*packages, *options]}
    stamp = folder / "installed.json"
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not stamp.exists() or json.loads(stamp.read_text())["packages"] != told["packages"]:
        start = time.perf_counter()
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "--quiet"]
        unwanted = [package[1:] for package in packages if package[0] == "-"]
        wanted = [package for package in packages if package[0] != "-"]
        subprocess.run([*pip, "install", *options, *wanted], check=True)
        if unwanted:
            subprocess.run([*pip, "uninstall", "--yes", *unwanted], check=True)
        if shares:
            place = sysconfig.get_path("purelib", vars={"base": str(folder)})
            (Path(place) / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
        stamp.write_text(json.dumps(told | {"seconds": round(time.perf_counter() - start)}))
    return python, json.loads(stamp.read_text())["seconds"]
