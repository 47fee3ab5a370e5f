"""`python -m analysis`, or `otm` once installed: schemes on the logits of real language models."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, or `otm` with arguments.

    Expected errors become one line and exit status 2.

    What takes time to import is imported here, so that an interrupt in the meantime ends the
    command without a traceback.
    """
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(arguments: Sequence[str] | None) -> int:
    import typer

    from otm import OtmError
    from otm.commands.printing import discard_stdout, escape_unencodable

    from .commands.app import app
    from .errors import AnalysisError

    escape_unencodable()
    try:
        app(args=arguments, prog_name=None if arguments is None else "otm")
    except (AnalysisError, OtmError) as error:
        typer.echo(f"error: {error}", err=True)
        return 2
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            said = (
                "A file's name must be short enough for the disk; got "
                f"{str(error.filename)[:80]!r}…."
            )
        elif error.filename is None and error.errno == errno.ENOSPC:
            discard_stdout()
            said = f"The output cannot be written ({error.strerror}). Send it elsewhere."
        else:
            raise
        typer.echo(f"error: {said}", err=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
