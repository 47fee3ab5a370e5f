"""Places of the two models of a measurement, and the names for readers of results."""

from __future__ import annotations

from ..errors import AnalysisError
from ..files import SHIPPED_PAIR
from .public import PUBLIC, public_folder

SIDES = ("draft", "target")


def model_names(draft: str | None, target: str | None) -> tuple[str, str]:
    """Return both models' names for readers of results; no draft means the draft of the target."""
    if draft is None:
        draft = f"{target}-draft" if target in PUBLIC else "analysis/pair/draft"
    return draft, target or "analysis/pair/target"


def model_places(draft: str | None, target: str | None) -> dict[str, str]:
    """Return the places of the two models by side: folders or hub names.

    Raises:
        AnalysisError: if a public model has not been fetched, or has no draft where the draft is
            none is shipped.
    """
    places = {}
    names = zip(SIDES, model_names(draft, target), (draft, target), strict=True)
    for side, name, given in reversed(list(names)):  # without its target no draft helps
        base = name.removesuffix("-draft")
        if name in PUBLIC:
            places[side] = str(public_folder(name))
        elif base in PUBLIC:
            folder = PUBLIC[base].draft
            if not folder.is_dir():
                raise AnalysisError(
                    f"No draft for {base} comes with this copy of the library. Name one that has "
                    "its tokenizer with --draft, or distil "
                    f"one: train --target {base}."
                )
            places[side] = str(folder)
        else:
            places[side] = given or str(SHIPPED_PAIR / side)
    return {side: places[side] for side in SIDES}
