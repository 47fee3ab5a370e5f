"""The result of a comparison: rows of numbers, shown as tables, records and a picture."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from otm._display import drawing
from otm._display.tabular import Approximate, Table, Tabular, shortened, wrapped
from otm.drafts import Law
from otm.lossy.output import Distortion
from otm.results.statistics import Estimate
from otm.verifiers import VERIFIERS, Verifier

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAME = 1e-9
"""Difference below which two acceptances are equal, and total variation below which an output law
is the target: the accuracy of the races' quadrature.
"""

CONFIDENCE = 0.999
"""Confidence of each Monte Carlo interval: one interval misses in ten tables of a hundred rows."""

_ROUNDING = 1e-12  # a gap below it is shown as none
_LONGEST_NAME = 50
_LONGEST_BESIDE_ALL = 45
_LONGEST_LABEL = 28

_LOSSY_NOTE = "frontier: min(1, optimum + TV), which no scheme of this TV exceeds."
_SAMPLED_NOTE = (
    "≈: by Monte Carlo, where no exact value was computed; full=True shows the intervals."
)

_Thing = TypeVar("_Thing")


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One scheme at one number of drafts.

    Attributes:
        law, verifier: the scheme.
        exact: acceptance by membership, None where it cannot be computed (see `note`).
        lower: proven lower bound on this scheme's acceptance, None where there is none.
        optimum: the law's optimal acceptance, None where it cannot be computed.
        monte_carlo: estimate from the sampler, None if no samples were asked for.
        note: why a cell is empty.
        distortion: distances of the output law to the target for a lossy verifier, None for a
            lossless one.
    """

    law: Law
    verifier: Verifier
    exact: float | None
    lower: float | None
    optimum: float | None
    monte_carlo: Estimate | None
    note: str = ""
    distortion: Distortion | None = None

    @property
    def value(self) -> float | Approximate | None:
        """The acceptance: exact where known, else the mean of samples.

        Of a lossless scheme no sampled value is above the optimum.
        """
        if self.exact is not None or self.monte_carlo is None:
            return self.exact
        most = self.optimum if self.verifier.lossless and self.optimum is not None else 1.0
        return Approximate(min(self.monte_carlo.value, most))

    @property
    def proves_loss(self) -> bool:
        """True if the row accepts more than any lossless scheme can, by samples for certain."""
        if self.optimum is None:
            return False
        least = -1.0 if self.monte_carlo is None else self.monte_carlo.low
        return max(least, -1.0 if self.exact is None else self.exact) > self.optimum + SAME

    @property
    def distances(self) -> tuple[float | None, float | None]:
        """Total variation and KL (nats) between target and output, None where unknown."""
        if self.distortion is None:
            return None, None
        return self.distortion.total_variation, self.distortion.kl

    @property
    def frontier(self) -> float | None:
        """min(1, optimum + TV), the most that any scheme with this one's TV accepts."""
        if self.optimum is None or self.distortion is None:
            return self.optimum
        return min(1.0, self.optimum + self.distortion.total_variation)

    @property
    def gap(self) -> float | None:
        """The acceptance left below the frontier, `frontier - exact`."""
        if self.frontier is None or self.exact is None:
            return None
        return max(0.0, self.frontier - self.exact)


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Rows of a comparison, which print as a matrix of verifiers by k for each draft law.

    Lossy schemes stand in a table of their own.

    Attributes:
        rows: one for each scheme and number of drafts.
        left_out: what was not compared, and why.
        full: whether it prints every figure of every row.
        folded: whether it prints a verifier that agrees with one above it wherever it has a value
            by name only.
    """

    rows: tuple[ComparisonRow, ...]
    left_out: tuple[str, ...] = ()
    full: bool = False
    folded: bool = False

    def __repr__(self) -> str:
        verifiers = distinct(row.verifier for row in self.rows)
        laws = distinct(type(row.law) for row in self.rows)
        ks = ", ".join(f"{k:g}" for k in distinct(row.law.size for row in self.rows))
        return (
            f"Comparison({len(self.rows)} rows: {len(verifiers)} verifiers, {len(laws)} laws, "
            f"k = {ks})"
        )

    def __str__(self) -> str:
        blocks = [table.text() for table in self._tables()]
        below = [line for note in self._notes() for line in wrapped(note)]
        return "\n\n".join([*blocks, *(["\n".join(below)] if below else [])])

    def tables(self) -> tuple[Table, ...]:
        """Return for each law the matrix of lossless schemes and the table of lossy schemes.

        If `full`, every figure of every row instead. The notes on all of them stand below the last.
        """
        *others, last = self._tables()
        return (*others, dataclasses.replace(last, notes=(*last.notes, *self._notes())))

    def data(self) -> Table:
        """Return the records as a table."""
        records = self.records()
        columns = tuple(records[0]) if records else ("law", "verifier", "k", "exact")
        return Table(columns=columns, rows=tuple(tuple(record.values()) for record in records))

    def records(self) -> list[dict[str, object]]:
        """Return the rows as plain dictionaries for a data frame or JSON.

        Law and verifier are given by their identities (`repr`).
        """
        return [
            {
                "law": repr(row.law),
                "verifier": repr(row.verifier),
                "k": row.law.size,
                "exact": row.exact,
                "lower": row.lower,
                "optimum": row.optimum,
                "frontier": row.frontier,
                "gap": row.gap,
                "total_variation": row.distances[0],
                "kl": row.distances[1],
                "monte_carlo": row.monte_carlo and row.monte_carlo.value,
                "monte_carlo_low": row.monte_carlo and row.monte_carlo.low,
                "monte_carlo_high": row.monte_carlo and row.monte_carlo.high,
                "note": row.note,
            }
            for row in self.rows
        ]

    def _tables(self) -> list[Table]:
        found = []
        for group in _by_law(self.rows):
            if self.full:
                found += [_full_table(group.law, group.kept, lossy=False)] if group.kept else []
                found += [_full_table(group.law, group.lossy, lossy=True)] if group.lossy else []
            else:
                found += [_matrix(group, folded=self.folded)] if group.kept else []
                found += [_lossy_table(group)] if group.lossy else []
        return found

    def _notes(self) -> list[str]:
        groups = _by_law(self.rows)
        said = [_LOSSY_NOTE] if any(group.lossy for group in groups) else []
        if not self.full and any(isinstance(row.value, Approximate) for row in self.rows):
            said.append(_SAMPLED_NOTE)
        loss = [note for group in groups for note in _loss_notes(group)]
        falling = [note for group in groups for note in _falling_notes(group)]
        return [*said, *loss, *_empty_cell_notes(self.rows), *falling, *self.left_out]

    def _draw(self, ax: Axes) -> None:
        """Draw acceptance against k under the first law: the optimum and the best five curves."""
        first, *others = _by_law(self.rows)
        optimum = {row.law.size: row.optimum for row in self.rows if type(row.law) is first.law}
        ks, best = list(optimum), np.array(list(optimum.values()), dtype=float)
        top = drawing.Line("optimum", ks, best, best=True)
        curves = _curves(first.kept, ks)
        if not self.folded:
            curves += _curves(first.lossy, ks, ", lossy")
        curves.sort(key=lambda line: -float(np.nanmean(line.y)))
        if self.folded:  # nobody asked for a scheme of one k, or for one along the optimum
            attaining = [line for line in curves if np.allclose(line.y, best, rtol=0, atol=SAME)]
            if attaining:
                top = dataclasses.replace(top, label="optimum, attained")
            curves = [
                line
                for line in curves
                if line not in attaining and np.isfinite(line.y).sum() > (len(ks) > 1)
            ]
        lines = [top, *curves[: drawing.MOST_LINES - 1]]
        size = _size_name(first.law)
        xlabel = "number of drafts k" if size == "k" else size
        drawing.draw_lines(ax, lines, xlabel=xlabel, ticks=ks)
        beside = f" (the first of {1 + len(others)} laws)" if others else ""
        ax.set_title(f"{first.law.title} drafts{beside}", fontsize=10)


def distinct(things: Iterable[_Thing]) -> list[_Thing]:
    """Return the distinct entries in order; a verifier from outside need not be hashable."""
    found: list[_Thing] = []
    for thing in things:
        if thing not in found:
            found.append(thing)
    return found


class _Group(NamedTuple):
    """The rows of one law: of schemes known to keep the target's law, and of all others."""

    law: type[Law]
    kept: list[ComparisonRow]
    lossy: list[ComparisonRow]


