"""Environments of packages: made once, made anew where the packages change."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from evidence.environments import installed


def test_an_environment_is_made_once_and_anew_for_other_packages(tmp_path, monkeypatch):
    commands = []
    place = tmp_path / "one"

    def create(folder, **_):
        site = sysconfig.get_path("purelib", vars={"base": str(folder)})
        Path(site).mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(venv, "create", create)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command[3:]))
    python, seconds = installed(place, ("a==1", "-b"), options=("--no-deps",))
    assert place in python.parents
    assert seconds == 0
    assert commands == [
        ["--quiet", "install", "--no-deps", "a==1"],
        ["--quiet", "uninstall", "--yes", "b"],
    ]
    assert not list(place.rglob("*.pth"))
    commands.clear()
    assert installed(place, ("a==1", "-b"), options=("--no-deps",)) == (python, seconds)
    assert commands == []
    installed(place, ("a==2",), shares=True)
    assert commands == [["--quiet", "install", "a==2"]]
    assert json.loads((place / "installed.json").read_text())["packages"] == ["a==2"]
    assert next(iter(place.rglob("*.pth"))).read_text().strip() in sys.path
