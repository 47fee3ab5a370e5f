"""The answer of a report: the verdict, the best plan and the speed-up."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .call_costs import Costs
from .plans import TreePlan, TreePlans
from .text import value_or_range

SPECULATE, STOP, UNDECIDED, DEPENDS = (
    "Speculate",
    "Do not speculate",
    "Undecided",
    "It depends on your costs",
)
PROBABLY = ", probably"
_TONES = {SPECULATE: "go", STOP: "stop"}

ASK = (
    "Measure your costs with otm latency (or otm advise) and pass its file to otm report with "
    "--latency (or --advice); or move the "
    "sliders."
)
CHEAP, DEAR = (0.02, 0.0), (0.5, 0.05)
"""Draft pass and one more checked token where nothing was measured: the ends of the range;
`call_costs` says why.
"""

RANGE = (
    f"Assumed: cheap, a draft pass takes {CHEAP[0]:g} of a target pass and checking a drafted "
    f"token nothing; dear, {DEAR[0]:g} and "
    f"{DEAR[1]:g}."
)
ENDS = {
    "cheap": f"the speed of plain decoding at most: a draft pass {CHEAP[0]:g}, checking free",
    "dear": f"the speed of plain decoding: a draft pass {DEAR[0]:g}, each check {DEAR[1]:g}",
}
"""Names of the two assumed ends where they make a number."""
PREDICTED = (
    "Predicted from the run’s acceptance, levels taken as independent; intervals are over prompts."
)
ITSELF = "the speed of today’s best chain, which this is"
PASSES = " Passes alone: drawing and verifying come on top; otm advise times whole steps."
BINDS = " It drafts as many tokens as are allowed: more may pay."
MOST_ROWS = 8


@dataclasses.dataclass(frozen=True)
class Speed:
    """A ratio of speeds, or both certified ends, with an interval over prompts."""

    value: float
    upper: float
    low: float | None
    high: float | None

    @property
    def text(self) -> str:
        """The value as text."""
        return value_or_range(self.value, self.upper, 2, "×")

    @property
    def interval(self) -> str:
        """The interval, empty where there is none."""
        return "" if self.low is None or self.high is None else f"{self.low:.2f} to {self.high:.2f}"

    @property
    def sure(self) -> str:
        """The interval as a remark."""
        return f"95 %: {self.interval}" if self.interval else ""


@dataclasses.dataclass(frozen=True)
class Box:
    """A number of the card with a label and a remark."""

    value: str
    label: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Card:
    """The top of a report: verdict, numbers and a table.

    Attributes:
        title: the verdict.
        tone: "go", "stop" or "maybe".
        what: what to do.
        who: by which verifier.
        boxes: the numbers.
        basis: what they rest on.
        ask: what would make them better.
        head, rows: the table below the chart.
    """

    title: str
    what: str
    who: str
    boxes: tuple[Box, ...]
    basis: str
    ask: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def tone(self) -> str:
        """The colour of the verdict."""
        return _TONES.get(self.title, "maybe")

    @property
    def lines(self) -> list[str]:
        """The text of the card, line by line."""
        boxes = [
            f"{box.value} {box.label}{f' ({box.note})' if box.note else ''}" for box in self.boxes
        ]
        return [
            f"{self.title}: {self.what}",
            *(line for line in (self.who, *boxes, self.basis, self.ask) if line),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the card as JSON values."""
        return dataclasses.asdict(self) | {"tone": self.tone}


def with_interval(speed: Speed) -> str:
    """Return a speed and the interval as one text."""
    return f"{speed.text} ({speed.interval})" if speed.interval else speed.text


def drafts(depth: int) -> str:
    """Return the length of a chain in words."""
    return "1 draft" if depth == 1 else f"{depth} drafts"


def recommendation(what: str, who: str, *, stop: bool) -> tuple[str, str]:
    """Return the plan and the verifier, or plain decoding and the nearest alternative."""
    return ("plain decoding", f"the fastest alternative: {what}, {who}") if stop else (what, who)


