"""`python -m analysis capture`: capture what Figures 4 and 5 need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import AnalysisError
from ..files import is_folder, shortened
from ..layout import SHIPPED_PAIR
from .options import written


def capture(
    pair: Annotated[Path, typer.Option(help="Folder with draft/ and target/.")] = SHIPPED_PAIR,
    out: Annotated[Path, written("Where figure4.json and figure5.json are written.")] = Path("figures/data"),
) -> None:
    """Capture the distributions behind Figures 4 and 5 from a pair, on the CPU."""
    from ..models.pair import load_pair
    from ..papers.captures import write_captures

    if missing := [side for side in ("draft", "target") if not is_folder(pair / side)]:
        raise AnalysisError(
            f"--pair must be a folder with draft and target; {shortened(pair)!r} has no {missing[0]}. Check it."
        )
    models = load_pair(draft=str(pair / "draft"), target=str(pair / "target"), device="cpu")
    for path in write_captures(models, pair, out):
        typer.echo(str(path))
