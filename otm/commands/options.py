"""Options that several commands share, each declared once, and the file that options are read from.

Numbers in a list have commas between, such as 1,2,5-8. An option of one name has one type and one
default in every command.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from otm._machine.strict_json import plain_json
from otm.commands.printing import require_place

MOST_NUMBERS = 256
"""Largest number of values that an option may list."""

PLACES = ("out", "json", "settings")
"""Options that name a place, which another run has for itself: a record leaves them out."""


def integers(text: str | Sequence[int], *, minimum: int = 1) -> list[int]:
    """Return integers written as 8,1-3, ascending and without repetitions.

    Raises:
        typer.BadParameter: if they are not integers or ranges, one is below the minimum, or there
            are more than 256.

    >>> integers("8,1-3"), integers([2, 1])
    ([1, 2, 3, 8], [1, 2])
    """
    text = text if isinstance(text, str) else ",".join(map(str, text))
    found: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            low, high = int(first), int(last or first)
            if high < low:
                raise typer.BadParameter(f"{low}-{high} runs backwards; write {high}-{low}.")
            # more are refused below, without making them all
            found |= set(range(low, min(high, low + MOST_NUMBERS) + 1))
    except ValueError as error:
        raise typer.BadParameter(
            "integers or ranges have commas between, such as 1,2,4 or 1-8; got "
            f"{text!r}. Write them so."
        ) from error
    if min(found) < minimum:
        raise typer.BadParameter(f"numbers start at {minimum}; got {min(found)}. Leave it out.")
    if len(found) > MOST_NUMBERS:
        raise typer.BadParameter(f"at most {MOST_NUMBERS} numbers; got {text!r}. Drop some.")
    return sorted(found)


def in_order(text: str | Sequence[float]) -> list[float]:
    """Return numbers with commas between, as they stand.

    >>> in_order("1.0,0.7")
    [1.0, 0.7]
    """
    parts = text.split(",") if isinstance(text, str) else text
    try:
        return [float(part) for part in parts]
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(
            f"numbers have commas between, such as 0.7,1.0; got {text!r}. Write them so."
        ) from error


def reals(text: str | Sequence[float]) -> list[float]:
    """Return numbers with commas between, ascending and without repetitions.

    >>> reals("1.0,0.7")
    [0.7, 1.0]
    """
    return sorted(set(in_order(text)))


def numbers(help: str, *, minimum: int = 1, panel: str | None = None) -> Any:
    """Return an option of integers with commas between."""
    return typer.Option(
        parser=partial(integers, minimum=minimum),
        metavar="1,2,5-8",
        help=help,
        rich_help_panel=panel,
    )


def read_settings(context: typer.Context, file: str | None) -> str | None:
    """Read defaults of a command's options from a file, TOML or a JSON record with "options"."""
    if file is None or context.resilient_parsing:
        return file
    try:
        text = re.sub("([\"'])~/", rf"\1{Path.home()}/", Path(file).read_text(encoding="utf-8"))
        said = tomllib.loads(text) if text.lstrip()[:1] != "{" else plain_json(text)["options"]
        given = {str(name): value for name, value in said.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise typer.BadParameter(
            f"{file} must be TOML, or a JSON record with options; it is not ({error!r:.200})."
        ) from error
    known = {one.opts[0].removeprefix("--"): one for one in context.command.params}
    for name in given.keys() - known.keys():
        near = difflib.get_close_matches(name, known, 1)
        meant = f"Did you mean {near[0]!r}?" if near else "Leave it out."
        raise typer.BadParameter(f"{file} has {name!r}, which is no option of the command. {meant}")
    context.default_map = {
        # as words of a command line, but for lists and flags
        str(known[name].name): (
            value
            if isinstance(value, list | bool)
            else [str(value)]
            if known[name].multiple
            else str(value)
        )
        for name, value in given.items()
        if value is not None
    }
    return file


def given_options(context: typer.Context) -> dict[str, Any]:
    """Return the options given to a call, in the form that `read_settings` reads.

    The folder of the user is written as ~.
    """
    found = {
        one.opts[0].removeprefix("--"): context.params[str(one.name)]
        for one in context.command.params
        # by name: typer keeps the enumeration to itself
        if getattr(context.get_parameter_source(str(one.name)), "name", "")
        in ("COMMANDLINE", "DEFAULT_MAP")
    }
    kept = {name: value for name, value in found.items() if name not in PLACES}
    return dict(json.loads(json.dumps(kept, default=str).replace(f'"{Path.home()}/', '"~/')))


Settings = Annotated[
    str | None,
    typer.Option(
        "--settings",
        is_eager=True,
        callback=read_settings,
        metavar="FILE",
        help="Read options from this file: TOML, or the JSON record of an earlier run.",
    ),
]
Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        callback=lambda place: require_place(place),  # noqa: PLW0108  # typer counts parameters
        metavar="FILE",
        help="Write the numbers as JSON to this file; - prints them instead of the words.",
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the random numbers.")]

BatchSizes = Annotated[
    Sequence[int] | None,
    numbers("Batch sizes (default: of costs, the measured ones; to measure, 1,2,4,8)."),
]

SAMPLING = "Sampling"
Temperatures = Annotated[
    Sequence[float] | None,
    typer.Option(
        parser=reals,
        metavar="0,0.7,1",
        help="Sampling temperatures; 0 is greedy.",
        rich_help_panel=SAMPLING,
    ),
]
Names = Literal["transformers", "vllm", "llama.cpp"]
TopK = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Keep this many likeliest tokens.", rich_help_panel=SAMPLING
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        metavar="X", help="Keep the likeliest tokens of this mass.", rich_help_panel=SAMPLING
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Drop tokens below this part of the largest probability.",
        rich_help_panel=SAMPLING,
    ),
]
Order = Annotated[
    Names | None,
    typer.Option(
        help="Apply these filters in the order of an engine (default: transformers).",
        rich_help_panel=SAMPLING,
    ),
]
