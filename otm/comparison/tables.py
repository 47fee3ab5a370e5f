"""The tables of a comparison: a matrix of verifiers by k, lossy schemes with their distances, or
every figure of every row.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from otm.comparison.rows import CONFIDENCE, SAME, ComparisonRow, distinct
from otm.drafts import Law
from otm.tabular import Approximate, Table, shortened
from otm.verifiers import VERIFIERS, Verifier

_LONGEST_NAME = 50
_LONGEST_BESIDE_ALL = 45
_ROUNDING = 1e-12

_LOSSY_NOTE = "frontier: min(1, optimum + TV), which no scheme of this TV exceeds."
_SAMPLED_NOTE = (
    "≈: by Monte Carlo, where no exact value was computed; full=True shows the intervals."
)


def sorted_out(
    rows: Sequence[ComparisonRow],
) -> list[tuple[type[Law], list[ComparisonRow], list[ComparisonRow]]]:
    """Return, by law, the rows of schemes that keep the target's law, as promised or as found, and
    of those that do not.
    """
    found = []
    for law in distinct(type(row.law) for row in rows):
        here = [row for row in rows if type(row.law) is law]
        lossy = [
            row.verifier
            for row in here
            if not row.verifier.lossless and not _harmless(row.verifier, here)
        ]
        found.append(
            (
                law,
                [row for row in here if row.verifier not in lossy],
                [row for row in here if row.verifier in lossy],
            )
        )
    return found


def matrix(law: type[Law], rows: Sequence[ComparisonRow], *, folded: bool) -> Table:
    """Return verifiers by k in descending order, the best of each k marked, below the optimum and
    the gap of the best.
    """
    ks = sorted({row.law.k for row in rows})
    optimum = {row.law.k: row.optimum for row in rows}
    verifiers = distinct(row.verifier for row in rows)
    cells = [{row.law.k: row for row in rows if row.verifier == verifier} for verifier in verifiers]
    top = {k: _top([row[k] for row in cells if k in row]) for k in ks}

    def rank(i: int) -> tuple[list[int], bool]:
        """Of schemes that accept alike, one that is called optimal stands for the others."""
        values = [-round(_nan_last(cells[i].get(k)) / SAME) for k in reversed(ks)]
        return values, not verifiers[i].title.startswith("optimal")

    order = sorted(range(len(verifiers)), key=rank)
    body: list[tuple[object, ...]] = [
        ("optimum", *(optimum[k] for k in ks)),
        ("gap of the best", *(_gap(optimum[k], top[k]) for k in ks)),
    ]
    best: set[tuple[int, int]] = set()
    above: list[int] = []
    same: dict[int, list[str]] = {}
    for i in order:
        like = next((j for j in above if folded and _agrees(cells[i], cells[j])), None)
        if like is not None:
            only = (
                ""
                if cells[i].keys() == cells[like].keys()
                else f" (k = {', '.join(map(str, sorted(cells[i])))})"
            )
            same.setdefault(like, []).append(str(verifiers[i]) + only)
            continue
        above.append(i)
        best |= {
            (len(body), at) for at, k in enumerate(ks, start=1) if _attains(cells[i].get(k), top[k])
        }
        name = str(verifiers[i]) + ("" if verifiers[i].lossless else ", lossless here")
        body.append((name, *(value_of(cells[i][k]) if k in cells[i] else "" for k in ks)))
    notes = tuple(f"{verifiers[j]} = {' = '.join(names)}" for j, names in same.items())
    head = (f"drafts: {law.title}", *(f"k = {k}" for k in ks))
    return Table(
        columns=head,
        rows=tuple(body),
        best=frozenset(best),
        ruled=frozenset({1}),
        notes=notes,
        longest=_LONGEST_NAME,
    )


def lossy_table(law: type[Law], rows: Sequence[ComparisonRow]) -> Table:
    """Return lossy schemes, one row each, with their distances to the target and the frontier
    there.
    """
    body = [
        (
            str(row.verifier),
            row.law.k,
            value_of(row),
            row.distortion and row.frontier,
            *_distances(row),
        )
        for row in rows
    ]
    head = (f"lossy, drafts: {law.title}", "k", "acceptance", "frontier", "TV", "KL (nats)")
    return Table(columns=head, rows=tuple(body), longest=_LONGEST_NAME)


def full_table(law: type[Law], rows: Sequence[ComparisonRow], *, lossy: bool) -> Table:
    """Return every figure of every row, ruled where the number of drafts changes."""
    body = []
    for row in rows:
        interval = (
            ""
            if row.monte_carlo is None
            else f"{row.monte_carlo.low:.4f}–{row.monte_carlo.high:.4f}"
        )
        figures: tuple[object, ...] = (
            row.optimum,
            _gap(row.optimum, row.exact),
            "" if row.lower is None else row.lower,
        )
        if lossy:
            figures = (row.distortion and row.frontier, *map(_short, _distances(row)))
        body.append((row.law.k, str(row.verifier), value_of(row), *figures, interval))
    columns = ("frontier", "TV", "KL") if lossy else ("optimum", "gap", "proven ≥")
    ends = frozenset(
        i for i, (one, other) in enumerate(itertools.pairwise(body)) if one[0] != other[0]
    )
    head = (
        "k",
        f"{'lossy, ' * lossy}drafts: {law.title}",
        "accepted",
        *columns,
        f"{CONFIDENCE:.1%} MC".replace("%", " %"),
    )
    return Table(columns=head, rows=tuple(body), ruled=ends, longest=_LONGEST_BESIDE_ALL)


def notes(rows: Sequence[ComparisonRow], *, full: bool) -> list[str]:
    """Return what is said below all tables of the rows."""
    lossy = any(lossy for _, _, lossy in sorted_out(rows))
    sampled = any(row.exact is None and row.monte_carlo is not None for row in rows)
    said = [_LOSSY_NOTE] * lossy + [_SAMPLED_NOTE] * (sampled and not full)
    return said + _merged_notes(rows) + _falling_notes(rows)


def short_name(verifier: Verifier) -> str:
    """Return a verifier's display name, cut where it is too long for a row."""
    return shortened(str(verifier), _LONGEST_NAME)


