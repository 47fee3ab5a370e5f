"""What a report finds: one draft's acceptance, the optimum's gap, the best draft temperature."""

from __future__ import annotations

import numpy as np

from ..models.processing import setting_text
from ..run.tree_names import tree_nodes, tree_statistics
from .aggregate import Aggregates
from .reading import Run
from .summary import ATTAINED, LAWS, Scheme
from .text import printable, value_or_range


def all_ks(run: Run) -> list[int]:
    """Return every number of drafts that some scheme was measured at."""
    return sorted({column.k for column in run.schemes})


def first_k(run: Run) -> int:
    """Return the number of drafts that is shown first: the largest up to 4."""
    return max((k for k in all_ks(run) if k <= 4), default=all_ks(run)[0])


def short(run: Run, found: Aggregates, schemes: tuple[Scheme, ...], setting: int) -> list[str]:
    """Say the main findings on acceptance at a setting."""
    mean, upper = found.lower[setting].value, found.upper[setting].value
    lines = []
    single = next(
        (i for s in schemes if s.kind == "optimum" for i in s.columns if run.schemes[i].k == 1),
        None,
    )
    if single is not None and np.isfinite(mean[single]):
        interval = "" if run.is_interval else found.lower[setting].at(single).ends(3)
        accepted = value_or_range(mean[single], upper[single], 3)
        tokens = value_or_range(1 + mean[single], 1 + upper[single], 2)
        lines.append(
            "One draft is accepted with probability "
            f"{accepted}{f' ({interval})' if interval else ''} "
            f"at best: a target call then yields {tokens} "
            "tokens instead of 1."
        )
    return lines + _short_gap(run, found, schemes, setting) + _short_trees(run, found, setting)


def _short_gap(run: Run, found: Aggregates, schemes: tuple[Scheme, ...], setting: int) -> list[str]:
    k, mean, upper = first_k(run), found.lower[setting].value, found.upper[setting].value
    found_optima = [
        (i, s) for s in schemes if s.kind == "optimum" for i in s.columns if run.schemes[i].k == k
    ]
    if not found_optima:
        return []
    optimum, family = found_optima[0]
    rivals = [
        (i, s)
        for s in schemes
        for i in s.columns
        if s.kind == "verifier"
        and run.schemes[i].k == k
        and run.schemes[i].optimum == run.schemes[optimum].name
    ]
    if not rivals:
        return []
    i, scheme = max(rivals, key=lambda rival: float(mean[rival[0]]))
    gap = value_or_range(
        100 * found.gap_low[setting].value[i], 100 * found.gap_high[setting].value[i], 1
    )
    law, best = (
        LAWS.get(family.law, printable(family.law)),
        value_or_range(mean[optimum], upper[optimum], 3),
    )
    left_open = (
        " (certified range; what was not recorded leaves it open)" if run.is_interval else ""
    )
    points = f"{gap} points more{left_open} than"
    told = f"With k = {k} {law} drafts the optimum is {best}"
    accepted = value_or_range(mean[i], upper[i], 3)
    reached = f"{printable(scheme.name)}, the best other verifier ({accepted})"
    if family.usable:
        return [f"{told}; {ATTAINED[family.law]}() attains it: {points} {reached}."]
    return [f"{told}, {points} {reached.replace(' other', '')}."]


def _short_trees(run: Run, found: Aggregates, setting: int) -> list[str]:
    """Say what a call yields that drafts a tree, and which one to draft, if the run has them."""
    means = {one.name: found.statistics[setting].at(i) for i, one in enumerate(run.statistics)}
    lines = []
    for size in tree_nodes(means):
        noise, likeliest, sequences, scale = (means[name] for name, *_ in tree_statistics([size]))
        if np.isfinite(noise.value):
            better = noise.value > likeliest.value
            times = f", scale {scale.value:.2g}" if better else ""
            plan = "trees on shared noise" if better else "the likeliest tree"
            lines.append(
                f"With {size} drafted tokens a call yields {noise.words()} tokens by a tree on "
                f"shared noise, {likeliest.words()} by the likeliest tree, and, where draft "
                f"probabilities are kept, {sequences.words()} by refined scores. Of those that "
                f"only match: {plan}, {size} nodes{times}."
            )
    return lines


def best_draft_temperature(run: Run, found: Aggregates, schemes: tuple[Scheme, ...]) -> str:
    """Say which draft temperature accepts most by setting, nothing where one was measured."""
    k = first_k(run)
    wanted = [
        (i, s)
        for s in schemes
        if s.kind in ("optimum", "verifier")
        for i in s.columns
        if run.schemes[i].k == k
    ]
    settings = [dict(zip(run.setting_columns, one, strict=True)) for one in found.strata.settings]
    if not wanted or len({one.get("draft_temperature") for one in settings}) < 2:
        return ""
    column, scheme = wanted[0]
    groups: dict[str, list[tuple[float, float]]] = {}
    for means, setting in zip(found.lower, settings, strict=True):
        drafted = setting.pop("draft_temperature")
        others = ", ".join(setting_text(name, value) for name, value in setting.items())
        groups.setdefault(others, []).append((float(means.value[column]), drafted))
    parts = []
    for others, candidates in groups.items():
        accepted, temperature = max(candidates)
        parts.append(f"{temperature:g} at {others} (acceptance {accepted:.3f})")
    return (
        f"Best draft temperature of those measured, by {printable(scheme.label)} at k = {k}: "
        + "; ".join(parts[:12])
        + "."
    )
