"""What a report says first: the best choice under a cost model, how far from the optimum, and what else is near it."""

from __future__ import annotations

import dataclasses

import numpy as np

from . import words
from .aggregate import Aggregates
from .cost import Costs, speed_up, tokens_per_call
from .reading import Run
from .summary import ATTAINED, LAWS, Scheme, schemes_of
from .text import ends, interval_text, shown

COSTS = Costs()

NEAR = 0.01
"""Options within one per cent of the best are named beside it; the page does the same."""

_LEVELS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight"}


@dataclasses.dataclass(frozen=True)
class Choice:
    """One scheme at one k under a cost model.

    Attributes:
        scheme, k: what is chosen.
        acceptance, speed: its acceptance and speed-up; their certified lower ends in a run of intervals.
        acceptance_upper, speed_upper: their upper ends; the same unless the run holds intervals.
    """

    scheme: Scheme
    k: int
    acceptance: float
    speed: float
    acceptance_upper: float
    speed_upper: float


def choices(run: Run, found: Aggregates, setting: int, costs: Costs) -> list[Choice]:
    """Return usable schemes and numbers of drafts, fastest first, of intervals by their lower ends; equal ones by fewer drafts."""
    mean, upper = found.lower[setting].mean, found.upper[setting].mean
    all_of_them = []
    for scheme in (scheme for scheme in schemes_of(run) if scheme.usable):
        for i in (i for i in scheme.columns if np.isfinite(mean[i])):
            k, ends = run.schemes[i].k, (float(mean[i]), float(upper[i]))
            speeds = [speed_up(end, k, costs) for end in ends]
            all_of_them.append(Choice(scheme, k, ends[0], speeds[0], ends[1], speeds[1]))
    return sorted(all_of_them, key=lambda choice: (-choice.speed, choice.k))


def verdict(ranked: list[Choice], costs: Costs) -> str:
    """Say in words whether the best of some choices beats plain decoding; the page says the same."""
    best, most = ranked[0], max(choice.speed_upper for choice in ranked)
    if most <= 1:
        return "no verifier measured beats plain decoding"
    if best.speed <= 1:
        return (
            "whether a verifier measured beats plain decoding is undecided: between "
            f"{best.speed:.2f}× and {most:.2f}×; log more tokens (larger m)"
        )
    fewest, largest = (tokens_per_call(a, costs.levels) for a in (best.acceptance, best.acceptance_upper))
    tokens = ends(fewest, largest, 2)
    fastest = "is the fastest verifier measured" if most == best.speed else "has the largest certified speed-up"
    return (
        f"{shown(best.scheme.label)} with k = {best.k} {fastest}: {ends(best.speed, best.speed_upper, 2, '×')} plain decoding, "
        f"{tokens} tokens per target call"
    )


def all_ks(run: Run) -> list[int]:
    """Return every number of drafts that some scheme was measured at."""
    return sorted({column.k for column in run.schemes})


def first_k(run: Run) -> int:
    """Return the number of drafts that is shown first: the largest up to 4, where schemes differ and engines are."""
    return max((k for k in all_ks(run) if k <= 4), default=all_ks(run)[0])


def short(run: Run, found: Aggregates, schemes: tuple[Scheme, ...], setting: int, label: str) -> list[str]:
    """Say the main findings in a few sentences, for the setting shown first."""
    mean, upper, lines = found.lower[setting].mean, found.upper[setting].mean, []
    single = next((i for s in schemes if s.kind == "optimum" for i in s.columns if run.schemes[i].k == 1), None)
    if single is not None and np.isfinite(mean[single]):
        interval = "" if run.is_interval else interval_text(found.lower[setting], single, 3)
        lines.append(
            f"One draft is accepted with probability {ends(mean[single], upper[single], 3)}{f' ({interval})' if interval else ''} "
            f"at best: a target call then yields {ends(1 + mean[single], 1 + upper[single], 2)} tokens instead of 1."
        )
    lines += _short_gap(run, found, schemes, setting)
    ranked = choices(run, found, setting, COSTS)
    if ranked:
        lines.append(
            f"If a draft pass costs {COSTS.draft:g} of a target pass and checking one more token {COSTS.verify:g}, with one "
            f"drafted level: {verdict(ranked, COSTS)}.{_alternatives(run, found, setting, ranked)} Your costs will differ: see "
            "the calculator in report.html."
        )
    return [words.setting_words(run, label, len(found.survey.settings)), *lines]


