"""Plans from a record and costs: the number of drafts by batch size and context length.

A round of γ drafts takes γ draft steps and one target call on γ + 1 tokens of each sequence,

    speed-up(γ) = E_γ · t(1) / (γ·d + t(γ + 1)),        E_γ = 1 + Σ_{i≤γ} S_i,

against plain decoding, t(1) seconds a token. Every length up to the measured one is compared, so
the maximum is exact for the given survival and costs; whether the maximum lies at the end of what
was measured is part of the answer. The intervals hold for all lengths at once, so they hold for the
chosen one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from otm._machine.arrays import Floats
from otm.engines.chain import MAX_LENGTH, fastest
from otm.engines.positions import Reach, reach_of
from otm.engines.records.estimates import (
    TokensEstimate,
    estimate_tokens,
    mean_bounds,
)
from otm.engines.records.record import AcceptanceRecord
from otm.engines.surface import CostSurface
from otm.errors import InvalidParameter, TooLarge
from otm.pmf import check_count, check_counts, check_instance
from otm.results.statistics import Certified, Estimate

Verdict = Literal["speculate", "do not speculate", "undecided"]
""""undecided": the best length is faster on average, but the interval of the speed-up contains
1.
"""

MAX_BATCH = 4_096
"""Largest batch size of a table for vLLM."""


@dataclasses.dataclass(frozen=True, eq=False)
class LengthChoice:
    """The number of drafts for one batch size and context length.

    Attributes:
        batch, context: the cell.
        length: drafts per step with the most tokens per second; 0 if none.
        tokens: tokens per call with that many, where calls decline to draft as often as before.
        over_plain: speed-up over decoding without drafts.
        over_engine: speed-up over what the engine ran, at the same costs; None if that is not
            known.
        best: the best length ≥ 1 and its speed-up over plain, also where it is below 1.
        curve: `(L + 1,)`, speed-up over plain of 0, 1, …, L drafts.
        reach: where the length lies against the measured positions.
        limited_by_costs: whether longer drafts were measured for acceptance but not for costs.
        costs_extrapolated: whether the length's costs were.
    """

    batch: int
    context: int
    length: int
    tokens: float
    over_plain: Estimate
    over_engine: Estimate | None
    best: tuple[int, Estimate]
    curve: Floats
    reach: Reach
    limited_by_costs: bool
    costs_extrapolated: bool

    @property
    def verdict(self) -> Verdict:
        """The verdict on whether to draft at all."""
        if not self.length:
            return "do not speculate"
        return "undecided" if self.over_plain.low <= 1.0 <= self.over_plain.value else "speculate"

    @property
    def as_it_ran(self) -> float | None:
        """Speed-up over plain decoding of what the engine ran, if nothing measured beats it."""
        if self.over_engine is None or self.over_engine.value >= 1.0:
            return None
        return float(self.over_plain.value / self.over_engine.value)


@dataclasses.dataclass(frozen=True, eq=False)
class LengthPlan:
    """Numbers of drafts for every cell, with the estimate and the costs behind the plan.

    Attributes:
        choices: one for each (batch, context), in order.
        estimate: tokens by length, extrapolated beyond `measured`, and the clusters of its
            intervals.
        measured: positions that were measured.
        engine_length: drafts per step that drafts, as the engine ran, on average; None if unknown.
        costs: the surface.
        confidence: of the intervals.
    """

    choices: tuple[LengthChoice, ...]
    estimate: TokensEstimate
    measured: int
    engine_length: float | None
    costs: CostSurface
    confidence: float


def plan_lengths(
    record: AcceptanceRecord,
    costs: CostSurface,
    *,
    batches: Iterable[int] | None = None,
    contexts: Iterable[int] | None = None,
    extend: int | None = None,
    extrapolate_costs: bool = False,
    confidence: float = 0.95,
) -> LengthPlan:
    """Choose the number of drafts with the most tokens per second in every cell.

    argmax_γ E_γ/(f·(γ·d + t(γ + 1)) + (1 − f)·t(1)) over γ = 0..L, the smallest on ties, for every
    batch size and context length; f is the share of calls that drafted (`estimate_tokens`), 1
    unless the record tells of others.

    Args:
        record: what the engine wrote; one with per-position counts.
        costs: a measured surface.
        batches, contexts: the cells; the measured ones if None.
        extend: consider drafts up to this length, acceptance continued beyond the measured
            positions at the rate of the last one.
        extrapolate_costs: continue costs beyond the measured grid.
        confidence: of intervals that hold for all lengths at once.

    Returns:
        LengthPlan.

    Raises:
        InvalidParameter: if the record holds means only, cells lie outside the measured costs, or
            arguments are out of range.
        TooLarge: beyond 10,000 measured positions, or 2^25 numbers, one for each cluster and
            length.

    Cost: O(cells · R · L) for R clusters. Reference: Leviathan et al. 2023, Theorem 3.8, with
        measured survival; docs/theory.md, "Unequal draft lengths".

    >>> from otm.engines.records import parse_acceptance
    >>> text = '{"meta_info": {"spec_verify_ct": 10, "spec_accept_histogram": [2, 2, 6]}}'
    >>> record = parse_acceptance(text)
    >>> (choice,) = plan_lengths(record, CostSurface.flat(draft=0.002, target=0.020)).choices
    >>> choice.length, round(choice.over_plain.value, 4), choice.verdict, choice.reach
    (2, 2.0, 'speculate', 'at the limit')
    """
    check_instance(costs, CostSurface, name="costs")
    positions = check_instance(record, AcceptanceRecord, name="record").measured
    if positions > MAX_LENGTH:
        raise TooLarge(
            f"Chains of up to {MAX_LENGTH:,} drafts are planned; this {record.form} has "
            f"{positions:,} positions. Shorten the record's positions."
        )
    estimate = estimate_tokens(record)
    measured = estimate.measured
    longest = measured if extend is None else max(measured, check_count(extend, name="extend"))
    if longest > MAX_LENGTH:
        raise InvalidParameter(
            f"extend is at most {MAX_LENGTH:,} drafts; got {longest:,}. Ask for fewer."
        )
    theirs = record.drafts_per_step
    plan = LengthPlan(
        choices=(),
        estimate=estimate.at_length(longest),
        measured=measured,
        engine_length=(record.length or None) if theirs is None else theirs,
        costs=costs,
        confidence=confidence,
    )
    of_batches = _axis(batches, costs.batches, name="batches", minimum=1)
    of_contexts = _axis(contexts, costs.contexts, name="contexts", minimum=0)
    cells = [(batch, context) for context in of_contexts for batch in of_batches]
    choices = tuple(_choice(plan, *cell, extrapolate=extrapolate_costs) for cell in cells)
    return dataclasses.replace(plan, choices=choices)


def _axis(
    given: Iterable[int] | None, measured: tuple[int, ...], *, name: str, minimum: int
) -> tuple[int, ...]:
    """Return the requested numbers, by default all measured numbers."""
    return measured if given is None else tuple(check_counts(given, name=name, minimum=minimum))


def _choice(plan: LengthPlan, batch: int, context: int, *, extrapolate: bool) -> LengthChoice:
    """Return the number of drafts for one cell."""
    estimate, costs = plan.estimate, plan.costs
    longest = estimate.tokens.size - 1
    timed = longest if extrapolate or costs.longest is None else min(longest, costs.longest)
    rounds = [
        costs.at(batch=batch, context=context, length=n, extrapolate=extrapolate)
        for n in range(timed + 1)
    ]
    # Calls in which the drafter has nothing to offer stay plain ones.
    plain, share = rounds[0].plain, estimate.share
    seconds = np.array([share * one.seconds + (1.0 - share) * plain for one in rounds])
    tokens = estimate.tokens[: timed + 1]
    length = fastest(tokens, seconds)
    best = 1 + fastest(tokens[1:], seconds[1:]) if timed else 0
    # A speed-up is at least that of accepting nothing, at most that of accepting all.
    gain = plain / seconds
    speedups = estimate.interval(
        tokens * gain,
        estimate.replicates[:, : timed + 1] * gain,
        confidence=plan.confidence,
        comparisons=max(1, timed),
    ).clipped(gain, (1 + share * np.arange(timed + 1)) * gain)
    speedups.low[0] = speedups.high[0] = 1.0
    return LengthChoice(
        batch=batch,
        context=context,
        length=length,
        tokens=float(tokens[length]),
        over_plain=speedups.at(length),
        over_engine=_over_engine(plan, batch, context, length, seconds[length], extrapolate),
        best=(best, speedups.at(best)),
        curve=speedups.value,
        reach=reach_of(length, plan.measured),
        limited_by_costs=timed < longest and length == timed,
        costs_extrapolated=rounds[length].extrapolated,
    )


def _over_engine(
    plan: LengthPlan, batch: int, context: int, length: int, seconds: float, extrapolate: bool
) -> Estimate | None:
    """Return the speed-up of a length over the engine's own tokens and drafts, at equal costs."""
    theirs, estimate, longest = plan.engine_length, plan.estimate, plan.costs.longest
    if theirs is None or (not extrapolate and longest is not None and theirs > longest):
        return None
    cost = plan.costs.at(batch=batch, context=context, length=theirs, extrapolate=extrapolate)
    share = estimate.share
    gain = (share * cost.seconds + (1.0 - share) * cost.plain) / seconds
    found = estimate.interval(
        estimate.tokens[[length]] / estimate.engine_tokens * gain,
        (estimate.replicates[:, length] / estimate.engine_replicates * gain)[:, None],
        confidence=plan.confidence,
        comparisons=max(1, estimate.tokens.size - 1),
    )
    return found.at(0)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MeanPlan(Certified):
    """Bounds on the speed-up that a mean implies for one batch size and context length.

    Attributes:
        batch, context: the cell.
        lower, upper: `(L + 1,)`, speed-up over decoding without drafts of 0..L drafts, as far as
            costs are known.
        tokens, drafts: per call of what the engine ran; NaN drafts if unknown.
        over_plain: speed-up of what the engine ran; None where its drafts or their costs are not
            known.
    """

    lower: Floats
    upper: Floats
    batch: int
    context: int
    tokens: float
    drafts: float
    over_plain: float | None

    @property
    def pays(self) -> list[int]:
        """Lengths that are faster than plain decoding for any rates of the positions."""
        return np.flatnonzero(self.lower > 1.0).tolist()

    @property
    def could_pay(self) -> list[int]:
        """Lengths that may be faster than plain decoding; all others are slower."""
        return np.flatnonzero(self.upper > 1.0).tolist()


