"""What `compare` prints of trees."""

import math

import numpy as np
import pytest

import otm
from analysis.report.next_token import NextToken, compare_next, trees_table


def test_trees_of_a_pair_of_distributions_as_text():
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.75, 0.25], law=otm.IID(1))
    told = trees_table(problem, [1], draws=50, rng=np.random.default_rng(0)).splitlines()
    assert told[2].split()[-7:-4] == ["1.750", "2.312", "3.051"]  # chains: 1 + ¾ + 9/16 + …
    assert (
        told[4].startswith("decoded 50 times") and told[5].startswith("± (95%)") and len(told) == 6
    )
    assert len({len(line) for line in told[1:]}) == 1
    assert trees_table(problem, [1], draws=0, rng=np.random.default_rng(0)).count("\n") == 3


def test_after_several_prompts_rows_are_means():
    """Three tokens, two prompts: every number is the mean of those of both, and the half-width of
    a mean of independent estimates is the root of the sum of squares over their number.
    """
    pairs = (([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), ([0.1, 0.1, 0.8], [0.3, 0.3, 0.4]))
    found = [NextToken(f"{i}", np.array(p), np.array(q), ()) for i, (p, q) in enumerate(pairs)]
    result = compare_next(found, k=[1, 2], samples=50, rng=np.random.default_rng(0))
    # overlaps .7 and .6: t with one degree of freedom, 12.706, times .1/2
    assert "over 2 prompts" in result.bounds and "0.635 at k = 1, " in result.bounds
    rng = np.random.default_rng(0)  # goes on from prompt to prompt, as it did for both together
    alone = [
        otm.compare(draft=one.draft, target=one.target, k=[1, 2], samples=50, rng=rng).rows
        for one in found
    ]
    for mean, one, two in zip(result.table.rows, *alone, strict=True):
        other = otm.Problem(draft=found[1].draft, target=found[1].target, law=mean.law)
        assert (mean.law, mean.verifier) == (one.law, one.verifier)
        assert (mean.distortion is None) == (one.distortion is None)
        assert one.optimum is not None
        best = float(otm.optimal_acceptance(other))
        assert mean.optimum == pytest.approx((one.optimum + best) / 2, abs=1e-12)
        if one.exact is not None:
            accepted = float(otm.acceptance(mean.verifier, other))
            assert mean.exact == pytest.approx((one.exact + accepted) / 2, abs=1e-12)
        whole, *each = (row.monte_carlo for row in (mean, one, two))
        halves = [(row.high - row.low) / 2 for row in each]
        assert whole.value == pytest.approx(np.mean([row.value for row in each]), abs=1e-12)
        half = math.hypot(*halves) / 2
        assert (whole.high - whole.low) / 2 == pytest.approx(half, abs=1e-12)


def test_rules_on_numbered_tokens_are_not_shown_of_text():
    found = NextToken("a", np.array([0.5, 0.5]), np.array([0.75, 0.25]), ())
    table = compare_next([found], k=[1], samples=0, rng=np.random.default_rng(0)).table
    shown = {type(row.verifier) for row in table.rows}
    assert otm.Grouped in shown and not {otm.Lantern, otm.ActionDistance} & shown
