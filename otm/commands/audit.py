"""``otm audit``: is a verifier lossless, and if not, by how much?

The callable is looked up as ``module:name`` with the working directory on the path, or as
``FILE.py:name``: a function ``verify(draft, target, drafts, uniforms)`` of one token or of a block,
anything else that `otm.audit.battery` takes, or one of the library's verifiers. The report goes to
standard output in Markdown, the verdict as soon as it is known and a minimal counterexample after
it; what the callable prints is kept out of it. To audit a file is to execute it.

Exit status: 0 lossless (sampled and log: no difference found; two runs: identical, or rounding);
1 not lossless, not exactly so, or a fault; 2 undecided, no verdict, the callable raised, or the
call could not be carried out; 3 nothing found where only a large deviation would have been; 130
interrupted, with what was found so far.
"""

import sys
import traceback
from collections.abc import Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Annotated, Literal

import typer

from otm._machine.progress import INTERRUPTED, clock
from otm.commands.options import (
    Json,
    MinP,
    Order,
    Seed,
    Settings,
    Temperatures,
    TopK,
    TopP,
    given_options,
    numbers,
)
from otm.errors import OtmError

Mode = Literal["auto", "exact", "sequence", "sampled", "step", "tree", "generate", "logits"]
LawName = Literal["greedy", "iid", "product", "threshold-race", "top-k", "without-replacement"]
Noise = Literal["position", "step", "fresh"]
Siblings = Literal["with", "without", "likeliest"]
Template = Literal["generate", "logits", "step", "tree", "triton", "vllm"]
SECONDS, SHRINKING = 18.0, 8.0
"""The library's constants of these names, written down so that --help need not load the library."""

DETECT = 0.02
"""Total variation that samples alone are planned to find unless another is given."""

TEXTS, SAMPLES = "Logs and texts", "Samples"
CALLABLE = "The callable"


def probabilities(text: str | Sequence[float]) -> list[float]:
    """Return a distribution written in decimals or fractions.

    >>> probabilities("3/4,.25")
    [0.75, 0.25]
    """
    parts = text.split(",") if isinstance(text, str) else text
    try:
        return [float(Fraction(one)) if "/" in str(one) else float(one) for one in parts]
    except (ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise typer.BadParameter(
            f"probabilities are decimals or fractions with commas between; got {text!r}"
        ) from error


def tables(text: str | Sequence[Sequence[float]]) -> list[list[float]]:
    """Return distributions written with semicolons between."""
    rows = text.split(";") if isinstance(text, str) else text
    return [probabilities(row) for row in rows]


def audit(
    context: typer.Context,
    callable: Annotated[
        str | None,
        typer.Argument(
            metavar="module:function",
            help="A function of the working directory, also FILE.py:function; `candidate` where "
            "no function is named.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="The kind of audit or of callable (default: auto, found by itself).",
            show_default=False,
        ),
    ] = "auto",
    template: Annotated[
        Template | None,
        typer.Option(help="Print a file to start from, for this kind of callable, and stop."),
    ] = None,
    draft_probs: Annotated[
        Sequence[Sequence[float]] | None,
        typer.Option(
            parser=tables,
            metavar="P",
            help="Distribution of the drafts, as 3/4,1/4, instead of the standard instances; with "
            "semicolons one for each last token.",
        ),
    ] = None,
    target_probs: Annotated[
        Sequence[Sequence[float]] | None,
        typer.Option(
            parser=tables,
            metavar="Q",
            help="Distribution of the target, in the same form; the two go together.",
        ),
    ] = None,
    law: Annotated[
        LawName | None,
        typer.Option(help="How the drafts are drawn (default: iid; of a log: unknown)."),
    ] = None,
    drafts: Annotated[
        Sequence[int] | None,
        numbers("Numbers of drafts, or lengths of blocks (default: the standard ones)."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="CPU seconds for the audits of mode auto.")
    ] = SECONDS,
    shrink: Annotated[
        float, typer.Option(metavar="X", help="Seconds for a smallest counterexample.")
    ] = SHRINKING,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Largest total variation that counts as rounding; of texts, change of log-odds.",
        ),
    ] = None,
    json: Json = None,
    settings: Settings = None,
    uniforms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="A call uses A·k + B uniform numbers (default: found out).",
            rich_help_panel=CALLABLE,
        ),
    ] = None,
    batched: Annotated[
        bool,
        typer.Option(
            "--batched",
            help="The callable takes many rows of drafts and a generator.",
            rich_help_panel=CALLABLE,
        ),
    ] = False,
    siblings: Annotated[
        Siblings | None,
        typer.Option(
            help="How the children in a tree are drawn (default: with replacement).",
            rich_help_panel=CALLABLE,
        ),
    ] = None,
    first_iteration: Annotated[
        bool,
        typer.Option(
            "--first-iteration",
            help="Of a step that goes on drafting, audit what it writes at first.",
            rich_help_panel=CALLABLE,
        ),
    ] = False,
    noise: Annotated[
        Noise | None,
        typer.Option(
            help="Test texts of several steps as well, with draft noise keyed so.",
            rich_help_panel=CALLABLE,
        ),
    ] = None,
    temperatures: Temperatures = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    order: Order = None,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Audit a log of outputs, or an engine's record of acceptance.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    expected: Annotated[
        Sequence[float] | None,
        typer.Option(
            parser=probabilities,
            metavar="A,B",
            help="The most that a lossless scheme accepts of first, second, … drafts in the log.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    same_text: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="PLAIN SPECULATIVE",
            help="Compare two runs of the same prompts: the same texts up to rounding?",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    same_seed: Annotated[
        bool,
        typer.Option(
            "--same-seed",
            help="The two runs were sampled with one seed.",
            rich_help_panel=TEXTS,
        ),
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Audit the texts of a server that runs the tiny pair, or of a module:function.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    write_pair: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Write the tiny pair of models that --engine is for, and stop.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    seed: Seed = 0,
    detect: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help=f"Total variation that samples must not miss (default: {DETECT} of samples and "
            "logs).",
            rich_help_panel=SAMPLES,
        ),
    ] = None,
    false_alarm: Annotated[
        float,
        typer.Option(metavar="X", help="Probability of a false alarm.", rich_help_panel=SAMPLES),
    ] = 1e-9,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Sample one instance of this size as well, of a verifier that is handed its "
            "drafts.",
            rich_help_panel=SAMPLES,
        ),
    ] = None,
    missed: Annotated[
        float,
        typer.Option(metavar="X", help="Probability of a missed fault.", rich_help_panel=SAMPLES),
    ] = 1e-3,
) -> int:
    """Audit a callable, a running engine, a log or two texts.

    An audited file is executed. Example: otm audit kernels.py:verify

    Exit status: 0 lossless (samples, logs: no difference found), 1 not lossless or not exactly, 2
    undecided, no verdict or the callable raised, 3 too little power, 130 interrupted.
    """
    try:
        # the library is loaded when it is needed: --help answers at once
        with clock("loading"):
            from otm.commands import audit_run  # noqa: PLC0415

        return audit_run.run(SimpleNamespace(**context.params, given=given_options(context)))
    except KeyboardInterrupt:
        print("otm audit: interrupted before anything was found", file=sys.stderr)
        return INTERRUPTED
    except OtmError:
        raise
    except Exception:
        # a crash must not leave with Python's own status 1, which says "not lossless"
        traceback.print_exc()
        return 2
