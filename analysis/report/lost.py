"""What acceptance with one draft is lost to, of a run that was measured with `--losses`."""

from __future__ import annotations

import dataclasses
import math

from ..run.losses import PARTS
from ..statistics import Means
from .aggregate import Aggregates
from .reading import Run
from .text import shown

ACCEPTED = "accepted by the best verifier"


@dataclasses.dataclass(frozen=True)
class Part:
    """A share of first drafts; limits are None where nothing is known about them.

    Attributes:
        words: what becomes of them.
        mean, low, high: the share.
        adds: whether it is one of those that make 1 together.
    """

    words: str
    mean: float
    low: float | None
    high: float | None
    adds: bool

    @property
    def row(self) -> tuple[str, str, str]:
        """The part as text."""
        interval = (
            "" if self.low is None or self.high is None else f"{self.low:.4f} to {self.high:.4f}"
        )
        return self.words, f"{self.mean:.4f}", interval


def parts_of(run: Run, found: Aggregates, setting: int) -> list[Part]:
    """Return what becomes of first drafts, the accepted ones first; nothing for a run that did not
    ask.
    """
    places = {column.name: i for i, column in enumerate(run.statistics)}
    optimum = _optima(run).get(1)
    if optimum is None or not all(f"lost_{name}" in places for name in PARTS):
        return []
    parts = [_part(ACCEPTED, found.lower[setting], optimum, adds=True)]
    for name, place in places.items():
        if name.startswith(("lost_", "rounding_")):
            label = shown(run.statistics[place].label).removeprefix("lost to ")
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
    """Return (k, the best that k i.i.d. drafts win, target mass of its likeliest k) for every k
    that a run asked for.
    """
    places = {column.name: i for i, column in enumerate(run.statistics)}
    own, likeliest = found.lower[setting].mean, found.statistics[setting].mean
    return [
        (k, float(own[place]), float(likeliest[places[f"likeliest_k{k}"]]))
        for k, place in _optima(run).items()
        if f"likeliest_k{k}" in places
    ]


def is_loss(name: str) -> bool:
    """Return whether a statistic is shown here rather than among those that describe the two
    distributions.
    """
    return name.startswith(("lost_", "rounding_", "likeliest_k"))


def _optima(run: Run) -> dict[int, int]:
    """Return the column of the optimum of k i.i.d. drafts by k, ascending; the first one where no
    law has their name.
    """
    own = [
        (column.law != "IID", i, column.k)
        for i, column in enumerate(run.schemes)
        if column.optimum == column.name
    ]
    found = {k: i for _, i, k in sorted(own, reverse=True)}
    return dict(sorted(found.items()))


def _part(words: str, means: Means, place: int, *, adds: bool) -> Part:
    """Return a mean with its interval; a part that adds is no less than 0 but for what sums round
    off.
    """
    share, least = means.of(place), 0.0 if adds else -math.inf
    low = None if share.low is None else max(share.low, least)
    return Part(words, max(share.value, least), low, share.high, adds)