def value_of(row: ComparisonRow) -> float | Approximate | None:
    """Return a row's acceptance: exact where it is known, else by samples."""
    if row.exact is None and row.monte_carlo is not None:
        return Approximate(row.monte_carlo.value)
    return row.exact


def nan_for_none(value: float | None) -> float:
    """Return a number to draw."""
    return float("nan") if value is None else value


def _merged_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return one line per scheme and reason, with the numbers of drafts that it concerns."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row.note:
            found.setdefault((str(row.verifier), row.law.title, row.note), []).append(
                str(row.law.k)
            )
    return [
        f"— {verifier}, {law}, k = {', '.join(ks)}: {note}"
        for (verifier, law, note), ks in found.items()
    ]


def _falling_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return a line for each scheme that accepts less of more drafts, with the parameters that may
    be why.
    """
    found = []
    for verifier, law in distinct((row.verifier, type(row.law)) for row in rows):
        here = [row for row in rows if row.verifier == verifier and type(row.law) is law]
        values = {row.law.k: row.exact for row in here if row.exact is not None}
        for fewer, more in itertools.pairwise(sorted(values)):
            if values[more] < values[fewer] - SAME:
                limits = " and ".join(
                    f"{name} = {getattr(verifier, name)}" for name in verifier.telling
                )
                why = f": {limits} may be why, the optimum never falls" if limits else ""
                found.append(
                    f"— {verifier}, {law.title}: accepts less of {more} drafts than of "
                    f"{fewer}{why}."
                )
                break
    return found


def _harmless(verifier: Verifier, rows: Sequence[ComparisonRow]) -> bool:
    """Whether a verifier that promises nothing was found to keep the target's law, wherever that
    was found out.
    """
    if isinstance(verifier, VERIFIERS):  # lossy by what it is, if not on this pair
        return False
    known = [
        row.distortion.total_variation
        for row in rows
        if row.verifier == verifier and row.distortion is not None
    ]
    return bool(known) and max(known) <= SAME


def _top(rows: Sequence[ComparisonRow]) -> float | Approximate | None:
    """Return the largest acceptance, approximate where a sampled one may be larger than all that
    are exact.
    """
    exact = max((row.exact for row in rows if row.exact is not None), default=-1.0)
    sampled = [row.monte_carlo for row in rows if row.exact is None and row.monte_carlo is not None]
    if any(interval.high > exact for interval in sampled):
        return Approximate(max(exact, *(interval.value for interval in sampled)))
    return None if exact < 0 else exact


def _gap(optimum: float | None, accepted: float | Approximate | None) -> float | Approximate | None:
    if optimum is None or accepted is None:
        return None
    if isinstance(accepted, Approximate):
        return Approximate(max(0.0, optimum - accepted.value))
    return 0.0 if optimum - accepted < _ROUNDING else optimum - accepted


def _attains(row: ComparisonRow | None, top: float | Approximate | None) -> bool:
    """Whether a row has the largest acceptance of all, for certain."""
    if row is None or row.exact is None or top is None or isinstance(top, Approximate):
        return False
    return row.exact >= top - SAME


def _agrees(some: Mapping[int, ComparisonRow], others: Mapping[int, ComparisonRow]) -> bool:
    """Whether a verifier accepts as much as another, wherever it has a value at all."""
    if not some.keys() <= others.keys():
        return False
    pairs = [(row.exact, others[k].exact) for k, row in some.items()]
    return all(a is not None and b is not None and abs(a - b) <= SAME for a, b in pairs)


def _nan_last(row: ComparisonRow | None) -> float:
    value = None if row is None else value_of(row)
    return -1.0 if value is None else float(value)


def _distances(row: ComparisonRow) -> tuple[float | None, float | None]:
    return (
        (None, None)
        if row.distortion is None
        else (row.distortion.total_variation, row.distortion.kl)
    )


def _short(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}" if np.isfinite(value) else "∞"
