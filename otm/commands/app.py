"""The command line as one group, which imports the module of a command when the command runs."""

from __future__ import annotations

import errno
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from otm._machine.progress import clock, say
from otm._machine.versions import DISTRIBUTION, show_versions, version_of
from otm.commands import COMMANDS, Command
from otm.commands.printing import discard_stdout, escape_unencodable
from otm.errors import MissingPackage, OtmError

GROUP = "otm.commands"
"""The entry points that name further lists of commands."""


def further() -> Iterable[Command]:
    """Return the commands of other packages."""
    return [one for entry in metadata.entry_points(group=GROUP) for one in entry.load()]


def run(words: list[str]) -> int:
    """Run the command line with given words, with the help for none, and return the exit status."""
    escape_unencodable()
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    name = " ".join(["otm", *(word for word in words[:1] if not word.startswith("-"))])
    try:
        status = get_command(app)(words or ["--help"], prog_name="otm", standalone_mode=False)
        return int(status or 0) if words else 2
    except typer.TyperException as error:
        name = getattr(getattr(error, "ctx", None), "command_path", name)
        said = f"{error.format_message()} (see {name} --help)"
    except OtmError as error:
        said = str(error)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            said = f"A file's name is too long for the disk: {str(error.filename)[:80]!r}…."
        elif error.filename is None and error.errno == errno.ENOSPC:
            discard_stdout()
            said = f"The output cannot be written ({error.strerror}). Send it elsewhere."
        else:
            raise
    say(f"{name}: {said}", error=True)
    return 2


class _Panels(TyperCommand):
    """A command with a help that shows options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_panels(_rows(self.get_params(ctx), ctx), formatter)


class _Commands(TyperGroup):
    """The group of the listed commands, which imports a command when the command is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.listed = {one.name: one for one in (*COMMANDS, *further())}
        for name, one in self.listed.items():
            self.commands[name] = TyperCommand(name, short_help=one.sentence)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        listed = ((one.panel, (one.name, one.sentence)) for one in self.listed.values())
        _write_panels([*listed, *_rows(self.get_params(ctx), ctx)], formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        one = self.listed.get(name or "")
        if one is None or ctx.resilient_parsing:
            return name, one and load(one), rest
        if one.extra:
            require_extra(one.extra)
            ctx.with_resource(clock("loading"))
        return name, load(one), rest


def _rows(options: Iterable[Any], ctx: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    for one in options:
        yield one.rich_help_panel or f"{one.param_type_name.title()}s", one.get_help_record(ctx)


def _write_panels(rows: Iterable[tuple[str, tuple[str, str]]], formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for panel, row in rows:
        panels.setdefault(panel, []).append(row)
    for panel, shown in panels.items():
        with formatter.section(panel):
            formatter.write_dl(shown)


def load(one: Command) -> Any:
    """Import a command of the list."""
    module, _, name = one.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    text = "\n\n".join([one.sentence, *(inspect.getdoc(function) or "").split("\n\n")[1:]])
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(one.name, cls=_Panels, help=text)(function)
    return get_command(single)


def require_extra(extra: str) -> None:
    """Raise `MissingPackage` unless the distributions of an extra are installed."""
    wanted = rf"([\w.-]+).*extra == ['\"]{extra}['\"]"
    lines = metadata.requires(DISTRIBUTION) or ()
    needed = (found[1] for line in lines if (found := re.match(wanted, line)))
    if missing := [name for name in needed if not version_of(name)]:
        raise MissingPackage(
            f"The command needs {', '.join(missing)}, not installed here. Install them: pip "
            f"install '{DISTRIBUTION}[{extra}]', in a checkout '.[{extra}]'."
        )


def _print_version(asked: bool) -> None:
    if asked:
        print(f"otm {version_of(DISTRIBUTION) or 'not installed'}")
        raise typer.Exit


def _print_versions(asked: bool) -> None:
    if asked:
        show_versions()
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,
    epilog="otm COMMAND --help says more. Commands on models need the extra `analysis`.",
)


@app.callback()
def otm(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    versions: Annotated[
        bool,
        typer.Option(
            "--versions",
            callback=_print_versions,
            is_eager=True,
            help="Print the versions of all that is used, for a report of a fault.",
        ),
    ] = False,
) -> None:
    """Audit verifiers, plan from records, and measure speculative decoding on models."""
