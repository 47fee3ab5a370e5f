"""The figures of a report as plain data, for the page and for the Markdown summary."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

import otm
from otm._machine.arrays import Floats
from otm.results.statistics import Estimate

from ..models.processing import setting_name, setting_text
from ..run.loss_columns import PARTS
from ..run.manifest import class_of
from ..statistics import limits
from ..trace.base import PATH
from .aggregate import Aggregates, Binned
from .reading import SETTING_COLUMNS, Run, SchemeColumn
from .text import printable

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
HISTOGRAM_BINS = 40

LAWS = {law.__name__: law.title for law in otm.drafts.LAWS}
"""Display names of the draft laws by class; `explanations` explains them."""

ATTAINED = {
    "IID": "otm.Optimal",
    "Greedy": "otm.GreedyOptimal",
    "ThresholdRace": "otm.Optimal",
}
"""The verifier that attains the optimum of a draft law at any vocabulary size."""


@dataclasses.dataclass(frozen=True)
class Scheme:
    """One line of a chart: the columns of one scheme over k.

    Attributes:
        identity, law, definition: as in the manifest.
        name: its display name, without its law.
        label: unique name for readers.
        kind: "optimum", "verifier", "lossy" or "bound".
        usable: whether it can be chosen: a verifier, or an optimum that one of `otm` attains.
        columns: indices into `run.schemes`, ascending in k.
        short: what charts and answers call it: the verifier's name for an optimum that one attains.
    """

    identity: str
    law: str
    definition: str
    name: str
    label: str
    kind: str
    usable: bool
    columns: tuple[int, ...]
    short: str


def schemes_of(run: Run) -> tuple[Scheme, ...]:
    """Group a run's columns into schemes: optima, verifiers, lossy schemes, then bounds."""
    families: dict[tuple[str, str, str], list[int]] = {}
    for i, column in enumerate(run.schemes):
        families.setdefault((column.scheme, column.law, column.definition), []).append(i)
    kinds = {key: _kind([run.schemes[i] for i in columns]) for key, columns in families.items()}
    order = sorted(
        families, key=lambda key: ("optimum", "verifier", "lossy", "bound").index(kinds[key])
    )
    definitions = {
        (scheme, law): {d for s, w, d in families if (s, w) == (scheme, law)}
        for scheme, law, _ in families
    }
    schemes = []
    # Readers tell schemes apart by label alone, so whatever differs must be part of it.
    for key in order:
        identity, law, definition = key
        columns = sorted(families[key], key=lambda i: run.schemes[i].k)
        name = run.schemes[columns[0]].label
        rule = ", by rule" if len(definitions[identity, law]) > 1 and definition == "rule" else ""
        # parameters and law share one pair of brackets
        label = f"{name}{rule} ({LAWS.get(law, law)})".replace(") (", "; ")
        short = label
        attained = kinds[key] == "optimum" and law in ATTAINED
        if attained:
            name = label = f"optimum, {LAWS[law]} drafts ({ATTAINED[law]})"
            short = f"{otm.Optimal.title} ({LAWS[law]})"
        usable = attained or kinds[key] == "verifier"
        schemes.append(
            Scheme(
                identity,
                law,
                definition,
                name,
                label,
                kinds[key],
                usable,
                tuple(columns),
                short,
            )
        )
    return tuple(schemes)


def measured_data(run: Run, found: Aggregates) -> dict[str, Any]:
    """Return the measurements that the page's script draws, as JSON values."""
    schemes = schemes_of(run)
    scheme_of = {column: i for i, scheme in enumerate(schemes) for column in scheme.columns}
    settings = range(len(found.strata.settings))
    return {
        "settings": setting_labels(run, found),
        "schemes": [{"label": s.label, "short": s.short, "kind": s.kind} for s in schemes],
        "columns": [
            {"scheme": scheme_of[i], "k": column.k} for i, column in enumerate(run.schemes)
        ],
        "acceptance": [
            _band(low, high) for low, high in zip(found.lower, found.upper, strict=True)
        ],
        "entropy": [_bins(binned) for binned in found.by_entropy],
        "position": [_bins(binned) for binned in found.by_position],
        "spread": [_spread(found, s, len(run.schemes)) for s in settings],
        "lost": [
            [part.to_json() for part in loss_shares(run, found, s) if part.adds] for s in settings
        ],
    }


def setting_labels(run: Run, found: Aggregates) -> list[str]:
    """Return the sampling settings in words."""
    values = (
        dict(zip(run.setting_columns, values, strict=True)) for values in found.strata.settings
    )
    return [printable(setting_label(each, run)) for each in values]


