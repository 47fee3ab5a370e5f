"""Steps of the overlap curve: exact at their ends, tokens where they are resolved, and the optimal
verifier from them.
"""

import numpy as np
import pytest

import otm
from otm.overlap.curve import Containment, ratios
from otm.overlap.lumped_row import RowSteps
from otm.verifiers.optimal import scores
from tests.optional import needs
from tests.overlap.instances import problems
from tests.tolerance import rounding

LAWS = [otm.IID(2), otm.IID(8), otm.IID(65), otm.IID(1000), otm.ThresholdRace(3.5)]


def few_bins(width, rng):
    """A few ratios, each spread over one bin: the best cut lies inside a bin of large mass."""
    p = rng.exponential(size=width)
    return p, p * 2.0 ** rng.integers(-2, 3, width) * (1 + 0.03 * rng.random(width))


def rows(width, seed):
    p, q = few_bins(width, np.random.default_rng(seed))
    return [*problems(width, seed), ("few bins", otm.normalise(p), otm.normalise(q))]


def test_a_resolved_step_is_its_tokens_in_order():
    for name, p, q in rows(3000, 2):
        steps = RowSteps.of(p[p > 0], q[p > 0])
        if name == "one token" or not steps.lumped.any():
            continue
        which = np.flatnonzero(steps.lumped)[[0, -1]]
        high, low = steps.high[which], steps.low[which]
        fine = steps.resolve(which)
        r = ratios(p[p > 0], q[p > 0])
        assert (fine.high[1:] <= fine.high[:-1]).all(), name
        for most, least in zip(high, low, strict=True):
            here = (fine.high < most) & (fine.high >= least) & ~fine.lumped
            np.testing.assert_array_equal(
                np.sort(fine.high[here]), np.sort(r[(r < most) & (r >= least)]), name
            )
        for of in ("draft", "target"):
            assert getattr(fine, of).sum() == pytest.approx(getattr(steps, of).sum(), abs=1e-14), (
                name
            )


@pytest.mark.parametrize(("width", "seed"), [(1100, 0), (3000, 2)])
def test_the_optimal_law_from_bins_is_that_of_the_sort(width, seed, monkeypatch):
    for name, p, q in rows(width, seed):
        for law in LAWS:
            size = law.contained
            found = scores.scores_of_tokens(p, q, size)
            with monkeypatch.context() as patch:
                patch.setattr(RowSteps, "of", RowSteps.sorted)
                wanted = scores.scores_of_tokens(p, q, size)
            close = rounding(width, size.k)
            assert found.gain == pytest.approx(wanted.gain, abs=close), (name, law)
            selected, other = (np.where(p > 0, p * each.level, 0) for each in (found, wanted))
            assert abs(selected - other).sum() <= close, (name, law)
            best = otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=law))
            assert np.minimum(selected, q).sum() == pytest.approx(best, abs=close), (name, law)
            assert all(
                value <= found.scores.tolerance for value in found.scores.residuals.values()
            ), (name, law)


def plateau(rng):
    """For two drafts (1 − C)² + D is nearly the same all along C from .1 to .6, but for noise, and
    less elsewhere.
    """
    middle = np.full(300, 0.5 / 300)
    inside = 0.9 - np.cumsum(middle) + 0.25 / 300
    p = np.concatenate([np.full(20, 0.1 / 20), middle, np.full(3000, 0.4 / 3000)])
    ratio = np.concatenate(
        [np.full(20, 2.5), 2 * inside * (1 + 1e-3 * rng.standard_normal(300)), np.full(3000, 0.25)]
    )
    return p, otm.normalise(p * ratio)


@needs("numba")
def test_a_cut_inside_a_bin_is_found_by_its_bound(monkeypatch):
    """The mutant that looks at ends of bins, and next to the best of them, misses the optimum.

    What the bound leaves out stays two steps: the tokens on either side of the plateau.
    """
    two, missed = Containment(k=2), 0
    for seed in range(3):
        p, q = plateau(np.random.default_rng(seed))
        best = otm.optimal_acceptance(otm.Problem(draft=p, target=q, law=otm.IID(2)))
        steps, found = scores.optimal_selection(RowSteps.of(p, q), 0.0, two)
        assert 1 - found.gain == pytest.approx(best, abs=rounding(3320, 2))
        assert len(steps.draft) == 302
        with monkeypatch.context() as patch:
            patch.setattr(
                scores, "_may_hide_the_cut", lambda steps, _: np.zeros(len(steps.draft), dtype=bool)
            )
            missed += (
                abs(1 - scores.optimal_selection(RowSteps.of(p, q), 0.0, two)[1].gain - best) > 1e-8
            )
    assert missed


def test_short_rows_and_hosts_without_numba_are_sorted(monkeypatch):
    p, q = (otm.normalise(a) for a in few_bins(3000, np.random.default_rng(0)))
    assert not RowSteps.of(p[:1000], q[:1000]).lumped.any()
    monkeypatch.setattr("otm.overlap.lumped_row.compiled", lambda _, seconds: None)
    assert not RowSteps.of(p, q).lumped.any()
