"""Acceptance over k for every scheme and law on three pairs, and the gain from distortion.

Top: exact acceptances, a row for each scheme and a colour for each law; lines of that colour are
the optima of the draft laws, which no lossless scheme of that law exceeds. Lossy schemes, below,
may. (Left out: laws of different drafters,
`Product`, which have no single draft distribution to show, and plans of linear programs, whose
curves are the optima.) Bottom: the largest acceptance of any scheme
whose output is within a given KL of the target, for one, two and four i.i.d. drafts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import otm
from figures import figure5
from figures.work import Work
from otm._display import drawing

KS = (1, 2, 3, 4, 6)
FRONTIER_KS = (1, 2, 4)
MOST = 4
"""Drafts of the panels above."""
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
    """Return True if the verifier has an own curve; a plan's curve is the optimum of the law."""
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


def message(data: dict[str, Any]) -> str:
    """Return the headline of the picture, a sentence with numbers from the data."""
    panel = data["panels"][0]
    found = {(row["verifier"], row["law"], row["k"]): row["value"] for row in panel["rows"]}
    (best,) = (o["value"] for o in panel["optima"] if (o["law"], o["k"]) == ("IID", 2))
    said = ", ".join(
        f"{TITLES[name]} {100 * found[name, 'IID', 2]:.1f} %"
        for name in ("KSeq", "RecursiveRejection", "NaiveTree")
    )
    return f"Two i.i.d. drafts on {panel['name']}: the optimum accepts {100 * best:.1f} %, {said}"


def draw(data: dict[str, Any]) -> Figure:
    """Draw three panels with a row for each scheme over three panels of frontiers."""
    panels = data["panels"]
    lossless = {row["verifier"]: row["lossless"] for panel in panels for row in panel["rows"]}
    names = sorted(lossless, key=lambda name: (not lossless[name], TITLES[name].lower()))
    canvas = Figure(figsize=(11.0, 0.25 * len(names) + 4.2), layout="constrained")
    grid = canvas.subplots(2, len(panels), height_ratios=(0.25 * len(names), 2.4), sharey="row")
    ks = sorted({o["k"] for o in panels[0]["optima"]})
    most = max(k for k in ks if k <= MOST)
    for column, panel in enumerate(panels):
        _schemes(grid[0, column], panel, names, most)
        _frontier_panel(grid[1, column], panel)
    last = sum(lossless.values())
    grid[0, 0].set_yticks(range(len(names)), [TITLES[name] for name in names], fontsize=8.5)
    grid[0, 0].set_ylim(len(names) - 0.4, -0.6)
    for axes in grid[0]:
        axes.axhline(last - 0.5, color="#8A8A8A", lw=0.8)
    grid[0, 0].set_ylabel("lossy" + " " * 36 + "lossless")
    grid[1, 0].set_ylabel("best acceptance")
    grid[1, 0].set_ylim(
        min(min(curve["value"]) for one in panels for curve in one["frontier"]), 1.02
    )
    handles, laws = grid[0, 0].get_legend_handles_labels()
    canvas.legend(handles, laws, loc="outside right center", fontsize=8.5)
    drawing.note(
        canvas,
        f"acceptance with {most} drafts; hollow: with one, or two, where a scheme takes no more of "
        f"this law · lines: the optimum of the law of that colour with {most}; dotted: with one",
    )
    return canvas


def _schemes(axes: Axes, panel: dict[str, Any], names: list[str], most: int) -> None:
    """Draw each scheme's acceptance with the largest supported number of drafts, by law."""
    optima = {(o["law"], o["k"]): o["value"] for o in panel["optima"]}
    laws = list(dict.fromkeys(law for law, _ in optima))
    axes.axvline(optima["IID", 1], color="#8A8A8A", lw=1.0, ls=":", zorder=0)
    for number, law in enumerate(laws):
        colour, marker = drawing.PALETTE[number], drawing.MARKERS[number]
        axes.axvline(optima[law, most], color=colour, lw=1.2, alpha=0.6, zorder=0)
        mine = sorted(
            (row["k"], row["verifier"], row["value"])
            for row in panel["rows"]
            if row["law"] == law and row["k"] <= most
        )
        found = {name: (k, value) for k, name, value in mine}  # with the most drafts
        for name, (k, value) in found.items():
            axes.plot(
                value,
                names.index(name) + 0.11 * (number - 2),
                ls="none",
                color=colour,
                marker=marker,
                mfc=colour if k == most else "white",
                ms=5,
            )
        axes.plot([], [], ls="none", color=colour, marker=marker, label=TITLES[law])
    axes.set_title(panel["name"], fontsize=10)
    axes.set_xlabel("acceptance probability")
    axes.set_xlim(right=1.02)


def _frontier_panel(axes: Axes, panel: dict[str, Any]) -> None:
    for number, curve in enumerate(panel["frontier"]):
        axes.plot(
            curve["kl"], curve["value"], color=drawing.PALETTE[number], label=f"k = {curve['k']}"
        )
    axes.set_xlabel("KL(target ‖ output), nats")
    axes.legend(loc="lower right", fontsize=8)