def _by_law(rows: Sequence[ComparisonRow]) -> list[_Group]:
    """Group rows by draft law, and into schemes that are known to be lossless and others."""
    groups = []
    for law in distinct(type(row.law) for row in rows):
        here = [row for row in rows if type(row.law) is law]
        kept = [verifier for verifier, mine in _schemes(here) if _is_lossless(verifier, mine)]
        parts = ([row for row in here if (row.verifier in kept) is one] for one in (True, False))
        groups.append(_Group(law, *parts))
    return groups


def _schemes(rows: Sequence[ComparisonRow]) -> list[tuple[Verifier, dict[int, ComparisonRow]]]:
    """Return the verifiers of one law's rows, each with the verifier's rows by number of drafts."""
    return [
        (verifier, {row.law.size: row for row in rows if row.verifier == verifier})
        for verifier in distinct(row.verifier for row in rows)
    ]


def _is_lossless(verifier: Verifier, rows: Mapping[int, ComparisonRow]) -> bool:
    """True if a verifier is lossless, by definition or by distances computed at every k shown."""
    if verifier.lossless or isinstance(verifier, VERIFIERS):
        return verifier.lossless
    return all(
        row.distortion is not None and row.distortion.total_variation <= SAME
        for row in rows.values()
    )


def _of_unknown_loss(verifier: Verifier, rows: Mapping[int, ComparisonRow]) -> list[int]:
    """Return the numbers of drafts at which nobody knows whether a verifier is lossy.

    None if a distance, or an acceptance above the optimum, proves at any k that it is.
    """
    proven = any(
        row.proves_loss or (row.distortion is not None and row.distortion.total_variation > SAME)
        for row in rows.values()
    )
    if proven or isinstance(verifier, VERIFIERS):
        return []
    return [k for k, row in sorted(rows.items()) if row.distortion is None]