def plan_mean(
    record: AcceptanceRecord,
    costs: CostSurface,
    *,
    batch: int,
    context: int,
    drafts: int | None = None,
    extrapolate_costs: bool = False,
) -> MeanPlan:
    """Bound the speed-up of every draft length from a mean number of tokens a step.

    The engine's run is E·t(1)/(m·d + t(m + 1)) times as fast as plain decoding; lengths are bounded
    by `mean_bounds`.

    Args:
        record: any; of means too.
        costs: a measured surface.
        batch, context: the cell.
        drafts: the most that a step drafted; what the record says if None.
        extrapolate_costs: continue costs beyond the measured grid.

    Returns:
        MeanPlan.

    Raises:
        InvalidParameter: if more is accepted than drafted, or the cell lies outside the measured
            costs.

    Cost: O(steps + L). Reference: docs/records.md, "A mean".

    >>> from otm.engines.records import parse_acceptance
    >>> line = (
    ...     "Decode batch. #running-req: 1, accept len: 2.50, accept rate: 0.50, cuda graph: True"
    ... )
    >>> record = parse_acceptance(line)
    >>> costs = CostSurface.flat(draft=0.004, target=0.020)
    >>> plan = plan_mean(record, costs, batch=1, context=0)
    >>> round(plan.over_plain, 4), plan.pays, plan.upper.round(4).tolist()
    (1.5625, [1, 2, 3], [1.0, 1.6667, 1.7857, 1.5625])
    """
    bounds = mean_bounds(record, drafts=drafts)
    longest = check_instance(costs, CostSurface, name="costs").longest
    batch = check_count(batch, name="batch")
    context = check_count(context, name="context", minimum=0)
    reach = len(bounds.lower) - 1
    if longest is not None and not extrapolate_costs:
        reach = min(reach, longest)

    def gain(length: float) -> float:
        cost = costs.at(batch=batch, context=context, length=length, extrapolate=extrapolate_costs)
        return cost.plain / cost.seconds

    gains = np.array([gain(n) for n in range(reach + 1)])
    timed = longest is None or extrapolate_costs or bounds.drafts <= longest
    timed = timed and not np.isnan(bounds.drafts)
    return MeanPlan(
        lower=bounds.lower[: reach + 1] * gains,
        upper=bounds.upper[: reach + 1] * gains,
        batch=batch,
        context=context,
        tokens=record.mean,
        drafts=bounds.drafts,
        over_plain=record.mean * gain(bounds.drafts) if timed else None,
    )


