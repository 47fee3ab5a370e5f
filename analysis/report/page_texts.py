"""The texts of the page's template and of the Markdown summary."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..models.processing import setting_text
from ..run.ranks import by_rank
from ..run.tree_names import tree_nodes, tree_statistics
from ..run.trees import scheme_trees
from . import explanations
from .aggregate import Aggregates
from .answer import Answer, slider_stops
from .reading import Run, read_prompts
from .summary import (
    ATTAINED,
    LAWS,
    Scheme,
    is_loss,
    likeliest_of,
    loss_shares,
    schemes_of,
    setting_labels,
)
from .text import printable, value_or_range

_LISTED_PROMPTS = 5
_LONGEST_VALUE = 400


def view(run: Run, found: Aggregates, answer: Answer) -> dict[str, Any]:
    """Return the texts of a report as plain strings, which the writer escapes."""
    schemes = schemes_of(run)
    labels = setting_labels(run, found)
    return {
        "title": f"{model_name(run, 'draft')} drafting for {model_name(run, 'target')}",
        "intro": _intro(run, found),
        "warnings": [
            printable(line) for line in [*explanations.warnings(run, found), *answer.warnings]
        ],
        "card": answer.cards[answer.first],
        "cards": list(zip(labels, answer.cards, strict=True)),
        "setting_words": explanations.setting_words(
            labels[answer.first], len(labels), advised=answer.advised is not None
        ),
        "budget": answer.budget,
        "stops": slider_stops(answer),
        "advised": answer.advised,
        "measured_costs": answer.costs is not None,
        "short": [short(run, found, schemes, s) for s in range(len(labels))],
        "settings": labels,
        "first": answer.first,
        "ks": all_ks(run),
        "first_k": first_k(run),
        "interval_words": explanations.interval_words(run, found),
        "band_words": explanations.band_words(run, found),
        "has_entropy": any(len(binned.centre) for binned in found.by_entropy),
        "prompts": _prompts(run, found),
        "best_draft_temperature": best_draft_temperature(run, found, schemes),
        "lost_words": explanations.LOST,
        "likeliest_words": explanations.LIKELIEST,
        "lost": [_lost(run, found, s) for s in range(len(labels))],
        "trees_words": explanations.TREES,
        "trees_head": explanations.TREES_HEAD,
        "trees": [_trees(run, found, s) for s in range(len(labels))],
        "tables": [_table(run, found, schemes, s) for s in range(len(labels))],
        "terms": [(printable(term), printable(text)) for term, text in explanations.terms(schemes)],
        "method": [printable(line) for line in explanations.method(run, found)],
        "provenance": provenance(run),
    }


def model_name(run: Run, side: str) -> str:
    """Return a model's name: the end of a path, or the name in a recorded trace."""
    recorded = (run.trace or {}).get(f"{side}_model")
    name = str(run.section("settings").get(side) or recorded or f"unnamed {side}")
    return printable("/".join(name.replace("\\", "/").rstrip("/").split("/")[-2:]))[:120]


def provenance(run: Run) -> list[tuple[str, str]]:
    """Return settings and provenance of the manifest as (dotted name, value)."""
    rows: list[tuple[str, str]] = []
    for part in ("settings", "provenance", "plan"):
        _flatten(rows, part, run.section(part))
    return rows


def _flatten(rows: list[tuple[str, str]], name: str, value: Any) -> None:
    if isinstance(value, dict) and name.count(".") < 3:
        for key, item in value.items():
            _flatten(rows, f"{name}.{key}", item)
        return
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    rows.append(
        (
            printable(name),
            printable(text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + " …"),
        )
    )


def _intro(run: Run, found: Aggregates) -> str:
    settings, prompts = len(found.strata.settings), found.strata.num_prompts
    vocabulary = run.section("provenance").get("num_tokens")
    size = f", vocabulary of {vocabulary:,} tokens" if isinstance(vocabulary, int) else ""
    return (
        f"{run.num_rows:,} rows: positions of {prompts:,} prompt{'s' * (prompts != 1)} at "
        f"{settings} sampling "
        f"setting{'s' * (settings != 1)}{size}."
    )