def _alternatives(run: Run, found: Aggregates, setting: int, ranked: list[Choice]) -> str:
    """Say what else the calculator offers beside the best choice: fewer drafts within a per cent of it, and more levels."""
    best, told = ranked[0], ""
    if best.speed <= 1:
        return told
    near = [c.k for c in ranked if c.scheme == best.scheme and c.k < best.k and c.speed >= best.speed * (1 - NEAR)]
    if near:
        whose = f"The lower end of k = {min(near)}" if run.is_interval else f"k = {min(near)}"
        told += f" {whose} is within {NEAR:.0%}.".replace("%", " %")
    costs = [dataclasses.replace(COSTS, levels=levels) for levels in _LEVELS]
    longer = [(choices(run, found, setting, cost)[0], cost.levels) for cost in costs]
    other, levels = max(longer, key=lambda pair: pair[0].speed)
    if round(other.speed, 2) > round(best.speed, 2):
        which = "" if other.scheme == best.scheme else f"{shown(other.scheme.label)} and "
        speed = ends(other.speed, other.speed_upper, 2, "×")
        told += f" {_LEVELS[levels]} drafted levels with {which}k = {other.k} would give {speed} if levels were independent."
    return told


def _short_gap(run: Run, found: Aggregates, schemes: tuple[Scheme, ...], setting: int) -> list[str]:
    k, mean, upper = first_k(run), found.lower[setting].mean, found.upper[setting].mean
    found_optima = [(i, s) for s in schemes if s.kind == "optimum" for i in s.columns if run.schemes[i].k == k]
    if not found_optima:
        return []
    optimum, family = found_optima[0]
    rivals = [
        (float(mean[i]), s)
        for s in schemes
        for i in s.columns
        if s.kind == "verifier" and run.schemes[i].k == k and run.schemes[i].optimum == run.schemes[optimum].name
    ]
    if not rivals:
        return []
    scheme = max(rivals, key=lambda rival: rival[0])[1]
    i = _column(run, scheme, k)
    gap = ends(100 * found.gap_low[setting].mean[i], 100 * found.gap_high[setting].mean[i], 1)
    law, best = LAWS.get(family.law, shown(family.law)), ends(mean[optimum], upper[optimum], 3)
    left_open = " (certified range; what was not recorded leaves it open)" if run.is_interval else ""
    points = f"{gap} points more{left_open} than"
    told = f"With k = {k} {law} drafts the optimum is {best}"
    reached = f"{shown(scheme.name)}, the best other verifier ({ends(mean[i], upper[i], 3)})"
    if family.usable:
        return [f"{told}; {ATTAINED[family.law]}() attains it: {points} {reached}."]
    return [f"{told}, {points} {reached.replace(' other', '')}."]


def fastest(run: Run, found: Aggregates, labels: list[str]) -> list[tuple[str, ...]]:
    """Return the fastest verifier of every setting at the default costs; one setting needs no table."""
    rows: list[tuple[str, ...]] = []
    for s, label in enumerate(labels if len(labels) > 1 else []):
        for best in choices(run, found, s, COSTS)[:1]:
            fewest, most = (tokens_per_call(a, COSTS.levels) for a in (best.acceptance, best.acceptance_upper))
            cells = (
                ends(best.acceptance, best.acceptance_upper, 4),
                ends(fewest, most, 3),
                ends(best.speed, best.speed_upper, 3, "×"),
            )
            rows.append((label, shown(best.scheme.label), str(best.k), *cells))
    return rows


def _column(run: Run, scheme: Scheme, k: int) -> int:
    return next(i for i in scheme.columns if run.schemes[i].k == k)


def best_draft_temperature(run: Run, found: Aggregates, schemes: tuple[Scheme, ...]) -> str:
    """Say which draft temperature accepts most, for each setting of everything else."""
    place, k = run.setting_columns.index("draft_temperature"), first_k(run)
    wanted = [s for s in schemes if s.kind in ("optimum", "verifier") and any(run.schemes[i].k == k for i in s.columns)]
    if not wanted:
        return ""
    column = _column(run, wanted[0], k)
    groups: dict[tuple[float, ...], list[tuple[float, float]]] = {}
    for s, values in enumerate(found.survey.settings):
        rest = values[:place] + values[place + 1 :]
        groups.setdefault(rest, []).append((float(found.lower[s].mean[column]), values[place]))
    names = [name for name in run.setting_columns if name != "draft_temperature"]
    parts = []
    for rest, candidates in groups.items():
        accepted, temperature = max(candidates)
        others = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in zip(names, rest, strict=True))
        parts.append(f"{temperature:g} at {others} (acceptance {accepted:.3f})")
    return f"Best draft temperature of those measured, by {shown(wanted[0].label)} at k = {k}: " + "; ".join(parts[:12]) + "."
