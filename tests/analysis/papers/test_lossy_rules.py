"""Lossy rules measured on the shipped pair: what lies on the frontier, what does not, and chains by
`loose_step`.
"""

from __future__ import annotations

import pytest

from analysis.models.pair import load_pair
from analysis.papers import lossy_rules
from analysis.papers.experiments import held_out_prompts
from analysis.papers.lossy_rules import LENGTH, ONE_DRAFT, SIBLING_RULES, measure_rules


def test_one_prompt_of_the_shipped_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        lossy_rules,
        "ONE_DRAFT",
        {name: (make, list(values)[2:3]) for name, (make, values) in ONE_DRAFT.items()},
    )
    monkeypatch.setattr(
        lossy_rules,
        "SIBLING_RULES",
        {name: (make, [1.0, 0.5]) for name, (make, _) in SIBLING_RULES.items()},
    )
    monkeypatch.setattr(lossy_rules, "WINDOWS", (LENGTH + 1, 2))
    pair = load_pair(device="cpu")
    found = measure_rules(pair, held_out_prompts(pair, 1))
    assert found["num_contexts"] == 4
    rows = {row["rule"]: row for row in found["one_draft"]["rows"]}
    between = ("Ensemble", "Lenience", "Mentored", "Cactus", "Cascade, OPT", "Fuzzy")
    for rule, row in rows.items():
        # On the frontier in every context up to rounding, so in the mean; off it by far where the
        # target is drawn whole.
        assert (abs(row["gap"]) < 1e-12) == (rule in between), rule
        assert found["one_draft"]["optimum"] + row["tv"] >= row["acceptance"] - 1e-12
    lossless, *_ = found["siblings"]["rows"]
    assert lossless["tv"] < 1e-12
    assert lossless["acceptance"] == pytest.approx(found["siblings"]["optimum"], abs=1e-12)
    chains = {(row["samples"], row["window"]): row for row in found["chains"]["rows"]}
    assert chains[1, LENGTH + 1]["tv"] < 1e-12
    assert chains[1, LENGTH + 1]["tokens"] == pytest.approx(
        1 + sum(j * mass for j, mass in enumerate(found["chains"]["matches"])), abs=1e-12
    )
    assert chains[2, 2]["tokens"] > chains[1, 2]["tokens"] > chains[1, LENGTH + 1]["tokens"]
    assert all(row["gap"] >= -1e-12 for row in chains.values())
