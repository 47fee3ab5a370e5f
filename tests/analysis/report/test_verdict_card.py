"""The answer: the fastest plan by brute force, verdicts by hand, and what is said where costs are
unknown.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from analysis.report.aggregate import aggregate
from analysis.report.call_costs import Costs
from analysis.report.plans import Plan, Plans, plans_of
from analysis.report.reading import open_run
from analysis.report.verdict_card import (
    BINDS,
    CHEAP,
    DEAR,
    DEPENDS,
    PROBABLY,
    SPECULATE,
    STOP,
    UNDECIDED,
    Speed,
    card,
    over_chain,
    over_plain,
)
from tests.analysis.report.synthetic_run import write_run

CHAIN = Plan("chains", -1, "chain", "chain of 1", 1, 1, (1,), 1.5, 1.5, 1e-4, 2e-4, 0.7)
TREE = Plan(
    "trees", 0, "ranks", "tree of 3 tokens, 2 deep", 3, 2, (1, 1), 2.0, 2.0, 4e-4, 3e-4, 0.0
)
PLANS = Plans((CHAIN, TREE), 3e-4, 2.0, False)


def test_intervals_by_hand() -> None:
    """σ = .02, so a factor exp(.04) on either side; of the ratio √(4e-4 − 2·.7·3e-4 + .49·3e-4) =
    √1.27e-4.
    """
    costs = Costs.of_ratios(0.1, 0.01)
    plain, chain = over_plain(TREE, PLANS, costs), over_chain(TREE, CHAIN, PLANS, costs)
    assert (plain.value, plain.low, plain.high) == pytest.approx(
        [2 / 1.23, 2 / 1.23 / math.exp(0.04), 2 / 1.23 * math.exp(0.04)]
    )
    half = math.exp(2 * math.sqrt(1.27e-4))
    assert (chain.value, chain.low, chain.high) == pytest.approx(
        [x * (2 / 1.23) / (1.5 / 1.11) for x in (1, 1 / half, half)]
    )
    wide = dataclasses.replace(TREE, variance=100.0)
    assert over_plain(wide, PLANS, costs) == Speed(2 / 1.23, 2 / 1.23, 1 / 1.23, 3 / 1.23), (
        "a call yields 1 to 3 tokens"
    )
    assert over_chain(wide, CHAIN, PLANS, costs).high == pytest.approx(3 / 1.23 * 1.11)


def test_certified_ends_reach_from_the_worst_to_the_best_case() -> None:
    tree, plans = (
        dataclasses.replace(TREE, tokens_upper=2.4, variance=None),
        dataclasses.replace(PLANS, certified=True),
    )
    chain, costs = dataclasses.replace(CHAIN, tokens_upper=1.6), Costs.of_ratios(0.0, 0.0)
    assert over_plain(tree, plans, costs) == Speed(2.0, 2.4, 2.0, 2.4)
    assert over_chain(tree, chain, plans, costs) == Speed(
        2.0 / 1.6, 2.4 / 1.5, 2.0 / 1.6, 2.4 / 1.5
    )


@pytest.mark.parametrize(
    ("draft", "title"),
    [(0.1, SPECULATE), (0.49, SPECULATE + PROBABLY), (0.51, STOP + PROBABLY), (0.6, STOP)],
)
def test_verdicts_by_what_a_draft_pass_costs(draft: float, title: str) -> None:
    """A tree of two levels and a chain of one break even at c = .5: 2/(1 + 2c), 1.5/(1 + c)."""
    told = card(PLANS, Costs.of_ratios(draft, 0.0), 64)
    assert told.title == title
    assert (told.what == "plain decoding") == title.startswith(STOP)
    lonely = dataclasses.replace(
        PLANS, all=tuple(dataclasses.replace(plan, variance=None) for plan in PLANS.all)
    )
    assert card(lonely, Costs.of_ratios(draft, 0.0), 64).title.endswith(PROBABLY), (
        "one prompt decides nothing"
    )


def test_the_budget_and_the_chain_are_kept() -> None:
    costs = Costs.of_ratios(0.1, 0.0)
    told, less = card(PLANS, costs, 3), card(PLANS, costs, 2)
    assert (
        told.what == "tree of 3 tokens, 2 deep"
        and told.boxes[1].value == f"{2 / 1.2 / (1.5 / 1.1):.2f}×"
    )
    assert (
        less.what == "chain of 1"
        and less.boxes[1].label.endswith("which this is")
        and less.rows[0][2] == ""
    )
    assert told.basis.endswith(BINDS) and BINDS not in card(PLANS, costs, 64).basis + less.basis
    assert told.boxes[2].note == "3 drafted" and [row[0] for row in told.rows] == [
        "trees",
        "chains",
    ]


def test_without_costs_both_ends_are_told_and_costs_asked_for() -> None:
    cheap, dear = (2.8 / (1 + 2 * c + 3 * v) for c, v in (CHEAP, DEAR))
    many = {plan: 1.9 if plan.kind == "chain" else 2.8 for plan in PLANS.all}
    good = tuple(
        dataclasses.replace(plan, tokens=tokens, tokens_upper=tokens)
        for plan, tokens in many.items()
    )
    told = card(dataclasses.replace(PLANS, all=good), None, 64)
    assert told.title == DEPENDS and told.tone == "maybe", "even where both ends would be above 1"
    assert told.what.endswith(f"make it {max(dear, 1.9 / 1.55):.2f} to {cheap:.2f}× plain decoding")
    assert "--latency" in told.ask and "0.02" in told.basis and "0.5 and 0.05" in told.basis
    worse = dataclasses.replace(
        PLANS, all=(dataclasses.replace(CHAIN, tokens=1.2, tokens_upper=1.2),)
    )
    assert card(worse, None, 64).title == DEPENDS
    none = dataclasses.replace(
        PLANS, all=(dataclasses.replace(CHAIN, tokens=1.01, tokens_upper=1.01),)
    )
    assert card(none, None, 64).title in (STOP, STOP + PROBABLY)
    assert card(dataclasses.replace(PLANS, all=()), None, 64).title == UNDECIDED


def test_the_recommendation_is_the_fastest_by_brute_force(tmp_path: Path) -> None:
    """Chains and levels of a real run, every shape of at most five levels enumerated here, at
    random costs.
    """
    run = open_run(
        write_run(tmp_path / "run", prompts=6, positions=8, ks=(1, 2, 4), temperatures=(1.0,))
    )
    found = aggregate(run)
    plans = plans_of(run, found, 0, 2.0)
    levels = dataclasses.replace(
        plans, all=tuple(plan for plan in plans.all if plan.kind != "ranks" and plan.depth <= 5)
    )
    alpha = {column.name: float(found.lower[0].value[i]) for i, column in enumerate(run.schemes)}
    rng = np.random.default_rng(3)
    for _ in range(20):
        c, v, budget = rng.uniform(0, 0.5), rng.uniform(0, 0.1), int(rng.integers(1, 65))
        best = 0.0
        for stem in ("optimum_iid", "kseq_iid", "greedy_optimal_greedy"):
            # width, nodes, product, tokens, last k
            shapes: list[tuple[int, int, float, float, int]] = [(1, 0, 1.0, 1.0, 4)]
            for level in range(1, 6):
                shapes = [
                    (w * k, n + w * k, p * alpha[f"{stem}_k{k}"], t + p * alpha[f"{stem}_k{k}"], k)
                    for w, n, p, t, last in shapes
                    for k in (1, 2, 4)
                    if k <= last and n + w * k <= budget
                ]
                best = max([best, *(t / (1 + level * c + n * v) for _, n, _, t, _ in shapes)])
        told = card(levels, Costs.of_ratios(c, v), budget)
        assert told.boxes[0].value == f"{best:.2f}×"


def test_intervals_are_beaten_only_if_their_upper_ends_are(tmp_path: Path) -> None:
    run = open_run(write_run(tmp_path / "run", width=0.9, temperatures=(1.0,)))
    plans = plans_of(run, aggregate(run), 0, 2.0)
    titles = [card(plans, Costs.of_ratios(c, 0.01), 64).title for c in (0.0, 0.6, 2.0)]
    assert titles[1:] == [UNDECIDED, STOP] and titles[0] in (SPECULATE, SPECULATE + PROBABLY)
