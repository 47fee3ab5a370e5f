"""What the docstrings of `analysis` show is what comes out."""

import doctest
import importlib

import pytest

from tests.paths import ROOT

SHOWING = [
    path.relative_to(ROOT).with_suffix("")
    for path in sorted((ROOT / "analysis").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", SHOWING, ids=str)
def test_examples(module):
    shown = importlib.import_module(".".join(module.parts))
    failed, tried = doctest.testmod(shown, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried and not failed
