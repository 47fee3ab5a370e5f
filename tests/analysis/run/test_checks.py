"""Checks in a run: they agree with what is right, and find a wrong column, a wrong tree, a wrong
bound.
"""

from __future__ import annotations

import numpy as np
import pytest

from analysis.models.processing import settings_of
from analysis.run import checks
from analysis.run.checks import Checked, check_position
from otm.table import acceptance_table
from tests.analysis.run.instances import KS, logits

(SETTING,) = settings_of([1.0], [1.0])


def test_checks_agree_and_find_a_column_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target = logits(9, 12)
    fine = check_position(draft, target, SETTING, KS, place="here", seed=[1])
    assert (fine.positions, fine.failures) == (1, ())
    assert "all agree (false alarm" in str(fine)

    def wrong(**arguments: object) -> object:
        table = acceptance_table(**arguments)  # type: ignore[arg-type]
        table.values[[column.name for column in table.columns].index("kseq_iid_k2")] = 0.2
        return table

    monkeypatch.setattr(checks, "acceptance_table", wrong)
    found = fine + check_position(draft, target, SETTING, KS, place="there", seed=[1])
    assert found.positions == 2
    assert any("kseq_iid_k2 at there is 0.2000" in failure for failure in found.failures)
    assert "kseq_iid_k2" in str(found)
    assert str(Checked()) == "nothing checked"


def test_a_wrong_tree_and_a_wrong_bound_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target = logits(9, 12)
    found = checks.upper_with_gradient
    right = check_position(draft, target, SETTING, (1, 2, 3), place="here", seed=[1])
    assert (right.trees, right.failures) == (
        4,
        (),
    ) and "4 trees and their bounds against 500 calls" in str(right)
    monkeypatch.setattr(
        checks, "upper_with_gradient", lambda vector, nodes: (0.5 * found(vector, nodes)[0], vector)
    )
    low = check_position(draft, target, SETTING, (1, 2, 3), place="here", seed=[1])
    assert any("recursive rejection at here yields at most" in failure for failure in low.failures)
    monkeypatch.setattr(checks, "simulated_tokens", lambda *_, walks, rng: np.ones(walks))
    wrong = check_position(draft, target, SETTING, (1, 2, 3), place="here", seed=[1])
    assert sum("decoded 1.000" in failure for failure in wrong.failures) == 4
    assert not any("closed form" in failure for failure in wrong.failures)
