"""A shell completes what the commands take, and nothing that they do not."""

import shutil
import subprocess

import pytest

import otm.__main__
from otm.__main__ import OWN, _parser, main


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text: str, *words: str) -> list[str]:
    """Ask bash what the last word may become."""
    line = " ".join(f"'{word}'" for word in words)
    ask = (
        f"{text}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _otm; printf '%s\\n' "
        f'"${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_options_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    assert set(OWN) <= set(completed(text, "otm", ""))
    assert "measure" in completed(text, "otm", "mea")
    assert completed(text, "otm", "pl") == ["plan"]
    assert completed(text, "otm", "plan", "--draft-") == ["--draft-ms"]
    assert completed(text, "otm", "audit", "--order", "") == ["llama.cpp", "transformers", "vllm"]
    assert completed(text, "otm", "completion", "z") == ["zsh"]


def test_every_option_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    (commands,) = (action for action in _parser()._actions if action.dest == "command")
    assert isinstance(commands.choices, dict)
    for name in ("audit", "plan"):
        known = {
            option
            for option in commands.choices[name]._option_string_actions
            if option.startswith("--")
        }
        assert set(completed(text, "otm", name, "--")) == known


def test_options_of_further_commands_are_read_off_their_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def further(words: list[str]) -> int:
        assert words == ["further", "--help"]
        print("Usage: otm further [OPTIONS]\n  --an-option  not-an-option, -x  --other TEXT")
        raise SystemExit(0)

    class Entry:
        dist = None

        def load(self) -> object:
            return further

    monkeypatch.setattr(otm.__main__, "_further", lambda: {"further": Entry()})
    text = script("bash", capsys)
    assert completed(text, "otm", "fur") == ["further"]
    assert completed(text, "otm", "further", "-") == ["--an-option", "--other"]
    monkeypatch.setattr(otm.__main__, "_missing", lambda entry: ["torch"])
    text = script("bash", capsys)
    assert completed(text, "otm", "fur") == ["further"]
    assert completed(text, "otm", "further", "-") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert "audit" in text
    if shutil.which(shell):
        subprocess.run([shell, "-c", text], check=True, capture_output=True)
