"""What a model's name stands for: a folder, a hub name, the shipped pair, or a public model of which the short name is enough."""

from __future__ import annotations

from pathlib import Path

from ..layout import SHIPPED_PAIR
from .public import PUBLIC, public_folder

SIDES = ("draft", "target")


def model_names(draft: str | None, target: str | None) -> tuple[str, str]:
    """Return the models' names as a reader of the results should see them; no draft means the target's own."""
    if draft is None:
        draft = f"{target}-draft" if target in PUBLIC else "analysis/pair/draft"
    return draft, target or "analysis/pair/target"


def model_places(draft: str | None, target: str | None) -> tuple[str, str]:
    """Return where the two models lie: folders or hub names.

    Raises:
        AnalysisError: if a public model is asked for that has not been fetched.
    """
    shown = model_names(draft, target)
    places = []
    for side, name, given in zip(SIDES, shown, (draft, target), strict=True):
        base = name.removesuffix("-draft")
        if name in PUBLIC:
            places.append(str(public_folder(name)))
        elif base in PUBLIC and base != name:
            places.append(str(PUBLIC[base].draft))
        else:
            places.append(given or str(SHIPPED_PAIR / side))
    return places[0], places[1]


def local_folders(draft: str | None, target: str | None) -> tuple[Path, Path]:
    """Return both places as paths, which exist where the models are local."""
    left, right = model_places(draft, target)
    return Path(left), Path(right)