def _matrix(group: _Group, *, folded: bool) -> Table:
    """Lay out verifiers by k, the best of each k marked, below optimum and gap of the best."""
    optimum = {row.law.size: row.optimum for row in group.kept}
    ks = sorted(optimum)
    top = {k: _largest([row for row in group.kept if row.law.size == k]) for k in ks}

    def rank(scheme: tuple[Verifier, dict[int, ComparisonRow]]) -> tuple[list[int], int, bool]:
        """Order schemes by acceptance; of equal ones an exact, then an optimal one is first."""
        verifier, rows = scheme
        values = [rows[k].value if k in rows else None for k in reversed(ks)]
        accepted = [-1.0 if value is None else float(value) for value in values]
        sampled = sum(isinstance(value, Approximate) for value in values)
        optimal = verifier.title.startswith("optimal")
        return [-round(value / SAME) for value in accepted], sampled, not optimal

    shown: list[tuple[str, dict[int, ComparisonRow], list[str]]] = []
    for verifier, rows in sorted(_schemes(group.kept), key=rank):
        name = str(verifier)
        same = next((names for _, first, names in shown if folded and _agrees(rows, first)), None)
        if same is None:
            label = name if verifier.lossless else f"{name}, lossless here"
            shown.append((label, rows, [name]))
        else:
            only = (
                f" (k = {', '.join(f'{k:g}' for k in sorted(rows))})" if len(rows) < len(ks) else ""
            )
            same.append(name + only)
    body: list[tuple[object, ...]] = [
        ("optimum", *(optimum[k] for k in ks)),
        ("gap of the best", *(_gap(optimum[k], top[k]) for k in ks)),
    ]
    best = {
        (i, j)
        for i, (_, rows, _) in enumerate(shown, start=len(body))
        for j, k in enumerate(ks, start=1)
        if k in rows and _attains(rows[k], top[k])
    }
    body += [(label, *(rows[k].value if k in rows else "" for k in ks)) for label, rows, _ in shown]
    return Table(
        columns=(f"drafts: {group.law.title}", *(f"{_size_name(group.law)} = {k:g}" for k in ks)),
        rows=tuple(body),
        best=frozenset(best),
        ruled=frozenset({1}),
        notes=tuple(" = ".join(names) for *_, names in shown if len(names) > 1),
        longest=_LONGEST_NAME,
    )


