"""`python -m analysis capture`: capture what Figures 4 and 5 need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..layout import SHIPPED_PAIR


def capture(
    pair: Annotated[Path, typer.Option(help="Folder with draft/ and target/.")] = SHIPPED_PAIR,
    out: Annotated[Path, typer.Option(help="Where figure4.json and figure5.json are written.")] = Path("figures/data"),
) -> None:
    """Capture the distributions behind Figures 4 and 5 from a pair, on the CPU."""
    from ..models.pair import load_pair
    from ..papers.captures import write_captures

    models = load_pair(draft=str(pair / "draft"), target=str(pair / "target"), device="cpu")
    for path in write_captures(models, pair, out):
        typer.echo(str(path))
