"""Commands with random arguments, in process by the hundred and as processes in odd
surroundings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.torture.frame import Trial, family
from benchmarks.torture.isolation import Apart, Broken

LIMIT = 240.0
"""Seconds that a command may take on a busy machine; the inputs are small, and what is asked for in
earnest is too.
"""

PATIENCE = 240.0


@family("commands", counts="commands")
def commands(random: np.random.Generator) -> Iterator[Trial]:
    """Call commands with arguments made from their parsers' own options: a status and a message,
    and nothing written elsewhere.
    """
    apart = Apart("benchmarks.torture.commands")
    prepared = False
    try:
        while True:
            seed, kind = (
                int(random.integers(2**53)),
                "outside" if random.random() < 0.05 else "trial",
            )
            reproduce = (
                "from benchmarks.torture import commands\n\ncommands.prepare()\nassert not "
                f"commands.{kind}({seed})['fault']"
            )
            try:
                if not prepared:
                    apart.ask("benchmarks.torture.commands:prepare", seconds=PATIENCE)
                    prepared = True
                said = apart.ask(
                    f"benchmarks.torture.commands:{kind}",
                    seed,
                    seconds=LIMIT if kind == "trial" else PATIENCE,
                )
            except Broken as broken:
                prepared = False
                yield Trial("(a command)", 1, math.inf, reproduce, f"the command {broken}")
                continue
            yield Trial(
                said["function"],
                1,
                math.inf if said["fault"] else 0.0,
                reproduce,
                f"{said['arguments']}: {said['fault']}",
            )
    finally:
        apart.close()
