"""The command line: ``otm audit``, ``otm plan``, ``otm completion``, and the commands that an extra
adds (``otm measure``, …).

``otm`` is what an installation has; ``python -m otm`` is the same. The library's own commands are
`otm.commands`; further ones are entry points of the group `COMMANDS`, functions of the arguments
that return an exit status; what they need is imported when one is called.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from otm.commands.printing import escape_unencodable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS = "otm.commands"
EXTRA = "analysis"
"""The extra whose packages the further commands need."""

_ON_MODELS = {
    "advise": "speculate or not with two models, with which scheme, how much faster?",
    "capture": "what figures need from models: laws, a run of draft selection",
    "compare": "every scheme after one prompt: a table and a plot",
    "decode": "run prompts through decoders: tokens per call, speed-up over plain decoding",
    "experiment": "decoding experiments of the papers",
    "fetch": "fetch a public model",
    "latency": "time passes over length x batch, and over draft trees",
    "measure": "exact acceptance at every position of many prompts, to Parquet",
    "merge": "join shards measured on several machines",
    "report": "a measured run as one page",
    "rules": "which verification rule runs, what others give, and what each needs",
    "score": "what the target says along texts that an engine wrote",
    "steps": "tokens per call of several drafted sequences, decoder by decoder",
    "train": "train a small pair of models",
}
"""What the commands do that the extra adds."""

OWN = ("audit", "completion", "plan")
"""The library's commands: modules of `otm.commands`, loaded when they are called or listed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    >>> main(
    ...     ["audit", "otm:Maximal", "--draft", "3/4,1/4", "--target", "1/2,1/2"]
    ... )  # doctest: +ELLIPSIS
    ## `Maximal()`: lossless...
    0
    """
    if sys.stdout is None:  # closed by whoever started the process
        print("otm: the standard output is closed. Send it somewhere.", file=sys.stderr)
        return 2
    escape_unencodable()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in OWN:
        parser = _parser(own=words[:1])
    else:
        further = _further()
        if words and words[0] in further:
            return _run_further(further[words[0]], words)
        parser = _parser(sorted(further))
        version = _version("otm-speculative") or "not installed"
        parser.add_argument("--version", action="version", version=f"otm {version}")
    options = parser.parse_args(words)
    if options.command == "completion":
        options.own = {name: _module(name) for name in OWN}
        options.further = {
            name: None if _missing(entry) else entry.load()
            for name, entry in sorted(_further().items())
        }
    status: int = _module(options.command).run(options)
    return status


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"otm.commands.{command}")


def _further() -> dict[str, EntryPoint]:
    """Return the commands of other packages by name."""
    from importlib import metadata  # noqa: PLC0415  # a tenth of what `otm plan` takes

    return {entry.name: entry for entry in metadata.entry_points(group=COMMANDS)}


def _run_further(entry: EntryPoint, words: list[str]) -> int:
    """Run a command of another package, or say what it needs."""
    if missing := _missing(entry):
        wanted = (
            f"pip install '{entry.dist.name if entry.dist else 'otm-speculative'}[{EXTRA}]', in a "
            f"checkout '.[{EXTRA}]'"
        )
        print(
            f"otm {entry.name} needs {', '.join(missing)}, not installed here: {wanted}",
            file=sys.stderr,
        )
        return 2
    status: int = entry.load()(words)
    return status


def _missing(entry: EntryPoint) -> list[str]:
    """Return the distributions of the extra that a command needs and that are not installed."""
    lines = (entry.dist.requires if entry.dist else None) or ()
    needed = (
        re.split(r"[^\w.-]", line)[0]
        for line in lines
        if re.search(rf"extra == ['\"]{EXTRA}['\"]", line)
    )
    return [name for name in needed if not _version(name)]


def _version(name: str) -> str | None:
    from importlib import metadata  # noqa: PLC0415  # as above

    return next((found.version for found in metadata.distributions(name=name)), None)


def _parser(further: Sequence[str] = (), own: Sequence[str] = OWN) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="otm",
        description=(
            "Speculative decoding: audits of verifiers, plans from records, advice and "
            "measurements on models."
        ),
        epilog=(
            f"otm COMMAND --help says more. Commands on language models need the extra `{EXTRA}`."
        ),
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in own:
        _module(name).register(commands)
    for name in further:  # `main` has handed these over already; here they are only listed
        commands.add_parser(name, help=_ON_MODELS.get(name, "on language models"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
