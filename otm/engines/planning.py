"""From a record and costs to a number of drafts: by batch size and context length, with interval,
baseline and limits named.

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
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otm.engines.positions import Reach, reach_of
from otm.engines.records.estimates import TokensEstimate, estimate_tokens, require_table
from otm.engines.records.record import AcceptanceRecord
from otm.engines.surface import CostSurface
from otm.errors import InvalidDistribution, InvalidParameter, TooLarge
from otm.pmf import check_count, check_counts, check_instance, plain_reals
from otm.statistics import Estimate

Floats = NDArray[np.float64]
Verdict = Literal["speculate", "do not speculate", "undecided"]
"""Undecided: the best length is faster on average, but the interval of its speed-up contains 1."""

MAX_LENGTH = 10_000
"""Longest chain that is planned."""


@dataclasses.dataclass(frozen=True, eq=False)
class LengthChoice:
    """The number of drafts for one batch size and context length.

    Attributes:
        batch, context: the cell.
        length: drafts per step with the most tokens per second; 0 if none.
        tokens: tokens per step with that many.
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
        """Whether to draft at all."""
        if not self.length:
            return "do not speculate"
        return "undecided" if self.over_plain.low <= 1.0 <= self.over_plain.value else "speculate"


@dataclasses.dataclass(frozen=True, eq=False)
class LengthPlan:
    """Numbers of drafts for every cell, and what they rest on.

    Attributes:
        choices: one for each (batch, context), in order.
        estimate: tokens by length, and the clusters of its intervals.
        measured: positions that were measured.
        engine_length: drafts per step that the engine ran, on average; None if unknown.
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
    """Choose the number of drafts with the most tokens per second, for every batch size and context
    length.

    argmax_γ E_γ/(γ·d + t(γ + 1)) over γ = 0..L, the smallest on ties.

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

    Cost: O(cells · R · L). Reference: Leviathan et al. 2023, Theorem 3.8, with measured survival;
        docs/theory.md, "Unequal
    draft lengths".

    >>> from otm.engines.records import parse_acceptance
    >>> record = parse_acceptance(
    ...     '{"meta_info": {"spec_verify_ct": 10, "spec_accept_histogram": [2, 2, 6]}}'
    ... )
    >>> (choice,) = plan_lengths(record, CostSurface.flat(draft=0.002, target=0.020)).choices
    >>> choice.length, round(choice.over_plain.value, 4), choice.verdict, choice.reach
    (2, 2.0, 'speculate', 'at the limit')
    """
    check_instance(costs, CostSurface, name="costs")
    positions = check_instance(record, AcceptanceRecord, name="record").measured
    if positions > MAX_LENGTH:
        raise TooLarge(
            f"Chains of up to {MAX_LENGTH:,} drafts are planned; this {record.form} has "
            f"{positions:,} positions. Shorten the "
            "record's positions."
        )
    estimate = estimate_tokens(record)
    measured = _usable(estimate)
    longest = measured if extend is None else max(measured, check_count(extend, name="extend"))
    if longest > MAX_LENGTH:
        raise InvalidParameter(
            f"extend is at most {MAX_LENGTH:,} drafts; got {longest:,}. Ask for fewer."
        )
    require_table(len(estimate.replicates), longest)
    tokens, replicates = (
        _extended(table, measured, longest) for table in (estimate.tokens, estimate.replicates)
    )
    engine = (
        record.drafts_per_step if record.drafts_per_step is not None else (record.length or None)
    )
    wanted = [
        list(axis) if given is None else check_counts(given, name=name, minimum=least)
        for axis, given, name, least in (
            (costs.batches, batches, "batches", 1),
            (costs.contexts, contexts, "contexts", 0),
        )
    ]
    choices = tuple(
        _choice(
            estimate,
            tokens,
            replicates,
            costs,
            batch,
            context,
            measured,
            engine,
            extrapolate_costs=extrapolate_costs,
            level=confidence,
        )
        for context in wanted[1]
        for batch in wanted[0]
    )
    return LengthPlan(choices, estimate, measured, engine, costs, confidence)


def _choice(
    estimate: TokensEstimate,
    tokens: Floats,
    replicates: Floats,
    costs: CostSurface,
    batch: int,
    context: int,
    measured: int,
    engine: float | None,
    *,
    extrapolate_costs: bool,
    level: float,
) -> LengthChoice:
    longest = tokens.size - 1
    timed = longest if extrapolate_costs or costs.longest is None else min(longest, costs.longest)
    rounds = [
        costs.at(batch=batch, context=context, length=n, extrapolate=extrapolate_costs)
        for n in range(timed + 1)
    ]
    seconds = np.array([n * one.draft + one.target for n, one in enumerate(rounds)])
    plain = rounds[0].plain
    gain = plain / seconds
    curve = tokens[: timed + 1] * gain
    speedups = estimate.interval(
        curve, replicates[:, : timed + 1] * gain, confidence=level, comparisons=max(1, timed)
    ).clipped(gain, (1 + np.arange(timed + 1)) * gain)
    speedups.low[0] = speedups.high[0] = 1.0
    best = int(np.argmax(curve[1:])) + 1 if timed else 0
    length = best if timed and curve[best] > 1.0 + 4 * np.finfo(np.float64).eps else 0
    return LengthChoice(
        batch=batch,
        context=context,
        length=length,
        tokens=float(tokens[length]),
        over_plain=speedups.at(length),
        over_engine=_over_engine(
            estimate,
            tokens,
            replicates,
            costs,
            batch,
            context,
            length,
            seconds,
            engine,
            extrapolate_costs,
            level,
        ),
        best=(best, speedups.at(best)),
        curve=curve,
        reach=reach_of(length, measured),
        limited_by_costs=timed < longest and length == timed,
        costs_extrapolated=rounds[length].extrapolated,
    )


def _over_engine(
    estimate: TokensEstimate,
    tokens: Floats,
    replicates: Floats,
    costs: CostSurface,
    batch: int,
    context: int,
    length: int,
    seconds: Floats,
    engine: float | None,
    extrapolate: bool,
    level: float,
) -> Estimate | None:
    """Return the speed-up over what the engine ran: its own tokens per step, its drafts per step at
    the same costs.
    """
    if engine is None:
        return None
    below = int(np.floor(engine))
    if not extrapolate and costs.longest is not None and engine > costs.longest:
        return None
    ends = [
        costs.at(batch=batch, context=context, length=n, extrapolate=extrapolate or n > engine)
        for n in (below, below + 1)
    ]
    share = engine - below
    call = ends[0].target if share == 0 else (1 - share) * ends[0].target + share * ends[1].target
    theirs = engine * ends[0].draft + call
    scale = theirs / seconds[length]
    value = np.array([tokens[length] / estimate.engine_tokens * scale])
    ratio = (replicates[:, length] / estimate.engine_replicates * scale)[:, None]
    found = estimate.interval(value, ratio, confidence=level, comparisons=max(1, tokens.size - 1))
    return found.at(0)


def _usable(estimate: TokensEstimate) -> int:
    """Return the number of positions whose survival some step measured."""
    known = np.flatnonzero(np.isnan(estimate.tokens))
    return int(known[0] if known.size else estimate.tokens.size) - 1


def _extended(tokens: Floats, measured: int, longest: int) -> Floats:
    """Return tokens by length `(..., longest + 1)`, acceptance continued at the rate of the last
    measured position.
    """
    known = tokens[..., : measured + 1]
    if longest == measured:
        return known
    survival = np.diff(known, axis=-1)
    last = survival[..., -1:]
    before = survival[..., -2:-1] if measured > 1 else np.ones_like(last)
    rate = np.divide(last, before, out=np.zeros_like(last), where=before > 0)
    tail = last * rate ** np.arange(1, longest - measured + 1)
    return np.concatenate([known, known[..., -1:] + np.cumsum(tail, axis=-1)], axis=-1)


@dataclasses.dataclass(frozen=True, eq=False)
class BudgetSplit:
    """How many drafts of each request one target call checks.

    Attributes:
        lengths: `(R,)` drafts checked of each request.
        tokens: expected tokens of the call, R + Σ of the survivals that were chosen.
        even_tokens: the same if every request had an equal share, the remainder going to the first
            ones.
    """

    lengths: NDArray[np.int64]
    tokens: float
    even_tokens: float


def split_budget(survival: ArrayLike, *, budget: int) -> BudgetSplit:
    """Split one target call's budget of drafts over the requests of a batch: the `budget` largest
    survivals.

    max Σ_r Σ_{i≤n_r} s_{r,i} subject to Σ n_r ≤ B. Survival does not increase along a request, so
    the B largest survivals are prefixes of the requests: choosing them greedily is exact.

    Args:
        survival: `(R, L)`, Pr(at least i drafts of request r are accepted), non-increasing along a
            row; 0 beyond what was drafted.
        budget: B ≥ 0 drafts in all.

    Returns:
        BudgetSplit; on ties the earlier position, then the earlier request. Drafts that are never
        accepted are not checked.

    Raises:
        InvalidDistribution: if the numbers are no survivals.
        InvalidParameter: if the budget is no count.

    Cost: one sort of R·L numbers. Reference: TETRIS [Wu et al. 2025], Section 3; docs/theory.md, "A
        batch's budget".

    >>> split = split_budget([[0.9, 0.8, 0.7], [0.5, 0.2, 0.1]], budget=4)
    >>> split.lengths.tolist(), round(split.tokens, 6), round(split.even_tokens, 6)
    ([3, 1], 4.9, 4.4)
    """
    array = plain_reals(survival, "survival")
    if array.ndim != 2 or array.dtype.kind not in "iuf" or array.size == 0:
        raise InvalidDistribution(
            f"survival must be one row per request, (R, L); got {array.dtype} {array.shape}. Stack "
            "the rows."
        )
    rows = array.astype(np.float64)
    if not (
        np.isfinite(rows).all()
        and rows.min() >= 0
        and rows.max() <= 1
        and (np.diff(rows, axis=1) <= 0).all()
    ):
        raise InvalidDistribution(
            "Each row of survival must lie in [0, 1] and not increase; entries are "
            f"{rows.min():.6g} to {rows.max():.6g}. If these "
            "are conditional acceptances, take their running product."
        )
    limit = check_count(budget, name="budget", minimum=0)
    requests, length = rows.shape
    position = np.broadcast_to(np.arange(length), rows.shape).ravel()
    order = np.lexsort((np.repeat(np.arange(requests), length), position, -rows.ravel()))[:limit]
    chosen = order[rows.ravel()[order] > 0]
    lengths = np.bincount(chosen // length, minlength=requests)
    even = np.minimum(limit // requests + (np.arange(requests) < limit % requests), length)
    checked = np.arange(length) < even[:, None]
    return BudgetSplit(
        lengths, requests + float(rows.ravel()[chosen].sum()), requests + float(rows[checked].sum())
    )


@dataclasses.dataclass(frozen=True, eq=False)
class BudgetPlan:
    """A budget split over the requests of a record, and what it yields.

    Attributes:
        lengths: `(R,)` drafts checked of each request.
        tokens, even_tokens: expected tokens of one call with that split, and with equal shares.
        held_out: whether they were counted on steps that the split had not seen; if not, `tokens`
            is too large, for the split was chosen on the same counts.
    """

    lengths: NDArray[np.int64]
    tokens: float
    even_tokens: float
    held_out: bool


def plan_budget(record: AcceptanceRecord, *, budget: int) -> BudgetPlan:
    """Split a budget of drafts over the requests of a record, as if they were one batch.

    Where steps are listed, every second step chooses the split and the others count its tokens, and
    the other way round; the mean of both is reported. Drafts that were not made count as rejected.

    Args:
        record: requests, with per-position counts.
        budget: drafts that one target call checks, of all requests together.

    Returns:
        BudgetPlan.

    Raises:
        InvalidParameter: if the record tells no requests apart, or holds means only.
        TooLarge: beyond 2^25 numbers, one for each request and position.

    Cost: O(steps) and two sorts of R·L numbers. Reference: TETRIS [Wu et al. 2025], Section 3.

    >>> import json
    >>> from otm.engines.records import parse_acceptance
    >>> easy, hard = (
    ...     {"spec_verify_ct": 10, "spec_accept_histogram": counts}
    ...     for counts in ([1, 1, 8], [5, 3, 2])
    ... )
    >>> plan = plan_budget(parse_acceptance(json.dumps([easy, hard])), budget=2)
    >>> plan.lengths.tolist(), round(plan.tokens, 6), round(plan.even_tokens, 6), plan.held_out
    ([2, 0], 3.7, 3.4, False)
    """
    length = check_instance(record, AcceptanceRecord, name="record").survivors.size
    require_table(len(record.parts), length)
    if record.requests is None or record.requests < 2:
        raise InvalidParameter(
            f"A budget is split over requests; this {record.form} tells none apart. Record per "
            "request."
        )

    def rows(first: int, stride: int) -> Floats:
        """Return survival by request over every `stride`-th of its steps."""
        found = np.zeros((len(record.parts), length))
        for row, part in zip(found, record.parts, strict=True):
            if stride > 1 and part.pairs is not None:
                accepted = part.pairs[first::stride, 0]
                row[:] = (
                    accepted.size - np.cumsum(np.bincount(accepted, minlength=length))[:length]
                ) / max(1, accepted.size)
            elif part.survivors is not None:
                row[: part.survivors.size] = np.minimum(1.0, part.survivors / part.steps)
        return found

    whole = split_budget(rows(0, 1), budget=budget)
    if not all(part.pairs is not None and part.steps >= 2 for part in record.parts):
        return BudgetPlan(whole.lengths, whole.tokens, whole.even_tokens, held_out=False)
    tokens = 0.0
    for half in (0, 1):
        lengths, other = split_budget(rows(half, 2), budget=budget).lengths, rows(1 - half, 2)
        tokens += 0.5 * (
            len(record.parts) + float(other[np.arange(length) < lengths[:, None]].sum())
        )
    return BudgetPlan(whole.lengths, tokens, whole.even_tokens, held_out=True)