def over_plain(plan: TreePlan, plans: TreePlans, costs: Costs) -> Speed:
    """Return the speed over plain decoding.

    Its interval stays within 1 and the tokens that a call can yield.
    """
    cost = costs.of_call(plan)
    value, upper = plan.tokens / cost, plan.tokens_upper / cost
    if plan.variance is None:
        return Speed(
            value, upper, value if plans.certified else None, upper if plans.certified else None
        )
    half = math.exp(plans.quantile * math.sqrt(plan.variance))
    return Speed(
        value,
        upper,
        max(1.0, plan.tokens / half) / cost,
        min(plan.depth + 1.0, plan.tokens_upper * half) / cost,
    )


def over_chain(plan: TreePlan, chain: TreePlan, plans: TreePlans, costs: Costs) -> Speed:
    """Return the speed over a chain, whose tokens stand on the same prompts.

    Its interval stays within what calls can yield.
    """
    ratio = costs.of_call(chain) / costs.of_call(plan)
    value, upper = (
        plan.tokens / chain.tokens_upper * ratio,
        plan.tokens_upper / chain.tokens * ratio,
    )
    if (
        plan.variance is None
        or plan.covariance is None
        or plans.variance is None
        or chain.variance is None
    ):
        return Speed(
            value, upper, value if plans.certified else None, upper if plans.certified else None
        )
    if plans.certified:  # ends of different columns: whatever their correlation
        error = math.sqrt(plan.variance) + math.sqrt(chain.variance)
    else:
        error = math.sqrt(
            max(
                0.0,
                plan.variance
                - 2.0 * chain.slope * plan.covariance
                + chain.slope**2 * plans.variance,
            )
        )
    half = math.exp(plans.quantile * error)
    least, most = ratio / (chain.depth + 1.0), ratio * (plan.depth + 1.0)
    return Speed(value, upper, max(least, value / half), min(most, upper * half))


def best_of_each(plans: TreePlans, costs: Costs) -> list[TreePlan]:
    """Return the fastest plan of each verifier by lower ends, fastest first.

    Among equally fast plans it is the smallest, then the first.
    """
    best: dict[int, TreePlan] = {}
    for plan in sorted(plans.all, key=lambda one: (-one.tokens / costs.of_call(one), one.nodes)):
        best.setdefault(plan.scheme, plan)
    return list(best.values())


def _chain_of(best: list[TreePlan]) -> TreePlan | None:
    """Return the chain, as engines draft today, from the best plans of the verifiers."""
    return next((plan for plan in best if plan.kind == "chain"), None)


def verdict(plans: TreePlans, costs: Costs) -> str:
    """Return the verdict: sure where no interval contains 1, probable otherwise."""
    speeds = [over_plain(plan, plans, costs) for plan in plans.all]
    best = max(speeds, key=lambda speed: speed.value)
    most = max(speed.upper if speed.high is None else speed.high for speed in speeds)
    if best.low is not None and best.low > 1:
        return SPECULATE
    if most <= 1 and best.low is not None:
        return STOP
    if plans.certified and best.value <= 1 < max(speed.upper for speed in speeds):
        return UNDECIDED
    return (SPECULATE if best.value > 1 else STOP) + PROBABLY


def card(plans: TreePlans, costs: Costs | None, budget: int) -> Card:
    """Return the answer within a budget of drafted tokens, over a range of costs without any."""
    within = tuple(plan for plan in plans.all if plan.nodes <= budget)
    if not within:
        return Card(
            UNDECIDED, "the run holds no verifier that could be used", "", (), "", "", (), ()
        )
    plans = dataclasses.replace(plans, all=within)
    return _over_range(plans) if costs is None else _at(plans, costs, budget)


