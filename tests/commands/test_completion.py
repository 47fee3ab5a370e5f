"""A shell completes what the commands take, and nothing that they do not."""

import shutil
import subprocess
import sys
import types

import pytest

import otm.__main__
from otm.__main__ import OWN, _parser, main


def script(shell, capsys):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text, *words):
    """Ask bash what the last word may become."""
    line = " ".join(f"'{word}'" for word in words)
    ask = (
        f"{text}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _otm; printf '%s\\n' "
        f'"${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(sys.platform == "win32", reason="bash may be that of another system")
def test_bash_completes_commands_options_and_choices(capsys):
    text = script("bash", capsys)
    assert set(OWN) <= set(completed(text, "otm", ""))
    assert completed(text, "otm", "pl") == ["plan"]
    assert completed(text, "otm", "audit", "--order", "") == ["llama.cpp", "transformers", "vllm"]
    assert completed(text, "otm", "completion", "z") == ["zsh"]
    (commands,) = (action for action in _parser()._actions if action.dest == "command")
    for name in ("audit", "plan"):
        known = commands.choices[name]._option_string_actions
        offered = {option for option in known if option.startswith("--")}
        assert set(completed(text, "otm", name, "--")) == offered


@pytest.mark.parametrize("missing", [[], ["torch"]])
def test_options_of_further_commands_are_read_off_their_help(missing, capsys, monkeypatch):
    """Where what they need is there."""

    def further(words):
        assert words == ["further", "--help"]
        print("Usage: otm further [OPTIONS]\n  --an-option  not-an-option, -x  --other TEXT")
        raise SystemExit(0)

    entry = types.SimpleNamespace(dist=None, load=lambda: further)
    monkeypatch.setattr(otm.__main__, "_further", lambda: {"further": entry})
    monkeypatch.setattr(otm.__main__, "_missing", lambda entry: missing)
    text = script("bash", capsys)
    assert completed(text, "otm", "fur") == ["further"]
    offered = [] if missing else ["--an-option", "--other"]
    assert completed(text, "otm", "further", "-") == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(shell, capsys):
    text = script(shell, capsys)
    assert "audit" in text
    if shutil.which(shell):
        subprocess.run([shell, "-c", text], check=True, capture_output=True)