def _size_name(law: type[Law]) -> str:
    """Return a law's name for the number of drafts."""
    return dataclasses.fields(law)[0].name


def _lossy_table(group: _Group) -> Table:
    """Lay out lossy schemes with the distances to the target and the frontier at each distance."""
    unknown = {str(one): _of_unknown_loss(one, rows) for one, rows in _schemes(group.lossy)}
    body = [
        (
            str(row.verifier),
            row.law.size,
            row.value,
            row.distortion and row.frontier,
            *row.distances,
        )
        for row in group.lossy
    ]
    kind = "lossy or not known" if any(unknown.values()) else "lossy"
    head = (f"{kind}, drafts: {group.law.title}", "k", "acceptance", "frontier", "TV", "KL (nats)")
    return Table(columns=head, rows=tuple(body), longest=_LONGEST_NAME)


def _loss_notes(group: _Group) -> list[str]:
    """Return a line for each scheme without a promise of which distances are not known."""
    found = []
    for verifier, rows in _schemes(group.lossy):
        proofs = [f"{k:g}" for k, row in sorted(rows.items()) if row.proves_loss]
        unknown = [f"{k:g}" for k in _of_unknown_loss(verifier, rows)]
        if proofs and not isinstance(verifier, VERIFIERS):
            said = f"accepts more than any lossless scheme at k = {', '.join(proofs)}: it is lossy"
        elif unknown:
            said = f"whether it is lossless is not known at k = {', '.join(unknown)}"
        else:
            continue
        found.append(f"— {verifier}, {group.law.title}: {said}.")
    return found


def _full_table(law: type[Law], rows: Sequence[ComparisonRow], *, lossy: bool) -> Table:
    """Lay out every figure of every row, ruled where the number of drafts changes."""
    body: list[tuple[object, ...]] = []
    for row in rows:
        found = row.monte_carlo
        interval = "" if found is None else f"{found.low:.4f}–{found.high:.4f}"
        figures: tuple[object, ...] = (
            (row.distortion and row.frontier, *map(_four_digits, row.distances))
            if lossy
            else (row.optimum, _gap(row.optimum, row.exact), "" if row.lower is None else row.lower)
        )
        body.append((row.law.size, str(row.verifier), row.value, *figures, interval))
    columns = ("frontier", "TV", "KL") if lossy else ("optimum", "gap", "proven ≥")
    changes = [i for i, (one, next_) in enumerate(itertools.pairwise(body)) if one[0] != next_[0]]
    title = f"{'lossy, ' if lossy else ''}drafts: {law.title}"
    percent = f"{CONFIDENCE:.1%}".replace("%", " %")
    return Table(
        columns=("k", title, "accepted", *columns, f"{percent} MC"),
        rows=tuple(body),
        ruled=frozenset(changes),
        longest=_LONGEST_BESIDE_ALL,
    )


