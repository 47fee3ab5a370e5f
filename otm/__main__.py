"""The command line: ``otm audit``, ``otm plan`` and the commands that an extra adds (``otm
measure``, …).

``otm`` is what an installation has; ``python -m otm`` is the same. The commands are listed in
`otm.commands`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from otm._machine.progress import INTERRUPTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status.

    >>> pair = ["--draft-probs", "3/4,1/4", "--target-probs", "1/2,1/2"]
    >>> main(["audit", "otm:Maximal", *pair])  # doctest: +ELLIPSIS
    ## `Maximal()`: lossless...
    0
    """
    if sys.stdout is None:  # closed by whoever started the process
        print("otm: the standard output is closed. Send it somewhere.", file=sys.stderr)
        return 2
    try:
        from otm.commands.app import run  # noqa: PLC0415  # an interrupt while it loads is caught

        return run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
