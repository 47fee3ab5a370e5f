"""The answers of a report by sampling setting, from the run's acceptance and known costs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from otm.results.statistics import t_quantile

from .advice_record import AdviceRecord
from .aggregate import Aggregates, first_setting
from .call_costs import Costs
from .plans import CHAIN, MOST_NODES, TreePlan, TreePlans, plans_of
from .reading import Run
from .summary import schemes_of
from .verdict_card import CHEAP, DEAR, Card, best_of_each, card

BUDGETS = (1, 2, 4, 8, 16, 32)
DRAFTING = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
CHECKING = (0.0, 0.005, 0.01, 0.02, 0.05)
"""Stops of the sliders: drafted tokens, what a draft pass and one checked token take of a target
pass. The answers of a setting at all of them take 25 kB of the page.
"""
_MANY_SETTINGS = 8
_MOST_LINES = 5
"""Of the chart of speeds, plain decoding aside; more cannot be told apart."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answers of a report by sampling setting, with plans and costs.

    Attributes:
        plans: by setting.
        costs: measured ones, None where the answer is a range.
        cards: the answer, by setting.
        first: the setting that is shown first: the advice's own, or the one nearest to plain
            sampling.
        advised: the setting that `advise` answers for itself, None without one.
        warnings: reasons why run and costs are hard to compare.
        budget: drafted tokens at most.
    """

    plans: tuple[TreePlans, ...]
    costs: Costs | None
    cards: tuple[Card, ...]
    first: int
    advised: int | None
    warnings: tuple[str, ...]
    budget: int


def answer_run(
    run: Run, found: Aggregates, latency: Costs | None, advice: AdviceRecord | None
) -> Answer:
    """Return the answers of a run.

    Args:
        run, found: what was measured.
        latency: costs of passes, which stand before those of the advice.
        advice: the record of `advise`.
    """
    quantile = float(t_quantile(found.num_clusters))
    plans = tuple(
        plans_of(run, found, setting, quantile) for setting in range(len(found.strata.settings))
    )
    costs = latency or (advice.costs if advice else None)
    budget = MOST_NODES if costs is None else costs.most_nodes
    cards = [card(one, costs, budget) for one in plans]
    own = advice.setting(run, found) if advice else None
    if advice and own is not None:
        cards[own] = advice.card
    warnings = _other_models(
        run, [one for one in (latency, advice.costs if advice else None) if one is not None]
    )
    if advice and own is None:
        warnings.append(
            "The advice is for another sampling setting than the run’s: only its costs are used."
        )
    return Answer(
        plans,
        costs,
        tuple(cards),
        first_setting(found.strata.settings) if own is None else own,
        own,
        tuple(warnings),
        budget,
    )


def _other_models(run: Run, costs: list[Costs]) -> list[str]:
    weights = run.section("provenance").get("weights")
    ours = weights if isinstance(weights, dict) else {}
    other = [
        one
        for one in costs
        if any(side in ours and ours[side] != digest for side, digest in one.models.items())
    ]
    return [f"{one.source} timed other model weights than the run’s." for one in other]


def slider_stops(answer: Answer) -> dict[str, list[Any]]:
    """Return the stops of the page's sliders: largest numbers of drafted tokens, and costs.

    Costs are those of `Costs.of_ratios`; a run of many settings has fewer.
    """
    apart = 1 if len(answer.cards) <= _MANY_SETTINGS else 3
    return {
        "budgets": [*(one for one in BUDGETS if one < answer.budget), answer.budget],
        "drafting": list(DRAFTING[::apart]),
        "checking": list(CHECKING[::apart]),
    }


def slider_answers(run: Run, answer: Answer) -> list[list[dict[str, Any]]]:
    """Return cards and lines by setting and costs, as JSON values that the page looks up.

    The first costs are the answer's own; then come the stops of drafting, each with all stops of
    checking. Cards and lines are by budget.
    """
    stops = slider_stops(answer)
    costs = [
        answer.costs,
        *(Costs.of_ratios(*one) for one in itertools.product(stops["drafting"], stops["checking"])),
    ]
    names = [scheme.short for scheme in schemes_of(run)]
    found = [
        [
            {
                "cards": [card(plans, each, budget).to_json() for budget in stops["budgets"]],
                "lines": _lines(plans, each, stops["budgets"], names),
            }
            for each in costs
        ]
        for plans in answer.plans
    ]
    if answer.advised is not None:  # measured by advise, not predicted
        found[answer.advised][0]["cards"][-1] = answer.cards[answer.advised].to_json()
    return found


def _lines(
    plans: TreePlans, costs: Costs | None, budgets: list[int], names: list[str]
) -> list[dict[str, Any]]:
    """Return the best speed within each budget, of the fastest verifiers or at both assumed ends.

    The chain that engines use stands among the verifiers.
    """
    chains = tuple(plan for plan in plans.all if plan.scheme == CHAIN)
    if costs is None:
        ends = {"cheap": Costs.of_ratios(*CHEAP), "dear": Costs.of_ratios(*DEAR)}
        lines: list[dict[str, Any]] = [
            {"label": f"best {shape} if {end}", "end": end, "scheme": scheme}
            | {"y": _speeds(some, at_end, budgets)}
            for end, at_end in ends.items()
            for shape, scheme, some in (("tree", None, plans.all), ("chain", CHAIN, chains))
        ]
    else:
        within = dataclasses.replace(
            plans, all=tuple(plan for plan in plans.all if plan.nodes <= budgets[-1])
        )
        others = [plan.scheme for plan in best_of_each(within, costs) if plan.scheme != CHAIN]
        lines = [
            {"label": "best chain" if scheme == CHAIN else names[scheme], "scheme": scheme}
            | {"y": _speeds([one for one in plans.all if one.scheme == scheme], costs, budgets)}
            for scheme in (CHAIN, *others[: _MOST_LINES - 1])
        ]
    return [line for line in lines if any(line["y"])]


def _speeds(plans: Sequence[TreePlan], costs: Costs, budgets: list[int]) -> list[float | None]:
    """Return the best speed over plain decoding within each budget, None where nothing fits."""
    speeds = [(plan.nodes, plan.tokens / costs.of_call(plan)) for plan in plans]
    best = [max((s for n, s in speeds if n <= budget), default=None) for budget in budgets]
    return [None if one is None else round(one, 4) for one in best]
