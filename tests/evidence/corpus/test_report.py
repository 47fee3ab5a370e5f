"""The tables of docs/broken_verifiers.md."""

import pytest

import otm
from evidence.corpus import BROKEN, CONTROLS
from evidence.corpus.report import corpus_row, whole_row
from evidence.corpus.wholes import WHOLES
from otm._display.tabular import markdown, section, with_section
from tests.paths import ROOT

DOCUMENT = ROOT / "docs" / "broken_verifiers.md"


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_committed_table_is_current(part):
    """`python -m evidence.corpus --write docs` writes it."""
    mutants = (*BROKEN, *CONTROLS)
    lines = section(DOCUMENT.read_text(encoding="utf-8"), "corpus").splitlines()
    assert len(lines) == 2 + len(mutants)
    for mutant, line in [*zip(mutants, lines[2:], strict=True)][part::4]:
        assert line == markdown(corpus_row(mutant), ()).splitlines()[0]


def test_committed_table_of_steps_and_trees_is_current():
    lines = section(DOCUMENT.read_text(encoding="utf-8"), "wholes").splitlines()
    assert lines[2:] == markdown((), map(whole_row, WHOLES)).splitlines()[2:]


def test_document_without_markers_is_refused():
    with pytest.raises(otm.errors.InvalidParameter, match="markers"):
        with_section("no markers", "corpus", "table")
