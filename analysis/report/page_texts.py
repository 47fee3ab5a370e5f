"""What the page's template and the Markdown summary show as text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..run.ranks import by_rank
from ..run.trees import scheme_trees
from . import explanations
from .aggregate import Aggregates
from .answer import Answer
from .decode_results import DecodeRow, DecodeRun
from .findings import all_ks, best_draft_temperature, first_k, short
from .loss_parts import is_loss, likeliest_of, parts_of
from .reading import Run, read_prompts
from .summary import Scheme, schemes_of, setting_labels
from .text import printable

_LISTED_PROMPTS = 5
_LONGEST_VALUE = 400


def view(run: Run, found: Aggregates, decode: DecodeRun | None, answer: Answer) -> dict[str, Any]:
    """Return the text of a report, plain strings throughout; whoever writes it escapes it."""
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
        "decode": []
        if decode is None
        else [_decode_row(row) for row in decode.predicted(run, found)],
        "decode_setting": None if decode is None else decode.setting(run, found),
        "prediction": explanations.PREDICTION,
        "decode_notes": []
        if decode is None
        else [printable(note) for note in decode.notes(run, found)],
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
    """Return a model's name, of a path its end, of a recorded trace that in its metadata."""
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
    """Return the hardest and the easiest prompts of each setting with what is known of them."""
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


def _decode_row(row: DecodeRow) -> dict[str, str]:
    return {
        "decoder": printable(row.decoder),
        "predicted": "–" if row.predicted is None else f"{row.predicted:.3f}",
        "measured": f"{row.measured.value:.3f}",
        "interval": row.measured.ends(3) or "–",
        "target_calls": f"{row.target_calls:,}",
        "prompts": f"{row.prompts:,}",
    }


def _lost(run: Run, found: Aggregates, setting: int) -> dict[str, Any]:
    """Return as text what first drafts are lost to and what a clairvoyant drafter would win."""
    likeliest = [
        (f"{k}", f"{own:.4f}", f"{best:.4f}") for k, own, best in likeliest_of(run, found, setting)
    ]
    return {"parts": [part.row for part in parts_of(run, found, setting)], "likeliest": likeliest}


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
    """Say at which share of positions a quantity is infinite, and at which it could be."""
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