def _empty_cell_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return a line per scheme and reason of an empty cell, with the values of k concerned."""
    found = collections.defaultdict[tuple[str, str, str], list[str]](list)
    for row in rows:
        if row.note:
            found[str(row.verifier), row.law.title, row.note].append(f"{row.law.size:g}")
    return [
        f"— {verifier}, {law}, k = {', '.join(ks)}: {note}"
        for (verifier, law, note), ks in found.items()
    ]


def _falling_notes(group: _Group) -> list[str]:
    """Return a line for each scheme that accepts less with more drafts, with its limits."""
    found = []
    for verifier, rows in _schemes([*group.kept, *group.lossy]):
        values = {k: row.exact for k, row in sorted(rows.items()) if row.exact is not None}
        pairs = itertools.pairwise(values)
        falls = next(
            (f"{b} drafts than of {a}" for a, b in pairs if values[b] < values[a] - SAME), ""
        )
        limits = " and ".join(
            f"{name} = {getattr(verifier, name)}" for name in verifier.display_fields
        )
        why = f": {limits} may be why, the optimum never falls" if limits else ""
        if falls:
            found.append(f"— {verifier}, {group.law.title}: accepts less of {falls}{why}.")
    return found


def _largest(rows: Sequence[ComparisonRow]) -> float | Approximate | None:
    """Return the largest acceptance, approximate where a sample may exceed all exact values."""
    exact = max((row.exact for row in rows if row.exact is not None), default=-1.0)
    attained = any(
        row.exact is not None and row.gap is not None and row.gap <= SAME for row in rows
    )
    sampled = [row for row in rows if row.exact is None and row.monte_carlo is not None]
    higher = [row for row in sampled if row.monte_carlo and row.monte_carlo.high > exact]
    if higher and not attained:  # nothing is above the optimum
        return Approximate(max(exact, *(float(row.value or 0.0) for row in sampled)))
    return None if exact < 0 else exact


def _gap(optimum: float | None, accepted: float | Approximate | None) -> float | Approximate | None:
    if optimum is None or accepted is None:
        return None
    if isinstance(accepted, Approximate):
        return Approximate(max(0.0, optimum - accepted.value))
    return 0.0 if optimum - accepted < _ROUNDING else optimum - accepted


def _attains(row: ComparisonRow, top: float | Approximate | None) -> bool:
    """True if a row has the largest acceptance of all, for certain."""
    return row.exact is not None and isinstance(top, float) and row.exact >= top - SAME


def _agrees(some: Mapping[int, ComparisonRow], others: Mapping[int, ComparisonRow]) -> bool:
    """True if a verifier accepts as much as another, wherever the first has a value."""
    if not some.keys() <= others.keys():
        return False
    pairs = [(row.exact, others[k].exact) for k, row in some.items()]
    return all(a is not None and b is not None and abs(a - b) <= SAME for a, b in pairs)


def _curves(
    rows: Sequence[ComparisonRow], ks: Sequence[int], remark: str = ""
) -> list[drawing.Line]:
    """Return a line for each verifier; verifiers known at the same k that agree share one."""
    lines: list[drawing.Line] = []
    for verifier, mine in _schemes(rows):
        found = [mine.get(k) for k in ks]
        sampled = [row.monte_carlo if row and row.exact is None else None for row in found]
        y = np.array([row and row.value for row in found], dtype=float)
        low = np.array([interval and interval.low for interval in sampled], dtype=float)
        high = np.array([interval and interval.high for interval in sampled], dtype=float)
        if np.isfinite(y).any():
            name = shortened(str(verifier), _LONGEST_NAME)
            lines.append(drawing.Line(name + remark, ks, y, low, high))
    lines.sort(key=lambda line: -int(np.isfinite(line.y).sum()))  # those known everywhere first
    kept: list[drawing.Line] = []
    for line in lines:
        same = next(
            (
                i
                for i, one in enumerate(kept)
                if np.allclose(one.y, line.y, rtol=0.0, atol=SAME, equal_nan=True)
            ),
            None,
        )
        if same is None:
            kept.append(line)
        elif len(kept[same].label) + len(line.label) < _LONGEST_LABEL:
            kept[same] = dataclasses.replace(kept[same], label=f"{kept[same].label}, {line.label}")
    return kept


def _four_digits(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:.4f}" if np.isfinite(value) else "∞"