def _at(plans: TreePlans, costs: Costs, budget: int) -> Card:
    each, title = best_of_each(plans, costs), verdict(plans, costs)
    best, chain = each[0], _chain_of(each)
    alone = bool(costs.source) and not costs.rest
    if title == SPECULATE and alone:  # what comes on top of the passes may take it all
        title += PROBABLY
    at_most = "at most " if alone else ""
    speed = over_plain(best, plans, costs)
    boxes = [Box(speed.text, f"{at_most}the speed of plain decoding", speed.sure)]
    if chain is best:
        boxes.append(Box("1.00×", ITSELF))
    elif chain is not None:
        ratio = over_chain(best, chain, plans, costs)
        boxes.append(
            Box(ratio.text, f"the speed of today’s best chain, {drafts(chain.depth)}", ratio.sure)
        )
    boxes.append(
        Box(
            value_or_range(best.tokens, best.tokens_upper, 2),
            "tokens per target call",
            f"{best.nodes} drafted",
        )
    )
    stop = title.startswith(STOP)
    who = f"verified by {best.verifier}"
    basis = (
        f"{costs.source or 'Costs as set'}. In steps of plain decoding, a draft pass takes "
        f"{costs.drafting(1):.2f} and a "
        f"target pass that checks {best.nodes} drafted {costs.checking(best.nodes):.2f}. "
        f"{PREDICTED}"
        f"{'' if costs.rest else PASSES}{BINDS if best.nodes == budget and not stop else ''}"
    )
    return Card(
        title,
        *recommendation(best.name, who, stop=stop),
        tuple(boxes),
        basis,
        "",
        HEAD,
        _rows(plans, costs, each),
    )


HEAD = ("verifier", "× plain", "× best chain", "what is drafted", "tokens per call")
RANGE_HEAD = (
    "verifier",
    "× plain if cheap",
    "× plain if dear",
    "drafted if cheap",
    "drafted if dear",
)


def _rows(plans: TreePlans, costs: Costs, each: list[TreePlan]) -> tuple[tuple[str, ...], ...]:
    """Return the best plan of each verifier, the fastest first."""
    chain, rows = _chain_of(each), []
    for plan in _listed(each):
        speed = over_plain(plan, plans, costs)
        beside = (
            over_chain(plan, chain, plans, costs).text
            if chain is not None and plan is not chain
            else ""
        )
        tokens = value_or_range(plan.tokens, plan.tokens_upper, 2)
        rows.append((plan.verifier, with_interval(speed), beside, plan.name, tokens))
    return tuple(rows)


def _over_range(plans: TreePlans) -> Card:
    boxes, numbers, plans_at = [], [], []
    cheap = verdict(plans, Costs.of_ratios(*CHEAP))
    # The same verifier may want another plan at each end, so both are optimised apart.
    for name, ratios in (("cheap", CHEAP), ("dear", DEAR)):
        costs = Costs.of_ratios(*ratios)
        each = best_of_each(plans, costs)
        best, chain = each[0], _chain_of(each)
        speed = over_plain(best, plans, costs)
        beside = ""
        if chain is best:
            beside = ", the best chain itself"
        elif chain is not None:
            ratio = over_chain(best, chain, plans, costs)
            beside = (
                f", {ratio.text} the best chain ({ratio.interval})"
                if ratio.interval
                else f", {ratio.text} the best chain"
            )
        boxes.append(
            Box(
                speed.text,
                ENDS[name],
                f"{best.name}{beside}",
            )
        )
        numbers.append(speed)
        plans_at.append({plan.scheme: (plan, over_plain(plan, plans, costs)) for plan in each})
    # dear is no bound: a small pair's steps can cost more
    title = DEPENDS if cheap.startswith(SPECULATE) else cheap
    what = f"assumed ones make it {numbers[1].value:.2f} to {numbers[0].upper:.2f}× plain decoding"
    rows = []
    for plan in _listed([plan for plan, _ in plans_at[0].values()]):
        (_, speed), (other, there) = (side[plan.scheme] for side in plans_at)
        rows.append(
            (plan.verifier, with_interval(speed), with_interval(there), plan.name, other.name)
        )
    return Card(title, what, "", tuple(boxes), RANGE, ASK, RANGE_HEAD, tuple(rows))


def _listed(plans: list[TreePlan]) -> list[TreePlan]:
    """Return the first few, and always the chain, with which the others are compared."""
    chains = [plan for plan in plans[MOST_ROWS:] if plan.kind == "chain"]
    return plans[: MOST_ROWS - len(chains)] + chains
