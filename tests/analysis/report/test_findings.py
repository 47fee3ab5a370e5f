"""What a report finds of the trees of a run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from analysis.report.findings import _short_trees
from analysis.run.tree_names import tree_statistics
from otm.statistics import Estimate


def said(noise: float, likeliest: float) -> list[str]:
    names = [name for name, _, _ in tree_statistics((24,))]
    values = np.array([noise, likeliest, 3.0, 0.8])
    run = SimpleNamespace(statistics=[SimpleNamespace(name=name) for name in names])
    found = SimpleNamespace(statistics=[Estimate(values, values - 0.1, values + 0.1)])
    return _short_trees(run, found, 0)  # type: ignore[arg-type]


def test_the_tree_that_yields_more_is_named_with_its_scale() -> None:
    (line,) = said(2.9, 2.4)
    assert "2.90 (2.80 to 3.00) tokens by a tree on shared noise, 2.40 (" in line
    assert line.endswith("trees on shared noise, 24 nodes, scale 0.8.")
    (line,) = said(2.3, 2.4)
    assert line.endswith("the likeliest tree, 24 nodes.")
    assert said(float("nan"), 2.4) == []
