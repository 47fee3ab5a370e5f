"""Environments of packages: made once, made anew where the packages change."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from evidence.environments import installed


def test_an_environment_is_made_once_and_anew_for_other_packages(tmp_path, monkeypatch):
    site, commands = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path)})), []
    monkeypatch.setattr(venv, "create", lambda *_, **__: site.mkdir(parents=True, exist_ok=True))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command[4:]))
    made = installed(tmp_path, ("a==1", "-b"), options=("--no-deps",))
    assert commands == [["install", "--no-deps", "a==1"], ["uninstall", "--yes", "b"]]
    assert installed(tmp_path, ("a==1", "-b"), options=("--no-deps",)) == made
    assert len(commands) == 2
    assert not list(site.iterdir())
    installed(tmp_path, ("a==2",), shares=True)
    assert commands[2:] == [["install", "a==2"]]
    assert (site / "shared.pth").read_text().strip() in sys.path
