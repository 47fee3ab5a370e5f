"""The commands of the library as a list, one module each, and the options that several share.

They read words and print; the rooms below work out the answers. `otm.commands.app` reads the list,
and further lists from the entry points of the group `otm.commands`; the module of a command is
imported when the command runs.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command by name.

    Attributes:
        name: after `otm`.
        function: "module:function"; options and arguments are the function's parameters.
        panel: the group of commands in the help.
        sentence: the help.
        extra: of this distribution, with the packages that the command needs.
    """

    name: str
    function: str
    panel: str
    sentence: str
    extra: str = ""


RECORDS = "From records and code"

COMMANDS = (
    Command(
        "audit",
        "otm.commands.audit:audit",
        RECORDS,
        "Test whether a verifier, or a log of one, keeps the target's distribution.",
    ),
    Command(
        "plan",
        "otm.commands.plan:plan",
        RECORDS,
        "Choose the number of drafts from an engine's record of acceptance.",
    ),
)
"""The commands of the library."""
