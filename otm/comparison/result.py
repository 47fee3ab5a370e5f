"""What a comparison returns: the rows, as tables, records and a picture."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from otm.comparison.picture import draw
from otm.comparison.rows import ComparisonRow, distinct
from otm.comparison.tables import full_table, lossy_table, matrix, notes, sorted_out
from otm.tabular import Table, Tabular, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """The rows, and what was left out and why; prints as a matrix of verifiers by k for each law,
    lossy schemes apart.

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
        laws, verifiers = (
            distinct(what)
            for what in ([type(row.law) for row in self.rows], [row.verifier for row in self.rows])
        )
        ks = ", ".join(map(str, distinct([row.law.k for row in self.rows])))
        return (
            f"Comparison({len(self.rows)} rows: {len(verifiers)} verifiers, {len(laws)} laws, k = "
            f"{ks})"
        )

    def __str__(self) -> str:
        blocks = [table.text() for table in self._tables()]
        below = [line for note in self._notes() for line in wrapped(note)]
        return "\n\n".join([*blocks, *(["\n".join(below)] if below else [])])

    def tables(self) -> tuple[Table, ...]:
        """Return the matrix of each law, the best marked, below its optimum and the gap of the
        best; then the lossy schemes.

        If `full`, every figure of every row instead, by law. What is to be said of all of them
        stands below the last.
        """
        *others, last = self._tables()
        return (*others, dataclasses.replace(last, notes=(*last.notes, *self._notes())))

    def _tables(self) -> tuple[Table, ...]:
        found = []
        for law, exact, lossy in sorted_out(self.rows):
            if self.full:
                found += [
                    full_table(law, rows, lossy=apart)
                    for rows, apart in ((exact, False), (lossy, True))
                    if rows
                ]
            else:
                found += [matrix(law, exact, folded=self.folded)] if exact else []
                found += [lossy_table(law, lossy)] if lossy else []
        return tuple(found)

    def _notes(self) -> tuple[str, ...]:
        return (*notes(self.rows, full=self.full), *self.left_out)

    def data(self) -> Table:
        """Return the records as a table."""
        records = self.records()
        columns = tuple(records[0]) if records else ("law", "verifier", "k", "exact")
        return Table(columns=columns, rows=tuple(tuple(record.values()) for record in records))

    def _draw(self, ax: Axes) -> None:
        draw(ax, self.rows, folded=self.folded)

    def records(self) -> list[dict[str, object]]:
        """Return the rows as plain dictionaries, for a data frame or JSON; law and verifier are
        their identities (`repr`).
        """
        return [
            {
                "law": repr(row.law),
                "verifier": repr(row.verifier),
                "k": row.law.k,
                "exact": row.exact,
                "lower": row.lower,
                "optimum": row.optimum,
                "frontier": row.frontier,
                "gap": row.gap,
                "total_variation": None
                if row.distortion is None
                else row.distortion.total_variation,
                "kl": None if row.distortion is None else row.distortion.kl,
                "monte_carlo": None if row.monte_carlo is None else row.monte_carlo.value,
                "monte_carlo_low": None if row.monte_carlo is None else row.monte_carlo.low,
                "monte_carlo_high": None if row.monte_carlo is None else row.monte_carlo.high,
                "note": row.note,
            }
            for row in self.rows
        ]
