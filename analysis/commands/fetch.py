"""`python -m analysis fetch`: fetch a public model once and convert it."""

from __future__ import annotations

from typing import Annotated

import typer


def fetch(
    name: Annotated[
        str, typer.Argument(help="Which one; its short name is then good for --target.")
    ] = "smollm2",
) -> None:
    """Fetch a public target model (93 MB) and convert it to safetensors (540 MB) in the cache
    folder, once.
    """
    from ..models.public import PUBLIC, fetch as fetched

    folder = fetched(name)
    typer.echo(f"{name}  {PUBLIC[name].title}, {PUBLIC[name].licence}")
    typer.echo(f"folder  {folder}")
