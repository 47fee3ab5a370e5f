"""`python -m analysis`, or `otm` once installed: coupling schemes for speculative decoding on real language-model logits."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

import typer

from .commands.advise import advise
from .commands.capture import capture
from .commands.compare import compare
from .commands.decode import decode
from .commands.experiment import experiment
from .commands.fetch import fetch
from .commands.finetune import finetune
from .commands.latency import latency
from .commands.measure import measure
from .commands.merge import merge
from .commands.report import report
from .commands.train import train
from .errors import AnalysisError

app = typer.Typer(
    help="Speculative decoding on real language models: advice, exact measurements, decoding runs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (advise, compare, measure, merge, report, decode, experiment, latency, train, finetune, fetch, capture):
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, or `otm` with arguments; expected errors become one line and exit status 2."""
    from otm import OtmError

    try:
        app(args=arguments, prog_name=None if arguments is None else "otm")
    except (AnalysisError, OtmError) as error:
        typer.echo(f"error: {error}", err=True)
        return 2
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        typer.echo(f"error: A file's name must be short enough for the disk; got {str(error.filename)[:80]!r}….", err=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
