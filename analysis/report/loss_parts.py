"""What acceptance with one draft is lost to, of a run that was measured with `--losses`."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from otm.statistics import Estimate

from ..run.loss_columns import PARTS
from ..statistics import limits
from .aggregate import Aggregates
from .reading import Run
from .text import printable

ACCEPTED = "accepted by the best verifier"


@dataclasses.dataclass(frozen=True)
class LossPart:
    """A share of first drafts.

    Attributes:
        words: what becomes of them.
        share: how many, with its interval over prompts.
        adds: whether it is one of those that make 1 together.
    """

    words: str
    share: Estimate
    adds: bool

    @property
    def row(self) -> tuple[str, str, str]:
        """The part as text."""
        return self.words, f"{self.share.value:.4f}", self.share.ends()

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"words": self.words} | limits(self.share)


def parts_of(run: Run, found: Aggregates, setting: int) -> list[LossPart]:
    """Return what becomes of first drafts, the accepted ones first; nothing if not measured."""
    places = {column.name: i for i, column in enumerate(run.statistics)}
    optimum = _optima(run).get(1)
    if optimum is None or not all(f"lost_{name}" in places for name in PARTS):
        return []
    parts = [_part(ACCEPTED, found.lower[setting], optimum, adds=True)]
    for name, place in places.items():
        if name.startswith(("lost_", "rounding_")):
            label = printable(run.statistics[place].label).removeprefix("lost to ")
            parts.append(
                _part(
                    label,
                    found.statistics[setting],
                    place,
                    adds=name.removeprefix("lost_") in PARTS,
                )
            )
    return parts


def likeliest_of(run: Run, found: Aggregates, setting: int) -> list[tuple[int, float, float]]:
    """Return (k, the best of k i.i.d. drafts, the target's mass of its likeliest k) for each k."""
    places = {column.name: i for i, column in enumerate(run.statistics)}
    own, likeliest = found.lower[setting].value, found.statistics[setting].value
    return [
        (k, float(own[place]), float(likeliest[places[f"likeliest_k{k}"]]))
        for k, place in _optima(run).items()
        if f"likeliest_k{k}" in places
    ]


def is_loss(name: str) -> bool:
    """Return whether a statistic is shown among the losses."""
    return name.startswith(("lost_", "rounding_", "likeliest_k"))


def _optima(run: Run) -> dict[int, int]:
    """Return the column of the optimum of k i.i.d. drafts by k, ascending."""
    own = [
        (column.law != "IID", i, column.k)
        for i, column in enumerate(run.schemes)
        if column.optimum == column.name
    ]
    found = {k: i for _, i, k in sorted(own, reverse=True)}
    return dict(sorted(found.items()))


def _part(words: str, means: Estimate, place: int, *, adds: bool) -> LossPart:
    """Return a mean with its interval; one that adds is no less than 0, whatever sums round."""
    share, least = means.at(place), 0.0 if adds else -math.inf
    share = dataclasses.replace(share, value=max(share.value, least))
    return LossPart(words, share.clipped(least, math.inf), adds)
