"""What `compare` prints of trees."""

from __future__ import annotations

import numpy as np

import otm
from analysis.report.next_token import trees_table


def test_trees_of_a_pair_of_distributions_as_text() -> None:
    problem = otm.Problem(draft=[0.5, 0.5], target=[0.75, 0.25], law=otm.IID(1))
    told = trees_table(problem, [1], draws=50, rng=np.random.default_rng(0)).splitlines()
    assert told[2].split()[-7:-4] == ["1.750", "2.312", "3.051"]  # chains: 1 + ¾ + 9/16 + …
    assert (
        told[4].startswith("decoded 50 times") and told[5].startswith("± (95%)") and len(told) == 6
    )
    assert len({len(line) for line in told[1:]}) == 1
    assert trees_table(problem, [1], draws=0, rng=np.random.default_rng(0)).count("\n") == 3