def _prompts(run: Run, found: Aggregates) -> list[list[dict[str, Any]]]:
    """List the hardest and the easiest prompts of each setting with overlap, name and text."""
    if found.prompts is None or len(found.prompts[0][0]) < 2:
        return []
    chosen = []
    for numbers, means in found.prompts:
        count = min(_LISTED_PROMPTS, len(numbers) // 2)
        places = [*range(count), *range(len(numbers) - count, len(numbers))]
        chosen.append(
            [(int(numbers[i]), float(means[i]), n == count) for n, i in enumerate(places)]
        )
    texts = read_prompts(run, sorted({number for rows in chosen for number, _, _ in rows}))
    shown_rows = []
    # Texts are read once for all settings, since most settings list the same prompts.
    for rows in chosen:
        told = [(*texts.get(number, ("", "")), number, mean, gap) for number, mean, gap in rows]
        shown_rows.append(
            [
                {
                    "overlap": f"{mean:.3f}",
                    "name": printable(name or f"prompt {number}"),
                    "text": printable(text.strip()),
                    "gap": gap,
                }
                for name, text, number, mean, gap in told
            ]
        )
    return shown_rows


def _lost(run: Run, found: Aggregates, setting: int) -> dict[str, Any]:
    """Return the losses of first drafts and the gain of a clairvoyant drafter, as text."""
    likeliest = [
        (f"{k}", f"{own:.4f}", f"{best:.4f}") for k, own, best in likeliest_of(run, found, setting)
    ]
    return {
        "parts": [part.row for part in loss_shares(run, found, setting)],
        "likeliest": likeliest,
    }


def _trees(run: Run, found: Aggregates, setting: int) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return (scheme, rows) of the best scheme's optimal trees and bounds, if asked for."""
    if not run.section("settings").get("bounds") or run.is_interval:
        return []
    place = {column.name: i for i, column in enumerate(run.schemes)}
    families = by_rank(run.schemes)
    columns = [place[column.name] for family in families for column in family]
    means, covariance = found.lower[setting].value, found.covariance[setting]
    schemes = scheme_trees(
        families, means[columns], covariance[np.ix_(columns, columns)], found.num_clusters
    )
    return [
        (
            f"{printable(best.label)}, at most {best.ks[-1]} children a vertex",
            [
                (f"{row.nodes}", f"{row.depth}", row.tokens.words(3), row.upper.words(3))
                for row in best.rows
            ],
        )
        for best in schemes[:1]
    ]


def _table(
    run: Run, found: Aggregates, schemes: tuple[Scheme, ...], setting: int
) -> dict[str, Any]:
    ks = all_ks(run)
    cells = []
    for scheme in schemes:
        place = {run.schemes[i].k: i for i in scheme.columns}
        cells.append(
            [printable(scheme.label), *(_cell(run, found, setting, place.get(k)) for k in ks)]
        )
    return {
        "rows": f"{found.strata.rows[setting]:,}",
        "cells": cells,
        "statistics": _statistics(run, found, setting),
    }


def _cell(run: Run, found: Aggregates, setting: int, column: int | None) -> tuple[str, str]:
    if column is None or not np.isfinite(found.lower[setting].value[column]):
        return ("", "")
    lower, upper = found.lower[setting], found.upper[setting]
    if run.schemes[column].is_interval:
        ends = (
            f"{lower.low[column]:.4f} to {upper.high[column]:.4f}"
            if np.isfinite(lower.low[column])
            else ""
        )
        return (f"[{lower.value[column]:.4f}, {upper.value[column]:.4f}]", ends)
    return (f"{lower.value[column]:.4f}", lower.at(column).ends())


def _statistics(run: Run, found: Aggregates, setting: int) -> list[tuple[str, str, str, str]]:
    """Return (quantity, mean, interval, remark) of the statistics."""
    means, infinite, count = found.statistics[setting], found.infinite[setting], len(run.statistics)
    rows = []
    # A mean over finite values alone would mislead, so each row says how many were left out.
    for i, column in enumerate(run.statistics):
        if is_loss(column.name):
            continue
        # infinite; without an upper bound
        never, unbounded = (
            float(infinite[i]),
            float(infinite[count + i] - infinite[i]),
        )
        high = np.inf if unbounded > 0 else means.high[count + i]
        value = _number(means.value[i])
        if column.is_interval:
            value = f"[{value}, {_number(np.inf if unbounded > 0 else means.value[count + i])}]"
        interval = (
            f"{_number(means.low[i])} to {_number(high)}" if np.isfinite(means.low[i]) else ""
        )
        label = printable(f"{column.label} ({column.unit})" if column.unit else column.label)
        rows.append((label, value, interval, _infinite_words(never, unbounded)))
    return rows


def _number(value: float) -> str:
    return "∞" if np.isposinf(value) else f"{value:.4f}" if np.isfinite(value) else "–"


def _infinite_words(never: float, unbounded: float) -> str:
    """Describe the shares of positions at which a quantity is infinite or unbounded."""
    told = []
    if never > 0:
        told.append(f"infinite at {100 * never:.1f} % of positions, left out of the mean")
    if unbounded > 0:
        where = "" if unbounded == 1 else f" at {100 * unbounded:.1f} % of positions"
        told.append(
            f"no upper bound{where}: a token that was not listed could have probability 0 in one "
            "model"
        )
    return "; ".join(told)


def all_ks(run: Run) -> list[int]:
    """Return every number of drafts that some scheme was measured at."""
    return sorted({column.k for column in run.schemes})


def first_k(run: Run) -> int:
    """Return the number of drafts that is shown first: the largest up to 4."""
    return max((k for k in all_ks(run) if k <= 4), default=all_ks(run)[0])


def short(run: Run, found: Aggregates, schemes: tuple[Scheme, ...], setting: int) -> list[str]:
    """List the main findings on acceptance at a setting."""
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
    """List the tokens per call of drafted trees with the better tree, if the run has trees."""
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
    """Name the draft temperature of highest acceptance by setting; empty if there is only one."""
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
