"""The command line: which command is called, and what is none."""

import re
import subprocess
import sys

import pytest

from otm.__main__ import OWN, main


@pytest.mark.parametrize("arguments", [["judge"], [], ["audit", "--no-such-option"]])
def test_what_is_no_command(arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


def test_every_command_is_listed(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    listed = capsys.readouterr().out
    assert all(re.search(rf"\n    {name}\s", listed) for name in (*OWN, "measure"))


def test_as_a_module():
    pair = ["--draft", "3/4,1/4", "--target", "1/2,1/2"]
    command = [
        sys.executable,
        "-m",
        "otm",
        "audit",
        "evidence.corpus.one_token:accept_everything",
        *pair,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("## `evidence.corpus.one_token:accept_everything`: not lossless")


def test_a_closed_standard_output_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)  # as after `>&-` in a shell
    assert main(["completion", "bash"]) == 2
    assert capsys.readouterr().err == "otm: the standard output is closed. Send it somewhere.\n"
