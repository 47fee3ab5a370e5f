"""Climbs for worst cases: instances lose what is written, and nothing where nothing can be lost."""

import json

import numpy as np

from benchmarks.searches import RESULTS, SEARCHES, levels, multipath, start_of


def test_the_worst_instances_lose_what_is_said():
    for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]:
        found = SEARCHES[row["name"]][0](*map(np.array, row["instance"]))
        assert abs(found - row["worst"]) < 1e-8, row["name"]
    assert abs(multipath(*np.tile([2 / 3, 1 / 3], (6, 1)), np.eye(2)[1]) - 620 / 729) < 1e-14


def test_two_tokens_lose_nothing_on_two_levels():
    rng, lengths = np.random.default_rng(0), [2] * 6 + [4]
    assert max(levels(2, *start_of(lengths, rng)) for _ in range(40)) < 1e-7
