"""`python -m analysis capture`: capture what Figures 4 and 5 need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import DraftName, TargetName, written


def capture(
    draft: DraftName = None,
    target: TargetName = None,
    out: Annotated[
        Path,
        written("Folder where figure5.json, and figure4.json of the shipped pair, are written."),
    ] = Path("figures/data"),
) -> None:
    """Capture the distributions behind Figures 4 and 5 from a pair, on the CPU."""
    from ..papers.captures import write_captures

    for path in write_captures(out, draft=draft, target=target):
        typer.echo(str(path))
