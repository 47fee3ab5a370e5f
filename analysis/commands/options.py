"""What several commands' options share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import AnalysisError
from ..run.resources import MOST_THREADS

if TYPE_CHECKING:
    from ..models.processing import Setting

MOST_NUMBERS = 256
"""Largest number of values that an option may list."""

DraftName = Annotated[
    str | None, typer.Option(help="Draft model: hub name or folder. Default: the one that belongs to the target.")
]
TargetName = Annotated[str | None, typer.Option(help="Target model: hub name, folder, or smollm2. Default: the shipped one.")]

SAMPLING = "Sampling, of both models"
DRAFT_SAMPLING = "Sampling of the draft, where it is not the target's"
MACHINE = "Machine"
"""Panels of the help."""

Temperature = Annotated[float, typer.Option(min=0.0, help="0 stands for the likeliest token.", rich_help_panel=SAMPLING)]
TopP = Annotated[float | None, typer.Option(help="Nucleus mass.", rich_help_panel=SAMPLING)]
TopK = Annotated[int | None, typer.Option(min=1, help="Likeliest tokens that are kept.", rich_help_panel=SAMPLING)]
MinP = Annotated[float | None, typer.Option(help="Least mass kept, as a part of the largest.", rich_help_panel=SAMPLING)]
Order = Annotated[str, typer.Option(help="Whose order of these: transformers, vllm or llama.cpp.", rich_help_panel=SAMPLING)]
DraftTemperature = Annotated[float | None, typer.Option(min=0.0, help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)]
DraftTopP = Annotated[float | None, typer.Option(help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)]
DraftTopK = Annotated[int | None, typer.Option(min=1, help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)]
DraftMinP = Annotated[float | None, typer.Option(help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)]
DraftOrder = Annotated[str | None, typer.Option(help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=MACHINE)]
DeviceMap = Annotated[
    str | None, typer.Option(help="Spread each model over devices: auto, balanced, …", rich_help_panel=MACHINE)
]
Dtype = Annotated[str, typer.Option(help="Weights: float32, float16 or bfloat16.", rich_help_panel=MACHINE)]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_THREADS, help="CPU threads. Default: torch's choice.", rich_help_panel=MACHINE),
]
Limit = Annotated[int | None, typer.Option(min=1, max=1 << 40, metavar="N", help="Use the first prompts only.")]
# Named alone: the form with --no- would widen the help's first column until it cuts the other names.
AnyLoad = Annotated[bool, typer.Option("--any-load", help="Time on a busy machine too.", rich_help_panel=MACHINE)]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run Python files that come with a model.", rich_help_panel=MACHINE)
]


def setting_of(
    *,
    temperature: float = 1.0,
    top_p: float | None,
    top_k: int | None,
    min_p: float | None,
    order: str,
    draft_temperature: float | None = None,
    draft_top_p: float | None,
    draft_top_k: int | None,
    draft_min_p: float | None,
    draft_order: str | None,
) -> Setting:
    """Return both models' processing; what is not said of the draft is the target's.

    Raises:
        otm.errors.InvalidParameter: if something is out of range.
    """
    from otm import Processing

    from ..models.processing import Setting

    target = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p, "order": order}
    draft = {
        "temperature": draft_temperature,
        "top_p": draft_top_p,
        "top_k": draft_top_k,
        "min_p": draft_min_p,
        "order": draft_order,
    }
    said: dict[str, Any] = {name: value for name, value in draft.items() if value is not None}
    own: dict[str, Any] = target
    return Setting(Processing(**own | said), Processing(**own))


def written(help: str) -> Any:
    """Return the option that names a file or folder to write: not "", which `pathlib` reads as the current folder.

    A shell makes "" of a variable that is not set, and what is written would lie where nobody named it.
    """
    return typer.Option(parser=_place, metavar="PATH", help=help)


def _place(text: str | Path) -> Path:
    if not str(text):
        raise AnalysisError("What is written must have a name; got ''. Write . for the current folder.")
    return Path(text)


def integers(text: str, *, name: str = "k", minimum: int = 1) -> list[int]:
    """Return integers written as 8,1-3, ascending and without repetitions.

    Raises:
        AnalysisError: if they are not integers or ranges, one is below the minimum, or there are more than 256.

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
            if high - low < MOST_NUMBERS:
                found |= set(range(low, high + 1))
            else:
                found |= set(range(MOST_NUMBERS + 1))  # refused below, without making them all
    except ValueError as error:
        raise AnalysisError(
            f"{name} must be integers or ranges separated by commas, such as 1,2,4 or 1-8; got {text!r}. Write them so."
        ) from error
    if min(found) < minimum:
        raise AnalysisError(f"{name} starts at {minimum}; got {min(found)}. Leave it out.")
    if len(found) > MOST_NUMBERS:
        raise AnalysisError(f"{name} must be at most {MOST_NUMBERS} numbers; got {text!r}. Drop some.")
    return sorted(found)
