"""The answers of a report by sampling setting, from the run's acceptance and known costs."""

from __future__ import annotations

import dataclasses
from typing import Any

from otm.results.statistics import t_quantile

from .advice_record import AdviceRecord
from .aggregate import Aggregates, first_setting
from .call_costs import Costs
from .plans import CHAIN_VERIFIER, KINDS, MOST_NODES, Plan, Plans, plans_of
from .reading import Run
from .summary import schemes_of
from .verdict_card import (
    ASK,
    BINDS,
    CHEAP,
    DEAR,
    ENDS,
    HEAD,
    ITSELF,
    MOST_ROWS,
    PASSES,
    PREDICTED,
    RANGE,
    RANGE_HEAD,
    Card,
    card,
)


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

    plans: tuple[Plans, ...]
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


def answer_data(run: Run, answer: Answer) -> dict[str, Any]:
    """Return the answers for the page's script, as JSON values."""
    verifiers = {str(plan.scheme): plan.verifier for plans in answer.plans for plan in plans.all}
    return {
        "first": answer.first,
        "cards": [
            one.to_json() if place == answer.advised else None
            for place, one in enumerate(answer.cards)
        ],
        "costs": None if answer.costs is None else _cost_data(answer.costs),
        "cheap": _cost_data(Costs.of_ratios(*CHEAP)),
        "dear": _cost_data(Costs.of_ratios(*DEAR)),
        "budget": answer.budget,
        "mostNodes": MOST_NODES,
        "verifiers": {"-1": CHAIN_VERIFIER} | verifiers,
        "short": {"-1": "best chain"} | {str(i): s.short for i, s in enumerate(schemes_of(run))},
        "words": ENDS
        | {
            "range": RANGE,
            "ask": ASK,
            "head": HEAD,
            "rangeHead": RANGE_HEAD,
            "rows": MOST_ROWS,
            "predicted": PREDICTED,
            "itself": ITSELF,
            "passes": PASSES,
            "binds": BINDS,
        },
        "plans": [
            {
                "variance": plans.variance,
                "quantile": plans.quantile,
                "certified": plans.certified,
                "all": [_plan_data(plan) for plan in plans.all],
            }
            for plans in answer.plans
        ],
    }


def _plan_data(plan: Plan) -> list[Any]:
    upper = plan.tokens_upper if plan.tokens_upper != plan.tokens else 0
    kind = KINDS.index(plan.kind)
    numbers = [plan.tokens, upper, plan.variance, plan.covariance, plan.slope]
    return [plan.scheme, kind, plan.name, plan.nodes, plan.depth, plan.widths, *numbers]


def _cost_data(costs: Costs) -> dict[str, Any]:
    return {
        "draft": costs.draft,
        "target": costs.target,
        "rest": [costs.rest.get(kind, (0.0, 0.0, 0.0)) for kind in KINDS] if costs.rest else None,
        "source": costs.source,
    }
