"""Acceptance over k for every scheme and law on three pairs, and what distortion buys.

Top: exact acceptances; black lines are the optima of the draft laws, which no lossless scheme of
that law exceeds. Lossy schemes have open markers: they may. (Left out: laws of different drafters,
`Product`, which have no single draft distribution to show, and plans of linear programs, whose
curves are the optima.) Bottom: the largest acceptance of any scheme
whose output is within a given KL of the target, for one, two and four i.i.d. drafts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import otm
from figures import figure5
from figures.work import Work
from otm import drawing

TITLE = "Schemes, laws and the lossy frontier"
KS = (1, 2, 3, 4, 6)
FRONTIER_KS = (1, 2, 4)
TITLES = {cls.__name__: cls.title for cls in (*otm.drafts.LAWS, *otm.verifiers.VERIFIERS)}
"""Display names by class, as the data names laws and verifiers."""


def pairs() -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return the Figure 5 pair, a Zipf pair whose ranks disagree, and a peaked pair."""
    record = figure5.capture()
    zipf = otm.examples.zipf(12)
    swapped = zipf[np.array([2, 0, 1, 5, 3, 4, 8, 6, 7, 11, 9, 10])]
    peaked_draft = otm.normalise(0.35 ** np.arange(10))
    peaked_target = otm.normalise(np.concatenate([[0.5, 1.0, 0.05], 0.6 ** np.arange(3, 10)]))
    return [
        ("Figure 5's pair", otm.normalise(record["draft"]), otm.normalise(record["target"])),
        ("Zipf, ranks rotated", zipf, swapped),
        ("peaked", peaked_draft, peaked_target),
    ]


def compute(work: Work) -> dict[str, Any]:
    """Return every exact acceptance that can be computed by law, verifier and k, and frontiers."""
    ks = KS[:3] if work.fast else KS
    panels = []
    for name, draft, target in pairs():
        rows: list[dict[str, Any]] = []
        optima: list[dict[str, Any]] = []
        for law in otm.drafts.SINGLE_DRAFTER_LAWS:
            for k in ks:
                problem = otm.Problem(draft=draft, target=target, law=law.of_size(k))
                optima.append(
                    {"law": law.__name__, "k": k, "value": float(otm.optimal_acceptance(problem))}
                )
                rows += [
                    _row(verifier(), problem)
                    for verifier in otm.verifiers.VERIFIERS
                    if _belongs(verifier, problem.law)
                ]
                work.tick()
        panels.append(
            {
                "name": name,
                "rows": [r for r in rows if r["value"] is not None],
                "optima": optima,
                "frontier": _frontier(draft, target, work),
            }
        )
    return {"panels": panels}


def _belongs(verifier: type[otm.Verifier], law: otm.Law) -> bool:
    """Return whether the verifier has a curve of its own; a plan's is its law's optimum."""
    return not verifier.is_plan and verifier().supports(law)


def _row(verifier: otm.Verifier, problem: otm.Problem) -> dict[str, Any]:
    try:
        value: float | None = float(otm.acceptance(verifier, problem))
    except otm.errors.TooLarge:
        value = None
    return {
        "verifier": type(verifier).__name__,
        "law": type(problem.law).__name__,
        "k": problem.law.size,
        "value": value,
        "lossless": verifier.lossless,
    }


def _frontier(draft: np.ndarray, target: np.ndarray, work: Work) -> list[dict[str, Any]]:
    curves = []
    most = otm.divergences.kl_divergence(draft=draft, target=target)
    # Squares: the frontier rises steeply at zero.
    budgets = min(float(most), 1.0) * np.linspace(0.0, 1.0, 9 if work.fast else 41) ** 2
    for k in FRONTIER_KS:
        problem = otm.Problem(draft=draft, target=target, law=otm.IID(k))
        curves.append(
            {
                "k": k,
                "kl": budgets.tolist(),
                "value": [otm.lossy.kl_frontier(problem, kl=float(d)).value for d in budgets],
            }
        )
    return curves


def draw(data: dict[str, Any]) -> Figure:
    """Draw three panels of schemes over three panels of frontiers."""
    canvas = Figure(figsize=(11.0, 7.2), layout="constrained")
    grid = canvas.subplots(2, 3, height_ratios=(1.5, 1.0))
    names = sorted({row["verifier"] for panel in data["panels"] for row in panel["rows"]})
    colours = {name: drawing.PALETTE[i % len(drawing.PALETTE)] for i, name in enumerate(names)}
    markers = {name: drawing.MARKERS[i % len(drawing.MARKERS)] for i, name in enumerate(names)}
    for column, panel in enumerate(data["panels"]):
        _schemes(grid[0, column], panel, colours, markers)
        _frontier_panel(grid[1, column], panel)
    grid[0, 0].set_ylabel("acceptance probability")
    grid[1, 0].set_ylabel("best acceptance")
    handles = _legend_handles(data["panels"], names, colours, markers)
    canvas.legend(handles=handles, loc="outside right upper", fontsize=8.5)
    return canvas


def _schemes(
    axes: Axes, panel: dict[str, Any], colours: dict[str, str], markers: dict[str, str]
) -> None:
    for law in _laws([panel]):
        line = otm.plot.LAW_LINES[law]
        points = [(o["k"], o["value"]) for o in panel["optima"] if o["law"] == law]
        axes.plot(*zip(*points, strict=True), color="black", ls=line, lw=1.8)
        for name in colours:
            mine = [r for r in panel["rows"] if r["law"] == law and r["verifier"] == name]
            if mine:
                fill = colours[name] if mine[0]["lossless"] else "white"
                x, y = [r["k"] for r in mine], [r["value"] for r in mine]
                axes.plot(
                    x,
                    y,
                    color=colours[name],
                    marker=markers[name],
                    mfc=fill,
                    ls=line,
                    lw=1.0,
                    ms=5,
                    alpha=0.9,
                )
    axes.set_title(panel["name"], fontsize=10)
    axes.set_xlabel("number of drafts k")
    axes.set_xticks(sorted({o["k"] for o in panel["optima"]}))
    axes.set_ylim(top=1.02)


def _laws(panels: list[dict[str, Any]]) -> list[str]:
    """The names of the draft laws that are shown, in their order in the data."""
    return list(dict.fromkeys(o["law"] for panel in panels for o in panel["optima"]))


def _frontier_panel(axes: Axes, panel: dict[str, Any]) -> None:
    for number, curve in enumerate(panel["frontier"]):
        axes.plot(
            curve["kl"], curve["value"], color=drawing.PALETTE[number], label=f"k = {curve['k']}"
        )
    axes.set_xlabel("KL(target ‖ output), nats")
    axes.set_ylim(top=1.02)
    axes.legend(loc="lower right", fontsize=8)


def _legend_handles(
    panels: list[dict[str, Any]], names: list[str], colours: dict[str, str], markers: dict[str, str]
) -> list[Any]:
    laws = [
        Line2D(
            [],
            [],
            color="black",
            ls=otm.plot.LAW_LINES[law],
            lw=1.8,
            label=f"optimum, {TITLES[law]}",
        )
        for law in _laws(panels)
    ]
    lossy = {row["verifier"] for panel in panels for row in panel["rows"] if not row["lossless"]}
    schemes = [
        Line2D(
            [],
            [],
            color=colours[n],
            marker=markers[n],
            lw=1.0,
            ms=5,
            mfc="white" if n in lossy else colours[n],
            label=TITLES[n],
        )
        for n in sorted(names, key=lambda n: (n in lossy, TITLES[n].lower()))
    ]
    return [*laws, *schemes]
