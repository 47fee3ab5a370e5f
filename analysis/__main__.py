"""`python -m analysis`, or `otm` once installed: schemes on the logits of real language models."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

from otm._machine.progress import INTERRUPTED, clock, say


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, or `otm` with arguments.

    Expected errors become one line and exit status 2.

    What takes time to import is imported here, so that an interrupt in the meantime ends the
    command without a traceback.
    """
    try:
        with clock("loading"):
            return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: Sequence[str] | None) -> int:
    from otm import OtmError
    from otm.commands.printing import discard_stdout, escape_unencodable

    from .commands.app import app
    from .errors import AnalysisError

    escape_unencodable()
    try:
        app(args=arguments, prog_name=None if arguments is None else "otm")
    except (AnalysisError, OtmError) as error:
        said = str(error)
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
    else:
        return 0
    say(f"error: {said}", error=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())