def vllm_lengths(
    record: AcceptanceRecord,
    costs: CostSurface,
    *,
    context: int,
    max_batch: int | None = None,
    extend: int | None = None,
    extrapolate_costs: bool = False,
) -> dict[str, Any]:
    """Write the planned draft lengths as vLLM's table by batch size.

    Args:
        record, costs, extend, extrapolate_costs: as for `plan_lengths`.
        context: the context length that the table is for.
        max_batch: the largest batch size in the table; the largest measured one if None.

    Returns:
        Entries for `--speculative-config`: num_speculative_tokens, and
        num_speculative_tokens_per_batch_size, a list of [first batch, last batch, drafts] that
        covers 1 to max_batch; drafts are 0 where speculation does not pay.

    Raises:
        InvalidParameter: if batch size 1 or `max_batch` is not within the measured ones and costs
            are not extrapolated, or what is given cannot be planned with.

    Cost: that of planning every batch size. Reference: vLLM,
        docs/features/speculative_decoding/dynamic_speculative_decoding.md at 015a47e1.

    >>> from otm.engines.records import parse_acceptance
    >>> text = '{"meta_info": {"spec_verify_ct": 10, "spec_accept_histogram": [2, 2, 6]}}'
    >>> record = parse_acceptance(text)
    >>> points = {(1, 0, 1): 0.020, (1, 0, 3): 0.021, (64, 0, 1): 0.030, (64, 0, 3): 0.080}
    >>> costs = CostSurface.of_points({(1, 0): 0.002, (64, 0): 0.003}, points, source="by hand")
    >>> vllm_lengths(record, costs, context=0)["num_speculative_tokens_per_batch_size"]
    [[1, 24, 2], [25, 49, 1], [50, 64, 0]]
    """
    largest = check_instance(costs, CostSurface, name="costs").batches[-1]
    if max_batch is not None:
        largest = check_count(max_batch, name="max_batch")
    if largest > MAX_BATCH:
        raise InvalidParameter(
            f"A table covers up to {MAX_BATCH:,} sequences; got {largest:,}. Pass a smaller "
            "max_batch."
        )
    plan = plan_lengths(
        record,
        costs,
        batches=range(1, largest + 1),
        contexts=[context],
        extend=extend,
        extrapolate_costs=extrapolate_costs,
    )
    table: list[list[int]] = []
    for choice in plan.choices:
        if table and table[-1][2] == choice.length:
            table[-1][1] = choice.batch
        else:
            table.append([choice.batch, choice.batch, choice.length])
    return {
        "num_speculative_tokens": max(1, *(row[2] for row in table)),
        "num_speculative_tokens_per_batch_size": table,
    }
