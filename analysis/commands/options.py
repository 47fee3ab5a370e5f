"""Options that several commands on models share.

A command that needs models or sampling has parameters for both, and `grouped` puts the options of
`models_of` and `sampling_of` in their place. Nothing here imports torch: --help answers at once.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from otm.commands.options import SAMPLING, MinP, Names, Order, TopK, TopP
from otm.commands.printing import require_place

from ..errors import AnalysisError
from ..run import MOST_THREADS

if TYPE_CHECKING:
    from ..models.processing import Setting as Setting
    from ..models.source import PairSource as PairSource
else:
    PairSource = Setting = object  # help needs neither

MODELS, TEXTS, MACHINE, TREES = "Models", "Texts", "Machine", "Draft trees"
DRAFT_SAMPLING = "Sampling of the draft, where it is not the target's"
"""Panels of the help."""


def output_option(help: str) -> Any:
    """Return the option of a file or folder to write, which refuses the empty name.

    A shell makes "" of a variable that is not set, and the files would lie where nobody named
    them.
    """
    return typer.Option(parser=_place, metavar="PATH", help=help)


def output_file(help: str) -> Any:
    """Return the option of a file to write, which is refused before the work if it cannot be."""
    return typer.Option(parser=lambda text: require_place(_place(text)), metavar="PATH", help=help)


def _place(text: str | Path) -> Path:
    if not str(text):
        raise AnalysisError(
            "A file or folder to write must have a name; got ''. Write . for the current folder."
        )
    return Path(text)


DraftName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Draft model: hub name or folder (default: the target's own).",
        rich_help_panel=MODELS,
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Target model: hub name, folder or smollm2 (default: the shipped one).",
        rich_help_panel=MODELS,
    ),
]
Device = Annotated[
    str,
    typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.", rich_help_panel=MACHINE),
]
EngineName = Annotated[
    Literal["llama.cpp", "mlx-lm", "onnxruntime-genai", "transformers", "vllm"] | None,
    typer.Option("--engine", help="An engine: what it can run, with its draft law."),
]
Weights = Literal["float32", "float16", "bfloat16", "auto"]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_THREADS,
        metavar="N",
        help="CPU threads of a process (default: torch's choice).",
        rich_help_panel=MACHINE,
    ),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Prompts: text with one per line, JSON lines or Parquet.",
        rich_help_panel=TEXTS,
    ),
]
Texts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Texts that an engine wrote, in a form of otm.audit.text_log.",
        rich_help_panel=TEXTS,
    ),
]
Field = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Field of JSON lines or Parquet that holds the prompt.",
        rich_help_panel=TEXTS,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1 << 40,
        metavar="N",
        help="Use the first N prompts or rows (default: all).",
        rich_help_panel=TEXTS,
    ),
]
PromptTokens = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Most tokens of a prompt that are used.", rich_help_panel=TEXTS
    ),
]
TextTokens = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Tokens of a text after its prompt.", rich_help_panel=TEXTS
    ),
]
Sequences = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, max=16, help="Most drafted sequences of a step.", rich_help_panel=TREES
    ),
]
Work = Annotated[Path, output_option("Folder of unfinished work; a killed run goes on from it.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PLACE",
        help="Place of the manifest where runs may differ, such as provenance.processor; may be "
        "repeated.",
    ),
]
# Flags are named alone: the form with --no- would widen the help's first column.
AnyLoad = Annotated[
    bool, typer.Option("--any-load", help="Time on a busy machine too.", rich_help_panel=MACHINE)
]
_own = functools.partial(typer.Option, help="The draft's own.", rich_help_panel=DRAFT_SAMPLING)


def use_threads(threads: int | None) -> None:
    """Let torch compute with a number of threads; None leaves the choice to torch."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)


def sampling_of(
    temperature: Annotated[
        float,
        typer.Option(
            metavar="X",
            min=0.0,
            help="Sampling temperature; 0 is greedy.",
            rich_help_panel=SAMPLING,
        ),
    ] = 1.0,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    order: Order = None,
    draft_temperature: Annotated[float | None, _own(metavar="X", min=0.0)] = None,
    draft_top_p: Annotated[float | None, _own(metavar="X")] = None,
    draft_top_k: Annotated[int | None, _own(metavar="N", min=1)] = None,
    draft_min_p: Annotated[float | None, _own(metavar="X")] = None,
    draft_order: Annotated[Names | None, _own()] = None,
) -> Setting:
    """Return both models' processing; the draft's is the target's where nothing else is given.

    Raises:
        otm.errors.InvalidParameter: if something is out of range.
    """
    from otm import Processing

    from ..models.processing import Setting as Made

    target: dict[str, Any] = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "order": order or "transformers",
    }
    draft = {
        "temperature": draft_temperature,
        "top_p": draft_top_p,
        "top_k": draft_top_k,
        "min_p": draft_min_p,
        "order": draft_order,
    }
    draft = {name: value for name, value in draft.items() if value is not None}
    return Made(Processing(**target | draft), Processing(**target))


def models_of(
    draft: DraftName = None,
    target: TargetName = None,
    device: Device = "auto",
    device_map: Annotated[
        str | None,
        typer.Option(
            metavar="MAP",
            help="Spread each model over devices: auto, balanced, …",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    dtype: Annotated[
        Weights,
        typer.Option(help="Type of the weights; auto: as in the files.", rich_help_panel=MACHINE),
    ] = "float32",
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code",
            help="Run Python files that come with a model.",
            rich_help_panel=MACHINE,
        ),
    ] = False,
    draft_revision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Branch, tag or commit of the draft on the hub.",
            rich_help_panel=MODELS,
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Branch, tag or commit of the target on the hub.",
            rich_help_panel=MODELS,
        ),
    ] = None,
    chat_template: Annotated[
        bool,
        typer.Option(
            "--chat-template", help="Prompts are messages of a user.", rich_help_panel=TEXTS
        ),
    ] = False,
) -> PairSource:
    """Return the source of a pair of models, with device, weights and the form of prompts."""
    from ..models.source import PairSource as Made

    return Made(
        *(draft, target, device, device_map, dtype, trust_remote_code),
        draft_revision=draft_revision,
        revision=revision,
        chat_template=chat_template,
    )


def grouped(
    *, without: Collection[str] = (), **groups: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that replaces parameters of a command by the options of functions.

    Args:
        without: options of the functions that the command does not have.
        groups: by parameter, the function that makes its value of options.
    """
    options = {
        name: [
            one for one in inspect.signature(make).parameters.values() if one.name not in without
        ]
        for name, make in groups.items()
    }

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(command).parameters
        spread = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, asked in own.items()
            for one in options.get(name, [asked])
        ]

        @functools.wraps(command)
        def run(**given: Any) -> Any:
            made = {
                name: make(
                    **{one.name: given.pop(one.name) for one in options[name] if one.name in given}
                )
                for name, make in groups.items()
            }
            return command(**given, **made)

        run.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in spread}
        return run

    return decorate
