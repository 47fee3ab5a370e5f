"""``otm completion SHELL``: prints what makes a shell complete commands and options of ``otm``.

The words are read off the parsers of the commands themselves, and off the help of those that an
extra adds, so that none is forgotten; after an option that takes one of a few words these are
offered, else files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Callable
from typing import Any

SHELLS = ("bash", "zsh", "fish")


def register(commands: Any) -> None:
    """Add the command to a parser's commands."""
    completion: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="print what makes a shell complete otm's words",
        epilog=(
            "bash, zsh: otm completion bash > FILE, and source FILE in the start-up file; fish: "
            "otm completion fish > ~/.config/fish/completions/otm.fish"
        ),
    )
    completion.add_argument("shell", choices=SHELLS)


def run(options: argparse.Namespace) -> int:
    """Print the script and return the exit status."""
    words = {name: _words(name, command) for name, command in options.own.items()}
    words |= {name: _words_of_help(name, call) for name, call in options.further.items()}
    print(_fish(words) if options.shell == "fish" else _bash(words, zsh=options.shell == "zsh"))
    return 0


def _words(name: str, command: Any) -> dict[str, tuple[str, ...]]:
    """Return the options of a command, and its name, each with the words that it can be followed
    by.
    """
    subparsers = argparse.ArgumentParser().add_subparsers()
    command.register(subparsers)
    (parser,) = subparsers.choices.values()
    return {
        word: tuple(str(choice) for choice in action.choices or ())
        for action in parser._actions
        for word in action.option_strings or [name]
        if word == name or word.startswith("--")
    }


def _words_of_help(
    name: str, call: Callable[[list[str]], int] | None
) -> dict[str, tuple[str, ...]]:
    """Return the options in the help of a command that an extra adds; none if it cannot run."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        if call:
            call([name, "--help"])
    return dict.fromkeys(re.findall(r"(?<!\S)--[a-z][a-z-]*", told.getvalue()), ())


def _bash(words: dict[str, dict[str, tuple[str, ...]]], *, zsh: bool) -> str:
    cases, places = [], []
    for name, followed in words.items():
        cases += [
            f'    "{name} {word}") words="{" ".join(choices)}" ;;'
            for word, choices in followed.items()
            if choices
        ]
        places.append(
            f'      {name}) words="{" ".join(word for word in followed if word != name)}" ;;'
        )
    lines = [
        *(["autoload -U +X bashcompinit && bashcompinit"] if zsh else []),
        "_otm() {",
        '  local words=""',
        f'  if [ "$COMP_CWORD" = 1 ]; then words="{" ".join(words)} --help --version"',
        '  else case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in',
        *cases,
        '    *) case "${COMP_WORDS[1]}" in',
        *places,
        "    esac ;;",
        "  esac; fi",
        '  COMPREPLY=( $(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}") )',
        "}",
        "complete -o default -F _otm otm",
    ]
    return "\n".join(lines)


def _fish(words: dict[str, dict[str, tuple[str, ...]]]) -> str:
    lines = [f"complete -c otm -n __fish_use_subcommand -f -a {shlex.quote(' '.join(words))}"]
    for name, followed in words.items():
        for word, choices in followed.items():
            kind = f" -l {word.removeprefix('--')}" if word != name else ""
            offered = (
                f" {'-x' if kind else '-f'} -a {shlex.quote(' '.join(choices))}" if choices else ""
            )
            if kind or offered:
                lines.append(
                    f"complete -c otm -n '__fish_seen_subcommand_from {name}'{kind}{offered}"
                )
    return "\n".join(lines)
