"""What the page's template and the Markdown summary show as text."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from ..statistics import Means
from . import words
from .aggregate import Aggregates, first_setting
from .cost import Costs, speed_up, tokens_per_call
from .decoded import DecodeRow, DecodeRun
from .reading import Run, read_prompts
from .summary import ATTAINED, HISTOGRAM_BINS, Scheme, schemes_of, setting_label, varied

KINDS = (
    ("optimum", "optima"),
    ("verifier", "lossless verifiers"),
    ("lossy", "lossy schemes"),
    ("bound", "proven lower bounds"),
)
COSTS = Costs()

NEAR = 0.01
"""Options within one per cent of the best are named beside it; the page does the same."""

_LEVELS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight"}
_LISTED_PROMPTS = 5
_LONGEST_VALUE = 400


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


def view(run: Run, found: Aggregates, decode: DecodeRun | None) -> dict[str, Any]:
    """Return the text of a report, plain strings throughout; whoever writes it escapes it."""
    schemes = schemes_of(run)
    first = first_setting(found.survey.settings)
    labels = [shown(setting_label(dict(zip(run.setting_columns, v, strict=True)), run)) for v in found.survey.settings]
    names = varied(run, found)
    return {
        "title": f"{model_name(run, 'draft')} drafting for {model_name(run, 'target')}",
        "intro": _intro(run, found),
        "warnings": [shown(line) for line in words.warnings(run, found)],
        "short": _short(run, found, schemes, first, labels[first]),
        "settings": labels,
        "first": first,
        "ks": all_ks(run),
        "first_k": first_k(run),
        "kinds": [kind for kind in KINDS if any(scheme.kind == kind[0] for scheme in schemes)],
        "schemes": [{"index": i, "label": shown(s.label), "kind": s.kind} for i, s in enumerate(schemes)],
        "attained": ", ".join(f"{ATTAINED[s.law]} ({words.LAWS[s.law]})" for s in schemes if s.usable and s.kind == "optimum"),
        "costs": dataclasses.asdict(COSTS),
        "interval_words": words.interval_words(run, found),
        "band_words": words.band_words(run, found),
        "has_gap": any(s.optimum is not None and s.kind == "verifier" for s in schemes),
        "has_entropy": any(len(binned.centre) for binned in found.by_entropy),
        "histogram_bins": HISTOGRAM_BINS,
        "prompts": _prompts(run, found),
        "varied": [(name.replace("_", "-"), name.replace("_", " ").replace("top p", "top-p")) for name in names],
        "best_draft_temperature": _best_draft_temperature(run, found, schemes) if "draft_temperature" in names else "",
        "decode": [] if decode is None else [_decode_row(row) for row in decode.predicted(run, found)],
        "prediction": words.PREDICTION,
        "decode_notes": [] if decode is None else [shown(note) for note in decode.notes(run, found)],
        "tables": [_table(run, found, schemes, s) for s in range(len(labels))],
        "fastest": _fastest(run, found, labels),
        "terms": [(shown(term), shown(text)) for term, text in words.terms(schemes)],
        "method": [shown(line) for line in words.method(run, found)],
        "provenance": provenance(run),
    }


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
    tokens = ends(*(tokens_per_call(a, costs.levels) for a in (best.acceptance, best.acceptance_upper)), 2)
    fastest = "is the fastest verifier measured" if most == best.speed else "has the largest certified speed-up"
    return (
        f"{shown(best.scheme.label)} with k = {best.k} {fastest}: {ends(best.speed, best.speed_upper, 2, '×')} plain decoding, "
        f"{tokens} tokens per target call"
    )


def ends(low: float, high: float, digits: int, unit: str = "") -> str:
    """Return a value, or both ends of an interval.

    >>> ends(1.5, 1.5, 2, "×"), ends(1.0, 1.98, 2)
    ('1.50×', '1.00 to 1.98')
    """
    first, last = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return f"{first}{unit}" if first == last else f"{first} to {last}{unit}"


def all_ks(run: Run) -> list[int]:
    """Return every number of drafts that some scheme was measured at."""
    return sorted({column.k for column in run.schemes})


def first_k(run: Run) -> int:
    """Return the number of drafts that is shown first: the largest up to 4, where schemes differ and engines are."""
    return max((k for k in all_ks(run) if k <= 4), default=all_ks(run)[0])


def shown(text: str) -> str:
    """Return text without control and direction characters, which could make it read as something else."""
    return "".join(c if c.isprintable() else {"\n": " ⏎ ", "\t": " "}.get(c, "�") for c in text)


def model_name(run: Run, side: str) -> str:
    """Return a model's name, of a path only its end; of a recorded trace, the name in its metadata."""
    recorded = (run.trace or {}).get(f"{side}_model")
    name = str(run.section("settings").get(side) or recorded or f"unnamed {side}")
    return shown("/".join(name.replace("\\", "/").rstrip("/").split("/")[-2:]))[:120]


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
    rows.append((shown(name), shown(text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + " …")))


def _intro(run: Run, found: Aggregates) -> str:
    settings, prompts = len(found.survey.settings), found.survey.num_prompts
    vocabulary = run.section("provenance").get("num_tokens")
    size = f", vocabulary of {vocabulary:,} tokens" if isinstance(vocabulary, int) else ""
    return (
        f"{run.num_rows:,} rows: positions of {prompts:,} prompt{'s' * (prompts != 1)} at {settings} sampling "
        f"setting{'s' * (settings != 1)}{size}."
    )


def interval_text(means: Means, column: int, digits: int = 4) -> str:
    """Return an interval as text, empty where there is none."""
    low, high = means.low[column], means.high[column]
    return f"{low:.{digits}f} to {high:.{digits}f}" if np.isfinite(low) and np.isfinite(high) else ""