def setting_label(values: dict[str, float], run: Run) -> str:
    """Describe a sampling setting in words, for a recorded trace by the trace's metadata."""
    parts = []
    trace = run.trace
    if trace is not None:
        said = [
            (name, trace[name])
            for name in (*SETTING_COLUMNS, "top_k")
            if isinstance(trace.get(name), str | int | float)
        ]
        recorded = ", ".join(setting_text(*one) for one in said) or "sampling as recorded"
        return ", ".join(
            [
                recorded,
                *(setting_text(name, values[name]) for name in run.setting_columns if name in PATH),
            ]
        )
    for name in run.setting_columns:
        whole = name.endswith("top_p") and values[name] == 1.0
        parts.append(f"no {setting_name(name)}" if whole else setting_text(name, values[name]))
    parts += [
        setting_text(name, value) for name, value in run.processing.items() if name not in values
    ]
    return ", ".join(parts)


def _kind(columns: list[SchemeColumn]) -> str:
    if any(column.definition == "bound" for column in columns):
        return "bound"
    if not all(column.lossless for column in columns):
        return "lossy"
    own = all(column.optimum == column.name for column in columns)
    return (
        "optimum"
        if own and class_of(columns[0].scheme) in ("optimum", "GreedyOptimal")
        else "verifier"
    )


def _band(lower: Estimate, upper: Estimate) -> dict[str, Any]:
    """Return means in [0, 1] with outer limits, which enclose both ends of certified intervals."""
    exact = lower is upper
    low, high = (
        (lower.low, upper.high)
        if exact
        else (_else(lower.low, lower.value), _else(upper.high, upper.value))
    )
    return {
        "mean": clean(lower.value),
        "low": clean(np.maximum(low, 0.0)),
        "high": clean(np.minimum(high, 1.0)),
    }


def _else(limit: Floats, mean: Floats) -> Floats:
    return np.where(np.isfinite(limit), limit, mean)


def _bins(binned: Binned) -> dict[str, Any]:
    bands = [_band(low, high) for low, high in zip(binned.lower, binned.upper, strict=True)]
    parts = {part: [band[part] for band in bands] for part in ("mean", "low", "high")}
    return {"centre": clean(binned.centre), **parts}


def _spread(found: Aggregates, setting: int, columns: int) -> dict[str, Any]:
    return {
        "quantiles": [
            clean(found.histograms.quantiles(setting, i, QUANTILES)) for i in range(columns)
        ],
        "histogram": [
            clean(found.histograms.coarse(setting, i, HISTOGRAM_BINS)) for i in range(columns)
        ],
    }


def clean(values: Floats | Iterable[float]) -> list[float | None]:
    """Return numbers for JSON, to six digits after the point; None where there is none."""
    return [
        round(float(v), 6) if np.isfinite(v) else None for v in np.asarray(values, dtype=np.float64)
    ]


@dataclasses.dataclass(frozen=True)
class LossPart:
    """A share of first drafts.

    Attributes:
        words: the cause of the loss, or acceptance.
        share: the share, with its interval over prompts.
        adds: whether it is one of the shares that add up to 1.
    """

    words: str
    share: Estimate
    adds: bool

    @property
    def row(self) -> tuple[str, str, str]:
        """The part as text."""
        return self.words, f"{self.share.value:.4f}", self.share.ends()

    def to_json(self) -> dict[str, Any]:
        """Return the part as JSON values."""
        return {"words": self.words} | limits(self.share)


def loss_shares(run: Run, found: Aggregates, setting: int) -> list[LossPart]:
    """Return the shares of first drafts by cause of loss, accepted first; empty if not measured."""
    places = {column.name: i for i, column in enumerate(run.statistics)}
    optimum = _optima(run).get(1)
    if optimum is None or not all(f"lost_{name}" in places for name in PARTS):
        return []
    parts = [_part("accepted by the best verifier", found.lower[setting], optimum, adds=True)]
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
    """Return (k, optimum of k i.i.d. drafts, target mass of the k likeliest tokens) for each k."""
    places = {column.name: i for i, column in enumerate(run.statistics)}
    own, likeliest = found.lower[setting].value, found.statistics[setting].value
    return [
        (k, float(own[place]), float(likeliest[places[f"likeliest_k{k}"]]))
        for k, place in _optima(run).items()
        if f"likeliest_k{k}" in places
    ]


def is_loss(name: str) -> bool:
    """Return True if a statistic is shown among the losses."""
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
    """Return a share with an interval, at least 0 if the share adds up to 1 with others."""
    share, least = means.at(place), 0.0 if adds else -math.inf
    share = dataclasses.replace(share, value=max(share.value, least))
    return LossPart(words, share.clipped(least, math.inf), adds)
