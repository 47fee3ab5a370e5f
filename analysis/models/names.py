"""Where the two models of a measurement lie, and what readers of results see them called."""

from __future__ import annotations

from ..errors import AnalysisError
from ..files import SHIPPED_PAIR
from .public import PUBLIC, public_folder

SIDES = ("draft", "target")


def model_names(draft: str | None, target: str | None) -> tuple[str, str]:
    """Return the models' names as readers of results see them; no draft means the target's own."""
    if draft is None:
        draft = f"{target}-draft" if target in PUBLIC else "analysis/pair/draft"
    return draft, target or "analysis/pair/target"


def model_places(draft: str | None, target: str | None) -> dict[str, str]:
    """Return where the two models lie by side: folders or hub names.

    Raises:
        AnalysisError: if a public model is asked for that has not been fetched, or its draft where
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
