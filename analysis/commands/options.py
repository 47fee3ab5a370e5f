"""What several commands' options share.

A command that needs models or sampling has a parameter of type `PairSource` or `Setting`, and
`grouped` gives it their options.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from otm import Processing

from ..errors import AnalysisError
from ..models.processing import Setting
from ..models.source import PairSource
from ..run.resources import MOST_THREADS

MOST_NUMBERS = 256
"""Largest number of values that an option may list."""

DraftName = Annotated[
    str | None,
    typer.Option(
        help="Draft model: hub name or folder. Default: the one that belongs to the target."
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(help="Target model: hub name, folder, or smollm2. Default: the shipped one."),
]

TEXTS = "Texts"
SAMPLING = "Sampling, of both models"
DRAFT_SAMPLING = "Sampling of the draft, where it is not the target's"
MACHINE = "Machine"
"""Panels of the help."""

Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_THREADS,
        help="CPU threads. Default: torch's choice.",
        rich_help_panel=MACHINE,
    ),
]
Prompts = Annotated[
    Path, typer.Option(help="Text with one prompt per line, JSON lines or Parquet.")
]
Field = Annotated[str, typer.Option(help="Field of JSON lines or Parquet that holds the prompt.")]
Limit = Annotated[
    int | None, typer.Option(min=1, max=1 << 40, metavar="N", help="Use the first prompts only.")
]
ChatTemplate = Annotated[
    bool, typer.Option("--chat-template", help="Prompts are messages of a user.")
]
PromptTokens = Annotated[
    int,
    typer.Option(min=1, help="Longer prompts are cut to their last tokens.", rich_help_panel=TEXTS),
]
TextTokens = Annotated[
    int, typer.Option(min=1, help="Tokens that a text has.", rich_help_panel=TEXTS)
]
# Named alone: the form with --no- would widen the help's first column until it cuts the other
# names.
AnyLoad = Annotated[
    bool, typer.Option("--any-load", help="Time on a busy machine too.", rich_help_panel=MACHINE)
]


def use_threads(threads: int | None) -> None:
    """Let torch compute with so many threads; with its own choice if None."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)


def sampling_of(
    temperature: Annotated[
        float,
        typer.Option(min=0.0, help="0 stands for the likeliest token.", rich_help_panel=SAMPLING),
    ] = 1.0,
    top_p: Annotated[
        float | None, typer.Option(help="Nucleus mass.", rich_help_panel=SAMPLING)
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Likeliest tokens that are kept.", rich_help_panel=SAMPLING),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Least mass kept, as a part of the largest.", rich_help_panel=SAMPLING),
    ] = None,
    order: Annotated[
        str,
        typer.Option(
            help="Whose order of these: transformers, vllm or llama.cpp.", rich_help_panel=SAMPLING
        ),
    ] = "transformers",
    draft_temperature: Annotated[
        float | None, typer.Option(min=0.0, help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)
    ] = None,
    draft_top_p: Annotated[
        float | None, typer.Option(help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)
    ] = None,
    draft_top_k: Annotated[
        int | None, typer.Option(min=1, help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)
    ] = None,
    draft_min_p: Annotated[
        float | None, typer.Option(help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)
    ] = None,
    draft_order: Annotated[
        str | None, typer.Option(help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)
    ] = None,
) -> Setting:
    """Return both models' processing; what is not said of the draft is the target's.

    Raises:
        otm.errors.InvalidParameter: if something is out of range.
    """
    target: dict[str, Any] = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "order": order,
    }
    draft = {
        "temperature": draft_temperature,
        "top_p": draft_top_p,
        "top_k": draft_top_k,
        "min_p": draft_min_p,
        "order": draft_order,
    }
    said = {name: value for name, value in draft.items() if value is not None}
    return Setting(Processing(**target | said), Processing(**target))


def models_of(
    draft: DraftName = None,
    target: TargetName = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=MACHINE)
    ] = "auto",
    device_map: Annotated[
        str | None,
        typer.Option(
            help="Spread each model over devices: auto, balanced, …", rich_help_panel=MACHINE
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Weights: float32, float16 or bfloat16.", rich_help_panel=MACHINE)
    ] = "float32",
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code",
            help="Run Python files that come with a model.",
            rich_help_panel=MACHINE,
        ),
    ] = False,
) -> PairSource:
    """Return which models are used, and how they are loaded."""
    return PairSource(draft, target, device, device_map, dtype, trust_remote_code)


_GROUPS: dict[type, Callable[..., Any]] = {Setting: sampling_of, PairSource: models_of}
"""What several commands take: a parameter of such a type stands for the options of the function
that makes it.
"""


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of a group in the place of each parameter of its type.

    An option of the group that the command has itself is its own, and does not reach the group.
    """
    own = inspect.signature(command, eval_str=True).parameters
    groups = {
        name: {
            option: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for option, parameter in inspect.signature(
                _GROUPS[asked.annotation], eval_str=True
            ).parameters.items()
            if option not in own
        }
        for name, asked in own.items()
        if asked.annotation in _GROUPS
    }

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: _GROUPS[own[name].annotation](
                **{option: given.pop(option) for option in options if option in given}
            )
            for name, options in groups.items()
        }
        command(**given, **made)

    spread = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, asked in own.items()
        for one in (groups[name].values() if name in groups else (asked,))
    ]
    spread.sort(key=_of_machine)  # the help's last panel
    run.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in spread}
    return run


def _of_machine(option: inspect.Parameter) -> bool:
    return any(
        getattr(mark, "rich_help_panel", None) == MACHINE
        for mark in getattr(option.annotation, "__metadata__", ())
    )


def output_option(help: str) -> Any:
    """Return the option that names a file or folder to write, and refuses the empty name.

    A shell makes "" of a variable that is not set, and what is written would lie where nobody named
    it.
    """
    return typer.Option(parser=_place, metavar="PATH", help=help)


def _place(text: str | Path) -> Path:
    if not str(text):
        raise AnalysisError(
            "What is written must have a name; got ''. Write . for the current folder."
        )
    return Path(text)


def integers(text: str, *, name: str = "k", minimum: int = 1) -> list[int]:
    """Return integers written as 8,1-3, ascending and without repetitions.

    Raises:
        AnalysisError: if they are not integers or ranges, one is below the minimum, or there are
            more than 256.

    >>> integers("8,1-3")
    [1, 2, 3, 8]
    """
    found: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            low, high = int(first), int(last or first)
            if high < low:
                raise AnalysisError(f"{low}-{high} runs backwards; write {high}-{low}.")
            # more are refused below, without making them all
            found |= set(range(low, min(high, low + MOST_NUMBERS) + 1))
    except ValueError as error:
        raise AnalysisError(
            f"{name} must be integers or ranges separated by commas, such as 1,2,4 or 1-8; got "
            f"{text!r}. Write them so."
        ) from error
    if min(found) < minimum:
        raise AnalysisError(f"{name} starts at {minimum}; got {min(found)}. Leave it out.")
    if len(found) > MOST_NUMBERS:
        raise AnalysisError(
            f"{name} must be at most {MOST_NUMBERS} numbers; got {text!r}. Drop some."
        )
    return sorted(found)
