"""Pairs of lists that cannot be."""

from __future__ import annotations

import pytest

import otm
from otm import partial
from otm.partial import PartialPair, TopTokens


def test_pairs_that_cannot_be() -> None:
    half, wide = (
        TopTokens(tokens=[0, 1], probabilities=[0.5, 0.25]),
        TopTokens(tokens=[[0, 1]], probabilities=[[0.5, 0.25]]),
    )
    for arguments, error, message in (
        ({"draft": half, "target": wide}, otm.errors.ShapeMismatch, "same leading axes"),
        (
            {"draft": half, "target": half, "num_tokens": 1},
            otm.errors.InvalidParameter,
            "exceed every listed",
        ),
        (
            {"draft": half, "target": half, "num_tokens": 2},
            otm.errors.InvalidDistribution,
            "cannot hold its tail",
        ),
        ({"draft": half, "target": [0.5, 0.5]}, otm.errors.InvalidParameter, "TopTokens.of"),
        (
            {
                "draft": half,
                "target": TopTokens(tokens=[2, 3], probabilities=[0.5, 0.5]),
                "num_tokens": 3,
            },
            otm.errors.InvalidParameter,
            "exceed every listed",
        ),
    ):
        with pytest.raises(error, match=message):
            PartialPair(**arguments)
    pair = PartialPair(draft=half, target=half)
    for bad in ([], [0], 2, [1.5]):
        with pytest.raises(otm.errors.InvalidParameter):
            partial.optimal_acceptance(pair, k=bad)
