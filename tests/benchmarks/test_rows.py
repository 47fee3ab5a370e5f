"""What rows are timed against."""

import pytest

import otm
from benchmarks.rows import _sorted
from otm.overlap import rows


@pytest.mark.parametrize("verifier", [otm.KSeq(), None], ids=str)
def test_rows_are_sorted_where_bins_are_left_out(verifier, monkeypatch):
    problem = otm.Problem(
        draft=otm.examples.zipf(5000), target=otm.examples.uniform(5000), law=otm.IID(4)
    )

    def ask():
        if verifier is None:
            return otm.optimal_acceptance(problem)
        return otm.acceptance(verifier, problem, by="rule")

    by_bins = float(ask())
    monkeypatch.setattr(rows, "_contiguous", lambda *_: pytest.fail("put into bins"))
    assert float(_sorted(ask)) == pytest.approx(by_bins, abs=1e-13)
    with pytest.raises(pytest.fail.Exception, match="put into bins"):
        ask()