def _short(run: Run, found: Aggregates, schemes: tuple[Scheme, ...], setting: int, label: str) -> list[str]:
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
    law, best = words.LAWS.get(family.law, shown(family.law)), ends(mean[optimum], upper[optimum], 3)
    left_open = " (certified range; what was not recorded leaves it open)" if run.is_interval else ""
    points = f"{gap} points more{left_open} than"
    told = f"With k = {k} {law} drafts the optimum is {best}"
    reached = f"{shown(scheme.name)}, the best other verifier ({ends(mean[i], upper[i], 3)})"
    if family.usable:
        return [f"{told}; {ATTAINED[family.law]}() attains it: {points} {reached}."]
    return [f"{told}, {points} {reached.replace(' other', '')}."]


def _fastest(run: Run, found: Aggregates, labels: list[str]) -> list[tuple[str, ...]]:
    """Return the fastest verifier of every setting at the default costs; one setting needs no table."""
    rows = []
    for s, label in enumerate(labels if len(labels) > 1 else []):
        for best in choices(run, found, s, COSTS)[:1]:
            tokens = [tokens_per_call(a, COSTS.levels) for a in (best.acceptance, best.acceptance_upper)]
            cells = (
                ends(best.acceptance, best.acceptance_upper, 4),
                ends(*tokens, 3),
                ends(best.speed, best.speed_upper, 3, "×"),
            )
            rows.append((label, shown(best.scheme.label), str(best.k), *cells))
    return rows


def _column(run: Run, scheme: Scheme, k: int) -> int:
    return next(i for i in scheme.columns if run.schemes[i].k == k)


def _best_draft_temperature(run: Run, found: Aggregates, schemes: tuple[Scheme, ...]) -> str:
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


def _prompts(run: Run, found: Aggregates) -> list[dict[str, Any]]:
    """Return the hardest and the easiest prompts with what is known of them."""
    if found.prompts is None or len(found.prompts[0]) < 2:
        return []
    numbers, means = found.prompts
    count = min(_LISTED_PROMPTS, len(numbers) // 2)
    chosen = [*range(count), *range(len(numbers) - count, len(numbers))]
    texts = read_prompts(run, [int(numbers[i]) for i in chosen])
    rows = []
    for n, i in enumerate(chosen):
        name, text = texts.get(int(numbers[i]), ("", ""))
        name = name or f"prompt {numbers[i]}"
        rows.append({"overlap": f"{means[i]:.3f}", "name": shown(name), "text": shown(text.strip()), "gap": n == count})
    return rows


def _decode_row(row: DecodeRow) -> dict[str, str]:
    known = row.measured_low is not None
    return {
        "decoder": shown(row.decoder),
        "predicted": "–" if row.predicted is None else f"{row.predicted:.3f}",
        "measured": f"{row.measured:.3f}",
        "interval": f"{row.measured_low:.3f} to {row.measured_high:.3f}" if known else "–",
        "target_calls": f"{row.target_calls:,}",
        "prompts": f"{row.prompts:,}",
    }


def _table(run: Run, found: Aggregates, schemes: tuple[Scheme, ...], setting: int) -> dict[str, Any]:
    ks = all_ks(run)
    cells = []
    for scheme in schemes:
        place = {run.schemes[i].k: i for i in scheme.columns}
        cells.append([shown(scheme.label), *(_cell(run, found, setting, place.get(k)) for k in ks)])
    return {"rows": f"{found.survey.rows[setting]:,}", "cells": cells, "statistics": _statistics(run, found, setting)}


def _cell(run: Run, found: Aggregates, setting: int, column: int | None) -> tuple[str, str]:
    if column is None or not np.isfinite(found.lower[setting].mean[column]):
        return ("", "")
    lower, upper = found.lower[setting], found.upper[setting]
    if run.schemes[column].is_interval:
        ends = f"{lower.low[column]:.4f} to {upper.high[column]:.4f}" if np.isfinite(lower.low[column]) else ""
        return (f"[{lower.mean[column]:.4f}, {upper.mean[column]:.4f}]", ends)
    return (f"{lower.mean[column]:.4f}", interval_text(lower, column))


def _statistics(run: Run, found: Aggregates, setting: int) -> list[tuple[str, str, str, str]]:
    """Return (quantity, mean, interval, remark) of the statistics; an interval runs from the lower end's to the upper end's."""
    means, infinite, count = found.statistics[setting], found.infinite[setting], len(run.statistics)
    rows = []
    for i, column in enumerate(run.statistics):
        never, unbounded = float(infinite[i]), float(infinite[count + i] - infinite[i])  # infinite; without an upper bound
        high = np.inf if unbounded > 0 else means.high[count + i]
        value = _number(means.mean[i])
        if column.is_interval:
            value = f"[{value}, {_number(np.inf if unbounded > 0 else means.mean[count + i])}]"
        interval = f"{_number(means.low[i])} to {_number(high)}" if np.isfinite(means.low[i]) else ""
        label = shown(f"{column.label} ({column.unit})" if column.unit else column.label)
        rows.append((label, value, interval, _infinite_words(never, unbounded)))
    return rows


def _number(value: float) -> str:
    return "∞" if np.isposinf(value) else f"{value:.4f}" if np.isfinite(value) else "–"


def _infinite_words(never: float, unbounded: float) -> str:
    """Say at which share of positions a quantity is infinite, and at which it could be."""
    told = []
    if never > 0:
        told.append(f"infinite at {100 * never:.1f} % of positions, left out of the mean")
    if unbounded > 0:
        where = "" if unbounded == 1 else f" at {100 * unbounded:.1f} % of positions"
        told.append(f"no upper bound{where}: a token that was not listed could have probability 0 in one model")
    return "; ".join(told)
