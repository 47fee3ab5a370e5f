"""What a model's name stands for: a folder, a hub name, the shipped pair, or a public model."""

from __future__ import annotations

from pathlib import Path

from ..errors import AnalysisError
from ..files import SHIPPED_PAIR
from .public import PUBLIC, public_folder

SIDES = ("draft", "target")


def model_names(draft: str | None, target: str | None) -> tuple[str, str]:
    """Return the models' names as readers of results see them; no draft means the target's own."""
    if draft is None:
        draft = f"{target}-draft" if target in PUBLIC else "analysis/pair/draft"
    return draft, target or "analysis/pair/target"


def model_places(draft: str | None, target: str | None) -> tuple[str, str]:
    """Return where the two models lie: folders or hub names.

    Raises:
        AnalysisError: if a public model is asked for that has not been fetched, or its draft where
            none is shipped.
    """
    shown = model_names(draft, target)
    places = []
    for side, name, given in reversed(
        list(zip(SIDES, shown, (draft, target), strict=True))
    ):  # without its target no draft helps
        base = name.removesuffix("-draft")
        if name in PUBLIC:
            places.append(str(public_folder(name)))
        elif base in PUBLIC and base != name:
            places.append(str(_draft_of(base)))
        else:
            places.append(given or str(SHIPPED_PAIR / side))
    return places[1], places[0]


def _draft_of(name: str) -> Path:
    folder = PUBLIC[name].draft
    if not folder.is_dir():
        raise AnalysisError(
            f"No draft for {name} comes with this copy of the library. Name one that has its "
            "tokenizer with --draft, or distil "
            f"one: train --target {name}."
        )
    return folder


def local_folders(draft: str | None, target: str | None) -> tuple[Path, Path]:
    """Return both places as paths, which exist where the models are local."""
    left, right = model_places(draft, target)
    return Path(left), Path(right)
