"""A row that is drawn entry by entry: as code looks at it, with the law of the table."""

import copy

import numpy as np
import pytest

from otm.audit.tracing.branching import trace
from otm.audit.tracing.drawn_row import DrawnRow, RowTable

ROWS = np.array([[0, 0, 1], [0, 1, 1], [2, 1, 0], [2, 1, 3], [3, 3, 3]])
MASS = np.array([0.1, 0.2, 0.3, 0.15, 0.25])


def law(code):
    """Return the law of what code answers and of what it has read for it."""
    table = RowTable(ROWS, MASS)

    def value(uniforms):
        row = DrawnRow(table, uniforms)
        return code(row), row.seen

    return trace(value, 3).mass


@pytest.mark.parametrize("place", [0, 1, 2, -1])
def test_an_entry_has_the_law_of_its_column(place):
    found = law(lambda row: int(row[place]))
    assert {token for token, _ in found} == set(ROWS[:, place])
    for (token, seen), mass in found.items():
        assert seen == ((place % 3, token),)
        assert mass == pytest.approx(MASS[ROWS[:, place] == token].sum(), abs=1e-15)


def test_entries_are_drawn_in_the_order_in_which_they_are_read():
    found = law(lambda row: (int(row[2]), int(row[0])) if row[1] == 1 else None)
    assert found[None, ((1, 0),)] == pytest.approx(0.1, abs=1e-15)
    assert found[(3, 2), ((1, 1), (2, 3), (0, 2))] == pytest.approx(0.15, abs=1e-15)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    "whole",
    [
        lambda row: tuple(row.tolist()),
        lambda row: tuple(int(x) for x in row),
        lambda row: tuple(np.sort(row)),
        lambda row: tuple((row + 1)[::-1]),
        lambda row: tuple(copy.deepcopy(row)),
        lambda row: tuple(np.arange(9)[row]),
        lambda row: bool((row == 1).any()) or tuple(row.astype(float)),
    ],
)
def test_other_uses_draw_the_whole_row(whole):
    seen = {frozenset(read): mass for (_, read), mass in law(whole).items()}
    rows = {frozenset(enumerate(row)): mass for row, mass in zip(ROWS.tolist(), MASS, strict=True)}
    assert seen == pytest.approx(rows, abs=1e-15)


def test_the_first_that_agrees_ends_the_search():
    found = law(lambda row: 3 in row)
    assert {seen: mass for (answer, seen), mass in found.items() if answer} == {
        ((0, 3),): pytest.approx(0.25, abs=1e-15),
        ((0, 2), (1, 1), (2, 3)): pytest.approx(0.15, abs=1e-15),
    }


def test_there_is_no_entry_beyond_the_last():
    with pytest.raises(IndexError):
        DrawnRow(RowTable(ROWS, MASS), [0.5] * 3)[3]
