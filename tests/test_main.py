"""The command line: which command is called, and what is none."""

import os
import re
import subprocess
import sys
from importlib import metadata

import pytest

from otm.__main__ import main
from otm.commands import COMMANDS, app


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["judge"], "otm: No such command 'judge'. (see otm --help)"),
        (["aduit"], "otm: No such command 'aduit'. Did you mean 'audit'? (see otm --help)"),
        (
            ["audit", "--modes"],
            "otm audit: No such option: --modes (Possible options: --mode, --order) (see",
        ),
    ],
)
def test_what_is_no_command(arguments, said, capsys):
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


def test_every_command_is_listed_in_its_group(capsys):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert main([]) == 2 and capsys.readouterr().out == listed
    assert main(["help"]) == 0 and capsys.readouterr().out == listed
    assert main(["help", "plan"]) == 0 and "Example: otm plan " in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"otm {metadata.version(app.DISTRIBUTION)}\n"
    for one in (*COMMANDS, *app.further()):
        (group,) = re.findall(rf"^{one.panel}:\n((?:  .*\n)+)", listed, re.MULTILINE)
        assert re.search(rf"^  {one.name} ", group, re.MULTILINE)
        assert one.sentence in " ".join(group.split())


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from otm.commands import COMMANDS, app; "
        "[app.load(one) for one in (*COMMANDS, *app.further())]; app.run(['measure', '--help']); "
        "print({'numpy', 'scipy', 'torch', 'transformers', 'rich'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_as_a_module():
    pair = ["--draft-probs", "3/4,1/4", "--target-probs", "1/2,1/2"]
    words = ["audit", "evidence.corpus.one_token:accept_everything", *pair]
    command = [sys.executable, "-m", "otm", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("## `evidence.corpus.one_token:accept_everything`: not lossless")


def test_a_closed_standard_output_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)  # as after `>&-` in a shell
    assert main(["--help"]) == 2
    assert capsys.readouterr().err == "otm: the standard output is closed. Send it somewhere.\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [("otm pl", "plan"), ("otm audit --order ", "vllm"), ("otm audit --same", "--same-text")],
)
def test_a_shell_completes_commands_options_and_words(words, offered):
    asked = {"_OTM_COMPLETE": "complete_bash", "COMP_WORDS": words}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from otm.__main__ import main; sys.exit(main())"],
        env=os.environ | asked | {"COMP_CWORD": str(len(words.split(" ")) - 1)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert offered in done.stdout.split()
    assert all(one.startswith(words.rpartition(" ")[2]) for one in done.stdout.split())


@pytest.mark.parametrize("words", ["--help", "--show-completion"])
def test_a_reader_that_has_left_is_no_traceback(words):
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "otm", words], stdout=writes, stderr=subprocess.PIPE, check=False
    )
    os.close(writes)
    said = done.stderr.decode()  # completion knows no shell where the tests run under sh
    assert said == "" or (words == "--show-completion" and re.fullmatch(r"Shell .*\n", said))
